//! Xen's Credit scheduler: its callbacks, in the order of csched_schedule. The laws are in
//! `account` (credits), `place` (which pCPU) and `steal` (load balancing).
//!
//! *Law*: each pCPU has a run queue by priority, within one by arrival: BOOST, UNDER (credit left),
//! OVER. A run is `TSLICE_NS` long, and ends before that for a higher priority that wakes, if it
//! has lasted for the ratelimit. A pCPU whose next world is OVER, or that has none, looks for one
//! of higher priority in other queues.
//! - A world that wakes with credit is BOOST until a tick finds it running.
//! - A tick each `TICK_NS` on a busy pCPU takes the credit that its world used, activates it, and
//!   moves it if another pCPU is better; priorities in the queue are in order again from then on.
//! - Each `TSLICE_NS` credits are given (`account`).
//! - A world that yields (a pause-loop exit) stands behind one of lower priority, and the ratelimit
//!   does not keep it.
//!
//! *Units*: credits, 10 a ms of CPU time; ns.
//!
//! *Example*: a burner and a world that sleeps share a pCPU. The sleeper wakes as BOOST and runs at
//! once, unless the burner has run for less than 1 ms.
//!
//! *Limits*: as of `xen`; vcpu_migration_delay is 0, its default. A world that a pCPU in idle could
//! run stays where it waits until a pCPU looks: that is Xen's, too.

mod account;
mod place;
mod steal;

use super::domains::Domains;
use super::machine::Machine;
use super::{FEATURES, RATELIMIT_NS, WAITING};
use contract::{
    Accounts, Callback, ENQUEUE_WAKEUP, Feature, Hold, Limits, Plan, Scheduler, Setup, VmTerms,
    WorldTerms,
};

/// A run, and the time between two accountings, in ns (sched_credit_tslice_ms: 30).
const TSLICE_NS: u64 = 30_000_000;
/// Time between two ticks, in ns: a third.
const TICK_NS: u64 = TSLICE_NS / 3;
/// Time between two looks for work elsewhere, in ns (load-balance-ratelimit: 1,000 us).
const BALANCE_NS: u64 = 1_000_000;
/// A run that the ratelimit keeps goes on for no less, in ns.
const SHORTEST_NS: u64 = 100_000;

/// Priority of a world, the lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    /// No credit left.
    Over,
    /// Credit left.
    #[default]
    Under,
    /// Has woken with credit left.
    Boost,
}

/// A world.
#[derive(Clone, Copy, Debug, Default)]
struct World {
    vm: u32,
    /// pCPU that it runs on, waits for or ran on last.
    at: u32,
    priority: Priority,
    credit: i64,
    /// CPU time that is not a whole credit yet, in units of 10^-7 ms.
    residual: u64,
    /// Is given credits.
    active: bool,
    /// Its domain's cap is used up; and it waits for that.
    parked: bool,
    waits_parked: bool,
    /// Leaves its pCPU for another.
    migrates: bool,
    yields: bool,
    /// In the run queue of `at`.
    queued: bool,
}

/// A pCPU.
#[derive(Clone, Debug, Default)]
struct Pcpu {
    queue: Vec<u32>,
    /// Has nothing to do, and nothing was sent there.
    idler: bool,
    idle_bias: u32,
    /// Looked for work elsewhere last, in ns.
    balanced_ns: u64,
    /// Accounting that its queue is in order by.
    epoch: u64,
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Credit {
    machine: Machine,
    domains: Domains,
    worlds: Vec<World>,
    pcpus: Vec<Pcpu>,
    /// Active domains, and the active worlds of each, in the order in which they are given credits.
    active: Vec<u32>,
    active_worlds: Vec<Vec<u32>>,
    /// Sum of all credits after the last accounting.
    balance: i64,
    /// Accountings so far.
    epoch: u64,
    /// pCPU of each node that was stolen from last.
    steal_bias: Vec<u32>,
    /// Idle pCPU that a world was sent to last.
    tickled: u32,
}

impl Credit {
    pub(crate) fn new(setup: &Setup<'_>) -> Credit {
        let machine = Machine::new(setup, setup.topology.pcpus() + 1);
        let n = machine.len();
        let nodes = (0..n).map(|p| machine.place(p).node).max().map_or(0, |last| last + 1);
        let first = |node| (0..n).find(|p| machine.place(*p).node == node).unwrap_or(0);
        let pcpu = Pcpu { idler: true, idle_bias: n - 1, ..Pcpu::default() };
        Credit {
            steal_bias: (0..nodes).map(first).collect(),
            domains: Domains::new(setup.vms),
            worlds: vec![World::default(); setup.worlds],
            pcpus: vec![pcpu; n as usize],
            active: vec![],
            active_worlds: vec![vec![]; setup.vms],
            balance: 0,
            epoch: 0,
            tickled: 0,
            machine,
        }
    }

    /// Alarm of a pCPU's tick.
    fn tick_of(&self, pcpu: u32) -> u32 {
        self.machine.len() + pcpu
    }

