//! Weighs VMs in place of the scheduler where some are pinned to a few pCPUs: by the present
//! demand, ten times a second.
//!
//! The scheduler divides the plan's tree without regard to affinity (crates/entitlement, active.rs,
//! says why that would be wrong here).

use crate::{discover, live::Word, run::Daemon, view::monotonic_ns};
use ::publish::{Wants, Weigher};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use units::PcpuSet;

/// After a load it takes so long until every thread of a pinned VM is counted as the VM's.
const BINDING: Duration = Duration::from_secs(2);

/// What is remembered between two plans.
#[derive(Default)]
pub(crate) struct Held {
    /// Whether some VM is held, and user space weighs.
    pub(crate) now: bool,
    weigher: Weigher,
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
        worlds.any(|w| w.flags & sched_core::WORLD_RESTRICTED != 0 && self.slots.has(w.tgid as i32))
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
            self.held.weigher = Weigher::default();
            accounts.set_outside(true);
        }
        for order in self.orders(now, period) {
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

    /// Weights of the tree's leaves, by what their worlds have wanted in the last period.
    fn orders(&mut self, now: u64, period: u64) -> Vec<entitlement::Order> {
        let accounts = self.live.accounts();
        let ids = self.ids();
        let leaves: BTreeSet<u32> = ids.iter().copied().collect();
        let (host, roots, known) = (&self.pcpus, &self.roots, &mut self.held.allowed);
        let wants = |i| {
            let w = accounts.world(i, now).filter(|w| leaves.contains(&w.vm))?;
            let wanted_ns = w.time_ns[sched_core::STATE_RUN as usize]
                + w.time_ns[sched_core::STATE_READY as usize];
            let restricted = w.vm != 0 && w.flags & sched_core::WORLD_RESTRICTED != 0;
            let read = || {
                discover::allowed(roots, w.tgid as i32, w.pid as i32)
                    .map_or_else(|| host.clone(), |s| s.and(host))
            };
            let allowed = if restricted {
                known.entry(w.pid as i32).or_insert_with(read).clone()
            } else {
                host.clone()
            };
            Some(Wants { world: w.id, vm: w.vm, wanted_ns, allowed })
        };
        let vms = ids.iter().map(|id| (*id, accounts.vm(*id as usize).vt_ns));
        let worlds = (1..accounts.worlds_len()).filter_map(wants);
        let v_ns = accounts.host().v_ns;
        self.held.weigher.plan(host, &self.tree, vms, worlds, period, v_ns)
    }
}
