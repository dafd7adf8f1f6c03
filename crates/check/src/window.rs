//! The law of lag over one window: demand, CPU time and lag of each VM; pure arithmetic on the
//! input from `lag.rs`.
//!
//! Promise: a VM's CPU time stays near that of an ideal fluid scheduler. The ideal runs every VM at
//! once, each at its rate, and sees only the demand of each.
//!
//! Law, for a window of `T` ns:
//! 1. A world *asks* for the time it was runnable (RUN, READY or COSTOP).
//! 2. The ideal gives VM `v` the time `x_v`: `divide_placed` of `T` on each pCPU, down the tree of
//!    pools, among what the VMs' worlds ask for on the pCPUs they may use. A world's part of `x_v`
//!    is proportional to what it asks for.
//! 3. `lag_v += used_v − x_v`. The sign is the opposite of the scheduler's: negative is *behind*,
//!    positive is *surplus*.
//! 4. A world that goes to sleep *forfeits* the time that it is behind since it woke, and no more
//!    than its VM is behind; a VM without a runnable world forfeits all. The sleeper did not use
//!    that time, so the ideal should have given it to the others: it is divided among them as the
//!    fluid would have, had the sleeper asked for less in this window. Time that no VM can use in
//!    this window goes to the VMs with a surplus, in the ratio of their surpluses: they have used
//!    it.
//! 5. A world that goes to sleep with a surplus goes on asking in its sleep, until the ideal has
//!    given its VM as much CPU time: the ideal is merely slower at the same work.
//! 6. Lag fades: each window takes `T ÷ memory` of it away. What a VM is entitled to does not.
//!
//! Why 4 and 5: without them two correct VMs drift apart without bound, if one sleeps. The fluid
//! here cannot know how much work a world brings when it wakes; it learns it when the world sleeps.
//! With them `Σ lag` stays near 0 as long as no pCPU is left idle that the fluid could use.
//!
//! Why 6: on several pCPUs a VM that cannot use its share while one of its worlds sleeps banks some
//! credit under every scheduler that keeps virtual time, up to a few quanta a sleep. Such a leak is
//! a small rate, not a debt: with memory `H`, a rate `r` shows as a lag of `r·H`. Without fading
//! (`u64::MAX`) the law is exact; on one pCPU virtual time does obey it
//! (`one_pcpu_never_drifts_even_if_lag_never_fades` in `tests/drift.rs`).
//!
//! Units: CPU ns. All whole numbers; a VM's `x_v` is less than 1 ns off a window.
//!
//! Example: pCPU 0, A and B of equal shares, T = 10 ms. A wakes, runs 4 ms at once and sleeps; B
//! waits, then runs 6 ms. A asked for 4, B for 10: the ideal gives 4 and 6, both lags are 0. Had A
//! run for 6 ms: asked 6 and 10, ideal 5 and 5, A has a surplus of 1, B is behind by 1. In the next
//! window A asks for 1 in its sleep; B, which runs all 10, gets 9 of the ideal. Both lags are 0.
//!
//! Limits: inside a window the order of events is lost: a VM that asked in the first half only
//! competes with one that asked in the second half only. The error is below one window and is
//! settled by 4 and 5. Known weakness: a VM that sleeps a moment in every window is never behind;
//! its waits are then bounded only by the bound on READY.

use crate::terms::Ideal;
use entitlement::Demand;

/// A VM in a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    /// In and out: service minus ideal, faded.
    pub(crate) lag: i64,
    /// Out: what the ideal gave it.
    pub(crate) ideal: i64,
    /// Whether it had no runnable world at some time in the window.
    pub(crate) idled: bool,
    /// The rest is `settle`'s own: what its worlds asked for, got, forfeit and gain from others'
    /// forfeits.
    pub(crate) asked: u64,
    /// Surplus that its worlds may still ask for in their sleep.
    pub(crate) asleep: u64,
    pub(crate) used: u64,
    pub(crate) forfeit: u64,
    pub(crate) extra: i64,
}

/// A world in a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// Position of its VM among the shares.
    pub(crate) vm: usize,
    /// Index of its allowed set.
    pub(crate) set: u32,
    /// Time runnable.
    pub(crate) demand: u64,
    /// Time in RUN.
    pub(crate) used: u64,
    /// In and out: ideal minus service since it woke; its surplus (negative) also while it sleeps.
    pub(crate) owed: i64,
    /// Whether it went to sleep in the window.
    pub(crate) slept: bool,
    /// Whether it is asleep at the end.
    pub(crate) asleep: bool,
    /// Out: the ideal's part for it.
    pub(crate) ideal: i64,
    /// `settle`'s own: demand and what it asks for in its sleep.
    pub(crate) claim: u64,
}

/// Settles windows one after the other; remembers the last division, which mostly repeats.
#[derive(Clone, Debug)]
pub(crate) struct Settler {
    memory: u64,
    last: Option<(u64, Vec<Demand>, Vec<u64>)>,
}

impl Settler {
    /// Lag fades with this time constant.
    pub(crate) fn new(memory: u64) -> Settler {
        Settler { memory, last: None }
    }

