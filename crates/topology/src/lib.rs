//! Sockets, nodes, LLCs, cores and threads of a host: from a description or from sysfs, drawn as
//! text.

mod nodes;
mod sysfs;

pub use nodes::{NodeFacts, free_kib, nodes_from_sysfs};
pub use sysfs::{SysfsError, from_sysfs, online};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use units::{PcpuId, PcpuSet, caps::PCPUS_MAX};

/// Most domains of homes: a home is a word with a bit for each.
const HOMES_MAX: u32 = 64;

/// A regular host: the number of each level inside the level above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Sockets (packages) of the host.
    #[serde(default = "one")]
    pub sockets: u32,
    /// NUMA nodes of a socket.
    #[serde(default = "one")]
    pub nodes_per_socket: u32,
    /// Last-level caches of a node.
    #[serde(default = "one")]
    pub llcs_per_node: u32,
    /// Cores that share an LLC.
    pub cores_per_llc: u32,
    /// Hardware threads (pCPUs) of a core.
    #[serde(default = "one")]
    pub threads_per_core: u32,
}

fn one() -> u32 {
    1
}

/// The place of one pCPU; every number is an index over the whole host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Socket of the pCPU.
    pub socket: u32,
    /// NUMA node of the pCPU.
    pub node: u32,
    /// Last-level cache of the pCPU.
    pub llc: u32,
    /// Core of the pCPU.
    pub core: u32,
    /// Number of the hardware thread within its core.
    pub thread: u32,
}

/// The topology of a host: one `Place` a pCPU, indexed by `PcpuId`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    places: Vec<Place>,
    /// Ids of pCPUs that are online; firmware often announces more than exist.
    online: PcpuSet,
}

/// A description that makes no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("topology: cannot build a host: {what}: seen {seen}, allowed 1..{most}")]
pub struct ShapeError {
    /// How many of that are described.
    pub seen: u64,
    /// The level that is wrong, or all pCPUs.
    pub what: &'static str,
    /// How many there may be.
    pub most: u64,
}

/// Threads of a core at most.
const THREADS_MAX: u64 = 8;

/// All levels together make a host that is too large, or none.
fn too_many(seen: u64) -> ShapeError {
    ShapeError { seen, what: "pCPUs of all levels together", most: PCPUS_MAX as u64 }
}

impl Topology {
    /// Builds a regular host. pCPUs are numbered as Linux numbers them under QEMU: threads of a
    /// core adjacent, then cores, LLCs, nodes, sockets.
    ///
    /// # Errors
    /// `ShapeError` for a level of zero or more than 1,024 pCPUs.
    pub fn regular(s: Shape) -> Result<Topology, ShapeError> {
        let levels = [
            ("sockets", s.sockets),
            ("nodes_per_socket", s.nodes_per_socket),
            ("llcs_per_node", s.llcs_per_node),
            ("cores_per_llc", s.cores_per_llc),
            ("threads_per_core", s.threads_per_core),
        ];
        let total = levels.iter().fold(1u64, |n, l| n.saturating_mul(u64::from(l.1)));
        for (what, n) in levels {
            let most = if what == "threads_per_core" { THREADS_MAX } else { PCPUS_MAX as u64 };
            let seen = u64::from(n);
            if !(1..=most).contains(&seen) {
                return Err(ShapeError { seen, what, most });
            }
        }
        if total > PCPUS_MAX as u64 {
            return Err(too_many(total));
        }
        let places: Vec<Place> = (0..total as u32)
            .map(|i| {
                let core = i / s.threads_per_core;
                let llc = core / s.cores_per_llc;
                let node = llc / s.llcs_per_node;
                Place {
                    socket: node / s.nodes_per_socket,
                    node,
                    llc,
                    core,
                    thread: i % s.threads_per_core,
                }
            })
            .collect();
        Topology::from_places(places)
    }

    /// A host from explicit places, from sysfs or a test.
    ///
    /// # Errors
    /// `ShapeError` for none or more than 1,024 pCPUs.
    pub fn from_places(places: Vec<Place>) -> Result<Topology, ShapeError> {
        if places.is_empty() || places.len() > PCPUS_MAX {
            return Err(too_many(places.len() as u64));
        }
        let online = PcpuSet::first(places.len());
        Ok(Topology { places, online })
    }

    /// The same host with only these pCPUs online; ids of the others stay, so that ids are the
    /// kernel's.
    #[must_use]
    pub fn with_online(self, online: &PcpuSet) -> Topology {
        Topology { online: self.online.and(online), ..self }
    }

    /// pCPUs that are online.
    #[must_use]
    pub fn online(&self) -> &PcpuSet {
        &self.online
    }

    /// Number of pCPU ids, those of pCPUs that are not online included.
    #[must_use]
    pub fn pcpus(&self) -> usize {
        self.places.len()
    }

