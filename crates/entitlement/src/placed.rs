//! Divides the host down a tree of pools where VMs may also be pinned to some of the pCPUs: the
//! ideal of the oracle, and of the planner for such hosts. It joins `Tree` and `Fluid`, and solves
//! neither problem again.
//!
//! Promise: without pinned VMs it is `Tree::divide`, exactly. Without pools, reservations and
//! limits it is `Fluid::divide`, exactly. With both, VMs that compete within a few pCPUs divide
//! them by the product of their shares down the tree.
//!
//! Law, with both: the weight of a leaf is its part of the host among the leaves with demand:
//! `Π w ÷ Σ w of its siblings` that want something, down from the root. What it asks for is cut to
//! its limit; below a pool whose limit is used up, to what the tree gives it. Then `Fluid::divide`.
//! A leaf below its reservation is served first, up to it, and the rest is divided again, until no
//! leaf is short that need not be. What a leaf below such a pool cannot get where it is pinned is
//! its siblings': it counts as not asked for, and the tree divides again.
//!
//! Units: `one` units are one pCPU, as in `Tree`.
//!
//! Example: A (1000 shares) and B (3000) are pinned to pCPUs 0-1, each in a pool of its own of 4000
//! shares; C (1000) is unrestricted on 8. A and B compete as equals, because their pools do:
//! ```
//! use entitlement::{Demand, Fluid, Tree, TreeLeaf, TreePool, divide_placed};
//! use units::{PcpuSet, Rate};
//! let (reservation, limit) = (Rate(0), None);
//! let pool =
//!     TreePool { parent: 0, shares: 4000, reservation, limit, expandable: true, scalable: false };
//! let vm = |pool, shares| TreeLeaf { pool, shares, reservation, limit, vcpus: 8 };
//! let leaves = vec![vm(1, 1000), vm(2, 3000), vm(0, 1000)];
//! let tree = Tree::new(8, vec![pool.clone(), pool.clone(), pool], leaves);
//! let fluid = Fluid::new(&PcpuSet::first(8), &[PcpuSet::first(8), PcpuSet::first(2)]);
//! let ask = |set, n| Demand { weight: 0, classes: [(set, n)].into_iter().collect() };
//! let asked = [ask(1, 20), ask(1, 20), ask(0, 80)];
//! assert_eq!(divide_placed(&tree, &fluid, 10, &[0, 1, 2], &asked), [10, 10, 60]);
//! ```
//!
//! Where VMs below a pool with a limit get more together than that, for those that they compete
//! with elsewhere may not run there, each is capped to what the tree gives it of the limit
//! if it wants what it got, and the host is divided again.
//!
//! Known weakness: of its part, what a pinned leaf cannot use is divided among all by weight, not
//! among its siblings first. A pool's reservation is met as far as its VMs are unrestricted; ESXi's
//! admission control ignores affinity too ("a pinned VM may not receive its reservation", Resource
//! Management 6.0).

use crate::{Classes, Demand, Division, Fluid, Tree, TreeLeaf};

/// Parts of the host have so many fraction bits; their sum stays far below what `Fluid` allows.
const PART_BITS: u32 = 52;
/// Divisions of the tree, each with what the last one has shown that pinned leaves cannot get; two
/// where one VM is pinned.
const ROUNDS: u32 = 8;
/// A leaf is short by rounding that gets less than it asks for by a unit and this part of it, in
/// bits.
const ROUNDED: u32 = 10;
/// The weight of one that must come first.
const FIRST: u64 = 1 << 60;

