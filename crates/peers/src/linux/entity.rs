//! Entities on run queues: worlds, and the cgroups of VMs and pools with one entity on each pCPU.
//! It keeps virtual times and weights; which entity is next the laws decide (`cfs`, `eevdf`).
//!
//! *Law*: virtual time of an entity grows by `used · 1024 ÷ w`, rounded down, `w` being its weight
//! in 1024ths of nice 0, 2 at least. A cgroup's entity is on its pCPU's run queue while a world
//! below it is on that of the cgroup there (Linux, `Documentation/scheduler/sched-design-CFS.rst`,
//! "Group scheduler extensions").
//!
//! *Units*: weights are load weights, `NICE_0` for nice 0; times in ns.

use super::Linux;
use super::groups::Group;
use super::pelt::{ONE, Pelt};
use super::terms::{Law, SHARES_MIN};

/// Weight of a thread of nice 0.
pub(super) const NICE_0: u64 = 1 << 20;

/// How an entity comes onto a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// For the first time.
    New,
    /// From sleep, or its cgroup had nothing to run.
    Wakes,
    /// From another pCPU.
    Moved,
}

/// An entity: number `w` is world `w`, those after all worlds are the cgroups' (`Linux::owner`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entity {
    /// The run queue that it is on, or was on last.
    pub(super) rq: usize,
    pub(super) weight: u64,
    pub(super) on_rq: bool,
    /// EEVDF: asleep, and on its run queue until it is eligible.
    pub(super) delayed: bool,
    pub(super) vruntime: i64,
    /// EEVDF: virtual deadline; less its virtual time while `relative`.
    pub(super) deadline: i64,
    pub(super) relative: bool,
    /// EEVDF: lag when it left its run queue last, in virtual time.
    pub(super) vlag: i64,
    /// EEVDF: deadline up to which nothing preempts it (`RUN_TO_PARITY`).
    pub(super) parity: i64,
    /// CPU time, and what that was when it was picked last.
    pub(super) exec_ns: u64,
    pub(super) picked_ns: u64,
    /// How much of the time it is runnable.
    pub(super) load: Pelt,
}

/// A run queue: of a cgroup (0 is the root) on a pCPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Rq {
    /// Entities that are on it, that which runs included.
    pub(super) queue: Vec<usize>,
    /// Worlds that belong to it, and cgroups that have such (`tg->load_avg` counts these alone).
    pub(super) members: Vec<usize>,
    /// That which runs.
    pub(super) curr: Option<usize>,
    /// That which is to be next if that is not unfair (`next` buddy).
    pub(super) next: Option<usize>,
    pub(super) min_vruntime: i64,
    /// Weight of those that are on it.
    pub(super) weight: u64,
    /// What is left of its part of a limit's quota, in ns.
    pub(super) left_ns: i64,
    /// A limit has taken it off.
    pub(super) throttled: bool,
    /// Its load as its cgroup knows it, and how many worlds are runnable below it.
    pub(super) load: u64,
    pub(super) worlds: u64,
}

/// A weight in 1024ths of nice 0, as virtual time goes by (`scale_load_down`).
pub(super) fn down(weight: u64) -> i64 {
    (weight >> 10).max(2) as i64
}

/// Virtual time of so many ns, rounded down (`calc_delta_fair`).
pub(super) fn virtual_ns(ns: u64, weight: u64) -> i64 {
    ns as i64 * 1024 / down(weight)
}

impl Linux {
    /// Number of a run queue.
    pub(super) fn rq_of(&self, group: usize, pcpu: u32) -> usize {
        group * self.pcpus.len() + pcpu as usize
    }

    /// pCPU of a run queue.
    pub(super) fn pcpu_of(&self, rq: usize) -> u32 {
        (rq % self.pcpus.len()) as u32
    }

    /// Cgroup of a run queue.
    pub(super) fn group_of(&self, rq: usize) -> usize {
        rq / self.pcpus.len()
    }

    /// Entity of the cgroup whose run queue this is; none of the root.
    pub(super) fn owner(&self, rq: usize) -> Option<usize> {
        (rq >= self.pcpus.len()).then(|| self.worlds.len() + rq)
    }

    /// Run queue of the cgroup whose entity this is; none of a world.
    pub(super) fn owned(&self, id: usize) -> Option<usize> {
        id.checked_sub(self.worlds.len())
    }

