//! Which run queue a world belongs to: at its start, and by load from each reset of credits on. It
//! looks at no weight.
//!
//! *Law*: a world that starts, or may run in its queue no longer, goes to the queue with the least
//! expected load, there to the pCPU after the last that one was sent to. At a reset the queue is
//! compared with that of the most different load: if the loads differ by a world (by an eighth,
//! where one of both is as high as the pCPUs of a queue), one world is pushed, pulled, or two are
//! exchanged, such that the loads are then the nearest.
//!
//! *Source*: csched2_res_pick, balance_load, consider, migrate (credit2_balance_under: 0,
//! credit2_balance_over: -3), hard affinity alone.
//!
//! *Example*: two queues of 4 pCPUs with 8 worlds each that always want to run: nothing moves,
//! whatever they weigh.

use super::Credit2;
use super::load::ONE;
use contract::Callback;

/// An exchange of worlds between two run queues, and how far their loads are apart then.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    apart: i64,
    push: Option<u32>,
    pull: Option<u32>,
}

impl Credit2 {
    /// pCPUs on line of a run queue.
    fn width(&self, queue: usize) -> i64 {
        let of = |p: &u32| self.queue_of(*p) == queue && self.machine.is_online(*p);
        (0..self.machine.len()).filter(of).count() as i64
    }

    /// Whether a world may run in a run queue.
    fn may_be_in(&self, k: &Callback<'_>, world: u32, queue: usize) -> bool {
        (0..self.machine.len()).any(|p| self.fits(k, world, queue, p))
    }

    /// The pCPU of a run queue that is next for a world that comes.
    fn next_pcpu(&mut self, k: &Callback<'_>, world: u32, queue: usize) -> Option<u32> {
        let bias = self.queues[queue].bias;
        let next = self.machine.cycle(bias, |p| self.fits(k, world, queue, p))?;
        self.queues[queue].bias = next;
        Some(next)
    }

    /// pCPU and run queue of the least load for a world, which is in `own` now.
    pub(super) fn least_loaded(
        &mut self,
        k: &Callback<'_>,
        world: u32,
        own: Option<usize>,
    ) -> (u32, usize) {
        let load = |q: &usize| {
            let mut load = self.queues[*q].expected;
            if own == Some(*q) {
                load.take(self.worlds[world as usize].load);
            }
            load.load
        };
        let fit = (0..self.queues.len()).filter(|q| self.may_be_in(k, world, *q));
        let least = fit.min_by_key(load);
        let at = self.worlds[world as usize].at;
        let queue = least.unwrap_or_else(|| self.queue_of(at));
        (self.next_pcpu(k, world, queue).unwrap_or(at), queue)
    }

    /// A world that waits nowhere goes where it is to move, or where the load is least.
    pub(super) fn place(&mut self, k: &Callback<'_>, world: u32) {
        let own = self.worlds[world as usize].queue;
        let asked = self.worlds[world as usize].moves_to.take();
        let asked = asked.and_then(|q| Some((self.next_pcpu(k, world, q)?, q)));
        let (pcpu, queue) = asked.unwrap_or_else(|| self.least_loaded(k, world, Some(own)));
        self.worlds[world as usize].at = pcpu;
        if queue != own {
            self.unassign(world);
            self.assign(world, queue);
        }
    }

    /// A world that has stopped moves if it was to.
    pub(super) fn place_if_asked(&mut self, k: &Callback<'_>, world: u32) {
        if self.worlds[world as usize].moves_to.is_some() {
            self.place(k, world);
        }
    }

    /// A world moves to another run queue; one that runs stops first.
    fn migrate(&mut self, k: &mut Callback<'_>, world: u32, to: usize) {
        let of = self.worlds[world as usize];
        if of.scheduled {
            self.worlds[world as usize].moves_to = Some(to);
            return self.tickle_pcpu(k, of.at);
        }
        let Some(pcpu) = self.next_pcpu(k, world, to) else { return };
        if of.queued {
            self.remove(world);
            self.change_wants(of.queue, -1, k.now_ns);
        }
        self.unassign(world);
        self.worlds[world as usize].at = pcpu;
        self.assign(world, to);
        if of.queued {
            self.change_wants(to, 1, k.now_ns);
            self.queue(k, world);
        }
    }

    /// Brings the load of a run queue nearer to that of the one that differs most.
    pub(super) fn balance(&mut self, k: &mut Callback<'_>, own: usize) {
        (0..self.queues.len()).for_each(|q| self.note_queue(q, k.now_ns));
        let load = |q: usize| self.queues[q].expected.load;
        let apart = |q: &usize| load(own).abs_diff(load(*q)) as i64;
        let others = (0..self.queues.len()).filter(|q| *q != own && self.width(*q) > 0);
        let Some(other) = others.rev().max_by_key(apart) else { return };
        let (apart, most) = (apart(&other), load(own).max(load(other)));
        let width = self.width(own).max(self.width(other));
        let tolerated = if most < width * ONE { ONE } else { ONE / 8 };
        if apart < tolerated {
            return;
        }
        let best = self.exchange(k, own, other, apart);
        if let Some(world) = best.push {
            self.migrate(k, world, other);
        }
        if let Some(world) = best.pull {
            self.migrate(k, world, own);
        }
    }

    /// The exchange that brings two run queues nearest to each other, from `apart` on.
    fn exchange(&mut self, k: &Callback<'_>, own: usize, other: usize, apart: i64) -> Exchange {
        let (load_own, load_other) =
            (self.queues[own].expected.load, self.queues[other].expected.load);
        let mut movable = |from: usize, to: usize| -> Vec<(u32, i64)> {
            let worlds = self.queues[from].worlds.clone();
            let free = |w: &u32| self.worlds[*w as usize].moves_to.is_none();
            let fit = |w: &u32| free(w) && self.may_be_in(k, *w, to);
            let fit: Vec<u32> = worlds.into_iter().filter(fit).collect();
            let now_ns = k.now_ns;
            fit.into_iter().map(|w| (w, self.load_now(w, now_ns))).collect()
        };
        let (pushes, pulls) = (movable(own, other), movable(other, own));
        let mut best = Exchange { apart, push: None, pull: None };
        let mut consider = |push: Option<(u32, i64)>, pull: Option<(u32, i64)>| {
            let more = pull.map_or(0, |p| p.1) - push.map_or(0, |p| p.1);
            let apart = (load_own - load_other + 2 * more).abs();
            if apart < best.apart {
                best = Exchange { apart, push: push.map(|p| p.0), pull: pull.map(|p| p.0) };
            }
        };
        for push in &pushes {
            pulls.iter().for_each(|pull| consider(Some(*push), Some(*pull)));
            consider(Some(*push), None);
        }
        pulls.iter().for_each(|pull| consider(None, Some(*pull)));
        best
    }

    /// A pCPU has gone off line: what waits for it, or may run in its queue no longer, goes
    /// elsewhere.
    pub(super) fn leave(&mut self, k: &mut Callback<'_>, pcpu: u32) {
        let queue = self.queue_of(pcpu);
        for world in self.queues[queue].waiting.clone() {
            let of = self.worlds[world as usize];
            if of.at == pcpu || of.tickled == Some(pcpu) || !self.may_be_in(k, world, queue) {
                self.remove(world);
                self.worlds[world as usize].tickled = None;
                self.moves(k, world);
            }
        }
    }
}
