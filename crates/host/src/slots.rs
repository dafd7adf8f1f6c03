//! Slots of the scheduler's tables: which VM has which, which threads are bound to it, and which
//! slots wait for the last threads of a VM that has stopped. It writes no table: `follow` does.

use crate::discover::{FoundVm, Thread};
use sched_core::{KIND_EMULATED, KIND_HELPER, KIND_VCPU};
use std::collections::{BTreeMap, BTreeSet};
use units::caps::VMS_MAX;

/// A VM that has a slot.
struct Followed {
    id: u32,
    found: FoundVm,
    /// Threads that were bound to it, and as what.
    bound: BTreeSet<Bound>,
}

/// A thread, its kind of world, and its number if it is a vCPU.
pub(crate) type Bound = (i32, u32, u32);

fn bound_as(t: &Thread) -> Bound {
    let (kind, index) = match t.vcpu {
        None => (KIND_HELPER, 0),
        Some(n) if t.emulated() => (KIND_EMULATED, n),
        Some(n) => (KIND_VCPU, n),
    };
    (t.tid, kind, index)
}

/// All slots but that of the system group, which is 0.
#[derive(Default)]
pub(crate) struct Slots {
    /// By process.
    vms: BTreeMap<i32, Followed>,
    /// Slots of stopped VMs whose last threads still run, and their processes.
    leaving: BTreeMap<u32, i32>,
    /// VMs that there is no slot for.
    beyond: Vec<FoundVm>,
}

impl Slots {
    /// VMs that have a slot, by process.
    pub(crate) fn found(&self) -> impl Iterator<Item = &FoundVm> {
        self.vms.values().map(|v| &v.found)
    }

    /// VMs that there is no slot for.
    pub(crate) fn beyond(&self) -> &[FoundVm] {
        &self.beyond
    }

