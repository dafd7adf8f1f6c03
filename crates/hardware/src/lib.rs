//! The simulated hardware: which world runs on which pCPU, and so how fast each works. It knows no
//! scheduler, no queue and no state of a world but that it runs.
//!
//! *Law*: a world that runs for `t` ns works for `t` less what it loses, and each loss has one
//! cause: a busy hyper-thread (`speed`), a working set that is not in the caches (`cache`, and
//! `llc` where those that run together need more than the LLC holds), memory bandwidth (`llc`, and
//! `memory` by node), and memory that is in other NUMA nodes (`memory`).
//! All are integers, and their sum is `t` to the ns.
//!
//! *Sources*: VS51 "Load Balancing" names what a scheduler has to see of all this; docs/hardware.md
//! has the sources of each number, and what is not modelled.

mod bandwidth;
mod cache;
mod llc;
mod machine;
mod memory;
mod speed;

pub use machine::{Machine, Profile};
pub use memory::{LOCAL_DISTANCE, Memory, NodeMemory};
pub use speed::{Done, ONE};

use cache::{Caches, Refill};
use llc::Llcs;
use memory::Left;
use speed::{Run, Speed};
use std::collections::BTreeSet;
use topology::{Place, Topology};

/// What runs on a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Occupant {
    /// Nothing.
    #[default]
    Idle,
    /// A world.
    World(u32),
    /// Something that is no world: a real-time task. Its core's other threads see it as busy.
    Other,
}

#[derive(Clone, Debug)]
struct Pcpu {
    place: Place,
    occupant: Occupant,
    run: Run,
    refill: Refill,
}

/// The hardware of a host.
#[derive(Clone, Debug)]
pub struct Hardware {
    pcpus: Vec<Pcpu>,
    profiles: Vec<Profile>,
    /// pCPUs by core.
    cores: Vec<Vec<u32>>,
    caches: Caches,
    llcs: Llcs,
    /// None where all memory is near.
    memory: Option<Memory>,
}

impl Hardware {
    /// The hardware of a host on which nothing runs; `profiles` by world.
    #[must_use]
    pub fn new(topology: &Topology, machine: &Machine, profiles: Vec<Profile>) -> Hardware {
        let pcpu = |place: &Place| Pcpu {
            place: *place,
            occupant: Occupant::Idle,
            run: Run::default(),
            refill: Refill::default(),
        };
        let pcpus: Vec<Pcpu> = topology.places().iter().map(pcpu).collect();
        let count = |of: fn(&Place) -> u32| {
            topology.places().iter().map(of).max().map_or(0, |last| last as usize + 1)
        };
        let mut cores = vec![vec![]; count(|p| p.core)];
        let mut members = vec![vec![]; count(|p| p.llc)];
        for (id, place) in (0..).zip(topology.places()) {
            cores[place.core as usize].push(id);
            members[place.llc as usize].push(id);
        }
        Hardware {
            caches: Caches::new(machine, cores.len(), members.len(), profiles.len()),
            llcs: Llcs::new(machine, members),
            pcpus,
            profiles,
            cores,
            memory: None,
        }
    }

    /// The same with memory by node.
    #[must_use]
    pub fn with_memory(mut self, memory: Option<Memory>) -> Hardware {
        let places = |p: &Pcpu| (p.place.node, p.place.llc);
        let all: BTreeSet<(u32, u32)> = self.pcpus.iter().map(places).collect();
        for (node, llc) in all.iter().filter(|_| memory.is_some()) {
            if all.iter().filter(|(n, _)| n == node).count() == 1 {
                self.llcs.has_no_limit(*llc);
            }
        }
        Hardware { memory, ..self }
    }

    /// Memory by node, if it is known.
    #[must_use]
    pub fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    /// The same, to change what is where: the time of what runs has been passed until now, and
    /// `apply` is called for it after that.
    pub fn memory_mut(&mut self) -> Option<&mut Memory> {
        self.memory.as_mut()
    }

    /// What runs on a pCPU.
    #[inline]
    #[must_use]
    pub fn occupant(&self, pcpu: u32) -> Occupant {
        self.pcpus[pcpu as usize].occupant
    }

