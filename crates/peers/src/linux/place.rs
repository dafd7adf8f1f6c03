//! Which pCPU a woken world goes to; it queues nothing.
//!
//! *Law*: a world's first pCPU is the idlest of the idlest group, from the host down
//! (`find_idlest_cpu`). A woken one goes to the waker's pCPU or stays with its own (`wake_affine`):
//! by which idles, then by load; a waker that wakes many others does not draw them to itself
//! (`wake_wide`). From there an idle pCPU of the same LLC is taken: this one, the previous one, a
//! whole core, another thread of the previous core, any, of which fewer are looked at the busier
//! the LLC is; else this one (`select_idle_sibling`, `SIS_UTIL`).
//!
//! *Limits*: whether an LLC has an idle core, and its utilisation, are known exactly; Linux keeps
//! hints. The pCPU that was used before the previous one is not tried.

use super::Linux;
use super::pelt::ONE;
use contract::{Callback, Task, WAKE_SYNC};

/// What is no imbalance within an LLC, in percent.
const LLC_PERCENT: u64 = 117;
/// What a waker that wakes has switched between, halved every so many ns.
const FLIPS_NS: u64 = 1_000_000_000;

/// Which worlds a world wakes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wakes {
    last: u32,
    flips: u64,
    halved_at: u64,
}

impl Linux {
    /// Whether a pCPU is on line and a world may run there.
    pub(super) fn may_run(&self, task: &Task, pcpu: u32) -> bool {
        task.may_run(pcpu) && self.pcpus[pcpu as usize].online
    }

    /// Whether a pCPU has nothing to run.
    pub(super) fn is_idle(&self, pcpu: u32) -> bool {
        self.pcpus[pcpu as usize].idle && self.rqs[pcpu as usize].queue.is_empty()
    }

    fn share_llc(&self, a: u32, b: u32) -> bool {
        self.pcpus[a as usize].place.llc == self.pcpus[b as usize].place.llc
    }

    /// Load of what belongs to a pCPU.
    pub(super) fn pcpu_load(&self, now_ns: u64, pcpu: u32) -> u64 {
        self.load(now_ns, pcpu as usize)
    }

    /// Part of the recent past in which a pCPU ran its worlds, `ONE` for all of it.
    pub(super) fn utilisation(&self, now_ns: u64, pcpu: u32) -> u64 {
        self.pcpus[pcpu as usize].util.get(now_ns)
    }

    /// A world's first pCPU.
    pub(super) fn first_pcpu(&self, k: &Callback<'_>, world: u32, prev: u32) -> u32 {
        let task = k.task(world);
        let may = |p: &u32| self.may_run(task, *p);
        let mut here = prev;
        for level in (0..self.pcpus[here as usize].domains.len()).rev() {
            let Some(domain) = self.pcpus[here as usize].domains.get(level) else { break };
            let rank = |group: &&Vec<u32>| {
                let idle = group.iter().filter(|p| may(p) && self.is_idle(**p)).count();
                let load: u64 = group.iter().map(|p| self.pcpu_load(k.now_ns, *p)).sum();
                (usize::MAX - idle, load / group.len() as u64)
            };
            let fit = domain.groups.iter().filter(|g| g.iter().any(may));
            let Some(best) = fit.min_by_key(rank) else { break };
            if !best.contains(&here) {
                here = best.iter().copied().find(may).unwrap_or(here);
            }
        }
        if self.may_run(task, here) { here } else { self.fallback(task, prev) }
    }

    /// The pCPU of a woken world.
    pub(super) fn wake_pcpu(&mut self, k: &Callback<'_>, world: u32, prev: u32, flags: u32) -> u32 {
        let waker = k.waker;
        if waker != 0 {
            self.has_woken(k.now_ns, waker, world);
        }
        let target = match k.here {
            Some(here) if here != prev && self.may_run(k.task(world), here) => {
                if self.wakes_many(prev, waker, world) {
                    prev
                } else {
                    self.affine(k, world, here, prev, flags & WAKE_SYNC != 0)
                }
            }
            _ => prev,
        };
        self.idle_near(k, world, prev, target)
    }

    /// A world has woken another (`record_wakee`).
    fn has_woken(&mut self, now_ns: u64, waker: u32, world: u32) {
        let wakes = &mut self.worlds[waker as usize].wakes;
        if now_ns > wakes.halved_at + FLIPS_NS {
            (wakes.flips, wakes.halved_at) = (wakes.flips / 2, now_ns);
        }
        if std::mem::replace(&mut wakes.last, world) != world {
            wakes.flips += 1;
        }
    }

    /// Whether a waker and what it wakes are more than an LLC holds (`wake_wide`).
    fn wakes_many(&self, pcpu: u32, waker: u32, world: u32) -> bool {
        let pcpus = self.llc(pcpu).count() as u64;
        let flips = |w: u32| self.worlds[w as usize].wakes.flips;
        let (most, least) = (flips(waker).max(flips(world)), flips(waker).min(flips(world)));
        waker != 0 && least >= pcpus && most >= least * pcpus
    }

