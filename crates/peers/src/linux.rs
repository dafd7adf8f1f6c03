//! Linux's own scheduler as users of KVM know it: one engine, and two laws of which world is next,
//! CFS of 6.1 and EEVDF of 7.3.
//!
//! *Law*: each pCPU has run queues, one for each cgroup; VMs and pools are cgroups, and their
//! weight on a pCPU is the part of their shares that their load there is of that on all (`entity`,
//! `groups`). On a pCPU the next entity is picked level by level by the law (`cfs`, `eevdf`), at
//! ticks and where a woken world preempts. Woken worlds look for an idle pCPU near (`place`), pCPUs
//! pull from others (`balance`), limits throttle run queues (`limits`).
//!
//! *Documented*: all of it, in the source of Linux, which each file names. *Our reading*: what each
//! file leaves out, under its limits.
//!
//! *Units*: ns; weights are load weights.
//!
//! *Limits*: no reservations, as Linux has none. A VM is threads that know nothing of each other:
//! no co-scheduling. Ticks are the host's (`host.hz`), 250 Hz as Debian has it by default.

mod balance;
mod cfs;
mod domains;
mod eevdf;
mod entity;
mod groups;
mod hrtick;
mod limits;
mod pelt;
mod place;
mod terms;

use contract::{
    Accounts, Callback, ENQUEUE_WAKEUP, Feature, Hold, KICK_IDLE, KICK_PREEMPT, Limits, Plan,
    SLICE_ENDLESS, Scheduler, Setup, VmTerms, WorldTerms,
};
use domains::Domain;
use entity::{Entity, How, NICE_0, Rq};
use groups::Group;
use limits::Untold;
use pelt::{ONE, Pelt};
use place::Wakes;
pub(crate) use terms::Law;
use terms::Tunables;
use topology::Place;

/// Timer of the pCPUs that look at their domains.
const BALANCE: u32 = 1;
/// Timer that empties the queues of pCPUs that are off line.
const EVACUATE: u32 = 2;

/// A world beside its entity.
#[derive(Clone, Copy, Debug, Default)]
struct World {
    group: usize,
    /// pCPU that it belongs to: where it runs, waits, or ran last.
    at: u32,
    /// It has not run yet.
    fresh: bool,
    runs: bool,
    /// It is in a queue of the kernel.
    queued: bool,
    /// pCPU that it is to be pushed to.
    push: Option<u32>,
    /// Charged up to when, and what in all.
    since_ns: u64,
    used_ns: u64,
    /// When it was picked last, and the order in which worlds were picked or came.
    ran_at_ns: u64,
    listed: u64,
    /// How much of the time it runs.
    util: Pelt,
    /// How much of the time it is runnable.
    runnable: Pelt,
    wakes: Wakes,
}

/// A pCPU.
#[derive(Clone, Debug)]
struct Pcpu {
    place: Place,
    domains: Vec<Domain>,
    online: bool,
    /// Nothing runs there, real-time tasks included.
    idle: bool,
    /// World that runs there, 0 for none.
    runs: u32,
    /// Run queues and entities of the world that runs there, or ran last.
    chain: Vec<(usize, usize)>,
    busy_ns: u64,
    /// EEVDF: when what runs there has reached its deadline.
    hrtick_at: Option<u64>,
    /// How much of the time what belongs to it runs.
    util: Pelt,
    balance_at_ns: u64,
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Linux {
    law: Law,
    tunables: Tunables,
    worlds: Vec<World>,
    entities: Vec<Entity>,
    rqs: Vec<Rq>,
    groups: Vec<Group>,
    /// Pools, the root included: the cgroup of a VM is its number after these.
    pools: usize,
    pcpus: Vec<Pcpu>,
    /// Threads of a core.
    threads: u32,
    /// Whether there has been a limit.
    limited: bool,
    /// Counts picks and arrivals.
    listed: u64,
    /// pCPUs that are about to look at their domains.
    looking: Vec<u32>,
    untold: Untold,
}

impl Linux {
    pub(crate) fn new(setup: &Setup<'_>, law: Law) -> Linux {
        let places = setup.topology.places();
        let pcpu = |(id, place): (u32, &Place)| Pcpu {
            place: *place,
            domains: domains::domains(places, id),
            online: true,
            idle: false,
            runs: 0,
            chain: vec![],
            busy_ns: 0,
            hrtick_at: None,
            util: Pelt::default(),
            balance_at_ns: 0,
        };
        let groups = setup.pools + setup.vms;
        let rqs = groups * places.len();
        let of_group = |i: usize| Entity { rq: i % places.len(), ..Entity::default() };
        let worlds = vec![Entity::default(); setup.worlds];
        Linux {
            law,
            tunables: Tunables::of(places.len()),
            worlds: vec![World::default(); setup.worlds],
            entities: worlds.into_iter().chain((0..rqs).map(of_group)).collect(),
            rqs: vec![Rq::default(); rqs],
            groups: vec![Group { weight: NICE_0, ..Group::default() }; groups],
            pools: setup.pools,
            pcpus: (0..).zip(places).map(pcpu).collect(),
            threads: places.iter().map(|p| p.thread + 1).max().unwrap_or(1),
            limited: false,
            listed: 0,
            looking: vec![],
            untold: Untold::default(),
        }
    }

