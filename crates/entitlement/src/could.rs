//! The potential entitlement of each pool and VM of a tree, if it asked for all it can use, for the
//! weights of the scheduler; it never changes a division.
//!
//! Promise: the weight of a VM that wants more than it gets is what it gets (`x` of `divide`). The
//! weight of a VM that gets all it asks for is what it would get if it alone asked for more. So the
//! virtual times of competing VMs advance at one rate, and a waking VM starts at about its later
//! weight: not at 0, which its present demand would give. If all get all they ask for, weights are
//! in the ratio of shares, for the moments in which some wait nevertheless.
//!
//! Law: `x`, `f`, `c` and `w` are as in `tree`; `f⁰` and `c⁰` are floor and cap for a host where
//! all want all they can use. All are whole numbers of units, after rounding. `y` of the root is
//! `pcpus·one`; among the children of a pool:
//! - A child is *contended* if `x < c`. It is *open* if it is contended and `f < x`.
//! - `y = x` of a contended child.
//! - Of another, `share = K·w ÷ Σ w` of all children if no sibling is contended, `K` being the
//!   pool's `y`; else `share = (Σ x_open + x)·w ÷ (Σ w_open + w)`, rounded down: the open ones and
//!   it divide the sum of their parts again, by weight.
//! - `y = min(clamp(share, max(f⁰, x), c⁰), y of the pool)`.
//!
//! The children of a pool divide its `y`, and not its `x`. That comes to the same `x`: where the
//! two differ, the pool gets all it asks for and no limit cuts what it asks, so each child has its
//! cap (`x ≤ y ≤ c⁰` throughout).
//!
//! Units: those of `divide`. `y` can be 0, of one that has nothing reserved below siblings that all
//! stand at their floors; a scheduler that divides by it takes at least 1.
//!
//! Example: VMs of 100, 300 and 400 shares on 4 pCPUs, 4 vCPUs each. All busy they get 0.5, 1.5 and
//! 2. When the first sleeps, the others get 1.714 and 2.286, and it still weighs the 0.5 that it
//! would get:
//! ```
//! use entitlement::{Tree, TreeLeaf, TreePool};
//! use units::Rate;
//! let (reservation, limit) = (Rate(0), None);
//! let root =
//!     TreePool { parent: 0, shares: 0, reservation, limit, expandable: true, scalable: false };
//! let vm = |shares| TreeLeaf { pool: 0, shares, reservation, limit, vcpus: 4 };
//! let tree = Tree::new(4, vec![root], vec![vm(100), vm(300), vm(400)]);
//! assert_eq!(tree.could(1000, &[4000, 4000, 4000]).leaves, [500, 1500, 2000]);
//! assert_eq!(tree.could(1000, &[0, 4000, 4000]).leaves, [500, 1714, 2286]);
//! // none wants more than it gets
//! assert_eq!(tree.could(1000, &[0, 0, 4000]).leaves, [500, 1500, 4000]);
//! ```
//!
//! Limits: those of `tree`. Known weakness: the open ones' level stands for all the rest. It is
//! exact while the waking VM would push none onto a floor or below its present demand. The weight
//! of a VM that uses the time of idle others is that time (the last line above), so the first to
//! wake competes with it until the next division.

use crate::{Between, Division, Tree};

impl Tree {
    /// What each pool and leaf could have now, by the law above, in the units of `divide`.
    ///
    /// # Panics
    /// As `divide` does.
    #[must_use]
    pub fn could(&self, one: u64, demands: &[u64]) -> Division {
        let now = self.claims(one, Some(demands));
        let most = self.claims(one, None);
        let x = self.descend(one, &now);
        let mut y = x.clone();
        for p in 0..self.pools().len() {
            let open = Open::of(self.children(p), &now, &x, y[p]);
            for c in self.children(p) {
                if x[*c] >= now[*c].cap {
                    let share = open.share(x[*c], &most[*c]);
                    y[*c] = share.clamp(most[*c].floor.max(x[*c]), most[*c].cap).min(y[p]);
                }
            }
        }
        self.split(y)
    }
}

/// What the children of one pool divide, and by which weights.
enum Open {
    /// No child is contended: all of the pool, by the weights of all.
    All(u64, u128),
    /// What the open children have together, and their weights.
    Contended(u64, u64),
}