    /// The place of each pCPU, by id.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The place of `p`.
    #[must_use]
    pub fn place(&self, p: PcpuId) -> Place {
        self.places[p.0 as usize]
    }

    /// The domain of each pCPU that is on line, by id, of those in which a world may have its home:
    /// its LLC; its node where an LLC is of several nodes, or where the host has more LLCs than a
    /// word has bits. A domain is part of one node. What a pCPU off line has says nothing: of its
    /// caches the kernel knows nothing.
    #[must_use]
    pub fn domains(&self) -> Vec<u32> {
        let mut node_of = BTreeMap::new();
        let mut online = self.online.iter().map(|id| self.place(id));
        let by_llc =
            online.all(|p| p.llc < HOMES_MAX && *node_of.entry(p.llc).or_insert(p.node) == p.node);
        self.places.iter().map(|p| if by_llc { p.llc } else { p.node }).collect()
    }

    /// Numbers of distinct (cores, LLCs, nodes, sockets) that are online.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize, usize) {
        let count = |f: fn(&Place) -> u32| {
            let mut ids: Vec<u32> = self.online.iter().map(|p| f(&self.place(p))).collect();
            ids.sort_unstable();
            ids.dedup();
            ids.len()
        };
        (count(|p| p.core), count(|p| p.llc), count(|p| p.node), count(|p| p.socket))
    }

    /// The host drawn as text: a line a core, indented by socket, node and LLC.
    #[must_use]
    pub fn draw(&self) -> String {
        let mut out = String::new();
        let mut ids: Vec<usize> = self.online.iter().map(|p| p.0 as usize).collect();
        ids.sort_by_key(|i| {
            let p = self.places[*i];
            (p.socket, p.node, p.llc, p.core, p.thread)
        });
        let mut last: Option<Place> = None;
        for i in ids {
            let p = self.places[i];
            let new = |f: fn(&Place) -> u32| last.is_none_or(|l| f(&l) != f(&p));
            if new(|p| p.socket) {
                out.push_str(&format!(
                    "{}socket {}",
                    if last.is_some() { "\n" } else { "" },
                    p.socket
                ));
            }
            if new(|p| p.node) {
                out.push_str(&format!("\n  node {}", p.node));
            }
            if new(|p| p.llc) {
                out.push_str(&format!("\n    LLC {}:", p.llc));
            }
            if new(|p| p.core) {
                out.push_str(&format!(" [{i}"));
            } else {
                out.truncate(out.trim_end_matches(']').len());
                out.push_str(&format!(" {i}"));
            }
            out.push(']');
            last = Some(p);
        }
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_host_counts_its_levels() {
        let shape = Shape {
            sockets: 2,
            nodes_per_socket: 2,
            llcs_per_node: 1,
            cores_per_llc: 4,
            threads_per_core: 2,
        };
        let t = Topology::regular(shape).unwrap();
        assert_eq!((t.pcpus(), t.counts()), (32, (16, 4, 4, 2)));
        assert_eq!(t.place(PcpuId(9)), Place { socket: 0, node: 1, llc: 1, core: 4, thread: 1 });
    }

    #[test]
    fn homes_are_in_llcs_unless_nodes_share_one_or_they_are_too_many() {
        let shape = Shape {
            sockets: 2,
            nodes_per_socket: 1,
            llcs_per_node: 2,
            cores_per_llc: 1,
            threads_per_core: 2,
        };
        let t = Topology::regular(shape).unwrap();
        assert_eq!(t.domains(), [0, 0, 1, 1, 2, 2, 3, 3]);
        let shared = t.places().iter().map(|p| Place { llc: 0, ..*p }).collect();
        let shared = Topology::from_places(shared).unwrap();
        assert_eq!(shared.domains(), [0, 0, 0, 0, 1, 1, 1, 1]);
        let many = Topology::regular(Shape { llcs_per_node: 33, ..shape }).unwrap();
        assert_eq!((many.domains()[0], many.domains()[131]), (0, 1), "66 LLCs");
        let few = many.with_online(&PcpuSet::first(100));
        assert_eq!(few.domains()[2], 1, "50 LLCs are on line");
    }

    #[test]
    fn refuses_nothing_and_too_much() {
        let shape = Shape {
            sockets: 0,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: 4,
            threads_per_core: 2,
        };
        assert_eq!(Topology::regular(shape).unwrap_err().what, "sockets");
        assert!(Topology::regular(Shape { sockets: 64, cores_per_llc: 64, ..shape }).is_err());
    }

    #[test]
    fn draws_threads_of_a_core_together() {
        let shape = Shape {
            sockets: 1,
            nodes_per_socket: 1,
            llcs_per_node: 2,
            cores_per_llc: 1,
            threads_per_core: 2,
        };
        assert_eq!(
            Topology::regular(shape).unwrap().draw(),
            "socket 0\n  node 0\n    LLC 0: [0 1]\n    LLC 1: [2 3]\n"
        );
    }
}
