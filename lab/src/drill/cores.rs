//! Drill "cores": threads of cores, on real VMs. Two busy VMs on an otherwise idle host have a core
//! each, and move no more often than under the kernel's own scheduler; on a host of 2 x 2 x 2 and
//! on one of three cores. On one core of two threads whose charge is divided, what is not charged
//! follows the partner, and a VM that is entitled to more than a shared core gives has a whole one
//! once it is behind by the threshold.
//!
//! By the exact clock: what VMs get in one window is held against that of others.

use serde_json::Value;

use super::record::Record;
use super::{Drill, Report, Setting, begin, spec, unreadable};
use crate::archive::Archive;
use crate::boot::{Accel, BootOutcome, Stream, Topology};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-cores");
/// Hosts of several cores: IBM's of tables 2 to 4, and an odd one.
const HOSTS: [(&str, Topology); 2] = [
    ("2x2x2", Topology { sockets: 2, nodes: 1, cores_per_socket: 2, threads: 2 }),
    ("1x3x2", Topology { sockets: 1, nodes: 1, cores_per_socket: 3, threads: 2 }),
];
const CORE: Topology = Topology { sockets: 1, nodes: 1, cores_per_socket: 1, threads: 2 };
/// Length of a window: two VMs on several emulated CPUs, and a charge that is to be exact to 1 %.
const SECONDS: u64 = 10;
const CHARGE_SECONDS: u64 = 20;
/// Of the run time of the two VMs, what each must have a core alone. Host tasks, whose threads
/// nothing keeps idle, are not held against them.
const ALONE: f64 = 0.99;
/// What is not charged of a world's time while another thread of its core is busy.
const LOST: f64 = 0.375;
/// By how much that part may differ: the accounts and the trace begin and end within half a second
/// of each other, of 20 s in which the partner does the same all the time.
const APART: f64 = 0.01;
/// Work and sleep of the partner, in us: busy for a third of the time or so.
const WORK_US: u64 = 6_200;
const SLEEP_US: u64 = 13_800;
/// With shares of 2:1 a shared core is worth 10/13 and 5/13 of a core: for each second that both
/// run the one is behind by that less 0.625, and the other ahead by 0.625 less that
/// (sched/place/whole.h).
const APART_A_SECOND: f64 = (10.0 / 13.0 - 0.625) + (0.625 - 5.0 / 13.0);
/// `whole_core_us`, in s.
const THRESHOLD: f64 = 0.8;
/// The core is granted at the end of a quantum, of 50 ms, and where host tasks preempted one a
/// quantum later.
const LATE: f64 = 0.1;
/// A trace of so many ms, and how long after its command both VMs begin to burn, in s. The recorder
/// begins 0.1 to 0.8 s late, so the trace ends 2.3 to 3.0 s after they have: within the first
/// grant, which lasts from 2.1 to 3.05 s. So all that they share the core comes before.
const GRANT_MS: u64 = 3_200;
const START_S: u64 = 1;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let mut all = shared(setting, archive, on)?;
    for (name, topology) in HOSTS {
        let one = whole(setting, archive, on, name, topology)?;
        all.rows.extend(one.rows);
        all.checks.extend(one.checks);
    }
    Ok(all)
}

/// One part of the drill on such a host.
fn part(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
    (part, seconds): (&str, u64),
    topology: Topology,
) -> Result<(Report, BootOutcome, Vec<Record>)> {
    let before = format!(
        "PART={part} SECONDS_EACH={seconds} WORK={WORK_US} SLEEP={SLEEP_US} START={START_S} \
            GRANT={GRANT_MS}"
    );
    let mut spec = spec(setting, &before, SCRIPT, 1800);
    spec.topology = topology;
    spec.accel = Accel::EXACT;
    let (mut report, outcome, records) = begin(Drill::Cores, &spec, archive, on)?;
    report.columns = vec!["host", "vm", "run_ms", "alone_ms", "others_ms", "host_ms", "moves"];
    let d = records.iter().find(|r| r.kind == "daemon");
    let seen = ["up", "state", "asserts"].map(|key| d.map_or("", |r| r.text(key))).join(", ");
    report.check(
        format!("{part}: the daemon is up, the scheduler, its assertions"),
        seen == "yes, enabled, 0",
        seen,
        "yes, enabled, 0",
    );
    Ok((report, outcome, records))
}

