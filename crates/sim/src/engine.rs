//! The engine: one run of one host, event by event in virtual time; integers only, one seed, no
//! wall clock.
//!
//! Events come from the timers (`timers.rs`) and from the ticks, which need no heap: tick `i`
//! belongs to pCPU `i mod n`. At one instant timers come before ticks, timers among themselves in
//! the order in which they were armed. What an event does is in `schedule.rs` and `life.rs`.

use crate::behaviour::Behaviour;
use crate::contract::{Breach, Rule, WATCHDOG_NS};
use crate::guest::{Guest, Vcpu};
use crate::kernel::{Context, Kernel, Nudge, Seat};
use crate::life::{Change, VmSeat, WorldSpec};
use crate::looks::Looks;
use crate::mutant::Mutant;
use crate::options::{Costs, Ticks};
use crate::plans::Publisher;
use crate::report::Snapshot;
use crate::timers::Timers;
use crate::watch::Watch;
use check::State;
use dice::Stream;
use sched_core::{Host, KICK_IDLE, KICK_PREEMPT};
use views::{Latencies, Times};

/// A world as the engine knows it.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) behaviour: Behaviour,
    /// CPU time of its own work done.
    pub(crate) work: u64,
    /// CPU time that it burned waiting for siblings, and whether it does now.
    pub(crate) spun: u64,
    pub(crate) spins: bool,
    /// What it is to its siblings, if it is a vCPU of an SMP guest or a watchdog looks at it.
    pub(crate) sibling: Option<Box<Vcpu>>,
    /// Since when it is READY, for the watchdog.
    pub(crate) ready_since: u64,
    /// What the scheduler had charged to it when it began to run.
    pub(crate) charged: u64,
    /// When the sleep was due from which it has not run yet.
    pub(crate) due: Option<u64>,
    /// From there until it ran, each time.
    pub(crate) late: Latencies,
    pub(crate) vm: u32,
    pub(crate) vcpu: bool,
}

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
pub(crate) struct Engine {
    pub(crate) host: Host,
    pub(crate) kernel: Kernel,
    pub(crate) timers: Timers,
    /// How late timers of the scheduler may be, in ns, and how late the next one is.
    pub(crate) timer_late: u64,
    pub(crate) lateness: Stream,
    pub(crate) actors: Vec<Actor>,
    pub(crate) specs: Vec<WorldSpec>,
    /// Accounts of worlds that have exited.
    pub(crate) gone: Vec<Option<Times>>,
    pub(crate) vms: Vec<VmSeat>,
    /// What vCPUs of a VM share, by VM.
    pub(crate) guests: Vec<Guest>,
    /// The pools, the root first.
    pub(crate) pools: Vec<settings::PlacedPool>,
    pub(crate) changes: Vec<Change>,
    pub(crate) next_change: usize,
    pub(crate) watch: Watch,
    pub(crate) stats: Stats,
    pub(crate) costs: Costs,
    pub(crate) ticks: Ticks,
    pub(crate) tick_ns: u64,
    pub(crate) tick: u64,
    pub(crate) end: u64,
    pub(crate) generation: u64,
    pub(crate) start: Option<Snapshot>,
    pub(crate) publisher: Publisher,
    /// Whoever looks at the run while it goes on.
    pub(crate) looks: Option<Looks>,
    /// Speed of a pCPU in MHz, as reservations and limits count it.
    pub(crate) mhz: u32,
}

/// Timers beside those of pCPUs and worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    /// VMs start and stop, windows open and close.
    Change,
    /// New weights come into force.
    Plan,
    Housekeep,
    /// Watchdog and audits.
    Audit,
    /// The warm-up ends.
    Warm,
    /// Weights by what is active now, where VMs are held to some pCPUs.
    Replan,
    /// Limits are filled up, grants end, parked worlds go on.
    Limits,
    /// Skew is looked at, leaders stop, co-stopped vCPUs go on.
    Cosched,
    /// Somebody looks at the accounts; never armed where nobody does.
    Look,
}

const FIXED: [Fixed; 9] = [
    Fixed::Change,
    Fixed::Plan,
    Fixed::Housekeep,
    Fixed::Audit,
    Fixed::Warm,
    Fixed::Replan,
    Fixed::Limits,
    Fixed::Cosched,
    Fixed::Look,
];
/// The kernel's watchdog looks at half its limit; looking each second names the world sooner.
const AUDIT_NS: u64 = 1_000_000_000;

/// Number of timers a run needs.
pub(crate) fn slots(pcpus: usize, worlds: usize) -> usize {
    FIXED.len() + 2 * pcpus + worlds
}

impl Engine {
    pub(crate) fn fixed(timer: Fixed) -> usize {
        timer as usize
    }

    /// Timer of the end of the present piece of work on a pCPU.
    pub(crate) fn done_slot(pcpu: u32) -> usize {
        FIXED.len() + 2 * pcpu as usize
    }

