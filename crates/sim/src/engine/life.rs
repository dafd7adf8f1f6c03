//! Life of VMs and worlds: power on and off, windows of activity; the plans that follow are made in
//! `plans`.
//!
//! A VM that starts gets its own weight at once, since its threads are bound to it only when it is
//! known; the weights of the others follow with the plan, `Costs::plan_ns` later. A VM that stops
//! is killed: each of its worlds runs once more, to exit.

use super::Engine;
use crate::agenda::What;
use crate::behaviour::Next;
use crate::clock::Fixed;
use crate::kernel::{Context, Seat};
use crate::numa::Numa;
use crate::planner::vm_terms;
use check::State;
use contract::{Scheduler, WorldTerms};
use units::PcpuSet;

impl<P: Scheduler> Engine<P> {
    /// Starts the run: every pCPU idle, host tasks there, VMs of time 0 powered on.
    pub(super) fn boot(&mut self) {
        self.call_from(Context::Timer, |p, k| p.init(k));
        for pcpu in 0..self.kernel.pcpus() {
            self.kernel.turns_idle(pcpu, true);
            self.tell_idle(pcpu, true);
        }
        self.kernel.clear_nudges();
        self.books.pools(0, self.planner.pool_terms());
        self.books.vm_added(0, 0, "system", vm_terms(self.cast.vm(0)));
        let on: Vec<u32> = self.agenda.on_at_start().collect();
        on.into_iter().for_each(|vm| self.cast.power(vm, true));
        (0..self.cast.vms().len() as u32).for_each(|vm| self.weigh(vm));
        self.put_limits();
        let homes = self.numa.as_ref().is_some_and(Numa::holds);
        let held = self.cast.any_restricted() || homes;
        let ordered = self.call(|p, k| p.ordered(k, held));
        self.planner.take_orders(ordered);
        self.publish();
        let tasks = self.cast.vm(0).worlds.clone();
        tasks.clone().for_each(|w| self.start_world(w));
        tasks.for_each(|w| self.open_world(w));
        self.change();
    }

    /// Carries out the changes that are due and waits for the next.
    pub(super) fn change(&mut self) {
        while let Some(change) = self.agenda.peek() {
            if change.at > self.kernel.now() {
                return self.clock.arm(Fixed::Change, change.at);
            }
            self.agenda.advance();
            let worlds = self.cast.vm(change.vm).worlds.clone();
            match change.what {
                What::Start => self.start_vm(change.vm),
                What::Stop => self.stop_vm(change.vm),
                What::Offline(pcpu) => self.hotplug(u32::from(pcpu), false),
                What::Online(pcpu) => self.hotplug(u32::from(pcpu), true),
                What::Set(i) => {
                    self.set(i);
                    // Those of one moment come into force together.
                    let next = self.agenda.peek();
                    if !next.is_some_and(|n| n.at == change.at && matches!(n.what, What::Set(_))) {
                        self.put_limits();
                        self.plan_later();
                    }
                }
                What::Add(vcpu) => self.add_vcpu(change.vm, vcpu),
                What::Open => worlds.for_each(|w| self.open_world(w)),
                What::Close => worlds.for_each(|w| self.end_world(w, false)),
            }
        }
    }

    fn start_vm(&mut self, vm: u32) {
        let now = self.kernel.now();
        self.cast.power(vm, true);
        let of = self.cast.vm(vm);
        self.books.vm_added(now, vm, &of.name, vm_terms(of));
        if now > 0 {
            self.weigh(vm);
            self.plan_later();
        }
        self.numa_starts(vm);
        self.cast.vm(vm).first_worlds().for_each(|w| self.start_world(w));
    }

    /// A vCPU comes to a VM under way, and does what its siblings do.
    fn add_vcpu(&mut self, vm: u32, vcpu: u32) {
        let of = self.cast.vm(vm);
        if !of.is_on() {
            return;
        }
        let (first, world) = (of.worlds.start, of.worlds.start + vcpu);
        self.start_world(world);
        if self.cast.is_open(first) {
            self.open_world(world);
        }
    }

