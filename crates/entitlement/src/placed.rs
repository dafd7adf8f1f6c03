//! Divides the host down a tree of pools where VMs may also be pinned to some of the pCPUs: the
//! ideal of the oracle, and of the planner for such hosts. It joins `Tree` and `Fluid`, and solves
//! neither problem again.
//!
//! Promise: without pinned VMs it is `Tree::divide`, exactly. Without pools, reservations and
//! limits it is `Fluid::divide`, exactly. With both, what the tree gives holds as far as it can be
//! placed: pools keep their parts and reservations, and what a VM does not use is its siblings'
//! first.
//!
//! Law, with both: the tree divides the host. If that can flow to the pCPUs that the leaves may
//! use, it is the result. If not, `Fluid::divide`, at most as much to each as the tree gives it,
//! says what those get that compete for too few pCPUs. Of these a leaf below what is sure to it
//! comes first, up to that. One that gets less than the tree gives it is *short*: it counts as
//! asking for what it got, so that the rest is its siblings', and the tree divides again, until
//! none is short.
//! - The weight of a leaf is its *potential*. `K` being all of the host for the root, and for
//!   another pool its own potential, that of a child which wants more than it gets of `K` by
//!   weight alone is what it gets; of another, what it would get if it asked for more. Neither
//!   reservations nor the pool's own limit have a part in it.
//! - *Sure* is its part of what is reserved, down the tree: of a pool its floor.
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
//! Known weakness: in an uncommon case a leaf that was short need not be any more, once others are
//! cut off elsewhere; then what is left over goes to all by what they got, but for those below a
//! pool with a limit.

use crate::{Between, Demand, Fluid, Tree, TreeLeaf, fill_between};

/// Weights of leaves sum to so many bits, and those of leaves that come first, in proportion to
/// what is sure to them, to so many: all together stay below what `Fluid` allows.
const WEIGHT_BITS: u32 = 44;
const FIRST_BITS: u32 = 62;
/// Divisions of the tree, each with what the last one has shown that leaves cannot get; two where
/// the leaves of one set compete for too few pCPUs.
const ROUNDS: u32 = 8;
/// A leaf is short by rounding that gets less than it asks for by a unit and this part of it, in
/// bits.
const ROUNDED: u32 = 10;
/// Fraction bits of a level.
const LEVEL_BITS: u32 = 32;

/// A division of a host where leaves may not run everywhere.
pub(crate) struct Placed {
    /// What each leaf gets, in the order of the demands.
    pub(crate) got: Vec<u64>,
    /// Of each that is short what it got of its potential when it was found to be, 32 fraction
    /// bits. Leaves that compete for the same pCPUs, and are found in one division, have the same.
    pub(crate) short: Vec<Option<u128>>,
}

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
    place(tree, fluid, one, leaves, demands).got
}

