//! What the daemon does, in virtual time: lays the tree of pools out for the scheduler, sets up
//! limits, and weighs VMs itself where some may use a few pCPUs only. It follows no VM: `life`
//! does.

use super::Engine;
use crate::clock::Fixed;
use crate::planner::vm_terms;
use contract::{Limits, Plan, Scheduler, VmTerms};
use entitlement::Order;
use publish::Wants;
use settings::{Changed, VmResources};

impl<P: Scheduler> Engine<P> {
    /// Puts the limits of all pools and VMs into force; VMs that are off too, for they stay where
    /// they are.
    pub(super) fn put_limits(&mut self) {
        let (limits, first) = self.planner.limits(&self.cast);
        self.call(|p, k| p.limits(k, &Limits { limits: &limits, first: &first }));
        self.settle(u32::MAX);
    }

    /// A VM or pool has other settings from now on. They are in force with the next `put_limits`
    /// and plan; shares of a VM at once, as on a live host.
    pub(super) fn set(&mut self, change: u32) {
        let (now, change) = (self.kernel.now(), self.planner.change(change));
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
                self.planner.set_pool(p, &new);
                self.books.pools(now, self.planner.pool_terms());
            }
        }
    }

    /// Weights by what is active now, as the daemon makes them where VMs are pinned.
    pub(super) fn replan(&mut self) {
        let (period, now) = (entitlement::REPLAN.ns(), self.kernel.now());
        let host = self.kernel.online();
        let on = self.cast.on();
        let times_of = |v: u32| self.policy.virtual_times(v).unwrap_or_default();
        let vms: Vec<(u32, u64)> = on.iter().map(|v| (*v, times_of(*v).0)).collect();
        let v_ns = times_of(0).1;
        let mut worlds = vec![];
        for v in on {
            let there = |w: &u32| self.kernel.is_there(*w);
            for world in self.cast.vm(v).worlds.clone().filter(there) {
                let times = self.books.times(now, world, self.cast.output(world));
                let allowed = self.allowed(world).unwrap_or_else(|| host.clone());
                worlds.push(Wants {
                    world,
                    vm: v,
                    ran_ns: times.run_ns,
                    waited_ns: times.ready_ns,
                    allowed,
                });
            }
        }
        for order in self.planner.orders(&self.cast, vms, worlds, v_ns) {
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
    pub(super) fn publish(&mut self) {
        let generation = self.planner.next_generation();
        let (tree, vms) = self.planner.tree(&self.cast, false);
        self.call(|p, k| p.plan(k, &Plan { generation, tree: &tree, vms: &vms }));
    }

    /// The settings of a VM that no plan has yet.
    pub(super) fn weigh(&mut self, vm: u32) {
        let generation = self.planner.generation();
        let (tree, vms) = self.planner.tree(&self.cast, false);
        let terms = self.terms(vm);
        let plan = Plan { generation, tree: &tree, vms: &vms };
        self.call(|p, k| p.vm_terms(k, &terms, &plan));
    }

    /// The system group has 1,000 shares for each pCPU on line, where no knob says otherwise.
    pub(super) fn resize_system(&mut self) {
        if let Some(shares) = self.planner.system_shares() {
            let old = self.cast.vm(0).resources;
            self.cast.set(0, VmResources { shares, ..old });
            self.books.vm_terms(self.kernel.now(), 0, vm_terms(self.cast.vm(0)));
        }
        self.weigh(0);
    }

    pub(super) fn plan_later(&mut self) {
        if !self.clock.is_armed(Fixed::Plan) {
            self.clock.arm(Fixed::Plan, self.kernel.now() + self.costs.plan_ns);
        }
    }
}
