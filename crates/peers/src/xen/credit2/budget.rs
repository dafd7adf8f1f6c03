//! Caps of Credit2: a budget for each domain that has one, renewed each 10 ms. It weighs nothing.
//!
//! *Law*: a domain has `cap` percent of 10 ms, and gets as much each 10 ms, up to that. A vCPU that
//! is to run takes an equal part of it (0.5 ms at least), or what is left, and returns what it has
//! not used when it stops; what it used beyond is taken off later. One that finds nothing is parked
//! until there is some.
//!
//! *Source*: unit_grab_budget, unit_return_budget, replenish_domain_budget (credit2_cap_period_ms:
//! 10).
//!
//! *Example*: a domain of 8 vCPUs with a cap of 400 has 40 ms each 10 ms, 5 ms a vCPU.

use super::Credit2;
use contract::{Callback, Hold};

/// Time between two renewals, in ns.
const PERIOD_NS: u64 = 10_000_000;
/// Least part that a vCPU takes, in ns.
const PART_MIN_NS: i64 = 500_000;

/// The budget of a domain, in ns; `whole_ns` is 0 without a cap.
#[derive(Clone, Debug, Default)]
pub(super) struct Purse {
    pub(super) vcpus: i64,
    whole_ns: i64,
    left_ns: i64,
    next_ns: u64,
    parked: Vec<u32>,
}

impl Purse {
    /// Whether the domain has a cap.
    pub(super) fn is_capped(&self) -> bool {
        self.whole_ns > 0
    }

    /// What a vCPU that has `budget` left (or has overdrawn it) may use; 0 for nothing.
    fn grab(&mut self, budget: i64) -> i64 {
        self.left_ns += budget;
        let part = (self.whole_ns / self.vcpus.max(1)).max(PART_MIN_NS).min(self.left_ns).max(0);
        self.left_ns -= part;
        part
    }

    /// Another period begins, and those that are over by now.
    fn renew(&mut self, now_ns: u64) {
        while self.next_ns <= now_ns {
            self.next_ns += PERIOD_NS;
            self.left_ns += self.whole_ns;
        }
        self.left_ns = self.left_ns.min(self.whole_ns);
    }
}

impl Credit2 {
    /// Whether a world that is to run has budget, or gets some; else it is parked.
    pub(super) fn has_budget(&mut self, world: u32) -> bool {
        let account = &mut self.worlds[world as usize];
        let Some(budget) = account.budget.filter(|left| *left <= 0) else { return true };
        let purse = &mut self.purses[account.vm as usize];
        let part = purse.grab(budget);
        account.budget = Some(part);
        account.parked = part == 0;
        if account.parked {
            purse.parked.insert(0, world);
        }
        !account.parked
    }

    /// A world that waits was parked: it leaves the run queue.
    pub(super) fn park_waiting(&mut self, k: &mut Callback<'_>, world: u32) {
        self.remove(world);
        self.change_load(world, -1, k.now_ns);
        k.kernel.hold(world, Hold::Limited);
    }

    /// A world has stopped: what it has left is for its siblings.
    pub(super) fn return_budget(&mut self, k: &mut Callback<'_>, world: u32) {
        let account = &mut self.worlds[world as usize];
        let vm = account.vm;
        let Some(left) = account.budget.filter(|left| *left > 0) else { return };
        account.budget = Some(0);
        let purse = &mut self.purses[vm as usize];
        purse.left_ns += left;
        if purse.left_ns > 0 {
            self.unpark(k, vm);
        }
    }

    /// The parked worlds of a domain may look for budget.
    fn unpark(&mut self, k: &mut Callback<'_>, vm: u32) {
        for world in std::mem::take(&mut self.purses[vm as usize].parked) {
            self.worlds[world as usize].parked = false;
            let at = self.worlds[world as usize].at;
            if self.machine.current(at) == world {
                continue; // it has not stopped yet
            }
            k.kernel.hold(world, Hold::None);
            if !self.machine.may_run(k.task(world), at) {
                self.place(k, world);
            }
            self.wakes(k, world);
        }
    }

    /// A domain's budget is renewed.
    pub(super) fn replenish(&mut self, k: &mut Callback<'_>, vm: u32) {
        let purse = &mut self.purses[vm as usize];
        if !purse.is_capped() {
            return;
        }
        purse.renew(k.now_ns);
        let (next, some) = (purse.next_ns, purse.left_ns > 0);
        let slot = self.machine.len() + vm;
        self.machine.alarms.set(k, slot, next);
        if some {
            self.unpark(k, vm);
        }
    }

    /// Caps have changed.
    pub(super) fn set_caps(&mut self, k: &mut Callback<'_>) {
        for vm in 0..self.purses.len() as u32 {
            let whole_ns = (self.domains.of(vm).cap * PERIOD_NS / 100) as i64;
            let purse = &mut self.purses[vm as usize];
            let before = std::mem::replace(&mut purse.whole_ns, whole_ns);
            if (before > 0) == (whole_ns > 0) {
                continue;
            }
            (purse.left_ns, purse.next_ns) = (whole_ns, k.now_ns + PERIOD_NS);
            let next = purse.next_ns;
            let slot = self.machine.len() + vm;
            if whole_ns > 0 {
                self.machine.alarms.set(k, slot, next);
            } else {
                self.machine.alarms.stop(slot);
            }
            self.budget_all(k, vm, (whole_ns > 0).then_some(0));
        }
    }

    /// All worlds of a domain have this budget.
    fn budget_all(&mut self, k: &mut Callback<'_>, vm: u32, budget: Option<i64>) {
        for queue in 0..self.queues.len() {
            for world in self.queues[queue].worlds.clone() {
                let of = self.worlds[world as usize];
                if of.vm != vm {
                    continue;
                }
                if self.machine.current(of.at) == world {
                    self.burn(of.at, k.now_ns);
                    self.tickle_pcpu(k, of.at);
                }
                self.worlds[world as usize].budget = budget;
            }
        }
        if budget.is_none() {
            self.unpark(k, vm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vcpu_takes_its_part_and_what_was_overdrawn_is_taken_off() {
        let whole_ns = 40_000_000;
        let mut purse = Purse { vcpus: 8, whole_ns, left_ns: whole_ns, ..Purse::default() };
        assert_eq!([0; 7].map(|b| purse.grab(b)), [5_000_000; 7]);
        assert_eq!((purse.grab(-1_000_000), purse.grab(0)), (4_000_000, 0));
        assert_eq!((purse.grab(-7), purse.left_ns), (0, -7));
        purse.renew(25_000_000);
        assert_eq!((purse.left_ns, purse.next_ns), (40_000_000, 30_000_000));
    }
}
