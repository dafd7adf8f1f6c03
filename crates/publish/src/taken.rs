//! What real-time tasks and others of higher scheduling classes take of each pCPU, from what the
//! scheduler has counted; it is not there to be divided.
//!
//! Promise: within two seconds of a change the plan divides what is left, and a plan is not made
//! anew for less than a 64th of a pCPU (spec R9).
//!
//! Law: once a second the mean of that second, in 64ths of a pCPU, rounded to the nearest, where it
//! is two at least: less is the kernel's own way from world to world where a hypervisor takes time
//! from it. It comes into force if that of some pCPU is another by more than one 64th.
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

/// What is taken now.
#[derive(Clone, Debug, Default)]
pub struct Takers {
    /// Until when, and what each pCPU had lost until then, in ns.
    seen: Option<(u64, BTreeMap<PcpuId, u64>)>,
    in_force: Taken,
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
        let Some((since, before)) = &self.seen else {
            self.seen = Some((now_ns, lost_ns));
            return false;
        };
        let period = now_ns.saturating_sub(*since);
        if period < PERIOD_NS {
            return false;
        }
        let rate = |(pcpu, lost): (&PcpuId, &u64)| {
            let ns = lost.saturating_sub(*before.get(pcpu)?).min(period);
            let steps = (u128::from(ns) * 64 + u128::from(period) / 2) / u128::from(period);
            (steps >= LEAST).then_some((*pcpu, Rate(steps as u64 * STEP)))
        };
        let now: Taken = lost_ns.iter().filter_map(rate).collect();
        self.seen = Some((now_ns, lost_ns));
        let of = |all: &Taken, pcpu: &PcpuId| all.get(pcpu).map_or(0, |rate| rate.0);
        let mut pcpus = now.keys().chain(self.in_force.keys());
        let differs = pcpus.any(|p| of(&now, p).abs_diff(of(&self.in_force, p)) > STEP);
        if differs {
            self.in_force = now;
        }
        differs
    }
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
