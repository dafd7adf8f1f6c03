//! Follows VMs: gives each a slot of the scheduler's tables, binds its threads, makes another plan
//! after a change.

use crate::{
    HostError, Names,
    cgroups::Cgroups,
    discover::{FoundVm, Thread},
    layout::{Layout, layout},
    live::Event,
    run::Daemon,
};
use sched_core::{KIND_EMULATED, KIND_HELPER, KIND_VCPU};
use std::collections::{BTreeMap, BTreeSet};
use units::caps::VMS_MAX;

/// A VM the daemon follows.
pub(crate) struct Followed {
    pub(crate) id: u32,
    pub(crate) found: FoundVm,
    /// Threads that were bound to it, and as what.
    bound: BTreeSet<Bound>,
}

/// A thread, its kind of world, and its number if it is a vCPU.
type Bound = (i32, u32, u32);

fn bound_as(t: &Thread) -> Bound {
    let (kind, index) = match t.vcpu {
        None => (KIND_HELPER, 0),
        Some(n) if t.emulated() => (KIND_EMULATED, n),
        Some(n) => (KIND_VCPU, n),
    };
    (t.tid, kind, index)
}

impl Daemon<'_> {
    /// Threads have taken names that vCPUs have: their processes are looked at at once.
    pub(crate) fn named(&mut self, events: &[Event]) -> Result<(), HostError> {
        let renamed: BTreeSet<i32> = events
            .iter()
            .filter_map(|e| if let Event::Named { tgid } = e { Some(*tgid) } else { None })
            .collect();
        let mut all: BTreeMap<i32, FoundVm> = BTreeMap::new();
        for pid in renamed {
            if let Some(found) = self.finder.look(&self.roots, pid) {
                self.finder.found(pid);
                all.insert(pid, found);
            }
        }
        if all.is_empty() {
            return Ok(());
        }
        let others = self.vms.values().map(|v| &v.found).chain(&self.beyond);
        for vm in others {
            all.entry(vm.pid).or_insert_with(|| vm.clone());
        }
        self.take(all.into_values().collect())
    }

    /// Takes note of all the VMs that there are now.
    pub(crate) fn take(&mut self, found: Vec<FoundVm>) -> Result<(), HostError> {
        self.part(&found);
        let found = self.seat(found);
        let (settings, speed) = self.settings();
        let cgroups = Cgroups::read(&self.roots, &found, settings);
        let now = Some((found, cgroups));
        if self.seen != now {
            let (found, cgroups) = now.as_ref().expect("just made");
            let laid = layout(found, cgroups, &self.known(settings, speed));
            self.seen = now;
            match laid {
                Ok(laid) => self.change(laid)?,
                // Settings were checked when they were read; the plan in force stays.
                Err(reasons) => (self.options.say)(&format!(
                    "pools: cannot lay them out:\n  - {}",
                    reasons.join("\n  - ")
                )),
            }
        }
        self.bind();
        self.sweep();
        let asserts = self.live.accounts().host().asserts;
        if std::mem::replace(&mut self.asserts, asserts) != asserts {
            (self.options.say)(&format!(
                "{asserts} assertions of the scheduler have failed: VMs run on; please report it"
            ));
        }
        Ok(())
    }

    /// Stopped VMs: their slots wait for their last threads.
    fn part(&mut self, found: &[FoundVm]) {
        let alive: BTreeSet<(i32, u64)> = found.iter().map(|f| (f.pid, f.started)).collect();
        let gone: Vec<i32> = self
            .vms
            .values()
            .filter(|v| !alive.contains(&(v.found.pid, v.found.started)))
            .map(|v| v.found.pid)
            .collect();
        for pid in gone {
            if let Some(vm) = self.vms.remove(&pid) {
                self.live.process(pid, None);
                self.leaving.insert(vm.id);
                (self.options.say)(&format!("VM {} (pid {pid}) has gone", vm.found.name));
            }
        }
    }

    /// Gives each VM a slot, as long as there are some; those that have one.
    fn seat(&mut self, found: Vec<FoundVm>) -> Vec<FoundVm> {
        self.beyond.clear();
        for vm in found {
            if let Some(old) = self.vms.get_mut(&vm.pid) {
                old.found = vm;
            } else if let Some(id) = self.free_slot() {
                self.vms.insert(vm.pid, Followed { id, found: vm, bound: BTreeSet::new() });
            } else {
                self.beyond.push(vm);
            }
        }
        self.vms.values().map(|v| v.found.clone()).collect()
    }

    fn free_slot(&self) -> Option<u32> {
        let used: BTreeSet<u32> =
            self.vms.values().map(|v| v.id).chain(self.leaving.iter().copied()).collect();
        (1..VMS_MAX as u32).find(|id| !used.contains(id))
    }

    /// Publishes a layout if it is another, and takes note of what could not be taken over.
    fn change(&mut self, laid: Layout) -> Result<(), HostError> {
        let Layout { mut names, mut troubles } = laid;
        for vm in &mut names.vms {
            vm.id = self.vms[&vm.pid].id;
        }
        if self.generation == 0 || !same(&names, &self.names) {
            self.publish(names)?;
        }
        troubles.extend(self.limits_refused.clone());
        if !self.beyond.is_empty() {
            let (n, most) = (self.beyond.len(), VMS_MAX - 1);
            troubles.insert(format!(
                "VM '{}' and {} more: cannot follow them: allowed {most} VMs; they run as host \
                    tasks",
                self.beyond[0].name,
                n - 1
            ));
        }
        self.troubles = troubles;
        Ok(())
    }

    /// Says once what cannot be taken over, if it lasts from one scan to the next.
    pub(crate) fn say_troubles(&mut self) {
        for trouble in self.reported.lasting_news(&self.troubles) {
            (self.options.say)(&trouble);
        }
    }

    /// Binds new threads. A thread that has ended meanwhile is no error; after any other refusal
    /// the next scan tries again.
    fn bind(&mut self) {
        let planned: BTreeSet<u32> = self.names.vms.iter().map(|v| v.id).collect();
        for vm in self.vms.values_mut().filter(|v| planned.contains(&v.id)) {
            let now: BTreeSet<Bound> = vm.found.threads.iter().map(bound_as).collect();
            if vm.bound.is_empty() {
                // from here on new threads join by themselves
                self.live.process(vm.found.pid, Some(vm.id));
            }
            vm.bound.retain(|t| now.contains(t));
            for thread in now {
                let (tid, kind, index) = thread;
                if !vm.bound.contains(&thread) && self.live.bind(tid, vm.id, kind, index).is_ok() {
                    vm.bound.insert(thread);
                }
            }
        }
    }

    /// Slots whose last world has ended are free again, and limits without waiting worlds.
    fn sweep(&mut self) {
        let (live, limits) = (self.live, &mut self.limits);
        self.leaving.retain(|id| {
            let gone = live.accounts().vm(*id as usize).worlds == 0;
            if gone {
                live.forget(*id);
            }
            !gone
        });
        limits.sweep(&live.accounts());
    }
}

/// Whether two layouts are the same plan.
fn same(new: &Names, old: &Names) -> bool {
    let Names { generation, daemon, .. } = *old;
    let weighed = |vm: &crate::VmName| crate::VmName { weight: 0, ..vm.clone() };
    let old_vms: Vec<_> = old.vms.iter().map(weighed).collect();
    let new_vms: Vec<_> = new.vms.iter().map(weighed).collect();
    new_vms == old_vms
        && Names { generation, daemon, vms: vec![], ..new.clone() }
            == Names { vms: vec![], ..old.clone() }
}
