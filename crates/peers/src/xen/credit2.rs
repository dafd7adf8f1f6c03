//! Xen's Credit2 scheduler: its callbacks, in the order of csched2_schedule. The laws are in
//! `queues` (which pCPUs share a run queue), `choose` (credits, what runs and for how long),
//! `tickle` (which pCPU looks at a world that waits), `budget` (caps), `load` and `balance`.
//!
//! *Law*: a run queue is of several pCPUs and in the order of credit. A world burns a credit a ns
//! if its weight is the largest of all that belong to the queue, asleep or not; others burn by so
//! much more as they weigh less. When the best has none left, all get `CREDIT_NS` more. Weights act
//! in a run queue alone: between queues worlds move by load, which is how many want to run.
//!
//! *Units*: credits, which are ns at the largest weight of a queue; ns.
//!
//! *Example*: burners of weights 256 and 128 on one pCPU burn 1 and 2 credits a ns, so 2:1. With an
//! idle third one of weight 2,560 they burn 10 and 20: a run of 1 ms costs 10 and 20 ms of credit.
//! None has more than 10.5 or less than -10, and what is beyond is lost, so it is nearer to 1:1.
//!
//! *Limits*: as of `xen`. The pCPUs of a queue are those of the host at the start; one that comes
//! back on line is in its queue again.

mod balance;
mod budget;
mod choose;
mod load;
mod queues;
mod tickle;

use super::domains::Domains;
use super::machine::Machine;
use super::{FEATURES, WAITING};
use budget::Purse;
use contract::{
    Accounts, Callback, Feature, Hold, Limits, Plan, Scheduler, Setup, VmTerms, WorldTerms,
};
use load::Average;
pub(crate) use queues::Queues;
use queues::RunQueue;

/// Credit that a world begins with and is given at a reset; the longest run, in ns.
const CREDIT_NS: i64 = 10_000_000;
/// A world of another pCPU of the queue needs so much more credit, in ns
/// (sched_credit2_migrate_resist: 500 us).
const RESIST_NS: i64 = 500_000;

/// A world.
#[derive(Clone, Copy, Debug, Default)]
struct World {
    vm: u32,
    /// pCPU that it runs on, waits for or ran on last, and its run queue.
    at: u32,
    queue: usize,
    credit: i64,
    /// What burning credit has left over, in ns times weight.
    residual: u64,
    /// CPU time that it has taken from its domain's budget, in ns; none without a cap.
    budget: Option<i64>,
    load: Average,
    /// pCPU that was sent to look at it.
    tickled: Option<u32>,
    /// Run queue that it is to move to.
    moves_to: Option<usize>,
    /// Runs, or was chosen to, or goes on when a real-time task has left its pCPU.
    scheduled: bool,
    /// Waits in the run queue.
    queued: bool,
    /// Waits for its domain's budget.
    parked: bool,
    yields: bool,
}

/// A pCPU.
#[derive(Clone, Copy, Debug, Default)]
struct Pcpu {
    queue: usize,
    idle: bool,
    /// Was asked to schedule and has not yet.
    tickled: bool,
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Credit2 {
    machine: Machine,
    domains: Domains,
    purses: Vec<Purse>,
    worlds: Vec<World>,
    pcpus: Vec<Pcpu>,
    queues: Vec<RunQueue>,
}

impl Credit2 {
    pub(crate) fn new(setup: &Setup<'_>, queues: Queues) -> Credit2 {
        let machine = Machine::new(setup, setup.vms);
        let of = queues::lay_out(setup.topology.places(), queues);
        let count = of.iter().max().map_or(0, |last| last + 1);
        let first = |q: usize| of.iter().position(|of| *of == q).unwrap_or(0) as u32;
        Credit2 {
            domains: Domains::new(setup.vms),
            purses: vec![Purse::default(); setup.vms],
            worlds: vec![World::default(); setup.worlds],
            pcpus: of.iter().map(|q| Pcpu { queue: *q, idle: true, tickled: false }).collect(),
            queues: (0..count).map(|q| RunQueue::new(first(q))).collect(),
            machine,
        }
    }

    /// Weight of a world.
    fn weight(&self, world: u32) -> u64 {
        self.domains.of(self.worlds[world as usize].vm).weight
    }

    /// Whether a world may run on a pCPU of a run queue.
    fn fits(&self, k: &Callback<'_>, world: u32, queue: usize, pcpu: u32) -> bool {
        self.pcpus[pcpu as usize].queue == queue && self.machine.may_run(k.task(world), pcpu)
    }

    /// A world that waits is in its run queue, and a pCPU is sent to look at it.
    fn queue(&mut self, k: &mut Callback<'_>, world: u32) {
        self.insert(world);
        self.tickle(k, world);
    }

    /// A world wants to run from now on.
    fn wakes(&mut self, k: &mut Callback<'_>, world: u32) {
        self.change_load(world, 1, k.now_ns);
        self.queue(k, world);
    }

    /// A world moves to the pCPU that is best for it, where it waits.
    fn moves(&mut self, k: &mut Callback<'_>, world: u32) {
        self.change_load(world, -1, k.now_ns);
        self.place(k, world);
        self.wakes(k, world);
    }

    /// Largest weights of all run queues are found anew.
    fn weigh(&mut self) {
        (0..self.queues.len()).for_each(|q| self.find_max_weight(q));
    }
}

impl Accounts for Credit2 {
    fn charged_ns(&self, world: u32) -> Option<u64> {
        Some(self.machine.used_ns(world))
    }

    fn busy_ns(&self, pcpu: u32) -> Option<u64> {
        Some(self.machine.busy_ns(pcpu))
    }
}

impl Scheduler for Credit2 {
    fn features(&self) -> &'static [Feature] {
        FEATURES
    }

