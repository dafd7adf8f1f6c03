//! Worlds that move from busy pCPUs to others: when a pCPU has nothing to run, and every so often.
//! It picks no world to run.
//!
//! *Law*: a pCPU looks at its domains, the smallest first, when it is the first idle one of its
//! group there, or the group's first. It pulls from the busiest other group. Where both have more
//! worlds than they can run, load counts, which is weight: the busiest must have 17 % more, and as
//! much moves as brings it or its own group to the mean. Where there is room, numbers of worlds
//! count, and only an idle pCPU pulls. From the busiest pCPU of that group waiting worlds move, the
//! one that waits longest first, unless it ran in the last 0.5 ms or is more than half too heavy;
//! after some failures that does not count. After more, the world that runs is pushed over (Linux,
//! `kernel/sched/fair.c`: `sched_balance_rq`, `sched_balance_find_src_group`,
//! `calculate_imbalance`, `detach_tasks`, `active_load_balance_cpu_stop`).
//!
//! *Limits*: a new idle pCPU always looks, as if that took no time. No capacities of pCPUs, no
//! NUMA balancing by faults.

use super::domains::Domain;
use super::pelt::ONE;
use super::terms::{LOOKS_AT, MIGRATION_COST_NS};
use super::{BALANCE, Linux};
use contract::{Callback, KICK_IDLE, KICK_PREEMPT};

/// How full a group is, the emptiest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fill {
    HasSpare,
    FullyBusy,
    Overloaded,
}

/// A group of pCPUs as it is found.
#[derive(Clone, Copy, Debug)]
struct Found {
    fill: Fill,
    pcpus: u64,
    load: u64,
    util: u64,
    runnable: u64,
    idle: u64,
}

impl Found {
    /// Load of a pCPU of it.
    fn mean(&self) -> u64 {
        self.load / self.pcpus.max(1)
    }
}

/// What is to move.
#[derive(Clone, Copy, Debug)]
enum Excess {
    Load(u64),
    Util(u64),
    Worlds(u64),
}

/// A look at a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    NewIdle,
    Idle,
    Busy,
}

impl Linux {
    /// A group as it is found; its load only if it is busy, or `weighs`.
    fn find(&self, now_ns: u64, group: &[u32], percent: u64, weighs: bool) -> Found {
        let on = || group.iter().copied().filter(|p| self.pcpus[*p as usize].online);
        let pcpus = on().count() as u64;
        let runnable = on().map(|p| self.runnable(p as usize)).sum();
        let util = on().map(|p| self.utilisation(now_ns, p)).sum();
        let fill = match runnable {
            n if n > pcpus && pcpus * ONE * 100 < util * percent => Fill::Overloaded,
            n if n < pcpus || pcpus * ONE * 100 > util * percent => Fill::HasSpare,
            _ => Fill::FullyBusy,
        };
        let weighed = on().filter(|_| weighs || fill != Fill::HasSpare);
        let load = weighed.map(|p| self.pcpu_load(now_ns, p)).sum();
        let idle = on().filter(|p| self.is_idle(*p)).count() as u64;
        Found { fill, pcpus, load, util, runnable, idle }
    }

    /// The busiest other group of a domain and what is to move from there.
    fn busiest(&self, now_ns: u64, domain: &Domain, look: Look) -> Option<(usize, Excess)> {
        let find = |group: &Vec<u32>, weighs| self.find(now_ns, group, domain.percent, weighs);
        let local = find(&domain.groups[0], false);
        let weighs = local.fill != Fill::HasSpare;
        let others = domain.groups[1..].iter().map(|g| find(g, weighs));
        let all: Vec<Found> = std::iter::once(local).chain(others).collect();
        let rank = |f: &Found| match f.fill {
            Fill::HasSpare => (f.fill, u64::MAX - f.idle, f.runnable),
            _ => (f.fill, f.mean(), 0),
        };
        let others = (0..all.len()).skip(1).filter(|i| all[*i].runnable > 0);
        let best = others.rev().max_by_key(|i| rank(&all[*i]))?;
        let busiest = all[best];
        if local.fill > busiest.fill {
            return None;
        }
        let host: u64 = all.iter().map(|f| f.load).sum();
        let mean = host / all.iter().map(|f| f.pcpus).sum::<u64>().max(1);
        if local.fill == Fill::Overloaded
            && (local.mean() >= busiest.mean()
                || local.mean() >= mean
                || 100 * busiest.mean() <= domain.percent * local.mean())
        {
            return None;
        }
        let more = busiest.runnable.saturating_sub(local.runnable);
        let spreads = domain.spreads() && local.fill == Fill::HasSpare && more > 1;
        let leaves = busiest.fill != Fill::Overloaded
            && !spreads
            && (look == Look::Busy
                || busiest.pcpus > 1 && local.idle <= busiest.idle + 1
                || busiest.runnable == 1);
        let excess = if leaves { None } else { excess(domain, local, busiest, mean, look) };
        excess.map(|excess| (best, excess))
    }