    /// Alarm of the accounting.
    fn accounting(&self) -> u32 {
        2 * self.machine.len()
    }

    /// Puts a world into the run queue of its pCPU, behind all of its priority; one that yields
    /// behind one of a lower priority, too.
    fn insert(&mut self, world: u32) {
        let World { at, priority, yields, .. } = self.worlds[world as usize];
        let worlds = &self.worlds;
        let queue = &mut self.pcpus[at as usize].queue;
        let higher = |w: &u32| worlds[*w as usize].priority >= priority;
        let place = queue.iter().take_while(|w| higher(w)).count();
        let behind = usize::from(yields && place + 1 < queue.len());
        queue.insert(place + behind, world);
        self.worlds[world as usize].queued = true;
    }

    /// Takes a world out of the run queue that it is in.
    fn remove(&mut self, world: u32) {
        let at = &mut self.worlds[world as usize];
        (at.queued, at.yields) = (false, false);
        self.pcpus[at.at as usize].queue.retain(|w| *w != world);
    }

    /// A world that waits gets a pCPU to look at it: its own if that idles, else another that does,
    /// else its own if what runs there has a lower priority.
    fn tickle(&mut self, k: &mut Callback<'_>, world: u32) {
        let World { at, priority, .. } = self.worlds[world as usize];
        let current = self.machine.current(at);
        let lower = current != 0 && self.worlds[current as usize].priority < priority;
        let task = k.task(world);
        let idles = |p| self.pcpus[p as usize].idler && self.machine.may_run(task, p);
        let sent = if current == 0 {
            Some(at)
        } else if let Some(idle) = self.machine.cycle(self.tickled, idles) {
            self.tickled = idle;
            Some(idle)
        } else {
            lower.then_some(at)
        };
        if let Some(pcpu) = sent {
            self.pcpus[pcpu as usize].idler = false;
            self.machine.reschedule(k, pcpu);
        }
    }

    /// Puts a world that waits into the queue of its pCPU.
    fn wakes(&mut self, k: &mut Callback<'_>, world: u32) {
        self.insert(world);
        self.tickle(k, world);
    }

    /// Whether the ratelimit keeps what runs on a pCPU: for how long then.
    fn kept_ns(&self, pcpu: u32, prev: u32, now_ns: u64) -> Option<u64> {
        let ran = self.machine.ran_ns(pcpu, now_ns);
        let kept = ran < RATELIMIT_NS && !self.worlds[prev as usize].yields;
        let left = if ran < SHORTEST_NS { SHORTEST_NS } else { RATELIMIT_NS.saturating_sub(ran) };
        kept.then_some(left)
    }

    /// What a pCPU is to run; it is in no run queue any more.
    fn next(&mut self, k: &mut Callback<'_>, pcpu: u32) -> Option<u32> {
        let here = &mut self.pcpus[pcpu as usize];
        let first = here.queue.first().copied();
        let priority = first.map(|w| self.worlds[w as usize].priority);
        let mut next = first;
        if priority <= Some(Priority::Over) && k.now_ns - here.balanced_ns > BALANCE_NS {
            here.balanced_ns = k.now_ns;
            next = self.steal(k, pcpu, priority).or(first);
        }
        next.inspect(|world| self.remove(*world))
    }

    /// A tick of a busy pCPU.
    fn tick_on(&mut self, k: &mut Callback<'_>, pcpu: u32) {
        let current = self.machine.current(pcpu);
        if current == 0 {
            return;
        }
        self.burn(pcpu, k.now_ns);
        let world = &mut self.worlds[current as usize];
        world.priority = world.priority.min(Priority::Under);
        if !world.active {
            self.activate(current);
        } else if self.pick(k, current, false) != pcpu {
            self.worlds[current as usize].migrates = true;
            self.machine.reschedule(k, pcpu);
        }
        self.sort(pcpu);
        let slot = self.tick_of(pcpu);
        self.machine.alarms.set(k, slot, k.now_ns + TICK_NS);
    }

    /// Brings a queue in order, once after each accounting.
    fn sort(&mut self, pcpu: u32) {
        let (worlds, here) = (&self.worlds, &mut self.pcpus[pcpu as usize]);
        if std::mem::replace(&mut here.epoch, self.epoch) != self.epoch {
            here.queue.sort_by_key(|w| worlds[*w as usize].priority == Priority::Over);
        }
    }

    /// A pCPU idles or no longer: its tick stops, or starts at the next multiple.
    fn set_idle(&mut self, k: &mut Callback<'_>, pcpu: u32, idle: bool) {
        self.pcpus[pcpu as usize].idler = idle;
        let slot = self.tick_of(pcpu);
        if idle {
            self.machine.alarms.stop(slot);
            self.machine.alarms.stop(pcpu);
        } else if !self.machine.alarms.is_set(slot) {
            self.machine.alarms.set(k, slot, (k.now_ns / TICK_NS + 1) * TICK_NS);
        }
    }
}

impl Accounts for Credit {
    fn charged_ns(&self, world: u32) -> Option<u64> {
        Some(self.machine.used_ns(world))
    }

