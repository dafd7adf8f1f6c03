//! Virtual NUMA topology of a VM, and the NUMA clients that it is split into on a host, as ESXi has
//! them; it plans for `tandem vnuma`, reads no file and changes no VM.
//!
//! Source: VS51 "Support for Wide Virtual Machines" and "vNUMA: Exposing NUMA Topology to a Virtual
//! Machine". Names and defaults of options: "vSphere Resource Management", "Virtual NUMA Controls".
//!
//! Promise: every vCPU is in exactly one virtual node and in exactly one client, memory sums
//! exactly, and no client is larger than a node of the host (`tests/sizes.rs`).
//!
//! | part | question |
//! |---|---|
//! | [`Host`] | which nodes, cores, threads and memory a host has |
//! | [`decide`] | which virtual nodes a VM has, once for its life |
//! | [`Mapping`] | which clients it has on a host, and where their memory is |
//! | [`recommend`] | which size fits on all hosts of a cluster |
//! | [`Plan`] | all of it, as text, libvirt's XML and QEMU's arguments |

mod decide;
mod draw;
mod fleet;
mod host;
mod libvirt;
mod mapping;
mod mib;
mod note;
mod plan;
mod qemu;
mod vm;

pub use decide::{Decision, Reason, Remembered, Renewed, Unfit, VirtualNode, balanced, decide};
pub use fleet::{Recommended, recommend};
pub use host::{Host, HostError, Node};
pub use libvirt::escaped;
pub use mapping::{Case, Client, Mapping, clients};
pub use mib::{Mib, MibError};
pub use note::Note;
pub use plan::{Guest, Plan, plan};
pub use vm::{Options, Refused, VIRTUAL_NODES_MAX, Vcpus, Vm};
