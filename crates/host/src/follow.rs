//! Follows VMs: gives each a slot of the scheduler's tables, binds its threads, lays out another
//! tree after a change; `publish` puts it into force.

use crate::{
    Live,
    cgroups::Cgroups,
    discover::{Finder, FoundVm, Roots},
    in_force::InForce,
    kept::Kept,
    layout::{Layout, layout},
    live::Event,
    process::descendants,
    slots::Slots,
};
use sched_core::{KIND_HELPER, KIND_TASK, VM_SYSTEM, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use units::caps::VMS_MAX;

/// VMs of this host.
pub(crate) struct Vms {
    finder: Finder,
    /// Files of their cgroups.
    kept: Kept,
    slots: Slots,
    /// What the last layout was made from.
    seen: Option<Seen>,
}

/// All that was found, and what there is to say of processes that are not followed.
type Seen = (Vec<FoundVm>, Cgroups, BTreeSet<String>);

impl Vms {
    /// None yet. Files of up to so many stay open between two looks, as far as `files` allow.
    pub(crate) fn with_files(files: usize) -> Vms {
        Vms {
            finder: Finder::with_room(files / 2),
            kept: Kept::with_room(files / 2),
            slots: Slots::default(),
            seen: None,
        }
    }

    /// Their slots.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// All the VMs that there are now.
    pub(crate) fn scan(&mut self, roots: &Roots, in_force: &InForce<'_>) -> Vec<FoundVm> {
        self.finder.scan(roots, in_force.which())
    }

    /// Threads have taken names that vCPUs have: their processes are looked at at once. All VMs, if
    /// some of them are VMs.
    pub(crate) fn named(
        &mut self,
        events: &[Event],
        roots: &Roots,
        in_force: &InForce<'_>,
    ) -> Option<Vec<FoundVm>> {
        let renamed: BTreeSet<i32> = events
            .iter()
            .filter_map(|e| if let Event::Named { tgid } = e { Some(*tgid) } else { None })
            .collect();
        let mut all: BTreeMap<i32, FoundVm> = BTreeMap::new();
        for pid in renamed {
            if let Some(found) = self.finder.look(roots, in_force.which(), pid) {
                self.finder.found(pid);
                all.insert(pid, found);
            }
        }
        if all.is_empty() {
            return None;
        }
        for vm in self.slots.found().chain(self.slots.beyond()) {
            all.entry(vm.pid).or_insert_with(|| vm.clone());
        }
        Some(all.into_values().collect())
    }

    /// Gives all the VMs that there are now their slots. Another layout, with the VMs' numbers, if
    /// something has changed that it depends on.
    pub(crate) fn seat(
        &mut self,
        found: Vec<FoundVm>,
        live: &Live,
        roots: &Roots,
        in_force: &InForce<'_>,
        say: &dyn Fn(&str),
    ) -> Option<Layout> {
        self.part(&found, live, roots, say);
        self.slots.seat(found);
        let found: Vec<FoundVm> = self.slots.found().cloned().collect();
        let cgroups = Cgroups::read_again(
            &mut self.kept,
            roots,
            &found,
            in_force.settings(),
            in_force.trust(),
        );
        let now = (found, cgroups, self.finder.refused());
        if self.seen.as_ref() == Some(&now) {
            return None;
        }
        let (found, cgroups, _) = self.seen.insert(now);
        match layout(found, cgroups, &in_force.known()) {
            Ok(laid) => Some(self.numbered(laid)),
            // Settings were checked when they were read; the plan in force stays.
            Err(reasons) => {
                say(&format!("pools: cannot lay them out:\n  - {}", reasons.join("\n  - ")));
                None
            }
        }
    }

    /// The next layout is another: settings have changed.
    pub(crate) fn forget(&mut self) {
        self.seen = None;
    }

    /// VMs that have stopped, or are followed no more: their slots wait for their last threads.
    fn part(&mut self, found: &[FoundVm], live: &Live, roots: &Roots, say: &dyn Fn(&str)) {
        for (vm, bound) in self.slots.part(found) {
            if self.finder.refuses(vm.pid) || runs_another(roots, vm.pid) {
                // The scheduler moves each when it is queued next; one that has ended is no error.
                for tid in bound {
                    let _ = live.bind(tid, VM_SYSTEM, KIND_TASK, 0);
                }
                say(&format!("VM {} (pid {}) is a host task from now on", vm.name, vm.pid));
            } else {
                say(&format!("VM {} (pid {}) has gone", vm.name, vm.pid));
            }
        }
    }

    /// A layout with the numbers of its VMs, and what is not followed among its troubles.
    fn numbered(&self, mut laid: Layout) -> Layout {
        laid.troubles.append(&mut self.finder.refused());
        for vm in &mut laid.names.vms {
            vm.id = self.slots.of(vm.pid).expect("a layout is of VMs that have slots");
        }
        if let [first, more @ ..] = self.slots.beyond() {
            let most = VMS_MAX - 1;
            laid.troubles.insert(format!(
                "VM '{}' and {} more: cannot follow them: allowed {most} VMs; they run as host \
                    tasks",
                first.name,
                more.len()
            ));
        }
        laid
    }

    /// Binds new threads of the VMs `planned`. A thread that has ended meanwhile is no error; after
    /// any other refusal the next scan tries again. What a VM's threads start is of that VM, so new
    /// ones join by themselves.
    pub(crate) fn bind(&mut self, live: &Live, roots: &Roots, planned: &BTreeSet<u32>) {
        let busy = RefCell::new(vec![]);
        self.slots.bind(
            planned,
            |pid, id| {
                for tid in descendants(roots, pid) {
                    let _ = live.bind(tid, id, KIND_HELPER, 0);
                }
            },
            |(tid, kind, index), id| {
                let done = live.bind(tid, id, kind, index);
                if done == Err(libc::EBUSY) {
                    busy.borrow_mut().push(tid);
                }
                done.is_ok()
            },
        );
        let busy = busy.take();
        let of_vms = self.slots.found().filter(|vm| busy.contains(&vm.pid));
        of_vms.for_each(|vm| self.finder.is_of_a_vm(vm));
    }

    /// Processes that VMs have started and that outlive them are host tasks from now on; slots
    /// whose last world has ended are free again.
    pub(crate) fn sweep(&mut self, live: &Live) {
        if self.slots.leaving().next().is_some() {
            self.hand_over(live);
        }
        self.slots.release(|id| {
            let gone = live.accounts().vm(id as usize).worlds == 0;
            if gone {
                live.forget(id);
            }
            gone
        });
    }

    /// The scheduler moves each world when it is queued next: one that sleeps may be on its way to
    /// the VM yet.
    fn hand_over(&mut self, live: &Live) {
        let accounts = live.accounts();
        let worlds = (1..accounts.worlds_len()).filter_map(|i| accounts.settled(i));
        let vm = |w: &World| u32::try_from(w.bind_vm).unwrap_or(w.vm);
        for w in worlds.filter(|w| self.slots.outlives(vm(w), w.tgid as i32)) {
            if live.bind(w.pid as i32, VM_SYSTEM, KIND_TASK, 0).is_ok() {
                self.finder.outlives_its_vm(w.tgid as i32);
            }
        }
    }
}

/// Whether a process that was a VM's lives and is another program now.
fn runs_another(roots: &Roots, pid: i32) -> bool {
    std::fs::read_link(roots.proc_fs.join(format!("{pid}/exe"))).is_ok()
}
