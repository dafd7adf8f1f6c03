//! Timers of a policy, any number of them, over the kernel's; it knows not what they are for.
//!
//! Up to `TIMERS_MAX` slots have a timer of the kernel each, so that where timers are late each is
//! late by its own; more than that share them.

use contract::{Callback, TIMERS_MAX};
use std::collections::BTreeSet;

/// Alarms by slot, each armed once or not at all.
#[derive(Clone, Debug)]
pub(super) struct Alarms {
    /// When each slot is due, in ns.
    at: Vec<Option<u64>>,
    timers: Vec<Timer>,
}

/// A timer of the kernel.
#[derive(Clone, Debug, Default)]
struct Timer {
    order: BTreeSet<(u64, u32)>,
    /// What it is armed for.
    armed: Option<u64>,
}

impl Alarms {
    /// So many slots, none armed.
    pub(super) fn new(slots: usize) -> Alarms {
        let timers = vec![Timer::default(); slots.min(TIMERS_MAX as usize)];
        Alarms { at: vec![None; slots], timers }
    }

    /// The kernel's timer of a slot.
    fn timer_of(&mut self, slot: u32) -> (u32, &mut Timer) {
        let timer = slot % self.timers.len() as u32;
        (timer, &mut self.timers[timer as usize])
    }

    /// Whether a slot is armed.
    pub(super) fn is_set(&self, slot: u32) -> bool {
        self.at[slot as usize].is_some()
    }

    /// Arms a slot for a time in ns, or moves it.
    pub(super) fn set(&mut self, k: &mut Callback<'_>, slot: u32, at_ns: u64) {
        self.stop(slot);
        self.at[slot as usize] = Some(at_ns);
        let (timer, of) = self.timer_of(slot);
        of.order.insert((at_ns, slot));
        of.arm(k, timer);
    }

    /// Disarms a slot.
    pub(super) fn stop(&mut self, slot: u32) {
        if let Some(at) = self.at[slot as usize].take() {
            self.timer_of(slot).1.order.remove(&(at, slot));
        }
    }

    /// A timer of the kernel has come.
    pub(super) fn fired(&mut self, timer: u32) {
        self.timers[timer as usize].armed = None;
    }

    /// Takes the first slot of a timer that is due; without one it arms the timer for the next.
    pub(super) fn due(&mut self, k: &mut Callback<'_>, timer: u32) -> Option<u32> {
        let of = &mut self.timers[timer as usize];
        let first = of.order.first().copied().filter(|(at, _)| *at <= k.now_ns);
        let Some((_, slot)) = first else {
            of.arm(k, timer);
            return None;
        };
        self.stop(slot);
        Some(slot)
    }
}

impl Timer {
    fn arm(&mut self, k: &mut Callback<'_>, timer: u32) {
        let Some((first, _)) = self.order.first().copied() else { return };
        if self.armed.is_none_or(|at| first < at) {
            self.armed = Some(first);
            k.kernel.arm(timer, first.saturating_sub(k.now_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::NoKernel;

    #[test]
    fn slots_come_in_the_order_of_their_times_and_once() {
        let (mut kernel, tasks) = (NoKernel, &mut []);
        let mut k = Callback { kernel: &mut kernel, tasks, now_ns: 0, here: None, waker: 0 };
        let mut alarms = Alarms::new(4 * TIMERS_MAX as usize);
        let slots = [3, 2, 1, 0].map(|i| i * TIMERS_MAX + 7);
        for (i, ns) in [(0, 50), (1, 20), (2, 20), (3, 90), (0, 30)] {
            alarms.set(&mut k, slots[i], ns);
        }
        alarms.stop(slots[2]);
        assert_eq!(alarms.timers[7].armed, Some(20));
        alarms.fired(7);
        k.now_ns = 40;
        let due = [(); 3].map(|()| alarms.due(&mut k, 7));
        assert_eq!(due, [Some(slots[1]), Some(slots[0]), None]);
        let set = slots.map(|slot| alarms.is_set(slot));
        assert_eq!((alarms.timers[7].armed, set), (Some(90), [false, false, false, true]));
    }
}
