//! Which virtual nodes a VM has: decided at its first power-on, and kept for its life; it looks at
//! the host's nodes, and never at which other VMs are there.
//!
//! Promise: a remembered size comes back unchanged, unless `numa.autosize` is on and
//! `numa.autosize.once` off, or the VM has another number of vCPUs.
//!
//! Law (VS51 "vNUMA"): cores of a virtual socket if they are set and acceptable, else cores of the
//! host's node (threads with preferHT). As few nodes as that size allows, their sizes at most one
//! vCPU apart, as ESXi has done since 6.5: it divides 11 to 20 vCPUs evenly between two nodes of 10
//! cores (F. Denneman, "vSphere 7 Cores per Socket and Virtual NUMA", 2021).
//!
//! Example: 12 vCPUs on nodes of 8 cores are 2 x 6; 15 are 8 + 7.
//!
//! Limits: an uneven host counts by its smallest node, as VS51 advises for clusters.

use crate::{
    host::Host,
    mib::Mib,
    vm::{Options, Refused, VIRTUAL_NODES_MAX, Vcpus, Vm},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A node that the guest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VirtualNode {
    /// Its vCPUs.
    pub vcpus: Vcpus,
    /// Its memory.
    pub memory: Mib,
}

/// What is kept of a decision for the VM's life. ESXi keeps it in the VM's file, as
/// `numa.autosize.cookie` and `numa.autosize.vcpu.maxPerVirtualNode`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// vCPUs that the VM had.
    pub vcpus: u32,
    /// vCPUs of its largest virtual node.
    pub size: u32,
    /// Host that it was decided on.
    pub host: String,
    /// Why it was decided so.
    pub reason: String,
}

/// Why the virtual nodes are as large as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The VM has fewer vCPUs than `numa.vcpu.min`, so that it has no virtual topology.
    BelowMin {
        /// `numa.vcpu.min`.
        vcpu_min: u32,
    },
    /// It was decided before.
    Remembered {
        /// Host that it was decided on.
        host: String,
    },
    /// `numa.vcpu.maxPerVirtualNode` is set.
    MaxPerVirtualNode {
        /// Its value.
        most: u32,
    },
    /// Cores of a virtual socket are set and acceptable.
    CoresPerSocket {
        /// Their number.
        cores: u32,
    },
    /// By the host's nodes.
    HostNode {
        /// The host.
        host: String,
        /// vCPUs that its smallest node has room for.
        room: u32,
        /// Whether its threads count, and not its cores.
        threads: bool,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::BelowMin { vcpu_min } => {
                write!(f, "it has fewer vCPUs than numa.vcpu.min, {vcpu_min}")
            }
            Reason::Remembered { host } => write!(f, "so decided on host {host}, and remembered"),
            Reason::MaxPerVirtualNode { most } => {
                write!(f, "numa.vcpu.maxPerVirtualNode is {most}")
            }
            Reason::CoresPerSocket { cores } => write!(f, "cpuid.coresPerSocket is {cores}"),
            Reason::HostNode { host, room, threads } => {
                let what = if *threads { "threads" } else { "cores" };
                write!(f, "a node of host {host} has room for {room} vCPUs, by its {what}")
            }
        }
    }
}

/// Why cores of a virtual socket are not the size of a virtual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unfit {
    /// They do not divide the VM's vCPUs: some virtual socket would not be full.
    Divides,
    /// They are more than the host's node has room for: the virtual node would be split on its
    /// first host already, and memory interleaved.
    TooLarge {
        /// What the smallest node has room for.
        room: u32,
    },
    /// There would be more virtual nodes than QEMU has.
    TooManyNodes,
}

impl Unfit {
    /// Whether `cores` of a virtual socket are not acceptable as the size of a virtual node of a VM
    /// of `vcpus` where a node has room for `room`. VS51 leaves open what acceptable is. Here: they
    /// divide the vCPUs, fit into a node, and make no more nodes than QEMU has. A socket that is
    /// too large stays a socket, over several virtual nodes, as in ESXi since 6.5.
    #[must_use]
    pub fn of(cores: u32, vcpus: u32, room: u32) -> Option<Unfit> {
        if cores == 0 || vcpus % cores != 0 {
            Some(Unfit::Divides)
        } else if cores > room {
            Some(Unfit::TooLarge { room })
        } else {
            (vcpus / cores > VIRTUAL_NODES_MAX).then_some(Unfit::TooManyNodes)
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Divides => f.write_str("it does not divide the vCPUs; choose one that does"),
            Unfit::TooLarge { room } => {
                write!(f, "a node of the host has room for {room}; set {room} or less")
            }
            Unfit::TooManyNodes => f.write_str("it makes too many virtual nodes; set more"),
        }
    }
}

/// Why a remembered decision was made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Renewed {
    /// The VM had another number of vCPUs.
    Vcpus {
        /// The number that it had.
        before: u32,
    },
    /// `numa.autosize` is on and `numa.autosize.once` off.
    Autosize {
        /// The size that was remembered.
        before: u32,
    },
}

