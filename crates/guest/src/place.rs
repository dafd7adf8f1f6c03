//! On which vCPU a task that wakes or execs goes on, by the domains of its guest; it moves nothing.
//!
//! Wake-ups as `select_task_rq_fair` and `select_idle_sibling` of Linux 4.x decide them; execs as
//! `find_idlest_group` and `find_idlest_cpu`. What the guest takes for idle may be READY on the
//! host, and what it takes for two cores may be one: it cannot know.

use crate::Kernel;
use crate::domains::Domain;
use crate::wide;
use std::ops::Range;

/// By how much less loaded, in percent, a group must be than the own one for an exec to go there,
/// and a waker's vCPU than a task's last one for a wake-up to go there: half of what imbalance_pct
/// (125) has over 100.
const IMBALANCE_PERCENT: usize = 112;

impl Kernel {
    /// The widest domain of a vCPU whose vCPUs share a cache: its LLC.
    pub(crate) fn llc(&self, vcpu: u32) -> Option<&Domain> {
        self.domains[vcpu as usize].iter().rev().find(|d| d.shares_cache)
    }

    /// Whether two vCPUs are one, or are shown to share a cache.
    pub(crate) fn share_cache(&self, a: u32, b: u32) -> bool {
        a == b || self.llc(a).is_some_and(|d| d.span.contains(&b))
    }

    /// Where a task that wakes goes on: its waker runs on `waker`, or interrupted it; `sync` if the
    /// waker is about to sleep.
    pub(crate) fn place_wake(&self, task: u32, waker: u32, sync: bool) -> u32 {
        let prev = self.tasks[task as usize].vcpu;
        let draws = !self.is_wide(task, waker) && self.is_affine(prev, waker, sync);
        let target = if draws { waker } else { prev };
        self.idle_sibling(prev, target)
    }

    /// Whether waker and task wake too many others for one to draw the other.
    fn is_wide(&self, task: u32, waker: u32) -> bool {
        let v = &self.vcpus[waker as usize];
        let by = v.current.map_or(&v.idle_wakes, |t| &self.tasks[t as usize].wakes);
        let llc = self.llc(waker).map_or(1, |d| d.span.len() as u32);
        self.terms.wake_wide && wide::is_wide(by.flips, self.tasks[task as usize].wakes.flips, llc)
    }

    /// Whether the waker's vCPU draws the task to it, as `wake_affine` decides it: it has nothing
    /// else to do, or with the task it is less loaded than the task's last one by the imbalance. A
    /// waker that is about to sleep does not count.
    fn is_affine(&self, prev: u32, waker: u32, sync: bool) -> bool {
        let here = self.running(waker).saturating_sub(usize::from(sync));
        waker == prev || here == 0 || 100 * (here + 1) <= IMBALANCE_PERCENT * self.running(prev)
    }

    /// An idle vCPU that shares a cache with `target`: that itself, the last one, one of an idle
    /// core, any, one of the same core. Without any, `target`.
    fn idle_sibling(&self, prev: u32, target: u32) -> u32 {
        if self.is_idle(target) {
            return target;
        }
        if self.is_idle(prev) && self.share_cache(prev, target) {
            return prev;
        }
        let Some(llc) = self.llc(target) else { return target };
        let from = |v: u32| {
            let n = llc.span.len() as u32;
            (0..n).map(move |i| llc.span.start + (v - llc.span.start + i) % n)
        };
        if llc.of_cores {
            let idle = |g: &Range<u32>| g.clone().all(|v| self.is_idle(v));
            if let Some(v) = from(target).find(|v| idle(&llc.group_of(*v))) {
                return v;
            }
        }
        from(target).find(|v| self.is_idle(*v)).unwrap_or(target)
    }

    /// Where a task that execs on `vcpu` goes on: level by level from the widest, the idlest group
    /// if it is less loaded than that of the task by the imbalance. Up to Linux 5.4 the task counts
    /// where it is, so that it leaves a vCPU for itself alone; later it does not
    /// (`cpu_load_without`, `idle_cpu_without`).
    pub(crate) fn place_exec(&self, vcpu: u32) -> u32 {
        let mut at = vcpu;
        let itself = usize::from(!self.terms.exec_counts_itself);
        for level in (0..self.domains[vcpu as usize].len()).rev() {
            let Some(domain) = self.domains[at as usize].get(level) else { continue };
            let load = |g: &Range<u32>| -> usize { g.clone().map(|v| self.running(v)).sum() };
            let own = domain.group_of(at);
            let others = domain.groups().filter(|g| *g != own);
            let Some(idlest) = others.min_by_key(|g| load(g) * 1000 / g.len()) else { continue };
            // Loads of groups of different size: both sides by the other's size.
            let own_load = load(&own) - if own.contains(&vcpu) { itself } else { 0 };
            if 100 * own_load * idlest.len() > IMBALANCE_PERCENT * load(&idlest) * own.len() {
                at = idlest.clone().min_by_key(|v| self.running(*v)).unwrap_or(at);
            }
        }
        at
    }
}
