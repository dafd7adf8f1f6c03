//! A simulated host of the native scheduler: owns its records and makes every call of
//! `sched/core.h` safe.

use crate::native::{self, Native};
use crate::platform::Call;
use crate::records::{
    self, Cluster, Knobs, Limiter, Node, Pcpu, Siblings, TRACE_NOWHERE, Vm, World,
};
use crate::{KnobError, layout};
use contract::{Callback, Kernel as Platform, Task as PlatTask, Tasks};
use std::ptr::{self, NonNull};
use topology::Topology;
use units::caps;

/// `ENQUEUE_*` flags.
pub type EntryFlags = u32;

/// A host that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// More VMs or worlds than there are slots.
    #[error("host: cannot hold {seen} {what}: allowed 1..{max}")]
    Size {
        /// What there is too much of.
        what: &'static str,
        /// Number asked for.
        seen: usize,
        /// Largest number.
        max: usize,
    },
    /// The native build refused.
    #[error(
        "host: cannot lay out {pcpus} pCPUs in {clusters} clusters: the native build has room for \
            {room}"
    )]
    Native {
        /// pCPUs asked for.
        pcpus: usize,
        /// Clusters needed.
        clusters: usize,
        /// Clusters there is room for; 0 when there is no memory.
        room: usize,
    },
}

/// One host. It is used by one thread at a time and shares nothing with other hosts.
pub struct Host {
    native: NonNull<Native>,
}

// SAFETY: the block behind the pointer belongs to this Host alone, and C keeps no state elsewhere.
unsafe impl Send for Host {}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: the pointer came from native_new and is given back once.
        unsafe { native::native_free(self.native.as_ptr()) }
    }
}

impl Host {
    /// A host of this topology with room for so many VMs (the system group included), worlds (world
    /// 0 included) and pools (the root included), knobs at their defaults, every pCPU neither idle
    /// nor running.
    ///
    /// # Errors
    /// `HostError` when it does not fit the caps.
    pub fn new(
        topology: &Topology,
        vms: usize,
        worlds: usize,
        pools: usize,
    ) -> Result<Host, HostError> {
        for (what, seen, max) in [
            ("VMs", vms, caps::VMS_MAX),
            ("worlds", worlds, caps::WORLDS_MAX),
            ("pools", pools, caps::POOLS_MAX),
        ] {
            if seen == 0 || seen > max {
                return Err(HostError::Size { what, seen, max });
            }
        }
        let (pcpus, clusters) = layout(topology);
        let refused =
            |room| HostError::Native { pcpus: pcpus.len(), clusters: clusters.len(), room };
        // SAFETY: native_new takes sizes only and returns a fresh block or null.
        let native = unsafe {
            native::native_new(pcpus.len() as u32, vms as u32, worlds as u32, pools as u32)
        };
        let mut host = Host { native: NonNull::new(native).ok_or_else(|| refused(0))? };
        let room = host.native().clusters_cap as usize;
        if room < clusters.len() {
            return Err(refused(room));
        }
        let smt = topology.places().iter().map(|p| p.thread + 1).max().unwrap_or(1);
        let native = host.native_mut();
        native.knobs = Knobs::DEFAULT;
        native.host.pcpus = pcpus.len() as u32;
        native.host.clusters = clusters.len() as u32;
        native.host.vms = vms as u32;
        native.host.smt = smt;
        native.host.online = topology.online().len() as u32;
        native.host.cores = crate::cores_online(topology);
        for (id, from) in pcpus.iter().enumerate() {
            // What is no place, such as virtual times, the scheduler has set itself.
            let to = host.pcpu_mut(id as u32);
            *to = Pcpu {
                id: from.id,
                cluster: from.cluster,
                bit: from.bit,
                node: from.node,
                domain: from.domain,
                core: from.core,
                core_first: from.core_first,
                core_online: from.core_online,
                ..*to
            };
        }
        for (id, cluster) in clusters.iter().enumerate() {
            *host.cluster_mut(id as u32) = *cluster;
        }
        for id in 0..worlds as u32 {
            host.task_mut(id).world = id;
            host.world_mut(id).id = id;
        }
        Ok(host)
    }

    /// Thousandths of its CPU time that a world is charged on a shared core.
    #[must_use]
    pub fn shared_charge(&self) -> u64 {
        self.native().knobs.charge()
    }

    fn native(&self) -> &Native {
        // SAFETY: the block lives as long as self; C writes it only in calls that take &mut self.
        unsafe { self.native.as_ref() }
    }

    fn native_mut(&mut self) -> &mut Native {
        // SAFETY: as above, and &mut self excludes every other user.
        unsafe { self.native.as_mut() }
    }

