//! VMs without a home because no node has room for what they ask for, and other nodes have idle
//! cores.
//!
//! *Law*: where clients of a node are entitled to more than its cores give, some imbalance has been
//! left as it is for `swap_periods`, and no change is made now or about to be, a client leaves its
//! home: its vCPUs run anywhere. Its gain is the least of what its node lacks, of
//! what no client wants of the other nodes that it may use, and of what it wants, now and in the
//! mean of many rounds; that must be `roam_percent` of the node's cores. Of all clients the one
//! that gains most leaves, of equals the one that wants least, for what runs far from its memory is
//! slower. It has a home again once it would gain less than half of that.
//!
//! *Units*: thousandths of a pCPU.
//!
//! *Example*: two nodes of eight cores, three VMs of six vCPUs that burn. Two share a node, and
//! have four cores each; beside the third one two cores idle. One of the two leaves: all have 5.3
//! cores.
//!
//! *Limits*: a wide VM has homes. What VMs without a home want is load of no node; all of it is
//! taken off what idles.

use crate::loads::{Asks, Loads};
use crate::planner::{Planner, State};
use crate::{ClientId, Decision, Reason};

/// Why a VM has no home, in words.
pub const ROAMS: &str =
    "no node has room for what it wants, and other nodes have idle cores: no home";

impl Planner {
    /// Whether a VM has no home because no node has room for what it wants.
    #[must_use]
    pub fn roams(&self, vm: u32) -> bool {
        self.roaming.contains(&vm)
    }

    /// VMs leave homes where they wait beside idle cores, or have one again.
    pub(crate) fn roam(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        self.come_home(at_ns, out);
        let periods = self.knobs.swap_periods.max(1);
        if self.knobs.roam_percent == 0 || self.stuck < periods || !out.is_empty() {
            return;
        }
        let wants = self.wants();
        let has_cores = |c: &State| self.nodes[c.home as usize].cores > 0;
        let may = |c: &&State| c.settled >= periods && has_cores(c) && self.is_whole(c);
        let gains = self.clients.values().filter(may).map(|c| {
            let gain = self.gain_of_roaming(c, c.home, &wants);
            (gain, std::cmp::Reverse((c.asks, c.client.id)), c.home)
        });
        let best = gains.filter(|(gain, _, home)| *gain >= self.least_gain(*home)).max();
        let Some((gain, std::cmp::Reverse((asks, id)), home)) = best else { return };
        if self.moves_now() {
            return; // it will be made once that has lasted
        }
        let cause = gain / u64::from(self.nodes[home as usize].cores);
        let mut after = wants.now.clone();
        after.leave(home, asks);
        out.push(self.change(at_ns, id, home, Reason::Roams, cause, (&wants.now, &after)));
        self.unseat(id.vm);
        self.roaming.insert(id.vm);
    }

    /// VMs that gain nothing more without a home have one again; one for which no node has room by
    /// what it has reserved waits for that (`reserve`).
    fn come_home(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        let mut wants = self.wants();
        for vm in self.roaming.clone() {
            let Some(c) = self.homeless.get(&ClientId { vm, part: 0 }) else { continue };
            let Some(node) = self.nearest_room(c, &wants) else {
                self.roaming.remove(&vm);
                continue;
            };
            let gain = self.gain_of_roaming(c, node, &wants.with(c, node));
            if self.knobs.roam_percent > 0 && 2 * gain >= self.least_gain(node) {
                continue;
            }
            let client = c.client;
            out.extend(self.place(at_ns, &client, Some(node)));
            wants = self.wants();
        }
    }

    fn wants(&self) -> Wants {
        let homeless = |of: fn(&State) -> Asks| self.homeless.values().map(|c| of(c).wants).sum();
        Wants {
            now: self.loads(),
            long: self.loads_of(State::asks_long),
            homeless: (homeless(|c| c.asks), homeless(State::asks_long)),
        }
    }

    /// Whether a client is its whole VM.
    fn is_whole(&self, c: &State) -> bool {
        let ClientId { vm, .. } = c.client.id;
        let all = ClientId { vm, part: 0 }..=ClientId { vm, part: u32::MAX };
        self.clients.range(all).count() == 1
    }

    /// What a client of this node must gain to leave it.
    fn least_gain(&self, node: u32) -> u64 {
        10 * self.knobs.roam_percent * u64::from(self.nodes[node as usize].cores)
    }

    /// Where a client without a home would have one: where it was last if there is room for it, or
    /// else where least is wanted.
    fn nearest_room(&self, c: &State, wants: &Wants) -> Option<u32> {
        let free = self.knobs.contended_permille();
        let fits = |n: u32| {
            let now = wants.now.wanted_permille_with(n, c.asks.wants as i64);
            now.max(wants.long.wanted_permille_with(n, c.asks_long().wants as i64)) <= free
        };
        let may = (0..self.nodes.len() as u32).filter(|n| self.allows(c, *n));
        may.min_by_key(|n| (!(fits(*n) && *n == c.home), wants.long.wanted_permille(*n), *n))
    }

    /// What a client gains without a home, beside one in this node.
    fn gain_of_roaming(&self, c: &State, node: u32, wants: &Wants) -> u64 {
        let may = (0..self.nodes.len() as u32).filter(|n| self.may_be_home(c, *n));
        let of = |loads: &Loads, wanted: u64, homeless: u64| {
            let idle: u64 = may.clone().map(|n| loads.idle(n)).sum();
            loads.waits(node).min(wanted).min(idle.saturating_sub(homeless))
        };
        let now = of(&wants.now, c.asks.wants, wants.homeless.0);
        now.min(of(&wants.long, c.asks_long().wants, wants.homeless.1))
    }
}

/// What clients want: now, and in the mean of many rounds.
struct Wants {
    /// By node.
    now: Loads,
    long: Loads,
    /// Without a home.
    homeless: (u64, u64),
}

impl Wants {
    /// The same once a client without a home has one in this node.
    fn with(&self, c: &State, node: u32) -> Wants {
        let (mut now, mut long) = (self.now.clone(), self.long.clone());
        now.add(node, c.asks);
        long.add(node, c.asks_long());
        let (of_now, of_long) = self.homeless;
        let homeless = (of_now - c.asks.wants, of_long - c.asks_long().wants);
        Wants { now, long, homeless }
    }
}
