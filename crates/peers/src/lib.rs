//! Schedulers to compare Tandem with, each a model in Rust of one that is in use, run by the
//! simulator through `crates/contract`. They promise nothing that Tandem promises.

mod simple;

use contract::{Scheduler, Setup};

/// A comparison policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// One FIFO for the host.
    Fifo,
    /// One queue for the host by weighted virtual time.
    Vtime,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 2] = [Peer::Fifo, Peer::Vtime];

    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Peer::Fifo => "fifo",
            Peer::Vtime => "vtime",
        }
    }

    /// The policy, on a host.
    #[must_use]
    pub fn make(self, setup: &Setup<'_>) -> Box<dyn Scheduler> {
        match self {
            Peer::Fifo => Box::new(simple::Simple::new(setup, simple::Order::Arrival)),
            Peer::Vtime => Box::new(simple::Simple::new(setup, simple::Order::Vtime)),
        }
    }
}
