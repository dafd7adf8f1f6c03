//! Tandem as a scheduler of the contract: the native build behind sched_ext's callbacks, with what
//! user space publishes laid out as its records. It decides nothing.

use crate::host::{Host, HostError};
use crate::native::{self, Native};
use crate::records::{
    BLOCK_PCPUS, BLOCKS_MAX, KIND_TASK, KIND_VCPU, Knobs, LIMIT_PARTS_MAX, LIMITERS_MAX,
    STATE_COSTOP, STATE_READY, STATE_RUN, STATE_WAIT, STATE_WAIT_IDLE, WORLD_PCPU_KTHREAD, World,
};
use crate::{plan_nodes, queue_costop, queue_parked, queue_system, queue_vm};
use contract::{
    Accounts, Callback, Feature, Hold, LimitOf, Limits, Plan, Scheduler, Setup, StateTimes, Task,
    VmTerms, WAKE_SYNC, WorldTerms,
};
use entitlement::Order;
use std::ptr;
use units::Rate;

/// Timers of `sched/tick`.
const HOUSEKEEP: u32 = 0;
/// The first of LIMIT_PARTS_MAX.
const LIMITS: u32 = 1;
/// The first of one for each block of pCPUs.
const COSCHED: u32 = LIMITS + LIMIT_PARTS_MAX;
/// The first of one for each pCPU.
pub(crate) const LOOK: u32 = COSCHED + BLOCKS_MAX;
const _: () = assert!(LOOK + crate::PCPUS_MAX <= contract::TIMERS_MAX, "a timer for each pCPU");
/// First tick of limits after some are published, in ns.
const LIMITS_FIRST_NS: u64 = 1_000_000;

/// Tandem.
pub struct Tandem {
    host: Host,
    pcpus: u32,
    vms: u32,
    limits: publish::Limits<u32>,
    /// Parts of the tick of limits whose timers are armed, a bit each.
    limited: u32,
}

impl Tandem {
    /// Tandem on a host, with these knobs.
    ///
    /// # Errors
    /// `HostError` when the host does not fit the scheduler's tables.
    pub fn new(setup: &Setup<'_>, knobs: &Knobs) -> Result<Tandem, HostError> {
        let mut host = Host::new(setup.topology, setup.vms, setup.worlds, setup.pools)?;
        host.set_knobs(knobs);
        Ok(Tandem {
            host,
            pcpus: setup.topology.pcpus() as u32,
            vms: setup.vms as u32,
            limits: publish::Limits::default(),
            limited: 0,
        })
    }

    /// The same, loaded so long ago by its clock, and with virtual time so much later: what counts
    /// up for years is near its end then.
    #[must_use]
    pub fn aged(mut self, clock_ns: u64, virtual_ns: u64) -> Tandem {
        self.host.set_age(clock_ns, virtual_ns);
        self
    }

    /// Calls C for the thread of a world.
    ///
    /// # Panics
    /// For a world outside the host.
    fn of<R>(
        &mut self,
        k: &mut Callback<'_>,
        world: u32,
        f: impl FnOnce(*mut Native, *mut Task) -> R,
    ) -> R {
        assert!((world as usize) < k.tasks.len(), "world {world} is outside the host");
        // SAFETY: `within` has put the kernel's threads there, and the world is one of them.
        self.host.within(k, |h| f(h, unsafe { (*h).tasks.add(world as usize) }))
    }
}

/// State times by a world's record, the present stay included.
fn state_times(w: &World, now_ns: u64) -> StateTimes {
    let mut times = w.time_ns;
    if let Some(t) = times.get_mut(w.state as usize) {
        *t += now_ns.saturating_sub(w.state_since_ns);
    }
    let at = |state: u32| times[state as usize];
    StateTimes {
        run_ns: at(STATE_RUN),
        ready_ns: at(STATE_READY),
        costop_ns: at(STATE_COSTOP),
        wait_ns: at(STATE_WAIT),
        wait_idle_ns: at(STATE_WAIT_IDLE),
    }
}

impl Accounts for Tandem {
    fn charged_ns(&self, world: u32) -> Option<u64> {
        Some(self.host.world(world).used_ns)
    }

    fn lost_ns(&self, world: u32, now_ns: u64) -> u64 {
        let w = self.host.world(world);
        let of = |pcpu: u32| self.host.pcpu(pcpu);
        let runs = (w.state == STATE_RUN).then(|| of(w.last_pcpu as u32));
        let running = runs.map_or(0, |p| {
            let core = of(p.core_first);
            p.lost_until(core, self.host.shared_charge(), now_ns + self.host.age_ns())
        });
        w.lost_ns + running
    }

