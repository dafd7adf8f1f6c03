//! What a scheduler is given of hosts, VMs, worlds and their resources. Everything here is a
//! message: it is read during the call and not kept.

use entitlement::Tree;
use topology::Topology;
use units::Rate;

/// The host that a scheduler is made for.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'s> {
    /// Its pCPUs.
    pub topology: &'s Topology,
    /// VMs that there can be, the system group (0) included.
    pub vms: usize,
    /// Worlds that there can be, world 0 (none) included.
    pub worlds: usize,
    /// Resource pools, the root included.
    pub pools: usize,
}

/// What a world is, from its first moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldTerms {
    /// Its VM; 0 is the system group.
    pub vm: u32,
    /// Number within its VM if it is a vCPU; a task otherwise.
    pub vcpu: Option<u32>,
    /// Number of a task among its like.
    pub index: u32,
    /// A kernel thread bound to one pCPU.
    pub per_cpu_kthread: bool,
    /// Its nice value, -20 to 19.
    pub nice: i8,
}

/// Load weights that Linux gives to nice -20 to 19: each level is 1.25 times the next, and nice 0
/// is 1024 (`sched_prio_to_weight`; sched(7) names the factor).
const LOAD_WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

impl WorldTerms {
    /// Load weight of its nice value, 1024 for nice 0.
    pub fn load_weight(&self) -> u32 {
        LOAD_WEIGHTS[(i32::from(self.nice) + 20).clamp(0, 39) as usize]
    }

    /// The same as sched_ext has it, in the unit of `cpu.weight`: 100 for nice 0, 1 at least.
    pub fn nice_weight(&self) -> u32 {
        ((self.load_weight() * 100 + 512) / 1024).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_level_is_a_quarter_of_a_weight() {
        let of = |nice| WorldTerms { vm: 0, vcpu: None, index: 0, per_cpu_kthread: false, nice };
        for nice in -20..19 {
            let ratio = f64::from(of(nice).load_weight()) / f64::from(of(nice + 1).load_weight());
            assert!((1.19..1.3).contains(&ratio), "{nice}: {ratio}");
        }
        assert_eq!([-20, 0, 1, 10, 19].map(|n| of(n).nice_weight()), [8668, 100, 80, 11, 1]);
    }
}

/// What a VM is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmTerms {
    /// Its number; 0 is the system group.
    pub vm: u32,
    /// Its vCPUs; 0 for the system group.
    pub vcpus: u32,
    /// Its shares, of the VM as a whole.
    pub shares: u32,
}

/// VMs that are powered on, in their pools.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'s> {
    /// Counts plans, from 1.
    pub generation: u64,
    /// Pools, VMs and their settings; reservations and limits are in 2^-20 pCPU.
    pub tree: &'s Tree,
    /// VM of each leaf of the tree.
    pub vms: &'s [u32],
}

/// Whose a limit is; the same from one message to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitOf {
    /// A pool, by its number in the tree.
    Pool(u32),
    /// A VM.
    Vm(u32),
}

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Whose it is.
    pub of: LimitOf,
    /// CPU time that may be used, in 2^-20 pCPU.
    pub rate: Rate,
    /// CPU time that may be saved up while it is not used, in ns.
    pub burst_ns: u64,
    /// The nearest limit above it: a position in the list, before its own.
    pub parent: Option<usize>,
}

/// All limits of a host.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'s> {
    /// The limits, those above before those below.
    pub limits: &'s [Limit],
    /// VMs, each with the first limit above it, its own included: a position in the list.
    pub first: &'s [(u32, Option<usize>)],
}
