//! Checks a trace against the oracle's invariants, whether it was recorded in the simulator, in the
//! lab or on a live host; it corrects nothing.
//!
//! Checked: transitions, the worlds on each pCPU, affinity, pCPUs that idle while a world waits,
//! cores that are shared while whole ones idle, waits, skew and co-stop. Not checked: lag, limits
//! and reservations, for a trace has no settings; and accounts, for those of a trace are less exact
//! than states.
//!
//! A pCPU in an unknown state, or that runs a world without a name in the trace, counts as busy.
//! After lost events the oracle starts again, and the skew of siblings is unknown then: they may
//! lead by the threshold more.

mod feed;

use check::{Bounds, CoschedTerms, Invariant, SchedulerTerms, Verdict, Violation};
use feed::Feed;
use trace::{Event, Kind};
use views::Checked;

/// What a trace is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How late anything may be.
    pub bounds: Bounds,
    /// When vCPUs are to be stopped, if they are held together.
    pub cosched: Option<CoschedTerms>,
}

impl From<&SchedulerTerms> for Terms {
    /// What a scheduler of these settings is held to from its first event on.
    fn from(of: &SchedulerTerms) -> Terms {
        Terms { bounds: of.bounds(), cosched: of.cosched() }
    }
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The first violations, as many as `Bounds::violations_kept`, in the order of time.
    pub violations: Vec<Violation>,
    /// How often each invariant was violated, in the order of `Invariant::ALL`.
    pub counts: [u64; Invariant::ALL.len()],
    /// Longest time any world was READY without interruption, in ns.
    pub ready_max_ns: u64,
    /// Longest time any pCPU idled while a world waited that may run there, in ns; 0 if never for
    /// longer than allowed.
    pub idle_while_waiting_max_ns: u64,
    /// Most that any running vCPU led its slowest sibling that wanted to run, in ns.
    pub skew_max_ns: u64,
    /// Longest time any vCPU was co-stopped without interruption, in ns.
    pub costop_max_ns: u64,
    /// Events of the trace that were judged.
    pub events: u64,
    /// Time that was judged, in ns.
    pub span_ns: u64,
    /// Number of times that events were lost and the checks started again.
    pub lost: u64,
}

impl Audit {
    /// Number of violations, kept or not.
    #[must_use]
    pub fn violated(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The same for a result document.
    #[must_use]
    pub fn checked(&self) -> Checked {
        Checked {
            violated: self.violated(),
            violations: self.violations.iter().map(ToString::to_string).collect(),
            ready_max_ns: self.ready_max_ns,
            idle_while_waiting_max_ns: self.idle_while_waiting_max_ns,
            skew_max_ns: self.skew_max_ns,
            costop_max_ns: self.costop_max_ns,
            realtime_ns: vec![],
        }
    }

    fn add(&mut self, verdict: Verdict, kept: usize) {
        let room = kept.saturating_sub(self.violations.len());
        self.violations.extend(verdict.violations.into_iter().take(room));
        self.counts.iter_mut().zip(verdict.counts).for_each(|(sum, n)| *sum += n);
        self.ready_max_ns = self.ready_max_ns.max(verdict.ready_max_ns);
        self.idle_while_waiting_max_ns =
            self.idle_while_waiting_max_ns.max(verdict.idle_while_waiting_max_ns);
        self.skew_max_ns = self.skew_max_ns.max(verdict.skew_max_ns);
        self.costop_max_ns = self.costop_max_ns.max(verdict.costop_max_ns);
    }
}

/// Judges a trace, whose events are in the order of time.
#[must_use]
pub fn audit(events: &[Event], terms: &Terms) -> Audit {
    let mut sum = Audit::default();
    let mut feed = Feed::new(events, *terms);
    for event in events {
        if matches!(event.kind, Kind::Lost { .. }) {
            sum.lost += 1;
            if let Some(verdict) = feed.close() {
                sum.add(verdict, terms.bounds.violations_kept);
            }
        }
        sum.events += u64::from(!event.kind.is_name());
        feed.step(event);
    }
    if let Some(verdict) = feed.close() {
        sum.add(verdict, terms.bounds.violations_kept);
    }
    sum.span_ns = feed.span_ns();
    sum
}
