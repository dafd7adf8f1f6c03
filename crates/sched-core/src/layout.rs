//! From a topology to the pCPU and cluster records of a host, for the simulator and the live host
//! alike.

use crate::records::{CLUSTER_PCPUS, CLUSTERS_MAX, Cluster, Pcpu, VM_SYSTEM, Vm};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Place, Topology};
use units::PcpuId;

/// Lays out a host. A cluster is an LLC, or its part in a node where nodes share one, cut at core
/// boundaries into even parts where it has more than 64 pCPUs; threads of a core are neighbouring
/// bits. A host with more LLCs than there may be
/// clusters is cut by node instead, then by socket, then by nothing: 1,024 pCPUs always fit.
///
/// `near` holds the other clusters by distance (same LLC of the node, node, socket, host); equal
/// distances rotate from the cluster's own index, so that no cluster is the first choice of all
/// others.
///
/// A pCPU that is not online is part of no cluster.
///
/// A pCPU's record holds its place (`id`, `cluster`, `bit`, `node`, `domain`, `core`) and that
/// nothing waits there (`wait_key`, `best_key`); every other field is zero, and its virtual times
/// are the caller's to set.
#[must_use]
pub fn layout(topology: &Topology) -> (Vec<Pcpu>, Vec<Cluster>) {
    let levels: [Level; 4] = [|p| (p.node, p.llc), |p| (p.node, 0), |p| (p.socket, 0), |_| (0, 0)];
    let parts = levels
        .iter()
        .map(|level| cut(topology, *level))
        .find(|parts| parts.len() <= CLUSTERS_MAX as usize);
    let parts = parts.unwrap_or_default();
    let nowhere = |i| Pcpu {
        id: i as u32,
        cluster: u32::MAX,
        wait_key: u64::MAX,
        best_key: u64::MAX,
        ..Pcpu::ZERO
    };
    let domains = topology.domains();
    let mut pcpus: Vec<Pcpu> = (0..topology.pcpus()).map(nowhere).collect();
    let mut clusters = Vec::with_capacity(parts.len());
    let mut firsts = BTreeMap::new();
    for (c, ids) in parts.iter().enumerate() {
        let first = topology.place(first_of(ids));
        let mut cluster = Cluster {
            pcpus: ids.iter().flatten().count() as u32,
            llc: first.llc,
            node: first.node,
            domain: domains[usize::from(first_of(ids).0)],
            ..Cluster::ZERO
        };
        for (bit, id) in ids.iter().enumerate().filter_map(|(bit, id)| Some((bit, (*id)?))) {
            let place = topology.place(id);
            cluster.present |= 1 << bit;
            cluster.pcpu[bit] = id.0;
            let pcpu = &mut pcpus[id.0 as usize];
            pcpu.id = u32::from(id.0);
            pcpu.cluster = c as u32;
            pcpu.bit = bit as u32;
            pcpu.node = place.node;
            pcpu.domain = cluster.domain;
            pcpu.core = place.core;
            let core = *firsts.entry(place.core).or_insert(id.0);
            pcpu.core_first = u32::from(core);
            pcpus[core as usize].core_online += 1;
        }
        clusters.push(cluster);
    }
    let places: Vec<Place> = parts.iter().map(|ids| topology.place(first_of(ids))).collect();
    let llcs: Vec<(u32, u32)> = clusters.iter().map(|c| (c.node, c.llc)).collect();
    for (c, cluster) in clusters.iter_mut().enumerate() {
        let near = neighbours(&places, c);
        cluster.nears = near.len() as u32;
        let of_node = near.iter().take_while(|other| places[**other].node == places[c].node);
        cluster.nears_of_node = of_node.count() as u32;
        let of_llc = near.iter().take_while(|other| llcs[**other] == llcs[c]);
        cluster.nears_of_llc = of_llc.count() as u32;
        near.iter().enumerate().for_each(|(i, other)| cluster.near[i] = *other as u16);
    }
    (pcpus, clusters)
}

/// Cores of a host that have a thread on line.
#[must_use]
pub fn cores_online(topology: &Topology) -> u32 {
    let cores = topology.online().iter().map(|id| topology.place(id).core);
    cores.collect::<BTreeSet<u32>>().len() as u32
}

