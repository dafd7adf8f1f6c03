//! What guests did of their work, by policy, load, guest, work and place, repetition by repetition;
//! nothing is judged here.

use std::collections::BTreeMap;

use super::super::record::{Record, spread};

/// What the guests are shown; the first does the work on vCPUs that are named, too.
pub(super) const GUESTS: [&str; 2] = ["shown", "hidden"];
/// Schedulers of the host.
pub(super) const POLICIES: [&str; 2] = ["eevdf", "tandem"];
/// What runs beside the guests: nothing, or a VM that computes on both pCPUs.
pub(super) const LOADS: [&str; 2] = ["none", "burn"];
/// Kinds of work.
pub(super) const WORKS: [&str; 4] = ["exec", "storm", "rr", "stream"];

/// A measurement: policy, load, guest, work, place.
type Cell = [String; 5];

/// One repetition of a measurement.
#[derive(Clone, Debug)]
struct Sample {
    repetition: String,
    /// Pieces of work a second.
    rate: f64,
    /// For each piece, what the guest did.
    interrupts: f64,
    switches: f64,
    moves: f64,
}

/// All measurements of a boot.
#[derive(Debug, Default)]
pub(super) struct Figures {
    cells: BTreeMap<Cell, Vec<Sample>>,
}

impl Figures {
    pub(super) const COLUMNS: [&'static str; 17] = [
        "policy",
        "load",
        "guest",
        "work",
        "place",
        "rate",
        "least",
        "most",
        "interrupts",
        "switches",
        "moves",
        "by_shown",
        "by_shown_least",
        "by_shown_most",
        "by_eevdf",
        "by_eevdf_least",
        "by_eevdf_most",
    ];

    /// Of the script's lines; one without time is none. Where nothing was done in its time, a
    /// machine that is busy otherwise may be why: the rate is 0, and there is no piece to divide
    /// by.
    pub(super) fn of(records: &[Record]) -> Figures {
        let mut out = Figures::default();
        for r in records.iter().filter(|r| r.kind == "work") {
            let told = r.number("us").zip(r.number("count"));
            let Some((us, count)) = told else { continue };
            if us <= 0.0 {
                continue;
            }
            let each = |key: &str| match r.number(key) {
                Some(n) if count > 0.0 => n / count,
                _ => f64::NAN,
            };
            let sample = Sample {
                repetition: r.text("n").to_owned(),
                rate: count * 1e6 / us,
                interrupts: each("interrupts"),
                switches: each("switches"),
                moves: each("moves"),
            };
            let cell = ["policy", "load", "guest", "work", "place"].map(|k| r.text(k).to_owned());
            out.cells.entry(cell).or_default().push(sample);
        }
        out
    }

    /// How often a measurement was done; 0 if most of them saw no work.
    pub(super) fn times(&self, cell: [&str; 5]) -> usize {
        let samples = self.samples(cell);
        if median(samples, |s| s.rate) > 0.0 { samples.len() } else { 0 }
    }

    /// Interrupts between vCPUs for each piece of work, the median.
    pub(super) fn interrupts(&self, cell: [&str; 5]) -> f64 {
        median(self.samples(cell), |s| s.interrupts)
    }

    /// Moves to another vCPU for each piece of work, the median.
    pub(super) fn moves(&self, cell: [&str; 5]) -> f64 {
        median(self.samples(cell), |s| s.moves)
    }

    fn samples(&self, cell: [&str; 5]) -> &[Sample] {
        self.cells.get(&cell.map(str::to_owned)).map_or(&[], Vec::as_slice)
    }

    /// Least, median and most of one measurement's rate by another's, in the same repetition: what
    /// else the machine does changes less within one than from one to the next.
    fn ratio(&self, of: &Cell, by: &Cell) -> Option<(f64, f64, f64)> {
        let (of, by) = (self.cells.get(of)?, self.cells.get(by)?);
        let other = |s: &Sample| by.iter().find(|b| b.repetition == s.repetition);
        let ratios = of.iter().filter_map(|s| Some(s.rate / other(s)?.rate));
        spread(ratios.filter(|r| r.is_finite()).collect())
    }

