//! Drill "latency": what Tandem costs a host that runs no VM: wake-up latency when idle, `perf
//! bench sched pipe` and hackbench against the kernel's own scheduler, in turn within one boot, by
//! the ratio of medians; and what recording a trace costs there.
//!
//! The boot counts instructions: an instruction of any CPU is 2 ns of the guest's time. So the
//! ratios are those of the work that is done, CPUs that work at the same time add up, and the
//! machine's other work does not show (docs/design/018-bounds.md).

use super::record::{Record, spread};
use super::{Drill, Report, Setting, TWO_CPUS, begin, spec, tools};
use crate::archive::Archive;
use crate::boot::{Accel, Stream};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-latency");
/// A median of fewer follows what else is in the boot image, and whether the daemon's look at the
/// host, every 500 ms, falls into a round.
pub const ROUNDS: usize = 5;
/// Wall time of a round on a busy machine; the whole has at least that of [`ROUNDS`].
const ROUND_S: u64 = 120;
/// What Tandem may cost against the kernel's own scheduler.
const MOST: f64 = 1.10;
/// And a wake-up, which cyclictest prints in whole us: one of them is 1.7 % of the kernel's own.
const MOST_WAKE_UP: f64 = 1.12;
/// What recording may add to a round trip.
const MOST_RECORDING: f64 = 1.05;
/// Each name of a measurement, what it is and what it may cost.
const MEASURED: [(&str, &str, f64); 3] = [
    ("wake_us", "mean wake-up latency of an idle host (cyclictest, SCHED_OTHER)", MOST_WAKE_UP),
    ("pipe_us", "perf bench sched pipe, a round trip", MOST),
    ("hackbench_s", "hackbench, 2 groups", MOST),
];

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let rounds = setting.rounds;
    let before = format!("ROUNDS={rounds} WAKES=1600 PIPES=3000 MESSAGES=50");
    let mut spec = spec(setting, &before, SCRIPT, ROUND_S * rounds.max(ROUNDS) as u64);
    spec.topology = TWO_CPUS;
    spec.kvm_inside = false;
    spec.accel = Accel::Icount { shift: 1 };
    spec.files.extend(tools::fetch(archive)?);
    let (mut report, _, records) = begin(Drill::Latency, &spec, archive, on)?;
    judge(&mut report, &records, setting.rounds);
    Ok(report)
}

fn judge(report: &mut Report, records: &[Record], wanted: usize) {
    report.columns = vec!["round", "policy", "wake_us", "pipe_us", "hackbench_s"];
    let rounds: Vec<&Record> =
        records.iter().filter(|r| r.kind == "round" && r.text("policy") != "warm-up").collect();
    report.rows.extend(rounds.iter().map(|r| {
        ["n", "policy", "wake_us", "pipe_us", "hackbench_s"].map(|k| r.text(k).to_owned()).to_vec()
    }));
    report.notes.push("times count instructions of both CPUs, 2 ns each".into());
    for (key, what, most) in MEASURED {
        compare(report, &rounds, (key, what), ("eevdf", "tandem"), most, wanted);
    }
    compare(
        report,
        &rounds,
        ("pipe_us", "the same round trip while a trace is recorded"),
        ("tandem", "recording"),
        MOST_RECORDING,
        wanted,
    );
    let traces: Vec<&Record> = records.iter().filter(|r| r.kind == "trace").collect();
    let number = |r: &Record, key: &str| r.number(key).unwrap_or(-1.0);
    // A line each, those of the names and of the accounts besides.
    let whole = |r: &&Record| {
        number(r, "code") == 0.0
            && number(r, "lost") == 0.0
            && number(r, "lines") >= number(r, "events").max(1000.0)
    };
    let seen = traces
        .iter()
        .map(|r| format!("{} records, {} lost", r.text("events"), r.text("lost")))
        .collect::<Vec<_>>()
        .join("; ");
    let all = traces.len() == wanted && traces.iter().all(whole);
    report.check(
        "each trace is whole, and every record of it is read again",
        all,
        seen,
        "nothing lost",
    );
}

/// Holds the second policy's median of so many rounds to so much of the first's.
fn compare(
    report: &mut Report,
    rounds: &[&Record],
    (key, what): (&str, &str),
    (one, other): (&str, &str),
    most: f64,
    wanted: usize,
) {
    let of = |policy: &str| -> Vec<f64> {
        rounds.iter().filter(|r| r.text("policy") == policy).filter_map(|r| r.number(key)).collect()
    };
    let (first, second) = (of(one), of(other));
    let whole = first.len() == wanted && second.len() == wanted;
    let (Some(a), Some(b)) = (spread(first), spread(second)) else {
        report.check(what, false, "nothing measured", format!("{most:.2} of {one}'s"));
        return;
    };
    let ratio = b.1 / a.1;
    let seen = format!(
        "ratio {ratio:.2} of medians; {one} {:.2} ({:.2} to {:.2}), {other} {:.2} ({:.2} to {:.2})",
        a.1, a.0, a.2, b.1, b.0, b.2
    );
    report.check(what, whole && ratio <= most, seen, format!("{most:.2}, {wanted} rounds each"));
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    fn judged_with(
        (wake_us, hackbench_s): (&str, &str),
        rounds: usize,
        recording_us: &str,
        lost: u32,
    ) -> Report {
        let mut report = Report::of_no_boot("latency");
        let mut text =
            "drill: round n=0 policy=warm-up wake_us=900 pipe_us=9 hackbench_s=9\n".to_owned();
        for n in 1..=rounds {
            text += &format!(
                "drill: round n={n} policy=eevdf wake_us=100 pipe_us=50 hackbench_s=1.0\n"
            );
            text += &format!(
                "drill: round n={n} policy=tandem wake_us={wake_us} pipe_us=40 \
                    hackbench_s={hackbench_s}\n"
            );
            text += &format!(
                "drill: round n={n} policy=recording wake_us=100 pipe_us={recording_us} \
                    hackbench_s=1.1\n"
            );
            text += &format!("drill: trace n={n} code=0 events=5000 lost={lost} lines=5100\n");
        }
        judge(&mut report, &records(&text), ROUNDS);
        report
    }

    fn judged(wake_us: &str, rounds: usize) -> Report {
        judged_with((wake_us, "1.1"), rounds, "42", 0)
    }

    #[test]
    fn recording_may_cost_little_and_lose_nothing() {
        assert!(judged_with(("100", "1.1"), ROUNDS, "42", 0).passed());
        assert!(!judged_with(("100", "1.1"), ROUNDS, "42.1", 0).passed());
        assert!(!judged_with(("100", "1.1"), ROUNDS, "42", 1).passed());
    }

    #[test]
    fn what_is_allowed_passes_and_a_percent_more_or_nothing_or_a_missing_round_fails() {
        assert!(judged("112", ROUNDS).passed());
        assert!(!judged("113", ROUNDS).passed());
        assert!(!judged_with(("100", "1.11"), ROUNDS, "42", 0).passed());
        assert!(!judged("", ROUNDS).passed());
        assert!(!judged("100", ROUNDS - 1).passed());
    }
}