impl Vm {
    /// VMs whose worlds have woken this VM's, and how often since its slots were emptied
    /// (`sched/account/talk.h`).
    pub fn talks(&self) -> impl Iterator<Item = (u32, u64)> + use<> {
        let slots = self.talks_with.into_iter().zip(self.talks);
        slots.filter(|(vm, n)| *vm != VM_SYSTEM && *n > 0).map(|(vm, n)| (vm, n.into()))
    }
}

impl Pcpu {
    /// CPU time until `now_ns` that the world which runs here has lost to the other threads of the
    /// core since it was charged last, in ns (`sched/account/busy.h`); `core` is the pCPU that
    /// stands for it. 0 where the records were read between two words of a change.
    #[must_use]
    pub fn lost_until(&self, core: &Pcpu, shared_charge: u64, now_ns: u64) -> u64 {
        let most = u128::from(now_ns.saturating_sub(self.lost_at_ns)) * 1000;
        let awake = u64::from(core.core_awake);
        let divided = awake > 1 && shared_charge < 1000;
        let rate = if divided { 1000 - 2 * shared_charge / awake } else { 0 };
        let all = core.core_lost.wrapping_add(now_ns.wrapping_mul(rate));
        let lost = all.wrapping_sub(self.lost_seen);
        if u128::from(lost) <= most { lost / 1000 } else { 0 }
    }

    /// Time until `now_ns` in which the pCPU, which is on line, neither ran worlds nor idled
    /// (`sched/account/taken.h`), in ns; at most the 20 us more that a change of worlds takes.
    #[must_use]
    pub fn taken_until(&self, now_ns: u64) -> u64 {
        let since = if self.left_ns == 0 { now_ns } else { self.left_ns };
        self.taken_ns + now_ns.saturating_sub(since)
    }
}

/// What the pCPUs of a group have in common.
type Level = fn(&Place) -> (u32, u32);

/// Threads of each core of a group: node and LLC first, so that a merged group keeps its caches
/// together.
type Cores = BTreeMap<(u32, u32, u32), Vec<(u32, PcpuId)>>;

fn first_of(ids: &[Option<PcpuId>]) -> PcpuId {
    ids.iter().flatten().copied().next().unwrap_or(PcpuId(0))
}

/// pCPUs of each cluster, in the order of their bits. Every core takes as many bits as a core may
/// have threads: by that the scheduler knows which bits are one core, also where a thread is not
/// online.
fn cut(topology: &Topology, level: Level) -> Vec<Vec<Option<PcpuId>>> {
    let smt = topology.places().iter().map(|p| p.thread + 1).max().unwrap_or(1) as usize;
    let mut groups: BTreeMap<_, Cores> = BTreeMap::new();
    for id in topology.online().iter() {
        let place = topology.place(id);
        let cores = groups.entry(level(&place)).or_default();
        cores.entry((place.node, place.llc, place.core)).or_default().push((place.thread, id));
    }
    let mut parts = vec![];
    for cores in groups.values_mut() {
        let max = CLUSTER_PCPUS as usize;
        let total = cores.len() * smt;
        let even = total.div_ceil(total.div_ceil(max));
        let mut part: Vec<Option<PcpuId>> = vec![];
        for threads in cores.values_mut() {
            threads.sort_unstable_by_key(|t| (t.0, t.1.0));
            if part.len() >= even || part.len() + smt > max {
                parts.push(std::mem::take(&mut part));
            }
            let bits = threads.iter().map(|t| Some(t.1)).chain(std::iter::repeat(None));
            part.extend(bits.take(smt));
        }
        parts.push(part);
    }
    parts
}

