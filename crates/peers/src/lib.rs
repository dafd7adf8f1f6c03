//! Schedulers to compare Tandem with, each a model in Rust of one that is in use, run by the
//! simulator through `crates/contract`. They promise nothing that Tandem promises.

mod esx;
mod linux;
mod simple;
mod xen;

use contract::{Scheduler, Setup};
use esx::{
    ESX_2_5_2, ESX_2_5_3, ESX_3_5, ESX_4_0, ESX_4_1, ESX_4_1_TUNED, ESX_5_1, LOAD_ONLY, Terms,
};
use linux::Law;
use simple::Order;

/// A comparison policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// One FIFO for the host.
    Fifo,
    /// One queue for the host by weighted virtual time.
    Vtime,
    /// Linux 6.1: CFS.
    Cfs,
    /// Linux 6.12 and later: EEVDF.
    Eevdf,
    /// ESX 2.5.2.
    Esx252,
    /// ESX 2.5.3.
    Esx253,
    /// ESX 3.5.
    Esx35,
    /// ESX 4.0.
    Esx40,
    /// ESX 4.1.
    Esx41,
    /// ESX 4.1, HaltingIdleMsecPenalty raised.
    Esx41Tuned,
    /// ESXi 5.1.
    Esx51,
    /// Load alone, as if moves were free.
    LoadOnly,
    /// Xen's Credit.
    XenCredit,
    /// Xen's Credit2, a run queue for each socket.
    XenCredit2,
    /// Xen's Credit2, one run queue for all pCPUs.
    XenCredit2All,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 15] = [
        Peer::Fifo,
        Peer::Vtime,
        Peer::Cfs,
        Peer::Eevdf,
        Peer::Esx252,
        Peer::Esx253,
        Peer::Esx35,
        Peer::Esx40,
        Peer::Esx41,
        Peer::Esx41Tuned,
        Peer::Esx51,
        Peer::LoadOnly,
        Peer::XenCredit,
        Peer::XenCredit2,
        Peer::XenCredit2All,
    ];

    /// Models of Linux's own scheduler.
    pub const LINUX: [Peer; 2] = [Peer::Cfs, Peer::Eevdf];

    /// Those that leave no pCPU idle while a world may run there.
    pub const BASELINES: [Peer; 2] = [Peer::Fifo, Peer::Vtime];

    /// Name and model.
    fn row(self) -> (&'static str, Model) {
        let linux = |law: Law| (law.name(), Model::Linux(law));
        let esx = |terms: Terms| (terms.name, Model::Esx(terms));
        match self {
            Peer::Fifo => ("fifo", Model::Simple(Order::Arrival)),
            Peer::Vtime => ("vtime", Model::Simple(Order::Vtime)),
            Peer::Cfs => linux(Law::Cfs),
            Peer::Eevdf => linux(Law::Eevdf),
            Peer::Esx252 => esx(ESX_2_5_2),
            Peer::Esx253 => esx(ESX_2_5_3),
            Peer::Esx35 => esx(ESX_3_5),
            Peer::Esx40 => esx(ESX_4_0),
            Peer::Esx41 => esx(ESX_4_1),
            Peer::Esx41Tuned => esx(ESX_4_1_TUNED),
            Peer::Esx51 => esx(ESX_5_1),
            Peer::LoadOnly => esx(LOAD_ONLY),
            Peer::XenCredit => ("xen-credit", Model::Credit),
            Peer::XenCredit2 => ("xen-credit2", Model::Credit2(xen::Queues::Socket)),
            Peer::XenCredit2All => ("xen-credit2-all", Model::Credit2(xen::Queues::All)),
        }
    }

    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The policy, on a host.
    #[must_use]
    pub fn make(self, setup: &Setup<'_>) -> Box<dyn Scheduler> {
        match self.row().1 {
            Model::Simple(order) => Box::new(simple::Simple::new(setup, order)),
            Model::Linux(law) => Box::new(linux::Linux::new(setup, law)),
            Model::Esx(terms) => Box::new(esx::Esx::new(setup, terms)),
            Model::Credit => Box::new(xen::Credit::new(setup)),
            Model::Credit2(queues) => Box::new(xen::Credit2::new(setup, queues)),
        }
    }
}

/// What a policy is an instance of.
enum Model {
    Simple(Order),
    Linux(Law),
    Esx(Terms),
    Credit,
    Credit2(xen::Queues),
}
