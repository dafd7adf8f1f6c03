//! Puts limits and weights into a scheduler's tables, for the live host and the simulator alike; it
//! plans nothing and knows neither kernel nor records.
//!
//! | file | what |
//! |---|---|
//! | `limits.rs` | each limit's slot in the scheduler's table, and the order of writes |
//! | `taken.rs` | what others take of each pCPU |
//! | `weigh.rs` | weights by demand, where VMs are pinned to some pCPUs |

mod limits;
mod taken;
mod weigh;

pub use limits::{Limits, Owner, Table, Terms, Wanted, wanted};
pub use taken::Takers;
pub use weigh::{Wants, Weigher};
