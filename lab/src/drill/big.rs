//! Drill "big": 500 stand-ins for VMs on a host of 64 emulated CPUs and on one of 8: the scheduler
//! is loaded, all are followed and accounted, and it leaves again; and what each of its callbacks
//! costs on both, by the kernel's own statistics.
//!
//! All CPUs are emulated in turn: side by side, 64 of them spend the time of a machine of few on
//! waiting for each other. So ns of a callback hold what its CPU stood still for: those of 64 CPUs
//! are printed beside those of 8, and not judged.

use std::collections::BTreeMap;

use super::record::Record;
use super::{Drill, Report, Setting, begin, rogue, spec};
use crate::archive::Archive;
use crate::boot::{Accel, Stream, Topology};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-big");
/// What the lab's machine can have, of two sockets.
const BIG: Topology = Topology { sockets: 2, nodes: 2, cores_per_socket: 16, threads: 2 };
const VMS: u64 = 500;
/// VMs of one vCPU that compute without end. More would leave nothing of the emulator's speed.
const BUSY: u64 = 2;
/// What the others do: 0.2 ms in 5 s, by one or two vCPUs.
const WORK_US: u64 = 200;
const SLEEP_US: u64 = 5_000_000;
const STEPS: u64 = 20;
const STEP_S: u64 = 3;
const PERIOD_S: u64 = STEPS * STEP_S;
/// Runs of a program in a step that make a mean.
const RUNS_LEAST: u64 = 30;
/// Four times the sleep, for CPUs that stand still.
const AFTER_S: u64 = 20;
/// Loops a tick of a delay (the emulator's clock counts ns): 64 CPUs would calibrate them one after
/// the other, which fails where CPUs stand still.
const LOOPS: &str = "lpj=4000000";
const MEMORY_MB: u32 = 6144;
/// By how much of it the scheduler's account of all VMs may differ from their cgroups': what runs
/// between two readings, which take a second or two of 30 on the emulator.
const APART: f64 = 0.1;
/// What the emulator needs to boot 64 CPUs, and then all else several times as slowly as with 8.
const LIMIT_S: u64 = 3000;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let before = format!(
        "VMS={VMS} BUSY={BUSY} WORK_US={WORK_US} SLEEP_US={SLEEP_US} STEPS={STEPS} \
            STEP={STEP_S} AFTER={AFTER_S}"
    );
    let mut spec = spec(setting, &before, SCRIPT, LIMIT_S);
    spec.accel = Accel::Single;
    spec.kvm_inside = false;
    spec.memory_mb = MEMORY_MB;
    spec.files.extend(rogue::build(archive, rogue::TENANT, &["tenant", "qemu-system-tenant"])?);
    spec.files.extend(rogue::build(archive, rogue::PROGSTAT, &["progstat"])?);
    let (mut report, _, small) = begin(Drill::Big, &spec, archive, on)?;
    judge(&mut report, &small, Topology::SMALL);
    spec.topology = BIG;
    spec.extra_append.push(LOOPS.into());
    let (other, _, big) = begin(Drill::Big, &spec, archive, on)?;
    report.tries += other.tries;
    report.folder = format!("{} and {}", report.folder, other.folder);
    report.checks.extend(other.checks);
    judge(&mut report, &big, BIG);
    costs(&mut report, &small, &big);
    Ok(report)
}

fn judge(report: &mut Report, records: &[Record], topology: Topology) {
    let cpus = topology.cpus();
    let of = |kind: &str| records.iter().find(|r| r.kind == kind);
    let known = of("known");
    let (vms, ms) = (text(known, "vms"), text(known, "ms"));
    report.check(
        format!("{cpus} CPUs: VMs that the daemon follows, and ms after the load until it does"),
        vms == VMS.to_string(),
        format!("{vms}, {ms}; the load took {} ms", text(known, "load_ms")),
        VMS.to_string(),
    );
    let used = of("used").and_then(|r| Some((r.number("charged_us")?, r.number("used_us")?)));
    report.check(
        format!("{cpus} CPUs: what is charged to all VMs in {PERIOD_S} s, and what they used"),
        used.is_some_and(|(charged, used)| (charged / used - 1.0).abs() <= APART),
        used.map_or("not seen".into(), |(c, u)| format!("{:.2} s, {:.2} s", c / 1e6, u / 1e6)),
        format!("{:.0} % apart", APART * 100.0),
    );
    for (at, when) in [("tandem", "under Tandem"), ("after", "after it")] {
        let stood = records.iter().find(|r| r.kind == "stood" && r.text("at") == at);
        let seen = format!("{}, {}", text(stood, "count"), text(stood, "gone"));
        let what = format!("{cpus} CPUs: VMs that stood still {when}, and that were lost");
        report.check(what, seen == "0, 0", seen, "0, 0");
    }
    let d = of("daemon");
    let seen = ["up", "state", "asserts", "pcpus"].map(|key| text(d, key)).join(", ");
    let wanted = format!("yes, enabled, 0, {cpus}");
    let what = format!("{cpus} CPUs: the daemon is up, the scheduler, its assertions, pCPUs");
    report.check(what, seen == wanted, seen, wanted);
    let u = of("unloaded");
    let seen = [text(u, "state"), text(u, "ops")].join(", ");
    report.check(
        format!("{cpus} CPUs: all tasks with the kernel's own scheduler on SIGINT"),
        seen == "disabled, gone",
        format!("{seen} after {} ms", text(u, "ms")),
        "disabled, gone",
    );
}

