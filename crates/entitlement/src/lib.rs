//! Pure planner: turns shares, reservations, limits, placement and demand into CPU time, exactly;
//! it never looks at a clock or at a host.
//!
//! `fill` divides one capacity by weights and caps, `fill_between` by weights, floors and caps;
//! `Tree` divides a host down its resource pools with `fill_between`, and lays itself out for the
//! scheduler; `check` and `admit` decide whether the reservations of a tree can be guaranteed.
//! `fluid` and `Fluid` divide where claims are pinned to some of the pCPUs, `divide_placed` where
//! there are pools too; `active_plan` makes the scheduler's weights of that.

mod active;
mod admit;
mod clamp;
mod could;
mod fill;
mod flow;
mod fluid;
mod nodes;
mod placed;
mod ratio;
mod reserve;
mod split;
mod text;
mod tree;

pub use active::{ActiveVm, Meter, Order, REPLAN, active_plan};
pub use admit::{Admission, Ask, Level, Outcome, admit};
pub use clamp::{Between, fill_between};
pub use fill::{Claim, fill, fill_units};
pub use fluid::{Classes, Demand, Fluid, FluidClaim, fluid};
pub use nodes::{Owner, PlanLimit, PlanLimits, PlanNode};
pub use placed::divide_placed;
pub use reserve::{Excess, Names, PoolUse, Report, Rule, check, kept};
pub use tree::{Division, POOL_SHARES_NORMAL, TREE_WEIGHT_MAX, Taken, Tree, TreeLeaf, TreePool};
