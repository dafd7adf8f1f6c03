//! The NUMA planner: home nodes of VMs, why they change, and how fast memory follows. Pure: loads
//! in, decisions out; it reads no clock, no file and no scheduler.
//!
//! *Terms* (VS51 "NUMA Scheduling Policy", "NUMA Migration"): a *client* is a VM, or a part of a
//! wide one, that has a home node: its vCPUs run only there, its memory is allocated there first. A
//! home changes for one of four reasons: CPU imbalance, locality, action affinity, long-term
//! fairness.
//!
//! *Law*: a change is made only if it is worth more than it costs by the published thresholds
//! (`Knobs`), and if what it leaves would not ask for the next change. Loads are smoothed, and the
//! loads of nodes count with every change that a round has made so far.
//!
//! *Units*: CPU in thousandths of a pCPU, loads in permille of a node's cores, memory in bytes,
//! rates in bytes a second.
//!
//! *Sources*: VS51 has the reasons and the behaviour; names, units and defaults of the thresholds
//! are those of ESXi's settings `Numa.*`. How a threshold is compared is ours, and said there.

mod decide;
mod explain;
mod fair;
mod knobs;
mod llcs;
mod loads;
mod memory;
mod near;
mod place;
mod planner;
mod reach;
mod reserve;
mod roam;
mod talks;

pub use explain::{Decision, Outcome, Reason, Refusal};
pub use knobs::Knobs;
pub use llcs::{Asks, Llc, Llcs, VcpuLoads};
pub use memory::{Order, RAMP_ROUNDS, SLOW_ROUNDS};
pub use planner::{Client, ClientId, Load, Node, Planner};
pub use reach::{Reach, Reached, reached};
pub use reserve::NO_ROOM;
pub use roam::ROAMS;
pub use talks::Talks;
