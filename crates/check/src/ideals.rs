//! Two ideals of one host, and the distance of each VM from what lies between them; the accounts of
//! each are in `lag.rs`.
//!
//! Promise: a VM's CPU time stays near the interval between two fluids: one that divides by the
//! demand of the moment, and one that divides by the average demand in `Bounds::plan_ns`. Near the
//! first where there are shares alone and every VM that wants to run is as wide as the host: there
//! both are the same in the long run.
//!
//! Why two: a part that is bounded by vCPUs, a limit or a reservation is not in proportion to the
//! demand of others, so the part for the average demand is not the average of the parts of each
//! moment. Both are correct: future demand is unknown, and a plan can only use past demand.
//!
//! Law: `0` where a VM is behind one and ahead of the other, else its lag by the nearer one. The
//! lag by the average is that of its last window, so changes within `plan_ns` are not seen.
//!
//! Example: 2 pCPUs. C has all shares and wants both for 10 of each 20 ms. A, with one vCPU, has
//! three times the shares of B. While C is away A gets the whole pCPU that it can use: half of one
//! by the moment. On average a pCPU is left, and A's part three quarters. 0.6 is right; 0.8 is 0.05
//! too much.

use crate::{
    Bounds, PoolTerms, VmTerms,
    lag::Ledger,
    verdict::{Log, VmVerdict},
};
use units::{PcpuId, PcpuSet, VmId};

/// A world's accounts in both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    moment: u32,
    average: u32,
}

/// Both ideals; VMs and sets of pCPUs have the same numbers in each.
#[derive(Clone, Debug)]
pub(crate) struct Ideals {
    moment: Ledger,
    average: Ledger,
}

impl Ideals {
    pub(crate) fn new(pcpus: usize, bounds: Bounds) -> Ideals {
        let averaged = Bounds { window_ns: bounds.plan_ns.max(bounds.window_ns), ..bounds };
        Ideals { moment: Ledger::new(pcpus, bounds), average: Ledger::new(pcpus, averaged) }
    }

    /// Index of an allowed set; `None` is the whole host, index 0.
    pub(crate) fn set(&mut self, allowed: Option<&PcpuSet>) -> u32 {
        self.average.set(allowed);
        self.moment.set(allowed)
    }

    pub(crate) fn pcpus_of(&self, set: u32) -> &PcpuSet {
        self.moment.pcpus_of(set)
    }

    /// These pCPUs are on line from `now` on; the windows have been closed.
    pub(crate) fn set_pcpus(&mut self, now: u64, pcpus: &PcpuSet) {
        self.average.set_pcpus(now, pcpus);
        self.moment.set_pcpus(now, pcpus);
    }

    pub(crate) fn start(&mut self, now: u64) {
        self.moment.start(now);
        self.average.start(now);
    }

    /// New pools, the root first.
    pub(crate) fn set_pools(&mut self, pools: Vec<PoolTerms>) {
        self.average.set_pools(pools.clone());
        self.moment.set_pools(pools);
    }

    /// Most CPU time that each limited pool used in a second.
    pub(crate) fn peaks(&self) -> Vec<(usize, u64)> {
        self.moment.peaks()
    }

    pub(crate) fn add_vm(&mut self, id: VmId, name: &str, terms: VmTerms) -> u32 {
        self.average.add_vm(id, name, terms);
        self.moment.add_vm(id, name, terms)
    }

    pub(crate) fn set_terms(&mut self, vm: u32, terms: VmTerms) {
        self.average.set_terms(vm, terms);
        self.moment.set_terms(vm, terms);
    }

    pub(crate) fn terms(&self, vm: u32) -> VmTerms {
        self.moment.terms(vm)
    }

    /// A VM is powered off.
    pub(crate) fn remove_vm(&mut self, vm: u32) {
        self.average.remove_vm(vm);
        self.moment.remove_vm(vm);
    }

