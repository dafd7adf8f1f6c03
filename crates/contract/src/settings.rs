//! What a scheduler is told of hosts, VMs, worlds and their resources. Everything here is a
//! message: it is read during the call and kept by nobody.

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
    /// Worlds that there can be, world 0 (nobody) included.
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
    /// Weight by its nice value, 100 for nice 0.
    pub nice_weight: u32,
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
