//! The engine: one run of one host, event by event in virtual time; integers only, one seed, no
//! wall clock.
//!
//! It owns the rooms and wires them: each has its fields to itself, and knows no other but by what
//! the engine passes on. What comes next is the `Clock`'s; what an event does is in `schedule` and
//! `life`. The scheduler is any of the contract, called through `call` alone.

mod audit;
mod build;
mod guests;
mod hardware;
mod hotplug;
mod life;
mod looks;
mod numa;
mod plans;
mod realtime;
mod report;
mod schedule;

pub use hardware::profile;

pub(crate) use build::Terms;
pub(crate) use looks::Looks;
pub use looks::{EPOCH_UNIX_S, OnLook};

use crate::agenda::Agenda;
use crate::books::Books;
use crate::cast::Cast;
use crate::clock::{Clock, Event, Fixed};
use crate::delays::Delays;
use crate::kernel::{Context, Kernel, Nudge};
use crate::numa::Numa;
use crate::options::Costs;
use crate::planner::Planner;
use crate::realtime::Realtime;
use crate::recorder::Recorder;
use ::hardware::Hardware;
use check::Verdict;
use contract::{Breach, Callback, Feature, KICK_IDLE, KICK_PREEMPT, Scheduler, Task};
use report::Snapshot;
use settings::Run;

/// Counts of a run, for speed and for what a scheduler should not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events: timers that fired and ticks of busy pCPUs.
    pub events: u64,
    /// Calls of the scheduler.
    pub calls: u64,
    /// Times a pCPU took up another world.
    pub switches: u64,
    /// Wake-ups.
    pub wakeups: u64,
    /// Times the kernel had to give its own default slice of 20 ms, because the scheduler gave
    /// none.
    pub default_slices: u64,
    /// Times select named a pCPU where the world may not run, and the kernel chose another.
    pub fallbacks: u64,
    /// Times the hardware took a vCPU out of its guest because it spun.
    pub pause_loop_exits: u64,
    /// Of these, times when the spinning vCPU yielded to one that was READY.
    pub yields: u64,
}

/// One run of one host.
pub(crate) struct Engine<P> {
    policy: P,
    kernel: Kernel,
    /// The threads, by world.
    tasks: Vec<Task>,
    clock: Clock,
    /// pCPU that the next callback runs on, and the world that causes it, 0 for an interrupt.
    cause: (Option<u32>, u32),
    books: Books,
    cast: Cast,
    agenda: Agenda,
    planner: Planner,
    realtime: Realtime,
    /// None where a pCPU is a pCPU.
    hardware: Option<Hardware>,
    /// None where memory is near everywhere.
    numa: Option<Numa>,
    stats: Stats,
    costs: Costs,
    delays: Delays,
    /// Kicks and reschedule interrupts from other pCPUs do not arrive (`Mutant::LostKick`).
    deaf: bool,
    /// All accounts at the end of the warm-up.
    start: Option<Snapshot>,
    /// The run is looked at while it goes on.
    looks: Option<Looks>,
}

/// The kernel's watchdog looks at half its limit; looking each second names the world sooner.
const AUDIT_NS: u64 = 1_000_000_000;

impl<P: Scheduler> Engine<P> {
    /// The accounts of the run are shown while it goes on.
    pub(crate) fn look_by(&mut self, looks: Option<Looks>) {
        self.looks = looks;
    }

    /// Records from now on; the first events are the names of everything that the run has.
    pub(crate) fn record(&mut self, run: &Run, mut recorder: Recorder) {
        for event in self.cast.names(run, self.planner.pools()) {
            recorder.push(&event);
        }
        self.kernel.record_by(recorder);
        self.policy.record(true);
        if !self.policy.features().contains(&Feature::Traces) {
            self.books.keep_chronicle();
        }
    }

    /// Starts the run and does it to the end; what comes before `warmup_ns` does not count.
    pub(crate) fn run(&mut self, warmup_ns: u64) -> Result<(), Breach> {
        let done = self.boot_and_run(warmup_ns);
        if let Err(breach) = &done {
            self.kernel.mark(|| breach.to_string());
        }
        done
    }

    /// The trace, which ends here.
    pub(crate) fn take_recorder(&mut self) -> Option<Recorder> {
        self.kernel.take_recorder()
    }

