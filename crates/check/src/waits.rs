//! Checks that no world waits too long and no pCPU idles while a world waits that may run there; it
//! knows nothing of shares.
//!
//! Law: for a pCPU and a world that may run there, the time that the one is idle and the other
//! READY, without interruption, is at most `idle_while_waiting_max_ns`. A world is READY for at
//! most `ready_max_ns` without interruption. Each idle time, and each wait, is reported once.
//!
//! An idle time is checked when it ends and whenever a window closes, so a report comes at most a
//! window late. Worlds are queued by allowed set, so an event costs O(log n) unless a pCPU has been
//! idle for longer than the bound.

use std::collections::{BTreeMap, BTreeSet};
use units::{PcpuId, PcpuSet};

/// One that was found to have waited too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdue {
    pub(crate) world: u32,
    /// The pCPU that idled meanwhile; none if the wait alone was too long.
    pub(crate) pcpu: Option<PcpuId>,
    pub(crate) ns: u64,
}

/// Waiting worlds and idle pCPUs of a host.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    idle_max: u64,
    ready_max: u64,
    /// Waiting worlds of each allowed set, (since, world). A BTreeMap, so that sets come in order.
    ready: BTreeMap<u32, BTreeSet<(u64, u32)>>,
    /// Worlds whose present wait has been reported.
    reported: BTreeSet<u32>,
    idle: BTreeSet<(u64, u16)>,
    /// Since when each pCPU is idle, if it is, and whether that has been reported.
    since: Vec<Option<(u64, bool)>>,
    pub(crate) longest_ready: u64,
    pub(crate) longest_idle: u64,
}

impl Waits {
    pub(crate) fn new(pcpus: usize, idle_max: u64, ready_max: u64) -> Waits {
        Waits {
            idle_max,
            ready_max,
            ready: BTreeMap::new(),
            reported: BTreeSet::new(),
            idle: (0..pcpus as u16).map(|p| (0, p)).collect(),
            since: vec![Some((0, false)); pcpus],
            longest_ready: 0,
            longest_idle: 0,
        }
    }

    /// Starts an idle time at `now`: earlier ones were not observed.
    pub(crate) fn start(&mut self, now: u64) {
        self.idle = (0..self.since.len() as u16).map(|p| (now, p)).collect();
        self.since.fill(Some((now, false)));
    }

    pub(crate) fn pcpu_idles(&mut self, now: u64, p: PcpuId) {
        self.since[p.0 as usize] = Some((now, false));
        self.idle.insert((now, p.0));
    }

    /// A pCPU idles on, and may.
    pub(crate) fn excused(&mut self, p: PcpuId) {
        if let Some((since, _)) = self.since[p.0 as usize].take() {
            self.idle.remove(&(since, p.0));
        }
    }

    /// Ends a pCPU's idling; the world that waited longest beside it, if too long.
    pub(crate) fn pcpu_runs(
        &mut self,
        now: u64,
        p: PcpuId,
        may: impl Fn(u32, PcpuId) -> bool,
    ) -> Option<Overdue> {
        let found = self.beside(now, p, &may);
        if let Some((since, _)) = self.since[p.0 as usize].take() {
            self.idle.remove(&(since, p.0));
        }
        found
    }

    pub(crate) fn world_waits(&mut self, now: u64, world: u32, set: u32) {
        self.ready.entry(set).or_default().insert((now, world));
    }

    /// Ends a wait: violations of the wait itself (begun at `began`) and of pCPUs that idled during
    /// it.
    pub(crate) fn world_stops(
        &mut self,
        now: u64,
        world: u32,
        set: (u32, &PcpuSet),
        queued: u64,
        began: u64,
    ) -> Vec<Overdue> {
        let mut found = vec![];
        if now - queued > self.idle_max {
            let long: Vec<(u64, u16)> =
                self.idle.iter().take_while(|i| now - i.0 > self.idle_max).copied().collect();
            for (idle, p) in long.into_iter().filter(|i| set.1.contains(PcpuId(i.1))) {
                found.extend(self.idled(PcpuId(p), world, now - idle.max(queued)));
            }
        }
        if let Some(queue) = self.ready.get_mut(&set.0) {
            queue.remove(&(queued, world));
            if queue.is_empty() {
                self.ready.remove(&set.0);
            }
        }
        self.longest_ready = self.longest_ready.max(now - began);
        if now - began > self.ready_max && !self.reported.contains(&world) {
            found.push(Overdue { world, pcpu: None, ns: now - began });
        }
        found
    }

    /// Forgets that a world's wait was reported: the wait is over.
    pub(crate) fn settled(&mut self, world: u32) {
        if !self.reported.is_empty() {
            self.reported.remove(&world);
        }
    }

    /// Violations at `now` that have not been reported.
    pub(crate) fn look(&mut self, now: u64, may: impl Fn(u32, PcpuId) -> bool) -> Vec<Overdue> {
        let mut found = vec![];
        for queue in self.ready.values() {
            for (since, world) in queue.iter().take_while(|w| now - w.0 > self.ready_max) {
                self.longest_ready = self.longest_ready.max(now - since);
                if self.reported.insert(*world) {
                    found.push(Overdue { world: *world, pcpu: None, ns: now - since });
                }
            }
        }
        let waited =
            self.ready.values().filter_map(|q| q.first()).any(|w| now - w.0 > self.idle_max);
        if waited {
            let long: Vec<u16> =
                self.idle.iter().take_while(|i| now - i.0 > self.idle_max).map(|i| i.1).collect();
            found.extend(long.into_iter().filter_map(|p| self.beside(now, PcpuId(p), &may)));
        }
        found
    }

    /// The world that waited longest beside an idle pCPU, if too long.
    fn beside(
        &mut self,
        now: u64,
        p: PcpuId,
        may: &impl Fn(u32, PcpuId) -> bool,
    ) -> Option<Overdue> {
        let (since, reported) = self.since[p.0 as usize]?;
        if reported || now - since <= self.idle_max {
            return None;
        }
        let first = self.ready.iter().filter_map(|(set, q)| q.first().map(|w| (*w, *set)));
        let waited = first.filter(|(w, set)| now - w.0 > self.idle_max && may(*set, p)).min()?;
        let (queued, world) = waited.0;
        self.idled(p, world, now - since.max(queued))
    }

    fn idled(&mut self, p: PcpuId, world: u32, ns: u64) -> Option<Overdue> {
        let stretch = self.since[p.0 as usize].as_mut()?;
        if ns <= self.idle_max {
            return None;
        }
        self.longest_idle = self.longest_idle.max(ns);
        (!std::mem::replace(&mut stretch.1, true)).then_some(Overdue { world, pcpu: Some(p), ns })
    }
}
