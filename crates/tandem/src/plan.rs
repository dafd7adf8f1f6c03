//! `tandem plan`: shows the tree of pools and VMs, of the running daemon or of a scenario:
//! settings, entitlements, loans.

use crate::{
    Failure, say,
    tree::{self, Grown},
};
use entitlement::Division;
use units::{Rate, Span};
use views::{Plan, PlanKind, PlanNow, PlanRow, Unit};

/// Shows the tree of pools and VMs: settings, worst case, demand and entitlement now, and loans.
#[derive(clap::Args)]
pub struct Args {
    /// The tree of a scenario, with all its VMs powered on, instead of the running daemon's.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Label of the scenario's run [default: the first].
    #[arg(long, value_name = "LABEL", requires = "scenario")]
    run: Option<String>,
    /// Length of the interval that is measured.
    #[arg(long, default_value = "2s", conflicts_with = "scenario")]
    interval: Span,
    /// Amounts in MHz instead of percent of one pCPU.
    #[arg(long)]
    mhz: bool,
    /// As JSON; docs/operating.md explains it.
    #[arg(long)]
    json: bool,
}

/// What is so now: of each pool, of each leaf, over so many ns.
pub struct Now {
    /// Of each pool.
    pub pools: Vec<PlanNow>,
    /// Of each leaf.
    pub leaves: Vec<PlanNow>,
    /// Time that was looked at.
    pub duration_ns: u64,
}

/// Runs `tandem plan`.
///
/// # Errors
/// `Exit::Input` for a refused scenario, `Exit::Host` when no daemon runs.
pub fn main(args: &Args) -> Result<(), Failure> {
    let (grown, now) = match &args.scenario {
        Some(name) => (tree::of_scenario(name, args.run.as_deref())?, None),
        None => live(args.interval)?,
    };
    let plan = of(&grown, now.as_ref());
    if args.json {
        return Ok(say::json(&plan)?);
    }
    let unit = if args.mhz { Unit::Mhz(plan.mhz) } else { Unit::Percent };
    Ok(say::all(&views::plan(&plan, unit))?)
}

#[cfg(feature = "live")]
fn live(interval: Span) -> Result<(Grown, Option<Now>), Failure> {
    let look = crate::live::look(interval)?;
    let now = Now { pools: look.pools, leaves: look.leaves, duration_ns: look.duration_ns };
    Ok((tree::of_names(&look.names), Some(now)))
}

#[cfg(not(feature = "live"))]
fn live(_: Span) -> Result<(Grown, Option<Now>), Failure> {
    tree::of_daemon().map(|grown| (grown, None))
}

/// The tree as people read it.
fn of(grown: &Grown, now: Option<&Now>) -> Plan {
    let mut walk = Walk {
        grown,
        now,
        worst: grown.tree.worst_case(),
        weights: grown.tree.weights(),
        rows: vec![],
    };
    walk.pool(0, 0);
    let rows = walk.rows;
    let loans = views::loans(&rows);
    let over_committed = entitlement::check(&grown.tree, &grown.names)
        .excesses
        .iter()
        .map(ToString::to_string)
        .collect();
    let duration_ns = now.map_or(0, |n| n.duration_ns);
    Plan {
        generation: grown.generation,
        pcpus: grown.tree.pcpus(),
        mhz: grown.mhz,
        duration_ns,
        rows,
        loans,
        over_committed,
    }
}

/// A walk down the tree.
struct Walk<'a> {
    grown: &'a Grown,
    now: Option<&'a Now>,
    worst: Division,
    weights: Division,
    rows: Vec<PlanRow>,
}

impl Walk<'_> {
    /// Adds pool `p` and all that it holds, `above` being its parent's row; pools come before VMs,
    /// as they do in the division.
    fn pool(&mut self, p: usize, above: usize) {
        let (tree, grown) = (&self.grown.tree, self.grown);
        let pool = &tree.pools()[p];
        let row = self.rows.len();
        self.rows.push(PlanRow {
            path: grown.names.pools[p].clone(),
            kind: PlanKind::Pool,
            parent: above,
            shares: pool.shares,
            weight: self.weights.pools[p],
            reservation: pool.reservation,
            limit: pool.limit,
            expandable: pool.expandable,
            scalable: pool.scalable,
            worst_case: Rate(self.worst.pools[p]),
            now: self.now.and_then(|n| n.pools.get(p).copied()),
            sources: grown.sources.0.get(p).cloned().unwrap_or_default(),
        });
        for child in (p + 1..tree.pools().len()).filter(|c| tree.pools()[*c].parent == p) {
            self.pool(child, row);
        }
        for (i, leaf) in tree.leaves().iter().enumerate().filter(|(_, l)| l.pool == p) {
            self.rows.push(PlanRow {
                path: grown.names.leaves[i].clone(),
                kind: if i == 0 { PlanKind::System } else { PlanKind::Vm },
                parent: row,
                shares: leaf.shares,
                weight: self.weights.leaves[i],
                reservation: leaf.reservation,
                limit: leaf.limit,
                expandable: false,
                scalable: false,
                worst_case: Rate(self.worst.leaves[i]),
                now: self.now.and_then(|n| n.leaves.get(i).copied()),
                sources: grown.sources.1.get(i).cloned().unwrap_or_default(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested() -> Grown {
        let name = format!("{}/../../scenarios/pools-nested", env!("CARGO_MANIFEST_DIR"));
        tree::of_scenario(&name, None).unwrap_or_else(|f| panic!("{:#}", f.error))
    }

    #[test]
    fn a_scenarios_tree_is_shown_with_settings_and_worst_case() {
        let text = views::plan(&of(&nested(), None), Unit::Percent);
        assert_eq!(
            text,
            "16 pCPUs of 2000 MHz; amounts in percent of one pCPU
pool, VM            shares  reserved  limit  worst case  set by
-----------------------------------------------------------------
/                        -         -      -      1600.0
  prod/               8000         -      -       457.1
    web/              3000         -      -       157.1
      front           8000         -      -        78.6
      cache           8000         -      -        78.6
    db/               1000     300.0      -       300.0
      sql             4000     200.0      -       200.0
      replica         2000         -      -       100.0
  test/               2000         -  300.0       114.3
    batch/     4000 (6000)         -      -        85.7  scalable
      night           4000         -      -        57.1
      report          2000         -      -        28.6
    try               2000         -   50.0        28.6
  system             16000         -      -       914.3
  loner               2000         -      -       114.3
"
        );
    }

    #[test]
    fn a_tree_that_runs_says_who_lends_to_whom() {
        let grown = nested();
        let worst = grown.tree.worst_case();
        // front asks for nothing, cache takes all of the pool.
        let now =
            |worst: &u64| PlanNow { asks: Rate(*worst), gets: Rate(*worst), used: Rate(*worst) };
        let mut leaves: Vec<PlanNow> = worst.leaves.iter().map(now).collect();
        let moved = leaves[1].gets.0;
        leaves[1] = PlanNow::default();
        leaves[2].gets.0 += moved;
        let now = Now {
            pools: worst.pools.iter().map(now).collect(),
            leaves,
            duration_ns: 1_000_000_000,
        };
        let plan = of(&grown, Some(&now));
        assert_eq!(plan.loans.len(), 1);
        assert_eq!(
            (plan.loans[0].from.as_str(), plan.loans[0].to[0].0.as_str()),
            ("/prod/web/front", "/prod/web/cache")
        );
        assert_eq!(plan.loans[0].lends, Rate(worst.leaves[1]));
    }
}