    fn lists(&mut self, world: u32) {
        self.listed += 1;
        self.worlds[world as usize].listed = self.listed;
    }

    /// Charges what runs on a pCPU that is about to pick; whether it is to.
    fn charge_and_pick(&mut self, now_ns: u64, pcpu: u32) -> bool {
        self.charge(now_ns, pcpu);
        let picks = self.untold.picks.len();
        self.untold.picks.retain(|p| *p != pcpu);
        self.untold.picks.len() < picks
    }

    /// The next world of a pCPU.
    fn pick(&mut self, now_ns: u64, pcpu: u32) -> Option<u32> {
        let mut rq = pcpu as usize;
        loop {
            let id = match self.law {
                Law::Cfs => self.cfs_pick(rq),
                Law::Eevdf => self.eevdf_pick(rq),
            }?;
            rq = match self.owned(id) {
                _ if self.entities[id].delayed => {
                    self.finish_delayed(now_ns, id);
                    pcpu as usize
                }
                None => return Some(id as u32),
                Some(below) if self.throttle(now_ns, below) => pcpu as usize,
                Some(below) => below,
            };
        }
    }

    /// Tells the kernel whether a limit holds a world back.
    fn tell_hold(&self, k: &mut Callback<'_>, world: u32) {
        let held = self.is_throttled(world as usize);
        k.kernel.hold(world, if held { Hold::Limited } else { Hold::None });
    }

    /// A world has come to a pCPU: wakes that, or ends the slice of what runs there.
    fn look_at_preemption(&mut self, k: &mut Callback<'_>, world: u32) {
        let pcpu = self.worlds[world as usize].at;
        let runs = self.pcpus[pcpu as usize].runs;
        if self.is_throttled(world as usize) {
            return;
        }
        if runs == 0 {
            return k.kernel.kick(pcpu, KICK_IDLE);
        }
        let path = |id: u32| {
            let mut all: Vec<(usize, usize)> = self.chain(id as usize).collect();
            all.reverse();
            all
        };
        let (runs, comes) = (path(runs), path(world));
        let pair = runs.iter().zip(&comes).find(|(a, b)| a.1 != b.1);
        let Some((&(rq, curr), &(_, woken))) = pair else { return };
        let preempts = match self.law {
            Law::Cfs => self.cfs_preempts(curr, woken),
            Law::Eevdf => self.eevdf_pick(rq) == Some(woken),
        };
        if preempts {
            if self.law == Law::Cfs {
                comes.iter().for_each(|(rq, id)| self.rqs[*rq].next = Some(*id));
            }
            k.kernel.kick(pcpu, KICK_PREEMPT);
        }
    }

    /// A world wakes, or comes back, on a pCPU.
    fn arrives(&mut self, now_ns: u64, world: u32, pcpu: u32, wakes: bool) {
        let delayed = self.entities[world as usize].delayed;
        if self.entities[world as usize].on_rq && self.worlds[world as usize].at != pcpu {
            if delayed {
                self.charge(now_ns, self.worlds[world as usize].at);
                self.finish_delayed(now_ns, world as usize);
            } else {
                return self.transfer(now_ns, world, pcpu);
            }
        }
        if self.entities[world as usize].on_rq && !delayed {
            return;
        }
        self.attach(now_ns, world, pcpu);
        self.charge(now_ns, pcpu);
        let fresh = std::mem::take(&mut self.worlds[world as usize].fresh);
        let how = match (fresh, wakes) {
            (true, _) => How::New,
            (false, true) => How::Wakes,
            (false, false) => How::Moved,
        };
        self.join(now_ns, world as usize, how);
    }

