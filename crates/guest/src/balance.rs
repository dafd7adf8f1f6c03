//! Tasks that wait on a vCPU and go to another: pulled by a vCPU that goes idle, by ticks, and by a
//! halted vCPU that a busy one interrupts for that (nohz balancing). It places no task that wakes.
//!
//! As `newidle_balance`, `rebalance_domains` and `nohz_kick_needed` of Linux 4.x: the group with
//! most tasks for its size gives one of its busiest vCPU. A task that ran within
//! `MIGRATION_COST_NS` is warm, and goes only after balancing has failed before.

use crate::{Effect, Kernel};
use std::ops::Range;

/// `sysctl_sched_migration_cost`: a task is warm for so long, and a vCPU that idles for less than
/// that does not look for tasks.
pub(crate) const MIGRATION_COST_NS: u64 = 500_000;
/// A busy vCPU balances so many times less often than an idle one (`busy_factor`).
const BUSY_FACTOR: u64 = 32;
/// Failures after which warm tasks are taken (`cache_nice_tries`).
const NICE_TRIES: u32 = 1;
/// `sd->balance_interval`, ns for each vCPU of the domain.
const INTERVAL_NS: u64 = 1_000_000;

/// A level of a vCPU's balancing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    next: u64,
    failed: u32,
}

impl Kernel {
    /// A vCPU has nothing left to run: it takes what it finds in the smallest domain that has
    /// something. Whether it got a task.
    pub(crate) fn newidle(&mut self, vcpu: u32, now: u64) -> bool {
        if self.vcpus[vcpu as usize].average_idle < MIGRATION_COST_NS {
            return false;
        }
        (0..self.domains[vcpu as usize].len()).any(|level| self.pull(vcpu, level, now))
    }

    /// At a tick: the levels whose interval is over. A vCPU with work to give, or, where caches are
    /// shared, one that is not the only busy one of its LLC, has a halted vCPU look for work.
    pub(crate) fn tick_balance(&mut self, vcpu: u32, now: u64) {
        let factor = if self.is_idle(vcpu) { 1 } else { BUSY_FACTOR };
        self.balance(vcpu, factor, now);
        if now < self.next_idle_balance {
            return;
        }
        let busy = |span: Range<u32>| span.filter(|v| !self.is_idle(*v)).count();
        let kicks =
            self.running(vcpu) > 1 || self.llc(vcpu).is_some_and(|llc| busy(llc.span.clone()) > 1);
        let halted = |v: &u32| self.vcpus[*v as usize].halted && self.is_idle(*v);
        if let Some(idle) = (0..self.terms.vcpus).find(halted).filter(|_| kicks) {
            self.next_idle_balance = now + self.terms.tick_ns;
            self.vcpus[idle as usize].balances = true;
            self.interrupt(vcpu, idle);
        }
    }

    /// A vCPU that was interrupted for it balances all levels that are due, as an idle one.
    pub(crate) fn idle_balance(&mut self, vcpu: u32, now: u64) {
        self.balance(vcpu, 1, now);
    }

    fn balance(&mut self, vcpu: u32, factor: u64, now: u64) {
        for level in 0..self.domains[vcpu as usize].len() {
            if self.vcpus[vcpu as usize].levels[level].next > now {
                continue;
            }
            let size = self.domains[vcpu as usize][level].span.len() as u64;
            self.pull(vcpu, level, now);
            self.vcpus[vcpu as usize].levels[level].next = now + INTERVAL_NS * size * factor;
        }
    }

    /// Takes a task that waits in the busiest other group of a domain: whether there was one.
    fn pull(&mut self, vcpu: u32, level: usize, now: u64) -> bool {
        let domain = &self.domains[vcpu as usize][level];
        let load = |g: &Range<u32>| -> usize { g.clone().map(|v| self.running(v)).sum() };
        let own = domain.group_of(vcpu);
        let (mine, here) = (load(&own), self.running(vcpu));
        let gives =
            |v: &u32| !self.vcpus[*v as usize].queue.is_empty() && self.running(*v) > here + 1;
        let busiest = domain
            .groups()
            .filter(|g| *g != own && load(g) * own.len() > mine * g.len())
            .filter_map(|g| g.clone().filter(gives).max_by_key(|v| (self.running(*v), !*v)))
            .max_by_key(|v| (self.running(*v), !*v));
        let Some(from) = busiest else { return false };
        let failed = self.vcpus[vcpu as usize].levels[level].failed;
        let cold = |t: &u32| now >= self.tasks[*t as usize].ran_at + MIGRATION_COST_NS;
        let queue = &self.vcpus[from as usize].queue;
        let taken = queue.iter().rposition(|t| failed > NICE_TRIES || cold(t));
        let Some(at) = taken else {
            self.vcpus[vcpu as usize].levels[level].failed += 1;
            return false;
        };
        self.vcpus[vcpu as usize].levels[level].failed = 0;
        let task = self.vcpus[from as usize].queue.remove(at);
        self.counts.pulls += 1;
        self.enqueue(task, vcpu);
        true
    }

    /// A reschedule interrupt from a vCPU, which leaves its guest to send it.
    pub(crate) fn interrupt(&mut self, from: u32, to: u32) {
        if from == to || std::mem::replace(&mut self.vcpus[to as usize].interrupted, true) {
            return;
        }
        self.vcpus[from as usize].overhead += self.terms.send_ns;
        self.counts.interrupts += 1;
        self.effects.push(Effect::Interrupt(to));
    }
}