fn text<'r>(record: Option<&'r Record>, key: &str) -> &'r str {
    record.map_or("", |r| r.text(key))
}

/// What a program took in the measured time.
#[derive(Clone, Copy, Default)]
struct Cost {
    runs: u64,
    ns: u64,
    /// The least mean of a step, in ns a run.
    least: Option<f64>,
}

/// What each program took, by its name.
fn programs(records: &[Record]) -> BTreeMap<&str, Cost> {
    let mut seen: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for r in records.iter().filter(|r| r.kind == "stat") {
        if let Some(counts) = r.count("runs").zip(r.count("ns")) {
            seen.entry(r.text("name")).or_default().push(counts);
        }
    }
    let cost = |all: Vec<(u64, u64)>| {
        let steps = all.windows(2).map(|w| (w[1].0 - w[0].0, w[1].1 - w[0].1));
        let (runs, ns) = steps.clone().fold((0, 0), |sum, s| (sum.0 + s.0, sum.1 + s.1));
        let means = steps.filter(|s| s.0 >= RUNS_LEAST).map(|s| s.1 as f64 / s.0 as f64);
        Cost { runs, ns, least: means.min_by(f64::total_cmp) }
    };
    seen.into_iter().map(|(name, all)| (name, cost(all))).collect()
}

/// The table of callbacks.
fn costs(report: &mut Report, small: &[Record], big: &[Record]) {
    report.columns =
        vec!["callback", "runs_8", "ns_8", "least_8", "runs_64", "ns_64", "least_64", "ratio"];
    let (small, big) = (programs(small), programs(big));
    for (name, of_small) in &small {
        let of_big = big.get(name).copied().unwrap_or_default();
        if of_small.runs + of_big.runs > 0 {
            row(report, name.trim_start_matches("tandem_"), *of_small, of_big);
        }
    }
    let [few, many] = [&small, &big].map(|all| all.values().map(|c| c.runs).sum::<u64>());
    report.check(
        "runs of callbacks that the kernel counted, 8 and 64 CPUs",
        few.min(many) >= 5000,
        format!("{few}, {many}"),
        "5,000 each at least",
    );
    report.notes.push(format!(
        "ns of each run in {PERIOD_S} s by kernel.bpf_stats_enabled, and least_N, the least mean \
            of {STEP_S} s with {RUNS_LEAST} runs; ratio of these. An emulated CPU that stands \
            still has ns too: nothing here is judged. The kernel cuts names at 15 characters"
    ));
}

fn row(report: &mut Report, name: &str, small: Cost, big: Cost) {
    let ns = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.0}"));
    let mut cells = vec![name.to_owned()];
    for of in [small, big] {
        let mean = (of.runs > 0).then(|| of.ns as f64 / of.runs as f64);
        cells.extend([of.runs.to_string(), ns(mean), ns(of.least)]);
    }
    let ratio = small.least.zip(big.least).map(|(a, b)| format!("{:.2}", b / a));
    cells.push(ratio.unwrap_or_else(|| "-".to_owned()));
    report.rows.push(cells);
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    fn console(vms: u64, stood: u64, charged_us: u64) -> String {
        format!(
            "drill: known vms={vms} ms=900 load_ms=6000 verify_ms=5000\n\
            drill: used ms=30000 charged_us={charged_us} used_us=50000000\n\
            drill: stood at=tandem count={stood} gone=0\n\
            drill: daemon up=yes state=enabled asserts=0 vms=500 pcpus=8\n\
            drill: unloaded ms=700 state=disabled ops=gone\n\
            drill: stood at=after count=0 gone=0\n"
        )
    }

    #[test]
    fn a_vm_that_is_not_known_stands_still_or_is_not_charged_is_seen() {
        let failed = |text: &str| {
            let mut report = Report::of_no_boot("big");
            judge(&mut report, &records(text), Topology::SMALL);
            report.checks.iter().filter(|c| !c.ok).count()
        };
        assert_eq!(failed(&console(500, 0, 49_000_000)), 0);
        assert_eq!(failed(&console(499, 0, 49_000_000)), 1);
        assert_eq!(failed(&console(500, 1, 49_000_000)), 1);
        assert_eq!(failed(&console(500, 0, 40_000_000)), 1);
        assert_eq!(failed(""), 6);
    }

    #[test]
    fn a_callbacks_cost_is_that_of_its_runs_and_the_least_of_a_step() {
        let host = |ns: u64| {
            records(&format!(
                "drill: stat n=0 name=tandem_enqueue runs=1000 ns=5000000\n\
                drill: stat n=1 name=tandem_enqueue runs=11000 ns={ns}\n\
                drill: stat n=2 name=tandem_enqueue runs=21000 ns=105000000\n\
                drill: stat n=0 name=tandem_exit runs=0 ns=0\n"
            ))
        };
        let mut report = Report::of_no_boot("big");
        costs(&mut report, &host(15_000_000), &host(20_000_000));
        assert_eq!(report.rows.len(), 1, "what never ran has no row");
        let row = ["enqueue", "20000", "5000", "1000", "20000", "5000", "1500", "1.50"];
        assert_eq!(report.rows[0], row);
        assert!(report.passed());
    }
}