    /// Calls C with `platform` behind the kernel handle.
    fn call<'p, R>(
        &mut self,
        platform: &mut (dyn Platform + 'p),
        f: impl FnOnce(*mut Native) -> R,
    ) -> R {
        let native = self.native.as_ptr();
        let mut call = Call { native, platform: ptr::from_mut(platform) };
        // SAFETY: `call` outlives `f`, C keeps no handle past its return, and until then neither
        // `platform` nor the block is used here.
        unsafe {
            (*native).kernel = (&raw mut call).expose_provenance() as u64;
            let result = f(native);
            (*native).kernel = 0;
            result
        }
    }

    /// Calls C within a callback of a kernel that has the threads itself.
    ///
    /// # Panics
    /// If the kernel has not exactly as many threads as the host has worlds.
    pub(crate) fn within<R>(
        &mut self,
        k: &mut Callback<'_>,
        f: impl FnOnce(*mut Native) -> R,
    ) -> R {
        let native = self.native.as_ptr();
        let (seen, worlds) = (k.tasks.len(), self.native().worlds_cap as usize);
        assert!(seen == worlds, "a callback with {seen} threads, allowed {worlds}");
        let mut call = Call { native, platform: ptr::from_mut(&mut *k.kernel) };
        // SAFETY: `call` outlives `f`, C keeps no handle past its return, and until then neither
        // the kernel nor the threads nor the block are used here; there is a thread for each world.
        unsafe {
            (*native).host.now_ns = k.now_ns + (*native).age_ns;
            ((*native).here, (*native).waker) = (k.here.unwrap_or(TRACE_NOWHERE), k.waker);
            let own = std::mem::replace(&mut (*native).tasks, k.tasks.as_mut_ptr());
            (*native).kernel = (&raw mut call).expose_provenance() as u64;
            let result = f(native);
            (*native).kernel = 0;
            (*native).tasks = own;
            result
        }
    }

    /// Pointer to a task for C.
    ///
    /// # Panics
    /// For an id outside the host.
    fn task_at(&self, id: u32) -> *mut PlatTask {
        assert!(id < self.native().worlds_cap, "world {id} is outside the host");
        // SAFETY: the array has worlds_cap entries.
        unsafe { self.native().tasks.add(id as usize) }
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $get:ident $get_mut:ident $array:ident $cap:ident $t:ty;)*) => {
        /// Records by id.
        ///
        /// Each panics for an id outside the host: ids come from this crate's caller, which made
        /// them.
        impl Host {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $get(&self, id: u32) -> &$t {
                    assert!(id < self.native().$cap, "no such record: {id}");
                    // SAFETY: the array has $cap entries and is written only through &mut self.
                    unsafe { &*self.native().$array.add(id as usize) }
                }

                $(#[$doc])*
                pub fn $get_mut(&mut self, id: u32) -> &mut $t {
                    assert!(id < self.native().$cap, "no such record: {id}");
                    // SAFETY: the array has $cap entries and &mut self excludes every other user.
                    unsafe { &mut *self.native_mut().$array.add(id as usize) }
                }
            )*
        }
    };
}

records! {
    /// A pCPU.
    pcpu pcpu_mut pcpus pcpus_cap Pcpu;
    /// A VM; 0 is the system group.
    vm vm_mut vms vms_cap Vm;
    /// A world.
    world world_mut worlds worlds_cap World;
    /// A cluster.
    cluster cluster_mut clusters clusters_cap Cluster;
    /// A node of a plan: the first half of the array is one plan's, the second another's.
    node node_mut nodes nodes_cap Node;
    /// A limit; 0 is none.
    limiter limiter_mut limiters limiters_cap Limiter;
    /// The vCPUs of a VM by number.
    siblings siblings_mut siblings vms_cap Siblings;
    /// The thread of a world.
    task task_mut tasks worlds_cap PlatTask;
}

impl Host {
    /// All threads, by world.
    pub fn tasks_mut(&mut self) -> &mut Tasks {
        let (tasks, count) = (self.native_mut().tasks, self.native().worlds_cap as usize);
        // SAFETY: the array has worlds_cap entries and &mut self excludes every other user.
        unsafe { std::slice::from_raw_parts_mut(tasks, count) }
    }

    /// The host's own record.
    #[must_use]
    pub fn record(&self) -> &records::Host {
        &self.native().host
    }

    /// The knobs in force.
    #[must_use]
    pub fn knobs(&self) -> &Knobs {
        &self.native().knobs
    }

    /// Sets a knob by name.
    ///
    /// # Errors
    /// `KnobError`; then nothing has changed.
    pub fn set_knob(&mut self, name: &str, value: u64) -> Result<(), KnobError> {
        self.native_mut().knobs.set(name, value)
    }