fn neighbours(places: &[Place], own: usize) -> Vec<usize> {
    let me = places[own];
    let distance = |p: Place| match p {
        p if (p.node, p.llc) == (me.node, me.llc) => 0,
        p if p.node == me.node => 1,
        p if p.socket == me.socket => 2,
        _ => 3,
    };
    let n = places.len();
    let mut near: Vec<usize> = (0..n).filter(|i| *i != own).collect();
    near.sort_unstable_by_key(|i| (distance(places[*i]), (i + n - own) % n));
    near
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::Shape;

    fn shape(sockets: u32, nodes: u32, llcs: u32, cores: u32, threads: u32) -> Topology {
        let shape = Shape {
            sockets,
            nodes_per_socket: nodes,
            llcs_per_node: llcs,
            cores_per_llc: cores,
            threads_per_core: threads,
        };
        Topology::regular(shape).expect("a host")
    }

    #[test]
    fn a_wide_llc_is_cut_into_even_clusters_of_whole_cores() {
        let (pcpus, clusters) = layout(&shape(1, 1, 1, 48, 2));
        assert_eq!(clusters.iter().map(|c| c.pcpus).collect::<Vec<_>>(), [48, 48]);
        assert_eq!((pcpus[95].cluster, pcpus[95].bit, pcpus[95].core), (1, 47, 47));
        assert_eq!((clusters[0].nears, clusters[0].near[0]), (1, 1));
        let (_, odd) = layout(&shape(1, 1, 1, 43, 3));
        assert!(
            odd.iter().all(|c| c.pcpus <= 64 && c.pcpus % 3 == 0),
            "no core is cut: {:?}",
            odd.iter().map(|c| c.pcpus).collect::<Vec<_>>()
        );
    }

    #[test]
    fn nodes_that_share_an_llc_have_a_cluster_each() {
        // Node 0 has two LLCs, of which node 1 shares the first.
        let place = |core: u32, node, llc| Place { socket: 0, node, llc, core, thread: 0 };
        let places =
            vec![place(0, 0, 0), place(1, 1, 0), place(2, 0, 0), place(3, 1, 0), place(4, 0, 1)];
        let (pcpus, clusters) = layout(&Topology::from_places(places).expect("a host"));
        assert_eq!(pcpus.iter().map(|p| p.cluster).collect::<Vec<_>>(), [0, 2, 0, 2, 1]);
        assert!(pcpus.iter().all(|p| clusters[p.cluster as usize].node == p.node));
        assert_eq!(clusters[0].near[..2], [1, 2], "those of its node come first");
    }

    #[test]
    fn every_pcpu_is_the_bit_its_record_says() {
        for topology in [
            shape(3, 1, 1, 3, 1),
            shape(1, 1, 1, 6, 2),
            shape(2, 2, 2, 20, 2),
            shape(16, 1, 1, 64, 1),
        ] {
            let (pcpus, clusters) = layout(&topology);
            assert_eq!(clusters.iter().map(|c| c.pcpus as usize).sum::<usize>(), topology.pcpus());
            for (i, p) in pcpus.iter().enumerate() {
                let c = &clusters[p.cluster as usize];
                assert_eq!((c.pcpu[p.bit as usize] as usize, p.id as usize), (i, i));
                assert_eq!(c.present >> p.bit & 1, 1);
            }
        }
    }

    #[test]
    fn a_pcpu_that_is_not_online_is_in_no_cluster() {
        let host = shape(2, 1, 1, 2, 1).with_online(&"0-1,3".parse().expect("a set"));
        let (pcpus, clusters) = layout(&host);
        assert_eq!(clusters.iter().map(|c| c.present).collect::<Vec<_>>(), [0b11, 0b1]);
        assert_eq!(
            (pcpus[2].cluster, pcpus[3].cluster, host.counts()),
            (u32::MAX, 1, (3, 2, 2, 2))
        );
    }

    #[test]
    fn a_core_keeps_its_bits_when_a_thread_of_it_is_not_online() {
        let host = shape(1, 1, 1, 3, 2).with_online(&"0,2-5".parse().expect("a set"));
        let (pcpus, clusters) = layout(&host);
        assert_eq!((clusters[0].present, clusters[0].pcpus), (0b11_1101, 5));
        assert_eq!((pcpus[2].bit, pcpus[5].bit), (2, 5));
    }

    #[test]
    fn near_goes_from_node_to_socket_to_host_and_rotates() {
        let (_, clusters) = layout(&shape(2, 2, 2, 2, 1));
        assert_eq!(clusters[0].near[..7], [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(clusters[5].near[..7], [4, 6, 7, 0, 1, 2, 3]);
        assert_eq!(clusters[3].near[..7], [2, 0, 1, 4, 5, 6, 7]);
    }

    #[test]
    fn a_thousand_llcs_of_one_core_are_grouped_by_what_is_coarser() {
        let (_, by_node) = layout(&shape(2, 2, 256, 1, 1));
        assert_eq!((by_node.len(), by_node[0].pcpus), (16, 64));
        let (_, by_host) = layout(&shape(1024, 1, 1, 1, 1));
        assert_eq!((by_host.len(), by_host[15].pcpus), (16, 64));
    }
}