    /// What the oracle found, if there is one, in a run of so long.
    pub(crate) fn verdict(&mut self, duration_ns: u64) -> Option<Verdict> {
        self.books.finish(duration_ns)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    fn boot_and_run(&mut self, warmup_ns: u64) -> Result<(), Breach> {
        self.boot();
        if let Some(breach) = self.kernel.take_breach() {
            return Err(breach);
        }
        if warmup_ns > 0 {
            self.clock.arm(Fixed::Warm, warmup_ns);
        }
        self.call_from(Context::Timer, |p, k| p.enable(k));
        self.settle(u32::MAX);
        self.clock.arm(Fixed::Audit, AUDIT_NS);
        if self.planner.gives_orders() {
            self.clock.arm(Fixed::Replan, entitlement::REPLAN.ns());
        }
        self.await_realtime();
        self.await_numa();
        self.look_at_taken();
        self.look();
        while let Some((time, event)) = self.clock.next() {
            if let Event::Tick(pcpu) = event {
                if self.kernel.current(pcpu) == 0 {
                    continue;
                }
            }
            self.stats.events += 1;
            self.kernel.advance(time);
            self.fire(event);
            self.write_chronicle();
            if let Some(breach) = self.kernel.take_breach() {
                return Err(breach);
            }
        }
        self.kernel.advance(self.clock.end());
        self.kernel.mark(|| "the run ends".to_owned());
        self.look();
        self.audit();
        self.kernel.take_breach().map_or(Ok(()), Err)
    }

    /// Writes what the engine's books have for the trace.
    #[inline]
    fn write_chronicle(&mut self) {
        if let Some(chronicle) = self.books.chronicle() {
            chronicle.take().for_each(|event| self.kernel.record(&event));
        }
    }

    /// Calls the scheduler.
    fn call<R>(&mut self, f: impl FnOnce(&mut P, &mut Callback<'_>) -> R) -> R {
        self.stats.calls += 1;
        let now_ns = self.kernel.now();
        let (here, waker) = self.cause;
        let mut k =
            Callback { kernel: &mut self.kernel, tasks: &mut self.tasks, now_ns, here, waker };
        f(&mut self.policy, &mut k)
    }

    /// Calls a callback that may insert or move worlds.
    fn call_from<R>(
        &mut self,
        context: Context,
        f: impl FnOnce(&mut P, &mut Callback<'_>) -> R,
    ) -> R {
        self.kernel.set_context(context);
        let result = self.call(f);
        self.kernel.set_context(Context::None);
        result
    }

    fn fire(&mut self, event: Event) {
        match event {
            Event::Tick(pcpu) => self.on_tick(pcpu),
            Event::Done(pcpu) => self.piece_done(pcpu),
            Event::Kick(pcpu) => self.resched(pcpu),
            Event::Sleep(world) => self.timer_wakes(world),
            Event::Policy(timer) => {
                self.cause = (None, 0);
                self.call_from(Context::Timer, |p, k| p.timer(k, timer));
                self.settle(u32::MAX);
            }
            Event::Fixed(timer) => {
                self.cause = (None, 0);
                self.fire_fixed(timer);
            }
        }
    }

    fn fire_fixed(&mut self, timer: Fixed) {
        match timer {
            Fixed::Change => self.change(),
            Fixed::Plan => self.publish(),
            Fixed::Audit => {
                self.audit();
                self.clock.arm(timer, self.kernel.now() + AUDIT_NS);
            }
            Fixed::Warm => {
                self.start = Some(self.snapshot());
                self.cast.warmed_up();
                self.kernel.mark(|| "the warm-up ends".to_owned());
            }
            Fixed::Replan => self.replan(),
            Fixed::Look => self.look(),
            Fixed::Realtime => self.realtime(),
            Fixed::Taken => self.look_at_taken(),
            Fixed::Hardware => self.renew_hardware(),
            Fixed::Numa => self.numa_round(),
            Fixed::Pages => self.pages(),
        }
    }

    /// Takes note of what the scheduler holds back since the last callback, and what no longer.
    fn hear(&mut self) {
        let now = self.kernel.now();
        self.kernel.take_holds(|told| self.books.held(now, told));
    }

    /// When a pCPU that idles schedules for which that is asked now, and not before `at`. While it
    /// leaves a deep idle state it is taken, as by a real-time task.
    fn leaves_idle(&mut self, pcpu: u32, at: u64) -> u64 {
        let now = self.kernel.now();
        let (at, begins) = self.delays.awake(pcpu, now, at);
        if begins {
            self.books.leaves_idle(now, pcpu, true);
        }
        at
    }

    /// A pCPU is awake.
    fn awakes(&mut self, pcpu: u32) {
        let now = self.kernel.now();
        if self.delays.schedules(pcpu, now) {
            self.books.leaves_idle(now, pcpu, false);
        }
    }

    /// Carries out what the callback just made asked of pCPUs and timers; `here` is the pCPU it ran
    /// on.
    fn settle(&mut self, here: u32) {
        self.hear();
        let (mut i, now) = (0, self.kernel.now());
        while let Some((pcpu, nudge)) = self.kernel.nudge(i) {
            i += 1;
            let current = self.kernel.current(pcpu);
            let preempts = match nudge {
                Nudge::Reschedule => false,
                // An idle kick that finds its pCPU busy does nothing (can_skip_idle_kick).
                Nudge::Kick(flags) if flags & KICK_IDLE != 0 && current != 0 => continue,
                Nudge::Kick(flags) => flags & KICK_PREEMPT != 0,
            };
            // A real-time task goes on; the pick at its end covers what is asked for now.
            if self.deaf && pcpu != here || self.kernel.is_taken(pcpu) {
                continue;
            }
            if preempts && current != 0 {
                self.account(pcpu);
                self.tasks[current as usize].slice_ns = 0;
            }
            let delay = if pcpu == here { 0 } else { self.costs.kick_ns };
            let at = now + delay;
            let at = if current == 0 { self.leaves_idle(pcpu, at) } else { at };
            self.clock.kick(pcpu, at);
        }
        self.kernel.clear_nudges();
        while let Some((pcpu, ns)) = self.kernel.take_spent() {
            self.steal(pcpu, ns);
        }
        self.kernel.take_arms(|timer, after| self.clock.arm_policy(timer, now, after));
    }
}