impl Open {
    fn of(children: &[usize], now: &[Between], x: &[u64], pool: u64) -> Open {
        let contended: Vec<usize> =
            children.iter().copied().filter(|c| x[*c] < now[*c].cap).collect();
        let open = || contended.iter().filter(|c| now[**c].floor < x[**c]);
        let sums = (open().map(|c| x[*c]).sum(), open().map(|c| now[*c].weight).sum());
        if contended.is_empty() {
            return Open::All(pool, children.iter().map(|c| u128::from(now[*c].weight)).sum());
        }
        Open::Contended(sums.0, sums.1)
    }

    /// The share of one that has `x` now if it divided that and theirs with them.
    fn share(&self, x: u64, most: &Between) -> u64 {
        let (amount, weights) = match *self {
            Open::All(pool, weights) => (pool, weights),
            Open::Contended(open, weight) => {
                (open + x, u128::from(weight) + u128::from(most.weight))
            }
        };
        (u128::from(amount) * u128::from(most.weight) / weights) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TreeLeaf, TreePool};
    use units::Rate;

    fn pool(parent: usize, shares: u64) -> TreePool {
        TreePool {
            parent,
            shares,
            reservation: Rate(0),
            limit: None,
            expandable: true,
            scalable: false,
        }
    }

    fn vm(pool: usize, shares: u64, vcpus: u32) -> TreeLeaf {
        TreeLeaf { pool, shares, reservation: Rate(0), limit: None, vcpus }
    }

    #[test]
    fn a_sleeper_in_a_busy_pool_could_have_its_part_of_the_pool() {
        // /gold has 6 of 8 pCPUs; its second VM sleeps, and would have 2 of the 6.
        let leaves = vec![vm(1, 2000, 8), vm(1, 2000, 8), vm(1, 2000, 8), vm(2, 1000, 8)];
        let tree = Tree::new(8, vec![pool(0, 0), pool(0, 3000), pool(0, 1000)], leaves);
        let y = tree.could(10, &[80, 80, 0, 80]);
        assert_eq!(y, Division { pools: vec![80, 60, 20], leaves: vec![30, 30, 20, 20] });
    }

    #[test]
    fn the_vms_of_a_sleeping_pool_could_have_what_the_pool_could() {
        // /gold would have 6 of 8, which its two VMs divide by shares.
        let leaves = vec![vm(1, 2000, 8), vm(1, 1000, 2), vm(2, 1000, 8), vm(2, 1000, 8)];
        let tree = Tree::new(8, vec![pool(0, 0), pool(0, 3000), pool(0, 1000)], leaves);
        let y = tree.could(10, &[0, 0, 80, 80]);
        assert_eq!(y, Division { pools: vec![80, 60, 80], leaves: vec![40, 20, 40, 40] });
    }

    #[test]
    fn a_sleeper_could_have_at_least_its_reservation_and_at_most_its_limit() {
        let held = TreeLeaf { limit: Some(Rate(Rate::ONE.0 / 2)), ..vm(0, 9000, 4) };
        let sure = TreeLeaf { reservation: Rate::pcpus(3), ..vm(0, 1000, 4) };
        let tree = Tree::new(4, vec![pool(0, 0)], vec![held, sure, vm(0, 1000, 4), vm(0, 2000, 4)]);
        assert_eq!(tree.could(30, &[0, 0, 120, 120]).leaves, [15, 90, 40, 80]);
    }

    #[test]
    fn one_that_has_all_it_asks_for_brings_that_into_the_division() {
        // It has 0.5 now; all three together have 4, and it could have an eighth of them.
        let tree =
            Tree::new(4, vec![pool(0, 0)], vec![vm(0, 100, 4), vm(0, 300, 4), vm(0, 400, 4)]);
        assert_eq!(tree.could(1000, &[200, 4000, 4000]).leaves, [500, 1629, 2171]);
    }

    #[test]
    fn siblings_at_their_floors_give_nothing_up() {
        let sure = TreeLeaf { reservation: Rate::pcpus(2), ..vm(0, 1000, 4) };
        let tree = Tree::new(4, vec![pool(0, 0)], vec![sure.clone(), sure, vm(0, 1000, 4)]);
        assert_eq!(tree.could(10, &[40, 40, 0]).leaves, [20, 20, 0]);
    }
}
