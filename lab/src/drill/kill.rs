//! Drill "kill": the daemon dies of SIGKILL under load, again and again; the kernel must have every
//! task back within two seconds, no task may be lost or stand still, and the next start must work.
//!
//! Drill "eject": the same on two CPUs, where a cycle is short, and every second time the kernel
//! ejects the scheduler (SysRq S), and the daemon ends by itself. A campaign has many parts of it.

use std::collections::BTreeMap;

use super::record::Record;
use super::{Drill, IDLE_CONTROL, Report, SLOWNESS, Setting, TWO_CPUS, begin, dilation, spec};
use crate::archive::Archive;
use crate::boot::{Stream, Topology};
use crate::error::Result;
use crate::payload::{Orders, Work};
use crate::vm::{Runs, Vm};

const SCRIPT: &str = include_str!("../../guest/drill-kill");
/// Cycles unless the caller asks for another number.
pub const CYCLES: usize = 20;
/// Wall time of one cycle on a busy machine; the whole has at least that of [`CYCLES`].
const CYCLE_S: u64 = 120;
/// The host of a drill, and what is busy on it beside the script and the daemon.
struct Host {
    drill: Drill,
    topology: Topology,
    burners: u32,
    sleepers: u32,
    /// Of each VM.
    vcpus: u32,
    /// Whether the kernel ejects the scheduler in every second cycle.
    ejects: bool,
}

/// The burners and the VMs' four vCPUs fill the eight CPUs.
const KILLED: Host = Host {
    drill: Drill::Kill,
    topology: Topology::SMALL,
    burners: 4,
    sleepers: 4,
    vcpus: 2,
    ejects: false,
};
/// Two CPUs load in a fourth of the time: each has a core of the machine.
const EJECTED: Host = Host {
    drill: Drill::Eject,
    topology: TWO_CPUS,
    burners: 1,
    sleepers: 2,
    vcpus: 1,
    ejects: true,
};
const VMS: [&str; 2] = ["one", "two"];
/// Exit code of a daemon whose scheduler was ejected (docs/exit-codes.md), and of one killed.
const CODE_EJECTED: &str = "5";
const CODE_KILLED: &str = "137";
/// From SIGKILL until the kernel's own scheduler has all tasks.
const HANDBACK_LIMIT_MS: f64 = 2000.0;
/// What the kernel's verifier may go through at each start, with the default settings. Counted and
/// not timed: each loop that a change makes it walk anew is some thousands. Drill "load" takes the
/// time.
const VERIFIED_MOST: u64 = 50_000;
/// A span shorter than this may see a task only wait: two quanta, and the emulator's own pauses.
const JUDGED_MS: u64 = 900;
/// A step of a sleeper is a fork, an exec and an exit: 0.17 s under the kernel's own scheduler on
/// this emulator, so a shorter time has too few of them (docs/design/018-bounds.md).
const LONG_MS: u64 = 3000;
/// What a burner or vCPU must have run of a judged span: 9 runnable on 8 CPUs should have 89 %;
/// this only tells the living from the stuck.
const LEAST_PERCENT: f64 = 5.0;

/// What one task did in one span.
struct Stretch<'a> {
    who: &'a str,
    ms: u64,
    grown: Option<u64>,
}

impl Stretch<'_> {
    /// Percent of the span that the task ran; none for sleepers, which count rounds.
    fn percent(&self) -> Option<f64> {
        let grown = self.grown? as f64;
        (!self.who.starts_with("sleeper")).then(|| grown / (self.ms.max(1) as f64 * 1e4))
    }

    fn stuck(&self) -> bool {
        self.ms >= JUDGED_MS
            && self.percent().map_or(self.grown.is_none_or(|g| g == 0), |p| p < LEAST_PERCENT)
    }
}

