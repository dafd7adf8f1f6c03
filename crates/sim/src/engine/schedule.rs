//! What the kernel does on a wake-up, a tick, a reschedule and a block, in the order of
//! kernel/sched/ext.c; it calls the scheduler and decides nothing itself.
//!
//! Order, as in Linux 6.12 and later:
//! - wake-up: select (skipped for a task with one pCPU), runnable, enqueue (unless select
//!   inserted), reschedule of the chosen pCPU if it is idle;
//! - block: stopping, quiescent, then dispatch with no previous task;
//! - reschedule: a running task with slice left goes on; else dispatch, if the local queue is
//!   empty; then stopping of the old task, its re-queueing, idle, running of the new one.

use super::Engine;
use crate::behaviour::{ENDLESS, Next};
use crate::cast::Deed;
use crate::delays::Timer;
use crate::guest::{Found, Ipi};
use crate::kernel::{Context, Seat};
use check::State;
use contract::{ENQUEUE_WAKEUP, Hold, Rule, SLICE_DEFAULT_NS, SLICE_ENDLESS, Scheduler, WAKE_SYNC};

/// How often the kernel calls dispatch again while it only fed other pCPUs (SCX_DSP_MAX_LOOPS).
const DISPATCH_LOOPS: u32 = 32;

impl<P: Scheduler> Engine<P> {
    /// A sleep ends as its workload wanted: what passes until it runs is the latency of the
    /// wake-up. A vCPU is READY when the path from its timer is over.
    pub(super) fn timer_wakes(&mut self, world: u32) {
        if self.kernel.seat(world) != Seat::Asleep {
            return;
        }
        let now = self.kernel.now();
        let vcpu = self.cast.is_vcpu(world);
        let timer = if vcpu { self.delays.timer(world, now) } else { Timer::Ready(now) };
        match timer {
            Timer::Later(ready) => self.clock.arm_sleep(world, ready),
            Timer::Ready(fired) => {
                self.cast.is_due(world, fired);
                self.wake(world);
            }
        }
    }

    /// A sleep ends, by a timer on the pCPU where the world ran last.
    pub(super) fn wake(&mut self, world: u32) {
        let last = self.tasks[world as usize].pcpu as u32;
        let online = self.kernel.is_online(last);
        let here = if online { last } else { self.kernel.fallback(&self.tasks[world as usize]) };
        self.wake_by(world, here, 0, 0);
    }

    /// A sleep ends: on pCPU `here` an interrupt wakes the world, or another world, `waker`, that
    /// runs there; `flags` are those of select.
    pub(super) fn wake_by(&mut self, world: u32, here: u32, waker: u32, flags: u32) {
        if self.kernel.seat(world) != Seat::Asleep {
            return;
        }
        self.steal(here, self.costs.wake_ns);
        self.wake_from(world, here, waker, flags);
    }

    /// A world that runs on pCPU `here` hands over to another, and is about to sleep. A host task
    /// has written to a pipe: its reader is woken synchronously. A vCPU has rung another VM's
    /// doorbell, which knows nothing of that. What ringing takes is part of the writer's work.
    fn pass(&mut self, writer: u32, here: u32, reader: u32) {
        if self.kernel.seat(reader) == Seat::Asleep {
            self.cast.is_due(reader, self.kernel.now());
            let flags = if self.cast.is_vcpu(writer) { 0 } else { WAKE_SYNC };
            self.wake_from(reader, here, writer, flags);
        }
    }

    fn wake_from(&mut self, world: u32, here: u32, waker: u32, flags: u32) {
        self.stats.wakeups += 1;
        self.cause = (Some(here), waker);
        let (by, of) = (self.cast.vm_of(waker), self.cast.vm_of(world));
        if let Some(numa) = self.numa.as_mut().filter(|_| by != 0 && of != 0 && by != of) {
            numa.talk(by, of);
        }
        let target = self.select(world, self.tasks[world as usize].pcpu as u32, flags);
        self.tasks[world as usize].pcpu = target as i32;
        self.kernel.move_to(world, Seat::Custody);
        self.cast.readies(world, self.kernel.now());
        self.call(|p, k| p.runnable(k, world));
        self.books.woken(self.kernel.now(), world);
        match self.kernel.take_direct() {
            Some((to, slice)) => {
                // The insertion that select asked for takes the place of enqueue.
                self.kernel.put(&mut self.tasks, world, to, slice);
            }
            None => self.enqueue(world, ENQUEUE_WAKEUP),
        }
        self.settle(here);
        if self.kernel.current(target) == 0 {
            self.kernel.reschedule(target);
            self.settle(here);
        }
    }

