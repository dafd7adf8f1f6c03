//! Linux's own scheduler as a policy, CFS and EEVDF: what it gives, what it does not, and that it
//! loses no world on any host.
//!
//! A failure names its seed; `SEED=n cargo test -p sim --test all linux` replays that alone,
//! `SEEDS=n` tries that many.

use crate::draw::case::{self, Case};
use crate::{random_hosts, random_trees};
use check::Invariant;
use sim::{Options, Outcome, Peer, Policy, run};

/// What holds under any scheduler.
const ALWAYS: [Invariant; 7] = [
    Invariant::Events,
    Invariant::OneWorldAPcpu,
    Invariant::OnePcpuAWorld,
    Invariant::Affinity,
    Invariant::Transition,
    Invariant::Charge,
    Invariant::Busy,
];

fn outcome(case: &Case, peer: Peer, check: bool) -> Result<Outcome, String> {
    let policy = Policy::Peer(peer, None);
    let (ticks, costs) = (case.ticks, case.costs);
    let options = Options { policy, ticks, costs, check, ..Options::default() };
    run(&case.run, &options).map_err(|e| e.to_string())
}

/// What is wrong with a run; the accounts only with the oracle.
fn fault(case: &Case, peer: Peer, check: bool) -> Option<String> {
    let outcome = match outcome(case, peer, check) {
        Ok(outcome) => outcome,
        Err(text) => return Some(text),
    };
    let verdict = outcome.verdict.as_ref()?;
    let broken = ALWAYS.iter().find(|i| verdict.count(**i) > 0);
    let first = broken.and_then(|i| verdict.violations.iter().find(|v| v.invariant == *i));
    first.map(ToString::to_string)
}

/// Runs each seed under both laws, one in eight under the oracle, which takes long where VMs lag.
fn hold(seeds: &[u64], drawn: impl Fn(u64) -> Case + Sync) {
    let all = seeds.iter().flat_map(|seed| Peer::LINUX.map(|peer| (*seed, peer)));
    let faults = seeds::each(all, |(seed, peer)| {
        fault(&drawn(seed), peer, seed % 8 == 0)
            .map(|text| format!("seed {seed}, {}: {text}", peer.name()))
    });
    let faults: Vec<String> = faults.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{} fail:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn no_world_is_lost_on_any_host() {
    hold(&case::seeds(80, &[]), random_hosts::drawn);
}

/// The same with pools and limits; reservations are left out, which Linux lacks.
#[test]
fn no_world_is_lost_in_any_tree_with_limits() {
    hold(&case::seeds(200, &[]), |seed| {
        let mut case = random_trees::drawn(seed);
        let spec = &mut case.run.spec;
        spec.vms.iter_mut().for_each(|vm| vm.reservation = None);
        spec.pools.iter_mut().for_each(|pool| pool.reservation = None);
        case
    });
}
