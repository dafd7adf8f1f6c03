//! What clients ask for, summed by node.
//!
//! *Law*: a node's load is what its clients are entitled to. On a host where all want more than
//! there is, a client that is entitled to little is little load, however much it wants; where there
//! is enough for all, each is entitled to what it wants. What is wanted says whether a node is
//! contended. What tasks of higher classes take of a node is load, too: it is wanted there, and
//! had before all else.

use crate::planner::{Planner, State};

/// Most nodes: a client's affinity is a word with a bit for each.
pub(crate) const NODES_MAX: usize = 64;

/// What a client asks for, in thousandths of a pCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asks {
    /// What it wants, whether it has it or not.
    pub(crate) wants: u64,
    /// What it is entitled to of that.
    pub(crate) due: u64,
}

impl Asks {
    /// One that wants so much, entitled to all of it.
    pub(crate) fn all(wants: u64) -> Asks {
        Asks { wants, due: wants }
    }

    pub(crate) fn map(self, of: impl Fn(u64) -> u64) -> Asks {
        Asks { wants: of(self.wants), due: of(self.due) }
    }

    pub(crate) fn with(self, other: Asks, of: impl Fn(u64, u64) -> u64) -> Asks {
        Asks { wants: of(self.wants, other.wants), due: of(self.due, other.due) }
    }
}

/// What clients ask for, by node. It is copied for each change that is seen, so it is not on the
/// heap.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    asked: [Asks; NODES_MAX],
    cores: [u32; NODES_MAX],
    /// Loads in permille of the node's cores, for they are asked for each client and node.
    permille: [u64; NODES_MAX],
}

impl Loads {
    /// A node's load in permille of its cores; of one without cores `u64::MAX`.
    pub(crate) fn permille(&self, node: u32) -> u64 {
        self.permille[node as usize]
    }

    /// The same with so much more, or less.
    pub(crate) fn permille_with(&self, node: u32, more: i64) -> u64 {
        self.part(node, self.asked[node as usize].due, more)
    }

    /// What is wanted of a node in permille of its cores.
    pub(crate) fn wanted_permille(&self, node: u32) -> u64 {
        self.wanted_permille_with(node, 0)
    }

    /// The same with so much more, or less.
    pub(crate) fn wanted_permille_with(&self, node: u32, more: i64) -> u64 {
        self.part(node, self.asked[node as usize].wants, more)
    }

    fn part(&self, node: u32, of: u64, more: i64) -> u64 {
        let of = of.saturating_add_signed(more);
        of.checked_div(u64::from(self.cores[node as usize])).unwrap_or(u64::MAX)
    }

    pub(crate) fn add(&mut self, node: u32, more: Asks) {
        let at = &mut self.asked[node as usize];
        *at = at.with(more, |a, b| a + b);
        self.permille[node as usize] = self.permille_with(node, 0);
    }

    pub(crate) fn leave(&mut self, node: u32, less: Asks) {
        let at = &mut self.asked[node as usize];
        *at = at.with(less, u64::saturating_sub);
        self.permille[node as usize] = self.permille_with(node, 0);
    }

    pub(crate) fn shift(&mut self, from: u32, to: u32, asks: Asks) {
        self.leave(from, asks);
        self.add(to, asks);
    }

    pub(crate) fn shifted(&self, from: u32, to: u32, asks: Asks) -> Loads {
        let mut after = self.clone();
        after.shift(from, to, asks);
        after
    }

    /// Of the difference of two nodes' loads: what is left of it with so much more in the other
    /// one, and what it is.
    pub(crate) fn apart(&self, (from, to): (u32, u32), due: i64) -> (u64, u64) {
        let left = self.permille_with(from, -due).abs_diff(self.permille_with(to, due));
        (left, self.permille(from).abs_diff(self.permille(to)))
    }

    /// What is wanted of a node beyond its cores, as far as clients are entitled to more than
    /// these, in thousandths of a pCPU.
    pub(crate) fn waits(&self, node: u32) -> u64 {
        let Asks { wants, due } = self.asked[node as usize];
        wants.min(due).saturating_sub(self.gives(node))
    }

    /// What its cores have beyond what is wanted and can be used, in thousandths of a pCPU; `held`
    /// is wanted and cannot.
    pub(crate) fn idle(&self, node: u32, held: u64) -> u64 {
        self.gives(node).saturating_sub(self.asked[node as usize].wants.saturating_sub(held))
    }

    /// Of what its clients are entitled to, what its cores give with all their threads, if a core
    /// gives so much, in permille: 1000 at most.
    pub(crate) fn pace(&self, node: u32, core: u64) -> u64 {
        let gives = 1000 * core * u64::from(self.cores[node as usize]);
        gives.checked_div(self.asked[node as usize].due).unwrap_or(1000).min(1000)
    }

    fn gives(&self, node: u32) -> u64 {
        1000 * u64::from(self.cores[node as usize])
    }
}

impl Planner {
    /// Loads of the nodes as the clients' homes are now.
    pub(crate) fn loads(&self) -> Loads {
        self.loads_of(|c| c.asks)
    }

    pub(crate) fn loads_of(&self, asks: fn(&State) -> Asks) -> Loads {
        let asked = [Asks::default(); NODES_MAX];
        let mut loads = Loads { asked, cores: [0; NODES_MAX], permille: [0; NODES_MAX] };
        for c in self.clients.values() {
            let at = &mut loads.asked[c.home as usize];
            *at = at.with(asks(c), |a, b| a + b);
        }
        for (asked, taken) in loads.asked.iter_mut().zip(&self.taken) {
            *asked = asked.with(Asks::all(*taken), |a, b| a + b);
        }
        for (n, node) in self.nodes.iter().enumerate() {
            loads.cores[n] = node.cores;
            loads.permille[n] = loads.permille_with(n as u32, 0);
        }
        loads
    }
}