    /// An entity and those above it, with their run queues.
    pub(super) fn chain(&self, id: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let pair = |id: usize| (self.entities[id].rq, id);
        std::iter::successors(Some(pair(id)), move |(rq, _)| self.owner(*rq).map(pair))
    }

    /// Whether a limit keeps an entity from its pCPU.
    pub(super) fn is_throttled(&self, id: usize) -> bool {
        self.chain(id).any(|(rq, _)| self.rqs[rq].throttled)
    }

    /// Worlds that are runnable on a run queue or below it, throttled ones left out
    /// (`h_nr_running`).
    pub(super) fn runnable(&self, rq: usize) -> u64 {
        let of = |id: &usize| match self.owned(*id) {
            Some(below) if self.rqs[below].throttled => 0,
            Some(below) => self.runnable(below),
            None => u64::from(!self.entities[*id].delayed),
        };
        self.rqs[rq].queue.iter().map(of).sum()
    }

    /// Charges the world that runs on a pCPU, and those above it. If its request or its limit is
    /// used up, its pCPU is to pick anew.
    pub(super) fn charge(&mut self, now_ns: u64, pcpu: u32) {
        let world = self.pcpus[pcpu as usize].runs;
        if world == 0 {
            return;
        }
        let account = &mut self.worlds[world as usize];
        let ran = now_ns - std::mem::replace(&mut account.since_ns, now_ns);
        account.used_ns += ran;
        self.pcpus[pcpu as usize].busy_ns += ran;
        if ran == 0 || account.at != pcpu {
            return;
        }
        let mut pick = false;
        let mut next = Some(world as usize);
        while let Some(id) = next {
            let rq = self.entities[id].rq;
            let entity = &mut self.entities[id];
            entity.exec_ns += ran;
            entity.vruntime += virtual_ns(ran, entity.weight);
            if self.law == Law::Eevdf {
                pick |= self.renew_deadline(rq, id);
            }
            self.advance(rq);
            pick |= self.consume(now_ns, rq, ran);
            next = self.owner(rq);
        }
        if pick {
            self.untold.picks.push(pcpu);
        }
    }

    /// The least virtual time of a run queue never goes back.
    fn advance(&mut self, rq: usize) {
        let least = self.rqs[rq].queue.iter().map(|id| self.entities[*id].vruntime).min();
        let min = &mut self.rqs[rq].min_vruntime;
        *min = least.map_or(*min, |least| least.max(*min));
    }

    /// Puts an entity on its run queue, and those above it that are not on theirs.
    pub(super) fn join(&mut self, now_ns: u64, id: usize, how: How) {
        self.untold.hrticks.push(self.pcpu_of(self.entities[id].rq));
        let (mut id, mut how) = (id, how);
        loop {
            let rq = self.entities[id].rq;
            if self.entities[id].on_rq {
                if self.entities[id].delayed {
                    self.requeue_delayed(rq, id);
                }
                self.weigh(now_ns, id);
            } else {
                self.weigh(now_ns, id);
                match self.law {
                    Law::Cfs => self.cfs_place(rq, id, how),
                    Law::Eevdf => self.eevdf_place(rq, id, how),
                }
                if let Some(world) = self.worlds.get_mut(id) {
                    world.runnable.set(now_ns, true);
                }
                let entity = &mut self.entities[id];
                entity.load.set(now_ns, true);
                entity.on_rq = true;
                self.rqs[rq].weight += entity.weight;
                self.rqs[rq].queue.push(id);
                if self.rqs[rq].queue.len() == 1 {
                    self.throttle_at_start(now_ns, rq);
                }
            }
            self.tell_load(now_ns, rq);
            if self.rqs[rq].throttled {
                return;
            }
            let Some(above) = self.owner(rq) else { return };
            (id, how) = (above, How::Wakes);
        }
    }

    /// Takes an entity off its run queue, and those above it that have nothing left; `sleeps`
    /// unless it goes elsewhere. With `may_delay` those that are ahead stay for a while.
    pub(super) fn leave(&mut self, now_ns: u64, id: usize, sleeps: bool, may_delay: bool) {
        let (mut id, mut sleeps, mut leaves) = (id, sleeps, true);
        loop {
            let rq = self.entities[id].rq;
            if leaves {
                let delays = sleeps && may_delay && self.law == Law::Eevdf;
                if delays && !self.is_eligible(rq, self.entities[id].vruntime) {
                    self.entities[id].delayed = true;
                    leaves = false;
                } else {
                    self.remove(now_ns, rq, id, sleeps);
                    leaves = self.rqs[rq].queue.is_empty();
                }
            }
            self.weigh(now_ns, id);
            self.tell_load(now_ns, rq);
            if self.rqs[rq].throttled {
                return;
            }
            let Some(above) = self.owner(rq) else { return };
            (id, sleeps) = (above, true);
            if leaves && !self.entities[id].on_rq {
                return;
            }
        }
    }

