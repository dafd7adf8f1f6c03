//! Long-term fairness (VS51 "NUMA Migration", the fourth reason; N7): homes change so that no VM
//! gets less than its part for long, though no imbalance is narrowed by it.
//!
//! *Law*: every `fairness_periods` rounds it is seen what each client has had too little of its
//! entitlement so far, in parts of what that is until the next look. If it is more than
//! `unfair_percent` for one, the moves between
//! its node and each other one are compared by what each client would have had too
//! little after as many rounds more, squared and summed; the best is made if it leaves less than
//! now, and if no imbalance, memory or communication would take it back. In a node clients get CPU
//! by entitlement. One that asks for nothing has neither too little nor too much. No node is left
//! out: the fewer clients are in each, the fewer are compared with each other, so more nodes cost
//! less.
//! *Units*: what a client had is in those of its entitlement: where cores are divided, a world that
//! shares one counts by what it is charged.
//! *Worth*: CPU time in a crowded node, or far from its memory, is worth less to a client (ESX4
//! figures 10 and 11: "less cache and memory bandwidth"). No counter says how much; a node whose
//! other cores all run others counts for `CROWDED` less, memory that is all elsewhere for `REMOTE`
//! less. What is within `improvement_percent` of the mean of all counts as that.

use crate::decide::Loads;
use crate::planner::{Planner, State, permille};
use crate::{ClientId, Decision, Reason};

/// What a full node and what remote memory take of the worth of CPU time, in permille: estimates,
/// about what SPECjbb2005 loses.
const CROWDED: u64 = 200;
const REMOTE: u64 = 100;

/// Worth of CPU time of a client in a node where all together use so much of so many cores, in
/// permille.
fn worth(c: &State, node: u32, own: u64, all: u64, cores: u32) -> u64 {
    let others = permille(all.saturating_sub(own), 1000 * u64::from(cores)).min(1000);
    let remote = if c.all_memory() == 0 { 0 } else { 1000 - c.local_permille(node) };
    1000 - CROWDED * others / 1000 - REMOTE * remote / 1000
}

/// What is remembered fades by one part in so many at each look.
const FADES: i64 = 64;

impl Planner {
    pub(crate) fn be_fair(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        let every = self.knobs.fairness_periods;
        if every == 0 || self.rounds % every != 0 {
            return;
        }
        let missing = |c: &State| permille(c.missing.max(0) as u64, every * c.share);
        let most = self.clients.iter().max_by_key(|(id, c)| (missing(c), std::cmp::Reverse(**id)));
        let most = most.map(|(_, c)| (missing(c), c.home));
        if let Some((cause, node)) = most.filter(|m| m.0 >= 10 * self.knobs.unfair_percent) {
            let loads = self.loads();
            if let Some((id, to)) = self.fairest(&loads, node) {
                let c = &self.clients[&id];
                let after = loads.shifted(c.home, to, c.wanted);
                out.push(self.change(at_ns, id, to, Reason::Fairness, cause, (&loads, &after)));
            }
        }
        for c in self.clients.values_mut() {
            c.missing -= c.missing / FADES;
        }
    }

    /// Takes down what each client has had too little of, by what it used and was entitled to.
    pub(crate) fn take_missing(&mut self, used: &[(ClientId, u64, u64)]) {
        let mut by_node = vec![0; self.nodes.len()];
        let at = |id: &ClientId| self.clients.get(id).map(|c| c.home as usize);
        for (id, used, _) in used {
            if let Some(node) = at(id) {
                by_node[node] += used;
            }
        }
        let worth_of = |id: &ClientId, used: u64| {
            let c = &self.clients[id];
            worth(c, c.home, used, by_node[c.home as usize], self.nodes[c.home as usize].cores)
        };
        let known: Vec<_> = used.iter().filter(|u| self.clients.contains_key(&u.0)).collect();
        let worths: Vec<u64> = known.iter().map(|u| worth_of(&u.0, u.1)).collect();
        let all: u64 = known.iter().map(|u| u.1).sum();
        let mean = known.iter().zip(&worths).map(|(u, w)| u.1 * w).sum::<u64>() / all.max(1);
        let near = 10 * self.knobs.improvement_percent;
        self.worth = mean;
        for ((id, used, entitled), worth) in known.into_iter().zip(worths) {
            let worth = if worth.abs_diff(mean) <= near { mean } else { worth };
            let Some(c) = self.clients.get_mut(id) else { continue };
            c.missing += (entitled * mean) as i64 / 1000 - (used * worth) as i64 / 1000;
        }
    }

