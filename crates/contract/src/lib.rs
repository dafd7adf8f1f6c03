//! The contract between a scheduler and the kernel that runs it, as Rust traits; it schedules
//! nothing and runs nothing.
//!
//! *Law*: names, order and legality of the calls are those of sched_ext (Linux 6.12,
//! `kernel/sched/ext.c`). A `Scheduler` has the callbacks of `struct sched_ext_ops`; a `Kernel` has
//! the services that `scx_bpf_*` gives to them, and a timer. Tandem's C source is one scheduler
//! (`crates/sched-core`), comparison policies are others (`crates/peers`); the simulator is one
//! kernel. Each side knows the other by these traits alone.
//!
//! *Owners*: threads (`Task`) and queues belong to the kernel, which lends the threads to
//! each callback. The kernel's side also owns the truth of what runs when. What a scheduler
//! accounts itself it shows as `Accounts`, which are compared with that truth.
//!
//! *Limits*: callbacks run one at a time, each to its end. A kernel's are concurrent on several
//! CPUs; races are for the lab.

mod accounts;
mod breach;
mod features;
mod kernel;
mod scheduler;
mod settings;
mod task;

pub use accounts::{Accounts, StateTimes};
pub use breach::{Breach, Rule};
pub use features::Feature;
pub use kernel::{
    Callback, ENQUEUE_WAKEUP, Hold, KICK_IDLE, KICK_PREEMPT, Kernel, Lock, NoKernel, QUEUES_MAX,
    SLICE_DEFAULT_NS, SLICE_ENDLESS, TIMERS_MAX, TraceRecord, WAKE_SYNC,
};
pub use scheduler::Scheduler;
pub use settings::{Limit, LimitOf, Limits, Plan, Setup, VmTerms, WorldTerms};
pub use task::{PCPU_WORDS, Task, Tasks};
