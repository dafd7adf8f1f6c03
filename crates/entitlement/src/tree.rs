//! Divides the host among VMs down a tree of resource pools, for planner and oracle alike; it never
//! looks at a clock or at placement.
//!
//! Promise: a pool's part is divided among its children only, and only its total demand and its
//! total floor have an effect outside of it (spec P3). Siblings share by shares, between
//! reservation and limit (P1, P5, P6); what an idle one does not use goes to its siblings first
//! (P4). It is ESXi's division: shares compare siblings only, a reservation that is not used is
//! lent, a limit holds on an idle host (VMware, vSphere Resource Management).
//!
//! Law: `K` is what a pool has to give: every pool but the root what its parent's division gave it,
//! the root `pcpus·one` less what others take (`Taken`). On a host of fewer cores than pCPUs it is
//! one for each core, and for each that ask more than that what a second thread adds, which is the
//! law of `sched/law/cores.h` but for its last term: worlds that must have a core alone.
//! - Weight `w`: shares; of a scalable pool `max(1, Σ w of its children · shares ÷ 4000)`, rounded
//!   down, bottom up, over all children whether they want anything or not. 4000 are a normal pool's
//!   shares, so that a normal scalable pool weighs what it holds (vSphere 7, "scalable shares").
//!   Every weight is held within 1..2^32.
//! - Cap `c`: of a leaf `min(demand, limit, vcpus·one, K of the root)`; of a pool `min(limit, Σ c
//!   of its children)`.
//! - Floor `f`: of a leaf `min(reservation, c)`; of a pool `min(c, max(reservation, Σ f of its
//!   children if expandable))`.
//! - Division: `x = clamp(λ·w, f, c)` over the children of one pool, with λ such that `Σ x = min(K,
//!   Σ c)`. Floors that do not fit into `K` are cut in proportion to themselves. `fill_between`
//!   does both, and says how it rounds.
//!
//! Order: the children of one pool are its pools by index, then its leaves by index. Left-over
//! units go by largest remainder, ties in this order.
//!
//! Units: `one` units are one pCPU: `Rate::ONE.0` for rates, a window in ns for the oracle.
//! Reservations and limits are `Rate`, and count `rate·one >> 20` units, rounded down: so
//! reservations that fit as rates fit in any unit.
//!
//! Example: `/gold` (8000 shares) and `/lab` (2000) on 10 pCPUs, two VMs in each. `/gold` gets 8.
//! When its first VM sleeps, its 4 pCPUs go to its neighbour in `/gold`, not to `/lab`:
//! ```
//! use entitlement::{Tree, TreeLeaf, TreePool};
//! use units::Rate;
//! let (reservation, limit) = (Rate(0), None);
//! let pool = |shares| {
//!     TreePool { parent: 0, shares, reservation, limit, expandable: true, scalable: false }
//! };
//! let vm = |pool| TreeLeaf { pool, shares: 1000, reservation, limit, vcpus: 8 };
//! let leaves = vec![vm(1), vm(1), vm(2), vm(2)];
//! let tree = Tree::new(10, vec![pool(0), pool(8000), pool(2000)], leaves);
//! assert_eq!(tree.divide(100, &[800, 800, 800, 800]).leaves, [400, 400, 100, 100]);
//! assert_eq!(tree.divide(100, &[0, 800, 800, 800]).leaves, [0, 800, 100, 100]);
//! ```
//!
//! Limits: `pcpus·one` at most 2^62; the caps of all leaves together below 2^64. Where leaves are
//! pinned to some pCPUs their shares may differ from this: the tree knows nothing of sets, as
//! ESXi's admission knows nothing of affinity.

use crate::{Between, fill_between};
use std::collections::BTreeMap;
use units::{PcpuId, PcpuSet, Rate};

/// Shares of a normal pool, at which a scalable pool weighs as much as its children (VMware,
/// "Understanding Scalable Shares").
pub const POOL_SHARES_NORMAL: u64 = 4000;
/// The largest weight: far above what shares can reach, and products with a capacity stay within
/// 128 bits.
pub const TREE_WEIGHT_MAX: u64 = 1 << 32;

