//! Baselines: one queue for the whole host and a fixed slice, as the example scheduler `scx_simple`
//! of the Linux source has it; it knows no VM but by its shares, and holds no world back.
//!
//! *Law*: a world that wakes goes straight to an idle pCPU if there is one. Otherwise it joins the
//! queue, from which a pCPU with nothing to do takes the first world that may run there. When a
//! slice ends, `fifo` gives the pCPU to the first that waits, `vtime` only to one of earlier
//! virtual time.
//! - `fifo`: the queue is in the order of arrival. Shares mean nothing.
//! - `vtime`: the queue is by virtual time. A world's grows by `used · 1000 ÷ w`, rounded down, `w`
//!   being its VM's shares per vCPU (a host task's 1000, times its nice weight); the host's is the
//!   largest at which a world has begun to run. A world that slept is at most one slice behind it.
//!
//! *Units*: ns; weights of 1000 are normal shares of one vCPU.
//!
//! *Example*: burners at 2000 and 1000 shares, each of one vCPU, on one pCPU: `vtime` gives 2:1,
//! `fifo` 1:1.
//!
//! *Limits*: no preemption, so a world that wakes waits up to a slice and a tick. A world that may
//! run on few pCPUs waits while worlds before it in the queue are taken by those. Weights act per
//! world: a VM whose vCPUs sleep alternately gets less than its shares.

use contract::{
    Accounts, Callback, ENQUEUE_WAKEUP, Feature, Plan, SLICE_DEFAULT_NS, Scheduler, Setup,
    WorldTerms,
};

/// The queue.
const SHARED: u64 = 0;
/// Slice of every run, in ns.
const SLICE_NS: u64 = SLICE_DEFAULT_NS;
/// Weight of a vCPU with normal shares.
const NORMAL: u64 = 1000;

/// What the queue is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Arrival,
    Vtime,
}

/// A world's account.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    vm: u32,
    load_weight: u64,
    vtime_ns: u64,
    used_ns: u64,
    /// Whether it runs, and up to when that is charged.
    runs: bool,
    run_since_ns: u64,
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Simple {
    order: Order,
    worlds: Vec<Account>,
    /// Shares per vCPU of each VM.
    weights: Vec<u64>,
    /// CPU time that each pCPU has spent.
    busy: Vec<u64>,
    vtime_ns: u64,
}

impl Simple {
    pub(crate) fn new(setup: &Setup<'_>, order: Order) -> Simple {
        Simple {
            order,
            worlds: vec![Account::default(); setup.worlds],
            weights: vec![NORMAL; setup.vms],
            busy: vec![0; setup.topology.pcpus()],
            vtime_ns: 0,
        }
    }

    /// Weight of a world, `NORMAL` for a vCPU of normal shares.
    fn weight(&self, world: u32) -> u64 {
        let account = &self.worlds[world as usize];
        (self.weights[account.vm as usize] * account.load_weight / 1024).max(1)
    }

    /// Charges what a running world used since the last charge.
    fn charge(&mut self, k: &Callback<'_>, world: u32) {
        let weight = self.weight(world);
        let account = &mut self.worlds[world as usize];
        let ran = k.now_ns - std::mem::replace(&mut account.run_since_ns, k.now_ns);
        account.used_ns += ran;
        account.vtime_ns += ran * NORMAL / weight;
        self.busy[k.task(world).pcpu as usize] += ran;
    }

    /// Whether the world that runs on a pCPU has no later virtual time than those that wait for it.
    fn goes_on(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32) -> bool {
        if self.order == Order::Arrival || !self.worlds[prev as usize].runs {
            return false;
        }
        self.charge(k, prev);
        let own = self.worlds[prev as usize].vtime_ns;
        let mut waiting = (0..).map(|i| k.kernel.queue_at(SHARED, i)).take_while(|w| *w != 0);
        let first = waiting.find(|w| k.tasks[*w as usize].may_run(pcpu));
        first.is_some_and(|w| own <= self.worlds[w as usize].vtime_ns)
    }
}

impl Accounts for Simple {
    fn charged_ns(&self, world: u32) -> Option<u64> {
        Some(self.worlds[world as usize].used_ns)
    }

    fn busy_ns(&self, pcpu: u32) -> Option<u64> {
        Some(self.busy[pcpu as usize])
    }
}

impl Scheduler for Simple {
    fn features(&self) -> &'static [Feature] {
        match self.order {
            Order::Arrival => &[Feature::WideVms],
            Order::Vtime => &[Feature::Shares, Feature::Nice, Feature::WideVms],
        }
    }

    fn init(&mut self, k: &mut Callback<'_>) {
        k.kernel.create_queue(SHARED);
    }

    fn world_start(&mut self, _k: &mut Callback<'_>, world: u32, terms: &WorldTerms) {
        let (vm, load_weight) = (terms.vm, u64::from(terms.load_weight()));
        self.worlds[world as usize] =
            Account { vm, load_weight, vtime_ns: self.vtime_ns, ..Account::default() };
    }

    fn world_exit(&mut self, _k: &mut Callback<'_>, _world: u32) {}

    fn plan(&mut self, _k: &mut Callback<'_>, plan: &Plan<'_>) {
        for (vm, leaf) in plan.vms.iter().zip(plan.tree.leaves()).filter(|(vm, _)| **vm != 0) {
            self.weights[*vm as usize] = leaf.shares / u64::from(leaf.vcpus.max(1));
        }
    }

    fn select(&mut self, k: &mut Callback<'_>, world: u32, prev: u32, _flags: u32) -> i32 {
        let Some(idle) = k.pick_idle(world, prev) else { return prev as i32 };
        k.insert_local(world, SLICE_NS);
        idle as i32
    }

    fn enqueue(&mut self, k: &mut Callback<'_>, world: u32, flags: u32) {
        let account = &mut self.worlds[world as usize];
        let key = match self.order {
            Order::Arrival => 0,
            Order::Vtime => {
                if flags & ENQUEUE_WAKEUP != 0 {
                    account.vtime_ns = account.vtime_ns.max(self.vtime_ns.saturating_sub(SLICE_NS));
                }
                account.vtime_ns
            }
        };
        k.queue_insert(world, SHARED, SLICE_NS, key);
    }

    fn dispatch(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32) {
        if self.goes_on(k, pcpu, prev) {
            k.set_slice(prev, SLICE_NS);
        } else {
            k.queue_take_first(SHARED, pcpu);
        }
    }

    fn running(&mut self, k: &mut Callback<'_>, world: u32) {
        let account = &mut self.worlds[world as usize];
        (account.runs, account.run_since_ns) = (true, k.now_ns);
        self.vtime_ns = self.vtime_ns.max(account.vtime_ns);
    }

    fn stopping(&mut self, k: &mut Callback<'_>, world: u32, _runnable: bool) {
        self.charge(k, world);
        self.worlds[world as usize].runs = false;
    }
}
