//! VMs whose settings ask for few LLCs of their home, or for all; and homes as the scheduler takes
//! them, a bit for each domain.
//!
//! *Limits*: of a VM with vCPUs that are unplugged, parts of a client are as if those were there.

use super::{Domain, Homed, Homes, Part};
use crate::discover::{self, Roots};
use crate::slots::Slots;
use numa::{Asks, ClientId, Decision, Knobs, Llc, Llcs, Load, Planner, VcpuLoads};
use sched_core::{KIND_HELPER, World};
use settings::LlcChoice;
use std::collections::{BTreeMap, BTreeSet};
use units::PcpuSet;

/// What VMs ask for, and what they have.
pub(super) struct Chosen {
    /// None where there is nothing to choose.
    llcs: Option<Llcs>,
    asks: BTreeMap<u32, LlcChoice>,
    /// Clients whose affinity leaves their vCPUs no LLC of the home in common.
    apart: BTreeSet<ClientId>,
    /// What the vCPUs of clients wanted and had since the last round, in thousandths of a pCPU.
    pub(super) rates: BTreeMap<ClientId, Vec<(u64, u64)>>,
    /// The same in all, in ns, at the last round: by VM and number of the vCPU.
    seen: BTreeMap<(u32, u32), (u64, u64)>,
}

impl Chosen {
    pub(super) fn new(domains: &[Domain], knobs: Knobs) -> Chosen {
        let llc = |d: &Domain| Llc {
            node: d.node,
            cores: super::places::cores(&d.core_of, &d.pcpus),
            threads: d.core_of.len() as u32,
        };
        let (asks, rates, seen) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let llcs = Llcs::new(domains.iter().map(llc).collect(), knobs);
        Chosen { llcs, asks, apart: BTreeSet::new(), rates, seen }
    }

    pub(super) fn is_possible(&self) -> bool {
        self.llcs.is_some()
    }

    pub(super) fn set_knobs(&mut self, knobs: Knobs) {
        self.llcs.iter_mut().for_each(|l| l.set_knobs(knobs));
    }

    pub(super) fn set_cores(&mut self, cores: Vec<u32>) {
        let now = crate::view::monotonic_ns();
        self.llcs.iter_mut().for_each(|l| drop(l.set_cores(now, &cores)));
    }

    /// A VM's settings ask for this.
    pub(super) fn asks(&mut self, vm: u32, choice: Option<LlcChoice>) {
        match choice {
            Some(choice) => _ = self.asks.insert(vm, choice),
            None => _ = self.asks.remove(&vm),
        }
    }

    /// A VM is gone.
    pub(super) fn remove(&mut self, vm: u32) {
        self.asks.remove(&vm);
        self.apart.retain(|id| id.vm != vm);
        self.seen.retain(|(of, _), _| *of != vm);
        self.llcs.iter_mut().for_each(|l| l.remove(vm));
    }

    /// A vCPU of a client, so many of which there are, wanted and had so much in all, in ns; `rate`
    /// makes thousandths of a pCPU of what came since the last round.
    pub(super) fn see(
        &mut self,
        part: &Part,
        vcpu: u32,
        all: (u64, u64),
        rate: impl Fn(u64) -> u64,
    ) {
        let seen = self.seen.insert((part.id.vm, vcpu), all).unwrap_or(all);
        let of = self.rates.entry(part.id).or_insert_with(|| vec![(0, 0); part.tids.len()]);
        if let Some(own) = of.get_mut(at(part, vcpu)) {
            *own = (rate(all.0.saturating_sub(seen.0)), rate(all.1.saturating_sub(seen.1)));
        }
    }

    /// A round.
    pub(super) fn round(&mut self, now: u64, loads: &[Load], planner: &Planner) {
        let Some(llcs) = &mut self.llcs else { return };
        let mut rates = std::mem::take(&mut self.rates);
        let of = |l: &Load| {
            let vcpus = rates.remove(&l.id).unwrap_or_default();
            let node = planner.home(l.id)?;
            Some(VcpuLoads { id: l.id, node, entitled: l.entitled, vcpus })
        };
        let loads: Vec<VcpuLoads> = loads.iter().filter_map(of).collect();
        llcs.round(now, &loads);
    }

    /// What was decided since the last call: the client, the first vCPU of its part.
    pub(super) fn take_said(&mut self) -> Vec<(ClientId, u32, Decision)> {
        self.llcs.as_mut().map_or(vec![], Llcs::take_said)
    }

    /// LLCs of a client, if its VM asks for some.
    pub(super) fn of(&self, part: &Part) -> Vec<u32> {
        let Some(llcs) = &self.llcs else { return vec![] };
        let all: BTreeSet<u32> =
            (0..part.tids.len() as u32).filter_map(|v| llcs.of(part.id, v)).collect();
        all.into_iter().collect()
    }

