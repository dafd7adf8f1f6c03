//! The vCPUs of an SMP guest: which of them works, spins, halts or handles an interrupt, as CPU
//! time passes and siblings act. It reads which of them run, and moves none: the engine does, by a
//! `Deed`.
//!
//! A guest's time passes only while its vCPU runs, so a vCPU goes on by the timer of its own pCPU
//! and no other. One that spins has that timer armed for the next thing that can happen without its
//! siblings. When a sibling makes it go on, the timer is moved to now, or to the end of the switch
//! or interrupt that is under way there: the cost is per lock operation, not per time spent
//! spinning.

use super::Cast;
use crate::behaviour::Next;
use crate::guest::{Found, Guest, Handling, Ipi, Phase, Vcpu};
use crate::kernel::Kernel;
use settings::Workload;

/// What a vCPU does to its siblings.
#[derive(Debug)]
pub(crate) enum Deed {
    Nothing,
    /// Something came that this world waits for.
    Rouse(u32),
    /// The same for several, in order.
    RouseAll(Vec<u32>),
    /// It sends this world an interrupt.
    Interrupt(u32, Ipi),
    /// The hardware takes it out of its guest, where it spins; it waits for this world.
    PauseLoopExit(u32),
    /// The guest's scheduler interrupts these vCPUs, or (`false`) gives them a timer.
    Reschedule(Vec<(u32, bool)>),
}

impl Cast {
    fn shared(&mut self, world: u32) -> &mut Guest {
        &mut self.guests[self.actors[world as usize].vm as usize]
    }

    /// Whether a world is a vCPU of an SMP guest, or one that a watchdog looks at.
    #[inline]
    pub(crate) fn is_sibling(&self, world: u32) -> bool {
        self.actors[world as usize].sibling.is_some()
    }

    fn vcpu(&mut self, world: u32) -> &mut Vcpu {
        self.actors[world as usize].sibling.get_or_insert_with(Box::default)
    }

    fn phase(&self, world: u32) -> Phase {
        self.actors[world as usize].sibling.as_ref().map_or(Phase::Apart, |v| v.phase)
    }

    fn workload(&self, world: u32) -> Workload {
        self.actors[world as usize].behaviour.workload()
    }

    fn set_remaining(&mut self, world: u32, ns: u64) {
        self.actors[world as usize].behaviour.remaining = ns;
    }

    /// Whether CPU time that passes now is burned.
    fn set_spins(&mut self, world: u32) {
        let v = self.vcpu(world);
        let spins = v.phase == Phase::Spin && v.handling.is_none();
        self.actors[world as usize].spins = spins;
    }

    /// A window opens; `left` is what was left of its piece of work before. A vCPU that still holds
    /// the lock goes on with it.
    pub(super) fn sibling_begins(&mut self, world: u32, left: u64) {
        let workload = self.workload(world);
        match (self.phase(world), workload) {
            (Phase::Hold, _) => self.set_remaining(world, left),
            (_, Workload::Spinlock { .. } | Workload::Ipi { .. }) => {
                self.vcpu(world).phase = Phase::Work;
            }
            (_, Workload::Barrier { .. }) => {
                self.vcpu(world).phase = Phase::Work;
                self.shared(world).barrier.join();
            }
            _ => {}
        }
    }

    /// A window closes, or it is powered off; `left` is what was left of its piece of work. The
    /// holder of the lock keeps it to the end of its critical section, unless it is powered off.
    /// All its siblings end at the same instant: none is woken, none goes on.
    pub(super) fn sibling_ends(&mut self, world: u32, left: u64) {
        let leaving = self.actors[world as usize].behaviour.leaving;
        let v = self.vcpu(world);
        let was = std::mem::take(v);
        let left = was.handling.map_or(left, |h| h.left);
        if was.phase == Phase::Hold && !leaving {
            v.phase = Phase::Hold;
            self.set_remaining(world, left);
        } else {
            self.shared(world).lock.leave(world);
        }
        if matches!(self.workload(world), Workload::Barrier { .. }) && was.phase != Phase::Apart {
            let arrived = matches!(was.phase, Phase::Spin | Phase::Halted) && !was.due;
            self.shared(world).barrier.leave(arrived);
        }
        self.actors[world as usize].spins = false;
    }

    /// A vCPU is about to run: what happened meanwhile, it sees as soon as it is in the guest.
    pub(crate) fn sibling_runs(&mut self, world: u32, now: u64) {
        let ready = now - self.actors[world as usize].ready_since;
        if self.actors[world as usize].behaviour.leaving {
            return;
        }
        if self.phase(world) != Phase::Spin {
            self.shared(world).ran_again(ready);
        }
        if self.vcpu(world).handling.is_some() {
            return;
        }
        match self.vcpu(world).pending {
            Some(_) => self.handles(world),
            None => self.set_spin_left(world, now),
        }
    }

    /// How long one that spins does so until something happens.
    fn set_spin_left(&mut self, world: u32, now: u64) {
        if self.phase(world) != Phase::Spin {
            return;
        }
        let (spun, limit) = (self.actors[world as usize].spun, self.spin_limit(world));
        let watchdog = self.shared(world).watchdog;
        let left = if self.goes_on(world) {
            0
        } else {
            self.vcpu(world).spin_left(now, spun, limit, watchdog)
        };
        self.set_remaining(world, left);
    }