    /// A world that is parked or moves stops although nothing else waits there.
    fn enqueues_last(&self) -> bool {
        true
    }

    fn init(&mut self, k: &mut Callback<'_>) {
        k.kernel.create_queue(WAITING);
    }

    fn world_start(&mut self, k: &mut Callback<'_>, world: u32, terms: &WorldTerms) {
        let budget = self.purses[terms.vm as usize].is_capped().then_some(0);
        let load = Average::new(k.now_ns);
        let at = k.task(world).pcpu as u32;
        let vm = terms.vm;
        let credit = CREDIT_NS;
        self.worlds[world as usize] = World { vm, at, credit, budget, load, ..World::default() };
        self.purses[vm as usize].vcpus += 1;
        let (pcpu, queue) = self.least_loaded(k, world, None);
        self.worlds[world as usize].at = pcpu;
        self.assign(world, queue);
    }

    fn world_exit(&mut self, _k: &mut Callback<'_>, world: u32) {
        self.unassign(world);
        self.purses[self.worlds[world as usize].vm as usize].vcpus -= 1;
    }

    fn vm_terms(&mut self, _k: &mut Callback<'_>, vm: &VmTerms, _plan: &Plan<'_>) {
        self.domains.terms(vm);
        self.weigh();
    }

    fn plan(&mut self, _k: &mut Callback<'_>, plan: &Plan<'_>) {
        self.domains.plan(plan);
        self.weigh();
    }

    fn limits(&mut self, k: &mut Callback<'_>, limits: &Limits<'_>) {
        self.domains.limits(limits);
        self.set_caps(k);
    }

    fn select(&mut self, k: &mut Callback<'_>, world: u32, _prev: u32, _flags: u32) -> i32 {
        if !self.machine.may_run(k.task(world), self.worlds[world as usize].at) {
            self.place(k, world);
        }
        self.worlds[world as usize].at as i32
    }

    fn enqueue(&mut self, k: &mut Callback<'_>, world: u32, flags: u32) {
        self.machine.wait(k, world);
        self.worlds[world as usize].scheduled = false;
        let account = self.worlds[world as usize];
        let here = self.machine.may_run(k.task(world), account.at);
        if flags & contract::ENQUEUE_WAKEUP != 0 {
            if !here {
                self.place(k, world);
            }
            self.wakes(k, world);
        } else if account.parked {
            self.change_load(world, -1, k.now_ns);
            self.place_if_asked(k, world);
            k.kernel.hold(world, Hold::Limited);
        } else if account.moves_to.is_some() || !here {
            self.moves(k, world);
        } else {
            self.queue(k, world);
        }
    }

    fn dispatch(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32) {
        self.pcpus[pcpu as usize].tickled = false;
        let runs = prev != 0 && self.machine.current(pcpu) == prev;
        if runs {
            self.burn(pcpu, k.now_ns);
            self.has_budget(prev);
        }
        let of = self.worlds[prev as usize];
        let prev = Some(prev).filter(|_| runs && !of.parked && of.moves_to.is_none());
        let next = self.candidate(k, pcpu, prev);
        self.pcpus[pcpu as usize].idle = next.is_none();
        let Some(world) = next else {
            self.machine.alarms.stop(pcpu);
            return self.note_load(pcpu, k.now_ns);
        };
        let stays = next == prev;
        if stays {
            self.update_load(world, k.now_ns);
        } else {
            self.remove(world);
            self.worlds[world as usize].scheduled = true;
        }
        self.reset_if_over(k, pcpu, world);
        // What was displaced is about to wait again.
        let displaced = prev.filter(|_| !stays).map(|w| self.worlds[w as usize].credit);
        self.takes(world, pcpu);
        let ns = self.run_ns(pcpu, world, stays, displaced, k.now_ns);
        self.machine.switch(k, pcpu, world, ns);
    }

    fn running(&mut self, k: &mut Callback<'_>, world: u32) {
        self.machine.starts(k, world, CREDIT_NS as u64);
        let pcpu = k.task(world).pcpu as u32;
        let account = &mut self.worlds[world as usize];
        (account.at, account.scheduled) = (pcpu, true);
        self.pcpus[pcpu as usize].idle = false;
    }

    fn stopping(&mut self, k: &mut Callback<'_>, world: u32, runnable: bool) {
        let pcpu = k.task(world).pcpu as u32;
        self.burn(pcpu, k.now_ns);
        self.machine.stops(pcpu);
        if !runnable {
            self.worlds[world as usize].scheduled = false;
            self.change_load(world, -1, k.now_ns);
            self.place_if_asked(k, world);
        }
        self.return_budget(k, world);
    }

    fn yield_to(&mut self, _k: &mut Callback<'_>, world: u32, _to: u32) -> bool {
        self.worlds[world as usize].yields = true;
        true
    }

    fn online(&mut self, k: &mut Callback<'_>, pcpu: u32, online: bool) {
        self.machine.set_online(pcpu, online);
        self.pcpus[pcpu as usize].idle = online;
        self.pcpus[pcpu as usize].tickled = false;
        if !online {
            self.leave(k, pcpu);
        }
    }

    fn timer(&mut self, k: &mut Callback<'_>, timer: u32) {
        self.machine.alarms.fired(timer);
        while let Some(slot) = self.machine.alarms.due(k, timer) {
            let pcpus = self.machine.len();
            if slot >= pcpus {
                self.replenish(k, slot - pcpus);
            } else if self.machine.current(slot) != 0 {
                self.machine.reschedule(k, slot);
            }
        }
    }
}
