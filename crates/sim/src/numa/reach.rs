//! Where clients may have their homes: by what affinity leaves their vCPUs; and clients that have
//! none.

use super::{Numa, Part, Seat};
use ::numa::{Client, Decision, Reach, Reached};
use std::collections::BTreeSet;
use units::PcpuSet;

impl Numa {
    /// The clients of a VM get homes where they may; `each` is what its vCPUs may use.
    pub(super) fn place(
        &mut self,
        now: u64,
        on: &Seat,
        parts: &mut [Part],
        each: &[Option<PcpuSet>],
    ) -> Vec<Decision> {
        let reached = self.reached(on, parts, each);
        let mut clients = vec![];
        for (p, nodes) in parts.iter_mut().zip(reached.nodes) {
            p.held = nodes == 0;
            let client = Client {
                id: p.id,
                vcpus: p.worlds.end - p.worlds.start,
                memory: p.bytes,
                nodes,
                siblings_most: reached.most,
            };
            clients.extend((nodes != 0).then_some(client));
        }
        self.planner.add(now, &clients)
    }

    fn reached(&self, on: &Seat, parts: &[Part], each: &[Option<PcpuSet>]) -> Reached {
        let threads = self.wants[on.vm as usize].prefer_ht;
        let every = self.pcpus.iter().fold(PcpuSet::empty(), |all, of| all.or(of));
        let room = |set: &PcpuSet| -> Vec<u32> {
            let of = |node: &PcpuSet| {
                let here = node.and(set);
                let cores = here.iter().map(|p| self.core_of[usize::from(p.0)]);
                let cores = cores.collect::<BTreeSet<u32>>().len();
                if threads { here.len() as u32 } else { cores as u32 }
            };
            self.pcpus.iter().map(of).collect()
        };
        let (mut of_parts, mut of_vm) = (vec![], PcpuSet::empty());
        for p in parts {
            let vcpus = p.worlds.start - on.worlds.start..p.worlds.end - on.worlds.start;
            let sets = || vcpus.clone().map(|v| each[v as usize].as_ref().unwrap_or(&every));
            let may = |node: &PcpuSet| sets().all(|set| !set.and(node).is_empty());
            let bits = (0..).zip(&self.pcpus).filter(|(_, node)| may(node));
            let some = sets().fold(PcpuSet::empty(), |all, set| all.or(set));
            of_parts.push(Reach {
                vcpus: vcpus.end - vcpus.start,
                each: bits.map(|(node, _)| 1 << node).sum(),
                room: room(&some),
            });
            of_vm = of_vm.or(&some);
        }
        let most = self.most[on.vm as usize];
        ::numa::reached(&of_parts, &room(&of_vm), &room(&every), most)
    }

    /// Worlds of clients that have no home any more.
    pub(crate) fn leave(&mut self) -> Vec<u32> {
        let homeless = |p: &&Part| self.planner.is_homeless(p.id.vm);
        let worlds = self.parts.iter().flatten().filter(homeless).flat_map(|p| p.worlds.clone());
        let left: Vec<u32> = worlds.filter(|w| self.homes[*w as usize] != 0).collect();
        left.iter().for_each(|w| self.homes[*w as usize] = 0);
        let of = |p: &&Part| p.worlds.clone().any(|w| left.contains(&w));
        let vms: BTreeSet<u32> = self.parts.iter().flatten().filter(of).map(|p| p.id.vm).collect();
        self.llcs.iter_mut().for_each(|llcs| vms.iter().for_each(|vm| llcs.remove(*vm)));
        left
    }

    /// Why a client has no home, in words.
    pub(crate) fn notes(&self, part: &Part) -> Vec<String> {
        let mut out = vec![];
        if part.held {
            out.push("affinity leaves no node with room for all its vCPUs: no home".to_owned());
        }
        if self.planner.roams(part.id.vm) {
            out.push(::numa::ROAMS.to_owned());
        } else if self.planner.is_homeless(part.id.vm) {
            out.push(::numa::NO_ROOM.to_owned());
        }
        out
    }
}
