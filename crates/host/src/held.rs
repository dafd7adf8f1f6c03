//! Weighs VMs in place of the scheduler where some are pinned to a few pCPUs: by the present
//! demand, ten times a second.
//!
//! The scheduler divides the plan's tree without regard to affinity (crates/entitlement, active.rs,
//! says why that would be wrong here).

use crate::{discover, live::Word, run::Daemon, view::monotonic_ns};
use entitlement::{ActiveVm, Meter, active_plan};
use std::{collections::BTreeMap, time::Duration};
use units::{PcpuSet, VmId};

/// After a load it takes so long until every thread of a pinned VM is counted as the VM's.
const BINDING: Duration = Duration::from_secs(2);

/// What is remembered between two plans.
#[derive(Default)]
pub(crate) struct Held {
    /// Whether some VM is held, and user space weighs.
    pub(crate) now: bool,
    meter: Meter,
    /// Affinity of threads, read again with every scan.
    allowed: BTreeMap<i32, PcpuSet>,
    replanned_ns: u64,
}

impl Held {
    /// Affinities are read again.
    pub(crate) fn forget(&mut self) {
        self.allowed.clear();
    }
}

impl Daemon<'_> {
    /// Whether some VM may not use all pCPUs.
    pub(crate) fn any_held(&self) -> bool {
        let accounts = self.live.accounts();
        self.names.vms.iter().any(|v| accounts.vm(v.id as usize).restricted > 0)
            || self.loaded.elapsed() < BINDING && self.restricted()
    }

    /// The same by the threads themselves, of whichever VM they are counted now.
    fn restricted(&self) -> bool {
        let (accounts, now) = (self.live.accounts(), monotonic_ns());
        let mut worlds = (1..accounts.worlds_len()).filter_map(|i| accounts.world(i, now));
        worlds.any(|w| {
            w.flags & sched_core::WORLD_RESTRICTED != 0 && self.vms.contains_key(&(w.tgid as i32))
        })
    }

    /// Where VMs are held: their weights by what is active now.
    pub(crate) fn replan(&mut self) {
        let accounts = self.live.accounts();
        if !self.any_held() {
            if std::mem::take(&mut self.held.now) {
                // The last pinned VM has ended or is unrestricted again: back to the division of
                // the tree.
                self.weigh(|_| true);
                accounts.set_outside(false);
            }
            return;
        }
        let now = monotonic_ns();
        let period = now.saturating_sub(std::mem::replace(&mut self.held.replanned_ns, now)).max(1);
        if !std::mem::replace(&mut self.held.now, true) {
            self.held.meter = Meter::default();
            accounts.set_outside(true);
        }
        let vms = self.demands(now, period);
        for order in active_plan(&self.pcpus, &self.tree, &vms, accounts.host().v_ns) {
            let id = u32::from(order.vm.0);
            let (vcpus, shares) = self.size(id);
            let _ = self.live.weight(
                id,
                vcpus,
                shares,
                Word { weight: order.weight.0, held: order.held, shift: order.shift_ns },
            );
        }
    }

    /// The leaves of the tree in their order, with what their worlds have wanted in the last
    /// period.
    fn demands(&mut self, now: u64, period: u64) -> Vec<ActiveVm> {
        let accounts = self.live.accounts();
        let active = |id: u32| ActiveVm {
            vm: VmId(id as u16),
            classes: vec![],
            vt_ns: accounts.vm(id as usize).vt_ns,
        };
        let mut vms: Vec<ActiveVm> = self.ids().into_iter().map(active).collect();
        let leaf: BTreeMap<u32, usize> =
            vms.iter().enumerate().map(|(i, v)| (u32::from(v.vm.0), i)).collect();
        self.held.meter.begin();
        for i in 1..accounts.worlds_len() {
            let Some(w) = accounts.world(i, now) else { continue };
            let Some(at) = leaf.get(&w.vm) else { continue };
            let wanted = w.time_ns[sched_core::STATE_RUN as usize]
                + w.time_ns[sched_core::STATE_READY as usize];
            let demand = self.held.meter.demand(w.id, wanted, period);
            let restricted = w.vm != 0 && w.flags & sched_core::WORLD_RESTRICTED != 0;
            let host = &self.pcpus;
            let read = || {
                discover::allowed(&self.roots, w.tgid as i32, w.pid as i32)
                    .map_or_else(|| host.clone(), |s| s.and(host))
            };
            let set = if restricted {
                self.held.allowed.entry(w.pid as i32).or_insert_with(read).clone()
            } else {
                host.clone()
            };
            let classes = &mut vms[*at].classes;
            match classes.iter_mut().find(|c| c.0 == set) {
                Some(class) => class.1.0 += demand.0,
                None => classes.push((set, demand)),
            }
        }
        vms
    }
}
