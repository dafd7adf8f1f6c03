//! The division of a tree whose leaves may not run everywhere, on random trees and sets, held to
//! what it promises.

use crate::trees::{Draw, Parts};
use entitlement::{Demand, Fluid, check, divide_placed};
use units::{PcpuId, PcpuSet, Rate};

/// Units of a pCPU: a thousandth of what a leaf gets is rounding (`ROUNDED`).
const ONE: u64 = 1 << 20;

/// A random tree whose leaves are in random sets: for each leaf its set and what it wants.
struct Case {
    parts: Parts,
    sets: Vec<PcpuSet>,
    asked: Vec<(u32, u64)>,
    got: Vec<u64>,
}

impl Case {
    /// Of four leaves one is pinned.
    fn new(seed: u64, sparse: u64, limits: bool) -> Case {
        let mut d = Draw::new(seed);
        let mut parts = d.parts(sparse);
        if !limits {
            parts.pools.iter_mut().for_each(|p| p.limit = None);
            parts.leaves.iter_mut().for_each(|l| l.limit = None);
        }
        let host = PcpuSet::first(parts.pcpus as usize);
        let mut sets = vec![host.clone()];
        for _ in 0..1 + d.below(3) {
            let some = (0..1 + d.below(parts.pcpus)).map(|_| d.below(parts.pcpus));
            sets.push(some.map(|p| PcpuId(p as u16)).collect());
        }
        let asked: Vec<(u32, u64)> = parts
            .leaves
            .iter()
            .map(|leaf| {
                let set = if d.one_in(4) { 1 + d.below(sets.len() as u64 - 1) } else { 0 };
                let all = u64::from(leaf.vcpus) * ONE;
                let wants = [0, d.below(all + 1), all, all][d.below(4) as usize];
                (set as u32, wants.min(ONE * sets[set as usize].len() as u64))
            })
            .collect();
        let got = divided(&parts, &sets, &asked);
        Case { parts, sets, asked, got }
    }

    /// All unions of its sets.
    fn unions(&self) -> Vec<PcpuSet> {
        let of = |some: u32| {
            let chosen = (0..self.sets.len()).filter(|set| some >> set & 1 == 1);
            chosen.fold(PcpuSet::empty(), |all, set| all.or(&self.sets[set]))
        };
        (1u32..1 << self.sets.len()).map(of).collect()
    }

    /// What those get that may run within these pCPUs alone.
    fn within(&self, pcpus: &PcpuSet) -> u64 {
        let set = |j: usize| &self.sets[self.asked[j].0 as usize];
        self.sum(|j| set(j).and(pcpus) == *set(j))
    }

    /// Whether that is all of them.
    fn fills(&self, pcpus: &PcpuSet) -> bool {
        let all = ONE * pcpus.len() as u64;
        self.within(pcpus) + rounding(all) >= all
    }

    fn sum(&self, of: impl Fn(usize) -> bool) -> u64 {
        (0..self.got.len()).filter(|j| of(*j)).map(|j| self.got[j]).sum()
    }
}

fn divided(parts: &Parts, sets: &[PcpuSet], asked: &[(u32, u64)]) -> Vec<u64> {
    let fluid = Fluid::new(&sets[0], sets);
    let leaves: Vec<u32> = (0..asked.len() as u32).collect();
    let demand = |a: &(u32, u64)| Demand { weight: 0, classes: [*a].into_iter().collect() };
    let demands: Vec<Demand> = asked.iter().map(demand).collect();
    divide_placed(&parts.tree(), &fluid, ONE, &leaves, &demands)
}

/// What rounding may take of so much: 8 rounds, each a thousandth and a unit.
fn rounding(of: u64) -> u64 {
    8 * ((of >> 10) + 2)
}

#[test]
fn no_limit_is_passed_and_what_is_given_can_be_had() {
    seeds::each(0..3000, |seed| {
        let c = Case::new(seed, 2, true);
        for (j, (set, wants)) in c.asked.iter().enumerate() {
            assert!(c.got[j] <= *wants, "seed {seed}: leaf {j} of set {set}: {:?}", c.got);
        }
        for (p, pool) in c.parts.pools.iter().enumerate().skip(1) {
            let below = |j: usize| c.parts.upwards(c.parts.leaves[j].pool).contains(&p);
            let limit = pool.limit.map_or(u64::MAX, |l| l.0);
            assert!(c.sum(below) <= limit, "seed {seed}: pool {p}: {:?}: {:#?}", c.got, c.parts);
        }
        // Hall: what those get that are within some pCPUs is no more than these have.
        for some in c.unions() {
            assert!(c.within(&some) <= ONE * some.len() as u64, "seed {seed}: {some}: {:?}", c.got);
        }
    });
}

