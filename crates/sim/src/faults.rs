//! Faults between any scheduler and the kernel: a scheduler around another that loses, doubles or
//! twists what passes in either direction. Kernel and the scheduler inside know nothing of it. One
//! fault is the machine's, and the engine's to make: `Mutant::LostKick`.

use crate::mutant::Mutant;
use contract::{
    Accounts, Callback, Feature, Hold, Kernel, Limit, Limits, Lock, Plan, Scheduler, StateTimes,
    Task, Tasks, TraceRecord, VmTerms, WorldTerms,
};
use entitlement::{Order, Tree};
use std::collections::BTreeSet;
use units::Rate;

/// How long `Mutant::Withheld` withholds: two and a half ticks, more than any switch takes.
const WITHHELD_NS: u64 = 10_000_000;

/// The fault of a run, how often it had the chance, and what it has to remember.
#[derive(Debug)]
struct Fault {
    mutant: Mutant,
    chances: u64,
    /// Insertions into ordered queues.
    arrivals: u64,
    /// What holds each world back.
    holds: Vec<Hold>,
    /// The world that `Mutant::Withheld` is after, and until when it hides it, once it does.
    withheld: Option<(u32, Option<u64>)>,
    /// Worlds that have a home.
    homed: BTreeSet<u32>,
    now_ns: u64,
    /// The pCPU that dispatches, and whether it has nothing to do.
    dispatching: Option<(u32, bool)>,
}

impl Fault {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    /// Whether it strikes now: one chance in `n`.
    fn strikes(&mut self, mutant: Mutant, n: u64) -> bool {
        if !self.is(mutant) {
            return false;
        }
        self.chances += 1;
        self.chances % n == 0
    }

    /// Whether a world is kept where it is.
    fn keeps(&self, world: u32) -> bool {
        match self.holds[world as usize] {
            Hold::None => false,
            Hold::Limited => self.is(Mutant::HeldForEver),
            Hold::Gang | Hold::Costopped => self.is(Mutant::LostCostart),
        }
    }

    /// Whether a world is not to be found in an ordered queue now.
    fn hides(&mut self, world: u32) -> bool {
        if self.is(Mutant::Starve) {
            return world == 1;
        }
        let Some((after, until)) = self.withheld.filter(|w| w.0 == world) else { return false };
        match until {
            None if self.dispatching.is_some_and(|d| d.1) => {
                self.withheld = Some((after, Some(self.now_ns + WITHHELD_NS)));
                true
            }
            None => false,
            Some(until) if until <= self.now_ns => {
                self.withheld = None;
                false
            }
            Some(_) => true,
        }
    }
}

/// The kernel's services as the fault leaves them.
struct Through<'f, 'k> {
    fault: &'f mut Fault,
    kernel: &'k mut dyn Kernel,
    pcpus: u32,
}

impl Through<'_, '_> {
    fn slice(&self, slice_ns: u64) -> u64 {
        if self.fault.is(Mutant::EndlessSlice) { u64::MAX } else { slice_ns }
    }
}

impl Kernel for Through<'_, '_> {
    fn create_queue(&mut self, queue: u64) {
        self.kernel.create_queue(queue);
    }

    fn insert_local(&mut self, tasks: &mut Tasks, world: u32, slice_ns: u64) {
        let slice = self.slice(slice_ns);
        if self.fault.is(Mutant::WrongPcpu) {
            let pcpu = (tasks[world as usize].pcpu as u32 + 1) % self.pcpus;
            return self.kernel.insert_on(tasks, world, pcpu, slice, false);
        }
        self.kernel.insert_local(tasks, world, slice);
    }

    fn insert_on(
        &mut self,
        tasks: &mut Tasks,
        world: u32,
        pcpu: u32,
        slice_ns: u64,
        preempt: bool,
    ) {
        let slice = self.slice(slice_ns);
        let wrong = u32::from(self.fault.is(Mutant::WrongPcpu));
        self.kernel.insert_on(tasks, world, (pcpu + wrong) % self.pcpus, slice, preempt);
    }

    fn queue_insert(&mut self, tasks: &mut Tasks, world: u32, queue: u64, slice_ns: u64, key: u64) {
        let slice = self.slice(slice_ns);
        self.fault.arrivals += 1;
        let key = if self.fault.is(Mutant::Fifo) { (1 << 50) + self.fault.arrivals } else { key };
        if self.fault.withheld.is_none() && self.fault.strikes(Mutant::Withheld, 20) {
            self.fault.withheld = Some((world, None));
        }
        self.kernel.queue_insert(tasks, world, queue, slice, key);
    }

