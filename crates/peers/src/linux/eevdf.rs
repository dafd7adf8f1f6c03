//! Which entity of a run queue is next by Earliest Eligible Virtual Deadline First, as Linux has it
//! from 6.12 to 7.3; it moves nothing.
//!
//! *Law*: the virtual time of a run queue, `V`, is the mean of its entities' by weight. An entity
//! is eligible if its own is not later. Its deadline is its virtual time when it asked, plus the
//! base slice by its weight. Of the eligible the earliest deadline runs, and is preempted by none
//! before that if it stays eligible (`RUN_TO_PARITY`). One that leaves keeps its lag, `V` less its
//! virtual time, and comes back with it (`PLACE_LAG`); one that sleeps while it is ahead stays on
//! its run queue until it has paid (`DELAY_DEQUEUE`). (I. Stoica and H. Abdel-Wahab, "Earliest
//! Eligible Virtual Deadline First", 1995; Linux, `kernel/sched/fair.c` and `features.h`.)
//!
//! *Limits*: all ask for the base slice. `V` counts in 1024ths of nice 0, as Linux does.

use super::Linux;
use super::entity::{How, down, virtual_ns};
use super::terms::TICK_NS;

impl Linux {
    /// Sum of weights of a run queue, and of weights times virtual time after the least.
    fn sums(&self, rq: usize) -> (i128, i128) {
        let least = self.rqs[rq].min_vruntime;
        let entities = self.rqs[rq].queue.iter().map(|id| &self.entities[*id]);
        entities.fold((0, 0), |(weight, sum), e| {
            let w = i128::from(down(e.weight));
            (weight + w, sum + w * i128::from(e.vruntime - least))
        })
    }

    /// Virtual time of a run queue, rounded down.
    fn mean(&self, rq: usize) -> i64 {
        let (weight, sum) = self.sums(rq);
        self.rqs[rq].min_vruntime + sum.div_euclid(weight.max(1)) as i64
    }

    /// Whether an entity at this virtual time is not ahead of its run queue.
    pub(super) fn is_eligible(&self, rq: usize, vruntime: i64) -> bool {
        let (weight, sum) = self.sums(rq);
        sum >= weight * i128::from(vruntime - self.rqs[rq].min_vruntime)
    }

    /// Lag of an entity, within two slices or a tick either way (`update_entity_lag`).
    fn lag(&self, rq: usize, id: usize) -> i64 {
        let entity = &self.entities[id];
        let most = virtual_ns((2 * self.tunables.slice_ns).max(TICK_NS), entity.weight);
        (self.mean(rq) - entity.vruntime).clamp(-most, most)
    }

    /// An entity that leaves its run queue: what it keeps.
    pub(super) fn eevdf_remembers(&mut self, rq: usize, id: usize, sleeps: bool) {
        let lag = self.lag(rq, id);
        let entity = &mut self.entities[id];
        entity.vlag = lag;
        if !sleeps {
            (entity.deadline, entity.relative) = (entity.deadline - entity.vruntime, true);
        }
    }

    /// Where an entity that comes is put in virtual time, and its deadline.
    pub(super) fn eevdf_place(&mut self, rq: usize, id: usize, how: How) {
        let (mean, (load, _)) = (self.mean(rq), self.sums(rq));
        let slice = virtual_ns(self.tunables.slice_ns, self.entities[id].weight);
        let entity = &mut self.entities[id];
        // It shifts `V` itself: what is left of its lag then is what it left with.
        let weight = i128::from(down(entity.weight));
        let lag = match load {
            0 => 0,
            load => (i128::from(entity.vlag) * (load + weight) / load) as i64,
        };
        entity.vruntime = mean - lag;
        entity.deadline = match (std::mem::take(&mut entity.relative), how) {
            (true, _) => entity.vruntime + entity.deadline,
            (false, How::New) => entity.vruntime + slice / 2,
            (false, _) => entity.vruntime + slice,
        };
    }

    /// An entity that stayed on its run queue when it slept is runnable again: it is clamped to a
    /// lag of 0 if it has stayed for longer than what it was ahead by (`DELAY_ZERO`).
    pub(super) fn requeue_delayed(&mut self, rq: usize, id: usize) {
        self.entities[id].delayed = false;
        if self.lag(rq, id) > 0 {
            self.rqs[rq].queue.retain(|other| *other != id);
            self.entities[id].vlag = 0;
            self.eevdf_place(rq, id, How::Wakes);
            self.rqs[rq].queue.push(id);
        }
    }

    /// An entity that has reached its deadline asks anew; whether others wait beside it.
    pub(super) fn renew_deadline(&mut self, rq: usize, id: usize) -> bool {
        let slice = virtual_ns(self.tunables.slice_ns, self.entities[id].weight);
        let entity = &mut self.entities[id];
        if entity.vruntime < entity.deadline {
            return false;
        }
        entity.deadline = entity.vruntime + slice;
        self.rqs[rq].queue.len() > 1
    }

    /// An entity has another weight: its lag and what is left of its request stay as much CPU time
    /// as they were (`reweight_entity`).
    pub(super) fn eevdf_reweighs(&mut self, rq: usize, id: usize, new: u64) {
        let mean = self.mean(rq);
        let entity = &mut self.entities[id];
        let scaled = |v: i64| {
            (i128::from(v) * i128::from(down(entity.weight)) / i128::from(down(new))) as i64
        };
        let protected = entity.parity == entity.deadline;
        if entity.on_rq {
            entity.vruntime = mean - scaled(mean - entity.vruntime);
            entity.deadline = mean + scaled(entity.deadline - mean);
        } else {
            entity.vlag = scaled(entity.vlag);
            if entity.relative {
                entity.deadline = scaled(entity.deadline);
            }
        }
        if protected {
            entity.parity = entity.deadline;
        }
    }