    /// A world runs on a pCPU: it and those above it are what runs on their run queues.
    fn set_current(&mut self, world: u32, pcpu: u32) {
        let chain: Vec<(usize, usize)> = self.chain(world as usize).collect();
        let before = std::mem::take(&mut self.pcpus[pcpu as usize].chain);
        for (rq, id) in before {
            self.rqs[rq].curr = self.rqs[rq].curr.filter(|c| *c == id && chain.contains(&(rq, id)));
        }
        for (rq, id) in &chain {
            let at = &mut self.rqs[*rq];
            if at.curr != Some(*id) {
                let entity = &mut self.entities[*id];
                (entity.picked_ns, entity.parity) = (entity.exec_ns, entity.deadline);
                (at.curr, at.next) = (Some(*id), at.next.filter(|next| next != id));
            }
        }
        self.pcpus[pcpu as usize].chain = chain;
        self.untold.hrticks.push(pcpu);
    }
}

impl Accounts for Linux {
    fn charged_ns(&self, world: u32) -> Option<u64> {
        Some(self.worlds[world as usize].used_ns)
    }

    fn busy_ns(&self, pcpu: u32) -> Option<u64> {
        Some(self.pcpus[pcpu as usize].busy_ns)
    }
}

impl Scheduler for Linux {
    fn features(&self) -> &'static [Feature] {
        use Feature::{Bursts, Hotplug, Limits, Nice, Pools, Shares, WideVms};
        &[Shares, Pools, Limits, Bursts, Hotplug, Nice, WideVms]
    }

    /// A world whose run queue is throttled stops although nothing else waits there.
    fn enqueues_last(&self) -> bool {
        true
    }

    fn init(&mut self, k: &mut Callback<'_>) {
        (0..self.pcpus.len() as u64).for_each(|queue| k.kernel.create_queue(queue));
    }

    fn world_start(&mut self, k: &mut Callback<'_>, world: u32, terms: &WorldTerms) {
        let group = self.group_of_vm(terms.vm);
        let at = k.task(world).pcpu as u32;
        let fresh = true;
        // A new thread counts as runnable all the time, and as busy for half of it.
        let util = Pelt::new(ONE / 2, k.now_ns);
        let runnable = util;
        self.worlds[world as usize] =
            World { group, at, fresh, util, runnable, ..World::default() };
        self.entities[world as usize] = Entity {
            rq: self.rq_of(group, at),
            weight: NICE_0 / 1024 * u64::from(terms.load_weight()),
            load: Pelt::new(ONE, k.now_ns),
            ..Entity::default()
        };
        self.enlist(world as usize);
        self.pcpus[at as usize].util.shift(k.now_ns, ONE / 2, false);
    }

    fn world_exit(&mut self, k: &mut Callback<'_>, world: u32) {
        if self.entities[world as usize].on_rq {
            self.leave(k.now_ns, world as usize, true, false);
        }
        let at = self.worlds[world as usize].at;
        let util = self.worlds[world as usize].util.get(k.now_ns);
        self.pcpus[at as usize].util.shift(k.now_ns, util, true);
        self.delist(k.now_ns, world as usize);
        self.tell(k);
    }

    fn vm_terms(&mut self, k: &mut Callback<'_>, _vm: &VmTerms, plan: &Plan<'_>) {
        self.set_groups(k.now_ns, plan);
    }

    fn plan(&mut self, k: &mut Callback<'_>, plan: &Plan<'_>) {
        self.set_groups(k.now_ns, plan);
    }

    fn limits(&mut self, k: &mut Callback<'_>, limits: &Limits<'_>) {
        self.set_limits(k, limits);
        self.tell(k);
    }

    fn select(&mut self, k: &mut Callback<'_>, world: u32, prev: u32, flags: u32) -> i32 {
        let at = self.worlds[world as usize].at;
        // One that has not left its run queue yet wakes there.
        if self.entities[world as usize].delayed && self.may_run(k.task(world), at) {
            return at as i32;
        }
        let task = k.task(world);
        let prev = if self.may_run(task, prev) { prev } else { self.fallback(task, prev) };
        let to = if self.worlds[world as usize].fresh {
            self.first_pcpu(k, world, prev)
        } else {
            self.wake_pcpu(k, world, prev, flags)
        };
        to as i32
    }

    fn enqueue(&mut self, k: &mut Callback<'_>, world: u32, flags: u32) {
        let wakes = flags & ENQUEUE_WAKEUP != 0;
        let (task, at) = (k.task(world), self.worlds[world as usize].at);
        let here = task.pcpu as u32;
        let waits = self.entities[world as usize].on_rq && !wakes && self.may_run(task, at);
        let to = match here {
            _ if waits => at,
            here if self.may_run(task, here) => here,
            here => self.fallback(task, here),
        };
        let was_on = self.entities[world as usize].on_rq && to == here && !wakes;
        self.arrives(k.now_ns, world, to, wakes);
        k.queue_insert(world, u64::from(to), SLICE_ENDLESS, 0);
        self.worlds[world as usize].queued = true;
        self.lists(world);
        self.tell_hold(k, world);
        if !was_on {
            self.look_at_preemption(k, world);
        }
        self.tell(k);
    }

