//! Why a run could not be done, or was ended; each names the run.

use contract::Breach;
use sched_core::{HostError, KnobError};
use units::Span;

/// A run that could not be done, or that the kernel's contract ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The scenario does not fit the scheduler's tables.
    #[error("run '{label}': {cause}")]
    Host {
        /// The run.
        label: String,
        /// Why.
        cause: HostError,
    },
    /// The pools make no tree, or a change of settings cannot be.
    #[error("run '{label}': {}", reasons.join("; "))]
    Pools {
        /// The run.
        label: String,
        /// Why.
        reasons: Vec<String>,
    },
    /// A knob was refused.
    #[error("run '{label}': {cause}")]
    Knob {
        /// The run.
        label: String,
        /// Why.
        cause: KnobError,
    },
    /// The run asks for what the policy cannot do.
    #[error(
        "run '{label}': cannot run it with policy {policy}, which has no {}; run it with tandem, \
            or take that out of the scenario", missing.join(", no ")
    )]
    Unsupported {
        /// The run.
        label: String,
        /// The policy.
        policy: String,
        /// What is missing, each with what asks for it.
        missing: Vec<String>,
    },
    /// The duration leaves nothing to measure.
    #[error("run '{label}': cannot measure {duration}: allowed more than the warm-up of {warmup}")]
    Duration {
        /// The run.
        label: String,
        /// As given.
        duration: Span,
        /// As the scenario says.
        warmup: Span,
    },
    /// The trace could not be written.
    #[error("run '{label}': cannot record: {cause}")]
    Trace {
        /// The run.
        label: String,
        /// Why.
        cause: String,
    },
    /// The scheduler broke a rule of the kernel's contract.
    #[error("run '{label}' (seed {seed}): {breach}; a kernel would have ejected the scheduler")]
    Contract {
        /// The run.
        label: String,
        /// Its seed, to replay it.
        seed: u64,
        /// What happened.
        breach: Breach,
    },
}
