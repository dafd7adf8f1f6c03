//! The oracle: one definition of a correct scheduler, for simulator, lab and live audit; it never
//! schedules.
//!
//! | invariant | law | file |
//! |---|---|---|
//! | placement, transitions, state times, charges | to the ns | `oracle.rs`, `accounts.rs` |
//! | lag | a VM's CPU time stays near that of an ideal fluid | `ideals.rs`, `lag.rs` |
//! | limit, reservation | no limit exceeded, no reservation missed | `promises.rs` |
//! | idle while waiting, ready too long | work conservation | `waits.rs` |
//!
//! `Oracle` takes every event as it happens. It stops nothing: it counts violations, keeps the
//! first of them, and goes on from what it saw.

mod accounts;
mod bounds;
mod homes;
mod ideals;
mod lag;
mod oracle;
mod promises;
mod queues;
mod settings;
mod sharing;
mod skew;
mod state;
mod terms;
mod verdict;
mod waits;
mod window;

pub use bounds::Bounds;
pub use homes::{HomeChange, HomeSeen, HomeTerms};
pub use oracle::Oracle;
pub use settings::{CoreTerms, CoschedSpans, SchedulerTerms};
pub use skew::CoschedTerms;
pub use state::{State, StateTimes};
pub use terms::{PoolTerms, VmTerms};
pub use units::CoreSharing;
pub use verdict::{Invariant, Verdict, Violation, VmVerdict};
