//! The planner's state: nodes, clients, what they want, how long each has been at home.

use crate::loads::{Asks, Loads, NODES_MAX};
use crate::near::Near;
use crate::{Decision, Knobs, Outcome, Reason, Refusal};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Decisions of a client that are remembered.
pub(crate) const REMEMBERED: usize = 16;
/// Rounds after which it is seen what came of a decision.
pub(crate) const OUTCOME_ROUNDS: u64 = 5;

/// A round counts one in so many in the mean over many.
pub(crate) const LONG_ROUNDS: u64 = 16;

/// A NUMA node. One without cores has memory only: no client has it for a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its cores.
    pub cores: u32,
    /// Its memory, in bytes.
    pub memory: u64,
}

/// Names a client: a VM, and which part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    /// The VM.
    pub vm: u32,
    /// Its part, from 0; 0 alone unless it is wide.
    pub part: u32,
}

/// A client as it is when its VM is powered on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its name.
    pub id: ClientId,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Memory that it will have, in bytes.
    pub memory: u64,
    /// Nodes that its affinity leaves it, a bit each; 0: all.
    pub nodes: u64,
    /// Most vCPUs of its VM in one node: its cores, or its threads (preferHT); 0: its cores.
    pub siblings_most: u32,
}

/// What a client did since the last round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Which client.
    pub id: ClientId,
    /// CPU that it wanted, had or not, in thousandths of a pCPU.
    pub wanted: u64,
    /// CPU that it had.
    pub used: u64,
    /// CPU that it would have had, had all pCPUs been for all.
    pub entitled: u64,
    /// Its memory by node, in bytes.
    pub memory: Vec<u64>,
    /// How often in a second it and others woke each other.
    pub talks: Vec<(ClientId, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) client: Client,
    /// Its home; of one without a home the last one.
    pub(crate) home: u32,
    /// When it came, and whether it has been there for a whole round.
    pub(crate) since_ns: u64,
    pub(crate) known: bool,
    /// What it asks for, smoothed; and in the last round alone.
    pub(crate) asks: Asks,
    pub(crate) asks_now: Asks,
    /// The mean over `LONG_ROUNDS`, times that many.
    pub(crate) long_sum: Asks,
    /// The same of what it had less than it was entitled to, beside what all clients had of that.
    pub(crate) short_sum: i64,
    pub(crate) memory: Vec<u64>,
    pub(crate) talks: Vec<(ClientId, u64)>,
    /// Rounds at its home.
    pub(crate) settled: u64,
    /// What it has had too little of its entitlement, in thousandths of a pCPU times rounds; fades
    /// (`fair`).
    pub(crate) missing: i64,
    /// Entitlement in the last round.
    pub(crate) share: u64,
    pub(crate) log: VecDeque<Decision>,
}

impl State {
    pub(crate) fn all_memory(&self) -> u64 {
        self.memory.iter().sum()
    }

    /// What it asks for in the mean of many rounds.
    pub(crate) fn asks_long(&self) -> Asks {
        self.long_sum.map(|sum| sum / LONG_ROUNDS)
    }

    /// Part of its memory in a node, in permille.
    pub(crate) fn local_permille(&self, node: u32) -> u64 {
        let at = self.memory.get(node as usize).copied().unwrap_or(0);
        permille(at, self.all_memory())
    }

    /// Whether an imbalance has taken it from a node to which it had come for something else, both
    /// within `LONG_ROUNDS`: what it comes there for, loads do not let it keep.
    pub(crate) fn was_taken_from(&self, node: u32, period_ms: u64) -> bool {
        let mut last = self.log.iter().rev();
        let (Some(left), Some(came)) = (last.next(), last.next()) else { return false };
        let for_cpu = |d: &Decision| matches!(d.reason, Reason::Imbalance | Reason::Swap);
        let chosen = |d: &Decision| {
            matches!(d.reason, Reason::Locality | Reason::ActionAffinity | Reason::Fairness)
        };
        let long_ns = LONG_ROUNDS * period_ms * 1_000_000;
        for_cpu(left)
            && left.from == Some(node)
            && chosen(came)
            && self.settled < LONG_ROUNDS
            && left.at_ns.saturating_sub(came.at_ns) < long_ns
    }

    /// Takes down what came of its last decision, unless that is known: loads of the two nodes that
    /// it was about, and memory in the home that it gave.
    fn see_outcome(&mut self, loads: &Loads, moved_on: bool) {
        let Some(d) = self.log.back().filter(|d| d.outcome.is_none()) else { return };
        let outcome = Outcome {
            rounds: self.settled,
            load_permille: (loads.permille(d.from.unwrap_or(d.to)), loads.permille(d.to)),
            local_permille: self.local_permille(d.to),
            moved_on,
        };
        if let Some(d) = self.log.back_mut() {
            d.outcome = Some(outcome);
        }
    }
}