    /// What was decided of a client's LLCs last, and how long ago by this time, in words.
    pub(super) fn decisions(&self, id: ClientId, now: u64) -> Vec<String> {
        let all = self.llcs.iter().flat_map(|l| l.decisions(id));
        let said = |(vcpu, d): (u32, &Decision)| {
            format!("{}, from vCPU {vcpu} on: {}", d.ago(now), d.of("LLC"))
        };
        all.map(said).collect()
    }

    /// Why the choice of a client's VM has no effect, in words.
    pub(super) fn note(&self, id: ClientId) -> Option<String> {
        if self.apart.contains(&id) {
            let text = "its setting llc has no effect: affinity leaves its vCPUs no LLC of its home \
                in common";
            return Some(text.to_owned());
        }
        let vain = self.llcs.is_none() && self.asks.contains_key(&id.vm);
        vain.then(|| {
            "its setting llc has no effect: seen a host whose nodes have one LLC each, or of more \
                than 64 LLCs, or where nodes share one"
                .to_owned()
        })
    }
}

/// Place of a vCPU within its part.
fn at(part: &Part, vcpu: u32) -> usize {
    let last = part.tids.len().saturating_sub(1);
    (vcpu.saturating_sub(part.vcpus.start) as usize).min(last)
}

impl Homes {
    /// Gives parts of VMs that ask for LLCs theirs, in their homes as they are now.
    pub(super) fn choose(&mut self, roots: &Roots) {
        let Some(llcs) = &mut self.chosen.llcs else { return };
        let now = crate::view::monotonic_ns();
        for (id, vm) in &self.vms {
            for part in &vm.parts {
                let asked = self.chosen.asks.get(id).zip(self.planner.home(part.id));
                let Some((choice, node)) = asked else {
                    self.chosen.apart.remove(&part.id);
                    llcs.leave(part.id);
                    continue;
                };
                let allowed: Vec<PcpuSet> = part
                    .tids
                    .iter()
                    .filter_map(|tid| discover::allowed(roots, vm.pid, *tid))
                    .collect();
                let may = |d: &Domain| allowed.iter().all(|set| !set.and(&d.pcpus).is_empty());
                let bits = (0..).zip(&self.domains).filter(|(_, d)| d.node == node && may(d));
                let bits: u64 = bits.map(|(n, _)| 1 << n).sum();
                if bits == 0 {
                    self.chosen.apart.insert(part.id);
                    llcs.leave(part.id);
                    continue;
                }
                self.chosen.apart.remove(&part.id);
                let asks = Asks {
                    choice: *choice,
                    vcpus: part.tids.len() as u32,
                    node,
                    prefer_ht: vm.threads,
                    llcs: bits,
                };
                llcs.seat(now, part.id, asks);
            }
        }
    }

    /// Prints what was decided of LLCs.
    pub(super) fn say_llcs(&mut self, slots: &Slots, say: &dyn Fn(&str)) {
        for (id, vcpu, d) in self.chosen.take_said() {
            let found = slots.found().find(|f| slots.of(f.pid) == Some(id.vm));
            let vm = found.map_or("?", |f| &f.name);
            let (part, what) = (id.part, d.of("LLC"));
            say(&format!("VM {vm}, part {part}, from vCPU {vcpu} on: {what}"));
        }
    }

    /// pCPUs where a world may run by its home; `None`: all.
    pub(crate) fn pcpus(&self, world: &World) -> Option<PcpuSet> {
        let at = (0..).zip(&self.domains).filter(|(domain, _)| world.home >> domain & 1 != 0);
        let set = at.map(|(_, d)| d.pcpus.clone()).reduce(|a, b| a.or(&b));
        set.filter(|_| world.home != super::HOME_ANY)
    }

    /// Home of a world of one of these VMs, a bit for each domain; 0 where that is all of them.
    pub(super) fn home(&self, vm: &Homed, w: &World) -> u64 {
        let helper = w.kind == KIND_HELPER;
        let of_node = |node: u32| {
            let there = (0..).zip(&self.domains).filter(|(_, d)| d.node == node);
            there.map(|(domain, _)| 1u64 << domain).sum::<u64>()
        };
        let own = |p: &&Part| helper || p.vcpus.contains(&w.index);
        let home = |p: &Part| {
            let llcs = self.chosen.llcs.as_ref().filter(|_| !helper);
            let llc = llcs.and_then(|l| l.of(p.id, at(p, w.index) as u32));
            llc.map(|llc| 1 << llc).or_else(|| self.planner.home(p.id).map(of_node))
        };
        let all = vm.parts.iter().filter(own).filter_map(home).fold(0, |all, bits| all | bits);
        let with_pcpus = (0..).zip(&self.domains).filter(|(_, d)| !d.pcpus.is_empty());
        let every = with_pcpus.fold(0, |all, (domain, _)| all | 1 << domain);
        if all == every { 0 } else { all }
    }
}
