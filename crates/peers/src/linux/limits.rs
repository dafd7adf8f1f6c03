//! Limits of VMs and pools as `cpu.max` keeps them: CFS bandwidth control. It picks no world.
//!
//! *Law*: a cgroup has `limit · 100 ms` of quota each period of 100 ms. Its run queue on a pCPU
//! takes 5 ms of that at a time, and is throttled as a whole when its part is used up and no quota
//! is left: it leaves its pCPU with all worlds below it, until a period begins or other pCPUs
//! return quota. One whose worlds all sleep returns its part but 1 ms. What a world uses until the
//! next look, a tick at most, is paid back in the next period. With a burst, that much quota of
//! earlier periods is kept (Linux, `Documentation/scheduler/sched-bwc.rst`, `kernel/sched/fair.c`).
//!
//! *Example*: 50 % of a pCPU is 50 ms in 100: a burner runs for 50 ms, up to the next tick, and
//! then waits for the rest of the period.
//!
//! Periods begin at multiples of 100 ms of the host's clock, from Linux 6.4 on at a random moment
//! of these 100 ms for each cgroup (`start_cfs_bandwidth`, `init_cfs_bandwidth`). A cgroup that has
//! not run for a period has no timer; its next period begins where it would have.
//!
//! *Limits*: from 6.18 on Linux throttles single threads where they return to user space, which is
//! the same for a vCPU.

use super::Linux;
use super::entity::How;
use super::terms::{KEEPS_NS, Law, NEAR_NS, PERIOD_NS, QUOTA_MIN_NS, SLACK_NS, SLICE_NS};
use contract::{Callback, Hold, KICK_IDLE, KICK_PREEMPT, Limit, LimitOf, Limits};

/// A limit of one pCPU is 1 << this.
const RATE_SHIFT: u32 = 20;
/// Timer of periods and returned quota.
pub(super) const TIMER: u32 = 0;

/// A cgroup's limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Bandwidth {
    /// CPU time of a period, and what of earlier periods is kept, in ns.
    quota_ns: i64,
    burst_ns: i64,
    /// Quota that no pCPU has taken yet, in ns.
    left_ns: i64,
    /// A moment at which a period begins, or would: it stays as long as the cgroup does.
    phase_ns: u64,
    /// When the next period begins; none while nothing uses the limit.
    period_at: Option<u64>,
    /// When returned quota is given out.
    slack_at: Option<u64>,
    /// No quota was taken in this period.
    idle: bool,
    /// Run queues that are throttled, in that order.
    throttled: Vec<usize>,
}

impl Bandwidth {
    /// When the next period begins.
    fn next_period(&self, now_ns: u64) -> u64 {
        let since = (now_ns % PERIOD_NS + PERIOD_NS - self.phase_ns) % PERIOD_NS;
        now_ns + PERIOD_NS - since
    }
}

/// What is yet to be passed to the kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Untold {
    /// pCPUs that are to pick anew.
    pub(super) picks: Vec<u32>,
    /// pCPUs where something else runs, or where others have come or gone beside it.
    pub(super) hrticks: Vec<u32>,
    /// Run queues that were throttled or are no longer.
    rqs: Vec<usize>,
    /// When the timer comes.
    armed: Option<u64>,
}

impl Linux {
    /// Charges the limit of a run queue; whether nothing is left of it.
    pub(super) fn consume(&mut self, now_ns: u64, rq: usize, ran_ns: u64) -> bool {
        if self.groups[self.group_of(rq)].limit.is_none() {
            return false;
        }
        self.rqs[rq].left_ns -= ran_ns as i64;
        self.rqs[rq].left_ns <= 0 && !self.rqs[rq].throttled && !self.refill(now_ns, rq, SLICE_NS)
    }

    /// Takes quota for a run queue, up to `target`; whether it has any then.
    fn refill(&mut self, now_ns: u64, rq: usize, target_ns: i64) -> bool {
        let group = self.group_of(rq);
        let Some(limit) = &mut self.groups[group].limit else { return true };
        let next = limit.next_period(now_ns);
        limit.period_at.get_or_insert(next);
        let takes = (target_ns - self.rqs[rq].left_ns).min(limit.left_ns).max(0);
        limit.left_ns -= takes;
        limit.idle &= takes == 0;
        self.rqs[rq].left_ns += takes;
        self.rqs[rq].left_ns > 0
    }