/// Divides the host, `one` units for each pCPU, among the leaves that want something: for each of
/// them, by its index in the tree, what its classes want. The demand's own weight is not looked at.
///
/// # Panics
/// Beyond the limits of `Tree` and `Fluid`.
#[must_use]
pub fn divide_placed(
    tree: &Tree,
    fluid: &Fluid,
    one: u64,
    leaves: &[u32],
    demands: &[Demand],
) -> Vec<u64> {
    let asked = || leaves.iter().map(|leaf| *leaf as usize).zip(demands);
    if tree.is_flat() {
        let weighed = |(leaf, d): (usize, &Demand)| Demand {
            weight: tree.leaves()[leaf].shares.max(1),
            classes: d.classes.clone(),
        };
        return fluid.divide(one, &asked().map(weighed).collect::<Vec<_>>());
    }
    let mut wants = vec![0u64; tree.leaves().len()];
    for (leaf, d) in asked() {
        wants[leaf] = wants[leaf].saturating_add(d.total());
    }
    if fluid.all_whole(demands) {
        let division = tree.divide(one, &wants);
        return leaves.iter().map(|leaf| division.leaves[*leaf as usize]).collect();
    }
    let parts = tree.parts(&wants);
    let mut rounds = 0..ROUNDS;
    let mut caps = vec![u64::MAX; wants.len()];
    loop {
        let division = tree.divide(one, &wants);
        let most = |caps: &[u64], leaf: usize| {
            let (most, below) = tree.most(one, leaf, &division);
            (most.min(caps[leaf]), below)
        };
        let capped = |leaf| most(&caps, leaf);
        let got = held(tree, fluid, one, (leaves, demands), &wants, (&parts, &capped));
        // What others get of it beyond their limits says nothing of what a leaf cannot get.
        if tree.cap(one, leaves, &got, &mut caps) && rounds.next().is_some() {
            continue;
        }
        let mut again = false;
        for ((leaf, _), x) in asked().zip(&got) {
            let (most, below) = most(&caps, leaf);
            let asked = wants[leaf].min(most);
            if below && asked - x.min(&asked) > (asked >> ROUNDED) + 1 {
                (wants[leaf], again) = (*x, true);
            }
        }
        if !again || rounds.next().is_none() {
            return asked().zip(got).map(|((leaf, _), x)| x.min(caps[leaf])).collect();
        }
    }
}

/// The law above where some are held.
fn held(
    tree: &Tree,
    fluid: &Fluid,
    one: u64,
    (leaves, demands): (&[u32], &[Demand]),
    wants: &[u64],
    (parts, most): (&[u64], &dyn Fn(usize) -> (u64, bool)),
) -> Vec<u64> {
    let asked = || leaves.iter().map(|leaf| *leaf as usize).zip(demands);
    let mut cut: Vec<Demand> = asked()
        .map(|(leaf, d)| Demand { weight: parts[leaf].max(1), classes: shrunk(d, most(leaf).0) })
        .collect();
    let reserved = |leaf: usize| tree.reserved(one, leaf).min(wants[leaf]);
    loop {
        let got = fluid.divide(one, &cut);
        let mut more = false;
        for ((d, (leaf, _)), x) in cut.iter_mut().zip(asked()).zip(&got) {
            if d.weight != FIRST && *x < reserved(leaf) {
                *d = Demand { weight: FIRST, classes: shrunk(d, reserved(leaf)) };
                more = true;
            }
        }
        // Weights of several at FIRST would sum to more than Fluid allows.
        if !more || cut.iter().filter(|d| d.weight == FIRST).count() > 8 {
            return got;
        }
    }
}

/// The same classes, together at most `most`: each cut in proportion, rounded down.
fn shrunk(d: &Demand, most: u64) -> Classes {
    let all = d.total();
    if all <= most {
        return d.classes.clone();
    }
    d.classes
        .iter()
        .map(|c| (c.0, (u128::from(c.1) * u128::from(most) / u128::from(all)) as u64))
        .collect()
}

impl TreeLeaf {
    /// Whether it has nothing but shares, at the root.
    pub(crate) fn is_plain(&self) -> bool {
        self.pool == 0 && self.reservation.0 == 0 && self.limit.is_none()
    }
}

