//! Each mutant is caught, by the invariant or the rule of the contract that is named beside it; the
//! scheduler itself is not.

use check::Invariant;
use settings::Run;
use sim::{Mutant, Options, Peer, Policy, Rule, SimError, run};
use units::Span;
use views::Where;

/// What catches a mutant.
#[derive(Clone, Copy, Debug)]
enum Catch {
    /// The oracle.
    Oracle(Invariant),
    /// The kernel's contract.
    Contract(Rule),
    /// What the scenario expects of a result: the beginning of what is said of it.
    Expected(&'static str),
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
const RESERVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/reserved.toml");
const CROWD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/crowd.toml");
const ONE_CORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/one-core.toml");
const LOCALITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/locality.toml");
const THREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/three-vms.toml");
const WIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/wide.toml");
const CACHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/caches.toml");
const HALF_LOADED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/half-loaded.toml");

fn first_run(scenario: &str) -> Run {
    let path =
        if scenario.ends_with(".toml") { scenario.to_owned() } else { format!("{ROOT}{scenario}") };
    settings::load(&path).expect("the scenario loads").runs.swap_remove(0)
}

fn outcome(scenario: &str, policy: Policy) -> Result<sim::Outcome, SimError> {
    let options = Options { policy, duration: Some(Span::from_secs(15)), ..Options::default() };
    run(&first_run(scenario), &options)
}

/// What the result is not that the scenario expects.
fn unmet(scenario: &str, outcome: &sim::Outcome) -> Vec<String> {
    expect::unmet(&outcome.result, &first_run(scenario).spec, Where::Sim)
}

/// The policy that has the fault: where Tandem has nothing to lose, one that does.
fn faulty(mutant: Mutant) -> Policy {
    match mutant {
        Mutant::LostLock => Policy::Peer(Peer::Esx35, Some(mutant)),
        _ => Policy::Mutant(mutant),
    }
}

fn caught(mutant: Mutant, scenario: &str, by: Catch) {
    let result = outcome(scenario, faulty(mutant));
    let found = match (&result, by) {
        (Ok(o), Catch::Oracle(invariant)) => {
            o.verdict.as_ref().is_some_and(|v| v.count(invariant) > 0)
        }
        (Err(SimError::Contract { breach, .. }), Catch::Contract(rule)) => breach.rule == rule,
        (Ok(o), Catch::Expected(what)) => {
            unmet(scenario, o).iter().any(|off| off.starts_with(what))
        }
        _ => false,
    };
    let off = result.as_ref().map(|o| unmet(scenario, o)).unwrap_or_default();
    let seen = result
        .map(|o| o.verdict.map(|v| (v.counts, v.violations.first().map(ToString::to_string))));
    assert!(found, "{mutant:?} in {scenario}: not caught by {by:?}, but {seen:?} {off:?}");
}

/// Where each mutant shows, and what catches it.
fn table() -> [(Mutant, &'static str, Catch); Mutant::ALL.len()] {
    use Catch::{Contract, Expected, Oracle};
    [
        (Mutant::LostKick, HALF_LOADED, Oracle(Invariant::IdleWhileWaiting)),
        (Mutant::LostEnqueue, "up-smp-mix", Contract(Rule::Custody)),
        (Mutant::WrongPcpu, "confined", Contract(Rule::Affinity)),
        (Mutant::EqualWeights, "up-smp-mix", Oracle(Invariant::Lag)),
        (Mutant::DoubleCharge, "up-smp-mix", Oracle(Invariant::Charge)),
        (Mutant::LostCharge, "sleepers", Oracle(Invariant::Charge)),
        (Mutant::Starve, "up-smp-mix", Oracle(Invariant::ReadyTooLong)),
        (Mutant::NoPull, HALF_LOADED, Oracle(Invariant::IdleWhileWaiting)),
        (Mutant::Fifo, CROWD, Oracle(Invariant::Lag)),
        (Mutant::StaleState, "sleepers", Contract(Rule::Assertion)),
        (Mutant::LostStop, "up-smp-mix", Oracle(Invariant::StateTimes)),
        (Mutant::EndlessSlice, "held-alone", Oracle(Invariant::ReadyTooLong)),
        (Mutant::DoubleInsert, "up-smp-mix", Contract(Rule::Custody)),
        (Mutant::FlatTree, "pools-nested", Oracle(Invariant::Lag)),
        (Mutant::NoReservation, RESERVED, Oracle(Invariant::Reservation)),
        (Mutant::NoLimit, "pools-nested", Oracle(Invariant::Limit)),
        (Mutant::HeldForEver, "pools-nested", Oracle(Invariant::Lag)),
        (Mutant::Withheld, HALF_LOADED, Oracle(Invariant::IdleWhileWaiting)),
        (Mutant::LostCostart, "demo", Oracle(Invariant::CostopTooLong)),
        (Mutant::WrongSlowest, "demo", Oracle(Invariant::Skew)),
        (Mutant::Stays, "whole-cores", Oracle(Invariant::SharedCore)),
        (Mutant::PartnerFree, "three-on-two-cores", Oracle(Invariant::Lag)),
        (Mutant::NeverWhole, ONE_CORE, Oracle(Invariant::Lag)),
        (Mutant::CoreShared, "cores-apart", Oracle(Invariant::CoreSharing)),
        (Mutant::RefillFree, CACHES, Expected("VMs filled caches again")),
        (Mutant::LostLock, CACHES, Contract(Rule::Lock)),
        (Mutant::StaleHome, THREE, Oracle(Invariant::Affinity)),
        (Mutant::MemoryStays, LOCALITY, Oracle(Invariant::MemoryAway)),
        (Mutant::MemoryHurries, THREE, Oracle(Invariant::MemoryRate)),
        (Mutant::HomesPile, WIDE, Oracle(Invariant::HomeCrowded)),
        (Mutant::HomesThrash, THREE, Oracle(Invariant::HomeThrash)),
        (Mutant::HomesStay, THREE, Expected("VMs vm-1, vm-2, vm-3 differ by")),
    ]
}

#[test]
fn every_mutant_is_caught_by_the_check_that_is_named_for_it() {
    let table = table();
    assert!(Mutant::ALL.iter().all(|m| table.iter().any(|row| row.0 == *m)));
    for (mutant, scenario, by) in table {
        caught(mutant, scenario, by);
    }
}

#[test]
fn the_scheduler_itself_is_not_caught_where_its_mutants_are() {
    for scenario in [
        CACHES,
        LOCALITY,
        WIDE,
        THREE,
        HALF_LOADED,
        RESERVED,
        "demo",
        "up-smp-mix",
        "sleepers",
        "pools-nested",
        "whole-cores",
    ] {
        let outcome = outcome(scenario, Policy::Tandem).expect("it keeps the contract");
        let verdict = outcome.verdict.as_ref().expect("it was checked");
        assert_eq!(
            verdict.violated(),
            0,
            "{scenario}: {:?}",
            verdict.violations.first().map(ToString::to_string)
        );
        assert_eq!(unmet(scenario, &outcome), Vec::<String>::new(), "{scenario}");
    }
    outcome(CACHES, Policy::Peer(Peer::Esx35, None)).expect("each cell's lock is kept by one");
}
