//! Moves the vCPUs of an SMP guest: who works, spins, halts or handles an interrupt, as CPU time
//! passes and siblings act; it calls no scheduler except through `schedule`.
//!
//! A guest's time passes only while its vCPU runs, so a vCPU goes on by the timer of its own pCPU
//! and no other. One that spins has that timer armed for the next thing that can happen without its
//! siblings. When a sibling makes it go on, the timer is moved to now, or to the end of the switch
//! or interrupt that is under way there: the cost is per lock operation, not per time spent
//! spinning.

use crate::behaviour::Next;
use crate::engine::Engine;
use crate::guest::{Found, Guest, Handling, Ipi, Lock, Phase, Vcpu};
use crate::kernel::Seat;
use contract::Scheduler;
use settings::{RunSpec, VmSpec, Workload};

/// What vCPUs of each VM share, by VM; the system group shares nothing.
pub(crate) fn guests(spec: &RunSpec) -> Vec<Guest> {
    let guest = |vm: &VmSpec| {
        let all = || (0..vm.vcpus as usize).map(|i| vm.workload_of(i));
        Guest {
            on: vm.watchdog.is_some() || all().any(|w| w.has_siblings()),
            watchdog: vm.watchdog.map_or(u64::MAX, |w| w.ns()),
            lock: Lock::new(all().any(|w| matches!(w, Workload::Spinlock { ticket: true, .. }))),
            ..Guest::default()
        }
    };
    std::iter::once(Guest::default()).chain(spec.vms.iter().map(guest)).collect()
}

impl<P: Scheduler> Engine<P> {
    fn shared(&mut self, world: u32) -> &mut Guest {
        &mut self.guests[self.actors[world as usize].vm as usize]
    }

    /// Whether a world is a vCPU of an SMP guest, or one that a watchdog looks at.
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

    /// Whether CPU time that passes now is burned.
    fn set_spins(&mut self, world: u32) {
        let v = self.vcpu(world);
        let spins = v.phase == Phase::Spin && v.handling.is_none();
        self.actors[world as usize].spins = spins;
    }

    /// A window opens; `left` is what was left of its piece of work before. Who still holds the
    /// lock goes on with it.
    pub(crate) fn sibling_begins(&mut self, world: u32, left: u64) {
        let workload = self.workload(world);
        match (self.phase(world), workload) {
            (Phase::Hold, _) => self.actors[world as usize].behaviour.remaining = left,
            (_, Workload::Spinlock { .. } | Workload::Ipi { .. }) => {
                self.vcpu(world).phase = Phase::Work
            }
            (_, Workload::Barrier { .. }) => {
                self.vcpu(world).phase = Phase::Work;
                self.shared(world).barrier.join();
            }
            _ => {}
        }
    }

