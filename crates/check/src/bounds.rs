//! How far a scheduler may be off and still be called correct, in one place with reasons; it
//! measures nothing.

use crate::CoreSharing;

/// What is allowed. Time on the wall unless a field says CPU time. Accounts have no bound: they
/// are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest time a world may be READY without interruption. Sched_ext ejects a scheduler that
    /// leaves a runnable task for 30 s; a bound well below that also finds starvation that would
    /// only end when the load does.
    pub ready_max_ns: u64,
    /// Longest time a pCPU may be idle while one and the same world that may run there is READY.
    /// Not zero: an idle pCPU may leave a cache-hot world to its own pCPU for a moment (spec L4),
    /// and a wake-up takes the time of an interrupt.
    pub idle_while_waiting_max_ns: u64,
    /// Longest time a world may run on a core that it shares while a whole one of its node that it
    /// may use idles; none where the scheduler promises nothing.
    pub sharing_max_ns: Option<u64>,
    /// Thousandths of its CPU time that a world is charged while the other thread of its core is
    /// busy; 1,000 where threads are divided and not cores.
    pub shared_charge: u64,
    /// The same while all threads of a core are busy.
    pub all_shared_charge: u64,
    /// CPU time that a world may lose by that, of what it is entitled to: it is added to its part
    /// of the lag where cores have several threads.
    pub whole_core_ns: u64,
    /// What the threads of a core may run at once. A world that begins to run beside another though
    /// it may not is stopped by an interrupt as well, within `affinity_grace_ns`.
    pub core_sharing: CoreSharing,
    /// Longest time a world may still run where its affinity no longer lets it, after a change: an
    /// interrupt to that pCPU.
    pub affinity_grace_ns: u64,
    /// CPU time by which any VM may be behind or ahead of the ideal fluid: the quantum it waits or
    /// runs while the others' turn, and what one window averages over.
    pub lag_base_ns: u64,
    /// CPU time added to it for each world that the VM can run at once (worlds or pCPUs, whichever
    /// is less): each is in the middle of a quantum of its own.
    pub lag_per_world_ns: u64,
    /// Time constant with which lag fades; `u64::MAX` for never. A scheduler that keeps virtual
    /// time leaks a little each time a world of a wide VM sleeps; a leak of rate `r` shows as `r`
    /// times this. So the bound on lag divided by this is the permanent rate of unfairness that is
    /// allowed.
    pub lag_memory_ns: u64,
    /// Time over which changes of the runnable set are averaged before the ideal is computed.
    /// Shorter is sharper, longer is cheaper: the ideal costs one `fluid` a window.
    pub window_ns: u64,
    /// By how many permille of a limit a VM or pool may exceed it over any second. The sum, for
    /// each pCPU of the limit: saved budget (2 ms), budget that accrues between two ticks (1), use
    /// of running worlds at the begin of the second (2), and overuse before its last tick (1).
    /// `pool-limit` expects 5.
    pub limit_permille: u32,
    /// The least of that bound, in CPU time a second: for limits below two pCPUs saved budget (4
    /// ms), the budget that a VM keeps for its next wake-up (2.5 ms) and a start of each of two
    /// worlds exceed the permille, and a start while limits tick once in 4 ms lasts that long.
    /// docs/design/018-bounds.md has what random trees reach.
    pub limit_least_ns: u64,
    /// CPU time added to it for each world where there are pools, reservations or limits: weights
    /// follow demand there, and a plan knows the past only. A world may win a quantum by a demand
    /// that has just fallen, and lose one by a demand that has just risen.
    pub lag_replanned_ns: u64,
    /// Period of the averages that the second ideal goes by (`ideals.rs`).
    pub plan_ns: u64,
    /// How late the scheduler's own timers may be on this host, which no scheduler can help. What
    /// each bound allows for it stands beside that bound: `lag_ns`, `skew_max_ns` of
    /// `CoschedTerms`, and `idle_while_waiting_max_ns` in `SchedulerTerms::bounds`. The others go
    /// by ticks of the kernel, or hold for late timers as they are: a limit keeps what a late tick
    /// could not give.
    pub timer_late_ns: u64,
    /// Violations kept with their text; more are only counted.
    pub violations_kept: usize,
}

const MS: u64 = 1_000_000;