/// A part of a whole in permille; 0 of nothing.
pub(crate) fn permille(part: u64, whole: u64) -> u64 {
    match part.checked_mul(1000) {
        _ if whole == 0 => 0,
        Some(thousand) => thousand / whole,
        None => (u128::from(part) * 1000 / u128::from(whole)) as u64,
    }
}

/// The planner of a host.
#[derive(Clone, Debug)]
pub struct Planner {
    pub(crate) knobs: Knobs,
    pub(crate) nodes: Vec<Node>,
    pub(crate) near: Near,
    pub(crate) clients: BTreeMap<ClientId, State>,
    pub(crate) rounds: u64,
    /// Why an imbalance was left as it is in the last round, and for how many rounds one was.
    pub(crate) refused: Option<Refusal>,
    pub(crate) stuck: u64,
    /// Mean worth of CPU time in the last round, in permille (`fair`).
    pub(crate) worth: u64,
    /// What a core gives with all its threads busy, in thousandths of a pCPU.
    pub(crate) core_gives: u64,
    /// What is taken of each node that VMs cannot have, in thousandths of a pCPU.
    pub(crate) taken: Vec<u64>,
    /// What VMs have reserved, in thousandths of a pCPU, with their vCPUs; clients of those for
    /// which no node has room by that (`reserve`), or that gain by having none (`roam`).
    pub(crate) reserved: BTreeMap<u32, (u64, u32)>,
    pub(crate) homeless: BTreeMap<ClientId, State>,
    /// VMs of these that gain by having no homes (`roam`).
    pub(crate) roaming: BTreeSet<u32>,
    /// Rounds for which wide VMs would have gained by that.
    pub(crate) held_back: BTreeMap<u32, u64>,
}

impl Planner {
    /// A planner for a host of these nodes, all equally far from each other, without clients.
    ///
    /// # Panics
    /// Without a node that has cores, or with more than 64 nodes.
    #[must_use]
    pub fn new(nodes: Vec<Node>, knobs: Knobs) -> Planner {
        assert!(
            nodes.iter().any(|n| n.cores > 0) && nodes.len() <= NODES_MAX,
            "no home: {nodes:?}"
        );
        Planner {
            knobs,
            nodes,
            near: Near::default(),
            clients: BTreeMap::new(),
            rounds: 0,
            refused: None,
            stuck: 0,
            worth: 1000,
            core_gives: 1000,
            taken: vec![],
            reserved: BTreeMap::new(),
            homeless: BTreeMap::new(),
            roaming: BTreeSet::new(),
            held_back: BTreeMap::new(),
        }
    }

    /// The thresholds.
    #[must_use]
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Other thresholds count from now on.
    pub fn set_knobs(&mut self, knobs: Knobs) {
        self.knobs = knobs;
    }

    /// So much of each node is taken from now on that VMs cannot have, in thousandths of a pCPU:
    /// by tasks of higher scheduling classes. It is load that cannot move.
    pub fn set_taken(&mut self, taken: Vec<u64>) {
        self.taken = taken;
    }

    /// Home of a client.
    #[must_use]
    pub fn home(&self, id: ClientId) -> Option<u32> {
        self.clients.get(&id).map(|c| c.home)
    }

