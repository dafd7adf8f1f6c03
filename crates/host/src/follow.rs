//! Follows VMs: gives each a slot of the scheduler's tables, binds its threads, makes another plan
//! after a change.

use crate::{
    HostError, Names,
    cgroups::Cgroups,
    discover::FoundVm,
    layout::{Layout, layout},
    live::Event,
    run::Daemon,
};
use std::collections::{BTreeMap, BTreeSet};
use units::caps::VMS_MAX;

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
        for vm in self.slots.found().chain(self.slots.beyond()) {
            all.entry(vm.pid).or_insert_with(|| vm.clone());
        }
        self.take(all.into_values().collect())
    }

    /// Takes note of all the VMs that there are now.
    pub(crate) fn take(&mut self, found: Vec<FoundVm>) -> Result<(), HostError> {
        self.part(&found);
        self.slots.seat(found);
        let found: Vec<FoundVm> = self.slots.found().cloned().collect();
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
        if self.conditions.asserts(asserts) {
            (self.options.say)(&format!(
                "{asserts} assertions of the scheduler have failed: VMs run on; please report it"
            ));
        }
        Ok(())
    }

    /// Stopped VMs: their slots wait for their last threads.
    fn part(&mut self, found: &[FoundVm]) {
        for vm in self.slots.part(found) {
            self.live.process(vm.pid, None);
            (self.options.say)(&format!("VM {} (pid {}) has gone", vm.name, vm.pid));
        }
    }

    /// Publishes a layout if it is another, and takes note of what could not be taken over.
    fn change(&mut self, laid: Layout) -> Result<(), HostError> {
        let Layout { mut names, mut troubles } = laid;
        for vm in &mut names.vms {
            vm.id = self.slots.of(vm.pid).expect("a layout is of VMs that have slots");
        }
        if self.generation == 0 || !same(&names, &self.names) {
            self.publish(names)?;
        }
        troubles.extend(self.limits_refused.clone());
        if let [first, more @ ..] = self.slots.beyond() {
            let most = VMS_MAX - 1;
            troubles.insert(format!(
                "VM '{}' and {} more: cannot follow them: allowed {most} VMs; they run as host \
                    tasks",
                first.name,
                more.len()
            ));
        }
        self.conditions.set_troubles(troubles);
        Ok(())
    }

    /// Says once what cannot be taken over, if it lasts from one scan to the next.
    pub(crate) fn say_troubles(&mut self) {
        for trouble in self.conditions.lasting_troubles() {
            (self.options.say)(&trouble);
        }
    }

    /// Binds new threads. A thread that has ended meanwhile is no error; after any other refusal
    /// the next scan tries again.
    fn bind(&mut self) {
        let planned: BTreeSet<u32> = self.names.vms.iter().map(|v| v.id).collect();
        let live = self.live;
        self.slots.bind(
            &planned,
            // From here on new threads join by themselves.
            |pid, id| live.process(pid, Some(id)),
            |(tid, kind, index), id| live.bind(tid, id, kind, index).is_ok(),
        );
    }

    /// Slots whose last world has ended are free again, and limits without waiting worlds.
    fn sweep(&mut self) {
        let live = self.live;
        self.slots.release(|id| {
            let gone = live.accounts().vm(id as usize).worlds == 0;
            if gone {
                live.forget(id);
            }
            gone
        });
        self.limits.sweep(&live.accounts());
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