    /// Slots of stopped VMs whose last threads still run.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = u32> + '_ {
        self.leaving.keys().copied()
    }

    /// Whether a slot is a stopped VM's, and `pid` another process than that VM's.
    pub(crate) fn outlives(&self, id: u32, pid: i32) -> bool {
        self.leaving.get(&id).is_some_and(|vm| *vm != pid)
    }

    /// Whether a process is a VM that has a slot.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.vms.contains_key(&pid)
    }

    /// Slot of a VM by its process.
    pub(crate) fn of(&self, pid: i32) -> Option<u32> {
        self.vms.get(&pid).map(|v| v.id)
    }

    /// Takes VMs out that are not among `found`, with the threads that were bound to them; their
    /// slots wait for the last of those.
    pub(crate) fn part(&mut self, found: &[FoundVm]) -> Vec<(FoundVm, Vec<i32>)> {
        let alive: BTreeSet<(i32, u64)> = found.iter().map(|f| (f.pid, f.started)).collect();
        let gone = |v: &FoundVm| !alive.contains(&(v.pid, v.started));
        let pids: Vec<i32> = self.found().filter(|v| gone(v)).map(|v| v.pid).collect();
        let parted: Vec<Followed> = pids.iter().filter_map(|p| self.vms.remove(p)).collect();
        self.leaving.extend(parted.iter().map(|v| (v.id, v.found.pid)));
        let tids = |bound: BTreeSet<Bound>| bound.into_iter().map(|thread| thread.0).collect();
        parted.into_iter().map(|v| (v.found, tids(v.bound))).collect()
    }

    /// Gives each VM a slot, as long as there are some.
    pub(crate) fn seat(&mut self, found: Vec<FoundVm>) {
        self.beyond.clear();
        for vm in found {
            if let Some(old) = self.vms.get_mut(&vm.pid) {
                old.found = vm;
            } else if let Some(id) = self.free() {
                self.vms.insert(vm.pid, Followed { id, found: vm, bound: BTreeSet::new() });
            } else {
                self.beyond.push(vm);
            }
        }
    }

    fn free(&self) -> Option<u32> {
        let used: BTreeSet<u32> = self.vms.values().map(|v| v.id).chain(self.leaving()).collect();
        (1..VMS_MAX as u32).find(|id| !used.contains(id))
    }

    /// Binds new threads of the VMs in the slots `planned`. `begin` learns process and slot of a VM
    /// of which no thread was bound before, once some are; `bind` says of a thread and a slot
    /// whether it is bound, and is asked again with the next scan if not.
    pub(crate) fn bind(
        &mut self,
        planned: &BTreeSet<u32>,
        begin: impl Fn(i32, u32),
        bind: impl Fn(Bound, u32) -> bool,
    ) {
        for vm in self.vms.values_mut().filter(|v| planned.contains(&v.id)) {
            let now: BTreeSet<Bound> = vm.found.threads.iter().map(bound_as).collect();
            let is_new = vm.bound.is_empty();
            vm.bound.retain(|t| now.contains(t));
            for thread in now {
                if !vm.bound.contains(&thread) && bind(thread, vm.id) {
                    vm.bound.insert(thread);
                }
            }
            if is_new && !vm.bound.is_empty() {
                begin(vm.found.pid, vm.id);
            }
        }
    }

    /// Slots of stopped VMs are free again where `ended` says that the last thread has ended.
    pub(crate) fn release(&mut self, ended: impl Fn(u32) -> bool) {
        self.leaving.retain(|id, _| !ended(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn vm(pid: i32, started: u64, tids: &[i32]) -> FoundVm {
        let thread = |(i, tid): (usize, &i32)| Thread {
            tid: *tid,
            pid,
            vcpu: (i == 0).then_some(0),
            comm: String::new(),
        };
        let threads = tids.iter().enumerate().map(thread).collect();
        let (name, cgroup) = (format!("vm{pid}"), format!("/vm{pid}"));
        FoundVm { pid, started, name, cgroup, threads, uid: None, named: true }
    }

    #[test]
    fn a_slot_is_free_again_when_the_last_thread_of_its_vm_has_ended() {
        let mut slots = Slots::default();
        slots.seat(vec![vm(7, 1, &[]), vm(9, 1, &[])]);
        assert_eq!((slots.of(7), slots.of(9), slots.of(8)), (Some(1), Some(2), None));
        // The process 7 is another one now, of the same number.
        let found = [vm(7, 2, &[]), vm(9, 1, &[])];
        assert_eq!(slots.part(&found), [(vm(7, 1, &[]), vec![])]);
        slots.seat(found.to_vec());
        assert_eq!((slots.of(7), slots.of(9)), (Some(3), Some(2)));
        assert_eq!(slots.leaving().collect::<Vec<_>>(), [1]);
        // Processes that it has started are others; a VM that is there has none that outlive it.
        assert_eq!([7, 8].map(|pid| slots.outlives(1, pid)), [false, true]);
        assert!(!slots.outlives(2, 8));
        slots.release(|_| false);
        assert_eq!(slots.leaving().count(), 1);
        slots.release(|id| id == 1);
        slots.seat(vec![vm(8, 1, &[])]);
        assert_eq!((slots.of(8), slots.leaving().count()), (Some(1), 0));
    }

    #[test]
    fn vms_that_no_slot_is_left_for_are_named_until_one_is_free() {
        let mut slots = Slots::default();
        let all: Vec<FoundVm> = (1..=VMS_MAX as i32).map(|pid| vm(pid, 1, &[])).collect();
        slots.seat(all.clone());
        assert_eq!(slots.found().count(), VMS_MAX - 1);
        assert_eq!(slots.beyond(), [vm(VMS_MAX as i32, 1, &[])]);
        slots.part(&all[1..]);
        slots.release(|_| true);
        slots.seat(all[1..].to_vec());
        assert_eq!((slots.of(VMS_MAX as i32), slots.beyond().len()), (Some(1), 0));
    }

    #[test]
    fn a_thread_that_could_not_be_bound_is_tried_again_and_a_bound_one_is_not() {
        let mut slots = Slots::default();
        slots.seat(vec![vm(7, 1, &[70, 71]), vm(9, 1, &[90])]);
        let (begun, tried) = (RefCell::new(vec![]), RefCell::new(vec![]));
        let mut bind = |refused: i32| {
            slots.bind(
                &BTreeSet::from([1]),
                |pid, id| begun.borrow_mut().push((pid, id)),
                |thread, id| {
                    tried.borrow_mut().push((thread, id));
                    thread.0 != refused
                },
            );
            (begun.take(), tried.take())
        };
        let (vcpu, helper) = (((70, KIND_VCPU, 0), 1), ((71, KIND_HELPER, 0), 1));
        assert_eq!(bind(71), (vec![(7, 1)], vec![vcpu, helper]));
        assert_eq!(bind(0), (vec![], vec![helper]));
        assert_eq!(bind(0), (vec![], vec![]));
        // What was bound is known when it is no VM any more.
        assert_eq!(
            slots.part(&[]),
            [(vm(7, 1, &[70, 71]), vec![70, 71]), (vm(9, 1, &[90]), vec![])]
        );
    }
}