impl Tree {
    /// Whether there is nothing but shares, all compared with each other.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        self.flat
    }

    /// Part of the host of each leaf among those that want something, of 2^52; 0 for those that do
    /// not.
    #[must_use]
    pub fn parts(&self, wants: &[u64]) -> Vec<u64> {
        let weights = self.weights();
        let pools = self.pools().len();
        let mut active = vec![false; pools];
        for (leaf, _) in self.leaves().iter().zip(wants).filter(|(_, want)| **want > 0) {
            let mut p = leaf.pool;
            while !std::mem::replace(&mut active[p], true) && p > 0 {
                p = self.pools()[p].parent;
            }
        }
        let weight = |node: usize| {
            if node < pools { weights.pools[node] } else { weights.leaves[node - pools] }
        };
        let awake = |node: usize| if node < pools { active[node] } else { wants[node - pools] > 0 };
        let mut part = vec![0u64; pools + self.leaves().len()];
        part[0] = 1 << PART_BITS;
        for p in 0..pools {
            let sum: u128 = self
                .children(p)
                .iter()
                .filter(|c| awake(**c))
                .map(|c| u128::from(weight(*c)))
                .sum();
            for c in self.children(p).iter().filter(|c| awake(**c)) {
                part[*c] = (u128::from(part[p]) * u128::from(weight(*c)) / sum.max(1)) as u64;
            }
        }
        part.split_off(pools)
    }

    /// What is reserved for a leaf itself, in units.
    fn reserved(&self, one: u64, leaf: usize) -> u64 {
        self.units(self.leaves()[leaf].reservation, one)
    }

    /// Caps leaves below pools whose limits they pass together with what they got: to what the tree
    /// gives those that want so much. Whether there are any.
    fn cap(&self, one: u64, leaves: &[u32], got: &[u64], caps: &mut [u64]) -> bool {
        if self.pools().iter().all(|p| p.limit.is_none()) {
            return false;
        }
        let (mut used, mut wants) = (vec![0; self.pools().len()], vec![0; self.leaves().len()]);
        for (leaf, x) in leaves.iter().zip(got) {
            wants[*leaf as usize] = *x;
            self.pools_above(*leaf as usize).for_each(|p| used[p] += x);
        }
        let over = |p: usize| {
            let limit = self.pools()[p].limit.map_or(u64::MAX, |l| self.units(l, one));
            used[p] > limit.saturating_add(limit >> ROUNDED).saturating_add(1)
        };
        let below = |leaf: &u32| self.pools_above(*leaf as usize).any(over);
        if !leaves.iter().any(below) {
            return false;
        }
        let fits = self.divide(one, &wants).leaves;
        let mut some = false;
        for leaf in leaves.iter().filter(|leaf| below(leaf)).map(|leaf| *leaf as usize) {
            if fits[leaf] < wants[leaf] {
                (caps[leaf], some) = (fits[leaf], true);
            }
        }
        some
    }

    /// Pools above a leaf, the lowest first, but the root.
    pub(crate) fn pools_above(&self, leaf: usize) -> impl Iterator<Item = usize> + '_ {
        let below_root = |p: usize| Some(p).filter(|p| *p > 0);
        let up = move |p: &usize| below_root(self.pools()[*p].parent);
        std::iter::successors(below_root(self.leaves()[leaf].pool), up)
    }

    /// The most a leaf may get: its own limit, and what the tree gives it below a pool that has
    /// used up its own; and whether it is below such a pool.
    fn most(&self, one: u64, leaf: usize, division: &Division) -> (u64, bool) {
        let vm = &self.leaves()[leaf];
        let mut below = false;
        let mut most = vm.limit.map_or(u64::MAX, |l| self.units(l, one));
        let mut p = vm.pool;
        while p > 0 {
            let pool = &self.pools()[p];
            if pool.limit.is_some_and(|l| division.pools[p] >= self.units(l, one)) {
                most = most.min(division.leaves[leaf]);
                below = true;
            }
            p = pool.parent;
        }
        (most, below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TreePool;
    use units::{PcpuSet, Rate};

    fn pool(shares: u64, limit: Option<u64>) -> TreePool {
        TreePool {
            parent: 0,
            shares,
            reservation: Rate(0),
            limit: limit.map(Rate::pcpus),
            expandable: true,
            scalable: false,
        }
    }

    fn vm(pool: usize, shares: u64) -> TreeLeaf {
        TreeLeaf { pool, shares, reservation: Rate(0), limit: None, vcpus: 8 }
    }

    fn fluid() -> Fluid {
        Fluid::new(&PcpuSet::first(8), &[PcpuSet::first(8), PcpuSet::first(2)])
    }

    fn ask(set: u32, n: u64) -> Demand {
        Demand { weight: 0, classes: [(set, n)].into_iter().collect() }
    }

    #[test]
    fn a_reservation_holds_for_one_that_roams_beside_a_held_one() {
        let sure = TreeLeaf { reservation: Rate::pcpus(6), ..vm(0, 1000) };
        let tree = Tree::new(8, vec![pool(0, None)], vec![sure, vm(0, 9000), vm(0, 9000)]);
        let got =
            divide_placed(&tree, &fluid(), 10, &[0, 1, 2], &[ask(0, 80), ask(1, 20), ask(0, 80)]);
        assert_eq!(got, [60, 10, 10]);
    }

    #[test]
    fn a_pool_that_has_used_up_its_limit_gives_its_members_what_the_tree_says() {
        let tree = Tree::new(
            8,
            vec![pool(0, None), pool(4000, Some(1))],
            vec![vm(1, 1000), vm(1, 1000), vm(0, 1000)],
        );
        let got =
            divide_placed(&tree, &fluid(), 10, &[0, 1, 2], &[ask(1, 20), ask(0, 80), ask(0, 80)]);
        assert_eq!(got, [5, 5, 70]);
    }

    #[test]
    fn what_a_pinned_member_cannot_get_of_a_pools_limit_is_its_siblings() {
        let tree = |shares| {
            let leaves = vec![vm(1, shares), vm(1, 1000), vm(0, 1000)];
            Tree::new(8, vec![pool(0, None), pool(4000, Some(3))], leaves)
        };
        let one = Fluid::new(&PcpuSet::first(8), &[PcpuSet::first(8), PcpuSet::first(1)]);
        // Of 3 pCPUs the first can get one alone, whatever its shares would buy.
        for shares in [20_000, 3000] {
            let asked = [ask(1, 20), ask(0, 80), ask(0, 40)];
            let got = divide_placed(&tree(shares), &one, 10, &[0, 1, 2], &asked);
            assert_eq!(got, [10, 20, 40], "{shares}");
        }
        // It shares it with one of another pool, whose part of the host is as large.
        let leaves = vec![vm(1, 4000), vm(1, 4000), vm(0, 2000)];
        let tree = Tree::new(8, vec![pool(0, None), pool(4000, Some(3))], leaves);
        let asked = [ask(1, 10_000), ask(0, 80_000), ask(1, 10_000)];
        let got = divide_placed(&tree, &one, 10_000, &[0, 1, 2], &asked);
        assert_eq!(got, [5_000, 25_000, 5_000]);
    }

    /// The tree alone gives the pool 2.7 of its 3 pCPUs, but the two at the root may not run where
    /// its first VM does, and that alone would get four.
    #[test]
    fn a_pool_gets_no_more_than_its_limit_where_others_may_not_run() {
        let few = TreeLeaf { limit: Some(Rate(Rate::ONE.0 / 2)), ..vm(1, 1000) };
        let leaves = vec![vm(1, 1000), few, vm(0, 4000), vm(0, 4000)];
        let tree = Tree::new(8, vec![pool(0, None), pool(4000, Some(3))], leaves);
        let host = PcpuSet::first(8);
        let halves = Fluid::new(&host, &["0-3".parse().unwrap(), "4-7".parse().unwrap()]);
        let asked = [ask(0, 400), ask(1, 200), ask(1, 400), ask(1, 400)];
        assert_eq!(divide_placed(&tree, &halves, 100, &[0, 1, 2, 3], &asked), [250, 50, 175, 175]);
    }

    #[test]
    fn a_sleeper_has_no_part_and_a_pool_of_sleepers_neither() {
        let tree = Tree::new(
            8,
            vec![pool(0, None), pool(4000, None), pool(4000, None)],
            vec![vm(1, 1000), vm(1, 3000), vm(2, 1000)],
        );
        let bits = |n: u64| n << (PART_BITS - 3);
        assert_eq!(tree.parts(&[1, 1, 1]), [bits(1), bits(3), bits(4)]);
        assert_eq!(tree.parts(&[1, 0, 1]), [bits(4), 0, bits(4)]);
        assert_eq!(tree.parts(&[1, 1, 0]), [bits(2), bits(6), 0]);
    }
}
