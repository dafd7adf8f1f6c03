//! Puts plans, limits and weights into the scheduler's records, for the live host and the
//! simulator alike; it plans nothing and knows no kernel.
//!
//! | file | what |
//! |---|---|
//! | `nodes.rs` | a planner's tree as the nodes of a plan |
//! | `limits.rs` | each limit's slot in the scheduler's table, and the order of writes |
//! | `weigh.rs` | weights by demand, where VMs are pinned to some pCPUs |
//! | `native.rs` | the table of the native build |

mod limits;
mod native;
mod nodes;
mod weigh;

pub use limits::{Limits, Owner, Table, Terms, Wanted, wanted};
pub use nodes::plan_nodes;
pub use weigh::{Wants, Weigher};
