//! The clock of a run: its timers by what they are for, and the ticks, which need no heap; it knows
//! no world's state and no scheduler.
//!
//! Tick `i` belongs to pCPU `i mod n`. At one instant timers come before ticks, timers among
//! themselves in the order in which they were armed.

use crate::options::Ticks;
use crate::timers::Timers;
use contract::TIMERS_MAX;
use dice::Stream;

/// Timers of the engine itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    /// VMs start and stop, windows open and close.
    Change,
    /// A new plan comes into force.
    Plan,
    /// Watchdog and audits.
    Audit,
    /// The warm-up ends.
    Warm,
    /// Weights by what is active now, where VMs may not use all pCPUs.
    Replan,
    /// The accounts are looked at; never armed where nothing looks.
    Look,
    /// A real-time task wakes or is done.
    Realtime,
    /// The daemon looks at what real-time tasks take.
    Taken,
    /// What worlds take from each other in an LLC is found anew.
    Hardware,
    /// A round of the NUMA planner.
    Numa,
    /// Memory follows by a step.
    Pages,
}

const FIXED: [Fixed; 11] = [
    Fixed::Change,
    Fixed::Plan,
    Fixed::Audit,
    Fixed::Warm,
    Fixed::Replan,
    Fixed::Look,
    Fixed::Realtime,
    Fixed::Taken,
    Fixed::Hardware,
    Fixed::Numa,
    Fixed::Pages,
];
/// Position of the first timer of a pCPU, after those of the scheduler.
const PCPUS: usize = FIXED.len() + TIMERS_MAX as usize;

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The timer tick of a pCPU, which an idle one does not see.
    Tick(u32),
    Fixed(Fixed),
    /// A timer of the scheduler.
    Policy(u32),
    /// The present piece of work on a pCPU ends.
    Done(u32),
    /// A reschedule interrupt of a pCPU.
    Kick(u32),
    /// A sleep of a world ends.
    Sleep(u32),
}

/// How timers of the scheduler are late: each by anything up to `most_ns`, at random.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    pub(crate) most_ns: u64,
    pub(crate) random: Stream,
}

/// The clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    timers: Timers,
    pcpus: u64,
    ticks: Ticks,
    tick_ns: u64,
    /// Number of the next tick.
    tick: u64,
    end: u64,
    lateness: Lateness,
}

impl Clock {
    /// A clock at 0 that ends at `end`, with timer ticks every `tick_ns`.
    pub(crate) fn new(
        (pcpus, worlds): (usize, usize),
        (ticks, tick_ns): (Ticks, u64),
        end: u64,
        lateness: Lateness,
    ) -> Clock {
        let timers = Timers::new(PCPUS + 2 * pcpus + worlds);
        Clock { timers, pcpus: pcpus as u64, ticks, tick_ns, tick: 0, end, lateness }
    }

    /// When the run ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The run ends now.
    pub(crate) fn end_at(&mut self, now: u64) {
        self.end = now;
    }

