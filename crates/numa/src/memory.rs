//! How fast memory follows (VS51 "NUMA Migration", N3).
//!
//! *Law*: hot pages follow at once. The rest does not as long as a client may soon go back; then at
//! a rate that doubles every round, up to the host's. All clients together move no more than
//! `memory_rate`, each an equal part of it; what one does not need is for the others.

use crate::planner::State;
use crate::{ClientId, Planner};

/// Rounds at home before pages that are not hot follow.
pub const SLOW_ROUNDS: u64 = 2;
/// First rate of these, as a part of the host's: 1 in so many.
const FIRST_PART: u64 = 64;
/// Rounds at home after which memory follows at the whole rate.
pub const RAMP_ROUNDS: u64 = SLOW_ROUNDS + 1 + FIRST_PART.ilog2() as u64;

/// Memory of a client that is to follow until the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whose.
    pub client: ClientId,
    /// Its home.
    pub to: u32,
    /// Most bytes to move, hot pages first.
    pub bytes: u64,
    /// Most bytes of these that are not hot.
    pub cold: u64,
}

impl Planner {
    /// What is to be moved until the next round; a client whose memory is at home is left out.
    #[must_use]
    pub fn memory_orders(&self) -> Vec<Order> {
        self.memory_orders_of(|_| true)
    }

    /// The same of the clients whose memory may be moved.
    #[must_use]
    pub fn memory_orders_of(&self, moves: impl Fn(ClientId) -> bool) -> Vec<Order> {
        let at_home = |c: &State| c.memory.get(c.home as usize).copied().unwrap_or(0);
        let mut left = self.knobs.memory_rate * self.knobs.period_ms / 1000;
        let whole = left;
        let mut remote: Vec<_> = self
            .clients
            .iter()
            .map(|(id, c)| (c.all_memory() - at_home(c), id, c))
            .filter(|(away, id, _)| *away > 0 && moves(**id))
            .collect();
        remote.sort_by_key(|(away, id, _)| (*away, **id));
        let mut out = vec![];
        let clients = remote.len() as u64;
        for (n, (away, id, c)) in (0..).zip(remote) {
            let rounds = c.settled.saturating_sub(SLOW_ROUNDS);
            let ramp = match c.settled {
                0..=SLOW_ROUNDS => 0,
                _ => (whole / FIRST_PART).max(1) << (rounds - 1).min(FIRST_PART.ilog2().into()),
            };
            let bytes = away.min(left / (clients - n));
            if bytes == 0 {
                continue;
            }
            let cold = ramp.min(bytes);
            out.push(Order { client: *id, to: c.home, bytes, cold });
            left -= bytes;
        }
        out
    }
}
