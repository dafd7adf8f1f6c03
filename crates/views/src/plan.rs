//! The tree of pools and VMs as people read it: settings and worst case of each node, its demand
//! and entitlement now, and loans between siblings. It computes nothing but the loans.
//!
//! A node *lends* the part of its worst case (its entitlement if all VMs ask for all that they can
//! use) that it does not get, because it asks for less. A node that gets more than its worst case
//! *borrows*. What is lent in a pool goes to borrowers in it first, in proportion; only the rest
//! leaves it, and is the pool's own loan.

use crate::Table;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use units::Rate;

/// A tree, at one time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Plan {
    /// Generation of the plan in force; 0 where none is.
    pub generation: u64,
    /// pCPUs of the host.
    pub pcpus: u64,
    /// Speed of one in MHz.
    pub mhz: u32,
    /// Time that was looked at, in ns; 0 where nothing runs.
    pub duration_ns: u64,
    /// Pools and VMs, each pool before what it holds.
    pub rows: Vec<PlanRow>,
    /// Loans, nearest siblings first.
    pub loans: Vec<Loan>,
    /// Pools in which more is reserved than there is.
    pub over_committed: Vec<String>,
}

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanKind {
    /// A resource pool; the first is the root.
    Pool,
    /// A VM.
    Vm,
    /// The host's own tasks.
    System,
}

/// A pool or VM.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanRow {
    /// Path from the root.
    pub path: String,
    /// What it is.
    pub kind: PlanKind,
    /// Row of the pool that it is in; the root's is its own.
    pub parent: usize,
    /// Shares as they are set.
    pub shares: u64,
    /// Shares that count among its siblings: of a scalable pool by what it holds.
    pub weight: u64,
    /// What it gets whatever the load, in 2^-20 pCPU, as all amounts.
    pub reservation: Rate,
    /// What it never exceeds.
    pub limit: Option<Rate>,
    /// Of a pool: whether reservations in it may borrow from its parent.
    pub expandable: bool,
    /// Of a pool: whether its shares grow with what it holds.
    pub scalable: bool,
    /// Its entitlement if all VMs ask for all that they can use.
    pub worst_case: Rate,
    /// Demand, entitlement and use now; none where nothing runs.
    #[serde(flatten)]
    pub now: Option<PlanNow>,
    /// Source of each setting that is no default.
    pub sources: BTreeMap<String, String>,
}

/// Demand, entitlement and use over the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlanNow {
    /// What it asks for.
    pub asks: Rate,
    /// What it is entitled to.
    pub gets: Rate,
    /// What it used.
    pub used: Rate,
}

/// A loan: a lender, and the siblings that it lends to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Loan {
    /// Path of the lender.
    pub from: String,
    /// All that it lends to these.
    pub lends: Rate,
    /// The amount of which the loan is a part: its reservation if it gets less than that, else its
    /// worst case.
    pub of: Rate,
    /// Whether that is its reservation.
    pub reserved: bool,
    /// Siblings that get it.
    pub to: Vec<(String, Rate)>,
}

/// Less than this is not worth a line: means over a few looks are not that exact.
const LEAST: u64 = Rate::ONE.0 / 100;

/// The loans of a tree, pool by pool.
#[must_use]
pub fn loans(rows: &[PlanRow]) -> Vec<Loan> {
    let mut out = vec![];
    for pool in 0..rows.len() {
        let children = || {
            rows.iter()
                .enumerate()
                .filter(move |(i, r)| r.parent == pool && *i != pool)
                .map(|(_, r)| r)
        };
        let lent = |r: &PlanRow| {
            r.now
                .filter(|n| n.gets >= n.asks.min(r.worst_case))
                .map_or(0, |n| r.worst_case.0.saturating_sub(n.gets.0))
        };
        let borrowed = |r: &PlanRow| r.now.map_or(0, |n| n.gets.0.saturating_sub(r.worst_case.0));
        let (all_lent, all_borrowed): (u64, u64) =
            (children().map(lent).sum(), children().map(borrowed).sum());
        let changes_hands = all_lent.min(all_borrowed);
        let part = |amount: u64, of: u64, whole: u64| {
            (u128::from(amount) * u128::from(of) / u128::from(whole.max(1))) as u64
        };
        for from in children() {
            let lends = part(changes_hands, lent(from), all_lent);
            let to =
                children().map(|r| (r.path.clone(), Rate(part(lends, borrowed(r), all_borrowed))));
            let to: Vec<(String, Rate)> = to.filter(|(_, rate)| rate.0 >= LEAST).collect();
            if to.is_empty() {
                continue;
            }
            let gets = from.now.map_or(Rate(0), |n| n.gets);
            let reserved = gets < from.reservation;
            let of = if reserved { from.reservation } else { from.worst_case };
            out.push(Loan { from: from.path.clone(), lends: Rate(lends), of, reserved, to });
        }
    }
    out
}

