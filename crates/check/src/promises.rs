//! Checks that no VM or pool exceeds its limit or misses its reservation; it knows nothing of
//! shares.
//!
//! Law of limits: over any second that ends with a window, a VM or pool uses at most its limit,
//! more by `Bounds::limit_permille`, and what it may have saved up (`burst_ns`).
//!
//! Law of reservations: a VM that asks for time gets it up to its reservation. The shortfall of
//! each window is added up, an excess is subtracted, down to 0; the sum stays below the bound on
//! lag, and fades with ten times the memory of lag. It is held only where the tree admits what is
//! reserved: where pools or the host have less than their VMs reserve, what these get is for shares
//! and limits to say (`lag.rs`). It asks at each instant for a pCPU for each
//! runnable world, and for no more pCPUs than there are: many vCPUs that wake together for a moment
//! leave pCPUs idle before and after, and no scheduler can make up for that. Why a shortfall is
//! allowed at all: a waking world waits for the end of a tick, and a VM that asks for all it may
//! use can never make up for it.
//!
//! Units: CPU ns.

use crate::{
    Bounds, Invariant, Violation,
    terms::{self, PoolTerms, VmTerms},
    verdict::Log,
};
use std::collections::VecDeque;
use units::{Rate, Span, VmId};

const SECOND: u64 = 1_000_000_000;

/// Use of a VM or pool under a limit over the last second.
#[derive(Clone, Debug)]
struct Meter {
    limit: Rate,
    burst_ns: u64,
    /// Start, end and use of each window that is not empty.
    windows: VecDeque<(u64, u64, u64)>,
    sum: u64,
    over: bool,
    peak: u64,
}

impl Meter {
    fn new(limit: Rate, burst_ns: u64) -> Meter {
        Meter { limit, burst_ns, windows: VecDeque::new(), sum: 0, over: false, peak: 0 }
    }

    /// Takes a window in; what it had used and was allowed, when that begins to be too much.
    fn close(&mut self, now: u64, wall: u64, used: u64, bounds: &Bounds) -> Option<(u64, u64)> {
        if used > 0 {
            self.windows.push_back((now - wall, now, used));
            self.sum += used;
        }
        let from = now.saturating_sub(SECOND);
        while let Some((_, _, old)) = self.windows.front().copied().filter(|w| w.1 <= from) {
            self.sum -= old;
            self.windows.pop_front();
        }
        // Where a window is longer than usual nothing changed within it, so its use is even.
        let outside = self.windows.front().map_or(0, |(start, end, used)| {
            match from.saturating_sub(*start) {
                0 => 0,
                out => (u128::from(*used) * u128::from(out) / u128::from(end - start)) as u64,
            }
        });
        let seen = self.sum - outside;
        self.peak = self.peak.max(seen);
        let limit = self.limit.over(Span::from_ns(SECOND));
        let allowed = limit
            + (limit * u64::from(bounds.limit_permille) / 1000).max(bounds.limit_least_ns)
            + self.burst_ns;
        let before = std::mem::replace(&mut self.over, seen > allowed);
        (self.over && !before).then_some((seen, allowed))
    }
}

/// A VM's account of promises.
#[derive(Clone, Debug)]
struct PromiseAccount {
    id: VmId,
    name: String,
    terms: VmTerms,
    limit: Option<Meter>,
    /// Whether the tree admits its reservation.
    kept: bool,
    short: u64,
    over: bool,
}

/// What a VM asked for and used in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Use {
    pub(crate) asked: u64,
    pub(crate) used: u64,
    /// Worlds that can run at once.
    pub(crate) worlds: u64,
}

/// All promises of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    pools: Vec<(PoolTerms, Option<Meter>)>,
    vms: Vec<PromiseAccount>,
    any: bool,
    /// The host's pCPUs when it was found out which reservations can be kept; none after a change.
    pcpus: Option<u64>,
}

impl Promises {
    /// New pools; meters of unchanged limits go on.
    pub(crate) fn set_pools(&mut self, pools: &[PoolTerms]) {
        let old = std::mem::take(&mut self.pools);
        let meter = |p: &PoolTerms| {
            let kept = old
                .iter()
                .find(|o| o.0.name == p.name && o.0.pool.limit == p.pool.limit)
                .filter(|o| o.0.burst_ns == p.burst_ns)
                .and_then(|o| o.1.clone());
            kept.or_else(|| p.pool.limit.map(|l| Meter::new(l, p.burst_ns)))
        };
        self.pools = pools.iter().map(|p| (p.clone(), meter(p))).collect();
        self.note();
    }

    /// A VM in the next slot.
    pub(crate) fn add_vm(&mut self, id: VmId, name: &str, terms: VmTerms) {
        let limit = terms.limit.map(|l| Meter::new(l, terms.burst_ns));
        self.vms.push(PromiseAccount {
            id,
            name: name.to_owned(),
            terms,
            limit,
            kept: true,
            short: 0,
            over: false,
        });
        self.note();
    }