    /// The next entity of a run queue.
    pub(super) fn eevdf_pick(&self, rq: usize) -> Option<usize> {
        let at = &self.rqs[rq];
        if let [only] = at.queue[..] {
            return Some(only);
        }
        let (weight, sum) = self.sums(rq);
        let eligible = |id: &usize| {
            let ahead = self.entities[*id].vruntime - at.min_vruntime;
            sum >= weight * i128::from(ahead)
        };
        if let Some(next) = at.next.filter(eligible) {
            return Some(next);
        }
        let curr = at.curr.filter(|id| self.entities[*id].on_rq && eligible(id));
        let protected = |id: &usize| self.entities[*id].parity == self.entities[*id].deadline;
        if let Some(curr) = curr.filter(protected) {
            return Some(curr);
        }
        let deadline = |id: &usize| self.entities[*id].deadline;
        let others = at.queue.iter().copied().filter(|id| Some(*id) != at.curr && eligible(id));
        match (others.min_by_key(deadline), curr) {
            (Some(best), Some(curr)) if deadline(&curr) < deadline(&best) => Some(curr),
            (best, curr) => {
                let least =
                    || at.queue.iter().copied().min_by_key(|id| self.entities[*id].vruntime);
                best.or(curr).or_else(least)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Law;
    use super::super::entity::NICE_0;
    use super::*;
    use contract::Setup;
    use topology::{Shape, Topology};

    /// One pCPU with worlds 1 to 3 of nice 0 at these virtual times and deadlines; the first runs.
    fn three(times: [(i64, i64); 3]) -> Linux {
        let shape = Shape {
            sockets: 1,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: 1,
            threads_per_core: 1,
        };
        let topology = Topology::regular(shape).expect("a host");
        let setup = Setup { topology: &topology, vms: 1, worlds: 4, pools: 1 };
        let mut linux = Linux::new(&setup, Law::Eevdf);
        for (id, (vruntime, deadline)) in (1..).zip(times) {
            let entity = &mut linux.entities[id];
            (entity.weight, entity.on_rq) = (NICE_0, true);
            (entity.vruntime, entity.deadline) = (vruntime, deadline);
            linux.rqs[0].weight += NICE_0;
            linux.rqs[0].queue.push(id);
        }
        linux.rqs[0].curr = Some(1);
        linux.entities[1].parity = linux.entities[1].deadline;
        linux
    }

    #[test]
    fn the_earliest_deadline_of_the_eligible_is_next() {
        // The mean is 300, so that the second is ahead.
        let mut linux = three([(400, 700), (500, 200), (0, 900)]);
        assert_eq!((linux.mean(0), linux.eevdf_pick(0)), (300, Some(3)));
        linux.entities[2].vruntime = 300;
        linux.entities[1].vruntime = 600;
        assert_eq!((linux.mean(0), linux.eevdf_pick(0)), (300, Some(2)));
    }

    #[test]
    fn what_runs_goes_on_to_its_deadline_while_it_is_eligible() {
        let mut linux = three([(100, 700), (500, 1200), (150, 300)]);
        assert_eq!(linux.eevdf_pick(0), Some(1));
        // It has asked anew since it was picked.
        linux.entities[1].parity = 0;
        assert_eq!(linux.eevdf_pick(0), Some(3));
        // It is ahead.
        linux.entities[1].parity = 700;
        linux.entities[1].vruntime = 690;
        assert_eq!(linux.eevdf_pick(0), Some(3));
    }

    #[test]
    fn lag_survives_a_move_to_another_run_queue_and_is_bounded() {
        let mut linux = three([(0, 700), (600_000, 1200), (300_000, 900)]);
        linux.leave(0, 2, false, false);
        assert_eq!(linux.entities[2].vlag, -300_000);
        linux.entities[2].relative = false;
        linux.eevdf_place(0, 2, How::Moved);
        linux.rqs[0].queue.push(2);
        assert!(linux.lag(0, 2).abs_diff(-300_000) <= 1, "{}", linux.lag(0, 2));
        linux.entities[2].vruntime = 1 << 40;
        assert_eq!(linux.lag(0, 2), -(TICK_NS as i64));
    }

    #[test]
    fn one_that_sleeps_while_it_is_ahead_stays_until_it_has_paid() {
        let mut linux = three([(0, 700), (600_000, 1200), (300_000, 900)]);
        linux.leave(0, 2, true, true);
        assert!(linux.entities[2].delayed && linux.rqs[0].queue.contains(&2));
        assert_eq!(linux.runnable(0), 2);
        linux.finish_delayed(0, 2);
        assert!(!linux.entities[2].on_rq && linux.rqs[0].queue == [1, 3]);
        assert_eq!(linux.entities[2].vlag, -300_000);
        linux.leave(0, 1, true, true);
        assert!(!linux.entities[1].on_rq);
    }

    #[test]
    fn a_change_of_weight_keeps_lag_as_cpu_time() {
        let mut linux = three([(0, 700), (600_000, 1_300_000), (300_000, 900)]);
        linux.eevdf_reweighs(0, 2, NICE_0 / 2);
        linux.entities[2].weight = NICE_0 / 2;
        let entity = &linux.entities[2];
        assert_eq!((entity.vruntime, entity.deadline), (900_000, 2_300_000));
    }
}