    /// Throttles a run queue that has nothing left; whether it is throttled.
    pub(super) fn throttle(&mut self, now_ns: u64, rq: usize) -> bool {
        let group = self.group_of(rq);
        if self.groups[group].limit.is_none() || self.rqs[rq].left_ns > 0 {
            return false;
        }
        if self.rqs[rq].throttled {
            return true;
        }
        if self.refill(now_ns, rq, 1) {
            return false;
        }
        if let Some(limit) = &mut self.groups[group].limit {
            limit.throttled.push(rq);
        }
        self.rqs[rq].throttled = true;
        self.untold.rqs.push(rq);
        if let Some(owner) = self.owner(rq).filter(|id| self.entities[*id].on_rq) {
            self.leave(now_ns, owner, true, false);
        }
        true
    }

    /// The first world comes to a run queue: it is throttled at once if nothing is left.
    pub(super) fn throttle_at_start(&mut self, now_ns: u64, rq: usize) {
        if !self.rqs[rq].throttled && self.consume(now_ns, rq, 0) {
            self.throttle(now_ns, rq);
        }
    }

    fn unthrottle(&mut self, now_ns: u64, rq: usize) {
        self.rqs[rq].throttled = false;
        self.untold.rqs.push(rq);
        if let Some(owner) = self.owner(rq).filter(|_| !self.rqs[rq].queue.is_empty()) {
            self.charge(now_ns, self.pcpu_of(rq));
            self.join(now_ns, owner, How::Wakes);
        }
    }

    /// The last world leaves a run queue: what it does not keep is for others.
    pub(super) fn return_slack(&mut self, now_ns: u64, rq: usize) {
        let group = self.group_of(rq);
        let Some(limit) = &mut self.groups[group].limit else { return };
        let slack = self.rqs[rq].left_ns - KEEPS_NS;
        if slack <= 0 || !self.rqs[rq].queue.is_empty() {
            return;
        }
        self.rqs[rq].left_ns = KEEPS_NS;
        limit.left_ns += slack;
        let soon = limit.period_at.is_some_and(|at| at < now_ns + NEAR_NS);
        if limit.left_ns > SLICE_NS && !limit.throttled.is_empty() && !soon {
            limit.slack_at.get_or_insert(now_ns + SLACK_NS);
        }
    }

    /// Gives quota to throttled run queues, each as much as lets it run.
    fn hand_out(&mut self, now_ns: u64, group: usize) {
        let mut i = 0;
        loop {
            let Some(limit) = &mut self.groups[group].limit else { return };
            let Some(rq) = limit.throttled.get(i).copied() else { return };
            let gives = (1 - self.rqs[rq].left_ns).min(limit.left_ns).max(0);
            limit.left_ns -= gives;
            self.rqs[rq].left_ns += gives;
            if self.rqs[rq].left_ns > 0 {
                limit.throttled.remove(i);
                self.unthrottle(now_ns, rq);
            } else {
                i += 1;
            }
        }
    }

    /// Periods that begin, and returned quota that is due.
    pub(super) fn limits_are_due(&mut self, now_ns: u64) {
        for group in 0..self.groups.len() {
            let Some(limit) = &mut self.groups[group].limit else { continue };
            if limit.period_at.is_some_and(|at| at <= now_ns) {
                let most = limit.quota_ns + limit.burst_ns;
                limit.left_ns = (limit.left_ns + limit.quota_ns).min(most);
                let next = limit.next_period(now_ns);
                let ends = limit.idle && limit.throttled.is_empty();
                limit.period_at = (!ends).then_some(next);
                limit.idle = limit.throttled.is_empty();
                self.hand_out(now_ns, group);
            }
            let Some(limit) = &mut self.groups[group].limit else { continue };
            if limit.slack_at.is_some_and(|at| at <= now_ns) {
                limit.slack_at = None;
                if limit.left_ns > SLICE_NS {
                    self.hand_out(now_ns, group);
                }
            }
        }
    }

