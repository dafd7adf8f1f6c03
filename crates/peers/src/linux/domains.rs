//! Scheduling domains of a pCPU: its core, its LLC, its node, the host, each of the groups that are
//! the domains below it; it balances nothing.
//!
//! *Law*: as `kernel/sched/topology.c` builds them: a level that adds no pCPU is left out. A domain
//! is looked at every so many ms as it has pCPUs, up to twice as rarely while it is balanced, and
//! 16 times as rarely by a pCPU that is busy.

use super::terms::TICK_NS;
use topology::Place;

/// Factor of the interval of a busy pCPU (`busy_factor`).
const BUSY_FACTOR: u64 = 16;

/// A domain of one pCPU.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    /// Its groups of pCPUs, that of its own pCPU first.
    pub(super) groups: Vec<Vec<u32>>,
    /// The pCPUs share a core, or an LLC.
    pub(super) core: bool,
    pub(super) llc: bool,
    /// It has several nodes, and that many worlds may stay together on one (`imb_numa_nr`); else 0.
    pub(super) together: u64,
    /// What is no imbalance, in percent (`imbalance_pct`).
    pub(super) percent: u64,
    /// Balancings that may fail before worlds with warm caches move (`cache_nice_tries`), and those
    /// that have.
    pub(super) tries: u32,
    pub(super) failed: u32,
    /// Time between two looks while the pCPU idles, and when the last was, in ns.
    pub(super) interval_ns: u64,
    pub(super) last_ns: u64,
}

impl Domain {
    /// Number of its pCPUs.
    pub(super) fn pcpus(&self) -> u64 {
        self.groups.iter().map(|g| g.len() as u64).sum()
    }

    /// Whether worlds spread over its groups where there is room (`SD_PREFER_SIBLING` of the
    /// child).
    pub(super) fn spreads(&self) -> bool {
        self.groups[0].len() > 1
    }

    /// Time to the next look, in ns.
    pub(super) fn wait_ns(&self, busy: bool) -> u64 {
        let ns = self.interval_ns * if busy { BUSY_FACTOR } else { 1 };
        // One tick less, so that larger domains are not looked at when smaller ones are.
        let ns = if busy { ns.saturating_sub(TICK_NS) } else { ns };
        ns.clamp(1, (100_000_000 * self.pcpus()).max(1_000_000))
    }

    /// The domain was found balanced, or not.
    pub(super) fn found(&mut self, balanced: bool) {
        let least = self.pcpus() * 1_000_000;
        let twice = (2 * self.interval_ns).min(2 * least);
        self.interval_ns = if balanced { twice } else { least };
    }
}

/// The domains of a pCPU, the smallest first.
pub(super) fn domains(places: &[Place], pcpu: u32) -> Vec<Domain> {
    let keys: [fn(&Place) -> u32; 4] = [|p| p.core, |p| p.llc, |p| p.node, |_| 0];
    let own = places[pcpu as usize];
    let mut inner: Vec<u32> = vec![pcpu];
    let mut inner_key: Option<fn(&Place) -> u32> = None;
    let mut out = vec![];
    for (level, key) in keys.into_iter().enumerate() {
        let all = 0..places.len() as u32;
        let span: Vec<u32> = all.filter(|p| key(&places[*p as usize]) == key(&own)).collect();
        if span.len() == inner.len() {
            continue;
        }
        let mut groups: Vec<Vec<u32>> = vec![];
        for p in &span {
            let same = |g: &Vec<u32>| {
                inner_key
                    .is_some_and(|key| key(&places[g[0] as usize]) == key(&places[*p as usize]))
            };
            match groups.iter_mut().find(|g| same(g)) {
                Some(group) => group.push(*p),
                None => groups.push(vec![*p]),
            }
        }
        let at = groups.iter().position(|g| g.contains(&pcpu)).unwrap_or(0);
        groups.rotate_left(at);
        let pcpus = span.len() as u64;
        out.push(Domain {
            core: level == 0,
            llc: level <= 1,
            together: if level == 3 { together(places, &groups[0]) } else { 0 },
            percent: if level == 0 { 110 } else { 117 },
            tries: [0, 1, 1, 2][level],
            failed: 0,
            interval_ns: pcpus * 1_000_000,
            last_ns: 0,
            groups,
        });
        (inner, inner_key) = (span, Some(key));
    }
    out
}

/// Worlds that stay together on a node: an eighth of its pCPUs if those share an LLC, else as many
/// as it has LLCs, and 1 at least.
fn together(places: &[Place], node: &[u32]) -> u64 {
    let mut llcs: Vec<u32> = node.iter().map(|p| places[*p as usize].llc).collect();
    llcs.dedup();
    let many = if llcs.len() == 1 { node.len() / 8 } else { llcs.len() };
    many.max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::{Shape, Topology};

    #[test]
    fn a_level_that_adds_no_pcpu_is_left_out() {
        let shape = |sockets, llcs_per_node, cores_per_llc, threads_per_core| Shape {
            sockets,
            nodes_per_socket: 1,
            llcs_per_node,
            cores_per_llc,
            threads_per_core,
        };
        let of = |shape, pcpu| domains(Topology::regular(shape).expect("a host").places(), pcpu);
        let flat = of(shape(1, 1, 8, 1), 2);
        assert_eq!((flat.len(), flat[0].groups.len(), &flat[0].groups[0]), (1, 8, &vec![2]));
        assert!(flat[0].llc && !flat[0].spreads());
        let all = of(shape(2, 2, 2, 2), 5);
        let groups: Vec<usize> = all.iter().map(|d| d.groups.len()).collect();
        assert_eq!(groups, [2, 2, 2, 2]);
        assert_eq!(all[1].groups, [[4, 5], [6, 7]]);
        assert_eq!((all[3].together, all[0].percent, all[3].tries), (2, 110, 2));
        assert!(of(shape(1, 1, 1, 1), 0).is_empty());
    }

    #[test]
    fn a_balanced_domain_is_looked_at_half_as_often_and_a_busy_pcpu_looks_rarely() {
        let host = Topology::regular(Shape {
            sockets: 1,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: 8,
            threads_per_core: 1,
        });
        let mut domain = domains(host.expect("a host").places(), 0).remove(0);
        assert_eq!((domain.wait_ns(false), domain.wait_ns(true)), (8_000_000, 124_000_000));
        domain.found(true);
        domain.found(true);
        assert_eq!(domain.wait_ns(false), 16_000_000);
        domain.found(false);
        assert_eq!(domain.wait_ns(false), 8_000_000);
    }
}
