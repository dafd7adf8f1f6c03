//! Timers of a policy, any number of them, over one timer of the kernel; it knows not what they
//! are for.

use contract::Callback;
use std::collections::BTreeSet;

/// The kernel's timer.
const TIMER: u32 = 0;

/// Alarms by slot, each armed once or not at all.
#[derive(Clone, Debug, Default)]
pub(super) struct Alarms {
    /// When each slot is due, in ns.
    at: Vec<Option<u64>>,
    order: BTreeSet<(u64, u32)>,
    /// What the kernel's timer is armed for.
    armed: Option<u64>,
}

impl Alarms {
    /// So many slots, none armed.
    pub(super) fn new(slots: usize) -> Alarms {
        Alarms { at: vec![None; slots], ..Alarms::default() }
    }

    /// Whether a slot is armed.
    pub(super) fn is_set(&self, slot: u32) -> bool {
        self.at[slot as usize].is_some()
    }

    /// Arms a slot for a time in ns, or moves it.
    pub(super) fn set(&mut self, k: &mut Callback<'_>, slot: u32, at_ns: u64) {
        self.stop(slot);
        self.at[slot as usize] = Some(at_ns);
        self.order.insert((at_ns, slot));
        self.arm(k);
    }

    /// Disarms a slot.
    pub(super) fn stop(&mut self, slot: u32) {
        if let Some(at) = self.at[slot as usize].take() {
            self.order.remove(&(at, slot));
        }
    }

    /// The kernel's timer has come.
    pub(super) fn fired(&mut self) {
        self.armed = None;
    }

    /// Takes the first slot that is due; without one it arms the kernel's timer for the next.
    pub(super) fn due(&mut self, k: &mut Callback<'_>) -> Option<u32> {
        let first = self.order.first().copied().filter(|(at, _)| *at <= k.now_ns);
        let Some((_, slot)) = first else {
            self.arm(k);
            return None;
        };
        self.stop(slot);
        Some(slot)
    }

    fn arm(&mut self, k: &mut Callback<'_>) {
        let Some((first, _)) = self.order.first().copied() else { return };
        if self.armed.is_none_or(|at| first < at) {
            self.armed = Some(first);
            k.kernel.arm(TIMER, first.saturating_sub(k.now_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::NoKernel;

    #[test]
    fn slots_come_in_the_order_of_their_times_and_once() {
        let mut kernel = NoKernel;
        let at = |now_ns, kernel| Callback { kernel, tasks: &mut [], now_ns, here: None, waker: 0 };
        let mut alarms = Alarms::new(4);
        let mut k = at(0, &mut kernel);
        for (slot, ns) in [(0, 50), (1, 20), (2, 20), (3, 90), (0, 30)] {
            alarms.set(&mut k, slot, ns);
        }
        alarms.stop(2);
        assert_eq!(alarms.armed, Some(20));
        alarms.fired();
        let mut k = at(40, &mut kernel);
        assert_eq!([(); 3].map(|()| alarms.due(&mut k)), [Some(1), Some(0), None]);
        assert_eq!((alarms.armed, alarms.is_set(0), alarms.is_set(3)), (Some(90), false, true));
    }
}