    /// A window closes, or it is powered off; `left` is what was left of its piece of work. Who
    /// holds the lock keeps it to the end of its critical section, unless it is powered off. All
    /// its siblings end at the same instant: nobody is woken or let go on.
    pub(crate) fn sibling_ends(&mut self, world: u32, left: u64) {
        let leaving = self.actors[world as usize].behaviour.leaving;
        // an interrupt may have woken it before its time
        self.clock.disarm_sleep(world);
        let v = self.vcpu(world);
        let was = std::mem::take(v);
        let left = was.handling.map_or(left, |h| h.left);
        if was.phase == Phase::Hold && !leaving {
            v.phase = Phase::Hold;
            self.actors[world as usize].behaviour.remaining = left;
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
    pub(crate) fn sibling_runs(&mut self, world: u32) {
        let now = self.kernel.now;
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
            Some(_) => self.handle(world),
            None => self.set_spin_left(world),
        }
    }

    /// How long one that spins does so until something happens.
    fn set_spin_left(&mut self, world: u32) {
        if self.phase(world) != Phase::Spin {
            return;
        }
        let (now, spun, limit) =
            (self.kernel.now, self.actors[world as usize].spun, self.spin_limit(world));
        let watchdog = self.shared(world).watchdog;
        let left = if self.goes_on(world) {
            0
        } else {
            self.vcpu(world).spin_left(now, spun, limit, watchdog)
        };
        self.actors[world as usize].behaviour.remaining = left;
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

    /// Something came that a vCPU waits for: it sees it now if it runs in the guest, else when it
    /// does; one that is halted is woken by `waker`, which runs on `here`.
    fn rouse(&mut self, world: u32, here: u32, waker: u32) {
        match self.kernel.seats[world as usize] {
            Seat::Running(pcpu) => {
                self.account(pcpu);
                if self.vcpu(world).handling.is_none() {
                    self.set_spin_left(world);
                    self.arm_done(pcpu);
                }
            }
            Seat::Asleep => self.wake_by(world, here, waker, 0),
            _ => {}
        }
    }

    /// The CPU time of a vCPU's present piece of work, of spinning or of an interrupt is over: what
    /// it does next.
    pub(crate) fn sibling_done(&mut self, pcpu: u32, world: u32) -> Next {
        if self.vcpu(world).handling.is_some() {
            return self.handled(pcpu, world);
        }
        let open = self.actors[world as usize].behaviour.open;
        match self.phase(world) {
            Phase::Apart => self.next_piece(world),
            Phase::Work => self.meets(pcpu, world),
            Phase::Spin => self.spins_on(world),
            Phase::Hold => {
                self.release(world, pcpu);
                self.vcpu(world).phase = if open { Phase::Work } else { Phase::Apart };
                self.next_piece(world)
            }
            Phase::Halted => {
                self.vcpu(world).phase = Phase::Work;
                self.next_piece(world)
            }
        }
    }

    fn next_piece(&mut self, world: u32) -> Next {
        self.actors[world as usize].behaviour.done(self.kernel.now)
    }

    /// A vCPU has done its work, and comes to where it may have to wait.
    fn meets(&mut self, pcpu: u32, world: u32) -> Next {
        match self.workload(world) {
            Workload::Spinlock { hold, .. } if self.shared(world).lock.ask(world) => {
                self.holds(world, hold.ns())
            }
            Workload::Barrier { .. } if self.shared(world).barrier.arrive() => {
                // Its own next piece comes first: waking others takes time from it.
                let next = self.next_piece(world);
                self.let_all_go(world, pcpu);
                next
            }
            Workload::Ipi { handle, .. } => match self.next_sibling(world) {
                Some(to) => {
                    let next = self.waits(world);
                    self.send(to, Ipi { from: world, handle: handle.ns() }, pcpu);
                    next
                }
                None => self.next_piece(world),
            },
            _ => self.waits(world),
        }
    }

    fn waits(&mut self, world: u32) -> Next {
        let (now, spun) = (self.kernel.now, self.actors[world as usize].spun);
        self.vcpu(world).wait(now, spun);
        self.set_spins(world);
        self.set_spin_left(world);
        Next::Work
    }

    fn holds(&mut self, world: u32, hold: u64) -> Next {
        self.vcpu(world).phase = Phase::Hold;
        self.set_spins(world);
        self.actors[world as usize].behaviour.remaining = hold;
        Next::Work
    }

    /// One that spins looks whether it may go on, halts, or spins on.
    fn spins_on(&mut self, world: u32) -> Next {
        let (vm, now) = (self.actors[world as usize].vm as usize, self.kernel.now);
        let (spun, limit) = (self.actors[world as usize].spun, self.spin_limit(world));
        if let Some(v) = &mut self.actors[world as usize].sibling {
            self.guests[vm].seen_spinning(v, now);
        }
        match self.workload(world) {
            Workload::Spinlock { hold, .. } if self.shared(world).lock.look(world) => {
                return self.holds(world, hold.ns());
            }
            _ if self.vcpu(world).due => {
                self.vcpu(world).phase = Phase::Work;
                self.set_spins(world);
                return self.next_piece(world);
            }
            _ => {}
        }
        if self.vcpu(world).burned(spun) >= limit {
            self.vcpu(world).phase = Phase::Halted;
            self.set_spins(world);
            self.actors[world as usize].behaviour.remaining = 0;
            return Next::Halt;
        }
        if self.vcpu(world).exits(spun) {
            if let Some(target) = self.waited_for(world) {
                self.pause_loop_exit(world, target);
            }
        }
        self.set_spin_left(world);
        Next::Work
    }

    /// Whom one that spins waits for: the lock's holder, somebody that the barrier misses (best one
    /// that does not run), the sibling that it sent an interrupt.
    fn waited_for(&mut self, world: u32) -> Option<u32> {
        match self.workload(world) {
            Workload::Spinlock { .. } => Some(self.shared(world).lock.holder).filter(|h| *h != 0),
            Workload::Barrier { .. } => {
                let missing =
                    || self.barrier_members(world).filter(|w| self.phase(*w) == Phase::Work);
                let runs = |w: &u32| matches!(self.kernel.seats[*w as usize], Seat::Running(_));
                missing().find(|w| !runs(w)).or_else(|| missing().next())
            }
            _ => self.next_sibling(world),
        }
    }

    fn barrier_members(&self, world: u32) -> impl Iterator<Item = u32> + '_ {
        let all = self.vms[self.actors[world as usize].vm as usize].worlds.clone();
        all.filter(|w| matches!(self.workload(*w), Workload::Barrier { .. }))
    }

    /// The lock is released, to one that spins on a pCPU now, to the one whose turn it is, or to
    /// whoever runs next.
    fn release(&mut self, world: u32, pcpu: u32) {
        let (kernel, actors) = (&self.kernel, &self.actors);
        let in_guest = |w: u32| match kernel.seats[w as usize] {
            Seat::Running(p) => {
                actors[w as usize].spins && kernel.cpus[p as usize].work_from <= kernel.now
            }
            _ => false,
        };
        let guest = &mut self.guests[actors[world as usize].vm as usize];
        guest.rounds += 1;
        if let Some(next) = guest.lock.release(in_guest) {
            return self.rouse(next, pcpu, world);
        }
        // Nobody spins in the guest, but some may be about to: they look when they are there.
        let running = |w: &u32| matches!(kernel.seats[*w as usize], Seat::Running(_));
        let soon: Vec<u32> = guest.lock.waiters().filter(running).collect();
        soon.into_iter().for_each(|w| self.rouse(w, pcpu, world));
    }

    /// The last has come to the barrier, on `pcpu`: all others go on.
    fn let_all_go(&mut self, last: u32, pcpu: u32) {
        self.shared(last).rounds += 1;
        let others: Vec<u32> = self.barrier_members(last).filter(|w| *w != last).collect();
        for world in others {
            if matches!(self.phase(world), Phase::Spin | Phase::Halted) {
                self.vcpu(world).due = true;
                self.rouse(world, pcpu, last);
            }
        }
    }

    /// The vCPU after it, the first after the last; none in a VM of one.
    fn next_sibling(&self, world: u32) -> Option<u32> {
        let all = &self.vms[self.actors[world as usize].vm as usize].worlds;
        let next = if world + 1 == all.end { all.start } else { world + 1 };
        Some(next).filter(|n| *n != world)
    }

    /// An interrupt for a vCPU, from one that runs on `pcpu`: it is handled at once if it runs,
    /// else when it does; a halted one is woken.
    fn send(&mut self, to: u32, ipi: Ipi, pcpu: u32) {
        let seat = self.kernel.seats[to as usize];
        let found = if seat == Seat::Asleep {
            Found::Asleep(self.clock.sleeps_until(to))
        } else {
            Found::Awake
        };
        self.vcpu(to).pending = Some((ipi, found));
        match seat {
            Seat::Running(there) => {
                self.account(there);
                self.handle(to);
                self.arm_done(there);
            }
            Seat::Asleep => self.wake_by(to, pcpu, ipi.from, 0),
            _ => {}
        }
    }

    /// A vCPU begins to handle the interrupt that is pending.
    fn handle(&mut self, world: u32) {
        let left = self.actors[world as usize].behaviour.remaining;
        let v = self.vcpu(world);
        let Some((ipi, found)) = v.pending.take() else { return };
        v.handling = Some(Handling { from: ipi.from, found, left });
        self.actors[world as usize].behaviour.remaining = ipi.handle;
        self.set_spins(world);
    }

    /// An interrupt has been handled: its sender goes on, and so does what it interrupted.
    fn handled(&mut self, pcpu: u32, world: u32) -> Next {
        let v = self.vcpu(world);
        let came = v.phase == Phase::Halted && v.due;
        let Some(Handling { from, found, left }) = v.handling.take() else { return Next::Work };
        let next = match found {
            Found::Asleep(Some(until)) if until > self.kernel.now => Next::Sleep(until),
            Found::Asleep(None) if !came => Next::Halt,
            // If it slept, its timer fired or the barrier opened while it handled this.
            _ => Next::Work,
        };
        self.actors[world as usize].behaviour.remaining = left;
        self.set_spins(world);
        self.set_spin_left(world);
        self.shared(world).rounds += 1;
        self.vcpu(from).due = true;
        self.rouse(from, pcpu, world);
        next
    }
}