    /// The pCPU of a group that worlds move from.
    fn source(&self, now_ns: u64, group: &[u32], excess: Excess, not: &[u32]) -> Option<u32> {
        let busy = |p: &&u32| {
            self.pcpus[**p as usize].online && !not.contains(p) && self.runnable(**p as usize) > 0
        };
        let many = |p: u32| self.runnable(p as usize) > 1;
        let rank = |p: &&u32| match excess {
            Excess::Load(most) => {
                let load = self.pcpu_load(now_ns, **p);
                if many(**p) || load <= most { load } else { 0 }
            }
            Excess::Util(_) if many(**p) => self.utilisation(now_ns, **p),
            Excess::Util(_) => 0,
            Excess::Worlds(_) => self.runnable(**p as usize),
        };
        group.iter().filter(busy).rev().max_by_key(rank).copied()
    }

    /// Moves worlds that wait on one pCPU to another; how many, and whether their affinity alone
    /// kept all others.
    fn detach(
        &mut self,
        k: &mut Callback<'_>,
        (from, to): (u32, u32),
        (domain, look): (&Domain, Look),
        excess: Excess,
    ) -> (u32, bool) {
        let waits = |w: &u32| {
            let world = &self.worlds[*w as usize];
            let entity = &self.entities[*w as usize];
            world.queued && world.at == from && entity.on_rq && !entity.delayed
        };
        let mut all: Vec<u32> = (1..self.worlds.len() as u32).filter(waits).collect();
        all.retain(|w| !self.is_throttled(*w as usize));
        all.sort_by_key(|w| self.worlds[*w as usize].listed);
        let pinned = all.iter().all(|w| !self.may_run(k.task(*w), to));
        let (mut moved, mut excess) = (0, excess);
        for world in all.into_iter().take(LOOKS_AT) {
            let ran_ns = self.worlds[world as usize].ran_at_ns;
            let warm = !domain.core && k.now_ns < ran_ns + MIGRATION_COST_NS;
            let kept = warm && domain.failed <= domain.tries;
            if kept || !self.may_run(k.task(world), to) || self.kept_by_limit(world, to) {
                continue;
            }
            let load = self.load_at_root(k.now_ns, world).max(1);
            let util = self.worlds[world as usize].util.get(k.now_ns);
            let shift = domain.failed.min(20);
            let left = match excess {
                Excess::Load(left) if load >> shift > left => continue,
                Excess::Load(left) => Excess::Load(left.saturating_sub(load)),
                Excess::Util(left) if util >> shift > left => continue,
                Excess::Util(left) => Excess::Util(left.saturating_sub(util)),
                Excess::Worlds(left) => Excess::Worlds(left - 1),
            };
            if !k.kernel.queue_move(k.tasks, u64::from(from), world, u64::from(to)) {
                continue;
            }
            self.transfer(k.now_ns, world, to);
            self.tell_hold(k, world);
            self.look_at_preemption(k, world);
            (moved, excess) = (moved + 1, left);
            let (Excess::Load(left) | Excess::Util(left) | Excess::Worlds(left)) = excess;
            if left == 0 || look == Look::NewIdle {
                break;
            }
        }
        (moved, pinned)
    }

    /// Whether a world's limit has taken it off the pCPU that it would go to.
    fn kept_by_limit(&self, world: u32, to: u32) -> bool {
        let rq = self.rq_of(self.worlds[world as usize].group, to);
        self.rqs[rq].throttled || self.owner(rq).is_some_and(|id| self.is_throttled(id))
    }

    /// Looks at one domain of a pCPU; whether something has moved there.
    fn balance(&mut self, k: &mut Callback<'_>, pcpu: u32, level: usize, look: Look) -> bool {
        let mut domain = self.pcpus[pcpu as usize].domains[level].clone();
        let (mut moved, mut balanced, mut source) = (0, true, None);
        let mut not = vec![];
        if self.shall_balance(&domain, pcpu, look) {
            while let Some((group, excess)) = self.busiest(k.now_ns, &domain, look) {
                let Some(from) = self.source(k.now_ns, &domain.groups[group], excess, &not) else {
                    break;
                };
                (balanced, source) = (false, Some(from));
                let pinned;
                (moved, pinned) = self.detach(k, (from, pcpu), (&domain, look), excess);
                if moved > 0 || !pinned {
                    break;
                }
                not.push(from);
            }
        }
        if look != Look::NewIdle {
            domain.found(balanced || moved == 0 && domain.failed == 0);
            domain.failed = if moved > 0 || balanced { 0 } else { domain.failed + 1 };
            if domain.failed > domain.tries + 2 {
                if let Some(from) = source {
                    self.push(k, from, pcpu);
                }
                domain.failed = domain.tries + 1;
            }
        }
        let own = &mut self.pcpus[pcpu as usize].domains[level];
        (own.failed, own.interval_ns) = (domain.failed, domain.interval_ns);
        moved > 0
    }

