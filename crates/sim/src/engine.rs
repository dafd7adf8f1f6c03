//! The engine: one run of one host, event by event in virtual time; integers only, one seed, no
//! wall clock.
//!
//! What comes next is the `Clock`'s; what an event does is in `schedule.rs` and `life.rs`. The
//! scheduler is any of the contract, called through `call` alone.

use crate::agenda::Agenda;
use crate::books::Books;
use crate::cast::Cast;
use crate::clock::{Clock, Event, Fixed};
use crate::kernel::{Context, Kernel, Nudge, Seat};
use crate::looks::Looks;
use crate::options::Costs;
use crate::planner::Planner;
use crate::report::Snapshot;
use contract::{Breach, Callback, KICK_IDLE, KICK_PREEMPT, Rule, Scheduler, Task};

/// A runnable world must run within this time; sched_ext's own default (SCX_WATCHDOG_MAX_TIMEOUT).
const WATCHDOG_NS: u64 = 30_000_000_000;

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
    pub(crate) policy: P,
    pub(crate) kernel: Kernel,
    /// The threads, by world.
    pub(crate) tasks: Vec<Task>,
    pub(crate) clock: Clock,
    /// pCPU that the next callback runs on, and the world that causes it, 0 for an interrupt.
    pub(crate) cause: (Option<u32>, u32),
    pub(crate) books: Books,
    pub(crate) cast: Cast,
    pub(crate) agenda: Agenda,
    pub(crate) planner: Planner,
    pub(crate) stats: Stats,
    pub(crate) costs: Costs,
    /// Kicks and reschedule interrupts from other pCPUs do not arrive (`Mutant::LostKick`).
    pub(crate) deaf: bool,
    pub(crate) start: Option<Snapshot>,
    /// The run is looked at while it goes on.
    pub(crate) looks: Option<Looks>,
    pub(crate) topology: topology::Topology,
    /// Speed of a pCPU in MHz, as reservations and limits count it.
    pub(crate) mhz: u32,
}

/// The kernel's watchdog looks at half its limit; looking each second names the world sooner.
const AUDIT_NS: u64 = 1_000_000_000;

impl<P: Scheduler> Engine<P> {
    /// Runs to the end.
    pub(crate) fn run(&mut self) -> Result<(), Breach> {
        self.call_from(Context::Timer, |p, k| p.enable(k));
        self.settle(u32::MAX);
        self.clock.arm(Fixed::Audit, AUDIT_NS);
        if self.planner.gives_orders() {
            self.clock.arm(Fixed::Replan, entitlement::REPLAN.ns());
        }
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

    /// Calls the scheduler.
    pub(crate) fn call<R>(&mut self, f: impl FnOnce(&mut P, &mut Callback<'_>) -> R) -> R {
        self.stats.calls += 1;
        let now_ns = self.kernel.now();
        let (here, waker) = self.cause;
        let mut k =
            Callback { kernel: &mut self.kernel, tasks: &mut self.tasks, now_ns, here, waker };
        f(&mut self.policy, &mut k)
    }

    /// Calls a callback that may insert or move worlds.
    pub(crate) fn call_from<R>(
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
        }
    }

    /// Takes note of what the scheduler holds back since the last callback, and what no longer.
    pub(crate) fn hear(&mut self) {
        let now = self.kernel.now();
        self.kernel.take_holds(|told| self.books.held(now, told));
    }

    /// Carries out what the callback just made asked of pCPUs and timers; `here` is the pCPU it ran
    /// on.
    pub(crate) fn settle(&mut self, here: u32) {
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
            if self.deaf && pcpu != here {
                continue;
            }
            if preempts && current != 0 {
                self.account(pcpu);
                self.tasks[current as usize].slice_ns = 0;
            }
            let delay = if pcpu == here { 0 } else { self.costs.kick_ns };
            self.clock.kick(pcpu, now + delay);
        }
        self.kernel.clear_nudges();
        self.kernel.take_arms(|timer, after| self.clock.arm_policy(timer, now, after));
    }

    /// The watchdog, and with the oracle on also: the scheduler's state times, its counts of
    /// runnable worlds, and that every world is in the one queue it is said to be in.
    fn audit(&mut self) {
        let now = self.kernel.now();
        for world in self.cast.worlds() {
            let waited = now.saturating_sub(self.cast.ready_since(world));
            if self.kernel.queues(world) && waited > WATCHDOG_NS {
                let seat = self.kernel.seat(world);
                let what =
                    format!("seen READY for {waited} ns in {seat:?}, allowed {WATCHDOG_NS} ns");
                self.kernel.breach(Rule::Watchdog, Some(world), None, what);
            }
        }
        if !self.books.is_watched() {
            return;
        }
        self.audit_queues();
        let mut runnable = vec![0; self.cast.vms().len()];
        for world in self.cast.worlds() {
            let seat = self.kernel.seat(world);
            if seat == Seat::Off {
                continue;
            }
            self.books.audit(now, &self.policy, world);
            runnable[self.cast.vm_of(world) as usize] += u32::from(seat != Seat::Asleep);
        }
        for (vm, count) in runnable.into_iter().enumerate() {
            let Some(seen) = self.policy.runnable_worlds(vm as u32).filter(|n| *n != count) else {
                continue;
            };
            let what = format!("seen {seen} runnable worlds counted in VM {vm}, allowed {count}");
            self.kernel.breach(Rule::Counts, None, None, what);
        }
    }

    fn audit_queues(&mut self) {
        let worlds = self.cast.worlds();
        let mut seen = vec![false; worlds.end as usize];
        let wrong = self.kernel.queued().find(|(w, seat)| {
            let twice = std::mem::replace(&mut seen[*w as usize], true);
            twice || self.kernel.seat(*w) != *seat
        });
        if let Some((world, seat)) = wrong {
            let what = format!("seen in {seat:?}, allowed only {:?}", self.kernel.seat(world));
            return self.kernel.breach(Rule::Custody, Some(world), None, what);
        }
        let lost = (1..seen.len()).find(|w| {
            let queued = matches!(
                self.kernel.seat(*w as u32),
                Seat::Queue(_) | Seat::Local(_) | Seat::Custody
            );
            queued && !seen[*w]
        });
        if let Some(world) = lost {
            let what = format!("seen in no queue, allowed {:?}", self.kernel.seat(world as u32));
            self.kernel.breach(Rule::Custody, Some(world as u32), None, what);
        }
    }
}