    /// The move of a client of `node` that leaves least unfairness.
    fn fairest(&self, loads: &Loads, node: u32) -> Option<(ClientId, u32)> {
        let at = |n: u32| self.clients.iter().filter(move |(_, c)| c.home == n);
        let mut best: Option<(i128, ClientId, u32)> = None;
        let mut others: Vec<u32> = self.others(node).collect();
        others.sort_by_key(|n| (loads.permille(*n), *n));
        for to in others {
            let here = in_order(at(node).map(|(_, c)| c));
            let there = in_order(at(to).map(|(_, c)| c));
            let now = self.unfairness(node, &here) + self.unfairness(to, &there);
            // It leaves one of the node, or comes to it.
            let comes = at(to).map(|(id, c)| (id, c, node));
            for (id, c, home) in at(node).map(|(id, c)| (id, c, to)).chain(comes) {
                if c.settled == 0 || !self.allows(c, home) {
                    continue;
                }
                let (a, b) = if home == to {
                    (without(&here, *id), with(&there, c))
                } else {
                    (with(&here, c), without(&there, *id))
                };
                let gain = now - self.unfairness(node, &a) - self.unfairness(to, &b);
                if gain > 0 && best.is_none_or(|x| gain > x.0) {
                    let mut after = loads.clone();
                    after.shift(c.home, home, c.wanted);
                    if !self.would_leave(&after, c, home) && !self.would_return(&after, c, home) {
                        best = Some((gain, *id, home));
                    }
                }
            }
        }
        best.map(|(_, id, to)| (id, to))
    }

    /// What clients in one node, in order, will have had too little until the next look, in
    /// permille, squared and summed.
    fn unfairness(&self, node: u32, clients: &[&State]) -> i128 {
        let rounds = self.knobs.fairness_periods as i64;
        let capacity = 1000 * u64::from(self.nodes[node as usize].cores);
        let all: u64 = divided(capacity, clients).map(|(_, gets)| gets).sum();
        let near = 10 * self.knobs.improvement_percent;
        let square = |(c, gets): (&State, u64)| {
            let worth = worth(c, node, gets, all, self.nodes[node as usize].cores);
            let worth = if worth.abs_diff(self.worth) <= near { self.worth } else { worth };
            let lacks = (c.share * self.worth) as i64 - (gets * worth) as i64;
            let missing = c.missing + rounds * lacks / 1000;
            let part = i128::from(missing * 1000 / (rounds * c.share.max(1) as i64));
            if c.share == 0 { 0 } else { part * part }
        };
        divided(capacity, clients).map(square).sum()
    }
}

/// What a client wants for its entitlement, and its name: those that want least come first.
fn place_in_order(c: &State) -> (u64, ClientId) {
    (c.wanted * 1000 / c.share.max(1), c.client.id)
}

fn in_order<'s>(clients: impl Iterator<Item = &'s State>) -> Vec<&'s State> {
    let mut out: Vec<&State> = clients.collect();
    out.sort_by_cached_key(|c| place_in_order(c));
    out
}

fn without<'s>(list: &[&'s State], id: ClientId) -> Vec<&'s State> {
    list.iter().copied().filter(|s| s.client.id != id).collect()
}

fn with<'s>(list: &[&'s State], c: &'s State) -> Vec<&'s State> {
    let place = place_in_order(c);
    let at = list.partition_point(|other| place_in_order(other) < place);
    [&list[..at], &[c], &list[at..]].concat()
}

/// Divides CPU among clients, in order, by entitlement, up to what each wants: what those that want
/// least for their entitlement leave is for the others.
fn divided<'s>(capacity: u64, clients: &[&'s State]) -> impl Iterator<Item = (&'s State, u64)> {
    let share = |c: &State| c.share.max(1);
    let (mut left, mut weights) = (capacity, clients.iter().map(|c| share(c)).sum::<u64>());
    clients.iter().map(move |c| {
        let part = (left * share(c) / weights.max(1)).min(c.wanted);
        left -= part;
        weights -= share(c);
        (*c, part)
    })
}

#[cfg(test)]
mod tests {
    use crate::{Client, ClientId, Knobs, Load, Node, Planner};

    /// An idle VM that once had too much weighs nothing: no VM joins it to make its CPU time worse.
    #[test]
    fn a_vm_that_asks_for_nothing_makes_nothing_unfair() {
        let node = Node { cores: 4, memory: 64 << 30 };
        let knobs = Knobs { locality_weight: 0, ..Knobs::default() };
        let mut planner = Planner::new(vec![node; 2], knobs);
        let id = |vm| ClientId { vm, part: 0 };
        let client =
            |vm| Client { id: id(vm), vcpus: 4, memory: 1 << 30, nodes: 0, siblings_most: 0 };
        planner.add(0, &[client(1), client(2)]);
        let load = |vm, wanted| Load {
            id: id(vm),
            wanted,
            used: wanted,
            entitled: wanted,
            memory: vec![0; 2],
            talks: vec![],
        };
        for round in 1..=4 {
            planner.round(round * 2_000_000_000, &[load(1, 700), load(2, 3_000)]);
        }
        let state = |planner: &mut Planner, vm, missing| {
            planner.clients.get_mut(&id(vm)).expect("it is there").missing = missing;
        };
        state(&mut planner, 1, -4_000);
        state(&mut planner, 2, 3_000);
        let out = planner.round(10_000_000_000, &[load(1, 0), load(2, 3_000)]);
        assert!(out.is_empty(), "{out:?}");
    }
}
