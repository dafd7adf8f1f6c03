//! What a host has for VMs: nodes with their cores, threads and memory; from a topology, or from a
//! shape written as text. It reads no file.

use crate::{mib::Mib, vm::Options};
use schemars::JsonSchema;
use serde::Serialize;
use topology::{NodeFacts, Place, Shape, ShapeError, Topology};
use units::{PcpuId, PcpuSet};

/// A NUMA node with pCPUs. Nodes of memory alone are no home of a client, and are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Node {
    /// The kernel's number.
    pub id: u32,
    /// Its pCPUs that are online.
    pub pcpus: PcpuSet,
    /// Its cores with a pCPU online.
    pub cores: u32,
    /// Its memory, rounded down to MiB; `None` if not known.
    pub memory: Option<Mib>,
}

impl Node {
    /// Its pCPUs.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.pcpus.len() as u32
    }

    /// vCPUs of one VM that belong on it at most: its cores, its threads with preferHT, and not
    /// more than `numa.vcpu.maxPerMachineNode` (VS51 "Support for Wide Virtual Machines").
    #[must_use]
    pub fn room(&self, options: &Options) -> u32 {
        let all = if options.prefer_ht { self.threads() } else { self.cores };
        options.max_per_machine_node.map_or(all, |n| n.min(all)).max(1)
    }
}

/// The nodes of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Host {
    /// What it is called.
    pub name: String,
    /// Its nodes with pCPUs, in order of their numbers; at least one.
    pub nodes: Vec<Node>,
    /// Distances between these nodes, a row each, 10 being the node itself; `None` if not known.
    pub distances: Option<Vec<Vec<u32>>>,
    /// Whether numbers of nodes and pCPUs are those of a machine; a shape's are not.
    pub is_machine: bool,
}

/// A host that cannot be planned for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// No node has a pCPU online.
    #[error(
        "host {name}: cannot plan for it: seen no node with a pCPU online, allowed at least \
        one; bring a pCPU online"
    )]
    NoPcpus {
        /// The host.
        name: String,
    },
    /// A text that is no shape.
    #[error(
        "host {name}: cannot read '{seen}': allowed SOCKETSxNODESxCORESxTHREADS[:MEMORY], as \
        in 2x1x8x2:64G: nodes of a socket, cores of a node, threads of a core, memory of a node; \
        join unlike parts by +"
    )]
    Text {
        /// The host.
        name: String,
        /// The part that is none.
        seen: String,
    },
    /// A shape that makes no host.
    #[error("host {name}: {cause}")]
    Shape {
        /// The host.
        name: String,
        /// Why not.
        cause: ShapeError,
    },
}

impl Host {
    /// A machine: its topology and its nodes as the kernel numbers them. A kernel without NUMA has
    /// no nodes, and its host is one node 0 of unknown memory.
    ///
    /// # Errors
    /// `HostError::NoPcpus` if no node has one online.
    pub fn new(name: &str, topology: &Topology, facts: &[NodeFacts]) -> Result<Host, HostError> {
        let none = [NodeFacts {
            id: 0,
            pcpus: topology.online().clone(),
            memory_kib: None,
            distances: vec![],
        }];
        let facts = if facts.is_empty() { &none } else { facts };
        let online = |f: &NodeFacts| f.pcpus.and(topology.online());
        let kept: Vec<usize> =
            (0..facts.len()).filter(|i| !online(&facts[*i]).is_empty()).collect();
        let nodes: Vec<Node> = kept
            .iter()
            .map(|i| {
                let (fact, pcpus) = (&facts[*i], online(&facts[*i]));
                let memory = fact.memory_kib.map(|kib| Mib(kib / 1024));
                Node { id: fact.id, cores: cores(topology, &pcpus), pcpus, memory }
            })
            .collect();
        if nodes.is_empty() {
            return Err(HostError::NoPcpus { name: name.to_owned() });
        }
        let row = |i: &usize| kept.iter().map(|j| facts[*i].distances.get(*j).copied()).collect();
        let distances = kept.iter().map(row).collect();
        Ok(Host { name: name.to_owned(), nodes, distances, is_machine: true })
    }

