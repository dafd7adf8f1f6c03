//! Homes in LLCs: of VMs that ask for few or for all of their node.

use super::{Numa, Part};
use crate::mutant::Mutant;
use ::numa::{Asks, ClientId, Decision, Knobs, Llc, Llcs};
use std::collections::BTreeSet;
use topology::Topology;
use units::{PcpuId, PcpuSet};

impl Numa {
    /// Gives a client that has a home the LLCs that its VM asks for.
    pub(super) fn seat(&mut self, now: u64, part: &Part) {
        let w = self.wants[part.id.vm as usize];
        let (Some(choice), Some(node)) = (w.llc, self.planner.home(part.id)) else { return };
        let vcpus = part.worlds.end - part.worlds.start;
        let allowed = |set: &PcpuSet| part.allowed.as_ref().is_none_or(|a| !a.and(set).is_empty());
        let bits = (0..).zip(&self.domains).filter(|(_, (set, _))| allowed(set));
        let llcs = bits.map(|(domain, _)| 1 << domain).sum();
        let asks = Asks { choice, vcpus, node, prefer_ht: w.prefer_ht, llcs };
        if let Some(all) = &mut self.llcs {
            all.seat(now, part.id, asks);
        }
    }

    /// The home of a client's worlds as the planners have it.
    pub(super) fn set_home(&mut self, part: &Part) {
        let piles = self.mutant == Some(Mutant::HomesPile);
        let first = ClientId { part: 0, ..part.id };
        let of = |id: ClientId| self.planner.home(id);
        let Some(home) = of(if piles { first } else { part.id }) else { return };
        let of_node = (0..).zip(&self.domains).filter(|(_, (_, node))| *node == home);
        let of_node: u64 = of_node.map(|(domain, _)| 1 << domain).sum();
        // A home that is the whole host is none.
        let whole = self.domains.iter().all(|(_, node)| *node == home);
        let of_node = if whole { 0 } else { of_node };
        for (vcpu, world) in (0..).zip(part.worlds.clone()) {
            let llc = self.llcs.as_ref().and_then(|l| l.of(part.id, vcpu)).filter(|_| !piles);
            self.homes[world as usize] = llc.map_or(of_node, |llc| 1 << llc);
        }
    }

    /// Takes down these decisions on LLCs; the worlds whose home changes by them.
    pub(super) fn note_llcs(&mut self, decisions: &[Decision]) -> Vec<u32> {
        let vms: BTreeSet<u32> = decisions.iter().map(|d| d.client.vm).collect();
        let parts: Vec<Part> = vms.iter().flat_map(|vm| self.parts[*vm as usize].clone()).collect();
        let worlds: Vec<u32> = parts.iter().flat_map(|p| p.worlds.clone()).collect();
        let before: Vec<u64> = worlds.iter().map(|w| self.homes[*w as usize]).collect();
        parts.iter().for_each(|p| self.set_home(p));
        let changed = worlds.into_iter().zip(before);
        changed.filter(|(w, home)| self.homes[*w as usize] != *home).map(|(w, _)| w).collect()
    }

    /// Whether some VM may have a home that is not the whole host.
    pub(crate) fn holds(&self) -> bool {
        let several = self.domains.iter().any(|(_, node)| *node != self.domains[0].1);
        self.managed && (several || self.wants.iter().any(|w| w.llc.is_some()))
    }

    /// Decisions on LLCs since the last call, in words, each with its VM and client.
    pub(crate) fn llcs_said(&mut self) -> Vec<String> {
        let said = self.llcs.as_mut().map_or(vec![], Llcs::take_said);
        let one = |(id, vcpu, d): (ClientId, u32, Decision)| {
            format!("VM {}, client {}, from vCPU {vcpu} on: {}", id.vm, id.part, d.of("LLC"))
        };
        said.into_iter().map(one).collect()
    }

    /// What was decided of a client, and when since the run began, in words.
    pub(crate) fn decisions(&self, part: &Part) -> Vec<String> {
        let of_node = self.planner.decisions(part.id).map(|d| format!("{}: {d}", d.at()));
        let of_llcs = self.llcs.iter().flat_map(|l| l.decisions(part.id));
        let of_llcs =
            of_llcs.map(|(vcpu, d)| format!("{}, from vCPU {vcpu} on: {}", d.at(), d.of("LLC")));
        of_node.chain(of_llcs).collect()
    }

    /// LLCs that a client has by its choice.
    pub(crate) fn llcs_of(&self, part: &Part) -> Vec<u32> {
        let Some(llcs) = &self.llcs else { return vec![] };
        let vcpus = 0..part.worlds.end - part.worlds.start;
        let all: BTreeSet<u32> = vcpus.filter_map(|v| llcs.of(part.id, v)).collect();
        all.into_iter().collect()
    }

    /// A round of the LLCs, by what the clients did as `loads` saw it last: the worlds whose home
    /// changes.
    pub(crate) fn llc_round(&mut self, now: u64) -> Vec<u32> {
        let loads = std::mem::take(&mut self.vcpu_loads);
        let Some(llcs) = &mut self.llcs else { return vec![] };
        let decisions = llcs.round(now, &loads);
        self.note_llcs(&decisions)
    }
}

/// pCPUs and node of each domain of homes.
pub(super) fn domains(topology: &Topology) -> Vec<(PcpuSet, u32)> {
    let mut out: Vec<(PcpuSet, u32)> = vec![];
    for ((id, domain), place) in (0..).zip(topology.domains()).zip(topology.places()) {
        out.resize_with(out.len().max(domain as usize + 1), || (PcpuSet::empty(), 0));
        let (set, node) = &mut out[domain as usize];
        set.insert(PcpuId(id));
        *node = place.node;
    }
    out
}

/// LLCs where VMs may choose; none where a node has one, or homes are by node.
pub(super) fn of(topology: &Topology, knobs: Knobs) -> Option<Llcs> {
    let mut out = vec![];
    for (domain, place) in topology.domains().into_iter().zip(topology.places()) {
        out.resize(out.len().max(domain as usize + 1), Llc { node: 0, cores: 0, threads: 0 });
        let llc = &mut out[domain as usize];
        llc.node = place.node;
        llc.cores += u32::from(place.thread == 0);
        llc.threads += 1;
    }
    Llcs::new(out, knobs)
}
