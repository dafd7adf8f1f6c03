//! Keeps totals from decreasing between two looks: the totals of pools include ended VMs, and
//! numbers that were read while they changed never fall. With each load of the scheduler pools
//! begin anew with what their VMs have.

use super::{LIMITED, Moment, READY, SUMS, Sums, USED};
use crate::VmName;
use std::collections::{BTreeMap, BTreeSet};
use units::caps::POOL_DEPTH_MAX;

/// What was seen so far.
#[derive(Default)]
pub(super) struct KeptTotals {
    load: Option<u64>,
    /// By process and its start: a slot of the scheduler's tables may be another VM's later.
    vms: BTreeMap<(i32, u64), Sums>,
    /// Used, ready and limited time of each pool in ns, pools in it included.
    pools: BTreeMap<String, [u64; 3]>,
    busy: BTreeMap<usize, u64>,
    taken: BTreeMap<usize, u64>,
}

impl KeptTotals {
    /// Takes over what is so now.
    pub(super) fn take(&mut self, now: &Moment) {
        if self.load != Some(now.load) {
            *self = KeptTotals { load: Some(now.load), ..KeptTotals::default() };
        }
        for (i, p) in &now.pcpus {
            let running = if p.current_world == 0 {
                0
            } else {
                now.now_ns.saturating_sub(p.current_since_ns)
            };
            let busy = self.busy.entry(*i).or_default();
            *busy = (*busy).max(p.busy_ns + running);
            let taken = self.taken.entry(*i).or_default();
            *taken = (*taken).max(p.taken_until(now.now_ns));
        }
        let parents = now.names.parents();
        let mut vms = BTreeMap::new();
        for vm in &now.names.vms {
            let key = (vm.pid, vm.started);
            let before = self.vms.get(&key).copied().unwrap_or([0; SUMS]);
            let Some(read) = now.sums.get(&vm.id) else { continue };
            let after: Sums = std::array::from_fn(|i| read[i].max(before[i]));
            let more = [USED, READY, LIMITED].map(|i| after[i] - before[i]);
            for pool in chain(&parents, &vm.pool) {
                let sums = self.pools.entry(pool.to_owned()).or_default();
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
            vms.insert(key, after);
        }
        self.vms = vms;
        let there: BTreeSet<&str> = parents.into_keys().collect();
        self.pools.retain(|path, _| there.contains(path.as_str()));
    }

    /// Sums of a VM.
    pub(super) fn vm(&self, vm: &VmName) -> Option<&Sums> {
        self.vms.get(&(vm.pid, vm.started))
    }

    /// Used, ready and limited time of a pool, in ns.
    pub(super) fn pool(&self, path: &str) -> [u64; 3] {
        self.pools.get(path).copied().unwrap_or_default()
    }

    /// Busy time of a pCPU, in ns.
    pub(super) fn busy(&self, pcpu: usize) -> u64 {
        self.busy.get(&pcpu).copied().unwrap_or_default()
    }

    /// Time that higher scheduling classes took of a pCPU, in ns.
    pub(super) fn taken(&self, pcpu: usize) -> u64 {
        self.taken.get(&pcpu).copied().unwrap_or_default()
    }
}

/// A pool and those above it; of a file that makes a circle, no more than may be.
pub(super) fn chain<'a>(parents: &BTreeMap<&'a str, &'a str>, pool: &'a str) -> Vec<&'a str> {
    let mut out = vec![pool];
    while let Some(parent) = parents.get(out[out.len() - 1]) {
        if out.contains(parent) || out.len() > POOL_DEPTH_MAX {
            break;
        }
        out.push(parent);
    }
    out
}