    /// Timer of a reschedule interrupt.
    pub(crate) fn kick_slot(pcpu: u32) -> usize {
        FIXED.len() + 2 * pcpu as usize + 1
    }

    /// Timer of a sleep.
    pub(crate) fn sleep_slot(&self, world: u32) -> usize {
        FIXED.len() + 2 * self.kernel.cpus.len() + world as usize
    }

    /// Runs to the end.
    pub(crate) fn run(&mut self) -> Result<(), Breach> {
        let housekeep = self.host.knobs().housekeep_us * 1000;
        self.timers.arm(Self::fixed(Fixed::Housekeep), housekeep);
        self.timers.arm(Self::fixed(Fixed::Audit), AUDIT_NS);
        self.timers.arm(Self::fixed(Fixed::Cosched), self.host.knobs().cosched_poll_us * 1000);
        if self.any_held() {
            self.timers.arm(Self::fixed(Fixed::Replan), entitlement::REPLAN.ns());
        }
        self.tick = 0;
        self.look();
        loop {
            let tick = self.tick_time();
            let timer = self.timers.next_time().unwrap_or(u64::MAX);
            if tick.min(timer) >= self.end {
                break;
            }
            if tick < timer {
                let pcpu = (self.tick % self.kernel.cpus.len() as u64) as u32;
                self.tick += 1;
                if self.kernel.cpus[pcpu as usize].current != 0 {
                    self.advance(tick);
                    self.on_tick(pcpu);
                }
            } else if let Some((time, slot)) = self.timers.pop() {
                self.advance(time);
                self.fire(slot);
            }
            if let Some(breach) = self.kernel.breach.take() {
                return Err(breach);
            }
        }
        self.kernel.now = self.end;
        self.host.set_now(self.end);
        self.kernel.mark(|| "the run ends".to_owned());
        self.look();
        self.audit();
        self.kernel.breach.take().map_or(Ok(()), Err)
    }

    /// Time of the next tick. The first comes one period after the start.
    fn tick_time(&self) -> u64 {
        let n = self.kernel.cpus.len() as u64;
        let (round, pcpu) = (self.tick / n, self.tick % n);
        let offset = match self.ticks {
            Ticks::Aligned => 0,
            Ticks::Staggered => pcpu * self.tick_ns / n,
        };
        (round + 1) * self.tick_ns + offset
    }

    fn advance(&mut self, time: u64) {
        self.stats.events += 1;
        self.kernel.now = time;
        self.host.set_now(time);
    }

    fn fire(&mut self, slot: usize) {
        let pcpus = self.kernel.cpus.len();
        let Some(slot) = slot.checked_sub(FIXED.len()) else {
            return self.fire_fixed(FIXED[slot]);
        };
        match slot.checked_sub(2 * pcpus) {
            Some(world) => self.timer_wakes(world as u32),
            None if slot % 2 == 0 => self.piece_done(slot as u32 / 2),
            None => self.resched(slot as u32 / 2),
        }
    }

    fn fire_fixed(&mut self, timer: Fixed) {
        let now = self.kernel.now;
        self.host.set_cause(None, 0);
        match timer {
            Fixed::Change => self.change(),
            Fixed::Plan => self.publish(),
            Fixed::Housekeep => {
                self.stats.calls += 1;
                self.host.housekeep(&mut self.kernel);
                self.settle(u32::MAX);
                self.arm_late(timer, self.host.knobs().housekeep_us * 1000);
            }
            Fixed::Audit => {
                self.audit();
                self.timers.arm(Self::fixed(timer), now + AUDIT_NS);
            }
            Fixed::Warm => {
                self.start = Some(self.snapshot());
                self.actors.iter_mut().for_each(|a| a.late = Latencies::default());
                self.guests.iter_mut().for_each(|g| g.longest = 0);
                self.kernel.mark(|| "the warm-up ends".to_owned());
            }
            Fixed::Replan => self.replan(),
            Fixed::Limits => self.limits(),
            Fixed::Cosched => self.cosched(),
            Fixed::Look => self.look(),
        }
    }

    fn limits(&mut self) {
        if self.kernel.fault.is(Mutant::NoLimit) {
            (0..self.host.record().limiters).for_each(|i| self.host.limiter_mut(i).rate = 0);
        }
        self.kernel.context = Context::Timer;
        self.stats.calls += 1;
        let next = self.host.limits(&mut self.kernel);
        self.kernel.context = Context::None;
        self.settle(u32::MAX);
        if next > 0 {
            self.arm_late(Fixed::Limits, next);
        }
    }

    fn cosched(&mut self) {
        if self.kernel.fault.is(Mutant::WrongSlowest) {
            (1..self.vms.len() as u32).for_each(|vm| self.host.siblings_mut(vm).world[0] = 0);
        }
        self.kernel.context = Context::Timer;
        self.stats.calls += 1;
        let next = self.host.cosched(&mut self.kernel);
        self.kernel.context = Context::None;
        self.settle(u32::MAX);
        if next > 0 {
            self.arm_late(Fixed::Cosched, next);
        }
    }