    fn remove(&mut self, now_ns: u64, rq: usize, id: usize, sleeps: bool) {
        if self.law == Law::Eevdf {
            self.eevdf_remembers(rq, id, sleeps);
        }
        if let Some(world) = self.worlds.get_mut(id) {
            world.runnable.set(now_ns, false);
        }
        let entity = &mut self.entities[id];
        entity.load.set(now_ns, false);
        (entity.on_rq, entity.delayed) = (false, false);
        let at = &mut self.rqs[rq];
        at.weight -= entity.weight;
        at.queue.retain(|other| *other != id);
        at.next = at.next.filter(|next| *next != id);
        at.curr = at.curr.filter(|curr| *curr != id);
        self.advance(rq);
        self.return_slack(now_ns, rq);
    }

    /// A delayed entity has been picked: it goes.
    pub(super) fn finish_delayed(&mut self, now_ns: u64, id: usize) {
        self.leave(now_ns, id, true, false);
        // It has paid what it was ahead by, and gains nothing by having stayed.
        self.entities[id].vlag = self.entities[id].vlag.min(0);
    }

    /// A world belongs to a pCPU from now on; it is on no run queue.
    pub(super) fn attach(&mut self, now_ns: u64, world: u32, pcpu: u32) {
        let account = &self.worlds[world as usize];
        if account.at == pcpu {
            return;
        }
        let (group, old) = (account.group, account.at);
        let (from, to) = (self.rq_of(group, old), self.rq_of(group, pcpu));
        let by = self.entities[world as usize].load.get(now_ns);
        if self.law == Law::Cfs {
            let apart = self.rqs[to].min_vruntime - self.rqs[from].min_vruntime;
            self.entities[world as usize].vruntime += apart;
        }
        let util = self.worlds[world as usize].util.get(now_ns);
        self.pcpus[old as usize].util.shift(now_ns, util, true);
        self.pcpus[pcpu as usize].util.shift(now_ns, util, false);
        self.worlds[world as usize].at = pcpu;
        self.shift_load(now_ns, from, by, true);
        self.delist(now_ns, world as usize);
        self.entities[world as usize].rq = to;
        self.enlist(world as usize);
        self.shift_load(now_ns, to, by, false);
    }

    /// A world of such a load has come to a run queue, or left it: so have the cgroups' entities.
    fn shift_load(&mut self, now_ns: u64, rq: usize, by: u64, gone: bool) {
        let mut next = self.owner(rq);
        while let Some(id) = next {
            if !self.entities[id].on_rq || !gone {
                self.entities[id].load.shift(now_ns, by, gone);
            }
            next = self.owner(self.entities[id].rq);
        }
    }

    /// An entity belongs to its run queue from now on, and so do those above it.
    pub(super) fn enlist(&mut self, id: usize) {
        let mut next = Some(id);
        while let Some(id) = next {
            let rq = self.entities[id].rq;
            if self.rqs[rq].members.contains(&id) {
                return;
            }
            self.rqs[rq].members.push(id);
            next = self.owner(rq);
        }
    }

    /// An entity belongs to its run queue no longer, nor do cgroups that have nothing left there.
    pub(super) fn delist(&mut self, now_ns: u64, id: usize) {
        let mut next = Some(id);
        while let Some(id) = next {
            let rq = self.entities[id].rq;
            self.rqs[rq].members.retain(|other| *other != id);
            self.tell_load(now_ns, rq);
            if !self.rqs[rq].members.is_empty() {
                return;
            }
            next = self.owner(rq);
            if let Some(above) = next.filter(|id| !self.entities[*id].on_rq) {
                self.entities[above].load = Pelt::new(0, now_ns);
            }
        }
    }

    /// Moves a world from run queue to run queue.
    pub(super) fn transfer(&mut self, now_ns: u64, world: u32, pcpu: u32) {
        let old = self.worlds[world as usize].at;
        self.charge(now_ns, old);
        self.charge(now_ns, pcpu);
        let was_on = self.entities[world as usize].on_rq;
        if was_on {
            self.leave(now_ns, world as usize, false, false);
        }
        self.attach(now_ns, world, pcpu);
        if was_on {
            self.join(now_ns, world as usize, How::Moved);
        }
    }
}

