//! Comparison policies run through the contract alone: what they give, what they are refused for,
//! and that a fault between them and the kernel is caught as one of Tandem is.

use check::Invariant;
use sim::{Mutant, Options, Outcome, Peer, Policy, Rule, SimError, run};
use std::path::Path;

/// Two VMs of burners on two pCPUs, the second with `shares` and whatever else is said of it.
fn scenario(name: &str, shares: u32, more: &str) -> settings::Scenario {
    let text = format!(
        r#"
        title = "two VMs of burners"
        source = "a test"
        duration = "15s"
        [host]
        cores_per_llc = 2
        [[vm]]
        name = "light"
        vcpus = 2
        shares = 2000
        [[vm]]
        name = "heavy"
        vcpus = 2
        shares = {shares}
        {more}
        "#
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peers-{name}.toml"));
    std::fs::write(&file, text).expect("it is written");
    settings::load(&file.to_string_lossy()).expect("it loads")
}

fn outcome(scenario: &settings::Scenario, policy: &str) -> Result<Outcome, SimError> {
    let policy: Policy = policy.parse().expect("a policy");
    run(&scenario.runs[0], &Options { policy, ..Options::default() })
}

/// CPU time of `heavy` for each of `light`, in permille.
fn ratio(outcome: &Outcome) -> u64 {
    let used = |i: usize| outcome.result.vms[i].times.used_ns;
    used(1) * 1000 / used(0)
}

#[test]
fn virtual_time_keeps_shares_where_a_fifo_gives_turns() {
    let unequal = scenario("unequal", 6000, "");
    let vtime = ratio(&outcome(&unequal, "vtime").expect("it runs"));
    assert!(vtime.abs_diff(3000) < 30, "3:1 wanted, seen {vtime}");
    let equal = scenario("equal", 2000, "");
    for policy in ["fifo", "vtime"] {
        let outcome = outcome(&equal, policy).expect("it runs");
        assert!(ratio(&outcome).abs_diff(1000) < 10, "{policy}: {}", ratio(&outcome));
        // 15 s of two pCPUs: neither leaves one idle while a world waits.
        let busy: u64 = outcome.result.pcpus.iter().map(|p| p.busy_ns).sum();
        assert!(busy > 29_999_000_000, "{policy}: {busy}");
        // Slices of 20 ms end at ticks of 4 ms, and at most one world waits for each pCPU.
        let verdict = outcome.verdict.expect("it was checked");
        assert!(verdict.ready_max_ns < 45_000_000, "{policy}: {}", verdict.ready_max_ns);
        for kept in [Invariant::Charge, Invariant::Busy, Invariant::IdleWhileWaiting] {
            assert_eq!(verdict.count(kept), 0, "{policy}: {kept:?}");
        }
    }
}

#[test]
fn what_a_policy_lacks_is_refused_whole_and_by_name() {
    let text = |scenario: &settings::Scenario, policy| match outcome(scenario, policy) {
        Err(e @ SimError::Unsupported { .. }) => e.to_string(),
        other => panic!("{other:?}"),
    };
    let more = "limit = \"50%\"\nreservation = \"10%\"\n[knobs]\nquantum_us = 20000";
    assert_eq!(
        text(&scenario("refused", 6000, more), "fifo"),
        "run '': cannot run it with policy fifo, which has no shares (VM 'heavy'), no \
            reservations (VM 'heavy'), no limits (VM 'heavy'); run it with tandem, or take that \
            out of the scenario"
    );
    assert!(
        text(&scenario("pool", 2000, "pool = \"p\"\n[[pool]]\nname = \"p\""), "vtime")
            .contains("which has no pools (pool 'p');")
    );
    assert!(outcome(&scenario("tandem", 6000, more), "tandem").is_ok());
}

/// Knobs are Tandem's own: with another policy those of a scenario are named and left out, and one
/// that is asked for beside it is refused.
#[test]
fn a_policy_runs_without_the_knobs_of_a_scenario_and_is_refused_one_that_is_asked_for() {
    let scenario = scenario("knobs", 2000, "[knobs]\nquantum_us = 20000");
    let run = &scenario.runs[0];
    let fifo = Policy::Peer(Peer::Fifo, None);
    assert_eq!(fifo.unused_knobs(run), ["quantum_us"]);
    assert_eq!(Policy::Tandem.unused_knobs(run), [""; 0]);
    assert!(outcome(&scenario, "fifo").is_ok());
    let knobs = [("quantum_us".to_owned(), 20_000)].into();
    let refused = sim::judge(run, &Options { policy: fifo, knobs, ..Options::default() });
    let text = refused.expect_err("it has no knobs").to_string();
    assert!(text.contains("which has no knobs ('quantum_us');"), "{text}");
}

#[test]
fn a_fault_beside_a_comparison_policy_is_caught() {
    let equal = scenario("faults", 2000, "");
    let broken = |policy| match outcome(&equal, policy) {
        Err(SimError::Contract { breach, .. }) => breach.rule,
        other => panic!("{policy}: {other:?}"),
    };
    assert_eq!(broken("fifo+mutant:lost-enqueue"), Rule::Custody);
    assert_eq!(broken("vtime+mutant:double-insert"), Rule::Custody);
    let found = |policy, invariant| {
        let outcome = outcome(&equal, policy).expect("no rule of the contract is broken");
        outcome.verdict.expect("it was checked").count(invariant)
    };
    assert!(found("fifo+mutant:lost-charge", Invariant::Charge) > 0);
    assert!(found("fifo+mutant:double-charge", Invariant::Charge) > 0);
    assert!(found("fifo+mutant:starve", Invariant::ReadyTooLong) > 0);
    assert_eq!(found("fifo", Invariant::ReadyTooLong), 0);
}

#[test]
fn a_world_that_may_run_on_one_pcpu_runs_there_alone_out_of_the_shared_queue() {
    for peer in Peer::BASELINES {
        let pinned = scenario("pinned", 2000, "affinity = \"1\"");
        let outcome = outcome(&pinned, peer.name()).expect("no rule of the contract is broken");
        let heavy = &outcome.result.vms[1].times;
        // Two burners of `light` are unrestricted: they alternate on pCPU 1 with the two pinned
        // there.
        assert!((9_000_000_000..=15_000_000_000).contains(&heavy.used_ns), "{}", heavy.used_ns);
        assert_eq!(heavy.migrations, 0);
    }
}

#[test]
fn one_seed_gives_one_run() {
    let equal = scenario("seed", 2000, "");
    for policy in [Policy::Peer(Peer::Fifo, None), Policy::Mutant(Mutant::LostKick)] {
        let options = Options { policy, ..Options::default() };
        let text = || format!("{:?}", run(&equal.runs[0], &options).map(|o| o.result));
        assert_eq!(text(), text());
    }
}

/// A VM that starts as a whole or not at all never starts where it has more vCPUs than pCPUs: ESX
/// 2.x refused to power it on.
#[test]
fn a_vm_wider_than_the_host_is_refused_where_it_starts_as_a_whole() {
    let wide = scenario("wide", 2000, "[[vm]]\nname = \"wide\"\nvcpus = 3\nshares = 3000");
    let refused = outcome(&wide, "esx-2.5.3").expect_err("it would never start").to_string();
    assert!(
        refused.contains("which has no VMs with more vCPUs than pCPUs (VM 'wide');"),
        "{refused}"
    );
    for policy in ["fifo", "cfs", "xen-credit", "esx-3.5"] {
        assert!(outcome(&wide, policy).is_ok(), "{policy}");
    }
}