    fn busy_ns(&self, pcpu: u32) -> Option<u64> {
        Some(self.host.pcpu(pcpu).busy_ns)
    }

    fn taken_ns(&self, pcpu: u32, now_ns: u64) -> Option<u64> {
        Some(self.host.pcpu(pcpu).taken_until(now_ns + self.host.age_ns()))
    }

    fn state_times(&self, world: u32, now_ns: u64) -> Option<StateTimes> {
        Some(state_times(self.host.world(world), now_ns + self.host.age_ns()))
    }

    fn runnable_worlds(&self, vm: u32) -> Option<u32> {
        Some(self.host.vm(vm).runnable)
    }

    fn demand(&self, vm: u32) -> Option<u64> {
        Some(self.host.vm(vm).demand)
    }

    fn take_talks(&mut self, vm: u32) -> Option<Vec<(u32, u64)>> {
        let record = self.host.vm_mut(vm);
        let taken = record.talks().collect();
        (record.talks_with, record.talks) = ([0; _], [0; _]);
        Some(taken)
    }

    fn virtual_times(&self, vm: u32) -> Option<(u64, u64)> {
        Some((self.host.vm(vm).vt_ns, self.host.record().v_ns))
    }
}

impl Scheduler for Tandem {
    fn features(&self) -> &'static [Feature] {
        &Feature::ALL
    }

    fn enqueues_last(&self) -> bool {
        true
    }

    fn init(&mut self, k: &mut Callback<'_>) {
        (0..self.pcpus).for_each(|p| k.kernel.create_queue(queue_vm(p)));
        (0..self.pcpus).for_each(|p| k.kernel.create_queue(queue_system(p)));
        (0..LIMITERS_MAX).for_each(|l| k.kernel.create_queue(queue_parked(l)));
        (0..self.vms).for_each(|v| k.kernel.create_queue(queue_costop(v)));
    }

    fn enable(&mut self, k: &mut Callback<'_>) {
        let knobs = self.host.knobs();
        k.kernel.arm(HOUSEKEEP, knobs.housekeep_us * 1000);
        for block in 0..self.pcpus.div_ceil(BLOCK_PCPUS) {
            k.kernel.arm(COSCHED + block, knobs.cosched_poll_us * 1000);
        }
    }

    fn world_start(&mut self, k: &mut Callback<'_>, world: u32, terms: &WorldTerms) {
        let record = self.host.world_mut(world);
        record.vm = terms.vm;
        record.kind = if terms.vcpu.is_some() { KIND_VCPU } else { KIND_TASK };
        record.index = terms.vcpu.unwrap_or(terms.index);
        record.flags = if terms.per_cpu_kthread { WORLD_PCPU_KTHREAD } else { 0 };
        record.nice_weight = terms.nice_weight();
        // SAFETY: here and below, both pointers are this host's for the time of the call.
        self.of(k, world, |h, t| unsafe { native::sched_world_start(h, t) });
    }

    fn world_exit(&mut self, k: &mut Callback<'_>, world: u32) {
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_world_exit(h, t) });
    }

    fn vm_terms(&mut self, _k: &mut Callback<'_>, vm: &VmTerms, plan: &Plan<'_>) {
        let Some(leaf) = plan.vms.iter().position(|v| *v == vm.vm) else { return };
        let weight = plan.tree.worst_case().leaves[leaf].max(1);
        self.host.vm_weight(vm.vm, weight, vm.vcpus, vm.shares);
    }

    fn plan(&mut self, _k: &mut Callback<'_>, plan: &Plan<'_>) {
        self.host.plan(&plan_nodes(plan.tree, plan.vms), plan.generation);
    }

    fn limits(&mut self, k: &mut Callback<'_>, limits: &Limits<'_>) {
        let owner = |of| match of {
            LimitOf::Pool(p) => publish::Owner::Pool(format!("{p:05}")),
            LimitOf::Vm(vm) => publish::Owner::Vm(vm),
        };
        let wanted = |l: &contract::Limit| publish::Wanted {
            owner: owner(l.of),
            rate: l.rate,
            burst_ns: l.burst_ns,
            parent: l.parent,
        };
        let wanted: Vec<_> = limits.limits.iter().map(wanted).collect();
        self.limits.sweep(&self.host);
        // The settings hold their number to the table; where limits that end still fill it, the
        // oracle sees what the refused ones let pass.
        let _refused = self.limits.set(&mut self.host, &wanted, limits.first);
        if self.host.record().limiters > 0 {
            for part in 0..self.host.limit_parts() {
                if self.limited & 1 << part == 0 {
                    self.limited |= 1 << part;
                    k.kernel.arm(LIMITS + part, LIMITS_FIRST_NS);
                }
            }
        }
    }

    fn ordered(&mut self, _k: &mut Callback<'_>, held: bool) -> bool {
        self.host.plan_outside(held);
        held
    }

    fn order(&mut self, _k: &mut Callback<'_>, order: &Order, vm: &VmTerms) {
        let Rate(weight) = order.weight;
        self.host.vm_plan(vm.vm, weight, vm.vcpus, vm.shares, order.held, order.shift_ns);
    }

    fn home(&mut self, k: &mut Callback<'_>, world: u32, domains: u64) {
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_home(h, t, domains) });
    }

    fn record(&mut self, on: bool) {
        self.host.record_trace(on);
    }

    fn select(&mut self, k: &mut Callback<'_>, world: u32, prev: u32, flags: u32) -> i32 {
        let waker = k.here.filter(|_| flags & WAKE_SYNC != 0).map_or(-1, |p| p as i32);
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_select(h, t, prev as i32, waker) })
    }

    fn runnable(&mut self, k: &mut Callback<'_>, world: u32) {
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_runnable(h, t) });
    }

    fn enqueue(&mut self, k: &mut Callback<'_>, world: u32, flags: u32) {
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_enqueue(h, t, flags) });
    }

    fn dispatch(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32) {
        if prev == 0 {
            // SAFETY: as above; a null thread stands for none.
            self.host.within(k, |h| unsafe { native::sched_dispatch(h, pcpu, ptr::null_mut()) });
        } else {
            // SAFETY: as above.
            self.of(k, prev, |h, t| unsafe { native::sched_dispatch(h, pcpu, t) });
        }
    }

    fn running(&mut self, k: &mut Callback<'_>, world: u32) {
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_running(h, t) });
    }

    fn stopping(&mut self, k: &mut Callback<'_>, world: u32, runnable: bool) {
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_stopping(h, t, runnable) });
        if self.host.world(world).state == STATE_COSTOP {
            k.kernel.hold(world, Hold::Costopped);
        }
    }

    fn quiescent(&mut self, k: &mut Callback<'_>, world: u32, sleeping: bool) {
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_quiescent(h, t, sleeping) });
    }

    fn yield_to(&mut self, k: &mut Callback<'_>, world: u32, to: u32) -> bool {
        assert!((to as usize) < k.tasks.len(), "world {to} is outside the host");
        // SAFETY: as above, for both threads.
        self.of(k, world, |h, t| unsafe {
            native::sched_yield_to(h, t, (*h).tasks.add(to as usize))
        })
    }

    fn idle(&mut self, k: &mut Callback<'_>, pcpu: u32, idle: bool) {
        // SAFETY: as above.
        self.host.within(k, |h| unsafe { native::sched_idle(h, pcpu, idle) });
    }

    fn online(&mut self, k: &mut Callback<'_>, pcpu: u32, online: bool) {
        // SAFETY: as above.
        self.host.within(k, |h| unsafe { native::sched_online(h, pcpu, online) });
    }

    fn timer(&mut self, k: &mut Callback<'_>, timer: u32) {
        // SAFETY: as above.
        let next = self.host.within(k, |h| unsafe {
            match timer {
                HOUSEKEEP => {
                    native::sched_audit(h);
                    native::sched_housekeep(h)
                }
                LIMITS..COSCHED => native::sched_limits(h, timer - LIMITS),
                COSCHED..LOOK => native::sched_cosched(h, timer - COSCHED),
                _ => native::sched_look(h, timer - LOOK),
            }
        });
        if next > 0 {
            k.kernel.arm(timer, next);
        } else if (LIMITS..COSCHED).contains(&timer) {
            self.limited &= !(1 << (timer - LIMITS));
        }
    }

    fn guest(&mut self, k: &mut Callback<'_>, world: u32, inside: bool) {
        k.tasks[world as usize].outside = u32::from(!inside);
        // SAFETY: as above.
        self.of(k, world, |h, t| unsafe { native::sched_guest(h, t, inside) });
    }
}