    fn local_length(&mut self, pcpu: u32) -> u32 {
        self.kernel.local_length(pcpu)
    }

    fn queue_at(&mut self, queue: u64, i: u32) -> u32 {
        if self.fault.is(Mutant::Fifo) && i > 0 {
            return 0;
        }
        let mut hidden = 0;
        for at in 0.. {
            let world = self.kernel.queue_at(queue, at);
            if world == 0 {
                break;
            }
            let after = self.fault.withheld;
            let hides = self.fault.hides(world);
            if hides && after == Some((world, None)) {
                self.kernel.note(&format!("fault: world {world} is withheld"));
            }
            if hides {
                hidden += 1;
            } else if at - hidden == i {
                return world;
            }
        }
        0
    }

    fn queue_take(&mut self, tasks: &mut Tasks, queue: u64, world: u32) -> bool {
        let elsewhere = |d: (u32, bool)| tasks[world as usize].pcpu != d.0 as i32;
        if self.fault.keeps(world)
            || self.fault.is(Mutant::NoPull) && self.fault.dispatching.is_some_and(elsewhere)
        {
            return false;
        }
        let taken = self.kernel.queue_take(tasks, queue, world);
        if taken && self.fault.strikes(Mutant::DoubleInsert, 50) {
            let Task { slice_ns, key, .. } = tasks[world as usize];
            self.kernel.queue_insert(tasks, world, queue, slice_ns, key);
        }
        taken
    }

    fn queue_move(&mut self, tasks: &mut Tasks, queue: u64, world: u32, to: u64) -> bool {
        !self.fault.keeps(world) && self.kernel.queue_move(tasks, queue, world, to)
    }

    fn kick(&mut self, pcpu: u32, flags: u32) {
        self.kernel.kick(pcpu, flags);
    }

    fn pick_idle(&mut self, task: &Task, prev: u32) -> Option<u32> {
        self.kernel.pick_idle(task, prev)
    }

    fn hold(&mut self, world: u32, hold: Hold) {
        self.fault.holds[world as usize] = hold;
        self.kernel.hold(world, hold);
    }

    fn arm(&mut self, timer: u32, after_ns: u64) {
        self.kernel.arm(timer, after_ns);
    }

    fn lock(&mut self, pcpu: u32, of: Lock) {
        let waits_ns = if self.fault.is(Mutant::LostLock) { 0 } else { of.waits_ns };
        self.kernel.lock(pcpu, Lock { waits_ns, ..of });
    }

    fn random(&mut self) -> u32 {
        self.kernel.random()
    }

    fn note(&mut self, text: &str) {
        self.kernel.note(text);
    }

    fn trace(&mut self, record: &TraceRecord) {
        self.kernel.trace(record);
    }

    fn assert_failed(&mut self, what: &str, file: &str, line: u32) {
        self.kernel.assert_failed(what, file, line);
    }
}

/// A scheduler with a fault.
pub(crate) struct Faulty<P> {
    inner: P,
    fault: Fault,
    /// pCPUs on which something runs.
    runs: Vec<bool>,
    /// What was charged to each world when it began to run, and what is reported beside the truth.
    before: Vec<u64>,
    told: Vec<u64>,
}

impl<P: Scheduler> Faulty<P> {
    /// `inner` with a fault, on so many pCPUs.
    pub(crate) fn new(inner: P, mutant: Mutant, pcpus: usize) -> Faulty<P> {
        let fault = Fault {
            mutant,
            chances: 0,
            arrivals: 0,
            holds: vec![],
            withheld: None,
            homed: BTreeSet::new(),
            now_ns: 0,
            dispatching: None,
        };
        Faulty { inner, fault, runs: vec![false; pcpus], before: vec![], told: vec![] }
    }

