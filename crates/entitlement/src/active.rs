//! The plan of a host where VMs are pinned to some of its pCPUs: the VMs that compete now, their
//! weights, and how far each group's virtual time is moved to stay near the host's.
//!
//! Promise: shares hold among VMs that compete within a few pCPUs, and between them and
//! unrestricted VMs, for any set of active VMs (spec P2, P4).
//!
//! Law: the scheduler serves the smallest `used ÷ weight` first, which gives weights' ratios
//! wherever the same VMs meet. Pinned VMs meet only some of the others, so weights are the rates
//! `x` that `divide_placed` gives for the present demand: then all virtual times advance at the
//! same rate, and a new VM can start at the host's. The weight of a VM that gets all it wants is
//! its potential entitlement: what it could have if all could run anywhere (`Tree::could`; of a
//! flat tree its shares) times the best level (`x` by that) of its contended neighbours, at least
//! what is reserved for it, at most its vCPUs. Groups of contended VMs (of one level if they are
//! short of what the tree gives them, and overlapping sets; or below the same pool, whose limit is
//! used up, and pinned) without an unrestricted VM are *held*: a remaining difference of rates
//! moves the whole group, so it is corrected for the whole group.
//!
//! Units: `Rate` for weights and demand, ns for virtual time.
//!
//! Example: A (100 shares) and B (300) on pCPUs 0-1, C (400) on 0-7, all busy: weights 0.5, 1.5 and
//! 6; A and B are one held group. When B sleeps: A 1.6, C 6.4, one group, not held.
//!
//! Limits: as for `fluid`. Known weakness: until the next plan (100 ms) the weights of pinned VMs
//! are those of the last one.

use crate::{Tree, TreePool, fluid::placed_rates};
use std::collections::BTreeMap;
use units::{PcpuSet, Rate, Span, VmId};

/// Period of the plan of a host with pinned VMs: ten plans a second have no visible effect, and
/// each costs 0.4 ms for 512 VMs pinned to nodes (measured for `fluid`).
pub const REPLAN: Span = Span::from_ms(100);

/// A VM as the planner sees it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveVm {
    /// Its number.
    pub vm: VmId,
    /// Allowed set of each class of its worlds, and what they demand now; 0 for sleepers.
    pub classes: Vec<(PcpuSet, Rate)>,
    /// Its virtual time, in ns.
    pub vt_ns: u64,
}

/// The plan's word on one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The VM.
    pub vm: VmId,
    /// Its weight.
    pub weight: Rate,
    /// Whether the hot path leaves its lag to this planner.
    pub held: bool,
    /// What is added to its virtual time, in ns.
    pub shift_ns: i64,
}

/// The demand of worlds that run, wait for a pCPU and sleep: what part of the time in which it does
/// not wait a world runs. Without the waits it would have alternated between both, so one that
/// wants little does not look busy for having waited.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    worlds: BTreeMap<u32, Metered>,
    round: u64,
}

#[derive(Clone, Copy, Debug)]
struct Metered {
    ran_ns: u64,
    waited_ns: u64,
    rate: Rate,
    round: u64,
}

impl Meter {
    /// Begins a round; worlds that a whole round did not name are forgotten.
    pub fn begin(&mut self) {
        let last = self.round;
        self.worlds.retain(|_, w| w.round == last);
        self.round += 1;
    }

    /// Demand of `world`, which has run for `ran_ns` and waited for a pCPU for `waited_ns` in all
    /// its life, `period_ns` after the last round. One that has waited and not run asks for what it
    /// did before; for a whole pCPU if it has not slept.
    pub fn demand(&mut self, world: u32, ran_ns: u64, waited_ns: u64, period_ns: u64) -> Rate {
        let new = Metered { ran_ns, waited_ns, rate: Rate(0), round: 0 };
        let seen = self.worlds.entry(world).or_insert(new);
        let (ran, waited) =
            (ran_ns.saturating_sub(seen.ran_ns), waited_ns.saturating_sub(seen.waited_ns));
        let slept = period_ns.saturating_sub(ran + waited);
        let rate = if ran == 0 && waited > 0 && slept > 0 {
            seen.rate
        } else {
            smoothed(seen.rate, ran + if slept == 0 { waited } else { 0 }, (ran + slept).max(1))
        };
        *seen = Metered { rate, round: self.round, ..new };
        rate
    }
}

/// A world's demand over the last periods: half of what is new counts, half of what was.
fn smoothed(before: Rate, wanted_ns: u64, of_ns: u64) -> Rate {
    let now = u128::from(wanted_ns.min(of_ns)) * u128::from(Rate::ONE.0) / u128::from(of_ns);
    Rate((before.0 + now as u64).div_ceil(2)) // rounded up: a busy world reaches a whole pCPU
}