    /// Sets all knobs.
    pub fn set_knobs(&mut self, knobs: &Knobs) {
        self.native_mut().knobs = *knobs;
    }

    /// Makes a host on which nothing has happened yet one that was loaded so long ago, with virtual
    /// time so much later.
    pub(crate) fn set_age(&mut self, clock_ns: u64, virtual_ns: u64) {
        self.native_mut().age_ns = clock_ns;
        let host = &mut self.native_mut().host;
        host.v_ns += virtual_ns;
        host.v_at_ns = clock_ns;
        for pcpu in 0..self.native().host.pcpus {
            let pcpu = self.pcpu_mut(pcpu);
            pcpu.system_v_ns += virtual_ns;
            (pcpu.rescued_ns, pcpu.looked_ns) = (clock_ns, clock_ns);
        }
        for vm in 0..self.native().host.vms {
            self.vm_mut(vm).demand_at_ns = clock_ns;
        }
    }

    /// By how much the scheduler's clock is ahead of the simulated kernel's.
    pub(crate) fn age_ns(&self) -> u64 {
        self.native().age_ns
    }

    /// Sets the host's clock.
    pub fn set_now(&mut self, ns: u64) {
        self.native_mut().host.now_ns = ns;
    }

    /// Whether decisions are handed to `Platform::trace` from now on.
    pub fn record_trace(&mut self, on: bool) {
        let host = &mut self.native_mut().host;
        host.trace_until_ns = u64::MAX;
        host.tracing = u32::from(on);
    }

    /// For traces: the pCPU on which the next callback runs (none: unknown), and the world that
    /// causes it (0: an interrupt).
    pub fn set_cause(&mut self, here: Option<u32>, waker: u32) {
        let native = self.native_mut();
        (native.here, native.waker) = (here.unwrap_or(TRACE_NOWHERE), waker);
    }

    /// Gives a VM its weight (in 2^-20 pCPU), its number of vCPUs and its shares, as a plan says.
    pub fn vm_weight(&mut self, vm: u32, weight: u64, vcpus: u32, shares: u32) {
        assert!(vm < self.native().vms_cap, "VM {vm} is outside the host");
        // SAFETY: the call takes an index that is in range and makes no call back.
        unsafe { native::sched_vm_weight(self.native.as_ptr(), vm, weight, vcpus, shares) }
    }

    /// The same from a plan of active VMs: whether it is held, and what is added to its virtual
    /// time, in ns.
    pub fn vm_plan(
        &mut self,
        vm: u32,
        weight: u64,
        vcpus: u32,
        shares: u32,
        held: bool,
        shift: i64,
    ) {
        assert!(vm < self.native().vms_cap, "VM {vm} is outside the host");
        // SAFETY: the call takes an index that is in range and makes no call back.
        unsafe {
            native::sched_vm_plan(self.native.as_ptr(), vm, weight, vcpus, shares, held, shift)
        }
    }

    /// Puts a plan's tree into force, whole: its root first, breadth first, at most as many nodes
    /// as VMs and pools.
    ///
    /// # Panics
    /// If there are more.
    pub fn plan(&mut self, nodes: &[Node], generation: u64) {
        let half = self.native().nodes_cap / 2;
        assert!(nodes.len() <= half as usize, "a plan of {} nodes, allowed {half}", nodes.len());
        let first = if self.record().plan >> 32 == 0 { half } else { 0 };
        for (i, node) in (first..).zip(nodes) {
            *self.node_mut(i) = *node;
        }
        let host = &mut self.native_mut().host;
        host.plan = u64::from(first) << 32 | nodes.len() as u64;
        host.generation = generation;
    }

    /// Whether VMs are weighed from outside, by `vm_plan`, and not by the plan's tree.
    pub fn plan_outside(&mut self, outside: bool) {
        self.native_mut().host.plan_outside = u64::from(outside);
    }

    /// The nodes of the plan in force.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        let plan = self.record().plan;
        let first = (plan >> 32) as u32;
        (first..first + plan as u32).map(|i| self.node(i))
    }

    /// Number of limits in use, `limiter_mut` having been filled in.
    pub fn limiters(&mut self, count: u32) {
        self.native_mut().host.limiters = count;
    }

    /// Binds a world to a VM; it takes effect when the world is queued next.
    pub fn vm_bind(&mut self, world: u32, vm: u32, kind: u32, index: u32) {
        let native = self.native.as_ptr();
        let record = ptr::from_mut(self.world_mut(world));
        // SAFETY: the record is one of this host's, and the call makes no call back.
        unsafe { native::sched_vm_bind(native, record, vm, kind, index) }
    }
}

macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident => $c:ident ( $($arg:ident : $t:ty),* ) $(-> $ret:ty)?;)*) => {
        /// Life of a world, in the order in which a kernel calls it; `sched/core.h` says what each
        /// call means.
        impl Host {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, platform: &mut dyn Platform, world: u32 $(, $arg: $t)*) $(-> $ret)? {
                    let task = self.task_at(world);
                    // SAFETY: the task is one of this host's; see `call` for the handle.
                    self.call(platform, |h| unsafe { native::$c(h, task $(, $arg)*) })
                }
            )*
        }
    };
}

entries! {
    /// The world comes to life, asleep.
    world_start => sched_world_start();
    /// The world is gone.
    world_exit => sched_world_exit();
    /// Its allowed set has changed.
    world_affinity => sched_world_affinity();
    /// Which pCPU should it wake on?
    select => sched_select(prev: i32, waker: i32) -> i32;
    /// It wants to run from now on.
    runnable => sched_runnable();
    /// It must be put into a queue.
    enqueue => sched_enqueue(flags: EntryFlags);
    /// It runs from now on.
    running => sched_running();
    /// It stops running; `runnable` when it would go on.
    stopping => sched_stopping(runnable: bool);
    /// It no longer wants to run.
    quiescent => sched_quiescent(sleeping: bool);
}

impl Host {
    /// A pCPU has nothing in its local queue; `prev` (0 for none) still wants to run.
    pub fn dispatch(&mut self, platform: &mut dyn Platform, pcpu: u32, prev: u32) {
        let prev = if prev == 0 { ptr::null_mut() } else { self.task_at(prev) };
        // SAFETY: the task is null or one of this host's; see `call` for the handle.
        self.call(platform, |h| unsafe { native::sched_dispatch(h, pcpu, prev) });
    }

    /// A pCPU enters or leaves idle.
    pub fn idle(&mut self, platform: &mut dyn Platform, pcpu: u32, idle: bool) {
        // SAFETY: see `call`.
        self.call(platform, |h| unsafe { native::sched_idle(h, pcpu, idle) });
    }

    /// A part of the periodic work off the critical path, of which a round comes every
    /// `housekeep_us`; ns until the next part.
    pub fn housekeep(&mut self, platform: &mut dyn Platform) -> u64 {
        // SAFETY: see `call`.
        self.call(platform, |h| unsafe { native::sched_housekeep(h) })
    }

    /// A part of the tick of limits, 0 is the first; ns until its next, 0 while it has nothing to
    /// serve.
    pub fn limits(&mut self, platform: &mut dyn Platform, part: u32) -> u64 {
        // SAFETY: see `call`.
        self.call(platform, |h| unsafe { native::sched_limits(h, part) })
    }

    /// Parts of the tick of limits.
    #[must_use]
    pub fn limit_parts(&self) -> u32 {
        // SAFETY: it reads the host's record only.
        unsafe { native::sched_limits_parts(self.native.as_ptr()) }
    }

    /// The tick of co-scheduling of a block of `BLOCK_PCPUS` pCPUs; ns until its next, 0 while
    /// nothing is co-scheduled.
    pub fn cosched(&mut self, platform: &mut dyn Platform, block: u32) -> u64 {
        // SAFETY: see `call`.
        self.call(platform, |h| unsafe { native::sched_cosched(h, block) })
    }

    /// The timer of a pCPU that has idled for a moment though a world waits in another LLC, or
    /// where one has waited though others idle. Returns when it is to come again, in ns; 0: not.
    pub fn look(&mut self, platform: &mut dyn Platform, pcpu: u32) -> u64 {
        // SAFETY: see `call`.
        self.call(platform, |h| unsafe { native::sched_look(h, pcpu) })
    }

    /// The running vCPU `world` enters its guest, or leaves it for its emulator.
    pub fn guest(&mut self, platform: &mut dyn Platform, world: u32, inside: bool) {
        let task = self.task_at(world);
        self.task_mut(world).outside = u32::from(!inside);
        // SAFETY: the task is one of this host's; see `call` for the handle.
        self.call(platform, |h| unsafe { native::sched_guest(h, task, inside) });
    }

    /// The running `world` yields to `to`; whether its slice is to end, so that it comes to
    /// dispatch.
    pub fn yield_to(&mut self, platform: &mut dyn Platform, world: u32, to: u32) -> bool {
        let (task, to) = (self.task_at(world), self.task_at(to));
        // SAFETY: both tasks are this host's; see `call` for the handle.
        self.call(platform, |h| unsafe { native::sched_yield_to(h, task, to) })
    }
}

#[cfg(test)]
mod tests;