    /// Whether a pCPU is the one of its group that looks.
    fn shall_balance(&self, domain: &Domain, pcpu: u32, look: Look) -> bool {
        let on = || domain.groups[0].iter().copied().filter(|p| self.pcpus[*p as usize].online);
        let first = on().find(|p| self.is_idle(*p)).or_else(|| on().min());
        look == Look::NewIdle || first == Some(pcpu)
    }

    /// The world that runs on a pCPU is to go on on another.
    fn push(&mut self, k: &mut Callback<'_>, from: u32, to: u32) {
        let world = self.pcpus[from as usize].runs;
        if world != 0 && self.may_run(k.task(world), to) && !self.kept_by_limit(world, to) {
            self.worlds[world as usize].push = Some(to);
            k.kernel.kick(from, KICK_PREEMPT);
        }
    }

    /// A pCPU has nothing to run: whether it has found something.
    pub(super) fn new_idle(&mut self, k: &mut Callback<'_>, pcpu: u32) -> bool {
        let levels = self.pcpus[pcpu as usize].domains.len();
        let waits = |p: usize| self.rqs[p].queue.len() > 1 || self.runnable(p) > 1;
        self.pcpus[pcpu as usize].online
            && (0..self.pcpus.len()).any(waits)
            && (0..levels).any(|level| self.balance(k, pcpu, level, Look::NewIdle))
    }

    /// A tick on a pCPU: whether it, or an idle one, looks at its domains.
    pub(super) fn look_for_balance(&mut self, k: &mut Callback<'_>, pcpu: u32) {
        let due = |p: &super::Pcpu| p.online && p.balance_at_ns <= k.now_ns;
        let kicks = self.runnable(pcpu as usize) > 1 || {
            let llc = self.pcpus[pcpu as usize].place.llc;
            self.pcpus.iter().filter(|p| p.place.llc == llc && p.runs != 0).count() > 1
        };
        let idle = |p: u32| kicks && self.is_idle(p);
        let all = 0..self.pcpus.len() as u32;
        let due = all.filter(|p| due(&self.pcpus[*p as usize]) && (*p == pcpu || idle(*p)));
        let due: Vec<u32> = due.filter(|p| !self.looking.contains(p)).collect();
        if !due.is_empty() {
            self.looking.extend(due);
            k.kernel.arm(BALANCE, 0);
        }
    }

    /// The pCPUs that are due look at their domains.
    pub(super) fn balance_due(&mut self, k: &mut Callback<'_>) {
        for pcpu in std::mem::take(&mut self.looking) {
            self.charge(k.now_ns, pcpu);
            let mut next = u64::MAX;
            for level in 0..self.pcpus[pcpu as usize].domains.len() {
                let busy = !self.is_idle(pcpu);
                let look = if busy { Look::Busy } else { Look::Idle };
                let domain = &self.pcpus[pcpu as usize].domains[level];
                if k.now_ns >= domain.last_ns + domain.wait_ns(busy) {
                    self.pcpus[pcpu as usize].domains[level].last_ns = k.now_ns;
                    self.balance(k, pcpu, level, look);
                }
                let domain = &self.pcpus[pcpu as usize].domains[level];
                next = next.min(domain.last_ns + domain.wait_ns(!self.is_idle(pcpu)));
            }
            self.pcpus[pcpu as usize].balance_at_ns = next;
            if self.pcpus[pcpu as usize].runs == 0 && !self.rqs[pcpu as usize].queue.is_empty() {
                k.kernel.kick(pcpu, KICK_IDLE);
            }
        }
    }
}

/// What is to move between two groups; none if that is nothing.
fn excess(domain: &Domain, local: Found, busiest: Found, mean: u64, look: Look) -> Option<Excess> {
    if local.fill == Fill::HasSpare {
        if busiest.fill == Fill::Overloaded && !domain.llc {
            let room = (local.pcpus * ONE).saturating_sub(local.util);
            return match room {
                0 if look != Look::Busy => Some(Excess::Worlds(1)),
                0 => None,
                room => Some(Excess::Util(room)),
            };
        }
        let apart = if busiest.pcpus == 1 || domain.spreads() {
            busiest.runnable.saturating_sub(local.runnable)
        } else {
            local.idle.saturating_sub(busiest.idle)
        };
        // Few worlds stay together on a node.
        let few = domain.together > 0 && local.runnable < domain.together && apart <= 2;
        let worlds = if few { 0 } else { apart / 2 };
        return (worlds > 0).then_some(Excess::Worlds(worlds));
    }
    if local.fill < Fill::Overloaded && (local.mean() >= busiest.mean() || local.mean() >= mean) {
        return None;
    }
    let gives = busiest.mean().saturating_sub(mean) * busiest.pcpus;
    let takes = mean.saturating_sub(local.mean()) * local.pcpus;
    let load = gives.min(takes);
    (load > 0).then_some(Excess::Load(load))
}