/// How far a held group may be from the host's virtual time: within it the distance has its effect
/// on the order, for host tasks and unrestricted VMs take time from the VMs with the least lag.
/// Equal to the scheduler's bound on lag: with half of it pinned VMs got 2 % too much beside busy
/// host tasks. A group that is served less than a pCPU may be ahead by as much CPU time.
const STEERING_NS: i64 = 100_000_000;

struct Seen<'a> {
    vm: &'a ActiveVm,
    set: PcpuSet,
    rate: Rate,
    contended: bool,
    /// What it could have if all could run anywhere.
    could: u64,
    /// `rate ÷ could` with 32 fraction bits.
    level: u128,
    /// VMs of one of these compete for the same pCPUs if their sets overlap.
    line: u128,
    /// What it may use at most, and what is reserved for it.
    cap: Rate,
    reserved: Rate,
    /// The highest pool above it whose limit is used up.
    pool: Option<usize>,
    /// It competes for that limit alone, for it may run anywhere.
    alone: bool,
    group: usize,
}

/// Plans for the VMs that are active now, the leaves of `tree` in this order; `v_ns` is the host's
/// virtual time.
#[must_use]
pub fn active_plan(pcpus: &PcpuSet, tree: &Tree, vms: &[ActiveVm], v_ns: u64) -> Vec<Order> {
    let classes: Vec<&[(PcpuSet, Rate)]> = vms.iter().map(|v| v.classes.as_slice()).collect();
    let placed = placed_rates(pcpus, tree, &classes);
    let rates: Vec<Rate> = placed.got.into_iter().map(Rate).collect();
    let could = could(tree, &classes);
    let look = |i: usize| look(pcpus, tree, &vms[i], (rates[i], could[i], placed.short[i]), i);
    let mut seen: Vec<Seen<'_>> = (0..vms.len()).map(look).collect();
    let full = full_pools(tree, &rates);
    for (leaf, s) in seen.iter_mut().enumerate() {
        s.pool = tree.pools_above(leaf).filter(|p| full[*p]).last();
        s.alone = s.pool.is_some() && s.set == *pcpus;
    }
    join(&mut seen);
    let shifts = shifts(&seen, pcpus, v_ns);
    let order = |s: &Seen<'_>| {
        let shift = if s.contended { shifts[s.group] } else { None };
        Order {
            vm: s.vm.vm,
            weight: weight(s, &seen),
            held: shift.is_some(),
            shift_ns: shift.unwrap_or(0),
        }
    };
    seen.iter().map(order).collect()
}

/// What each could have of a host where all can run anywhere; of a flat tree its shares, for what
/// VMs that are pinned together have by them.
fn could(tree: &Tree, classes: &[&[(PcpuSet, Rate)]]) -> Vec<u64> {
    if tree.is_flat() {
        return tree.leaves().iter().map(|l| l.shares.max(1)).collect();
    }
    let wants: Vec<u64> = classes.iter().map(|c| c.iter().map(|c| c.1.0).sum()).collect();
    tree.could(Rate::ONE.0, &wants).leaves
}

fn look<'a>(
    pcpus: &PcpuSet,
    tree: &Tree,
    vm: &'a ActiveVm,
    (rate, could, short): (Rate, u64, Option<u128>),
    i: usize,
) -> Seen<'a> {
    let leaf = &tree.leaves()[i];
    let demand: u64 = vm.classes.iter().map(|c| c.1.0).sum();
    let set = vm.classes.iter().fold(PcpuSet::empty(), |all, c| all.or(&c.0.and(pcpus)));
    // Demand is measured: within a hundredth it is met.
    let contended = demand - rate.0.min(demand) > demand / 100 + 16;
    let vcpus = Rate::pcpus(u64::from(leaf.vcpus).min(set.len() as u64).max(1));
    let cap = leaf.limit.map_or(vcpus, |l| l.min(vcpus));
    let level = (u128::from(rate.0) << 32) / u128::from(could.max(1));
    let line = if tree.is_flat() { level } else { short.unwrap_or(u128::MAX) };
    let reserved = leaf.reservation;
    Seen {
        vm,
        set,
        rate,
        contended,
        could,
        level,
        line,
        cap,
        reserved,
        pool: None,
        alone: false,
        group: i,
    }
}

