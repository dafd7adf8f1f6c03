//! Exact accounts of a world's and a pCPU's time, to check the scheduler's accounts; it allows no
//! tolerance.
//!
//! Law: the time charged to a world is the time it was in RUN, to the ns; so is a pCPU's busy time.
//! A run may be charged in parts and a little late: while it lasts, and until the first charge of
//! the next run, the account may be behind. It is never ahead, and with each charge every earlier
//! run is charged in full. At the end only a run under way is open.

use crate::{State, StateTimes};

/// Time that comes in runs and is charged by another account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stints {
    /// All finished runs.
    done: u64,
    /// Time of all runs before the present one.
    before: u64,
    since: Option<u64>,
    paid: u64,
}

impl Stints {
    pub(crate) fn begin(&mut self, now: u64) {
        self.before = self.done;
        self.since = Some(now);
    }

    pub(crate) fn end(&mut self, now: u64) {
        if let Some(since) = self.since.take() {
            self.done += now - since;
        }
    }

    fn run(&self, now: u64) -> u64 {
        self.done + self.since.map_or(0, |s| now - s)
    }

    /// Takes a payment; what has been paid in all and the range allowed, if it is outside.
    pub(crate) fn pay(&mut self, now: u64, ns: u64) -> Option<(u64, u64, u64)> {
        self.paid = self.paid.saturating_add(ns);
        let (least, most) = (self.before, self.run(now));
        self.outside(least, most)
    }

    /// The same at the end of the account.
    pub(crate) fn settle(&mut self, now: u64) -> Option<(u64, u64, u64)> {
        let most = self.run(now);
        let least = if self.since.is_some() { self.before } else { most };
        self.outside(least, most)
    }

    /// Goes on from the range's nearer end, so that one wrong payment is one violation.
    fn outside(&mut self, least: u64, most: u64) -> Option<(u64, u64, u64)> {
        let paid = self.paid;
        self.paid = paid.clamp(least, most);
        (self.paid != paid).then_some((paid, least, most))
    }
}

/// A world's present state and past times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) state: State,
    pub(crate) since: u64,
    times: StateTimes,
}

impl Life {
    /// A life that begins in WAIT.
    pub(crate) fn new(now: u64) -> Life {
        Life { state: State::Wait, since: now, times: StateTimes::default() }
    }

    /// Goes over to another state.
    pub(crate) fn turn(&mut self, now: u64, next: State) {
        self.times.add(self.state, now - self.since);
        (self.state, self.since) = (next, now);
    }

    /// Times up to `now`.
    pub(crate) fn times(&self, now: u64) -> StateTimes {
        let mut times = self.times;
        times.add(self.state, now - self.since);
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payments_may_be_partial_and_late_but_never_ahead_and_never_short() {
        let mut s = Stints::default();
        s.begin(10);
        assert_eq!(s.pay(15, 3), None);
        assert_eq!(s.pay(15, 3), Some((6, 0, 5)));
        s.end(20);
        s.begin(30);
        assert_eq!(s.pay(31, 5), None); // 5 + 5 charges the first run in full
        assert_eq!(s.settle(32), None);
        s.end(40);
        assert_eq!(s.settle(40), Some((10, 20, 20)));
        s.begin(50);
        s.end(60);
        s.begin(70);
        assert_eq!(s.pay(71, 1), Some((21, 30, 31)));
    }
}
