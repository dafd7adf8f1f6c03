//! Which entity of a run queue is next by the Completely Fair Scheduler, as Linux 6.1 has it; it
//! moves nothing.
//!
//! *Law*: the least virtual time runs. At a tick it gives way if it has had its slice, the
//! latency's part by weight, or is ahead of the first by as much. One that sleeps comes back half a
//! latency behind the least virtual time of its run queue at most. A woken world preempts where its
//! entity is behind by more than the wake-up granularity (Linux 6.1, `kernel/sched/fair.c`:
//! `sched_slice`, `check_preempt_tick`, `place_entity`, `wakeup_preempt_entity`).
//!
//! *Example*: two burners of nice 0 on one of 8 pCPUs have 12 ms each, 4 ms ticks apart.

use super::Linux;
use super::entity::{How, virtual_ns};
use super::terms::NR_LATENCY;

impl Linux {
    /// Where an entity that comes is put in virtual time; one that moved keeps its place.
    pub(super) fn cfs_place(&mut self, rq: usize, id: usize, how: How) {
        let least = self.rqs[rq].min_vruntime;
        let place = match how {
            How::Moved => return,
            How::New => least + virtual_ns(self.cfs_slice(id), self.entities[id].weight),
            // GENTLE_FAIR_SLEEPERS
            How::Wakes => least - self.tunables.latency_ns as i64 / 2,
        };
        let entity = &mut self.entities[id];
        entity.vruntime = entity.vruntime.max(place);
    }

    /// Slice of an entity, in ns: of the latency, what its weight and those above it give.
    fn cfs_slice(&self, id: usize) -> u64 {
        let tunables = &self.tunables;
        let pcpu = self.pcpu_of(self.entities[id].rq);
        let off = u64::from(!self.entities[id].on_rq);
        let runnable = self.runnable(pcpu as usize) + off;
        let period = if runnable > NR_LATENCY {
            runnable * tunables.granularity_ns
        } else {
            tunables.latency_ns
        };
        let part = |slice: u64, (rq, id): (usize, usize)| {
            let weight = self.entities[id].weight;
            let all = self.rqs[rq].weight + if self.entities[id].on_rq { 0 } else { weight };
            (u128::from(slice) * u128::from(weight) / u128::from(all.max(1))) as u64
        };
        self.chain(id).fold(period, part).max(tunables.granularity_ns)
    }

    /// Whether an entity that runs is to give way at a tick.
    pub(super) fn cfs_tick(&self, rq: usize, id: usize) -> bool {
        let at = &self.rqs[rq];
        if at.queue.len() < 2 {
            return false;
        }
        let ideal = self.cfs_slice(id).min(self.tunables.latency_ns);
        let entity = &self.entities[id];
        let ran = entity.exec_ns - entity.picked_ns;
        let first = at.queue.iter().filter(|other| **other != id);
        let first = first.map(|other| self.entities[*other].vruntime).min();
        let behind = first.map_or(0, |first| entity.vruntime - first);
        ran > ideal || ran >= self.tunables.granularity_ns && behind > ideal as i64
    }

    /// By how much an entity is ahead of another: none, within the wake-up granularity, or more.
    fn cfs_ahead(&self, id: usize, of: usize) -> [bool; 2] {
        let ahead = self.entities[id].vruntime - self.entities[of].vruntime;
        [ahead > 0, ahead > virtual_ns(self.tunables.wakeup_ns, self.entities[of].weight)]
    }

    /// Whether a woken entity preempts that which runs beside it.
    pub(super) fn cfs_preempts(&self, curr: usize, woken: usize) -> bool {
        self.cfs_ahead(curr, woken)[1]
    }

    /// The next entity of a run queue.
    pub(super) fn cfs_pick(&self, rq: usize) -> Option<usize> {
        let at = &self.rqs[rq];
        let others = at.queue.iter().copied().filter(|id| Some(*id) != at.curr);
        let first = others.min_by_key(|id| self.entities[*id].vruntime);
        let curr = at.curr.filter(|id| self.entities[*id].on_rq);
        let first = match (first, curr) {
            (Some(first), Some(curr)) if self.cfs_ahead(first, curr)[0] => curr,
            (first, curr) => first.or(curr)?,
        };
        Some(at.next.filter(|next| !self.cfs_ahead(*next, first)[1]).unwrap_or(first))
    }
}
