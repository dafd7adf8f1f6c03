//! Writes what user space owns of the scheduler's records: the plan's tree, limits, how many slots
//! are in use. Each store is one aligned word with no other writer, and the data that it makes
//! visible was written before it.
#![allow(unsafe_code)]

use crate::{Accounts, view::Records};
use ::publish::{Table, Terms};
use sched_core::{HostRecord, Limiter, NODES_MAX, Node, Vm};
use std::{
    ptr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Stores a word of a record that is mapped into memory.
macro_rules! store {
    ($records:expr, $i:expr, $kind:ty, $field:ident = $value:expr) => {
        // SAFETY: `pointer` is within a writable mapping that lives as long as `self`, the field is
        // aligned (repr(C)), and user space is its only writer: one thread, the daemon's.
        unsafe {
            <$kind>::from_ptr(&raw mut (*$records.pointer($i as usize)).$field)
                .store($value, Ordering::Release)
        }
    };
}

/// Makes the scheduler record until `until_ns` of the monotonic clock, or until a later call. Its
/// only writers are the holder of the lock of recordings, and the scheduler, which ends it then.
pub(crate) fn set_tracing(host: &Records<HostRecord>, on: bool, until_ns: u64) {
    store!(host, 0, AtomicU64, trace_until_ns = until_ns);
    store!(host, 0, AtomicU32, tracing = u32::from(on));
}

impl Accounts {
    /// Slots of VMs in use end here.
    pub(crate) fn set_vms(&self, slots: u32) {
        store!(self.host, 0, AtomicU32, vms = slots);
    }

    /// Gives a VM, or the system group, the past of another load. No world is bound to it yet.
    pub(crate) fn set_past(&self, vm: u32, past: &Vm) {
        let to = self.vms.pointer(vm as usize);
        // SAFETY: fields of a record within the mapping, plain and aligned; the scheduler adds to
        // them when a world of the VM runs or ends, and there is none.
        unsafe {
            ptr::write_volatile(&raw mut (*to).used_ns, past.used_ns);
            ptr::write_volatile(&raw mut (*to).past_ns, past.past_ns);
            ptr::write_volatile(&raw mut (*to).past_used_ns, past.past_used_ns);
            ptr::write_volatile(&raw mut (*to).past_lost_ns, past.past_lost_ns);
            ptr::write_volatile(&raw mut (*to).past_migrations, past.past_migrations);
            ptr::write_volatile(&raw mut (*to).past_limited_ns, past.past_limited_ns);
            ptr::write_volatile(&raw mut (*to).past_switches, past.past_switches);
            ptr::write_volatile(&raw mut (*to).past_expiries, past.past_expiries);
            ptr::write_volatile(&raw mut (*to).past_wakeups, past.past_wakeups);
        }
    }

    /// Puts a plan's tree into force, whole: into the half of the array that is not in force, and
    /// then one word for all.
    pub(crate) fn set_plan(&self, nodes: &[Node], generation: u64) {
        let first = other_half(self.host().plan);
        for (i, node) in (first..).zip(nodes) {
            self.nodes.set(i as usize, *node);
        }
        store!(self.host, 0, AtomicU64, plan = u64::from(first) << 32 | nodes.len() as u64);
        store!(self.host, 0, AtomicU64, generation = generation);
    }

    /// Whether user space weighs VMs itself, because some are pinned to a few pCPUs.
    pub(crate) fn set_outside(&self, outside: bool) {
        store!(self.host, 0, AtomicU64, plan_outside = u64::from(outside));
    }
}

impl Table for &Accounts {
    fn begin(&mut self, slot: u32, terms: Terms) {
        let Terms { rate, burst_ns, parent } = terms;
        self.limiters.set(slot as usize, Limiter { rate, burst_ns, parent, ..Limiter::ZERO });
    }

    fn change(&mut self, slot: u32, terms: Terms) {
        store!(self.limiters, slot, AtomicU32, parent = terms.parent);
        store!(self.limiters, slot, AtomicU64, burst_ns = terms.burst_ns);
        store!(self.limiters, slot, AtomicU64, rate = terms.rate);
    }

    fn end(&mut self, slot: u32) {
        store!(self.limiters, slot, AtomicU64, rate = 0);
    }

    fn used(&mut self, slots: u32) {
        store!(self.host, 0, AtomicU32, limiters = slots);
    }

    fn first(&mut self, vm: u32, slot: u32) {
        store!(self.vms, vm, AtomicU32, limiter = slot);
    }

    fn in_use(&self, slot: u32) -> bool {
        let limiter = self.limiters.get(slot as usize);
        limiter.parked > 0 || limiter.inflight > 0
    }
}

/// The first node of the half that is not in force.
pub(crate) fn other_half(plan: u64) -> u32 {
    if plan >> 32 == 0 { NODES_MAX } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_take_turns_in_the_two_halves() {
        let word = |first: u32| u64::from(first) << 32 | 7;
        let first = other_half(0);
        assert_eq!((first, other_half(word(first)), other_half(word(0))), (2048, 0, 2048));
    }
}
