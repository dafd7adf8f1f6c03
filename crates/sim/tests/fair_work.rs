//! The scenarios of fairness with simulated hardware: what VMs work is divided as what they are
//! entitled to, within what each scenario allows.

use settings::{HardwareSpec, Run, Workload};
use sim::Options;
use units::Span;
use views::RunResult;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");

/// The scenarios that say how far a VM may be from its entitlement, and how VMs share a host.
const FAIRNESS: &[&str] = &[
    "shares-ratio",
    "shares-ratio-2x2x2",
    "shares-active",
    "shares-busy-host",
    "pools-nested",
    "reservation",
    "infeasible",
    "up-smp-mix",
    "sleepers",
    "coming-and-going",
    "pool-limit",
    "limit-sleepers",
    "limits-change",
];

/// The VM that runs now and then, for as long as some work takes.
const REPLICA: (&str, &str) = ("pools-nested", "replica");
/// A VM of this runs for 20 us at a time, after a switch of 2 us: 9 % less work than CPU time,
/// whatever is divided.
const SWITCHES: &str = "limit-sleepers";

/// How far the part of a VM of all work is from its part of all entitlement, in permille of that;
/// the VM that is furthest.
fn worst(result: &RunResult) -> (u64, String) {
    let there = || result.vms.iter().filter(|vm| expect::counts(vm, result));
    let work: u128 = there().map(|vm| u128::from(vm.times.work)).sum();
    let entitled: u128 = there().map(|vm| u128::from(vm.times.entitled_ns)).sum();
    let off = |vm: &views::Vm| {
        let has = u128::from(vm.times.work) * entitled;
        let due = u128::from(vm.times.entitled_ns) * work;
        (has.abs_diff(due) * 1000 + due / 2) / due
    };
    there().map(|vm| (off(vm) as u64, vm.name.clone())).max().expect("a VM")
}

/// The run with simulated hardware.
fn on_hardware(name: &str, run: &Run) -> Run {
    let mut run = run.clone();
    run.spec.hardware = Some(HardwareSpec::default());
    // Its work of 20 ms takes 32 ms where all cores are shared, and the VM beside it in a pool of
    // 300 % is due what it leaves: 121 s in place of 132. That is right, but another scenario: VMs
    // that wake so are 34 permille off without hardware too. Here it asks for as much CPU time as
    // there.
    for replica in run.spec.vms.iter_mut().filter(|vm| (name, &*vm.name) == REPLICA) {
        let Some(Workload::Duty { work, .. }) = &mut replica.workload else { panic!("{name}") };
        *work = Span::from_ns(work.ns() * 625 / 1000);
    }
    run
}

#[test]
fn work_is_divided_as_entitlement_is() {
    let load = |name: &&'static str| {
        let scenario = settings::load(&format!("{ROOT}{name}")).expect("it loads");
        scenario.runs.into_iter().map(|run| (*name, run)).collect::<Vec<_>>()
    };
    let runs: Vec<(&str, Run)> = FAIRNESS.iter().flat_map(load).collect();
    let all = seeds::each(0..runs.len(), |i| {
        let (name, run) = &runs[i];
        let outcome = sim::run(&on_hardware(name, run), &Options::default()).expect("it runs");
        let verdict = outcome.verdict.as_ref().expect("it was checked");
        let first = verdict.violations.first().map(ToString::to_string);
        let allowed = u64::from(run.spec.expect.sim_permille.expect("it says how far"));
        let (used, work) = (expect::worst_permille(&outcome.result), worst(&outcome.result));
        let said = format!("CPU {used:?}, work {work:?} permille off, allowed {allowed}");
        let far = used.is_none_or(|u| u.0 > allowed) || work.0 > allowed && *name != SWITCHES;
        let bad = first.or(far.then_some(said));
        bad.map(|what| format!("{name} '{}': {what}", run.label))
    });
    let off: Vec<String> = all.into_iter().flatten().collect();
    assert!(off.is_empty(), "{}", off.join("\n"));
}
