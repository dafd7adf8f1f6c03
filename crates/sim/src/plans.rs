//! What the daemon does, in virtual time: lays the tree of pools out for the scheduler, sets up
//! limits, and weighs VMs itself where some are held to a few pCPUs. It follows no VM: `life` does.

use crate::engine::{Engine, Fixed};
use crate::kernel::Seat;
use crate::life::VmSeat;
use crate::mutant::Mutant;
use check::{PoolTerms, VmTerms};
use entitlement::{Order, Tree, TreeLeaf, TreePool};
use publish::{Limits, Owner, Wants, Weigher, wanted};
use sched_core::plan_nodes;
use settings::{Changed, PlacedPool};
use units::{PcpuSet, Rate};

/// What the daemon remembers between two plans, and the settings that are to change.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    limits: Limits<u32>,
    weigher: Weigher,
    changes: Vec<settings::Change>,
}

impl Publisher {
    /// A publisher of settings that change so.
    pub(crate) fn new(changes: Vec<settings::Change>) -> Publisher {
        Publisher { changes, ..Publisher::default() }
    }
}

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

    /// Puts the limits of all pools and VMs into force; VMs that are off too, for they stay where
    /// they are.
    pub(crate) fn put_limits(&mut self) {
        let (tree, vms) = self.tree(true);
        let (wanted, first) = wanted(&tree, |owner| match owner {
            entitlement::Owner::Pool(p) => {
                (Owner::Pool(self.pools[p].path.clone()), self.pools[p].burst_ns)
            }
            entitlement::Owner::Leaf(l) => {
                (Owner::Vm(vms[l]), self.vms[vms[l] as usize].resources.burst_ns)
            }
        });
        let first: Vec<(u32, Option<usize>)> = vms.into_iter().zip(first).collect();
        let limits = &mut self.publisher.limits;
        limits.sweep(&self.host);
        // The settings hold their number to the table; where limits that end still fill it, the
        // oracle sees what the refused ones let pass.
        let _refused = limits.set(&mut self.host, &wanted, &first);
        let slot = Self::fixed(Fixed::Limits);
        if self.host.record().limiters > 0 && self.timers.armed(slot).is_none() {
            self.timers.arm(slot, self.kernel.now + 1_000_000);
        }
    }

    /// A VM or pool has other settings from now on. They are in force with the next `put_limits`
    /// and plan; shares of a VM at once, as on a live host.
    pub(crate) fn set(&mut self, change: u32) {
        let (now, change) = (self.kernel.now, self.publisher.changes[change as usize]);
        let new = change.resources;
        match change.of {
            Changed::Vm(i) => {
                let (vm, seat) = (i as u32 + 1, &mut self.vms[i + 1]);
                let old = std::mem::replace(&mut seat.resources, new);
                if seat.is_there() {
                    self.watch.vm_terms(now, vm, vm_terms(seat));
                }
                if seat.on && old.shares != new.shares {
                    self.weigh(vm);
                }
            }
            Changed::Pool(p) => {
                let pool = &mut self.pools[p];
                (pool.shares, pool.reservation) = (new.shares, new.reservation);
                (pool.limit, pool.burst_ns) = (new.limit, new.burst_ns);
                self.watch.pools(now, pool_terms(&self.pools));
            }
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
        let vms: Vec<(u32, u64)> = on.iter().map(|v| (*v, self.host.vm(*v).vt_ns)).collect();
        let mut worlds = vec![];
        for v in on {
            let there = |w: &u32| self.kernel.seats[*w as usize] != Seat::Off;
            for world in self.vms[v as usize].worlds.clone().filter(there) {
                let times = self.times(world);
                let set = self.specs[world as usize].allowed.as_ref();
                let allowed = set.map_or_else(|| host.clone(), |a| a.and(&host));
                worlds.push(Wants {
                    world,
                    vm: v,
                    wanted_ns: times.run_ns + times.ready_ns,
                    allowed,
                });
            }
        }
        let v_ns = self.host.record().v_ns;
        for order in self.publisher.weigher.plan(&host, &tree, vms, worlds, period, v_ns) {
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
