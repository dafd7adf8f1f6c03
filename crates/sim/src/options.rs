//! How a scenario is run: seed, knobs, policy, costs of the hardware; each default with its reason.

use crate::mutant::Mutant;
use std::{collections::BTreeMap, fmt, str::FromStr};
use units::Span;

/// How to run a scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed instead of the scenario's.
    pub seed: Option<u64>,
    /// Duration instead of the scenario's; the warm-up stays.
    pub duration: Option<Span>,
    /// Knobs by name, over those of the scenario.
    pub knobs: BTreeMap<String, u64>,
    /// The scheduler.
    pub policy: Policy,
    /// Whether the oracle watches, and accounts and queues are audited. Costs about two thirds of
    /// the speed.
    pub check: bool,
    /// What hardware and kernel cost.
    pub costs: Costs,
    /// When timer ticks come.
    pub ticks: Ticks,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: None,
            duration: None,
            knobs: BTreeMap::new(),
            policy: Policy::Tandem,
            check: true,
            costs: Costs::default(),
            ticks: Ticks::Aligned,
        }
    }
}

/// Time that a kernel and its hardware take; zero everywhere makes an ideal machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Before a world that was switched to does work of its own. The kernel charges it to that
    /// world: its clock starts when it is picked. Default 2 us: a switch between address spaces
    /// with `lmbench lat_ctx` on server hardware takes 1 to 3 us.
    pub switch_ns: u64,
    /// From a kick to the moment the other pCPU schedules. Default 1 us: an inter-processor
    /// interrupt within a socket takes 0.5 to 2 us.
    pub kick_ns: u64,
    /// Time that a timer interrupt and the wake-up in it take from whatever runs on the pCPU where
    /// the timer was armed. Default 1 us.
    pub wake_ns: u64,
    /// From a VM's start or stop to the moment the weights of the others change: the daemon reads
    /// a notification, plans and writes the maps. Default 1 ms.
    pub plan_ns: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { switch_ns: 2_000, kick_ns: 1_000, wake_ns: 1_000, plan_ns: 1_000_000 }
    }
}

impl Costs {
    /// An ideal machine.
    pub const ZERO: Costs = Costs { switch_ns: 0, kick_ns: 0, wake_ns: 0, plan_ns: 0 };
}

/// When the timer ticks of the pCPUs come; an idle pCPU has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ticks {
    /// All at the same moment, as Linux does without `skew_tick`.
    #[default]
    Aligned,
    /// Evenly spread over the period, as Linux does with `skew_tick=1`.
    Staggered,
}

/// The scheduler of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Tandem itself.
    #[default]
    Tandem,
    /// Tandem with one fault put between it and the kernel, for the checkers to catch.
    Mutant(Mutant),
}

/// A name that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy: cannot use '{seen}': allowed tandem, \
    {}", Mutant::ALL.map(|m| format!("mutant:{}", m.name())).join(", "))]
pub struct PolicyError {
    /// What was given.
    pub seen: String,
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let mutant = text
            .strip_prefix("mutant:")
            .and_then(|name| Mutant::ALL.into_iter().find(|m| m.name() == name));
        match (text, mutant) {
            ("tandem", _) => Ok(Policy::Tandem),
            (_, Some(m)) => Ok(Policy::Mutant(m)),
            _ => Err(PolicyError { seen: text.to_owned() }),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Tandem => f.write_str("tandem"),
            Policy::Mutant(m) => write!(f, "mutant:{}", m.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_back_as_written_and_others_refused() {
        for mutant in Mutant::ALL {
            let policy = Policy::Mutant(mutant);
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let text = "mutant:none".parse::<Policy>().unwrap_err().to_string();
        assert!(
            text.contains("cannot use 'mutant:none': allowed tandem, mutant:lost-kick"),
            "{text}"
        );
    }
}