fn document(outcome: &BootOutcome, file: &str) -> Result<Value> {
    serde_json::from_str(&outcome.file(file)?).map_err(|e| unreadable(file, e))
}

/// A VM's times by the trace, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Beside {
    run: f64,
    alone: f64,
    others: f64,
    host: f64,
    moves: f64,
}

impl Beside {
    fn of(cores: &Value, vm: &str) -> Option<Beside> {
        let vm = cores["vms"].as_array()?.iter().find(|v| v["name"] == vm)?;
        let ns = |key: &str| vm[key].as_f64();
        Some(Beside {
            run: ns("run_ns")?,
            alone: ns("alone_ns")?,
            others: ns("others_ns")?,
            host: ns("host_ns")?,
            moves: vm["moves"]["all"].as_f64()?,
        })
    }

    fn row(&self, host: &str, vm: &str) -> Vec<String> {
        let ms = [self.run, self.alone, self.others, self.host].map(|ns| ns / 1e6);
        let mut row = vec![host.to_owned(), vm.to_owned()];
        row.extend(ms.iter().map(|ms| format!("{ms:.1}")));
        row.push(format!("{:.0}", self.moves));
        row
    }
}

fn whole(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
    host: &str,
    topology: Topology,
) -> Result<Report> {
    let (mut report, outcome, records) = part(setting, archive, on, ("whole", SECONDS), topology)?;
    let cores = document(&outcome, "cores-whole.json")?;
    judge_whole(&mut report, host, &cores, &records);
    Ok(report)
}

fn judge_whole(report: &mut Report, host: &str, cores: &Value, records: &[Record]) {
    let vms = ["a", "b"].map(|vm| Beside::of(cores, vm).unwrap_or_default());
    report.rows.extend(vms.iter().zip(["a", "b"]).map(|(b, vm)| b.row(host, vm)));
    let least = vms.iter().map(|b| 1.0 - b.others / b.run.max(1.0)).fold(1.0, f64::min);
    let ran = vms.iter().all(|b| b.run > 0.9e9 * SECONDS as f64);
    report.check(
        format!("{host}: run time of each VM with no other VM on its core"),
        ran && least >= ALONE,
        format!("{:.2} %, of {:.1} and {:.1} s", 100.0 * least, vms[0].run / 1e9, vms[1].run / 1e9),
        format!("{:.0} % of {SECONDS} s", 100.0 * ALONE),
    );
    let moves = |scheduler: &str| {
        let of = |r: &&Record| r.kind == "moves" && r.text("scheduler") == scheduler;
        records.iter().find(of).and_then(|r| r.count("count"))
    };
    let (own, theirs) = (moves("tandem"), moves("eevdf"));
    let text = |n: Option<u64>| n.map_or("not seen".to_owned(), |n| n.to_string());
    report.check(
        format!("{host}: migrations of both in {SECONDS} s, by the kernel's count"),
        own.zip(theirs).is_some_and(|(own, theirs)| own <= theirs),
        text(own),
        format!("{} at most, as under the kernel's own scheduler", text(theirs)),
    );
}

fn shared(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let (mut report, outcome, _) = part(setting, archive, on, ("shared", CHARGE_SECONDS), CORE)?;
    let text = outcome.file("charge.json")?;
    let accounts: views::Document =
        serde_json::from_str(&text).map_err(|e| unreadable("charge.json", e))?;
    let a = accounts.runs.first().and_then(|r| r.vms.iter().find(|v| v.name == "a"));
    let lost = a.and_then(|v| Some(1.0 - charged(v) / v.cpu_stat?.kernel_ns as f64));
    judge_charge(&mut report, &document(&outcome, "cores-charge.json")?, lost.unwrap_or(0.0));
    judge_grant(&mut report, &document(&outcome, "cores-grant.json")?);
    Ok(report)
}