    /// Calls the scheduler inside with the services that the fault leaves.
    fn pass<R>(
        &mut self,
        k: &mut Callback<'_>,
        f: impl FnOnce(&mut P, &mut Callback<'_>) -> R,
    ) -> R {
        self.fault.now_ns = k.now_ns;
        let pcpus = self.runs.len() as u32;
        let mut kernel = Through { fault: &mut self.fault, kernel: &mut *k.kernel, pcpus };
        let mut inner = Callback {
            kernel: &mut kernel,
            tasks: &mut *k.tasks,
            now_ns: k.now_ns,
            here: k.here,
            waker: k.waker,
        };
        f(&mut self.inner, &mut inner)
    }

    /// The tree as the fault shows it.
    fn tree(&self, tree: &Tree) -> Tree {
        let (mut pools, mut leaves) = (tree.pools().to_vec(), tree.leaves().to_vec());
        if self.fault.is(Mutant::FlatTree) {
            pools.iter_mut().for_each(|p| p.parent = 0);
            leaves.iter_mut().for_each(|l| l.pool = 0);
        }
        if self.fault.is(Mutant::NoReservation) {
            leaves.iter_mut().for_each(|l| l.reservation = Rate(0));
        }
        if self.fault.is(Mutant::EqualWeights) {
            leaves.iter_mut().for_each(|l| l.shares = 1000);
        }
        Tree::new(tree.pcpus(), pools, leaves).as_cores_of(tree)
    }
}

impl<P: Scheduler> Accounts for Faulty<P> {
    fn charged_ns(&self, world: u32) -> Option<u64> {
        let charged = self.inner.charged_ns(world)?;
        Some(charged.wrapping_add(self.told[world as usize]))
    }

    fn lost_ns(&self, world: u32, now_ns: u64) -> u64 {
        self.inner.lost_ns(world, now_ns)
    }

    fn busy_ns(&self, pcpu: u32) -> Option<u64> {
        self.inner.busy_ns(pcpu)
    }

    fn taken_ns(&self, pcpu: u32, now_ns: u64) -> Option<u64> {
        self.inner.taken_ns(pcpu, now_ns)
    }

    fn state_times(&self, world: u32, now_ns: u64) -> Option<StateTimes> {
        self.inner.state_times(world, now_ns)
    }

    fn runnable_worlds(&self, vm: u32) -> Option<u32> {
        self.inner.runnable_worlds(vm)
    }

    fn demand(&self, vm: u32) -> Option<u64> {
        self.inner.demand(vm)
    }

    fn take_talks(&mut self, vm: u32) -> Option<Vec<(u32, u64)>> {
        self.inner.take_talks(vm)
    }

    fn virtual_times(&self, vm: u32) -> Option<(u64, u64)> {
        self.inner.virtual_times(vm)
    }
}

impl<P: Scheduler> Scheduler for Faulty<P> {
    fn features(&self) -> &'static [Feature] {
        self.inner.features()
    }

    fn enqueues_last(&self) -> bool {
        self.inner.enqueues_last()
    }

    fn init(&mut self, k: &mut Callback<'_>) {
        let worlds = k.tasks.len();
        self.fault.holds = vec![Hold::None; worlds];
        (self.before, self.told) = (vec![0; worlds], vec![0; worlds]);
        self.pass(k, |p, k| p.init(k));
    }

    fn enable(&mut self, k: &mut Callback<'_>) {
        self.pass(k, |p, k| p.enable(k));
    }

    fn world_start(&mut self, k: &mut Callback<'_>, world: u32, terms: &WorldTerms) {
        let mut terms = *terms;
        if self.fault.is(Mutant::WrongSlowest) && terms.vcpu == Some(0) {
            terms.vcpu = Some(1); // the next takes that place
        }
        self.pass(k, |p, k| p.world_start(k, world, &terms));
    }

    fn world_exit(&mut self, k: &mut Callback<'_>, world: u32) {
        self.pass(k, |p, k| p.world_exit(k, world));
    }

    fn vm_terms(&mut self, k: &mut Callback<'_>, vm: &VmTerms, plan: &Plan<'_>) {
        let tree = self.tree(plan.tree);
        self.pass(k, |p, k| p.vm_terms(k, vm, &Plan { tree: &tree, ..*plan }));
    }

    fn plan(&mut self, k: &mut Callback<'_>, plan: &Plan<'_>) {
        let tree = self.tree(plan.tree);
        self.pass(k, |p, k| p.plan(k, &Plan { tree: &tree, ..*plan }));
    }