/// What each task did between two looks of a cycle.
fn stretches<'a>(records: &'a [Record], cycle: &str, from: &str, to: &str) -> Vec<Stretch<'a>> {
    let seen = |at: &str| -> BTreeMap<&str, (Option<u64>, Option<u64>)> {
        let of = records
            .iter()
            .filter(|r| r.kind == "seen" && r.text("cycle") == cycle && r.text("at") == at);
        of.map(|r| (r.text("who"), (r.count("ms"), r.count("n")))).collect()
    };
    let (first, last) = (seen(from), seen(to));
    let stretch = |(who, (ms, n)): (&&'a str, &(Option<u64>, Option<u64>))| {
        let (ms_0, n_0) = first.get(who).copied().unwrap_or((None, None));
        let ms = ms.zip(ms_0).map_or(0, |(b, a)| b.saturating_sub(a));
        Stretch { who, ms, grown: n.zip(n_0).map(|(b, a)| b.saturating_sub(a)) }
    };
    last.iter().map(stretch).collect()
}

/// The ends of the daemons, in order, as the script takes them: `MS:kill` or `MS:eject`. Half of
/// them live for `LONG_MS`, so that their scheduling shows; the others end at any moment after the
/// load. Where some are ejected, as many of the long and of the short lives end so.
fn ends(seed: u64, cycles: usize, ejects: bool) -> String {
    let mut random = dice::Draw::new(seed);
    let hold = |i: usize| if i % 2 == 0 { LONG_MS } else { random.below(JUDGED_MS) };
    let end = |i: usize| if ejects && (i / 2) % 2 == 1 { "eject" } else { "kill" };
    let all = (0..cycles).map(hold).enumerate().map(|(i, ms)| format!("{ms}:{}", end(i)));
    all.collect::<Vec<_>>().join(" ")
}

pub(super) fn run(
    drill: Drill,
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let host = if drill == Drill::Eject { EJECTED } else { KILLED };
    let mut before = format!(
        "{IDLE_CONTROL}\nENDS=\"{}\" BURNERS={} SLEEPERS={} VMS=\"{}\"\n",
        ends(setting.seed, setting.cycles, host.ejects),
        host.burners,
        host.sleepers,
        VMS.join(" ")
    );
    for name in VMS {
        let orders = Orders::all(host.vcpus, Work::Burn);
        before += &Vm::new(name, host.vcpus, Runs::Payload(orders)).start_line()?;
        before.push('\n');
    }
    let seconds = CYCLE_S * setting.cycles.max(CYCLES) as u64;
    let mut spec = spec(setting, &before, SCRIPT, seconds);
    spec.topology = host.topology;
    let (mut report, _, records) = begin(host.drill, &spec, archive, &mut quiet(on))?;
    judge(&mut report, &records, &host, setting.cycles);
    Ok(report)
}

/// The looks at every task are for the judge, not for the screen.
fn quiet(on: &mut dyn FnMut(Stream, &str)) -> impl FnMut(Stream, &str) + '_ {
    move |stream, text| {
        let shown: String =
            text.split_inclusive('\n').filter(|l| !l.contains("drill: seen")).collect();
        on(stream, &shown);
    }
}

