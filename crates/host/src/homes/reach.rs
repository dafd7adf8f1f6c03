//! Nodes of this host where the parts of a VM may have their homes: by affinity, cpusets and what
//! binds its memory. Which of them it is decides the planner.

use super::{Homed, Homes, Part, places};
use crate::discover::{self, Roots};
use crate::homes::places::HostNode;
use numa::{Reach, Reached};
use units::{PcpuId, PcpuSet};

impl Homes {
    /// What affinity and cpusets leave these threads: nodes where each may run and have memory, a
    /// bit each, and pCPUs on line where some may run.
    fn allowed(&self, roots: &Roots, pid: i32, tids: &[i32]) -> (u64, PcpuSet) {
        let with_pcpus = (0..).zip(&self.nodes).filter(|(_, n)| n.cores > 0);
        let none = (u64::MAX, PcpuSet::empty());
        tids.iter().fold(none, |(all, some), tid| {
            let pcpus = discover::allowed(roots, pid, *tid);
            let pcpus = pcpus.map_or_else(|| self.online.clone(), |set| set.and(&self.online));
            let mems = discover::allowed_memory(roots, pid, *tid);
            let may = |n: &HostNode| {
                !pcpus.and(&n.pcpus).is_empty()
                    && mems.as_ref().is_none_or(|set| set.contains(PcpuId(n.kernel as u16)))
            };
            let of = with_pcpus.clone().filter(|(_, n)| may(n)).map(|(node, _)| 1 << node);
            (all & of.sum::<u64>(), some.or(&pcpus))
        })
    }

    /// Nodes where the parts of a VM may have their homes by affinity and cpusets, and how many of
    /// its vCPUs may share one.
    pub(super) fn reached(
        &self,
        roots: &Roots,
        pid: i32,
        parts: &[Part],
        threads: bool,
    ) -> Reached {
        let room = |set: &PcpuSet| -> Vec<u32> {
            let of = |n: &HostNode| {
                let here = set.and(&n.pcpus);
                if threads { here.len() as u32 } else { places::cores(&n.core_of, &here) }
            };
            self.nodes.iter().map(of).collect()
        };
        let (mut of_parts, mut of_vm) = (vec![], PcpuSet::empty());
        for part in parts {
            let (each, some) = self.allowed(roots, pid, &part.tids);
            of_parts.push(Reach { vcpus: part.tids.len() as u32, each, room: room(&some) });
            of_vm = of_vm.or(&some);
        }
        let whole = room(&self.online);
        numa::reached(&of_parts, &room(&of_vm), &whole, self.most(threads))
    }

    /// The same with what binds its memory; affinity and cpusets only if they are to be looked at.
    pub(super) fn may(&self, roots: &Roots, vm: &Homed, looks_at: bool) -> Reached {
        let any =
            || Reached { nodes: vec![self.all(); vm.parts.len()], most: self.most(vm.threads) };
        let of = looks_at.then(|| self.reached(roots, vm.pid, &vm.parts, vm.threads));
        let mut of = of.unwrap_or_else(any);
        for may in &mut of.nodes {
            // Where that leaves too few nodes its parts are elsewhere, far from their memory.
            // Memory in nodes without pCPUs is equally far from all.
            let both = *may & self.with_pcpus(&vm.bound.only);
            if both.count_ones() as usize >= vm.parts.len() {
                *may = both;
            }
        }
        of
    }
}