    fn stop_vm(&mut self, vm: u32) {
        self.cast.power(vm, false);
        self.plan_later();
        self.cast.vm(vm).worlds.clone().for_each(|w| self.end_world(w, true));
        self.numa_stops(vm);
    }

    /// A world comes to life, asleep, on one of its pCPUs.
    fn start_world(&mut self, world: u32) {
        let n = self.kernel.pcpus() as usize;
        let spec = self.cast.spec(world);
        let (vm, vcpu) = (self.cast.vm_of(world), self.cast.is_vcpu(world));
        let host = PcpuSet::first(n);
        let allowed = spec.allowed.as_ref().map_or_else(|| host.clone(), |a| a.and(&host));
        let count = allowed.len();
        let first = allowed.iter().nth(world as usize % count.max(1)).map_or(0, |p| p.0);
        let task = &mut self.tasks[world as usize];
        task.allowed.copy_from_slice(allowed.words());
        task.allowed_count = count as u32;
        task.pcpu = i32::from(first as i16);
        let terms = WorldTerms {
            vm,
            vcpu: vcpu.then_some(spec.index),
            index: spec.index,
            per_cpu_kthread: spec.kthread,
            nice: spec.nice,
        };
        self.kernel.move_to(world, Seat::Asleep);
        let asleep = if vcpu { State::WaitIdle } else { State::Wait };
        self.books.born(self.kernel.now(), world, vm, spec.allowed.clone(), asleep);
        self.cast.starts(world);
        self.call(|p, k| p.world_start(k, world, &terms));
        self.put_home(world);
    }

    /// A world's window opens.
    fn open_world(&mut self, world: u32) {
        if !self.kernel.is_there(world) || !self.cast.can_begin(world) {
            return;
        }
        let next = self.begin(world);
        match (next, self.kernel.seat(world)) {
            (Next::Sleep(until), Seat::Asleep) => self.clock.arm_sleep(world, until),
            (Next::Work, Seat::Asleep) => self.wake(world),
            // It has not even noticed that its last window closed: it goes on with the new piece.
            (_, Seat::Running(pcpu)) => self.arm_done(pcpu),
            _ => {}
        }
    }

    fn begin(&mut self, world: u32) -> Next {
        let sibling = self.cast.is_sibling(world);
        if let (true, Seat::Running(pcpu)) = (sibling, self.kernel.seat(world)) {
            self.account(pcpu);
        }
        self.cast.begins(world, self.kernel.now())
    }

    /// A world's window closes, or it is powered off (`leaves`): what it does is cut short.
    fn end_world(&mut self, world: u32, leaves: bool) {
        let seat = self.kernel.seat(world);
        if seat == Seat::Off {
            return; // not there yet, or gone
        }
        if let Seat::Running(pcpu) = seat {
            self.account(pcpu);
        }
        self.cast.ends(world, leaves);
        self.delays.taken_back(world);
        if self.cast.is_sibling(world) {
            // An interrupt may have woken it before its time.
            self.clock.disarm_sleep(world);
        }
        match seat {
            Seat::Running(pcpu) => self.arm_done(pcpu),
            Seat::Asleep => {
                self.clock.disarm_sleep(world);
                // One that waits and is not halted notices that its window closes; else it would be
                // reported as waiting until the next.
                if self.cast.is_leaving(world) || self.tasks[world as usize].waits != 0 {
                    self.wake(world);
                }
            }
            _ => {}
        }
    }

    /// A world has run to its end.
    pub(super) fn exit(&mut self, world: u32) {
        let (now, vm) = (self.kernel.now(), self.cast.vm_of(world));
        self.kernel.move_to(world, Seat::Off);
        self.books.exit(now, (world, vm), self.cast.output(world), &self.policy);
        self.call(|p, k| p.world_exit(k, world));
        if self.cast.exits(world) {
            self.books.vm_removed(now, vm);
        }
    }
}