/// The same, with those that are short; of a flat tree it does not say which these are.
pub(crate) fn place(
    tree: &Tree,
    fluid: &Fluid,
    one: u64,
    leaves: &[u32],
    demands: &[Demand],
) -> Placed {
    let at = || leaves.iter().map(|leaf| *leaf as usize);
    let none_short = |got| Placed { got, short: vec![None; demands.len()] };
    if tree.is_flat() {
        let shares = |leaf: usize| tree.leaves()[leaf].shares.max(1);
        let weighed = |(leaf, d): (usize, &Demand)| Demand { weight: shares(leaf), ..d.clone() };
        let weighed: Vec<Demand> = at().zip(demands).map(weighed).collect();
        return none_short(fluid.divide(one, &weighed));
    }
    let mut wants = vec![0u64; tree.leaves().len()];
    for (leaf, d) in at().zip(demands) {
        wants[leaf] = wants[leaf].saturating_add(fluid.usable(one, d));
    }
    if fluid.all_whole(demands) {
        let x = tree.divide(one, &wants).leaves;
        return none_short(at().map(|leaf| x[leaf]).collect());
    }
    let mut short = vec![None; demands.len()];
    let (mut caps, mut rounds) = (vec![], 1..ROUNDS);
    let got = loop {
        let of_tree = Parts::of(tree, one, &wants);
        let x: Vec<u64> = at().map(|leaf| of_tree.leaf(leaf, &of_tree.x)).collect();
        if caps.is_empty() {
            caps = at().map(|leaf| of_tree.claims[tree.pools().len() + leaf].cap).collect();
        }
        if fluid.flows(one, demands, &x) == x.iter().sum::<u64>() {
            break x;
        }
        let weights = of_tree.weights(at());
        let got = sure_first(fluid, one, (demands, &weights), &x, &of_tree.sure(at()));
        let mut again = false;
        for (i, leaf) in at().enumerate() {
            if x[i] - got[i] > (x[i] >> ROUNDED) + 1 {
                let level = (u128::from(got[i]) << LEVEL_BITS) / u128::from(weights[i].max(1));
                (wants[leaf], short[i], again) = (got[i], Some(level), true);
            }
        }
        if !again || rounds.next().is_none() {
            break got;
        }
    };
    if short.iter().all(Option::is_none) || tree.divides_cores() {
        return Placed { got, short };
    }
    Placed { got: left_over(tree, fluid, one, (leaves, demands), &caps, got), short }
}

/// What the leaves get once nothing is left over: where one was cut off that need not have been,
/// what is left goes to those that are below no pool with a limit, by what they have.
fn left_over(
    tree: &Tree,
    fluid: &Fluid,
    one: u64,
    (leaves, demands): (&[u32], &[Demand]),
    caps: &[u64],
    got: Vec<u64>,
) -> Vec<u64> {
    let limited =
        |leaf: &u32| tree.pools_above(*leaf as usize).any(|p| tree.pools()[p].limit.is_some());
    let most = leaves.iter().zip(caps).zip(&got);
    let most: Vec<u64> = most.map(|((leaf, c), x)| if limited(leaf) { *x } else { *c }).collect();
    if fluid.flows(one, demands, &most) == got.iter().sum::<u64>() {
        return got;
    }
    let all = got.iter().map(|x| u128::from(*x)).sum();
    fluid.divide_most(one, &weighed(demands, &got, all), &most)
}

/// The same demands with these weights, which sum to so much.
fn weighed(demands: &[Demand], weights: &[u64], all: u128) -> Vec<Demand> {
    let part = |w: u64| ((u128::from(w) << WEIGHT_BITS) / all.max(1)).max(1) as u64;
    let one = |(d, w): (&Demand, &u64)| Demand { weight: part(*w), classes: d.classes.clone() };
    demands.iter().zip(weights).map(one).collect()
}

/// Divides the host by weights, to each so much at most; those that get less than is sure to them
/// come first, up to it, in proportion to that.
fn sure_first(
    fluid: &Fluid,
    one: u64,
    (demands, weights): (&[Demand], &[u64]),
    most: &[u64],
    sure: &[u64],
) -> Vec<u64> {
    let sum = |of: &[u64]| of.iter().map(|x| u128::from(*x)).sum::<u128>();
    let mut asked = weighed(demands, weights, sum(weights));
    let (mut most, mut first) = (most.to_vec(), vec![false; demands.len()]);
    let all = sum(sure).max(1);
    loop {
        let got = fluid.divide_most(one, &asked, &most);
        let mut more = false;
        for i in (0..got.len()).filter(|i| got[*i] + 1 < sure[*i]) {
            if !std::mem::replace(&mut first[i], true) {
                asked[i].weight = ((u128::from(sure[i]) << FIRST_BITS) / all).max(1) as u64;
                (most[i], more) = (sure[i], true);
            }
        }
        if !more {
            return got;
        }
    }
}

/// What a tree gives the leaves for what they want, by node: pools, then leaves.
struct Parts<'a> {
    tree: &'a Tree,
    one: u64,
    claims: Vec<Between>,
    x: Vec<u64>,
}

