//! Checks that no world waits too long and no pCPU idles while a world waits that may run there; it
//! knows nothing of shares.
//!
//! Law: for a pCPU and a world that may run there, the time that the one is idle and the other
//! READY, without interruption, is at most `idle_while_waiting_max_ns`. A world is READY for at
//! most `ready_max_ns` without interruption. Each idle time, and each wait, is reported once.
//!
//! An idle time is checked when it ends and whenever a window closes, so a report comes at most a
//! window late. Worlds are queued by allowed set, so an event costs the same on any host unless a
//! pCPU has been idle for longer than the bound.

use crate::queues::Queues;
use std::collections::BTreeSet;
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
    /// Waiting worlds by allowed set.
    ready: Queues,
    /// Worlds whose present wait has been reported.
    reported: BTreeSet<u32>,
    /// Idle pCPUs, in one queue.
    idle: Queues,
    /// Since when each pCPU is idle, if it is, and whether that has been reported.
    since: Vec<Option<(u64, bool)>>,
    pub(crate) longest_ready: u64,
    pub(crate) longest_idle: u64,
}

impl Waits {
    pub(crate) fn new(pcpus: usize, idle_max: u64, ready_max: u64) -> Waits {
        let mut waits = Waits {
            idle_max,
            ready_max,
            ready: Queues::default(),
            reported: BTreeSet::new(),
            idle: Queues::default(),
            since: vec![None; pcpus],
            longest_ready: 0,
            longest_idle: 0,
        };
        waits.start(0);
        waits
    }

    /// Starts an idle time at `now`: earlier ones were not observed.
    pub(crate) fn start(&mut self, now: u64) {
        self.since.fill(Some((now, false)));
        (0..self.since.len() as u32).for_each(|p| self.idle.join(0, p, now));
    }

    pub(crate) fn pcpu_idles(&mut self, now: u64, p: PcpuId) {
        self.since[p.0 as usize] = Some((now, false));
        self.idle.join(0, u32::from(p.0), now);
    }

    /// A pCPU idles on, and may.
    pub(crate) fn excused(&mut self, p: PcpuId) {
        if self.since[p.0 as usize].take().is_some() {
            self.idle.leave(u32::from(p.0));
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
        if self.since[p.0 as usize].take().is_some() {
            self.idle.leave(u32::from(p.0));
        }
        found
    }

    pub(crate) fn world_waits(&mut self, now: u64, world: u32, set: u32) {
        self.ready.join(set, world, now);
    }

    /// Ends a wait: violations of the wait itself (begun at `began`) and of pCPUs that idled during
    /// it.
    pub(crate) fn world_stops(
        &mut self,
        now: u64,
        world: u32,
        pcpus: &PcpuSet,
        queued: u64,
        began: u64,
    ) -> Vec<Overdue> {
        let mut found = vec![];
        if now - queued > self.idle_max {
            for (idle, p) in self.idle_long(now).into_iter().filter(|i| pcpus.contains(i.1)) {
                found.extend(self.idled(p, world, now - idle.max(queued)));
            }
        }
        self.ready.leave(world);
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
        let long = self.ready.firsts().filter(|w| now - w.0 > self.ready_max.min(self.idle_max));
        let sets: Vec<u32> = long.map(|(_, _, set)| set).collect();
        for set in &sets {
            for (since, world) in self.ready.of(*set).take_while(|w| now - w.0 > self.ready_max) {
                self.longest_ready = self.longest_ready.max(now - since);
                if self.reported.insert(world) {
                    found.push(Overdue { world, pcpu: None, ns: now - since });
                }
            }
        }
        if !sets.is_empty() {
            let long = self.idle_long(now).into_iter();
            found.extend(long.filter_map(|(_, p)| self.beside(now, p, &may)));
        }
        found
    }

    /// pCPUs that have been idle for longer than the bound, and since when.
    fn idle_long(&self, now: u64) -> Vec<(u64, PcpuId)> {
        let long = self.idle.of(0).take_while(|i| now - i.0 > self.idle_max);
        long.map(|(since, p)| (since, PcpuId(p as u16))).collect()
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
        let waited = self.ready.firsts().filter(|w| now - w.0 > self.idle_max && may(w.2, p));
        let (queued, world, _) = waited.min()?;
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