    /// The waker's pCPU or the previous one (`wake_affine`).
    fn affine(&self, k: &Callback<'_>, world: u32, here: u32, prev: u32, sync: bool) -> u32 {
        if self.is_idle(here) && self.share_llc(here, prev) {
            return if self.is_idle(prev) { prev } else { here };
        }
        if sync && self.runnable(here as usize) == 1 {
            return here;
        }
        if self.is_idle(prev) {
            return prev;
        }
        let own = self.load_at_root(k.now_ns, world);
        let waker = if sync && k.waker != 0 { self.load_at_root(k.now_ns, k.waker) } else { 0 };
        let mine = (self.pcpu_load(k.now_ns, here).saturating_sub(waker) + own) * 100;
        let its = self.pcpu_load(k.now_ns, prev).saturating_sub(own);
        let its = its * (100 + (LLC_PERCENT - 100) / 2) + u64::from(sync);
        if mine < its { here } else { prev }
    }

    /// pCPUs of the same LLC, from the next on, itself last.
    fn llc(&self, pcpu: u32) -> impl Iterator<Item = u32> + '_ {
        let n = self.pcpus.len() as u32;
        (1..=n).map(move |i| (pcpu + i) % n).filter(move |p| self.share_llc(pcpu, *p))
    }

    /// Whether all threads of a core idle.
    fn core_idles(&self, pcpu: u32) -> bool {
        self.core(pcpu).all(|p| self.is_idle(p))
    }

    fn core(&self, pcpu: u32) -> impl Iterator<Item = u32> + '_ {
        let core = self.pcpus[pcpu as usize].place.core;
        let all = 0..self.pcpus.len() as u32;
        all.filter(move |p| self.pcpus[*p as usize].place.core == core)
    }

    /// An idle pCPU of the LLC of `target`, or that.
    fn idle_near(&self, k: &Callback<'_>, world: u32, prev: u32, target: u32) -> u32 {
        let task = k.task(world);
        let free = |p: &u32| self.is_idle(*p) && self.may_run(task, *p);
        if free(&target) {
            return target;
        }
        let near = self.share_llc(prev, target);
        if near && free(&prev) {
            return prev;
        }
        let all = || self.llc(target).filter(|p| self.may_run(task, *p));
        if self.threads > 1 {
            let whole = self.llc(target).find(|p| self.core_idles(*p));
            if let Some(core) = whole.and_then(|_| all().find(|p| self.core_idles(*p))) {
                return core;
            }
            if let Some(thread) = self.core(prev).find(|p| near && whole.is_none() && free(p)) {
                return thread;
            }
            if whole.is_some() {
                return all().find(free).unwrap_or(target);
            }
        }
        all().take(self.looks(k.now_ns, target)).find(free).unwrap_or(target)
    }

    /// pCPUs of an LLC that a wake-up looks at (`SIS_UTIL`): all while it idles, none at a
    /// utilisation of 85 %, by the square of that between.
    fn looks(&self, now_ns: u64, pcpu: u32) -> usize {
        let pcpus = self.llc(pcpu).count() as u64;
        let sum: u64 = self.llc(pcpu).map(|p| self.utilisation(now_ns, p)).sum();
        let mean = sum * 1024 / ONE / pcpus;
        let taken = mean * mean * LLC_PERCENT * LLC_PERCENT / (10_000 * 1024);
        (1024_u64.saturating_sub(taken) * pcpus / 1024) as usize
    }

    /// A pCPU for a world that may not stay: of those on line the one with the least load.
    pub(super) fn fallback(&self, task: &Task, otherwise: u32) -> u32 {
        let all = (0..self.pcpus.len() as u32).filter(|p| self.may_run(task, *p));
        all.min_by_key(|p| (!self.is_idle(*p), self.runnable(*p as usize))).unwrap_or(otherwise)
    }
}

impl Linux {
    /// Worlds that wait on pCPUs that are off line go elsewhere.
    pub(super) fn evacuate(&mut self, k: &mut Callback<'_>) {
        for pcpu in 0..self.pcpus.len() as u32 {
            if self.pcpus[pcpu as usize].online {
                continue;
            }
            let here = |w: &u32| {
                let world = &self.worlds[*w as usize];
                world.queued && world.at == pcpu
            };
            let all: Vec<u32> = (1..self.worlds.len() as u32).filter(here).collect();
            for world in all {
                let to = self.fallback(k.task(world), pcpu);
                if k.kernel.queue_move(k.tasks, u64::from(pcpu), world, u64::from(to)) {
                    self.transfer(k.now_ns, world, to);
                    self.tell_hold(k, world);
                    self.look_at_preemption(k, world);
                }
            }
        }
    }
}
