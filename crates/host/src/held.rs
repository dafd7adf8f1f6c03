//! Weighs VMs in place of the scheduler where some are pinned to a few pCPUs: by the present
//! demand, ten times a second.
//!
//! The scheduler divides the plan's tree without regard to affinity (crates/entitlement, active.rs,
//! says why that would be wrong here).

use crate::{
    Live,
    discover::{self, Roots},
    homes::Homes,
    live::Word,
    publish::Published,
    slots::Slots,
    view::monotonic_ns,
};
use ::publish::{Wants, Weigher};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use units::PcpuSet;

/// After a load it takes so long until every thread of a pinned VM is counted as the VM's.
const BINDING: Duration = Duration::from_secs(2);

/// What is remembered between two plans.
pub(crate) struct Held {
    /// Those that are online.
    pcpus: PcpuSet,
    loaded: Instant,
    /// Whether some VM is held, and user space weighs.
    now: bool,
    weigher: Weigher,
    /// Affinity of threads, read again with every scan.
    allowed: BTreeMap<i32, PcpuSet>,
    replanned_ns: u64,
}

impl Held {
    /// Nothing is held yet on a host with these pCPUs, whose scheduler was loaded just now.
    pub(crate) fn new(pcpus: PcpuSet) -> Held {
        Held {
            pcpus,
            loaded: Instant::now(),
            now: false,
            weigher: Weigher::default(),
            allowed: BTreeMap::new(),
            replanned_ns: 0,
        }
    }

    /// These pCPUs are online from now on.
    pub(crate) fn set_pcpus(&mut self, pcpus: PcpuSet) {
        self.pcpus = pcpus;
        self.forget();
    }

    /// Whether some VM is held, and user space weighs.
    pub(crate) fn now(&self) -> bool {
        self.now
    }

    /// Affinities are read again.
    pub(crate) fn forget(&mut self) {
        self.allowed.clear();
    }

    /// Before the first plan: the scheduler does not divide its tree where VMs are held.
    pub(crate) fn begin(&mut self, live: &Live, published: &Published, slots: &Slots) {
        if self.any_held(live, published, slots) {
            self.now = true;
            live.accounts().set_outside(true);
        }
    }

    /// Whether some VM may not use all pCPUs.
    fn any_held(&self, live: &Live, published: &Published, slots: &Slots) -> bool {
        let accounts = live.accounts();
        accounts.host().homes != 0
            || published.vms().any(|id| accounts.vm(id as usize).restricted > 0)
            || self.loaded.elapsed() < BINDING && restricted(live, slots)
    }

    /// Where VMs are held: their weights by what is active now.
    pub(crate) fn replan(
        &mut self,
        live: &Live,
        published: &Published,
        slots: &Slots,
        roots: &Roots,
        homes: Option<&Homes>,
    ) {
        let accounts = live.accounts();
        if !self.any_held(live, published, slots) {
            if std::mem::take(&mut self.now) {
                // The last pinned VM has ended or is unrestricted again: back to the division of
                // the tree.
                published.weigh(live, |_| true);
                accounts.set_outside(false);
            }
            return;
        }
        let now = monotonic_ns();
        let period = now.saturating_sub(std::mem::replace(&mut self.replanned_ns, now)).max(1);
        if !std::mem::replace(&mut self.now, true) {
            self.weigher = Weigher::default();
            accounts.set_outside(true);
        }
        for order in self.orders(live, published, roots, homes, (now, period)) {
            let word = Word { weight: order.weight.0, held: order.held, shift: order.shift_ns };
            published.give(live, u32::from(order.vm.0), word);
        }
    }

    /// Weights of the tree's leaves, by what their worlds have wanted until `now` in the last
    /// period.
    fn orders(
        &mut self,
        live: &Live,
        published: &Published,
        roots: &Roots,
        homes: Option<&Homes>,
        (now, period): (u64, u64),
    ) -> Vec<entitlement::Order> {
        let accounts = live.accounts();
        let ids = published.ids();
        let leaves: BTreeSet<u32> = ids.iter().copied().collect();
        let (host, known) = (&self.pcpus, &mut self.allowed);
        let wants = |i| {
            let w = accounts.world(i, now).filter(|w| leaves.contains(&w.vm))?;
            let ran_ns = w.time_ns[sched_core::STATE_RUN as usize];
            let waited_ns = w.time_ns[sched_core::STATE_READY as usize];
            let restricted = w.vm != 0 && w.flags & sched_core::WORLD_RESTRICTED != 0;
            let read = || {
                discover::allowed(roots, w.tgid as i32, w.pid as i32)
                    .unwrap_or_else(|| host.clone())
            };
            let allowed = if restricted {
                known.entry(w.pid as i32).or_insert_with(read).clone()
            } else {
                host.clone()
            };
            let home = homes.and_then(|h| h.pcpus(&w));
            let allowed = home.map_or(allowed.clone(), |home| home.and(&allowed));
            Some(Wants { world: w.id, vm: w.vm, ran_ns, waited_ns, allowed })
        };
        let vms = ids.iter().map(|id| (*id, accounts.vm(*id as usize).vt_ns));
        let worlds = (1..accounts.worlds_len()).filter_map(wants);
        let v_ns = accounts.host().v_ns;
        self.weigher.plan(host, published.tree(), vms, worlds, period, v_ns)
    }
}

/// Whether some thread of a VM's process may not use all pCPUs, of whichever VM it is counted now.
fn restricted(live: &Live, slots: &Slots) -> bool {
    let (accounts, now) = (live.accounts(), monotonic_ns());
    let mut worlds = (1..accounts.worlds_len()).filter_map(|i| accounts.world(i, now));
    worlds.any(|w| w.flags & sched_core::WORLD_RESTRICTED != 0 && slots.has(w.tgid as i32))
}
