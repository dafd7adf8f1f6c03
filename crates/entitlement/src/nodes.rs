//! Lays a tree out for the scheduler: nodes breadth first, so that children are neighbours, and the
//! limits above each VM. It divides nothing.
//!
//! Example: pool 1 with two VMs in it, and a third VM beside it, are nodes 0 (root), 1 (pool 1), 2
//! (third VM), 3 and 4.

use crate::Tree;
use units::Rate;

/// One node, as the scheduler's `struct node` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanNode {
    /// Weight among its siblings.
    pub shares: u64,
    /// What is reserved for it.
    pub reservation: Rate,
    /// Guaranteed part of the host if all want all they can use: its reservation or, of an
    /// expandable pool, those below.
    pub sure: Rate,
    /// The most it may use: limit, vCPUs or what is below it, the host.
    pub cap: Rate,
    /// First of its children, a position in the list.
    pub first: u32,
    /// Number of its children.
    pub count: u32,
    /// Position of its parent; the root's is its own.
    pub parent: u32,
    /// What it is.
    pub owner: Owner,
    /// A pool that borrows from its parent what its children reserve.
    pub expandable: bool,
}

/// A pool or a leaf, by its index in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A pool.
    Pool(usize),
    /// A leaf.
    Leaf(usize),
}

/// One limit of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimit {
    /// Whose it is.
    pub owner: Owner,
    /// CPU time that may be used.
    pub rate: Rate,
    /// The nearest limit above it, a position in the list.
    pub parent: Option<usize>,
}

/// All limits of a tree, those above before those below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanLimits {
    /// The limits.
    pub limits: Vec<PlanLimit>,
    /// The first limit above each leaf, its own included: a position in the list.
    pub first: Vec<Option<usize>>,
}

impl Tree {
    /// The nodes, the root first.
    #[must_use]
    pub fn nodes(&self) -> Vec<PlanNode> {
        let pools = self.pools().len();
        let claims = self.claims(Rate::ONE.0, None);
        let weights = self.weights();
        let mut order = vec![0usize];
        let mut out: Vec<PlanNode> = vec![];
        let mut parents = vec![0u32];
        let mut at = 0;
        while at < order.len() {
            let node = order[at];
            let children = if node < pools { self.children(node) } else { &[] };
            let first = order.len() as u32;
            order.extend(children);
            parents.extend(children.iter().map(|_| at as u32));
            let (owner, shares, reservation, expandable) = match node.checked_sub(pools) {
                Some(leaf) => (
                    Owner::Leaf(leaf),
                    weights.leaves[leaf],
                    self.leaves()[leaf].reservation,
                    false,
                ),
                None => (
                    Owner::Pool(node),
                    weights.pools[node],
                    self.pools()[node].reservation,
                    self.pools()[node].expandable,
                ),
            };
            let cap = if node == 0 { self.capacity(Rate::ONE.0) } else { claims[node].cap };
            let sure = Rate(claims[node].floor);
            let (parent, count) = (parents[at], children.len() as u32);
            out.push(PlanNode {
                shares,
                reservation,
                sure,
                cap: Rate(cap),
                first,
                count,
                parent,
                owner,
                expandable,
            });
            at += 1;
        }
        out
    }

    /// The limits, and which one each leaf meets first.
    #[must_use]
    pub fn limits(&self) -> PlanLimits {
        let mut limits: Vec<PlanLimit> = vec![];
        let mut above: Vec<Option<usize>> = vec![None; self.pools().len()];
        for (p, pool) in self.pools().iter().enumerate().skip(1) {
            let parent = above[pool.parent];
            above[p] = parent;
            if let Some(rate) = pool.limit {
                above[p] = Some(limits.len());
                limits.push(PlanLimit { owner: Owner::Pool(p), rate, parent });
            }
        }
        let mut first = vec![];
        for (i, leaf) in self.leaves().iter().enumerate() {
            let parent = above[leaf.pool];
            first.push(leaf.limit.map_or(parent, |_| Some(limits.len())));
            limits.extend(leaf.limit.map(|rate| PlanLimit { owner: Owner::Leaf(i), rate, parent }));
        }
        PlanLimits { limits, first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TreeLeaf, TreePool};

    fn pool(parent: usize, limit: Option<u64>) -> TreePool {
        TreePool {
            parent,
            shares: 4000,
            reservation: Rate(0),
            limit: limit.map(Rate::pcpus),
            expandable: true,
            scalable: false,
        }
    }

    fn vm(pool: usize, limit: Option<u64>) -> TreeLeaf {
        TreeLeaf {
            pool,
            shares: 1000,
            reservation: Rate::ONE,
            limit: limit.map(Rate::pcpus),
            vcpus: 2,
        }
    }

    #[test]
    fn children_are_neighbours_and_parents_come_first() {
        let pools = vec![pool(0, None), pool(0, Some(3)), pool(1, None), pool(0, None)];
        let tree = Tree::new(8, pools, vec![vm(2, None), vm(1, None), vm(0, Some(1)), vm(2, None)]);
        let seen: Vec<_> = tree
            .nodes()
            .iter()
            .map(|n| (n.owner, n.parent, n.first, n.count, n.cap.0 >> Rate::SHIFT))
            .collect();
        use Owner::{Leaf, Pool};
        assert_eq!(
            seen,
            [
                (Pool(0), 0, 1, 3, 8),
                (Pool(1), 0, 4, 2, 3),
                (Pool(3), 0, 6, 0, 0),
                (Leaf(2), 0, 6, 0, 1),
                (Pool(2), 1, 6, 2, 4),
                (Leaf(1), 1, 8, 0, 2),
                (Leaf(0), 4, 8, 0, 2),
                (Leaf(3), 4, 8, 0, 2),
            ]
        );
    }

    #[test]
    fn a_leaf_meets_its_own_limit_first_and_then_those_above() {
        let pools =
            vec![pool(0, None), pool(0, Some(4)), pool(1, None), pool(2, Some(2)), pool(0, None)];
        let tree = Tree::new(8, pools, vec![vm(3, Some(1)), vm(2, None), vm(4, None)]);
        let limits = tree.limits();
        let seen: Vec<_> =
            limits.limits.iter().map(|l| (l.owner, l.rate.0 >> Rate::SHIFT, l.parent)).collect();
        assert_eq!(
            seen,
            [(Owner::Pool(1), 4, None), (Owner::Pool(3), 2, Some(0)), (Owner::Leaf(0), 1, Some(1))]
        );
        assert_eq!(limits.first, [Some(2), Some(0), None]);
    }
}
