//! Drill "tenant": ways in which the owner of a VM may play for more than its share, each beside
//! an honest VM that computes without end. Neither may the tenant's VM gain by a way, nor the
//! other lose; and a user's program that only looks like a VM gets nothing by it.
//!
//! By the exact clock: the shares of one window are held against those of others.

use super::record::Record;
use super::{Drill, Report, Setting, TWO_CPUS, begin, rogue, spec};
use crate::archive::Archive;
use crate::boot::{Accel, Stream};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-tenant");
/// Length of a window (the project allows a gain of 1 % over 10 s), and the time before it in which
/// the daemon finds those that have come.
const SECONDS: u64 = 12;
const SETTLE: u64 = 2;
const BURNERS: u32 = 2;
/// The default of the knob `quantum_us`, which a way plays with.
const QUANTUM_US: u64 = 50_000;
/// What a way may gain of the tenant's part of all that tasks run, which it gets by computing
/// without end: what the project allows. What the kernel spends between tasks is no task's: ways
/// that make it spend more lessen what there is for all. It is as tight as can be: a window may end
/// within a quantum, which is 0.4 % of what a VM gets in one, so two windows of the same demand may
/// be 0.8 % apart.
const GAIN_PERCENT: f64 = 1.0;
const GAIN: f64 = GAIN_PERCENT / 100.0;
/// Ways of the tenant's VM, between two windows in which it computes without end.
const OF_VM: [(&str, &str); 10] = [
    ("yield", "yields without end"),
    ("tick", "sleeps over each tick"),
    ("grant", "sleeps 50 us before the end of each quantum"),
    ("wake", "pairs of threads wake each other"),
    ("threads", "threads that start and end"),
    ("forks", "forks copies of itself"),
    ("crowd", "32 threads"),
    ("nice", "threads of nice -20"),
    ("spin", "spins (PAUSE)"),
    ("move", "moves between two cgroups each 10 ms"),
];
/// Ways of a process that is no VM, beside the tenant's VM and busy host tasks.
const OF_HOST: [(&str, &str); 8] = [
    ("host-yield", "a host task yields without end"),
    ("host-tick", "a host task sleeps over each tick"),
    ("host-wake", "pairs of a host task's threads wake each other"),
    ("host-forks", "a host task forks"),
    ("host-nice", "a host task of nice -20"),
    ("aside-nice", "a process of nice -20 in the VM's cgroup"),
    ("user-before", "a user's program"),
    ("user-claims", "a user's program that looks like a VM and claims shares"),
];

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let before =
        format!("SECONDS_EACH={SECONDS} SETTLE={SETTLE} BURNERS={BURNERS} QUANTUM_US={QUANTUM_US}");
    let mut spec = spec(setting, &before, SCRIPT, 5400);
    spec.topology = TWO_CPUS;
    spec.accel = Accel::EXACT;
    let names = ["tenant", "qemu-system-tenant"];
    spec.files.extend(rogue::build(archive, rogue::TENANT, &names)?);
    let (mut report, _, records) = begin(Drill::Tenant, &spec, archive, on)?;
    judge(&mut report, &records);
    Ok(report)
}

/// What VM a, VM b and the tenant beside its VM got of all that tasks ran in a window.
#[derive(Clone, Copy)]
struct Parts {
    a: f64,
    b: f64,
    beside: f64,
    /// What tasks ran, of a pCPU.
    all: f64,
    vms: u64,
}

fn window(records: &[Record], name: &str) -> Option<Parts> {
    let r = records.iter().find(|r| r.kind == "used" && r.text("name") == name)?;
    let all = r.number("all_us")?.max(1.0);
    let part = |key: &str| Some(r.number(key)? / all);
    let (a, b, beside) = (part("a_us")?, part("b_us")?, part("t_us")?);
    let all = all / 1e3 / r.number("ms")?.max(1.0);
    Some(Parts { a, b, beside, all, vms: r.count("vms")? })
}