impl fmt::Display for Renewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Renewed::Vcpus { before } => {
                write!(f, "it had {before} vCPUs; the guest sees other nodes than before")
            }
            Renewed::Autosize { before } => write!(
                f,
                "numa.autosize is on, and numa.autosize.once is not; it had virtual nodes of \
                 {before} vCPUs"
            ),
        }
    }
}

/// The virtual nodes of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Decision {
    /// The virtual nodes; a single one is no NUMA for the guest.
    pub nodes: Vec<VirtualNode>,
    /// vCPUs of the largest.
    pub size: u32,
    /// Why so.
    pub reason: Reason,
    /// Why cores of a virtual socket are set, and not followed.
    pub unfit: Option<Unfit>,
    /// Why what was remembered is not followed.
    pub renewed: Option<Renewed>,
    /// What to remember from now on; `None` for a VM without a virtual topology.
    pub remember: Option<Remembered>,
}

/// The virtual nodes of `vm`, which powers on on `host`.
///
/// # Errors
/// `Refused` for options outside their range, more than 128 nodes, less memory than 1 MiB for each,
/// and a remembered size that no decision can have.
pub fn decide(vm: &Vm, host: &Host, remembered: Option<&Remembered>) -> Result<Decision, Refused> {
    vm.check()?;
    let kept = remembered.filter(|r| renewed(vm, r).is_none());
    let (size, reason) = match kept {
        Some(r) if r.size > 0 && balanced(r.vcpus, r.size).first() == Some(&r.size) => {
            (r.size, Reason::Remembered { host: r.host.clone() })
        }
        Some(r) => {
            return Err(Refused::Remembered { vm: vm.name.clone(), size: r.size, vcpus: r.vcpus });
        }
        None => first_size(vm, host),
    };
    let sizes = balanced(vm.vcpus, size);
    let (nodes, size) = (sizes.len() as u32, sizes[0]);
    if nodes > VIRTUAL_NODES_MAX {
        return Err(Refused::TooManyNodes { vm: vm.name.clone(), nodes, size });
    }
    let nodes = divided(vm, &sizes);
    if nodes.iter().any(|n| n.memory == Mib(0)) {
        let nodes = nodes.len() as u32;
        return Err(Refused::Memory { vm: vm.name.clone(), memory: vm.memory, nodes });
    }
    let remember = match &reason {
        Reason::Remembered { .. } => remembered.cloned(),
        Reason::BelowMin { .. } => None,
        _ => Some(Remembered {
            vcpus: vm.vcpus,
            size,
            host: host.name.clone(),
            reason: reason.to_string(),
        }),
    };
    let cores = vm.options.cores_per_socket;
    let unfit = if cores > 1 && matches!(reason, Reason::HostNode { .. }) {
        Unfit::of(cores, vm.vcpus, host.room(&vm.options))
    } else {
        None
    };
    let renewed = remembered.and_then(|r| renewed(vm, r));
    Ok(Decision { nodes, size, reason, unfit, renewed, remember })
}

/// Why a remembered decision is not followed, if so.
fn renewed(vm: &Vm, remembered: &Remembered) -> Option<Renewed> {
    let Options { autosize, autosize_once, .. } = vm.options;
    if remembered.vcpus != vm.vcpus {
        Some(Renewed::Vcpus { before: remembered.vcpus })
    } else {
        (autosize && !autosize_once).then_some(Renewed::Autosize { before: remembered.size })
    }
}

/// The size of a virtual node at most, for a VM without a virtual topology so far.
fn first_size(vm: &Vm, host: &Host) -> (u32, Reason) {
    let o = &vm.options;
    let room = host.room(o);
    if vm.vcpus < o.vcpu_min {
        return (vm.vcpus, Reason::BelowMin { vcpu_min: o.vcpu_min });
    }
    if let (Some(most), false) = (o.max_per_virtual_node, o.autosize) {
        return (most, Reason::MaxPerVirtualNode { most });
    }
    let cores = o.cores_per_socket;
    if cores > 1 && !o.autosize && Unfit::of(cores, vm.vcpus, room).is_none() {
        return (cores, Reason::CoresPerSocket { cores });
    }
    (room, Reason::HostNode { host: host.name.clone(), room, threads: o.prefer_ht })
}

/// `all` in as few parts as a `most` for each allows, at most one apart, the larger ones first.
///
/// # Panics
/// When one of them is 0.
#[must_use]
pub fn balanced(all: u32, most: u32) -> Vec<u32> {
    assert!(all > 0 && most > 0, "nothing to divide: {all} by {most}");
    let parts = all.div_ceil(most);
    (0..parts).map(|i| all / parts + u32::from(i < all % parts)).collect()
}

/// The virtual nodes of these sizes. Memory goes by vCPUs, each border rounded down to a MiB, so
/// that it sums exactly and nodes of one size are at most a MiB apart.
fn divided(vm: &Vm, sizes: &[u32]) -> Vec<VirtualNode> {
    let below = |vcpu: u32| vm.memory.0 * u64::from(vcpu) / u64::from(vm.vcpus);
    let mut first = 0;
    let node = |count: &u32| {
        let vcpus = Vcpus { first, count: *count };
        first += count;
        VirtualNode { vcpus, memory: Mib(below(first) - below(vcpus.first)) }
    };
    sizes.iter().map(node).collect()
}
