//! One look at a host for esxtop's numbers: cumulative times and counts at one moment, and
//! settings; it computes nothing.
//!
//! Everything that is counted is optional, for no source knows it all: the scheduler's accounts
//! know no interrupts, the kernel's own know no co-stop. What is not known is `None`, and stays a
//! gap in all that is made from it.

use std::collections::{BTreeMap, BTreeSet};
use units::PcpuId;

/// Id of a group (pool, VM, system group) that stays for its life, and is not given again: esxtop's
/// GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub u64);

impl Gid {
    /// The host itself, the root of all pools: ESXi writes it as `0:host`.
    pub const HOST: Gid = Gid(0);
    /// The host's own tasks: ESXi writes them as `1:system`.
    pub const SYSTEM: Gid = Gid(1);
}

impl VmMemory {
    /// Memory of a VM of this size, by its parts: the home of each, and what it has used of each
    /// node, in bytes.
    #[must_use]
    pub fn of<'p>(
        bytes: u64,
        migrations: u64,
        parts: impl IntoIterator<Item = (Option<u32>, &'p [u64])>,
    ) -> VmMemory {
        let (mut homes, mut places) = (BTreeSet::new(), Some((0, 0)));
        for (home, at) in parts {
            homes.extend(home);
            let (local, remote) = places.unwrap_or_default();
            let here = home.map(|h| at.get(h as usize).copied().unwrap_or(0));
            let all: u64 = at.iter().sum();
            places = places.and(here).map(|here| (local + here, remote + all - here));
        }
        let places = places.filter(|_| !homes.is_empty());
        VmMemory { bytes, homes: homes.into_iter().collect(), places, migrations }
    }
}

/// Id of a world that stays for its life, and is not given again: esxtop's world id. The
/// scheduler's own `units::WorldId` is an index that is used again, and will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wid(pub u64);

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// When, in ns of a clock that never goes back; only differences of it are used.
    pub at_ns: u64,
    /// When, by the wall clock, in s since 1970 UTC; only shown.
    pub unix_seconds: i64,
    /// pCPUs, in the order they are shown.
    pub pcpus: Vec<PcpuCounters>,
    /// Cores.
    pub cores: Vec<CoreCounters>,
    /// Pools, VMs and the system group.
    pub groups: BTreeMap<Gid, GroupCounters>,
    /// Worlds.
    pub worlds: BTreeMap<Wid, WorldCounters>,
    /// Memory by NUMA node.
    pub memory: HostMemory,
}

/// Memory of a host, and of VMs; empty where nothing is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// NUMA nodes, where memory is not equally near from everywhere.
    pub nodes: Vec<NodeMemory>,
    /// VMs.
    pub vms: BTreeMap<Gid, VmMemory>,
}

/// Memory of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// Its id.
    pub id: u32,
    /// In bytes.
    pub bytes: u64,
    /// Free, in bytes.
    pub free: u64,
}

/// Memory of a VM, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmMemory {
    /// Its size, in bytes.
    pub bytes: u64,
    /// Home nodes of its parts, each once, in order; none where it has none.
    pub homes: Vec<u32>,
    /// Of what it has used, memory in the home of its part, and in other nodes, in bytes; where a
    /// part has no home that is not known.
    pub places: Option<(u64, u64)>,
    /// How often a home has changed.
    pub migrations: u64,
}

/// A pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpuCounters {
    /// Its id.
    pub id: PcpuId,
    /// Id of the core that it is a thread of.
    pub core: u32,
    /// Time used, in ns, halved while the partner thread is busy too. esxtop's is at the nominal
    /// frequency; at which one a pCPU of a KVM host ran is not known.
    pub used_ns: Option<u64>,
    /// Time not idle, in ns of the wall clock.
    pub busy_ns: Option<u64>,
    /// Time idle, in ns; taken where `busy_ns` is not known.
    pub idle_ns: Option<u64>,
}