    /// CPU time after which one that spins halts.
    fn spin_limit(&self, world: u32) -> u64 {
        match self.workload(world) {
            Workload::Barrier { spin, .. } => spin.map_or(u64::MAX, |s| s.ns()),
            _ => u64::MAX,
        }
    }

    /// Whether one that waits could go on if it ran in the guest now.
    fn goes_on(&mut self, world: u32) -> bool {
        match self.workload(world) {
            Workload::Spinlock { .. } => self.shared(world).lock.open_to(world),
            _ => self.vcpu(world).due,
        }
    }

    /// Something came that a vCPU waits for, which runs in its guest: whether it sees that now, and
    /// its timer is to be armed anew.
    pub(crate) fn sees(&mut self, world: u32, now: u64) -> bool {
        let free = self.vcpu(world).handling.is_none();
        if free {
            self.set_spin_left(world, now);
        }
        free
    }

    /// The CPU time of a vCPU's present piece of work, of spinning or of an interrupt is over: what
    /// it does next.
    pub(super) fn sibling_done(&mut self, world: u32, kernel: &Kernel) -> (Next, Deed) {
        if self.vcpu(world).handling.is_some() {
            return self.handled(world, kernel.now());
        }
        let open = self.actors[world as usize].behaviour.open;
        match self.phase(world) {
            Phase::Apart => (self.next_piece(world, kernel.now()), Deed::Nothing),
            Phase::Work => self.meets(world, kernel.now()),
            Phase::Spin => self.spins_on(world, kernel),
            Phase::Hold => {
                let deed = self.release(world, kernel);
                self.vcpu(world).phase = if open { Phase::Work } else { Phase::Apart };
                (self.next_piece(world, kernel.now()), deed)
            }
            Phase::Halted => {
                self.vcpu(world).phase = Phase::Work;
                (self.next_piece(world, kernel.now()), Deed::Nothing)
            }
        }
    }

    fn next_piece(&mut self, world: u32, now: u64) -> Next {
        self.actors[world as usize].behaviour.done(now)
    }

    /// A vCPU has done its work, and comes to where it may have to wait.
    fn meets(&mut self, world: u32, now: u64) -> (Next, Deed) {
        match self.workload(world) {
            Workload::Spinlock { hold, .. } if self.shared(world).lock.ask(world) => {
                (self.holds(world, hold.ns()), Deed::Nothing)
            }
            Workload::Barrier { .. } if self.shared(world).barrier.arrive() => {
                (self.next_piece(world, now), self.open_barrier(world))
            }
            Workload::Ipi { handle, .. } => match self.next_sibling(world) {
                Some(to) => {
                    let ipi = Ipi { from: world, handle: handle.ns() };
                    (self.waits_for(world, now), Deed::Interrupt(to, ipi))
                }
                None => (self.next_piece(world, now), Deed::Nothing),
            },
            _ => (self.waits_for(world, now), Deed::Nothing),
        }
    }

    fn waits_for(&mut self, world: u32, now: u64) -> Next {
        let spun = self.actors[world as usize].spun;
        self.vcpu(world).wait(now, spun);
        self.set_spins(world);
        self.set_spin_left(world, now);
        Next::Work
    }

    fn holds(&mut self, world: u32, hold: u64) -> Next {
        self.vcpu(world).phase = Phase::Hold;
        self.set_spins(world);
        self.set_remaining(world, hold);
        Next::Work
    }

    /// One that spins looks whether it may go on, halts, or spins on.
    fn spins_on(&mut self, world: u32, kernel: &Kernel) -> (Next, Deed) {
        let (vm, now) = (self.actors[world as usize].vm as usize, kernel.now());
        let (spun, limit) = (self.actors[world as usize].spun, self.spin_limit(world));
        if let Some(v) = &mut self.actors[world as usize].sibling {
            self.guests[vm].seen_spinning(v, now);
        }
        match self.workload(world) {
            Workload::Spinlock { hold, .. } if self.shared(world).lock.look(world) => {
                return (self.holds(world, hold.ns()), Deed::Nothing);
            }
            _ if self.vcpu(world).due => {
                self.vcpu(world).phase = Phase::Work;
                self.set_spins(world);
                return (self.next_piece(world, now), Deed::Nothing);
            }
            _ => {}
        }
        if self.vcpu(world).burned(spun) >= limit {
            self.vcpu(world).phase = Phase::Halted;
            self.set_spins(world);
            self.set_remaining(world, 0);
            return (Next::Halt, Deed::Nothing);
        }
        let exits = self.vcpu(world).exits(spun) && self.pause_exits;
        let target = if exits { self.waited_for(world, kernel) } else { None };
        self.set_spin_left(world, now);
        (Next::Work, target.map_or(Deed::Nothing, Deed::PauseLoopExit))
    }