    fn limits(&mut self, k: &mut Callback<'_>, limits: &Limits<'_>) {
        let mut all: Vec<Limit> = limits.limits.to_vec();
        if self.fault.is(Mutant::NoLimit) {
            let pcpus = self.runs.len() as u64;
            all.iter_mut().for_each(|l| l.rate = Rate::pcpus(pcpus));
        }
        self.pass(k, |p, k| p.limits(k, &Limits { limits: &all, first: limits.first }));
    }

    fn ordered(&mut self, k: &mut Callback<'_>, held: bool) -> bool {
        self.pass(k, |p, k| p.ordered(k, held))
    }

    fn order(&mut self, k: &mut Callback<'_>, order: &Order, vm: &VmTerms) {
        let mut order = *order;
        if self.fault.is(Mutant::EqualWeights) {
            order.weight = Rate::ONE;
        }
        self.pass(k, |p, k| p.order(k, &order, vm));
    }

    fn home(&mut self, k: &mut Callback<'_>, world: u32, nodes: u64) {
        let first = self.fault.homed.insert(world);
        if first || !self.fault.is(Mutant::StaleHome) {
            self.pass(k, |p, k| p.home(k, world, nodes));
        }
    }

    fn record(&mut self, on: bool) {
        self.inner.record(on);
    }

    fn select(&mut self, k: &mut Callback<'_>, world: u32, prev: u32, flags: u32) -> i32 {
        self.pass(k, |p, k| p.select(k, world, prev, flags))
    }

    fn runnable(&mut self, k: &mut Callback<'_>, world: u32) {
        if !self.fault.strikes(Mutant::StaleState, 20) {
            self.pass(k, |p, k| p.runnable(k, world));
        }
    }

    fn enqueue(&mut self, k: &mut Callback<'_>, world: u32, flags: u32) {
        if !self.fault.strikes(Mutant::LostEnqueue, 50) {
            self.pass(k, |p, k| p.enqueue(k, world, flags));
        }
    }

    fn dispatch(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32) {
        self.fault.dispatching = Some((pcpu, !self.runs[pcpu as usize]));
        self.pass(k, |p, k| p.dispatch(k, pcpu, prev));
        self.fault.dispatching = None;
        let goes_on = self.runs[pcpu as usize] && k.kernel.local_length(pcpu) == 0;
        if self.fault.is(Mutant::Stays) && goes_on {
            let slice_ns = &mut k.tasks[prev as usize].slice_ns;
            *slice_ns = (*slice_ns).max(contract::SLICE_DEFAULT_NS);
        }
    }

    fn running(&mut self, k: &mut Callback<'_>, world: u32) {
        self.runs[k.tasks[world as usize].pcpu as usize] = true;
        self.before[world as usize] = self.inner.charged_ns(world).unwrap_or(0);
        self.pass(k, |p, k| p.running(k, world));
    }

    fn stopping(&mut self, k: &mut Callback<'_>, world: u32, runnable: bool) {
        self.runs[k.tasks[world as usize].pcpu as usize] = false;
        if !self.fault.strikes(Mutant::LostStop, 20) {
            self.pass(k, |p, k| p.stopping(k, world, runnable));
        }
        let charged = self.inner.charged_ns(world).unwrap_or(0) - self.before[world as usize];
        let told = &mut self.told[world as usize];
        if self.fault.strikes(Mutant::DoubleCharge, 20) {
            *told = told.wrapping_add(charged);
        }
        if self.fault.strikes(Mutant::LostCharge, 20) {
            *told = told.wrapping_sub(charged);
        }
    }

    fn quiescent(&mut self, k: &mut Callback<'_>, world: u32, sleeping: bool) {
        self.pass(k, |p, k| p.quiescent(k, world, sleeping));
    }

    fn tick(&mut self, k: &mut Callback<'_>, world: u32) {
        self.pass(k, |p, k| p.tick(k, world));
    }

    fn yield_to(&mut self, k: &mut Callback<'_>, world: u32, to: u32) -> bool {
        self.pass(k, |p, k| p.yield_to(k, world, to))
    }

    fn idle(&mut self, k: &mut Callback<'_>, pcpu: u32, idle: bool) {
        self.pass(k, |p, k| p.idle(k, pcpu, idle));
    }

    fn timer(&mut self, k: &mut Callback<'_>, timer: u32) {
        self.pass(k, |p, k| p.timer(k, timer));
    }

    fn guest(&mut self, k: &mut Callback<'_>, world: u32, inside: bool) {
        self.pass(k, |p, k| p.guest(k, world, inside));
    }
}
