//! Weights of VMs by what is active now, where some VMs are pinned to a few pCPUs; the law is
//! crates/entitlement's (`active_plan`), and reading worlds is the caller's.

use entitlement::{ActiveVm, Meter, Order, Tree, active_plan};
use std::collections::BTreeMap;
use units::{PcpuSet, VmId};

/// What a world has wanted so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wants {
    /// The world, by a number that stays.
    pub world: u32,
    /// Its VM, one of the tree's leaves; worlds of others are left out.
    pub vm: u32,
    /// Time that it has run in all its life, in ns.
    pub ran_ns: u64,
    /// Time that it has waited for a pCPU, in ns; a co-stop counts as sleep.
    pub waited_ns: u64,
    /// pCPUs that it may use, those that are off line among them. The kernel lets a world run
    /// anywhere that may use none of those on line.
    pub allowed: PcpuSet,
}

/// What is remembered between two plans.
#[derive(Clone, Debug, Default)]
pub struct Weigher {
    meter: Meter,
}

impl Weigher {
    /// Weights for the VMs `vms`, each with its virtual time in ns, which are the leaves of `tree`
    /// in this order; `period_ns` after the last plan, on the pCPUs `host`, whose virtual time is
    /// `v_ns`.
    pub fn plan(
        &mut self,
        host: &PcpuSet,
        tree: &Tree,
        vms: impl IntoIterator<Item = (u32, u64)>,
        worlds: impl IntoIterator<Item = Wants>,
        period_ns: u64,
        v_ns: u64,
    ) -> Vec<Order> {
        let active =
            |(id, vt_ns): (u32, u64)| ActiveVm { vm: VmId(id as u16), classes: vec![], vt_ns };
        let mut vms: Vec<ActiveVm> = vms.into_iter().map(active).collect();
        let leaf: BTreeMap<u32, usize> =
            vms.iter().enumerate().map(|(i, v)| (u32::from(v.vm.0), i)).collect();
        self.meter.begin();
        for world in worlds {
            let Some(at) = leaf.get(&world.vm) else { continue };
            let demand = self.meter.demand(world.world, world.ran_ns, world.waited_ns, period_ns);
            let allowed = world.allowed.and(host);
            let allowed = if allowed.is_empty() { host.clone() } else { allowed };
            let classes = &mut vms[*at].classes;
            match classes.iter_mut().find(|c| c.0 == allowed) {
                Some(class) => class.1.0 += demand.0,
                None => classes.push((allowed, demand)),
            }
        }
        active_plan(host, tree, &vms, v_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entitlement::{TreeLeaf, TreePool};
    use units::Rate;

    const MS: u64 = 1_000_000;

    fn tree(pcpus: u64) -> Tree {
        let root = TreePool {
            parent: 0,
            shares: 1,
            reservation: Rate(0),
            limit: None,
            expandable: true,
            scalable: false,
        };
        let leaf =
            |shares| TreeLeaf { pool: 0, shares, reservation: Rate(0), limit: None, vcpus: 2 };
        Tree::new(pcpus, vec![root], vec![leaf(1000), leaf(100), leaf(300)])
    }

    fn world(world: u32, vm: u32, ran_ns: u64, pcpus: &PcpuSet) -> Wants {
        Wants { world, vm, ran_ns, waited_ns: 0, allowed: pcpus.clone() }
    }

    #[test]
    fn vms_of_one_pcpu_are_weighed_by_their_shares_of_it_once_they_have_wanted_it() {
        let (host, one) = (PcpuSet::first(4), PcpuSet::first(1));
        let mut weigher = Weigher::default();
        let vms = [(0, 0), (3, 0), (7, 0)];
        let mut plan = |wanted| {
            let busy = [
                world(1, 3, wanted, &one),
                world(2, 7, wanted, &one),
                // no leaf of the tree
                world(3, 9, wanted, &host),
            ];
            weigher.plan(&host, &tree(4), vms, busy, 100 * MS, 0)
        };
        let mut orders = plan(0);
        for n in 1..40 {
            orders = plan(n * 100 * MS);
        }
        let seen: Vec<(u16, u64)> = orders.iter().map(|o| (o.vm.0, o.weight.0)).collect();
        assert_eq!((seen[1].0, seen[2].0, seen.len()), (3, 7, 3));
        // A quarter and three quarters of the one pCPU.
        assert_eq!((seen[1].1, seen[2].1), (1 << 18, 3 << 18));
        assert!(orders[1].held && orders[2].held && !orders[0].held);
    }

    #[test]
    fn a_world_whose_pcpus_are_all_off_line_is_weighed_as_one_that_may_use_all() {
        let (host, gone) = (PcpuSet::first(4), "6-7".parse::<PcpuSet>().unwrap());
        let mut weigher = Weigher::default();
        let mut plan = |wanted| {
            let busy = [(1, 0), (2, 0), (3, 3), (4, 3), (5, 7), (6, 7)]
                .map(|(w, vm)| world(w, vm, wanted, if vm == 3 { &gone } else { &host }));
            weigher.plan(&host, &tree(4), [(0, 0), (3, 0), (7, 0)], busy, 100 * MS, 0)
        };
        let mut orders = plan(0);
        for n in 1..40 {
            orders = plan(n * 100 * MS);
        }
        // 1,000, 100 and 300 shares of 4 pCPUs, of which the first can use 2.
        let seen: Vec<u64> = orders.iter().map(|o| o.weight.0).collect();
        assert_eq!(seen, [2 << 20, 1 << 19, 3 << 19]);
        assert!(orders.iter().all(|o| !o.held));
    }
}