    /// The vCPU that one that spins waits for: the lock's holder, one that the barrier misses (best
    /// one that does not run), the sibling that it sent an interrupt. A barrier misses one that it
    /// has released too, until it has run and come again.
    fn waited_for(&mut self, world: u32, kernel: &Kernel) -> Option<u32> {
        match self.workload(world) {
            Workload::Spinlock { .. } => Some(self.shared(world).lock.holder).filter(|h| *h != 0),
            Workload::Barrier { .. } => {
                let works = |w: &u32| {
                    let v = self.actors[*w as usize].sibling.as_ref();
                    v.is_some_and(|v| v.phase == Phase::Work || v.due)
                };
                let missing = || self.barrier_members(world).filter(works);
                missing().find(|w| !kernel.runs(*w)).or_else(|| missing().next())
            }
            _ => self.next_sibling(world),
        }
    }

    fn barrier_members(&self, world: u32) -> impl Iterator<Item = u32> + '_ {
        let all = self.vms[self.actors[world as usize].vm as usize].worlds.clone();
        all.filter(|w| matches!(self.workload(*w), Workload::Barrier { .. }))
    }

    /// The lock is released, to one that spins on a pCPU now, to the first that waits for its
    /// ticket, or to whichever runs next.
    fn release(&mut self, world: u32, kernel: &Kernel) -> Deed {
        let actors = &self.actors;
        let in_guest = |w: u32| actors[w as usize].spins && kernel.works(w);
        let guest = &mut self.guests[actors[world as usize].vm as usize];
        guest.rounds += 1;
        if let Some(next) = guest.lock.release(in_guest) {
            return Deed::Rouse(next);
        }
        // None spins in the guest, but some may be about to: they look when they are there.
        let soon: Vec<u32> = guest.lock.waiters().filter(|w| kernel.runs(*w)).collect();
        Deed::RouseAll(soon)
    }

    /// The last has come to the barrier: all others go on.
    fn open_barrier(&mut self, last: u32) -> Deed {
        self.shared(last).rounds += 1;
        let waits = |w: &u32| matches!(self.phase(*w), Phase::Spin | Phase::Halted);
        let others: Vec<u32> =
            self.barrier_members(last).filter(|w| *w != last).filter(waits).collect();
        others.iter().for_each(|w| self.vcpu(*w).due = true);
        Deed::RouseAll(others)
    }

    /// The vCPU after it, the first after the last; none in a VM of one.
    fn next_sibling(&self, world: u32) -> Option<u32> {
        let all = &self.vms[self.actors[world as usize].vm as usize].worlds;
        let next = if world + 1 == all.end { all.start } else { world + 1 };
        Some(next).filter(|n| *n != world)
    }

    /// An interrupt for a vCPU, which handles it when it runs; `found` is how it was found.
    pub(crate) fn is_interrupted(&mut self, world: u32, ipi: Ipi, found: Found) {
        self.vcpu(world).pending = Some((ipi, found));
    }

    /// A vCPU begins to handle the interrupt that is pending.
    pub(crate) fn handles(&mut self, world: u32) {
        let left = self.remaining(world);
        let v = self.vcpu(world);
        let Some((ipi, found)) = v.pending.take() else { return };
        v.handling = Some(Handling { from: ipi.from, found, left });
        self.set_remaining(world, ipi.handle);
        self.set_spins(world);
    }

    /// An interrupt has been handled: its sender goes on, and so does what it interrupted.
    fn handled(&mut self, world: u32, now: u64) -> (Next, Deed) {
        let v = self.vcpu(world);
        let came = v.phase == Phase::Halted && v.due;
        let Some(Handling { from, found, left }) = v.handling.take() else {
            return (Next::Work, Deed::Nothing);
        };
        let next = match found {
            Found::Asleep(Some(until)) if until > now => Next::Sleep(until),
            Found::Asleep(None) if !came => Next::Halt,
            // If it slept, its timer fired or the barrier opened while it handled this.
            _ => Next::Work,
        };
        self.set_remaining(world, left);
        self.set_spins(world);
        self.set_spin_left(world, now);
        self.shared(world).rounds += 1;
        self.vcpu(from).due = true;
        (next, Deed::Rouse(from))
    }

    /// What came of the vCPUs of a VM waiting for each other, if they do or a watchdog looks; waits
    /// under way are as long as they are.
    pub(crate) fn guest(&self, vm: usize, kernel: &Kernel) -> Option<views::Guest> {
        if let Some(tasks) = &self.tasks[vm] {
            return Some(tasks.report());
        }
        let (guest, now) = (&self.guests[vm], kernel.now());
        let actors = || self.vms[vm].worlds.clone().map(|w| (w, &self.actors[w as usize]));
        let ready = |w: u32| if kernel.queues(w) { now - self.ready_since(w) } else { 0 };
        guest.on.then(|| views::Guest {
            spin_ns: actors().map(|a| a.1.spun).sum(),
            rounds: guest.rounds,
            lockups: guest.lockups,
            longest_wait_ns: actors()
                .map(|(w, a)| ready(w).max(a.sibling.as_ref().map_or(0, |v| v.waited(now))))
                .fold(guest.longest, u64::max),
            tasks: None,
        })
    }
}
