//! What the daemon does, in virtual time: lays the tree of pools out for the scheduler, sets up
//! limits, and weighs VMs itself where some are held to a few pCPUs. It follows no VM: `life` does.

use crate::engine::{Engine, Fixed};
use crate::kernel::Seat;
use crate::life::VmSeat;
use crate::mutant::Mutant;
use check::{PoolTerms, VmTerms};
use entitlement::{ActiveVm, Order, Owner, Tree, TreeLeaf, TreePool, active_plan};
use sched_core::{Limiter, plan_nodes};
use settings::PlacedPool;
use units::{PcpuSet, Rate, VmId};

/// The pools of a tree.
fn tree_pools(pools: &[PlacedPool], flat: bool) -> Vec<TreePool> {
    let pool = |p: &PlacedPool| TreePool {
        parent: if flat { 0 } else { p.parent },
        shares: u64::from(p.shares),
        reservation: p.reservation,
        limit: p.limit,
        expandable: p.expandable,
        scalable: p.scalable,
    };
    pools.iter().map(pool).collect()
}

/// Pools as the oracle takes them.
pub(crate) fn pool_terms(pools: &[PlacedPool]) -> Vec<PoolTerms> {
    let term = |(p, pool): (&PlacedPool, TreePool)| PoolTerms {
        name: p.path.clone(),
        pool,
        burst_ns: p.burst_ns,
    };
    pools.iter().zip(tree_pools(pools, false)).map(term).collect()
}

/// A VM as the oracle takes it.
pub(crate) fn vm_terms(vm: &VmSeat) -> VmTerms {
    let r = &vm.resources;
    VmTerms {
        pool: vm.pool,
        shares: u64::from(r.shares),
        reservation: r.reservation,
        limit: r.limit,
        burst_ns: r.burst_ns,
    }
}

impl Engine {
    /// The tree of the VMs that are powered on (or of all), and the VM of each leaf; the system
    /// group is the first.
    pub(crate) fn tree(&self, all: bool) -> (Tree, Vec<u32>) {
        let n = self.kernel.cpus.len();
        let fault = |m| self.kernel.fault.is(m);
        let on: Vec<u32> =
            (0..self.vms.len() as u32).filter(|v| all || self.vms[*v as usize].on).collect();
        let leaf = |v: &u32| {
            let vm = &self.vms[*v as usize];
            let r = &vm.resources;
            TreeLeaf {
                pool: if fault(Mutant::FlatTree) { 0 } else { vm.pool },
                shares: u64::from(r.shares),
                reservation: if fault(Mutant::NoReservation) { Rate(0) } else { r.reservation },
                limit: r.limit,
                vcpus: if *v == 0 {
                    n as u32
                } else {
                    vm.allowed.as_ref().map_or(vm.vcpus, |a| vm.vcpus.min(a.len() as u32))
                },
            }
        };
        let leaves = on.iter().map(leaf).collect();
        (Tree::new(n as u64, tree_pools(&self.pools, fault(Mutant::FlatTree)), leaves), on)
    }

    /// Sets up the limits of all pools and VMs; VMs that are off too, for they stay where they are.
    pub(crate) fn set_limits(&mut self) {
        let (tree, vms) = self.tree(true);
        let all = tree.limits();
        let number = |i: usize| i as u32 + 1; // 0 is none
        for (i, limit) in all.limits.iter().enumerate() {
            let burst_ns = match limit.owner {
                Owner::Pool(p) => self.pools[p].burst_ns,
                Owner::Leaf(l) => self.vms[vms[l] as usize].resources.burst_ns,
            };
            let parent = limit.parent.map_or(0, number);
            *self.host.limiter_mut(number(i)) =
                Limiter { rate: limit.rate.0, burst_ns, parent, ..Limiter::ZERO };
        }
        for (leaf, first) in all.first.iter().enumerate() {
            self.host.vm_mut(vms[leaf]).limiter = first.map_or(0, number);
        }
        if !all.limits.is_empty() {
            self.host.limiters(number(all.limits.len()));
            self.timers.arm(Self::fixed(Fixed::Limits), 1_000_000);
        }
    }

    /// Whether some VM may not use all pCPUs.
    pub(crate) fn any_held(&self) -> bool {
        self.specs.iter().zip(&self.actors).any(|(s, a)| a.vm != 0 && s.allowed.is_some())
    }

    /// Weights by what is active now, as the daemon makes them where VMs are held.
    pub(crate) fn replan(&mut self) {
        let (period, now) = (entitlement::REPLAN.ns(), self.kernel.now);
        let host = PcpuSet::first(self.kernel.cpus.len());
        let (tree, on) = self.tree(false);
        self.meter.begin();
        let mut vms = vec![];
        for v in on {
            let mut classes: Vec<(PcpuSet, Rate)> = vec![];
            for world in self.vms[v as usize]
                .worlds
                .clone()
                .filter(|w| self.kernel.seats[*w as usize] != Seat::Off)
            {
                let times = self.times(world);
                let demand = self.meter.demand(world, times.run_ns + times.ready_ns, period);
                let set = self.specs[world as usize]
                    .allowed
                    .as_ref()
                    .map_or_else(|| host.clone(), |a| a.and(&host));
                match classes.iter_mut().find(|c| c.0 == set) {
                    Some(class) => class.1.0 += demand.0,
                    None => classes.push((set, demand)),
                }
            }
            vms.push(ActiveVm { vm: VmId(v as u16), classes, vt_ns: self.host.vm(v).vt_ns });
        }
        for order in active_plan(&host, &tree, &vms, self.host.record().v_ns) {
            self.order(order);
        }
        self.timers.arm(Self::fixed(Fixed::Replan), now + period);
    }

    fn order(&mut self, order: Order) {
        let seat = &self.vms[order.vm.0 as usize];
        let rate =
            if self.kernel.fault.is(Mutant::EqualWeights) { Rate::ONE } else { order.weight };
        self.stats.calls += 1;
        self.host.vm_plan(
            u32::from(order.vm.0),
            rate.0,
            seat.vcpus,
            seat.resources.shares,
            order.held,
            order.shift_ns,
        );
    }

    /// Puts the tree of the VMs that are powered on now into force.
    pub(crate) fn publish(&mut self) {
        self.generation += 1;
        let (tree, vms) = self.tree(false);
        let nodes = plan_nodes(&tree, &vms);
        self.stats.calls += 1;
        if !self.kernel.fault.is(Mutant::EqualWeights) {
            self.host.plan(&nodes, self.generation);
        }
    }

    /// The weight of a VM that the scheduler has not divided for yet: what it gets if everybody
    /// wants all it can use.
    pub(crate) fn weigh(&mut self, vm: u32) {
        let (tree, vms) = self.tree(false);
        let Some(leaf) = vms.iter().position(|v| *v == vm) else { return };
        let rate = if self.kernel.fault.is(Mutant::EqualWeights) {
            Rate::ONE.0
        } else {
            tree.worst_case().leaves[leaf].max(1)
        };
        let seat = &self.vms[vm as usize];
        self.stats.calls += 1;
        self.host.vm_weight(vm, rate, seat.vcpus, seat.resources.shares);
    }

    pub(crate) fn plan_later(&mut self) {
        let slot = Self::fixed(Fixed::Plan);
        if self.timers.armed(slot).is_none() {
            self.timers.arm(slot, self.kernel.now + self.costs.plan_ns);
        }
    }
}
