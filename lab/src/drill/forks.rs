//! Drill "forks": a host task makes 200,000 threads while two busy VMs and busy host tasks share
//! the pCPUs; and, on a host whose table of threads is as small as it can be, more threads than
//! that has room for. No VM's share may change, every thread is accounted, a fork is refused where
//! there is no room, and all is as before when the threads have gone.
//!
//! By the exact clock: the shares of one second are held against those of another.

use super::record::Record;
use super::{Drill, Report, Setting, TWO_CPUS, begin, rogue, spec};
use crate::archive::Archive;
use crate::boot::{Accel, Stream};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-forks");
const THREADS: u64 = 200_000;
/// Slots of the table for `LOWERED` threads (crates/host/src/threads.rs), and more threads than it
/// has.
const TABLE: u64 = LOWERED * 9 / 8 + 4097;
const LOWERED: u64 = 4000;
const TOO_MANY: u64 = 12_000;
/// Threads that two tasks at least make and end in 30 s each, or it was no storm.
const CHURNED: u64 = 1000;
/// By how much of its part before the storm a VM's may change: a quantum of 30 seconds is 0.2 % of
/// a pCPU, and 0.5 % of what VM b gets.
const CHANGE: f64 = 0.01;
/// Threads of 16 KB of stack and about as much of other memory each, 6 GB in all.
const MEMORY_MB: u32 = 10_240;
/// While what, in order.
const WINDOWS: [&str; 4] = ["forking", "herd", "churn", "after"];

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let before = format!("THREADS={THREADS} LOWERED={LOWERED} TOO_MANY={TOO_MANY}");
    let mut spec = spec(setting, &before, SCRIPT, 1800);
    spec.topology = TWO_CPUS;
    spec.accel = Accel::EXACT;
    spec.memory_mb = MEMORY_MB;
    spec.files.extend(rogue::build(archive, rogue::ROGUE, &["rogue"])?);
    let (mut report, _, records) = begin(Drill::Forks, &spec, archive, on)?;
    judge(&mut report, &records);
    Ok(report)
}

fn judge(report: &mut Report, records: &[Record]) {
    report.columns = vec!["while", "ms", "a_percent", "b_percent", "threads"];
    let window = |name: &str| records.iter().find(|r| r.kind == "used" && r.text("name") == name);
    let part = |name: &str, vm: &str| -> Option<f64> {
        let r = window(name)?;
        Some(r.number(vm)? / 10.0 / r.number("ms")?.max(1.0))
    };
    for name in ["before"].iter().chain(&WINDOWS) {
        let Some(r) = window(name) else { continue };
        let percent = |vm| part(name, vm).map_or(String::new(), |p| format!("{p:.1}"));
        report.rows.push(vec![
            (*name).to_owned(),
            r.text("ms").to_owned(),
            percent("a_us"),
            percent("b_us"),
            r.text("worlds").to_owned(),
        ]);
    }
    for name in WINDOWS {
        let change = |vm: &str| Some(part(name, vm)? / part("before", vm)? - 1.0);
        let both = change("a_us").zip(change("b_us"));
        let ok = both.is_some_and(|(a, b)| a.abs() <= CHANGE && b.abs() <= CHANGE);
        let seen = both.map_or("not seen".to_owned(), |(a, b)| {
            format!("a {:+.2} %, b {:+.2} %", a * 100.0, b * 100.0)
        });
        let most = format!("{:.0} % more or less", CHANGE * 100.0);
        report.check(format!("what the VMs get, {name}, against before"), ok, seen, most);
    }
    let made: u64 = of(records, "herd").filter_map(|r| r.count("made")).sum();
    let wanted = THREADS.to_string();
    report.check("threads that were made", made == THREADS, made.to_string(), wanted);
    let worlds = |name: &str| window(name).and_then(|r| r.count("worlds")).unwrap_or(0);
    let (least, seen) = (worlds("before") + THREADS, worlds("herd"));
    report.check(
        "threads with an account while they sleep",
        seen >= least,
        seen.to_string(),
        format!("{least} at least"),
    );
    // the daemon's and the drill's own come and go
    let (most, seen) = (worlds("before") + 20, worlds("after"));
    report.check(
        "threads with an account when they have gone",
        seen > 0 && seen <= most,
        seen.to_string(),
        format!("{most} at most"),
    );
    let churned = of(records, "churned").next();
    let made = |key: &str| churned.and_then(|r| r.count(key)).unwrap_or(0);
    let (one, other) = (made("one"), made("other"));
    report.check(
        "threads that two tasks made and ended, one after the other",
        one.min(other) >= CHURNED,
        format!("{one}, {other}"),
        format!("{CHURNED} each at least"),
    );
    full(report, records);
    let bad: Vec<String> = of(records, "daemon")
        .filter(|r| {
            r.text("up") != "yes" || r.text("state") != "enabled" || r.text("asserts") != "0"
        })
        .map(|r| format!("up {}, {}, {}", r.text("up"), r.text("state"), r.text("asserts")))
        .collect();
    let (ok, seen) = (bad.is_empty() && of(records, "daemon").count() == 2, bad.join("; "));
    report.check("the daemon, the scheduler and its assertions", ok, seen, "up, enabled, 0, twice");
}

/// More threads than the table has room for.
fn full(report: &mut Report, records: &[Record]) {
    let seen = of(records, "full").next();
    let count = |key: &str| seen.and_then(|r| r.count(key)).unwrap_or(0);
    let (made, refused, told) = (count("made"), count("refused"), count("told"));
    let ok = made > TABLE / 2 && made < TABLE && refused > 0 && told > 0;
    report.check(
        "threads made beside a small table, forks refused, and lines of the daemon about it",
        ok,
        format!("{made}, {refused}, {told}"),
        format!("fewer than {TABLE}, some, one or more"),
    );
}

fn of<'r>(records: &'r [Record], kind: &'r str) -> impl Iterator<Item = &'r Record> {
    records.iter().filter(move |r| r.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    /// A drill in which VM a has so many us of 30,000 ms while the threads sleep.
    fn judged(a_us: u64, worlds_after: u64) -> Vec<bool> {
        let mut text = String::new();
        for (name, worlds) in [
            ("before", 100),
            ("forking", 90_000),
            ("herd", 200_104),
            ("churn", 200_110),
            ("after", worlds_after),
        ] {
            let a = if name == "herd" { a_us } else { 18_000_000 };
            text += &format!(
                "drill: used name={name} ms=30000 a_us={a} b_us=6000000 worlds={worlds}\n"
            );
        }
        text += "drill: churned one=5000 other=5000\n";
        text += "drill: herd made=100000 refused=0\ndrill: herd made=100000 refused=0\n";
        text += "drill: full made=8500 refused=1000 told=1\n";
        text += &"drill: daemon up=yes state=enabled asserts=0\n".repeat(2);
        let mut report = Report::of_no_boot("forks");
        judge(&mut report, &records(&text));
        report.checks.iter().map(|c| c.ok).collect()
    }

    #[test]
    fn a_vm_that_loses_and_threads_that_stay_are_seen() {
        assert!(judged(18_000_000, 104).iter().all(|ok| *ok));
        assert_eq!(judged(17_800_000, 104).iter().filter(|ok| !**ok).count(), 1);
        assert_eq!(judged(18_000_000, 4000).iter().filter(|ok| !**ok).count(), 1);
    }
}