    fn dispatch(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32) {
        self.charge_and_pick(k.now_ns, pcpu);
        let runs = prev != 0 && self.worlds[prev as usize].runs;
        if runs {
            let pushed = self.worlds[prev as usize].push.take();
            let pushed = pushed.filter(|to| self.may_run(k.task(prev), *to));
            let stays = self.may_run(k.task(prev), pcpu);
            let to = pushed.or((!stays).then(|| self.fallback(k.task(prev), pcpu)));
            if let Some(to) = to {
                self.transfer(k.now_ns, prev, to);
            }
        }
        let mut next = self.pick(k.now_ns, pcpu);
        if next.is_none() && self.new_idle(k, pcpu) {
            next = self.pick(k.now_ns, pcpu);
        }
        match next {
            Some(world) if world == prev && runs => {
                self.set_current(world, pcpu);
                k.set_slice(world, SLICE_ENDLESS);
            }
            Some(world) if k.kernel.queue_take(k.tasks, u64::from(pcpu), world) => {
                self.worlds[world as usize].queued = false;
            }
            _ => {}
        }
        self.tell(k);
    }

    fn running(&mut self, k: &mut Callback<'_>, world: u32) {
        let pcpu = k.task(world).pcpu as u32;
        if self.worlds[world as usize].at != pcpu {
            self.transfer(k.now_ns, world, pcpu);
        }
        self.lists(world);
        let account = &mut self.worlds[world as usize];
        (account.runs, account.queued, account.push) = (true, false, None);
        (account.since_ns, account.ran_at_ns) = (k.now_ns, k.now_ns);
        account.util.set(k.now_ns, true);
        let there = &mut self.pcpus[pcpu as usize];
        there.util.set(k.now_ns, true);
        there.runs = world;
        self.set_current(world, pcpu);
        self.start_hrticks(k);
    }

    fn stopping(&mut self, k: &mut Callback<'_>, world: u32, runnable: bool) {
        let pcpu = k.task(world).pcpu as u32;
        self.charge_and_pick(k.now_ns, pcpu);
        if !runnable {
            self.leave(k.now_ns, world as usize, true, true);
        }
        let account = &mut self.worlds[world as usize];
        account.runs = false;
        account.util.set(k.now_ns, false);
        let there = &mut self.pcpus[pcpu as usize];
        there.util.set(k.now_ns, false);
        there.runs = 0;
        self.tell(k);
    }

    fn tick(&mut self, k: &mut Callback<'_>, world: u32) {
        let pcpu = k.task(world).pcpu as u32;
        let mut pick = self.charge_and_pick(k.now_ns, pcpu);
        let chain: Vec<(usize, usize)> = self.chain(world as usize).collect();
        for (rq, id) in chain {
            self.tell_load(k.now_ns, rq);
            self.weigh(k.now_ns, id);
            pick |= self.law == Law::Cfs && self.cfs_tick(rq, id);
        }
        if pick {
            k.set_slice(world, 0);
        }
        self.look_for_balance(k, pcpu);
        self.tell(k);
    }

    /// KVM's directed yield: the world is the next of its run queues (`yield_to_task_fair`).
    fn yield_to(&mut self, k: &mut Callback<'_>, world: u32, to: u32) -> bool {
        if !self.worlds[to as usize].queued || self.is_throttled(to as usize) {
            return false;
        }
        let chain: Vec<(usize, usize)> = self.chain(to as usize).collect();
        chain.into_iter().for_each(|(rq, id)| self.rqs[rq].next = Some(id));
        let [here, there] = [world, to].map(|w| self.worlds[w as usize].at);
        if here != there {
            k.kernel.kick(there, KICK_PREEMPT);
        }
        true
    }

    fn idle(&mut self, _k: &mut Callback<'_>, pcpu: u32, idle: bool) {
        self.pcpus[pcpu as usize].idle = idle;
    }

    fn online(&mut self, k: &mut Callback<'_>, pcpu: u32, online: bool) {
        self.pcpus[pcpu as usize].online = online;
        if !online {
            k.kernel.arm(EVACUATE, 0);
        }
    }

    fn timer(&mut self, k: &mut Callback<'_>, timer: u32) {
        match timer {
            limits::TIMER => self.limits_timer(k),
            BALANCE => self.balance_due(k),
            EVACUATE => self.evacuate(k),
            slot => self.hrtick(k, slot),
        }
        self.tell(k);
    }
}
