//! Records of `sched/platform/native.h` and the entry points of `sched/core.h`, as C declares them;
//! nothing here is safe to call by itself.

use crate::records::{self, Cluster, Knobs, Limiter, Node, PCPU_WORDS, Pcpu, Siblings, Vm, World};

/// A thread of the simulated kernel (`struct plat_task`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlatTask {
    /// What is left of its slice.
    pub slice_ns: u64,
    /// Key it was queued with last.
    pub key: u64,
    /// pCPUs it may run on, lowest in bit 0 of word 0.
    pub allowed: [u64; PCPU_WORDS as usize],
    /// Its world.
    pub world: u32,
    /// pCPU it belongs to now.
    pub pcpu: i32,
    /// Number of bits in `allowed`.
    pub allowed_count: u32,
    /// Above zero while it must stay on `pcpu`.
    pub migration_disabled: u32,
    /// Not 0: if it is a vCPU, what it sleeps for next is not that its guest has halted it.
    pub waits: u32,
    /// Not 0: a vCPU that runs in its emulator's code.
    pub outside: u32,
}

impl PlatTask {
    /// Whether its affinity allows `pcpu`.
    #[must_use]
    pub fn may_run(&self, pcpu: u32) -> bool {
        if self.migration_disabled != 0 && self.pcpu != pcpu as i32 {
            return false;
        }
        self.allowed.get(pcpu as usize / 64).is_some_and(|w| w >> (pcpu % 64) & 1 == 1)
    }
}

/// A whole host as C lays it out (`struct native`).
#[repr(C)]
#[derive(Debug)]
pub struct Native {
    pub(crate) host: records::Host,
    pub(crate) knobs: Knobs,
    pub(crate) kernel: u64,
    pub(crate) pcpus_cap: u32,
    pub(crate) vms_cap: u32,
    pub(crate) worlds_cap: u32,
    pub(crate) clusters_cap: u32,
    pub(crate) nodes_cap: u32,
    pub(crate) limiters_cap: u32,
    pub(crate) here: u32,
    pub(crate) waker: u32,
    pub(crate) pcpus: *mut Pcpu,
    pub(crate) vms: *mut Vm,
    pub(crate) worlds: *mut World,
    pub(crate) clusters: *mut Cluster,
    pub(crate) nodes: *mut Node,
    pub(crate) limiters: *mut Limiter,
    pub(crate) siblings: *mut Siblings,
    pub(crate) tasks: *mut PlatTask,
}

unsafe extern "C" {
    pub(crate) fn native_new(pcpus: u32, vms: u32, worlds: u32, pools: u32) -> *mut Native;
    pub(crate) fn native_free(n: *mut Native);
    pub(crate) fn sched_world_start(h: *mut Native, task: *mut PlatTask);
    pub(crate) fn sched_world_exit(h: *mut Native, task: *mut PlatTask);
    pub(crate) fn sched_world_affinity(h: *mut Native, task: *mut PlatTask);
    pub(crate) fn sched_vm_bind(h: *mut Native, w: *mut World, vm: u32, kind: u32, index: u32);
    pub(crate) fn sched_vm_weight(h: *mut Native, vm: u32, weight: u64, vcpus: u32, shares: u32);
    pub(crate) fn sched_vm_plan(
        h: *mut Native,
        vm: u32,
        weight: u64,
        vcpus: u32,
        shares: u32,
        held: bool,
        shift: i64,
    );
    pub(crate) fn sched_select(h: *mut Native, task: *mut PlatTask, prev: i32, waker: i32) -> i32;
    pub(crate) fn sched_runnable(h: *mut Native, task: *mut PlatTask);
    pub(crate) fn sched_enqueue(h: *mut Native, task: *mut PlatTask, flags: u32);
    pub(crate) fn sched_dispatch(h: *mut Native, pcpu: u32, prev: *mut PlatTask);
    pub(crate) fn sched_running(h: *mut Native, task: *mut PlatTask);
    pub(crate) fn sched_stopping(h: *mut Native, task: *mut PlatTask, runnable: bool);
    pub(crate) fn sched_quiescent(h: *mut Native, task: *mut PlatTask, sleeping: bool);
    pub(crate) fn sched_idle(h: *mut Native, pcpu: u32, idle: bool);
    pub(crate) fn sched_housekeep(h: *mut Native);
    pub(crate) fn sched_limits(h: *mut Native) -> u64;
    pub(crate) fn sched_cosched(h: *mut Native) -> u64;
    pub(crate) fn sched_guest(h: *mut Native, task: *mut PlatTask, inside: bool);
    pub(crate) fn sched_yield_to(h: *mut Native, task: *mut PlatTask, to: *mut PlatTask) -> bool;
}