    /// A VM's settings change.
    pub(crate) fn set_terms(&mut self, slot: u32, terms: VmTerms) {
        let vm = &mut self.vms[slot as usize];
        if (vm.terms.limit, vm.terms.burst_ns) != (terms.limit, terms.burst_ns) {
            vm.limit = terms.limit.map(|l| Meter::new(l, terms.burst_ns));
        }
        vm.terms = terms;
        self.note();
    }

    /// A VM is powered off: it reserves nothing.
    pub(crate) fn remove_vm(&mut self, slot: u32) {
        self.vms[slot as usize].terms.reservation = Rate(0);
        self.note();
    }

    fn note(&mut self) {
        self.pcpus = None;
        let promised = |v: &PromiseAccount| v.terms.limit.is_some() || v.terms.reservation.0 > 0;
        self.any = self.vms.iter().any(promised) || self.pools.iter().any(|p| p.1.is_some());
    }

    /// Finds out which reservations can be kept on so many pCPUs.
    fn admit(&mut self, pcpus: u64) {
        let mut pools: Vec<PoolTerms> = self.pools.iter().map(|p| p.0.clone()).collect();
        if pools.is_empty() {
            pools.push(terms::root());
        }
        let vms = self.vms.iter().map(|v| (v.terms, false));
        let kept = entitlement::kept(&terms::tree(pcpus, &pools, vms, None));
        self.vms.iter_mut().zip(kept).for_each(|(vm, kept)| vm.kept = kept);
        self.pcpus = Some(pcpus);
    }

    /// Whether anything is promised beyond shares.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Most CPU time that each limited pool used in a second, by index.
    pub(crate) fn peaks(&self) -> Vec<(usize, u64)> {
        self.pools.iter().enumerate().filter_map(|(i, p)| Some((i, p.1.as_ref()?.peak))).collect()
    }

    /// A window of `wall` ns of so many pCPUs ends at `now`; `uses` by slot.
    pub(crate) fn close(
        &mut self,
        now: u64,
        (wall, pcpus): (u64, u64),
        uses: &[Use],
        bounds: &Bounds,
        log: &mut Log,
    ) {
        if self.pcpus != Some(pcpus) {
            self.admit(pcpus);
        }
        let mut used = vec![0u64; self.pools.len()];
        for (vm, u) in self.vms.iter_mut().zip(uses) {
            let mut p = vm.terms.pool;
            while p > 0 && p < used.len() {
                used[p] += u.used;
                p = self.pools[p].0.pool.parent;
            }
            if let Some((seen, allowed)) =
                vm.limit.as_mut().and_then(|m| m.close(now, wall, u.used, bounds))
            {
                passed(log, now, Some((vm.id, vm.name.clone())), "", seen, allowed);
            }
            vm.reserve(now, wall, *u, bounds, log);
        }
        for ((terms, meter), used) in self.pools.iter_mut().zip(used) {
            if let Some((seen, allowed)) =
                meter.as_mut().and_then(|m| m.close(now, wall, used, bounds))
            {
                passed(log, now, None, &format!("pool {}: ", terms.name), seen, allowed);
            }
        }
    }
}

fn passed(
    log: &mut Log,
    at_ns: u64,
    vm: Option<(VmId, String)>,
    pool: &str,
    seen: u64,
    allowed: u64,
) {
    log.add(Invariant::Limit, || Violation {
        invariant: Invariant::Limit,
        at_ns,
        vm,
        world: None,
        pcpu: None,
        seen: format!("{pool}{seen} ns in a second"),
        allowed: format!("{allowed} ns"),
    });
}

impl PromiseAccount {
    fn reserve(&mut self, now: u64, wall: u64, u: Use, bounds: &Bounds, log: &mut Log) {
        if self.terms.reservation.0 == 0 || !self.kept {
            self.short = 0;
            return;
        }
        let sure = self.terms.reservation.over(Span::from_ns(wall)).min(u.asked);
        self.short = (self.short + sure).saturating_sub(u.used);
        let memory = bounds.lag_memory_ns.saturating_mul(10);
        self.short -=
            (u128::from(self.short) * u128::from(wall.min(memory)) / u128::from(memory)) as u64;
        if u.asked == 0 {
            self.short = 0;
        }
        let allowed = bounds.lag_ns(u.worlds, false);
        let before = std::mem::replace(&mut self.over, self.short > allowed);
        if self.over && !before {
            let (id, name, short) = (self.id, self.name.clone(), self.short);
            log.add(Invariant::Reservation, || Violation {
                invariant: Invariant::Reservation,
                at_ns: now,
                vm: Some((id, name)),
                world: None,
                pcpu: None,
                seen: format!("{short} ns less than reserved"),
                allowed: format!("{allowed} ns"),
            });
        }
    }
}
