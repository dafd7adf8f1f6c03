//! What guests did of their work, by policy, load, guest, work and place: medians over all
//! repetitions of a boot; nothing is judged here.

use std::collections::BTreeMap;

use super::super::record::{Record, spread};

/// What the guests are shown; the first does the work on vCPUs that are named, too.
pub const GUESTS: [&str; 2] = ["shown", "hidden"];
/// Schedulers, in the order of the tables.
pub const POLICIES: [&str; 2] = ["eevdf", "tandem"];
/// What runs beside the guests: nothing, or a VM that computes on both pCPUs.
pub const LOADS: [&str; 2] = ["none", "burn"];
/// Kinds of work.
pub const WORKS: [&str; 4] = ["exec", "storm", "rr", "stream"];

/// One measurement's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Of [`POLICIES`].
    pub policy: String,
    /// Of [`LOADS`].
    pub load: String,
    /// Of [`GUESTS`].
    pub guest: String,
    /// Of [`WORKS`].
    pub work: String,
    /// `free`, `held` on one vCPU, or sender and receiver `apart`.
    pub place: String,
}

/// Least, median and most of a measurement's repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// The most.
    pub most: f64,
}

/// One repetition.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rate: f64,
    interrupts: f64,
    switches: f64,
    moves: f64,
}

/// All measurements of a boot.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    cells: BTreeMap<Cell, Vec<Sample>>,
}

impl Figures {
    pub(super) const COLUMNS: [&'static str; 12] = [
        "policy",
        "load",
        "guest",
        "work",
        "place",
        "times",
        "rate",
        "least",
        "most",
        "interrupts",
        "switches",
        "moves",
    ];

    pub(super) fn of(records: &[Record]) -> Figures {
        let mut out = Figures::default();
        for r in records.iter().filter(|r| r.kind == "work") {
            let number = |key: &str| r.number(key);
            let (Some(us), Some(count)) = (number("us"), number("count")) else { continue };
            if us <= 0.0 || count <= 0.0 {
                continue;
            }
            let each = |key: &str| number(key).unwrap_or(f64::NAN) / count;
            let sample = Sample {
                rate: count * 1e6 / us,
                interrupts: each("interrupts"),
                switches: each("switches"),
                moves: each("moves"),
            };
            let text = |key: &str| r.text(key).to_owned();
            let cell = Cell {
                policy: text("policy"),
                load: text("load"),
                guest: text("guest"),
                work: text("work"),
                place: text("place"),
            };
            out.cells.entry(cell).or_default().push(sample);
        }
        out
    }

    /// A row for each cell: rates a second, the rest for each piece of work.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let row = |(cell, samples): (&Cell, &Vec<Sample>)| {
            let of = |part: fn(&Sample) -> f64| spread(samples.iter().map(part).collect());
            let (least, median, most) = of(|s| s.rate).unwrap_or_default();
            let each = |part: fn(&Sample) -> f64| of(part).map_or(f64::NAN, |s| s.1);
            let mut out =
                [&cell.policy, &cell.load, &cell.guest, &cell.work, &cell.place].map(Clone::clone).to_vec();
            out.push(samples.len().to_string());
            out.extend([median, least, most].map(|n| format!("{n:.1}")));
            out.extend(
                [each(|s| s.interrupts), each(|s| s.switches), each(|s| s.moves)]
                    .map(|n| format!("{n:.3}")),
            );
            out
        };
        self.cells.iter().map(row).collect()
    }
}
