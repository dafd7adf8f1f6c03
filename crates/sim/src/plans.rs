//! What the daemon does, in virtual time: lays the tree of pools out for the scheduler, sets up
//! limits, and weighs VMs itself where some are held to a few pCPUs. It follows no VM: `life` does.

use crate::cast::Vm;
use crate::clock::Fixed;
use crate::engine::Engine;
use crate::kernel::Seat;
use check::PoolTerms;
use contract::{Limit, LimitOf, Limits, Plan, Scheduler, VmTerms};
use entitlement::{Order, Owner, Tree, TreeLeaf, TreePool};
use publish::{Wants, Weigher};
use settings::{Changed, PlacedPool};
use units::PcpuSet;

/// What the daemon remembers between two plans, and the settings that are to change.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
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
fn tree_pools(pools: &[PlacedPool]) -> Vec<TreePool> {
    let pool = |p: &PlacedPool| TreePool {
        parent: p.parent,
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
    pools.iter().zip(tree_pools(pools)).map(term).collect()
}

/// A VM as the oracle takes it.
pub(crate) fn vm_terms(vm: &Vm) -> check::VmTerms {
    let r = &vm.resources;
    check::VmTerms {
        pool: vm.pool,
        shares: u64::from(r.shares),
        reservation: r.reservation,
        limit: r.limit,
        burst_ns: r.burst_ns,
    }
}

impl<P: Scheduler> Engine<P> {
    /// The tree of the VMs that are powered on (or of all), and the VM of each leaf; the system
    /// group is the first.
    pub(crate) fn tree(&self, all: bool) -> (Tree, Vec<u32>) {
        let n = self.kernel.cpus.len();
        let on: Vec<u32> =
            (0..).zip(self.cast.vms()).filter(|(_, v)| all || v.is_on()).map(|(i, _)| i).collect();
        let leaf = |v: &u32| {
            let vm = self.cast.vm(*v);
            let r = &vm.resources;
            TreeLeaf {
                pool: vm.pool,
                shares: u64::from(r.shares),
                reservation: r.reservation,
                limit: r.limit,
                vcpus: if *v == 0 {
                    n as u32
                } else {
                    vm.allowed.as_ref().map_or(vm.vcpus, |a| vm.vcpus.min(a.len() as u32))
                },
            }
        };
        let leaves = on.iter().map(leaf).collect();
        (Tree::new(n as u64, tree_pools(&self.pools), leaves), on)
    }

    /// Puts the limits of all pools and VMs into force; VMs that are off too, for they stay where
    /// they are.
    pub(crate) fn put_limits(&mut self) {
        let (tree, vms) = self.tree(true);
        let all = tree.limits();
        let of = |owner| match owner {
            Owner::Pool(p) => (LimitOf::Pool(p as u32), self.pools[p].burst_ns),
            Owner::Leaf(l) => (LimitOf::Vm(vms[l]), self.cast.vm(vms[l]).resources.burst_ns),
        };
        let limit = |l: &entitlement::PlanLimit| {
            let (of, burst_ns) = of(l.owner);
            Limit { of, rate: l.rate, burst_ns, parent: l.parent }
        };
        let limits: Vec<Limit> = all.limits.iter().map(limit).collect();
        let first: Vec<(u32, Option<usize>)> = vms.into_iter().zip(all.first).collect();
        self.call(|p, k| p.limits(k, &Limits { limits: &limits, first: &first }));
        self.settle(u32::MAX);
    }

    /// A VM or pool has other settings from now on. They are in force with the next `put_limits`
    /// and plan; shares of a VM at once, as on a live host.
    pub(crate) fn set(&mut self, change: u32) {
        let (now, change) = (self.kernel.now, self.publisher.changes[change as usize]);
        let new = change.resources;
        match change.of {
            Changed::Vm(i) => {
                let vm = i as u32 + 1;
                let old = self.cast.set(vm, new);
                let of = self.cast.vm(vm);
                if of.is_there() {
                    self.books.vm_terms(now, vm, vm_terms(of));
                }
                if of.is_on() && old.shares != new.shares {
                    self.weigh(vm);
                }
            }
            Changed::Pool(p) => {
                let pool = &mut self.pools[p];
                (pool.shares, pool.reservation) = (new.shares, new.reservation);
                (pool.limit, pool.burst_ns) = (new.limit, new.burst_ns);
                self.books.pools(now, pool_terms(&self.pools));
            }
        }
    }

    /// Weights by what is active now, as the daemon makes them where VMs are held.
    pub(crate) fn replan(&mut self) {
        let (period, now) = (entitlement::REPLAN.ns(), self.kernel.now);
        let host = PcpuSet::first(self.kernel.cpus.len());
        let (tree, on) = self.tree(false);
        let times_of = |v: u32| self.policy.virtual_times(v).unwrap_or_default();
        let vms: Vec<(u32, u64)> = on.iter().map(|v| (*v, times_of(*v).0)).collect();
        let v_ns = times_of(0).1;
        let mut worlds = vec![];
        for v in on {
            let there = |w: &u32| self.kernel.seats[*w as usize] != Seat::Off;
            for world in self.cast.vm(v).worlds.clone().filter(there) {
                let times = self.books.times(now, world, self.cast.work(world));
                let set = self.cast.spec(world).allowed.as_ref();
                let allowed = set.map_or_else(|| host.clone(), |a| a.and(&host));
                worlds.push(Wants {
                    world,
                    vm: v,
                    wanted_ns: times.run_ns + times.ready_ns,
                    allowed,
                });
            }
        }
        for order in self.publisher.weigher.plan(&host, &tree, vms, worlds, period, v_ns) {
            self.order(order);
        }
        self.clock.arm(Fixed::Replan, now + period);
    }

    fn order(&mut self, order: Order) {
        let terms = self.terms(u32::from(order.vm.0));
        self.call(|p, k| p.order(k, &order, &terms));
    }

    fn terms(&self, vm: u32) -> VmTerms {
        let of = self.cast.vm(vm);
        VmTerms { vm, vcpus: of.vcpus, shares: of.resources.shares }
    }

    /// Puts the tree of the VMs that are powered on now into force.
    pub(crate) fn publish(&mut self) {
        self.generation += 1;
        let (generation, (tree, vms)) = (self.generation, self.tree(false));
        self.call(|p, k| p.plan(k, &Plan { generation, tree: &tree, vms: &vms }));
    }

    /// The settings of a VM that no plan has yet.
    pub(crate) fn weigh(&mut self, vm: u32) {
        let (generation, (tree, vms)) = (self.generation, self.tree(false));
        let terms = self.terms(vm);
        let plan = Plan { generation, tree: &tree, vms: &vms };
        self.call(|p, k| p.vm_terms(k, &terms, &plan));
    }

    pub(crate) fn plan_later(&mut self) {
        if !self.clock.is_armed(Fixed::Plan) {
            self.clock.arm(Fixed::Plan, self.kernel.now + self.costs.plan_ns);
        }
    }
}
