//! What each VM and pool is entitled to by settings, and the ideal division that follows from it;
//! it measures nothing.

use entitlement::{Demand, Fluid, TREE_WEIGHT_MAX, Tree, TreeLeaf, TreePool, divide_placed};
use units::Rate;

/// A VM's settings as the oracle needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmTerms {
    /// Index of its pool among those given to `Oracle::pools`; 0 is the root.
    pub pool: usize,
    /// Its shares among its siblings.
    pub shares: u64,
    /// What it gets whenever it asks for as much.
    pub reservation: Rate,
    /// The most it may use, `None` for no limit.
    pub limit: Option<Rate>,
    /// CPU time that it may save up below its limit, in ns.
    pub burst_ns: u64,
}

impl From<u32> for VmTerms {
    /// Shares and nothing else, at the root.
    fn from(shares: u32) -> VmTerms {
        VmTerms {
            pool: 0,
            shares: u64::from(shares),
            reservation: Rate(0),
            limit: None,
            burst_ns: 0,
        }
    }
}

/// A pool's settings as the oracle needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTerms {
    /// Its name in reports.
    pub name: String,
    /// Its place, shares, reservation and limit.
    pub pool: TreePool,
    /// CPU time that it may save up below its limit, in ns.
    pub burst_ns: u64,
}

/// The root of a host without pools.
pub(crate) fn root() -> PoolTerms {
    let pool = TreePool {
        parent: 0,
        shares: 1,
        reservation: Rate(0),
        limit: None,
        expandable: true,
        scalable: false,
    };
    PoolTerms { name: "/".to_owned(), pool, burst_ns: 0 }
}

/// The tree of a host; its leaves are the VMs in the order given. A stopped VM has no weight for
/// the pools above it. The one at `first` comes before all others.
pub(crate) fn tree(
    pcpus: u64,
    pools: &[PoolTerms],
    vms: impl Iterator<Item = (VmTerms, bool)>,
    first: Option<usize>,
) -> Tree {
    let scalable = pools.iter().any(|p| p.pool.scalable);
    let leaf = |(t, gone): (VmTerms, bool)| TreeLeaf {
        pool: t.pool,
        shares: if gone && scalable { 1 } else { t.shares },
        reservation: t.reservation,
        limit: t.limit,
        vcpus: u32::MAX, // what its worlds ask for says it better
    };
    let pools = || pools.iter().map(|p| p.pool.clone()).collect();
    let mut leaves: Vec<TreeLeaf> = vms.map(leaf).collect();
    if let Some(i) = first {
        leaves[i].shares = TREE_WEIGHT_MAX;
        // Where there are shares alone, these are enough: no VM's come near.
        if !Tree::new(pcpus, pools(), leaves.clone()).is_flat() {
            leaves[i].reservation = Rate::pcpus(pcpus);
        }
    }
    Tree::new(pcpus, pools(), leaves)
}

/// The ideal division among the VMs of a window.
pub(crate) struct Ideal<'a> {
    pub(crate) fluid: &'a Fluid,
    pub(crate) tree: &'a Tree,
    /// Leaf of each VM of the window, by position.
    pub(crate) leaves: &'a [u32],
}

impl Ideal<'_> {
    /// What each gets of `one` units a pCPU, by position.
    pub(crate) fn divide(&self, one: u64, demands: &[Demand]) -> Vec<u64> {
        divide_placed(self.tree, self.fluid, one, self.leaves, demands)
    }
}