/// A resource pool. Pool 0 is the root: its parent is 0, it has the host's capacity, and its
/// settings are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePool {
    /// Index of the pool it is in; smaller than its own.
    pub parent: usize,
    /// Shares among its siblings; of a scalable pool per 4000 of what it holds.
    pub shares: u64,
    /// What it is guaranteed, taken from its parent even while it is empty.
    pub reservation: Rate,
    /// The most it gets, `None` for no limit.
    pub limit: Option<Rate>,
    /// Whether its children may reserve more than it does, out of its parent.
    pub expandable: bool,
    /// Whether its weight grows with what it holds.
    pub scalable: bool,
}

/// A VM, or the host's system group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLeaf {
    /// Index of the pool it is in.
    pub pool: usize,
    /// Shares among its siblings.
    pub shares: u64,
    /// What it is guaranteed while it wants as much.
    pub reservation: Rate,
    /// The most it gets, `None` for no limit.
    pub limit: Option<Rate>,
    /// Its vCPUs; of the system group the host's pCPUs.
    pub vcpus: u32,
}

/// One number for each pool and each leaf, by their indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Of each pool; the first is the root.
    pub pools: Vec<u64>,
    /// Of each leaf.
    pub leaves: Vec<u64>,
}

/// What others take of some pCPUs, before anything is divided: real-time tasks, on the average.
pub type Taken = BTreeMap<PcpuId, Rate>;

/// A tree of pools and leaves. Immutable, to be used for many divisions.
///
/// Inside, pool `i` is node `i` and leaf `j` is node `pools + j`.
#[derive(Clone, Debug)]
pub struct Tree {
    pcpus: u64,
    /// Cores, and what a second busy thread adds to one.
    cores: u64,
    adds: Rate,
    taken: Taken,
    pools: Vec<TreePool>,
    leaves: Vec<TreeLeaf>,
    pub(crate) flat: bool,
    /// Nodes in each pool, ascending: so pools come first.
    children: Vec<Vec<usize>>,
    /// Weight of each node.
    weights: Vec<u64>,
}

impl Tree {
    /// A tree on a host of so many pCPUs.
    ///
    /// # Panics
    /// Unless pool 0 is the root, every other pool comes after its parent, and every leaf is in a
    /// pool that is there.
    #[must_use]
    pub fn new(pcpus: u64, pools: Vec<TreePool>, leaves: Vec<TreeLeaf>) -> Tree {
        assert!(
            !pools.is_empty(),
            "tree: cannot divide without a root: seen no pool, allowed 1 or more"
        );
        assert!(
            pools[0].parent == 0,
            "pool 0: cannot be the root: seen parent {}, allowed 0",
            pools[0].parent
        );
        let mut children = vec![vec![]; pools.len()];
        for (i, pool) in pools.iter().enumerate().skip(1) {
            let parent = pool.parent;
            assert!(
                parent < i,
                "pool {i}: cannot place it: seen parent {parent}, allowed 0..{}; list parents \
                    first",
                i - 1
            );
            children[parent].push(i);
        }
        for (j, leaf) in leaves.iter().enumerate() {
            assert!(
                leaf.pool < pools.len(),
                "leaf {j}: cannot place it: seen pool {}, allowed 0..{}",
                leaf.pool,
                pools.len() - 1
            );
            children[leaf.pool].push(pools.len() + j);
        }
        let weights = weigh(&pools, &leaves, &children);
        let flat = leaves.iter().all(TreeLeaf::is_plain);
        let (cores, adds, taken) = (pcpus, Rate::ONE, Taken::new());
        Tree { pcpus, cores, adds, taken, pools, leaves, flat, children, weights }
    }

    /// The same tree on a host of so many cores, where a world is charged `shared` thousandths of
    /// its CPU time while it shares one.
    #[must_use]
    pub fn on_cores(self, cores: u64, shared: u64) -> Tree {
        let adds = Rate((2 * shared).saturating_sub(1000) * Rate::ONE.0 / 1000);
        Tree { cores, adds, ..self }
    }

    /// The same tree on the cores of another.
    #[must_use]
    pub fn as_cores_of(self, other: &Tree) -> Tree {
        Tree { cores: other.cores, adds: other.adds, ..self }
    }

    /// The same tree on a host of which so much is taken.
    #[must_use]
    pub fn without(self, taken: Taken) -> Tree {
        Tree { taken, ..self }
    }

    /// So much of the host is taken from now on.
    pub fn set_taken(&mut self, taken: Taken) {
        self.taken = taken;
    }

    /// What others take of the host.
    #[must_use]
    pub fn taken(&self) -> &Taken {
        &self.taken
    }

    /// The host's pCPUs.
    #[must_use]
    pub fn pcpus(&self) -> u64 {
        self.pcpus
    }

