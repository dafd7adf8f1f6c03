//! Cgroups of pools and VMs, and their weights by shares; it schedules nothing.
//!
//! *Law*: each pool and each VM is a cgroup in that of its pool, a VM's threads are in its own, and
//! host tasks are in the root. `cpu.weight` is the shares, as libvirt writes `<shares>`, or in
//! their proportion where the largest of the siblings exceeds 10,000. So a VM of 100 shares weighs
//! as much as a host task of nice 0.
//!
//! *Limits*: of a pool whose shares grow with what it holds (`scalable`), the shares are as
//! written.

use super::Linux;
use super::limits::Bandwidth;
use super::terms::{cpu_weight, load_weight};
use contract::Plan;

/// A cgroup; 0 is the root, then the pools by their numbers, then the VMs.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) parent: usize,
    /// Weight of its shares, all pCPUs together.
    pub(super) weight: u64,
    /// Load of its run queues, as of their last reports.
    pub(super) load: u64,
    /// Worlds that are runnable in it, as its run queues reported last.
    pub(super) worlds: u64,
    pub(super) limit: Option<Bandwidth>,
    /// Where in each 100 ms a period of its limit begins, once it has had one.
    pub(super) phase_ns: Option<u64>,
}

impl Linux {
    /// Cgroup of a VM; that of the system group is the root.
    pub(super) fn group_of_vm(&self, vm: u32) -> usize {
        if vm == 0 { 0 } else { self.pools + vm as usize }
    }

    /// Pools and VMs have these settings from now on.
    pub(super) fn set_groups(&mut self, now_ns: u64, plan: &Plan<'_>) {
        let pools = plan.tree.pools().iter().enumerate().skip(1);
        let pools = pools.map(|(group, p)| (group, p.parent, p.shares));
        let vms = plan.vms.iter().zip(plan.tree.leaves()).filter(|(vm, _)| **vm != 0);
        let vms = vms.map(|(vm, leaf)| (self.group_of_vm(*vm), leaf.pool, leaf.shares));
        let all: Vec<(usize, usize, u64)> = pools.chain(vms).collect();
        for (group, parent, shares) in &all {
            let siblings = all.iter().filter(|(_, p, _)| p == parent);
            let largest = siblings.map(|(_, _, shares)| *shares).max().unwrap_or(0);
            self.groups[*group].weight = load_weight(cpu_weight(*shares, largest));
            self.put_below(*group, *parent);
        }
        for (group, _, _) in all {
            for pcpu in 0..self.pcpus.len() as u32 {
                let rq = self.rq_of(group, pcpu);
                if let Some(owner) = self.owner(rq).filter(|id| self.entities[*id].on_rq) {
                    self.charge(now_ns, pcpu);
                    self.weigh(now_ns, owner);
                }
            }
        }
    }

    /// A cgroup is in another from now on; none is moved while it has worlds.
    fn put_below(&mut self, group: usize, parent: usize) {
        if std::mem::replace(&mut self.groups[group].parent, parent) == parent {
            return;
        }
        for pcpu in 0..self.pcpus.len() as u32 {
            if let Some(owner) = self.owner(self.rq_of(group, pcpu)) {
                self.entities[owner].rq = self.rq_of(parent, pcpu);
            }
        }
    }
}