    /// Takes the next event and its time; none before the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        let tick = self.tick_time();
        let timer = self.timers.next_time().unwrap_or(u64::MAX);
        if tick.min(timer) >= self.end {
            return None;
        }
        if tick < timer {
            let pcpu = (self.tick % self.pcpus) as u32;
            self.tick += 1;
            return Some((tick, Event::Tick(pcpu)));
        }
        self.timers.pop().map(|(time, slot)| (time, self.event(slot)))
    }

    fn event(&self, slot: usize) -> Event {
        let Some(of_pcpu) = slot.checked_sub(PCPUS) else {
            return match slot.checked_sub(FIXED.len()) {
                Some(timer) => Event::Policy(timer as u32),
                None => Event::Fixed(FIXED[slot]),
            };
        };
        match of_pcpu.checked_sub(2 * self.pcpus as usize) {
            Some(world) => Event::Sleep(world as u32),
            None if of_pcpu % 2 == 0 => Event::Done(of_pcpu as u32 / 2),
            None => Event::Kick(of_pcpu as u32 / 2),
        }
    }

    /// Time of the next tick. The first comes one period after the start.
    fn tick_time(&self) -> u64 {
        let (round, pcpu) = (self.tick / self.pcpus, self.tick % self.pcpus);
        let offset = match self.ticks {
            Ticks::Aligned => 0,
            Ticks::Staggered => pcpu * self.tick_ns / self.pcpus,
        };
        (round + 1) * self.tick_ns + offset
    }

    pub(crate) fn arm(&mut self, timer: Fixed, time: u64) {
        self.timers.arm(timer as usize, time);
    }

    pub(crate) fn is_armed(&self, timer: Fixed) -> bool {
        self.timers.armed(timer as usize).is_some()
    }

    /// Arms a timer of the scheduler, as late as they are; those that are armed before the run
    /// begins are not.
    pub(crate) fn arm_policy(&mut self, timer: u32, now: u64, after: u64) {
        let late = if now == 0 { 0 } else { self.lateness.random.below(self.lateness.most_ns + 1) };
        self.timers.arm(FIXED.len() + timer as usize, now + after + late);
    }

    fn done_slot(pcpu: u32) -> usize {
        PCPUS + 2 * pcpu as usize
    }

    pub(crate) fn arm_done(&mut self, pcpu: u32, time: u64) {
        self.timers.arm(Self::done_slot(pcpu), time);
    }

    pub(crate) fn disarm_done(&mut self, pcpu: u32) {
        self.timers.disarm(Self::done_slot(pcpu));
    }

    /// A reschedule interrupt comes at `time`, unless one comes sooner.
    pub(crate) fn kick(&mut self, pcpu: u32, time: u64) {
        let slot = Self::done_slot(pcpu) + 1;
        if self.timers.armed(slot).is_none_or(|t| t > time) {
            self.timers.arm(slot, time);
        }
    }

    fn sleep_slot(&self, world: u32) -> usize {
        PCPUS + 2 * self.pcpus as usize + world as usize
    }

    pub(crate) fn arm_sleep(&mut self, world: u32, until: u64) {
        self.timers.arm(self.sleep_slot(world), until);
    }

    pub(crate) fn disarm_sleep(&mut self, world: u32) {
        self.timers.disarm(self.sleep_slot(world));
    }

    /// When the sleep of a world ends, if a timer ends it.
    pub(crate) fn sleeps_until(&self, world: u32) -> Option<u64> {
        self.timers.armed(self.sleep_slot(world))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(ticks: Ticks) -> Clock {
        let lateness = Lateness { most_ns: 0, random: Stream::new(1, "late") };
        Clock::new((2, 3), (ticks, 100), 250, lateness)
    }

    #[test]
    fn timers_come_before_ticks_and_each_slot_is_what_it_was_armed_for() {
        let mut c = clock(Ticks::Aligned);
        c.arm_sleep(2, 100);
        c.arm_done(1, 100);
        c.kick(0, 120);
        c.kick(0, 90);
        c.kick(0, 95);
        c.arm_policy(7, 0, 99);
        c.arm(Fixed::Look, 98);
        c.arm_done(0, 10);
        c.disarm_done(0);
        let all: Vec<(u64, Event)> = std::iter::from_fn(|| c.next()).collect();
        let ticks = [100, 200].map(|t| [(t, Event::Tick(0)), (t, Event::Tick(1))]);
        let mut want = vec![
            (90, Event::Kick(0)),
            (98, Event::Fixed(Fixed::Look)),
            (99, Event::Policy(7)),
            (100, Event::Sleep(2)),
            (100, Event::Done(1)),
        ];
        want.extend(ticks.concat());
        assert_eq!(all, want, "nothing from 250 on");
    }

    #[test]
    fn staggered_ticks_are_spread_over_the_period() {
        let mut c = clock(Ticks::Staggered);
        let times: Vec<u64> = std::iter::from_fn(|| c.next()).map(|e| e.0).collect();
        assert_eq!(times, [100, 150, 200]);
    }
}
