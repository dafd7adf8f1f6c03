//! Drill "locks": a thread of a VM holds a mutex of the kernel and wakes with it when the VM's
//! limit is used up, while a host task sleeps for that mutex. The VM is not parked with the lock:
//! the host task goes on as if there were no limit, and the VM pays later.
//!
//! By the exact clock: times of one VM are held against those of another.

use super::record::Record;
use super::{Drill, Report, Setting, TWO_CPUS, begin, rogue, spec};
use crate::archive::Archive;
use crate::boot::{Accel, Stream};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-locks");
const TIMES: usize = 20;
/// Of a CPU: after a slice of 50 ms the VM is parked for a second.
const LIMIT_PERCENT: u64 = 5;
/// What the host task may wait: the holder's wake-up and its own, and a tick of limits where it
/// began to sleep after the holder was parked, and as much for what interrupts both.
const MOST_MS: f64 = 3.0;
/// By how much the VM may exceed its limit: what it runs in debt is paid for later, but not what it
/// ran in the last moment.
const OVER: f64 = 0.10;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let before = format!("TIMES={TIMES} LIMIT_PERCENT={LIMIT_PERCENT}");
    let mut spec = spec(setting, &before, SCRIPT, 1800);
    spec.topology = TWO_CPUS;
    spec.accel = Accel::EXACT;
    spec.files.extend(rogue::build(archive, rogue::LOCKER, &["locker", "qemu-system-locker"])?);
    let (mut report, _, records) = begin(Drill::Locks, &spec, archive, on)?;
    judge(&mut report, &records);
    Ok(report)
}

fn judge(report: &mut Report, records: &[Record]) {
    report.columns = vec!["vm", "times", "least_ms", "median_ms", "most_ms"];
    for name in ["free", "limited"] {
        let of = records.iter().filter(|r| r.kind == "lock" && r.text("name") == name);
        let mut waits: Vec<f64> =
            of.filter_map(|r| Some(r.number("waited_us")? / 1000.0)).collect();
        waits.sort_by(f64::total_cmp);
        let at = |i: usize| waits.get(i).map_or("-".to_owned(), |ms| format!("{ms:.2}"));
        let last = waits.len().saturating_sub(1);
        report.rows.push(vec![
            name.to_owned(),
            waits.len().to_string(),
            at(0),
            at(last / 2),
            at(last),
        ]);
        report.check(
            format!("VM {name}: ms that a host task waits for a mutex which the VM's thread holds"),
            waits.len() == TIMES && waits.last().is_some_and(|ms| *ms <= MOST_MS),
            format!("{} at most in {} times", at(last), waits.len()),
            format!("{MOST_MS} at most in {TIMES} times"),
        );
    }
    let limited = records.iter().find(|r| r.kind == "limited");
    let part = limited.and_then(|r| Some(r.number("used_us")? / 10.0 / r.number("ms")?.max(1.0)));
    let limit = LIMIT_PERCENT as f64;
    report.check(
        "CPU of the limited VM meanwhile",
        part.is_some_and(|p| p <= limit * (1.0 + OVER)),
        part.map_or("not seen".into(), |p| format!("{p:.2} %")),
        format!("{LIMIT_PERCENT} %, {:.0} % more", 100.0 * OVER),
    );
    let d = records.iter().find(|r| r.kind == "daemon");
    let seen = ["up", "state", "asserts"].map(|key| d.map_or("", |r| r.text(key))).join(", ");
    report.check(
        "the daemon is up, the scheduler, its assertions",
        seen == "yes, enabled, 0",
        seen,
        "yes, enabled, 0",
    );
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    #[test]
    fn a_long_wait_for_a_lock_and_a_limit_that_is_exceeded_are_seen() {
        let console = |waited_us: u32, used_us: u32| {
            let mut text = String::new();
            for name in ["free", "limited"] {
                for n in 0..TIMES {
                    let us = if name == "limited" && n == 7 { waited_us } else { 300 };
                    text += &format!("drill: lock name={name} waited_us={us}\n");
                }
            }
            text + &format!("drill: limited ms=10000 used_us={used_us}\n")
                + "drill: daemon up=yes state=enabled asserts=0\n"
        };
        let failed = |text: &str| {
            let mut report = Report::of_no_boot("locks");
            judge(&mut report, &records(text));
            report.checks.iter().filter(|c| !c.ok).count()
        };
        assert_eq!(failed(&console(2900, 500_000)), 0);
        assert_eq!(failed(&console(3100, 500_000)), 1);
        assert_eq!(failed(&console(2900, 560_000)), 1);
        assert_eq!(failed(""), 4);
    }
}