    /// Forgets the last division: the sets of pCPUs have changed.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }

    /// Applies the law above to a window of `wall` ns.
    pub(crate) fn settle(
        &mut self,
        ideal: &Ideal<'_>,
        wall: u64,
        shares: &mut [Share],
        parts: &mut [Part],
    ) {
        let demands = claims(wall, shares, parts);
        let given = match self.last.take() {
            Some((w, d, x)) if w == wall && d == demands => x,
            _ => ideal.divide(wall, &demands),
        };
        for part in parts.iter_mut() {
            let share = &mut shares[part.vm];
            share.used += part.used;
            part.ideal = portion(given[part.vm] as i64, part.claim, share.asked);
            part.owed += part.ideal - part.used as i64;
        }
        for (share, x) in shares.iter_mut().zip(&given) {
            share.ideal = *x as i64;
            share.lag += share.used as i64 - share.ideal;
        }
        if forfeits(shares, parts) {
            refund(ideal, wall, &demands, &given, shares);
            for share in shares.iter_mut() {
                let more = share.extra - share.forfeit as i64;
                share.ideal += more;
                share.lag -= more;
            }
            for part in parts.iter_mut() {
                let share = &shares[part.vm];
                let more = portion(share.extra, part.claim, share.asked);
                part.ideal += more;
                part.owed += more;
            }
        }
        for share in shares.iter_mut() {
            share.lag -= portion(share.lag, wall.min(self.memory), self.memory);
        }
        // Sleepers keep a surplus, as far as it is their VM's.
        for part in parts.iter_mut().filter(|p| p.asleep) {
            part.owed = part.owed.clamp(-shares[part.vm].lag.max(0), 0);
        }
        self.last = Some((wall, demands, given));
    }
}

/// `whole · part ÷ of`, rounded towards 0.
fn portion(whole: i64, part: u64, of: u64) -> i64 {
    if of == 0 || whole == 0 {
        return 0;
    }
    if part == of {
        return whole;
    }
    // Nearly all fit into 64 bits, where a division is one instruction.
    let small = i64::try_from(part).ok().zip(i64::try_from(of).ok());
    small
        .and_then(|(part, of)| Some(whole.checked_mul(part)? / of))
        .unwrap_or_else(|| (i128::from(whole) * i128::from(part) / i128::from(of)) as i64)
}

/// What each world asks for (1 and 5), gathered by VM and set.
fn claims(wall: u64, shares: &mut [Share], parts: &mut [Part]) -> Vec<Demand> {
    let mut demands: Vec<Demand> = vec![Demand::default(); shares.len()];
    shares.iter_mut().for_each(|s| s.asleep = s.lag.max(0) as u64);
    for part in parts.iter_mut() {
        let share = &mut shares[part.vm];
        let backlog = (-part.owed).max(0) as u64;
        let in_sleep = backlog.min(wall.saturating_sub(part.demand)).min(share.asleep);
        share.asleep -= in_sleep;
        part.claim = part.demand + in_sleep;
        share.asked += part.claim;
        let classes = &mut demands[part.vm].classes;
        match classes.last_mut() {
            Some(last) if last.0 == part.set => last.1 += part.claim,
            _ if part.claim > 0 => classes.push((part.set, part.claim)),
            _ => {}
        }
    }
    for demand in demands.iter_mut().filter(|d| d.classes.len() > 1) {
        demand.classes.sort_unstable();
        demand.classes.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
    }
    demands
}

/// What each VM forfeits (4); whether any does.
fn forfeits(shares: &mut [Share], parts: &mut [Part]) -> bool {
    for part in parts.iter_mut().filter(|p| p.slept && p.owed > 0) {
        let share = &mut shares[part.vm];
        let left = (-share.lag).max(0) as u64 - share.forfeit;
        let forfeit = left.min(part.owed as u64);
        share.forfeit += forfeit;
        part.ideal -= forfeit as i64;
        part.owed = 0;
    }
    for share in shares.iter_mut().filter(|s| s.idled) {
        share.forfeit = (-share.lag).max(0) as u64;
    }
    shares.iter().any(|s| s.forfeit > 0)
}

/// Gives what is forfeited to the others, in `extra`.
fn refund(ideal: &Ideal<'_>, wall: u64, demands: &[Demand], given: &[u64], shares: &mut [Share]) {
    gain(ideal, wall, demands, given, shares);
    let forfeited: u64 = shares.iter().map(|s| s.forfeit).sum();
    let gained: i64 = shares.iter().map(|s| s.extra).sum();
    let left = (forfeited as i64 - gained).max(0);
    let ahead = |s: &Share| if s.forfeit > 0 { 0 } else { (s.lag - s.extra).max(0) as u64 };
    let all: u64 = shares.iter().map(ahead).sum();
    for share in shares.iter_mut() {
        share.extra += portion(left.min(all as i64), ahead(share), all);
    }
}

