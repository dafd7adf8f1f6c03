//! What people and tools see of a run: the result document and tables made from it.

pub mod esxtop;
mod plan;
mod result;
mod table;
mod top;

pub use plan::{Loan, Plan, PlanKind, PlanNow, PlanRow, Unit, loans, plan};
pub use result::{CpuStat, Document, HostCounts, Pcpu, Pool, RunResult, Times, Vm, Where, World, WorldKind};
pub use table::{Align, Table, pools, side_by_side, summary};
pub use top::{Allocations, top, worlds};
