//! State times of each world by a trace, in the fields of a result document; fields that a trace
//! lacks (work, shares) stay 0.

use std::collections::BTreeMap;
use trace::{State, Stay};
use units::WorldId;
use views::Times;

/// A span of a state, within the part that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Begin, in ns.
    pub(crate) from: u64,
    /// End, in ns.
    pub(crate) to: u64,
    /// State.
    pub(crate) state: State,
    /// Whether a limit held it back; then the state is READY.
    pub(crate) limited: bool,
}

/// A stay cut at the window and where a limit began or ended to hold the world back.
pub(crate) fn parts(stay: &Stay, from: u64, to: u64) -> Vec<Part> {
    let (from, to) = (stay.was.since_ns.max(from), stay.to_ns.min(to));
    let (mut at, mut out) = (from, vec![]);
    let mut push = |a: u64, b: u64, limited| {
        if a < b {
            out.push(Part { from: a, to: b, state: stay.was.state, limited });
        }
    };
    if stay.was.state == State::Ready {
        for (a, b) in &stay.held {
            let (a, b) = ((*a).max(at), (*b).min(to));
            if a < b {
                push(at, a, false);
                push(a, b, true);
                at = b;
            }
        }
    }
    push(at, to, false);
    out
}

/// Sums of each world.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorldSums {
    /// Times of each world that was seen.
    pub(crate) times: BTreeMap<WorldId, Times>,
}

impl WorldSums {
    pub(crate) fn add(&mut self, world: WorldId, part: &Part) {
        let t = self.times.entry(world).or_default();
        let ns = part.to - part.from;
        match part.state {
            State::Run => (t.run_ns, t.used_ns) = (t.run_ns + ns, t.used_ns + ns),
            State::Ready => t.ready_ns += ns,
            State::Costop => t.costop_ns += ns,
            State::Wait => t.wait_ns += ns,
            State::WaitIdle => (t.wait_ns, t.idle_ns) = (t.wait_ns + ns, t.idle_ns + ns),
            State::None => {}
        }
        t.limited_ns += if part.limited { ns } else { 0 };
    }

    pub(crate) fn migrates(&mut self, world: WorldId) {
        self.times.entry(world).or_default().migrations += 1;
    }
}