/// Divides what is forfeited among the others, in `extra`: as they would gain if the forfeiting
/// VMs asked for less. What was earned over several windows is divided as in this one.
fn gain(ideal: &Ideal<'_>, wall: u64, demands: &[Demand], given: &[u64], shares: &mut [Share]) {
    let mut less = demands.to_vec();
    let (mut forfeited, mut returned) = (0u64, 0u64);
    for ((demand, x), share) in
        less.iter_mut().zip(given).zip(shares.iter()).filter(|d| d.1.forfeit > 0)
    {
        let back = share.forfeit.min(*x);
        forfeited += share.forfeit;
        returned += back;
        for class in &mut demand.classes {
            class.1 = portion((*x - back) as i64, class.1, share.asked) as u64;
        }
    }
    if returned == 0 {
        return;
    }
    let after = ideal.divide(wall, &less);
    for ((share, x), y) in shares.iter_mut().zip(given).zip(after).filter(|s| s.0.0.forfeit == 0) {
        share.extra = portion(y as i64 - *x as i64, forfeited, returned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VmTerms, terms};
    use entitlement::Fluid;
    use units::PcpuSet;

    fn share(lag: i64) -> Share {
        Share { lag, ..Share::default() }
    }

    fn settle(shares: &mut [Share], parts: &mut [Part]) {
        let host = PcpuSet::first(1);
        let fluid = Fluid::new(&host, std::slice::from_ref(&host));
        let tree = terms::tree(
            1,
            &[terms::root()],
            shares.iter().map(|_| (VmTerms::from(1000), false)),
            None,
        );
        let leaves: Vec<u32> = (0..shares.len() as u32).collect();
        let ideal = Ideal { fluid: &fluid, tree: &tree, leaves: &leaves };
        Settler::new(u64::MAX).settle(&ideal, 10, shares, parts);
    }

    #[test]
    fn a_portion_is_exact_whatever_the_size_of_its_numbers() {
        let large = i64::MAX; // its rest by 3 is 1
        assert_eq!(
            [portion(7, 2, 3), portion(-7, 2, 3), portion(large, 2, 3)],
            [4, -4, large / 3 * 2]
        );
        assert_eq!(
            [portion(7, 3, 3), portion(7, u64::MAX, u64::MAX - 1), portion(7, 3, 0)],
            [7, 7, 0]
        );
    }

    #[test]
    fn the_example_of_the_header_holds() {
        let mut s = [share(0), share(0)];
        let a = Part { vm: 0, demand: 4, used: 4, slept: true, asleep: true, ..Part::default() };
        let b = Part { vm: 1, demand: 10, used: 6, ..Part::default() };
        settle(&mut s, &mut [a.clone(), b.clone()]);
        assert_eq!((s[0].lag, s[1].lag), (0, 0));

        let mut s = [share(0), share(0)];
        let mut parts = [Part { demand: 6, used: 6, ..a }, Part { used: 4, ..b.clone() }];
        settle(&mut s, &mut parts);
        assert_eq!((s[0].lag, s[1].lag, parts[0].owed), (1, -1, -1));

        let mut s = [share(1), share(-1)];
        let mut parts = [
            Part { vm: 0, owed: -1, asleep: true, ..Part::default() },
            Part { used: 10, owed: 1, ..b },
        ];
        settle(&mut s, &mut parts);
        assert_eq!((s[0].lag, s[1].lag, parts[0].owed), (0, 0, 0));
    }

    #[test]
    fn what_a_sleeper_forfeits_goes_to_those_who_asked() {
        // Three equal VMs on one pCPU; A waits 9 of 10 ms and sleeps after 1. The ideal gave each
        // 3.33.
        let mut s = [share(0), share(0), share(0)];
        let part = |vm, used, slept| Part {
            vm,
            demand: 10,
            used,
            slept,
            asleep: slept,
            ..Part::default()
        };
        let mut parts = [part(0, 1, true), part(1, 5, false), part(2, 4, false)];
        s[0].idled = true;
        settle(&mut s, &mut parts);
        assert_eq!([s[0].lag, s[1].lag, s[2].lag], [0, 0, 0]);
    }

    #[test]
    fn what_nobody_can_use_any_more_goes_to_those_who_used_it() {
        // A is behind by 4 since earlier windows, sleeps all through this one but its end; B is
        // ahead by 3 and C by 1, and both ran all they asked for.
        let mut s = [share(-4), share(3), share(1)];
        s[0].idled = true;
        let a = Part { vm: 0, owed: 4, slept: true, asleep: true, ..Part::default() };
        let part = |vm| Part { vm, demand: 5, used: 5, ..Part::default() };
        settle(&mut s, &mut [a, part(1), part(2)]);
        assert_eq!([s[0].lag, s[1].lag, s[2].lag], [0, 0, 0]);
    }

    #[test]
    fn one_world_sleeping_forfeits_only_what_it_is_owed_itself() {
        // A has two worlds on its own pCPU; one got everything, so A as a whole is not behind.
        let mut s = [share(0)];
        let hog = Part { demand: 10, used: 10, ..Part::default() };
        let waiter = Part { demand: 10, slept: true, asleep: true, ..Part::default() };
        let mut parts = [hog, waiter];
        settle(&mut s, &mut parts);
        assert_eq!((s[0].lag, parts[0].owed, parts[1].owed), (0, -5, 0));
    }
}
