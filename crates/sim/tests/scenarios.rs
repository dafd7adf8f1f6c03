//! Every scenario comes out as its file says, with the oracle silent.

use expect::{unmet, worst_permille};
use sim::{Options, Progress, Ticks, run_scenario};
use views::Where;

/// Runs one scenario and says what is off.
fn deviations(name: &str, ticks: Ticks) -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
    let scenario = settings::load(&format!("{folder}{name}")).expect("the scenario loads");
    let options = Options { ticks, ..Options::default() };
    let mut off = vec![];
    let done = run_scenario(&scenario, &options, |p| {
        let Progress::Done(run, outcome) = p else { return };
        let at = format!("{name} '{}' {ticks:?}", run.label);
        let verdict = outcome.verdict.as_ref().expect("it was checked");
        if verdict.violated() > 0 {
            let first: Vec<String> =
                verdict.violations.iter().take(3).map(ToString::to_string).collect();
            off.push(format!(
                "{at}: {} violations {:?}:\n  {}",
                verdict.violated(),
                verdict.counts,
                first.join("\n  ")
            ));
        }
        if outcome.stats.default_slices > 0 || outcome.stats.fallbacks > 0 {
            off.push(format!("{at}: {:?}", outcome.stats));
        }
        println!("{at}: worst {:?}", worst_permille(&outcome.result));
        let unmet = unmet(&outcome.result, &run.spec, Where::Sim);
        off.extend(
            unmet.iter().map(|what| format!("{at}: {what}\n{}", views::summary(&outcome.result))),
        );
    });
    off.extend(done.err().map(|e| format!("{name} {ticks:?}: {e}")));
    off
}

fn holds(name: &str) {
    let off: Vec<String> =
        [Ticks::Aligned, Ticks::Staggered].into_iter().flat_map(|t| deviations(name, t)).collect();
    assert!(off.is_empty(), "{}", off.join("\n"));
}

macro_rules! scenarios {
    ($($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            holds($name);
        })*

        #[test]
        fn every_folder_under_scenarios_has_a_test() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
            let mut seen: Vec<String> = std::fs::read_dir(folder)
                .expect("scenarios/ is there")
                .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
                .filter(|n| std::path::Path::new(folder).join(n).join("scenario.toml").is_file())
                .collect();
            seen.sort();
            let mut tested = vec![$($name.to_owned()),*];
            tested.sort();
            assert_eq!(seen, tested);
        }
    };
}

scenarios! {
    shares_ratio "shares-ratio";
    shares_ratio_2x2x2 "shares-ratio-2x2x2";
    confined "confined";
    confined_cpuset "confined-cpuset";
    confined_busy_host "confined-busy-host";
    limit_pinned "limit-pinned";
    odd_topologies "odd-topologies";
    three_on_two "three-on-two";
    numa_benefit "numa-benefit";
    vnuma "vnuma";
    llc_choice "llc-choice";
    fragmentation "fragmentation";
    guest_exec "guest-exec";
    guest_mix "guest-mix";
    guest_topology "guest-topology";
    guest_witness "guest-witness";
    locality "locality";
    action_affinity "action-affinity";
    whole_cores "whole-cores";
    three_on_two_cores "three-on-two-cores";
    cores_apart "cores-apart";
    ht_migration "ht-migration";
    ht_vdi "ht-vdi";
    load_sweep "load-sweep";
    cache_ping "cache-ping";
    up_smp_mix "up-smp-mix";
    sleepers "sleepers";
    infeasible "infeasible";
    coming_and_going "coming-and-going";
    held_alone "held-alone";
    held_wakes "held-wakes";
    host_task_beside_held "host-task-beside-held";
    demo "demo";
    smoke "smoke";
    shares_active "shares-active";
    shares_busy_host "shares-busy-host";
    cosched_guests "cosched-guests";
    cosched_lone "cosched-lone";
    cosched_exits "cosched-exits";
    reservation "reservation";
    limit_sleepers "limit-sleepers";
    limits_change "limits-change";
    pool_limit "pool-limit";
    pools_nested "pools-nested";
    two_at_20 "two-at-20";
    ready_vs_util "ready-vs-util";
    ready_smp "ready-smp";
    wakeup_latency "wakeup-latency";
    pipe_pairs "pipe-pairs";
    xen_measured "xen-measured";
    models_mix "models-mix";
}
