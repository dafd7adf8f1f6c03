//! The ESX policies: what each version is known for, on the scenarios of the documents.

use sim::{Options, Policy, Progress, run_scenario};
use std::collections::BTreeMap;
use views::{RunResult, Vm};

/// The results of a scenario's runs under a policy, by label.
fn results(scenario: &str, policy: &str, seed: u64) -> BTreeMap<String, RunResult> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
    let scenario = settings::load(&format!("{folder}{scenario}")).expect("it loads");
    let policy: Policy = policy.parse().expect("a policy");
    let options = Options { policy, seed: Some(seed), ..Options::default() };
    let mut out = BTreeMap::new();
    run_scenario(&scenario, &options, |p| {
        if let Progress::Done(run, outcome) = p {
            out.insert(run.label.clone(), outcome.result.clone());
        }
    })
    .expect("no rule of the contract is broken");
    out
}

fn vm<'r>(result: &'r RunResult, name: &str) -> &'r Vm {
    result.vms.iter().find(|vm| vm.name == name).expect("a VM")
}

/// Work of IBM's VM in a run, in permille of that without hyper-threads.
fn permille_of_off(runs: &BTreeMap<String, RunResult>, label: &str) -> u64 {
    let work = |label: &str| vm(&runs[label], "jbb").times.work;
    work(label) * 1000 / work("HT off")
}

/// pCPUs that were busy for more than 5 % of the time, and for more than 80 %.
fn busy(result: &RunResult) -> [usize; 2] {
    [5, 80].map(|percent| {
        let most = result.duration_ns * percent / 100;
        result.pcpus.iter().filter(|p| p.busy_ns > most).count()
    })
}

const HT_ON: [&str; 3] = ["HT on", "HT on, 100 us a move", "HT on, 1 ms a move"];

#[test]
fn esx_2_5_2_wanders_between_threads_and_loses_what_the_moves_cost() {
    let runs = results("ht-migration", "esx-2.5.2", 1);
    for label in HT_ON {
        let moved = vm(&runs[label], "jbb").times.moved.expect("hardware is simulated");
        let seconds = runs[label].duration_ns / 1_000_000_000;
        // 888 wake-ups a second without loss, each on one of two threads.
        assert!((350..500).contains(&(moved.twin / seconds)), "{label}: {moved:?}");
        assert!(busy(&runs[label])[0] >= 4, "{label}: {:?}", runs[label].pcpus);
        assert_eq!(busy(&runs[label])[1], 0, "{label}");
    }
    assert!((995..1000).contains(&permille_of_off(&runs, HT_ON[0])));
    assert!((970..985).contains(&permille_of_off(&runs, HT_ON[1])));
    // IBM's loss, where a move costs as much as it would have to.
    assert!((800..=850).contains(&permille_of_off(&runs, HT_ON[2])));
    assert_eq!(permille_of_off(&runs, "HT off, 1 ms a move"), 1000);
}

#[test]
fn esx_2_5_3_and_tandem_stay_on_two_cores_whatever_a_move_costs() {
    for policy in ["esx-2.5.3", "esx-4.0", "tandem"] {
        let runs = results("ht-migration", policy, 1);
        for label in HT_ON {
            let of = permille_of_off(&runs, label);
            assert!((990..=1010).contains(&of), "{policy}, {label}: {of}");
            let moved = vm(&runs[label], "jbb").times.moved.expect("hardware is simulated");
            assert!(moved.sum() < 10, "{policy}, {label}: {moved:?}");
            assert_eq!(busy(&runs[label]), [2, 2], "{policy}, {label}: {:?}", runs[label].pcpus);
        }
    }
}