impl Parts<'_> {
    fn of<'a>(tree: &'a Tree, one: u64, wants: &[u64]) -> Parts<'a> {
        let claims = tree.claims(one, Some(wants));
        let x = tree.descend(one, &claims);
        Parts { tree, one, claims, x }
    }

    fn leaf(&self, leaf: usize, of: &[u64]) -> u64 {
        of[self.tree.pools().len() + leaf]
    }

    /// Weights of these leaves: their potentials.
    fn weights(&self, leaves: impl Iterator<Item = usize>) -> Vec<u64> {
        let mut potential = vec![0; self.x.len()];
        potential[0] = self.x[0];
        for p in 0..self.tree.pools().len() {
            let of = potentials(self.tree.children(p), &self.claims, potential[p]);
            self.tree.children(p).iter().zip(of).for_each(|(c, of)| potential[*c] = of);
        }
        leaves.map(|leaf| self.leaf(leaf, &potential)).collect()
    }

    /// What is sure to these leaves of what is reserved down the tree, at most what they get.
    fn sure(&self, leaves: impl Iterator<Item = usize>) -> Vec<u64> {
        let mut claims = self.claims.clone();
        for c in self.tree.children(0) {
            claims[*c].cap = claims[*c].floor;
        }
        let sure = self.tree.descend(self.one, &claims);
        leaves.map(|leaf| self.leaf(leaf, &sure).min(self.leaf(leaf, &self.x))).collect()
    }
}

/// What each child of a pool that has so much would have of it by weight, if it asked for more than
/// that.
fn potentials(children: &[usize], claims: &[Between], has: u64) -> Vec<u64> {
    let of = |c: &usize| Between { floor: 0, ..claims[*c] };
    let asked: Vec<Between> = children.iter().map(of).collect();
    let x = fill_between(has.min(1 << 62), &asked);
    let is_open = |(c, x): &(&Between, &u64)| **x < c.cap;
    let open = || asked.iter().zip(&x).filter(is_open);
    let weights: u128 = open().map(|(c, _)| u128::from(c.weight)).sum();
    let shared: u128 = open().map(|(_, x)| u128::from(*x)).sum();
    let awake = asked.iter().filter(|c| c.cap > 0);
    let all: u128 = awake.map(|c| u128::from(c.weight)).sum();
    let potential = |at: (&Between, &u64)| {
        let (weight, x) = (u128::from(at.0.weight), u128::from(*at.1));
        match weights {
            _ if is_open(&at) => *at.1,
            0 => (u128::from(has) * weight / all.max(1)) as u64,
            _ => ((shared + x) * weight / (weights + weight)) as u64,
        }
    };
    asked.iter().zip(&x).map(potential).collect()
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

    /// Pools above a leaf, the lowest first, but the root.
    pub(crate) fn pools_above(&self, leaf: usize) -> impl Iterator<Item = usize> + '_ {
        let below_root = |p: usize| Some(p).filter(|p| *p > 0);
        let up = move |p: &usize| below_root(self.pools()[*p].parent);
        std::iter::successors(below_root(self.leaves()[leaf].pool), up)
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

    /// On one pCPU what is reserved comes first, and in proportion where it does not fit.
    #[test]
    fn what_is_reserved_comes_first_where_a_few_compete() {
        let one = Fluid::new(&PcpuSet::first(8), &[PcpuSet::first(8), PcpuSet::first(1)]);
        let asked = [ask(1, 1000), ask(1, 1000)];
        for (reserved, got) in [([600, 0], [600, 400]), ([900, 300], [750, 250])] {
            let sure = |permille: u64, shares| TreeLeaf {
                reservation: Rate((Rate::ONE.0 * permille).div_ceil(1000)),
                ..vm(0, shares)
            };
            let leaves = vec![sure(reserved[0], 1), sure(reserved[1], 9000)];
            let tree = Tree::new(8, vec![pool(0, None)], leaves);
            assert_eq!(divide_placed(&tree, &one, 1000, &[0, 1], &asked), got, "{reserved:?}");
        }
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
}
