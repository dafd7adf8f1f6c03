//! Drill "latency": what Tandem costs a host that runs no VM: wake-up latency when idle, `perf bench sched pipe` and
//! hackbench against the kernel's own scheduler, in turn within one boot, by the ratio of medians.

use super::record::{Record, spread};
use super::{Drill, Report, Setting, TWO_CPUS, begin, spec, tools};
use crate::archive::Archive;
use crate::boot::Stream;
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-latency");
const ROUNDS: u32 = 12;
/// Fewer undisturbed rounds of a scheduler than this are no answer.
const LEAST_ROUNDS: usize = 5;
/// A round counts if a fixed piece of work beside it, on both CPUs, took at most this much of its shortest time: more
/// means that the machine had less than two cores to give, and its other work was measured.
const QUIET: f64 = 1.25;
/// What Tandem may cost against the kernel's own scheduler.
const MOST: f64 = 1.10;
/// The work's shortest time is that of this rank from 0: a slip of the emulated clock made one of 48 a third too short,
/// and every round looked disturbed.
const REFERENCE: usize = 2;
/// Each name of a measurement and what it is.
const MEASURED: [(&str, &str); 3] = [
    ("wake_us", "mean wake-up latency of an idle host (cyclictest, SCHED_OTHER)"),
    ("pipe_us", "perf bench sched pipe, a round trip"),
    ("hackbench_s", "hackbench, 2 groups"),
];

pub(super) fn run(setting: &Setting, archive: &Archive, on: &mut dyn FnMut(Stream, &str)) -> Result<Report> {
    let mut spec = spec(setting, &format!("ROUNDS={ROUNDS} WAKES=1000 PIPES=10000 MESSAGES=100"), SCRIPT, 600);
    spec.topology = TWO_CPUS;
    spec.kvm_inside = false;
    spec.files.extend(tools::fetch(archive)?);
    let (mut report, _, records) = begin(Drill::Latency, &spec, archive, on)?;
    judge(&mut report, &records);
    Ok(report)
}

fn judge(report: &mut Report, records: &[Record]) {
    report.columns = vec!["round", "policy", "wake_us", "pipe_us", "hackbench_s", "machine", "counts"];
    let rounds: Vec<&Record> = records.iter().filter(|r| r.kind == "round" && r.text("policy") != "warm-up").collect();
    let control = |r: &Record| r.number("before_ns").zip(r.number("after_ns")).map(|(a, b)| a.max(b));
    let mut controls: Vec<f64> = rounds.iter().flat_map(|r| [r.number("before_ns"), r.number("after_ns")]).flatten().collect();
    controls.sort_by(f64::total_cmp);
    let shortest = controls.get(REFERENCE).copied().unwrap_or(f64::NAN);
    let slowness = |r: &Record| control(r).map_or(f64::INFINITY, |ns| ns / shortest);
    for r in &rounds {
        let mut row = ["n", "policy", "wake_us", "pipe_us", "hackbench_s"].map(|k| r.text(k).to_owned()).to_vec();
        row.extend([format!("{:.2}", slowness(r)), if slowness(r) <= QUIET { "yes" } else { "no" }.to_owned()]);
        report.rows.push(row);
    }
    report.notes.push(format!(
        "machine: CPU time of a fixed piece of work on both CPUs, before or after the round, by its shortest; above {QUIET} the round does not count"
    ));
    for (key, what) in MEASURED {
        let of = |policy: &str| -> Vec<f64> {
            let counted = rounds.iter().filter(|r| r.text("policy") == policy && slowness(r) <= QUIET);
            counted.filter_map(|r| r.number(key)).collect()
        };
        let (kernel, tandem) = (of("eevdf"), of("tandem"));
        let enough = kernel.len() >= LEAST_ROUNDS && tandem.len() >= LEAST_ROUNDS;
        let counts = format!("{} and {} rounds", kernel.len(), tandem.len());
        let (Some(a), Some(b)) = (spread(kernel), spread(tandem)) else {
            report.check(what, false, "no undisturbed round", format!("{MOST:.2} of the kernel's"));
            continue;
        };
        let ratio = b.1 / a.1;
        let seen = format!(
            "ratio {ratio:.2} of medians; eevdf {:.2} ({:.2} to {:.2}), tandem {:.2} ({:.2} to {:.2}); {counts}",
            a.1, a.0, a.2, b.1, b.0, b.2
        );
        report.check(what, enough && ratio <= MOST, seen, format!("{MOST:.2}, {LEAST_ROUNDS} undisturbed rounds each"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    fn judged(tandem_us: &str, after_ns: u32) -> Report {
        let mut report = Report {
            drill: "latency",
            kernel: String::new(),
            tries: 1,
            folder: String::new(),
            columns: vec![],
            rows: vec![],
            checks: vec![],
            notes: vec![],
        };
        let mut text = "drill: round n=0 policy=warm-up wake_us=900 pipe_us=9 hackbench_s=9 before_ns=1 after_ns=1\n".to_owned();
        for n in 1..=ROUNDS {
            let beside = format!("before_ns=100 after_ns={}", if n > 5 { after_ns } else { 100 });
            text += &format!("drill: round n={n} policy=eevdf wake_us=100 pipe_us=50 hackbench_s=1.0 {beside}\n");
            text += &format!("drill: round n={n} policy=tandem wake_us={tandem_us} pipe_us=40 hackbench_s=1.1 {beside}\n");
        }
        judge(&mut report, &records(&text));
        report
    }

    #[test]
    fn a_tenth_more_passes_and_a_fifth_or_nothing_fails() {
        assert!(judged("110", 120).passed());
        assert!(!judged("120", 120).passed());
        assert!(!judged("", 120).passed());
    }

    #[test]
    fn rounds_that_the_machine_disturbed_do_not_count() {
        let report = judged("100", 200);
        assert!(report.passed() && report.checks[0].seen.contains("5 and 5 rounds"), "{report}");
    }
}
