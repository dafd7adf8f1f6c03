//! What real-time tasks and others of higher scheduling classes take of each pCPU, from what the
//! scheduler has counted; it is not there to be divided.
//!
//! Promise: within two seconds of a change the plan divides what is left, unless it is one of many
//! that come and go; and a plan is not made anew for less than a 64th of a pCPU (spec R9), nor all
//! the time for a task that runs now and then.
//!
//! Law: once a second the mean of that second, in 64ths of a pCPU, rounded to the nearest, where it
//! is two at least: less is the kernel's own way from world to world where a hypervisor takes time
//! from it. It comes into force if that of some pCPU is another by more than one 64th. After four
//! such changes without 15 s in which nothing differs, it is the mean of 16 s that does, until
//! nothing has differed for 15 s.
//!
//! Units: ns, and `Rate`.
//!
//! Limits: an average. While a task takes a pCPU all of it is gone, and worlds that may run only
//! there wait.

use entitlement::Taken;
use std::collections::BTreeMap;
use units::{PcpuId, Rate};

const PERIOD_NS: u64 = 1_000_000_000;
const STEP: u64 = Rate::ONE.0 / 64;
/// Steps that count at least.
const LEAST: u128 = 2;
/// So many changes come into force a second after they began.
const QUICK: u32 = 4;
/// The others are means of this time.
const SLOW_NS: u64 = 16_000_000_000;
/// After so long without a difference the next changes are quick again.
const CALM_NS: u64 = 15_000_000_000;

/// What each pCPU had lost until some time, in ns.
#[derive(Clone, Debug)]
struct Seen {
    at_ns: u64,
    lost_ns: BTreeMap<PcpuId, u64>,
}

/// What is taken now.
#[derive(Clone, Debug, Default)]
pub struct Takers {
    /// The last look.
    seen: Option<Seen>,
    /// Where the mean of `SLOW_NS` begins.
    slow: Option<Seen>,
    in_force: Taken,
    /// Changes since the last calm.
    changes: u32,
    /// When the mean of a second was last another than what was in force.
    differed_ns: u64,
}

impl Takers {
    /// What is divided by.
    #[must_use]
    pub fn in_force(&self) -> &Taken {
        &self.in_force
    }

    /// Looks at what each pCPU has lost in all until `now_ns`. Whether something else is in force
    /// from now on.
    pub fn look(&mut self, now_ns: u64, lost_ns: BTreeMap<PcpuId, u64>) -> bool {
        let now = Seen { at_ns: now_ns, lost_ns };
        let Some(before) = &self.seen else {
            (self.seen, self.slow) = (Some(now.clone()), Some(now));
            return false;
        };
        if now_ns.saturating_sub(before.at_ns) < PERIOD_NS {
            return false;
        }
        let mean = now.since(before);
        let differs = differ(&mean, &self.in_force);
        if differs {
            self.differed_ns = now_ns;
        } else if now_ns.saturating_sub(self.differed_ns) >= CALM_NS {
            self.changes = 0;
        }
        let quick = self.changes < QUICK;
        let slow = self.slow.as_ref().filter(|s| now_ns.saturating_sub(s.at_ns) >= SLOW_NS);
        let new = match slow {
            _ if quick => Some(mean).filter(|_| differs),
            Some(slow) => Some(now.since(slow)).filter(|mean| differ(mean, &self.in_force)),
            None => None,
        };
        if slow.is_some() || quick && differs {
            self.slow = Some(now.clone());
        }
        self.seen = Some(now);
        self.changes += u32::from(quick && differs);
        let changed = new.is_some();
        self.in_force = new.unwrap_or_else(|| std::mem::take(&mut self.in_force));
        changed
    }
}

impl Seen {
    /// The mean of the time since another look, of pCPUs that were there then.
    fn since(&self, before: &Seen) -> Taken {
        let period = self.at_ns.saturating_sub(before.at_ns).max(1);
        let rate = |(pcpu, lost): (&PcpuId, &u64)| {
            let ns = lost.saturating_sub(*before.lost_ns.get(pcpu)?).min(period);
            let steps = (u128::from(ns) * 64 + u128::from(period) / 2) / u128::from(period);
            (steps >= LEAST).then_some((*pcpu, Rate(steps as u64 * STEP)))
        };
        self.lost_ns.iter().filter_map(rate).collect()
    }
}