    /// A row a measurement: rates a second, what the guest did for each piece of work, and the rate
    /// by that of the guest that is shown a topology, and by that under the kernel's own scheduler.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let mut out = vec![];
        for (cell, samples) in &self.cells {
            let rates = spread(samples.iter().map(|s| s.rate).collect()).unwrap_or_default();
            let mut row = cell.to_vec();
            row.extend([rates.1, rates.0, rates.2].map(|n| format!("{n:.1}")));
            let did: [fn(&Sample) -> f64; 3] = [|s| s.interrupts, |s| s.switches, |s| s.moves];
            row.extend(did.map(|part| format!("{:.3}", median(samples, part))));
            for (at, base) in [(2, GUESTS[0]), (0, POLICIES[0])] {
                let mut by = cell.clone();
                by[at] = base.to_owned();
                let ratio = self.ratio(cell, &by).filter(|_| by != *cell);
                row.extend(ratio.map_or_else(
                    || vec!["-".to_owned(); 3],
                    |(least, middle, most)| {
                        [middle, least, most].map(|n| format!("{n:.2}")).to_vec()
                    },
                ));
            }
            out.push(row);
        }
        out
    }
}

fn median(samples: &[Sample], part: fn(&Sample) -> f64) -> f64 {
    let known = samples.iter().map(part).filter(|n| n.is_finite());
    spread(known.collect()).map_or(f64::NAN, |s| s.1)
}

#[cfg(test)]
mod tests {
    use super::super::super::record::records;
    use super::*;

    fn line(n: u32, policy: &str, guest: &str, us: u32, count: u32) -> String {
        format!(
            "drill: work n={n} policy={policy} load=none guest={guest} work=rr place=free us={us} \
             count={count} moves=0 interrupts=200 switches=400 steal_ms=0 halted_ms=0\n"
        )
    }

    #[test]
    fn rates_are_held_against_those_of_the_same_repetition() {
        // The machine is three times as slow in the second repetition.
        let mut text = String::new();
        for (n, us) in [(1, 1_000_000), (2, 3_000_000), (3, 1_000_000)] {
            text += &line(n, "eevdf", "shown", us, 100);
            text += &line(n, "eevdf", "hidden", us, 50 * n);
            text += &line(n, "tandem", "hidden", us, 100);
        }
        let rows = Figures::of(&records(&text)).rows();
        let shown = |row: &Vec<String>| row[5..].join(" ");
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0][..5], ["eevdf", "none", "hidden", "rr", "free"]);
        assert_eq!(
            shown(&rows[0]),
            "50.0 33.3 150.0 2.000 4.000 0.000 1.00 0.50 1.50 - - -",
            "rate, interrupts and switches of each piece, by the guest that is shown a topology"
        );
        assert_eq!(shown(&rows[1]), "100.0 33.3 100.0 2.000 4.000 0.000 - - - - - -");
        assert_eq!(
            shown(&rows[2]),
            "100.0 33.3 100.0 2.000 4.000 0.000 - - - 1.00 0.67 2.00",
            "no guest is shown a topology there; by the kernel's own scheduler"
        );
    }

    #[test]
    fn a_measurement_without_time_is_none_and_one_without_work_has_no_pieces() {
        let cell = ["eevdf", "none", "shown", "rr", "free"];
        let of = |lines: &[(u32, u32)]| {
            let lines = (1..).zip(lines);
            let text: String =
                lines.map(|(n, (us, count))| line(n, "eevdf", "shown", *us, *count)).collect();
            Figures::of(&records(&text))
        };
        assert!(of(&[(0, 10)]).rows().is_empty());
        let one = of(&[(1000, 10), (1000, 0), (1000, 10)]);
        assert_eq!((one.times(cell), one.interrupts(cell)), (3, 20.0));
        assert_eq!(of(&[(1000, 10), (1000, 0), (1000, 0)]).times(cell), 0, "most saw no work");
        assert!(one.moves(["eevdf", "none", "hidden", "rr", "free"]).is_nan());
    }
}
