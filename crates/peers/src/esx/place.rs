//! Which pCPU is best for a world, by cost; it queues nothing.
//!
//! *Law*: the cost of a pCPU is a quantum for each world that runs or waits there and for one that
//! has the core alone, what a busy thread of the same core takes away in a quantum, what the worlds
//! on its LLC take (`Terms::llc_load_ns`), and what the move costs. Of equal pCPUs one is drawn.
//!
//! *Documented*: which terms there are (VS51 "Goodness of Migration"; IBM for the twin's).
//! *Our reading*: their sizes. A busy thread takes 3/8 of the time (two threads do 1.25 times the
//! work of one, docs/profiles.md).

use super::{Esx, HOMES, QUANTUM_NS};
use contract::{Callback, KICK_PREEMPT, Task};

/// What a busy thread of the same core takes in a quantum, in ns.
const SHARED_NS: u64 = QUANTUM_NS * 3 / 8;

impl Esx {
    /// What it is taken to cost a world that it moves, in ns.
    pub(super) fn move_ns(&self, world: u32, from: u32, to: u32) -> u64 {
        let [twin, core, llc, node] = self.terms.move_ns;
        let (a, b) = (self.pcpus[from as usize].place, self.pcpus[to as usize].place);
        if from == to || !self.worlds[world as usize].ran {
            0
        } else if a.core == b.core {
            twin
        } else if a.llc == b.llc {
            core
        } else if a.node == b.node {
            llc
        } else {
            node
        }
    }

    /// Whether a pCPU is in a world's home, or in the zone of its VM if it has none.
    fn in_zone(&self, world: u32, pcpu: u32) -> bool {
        let account = &self.worlds[world as usize];
        if account.home != 0 {
            return account.home >> self.pcpus[pcpu as usize].domain & 1 != 0;
        }
        let zone = self.vms[account.vm as usize].zone;
        zone.is_none_or(|(zone, _)| self.zones.of(pcpu) == zone)
    }

    /// A world's home has changed: it leaves a pCPU that is not part of it.
    pub(super) fn go_home(&mut self, k: &mut Callback<'_>, world: u32) {
        let Some(at) = self.worlds[world as usize].at else { return };
        if self.may_run(k.task(world), world, at) {
            return;
        }
        if self.worlds[world as usize].runs {
            return k.kernel.kick(at, KICK_PREEMPT);
        }
        self.strays.push(world);
        k.kernel.arm(HOMES, 0);
    }

    /// Worlds that wait outside of their homes are queued there.
    pub(super) fn strays_go_home(&mut self, k: &mut Callback<'_>) {
        for world in std::mem::take(&mut self.strays) {
            let account = &self.worlds[world as usize];
            let Some(at) = account.at.filter(|_| !account.runs) else { continue };
            let to = self.place(k, world, at);
            if to != at && k.kernel.queue_move(k.tasks, u64::from(at), world, u64::from(to)) {
                self.assign(world, to);
                self.wake_pcpu(k, world, to, false);
            }
        }
    }

    /// Whether a world may run on a pCPU: by its affinity, and in its zone, unless its affinity
    /// leaves it no pCPU there.
    pub(super) fn may_run(&self, task: &Task, world: u32, pcpu: u32) -> bool {
        let all = || 0..self.pcpus.len() as u32;
        task.may_run(pcpu)
            && (self.in_zone(world, pcpu)
                || !all().any(|p| task.may_run(p) && self.in_zone(world, p)))
    }

    /// The best pCPU for a world that ran on `prev` last.
    pub(super) fn place(&self, k: &mut Callback<'_>, world: u32, prev: u32) -> u32 {
        let (mut best, mut cost, mut equal) = (prev, u64::MAX, 0);
        for pcpu in 0..self.pcpus.len() as u32 {
            if !self.may_run(k.task(world), world, pcpu) {
                continue;
            }
            let ns = self.cost_ns(world, prev, pcpu);
            if ns < cost {
                (best, cost, equal) = (pcpu, ns, 1);
            } else if ns == cost {
                equal += 1;
                if k.kernel.random() % equal == 0 {
                    best = pcpu;
                }
            }
        }
        best
    }

    /// Cost of a pCPU for a world that waits for none, in ns.
    fn cost_ns(&self, world: u32, prev: u32, pcpu: u32) -> u64 {
        let at = &self.pcpus[pcpu as usize];
        let shared = at.twins.iter().any(|p| self.pcpus[*p as usize].worlds > 0);
        u64::from(at.worlds) * QUANTUM_NS
            + if self.is_kept(pcpu) { QUANTUM_NS } else { 0 }
            + if shared { SHARED_NS } else { 0 }
            + self.llc_worlds[at.place.llc as usize] * self.terms.llc_load_ns
            + self.move_ns(world, prev, pcpu)
    }

    /// An idle pCPU that could take a world which waits for another.
    pub(super) fn idle_for(&self, k: &Callback<'_>, world: u32, but: u32) -> Option<u32> {
        let idle = |p: &u32| *p != but && self.pcpus[*p as usize].worlds == 0 && !self.is_kept(*p);
        (0..self.pcpus.len() as u32).filter(idle).find(|p| self.may_run(k.task(world), world, *p))
    }

    /// Gives a VM its zone.
    pub(super) fn home(&mut self, vm: u32, vcpus: u32) {
        if vm == 0 {
            return;
        }
        if self.zones.grow(vcpus) {
            for other in 1..self.vms.len() {
                if let Some((_, count)) = self.vms[other].zone.take() {
                    self.vms[other].zone = self.zones.enter(count).map(|zone| (zone, count));
                }
            }
        }
        if self.vms[vm as usize].zone.is_none() {
            self.vms[vm as usize].zone = self.zones.enter(vcpus).map(|zone| (zone, vcpus));
        }
    }

    /// A VM without vCPUs leaves its zone.
    pub(super) fn leave_home_if_empty(&mut self, vm: u32) {
        let at = &mut self.vms[vm as usize];
        if let Some((zone, vcpus)) = at.zone.filter(|_| at.vcpus.is_empty()) {
            at.zone = None;
            self.zones.leave(zone, vcpus);
        }
    }
}