    /// Arms a timer of the scheduler, which is as late as the host's timers are.
    fn arm_late(&mut self, timer: Fixed, after: u64) {
        let late = self.lateness.below(self.timer_late + 1);
        self.timers.arm(Self::fixed(timer), self.kernel.now + after + late);
    }

    /// Tells the oracle whom something holds back since the last callback, and whom no longer.
    pub(crate) fn tell_held_back(&mut self) {
        for i in 0..self.kernel.costarted.len() {
            let world = self.kernel.costarted[i];
            self.watch.state(self.kernel.now, world, State::Ready, None);
        }
        self.kernel.costarted.clear();
        for i in 0..self.kernel.held_back.len() {
            let (world, held) = self.kernel.held_back[i];
            self.watch.held_back(self.kernel.now, world, held);
        }
        self.kernel.held_back.clear();
    }

    /// Carries out what the callback just made asked of pCPUs; `here` is the pCPU it ran on.
    pub(crate) fn settle(&mut self, here: u32) {
        self.tell_held_back();
        if self.kernel.nudges.is_empty() {
            return;
        }
        for i in 0..self.kernel.nudges.len() {
            let (pcpu, nudge) = self.kernel.nudges[i];
            let current = self.kernel.cpus[pcpu as usize].current;
            let preempts = match nudge {
                Nudge::Reschedule => false,
                // An idle kick that finds its pCPU busy does nothing (can_skip_idle_kick).
                Nudge::Kick(flags) if flags & KICK_IDLE != 0 && current != 0 => continue,
                Nudge::Kick(flags) => flags & KICK_PREEMPT != 0,
            };
            if self.kernel.fault.is(Mutant::LostKick) && pcpu != here {
                continue;
            }
            if preempts && current != 0 {
                self.account(pcpu);
                self.host.task_mut(current).slice_ns = 0;
            }
            let delay = if pcpu == here { 0 } else { self.costs.kick_ns };
            let (slot, at) = (Self::kick_slot(pcpu), self.kernel.now + delay);
            if self.timers.armed(slot).is_none_or(|t| t > at) {
                self.timers.arm(slot, at);
            }
        }
        self.kernel.nudges.clear();
    }

    /// The watchdog, and with the oracle on also: the scheduler's state times, its counts of
    /// runnable worlds, and that every world is in the one queue it is said to be in.
    fn audit(&mut self) {
        let now = self.kernel.now;
        for world in 1..self.actors.len() as u32 {
            let seat = self.kernel.seats[world as usize];
            let waited = now.saturating_sub(self.actors[world as usize].ready_since);
            if matches!(seat, Seat::Queue(_) | Seat::Local(_)) && waited > WATCHDOG_NS {
                let what =
                    format!("seen READY for {waited} ns in {seat:?}, allowed {WATCHDOG_NS} ns");
                self.kernel.breach(Rule::Watchdog, Some(world), None, what);
            }
        }
        if !self.watch.is_on() {
            return;
        }
        self.audit_queues();
        let mut runnable = vec![0; self.vms.len()];
        for world in 1..self.actors.len() as u32 {
            let seat = self.kernel.seats[world as usize];
            if seat == Seat::Off {
                continue;
            }
            self.watch.reported(now, &self.host, world);
            runnable[self.actors[world as usize].vm as usize] += u32::from(seat != Seat::Asleep);
        }
        for (vm, count) in runnable.into_iter().enumerate() {
            let seen = self.host.vm(vm as u32).runnable;
            if seen != count {
                let what =
                    format!("seen {seen} runnable worlds counted in VM {vm}, allowed {count}");
                self.kernel.breach(Rule::Counts, None, None, what);
            }
        }
    }

    fn audit_queues(&mut self) {
        let mut seen = vec![false; self.actors.len()];
        let wrong = self.kernel.queued().find(|(w, seat)| {
            let twice = std::mem::replace(&mut seen[*w as usize], true);
            twice || self.kernel.seats[*w as usize] != *seat
        });
        if let Some((world, seat)) = wrong {
            let what =
                format!("seen in {seat:?}, allowed only {:?}", self.kernel.seats[world as usize]);
            return self.kernel.breach(Rule::Custody, Some(world), None, what);
        }
        let lost = (1..self.actors.len()).find(|w| {
            let queued =
                matches!(self.kernel.seats[*w], Seat::Queue(_) | Seat::Local(_) | Seat::Custody);
            queued && !seen[*w]
        });
        if let Some(world) = lost {
            let what = format!("seen in no queue, allowed {:?}", self.kernel.seats[world]);
            self.kernel.breach(Rule::Custody, Some(world as u32), None, what);
        }
    }
}
