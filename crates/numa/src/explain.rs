//! What was decided, and why: what the planner saw, what it expected, and what came of it.

use crate::ClientId;
use std::fmt;

/// Why a client got a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It was powered on, or its part of a VM is new.
    Placed,
    /// CPU was less contended there (VS51: short-term CPU load imbalance).
    Imbalance,
    /// It changed places with another, for the same reason.
    Swap,
    /// More of its memory is there, or near to it.
    Locality,
    /// VMs that it communicates with are there (action affinity).
    ActionAffinity,
    /// One of the VMs got less CPU time than its part for long.
    Fairness,
    /// No node had room for what it wants, and others had idle cores: it has no home.
    Roams,
    /// Someone asked for it.
    Asked,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 8] = [
        Reason::Placed,
        Reason::Imbalance,
        Reason::Swap,
        Reason::Locality,
        Reason::ActionAffinity,
        Reason::Fairness,
        Reason::Roams,
        Reason::Asked,
    ];

    /// Name, as results and `tandem numa` print it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Placed => "placed",
            Reason::Imbalance => "imbalance",
            Reason::Swap => "swap",
            Reason::Locality => "locality",
            Reason::ActionAffinity => "action-affinity",
            Reason::Fairness => "fairness",
            Reason::Roams => "roams",
            Reason::Asked => "asked",
        }
    }
}

/// Why a change was not made although something asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No client's move leaves less than the part of the imbalance that may be left.
    Thrash,
    /// No client's move improves as much as it must.
    TooLittle,
    /// By the loads of the last round no move narrows it.
    Passing,
    /// All that could move may not, by their affinity, their siblings or reservations.
    Pinned,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Thrash => "every move causes another imbalance, which would be thrashing",
            Refusal::TooLittle => "no move improves enough",
            Refusal::Passing => "by the loads of the last round no move narrows it",
            Refusal::Pinned => "affinity, siblings or reservations hold all that could move",
        })
    }
}

/// What came of a decision, seen some rounds later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Rounds after which it was looked at.
    pub rounds: u64,
    /// Loads of the two nodes then, in permille of their cores: the old home, the new one.
    pub load_permille: (u64, u64),
    /// Part of the client's memory that was in the new home then, in permille.
    pub local_permille: u64,
    /// The client has another home by then.
    pub moved_on: bool,
}

/// Cause of a first home: the client was there before. Else it is 0.
pub(crate) const STAYS: u64 = 1000;

/// A client has another home from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When, by the caller's clock, in ns.
    pub at_ns: u64,
    /// Which client.
    pub client: ClientId,
    /// Its node before; none where it had no home.
    pub from: Option<u32>,
    /// Its home; of one that has none from now on (`Roams`) the last one.
    pub to: u32,
    /// Why.
    pub reason: Reason,
    /// Loads of both nodes before the change, in permille of their cores; of the new home alone
    /// where there was none before.
    pub saw_permille: (u64, u64),
    /// What they were expected to be after it.
    pub expected_permille: (u64, u64),
    /// What asked for the change, in permille: the imbalance; memory at the new home; the part of
    /// its communication there; what was missing of the entitlement of the VM that got least; what
    /// is gained without a home, of the cores of the last one; of a first home, whether it was
    /// there before (`STAYS`).
    pub cause_permille: u64,
    /// What came of it.
    pub outcome: Option<Outcome>,
}

fn percent(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

/// In tenths of a second.
fn seconds(ns: u64) -> String {
    let tenths = ns / 100_000_000;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of("node").fmt(f)
    }
}

impl Decision {
    /// When it was made by the caller's clock, in words.
    #[must_use]
    pub fn at(&self) -> String {
        format!("at {}", seconds(self.at_ns))
    }

    /// How long ago it was made by that clock, in words.
    #[must_use]
    pub fn ago(&self, now_ns: u64) -> String {
        format!("{} ago", seconds(now_ns.saturating_sub(self.at_ns)))
    }

    /// The decision in words, of homes that are nodes, or that are LLCs.
    #[must_use]
    pub fn of(&self, what: &'static str) -> impl fmt::Display + use<> {
        Said(*self, what)
    }
}

/// A decision, and what homes are.
struct Said(Decision, &'static str);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Said(d, what) = self;
        let cause = percent(d.cause_permille);
        let (from, to) = (d.from.map_or(0, |n| n), d.to);
        match d.reason {
            Reason::Placed if d.cause_permille == STAYS => {
                write!(f, "placed on {what} {to}, where it was before")?;
            }
            Reason::Placed => write!(f, "placed on {what} {to}, the least loaded that has room")?,
            Reason::Imbalance => {
                write!(f, "{what} {from} to {to}: imbalance of CPU load of {cause}")?;
            }
            Reason::Swap => write!(f, "{what} {from} to {to}, in exchange: imbalance of {cause}")?,
            Reason::Locality => {
                write!(f, "{what} {from} to {to}: {cause} of its memory is there or near")?
            }
            Reason::ActionAffinity => {
                write!(f, "{what} {from} to {to}: {cause} of its communication is there")?;
            }
            Reason::Fairness => {
                let lacks = "of its part between two looks";
                write!(f, "{what} {from} to {to}: some VM lacks {cause} {lacks}")?;
            }
            Reason::Roams => {
                write!(f, "{what} {from} to none: others could give it {cause} of its cores more")?;
            }
            Reason::Asked => write!(f, "{what} {from} to {to}: asked for")?,
        }
        // Both nodes of a client that moves; else the one that it comes to or leaves for none.
        let moves = d.from.is_some() && d.reason != Reason::Roams;
        let of = |p: (u64, u64)| match moves {
            true => format!("{} and {}", percent(p.0), percent(p.1)),
            false => percent(p.1),
        };
        let loads = if moves { "loads" } else { "load" };
        write!(f, "; {loads} {}, expected {}", of(d.saw_permille), of(d.expected_permille))?;
        let Some(o) = d.outcome else { return Ok(()) };
        let rounds = if o.rounds == 1 { "round" } else { "rounds" };
        write!(f, "; {} {rounds} later {}", o.rounds, of(o.load_permille))?;
        if d.reason == Reason::Roams {
            return f.write_str(", and it has a home again");
        }
        if *what == "node" {
            write!(f, ", {} of its memory local", percent(o.local_permille))?;
        }
        f.write_str(if o.moved_on { ", and it has moved on" } else { "" })
    }
}