    /// Other pCPUs that go slower or faster if this one begins or ceases to be idle. Their time is
    /// to be passed by `pass` before `occupy` says so.
    pub fn partners(&self, pcpu: u32) -> impl Iterator<Item = u32> + '_ {
        let core = self.pcpus[pcpu as usize].place.core as usize;
        let busy = |p: &u32| matches!(self.occupant(*p), Occupant::World(_));
        self.cores[core].iter().copied().filter(move |p| *p != pcpu).filter(busy)
    }

    /// Something else runs on a pCPU from now on; all time until now has been passed.
    pub fn occupy(&mut self, pcpu: u32, occupant: Occupant) {
        let place = self.pcpus[pcpu as usize].place;
        let at = &mut self.pcpus[pcpu as usize];
        let before = std::mem::replace(&mut at.occupant, occupant);
        let llc = at.place.llc;
        if let Occupant::World(world) = before {
            let profile = &self.profiles[world as usize];
            let wanted = self.llcs.wanted(llc, profile);
            let streamed = at.run.worked_ns().saturating_mul(wanted) / 1000;
            self.caches.stop(world, at.place, at.refill, at.run.unpaid_ns, streamed);
            self.llcs.leave(llc, profile);
            if let Some(memory) = &mut self.memory {
                memory.stops(world);
            }
        }
        if let Occupant::World(world) = occupant {
            let profile = &self.profiles[world as usize];
            at.refill = self.caches.start(world, pcpu, at.place, profile);
            at.run = Run::new(at.refill.cost_ns);
            self.llcs.enter(llc, profile);
            let wanted = self.llcs.wanted(llc, profile);
            if let Some(memory) = &mut self.memory {
                memory.starts(world, place.node, wanted);
            }
        }
        let core = at.place.core as usize;
        let busy = self.cores[core].iter().filter(|p| self.occupant(**p) != Occupant::Idle);
        let threads = busy.count() as u64;
        // Where as many threads are busy as before, the others go as they did.
        let same = (before == Occupant::Idle) == (occupant == Occupant::Idle);
        if same {
            return self.set_speed(pcpu, threads);
        }
        self.llcs.has_changed(llc);
        if let Some(memory) = &mut self.memory {
            memory.twin_changed();
        }
        for i in 0..self.cores[core].len() {
            self.set_speed(self.cores[core][i], threads);
        }
    }

    /// The speed of what runs on a pCPU, of whose core so many threads are busy.
    fn set_speed(&mut self, pcpu: u32, threads: u64) {
        let at = &mut self.pcpus[pcpu as usize];
        let Occupant::World(world) = at.occupant else { return };
        let profile = &self.profiles[world as usize];
        let (cached, fed) = self.llcs.speed(at.place.llc, profile);
        let left = self.memory.as_ref().map_or(Left { fed: ONE, near: ONE }, |m| {
            m.speed(world, at.place.node, profile.memory_permille)
        });
        let fed = (fed * left.fed / ONE).max(1);
        at.run.set_speed(Speed { smt: profile.smt(threads), cached, fed, near: left.near });
    }

    /// The world that runs on a pCPU has had so much CPU time: what came of it.
    #[inline]
    pub fn pass(&mut self, pcpu: u32, ns: u64) -> Done {
        let at = &mut self.pcpus[pcpu as usize];
        let before = at.run.unpaid_ns;
        let done = at.run.pass(ns);
        if before > 0 && at.run.unpaid_ns == 0 {
            self.caches.refilled(at.place, &mut at.refill);
        }
        done
    }

    /// CPU time until the world that runs on a pCPU has worked for so many ns, if nothing changes.
    #[inline]
    #[must_use]
    pub fn time_for(&self, pcpu: u32, work_ns: u64) -> u64 {
        self.pcpus[pcpu as usize].run.time_for(work_ns)
    }

    /// Whether what worlds want of some LLC may change their speeds: `renew` is due.
    #[inline]
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.llcs.is_pressed() || self.memory.as_ref().is_some_and(Memory::is_changed)
    }

    /// Finds what the worlds of each LLC take from each other; of the LLCs where that has
    /// changed, those pCPUs that run worlds. Their time is to be passed, and then `apply` called.
    pub fn renew(&mut self) -> Vec<u32> {
        let (pcpus, profiles) = (&self.pcpus, &self.profiles);
        let mut changed = self.llcs.renew(|pcpu| {
            let at = &pcpus[pcpu as usize];
            match at.occupant {
                Occupant::World(world) => Some((profiles[world as usize], at.run.speed().smt)),
                _ => None,
            }
        });
        for pcpu in &changed {
            self.wants_anew(*pcpu);
        }
        changed.extend(self.renew_memory());
        changed.sort_unstable();
        changed.dedup();
        changed.retain(|p| matches!(self.occupant(*p), Occupant::World(_)));
        changed
    }

    /// What runs on a pCPU wants more or less of memory, for its LLC holds less or more of its set.
    fn wants_anew(&mut self, pcpu: u32) {
        let at = &self.pcpus[pcpu as usize];
        let (Occupant::World(world), Some(memory)) = (at.occupant, &mut self.memory) else {
            return;
        };
        let full = self.llcs.wanted(at.place.llc, &self.profiles[world as usize]);
        memory.starts(world, at.place.node, full);
    }

    /// Finds what worlds take from each other of nodes' memory and of the ways between nodes; all
    /// pCPUs if that has changed.
    fn renew_memory(&mut self) -> Vec<u32> {
        if !self.memory.as_ref().is_some_and(Memory::is_changed) {
            return vec![];
        }
        let of = |at: &Pcpu| {
            let Occupant::World(world) = at.occupant else { return None };
            let profile = &self.profiles[world as usize];
            let (cached, fed) = self.llcs.speed(at.place.llc, profile);
            let full = self.llcs.wanted(at.place.llc, profile);
            let wanted = full * at.run.speed().smt / ONE * cached / ONE * fed / ONE;
            Some((world, at.place.node, wanted, profile.memory_permille))
        };
        let runs: Vec<_> = self.pcpus.iter().filter_map(of).collect();
        let Some(memory) = &mut self.memory else { return vec![] };
        if memory.renew(&runs) { (0..self.pcpus.len() as u32).collect() } else { vec![] }
    }

    /// What `renew` has found is in force on a pCPU.
    pub fn apply(&mut self, pcpu: u32) {
        let core = self.pcpus[pcpu as usize].place.core as usize;
        let busy = self.cores[core].iter().filter(|p| self.occupant(**p) != Occupant::Idle);
        let threads = busy.count() as u64;
        self.set_speed(pcpu, threads);
    }
}