    /// A host of a topology that is no machine's, with `memory` in each node.
    ///
    /// # Errors
    /// `HostError::NoPcpus` if none is online.
    pub fn of_topology(
        name: &str,
        topology: &Topology,
        memory: Option<Mib>,
    ) -> Result<Host, HostError> {
        let mut ids: Vec<u32> = topology.online().iter().map(|p| topology.place(p).node).collect();
        ids.sort_unstable();
        ids.dedup();
        let fact = |id: u32| NodeFacts {
            id,
            pcpus: topology.online().iter().filter(|p| topology.place(*p).node == id).collect(),
            memory_kib: memory.map(|m| m.0 * 1024),
            distances: vec![],
        };
        let facts: Vec<NodeFacts> = ids.into_iter().map(fact).collect();
        Host::new(name, topology, &facts).map(|h| Host { is_machine: false, ..h })
    }

    /// A host by its shape, `SOCKETSxNODESxCORESxTHREADS[:MEMORY]`, each inside the one before,
    /// memory by node; parts that differ are joined by `+`.
    ///
    /// # Errors
    /// `HostError` says what is allowed.
    pub fn of_shape(name: &str, text: &str) -> Result<Host, HostError> {
        let (mut places, mut memory): (Vec<Place>, Vec<Option<Mib>>) = (vec![], vec![]);
        for part in text.split('+') {
            let (shape, each) = shape(part)
                .ok_or_else(|| HostError::Text { name: name.to_owned(), seen: part.to_owned() })?;
            let shaped = Topology::regular(shape)
                .map_err(|cause| HostError::Shape { name: name.to_owned(), cause })?;
            let last = places.last().copied();
            let after = |of: fn(&Place) -> u32| last.as_ref().map_or(0, |l| of(l) + 1);
            places.extend(shaped.places().iter().map(|p| Place {
                socket: p.socket + after(|l| l.socket),
                node: p.node + after(|l| l.node),
                llc: p.llc + after(|l| l.llc),
                core: p.core + after(|l| l.core),
                thread: p.thread,
            }));
            memory.resize(memory.len() + shaped.counts().2, each);
        }
        let topology = Topology::from_places(places)
            .map_err(|cause| HostError::Shape { name: name.to_owned(), cause })?;
        let mut host = Host::of_topology(name, &topology, None)?;
        host.nodes.iter_mut().zip(memory).for_each(|(node, m)| node.memory = m);
        Ok(host)
    }

    /// Whether a text is meant as a shape, and not as a name.
    #[must_use]
    pub fn is_shape(text: &str) -> bool {
        let head = text.split([':', '+']).next().unwrap_or_default();
        head.contains('x') && head.split('x').all(|n| n.bytes().all(|b| b.is_ascii_digit()))
    }

    /// vCPUs of a VM that every node has room for: those of its smallest node, so that a client
    /// may have its home on any.
    #[must_use]
    pub fn room(&self, options: &Options) -> u32 {
        self.nodes.iter().map(|n| n.room(options)).min().unwrap_or(1)
    }

    /// All its pCPUs that are online.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.nodes.iter().map(Node::threads).sum()
    }

    /// All its cores.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.nodes.iter().map(|n| n.cores).sum()
    }

    /// The node of this number.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|n| n.id == id)
    }

    /// Whether its nodes differ in what they have room for.
    #[must_use]
    pub fn is_uneven(&self, options: &Options) -> bool {
        self.nodes.iter().any(|n| n.room(options) != self.room(options))
    }

    /// Distance between two of its nodes, if known.
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> Option<u32> {
        let at = |id| self.nodes.iter().position(|n| n.id == id);
        self.distances.as_ref()?.get(at(from)?)?.get(at(to)?).copied()
    }
}

/// Distinct cores of `pcpus`.
fn cores(topology: &Topology, pcpus: &PcpuSet) -> u32 {
    let mut cores: Vec<u32> = pcpus.iter().map(|p: PcpuId| topology.place(p).core).collect();
    cores.sort_unstable();
    cores.dedup();
    cores.len() as u32
}