    /// The clients and their homes, in order.
    pub fn homes(&self) -> impl Iterator<Item = (ClientId, u32)> + '_ {
        self.clients.iter().map(|(id, c)| (*id, c.home))
    }

    /// What was decided of a client, the latest last.
    pub fn decisions(&self, id: ClientId) -> impl Iterator<Item = &Decision> + '_ {
        let of = self.clients.get(&id).or_else(|| self.homeless.get(&id));
        of.into_iter().flat_map(|c| &c.log)
    }

    /// With which other clients a client communicated in the last round, and how many wake-ups a
    /// second; by client.
    pub fn talks(&self, id: ClientId) -> impl Iterator<Item = (ClientId, u64)> + '_ {
        let of = self.clients.get(&id).or_else(|| self.homeless.get(&id));
        of.into_iter().flat_map(|c| c.talks.iter().copied())
    }

    /// Why an imbalance was left as it is in the last round, if one was.
    #[must_use]
    pub fn refused(&self) -> Option<Refusal> {
        self.refused
    }

    /// A VM is powered off: its clients are gone.
    pub fn remove(&mut self, vm: u32) {
        self.clients.retain(|id, _| id.vm != vm);
        self.homeless.retain(|id, _| id.vm != vm);
        self.roaming.remove(&vm);
    }

    /// A client is gone; those of its VM stay.
    pub(crate) fn remove_client(&mut self, id: ClientId) {
        self.clients.remove(&id);
    }

    /// Gives a client another home because someone asks for it; none if it may not run there.
    pub fn ask(&mut self, at_ns: u64, id: ClientId, to: u32) -> Option<Decision> {
        let c = self.clients.get(&id)?;
        if !self.allows(c, to) || c.home == to {
            return None;
        }
        let loads = self.loads();
        let after = loads.shifted(c.home, to, c.asks);
        Some(self.change(at_ns, id, to, Reason::Asked, 0, (&loads, &after)))
    }

    /// A round: what the clients did since the last, and homes that change by that.
    pub fn round(&mut self, at_ns: u64, loads: &[Load]) -> Vec<Decision> {
        self.rounds += 1;
        self.take(at_ns, loads);
        self.see_outcomes();
        let mut out = vec![];
        self.hold_reservations(at_ns, &mut out);
        self.balance(at_ns, &mut out);
        self.roam(at_ns, &mut out);
        self.be_fair(at_ns, &mut out);
        self.be_local(at_ns, &mut out);
        self.bring_together(at_ns, &mut out);
        out
    }

    /// Takes in what the clients did.
    fn take(&mut self, at_ns: u64, loads: &[Load]) {
        let period_ns = 1_000_000 * self.knobs.period_ms;
        self.clients.values_mut().chain(self.homeless.values_mut()).for_each(|c| c.settled += 1);
        let sum = |of: fn(&Load) -> u64| loads.iter().map(of).sum::<u64>().max(1);
        let all = (sum(|l| l.used), sum(|l| l.entitled.min(l.wanted)));
        for load in loads {
            let homeless = &mut self.homeless;
            let of = self.clients.get_mut(&load.id).or_else(|| homeless.get_mut(&load.id));
            let Some(c) = of else { continue };
            // A period counts a quarter: what lasts for less than two is no load to move for. The
            // first whole one counts in full: until then it was not known.
            let first = !c.known && at_ns.saturating_sub(c.since_ns) >= period_ns;
            let now = Asks { wants: load.wanted, due: load.entitled.min(load.wanted) };
            if first {
                (c.asks, c.long_sum) = (now, now.map(|one| LONG_ROUNDS * one));
            } else {
                c.asks = c.asks.with(now, |before, now| (3 * before + now) / 4);
                c.long_sum = c.long_sum.with(now, |sum, now| sum - sum / LONG_ROUNDS + now);
            }
            let due = u128::from(now.due) * u128::from(all.0.min(all.1)) / u128::from(all.1);
            c.short_sum += due as i64 - load.used as i64 - c.short_sum / LONG_ROUNDS as i64;
            c.known |= first;
            c.asks_now = now;
            c.memory.clone_from(&load.memory);
            c.talks.clone_from(&load.talks);
            c.share = load.entitled;
        }
        let used: Vec<_> = loads.iter().map(|l| (l.id, l.used, l.entitled)).collect();
        self.take_missing(&used);
    }

    fn see_outcomes(&mut self) {
        let loads = self.loads();
        let settled = |c: &&mut State| c.settled >= OUTCOME_ROUNDS;
        for c in self.clients.values_mut().filter(settled) {
            c.see_outcome(&loads, false);
        }
    }

    /// Gives a client another home; loads before, and as they are to be after it.
    pub(crate) fn change(
        &mut self,
        at_ns: u64,
        id: ClientId,
        to: u32,
        reason: Reason,
        cause_permille: u64,
        (loads, after): (&Loads, &Loads),
    ) -> Decision {
        let c = self.clients.get_mut(&id).unwrap_or_else(|| panic!("{id:?} is no client"));
        let from = (reason != Reason::Placed).then_some(c.home);
        let old = from.unwrap_or(to);
        let pair = |l: &Loads| (l.permille(old), l.permille(to));
        let decision = Decision {
            at_ns,
            client: id,
            from,
            to,
            reason,
            saw_permille: pair(loads),
            expected_permille: pair(after),
            cause_permille,
            outcome: None,
        };
        c.see_outcome(loads, true);
        if c.log.len() == REMEMBERED {
            c.log.pop_front();
        }
        c.log.push_back(decision);
        c.home = to;
        c.settled = 0;
        decision
    }
}
