//! What a world does with the CPU time it gets, described as data.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use units::Span;

/// How a mean time is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Dist {
    /// Always the mean.
    #[default]
    Fixed,
    /// Exponential with that mean, cut at 16 times the mean.
    Exponential,
}

/// The behaviour of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Workload {
    /// Halted for ever.
    Idle,
    /// Never stops wanting CPU.
    #[default]
    Burn,
    /// RDY's CPU burner: so much CPU work, then a sleep that starts when the work is done.
    Duty {
        /// CPU time of one piece of work.
        work: Span,
        /// Sleep after it.
        sleep: Span,
    },
    /// A piece of work released at every period, whether or not the last one is done.
    Periodic {
        /// Time between releases.
        period: Span,
        /// CPU time of one release.
        work: Span,
    },
    /// An I/O-like sleeper: short work, then a wait for a device.
    Io {
        /// Mean CPU time of one piece of work.
        work: Span,
        /// Mean wait.
        sleep: Span,
        /// How both are spread.
        #[serde(default)]
        dist: Dist,
        /// Whether a vCPU halts meanwhile, or waits in its emulator.
        #[serde(default = "halts")]
        halts: bool,
    },
}

/// What a guest does while a device works.
fn halts() -> bool {
    true
}

impl Workload {
    /// Reasons why this workload cannot be run, each without its object's name.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut out = vec![];
        let mut at_least_us = |what: &str, span: Span| {
            if span.ns() < 1_000 {
                out.push(format!("workload.{what}: seen {span}, allowed 1us or more"));
            }
        };
        match *self {
            Workload::Idle | Workload::Burn => {}
            Workload::Duty { work, sleep } | Workload::Io { work, sleep, .. } => {
                at_least_us("work", work);
                at_least_us("sleep", sleep);
            }
            Workload::Periodic { period, work } => {
                at_least_us("period", period);
                at_least_us("work", work);
            }
        }
        out
    }
}

/// A window of time in which a workload is active, written `5s..20s`; either side may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start, from the start of the run.
    pub from: Span,
    /// End; `None` is the end of the run.
    pub to: Option<Span>,
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.to {
            Some(to) => s.collect_str(&format_args!("{}..{to}", self.from)),
            None => s.collect_str(&format_args!("{}..", self.from)),
        }
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Window, D::Error> {
        let text = String::deserialize(d)?;
        let bad = || D::Error::custom(format!("window: cannot read '{text}': allowed FROM..TO as in '5s..20s', '..20s' or '5s..'"));
        let (from, to) = text.split_once("..").ok_or_else(bad)?;
        let part = |t: &str| if t.trim().is_empty() { Ok(None) } else { t.parse::<Span>().map(Some).map_err(D::Error::custom) };
        let window = Window { from: part(from)?.unwrap_or(Span::ZERO), to: part(to)? };
        if window.to.is_some_and(|t| t <= window.from) { Err(bad()) } else { Ok(window) }
    }
}
