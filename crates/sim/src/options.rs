//! How a scenario is run: seed, knobs, policy, costs of the hardware; each default with its reason.

use crate::policies::Policy;
use std::collections::BTreeMap;
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
    /// For how long Tandem has been loaded when the run begins.
    pub age: Age,
}

/// For how long a scheduler has been loaded: its clocks count on from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Age {
    /// Its clock is so far ahead of the run's.
    pub clock_ns: u64,
    /// Its virtual time is so far ahead of one that begins.
    pub virtual_ns: u64,
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
            age: Age::default(),
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