impl Bounds {
    /// Bounds for a scheduler that preempts at this quantum and at timer ticks of this length.
    ///
    /// - lag: one quantum and one tick for each world, because that is how late a switch can be;
    ///   once more, and two windows, for the VM; two quanta more for each world where weights
    ///   follow demand. No knob but the quantum has a part in it.
    /// - memory: 40 quanta (2 s at ESXi's quantum), so that the permanent rate of unfairness
    ///   allowed is about 1 in 40 of each pCPU a VM can use, whatever the quantum.
    /// - idle while waiting: one tick, after which an idle pCPU has looked around in any case.
    /// - affinity: the kernel stops the world by interrupt; 100 us is far above any on hardware.
    #[must_use]
    pub fn of(quantum_ns: u64, tick_ns: u64, window_ns: u64) -> Bounds {
        Bounds {
            ready_max_ns: 10_000 * MS,
            idle_while_waiting_max_ns: tick_ns,
            sharing_max_ns: None,
            shared_charge: 1000,
            all_shared_charge: 1000,
            whole_core_ns: 0,
            core_sharing: CoreSharing::Any,
            affinity_grace_ns: MS / 10,
            lag_base_ns: quantum_ns + tick_ns + 2 * window_ns,
            lag_per_world_ns: quantum_ns + tick_ns,
            lag_memory_ns: 40 * quantum_ns,
            window_ns,
            limit_permille: 6,
            limit_least_ns: 12 * MS,
            lag_replanned_ns: 2 * quantum_ns,
            plan_ns: 20 * MS,
            timer_late_ns: 0,
            violations_kept: 100,
        }
    }

    /// Whether a world may be given its core alone, for what worlds of other VMs have had of it:
    /// then the other threads idle meanwhile.
    pub(crate) fn grants_cores(&self) -> bool {
        self.shared_charge < 1000 && self.core_sharing == CoreSharing::Any
    }

    /// The same on a host whose cores have so many threads at most: where they have several,
    /// unfairness by sharing is allowed up to its threshold, and lag fades more slowly, so that the
    /// permanent rate of unfairness that is allowed stays as it is.
    #[must_use]
    pub fn on_cores(self, threads: u64) -> Bounds {
        if threads < 2 {
            return Bounds { shared_charge: 1000, core_sharing: CoreSharing::Any, ..self };
        }
        if !self.grants_cores() {
            return self;
        }
        let (before, more) = (self.lag_per_world_ns, self.whole_core_ns);
        let slower = u128::from(self.lag_memory_ns) * u128::from(before + more);
        Bounds {
            lag_per_world_ns: before + more,
            all_shared_charge: 2 * self.shared_charge / threads,
            lag_memory_ns: u64::try_from(slower / u128::from(before)).unwrap_or(u64::MAX),
            ..self
        }
    }

    /// CPU time by which a VM that can run so many worlds at once may be off the ideal; `flat`
    /// where there are shares alone. Each of the two planning periods after which weights follow
    /// demand may begin as late as its timer.
    #[must_use]
    pub fn lag_ns(&self, worlds: u64, flat: bool) -> u64 {
        let later = if flat { 0 } else { self.lag_replanned_ns + 2 * self.timer_late_ns };
        self.lag_base_ns + (self.lag_per_world_ns + later) * worlds
    }
}

impl Default for Bounds {
    /// ESXi's quantum of 50 ms (VS51), 250 ticks a second, windows of 1 ms.
    fn default() -> Bounds {
        Bounds::of(50 * MS, 4 * MS, MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_cores_are_granted_and_lag_allowed_for_them_only_where_vms_share_cores() {
        let bounds = Bounds { whole_core_ns: 800 * MS, ..Bounds::of(50 * MS, 4 * MS, MS) };
        let on = |shared_charge, core_sharing| {
            let of = Bounds { shared_charge, core_sharing, ..bounds }.on_cores(2);
            (of.grants_cores(), of.lag_per_world_ns - bounds.lag_per_world_ns)
        };
        assert_eq!(on(625, CoreSharing::Any), (true, 800 * MS));
        assert_eq!(on(1000, CoreSharing::Any), (false, 0));
        assert_eq!(on(500, CoreSharing::Vm), (false, 0));
        assert_eq!(on(625, CoreSharing::None), (false, 0));
    }
}
