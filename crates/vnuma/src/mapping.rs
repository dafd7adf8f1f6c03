//! The NUMA clients of a VM on a host: how its virtual nodes meet the host's, which home each
//! client begins on, and where memory is bound; it moves nothing afterwards.
//!
//! Law (VS51 "vNUMA: Challenges and Best Practices"): a virtual node that fits is a client; one of
//! k times a node's size is k clients, and its memory is interleaved between their homes; else
//! clients are made irrespective of virtual nodes, and all memory is interleaved.
//!
//! Example: 32 vCPUs in virtual nodes of 8, on nodes of 4 cores, are 8 clients of 4 vCPUs, two for
//! each virtual node.
//!
//! Homes: the node with the fewest vCPUs of this VM, so that clients spread over nodes. A node has
//! room for as many vCPUs of a VM as it has cores (VS51 "Support for Wide Virtual Machines"), and
//! gets more only where no node has room left. What other VMs use is not known here.

use crate::{
    decide::{Decision, VirtualNode, balanced},
    host::Host,
    mib::Mib,
    vm::{Vcpus, Vm},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// How virtual nodes meet the nodes of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Each virtual node fits into a node: a client each.
    Fits,
    /// A virtual node is so many times a node: so many clients each.
    Multiple {
        /// Clients of a full virtual node.
        clients: u32,
    },
    /// Neither: clients irrespective of virtual nodes, memory interleaved over all homes.
    Irreconcilable,
}

/// vCPUs of a VM that have one home node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Client {
    /// Its vCPUs.
    pub vcpus: Vcpus,
    /// Virtual nodes that have a vCPU in it, by index.
    pub virtual_nodes: Vec<usize>,
    /// Home node, by the host's number.
    pub home: u32,
    /// Nodes of the host that have its memory: one, to which it is bound, or several, over which it
    /// is interleaved; none if no node of the host is known to have memory.
    pub memory_on: Vec<u32>,
}

/// The clients of a VM on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Mapping {
    /// How virtual nodes meet the host's.
    pub case: Case,
    /// vCPUs that the host's smallest node has room for.
    pub room: u32,
    /// The clients, in order of their vCPUs.
    pub clients: Vec<Client>,
}

impl Case {
    /// How virtual nodes of `size` meet nodes with room for `room`. `size` is the largest; where
    /// vCPUs do not divide evenly some have one less, and follow it.
    #[must_use]
    pub fn of(size: u32, room: u32) -> Case {
        if size <= room {
            Case::Fits
        } else if size % room == 0 {
            Case::Multiple { clients: size / room }
        } else {
            Case::Irreconcilable
        }
    }
}

impl Mapping {
    /// The clients of `vm` with these virtual nodes on `host`.
    #[must_use]
    pub fn new(vm: &Vm, decision: &Decision, host: &Host) -> Mapping {
        let room = host.room(&vm.options);
        let nodes: Vec<Vcpus> = decision.nodes.iter().map(|n| n.vcpus).collect();
        let (case, parts) = clients(&nodes, room);
        let homes = homes(vm, host, &parts);
        let mut clients: Vec<Client> = parts
            .into_iter()
            .zip(homes)
            .map(|(vcpus, home)| {
                let inside = |n: &VirtualNode| n.vcpus.meets(vcpus);
                let nodes = decision.nodes.iter().enumerate().filter(|(_, n)| inside(n));
                let virtual_nodes = nodes.map(|(i, _)| i).collect();
                Client { vcpus, virtual_nodes, home, memory_on: vec![] }
            })
            .collect();
        let on: Vec<Vec<u32>> = clients
            .iter()
            .map(|c| {
                let beside = |o: &&Client| {
                    matches!(case, Case::Irreconcilable) || o.virtual_nodes == c.virtual_nodes
                };
                with_memory(host, clients.iter().filter(beside).map(|o| o.home))
            })
            .collect();
        clients.iter_mut().zip(on).for_each(|(c, on)| c.memory_on = on);
        Mapping { case, room, clients }
    }