    /// Puts limits into force. One that changes begins with its quota, and its pCPUs with nothing.
    pub(super) fn set_limits(&mut self, k: &mut Callback<'_>, limits: &Limits<'_>) {
        let now_ns = k.now_ns;
        self.limited |= !limits.limits.is_empty();
        for group in 1..self.groups.len() {
            let of = |l: &&Limit| match l.of {
                LimitOf::Pool(pool) => pool as usize == group,
                LimitOf::Vm(vm) => self.group_of_vm(vm) == group,
            };
            let new = limits.limits.iter().find(of).map(|l| {
                let quota = (u128::from(l.rate.0) * u128::from(PERIOD_NS)) >> RATE_SHIFT;
                ((quota as u64).max(QUOTA_MIN_NS) as i64, l.burst_ns as i64)
            });
            let old = self.groups[group].limit.as_ref().map(|l| (l.quota_ns, l.burst_ns));
            if new == old {
                continue;
            }
            let had = self.groups[group].limit.take();
            let phase_ns = match (self.groups[group].phase_ns, self.law) {
                (Some(phase_ns), _) => phase_ns,
                (None, Law::Cfs) => 0,
                (None, Law::Eevdf) => u64::from(k.kernel.random()) % PERIOD_NS,
            };
            self.groups[group].phase_ns = Some(phase_ns);
            self.groups[group].limit = new.map(|(quota_ns, burst_ns)| Bandwidth {
                quota_ns,
                burst_ns,
                left_ns: quota_ns,
                phase_ns,
                period_at: had.as_ref().and_then(|l| l.period_at),
                ..Bandwidth::default()
            });
            for pcpu in 0..self.pcpus.len() as u32 {
                let rq = self.rq_of(group, pcpu);
                self.rqs[rq].left_ns = 0;
                if self.rqs[rq].throttled {
                    self.unthrottle(now_ns, rq);
                }
            }
        }
    }

    /// Tells the kernel which pCPUs are to pick anew and which worlds limits hold back, wakes pCPUs
    /// that may run some again, and arms the timer.
    pub(super) fn tell(&mut self, k: &mut Callback<'_>) {
        while let Some(pcpu) = self.untold.picks.pop() {
            if self.pcpus[pcpu as usize].runs != 0 {
                k.kernel.kick(pcpu, KICK_PREEMPT);
            }
        }
        while let Some(rq) = self.untold.rqs.pop() {
            for world in self.queued_below(rq) {
                let held = self.is_throttled(world as usize);
                k.kernel.hold(world, if held { Hold::Limited } else { Hold::None });
            }
            let pcpu = self.pcpu_of(rq);
            let has = !self.rqs[pcpu as usize].queue.is_empty();
            if has && self.pcpus[pcpu as usize].runs == 0 {
                k.kernel.kick(pcpu, KICK_IDLE);
            }
        }
        self.start_hrticks(k);
        if !self.limited {
            return;
        }
        let due = |l: &Bandwidth| l.period_at.into_iter().chain(l.slack_at).min();
        let due = self.groups.iter().filter_map(|g| due(g.limit.as_ref()?)).min();
        if let Some(at) = due.filter(|_| due != self.untold.armed) {
            k.kernel.arm(TIMER, at.saturating_sub(k.now_ns));
        }
        self.untold.armed = due;
    }

    /// The timer has come.
    pub(super) fn limits_timer(&mut self, k: &mut Callback<'_>) {
        self.untold.armed = None;
        self.limits_are_due(k.now_ns);
    }

    /// Worlds that wait in a queue of the kernel, on a run queue and below it.
    fn queued_below(&self, rq: usize) -> Vec<u32> {
        let below = |id: &usize| match self.owned(*id) {
            Some(rq) => self.queued_below(rq),
            None => vec![*id as u32],
        };
        let all = self.rqs[rq].queue.iter().flat_map(below);
        all.filter(|w| self.worlds[*w as usize].queued).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_begin_where_they_would_have_begun_without_a_pause() {
        const MS: u64 = 1_000_000;
        let limit = |phase_ns| Bandwidth { phase_ns, ..Bandwidth::default() };
        let next = |phase, now| limit(phase * MS).next_period(now * MS) / MS;
        assert_eq!([0, 99, 100, 250].map(|now| next(0, now)), [100, 100, 200, 300]);
        assert_eq!([0, 30, 129, 731].map(|now| next(30, now)), [30, 130, 130, 830]);
    }
}