/// How amounts are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Percent of one pCPU.
    Percent,
    /// MHz, of which a pCPU has so many.
    Mhz(u32),
}

impl Unit {
    fn number(self, rate: Rate) -> String {
        match self {
            Unit::Percent => {
                let tenths = (u128::from(rate.0) * 1000 + (1 << (Rate::SHIFT - 1))) >> Rate::SHIFT;
                format!("{}.{}", tenths / 10, tenths % 10)
            }
            Unit::Mhz(mhz) => ((u128::from(rate.0) * u128::from(mhz) + (1 << (Rate::SHIFT - 1)))
                >> Rate::SHIFT)
                .to_string(),
        }
    }

    fn name(self) -> &'static str {
        if self == Unit::Percent { "%" } else { "MHz" }
    }
}

/// A tree as text: a line for each pool and VM, then loans, then pools in which too much is
/// reserved.
#[must_use]
pub fn plan(plan: &Plan, unit: Unit) -> String {
    let live = plan.duration_ns > 0;
    let mut columns = vec!["<pool, VM", "shares", "reserved", "limit", "worst case"];
    if live {
        columns.extend(["asks", "gets", "used"]);
    }
    columns.push("<set by");
    let mut t = Table::new(&columns);
    for (i, row) in plan.rows.iter().enumerate() {
        let shares = if row.weight == row.shares || i == 0 {
            row.shares.to_string()
        } else {
            format!("{} ({})", row.shares, row.weight)
        };
        let none = || "-".to_owned();
        let reserved = if row.reservation.0 == 0 { none() } else { unit.number(row.reservation) };
        let mut cells = vec![shown_name(plan, i), if i == 0 { none() } else { shares }, reserved];
        cells
            .extend([row.limit.map_or_else(none, |l| unit.number(l)), unit.number(row.worst_case)]);
        if live {
            let now = row.now.unwrap_or_default();
            cells.extend([now.asks, now.gets, now.used].map(|r| unit.number(r)));
        }
        cells.push(said(row));
        t.row(cells);
    }
    let seen = if live {
        format!("plan {}, seen over {:.1} s: ", plan.generation, plan.duration_ns as f64 / 1e9)
    } else {
        String::new()
    };
    let amounts = if unit == Unit::Percent { "percent of one pCPU" } else { "MHz" };
    let mut out = format!(
        "{seen}{} pCPUs of {} MHz; amounts in {amounts}\n{}",
        plan.pcpus,
        plan.mhz,
        t.text()
    );
    let amount = |rate: Rate| format!("{} {}", unit.number(rate), unit.name());
    for loan in &plan.loans {
        let of = if loan.reserved {
            format!("its reserved {}", amount(loan.of))
        } else {
            format!("the {} it could have", amount(loan.of))
        };
        let to: Vec<String> =
            loan.to.iter().map(|(path, rate)| format!("{path} {}", amount(*rate))).collect();
        out +=
            &format!("{} lends {} of {of} to: {}\n", loan.from, amount(loan.lends), to.join(", "));
    }
    plan.over_committed.iter().for_each(|e| out += &format!("over-committed: {e}\n"));
    out
}

/// The last part of a row's path, indented by its depth; pools end in `/`.
fn shown_name(plan: &Plan, i: usize) -> String {
    let (mut depth, mut at) = (0, i);
    while plan.rows[at].parent != at {
        at = plan.rows[at].parent;
        depth += 1;
    }
    let row = &plan.rows[i];
    let above = plan.rows[row.parent].path.trim_end_matches('/');
    let name = row.path.strip_prefix(above).unwrap_or(&row.path).trim_start_matches('/');
    format!("{}{name}{}", "  ".repeat(depth), if row.kind == PlanKind::Pool { "/" } else { "" })
}

