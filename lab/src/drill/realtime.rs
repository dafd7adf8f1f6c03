//! Drill "realtime": tasks of SCHED_FIFO, and then of SCHED_DEADLINE, take 30 % of two of four
//! CPUs. What they take is counted and reported; the rest is divided: a reservation is met in full,
//! siblings stay together, and no CPU idles.
//!
//! By the exact clock: what VMs get in one window is held against that of others.

use super::record::Record;
use super::{Drill, Report, Setting, begin, rogue, spec};
use crate::archive::Archive;
use crate::boot::{Accel, Stream, Topology};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-realtime");
const HOST: Topology = Topology { sockets: 1, nodes: 1, cores_per_socket: 4, threads: 1 };
const SECONDS: u64 = 10;
/// Until the daemon knows what is taken, and the plan has it (crates/publish, taken.rs).
const SETTLE: u64 = 4;
const HOGS: u64 = 2;
const WORK_US: u64 = 3000;
const PERIOD_US: u64 = 10_000;
/// Of VM r, in percent of a CPU: half of the host, so with a plan that does not know what is taken
/// it would get half of the rest.
const RESERVED: u64 = 200;
/// What the reservation may miss: the plan knows what is taken in 64ths of a CPU (half of one for
/// each CPU, 0.4 % of it), and a quantum at each end.
const MISSED_PERCENT: f64 = 1.0;
const MISSED: f64 = MISSED_PERCENT / 100.0;
/// By how much what the scheduler counts as taken may differ from what the tasks used: it has the
/// switches to them and back, and what stoppers and other real-time threads of the kernel take.
const APART: f64 = 0.03;
/// What tasks must run of four CPUs: the rest is the kernel's, between tasks.
const BUSY: f64 = 0.98;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let before = format!(
        "SECONDS_EACH={SECONDS} SETTLE={SETTLE} HOGS={HOGS} WORK_US={WORK_US} \
            PERIOD_US={PERIOD_US} RESERVED={RESERVED}"
    );
    let mut spec = spec(setting, &before, SCRIPT, 3600);
    spec.topology = HOST;
    spec.accel = Accel::EXACT;
    spec.files.extend(rogue::build(archive, rogue::TENANT, &["qemu-system-tcg"])?);
    spec.files.extend(rogue::build(archive, rogue::HOG, &["hog"])?);
    let (mut report, outcome, records) = begin(Drill::Realtime, &spec, archive, on)?;
    judge(&mut report, &records);
    for name in ["before", "fifo", "deadline"] {
        if let Ok(text) = outcome.file(&format!("checked-{name}.txt")) {
            report.notes.extend(text.lines().take(8).map(|l| format!("{name}: {l}")));
        }
    }
    Ok(report)
}

/// What everyone used in a window, in CPUs.
struct Used {
    all: f64,
    a: f64,
    r: f64,
    hog: f64,
    taken: f64,
}

fn window(records: &[Record], name: &str) -> Option<Used> {
    let r = records.iter().find(|r| r.kind == "used" && r.text("name") == name)?;
    let cpus = |key: &str| Some(r.number(key)? / 1e3 / r.number("ms")?.max(1.0));
    Some(Used {
        all: cpus("all_us")?,
        a: cpus("a_us")?,
        r: cpus("r_us")?,
        hog: cpus("hog_us")?,
        taken: cpus("taken_us")?,
    })
}

fn judge(report: &mut Report, records: &[Record]) {
    report.columns = vec!["window", "all_cpus", "a_cpus", "r_cpus", "hog_cpus", "taken_cpus"];
    for name in ["before", "fifo", "deadline", "after"] {
        let seen = window(records, name);
        if let Some(u) = &seen {
            let cells = [u.all, u.a, u.r, u.hog, u.taken].map(|x| format!("{x:.3}"));
            report.rows.push([name.to_owned()].into_iter().chain(cells).collect());
        }
        let reserved = RESERVED as f64 / 100.0;
        report.check(
            format!("{name}: CPUs of VM r, which has {reserved} reserved"),
            seen.as_ref().is_some_and(|u| u.r >= reserved * (1.0 - MISSED)),
            seen.as_ref().map_or("not seen".into(), |u| format!("{:.3}", u.r)),
            format!("{:.3} at least", reserved * (1.0 - MISSED)),
        );
        let cpus = f64::from(HOST.cpus());
        report.check(
            format!("{name}: CPUs that tasks used, of {cpus}"),
            seen.as_ref().is_some_and(|u| u.all >= cpus * BUSY),
            seen.as_ref().map_or("not seen".into(), |u| format!("{:.3}", u.all)),
            format!("{:.2} at least", cpus * BUSY),
        );
        if ["fifo", "deadline"].contains(&name) {
            report.check(
                format!("{name}: CPUs that the scheduler counts as taken"),
                seen.as_ref().is_some_and(|u| (u.taken / u.hog - 1.0).abs() <= APART),
                seen.as_ref().map_or("not seen".into(), |u| format!("{:.3}", u.taken)),
                format!("what their cgroup used, {:.0} % apart", APART * 100.0),
            );
        }
        if name != "after" {
            let checked = records.iter().find(|r| r.kind == "checked" && r.text("name") == name);
            let code = checked.map_or("not seen", |r| r.text("code"));
            report.check(
                format!("{name}: exit code of 'tandem trace check': states, waits, skew"),
                code == "0",
                code,
                "0",
            );
        }
    }
    let d = records.iter().find(|r| r.kind == "daemon");
    let seen =
        ["up", "state", "asserts", "begins", "ends"].map(|key| d.map_or("", |r| r.text(key)));
    report.check(
        "the daemon, the scheduler, its assertions; times that the daemon said that CPUs are \
            taken, and that they are no more",
        seen == ["yes", "enabled", "0", "2", "2"] || seen == ["yes", "enabled", "0", "1", "1"],
        seen.join(", "),
        "yes, enabled, 0, 1 or 2 and as many",
    );
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    #[test]
    fn a_missed_reservation_time_left_over_and_a_wrong_count_are_seen() {
        let console = |r: u64, all: u64, taken: u64, code: u32| {
            let mut text = String::new();
            for (name, hog) in [("before", 0), ("fifo", 6000), ("deadline", 6000), ("after", 0)] {
                let taken = if hog > 0 { taken } else { 0 };
                text += &format!(
                    "drill: used name={name} ms=10000 all_us={all}000 a_us=1 r_us={r}000 \
                        hog_us={hog}000 taken_us={taken}000\n\
                    drill: checked name={name} code={code}\n"
                );
            }
            text + "drill: daemon up=yes state=enabled asserts=0 begins=2 ends=2\n"
        };
        let failed = |text: &str| {
            let mut report = Report::of_no_boot("realtime");
            judge(&mut report, &records(text));
            report.checks.iter().filter(|c| !c.ok).count()
        };
        assert_eq!(failed(&console(20_000, 39_900, 6100, 0)), 0);
        assert_eq!(failed(&console(19_700, 39_900, 6100, 0)), 4);
        assert_eq!(failed(&console(20_000, 38_000, 6100, 0)), 4);
        assert_eq!(failed(&console(20_000, 39_900, 5000, 0)), 2);
        assert_eq!(failed(&console(20_000, 39_900, 6100, 6)), 3);
        assert_eq!(failed(""), 14);
    }
}
