//! Turns a planner's tree into the nodes of a plan as the scheduler takes them; it plans nothing.

use crate::{NODE_EXPANDABLE, Node};
use entitlement::{Owner, Tree};

/// The nodes of a plan as the scheduler takes them, the root first; leaf `i` of the tree is VM
/// `vms[i]`.
///
/// # Panics
/// If there is a leaf without a VM.
#[must_use]
pub fn plan_nodes(tree: &Tree, vms: &[u32]) -> Vec<Node> {
    let node = |n: entitlement::PlanNode| Node {
        shares: n.shares,
        reservation: n.reservation.0,
        sure: n.sure.0,
        cap: n.cap.0,
        first: n.first,
        count: n.count,
        parent: n.parent,
        vm: if let Owner::Leaf(i) = n.owner { vms[i] + 1 } else { 0 },
        flags: if n.expandable { NODE_EXPANDABLE } else { 0 },
        ..Node::ZERO
    };
    tree.nodes().into_iter().map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use entitlement::{TreeLeaf, TreePool};
    use units::Rate;

    #[test]
    fn a_leaf_names_its_vm_and_every_number_of_the_plan_arrives() {
        let pool = |parent, expandable| TreePool {
            parent,
            shares: 4000,
            reservation: Rate(7),
            limit: None,
            expandable,
            scalable: false,
        };
        let leaf =
            TreeLeaf { pool: 1, shares: 300, reservation: Rate(5), limit: Some(Rate(9)), vcpus: 2 };
        let nodes =
            plan_nodes(&Tree::new(2, vec![pool(0, false), pool(0, true)], vec![leaf]), &[41]);
        let seen: Vec<_> = nodes
            .iter()
            .map(|n| {
                (n.shares, n.reservation, n.sure, n.cap, n.first, n.count, n.parent, n.vm, n.flags)
            })
            .collect();
        // The root's own reservation is not looked at; the pool may use what its VM may, and can be
        // sure of all of that.
        assert_eq!(
            seen[1..],
            [(4000, 7, 7, 9, 2, 1, 0, 0, NODE_EXPANDABLE), (300, 5, 5, 9, 3, 0, 1, 42, 0)]
        );
        assert_eq!((nodes.len(), nodes[0].cap, nodes[0].count), (3, 2 << 20, 1));
    }
}
