//! What people and tools see of a run: the result document and tables made from it.

mod checked;
mod lost;
mod numa;
mod plan;
mod result;
mod schema;
mod table;
mod top;
mod wakeups;

pub use checked::checked_side_by_side;
pub use lost::{lost, moved};
pub use numa::{explained, homes};
pub use plan::{Loan, Plan, PlanKind, PlanNow, PlanRow, Unit, loans, plan};
pub use result::{
    Checked, CpuStat, Document, Guest, GuestTasks, HostCounts, Lost, MeasuredBy, Moved, NumaClient,
    Pcpu, Pool, RunResult, Times, Vm, Wakeups, Where, World, WorldKind,
};
pub use schema::{RESULT_VERSION, result_schema};
pub use table::{Table, pools, ready_side_by_side, side_by_side, summary};
pub use top::{Allocations, top, worlds};
pub use wakeups::{Latencies, bucket_of, end_of, wakeups, wakeups_side_by_side};
