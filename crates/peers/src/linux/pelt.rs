//! The part of the recent past in which something held, as an average that decays; it weighs
//! nothing.
//!
//! *Law*: an average of 0 to `ONE` that comes half as near to its target in `HALF_LIFE_NS`: to
//! `ONE` while the state holds, to 0 while it does not (per-entity load tracking, Linux
//! `kernel/sched/pelt.c`: y^32 = 1/2 by periods of 1024 us). Between two whole periods it is
//! linear.
//!
//! *Example*: a world that begins to run has 512 of 1024 after 32.8 ms, 768 after 65.5 ms.

/// The whole.
pub(super) const ONE: u64 = 1 << 20;
/// One period, in ns.
const PERIOD_NS: u64 = 1024 * 1024;
/// Periods of a half-life; it takes that many to come half as near.
const PERIODS: u64 = 32;
/// Half-lives after which nothing is left.
const MOST: u64 = 40;
/// What is left after one period, of 2^32: 2^(-1/32).
const Y: u64 = 4_202_935_003;

/// An average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pelt {
    value: u64,
    on: bool,
    at_ns: u64,
}

/// What is left of `value` after so many ns, rounded down.
fn decayed(value: u64, ns: u64) -> u64 {
    let periods = ns / PERIOD_NS;
    if periods >= PERIODS * MOST {
        return 0;
    }
    let (mut left, part) = ((value << 20) >> (periods / PERIODS), ns % PERIOD_NS);
    for _ in 0..periods % PERIODS {
        left = ((u128::from(left) * u128::from(Y)) >> 32) as u64;
    }
    let lost = ((u128::from(left) * u128::from((1 << 32) - Y)) >> 32) as u64;
    let lost = (u128::from(lost) * u128::from(part) / u128::from(PERIOD_NS)) as u64;
    (left - lost) >> 20
}

impl Pelt {
    /// An average that stands at `value`, of something that does not hold.
    pub(super) fn new(value: u64, now_ns: u64) -> Pelt {
        Pelt { value, on: false, at_ns: now_ns }
    }

    /// The average now.
    pub(super) fn get(&self, now_ns: u64) -> u64 {
        let ns = now_ns - self.at_ns;
        if !self.on && self.value == 0 {
            return 0;
        }
        if self.on { ONE - decayed(ONE - self.value, ns) } else { decayed(self.value, ns) }
    }

    /// From now on it holds, or not.
    pub(super) fn set(&mut self, now_ns: u64, on: bool) {
        *self = Pelt { value: self.get(now_ns), on, at_ns: now_ns };
    }

    /// Something of this average has come, or (`gone`) left.
    pub(super) fn shift(&mut self, now_ns: u64, by: u64, gone: bool) {
        let value = self.get(now_ns);
        let value = if gone { value.saturating_sub(by) } else { (value + by).min(ONE) };
        *self = Pelt { value, on: self.on, at_ns: now_ns };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_comes_half_as_near_in_32_periods_both_ways() {
        let mut up = Pelt::new(0, 5);
        up.set(5, true);
        let half = 5 + PERIODS * PERIOD_NS;
        assert!(up.get(half).abs_diff(ONE / 2) < 4, "{}", up.get(half));
        up.set(half, false);
        assert!(up.get(half + PERIODS * PERIOD_NS).abs_diff(ONE / 4) < 4);
        assert_eq!(up.get(half + MOST * PERIODS * PERIOD_NS), 0);
    }

    #[test]
    fn many_looks_give_what_one_gives() {
        let (mut often, mut once) = (Pelt::new(ONE, 0), Pelt::new(ONE, 0));
        for ms in 1..=100 {
            often.set(ms * 1_000_000, false);
        }
        once.set(100_000_000, false);
        assert!(often.get(100_000_000).abs_diff(once.get(100_000_000)) < ONE / 1000);
    }
}