fn judge(report: &mut Report, records: &[Record], host: &Host, wanted: usize) {
    report.columns = vec![
        "cycle",
        "end",
        "hold_ms",
        "load_ms",
        "handback_ms",
        "slowness",
        "tasks",
        "least_%_held",
        "least_%_after",
        "stuck",
    ];
    let cycles: Vec<&Record> = records.iter().filter(|r| r.kind == "cycle").collect();
    let watched =
        records.iter().find(|r| r.kind == "watched").and_then(|r| r.count("count")).unwrap_or(0);
    let expected = u64::from(host.burners + host.sleepers + host.vcpus * VMS.len() as u32);
    report.check("tasks watched", watched == expected, watched.to_string(), expected.to_string());
    let (mut stuck, mut gone) = (vec![], vec![]);
    for r in &cycles {
        let judged = cycle(records, r);
        report.rows.push(judged.row);
        gone.extend(judged.gone);
        stuck.extend(judged.stuck);
    }
    report.notes.push(format!(
        "least_%: the least CPU time of a burner or vCPU, in % of the stretch, under Tandem (held \
            at least {JUDGED_MS} ms) and after it"
    ));
    report.notes.push(SLOWNESS.into());
    report.check("cycles", cycles.len() == wanted, cycles.len().to_string(), wanted.to_string());
    let disabled = cycles.iter().filter(|r| r.text("state") == "disabled").count();
    report.check(
        "cycles that ended with sched_ext disabled",
        disabled == wanted,
        disabled.to_string(),
        wanted.to_string(),
    );
    let times = |end: &str| -> Vec<(f64, f64)> {
        let of = cycles.iter().filter(|r| r.text("end") == end);
        of.filter_map(|r| Some((r.number("handback_ms")?, dilation(records, r)))).collect()
    };
    report.at_most("from SIGKILL to sched_ext disabled", &times("kill"), HANDBACK_LIMIT_MS);
    if host.ejects {
        let ejected = times("eject");
        report.at_most("from SysRq S to sched_ext disabled", &ejected, HANDBACK_LIMIT_MS);
    }
    codes(report, &cycles, host.ejects);
    verified(report, records);
    let none = |list: &[String]| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    report.check("tasks lost", gone.is_empty(), none(&gone), "none");
    report.check(
        format!("tasks that stood still (under {LEAST_PERCENT} % of a second)"),
        stuck.is_empty(),
        none(&stuck),
        "none",
    );
}

/// How the daemons ended: by the signal, or by themselves once the scheduler was ejected.
fn codes(report: &mut Report, cycles: &[&Record], ejects: bool) {
    let of = |r: &Record| if r.text("end") == "eject" { CODE_EJECTED } else { CODE_KILLED };
    let other = |r: &&&Record| r.text("code") != of(r);
    let wrong: Vec<String> = cycles
        .iter()
        .filter(other)
        .map(|r| format!("{} in cycle {}", r.text("code"), r.text("n")))
        .collect();
    report.check(
        "exit codes of daemons that were killed or saw the scheduler ejected, other than allowed",
        wrong.is_empty(),
        if wrong.is_empty() { "none".to_owned() } else { wrong.join(", ") },
        if ejects { "137, 5" } else { "137" },
    );
}

/// A cycle's row in the table, and the tasks that were lost or stood still in it.
struct Cycle {
    row: Vec<String>,
    gone: Vec<String>,
    stuck: Vec<String>,
}

fn cycle(records: &[Record], r: &Record) -> Cycle {
    let n = r.text("n");
    // A daemon that was to die sooner dies later where the emulator pauses: that shows nothing.
    let lives = r.count("hold_ms").is_none_or(|ms| ms >= JUDGED_MS);
    let held = if lives { stretches(records, n, "loaded", "held") } else { vec![] };
    let after = stretches(records, n, "free", "end");
    let least = |s: &[Stretch<'_>]| {
        let judged = s.iter().filter(|s| s.ms >= JUDGED_MS);
        let least = judged.filter_map(Stretch::percent).min_by(f64::total_cmp);
        least.map_or("-".to_owned(), |n| format!("{n:.0}"))
    };
    let named = |s: &Stretch<'_>| format!("{} in cycle {n}", s.who);
    let stuck = || held.iter().chain(&after).filter(|s| s.stuck());
    let who: Vec<&str> = stuck().map(|s| s.who).collect();
    let keys = ["n", "end", "hold_ms", "load_ms", "handback_ms"];
    let mut row = keys.map(|k| r.text(k).to_owned()).to_vec();
    row.extend([
        format!("{:.1}", dilation(records, r)),
        after.len().to_string(),
        least(&held),
        least(&after),
        if who.is_empty() { "none".into() } else { who.join(",") },
    ]);
    let gone = after.iter().filter(|s| s.grown.is_none()).map(named).collect();
    Cycle { row, gone, stuck: stuck().map(named).collect() }
}