    /// Asks the scheduler for a pCPU; the kernel's own choice where it may not say or says it
    /// wrongly.
    fn select(&mut self, world: u32, prev: u32, flags: u32) -> u32 {
        let task = &self.tasks[world as usize];
        if task.allowed_count <= 1 || task.migration_disabled != 0 {
            return if task.may_run(prev) { prev } else { self.kernel.fallback(task) };
        }
        let chosen = self.call_from(Context::Select(world), |p, k| p.select(k, world, prev, flags));
        let n = self.kernel.pcpus();
        if chosen < 0 || chosen as u32 >= n {
            let what = format!("seen {chosen} from select, allowed 0..{}", n - 1);
            self.kernel.breach(Rule::UnknownPcpu, Some(world), None, what);
            return prev;
        }
        let task = &self.tasks[world as usize];
        if task.may_run(chosen as u32) && self.kernel.is_online(chosen as u32) {
            return chosen as u32;
        }
        self.stats.fallbacks += 1;
        self.kernel.fallback(task)
    }

    pub(super) fn enqueue(&mut self, world: u32, flags: u32) {
        self.call_from(Context::Enqueue(world), |p, k| p.enqueue(k, world, flags));
        if self.kernel.seat(world) == Seat::Custody {
            let what = "seen in no queue after enqueue, allowed exactly one".to_owned();
            self.kernel.breach(Rule::Custody, Some(world), None, what);
        }
    }

    /// Takes time from the work of whatever runs on a pCPU.
    pub(super) fn steal(&mut self, pcpu: u32, ns: u64) {
        if self.kernel.current(pcpu) == 0 || ns == 0 {
            return;
        }
        self.account(pcpu);
        self.kernel.delay(pcpu, ns);
        self.arm_done(pcpu);
    }

    /// Brings the slice and the work of the running world up to now.
    pub(super) fn account(&mut self, pcpu: u32) {
        let Some(past) = self.kernel.elapse(pcpu) else { return };
        match &mut self.hardware {
            None => _ = self.cast.works(past.world, past.worked_ns),
            Some(_) => self.work_on(pcpu, &past),
        }
        let task = &mut self.tasks[past.world as usize];
        if task.slice_ns != SLICE_ENDLESS {
            task.slice_ns = task.slice_ns.saturating_sub(past.ran_ns);
        }
    }

    /// Arms the timer of the end of the present piece of work.
    pub(super) fn arm_done(&mut self, pcpu: u32) {
        match self.cast.remaining(self.kernel.current(pcpu)) {
            ENDLESS => self.clock.disarm_done(pcpu),
            left => {
                let time = self.time_for(pcpu, left);
                self.clock.arm_done(pcpu, self.kernel.work_goes_on(pcpu) + time);
            }
        }
    }

    pub(super) fn on_tick(&mut self, pcpu: u32) {
        self.account(pcpu);
        let current = self.kernel.current(pcpu);
        self.tick(pcpu, current);
        if self.tasks[current as usize].slice_ns == 0 {
            self.pick(pcpu, current, 0);
        }
    }

    /// The scheduler sees a tick; most do nothing.
    fn tick(&mut self, pcpu: u32, current: u32) {
        let calls = self.stats.calls;
        self.call(|p, k| p.tick(k, current));
        self.stats.calls = calls;
        self.settle(pcpu);
    }

    /// A reschedule interrupt.
    pub(super) fn resched(&mut self, pcpu: u32) {
        if !self.kernel.is_online(pcpu) {
            return self.evacuate(pcpu);
        }
        if self.kernel.is_taken(pcpu) {
            return;
        }
        self.account(pcpu);
        self.pick(pcpu, self.kernel.current(pcpu), 0);
    }