/// The mean of two windows of the same demand.
fn usual(records: &[Record], before: &str, after: &str) -> Option<Parts> {
    let (one, other) = (window(records, before)?, window(records, after)?);
    let mean = |of: fn(&Parts) -> f64| (of(&one) + of(&other)) / 2.0;
    Some(Parts {
        a: mean(|p| p.a),
        b: mean(|p| p.b),
        beside: mean(|p| p.beside),
        all: mean(|p| p.all),
        vms: one.vms,
    })
}

fn judge(report: &mut Report, records: &[Record]) {
    report.columns =
        vec!["window", "all_percent", "a_percent", "b_percent", "beside_percent", "vms"];
    for r in records.iter().filter(|r| r.kind == "used") {
        let Some(p) = window(records, r.text("name")) else { continue };
        let percent = |part: f64| format!("{:.2}", part * 100.0);
        let name = r.text("name").to_owned();
        report.rows.push(vec![
            name,
            percent(p.all),
            percent(p.a),
            percent(p.b),
            percent(p.beside),
            r.text("vms").into(),
        ]);
    }
    report.notes.push(
        "all_percent: what all tasks ran, of a pCPU; the others are percent of that; beside: the \
            tenant's processes that are not of its VM"
            .to_owned(),
    );
    repeats(report, records, "before", "after");
    let base = usual(records, "before", "after");
    for (name, what) in OF_VM {
        of_vm(report, what, base, window(records, name));
    }
    repeats(report, records, "host-before", "host-after");
    let base = usual(records, "host-before", "host-after");
    for (name, what) in OF_HOST {
        of_host(report, what, base, window(records, name));
    }
    claims(report, records, base);
    let daemon = records.iter().find(|r| r.kind == "daemon");
    let said = |key: &str| daemon.map_or("", |r| r.text(key));
    let seen = format!("up {}, {}, {}", said("up"), said("state"), said("asserts"));
    let ok = seen == "up yes, enabled, 0";
    report.check("the daemon, the scheduler and its assertions", ok, seen, "up, enabled, 0");
}

fn change(seen: f64, usual: f64) -> f64 {
    seen / usual - 1.0
}

fn told(name: &str, by: f64) -> String {
    format!("{name} {:+.2} %", by * 100.0)
}

/// Two windows of the same demand are alike, or nothing can be held against them.
fn repeats(report: &mut Report, records: &[Record], before: &str, after: &str) {
    let both = window(records, before).zip(window(records, after));
    let changes = both.map(|(p, q)| (change(q.a, p.a), change(q.b, p.b)));
    let ok = changes.is_some_and(|(a, b)| a.abs() <= GAIN && b.abs() <= GAIN);
    let seen = changes.map_or("not seen".into(), |(a, b)| told("a", a) + ", " + &told("b", b));
    report.check(
        format!("the same demand, {after} against {before}"),
        ok,
        seen,
        "1 % more or less",
    );
}

/// A way of the tenant's VM: it gains nothing, and the other VM loses nothing.
fn of_vm(report: &mut Report, what: &str, base: Option<Parts>, seen: Option<Parts>) {
    let changes = base.zip(seen).map(|(u, p)| (change(p.a, u.a), change(p.b, u.b)));
    let ok = changes.is_some_and(|(a, b)| a >= -GAIN && b <= GAIN);
    let text = changes.map_or("not seen".into(), |(a, b)| {
        told("the tenant", b) + ", " + &told("the other VM", a)
    });
    report.check(format!("its VM: {what}"), ok, text, "+1 %, -1 %");
}