    /// Nodes of the host that have the memory of a virtual node.
    #[must_use]
    pub fn memory_on(&self, virtual_node: usize) -> &[u32] {
        let has = |c: &&Client| c.virtual_nodes.contains(&virtual_node);
        self.clients.iter().find(has).map_or(&[], |c| &c.memory_on)
    }

    /// Nodes of the host that have memory of the VM, in order.
    #[must_use]
    pub fn all_memory_on(&self) -> Vec<u32> {
        sorted(self.clients.iter().flat_map(|c| c.memory_on.iter().copied()))
    }

    /// vCPUs of the VM by home node.
    #[must_use]
    pub fn vcpus_on(&self) -> BTreeMap<u32, u32> {
        self.clients.iter().fold(BTreeMap::new(), |mut on, c| {
            *on.entry(c.home).or_default() += c.vcpus.count;
            on
        })
    }

    /// Memory of the VM by node, in MiB; what is interleaved counts in equal parts, rounded up.
    #[must_use]
    pub fn memory_by_node(&self, decision: &Decision) -> BTreeMap<u32, Mib> {
        let mut by_node: BTreeMap<u32, Mib> = BTreeMap::new();
        for (i, node) in decision.nodes.iter().enumerate() {
            let on = self.memory_on(i);
            for id in on {
                by_node.entry(*id).or_default().0 += node.memory.0.div_ceil(on.len() as u64);
            }
        }
        by_node
    }
}

/// How the virtual nodes of a VM, in order of their vCPUs, meet nodes with room for `room`, and the
/// vCPUs of each client that is made of them, in the same order.
#[must_use]
pub fn clients(nodes: &[Vcpus], room: u32) -> (Case, Vec<Vcpus>) {
    let case = Case::of(nodes.iter().map(|n| n.count).max().unwrap_or(0), room);
    let all = Vcpus { first: 0, count: nodes.iter().map(|n| n.count).sum() };
    let parts = match case {
        Case::Fits => nodes.to_vec(),
        Case::Multiple { .. } => nodes.iter().flat_map(|n| split(*n, room)).collect(),
        Case::Irreconcilable => split(all, room),
    };
    (case, parts)
}

/// These vCPUs in as few parts of at most `most` as there can be.
fn split(vcpus: Vcpus, most: u32) -> Vec<Vcpus> {
    let mut first = vcpus.first;
    let part = |count| {
        let part = Vcpus { first, count };
        first += count;
        part
    };
    balanced(vcpus.count, most).into_iter().map(part).collect()
}

/// A home for each client: among nodes with room and memory for it the one with the fewest vCPUs
/// of this VM, then the one with most memory left, then the lowest number.
fn homes(vm: &Vm, host: &Host, parts: &[Vcpus]) -> Vec<u32> {
    let mut placed: Vec<(u32, u64)> = vec![(0, 0); host.nodes.len()];
    let choose = |part: &Vcpus| {
        let asked = vm.memory.0 * u64::from(part.count) / u64::from(vm.vcpus);
        let key = |i: &usize| {
            let (node, (vcpus, used)) = (&host.nodes[*i], placed[*i]);
            let full = vcpus + part.count > node.room(&vm.options);
            let left = node.memory.map(|m| m.0.saturating_sub(used));
            let short = left.is_some_and(|l| l < asked);
            (full, short, vcpus, u64::MAX - left.unwrap_or(0), node.id)
        };
        // A host has at least one node.
        let i = (0..host.nodes.len()).min_by_key(key).unwrap_or(0);
        placed[i].0 += part.count;
        placed[i].1 += asked;
        host.nodes[i].id
    };
    parts.iter().map(choose).collect()
}

/// Those of these homes that have memory, or may have; if none has, all nodes of the host that do.
fn with_memory(host: &Host, homes: impl Iterator<Item = u32>) -> Vec<u32> {
    let has = |id: &u32| host.node(*id).is_some_and(|n| n.memory != Some(Mib(0)));
    let near = sorted(homes.filter(has));
    if near.is_empty() { host.nodes.iter().map(|n| n.id).filter(has).collect() } else { near }
}

fn sorted(ids: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