    fn busy_ns(&self, pcpu: u32) -> Option<u64> {
        Some(self.machine.busy_ns(pcpu))
    }
}

impl Scheduler for Credit {
    fn features(&self) -> &'static [Feature] {
        FEATURES
    }

    /// A world that is parked or leaves stops although nothing else waits there.
    fn enqueues_last(&self) -> bool {
        true
    }

    fn init(&mut self, k: &mut Callback<'_>) {
        k.kernel.create_queue(WAITING);
    }

    fn enable(&mut self, k: &mut Callback<'_>) {
        let slot = self.accounting();
        self.machine.alarms.set(k, slot, k.now_ns + TSLICE_NS);
    }

    fn world_start(&mut self, k: &mut Callback<'_>, world: u32, terms: &WorldTerms) {
        let at = k.task(world).pcpu as u32;
        self.worlds[world as usize] = World { vm: terms.vm, at, ..World::default() };
        self.worlds[world as usize].at = self.pick(k, world, true);
    }

    fn world_exit(&mut self, _k: &mut Callback<'_>, world: u32) {
        self.deactivate(world);
    }

    fn vm_terms(&mut self, _k: &mut Callback<'_>, vm: &VmTerms, _plan: &Plan<'_>) {
        self.domains.terms(vm);
    }

    fn plan(&mut self, _k: &mut Callback<'_>, plan: &Plan<'_>) {
        self.domains.plan(plan);
    }

    fn limits(&mut self, _k: &mut Callback<'_>, limits: &Limits<'_>) {
        self.domains.limits(limits);
    }

    fn select(&mut self, k: &mut Callback<'_>, world: u32, _prev: u32, _flags: u32) -> i32 {
        if !self.machine.may_run(k.task(world), self.worlds[world as usize].at) {
            self.worlds[world as usize].at = self.pick(k, world, true);
        }
        self.worlds[world as usize].at as i32
    }

    fn enqueue(&mut self, k: &mut Callback<'_>, world: u32, flags: u32) {
        self.machine.wait(k, world);
        let account = &mut self.worlds[world as usize];
        if account.parked {
            account.waits_parked = true;
            return k.kernel.hold(world, Hold::Limited);
        }
        if account.queued {
            return; // it was preempted
        }
        let moves = std::mem::take(&mut account.migrates);
        if flags & ENQUEUE_WAKEUP != 0 && !moves && account.priority == Priority::Under {
            account.priority = Priority::Boost;
        }
        if moves || !self.machine.may_run(k.task(world), account.at) {
            self.worlds[world as usize].at = self.pick(k, world, true);
        }
        self.wakes(k, world);
    }

    fn dispatch(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32) {
        if prev != 0 && self.machine.current(pcpu) == prev {
            self.burn(pcpu, k.now_ns);
            let World { parked, migrates, .. } = self.worlds[prev as usize];
            if !parked && !migrates {
                if let Some(ns) = self.kept_ns(pcpu, prev, k.now_ns) {
                    return self.machine.switch(k, pcpu, prev, ns);
                }
                self.insert(prev);
            }
        }
        let next = self.next(k, pcpu);
        self.set_idle(k, pcpu, next.is_none());
        if let Some(world) = next {
            self.worlds[world as usize].at = pcpu;
            self.machine.switch(k, pcpu, world, TSLICE_NS);
        }
    }

    fn running(&mut self, k: &mut Callback<'_>, world: u32) {
        self.machine.starts(k, world, TSLICE_NS);
        let pcpu = k.task(world).pcpu as u32;
        self.worlds[world as usize].at = pcpu;
        self.set_idle(k, pcpu, false);
    }

    fn stopping(&mut self, k: &mut Callback<'_>, world: u32, _runnable: bool) {
        let pcpu = k.task(world).pcpu as u32;
        self.burn(pcpu, k.now_ns);
        self.machine.stops(pcpu);
    }

    fn yield_to(&mut self, _k: &mut Callback<'_>, world: u32, _to: u32) -> bool {
        self.worlds[world as usize].yields = true;
        true
    }

    fn online(&mut self, k: &mut Callback<'_>, pcpu: u32, online: bool) {
        self.machine.set_online(pcpu, online);
        self.pcpus[pcpu as usize].idler = online;
        if !online {
            for world in self.pcpus[pcpu as usize].queue.clone() {
                self.remove(world);
                self.worlds[world as usize].at = self.pick(k, world, true);
                self.wakes(k, world);
            }
        }
    }

    fn timer(&mut self, k: &mut Callback<'_>, timer: u32) {
        self.machine.alarms.fired(timer);
        while let Some(slot) = self.machine.alarms.due(k, timer) {
            let pcpus = self.machine.len();
            if slot == self.accounting() {
                self.account(k);
                self.machine.alarms.set(k, slot, k.now_ns + TSLICE_NS);
            } else if slot >= pcpus {
                self.tick_on(k, slot - pcpus);
            } else if self.machine.current(slot) != 0 {
                self.machine.reschedule(k, slot);
            }
        }
    }
}
