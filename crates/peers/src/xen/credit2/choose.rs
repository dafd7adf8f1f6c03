//! What a pCPU of Credit2 runs and for how long, what that costs, and when credits are given anew.
//! It sends no pCPU anywhere.
//!
//! *Law*: CPU time `t` costs `t · max ÷ w` credits, the remainder kept, `w` being the world's
//! weight and `max` the largest of its run queue; credit is never below -10 ms.
//! - *Next* is what runs, for the ratelimit; then the first of the run queue that has more credit
//!   than what runs (any if that yields), may run here, was not sent to another pCPU, has 500 us
//!   more if it belongs to another pCPU, and has budget.
//! - *Reset*: if neither what is next nor the first that waits has credit left, all worlds of the
//!   run queue, asleep or not, get 10 ms (20 ms if what is next is at -10 ms), up to 10.5 ms.
//! - *Run*: until the credit is that of the first that waits, or 0 if that has none; no longer than
//!   the budget and 10 ms, no shorter than 0.5 ms and what is left of the ratelimit.
//!
//! *Source*: t2c_update, runq_candidate, reset_credit, csched2_runtime; CSCHED2_* constants.
//!
//! *Example*: weights of 128 and 896 on one pCPU: a run of 1 ms costs 7 ms and 1 ms.

use super::super::RATELIMIT_NS;
use super::{CREDIT_NS, Credit2, RESIST_NS};
use contract::Callback;

/// Least credit of a world.
const CREDIT_MIN: i64 = -CREDIT_NS;
/// Shortest run, in ns, and the credit that a reset leaves beyond what it gives.
const SHORTEST_NS: i64 = 500_000;
/// What a world gets that comes from another pCPU of its queue, in ns of credit.
const COMPENSATION_NS: i64 = 50_000;

/// Credit and remainder after a time.
fn burnt(credit: i64, residual: u64, ran_ns: u64, max: u64, weight: u64) -> (i64, u64) {
    let cost = u128::from(ran_ns) * u128::from(max) + u128::from(residual);
    let (cost, rest) = (cost / u128::from(weight), cost % u128::from(weight));
    let cost = i64::try_from(cost).unwrap_or(i64::MAX);
    (credit.saturating_sub(cost).max(CREDIT_MIN), rest as u64)
}

impl Credit2 {
    fn credit(&self, world: u32) -> i64 {
        self.worlds[world as usize].credit
    }

    /// Takes the credit, and the budget, that the world on a pCPU has used since the last time.
    pub(super) fn burn(&mut self, pcpu: u32, now_ns: u64) {
        let ran = self.machine.charge(pcpu, now_ns);
        let world = self.machine.current(pcpu);
        let weight = self.weight(world);
        let account = &mut self.worlds[world as usize];
        let max = self.queues[account.queue].max_weight;
        (account.credit, account.residual) =
            burnt(account.credit, account.residual, ran, max, weight);
        account.budget = account.budget.map(|left| left - ran as i64);
    }

    /// What is to run on a pCPU where `prev` would go on; what waits is still in the run queue.
    pub(super) fn candidate(
        &mut self,
        k: &mut Callback<'_>,
        pcpu: u32,
        prev: Option<u32>,
    ) -> Option<u32> {
        let yields = prev.is_some_and(|w| std::mem::take(&mut self.worlds[w as usize].yields));
        if prev.is_some() && !yields && self.machine.ran_ns(pcpu, k.now_ns) < RATELIMIT_NS {
            return prev;
        }
        let least = prev.map_or(CREDIT_MIN - 1, |w| self.credit(w));
        let mut i = 0;
        while let Some(world) = self.queues[self.queue_of(pcpu)].waiting.get(i).copied() {
            let of = self.worlds[world as usize];
            if !yields && of.credit <= least {
                break;
            }
            let deferred =
                of.tickled.is_some_and(|to| to != pcpu && self.pcpus[to as usize].tickled);
            let far = of.at != pcpu && least + RESIST_NS > of.credit;
            if !self.machine.may_run(k.task(world), pcpu) || deferred || far {
                i += 1;
            } else if self.has_budget(world) {
                return Some(world);
            } else {
                self.park_waiting(k, world); // it is in the queue no more
            }
        }
        prev
    }

    /// Credits are given anew if no world of a pCPU's queue has any, and queues are balanced.
    pub(super) fn reset_if_over(&mut self, k: &mut Callback<'_>, pcpu: u32, next: u32) {
        let queue = self.queue_of(pcpu);
        let waits = self.queues[queue].waiting.first().map_or(i64::MIN, |w| self.credit(*w));
        if self.credit(next).max(waits) > 0 {
            return;
        }
        let more = if self.credit(next) <= CREDIT_MIN { 2 * CREDIT_NS } else { CREDIT_NS };
        for world in self.queues[queue].worlds.clone() {
            let at = self.worlds[world as usize].at;
            if self.machine.current(at) == world {
                self.burn(at, k.now_ns);
                if self.worlds[world as usize].budget.is_some_and(|left| left <= 0) {
                    self.tickle_pcpu(k, at);
                }
            }
            let account = &mut self.worlds[world as usize];
            account.credit = (account.credit + more).min(CREDIT_NS + SHORTEST_NS);
        }
        self.balance(k, queue);
    }

    /// A pCPU takes a world to run.
    pub(super) fn takes(&mut self, world: u32, pcpu: u32) {
        let account = &mut self.worlds[world as usize];
        account.tickled = None;
        if account.at != pcpu {
            account.credit += COMPENSATION_NS;
            account.at = pcpu;
        }
    }

    /// For how long a world is to run on a pCPU, where one with the credit `displaced` is about to
    /// wait.
    pub(super) fn run_ns(
        &self,
        pcpu: u32,
        world: u32,
        stays: bool,
        displaced: Option<i64>,
        now_ns: u64,
    ) -> u64 {
        let ran = if stays { self.machine.ran_ns(pcpu, now_ns) } else { 0 };
        let least = SHORTEST_NS.max(RATELIMIT_NS.saturating_sub(ran) as i64);
        let of = &self.worlds[world as usize];
        let queue = &self.queues[of.queue];
        let waits = queue.waiting.first().map_or(0, |w| self.credit(*w));
        let credit = of.credit - waits.max(displaced.unwrap_or(0)).max(0);
        let ns = i128::from(credit.max(0)) * i128::from(self.weight(world));
        let ns = (ns / i128::from(queue.max_weight)) as i64;
        of.budget.map_or(ns, |left| ns.min(left)).clamp(least, CREDIT_NS) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_burns_by_the_largest_weight_and_keeps_the_remainder() {
        assert_eq!(burnt(10, 0, 7, 896, 128), (10 - 49, 0));
        assert_eq!(burnt(0, 2, 1, 3, 2), (-2, 1));
        assert_eq!(burnt(0, 0, 20_000_000, 256, 256), (CREDIT_MIN, 0));
        assert_eq!(burnt(0, 0, u64::MAX, u64::MAX, 1).0, CREDIT_MIN);
    }
}