    /// The pools, the root first.
    #[must_use]
    pub fn pools(&self) -> &[TreePool] {
        &self.pools
    }

    /// The leaves.
    #[must_use]
    pub fn leaves(&self) -> &[TreeLeaf] {
        &self.leaves
    }

    /// Effective weight of each pool and leaf among its siblings, by the law above. The root, which
    /// has none, weighs 1.
    #[must_use]
    pub fn weights(&self) -> Division {
        self.split(self.weights.clone())
    }

    /// Divides the host, `one` units for each pCPU, for what each leaf wants now, by the law above.
    ///
    /// # Panics
    /// Beyond the limits above, or if there is not one demand for each leaf.
    #[must_use]
    pub fn divide(&self, one: u64, demands: &[u64]) -> Division {
        self.split(self.descend(one, &self.claims(one, Some(demands))))
    }

    /// What each gets if every leaf wants all it can use, in units of `Rate`: ESXi's static, or
    /// worst-case, allocation.
    #[must_use]
    pub fn worst_case(&self) -> Division {
        self.split(self.descend(Rate::ONE.0, &self.claims(Rate::ONE.0, None)))
    }

    /// Nodes in pool `p`, in the order of the division.
    pub(crate) fn children(&self, p: usize) -> &[usize] {
        &self.children[p]
    }

    /// All of the host that is there to be divided.
    pub(crate) fn capacity(&self, one: u64) -> u64 {
        let taken = scaled(Rate(self.taken.values().map(|r| r.0).sum()), one);
        let capacity = self.pcpus.checked_mul(one).filter(|c| *c <= 1 << 62);
        let capacity = capacity.unwrap_or_else(|| {
            panic!(
                "capacity: cannot divide it exactly: seen {} × {one}, allowed up to 2^62",
                self.pcpus
            )
        });
        capacity.saturating_sub(taken)
    }

    /// What can be reserved: where cores are divided, one pCPU of each. All of that can be given,
    /// whichever worlds share a core: a world that gets `x` of its time takes at most `x` of a
    /// core's, alone for `(x - q) ÷ (1 - q)` of it and one of two for the rest.
    pub(crate) fn reservable(&self, one: u64) -> u64 {
        let all = self.capacity(one);
        if self.divides_cores() { self.cores.saturating_mul(one).min(all) } else { all }
    }

    /// Whether there is more to divide the more leaves ask for: cores, and not threads.
    pub(crate) fn divides_cores(&self) -> bool {
        self.adds != Rate::ONE
    }

    /// What there is for leaves that ask for so much.
    pub(crate) fn gives(&self, one: u64, asked: u64) -> u64 {
        let all = self.capacity(one);
        if self.adds == Rate::ONE {
            return all;
        }
        let whole = self.cores.saturating_mul(one).min(all);
        let beside = asked.saturating_sub(whole).min(all - whole).min(whole);
        whole + scaled(self.adds, beside)
    }

    /// What is not there of each pCPU for leaves that ask for so much: what others take, and on a
    /// host of fewer cores than pCPUs as much of each as `gives` leaves out.
    #[must_use]
    pub fn taken_beside(&self, pcpus: &PcpuSet, asked: u64) -> Taken {
        let one = Rate::ONE.0;
        let less = (self.capacity(one) - self.gives(one, asked)) / self.pcpus.max(1);
        let mut taken = self.taken.clone();
        for pcpu in pcpus.iter().filter(|_| less > 0) {
            taken.entry(pcpu).or_insert(Rate(0)).0 += less;
        }
        taken
    }