/// A way of a process beside the tenant's VM: no VM loses, and it takes no more than other host
/// tasks leave it.
fn of_host(report: &mut Report, what: &str, base: Option<Parts>, seen: Option<Parts>) {
    let changes = base.zip(seen).map(|(u, p)| (change(p.a, u.a), change(p.b, u.b)));
    let ok = changes.is_some_and(|(a, b)| a >= -GAIN && b >= -GAIN);
    let text = changes.map_or("not seen".into(), |(a, b)| {
        told("the other VM", a) + ", " + &told("the tenant's own", b)
    });
    report.check(format!("beside it: {what}"), ok, text, "-1 %");
}

/// A user's program that looks like a VM and claims shares stays a host task. What it gets is a
/// part of the system group's, which is printed beside what it got before: host tasks have queues
/// of their own on each CPU, and four busy ones on two CPUs differ by a tenth in a window.
fn claims(report: &mut Report, records: &[Record], base: Option<Parts>) {
    let both = base.zip(window(records, "user-claims"));
    let group = |p: &Parts| 1.0 - p.a - p.b;
    let ok = both.is_some_and(|(u, p)| u.vms == p.vms && p.beside < group(&p));
    let seen = both.map_or("not seen".into(), |(u, p)| {
        let gain = told("it", change(p.beside, u.beside));
        format!("{gain}; {}, {}", u.vms, p.vms)
    });
    let what = "a user who claims shares and a reservation: its part, and VMs before and then";
    report.check(what, ok, seen, "a part of the system group's, as many");
    let of = records.iter().find(|r| r.kind == "told");
    let lines = of.and_then(|r| r.count("user")).unwrap_or(0);
    let what = "lines of the daemon about that program";
    report.check(what, lines > 0, lines.to_string(), "one at least");
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    /// Failed checks of a drill in which one window has other us of 20,000 ms, or other VMs.
    fn failed(other: &str, used: (u64, u64, u64), vms: u64) -> Vec<String> {
        let of_vm = OF_VM.map(|(name, _)| name);
        let of_host = OF_HOST.map(|(name, _)| name);
        let plain = ["before", "after"].into_iter().chain(of_vm).map(|n| (n, (20, 20, 0)));
        let hosts =
            ["host-before", "host-after"].into_iter().chain(of_host).map(|n| (n, (10, 10, 10)));
        let mut text = String::new();
        for (name, (a, b, t)) in plain.chain(hosts) {
            let usual = (a * 1_000_000, b * 1_000_000, t * 1_000_000);
            let ((a, b, t), vms) = if name == other { (used, vms) } else { (usual, 2) };
            text += &format!(
                "drill: used name={name} ms=20000 a_us={a} b_us={b} t_us={t} \
                    all_us=40000000 vms={vms}\n"
            );
        }
        text += "drill: told user=1\ndrill: daemon up=yes state=enabled asserts=0\n";
        let mut report = Report::of_no_boot("tenant");
        judge(&mut report, &records(&text));
        report.checks.iter().filter(|c| !c.ok).map(|c| c.what.clone()).collect()
    }

    #[test]
    fn a_gain_a_loss_and_a_user_that_becomes_a_vm_are_seen() {
        assert!(failed("", (0, 0, 0), 2).is_empty());
        let m = 1_000_000;
        assert_eq!(failed("yield", (20 * m, 20_300_000, 0), 2), ["its VM: yields without end"]);
        assert_eq!(failed("spin", (19_700_000, 20 * m, 0), 2), ["its VM: spins (PAUSE)"]);
        assert!(failed("wake", (30 * m, 10 * m, 0), 2).is_empty(), "less is no gain");
        assert_eq!(failed("host-forks", (9_800_000, 10 * m, 12 * m), 2).len(), 1);
        let claims =
            "a user who claims shares and a reservation: its part, and VMs before and then";
        assert_eq!(failed("user-claims", (10 * m, 10 * m, 20 * m), 2), [claims]);
        assert_eq!(failed("user-claims", (10 * m, 10 * m, 10 * m), 3), [claims]);
        assert_eq!(failed("after", (19 * m, 20 * m, 0), 2).len(), 1);
    }
}
