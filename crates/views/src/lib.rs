//! What people and tools see of a run: the result document and tables made from it.

mod result;
mod table;

pub use result::{CpuStat, Document, HostCounts, Pcpu, Pool, RunResult, Times, Vm, Where, World, WorldKind};
pub use table::{Align, Table, side_by_side, summary, top, worlds};