    /// The running world has done its piece of work: it goes on, sleeps, or exits.
    pub(super) fn piece_done(&mut self, pcpu: u32) {
        self.account(pcpu);
        let world = self.kernel.current(pcpu);
        if self.cast.remaining(world) > 0 && self.hardware.is_some() {
            // Its speed has changed in the same ns, or the last ns was not full.
            return self.arm_done(pcpu);
        }
        let outside = self.cast.is_outside(world);
        let (next, deed) = self.cast.piece_done(world, &self.kernel);
        self.carry_out(deed, world, pcpu);
        if self.cast.is_outside(world) != outside {
            self.cross(pcpu, world, outside);
        }
        match next {
            Next::Work => return self.arm_done(pcpu),
            Next::Sleep(until) => self.clock.arm_sleep(world, until),
            Next::Halt => {}
            Next::Pass(to) => self.pass(world, pcpu, to),
        }
        self.kernel.switch_off(pcpu);
        self.kernel.move_to(world, Seat::Asleep);
        let (vcpu, waits) = (self.cast.is_vcpu(world), self.cast.waits(world));
        self.tasks[world as usize].waits = u32::from(waits);
        self.stop(pcpu, world, false);
        self.call(|p, k| p.quiescent(k, world, true));
        let asleep = if vcpu && !waits { State::WaitIdle } else { State::Wait };
        self.books.enter(self.kernel.now(), world, asleep);
        self.settle(pcpu);
        let leaves = self.cast.is_leaving(world);
        if leaves {
            self.exit(world);
        }
        self.pick(pcpu, 0, if leaves { 0 } else { world });
    }

    /// The running vCPU enters its guest, or leaves it for its emulator.
    fn cross(&mut self, pcpu: u32, world: u32, inside: bool) {
        self.cause = (Some(pcpu), 0);
        self.call(|p, k| p.guest(k, world, inside));
        self.books.guest(self.kernel.now(), world, inside);
        self.settle(pcpu);
    }

    fn stop(&mut self, pcpu: u32, world: u32, runnable: bool) {
        self.call(|p, k| p.stopping(k, world, runnable));
        self.books.stops(self.kernel.now(), world, pcpu, &self.policy);
    }

    /// Chooses what a pCPU runs next; `prev` still wants to run, 0 for none. `slept` has just gone
    /// to sleep there: sched_ext names it to ops.dispatch all the same.
    pub(super) fn pick(&mut self, pcpu: u32, prev: u32, slept: u32) {
        self.cause = (Some(pcpu), 0);
        self.awakes(pcpu);
        let next = self.balance(pcpu, prev, slept);
        if next != 0 && next == prev {
            return self.settle(pcpu);
        }
        if prev != 0 {
            self.put_prev(pcpu, prev);
        }
        if next == 0 {
            self.kernel.switch_off(pcpu);
            self.clock.disarm_done(pcpu);
            self.occupied(pcpu);
            if self.kernel.turns_idle(pcpu, true) {
                self.tell_idle(pcpu, true);
            }
        } else {
            if self.kernel.turns_idle(pcpu, false) {
                self.tell_idle(pcpu, false);
            }
            self.run_on(pcpu, next);
        }
        self.settle(pcpu);
    }

    pub(super) fn tell_idle(&mut self, pcpu: u32, idle: bool) {
        self.kernel.set_idle(pcpu, idle);
        self.books.idle(self.kernel.now(), pcpu, idle);
        self.call(|p, k| p.idle(k, pcpu, idle));
    }

    /// The kernel's balance_one: what comes next, 0 for nothing; `prev` is called before it stops.
    fn balance(&mut self, pcpu: u32, prev: u32, slept: u32) -> u32 {
        let keeps = |e: &Self| prev != 0 && e.tasks[prev as usize].slice_ns > 0;
        if keeps(self) {
            return prev;
        }
        for _ in 0..DISPATCH_LOOPS {
            if self.kernel.first_local(pcpu).is_some() {
                break;
            }
            self.kernel.reset_inserted();
            if prev != 0 {
                self.books.expired(prev);
            }
            // One of both is 0.
            self.call_from(Context::Dispatch(pcpu), |p, k| p.dispatch(k, pcpu, prev.max(slept)));
            if keeps(self) {
                return prev;
            }
            if self.kernel.inserted() == 0 {
                break;
            }
        }
        match self.kernel.first_local(pcpu) {
            Some(world) => world,
            // The last is handed to enqueue only where the scheduler wants that.
            None if prev != 0 && !self.policy.enqueues_last() => {
                self.default_slice(prev);
                prev
            }
            None => 0,
        }
    }

    fn default_slice(&mut self, world: u32) {
        self.stats.default_slices += 1;
        self.tasks[world as usize].slice_ns = SLICE_DEFAULT_NS;
    }

