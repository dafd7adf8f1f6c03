//! Xen's schedulers, Credit and Credit2, as Xen 4.20 has them by default: what both have in common.
//! They keep their own run queues; a world that waits is in one dispatch queue of the kernel, from
//! which the pCPU that is to run it takes it by name.
//!
//! *Mapping*: a VM is a domain, and a world its vCPU. Host tasks are vCPUs of Domain-0, which has
//! Xen's default weight of 256 and no cap. Weights and caps are in `domains`.
//!
//! *Source*: `xen/common/sched/credit.c` and `credit2.c` of Xen 4.20 to 4.23, of which constants
//! and laws are taken; the wiki's pages "Credit Scheduler" and "Credit 2 Scheduler". Each file
//! names the law that it has. docs/design/014-xen.md compares both with a measured Xen.
//!
//! *Limits*: no soft affinity, no CPU pools, no core scheduling, no tasklets. Locks are free and
//! always to be had. A timer ends a run to the ns, later by what an interrupt takes.

mod alarms;
mod credit;
mod credit2;
mod domains;
mod machine;

pub(crate) use credit::Credit;
pub(crate) use credit2::{Credit2, Queues};

use contract::Feature;

/// What a scenario may ask of both.
const FEATURES: &[Feature] =
    &[Feature::Shares, Feature::Limits, Feature::Hotplug, Feature::WideVms];

/// The kernel's queue of all worlds that wait, in whatever order.
const WAITING: u64 = 0;

/// A world that has run for less is not preempted, in ns (ratelimit_us: 1,000).
const RATELIMIT_NS: u64 = 1_000_000;
