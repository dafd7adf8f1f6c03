//! What a scheduler accounts by itself, to be held to what its kernel saw; it accounts nothing.

/// Time that a world has spent in each state, in ns; the five sum to its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTimes {
    /// On a pCPU.
    pub run_ns: u64,
    /// Waiting for a pCPU.
    pub ready_ns: u64,
    /// Held back so that siblings catch up.
    pub costop_ns: u64,
    /// Blocked, a vCPU's halt excepted.
    pub wait_ns: u64,
    /// A vCPU that its guest has halted.
    pub wait_idle_ns: u64,
}

/// A scheduler's own accounts. `None` where it keeps none: nothing is compared then.
pub trait Accounts {
    /// CPU time charged to a world until it stopped last, in ns.
    fn charged_ns(&self, _world: u32) -> Option<u64> {
        None
    }

    /// CPU time of a world until `now_ns` that it is not charged: lost to a busy thread of the same
    /// core, in ns.
    fn lost_ns(&self, _world: u32, _now_ns: u64) -> u64 {
        0
    }

    /// CPU time that a pCPU has spent on worlds until one stopped there last, in ns.
    fn busy_ns(&self, _pcpu: u32) -> Option<u64> {
        None
    }

    /// Time until `now_ns` in which a pCPU neither ran worlds nor idled, in ns, for a planner that
    /// divides the rest.
    fn taken_ns(&self, _pcpu: u32, _now_ns: u64) -> Option<u64> {
        None
    }

    /// State times of a world at `now_ns`, the present stay included.
    fn state_times(&self, _world: u32, _now_ns: u64) -> Option<StateTimes> {
        None
    }

    /// Runnable worlds of a VM, those that run included.
    fn runnable_worlds(&self, _vm: u32) -> Option<u32> {
        None
    }

    /// What a VM asks for now, in 2^-20 pCPU.
    fn demand(&self, _vm: u32) -> Option<u64> {
        None
    }

    /// VMs whose worlds have woken this VM's, and how often, since the last call.
    fn take_talks(&mut self, _vm: u32) -> Option<Vec<(u32, u64)>> {
        None
    }

    /// Virtual time of a VM and of the host, in ns, for a planner that corrects the former.
    fn virtual_times(&self, _vm: u32) -> Option<(u64, u64)> {
        None
    }
}