/// A core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreCounters {
    /// Its id.
    pub id: u32,
    /// Time when at least one of its threads was not idle, in ns. It does not follow from the
    /// threads' own times.
    pub busy_ns: Option<u64>,
}

/// What a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// The root of all pools.
    Host,
    /// The host's own tasks.
    System,
    /// A resource pool.
    Pool,
    /// A VM.
    Vm,
}

/// A group: a pool, a VM or the system group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCounters {
    /// Name, as people gave it.
    pub name: String,
    /// What it is.
    pub kind: GroupKind,
    /// The pool that it is in.
    pub parent: Option<Gid>,
    /// What is counted for the group as a whole. Where it says nothing, the group is the sum of
    /// what is in it.
    pub own: Totals,
    /// Number of worlds where they are not listed one by one.
    pub nwld: Option<u64>,
    /// Settings.
    pub alloc: Option<Alloc>,
    /// What is so at this moment.
    pub gauges: Gauges,
}

/// What a world is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A vCPU of a VM, by its number. ESXi names it `vmx-vcpu-N`, and so do we.
    Vcpu(u32),
    /// An emulator or I/O thread of a VM, by its name.
    Helper(String),
    /// A task of the host, by its name.
    Task(String),
}

/// A world.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldCounters {
    /// The group that it is in.
    pub gid: Gid,
    /// What it is, and its name.
    pub role: Role,
    /// Cumulative times and counts.
    pub totals: Totals,
    /// Settings of its own, where it has any.
    pub alloc: Option<Alloc>,
    /// What is so at this moment.
    pub gauges: Gauges,
}

/// Cumulative times in ns and cumulative counts, since any moment. For a world, run + ready +
/// co-stop + wait is the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// CPU time charged, in ns: run, less overlap, scaled by frequency and by a busy partner thread
    /// where that is known.
    pub used_ns: Option<u64>,
    /// Time in RUN.
    pub run_ns: Option<u64>,
    /// Time that system services worked for the world. On KVM it is known of VMs alone: threads of
    /// the kernel that work for one are worlds of their own, with this time as theirs, and it
    /// is not known which VM an interrupt was served for.
    pub sys_ns: Option<u64>,
    /// CPU time lost to a busy thread of the same core: it is in RUN and not in used.
    pub lost_ns: Option<u64>,
    /// Time in WAIT, idle or not.
    pub wait_ns: Option<u64>,
    /// Time in WAIT for something else than work, of a vCPU. Where it is not known it is wait less
    /// idle.
    pub vmwait_ns: Option<u64>,
    /// Time in READY; `limited_ns` is inside it.
    pub ready_ns: Option<u64>,
    /// Part of WAIT in which a vCPU was halted.
    pub idle_ns: Option<u64>,
    /// Part of RUN that system services took for others. On KVM it is not known: interrupts are
    /// counted by pCPU, not by world. Nor is it what RUN has more than the thread's own CPU time:
    /// the kernel begins to count that when it begins to choose what to run, RUN begins when it has
    /// chosen, and many kernels do not leave interrupts out of it.
    pub overlap_ns: Option<u64>,
    /// Time in COSTOP.
    pub costop_ns: Option<u64>,
    /// Part of READY that a limit caused.
    pub limited_ns: Option<u64>,
    /// Part of WAIT for memory that is swapped in. On KVM a vCPU's page faults are waits like
    /// others, and it is not known.
    pub swap_wait_ns: Option<u64>,
    /// Time lost to contention of any kind, limits excepted.
    pub latency_ns: Option<u64>,
    /// Times it was switched to.
    pub switches: Option<u64>,
    /// Times it was put on another pCPU than its last.
    pub migrations: Option<u64>,
    /// Times its quantum ended while it ran.
    pub quantum_expiries: Option<u64>,
    /// Times it woke.
    pub wakeups: Option<u64>,
    /// Timers that fired for it. On KVM they are the kernel's, and are not counted by world.
    pub timers: Option<u64>,
}

