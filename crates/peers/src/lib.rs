//! Schedulers to compare Tandem with, each a model in Rust of one that is in use, run by the
//! simulator through `crates/contract`. They promise nothing that Tandem promises.

mod esx;
mod simple;

use contract::{Scheduler, Setup};

/// A comparison policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// One FIFO for the host.
    Fifo,
    /// One queue for the host by weighted virtual time.
    Vtime,
    /// ESX 2.5.2.
    Esx252,
    /// ESX 2.5.3.
    Esx253,
    /// ESX 3.5.
    Esx35,
    /// ESX 4.0.
    Esx40,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 6] =
        [Peer::Fifo, Peer::Vtime, Peer::Esx252, Peer::Esx253, Peer::Esx35, Peer::Esx40];

    /// Those that leave no pCPU idle while a world may run there.
    pub const BASELINES: [Peer; 2] = [Peer::Fifo, Peer::Vtime];

    /// The version of ESX, if it is one.
    fn version(self) -> Option<esx::Terms> {
        let at = match self {
            Peer::Fifo | Peer::Vtime => return None,
            Peer::Esx252 => 0,
            Peer::Esx253 => 1,
            Peer::Esx35 => 2,
            Peer::Esx40 => 3,
        };
        Some(esx::ALL[at])
    }

    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self, self.version()) {
            (_, Some(terms)) => terms.name,
            (Peer::Fifo, None) => "fifo",
            (_, None) => "vtime",
        }
    }

    /// The policy, on a host.
    #[must_use]
    pub fn make(self, setup: &Setup<'_>) -> Box<dyn Scheduler> {
        match (self, self.version()) {
            (_, Some(terms)) => Box::new(esx::Esx::new(setup, terms)),
            (Peer::Fifo, None) => Box::new(simple::Simple::new(setup, simple::Order::Arrival)),
            (_, None) => Box::new(simple::Simple::new(setup, simple::Order::Vtime)),
        }
    }
}
