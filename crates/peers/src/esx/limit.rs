//! Limits of VMs and pools; it picks no world.
//!
//! *Law*: a limit has a level in ns of CPU time. It grows with time by the limit's rate, up to what
//! is saved, and falls by what the worlds below it use. When nothing is left of it they stop, and
//! wait in a queue of their own until the level pays for `HOLD_NS` of the rate again.
//!
//! *Documented*: a limit is an upper bound of a VM or a pool, which divides it by shares (VS51 "CPU
//! Limit"); the time that it takes is `%MLMTD`. *Our reading*: how it is kept. Use is seen with
//! each tick, and what was used beyond the level is paid back by a longer wait.
//!
//! *Example*: 400 % of the host's 8 pCPUs and 8 busy VMs: after 10 ms the level is at 40 ms. All 8
//! run for 10 ms, and wait for 10 ms.

use super::{Esx, LIMITS, QUANTUM_NS};
use contract::{Callback, Hold, LimitOf, Limits};
use units::Rate;

/// How long the worlds below a limit that is used up wait, if it has no debt, in ns.
const HOLD_NS: u64 = 10_000_000;
/// Limits that are used up are looked at so often, in ns.
const POLL_NS: u64 = 1_000_000;

/// One limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    of: LimitOf,
    rate: Rate,
    /// What is saved at most, in ns.
    most_ns: i64,
    parent: Option<usize>,
    level_ns: i64,
    /// Up to when it has grown, in ns.
    at_ns: u64,
    used_up: bool,
}

/// CPU time of a rate in so many ns.
fn of_ns(rate: Rate, ns: u64) -> i64 {
    (u128::from(rate.0) * u128::from(ns) / u128::from(Rate::ONE.0)) as i64
}

impl Limit {
    fn grow(&mut self, now_ns: u64) {
        let ns = now_ns - std::mem::replace(&mut self.at_ns, now_ns);
        self.level_ns = (self.level_ns + of_ns(self.rate, ns)).min(self.most_ns);
        self.used_up &= self.level_ns < of_ns(self.rate, HOLD_NS);
    }
}

impl Esx {
    /// Queue of the worlds that limits hold back.
    pub(super) fn limited(&self) -> u64 {
        self.costops() + 1
    }

    /// Puts limits into force; one that was there keeps its level.
    pub(super) fn set_limits(&mut self, now_ns: u64, limits: &Limits<'_>) {
        let had = std::mem::take(&mut self.limits);
        let new = |l: &contract::Limit| {
            let most_ns = of_ns(l.rate, QUANTUM_NS).max(l.burst_ns as i64);
            let level_ns = of_ns(l.rate, HOLD_NS);
            let old = had.iter().find(|h| h.of == l.of);
            let new = Limit {
                of: l.of,
                rate: l.rate,
                most_ns,
                parent: l.parent,
                level_ns,
                at_ns: now_ns,
                used_up: false,
            };
            old.map_or(new, |h| Limit { rate: l.rate, most_ns, parent: l.parent, ..*h })
        };
        self.limits = limits.limits.iter().map(new).collect();
        self.vms.iter_mut().for_each(|vm| vm.limit = None);
        for (vm, first) in limits.first {
            self.vms[*vm as usize].limit = *first;
        }
    }

    /// The limits above a VM, its own first.
    fn limits_above(&self, vm: u32) -> impl Iterator<Item = usize> {
        std::iter::successors(self.vms[vm as usize].limit, |i| self.limits[*i].parent)
    }

    /// What a world has used counts for all limits above it.
    pub(super) fn pay(&mut self, now_ns: u64, vm: u32, ran_ns: u64) {
        let mut next = self.vms[vm as usize].limit;
        while let Some(limit) = next.map(|i| &mut self.limits[i]) {
            limit.grow(now_ns);
            limit.level_ns -= ran_ns as i64;
            limit.used_up |= limit.level_ns <= 0;
            next = limit.parent;
        }
    }

    /// Whether a limit above a world is used up.
    pub(super) fn is_limited(&self, world: u32) -> bool {
        self.limits_above(self.worlds[world as usize].vm).any(|i| self.limits[i].used_up)
    }

    /// Holds back the worlds at the head of a pCPU's queue that limits do not let run.
    pub(super) fn hold_back(&mut self, k: &mut Callback<'_>, pcpu: u32) {
        loop {
            let world = k.kernel.queue_at(u64::from(pcpu), 0);
            if world == 0
                || !self.is_limited(world)
                || !k.kernel.queue_move(k.tasks, u64::from(pcpu), world, self.limited())
            {
                return;
            }
            self.held_back(k, world);
        }
    }

    /// A world is in the queue of those that wait for a limit.
    pub(super) fn held_back(&mut self, k: &mut Callback<'_>, world: u32) {
        self.unassign(world);
        k.kernel.hold(world, Hold::Limited);
        if !std::mem::replace(&mut self.limits_armed, true) {
            k.kernel.arm(LIMITS, POLL_NS);
        }
    }

    /// Lets worlds run that waited for a limit.
    pub(super) fn look_at_limits(&mut self, k: &mut Callback<'_>) {
        self.limits.iter_mut().for_each(|l| l.grow(k.now_ns));
        let (mut i, mut waits) = (0, false);
        loop {
            let world = k.kernel.queue_at(self.limited(), i);
            if world == 0 {
                break;
            }
            let own = k.task(world).pcpu as u32;
            let pcpu = if self.is_limited(world) { None } else { Some(self.place(k, world, own)) };
            let mut moved = |to| k.kernel.queue_move(k.tasks, self.limited(), world, u64::from(to));
            if let Some(pcpu) = pcpu.filter(|to| moved(*to)) {
                k.kernel.hold(world, Hold::None);
                self.assign(world, pcpu);
                self.wake_pcpu(k, world, pcpu, true);
            } else {
                (i, waits) = (i + 1, true);
            }
        }
        self.limits_armed = waits;
        if waits {
            k.kernel.arm(LIMITS, POLL_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: u64 = 1_000_000;

    #[test]
    fn a_limit_that_is_used_up_waits_for_ten_ms_of_its_rate() {
        let mut limit = Limit {
            of: LimitOf::Vm(1),
            rate: Rate(Rate::ONE.0 / 2),
            most_ns: 25 * MS as i64,
            parent: None,
            level_ns: 0,
            at_ns: 0,
            used_up: true,
        };
        let mut seen = |now: u64| {
            limit.grow(now * MS);
            (limit.level_ns / MS as i64, limit.used_up)
        };
        assert_eq!(
            [9, 10, 40, 100].map(&mut seen),
            [(4, true), (5, false), (20, false), (25, false)]
        );
    }
}
