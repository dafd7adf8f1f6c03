//! The daemon's part of a run: the tree of pools, the settings that are to change, and what is
//! remembered between two plans. It calls no scheduler: `plans` does.

use crate::cast::{Cast, Vm};
use check::PoolTerms;
use contract::{Limit, LimitOf};
use entitlement::{Order, Owner, Tree, TreeLeaf, TreePool};
use publish::{Takers, Wants, Weigher};
use settings::{Change, PlacedPool, VmResources};
use std::collections::{BTreeMap, BTreeSet};
use units::{PcpuId, PcpuSet};

/// What is planned.
#[derive(Debug)]
pub(crate) struct Planner {
    /// The pools, the root first.
    pools: Vec<PlacedPool>,
    changes: Vec<Change>,
    weigher: Weigher,
    takers: Takers,
    generation: u64,
    /// Whether the scheduler takes orders of the planner.
    ordered: bool,
    /// Those that are on line.
    pcpus: PcpuSet,
    /// Shares of the system group; none: by the number of pCPUs.
    system_shares: Option<u32>,
    /// Core of each pCPU, and thousandths of its CPU time that a world is charged on a shared one.
    core_of: Vec<u32>,
    shared_charge: u64,
}

/// Limits as they are put into force: all of them, and the first that each VM is below.
pub(crate) type AllLimits = (Vec<Limit>, Vec<(u32, Option<usize>)>);

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

impl Planner {
    /// A planner of pools on these pCPUs, and of settings that change so.
    pub(crate) fn new(
        pools: Vec<PlacedPool>,
        changes: Vec<Change>,
        pcpus: PcpuSet,
        system_shares: Option<u32>,
        cores: (Vec<u32>, u64),
    ) -> Planner {
        let (weigher, takers) = (Weigher::default(), Takers::default());
        let (generation, ordered) = (0, false);
        let (core_of, shared_charge) = cores;
        Planner {
            pools,
            changes,
            weigher,
            takers,
            generation,
            ordered,
            pcpus,
            system_shares,
            core_of,
            shared_charge,
        }
    }

    /// These pCPUs are on line from now on.
    pub(crate) fn set_pcpus(&mut self, pcpus: PcpuSet) {
        self.pcpus = pcpus;
    }

    /// Takes note of what each pCPU has lost to real-time tasks in all. Whether there is something
    /// else to divide from now on.
    pub(crate) fn look_at_taken(&mut self, now_ns: u64, lost_ns: BTreeMap<PcpuId, u64>) -> bool {
        self.takers.look(now_ns, lost_ns)
    }

    /// Shares that the system group has by the pCPUs on line; none if it does not go by them.
    pub(crate) fn system_shares(&self) -> Option<u32> {
        self.system_shares.is_none().then(|| 1000 * self.pcpus.len() as u32)
    }

    /// The pools, the root first.
    pub(crate) fn pools(&self) -> &[PlacedPool] {
        &self.pools
    }

    /// Pools as the oracle takes them.
    pub(crate) fn pool_terms(&self) -> Vec<PoolTerms> {
        let term = |(p, pool): (&PlacedPool, TreePool)| PoolTerms {
            name: p.path.clone(),
            pool,
            burst_ns: p.burst_ns,
        };
        self.pools.iter().zip(tree_pools(&self.pools)).map(term).collect()
    }

    /// The tree of the VMs that are powered on (or of all), and the VM of each leaf; the system
    /// group is the first.
    pub(crate) fn tree(&self, cast: &Cast, all: bool) -> (Tree, Vec<u32>) {
        let on = if all { (0..cast.vms().len() as u32).collect() } else { cast.on() };
        let leaf = |v: &u32| {
            let vm = cast.vm(*v);
            let r = &vm.resources;
            TreeLeaf {
                pool: vm.pool,
                shares: u64::from(r.shares),
                reservation: r.reservation,
                limit: r.limit,
                vcpus: if *v == 0 {
                    self.pcpus.len() as u32
                } else {
                    vm.allowed.as_ref().map_or(vm.vcpus, |a| vm.vcpus.min(a.len() as u32))
                },
            }
        };
        let leaves = on.iter().map(leaf).collect();
        let tree = Tree::new(self.pcpus.len() as u64, tree_pools(&self.pools), leaves);
        let cores: BTreeSet<u32> = self.pcpus.iter().map(|p| self.core_of[p.0 as usize]).collect();
        let tree = tree.on_cores(cores.len() as u64, self.shared_charge);
        (tree.without(self.takers.in_force().clone()), on)
    }

    /// The limits of all pools and VMs; of VMs that are off too, for they stay where they are.
    pub(crate) fn limits(&self, cast: &Cast) -> AllLimits {
        let (tree, vms) = self.tree(cast, true);
        let all = tree.limits();
        let of = |owner| match owner {
            Owner::Pool(p) => (LimitOf::Pool(p as u32), self.pools[p].burst_ns),
            Owner::Leaf(l) => (LimitOf::Vm(vms[l]), cast.vm(vms[l]).resources.burst_ns),
        };
        let limit = |l: &entitlement::PlanLimit| {
            let (of, burst_ns) = of(l.owner);
            Limit { of, rate: l.rate, burst_ns, parent: l.parent }
        };
        let limits = all.limits.iter().map(limit).collect();
        (limits, vms.into_iter().zip(all.first).collect())
    }

    /// A change of settings by its number.
    pub(crate) fn change(&self, i: u32) -> Change {
        self.changes[i as usize]
    }

    /// A pool has other settings from now on.
    pub(crate) fn set_pool(&mut self, pool: usize, new: &VmResources) {
        let pool = &mut self.pools[pool];
        (pool.shares, pool.reservation) = (new.shares, new.reservation);
        (pool.limit, pool.burst_ns) = (new.limit, new.burst_ns);
    }

    /// Number of the plan that is in force or about to be.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// A new plan is about to come into force: its number.
    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// The scheduler takes orders, or not.
    pub(crate) fn take_orders(&mut self, ordered: bool) {
        self.ordered = ordered;
    }

    pub(crate) fn gives_orders(&self) -> bool {
        self.ordered
    }

    /// Weights by what is active now: `vms` with their virtual times, `v_ns` the host's, and what
    /// `worlds` want.
    pub(crate) fn orders(
        &mut self,
        cast: &Cast,
        vms: Vec<(u32, u64)>,
        worlds: Vec<Wants>,
        v_ns: u64,
    ) -> Vec<Order> {
        let (tree, _) = self.tree(cast, false);
        self.weigher.plan(&self.pcpus, &tree, vms, worlds, entitlement::REPLAN.ns(), v_ns)
    }
}
