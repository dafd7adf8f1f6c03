//! The size of a virtual node that fits on every host of a cluster (VS51 "vNUMA: Challenges and
//! Best Practices"); it knows no loads and moves no VM.

use crate::{
    decide::{Unfit, balanced},
    host::Host,
    vm::{VIRTUAL_NODES_MAX, Vm},
};
use schemars::JsonSchema;
use serde::Serialize;

/// The largest sizes that meet `Fits` on all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Recommended {
    /// vCPUs that the smallest node of all hosts has room for.
    pub room: u32,
    /// Cores of a virtual socket to set: the largest number that divides the vCPUs and is not more
    /// than `room`. `None` if only 1 does, which is not set, or makes too many nodes.
    pub cores_per_socket: Option<u32>,
    /// `numa.vcpu.maxPerVirtualNode` to set instead: the largest virtual node of as few as fit,
    /// which may be one vCPU apart. `None` if there would be too many nodes.
    pub max_per_virtual_node: Option<u32>,
}

/// What to set so that the virtual nodes of `vm` fit into a node of each host; `None` without a
/// host.
///
/// # Panics
/// When the VM has no vCPU, which [`Vm::check`] refuses.
#[must_use]
pub fn recommend(vm: &Vm, hosts: &[Host]) -> Option<Recommended> {
    let room = hosts.iter().map(|h| h.room(&vm.options)).min()?;
    let acceptable = |cores: &u32| Unfit::of(*cores, vm.vcpus, room).is_none();
    let cores_per_socket = (2..=room.min(vm.vcpus)).rev().find(acceptable);
    let sizes = balanced(vm.vcpus, room);
    let few = sizes.len() as u32 <= VIRTUAL_NODES_MAX;
    Some(Recommended { room, cores_per_socket, max_per_virtual_node: few.then(|| sizes[0]) })
}
