//! Nodes of this host, and the domains of homes: by its topology and sysfs.

use super::Homes;
use entitlement::Taken;
use std::collections::{BTreeMap, BTreeSet};
use topology::{NodeFacts, Topology};
use units::{PcpuId, PcpuSet, Span};

/// A node of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostNode {
    /// The kernel's number.
    pub(super) kernel: u32,
    pub(super) pcpus: PcpuSet,
    /// Core of each of them.
    pub(super) core_of: Vec<(PcpuId, u32)>,
    /// Cores with a pCPU on line.
    pub(super) cores: u32,
    /// pCPUs on line.
    pub(super) threads: u32,
    /// In bytes.
    pub(super) memory: u64,
}

/// A domain of homes: an LLC, or a node where homes are by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Domain {
    /// Its node, by the scheduler's numbers.
    pub(super) node: u32,
    pub(super) pcpus: PcpuSet,
    /// Core of each of them.
    pub(super) core_of: Vec<(PcpuId, u32)>,
}

/// The host's domains by number. A number that only pCPUs off line have is a domain without pCPUs.
pub(super) fn domains(topology: &Topology) -> Vec<Domain> {
    let all = topology.domains();
    let mut out: BTreeMap<u32, Domain> = BTreeMap::new();
    for id in topology.online().iter() {
        let place = topology.place(id);
        let new = || Domain { node: place.node, pcpus: PcpuSet::empty(), core_of: vec![] };
        let domain = out.entry(all[usize::from(id.0)]).or_insert_with(new);
        domain.pcpus.insert(id);
        domain.core_of.push((id, place.core));
    }
    let count = out.keys().last().map_or(0, |last| last + 1);
    let none = || Domain { node: u32::MAX, pcpus: PcpuSet::empty(), core_of: vec![] };
    (0..count).map(|n| out.remove(&n).unwrap_or_else(none)).collect()
}

/// Cores with a pCPU on line.
pub(super) fn cores(core_of: &[(PcpuId, u32)], online: &PcpuSet) -> u32 {
    let there = core_of.iter().filter(|(pcpu, _)| online.contains(*pcpu));
    there.map(|(_, core)| core).collect::<BTreeSet<_>>().len() as u32
}

/// The host's nodes by the scheduler's numbers, which are those of its pCPUs' places; then those
/// without pCPUs.
pub(super) fn nodes(topology: &Topology, facts: &[NodeFacts]) -> Vec<HostNode> {
    let places = || topology.online().iter().map(|id| (id, topology.place(id)));
    let with_pcpus = places().map(|(_, p)| p.node + 1).max().unwrap_or(0);
    let bytes = |f: &NodeFacts| f.memory_kib.unwrap_or(0) * 1024;
    let one = |node: u32| {
        let pcpus: PcpuSet = places().filter(|(_, p)| p.node == node).map(|(id, _)| id).collect();
        let here = places().filter(|(_, p)| p.node == node);
        let core_of: Vec<(PcpuId, u32)> = here.map(|(id, p)| (id, p.core)).collect();
        let cores: BTreeSet<u32> = core_of.iter().map(|(_, core)| *core).collect();
        let fact = facts.iter().find(|f| !f.pcpus.and(&pcpus).is_empty());
        HostNode {
            kernel: fact.map_or(node, |f| f.id),
            cores: cores.len() as u32,
            threads: pcpus.len() as u32,
            core_of,
            memory: fact.map_or(0, bytes),
            pcpus,
        }
    };
    let mut out: Vec<HostNode> = (0..with_pcpus).map(one).collect();
    let known: BTreeSet<u32> = out.iter().map(|n| n.kernel).collect();
    out.extend(facts.iter().filter(|f| !known.contains(&f.id)).map(|f| HostNode {
        kernel: f.id,
        pcpus: PcpuSet::empty(),
        core_of: vec![],
        cores: 0,
        threads: 0,
        memory: bytes(f),
    }));
    out
}

/// Distances of nodes, a row for each in their order; none where the kernel does not say all.
pub(super) fn distances(nodes: &[HostNode], facts: &[NodeFacts]) -> Vec<Vec<u64>> {
    let at = |n: &HostNode| facts.iter().position(|f| f.id == n.kernel);
    let one = |i: &HostNode, j: &HostNode| {
        facts[at(i)?].distances.get(at(j)?).map(|distance| u64::from(*distance))
    };
    let row = |i: &HostNode| nodes.iter().map(|j| one(i, j)).collect::<Option<Vec<u64>>>();
    nodes.iter().map(row).collect::<Option<_>>().unwrap_or_default()
}

/// What is taken of each node, of what is taken of each pCPU, in thousandths of a pCPU.
pub(super) fn taken(nodes: &[HostNode], of: &Taken) -> Vec<u64> {
    let there = |n: &HostNode| {
        let here = of.iter().filter(|(pcpu, _)| n.pcpus.contains(**pcpu));
        here.map(|(_, rate)| rate.over(Span::from_ns(1_000))).sum()
    };
    nodes.iter().map(there).collect()
}

/// What homes there are.
impl Homes {
    /// What they are in, in words.
    pub(crate) fn extent(&self) -> String {
        let count = self.nodes.iter().filter(|n| n.cores > 0).count();
        if count > 1 { format!("{count} NUMA nodes") } else { "the LLCs of a node".to_owned() }
    }

    /// Cores of the smallest node, or its threads.
    pub(super) fn most(&self, threads: bool) -> u32 {
        let of = |n: &HostNode| if threads { n.threads } else { n.cores };
        self.nodes.iter().map(of).filter(|c| *c > 0).min().unwrap_or(1)
    }

    /// Nodes with pCPUs, a bit each.
    pub(super) fn all(&self) -> u64 {
        (0..).zip(&self.nodes).filter(|(_, n)| n.cores > 0).map(|(n, _)| 1u64 << n).sum()
    }

    /// Nodes with pCPUs among these of the kernel's, a bit each.
    pub(super) fn with_pcpus(&self, kernel: &PcpuSet) -> u64 {
        let there = |n: &HostNode| n.cores > 0 && kernel.contains(PcpuId(n.kernel as u16));
        (0..).zip(&self.nodes).filter(|(_, n)| there(n)).map(|(node, _)| 1u64 << node).sum()
    }
}