fn shape(text: &str) -> Option<(Shape, Option<Mib>)> {
    let (shape, memory) = match text.split_once(':') {
        Some((shape, memory)) => (shape, Some(memory.parse().ok()?)),
        None => (text, None),
    };
    let numbers: Vec<u32> = shape.split('x').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [sockets, nodes_per_socket, cores_per_llc, threads_per_core] = numbers[..] else {
        return None;
    };
    let shape =
        Shape { sockets, nodes_per_socket, llcs_per_node: 1, cores_per_llc, threads_per_core };
    Some((shape, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regular(nodes: u32, cores: u32, threads: u32) -> Topology {
        Topology::regular(Shape {
            sockets: nodes,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: cores,
            threads_per_core: threads,
        })
        .unwrap()
    }

    #[test]
    fn nodes_without_pcpus_do_not_count_and_numbers_are_the_kernels() {
        let fact = |id: u32, pcpus: &str, kib| NodeFacts {
            id,
            pcpus: pcpus.parse().unwrap_or_else(|_| PcpuSet::empty()),
            memory_kib: kib,
            distances: vec![10 + id, 20 + id, 30 + id],
        };
        let facts = [fact(0, "0-7", Some(2047)), fact(1, "", Some(1 << 20)), fact(3, "8-15", None)];
        // Of node 3, both threads of one core are offline, and one thread of another.
        let topology = regular(2, 4, 2).with_online(&"0-7,11-15".parse().unwrap());
        let host = Host::new("a", &topology, &facts).unwrap();
        let seen: Vec<_> =
            host.nodes.iter().map(|n| (n.id, n.cores, n.threads(), n.memory)).collect();
        assert_eq!(seen, [(0, 4, 8, Some(Mib(1))), (3, 3, 5, None)]);
        assert_eq!(host.distances, Some(vec![vec![10, 30], vec![13, 33]]));
        assert_eq!((host.distance(3, 0), host.distance(0, 1)), (Some(13), None));
        let (cores, ht) = (Options::default(), Options { prefer_ht: true, ..Options::default() });
        assert_eq!((host.room(&cores), host.room(&ht), host.is_uneven(&cores)), (3, 5, true));
        let off = regular(1, 1, 1).with_online(&PcpuSet::empty());
        assert!(Host::new("b", &off, &[]).unwrap_err().to_string().starts_with("host b: cannot"));
    }

    #[test]
    fn a_kernel_without_numa_is_one_node() {
        let host = Host::new("a", &regular(2, 4, 2), &[]).unwrap();
        assert_eq!((host.nodes.len(), host.cores(), host.threads()), (1, 8, 16));
        assert_eq!((host.nodes[0].memory, host.distances, host.is_machine), (None, None, true));
    }

    #[test]
    fn the_most_for_a_node_lowers_its_room_and_never_raises_it() {
        let host = Host::of_shape("a", "2x1x8x2").unwrap();
        let most = |n| Options { max_per_machine_node: Some(n), ..Options::default() };
        assert_eq!([4, 8, 16].map(|n| host.room(&most(n))), [4, 8, 8]);
        let ht = Options { prefer_ht: true, ..most(12) };
        assert_eq!(host.room(&ht), 12);
    }

    #[test]
    fn shapes_are_read_with_their_memory_and_unlike_parts() {
        let host = Host::of_shape("a", "2x2x4x2:32G+1x1x2x1").unwrap();
        let seen: Vec<_> =
            host.nodes.iter().map(|n| (n.id, n.pcpus.to_string(), n.cores, n.memory)).collect();
        let gib = Some(Mib(32 << 10));
        assert_eq!(seen[0], (0, "0-7".to_owned(), 4, gib));
        assert_eq!(seen[3..], [(3, "24-31".into(), 4, gib), (4, "32-33".into(), 2, None)]);
        assert!(!host.is_machine && Host::is_shape("2x2x4x2:32G") && Host::is_shape("2x2"));
        assert!(!Host::is_shape("box") && !Host::is_shape("demo") && !Host::is_shape("./2x1"));
        for bad in ["2x2x4", "2x1x8x2:", "2x1x8x2:64", "axb", "2x1x8x2+", "2x1x8x2x1"] {
            let refused = Host::of_shape("a", bad).unwrap_err().to_string();
            assert!(refused.starts_with("host a: cannot read '"), "{refused}");
        }
        for bad in ["0x1x8x2", "2x1x8x9", "64x1x64x2", "8x1x64x1+8x1x64x1+1x1x1x1"] {
            let refused = Host::of_shape("a", bad).unwrap_err().to_string();
            assert!(refused.starts_with("host a: topology: cannot build"), "{refused}");
        }
    }
}