/// CPU time that is charged to a VM's threads, in ns, without kernel threads that work for it: they
/// are in no cgroup of it, so its cpu.stat does not have theirs.
fn charged(vm: &views::Vm) -> f64 {
    let kernels = |name: &str| name.starts_with("vhost-") || name.starts_with("kvm-pit/");
    let own = vm.worlds.iter().filter(|w| !kernels(&w.name));
    own.map(|w| w.times.used_ns).sum::<u64>() as f64
}

/// `lost`: part of VM a's CPU time that was not charged.
fn judge_charge(report: &mut Report, cores: &Value, lost: f64) {
    let a = Beside::of(cores, "a").unwrap_or_default();
    report.rows.push(a.row("1x1x2, partner sleeps", "a"));
    let due = LOST * (a.others + a.host) / a.run.max(1.0);
    report.check(
        "1x1x2: CPU time of VM a that is not charged, by cpu.stat and the accounts",
        a.others > 0.0 && (lost / due - 1.0).abs() <= APART,
        format!("{:.2} %", 100.0 * lost),
        format!(
            "{:.2} %, {LOST} of what it shared its core, {:.0} % apart",
            100.0 * due,
            100.0 * APART
        ),
    );
}

fn judge_grant(report: &mut Report, cores: &Value) {
    let a = Beside::of(cores, "a").unwrap_or_default();
    report.rows.push(a.row("1x1x2, partner burns", "a"));
    let kept = cores["cores"][0]["kept_ns"].as_f64().unwrap_or(0.0) / 1e9;
    let (seen, due) = (a.others / 1e9, THRESHOLD / APART_A_SECOND);
    report.check(
        "1x1x2: time that VM a, of two thirds of the shares, shares its core until it has it alone",
        kept > 0.1 && (due - LATE..=due + LATE).contains(&seen),
        format!("{seen:.3} s, then {kept:.3} s alone"),
        format!("{due:.3} s, {LATE} apart"),
    );
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;
    use serde_json::json;

    fn cores(others: f64, kept: f64) -> Value {
        let vm = |name: &str| {
            json!({"name": name, "run_ns": 10e9, "alone_ns": 10e9 - others, "others_ns": others,
                "host_ns": 0.0, "moves": {"all": 0}})
        };
        json!({"vms": [vm("a"), vm("b")], "cores": [{"kept_ns": kept}]})
    }

    fn failed(judge: impl Fn(&mut Report)) -> usize {
        let mut report = Report::of_no_boot("cores");
        judge(&mut report);
        report.checks.iter().filter(|c| !c.ok).count()
    }

    #[test]
    fn a_shared_core_and_more_migrations_than_the_kernels_are_seen() {
        let of = |others: f64, own: u32, theirs: u32| {
            let text = format!(
                "drill: moves scheduler=eevdf count={theirs}\ndrill: moves scheduler=tandem \
                    count={own}\n"
            );
            failed(|r| judge_whole(r, "2x2x2", &cores(others, 0.0), &records(&text)))
        };
        assert_eq!(of(0.09e9, 3, 3), 0);
        assert_eq!(of(0.11e9, 3, 3), 1);
        assert_eq!(of(0.0, 4, 3), 1);
        assert_eq!(failed(|r| judge_whole(r, "2x2x2", &Value::Null, &[])), 2);
    }

    #[test]
    fn a_charge_that_does_not_follow_and_a_late_grant_are_seen() {
        let charge = |lost: f64| failed(|r| judge_charge(r, &cores(6e9, 0.0), lost));
        // 6 of 10 s are shared: 22.5 % are not charged.
        assert_eq!((charge(0.225), charge(0.222), charge(0.228), charge(0.0)), (0, 1, 1, 1));
        let grant = |after: f64, kept: f64| failed(|r| judge_grant(r, &cores(after, kept)));
        assert_eq!((grant(2.1e9, 0.6e9), grant(2.2e9, 0.6e9), grant(1.9e9, 0.6e9)), (0, 1, 1));
        assert_eq!(grant(2.1e9, 0.0), 1);
    }
}