/// What is no count, but so at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// CPU time asked for, in percent of one pCPU.
    pub demand_percent: Option<f64>,
    /// Entitlement if all VMs ask for all that they can use, in MHz.
    pub emin_mhz: Option<f64>,
}

/// Unit of `min` and `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocUnits {
    /// MHz: VMs and pools.
    Mhz,
    /// Percent of the host: system groups.
    Percent,
}

impl AllocUnits {
    /// As esxtop's AUNITS shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self == AllocUnits::Mhz { "mhz" } else { "pct" }
    }
}

/// Shares, as they are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharesLevel {
    /// 500 a vCPU, or 2000 a pool.
    Low,
    /// 1000 a vCPU, or 4000 a pool.
    Normal,
    /// 2000 a vCPU, or 8000 a pool.
    High,
    /// A number.
    Custom(u64),
}

impl SharesLevel {
    /// The level that so many shares are for a VM of so many vCPUs, or (`None`) for a pool; else
    /// the number itself.
    #[must_use]
    pub fn of(shares: u64, vcpus: Option<u32>) -> SharesLevel {
        // A pool is taken for a VM of four vCPUs.
        let normal = 1000 * vcpus.map_or(4, u64::from);
        match shares {
            _ if normal == 0 => SharesLevel::Custom(shares),
            s if s * 2 == normal => SharesLevel::Low,
            s if s == normal => SharesLevel::Normal,
            s if s == normal * 2 => SharesLevel::High,
            s => SharesLevel::Custom(s),
        }
    }

    /// As esxtop's ASHRS shows it: a level is a negative number.
    #[must_use]
    pub fn code(self) -> f64 {
        match self {
            SharesLevel::Low => -2.0,
            SharesLevel::Normal => -3.0,
            SharesLevel::High => -4.0,
            SharesLevel::Custom(shares) => shares as f64,
        }
    }
}

/// Settings of a group or world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alloc {
    /// Reservation, in `units`.
    pub min: f64,
    /// Limit, in `units`; `None` is no limit, which esxtop shows as -1.
    pub max: Option<f64>,
    /// Shares.
    pub shares: SharesLevel,
    /// Unit of `min` and `max`.
    pub units: AllocUnits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_local_where_its_part_is_at_home_and_not_known_without_a_home() {
        let of = |parts: &[(Option<u32>, [u64; 3])]| {
            let m = VmMemory::of(100, 2, parts.iter().map(|(h, at)| (*h, &at[..])));
            (m.homes, m.places)
        };
        let wide = [(Some(2), [1, 0, 9]), (Some(0), [7, 2, 1])];
        assert_eq!(of(&wide), (vec![0, 2], Some((16, 4))));
        assert_eq!(of(&[(Some(1), [5, 5, 0]), (Some(1), [0, 5, 0])]), (vec![1], Some((10, 5))));
        assert_eq!(of(&[(Some(0), [5, 5, 0]), (None, [5, 5, 0])]), (vec![0], None));
        assert_eq!(of(&[]), (vec![], None));
    }

    #[test]
    fn levels_of_shares_and_units_are_shown_as_esxtop_shows_them() {
        let codes =
            [SharesLevel::Low, SharesLevel::Normal, SharesLevel::High, SharesLevel::Custom(1234)]
                .map(SharesLevel::code);
        assert_eq!(codes, [-2.0, -3.0, -4.0, 1234.0]);
        let of = [(1000, Some(2)), (2000, Some(2)), (4000, Some(2)), (4000, None), (0, Some(0))]
            .map(|(s, v)| SharesLevel::of(s, v));
        assert_eq!(
            of,
            [
                SharesLevel::Low,
                SharesLevel::Normal,
                SharesLevel::High,
                SharesLevel::Normal,
                SharesLevel::Custom(0)
            ]
        );
        assert_eq!([AllocUnits::Mhz, AllocUnits::Percent].map(AllocUnits::name), ["mhz", "pct"]);
    }
}