    pub(crate) fn vm_name(&self, vm: u32) -> (VmId, String) {
        self.moment.vm_name(vm)
    }

    /// Opens the accounts of a world that is asleep.
    pub(crate) fn add_world(&mut self, now: u64, vm: u32, set: u32) -> Account {
        Account {
            moment: self.moment.add_world(now, vm, set),
            average: self.average.add_world(now, vm, set),
        }
    }

    /// Opens the accounts of a real-time thread that sleeps; the first comes with the VM of all.
    pub(crate) fn add_realtime(&mut self, now: u64, set: u32) -> Account {
        let [moment, average] = [&mut self.moment, &mut self.average].map(|l| {
            let vm = l.realtime();
            l.add_world(now, vm, set)
        });
        Account { moment, average }
    }

    /// Changes what a world does from `now` on.
    pub(crate) fn turn(&mut self, now: u64, world: Account, awake: bool, running: bool) {
        self.moment.turn(now, world.moment, awake, running);
        self.average.turn(now, world.average, awake, running);
    }

    /// A world is charged so many thousandths of its CPU time from `now` on.
    pub(crate) fn charge(&mut self, now: u64, world: Account, rate: u64) {
        self.moment.charge(now, world.moment, rate);
        self.average.charge(now, world.average, rate);
    }

    /// A pCPU loses so many thousandths of its time to the other threads of its core from `now` on.
    pub(crate) fn lose(&mut self, now: u64, pcpu: PcpuId, rate: u64) {
        self.moment.lose(now, pcpu, rate);
        self.average.lose(now, pcpu, rate);
    }

    /// Whether a VM has been entitled to more than shared cores give within the last `grace` ns, by
    /// one of both.
    pub(crate) fn whole(&self, vm: u32, now: u64, grace: u64) -> bool {
        self.moment.whole(vm, now, grace) || self.average.whole(vm, now, grace)
    }

    /// Ends a world's accounts at `now`.
    pub(crate) fn end_world(&mut self, now: u64, world: Account) {
        self.moment.end_world(now, world.moment);
        self.average.end_world(now, world.average);
    }

    /// Goes on in new accounts for another allowed set.
    pub(crate) fn move_world(&mut self, now: u64, world: Account, set: u32) -> Account {
        let (moment, average) = (
            self.moment.move_world(now, world.moment, set),
            self.average.move_world(now, world.average, set),
        );
        Account { moment, average }
    }

    /// Whether a window ends before `now`.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.moment.is_due(now) || self.average.is_due(now)
    }

    /// Closes all windows that end before `now`.
    pub(crate) fn roll(&mut self, now: u64, log: &mut Log) {
        self.average.roll(now, None, log);
        self.moment.roll(now, Some(&self.average), log);
    }

    /// Closes the windows at `now`, whether they are full or not.
    pub(crate) fn close(&mut self, now: u64, log: &mut Log) {
        self.average.close(now, None, log);
        self.moment.close(now, Some(&self.average), log);
    }

    /// CPU time of the ideal of the moment for a world, in ns; as of the last window that closed.
    pub(crate) fn world_entitled(&self, world: Account) -> u64 {
        self.moment.world_entitled(world.moment)
    }

    pub(crate) fn verdicts(&self) -> Vec<VmVerdict> {
        self.moment.verdicts()
    }
}

/// How far a VM is from what lies between its lags by the two ideals: behind is negative.
pub(crate) fn apart(moment: i64, average: i64) -> i64 {
    if (moment < 0) != (average < 0) {
        0
    } else if moment < 0 {
        moment.max(average)
    } else {
        moment.min(average)
    }
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn between_the_two_nobody_is_off_and_outside_the_nearer_one_counts() {
        assert_eq!([apart(-5, 7), apart(5, -7), apart(0, 7)], [0, 0, 0]);
        assert_eq!([apart(5, 7), apart(7, 5), apart(-5, -7), apart(-7, -5)], [5, 5, -5, -5]);
    }
}
