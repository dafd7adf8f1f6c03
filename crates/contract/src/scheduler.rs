//! A scheduler as the kernel calls it: sched_ext's callbacks, in sched_ext's order, and what user
//! space publishes to it.

use crate::{Accounts, Callback, Feature, Limits, Plan, VmTerms, WorldTerms};
use entitlement::Order;

/// A scheduler. Callbacks with a body are what sched_ext does where a scheduler has none.
///
/// Order: `init`; then plans, limits, VMs and worlds that are there at the start; `enable`; then,
/// of each world, wake-up: `select` (not for a thread of one pCPU), `runnable`, `enqueue` unless
/// select inserted; block: `stopping`, `quiescent`, `dispatch`; reschedule: `dispatch` if the
/// slice is used up and the local queue empty, `stopping`, `enqueue`, `idle`, `running`.
pub trait Scheduler: Accounts {
    /// What a scenario may ask of it.
    fn features(&self) -> &'static [Feature];
    /// Whether a world that nothing waits beside is enqueued all the same when its slice is used up
    /// (`SCX_OPS_ENQ_LAST`); else the kernel gives it another.
    fn enqueues_last(&self) -> bool {
        false
    }

    // --- life ---

    /// The scheduler is attached (`ops.init`): it creates its queues.
    fn init(&mut self, k: &mut Callback<'_>);
    /// Everything that is there at the start has been passed: it arms its timers (`ops.enable`).
    fn enable(&mut self, _k: &mut Callback<'_>) {}
    /// A world comes to life, asleep (`ops.init_task`).
    fn world_start(&mut self, k: &mut Callback<'_>, world: u32, terms: &WorldTerms);
    /// A world is gone (`ops.exit_task`).
    fn world_exit(&mut self, k: &mut Callback<'_>, world: u32);
    /// A VM's settings, before a plan has it; the plan is as if it were in force.
    fn vm_terms(&mut self, _k: &mut Callback<'_>, _vm: &VmTerms, _plan: &Plan<'_>) {}
    /// The tree of the VMs that are powered on; every plan replaces the last.
    fn plan(&mut self, _k: &mut Callback<'_>, _plan: &Plan<'_>) {}
    /// All limits; each call replaces the last.
    fn limits(&mut self, _k: &mut Callback<'_>, _limits: &Limits<'_>) {}
    /// Whether VMs that may not use all pCPUs are weighed from outside, by `order`. The answer says
    /// if it takes orders.
    fn ordered(&mut self, _k: &mut Callback<'_>, _held: bool) -> bool {
        false
    }
    /// The planner's word on one VM, while `ordered`.
    fn order(&mut self, _k: &mut Callback<'_>, _order: &Order, _vm: &VmTerms) {}
    /// A world runs at home alone from now on, within its affinity: a bit for each of the
    /// topology's domains; 0 for anywhere.
    fn home(&mut self, _k: &mut Callback<'_>, _world: u32, _domains: u64) {}
    /// Whether decisions are handed to `Kernel::trace` from now on.
    fn record(&mut self, _on: bool) {}

    // --- callbacks ---

    /// The pCPU that a world shall wake on (`ops.select_cpu`); it may insert it there. `prev` is
    /// where it ran last; with `WAKE_SYNC` in `flags` the waker, on `k.here`, is about to sleep.
    fn select(&mut self, k: &mut Callback<'_>, world: u32, prev: u32, flags: u32) -> i32;
    /// A world wants to run from now on.
    fn runnable(&mut self, _k: &mut Callback<'_>, _world: u32) {}
    /// A world is to be put into a queue, with `ENQUEUE_*` flags.
    fn enqueue(&mut self, k: &mut Callback<'_>, world: u32, flags: u32);
    /// A pCPU's local queue is empty; `prev` is what ran there, 0 for none: it still wants to run,
    /// or has just gone to sleep.
    fn dispatch(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32);
    /// A world runs from now on, on its task's pCPU.
    fn running(&mut self, _k: &mut Callback<'_>, _world: u32) {}
    /// A world stops running; `runnable` when it would go on.
    fn stopping(&mut self, _k: &mut Callback<'_>, _world: u32, _runnable: bool) {}
    /// A world does not want to run any more; `sleeping` unless it is taken off for a change.
    fn quiescent(&mut self, _k: &mut Callback<'_>, _world: u32, _sleeping: bool) {}
    /// A timer tick while a world runs.
    fn tick(&mut self, _k: &mut Callback<'_>, _world: u32) {}
    /// The running world yields to `to`; whether its slice is to end, so that it comes to dispatch.
    fn yield_to(&mut self, _k: &mut Callback<'_>, _world: u32, _to: u32) -> bool {
        false
    }
    /// A pCPU enters or leaves idle (`ops.update_idle`).
    fn idle(&mut self, _k: &mut Callback<'_>, _pcpu: u32, _idle: bool) {}
    /// A pCPU comes on line or goes off line (`ops.cpu_online`, `ops.cpu_offline`): on one that is
    /// off line the kernel calls `dispatch` no more, and it moves what is in its local queue.
    fn online(&mut self, _k: &mut Callback<'_>, _pcpu: u32, _online: bool) {}
    /// A timer that it armed has come.
    fn timer(&mut self, _k: &mut Callback<'_>, _timer: u32) {}
    /// A running vCPU enters its guest, or leaves it for its emulator (KVM's tracepoints).
    fn guest(&mut self, _k: &mut Callback<'_>, _world: u32, _inside: bool) {}
}

macro_rules! boxed {
    ($(fn $name:ident(&$($m:ident)?, $($arg:ident: $t:ty),*) $(-> $ret:ty)?;)*) => {
        $(boxed!(@ $($m)?, $name, ($($arg: $t),*), ($($ret)?));)*
    };
    (@ mut, $name:ident, ($($arg:ident: $t:ty),*), ($($ret:ty)?)) => {
        fn $name(&mut self $(, $arg: $t)*) $(-> $ret)? { (**self).$name($($arg),*) }
    };
    (@ , $name:ident, ($($arg:ident: $t:ty),*), ($($ret:ty)?)) => {
        fn $name(&self $(, $arg: $t)*) $(-> $ret)? { (**self).$name($($arg),*) }
    };
}

impl Accounts for Box<dyn Scheduler> {
    boxed! {
        fn charged_ns(&, world: u32) -> Option<u64>;
        fn lost_ns(&, world: u32, now_ns: u64) -> u64;
        fn busy_ns(&, pcpu: u32) -> Option<u64>;
        fn taken_ns(&, pcpu: u32, now_ns: u64) -> Option<u64>;
        fn state_times(&, world: u32, now_ns: u64) -> Option<crate::StateTimes>;
        fn runnable_worlds(&, vm: u32) -> Option<u32>;
        fn demand(&, vm: u32) -> Option<u64>;
        fn take_talks(&mut, vm: u32) -> Option<Vec<(u32, u64)>>;
        fn virtual_times(&, vm: u32) -> Option<(u64, u64)>;
    }
}

impl Scheduler for Box<dyn Scheduler> {
    boxed! {
        fn features(&,) -> &'static [Feature];
        fn enqueues_last(&,) -> bool;
        fn init(&mut, k: &mut Callback<'_>);
        fn enable(&mut, k: &mut Callback<'_>);
        fn world_start(&mut, k: &mut Callback<'_>, world: u32, terms: &WorldTerms);
        fn world_exit(&mut, k: &mut Callback<'_>, world: u32);
        fn vm_terms(&mut, k: &mut Callback<'_>, vm: &VmTerms, plan: &Plan<'_>);
        fn plan(&mut, k: &mut Callback<'_>, plan: &Plan<'_>);
        fn limits(&mut, k: &mut Callback<'_>, limits: &Limits<'_>);
        fn ordered(&mut, k: &mut Callback<'_>, held: bool) -> bool;
        fn order(&mut, k: &mut Callback<'_>, order: &Order, vm: &VmTerms);
        fn home(&mut, k: &mut Callback<'_>, world: u32, domains: u64);
        fn record(&mut, on: bool);
        fn select(&mut, k: &mut Callback<'_>, world: u32, prev: u32, flags: u32) -> i32;
        fn runnable(&mut, k: &mut Callback<'_>, world: u32);
        fn enqueue(&mut, k: &mut Callback<'_>, world: u32, flags: u32);
        fn dispatch(&mut, k: &mut Callback<'_>, pcpu: u32, prev: u32);
        fn running(&mut, k: &mut Callback<'_>, world: u32);
        fn stopping(&mut, k: &mut Callback<'_>, world: u32, runnable: bool);
        fn quiescent(&mut, k: &mut Callback<'_>, world: u32, sleeping: bool);
        fn tick(&mut, k: &mut Callback<'_>, world: u32);
        fn yield_to(&mut, k: &mut Callback<'_>, world: u32, to: u32) -> bool;
        fn idle(&mut, k: &mut Callback<'_>, pcpu: u32, idle: bool);
        fn online(&mut, k: &mut Callback<'_>, pcpu: u32, online: bool);
        fn timer(&mut, k: &mut Callback<'_>, timer: u32);
        fn guest(&mut, k: &mut Callback<'_>, world: u32, inside: bool);
    }
}
