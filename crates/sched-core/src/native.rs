//! Records of `sched/platform/native.h` and the entry points of `sched/core.h`, as C declares them;
//! nothing here is safe to call by itself.

use crate::blocks::BlockTimers;
use crate::records::{self, Cluster, Knobs, Limiter, Node, Pcpu, Siblings, Vm, World};
use contract::Task as PlatTask;

/// A whole host as C lays it out (`struct native`).
#[repr(C)]
#[derive(Debug)]
pub struct Native {
    pub(crate) host: records::Host,
    pub(crate) knobs: Knobs,
    pub(crate) kernel: u64,
    pub(crate) age_ns: u64,
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
    pub(crate) fn sched_home(h: *mut Native, task: *mut PlatTask, home: u64);
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
    pub(crate) fn sched_online(h: *mut Native, pcpu: u32, online: bool);
    pub(crate) fn sched_housekeep(h: *mut Native) -> u64;
    pub(crate) fn sched_audit(h: *mut Native);
    pub(crate) fn sched_limits(h: *mut Native, part: u32) -> u64;
    pub(crate) fn sched_limits_parts(h: *mut Native) -> u32;
    pub(crate) fn sched_look(h: *mut Native, pcpu: u32) -> u64;
    pub(crate) fn sched_cosched(h: *mut Native, block: u32) -> u64;
    pub(crate) fn sched_block_start(b: *mut BlockTimers, timers: u32);
    pub(crate) fn sched_block_claim(b: *mut BlockTimers, pcpu: u32, house: u32) -> u32;
    pub(crate) fn sched_guest(h: *mut Native, task: *mut PlatTask, inside: bool);
    pub(crate) fn sched_yield_to(h: *mut Native, task: *mut PlatTask, to: *mut PlatTask) -> bool;
}
