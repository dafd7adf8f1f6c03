//! Says in a trace which pCPUs are off line: the scheduler records nothing of that, and a pCPU that
//! began to idle and then went would idle for as long, beside all worlds that wait.

use crate::{
    HostError,
    view::{Records, pinned, present},
};
use sched_core::Cluster;
use std::collections::BTreeMap;
use trace::{Event, Kind};
use units::{PcpuId, PcpuSet};

/// The pCPUs that the scheduler has on line.
pub(super) struct Online {
    clusters: Records<Cluster>,
    used: usize,
    off: Off,
}

impl Online {
    /// Of a scheduler that has so many `clusters`, of `all` pCPUs.
    pub(super) fn open(clusters: usize, all: PcpuSet) -> Result<Online, HostError> {
        let map = Records::new(&pinned("clusters_map")?, "clusters_map", false)?;
        Ok(Online { clusters: map, used: clusters, off: Off::new(all) })
    }

    /// What there is to say of those that are off line; `records` of a pCPU are those that were
    /// recorded there so far.
    pub(super) fn look(&mut self, ns: u64, records: impl Fn(PcpuId) -> u64) -> Vec<Event> {
        let now = present((0..self.used).map(|c| self.clusters.get(c)));
        self.off.look(ns, &now, records)
    }
}

struct Off {
    all: PcpuSet,
    /// Those off line, with their records at the last look.
    seen: BTreeMap<PcpuId, u64>,
}

impl Off {
    fn new(all: PcpuSet) -> Off {
        Off { all, seen: BTreeMap::new() }
    }

    /// A pCPU that is off line does not idle: its idle time ends, for readers that know no more,
    /// and it is off line. It may begin to idle while it goes and while it comes, and then ends
    /// again. One that has come says itself what it does.
    fn look(&mut self, ns: u64, online: &PcpuSet, records: impl Fn(PcpuId) -> u64) -> Vec<Event> {
        self.seen.retain(|pcpu, _| !online.contains(*pcpu));
        let off = self.all.iter().filter(|pcpu| !online.contains(*pcpu));
        let new = off.filter(|pcpu| {
            let now = records(*pcpu);
            self.seen.insert(*pcpu, now) != Some(now)
        });
        let says = |pcpu| {
            [Kind::Idle { begins: false }, Kind::Offline].map(|kind| Event {
                ns,
                pcpu: Some(pcpu),
                kind,
            })
        };
        new.flat_map(says).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> PcpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn pcpus_on_line_are_those_of_all_clusters() {
        let cluster = |pcpus: [u16; 2], present| {
            let mut c = Cluster { present, ..Cluster::ZERO };
            c.pcpu[..2].copy_from_slice(&pcpus);
            c
        };
        let of = |a, b| present([cluster([0, 1], a), cluster([2, 7], b)].into_iter());
        assert_eq!((of(3, 3), of(1, 2)), (set("0-2,7"), set("0,7")));
    }

    #[test]
    fn a_pcpu_that_is_off_line_ends_to_idle_whenever_it_has_begun() {
        let mut off = Off::new(set("0-3"));
        let mut ended = |ns: u64, online: &str, records: u64| -> Vec<u16> {
            let said = off.look(ns, &set(online), |_| records);
            let both = |two: &[Event]| {
                let kinds = [Kind::Idle { begins: false }, Kind::Offline];
                assert!(two.iter().all(|e| e.ns == ns && e.pcpu == two[0].pcpu), "{two:?}");
                assert_eq!([&two[0].kind, &two[1].kind], kinds.each_ref());
                two[0].pcpu.map(|p| p.0)
            };
            said.chunks(2).filter_map(both).collect()
        };
        assert_eq!(ended(5, "0-3", 7), [0u16; 0]);
        assert_eq!((ended(6, "0,2", 7), ended(7, "0,2", 7)), (vec![1, 3], vec![]));
        assert_eq!((ended(8, "0,2", 9), ended(9, "0-2", 10)), (vec![1, 3], vec![3]));
        assert_eq!((ended(10, "0-3", 11), ended(11, "0-2", 10)), (vec![], vec![3]));
    }
}
