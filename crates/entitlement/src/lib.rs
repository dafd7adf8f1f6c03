//! Pure planner: turns shares, placement and demand into CPU time, exactly; it never looks at a clock or at a host.
//!
//! `fill` divides one capacity by weights and caps; `fluid` and `Fluid` do the same where claims
//! are held to some of the pCPUs; `plan` uses `fill` for the weights that the scheduler reads;
//! `active_plan` uses `fluid` for them where VMs are held to some pCPUs.

mod active;
mod fill;
mod flow;
mod fluid;
mod plan;
mod split;

pub use active::{ActiveVm, Meter, Order, REPLAN, active_plan};
pub use fill::{Claim, fill, fill_units};
pub use fluid::{Demand, Fluid, FluidClaim, fluid};
pub use plan::{Plan, PlanVm, plan};
