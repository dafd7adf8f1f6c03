//! Finds every place of a tree where more CPU time is reserved than can be kept, for settings and
//! command line; it changes nothing.
//!
//! Promise: if `check` finds nothing, every VM gets its reservation whenever it wants as much,
//! whatever the others do (`tests/tree.rs`: `a_reservation_that_was_admitted_is_never_missed`).
//! What is wrong is listed whole, place by place.
//!
//! Law, as ESXi documents it:
//! - A VM reserves at most its vCPUs, each a whole pCPU (ESXi's `Cpu.VMAdmitCheckPerVcpuMin`), and
//!   at most its limit. A pool reserves at most its limit.
//! - A pool takes from its parent: if fixed, its own reservation; if expandable, the larger of that
//!   and all that its children take. It takes it even while it is empty.
//! - The children of a fixed pool take at most its own reservation, those of an expandable pool at
//!   most its limit, those of the root at most the host's pCPUs; where cores are divided and not
//!   threads (`Tree::on_cores`) its cores, as ESXi counts them.
//!
//! Units: `Rate` in results; texts say percent of one pCPU, as esxtop does.
//!
//! Example: in a fixed pool of 2 pCPUs two VMs of 2 each do not fit:
//! ```
//! use entitlement::{Names, Tree, TreeLeaf, TreePool, check};
//! use units::Rate;
//! let pool = |pcpus| {
//!     let (reservation, limit) = (Rate::pcpus(pcpus), None);
//!     TreePool { parent: 0, shares: 4000, reservation, limit, expandable: false, scalable: false }
//! };
//! let vm = TreeLeaf { pool: 1, shares: 1000, reservation: Rate::pcpus(2), limit: None, vcpus: 2 };
//! let tree = Tree::new(8, vec![pool(0), pool(2)], vec![vm.clone(), vm]);
//! let names = Names {
//!     pools: vec!["/".into(), "/lab".into()],
//!     leaves: vec!["/lab/a".into(), "/lab/b".into()],
//! };
//! let report = check(&tree, &names);
//! assert_eq!(
//!     report.excesses[0].to_string(),
//!     "/lab: cannot give 400 % to what it holds: its fixed reservation has 200 % for it; \
//!      raise that or make the pool expandable"
//! );
//! ```
//!
//! Limits: it counts no affinity, as ESXi does not either: a VM pinned to few pCPUs may miss its
//! reservation. An excess at one place counts at the places above only as far as it fits there, so
//! that one mistake is listed once.

use crate::text::{aligned, percent, percents};
use crate::{Tree, TreeLeaf, TreePool};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use units::Rate;

/// How the pools and leaves of a tree are called, by their indices: paths, such as `/`, `/gold` and
/// `/gold/vm7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Names {
    /// Of each pool; the first is the root's.
    pub pools: Vec<String>,
    /// Of each leaf.
    pub leaves: Vec<String>,
}

/// What a reservation may not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A VM: what its vCPUs can use.
    Vcpus,
    /// A VM or pool: its own limit.
    Limit,
    /// What a fixed pool holds: the pool's own reservation.
    FixedPool,
    /// What an expandable pool holds: the pool's limit.
    PoolLimit,
    /// What the root holds: the host's pCPUs.
    Host,
}

/// A place where more is reserved, or asked for, than there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Excess {
    /// Name of the pool or leaf.
    pub path: String,
    /// What is passed there.
    pub rule: Rule,
    /// What is asked of it.
    pub asked: Rate,
    /// What it has for that; less.
    pub available: Rate,
}

/// What is reserved at one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PoolUse {
    /// Name of the pool.
    pub path: String,
    /// Its own reservation; of the root the host's pCPUs.
    pub reservation: Rate,
    /// Its limit; none of the root.
    pub limit: Option<Rate>,
    /// Whether it borrows from its parent; the root does not.
    pub expandable: bool,
    /// What its children take of it.
    pub reserved: Rate,
    /// What it takes of its parent; of the root as much as is reserved.
    pub taken: Rate,
}

/// What is reserved in a whole tree, and where that is too much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Report {
    /// Each pool, the root first.
    pub pools: Vec<PoolUse>,
    /// Every place where more is reserved than can be kept: pools by index, then leaves.
    pub excesses: Vec<Excess>,
}

impl Report {
    /// Whether everything that is reserved can be kept.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.excesses.is_empty()
    }

    /// A line a pool, then a line for each place where it is too much.
    #[must_use]
    pub fn text(&self) -> String {
        let row = |p: &PoolUse| {
            let free = Rate(p.reservation.0.saturating_sub(p.reserved.0));
            [format!("{}:", p.path), percent(p.reserved), percent(p.reservation), percent(free)]
        };
        let mut out = String::new();
        for (i, [path, reserved, of, free]) in
            aligned(self.pools.iter().map(row).collect()).into_iter().enumerate()
        {
            let kind = if i == 0 { "the host".to_owned() } else { self.pools[i].kind() };
            out += &format!("{path} reserved {reserved} of {of}, {free} free: {kind}\n");
        }
        self.excesses.iter().for_each(|e| out += &format!("{e}\n"));
        out
    }
}