    /// A world that still wants to run stops.
    pub(super) fn preempt(&mut self, pcpu: u32, prev: u32) {
        self.kernel.move_to(prev, Seat::Custody);
        self.cast.readies(prev, self.kernel.now());
        self.stop(pcpu, prev, true);
        let costops = self.kernel.hold_of(prev) == Hold::Costopped;
        let state = if costops { State::Costop } else { State::Ready };
        self.books.enter(self.kernel.now(), prev, state);
    }

    /// A world that still wants to run leaves its pCPU.
    pub(super) fn put_prev(&mut self, pcpu: u32, prev: u32) {
        self.preempt(pcpu, prev);
        if self.tasks[prev as usize].slice_ns > 0 {
            self.kernel.put_back(prev, pcpu);
        } else {
            self.enqueue(prev, 0);
        }
    }

    /// A world from the local queue starts to run.
    fn run_on(&mut self, pcpu: u32, world: u32) {
        let now = self.kernel.now();
        self.kernel.switch_to(pcpu, world, self.costs.switch_ns);
        self.occupied(pcpu);
        if self.tasks[world as usize].slice_ns == 0 {
            self.default_slice(world);
        }
        self.stats.switches += 1;
        self.cast.is_picked(world, now);
        self.call(|p, k| p.running(k, world));
        self.hear();
        self.kernel.unhold(world);
        self.books.runs(now, world, pcpu);
        if self.cast.is_sibling(world) {
            self.cast.sibling_runs(world, now);
        } else if self.cast.is_tasked(world) {
            self.cast.tasks_run(world, now);
        }
        self.arm_done(pcpu);
    }

    /// Does to the siblings of a vCPU, which runs on `pcpu`, what it has done to them.
    fn carry_out(&mut self, deed: Deed, world: u32, pcpu: u32) {
        match deed {
            Deed::Nothing => {}
            Deed::Rouse(one) => self.rouse(one, pcpu, world),
            Deed::RouseAll(all) => all.into_iter().for_each(|w| self.rouse(w, pcpu, world)),
            Deed::Interrupt(to, ipi) => self.interrupt(to, ipi, pcpu),
            Deed::PauseLoopExit(target) => self.pause_loop_exit(world, target),
            Deed::Reschedule(all) => {
                all.into_iter().for_each(|t| self.reschedule_guest(t, pcpu, world))
            }
        }
    }

    /// Something came that a vCPU waits for: it sees it now if it runs in the guest, else when it
    /// does; one that is halted is woken by `waker`, which runs on `here`.
    fn rouse(&mut self, world: u32, here: u32, waker: u32) {
        match self.kernel.seat(world) {
            Seat::Running(pcpu) => {
                self.account(pcpu);
                if self.cast.sees(world, self.kernel.now()) {
                    self.arm_done(pcpu);
                }
            }
            Seat::Asleep => self.wake_by(world, here, waker, 0),
            _ => {}
        }
    }

    /// An interrupt for a vCPU, from one that runs on `pcpu`: it is handled at once if it runs,
    /// else when it does; a halted one is woken.
    fn interrupt(&mut self, to: u32, ipi: Ipi, pcpu: u32) {
        let seat = self.kernel.seat(to);
        let found = if seat == Seat::Asleep {
            Found::Asleep(self.clock.sleeps_until(to))
        } else {
            Found::Awake
        };
        self.cast.is_interrupted(to, ipi, found);
        match seat {
            Seat::Running(there) => {
                self.account(there);
                self.cast.handles(to);
                self.arm_done(there);
            }
            Seat::Asleep => self.wake_by(to, pcpu, ipi.from, 0),
            _ => {}
        }
    }

    /// The hardware has taken a vCPU out of its guest because it spins; it waits for `target`,
    /// which may run, be READY or be halted. KVM yields to it then. It costs the guest nothing
    /// here.
    fn pause_loop_exit(&mut self, spinner: u32, target: u32) {
        self.stats.pause_loop_exits += 1;
        let (Seat::Running(pcpu), Seat::Queue(_)) =
            (self.kernel.seat(spinner), self.kernel.seat(target))
        else {
            return;
        };
        if self.call(|p, k| p.yield_to(k, spinner, target)) {
            self.stats.yields += 1;
            self.tasks[spinner as usize].slice_ns = 0;
            self.kernel.reschedule(pcpu);
            self.settle(pcpu);
        }
    }
}