/// Whether that of some pCPU is another by more than a step.
fn differ(a: &Taken, b: &Taken) -> bool {
    let of = |all: &Taken, pcpu: &PcpuId| all.get(pcpu).map_or(0, |rate| rate.0);
    a.keys().chain(b.keys()).any(|p| of(a, p).abs_diff(of(b, p)) > STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_mean_of_a_second_comes_into_force_when_it_changes_by_more_than_a_step() {
        let mut takers = Takers::default();
        let mut look = |ms: u64, lost: [u64; 2]| {
            let lost = (0..).map(PcpuId).zip(lost.map(|ms| ms * MS)).collect();
            let differs = takers.look(ms * MS, lost);
            (differs, takers.in_force().values().map(|rate| rate.0 / STEP).collect::<Vec<_>>())
        };
        // What was before the first look is not known.
        assert_eq!(look(5000, [900, 0]), (false, vec![]));
        assert_eq!(look(5900, [1200, 0]), (false, vec![]));
        assert_eq!(look(6000, [1200, 0]), (true, vec![19]), "30 % are 19.2 of 64");
        assert_eq!(look(7000, [1510, 15]), (false, vec![19]), "one step is none");
        assert_eq!(look(9000, [2110, 1015]), (true, vec![19, 32]));
        assert_eq!(look(10_000, [2133, 1015]), (true, vec![]), "1.5 steps and more are two");
        assert_eq!(look(11_000, [2157, 1015]), (true, vec![2]));
    }

    /// Lets a task take `ms` of a pCPU from each of these milliseconds on. How often something else
    /// comes into force in `seconds` that begin at `from`, and what is in force then.
    fn periodic(
        takers: &mut Takers,
        starts: &[u64],
        ms: u64,
        (from, seconds): (u64, u64),
    ) -> usize {
        let lost = |at: u64| starts.iter().map(|s| at.saturating_sub(*s).min(ms) * MS).sum();
        let look = |second: u64| {
            let at = (from + second) * 1000;
            takers.look(at * MS, BTreeMap::from([(PcpuId(0), lost(at))]))
        };
        (0..seconds).map(look).filter(|changed| *changed).count()
    }

    #[test]
    fn a_light_task_that_runs_now_and_then_does_not_change_the_plan_all_the_time() {
        let starts: Vec<u64> = (0..2000).map(|n| n * 1500 + 10).collect();
        let mut takers = Takers::default();
        assert!(periodic(&mut takers, &starts, 40, (0, 60)) <= QUICK as usize + 1);
        assert_eq!(periodic(&mut takers, &starts, 40, (60, 600)), 0);
        let mean = Taken::from([(PcpuId(0), Rate(2 * STEP))]);
        assert_eq!(*takers.in_force(), mean, "40 of 1500 ms are 1.7 of 64");
        // So a heavy one that comes seldom.
        let starts: Vec<u64> = (0..600).map(|n| n * 5000 + 10).collect();
        let mut takers = Takers::default();
        assert!(periodic(&mut takers, &starts, 400, (0, 600)) <= 20);
        assert!(takers.in_force()[&PcpuId(0)].0.abs_diff(5 * STEP) <= 2 * STEP);
    }

    #[test]
    fn after_a_calm_a_change_is_known_within_a_second_again() {
        let starts: Vec<u64> = (0..40).map(|n| n * 1500 + 10).collect(); // a minute
        let mut takers = Takers::default();
        periodic(&mut takers, &starts, 40, (0, 100));
        assert_eq!(takers.in_force().len(), 0, "it has ended");
        let mut look = |ms: u64, lost: u64| {
            takers.look(ms * MS, BTreeMap::from([(PcpuId(0), (1600 + lost) * MS)]))
        };
        assert!(!look(100_000, 0));
        assert!(look(101_000, 500) && look(102_000, 500));
    }

    #[test]
    fn a_pcpu_that_has_come_is_known_a_second_later() {
        let mut takers = Takers::default();
        let lost = |all: &[(u16, u64)]| all.iter().map(|(p, ms)| (PcpuId(*p), ms * MS)).collect();
        assert!(!takers.look(0, lost(&[(0, 0)])));
        assert!(!takers.look(1000 * MS, lost(&[(0, 0), (1, 700)])));
        assert!(takers.look(2000 * MS, lost(&[(0, 0), (1, 1200)])));
        assert_eq!(*takers.in_force(), Taken::from([(PcpuId(1), Rate(32 * STEP))]));
    }
}
