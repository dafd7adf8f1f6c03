//! Decides whether a VM may power on or a reservation may change, pool by pool up to the root; it
//! never changes a tree.
//!
//! Promise: if a tree is kept (`check` finds nothing), it still is with what was admitted, and what
//! is refused would not be (`tests/admit.rs`: `what_is_admitted_is_what_check_finds_nothing_in`).
//! The answer names every pool that was asked, and a refusal the one that refused, what it was
//! asked for and what it has.
//!
//! Law: as in `reserve`, seen from one change. The pool that it is in is asked for what is reserved
//! *more*.
//! - A fixed pool gives the part of its own reservation that its children have not taken, and asks
//!   no other. The root does the same with the host.
//! - An expandable pool gives of its own reservation first. If that is too little, it asks its
//!   parent for the difference, as long as all that its children take stays within its limit.
//! - Less than before is always admitted, but for a fixed pool not less than its children have
//!   taken.
//! - Before any pool is asked: a VM reserves at most its vCPUs, and VM and pool at most their
//!   limits.
//!
//! Units: `Rate` in results; texts say percent of one pCPU.
//!
//! Example: `/gold` has 6 pCPUs and holds a VM that reserves 1. An expandable pool in it has 2, and
//! holds a VM that reserves them. A second one can start too, because the pool borrows 2 from
//! `/gold`:
//! ```
//! use entitlement::{Ask, Names, Tree, TreeLeaf, TreePool, admit};
//! use units::Rate;
//! let pool = |parent, pcpus, expandable| {
//!     let (reservation, limit) = (Rate::pcpus(pcpus), None);
//!     TreePool { parent, shares: 4000, reservation, limit, expandable, scalable: false }
//! };
//! let vm = |pool, pcpus| {
//!     let (reservation, limit) = (Rate::pcpus(pcpus), None);
//!     TreeLeaf { pool, shares: 1000, reservation, limit, vcpus: 2 }
//! };
//! let pools = vec![pool(0, 0, false), pool(0, 6, false), pool(1, 2, true)];
//! let tree = Tree::new(8, pools, vec![vm(1, 1), vm(2, 2)]);
//! let names = Names {
//!     pools: vec!["/".into(), "/gold".into(), "/gold/db".into()],
//!     leaves: vec!["/gold/web".into(), "/gold/db/a".into()],
//! };
//! let answer = admit(&tree, &names, &Ask::PowerOn { path: "/gold/db/b".into(), leaf: vm(2, 2) });
//! assert!(answer.admitted);
//! assert_eq!(
//!     answer.text(),
//!     "/gold/db/b: asks to reserve 200 %, has 0 %
//! /gold/db: reserved 200 % of 200 %, asks 200 % more: has   0 %: asks its parent for 200 %
//! /gold:    reserved 300 % of 600 %, asks 200 % more: has 300 %: admitted here
//! admitted
//! "
//! );
//! ```
//!
//! Limits: it counts no affinity, as `check` does not. In a tree that is not kept, what is
//! over-committed has nothing left to give, and what asks for nothing more is admitted.

use crate::reserve::{of_leaf, of_pool, over, own, reserved, room, taken};
use crate::text::{aligned, percent, percents};
use crate::{Excess, Names, Rule, Tree, TreeLeaf};
use schemars::JsonSchema;
use serde::Serialize;
use units::Rate;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A VM that is not in the tree yet.
    PowerOn {
        /// How it is called.
        path: String,
        /// The VM, with the pool it shall be in.
        leaf: TreeLeaf,
    },
    /// Another reservation of a VM of the tree.
    Leaf {
        /// Its index.
        leaf: usize,
        /// What it shall reserve.
        reservation: Rate,
    },
    /// Another reservation of a pool, not the root. A new pool is one that reserved nothing.
    Pool {
        /// Its index.
        pool: usize,
        /// What it shall reserve.
        reservation: Rate,
    },
}

/// What came of it at one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It has what is asked of it.
    Admitted,
    /// It asks its parent, because it is expandable.
    PassedOn,
    /// It has too little, or may not take more.
    Refused,
}

/// One pool on the way up to the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Level {
    /// Its index.
    pub pool: usize,
    /// Its name.
    pub path: String,
    /// What its children took of it before.
    pub reserved: Rate,
    /// Its own reservation; of the root the host's pCPUs.
    pub reservation: Rate,
    /// Its limit; none of the root.
    pub limit: Option<Rate>,
    /// Whether it may borrow from its parent; the root may not.
    pub expandable: bool,
    /// What is asked of it, beyond what its children took.
    pub asked: Rate,
    /// What it has for that without asking its parent.
    pub available: Rate,
    /// What came of it.
    pub outcome: Outcome,
    /// What it asks its parent for; 0 unless it does.
    pub passed_on: Rate,
}

/// The answer to an `Ask`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Admission {
    /// Name of the VM or pool that asks.
    pub path: String,
    /// What it reserved before; of a VM that powers on nothing.
    pub before: Rate,
    /// What it wants to reserve.
    pub asked: Rate,
    /// The pools that were asked, from its own upwards; none if it was refused before any was.
    pub levels: Vec<Level>,
    /// Whether it may.
    pub admitted: bool,
    /// Why not: where, what was asked there and what there is.
    pub refusal: Option<Excess>,
}