/// Kind of a pool, and the source of its settings: `fixed; file: limit, shares`.
fn said(row: &PlanRow) -> String {
    let mut by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    row.sources.iter().for_each(|(key, from)| by.entry(from).or_default().push(key));
    let pool = row.kind == PlanKind::Pool && row.path != "/";
    let kind = [(pool && !row.expandable, "fixed"), (pool && row.scalable, "scalable")];
    let kind = kind.into_iter().filter(|k| k.0).map(|k| k.1.to_owned());
    kind.chain(by.into_iter().map(|(from, keys)| format!("{from}: {}", keys.join(", "))))
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str, parent: usize, worst: u64, now: (u64, u64, u64)) -> PlanRow {
        let kind = if path.ends_with('/') { PlanKind::Pool } else { PlanKind::Vm };
        let tenths = |n: u64| Rate(n * Rate::ONE.0 / 10);
        PlanRow {
            path: if path == "/" { path.to_owned() } else { path.trim_end_matches('/').to_owned() },
            kind,
            parent,
            shares: 1000,
            weight: 1000,
            reservation: Rate(0),
            limit: None,
            expandable: true,
            scalable: false,
            worst_case: tenths(worst),
            now: Some(PlanNow { asks: tenths(now.0), gets: tenths(now.1), used: tenths(now.2) }),
            sources: BTreeMap::new(),
        }
    }

    fn of(rows: Vec<PlanRow>) -> Plan {
        let loans = loans(&rows);
        Plan {
            generation: 7,
            pcpus: 8,
            mhz: 2400,
            duration_ns: 2_000_000_000,
            rows,
            loans,
            over_committed: vec![],
        }
    }

    /// Two pools on 8 pCPUs: in /prod web sleeps and its siblings take it; /test leaves 2 of its 4
    /// to /prod.
    fn example() -> Vec<PlanRow> {
        let mut rows = vec![
            row("/", 0, 80, (100, 80, 80)),
            row("/prod/", 0, 40, (80, 60, 59)),
            row("/prod/web", 1, 20, (5, 5, 5)),
            row("/prod/db", 1, 10, (40, 37, 36)),
            row("/prod/batch", 1, 10, (40, 18, 18)),
            row("/test/", 0, 40, (20, 20, 19)),
            row("/test/try", 5, 40, (20, 20, 19)),
        ];
        rows[2].reservation = Rate::pcpus(2);
        rows
    }

    #[test]
    fn what_is_lent_goes_to_siblings_first_and_the_rest_leaves_the_pool() {
        let plan = of(example());
        let percent = |r: Rate| r.0 * 100 / Rate::ONE.0;
        let seen: Vec<_> = plan
            .loans
            .iter()
            .map(|l| (l.from.as_str(), percent(l.lends), l.reserved, l.to.len()))
            .collect();
        assert_eq!(seen, [("/test", 200, false, 1), ("/prod/web", 150, true, 2)]);
        let to: Vec<_> =
            plan.loans[1].to.iter().map(|(path, rate)| (path.as_str(), percent(*rate))).collect();
        // 1.5 in proportion to what they borrow: 2.7 and 0.8.
        assert_eq!(to, [("/prod/db", 115), ("/prod/batch", 34)]);
        // A VM that gets less than it asks for lends nothing, and one that has little too much
        // borrows nothing.
        let mut rows = example();
        rows[5].now = Some(PlanNow { asks: Rate::pcpus(4), ..rows[5].now.unwrap() });
        assert_eq!(loans(&rows).iter().map(|l| l.from.as_str()).collect::<Vec<_>>(), ["/prod/web"]);
        rows[2].now = Some(PlanNow {
            asks: Rate(0),
            gets: Rate(rows[2].worst_case.0 - LEAST / 2),
            used: Rate(0),
        });
        assert_eq!(loans(&rows), []);
    }

    #[test]
    fn a_tree_is_shown_indented_with_what_is_set_and_who_says_so() {
        let mut rows = example();
        rows[1].scalable = true;
        rows[1].weight = 3000;
        rows[1].sources = [("scalable", "file"), ("shares", "cpu.weight")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into();
        rows[5].expandable = false;
        rows[5].limit = Some(Rate::pcpus(4));
        let mut seen = of(rows);
        seen.over_committed = vec!["/test: x".to_owned()];
        assert_eq!(
            plan(&seen, Unit::Percent),
            "plan 7, seen over 2.0 s: 8 pCPUs of 2400 MHz; amounts in percent of one pCPU
pool, VM        shares  reserved  limit  worst case    asks   gets   used  set by
-----------------------------------------------------------------------------------------------------------------------
/                    -         -      -       800.0  1000.0  800.0  800.0
  prod/    1000 (3000)         -      -       400.0   800.0  600.0  590.0  scalable; cpu.weight: shares; file: scalable
    web           1000     200.0      -       200.0    50.0   50.0   50.0
    db            1000         -      -       100.0   400.0  370.0  360.0
    batch         1000         -      -       100.0   400.0  180.0  180.0
  test/           1000         -  400.0       400.0   200.0  200.0  190.0  fixed
    try           1000         -      -       400.0   200.0  200.0  190.0
/test lends 200.0 % of the 400.0 % it could have to: /prod 200.0 %
/prod/web lends 150.0 % of its reserved 200.0 % to: /prod/db 115.7 %, /prod/batch 34.3 %
over-committed: /test: x
"
        );
        let text = plan(&seen, Unit::Mhz(2400));
        assert!(
            text.contains("/test lends 4800 MHz of the 9600 MHz it could have to: /prod 4800 MHz"),
            "{text}"
        );
        seen.duration_ns = 0;
        let text = plan(&seen, Unit::Percent);
        assert!(text.starts_with(
            "8 pCPUs of 2400 MHz; amounts in percent of one pCPU\npool, VM        shares  reserved  limit  worst case  set by\n"
        ));
    }
}