    /// Weight, floor and cap of each node; without demands, of a host where all want all they can
    /// use. The root's are not used.
    pub(crate) fn claims(&self, one: u64, demands: Option<&[u64]>) -> Vec<Between> {
        let seen = demands.map_or(self.leaves.len(), <[u64]>::len);
        assert!(
            seen == self.leaves.len(),
            "demands: cannot divide: seen {seen}, allowed one for each of {} leaves",
            self.leaves.len()
        );
        let host = self.capacity(one);
        let units = |rate: Rate| scaled(rate, one);
        let mut claims: Vec<Between> =
            self.weights.iter().map(|w| Between { weight: *w, ..Between::default() }).collect();
        let mut total = 0u128;
        for (j, leaf) in self.leaves.iter().enumerate() {
            let demand = demands.map_or(u64::MAX, |d| d[j]);
            let vcpus = one.saturating_mul(u64::from(leaf.vcpus));
            let cap = demand.min(leaf.limit.map_or(u64::MAX, units)).min(vcpus).min(host);
            let claim = &mut claims[self.pools.len() + j];
            (claim.cap, claim.floor) = (cap, units(leaf.reservation).min(cap));
            total += u128::from(cap);
        }
        assert!(
            total < 1 << 64,
            "caps: cannot divide exactly: seen a sum of {total}, allowed below 2^64"
        );
        for (p, pool) in self.pools.iter().enumerate().skip(1).rev() {
            let caps: u64 = self.children[p].iter().map(|c| claims[*c].cap).sum();
            let floors: u64 = self.children[p].iter().map(|c| claims[*c].floor).sum();
            let cap = caps.min(pool.limit.map_or(u64::MAX, units));
            let floor = units(pool.reservation).max(if pool.expandable { floors } else { 0 });
            (claims[p].cap, claims[p].floor) = (cap, floor.min(cap));
        }
        claims
    }

    /// What each node gets, from the root down.
    pub(crate) fn descend(&self, one: u64, claims: &[Between]) -> Vec<u64> {
        let mut x = vec![0; claims.len()];
        x[0] = self.gives(one, self.children[0].iter().map(|c| claims[*c].cap).sum());
        let mut siblings: Vec<Between> = Vec::with_capacity(claims.len());
        for (p, children) in self.children.iter().enumerate() {
            siblings.clear();
            siblings.extend(children.iter().map(|c| claims[*c]));
            for (child, got) in children.iter().zip(fill_between(x[p], &siblings)) {
                x[*child] = got;
            }
        }
        x
    }

    /// Numbers by node as numbers by pool and leaf.
    pub(crate) fn split(&self, mut nodes: Vec<u64>) -> Division {
        let leaves = nodes.split_off(self.pools.len());
        Division { pools: nodes, leaves }
    }
}

/// Weight of each node, from the leaves up.
fn weigh(pools: &[TreePool], leaves: &[TreeLeaf], children: &[Vec<usize>]) -> Vec<u64> {
    let shares = pools.iter().map(|p| p.shares).chain(leaves.iter().map(|l| l.shares));
    let mut weights: Vec<u64> = shares.map(|s| s.clamp(1, TREE_WEIGHT_MAX)).collect();
    weights[0] = 1;
    for (p, pool) in pools.iter().enumerate().skip(1).rev().filter(|(_, pool)| pool.scalable) {
        let held: u128 = children[p].iter().map(|c| u128::from(weights[*c])).sum();
        let weight = held * u128::from(pool.shares) / u128::from(POOL_SHARES_NORMAL);
        weights[p] = weight.clamp(1, u128::from(TREE_WEIGHT_MAX)) as u64;
    }
    weights
}

