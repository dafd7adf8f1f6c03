//! Where a world is: on a pCPU, in a queue or neither, held to VS51's transitions and to the pCPUs
//! that it may use.

use super::{Oracle, World};
use crate::{Invariant, State};
use units::{PcpuId, WorldId};

impl Oracle {
    /// Holds a change of state to VS51's transitions.
    pub(super) fn transition(
        &mut self,
        now: u64,
        world: WorldId,
        w: &World,
        next: State,
        pcpu: Option<PcpuId>,
    ) {
        let legal = if w.fresh { next != State::Costop } else { w.life.state.may_become(next) };
        if let (State::Run, State::Run, Some(old)) =
            (w.life.state, next, w.pcpu.filter(|p| Some(*p) != pcpu))
        {
            let texts =
                (format!("RUN on {} as well", named(pcpu)), format!("pCPU {} alone", old.0));
            self.violated(now, Invariant::OnePcpuAWorld, Some(w.vm), Some(world), pcpu, texts);
        } else if !legal {
            let texts = (
                format!("{} to {}", w.life.state.name(), next.name()),
                "what VS51's figure 1 shows".to_owned(),
            );
            self.violated(now, Invariant::Transition, Some(w.vm), Some(world), pcpu, texts);
        }
    }

    /// Ends what the present state of a world is: its run or its wait.
    pub(super) fn leave(&mut self, now: u64, world: WorldId, w: &mut World) {
        match w.life.state {
            State::Run => {
                self.misplaced(now, world, w);
                w.charge.end(now);
                if let Some(p) = w.pcpu.take() {
                    let pcpu = &mut self.pcpus[p.0 as usize];
                    if pcpu.world == Some(world) {
                        pcpu.last = pcpu.world.take();
                        pcpu.busy.end(now);
                        self.idles(now, p);
                        self.sharing.busy(now, p, false);
                        self.sharing.runs(now, p, None);
                    }
                }
            }
            State::Ready => {
                if !std::mem::take(&mut w.held) {
                    self.stop_waiting(now, world, w);
                }
                self.waits.settled(world.0);
            }
            _ => {}
        }
    }

    pub(super) fn stop_waiting(&mut self, now: u64, world: WorldId, w: &World) {
        let pcpus = self.ledger.pcpus_of(w.set);
        let found = self.waits.world_stops(now, world.0, pcpus, w.queued, w.life.since);
        for o in found {
            self.late(now, Some(w.vm), o);
        }
    }

    /// Puts a world on a pCPU.
    pub(super) fn dispatch(
        &mut self,
        now: u64,
        world: WorldId,
        w: &mut World,
        pcpu: Option<PcpuId>,
    ) {
        w.charge.begin(now);
        let Some(p) = pcpu else {
            return self.odd(now, Some(w.vm), Some(world), "RUN on no pCPU of the host", "a pCPU");
        };
        if self.pcpus[p.0 as usize].taken {
            let texts = ("RUN beside a real-time task".to_owned(), "one of both".to_owned());
            self.violated(now, Invariant::OneWorldAPcpu, Some(w.vm), Some(world), Some(p), texts);
        }
        let allowed = self.ledger.pcpus_of(w.set);
        let arrives = self.arrives(now, w.homed);
        if !allowed.contains(p) && arrives {
            w.misplaced = Some(now);
        } else if !allowed.contains(p) {
            let texts = (format!("RUN on pCPU {}", p.0), format!("pCPUs {allowed}"));
            self.violated(now, Invariant::Affinity, Some(w.vm), Some(world), Some(p), texts);
        }
        w.pcpu = Some(p);
        let pcpu = &mut self.pcpus[p.0 as usize];
        let old = pcpu.world.replace(world);
        match old {
            // The pCPU stays busy; its run goes on with the newer world.
            Some(old) => {
                let texts = (format!("worlds {} and {}", old.0, world.0), "one world".to_owned());
                self.violated(
                    now,
                    Invariant::OneWorldAPcpu,
                    Some(w.vm),
                    Some(world),
                    Some(p),
                    texts,
                );
            }
            None => {
                pcpu.busy.begin(now);
                self.sharing.busy(now, p, true);
            }
        }
        self.sharing.runs(now, p, Some((world.0, w.set)));
    }

    /// Holds a world that ran where it no longer may to the grace it has.
    pub(super) fn misplaced(&mut self, now: u64, world: WorldId, w: &mut World) {
        if let Some(since) = w.misplaced.take().filter(|s| now - s > self.bounds.affinity_grace_ns)
        {
            let texts = (
                format!("RUN for {} ns after it was excluded", now - since),
                format!(
                    "{} ns, then pCPUs {}",
                    self.bounds.affinity_grace_ns,
                    self.ledger.pcpus_of(w.set)
                ),
            );
            self.violated(now, Invariant::Affinity, Some(w.vm), Some(world), w.pcpu, texts);
        }
    }
}

fn named(pcpu: Option<PcpuId>) -> String {
    pcpu.map_or_else(|| "no pCPU".to_owned(), |p| format!("pCPU {}", p.0))
}