impl Admission {
    /// What is asked, a line for each pool that was asked, and what came of it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!(
            "{}: asks to reserve {}, has {}\n",
            self.path,
            percent(self.asked),
            percent(self.before)
        );
        let row = |l: &Level| {
            let (asked, available) = percents(l.asked, l.available);
            [format!("{}:", l.path), percent(l.reserved), percent(l.reservation), asked, available]
        };
        let rows = aligned(self.levels.iter().map(row).collect());
        for ([path, reserved, of, asks, has], level) in rows.into_iter().zip(&self.levels) {
            let outcome = level.outcome();
            out += &format!(
                "{path} reserved {reserved} of {of}, asks {asks} more: has {has}: {outcome}\n"
            );
        }
        out + &self.refusal.as_ref().map_or("admitted\n".to_owned(), |r| format!("refused: {r}\n"))
    }
}

impl Level {
    fn outcome(&self) -> String {
        match (self.outcome, self.limit) {
            (Outcome::Admitted, _) => "admitted here".to_owned(),
            (Outcome::PassedOn, _) => format!("asks its parent for {}", percent(self.passed_on)),
            (Outcome::Refused, Some(limit)) if self.expandable => {
                format!("refused here, limit {}", percent(limit))
            }
            (Outcome::Refused, _) => "refused here".to_owned(),
        }
    }
}

/// Decides by the law above.
///
/// # Panics
/// Unless there is one name for each pool and leaf; if what it names is not there, or is the root.
#[must_use]
pub fn admit(tree: &Tree, names: &Names, ask: &Ask) -> Admission {
    names.assert_those_of(tree);
    let taken = taken(tree);
    let (path, before, asked, pool, more, refusal) = match ask {
        Ask::PowerOn { path, leaf } => {
            let refusal = of_leaf(path, leaf).into_iter().next();
            (path, Rate(0), leaf.reservation, leaf.pool, leaf.reservation, refusal)
        }
        Ask::Leaf { leaf, reservation } => {
            let (old, path) = (&tree.leaves()[*leaf], &names.leaves[*leaf]);
            let refusal = of_leaf(path, &TreeLeaf { reservation: *reservation, ..old.clone() })
                .into_iter()
                .next();
            let more = reservation.0.saturating_sub(taken[tree.pools().len() + leaf]);
            (path, old.reservation, *reservation, old.pool, Rate(more), refusal)
        }
        Ask::Pool { pool, reservation } => {
            let old = &tree.pools()[*pool];
            let (more, refusal) = change_of_pool(tree, names, &taken, (*pool, *reservation));
            (&names.pools[*pool], old.reservation, *reservation, old.parent, more, refusal)
        }
    };
    let mut answer =
        Admission { path: path.clone(), before, asked, levels: vec![], admitted: false, refusal };
    if answer.refusal.is_none() {
        (answer.levels, answer.refusal) = climb(tree, names, &taken, (pool, more));
    }
    answer.admitted = answer.refusal.is_none();
    answer
}

/// What a pool takes more of its parent if it reserves this, and what is wrong with that whatever
/// the parent says.
fn change_of_pool(
    tree: &Tree,
    names: &Names,
    taken: &[u64],
    (p, reservation): (usize, Rate),
) -> (Rate, Option<Excess>) {
    assert!(
        p > 0,
        "pool 0: cannot change what it reserves: the root has the host; change pools below it"
    );
    let (old, path) = (&tree.pools()[p], &names.pools[p]);
    let mut new = old.clone();
    new.reservation = reservation;
    let held = reserved(tree, taken, p);
    // One that holds too much already may still be raised: that makes nothing worse.
    let short = (!old.expandable && reservation < old.reservation)
        .then(|| over(path, Rule::FixedPool, held, Some(reservation)));
    let refusal = over(path, Rule::Limit, reservation, old.limit).or(short.flatten());
    (Rate(of_pool(&new, held).0.saturating_sub(taken[p])), refusal)
}

/// Asks the pools from `p` upwards for `asked` more, until one has it or refuses.
fn climb(
    tree: &Tree,
    names: &Names,
    taken: &[u64],
    (mut p, mut asked): (usize, Rate),
) -> (Vec<Level>, Option<Excess>) {
    let mut levels = vec![];
    loop {
        let (level, refusal) = ask_pool(tree, names, taken, (p, asked));
        (p, asked) = (tree.pools()[p].parent, level.passed_on);
        let ends = level.outcome != Outcome::PassedOn;
        levels.push(level);
        if ends {
            return (levels, refusal);
        }
    }
}

/// Asks one pool for `asked` more than its children took.
fn ask_pool(
    tree: &Tree,
    names: &Names,
    taken: &[u64],
    (p, asked): (usize, Rate),
) -> (Level, Option<Excess>) {
    let (pool, path) = (&tree.pools()[p], &names.pools[p]);
    let (held, own) = (reserved(tree, taken, p), own(tree, p));
    let left_of = |amount: Rate| Rate(amount.0.saturating_sub(held.0));
    let expandable = pool.expandable && p > 0;
    let available = left_of(own);
    let (rule, room) = room(tree, p);
    let refusal = over(path, rule, asked, room.map(left_of));
    let outcome = match &refusal {
        Some(_) => Outcome::Refused,
        None if asked <= available => Outcome::Admitted,
        None => Outcome::PassedOn,
    };
    // What it will take of its parent, less what it takes: its own reservation, or more if its
    // children already borrow.
    let passed_on =
        if outcome == Outcome::PassedOn { Rate(asked.0 - available.0) } else { Rate(0) };
    let limit = pool.limit.filter(|_| p > 0);
    let path = path.clone();
    let level = Level {
        pool: p,
        path,
        reserved: held,
        reservation: own,
        limit,
        expandable,
        asked,
        available,
        outcome,
        passed_on,
    };
    (level, refusal)
}