/// A rate in units of which `one` are a pCPU, rounded down.
pub(crate) fn scaled(rate: Rate, one: u64) -> u64 {
    u64::try_from((u128::from(rate.0) * u128::from(one)) >> Rate::SHIFT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn vm(pool: usize, shares: u64) -> TreeLeaf {
        TreeLeaf { pool, shares, reservation: Rate(0), limit: None, vcpus: 8 }
    }

    #[test]
    fn a_scalable_pool_weighs_what_it_holds_and_another_its_shares() {
        let scalable = |parent, shares| TreePool { scalable: true, ..pool(parent, shares) };
        let pools = vec![
            pool(0, 0),
            scalable(0, 8000),
            pool(0, 8000),
            scalable(1, 2000),
            scalable(0, 4000),
        ];
        let tree = Tree::new(4, pools, vec![vm(1, 1000), vm(3, 3000), vm(3, 1000), vm(2, 1000)]);
        // /3 weighs 4000 · 2000 ÷ 4000; /1 holds it and 1000 at twice normal; an empty pool weighs
        // 1.
        assert_eq!(
            tree.weights(),
            Division { pools: vec![1, 6000, 8000, 2000, 1], leaves: vec![1000, 3000, 1000, 1000] }
        );
    }

    #[test]
    fn weights_stay_between_1_and_their_cap() {
        let huge = TreePool { scalable: true, ..pool(0, u64::MAX) };
        let tree = Tree::new(1, vec![pool(0, 0), huge], vec![vm(1, 0), vm(1, u64::MAX)]);
        assert_eq!(
            tree.weights(),
            Division { pools: vec![1, TREE_WEIGHT_MAX], leaves: vec![1, TREE_WEIGHT_MAX] }
        );
    }

    #[test]
    fn the_worst_case_counts_everybody_at_all_it_can_use() {
        let narrow = TreeLeaf { vcpus: 1, ..vm(0, 9000) };
        let held = TreePool { limit: Some(Rate::pcpus(2)), ..pool(0, 4000) };
        let tree = Tree::new(
            8,
            vec![pool(0, 0), held],
            vec![narrow, vm(0, 1000), vm(1, 1000), vm(1, 3000)],
        );
        let rate = |quarters: u64| quarters << (Rate::SHIFT - 2);
        assert_eq!(
            tree.worst_case(),
            Division {
                pools: vec![rate(32), rate(8)],
                leaves: vec![rate(4), rate(20), rate(2), rate(6)]
            }
        );
    }

    #[test]
    fn a_fixed_pool_promises_what_it_reserves_and_an_expandable_one_what_it_holds() {
        let db = TreeLeaf { reservation: Rate::pcpus(3), ..vm(1, 1000) };
        for (expandable, want) in [(true, [3, 1]), (false, [2, 2])] {
            let pools =
                vec![pool(0, 0), TreePool { reservation: Rate::ONE, expandable, ..pool(0, 4000) }];
            let tree = Tree::new(4, pools, vec![db.clone(), vm(0, 4000)]);
            assert_eq!(tree.divide(1, &[8, 8]).leaves, want, "expandable {expandable}");
        }
    }

    #[test]
    #[should_panic(
        expected = "pool 1: cannot place it: seen parent 2, allowed 0..0; list parents first"
    )]
    fn a_pool_before_its_parent_is_refused() {
        let _ = Tree::new(1, vec![pool(0, 0), pool(2, 1), pool(0, 1)], vec![]);
    }

    #[test]
    #[should_panic(expected = "leaf 0: cannot place it: seen pool 1, allowed 0..0")]
    fn a_leaf_in_no_pool_is_refused() {
        let _ = Tree::new(1, vec![pool(0, 0)], vec![vm(1, 1)]);
    }

    #[test]
    #[should_panic(expected = "seen 2, allowed one for each of 1 leaves")]
    fn demands_of_other_leaves_are_refused() {
        let _ = Tree::new(1, vec![pool(0, 0)], vec![vm(0, 1)]).divide(1, &[1, 1]);
    }

    #[test]
    fn what_others_take_is_not_divided() {
        let reserved = TreeLeaf { reservation: Rate::pcpus(3), ..vm(0, 1) };
        let half = Rate(Rate::ONE.0 / 2);
        let taken = Taken::from([(PcpuId(1), half), (PcpuId(3), half)]);
        let tree = Tree::new(8, vec![pool(0, 0)], vec![reserved, vm(0, 1000)]).without(taken);
        assert_eq!(tree.divide(100, &[800, 800]).leaves, [300, 400]);
        let all = Taken::from([(PcpuId(0), Rate::pcpus(9))]);
        assert_eq!(tree.without(all).divide(100, &[800, 800]).leaves, [0, 0]);
    }

    #[test]
    fn cores_give_one_each_and_what_second_threads_add_to_leaves_that_ask_for_more() {
        // Two cores of two threads; 625 of 1000 are charged on a shared one, so it has 1.25.
        let leaves = vec![vm(0, 1000), vm(0, 1000)];
        let tree = Tree::new(4, vec![pool(0, 0)], leaves).on_cores(2, 625);
        let each = |a, b| tree.divide(1000, &[a, b]).leaves;
        assert_eq!(each(1000, 1000), [1000, 1000]);
        assert_eq!(each(2000, 1000), [1250, 1000], "three worlds have 2.25");
        assert_eq!(tree.reservable(1000), 2000, "one of each core");
        assert_eq!(tree.clone().on_cores(2, 1000).reservable(1000), 4000);
        assert_eq!(each(4000, 4000), [1250, 1250], "four and more 2.5");
        let threads = tree.clone().on_cores(2, 1000);
        assert_eq!(threads.divide(1000, &[4000, 4000]).leaves, [2000, 2000]);
        let pcpus = PcpuSet::first(4);
        assert_eq!(tree.taken_beside(&pcpus, 8 << 20)[&PcpuId(3)], Rate((3 << 20) / 8));
        assert!(threads.taken_beside(&pcpus, 8 << 20).is_empty());
    }
}
