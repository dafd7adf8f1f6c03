//! What the two laws of picking differ in, and the constants of both, each with the name that it
//! has in Linux's `kernel/sched/fair.c`; it decides nothing.

use super::entity::NICE_0;

/// Which world is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Law {
    /// Linux 6.1: the least virtual time.
    Cfs,
    /// Linux 7.3: the earliest virtual deadline of those that are eligible.
    Eevdf,
}

impl Law {
    /// Name of the policy.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Law::Cfs => "cfs",
            Law::Eevdf => "eevdf",
        }
    }
}

/// A tick at 250 Hz (`CONFIG_HZ` of Debian), in ns. It bounds lag, and is what a busy pCPU looks
/// earlier by; the ticks themselves are the host's.
pub(super) const TICK_NS: u64 = 4_000_000;
/// A world that ran later than so long ago is taken to have its caches elsewhere
/// (`sched_migration_cost`), in ns.
pub(super) const MIGRATION_COST_NS: u64 = 500_000;
/// Worlds that one balancing looks at (`sched_nr_migrate`).
pub(super) const LOOKS_AT: usize = 32;
/// Period of a limit (`cpu.max`), in ns.
pub(super) const PERIOD_NS: u64 = 100_000_000;
/// What a pCPU takes of a limit's quota at once (`sched_cfs_bandwidth_slice_us`), in ns.
pub(super) const SLICE_NS: i64 = 5_000_000;
/// What a pCPU keeps of that when its worlds sleep (`min_cfs_rq_runtime`), in ns.
pub(super) const KEEPS_NS: i64 = 1_000_000;
/// Time between the return of quota and its being given out (`cfs_bandwidth_slack_period`), in ns.
pub(super) const SLACK_NS: u64 = 5_000_000;
/// Returned quota waits for the next period if that is nearer
/// (`min_bandwidth_expiration` and the above), in ns.
pub(super) const NEAR_NS: u64 = 7_000_000;
/// Least quota of a period (`min_cfs_quota_period`), in ns.
pub(super) const QUOTA_MIN_NS: u64 = 1_000_000;
/// Least weight of a group on a pCPU (`MIN_SHARES`).
pub(super) const SHARES_MIN: u64 = 2;
/// Largest `cpu.weight`.
pub(super) const CPU_WEIGHT_MAX: u64 = 10_000;

/// What grows with the host: each constant times 1 + log2 of its pCPUs, of 8 at most
/// (`SCHED_TUNABLESCALING_LOG`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunables {
    /// CFS: every world runs once in so long (`sched_latency`), in ns.
    pub(super) latency_ns: u64,
    /// CFS: and for so long at least (`sched_min_granularity`), in ns.
    pub(super) granularity_ns: u64,
    /// CFS: a woken world preempts one that is ahead of it by more (`sched_wakeup_granularity`), in
    /// ns of virtual time.
    pub(super) wakeup_ns: u64,
    /// EEVDF: what a world asks for (`sched_base_slice`), in ns.
    pub(super) slice_ns: u64,
}

/// Worlds that fit into a latency, at a granularity each (`sched_nr_latency`).
pub(super) const NR_LATENCY: u64 = 8;

impl Tunables {
    /// Those of a host of so many pCPUs.
    pub(super) fn of(pcpus: usize) -> Tunables {
        let factor = 1 + u64::from(pcpus.clamp(1, 8).ilog2());
        Tunables {
            latency_ns: 6_000_000 * factor,
            granularity_ns: 750_000 * factor,
            wakeup_ns: 1_000_000 * factor,
            slice_ns: 700_000 * factor,
        }
    }
}

/// `cpu.weight` of shares whose largest sibling has `largest`: the shares themselves, or in their
/// proportion where they do not fit.
pub(super) fn cpu_weight(shares: u64, largest: u64) -> u64 {
    let fits = if largest > CPU_WEIGHT_MAX { shares * CPU_WEIGHT_MAX / largest } else { shares };
    fits.clamp(1, CPU_WEIGHT_MAX)
}

/// Load weight of a `cpu.weight`, 100 being that of a thread of nice 0, rounded to a 1024th of it.
pub(super) fn load_weight(cpu_weight: u64) -> u64 {
    ((cpu_weight * 1024 + 50) / 100).max(2) * (NICE_0 / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_by_the_logarithm_of_eight_pcpus_at_most() {
        let slices = [1, 2, 3, 4, 8, 64].map(|n| Tunables::of(n).slice_ns / 1000);
        assert_eq!(slices, [700, 1400, 1400, 2100, 2800, 2800]);
        assert_eq!(Tunables::of(8).latency_ns, 24_000_000);
    }

    #[test]
    fn shares_are_cpu_weights_and_scaled_where_the_largest_does_not_fit() {
        assert_eq!([(100, 700), (1, 10_000)].map(|(s, l)| cpu_weight(s, l)), [100, 1]);
        assert_eq!([1000, 40_000].map(|s| cpu_weight(s, 40_000)), [250, 10_000]);
        assert_eq!([100, 1, 10_000].map(load_weight), [NICE_0, 10 << 10, 102_400 << 10]);
    }
}