/// Weights and loads.
impl Linux {
    /// Gives a cgroup's entity its weight; a world's does not change.
    pub(super) fn weigh(&mut self, now_ns: u64, id: usize) {
        let Some(below) = self.owned(id) else { return };
        let new = self.part_of_shares(now_ns, below);
        let old = self.entities[id].weight;
        if new == old {
            return;
        }
        let rq = self.entities[id].rq;
        if self.law == Law::Eevdf {
            self.eevdf_reweighs(rq, id, new);
        }
        let entity = &mut self.entities[id];
        entity.weight = new;
        if entity.on_rq {
            self.rqs[rq].weight = self.rqs[rq].weight + new - old;
        }
    }

    /// What a cgroup's shares are on one pCPU: by its load there, of that on all
    /// (`calc_group_shares`).
    fn part_of_shares(&self, now_ns: u64, rq: usize) -> u64 {
        let group = &self.groups[self.group_of(rq)];
        let load = self.rqs[rq].weight.max(self.load(now_ns, rq));
        let all = group.load - self.rqs[rq].load + load;
        let weight = group.weight * self.at_once(group);
        let part = u128::from(weight) * u128::from(load) / u128::from(all.max(1));
        (part as u64).clamp(SHARES_MIN, weight.max(SHARES_MIN))
    }

    /// How many times a cgroup has its shares: once; by EEVDF for each world that is runnable, up
    /// to the number of pCPUs (`calc_concur_shares`, `tg_tasks`). It is rounded down. Our
    /// reading, by the lab: an average does not come to the whole, so two that always run are one,
    /// and eight are seven.
    fn at_once(&self, group: &Group) -> u64 {
        match self.law {
            Law::Cfs => 1,
            Law::Eevdf => (group.worlds / ONE).clamp(1, self.pcpus.len() as u64),
        }
    }

    /// Worlds that are runnable on a run queue and below it, as an average, `ONE` for each.
    fn worlds_below(&self, now_ns: u64, rq: usize) -> u64 {
        let of = |id: &usize| match self.owned(*id) {
            Some(below) => self.worlds_below(now_ns, below),
            None => self.worlds[*id].runnable.get(now_ns).min(ONE - 1),
        };
        self.rqs[rq].members.iter().map(of).sum()
    }

    /// Weight of those that belong to a run queue, each for the part of the time in which it is
    /// runnable.
    pub(super) fn load(&self, now_ns: u64, rq: usize) -> u64 {
        self.rqs[rq].members.iter().map(|id| self.load_of(now_ns, *id)).sum()
    }

    /// Weight of an entity for the part of the time in which it is runnable.
    pub(super) fn load_of(&self, now_ns: u64, id: usize) -> u64 {
        let entity = &self.entities[id];
        (u128::from(entity.weight) * u128::from(entity.load.get(now_ns)) / u128::from(ONE)) as u64
    }

    /// Tells a cgroup the load that it has on a pCPU, if that has changed by a 64th
    /// (`update_tg_load_avg`).
    pub(super) fn tell_load(&mut self, now_ns: u64, rq: usize) {
        let group = self.group_of(rq);
        if group == 0 {
            return;
        }
        let load = self.load(now_ns, rq);
        let before = self.rqs[rq].load;
        if load.abs_diff(before) > before / 64 {
            self.rqs[rq].load = load;
            self.groups[group].load = self.groups[group].load + load - before;
        }
        if self.law == Law::Eevdf {
            let (worlds, before) = (self.worlds_below(now_ns, rq), self.rqs[rq].worlds);
            if worlds.abs_diff(before) > before / 64 {
                self.rqs[rq].worlds = worlds;
                self.groups[group].worlds = self.groups[group].worlds + worlds - before;
            }
        }
    }

    /// Load of a world on its pCPU: its part of the load of its cgroup, and so on up to the root
    /// (`task_h_load`).
    pub(super) fn load_at_root(&self, now_ns: u64, world: u32) -> u64 {
        let mut load = u128::from(self.load_of(now_ns, world as usize));
        for (rq, _) in self.chain(world as usize) {
            if let Some(above) = self.owner(rq) {
                let of = self.load(now_ns, rq);
                load = load * u128::from(self.load_of(now_ns, above)) / u128::from(of.max(1));
            }
        }
        load as u64
    }
}