/// What the kernel went through at the last start.
fn verified(report: &mut Report, records: &[Record]) {
    let seen = records.iter().find(|r| r.kind == "verified").and_then(|r| r.count("instructions"));
    report.check(
        "instructions that the kernel verifies at a start",
        seen.is_some_and(|n| (1..=VERIFIED_MOST).contains(&n)),
        seen.map_or("not told".into(), |n| n.to_string()),
        format!("at most {VERIFIED_MOST}"),
    );
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    #[test]
    fn a_burner_that_stands_still_is_stuck_and_a_sleeper_that_counts_is_not() {
        let text = "drill: seen cycle=1 at=free ms=1000 who=burner1 n=5000\n\
            drill: seen cycle=1 at=free ms=1000 who=sleeper1 n=7\n\
            drill: seen cycle=1 at=free ms=1000 who=one.vcpu0 n=0\n\
            drill: seen cycle=1 at=end ms=2000 who=burner1 n=6000\n\
            drill: seen cycle=1 at=end ms=2000 who=sleeper1 n=9\n\
            drill: seen cycle=1 at=end ms=2000 who=one.vcpu0 n=800000000\n";
        let all = records(text);
        let stuck: Vec<&str> = stretches(&all, "1", "free", "end")
            .iter()
            .filter(|s| s.stuck())
            .map(|s| s.who)
            .collect();
        assert_eq!(stuck, ["burner1"]);
    }

    #[test]
    fn a_sleeper_is_judged_where_the_daemon_was_to_live_long_enough() {
        let stuck = |hold_ms: u64| {
            let text = format!(
                "drill: seen cycle=1 at=loaded ms=1000 who=sleeper1 n=7\n\
                drill: seen cycle=1 at=held ms=2200 who=sleeper1 n=7\n\
                drill: cycle n=1 hold_ms={hold_ms} load_ms=1 handback_ms=1 state=disabled\n"
            );
            let all = records(&text);
            cycle(&all, &all[2]).stuck
        };
        assert_eq!(stuck(LONG_MS), ["sleeper1 in cycle 1"]);
        assert!(stuck(390).is_empty());
    }

    #[test]
    fn fifty_thousand_verified_instructions_pass_and_one_more_or_none_told_fails() {
        let passes = |said: &str| {
            let mut report = Report::of_no_boot("kill");
            verified(&mut report, &records(&format!("drill: verified instructions={said}\n")));
            report.passed()
        };
        assert!(passes("50000"));
        assert!(!passes("50001") && !passes("0") && !passes(""));
    }

    #[test]
    fn half_of_the_daemons_live_long_and_half_of_those_are_ejected_where_any_are() {
        let of = |all: &str, end: &str| all.split(' ').filter(|e| e.ends_with(end)).count();
        let all = ends(1, 20, false);
        assert_eq!((of(&all, "3000:kill"), of(&all, "eject")), (10, 0));
        assert_ne!(all, ends(2, 20, false));
        assert!(all.starts_with(&(ends(1, 6, false) + " ")), "fewer cycles are the first of more");
        let all = ends(1, 100, true);
        assert_eq!((of(&all, ":kill"), of(&all, ":eject")), (50, 50));
        assert_eq!((of(&all, "3000:kill"), of(&all, "3000:eject")), (25, 25));
    }

    #[test]
    fn a_daemon_that_ends_otherwise_and_a_late_handback_of_an_ejection_are_seen() {
        let failed = |code: u32, handback_ms: u32| {
            let text = format!(
                "drill: watched count=5\n\
                drill: cycle n=1 end=kill handback_ms=300 code=137 state=disabled\n\
                drill: cycle n=2 end=eject handback_ms={handback_ms} code={code} state=disabled\n\
                drill: verified instructions=40000\n"
            );
            let mut report = Report::of_no_boot("eject");
            judge(&mut report, &records(&text), &EJECTED, 2);
            report.checks.iter().filter(|c| !c.ok).count()
        };
        assert_eq!(failed(5, 300), 0);
        assert_eq!(failed(0, 300), 1);
        assert_eq!(failed(5, 2001), 1);
    }
}
