//! What sched_ext allows a scheduler to do; a breach stops the run, as the kernel would eject the
//! scheduler.

use std::fmt;

/// A rule of the kernel's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A runnable world is running, or in exactly one queue.
    Custody,
    /// A call is made only from the callbacks that may make it.
    Context,
    /// A local queue holds only worlds that may run on its pCPU.
    Affinity,
    /// A pCPU that is named exists.
    UnknownPcpu,
    /// A queue that is named exists.
    UnknownQueue,
    /// A world that is named exists.
    UnknownWorld,
    /// A runnable world runs within 30 s.
    Watchdog,
    /// The scheduler's own assertions hold.
    Assertion,
    /// The scheduler's counts of a VM agree with the kernel's.
    Counts,
}

impl Rule {
    /// Name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rule::Custody => "custody",
            Rule::Context => "context",
            Rule::Affinity => "affinity",
            Rule::UnknownPcpu => "unknown-pcpu",
            Rule::UnknownQueue => "unknown-queue",
            Rule::UnknownWorld => "unknown-world",
            Rule::Watchdog => "watchdog",
            Rule::Assertion => "assertion",
            Rule::Counts => "counts",
        }
    }
}

/// A rule that was broken: by what, where and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The rule.
    pub rule: Rule,
    /// What was seen and what is allowed.
    pub what: String,
    /// The world concerned.
    pub world: Option<u32>,
    /// The pCPU concerned.
    pub pcpu: Option<u32>,
    /// When, in ns of virtual time.
    pub at_ns: u64,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world.map(|w| format!("world {w}"));
        let pcpu = self.pcpu.map(|p| format!("pCPU {p}"));
        let object: Vec<String> = [world, pcpu].into_iter().flatten().collect();
        let object = if object.is_empty() { "host".to_owned() } else { object.join(", ") };
        write!(f, "{object}: at {} ns: contract {}: {}", self.at_ns, self.rule.name(), self.what)
    }
}

/// A runnable world must run within this time; sched_ext's own default (SCX_WATCHDOG_MAX_TIMEOUT).
pub(crate) const WATCHDOG_NS: u64 = 30_000_000_000;
/// Slice that the kernel gives where a scheduler left none (SCX_SLICE_DFL).
pub(crate) const SLICE_DEFAULT_NS: u64 = 20_000_000;
/// A slice that never ends (SCX_SLICE_INF).
pub(crate) const SLICE_ENDLESS: u64 = u64::MAX;
/// How often the kernel calls dispatch again while it only fed other pCPUs (SCX_DSP_MAX_LOOPS).
pub(crate) const DISPATCH_LOOPS: u32 = 32;
