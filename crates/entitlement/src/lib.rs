//! Pure planner: turns shares, placement and demand into CPU time, exactly; it never looks at a clock or at a host.
//!
//! `fill` divides one capacity by weights and caps; `fluid` and `Fluid` do the same where claims
//! are held to some of the pCPUs; `plan` uses `fill` for the weights that the scheduler reads.

mod fill;
mod flow;
mod fluid;
mod plan;
mod split;

pub use fill::{Claim, fill, fill_units};
pub use fluid::{Demand, Fluid, FluidClaim, fluid};
pub use plan::{Plan, PlanVm, plan};