/// Pools whose VMs use all of its limit at these rates, within a thousandth: rates are rounded.
fn full_pools(tree: &Tree, rates: &[Rate]) -> Vec<bool> {
    let mut used = vec![0; tree.pools().len()];
    for (leaf, rate) in rates.iter().enumerate() {
        tree.pools_above(leaf).for_each(|p| used[p] += rate.0);
    }
    let full = |(pool, used): (&TreePool, &u64)| {
        pool.limit.is_some_and(|limit| used + limit.0 / 1000 >= limit.0)
    };
    tree.pools().iter().zip(&used).map(full).collect()
}

/// Joins contended VMs of the same line (within a thousandth: rates are rounded) whose sets
/// overlap; of those below a pool whose limit is used up, all that are below the same one, and no
/// others: they compete for that limit, wherever they run.
fn join(seen: &mut [Seen<'_>]) {
    for i in 0..seen.len() {
        for j in 0..i {
            let (a, b) = (&seen[i], &seen[j]);
            let near = || a.line.abs_diff(b.line) <= a.line.max(b.line) / 1000;
            let same = match (a.pool, b.pool) {
                (None, None) => near() && !a.set.and(&b.set).is_empty(),
                (a, b) => a == b,
            };
            let (from, to) = (a.group, b.group);
            let same = same && !a.alone && !b.alone;
            if a.contended && b.contended && from != to && same {
                seen.iter_mut().filter(|s| s.group == from).for_each(|s| s.group = to);
            }
        }
    }
}

/// Of each held group: how far it is moved. `None` for groups with an unrestricted VM.
fn shifts(seen: &[Seen<'_>], pcpus: &PcpuSet, v_ns: u64) -> Vec<Option<i64>> {
    let of = |g: usize| {
        let members = || seen.iter().filter(|s| s.contended && s.group == g);
        if members().next().is_none() || members().any(|s| s.set == *pcpus) {
            return None;
        }
        let total: i128 = members().map(|s| i128::from(s.rate.0)).sum();
        let behind: i128 = members()
            .map(|s| (i128::from(v_ns) - i128::from(s.vm.vt_ns)) * i128::from(s.rate.0))
            .sum();
        let behind = i64::try_from(behind / total.max(1)).unwrap_or(0);
        // A group of few shares is ahead by a quantum of one of its VMs at times: 2^47 ns at most.
        let one = i128::from(Rate::ONE.0);
        let ahead = i128::from(STEERING_NS) * one / total.clamp(1, one);
        Some(behind - behind.clamp(-(ahead as i64), STEERING_NS))
    };
    (0..seen.len()).map(of).collect()
}

fn weight(s: &Seen<'_>, all: &[Seen<'_>]) -> Rate {
    if s.contended {
        return Rate(s.rate.0.max(1));
    }
    let neighbours = all.iter().filter(|o| o.contended && !o.set.and(&s.set).is_empty());
    let by_level =
        |level: u128| ((level * u128::from(s.could)) >> 32).min(u128::from(s.cap.0)) as u64;
    let could = neighbours.map(|o| o.level).max().map_or(s.cap.0, by_level);
    Rate(could.max(s.reserved.0.min(s.cap.0)).max(s.rate.0).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Taken, TreeLeaf, TreePool};
    use units::PcpuId;

    fn vm(id: u16, pcpus: &str, busy: u64, vt_ns: u64) -> ActiveVm {
        ActiveVm { vm: VmId(id), classes: vec![(pcpus.parse().unwrap(), Rate::pcpus(busy))], vt_ns }
    }

    /// A (100 shares, 2 vCPUs), B (300, 2) and C (400, 8).
    fn flat() -> Tree {
        let root = TreePool {
            parent: 0,
            shares: 1,
            reservation: Rate(0),
            limit: None,
            expandable: true,
            scalable: false,
        };
        let leaf =
            |shares, vcpus| TreeLeaf { pool: 0, shares, reservation: Rate(0), limit: None, vcpus };
        Tree::new(8, vec![root], vec![leaf(100, 2), leaf(300, 2), leaf(400, 8)])
    }

    #[test]
    fn held_vms_weigh_what_the_fluid_gives_and_move_together() {
        let host = PcpuSet::first(8);
        let plan_at = |v_ms: u64| {
            let ms = |n: u64| n * 1_000_000;
            let vms =
                [vm(1, "0-1", 2, ms(900)), vm(2, "0-1", 2, ms(1100)), vm(3, "0-7", 8, ms(1500))];
            active_plan(&host, &flat(), &vms, ms(v_ms))
                .iter()
                .map(|o| (o.weight.0, o.held, o.shift_ns / 1_000_000))
                .collect::<Vec<_>>()
        };
        // Mean of the group: (900 * 1 + 1100 * 3) / 4 = 1050; 100 may stay.
        assert_eq!(
            plan_at(1550),
            [(1 << 19, true, 400), (3 << 19, true, 400), (6 << 20, false, 0)]
        );
        assert_eq!(plan_at(900), [(1 << 19, true, -50), (3 << 19, true, -50), (6 << 20, false, 0)]);
        // Nearer, the distance steers.
        assert_eq!(plan_at(1090), [(1 << 19, true, 0), (3 << 19, true, 0), (6 << 20, false, 0)]);
    }

    /// A and B are pinned to the two halves of the host, below one pool of 300 %.
    #[test]
    fn vms_that_compete_for_a_pools_limit_move_together() {
        let root = flat().pools()[0].clone();
        let pool = TreePool { shares: 4000, limit: Some(Rate::pcpus(3)), ..root.clone() };
        let leaf =
            |pool, vcpus| TreeLeaf { pool, shares: 1000, reservation: Rate(0), limit: None, vcpus };
        let tree = Tree::new(8, vec![root, pool], vec![leaf(1, 4), leaf(1, 2), leaf(0, 4)]);
        let ms = |n: u64| n * 1_000_000;
        let vms = [vm(1, "0-3", 4, ms(900)), vm(2, "4-7", 2, ms(1200)), vm(3, "4-7", 4, ms(2000))];
        let plan = active_plan(&PcpuSet::first(8), &tree, &vms, ms(2000));
        let seen: Vec<_> = plan.iter().map(|o| (o.weight.0 >> 18, o.shift_ns / 1000)).collect();
        // They are behind by (1100 + 800) / 2 = 950 ms; 100 may stay. C is not.
        assert_eq!(seen, [(6, 850_000), (6, 850_000), (10, 0)]);
    }

    #[test]
    fn when_a_neighbour_sleeps_the_other_joins_those_who_roam() {
        let host = PcpuSet::first(8);
        let plan = active_plan(
            &host,
            &flat(),
            &[vm(1, "0-1", 2, 900), vm(2, "0-1", 0, 1100), vm(3, "0-7", 8, 1500)],
            1550,
        );
        assert_eq!(
            (plan[0].weight, plan[0].held, plan[2].weight),
            (Rate(1_677_722), false, Rate(6_710_886))
        );
        // The sleeper weighs what it could have at its neighbours' level, at most its two pCPUs.
        assert_eq!((plan[1].weight, plan[1].held, plan[1].shift_ns), (Rate::pcpus(2), false, 0));
    }

    #[test]
    fn what_others_take_of_a_pcpu_is_missing_to_the_vms_that_are_pinned_to_it() {
        let host = PcpuSet::first(8);
        let taken = |pcpu| Taken::from([(PcpuId(pcpu), Rate(Rate::ONE.0 / 2))]);
        let weights = |taken: Taken| {
            let vms = [vm(1, "0-1", 2, 900), vm(2, "0-1", 2, 900), vm(3, "0-7", 8, 900)];
            let plan = active_plan(&host, &flat().without(taken), &vms, 900);
            plan.iter().map(|o| o.weight.0).collect::<Vec<_>>()
        };
        // Of 1.5 pCPUs a quarter and three; what is taken elsewhere is C's alone.
        assert_eq!(weights(taken(0)), [3 << 17, 9 << 17, 6 << 20]);
        assert_eq!(weights(taken(5)), [1 << 19, 3 << 19, 11 << 19]);
    }

    #[test]
    fn a_wait_is_no_demand_of_a_world_that_sleeps_too() {
        let (mut meter, mut ran, mut waited) = (Meter::default(), 0, 0);
        let mut after = |periods: u32, run, wait| {
            let mut rate = Rate(0);
            for _ in 0..periods {
                (ran, waited) = (ran + run, waited + wait);
                meter.begin();
                rate = meter.demand(1, ran, waited, 1000);
            }
            (rate.0 * 1000 + (1 << 19)) >> 20
        };
        after(1, 0, 0);
        // It runs for 40 of 1,000 that it does not wait, however long it waits.
        assert_eq!((after(20, 40, 0), after(20, 4, 900)), (40, 40));
        assert_eq!(after(3, 0, 900), 40, "it has not run: as before");
        assert_eq!(after(20, 4, 996), 1000, "it has not slept");
        assert_eq!(after(20, 0, 1000), 1000);
        assert_eq!(after(30, 0, 0), 0);
    }

    #[test]
    fn demand_is_smoothed_over_a_few_periods() {
        let mut rate = Rate(0);
        for _ in 0..21 {
            rate = smoothed(rate, 100, 100);
        }
        assert_eq!(rate, Rate::ONE);
        assert_eq!(smoothed(Rate::ONE, 0, 100), Rate(1 << 19));
    }
}