impl PoolUse {
    fn kind(&self) -> String {
        let limit = self.limit.map_or(String::new(), |l| format!(", limit {}", percent(l)));
        let kind = if self.expandable { "expandable" } else { "fixed" };
        format!("{kind}, takes {}{limit}", percent(self.taken))
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, available) = percents(self.asked, self.available);
        let path = &self.path;
        let give = |f: &mut fmt::Formatter<'_>, what: &str, next: &str| {
            write!(
                f,
                "{path}: cannot give {asked} to what it holds: {what} has {available} for it; \
                    {next}"
            )
        };
        match self.rule {
            Rule::Vcpus => write!(
                f,
                "{path}: cannot reserve {asked}: its vCPUs can use {available}; reserve less or \
                    add vCPUs"
            ),
            Rule::Limit => write!(
                f,
                "{path}: cannot reserve {asked}: its limit is {available}; reserve less or raise \
                    the limit"
            ),
            Rule::FixedPool => {
                give(f, "its fixed reservation", "raise that or make the pool expandable")
            }
            Rule::PoolLimit => give(f, "its limit", "raise that or reserve less"),
            Rule::Host => give(f, "the host", "reserve less"),
        }
    }
}

/// Finds what is reserved at each pool, and every place where that is too much, by the law above.
///
/// # Panics
/// Unless there is one name for each pool and leaf.
#[must_use]
pub fn check(tree: &Tree, names: &Names) -> Report {
    names.assert_those_of(tree);
    let taken = taken(tree);
    let mut report = Report { pools: vec![], excesses: vec![] };
    for (p, pool) in tree.pools().iter().enumerate() {
        let path = &names.pools[p];
        let reserved = reserved(tree, &taken, p);
        if p > 0 {
            report.excesses.extend(over(path, Rule::Limit, pool.reservation, pool.limit));
        }
        let (rule, room) = room(tree, p);
        report.excesses.extend(over(path, rule, reserved, room));
        report.pools.push(PoolUse {
            path: path.clone(),
            reservation: own(tree, p),
            limit: pool.limit.filter(|_| p > 0),
            expandable: pool.expandable && p > 0,
            reserved,
            taken: Rate(taken[p]),
        });
    }
    let leaves = tree.leaves().iter().zip(&names.leaves);
    report.excesses.extend(leaves.flat_map(|(leaf, path)| of_leaf(path, leaf)));
    report
}

/// Whether what is reserved for each leaf can be kept: `check` finds no excess at it, nor at any
/// pool above it.
#[must_use]
pub fn kept(tree: &Tree) -> Vec<bool> {
    let taken = taken(tree);
    let mut pools: Vec<bool> = vec![];
    for (p, pool) in tree.pools().iter().enumerate() {
        let fits = room(tree, p).1.is_none_or(|room| reserved(tree, &taken, p) <= room);
        let own = p == 0 || pool.limit.is_none_or(|limit| pool.reservation <= limit);
        // A pool comes after its parent.
        pools.push(fits && own && (p == 0 || pools[pool.parent]));
    }
    let leaf = |leaf: &TreeLeaf| pools[leaf.pool] && of_leaf("", leaf).is_empty();
    tree.leaves().iter().map(leaf).collect()
}

impl Names {
    pub(crate) fn assert_those_of(&self, tree: &Tree) {
        let (seen, allowed) =
            ((self.pools.len(), self.leaves.len()), (tree.pools().len(), tree.leaves().len()));
        assert!(
            seen == allowed,
            "names: cannot tell places apart: seen (pools, leaves) {seen:?}, allowed {allowed:?}"
        );
    }
}

/// What is wrong with the reservation of a VM, whatever pool it is in.
pub(crate) fn of_leaf(path: &str, leaf: &TreeLeaf) -> Vec<Excess> {
    let vcpus = over(path, Rule::Vcpus, leaf.reservation, Some(Rate::pcpus(u64::from(leaf.vcpus))));
    vcpus.into_iter().chain(over(path, Rule::Limit, leaf.reservation, leaf.limit)).collect()
}

/// An excess if more is asked than is available; `None` for no bound.
pub(crate) fn over(path: &str, rule: Rule, asked: Rate, available: Option<Rate>) -> Option<Excess> {
    let available = available.filter(|a| asked > *a)?;
    Some(Excess { path: path.to_owned(), rule, asked, available })
}

/// What each node takes of its pool, as far as it could be kept there; of the root what its
/// children take.
pub(crate) fn taken(tree: &Tree) -> Vec<u64> {
    let leaf = |l: &TreeLeaf| {
        l.reservation.min(l.limit.unwrap_or(l.reservation)).min(Rate::pcpus(u64::from(l.vcpus))).0
    };
    let mut taken = vec![0; tree.pools().len()];
    taken.extend(tree.leaves().iter().map(leaf));
    for (p, pool) in tree.pools().iter().enumerate().rev() {
        let held = reserved(tree, &taken, p);
        taken[p] = if p == 0 { held.0 } else { of_pool(pool, held).0 };
    }
    taken
}

/// What a pool takes of its parent when its children take `held` of it.
pub(crate) fn of_pool(pool: &TreePool, held: Rate) -> Rate {
    let taken = if pool.expandable { pool.reservation.max(held) } else { pool.reservation };
    taken.min(pool.limit.unwrap_or(taken))
}

/// What the children of pool `p` take of it.
pub(crate) fn reserved(tree: &Tree, taken: &[u64], p: usize) -> Rate {
    Rate(tree.children(p).iter().fold(0u64, |sum, c| sum.saturating_add(taken[*c])))
}

/// What pool `p` has of its own: its reservation; the root the host.
pub(crate) fn own(tree: &Tree, p: usize) -> Rate {
    if p == 0 { Rate(tree.reservable(Rate::ONE.0)) } else { tree.pools()[p].reservation }
}

/// What bounds all that the children of pool `p` take, and how much it is; `None` for no bound but
/// the parent's.
pub(crate) fn room(tree: &Tree, p: usize) -> (Rule, Option<Rate>) {
    let pool = &tree.pools()[p];
    match p {
        0 => (Rule::Host, Some(own(tree, 0))),
        _ if pool.expandable => (Rule::PoolLimit, pool.limit),
        _ => (Rule::FixedPool, Some(pool.reservation)),
    }
}