/// Where there are no limits, a leaf that gets less than it wants is within some pCPUs that are
/// used up by those that are within them.
#[test]
fn nothing_is_left_over_that_a_leaf_may_use() {
    seeds::each(0..3000, |seed| {
        let c = Case::new(seed, 2, false);
        let full: Vec<PcpuSet> = c.unions().into_iter().filter(|u| c.fills(u)).collect();
        for (j, (set, wants)) in c.asked.iter().enumerate() {
            let own = &c.sets[*set as usize];
            assert!(
                c.got[j] + rounding(*wants) >= *wants || full.iter().any(|u| own.and(u) == *own),
                "seed {seed}: leaf {j}: {:?} of {:?}: {:#?}",
                c.got,
                c.asked,
                c.parts
            );
        }
    });
}

/// What leaves get that run anywhere does not depend on one that is pinned and wants little.
#[test]
fn a_pinned_leaf_that_wants_little_changes_nothing_else() {
    seeds::each(0..3000, |seed| {
        let mut c = Case::new(seed, 2, true);
        c.asked.iter_mut().for_each(|a| a.0 = 0);
        let Some(pinned) = c.asked.iter_mut().find(|a| a.1 > 0) else { return };
        *pinned = (1, pinned.1.min(ONE / 100));
        let wants: Vec<u64> = c.asked.iter().map(|a| a.1).collect();
        let got = divided(&c.parts, &c.sets, &c.asked);
        assert_eq!(got, c.parts.tree().divide(ONE, &wants).leaves, "seed {seed}: {:#?}", c.parts);
    });
}

/// What was admitted is not missed by a leaf, or a pool of leaves, that may run anywhere.
#[test]
fn a_reservation_of_those_that_run_anywhere_is_never_missed() {
    let found = seeds::each(0..12_000, |seed| {
        let c = Case::new(seed, 4, true);
        if !check(&c.parts.tree(), &c.parts.names()).fits() {
            return false;
        }
        let wants: Vec<u64> = c.asked.iter().map(|a| a.1).collect();
        let sure = |reservation: Rate, asked: u64| reservation.0.min(asked);
        let mut seen = false;
        for (j, leaf) in c.parts.leaves.iter().enumerate().filter(|(j, _)| c.asked[*j].0 == 0) {
            let most = leaf.limit.map_or(u64::MAX, |l| l.0);
            let above = c.parts.upwards(leaf.pool);
            if above.iter().any(|p| c.parts.pools[*p].limit.is_some()) {
                continue; // what is below a limit is seen by the pool
            }
            let sure = sure(leaf.reservation, wants[j].min(most));
            assert!(
                c.got[j] + rounding(sure) >= sure,
                "seed {seed}: leaf {j}: {:?}: {:#?}",
                c.got,
                c.parts
            );
            seen |= sure > 0;
        }
        for (p, pool) in c.parts.pools.iter().enumerate().skip(1) {
            let below: Vec<usize> = (0..wants.len())
                .filter(|j| c.parts.upwards(c.parts.leaves[*j].pool).contains(&p))
                .collect();
            let limits = |j: &usize| {
                let l = &c.parts.leaves[*j];
                let above = c.parts.upwards(l.pool);
                l.limit.is_some() || above.iter().any(|p| c.parts.pools[*p].limit.is_some())
            };
            if below.iter().any(|j| c.asked[*j].0 != 0 || limits(j)) {
                continue;
            }
            let sure = sure(pool.reservation, below.iter().map(|j| wants[*j]).sum());
            let got: u64 = below.iter().map(|j| c.got[*j]).sum();
            assert!(
                got + rounding(sure) >= sure,
                "seed {seed}: pool {p}: {:?}: {:#?}",
                c.got,
                c.parts
            );
            seen |= sure > 0;
        }
        seen && c.asked.iter().any(|a| a.0 != 0 && a.1 > 0)
    });
    let seen = found.into_iter().filter(|seen| *seen).count();
    assert!(seen > 300, "too few trees with reservations beside pinned leaves: {seen}");
}
