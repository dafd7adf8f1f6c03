//! Long-term fairness (VS51 "NUMA Migration", the fourth reason; N7): homes change so that no VM
//! gets less than its part for long, though no imbalance is narrowed by it.
//!
//! *Law*: every `fairness_periods` rounds it is seen what each client has had too little of its
//! entitlement so far, in parts of what that is until the next look. If it is more than
//! `unfair_percent` for one, the moves between its node and each other one are compared by what
//! each client would have had too little after as many rounds more, squared and summed; the best is
//! made if it leaves less than now, and if no imbalance, memory or communication would take it
//! back. Where these would take all back, and the node is contended in the long run, the client
//! that lacks most CPU time changes homes with one of another node by the same rule, if loads stay
//! near each other. In a node clients get CPU by entitlement. One that asks for nothing has
//! neither too little nor too much. No node is left out: the fewer clients are in each, the fewer
//! are compared with each other, so more nodes cost less.
//!
//! *Units*: what a client had is in those of its entitlement: where cores are divided, a world that
//! shares one counts by what it is charged.
//! *Worth*: CPU time in a crowded node, or far from its memory, is worth less to a client (ESX4
//! figures 10 and 11: "less cache and memory bandwidth"). No counter says how much; a node whose
//! other cores all run others counts for `CROWDED` less, memory that is all elsewhere for `REMOTE`
//! less. What is within `improvement_percent` of the mean of all counts as that.

use crate::loads::Loads;
use crate::planner::{Planner, State, permille};
use crate::{ClientId, Decision, Reason};

/// What a full node and what remote memory take of the worth of CPU time, in permille: estimates,
/// about what SPECjbb2005 loses.
const CROWDED: u64 = 200;
const REMOTE: u64 = 100;

/// What it loses of that where all together use so much of so many cores, in permille.
fn crowded(own: u64, all: u64, cores: u32) -> u64 {
    let others = permille(all.saturating_sub(own), 1000 * u64::from(cores)).min(1000);
    CROWDED * others / 1000
}

/// What is remembered fades by one part in so many at each look.
const FADES: i64 = 64;

impl Planner {
    /// Worth of CPU time of a client in a node where no other runs, in permille.
    fn worth_alone(&self, c: &State, node: u32) -> u64 {
        let remote = if c.all_memory() == 0 { 0 } else { 1000 - self.near_permille(c, node) };
        1000 - REMOTE * remote / 1000
    }

    pub(crate) fn be_fair(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        let every = self.knobs.fairness_periods;
        if every == 0 || self.rounds % every != 0 {
            return;
        }
        let missing = |c: &State| permille(c.missing.max(0) as u64, every * c.share);
        let most = self.clients.iter().max_by_key(|(id, c)| (missing(c), std::cmp::Reverse(**id)));
        let most = most.map(|(_, c)| (missing(c), c.home));
        let unfair = 10 * self.knobs.unfair_percent;
        if let Some((cause, node)) = most.filter(|m| m.0 >= unfair) {
            let loads = self.loads();
            let mut moves = vec![];
            let mut after = loads.clone();
            match self.fairest(&loads, node) {
                Fairest::Move(id, to) => moves.push((id, to)),
                Fairest::Undone => {
                    // Of those the one that lacks most CPU time: for a small one little can be had.
                    let lacks = self.clients.iter().filter(|(_, c)| missing(c) >= unfair);
                    let lacks = lacks.max_by_key(|(id, c)| (c.missing, std::cmp::Reverse(**id)));
                    let lacks = lacks.map(|(id, c)| (*id, c.home));
                    let found = lacks.and_then(|(id, _)| self.fairest_exchange(&loads, id));
                    if let (Some((id, home)), Some((other, to))) = (lacks, found) {
                        moves.extend([(id, to), (other, home)]);
                    }
                }
                Fairest::None => {}
            }
            for (id, to) in &moves {
                let c = &self.clients[id];
                after.shift(c.home, *to, c.asks);
            }
            for (id, to) in moves {
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
            let at = c.home as usize;
            self.worth_alone(c, c.home) - crowded(used, by_node[at], self.nodes[at].cores)
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

    /// The move of a client of `node`, or to it, that leaves least unfairness.
    fn fairest(&self, loads: &Loads, node: u32) -> Fairest {
        let here = self.seats(node);
        let (mut gets, mut changed) = (vec![], vec![]);
        // What each leaves behind is the same wherever it goes.
        let mut left_by = |at: usize| {
            changed.clone_from(&here);
            changed.remove(at);
            self.unfairness(node, &changed, u128::MAX, &mut gets)
        };
        let left: Vec<Option<u128>> = (0..here.len()).map(&mut left_by).collect();
        let now_here = self.unfairness(node, &here, u128::MAX, &mut gets).unwrap_or(0);
        let mut best: Option<(u128, ClientId, u32)> = None;
        let mut undone = false;
        let mut others: Vec<u32> = self.others(node).collect();
        others.sort_by_key(|n| (loads.permille(*n), *n));
        let mut after = loads.clone();
        for to in others {
            let there = self.seats(to);
            let now = now_here + self.unfairness(to, &there, u128::MAX, &mut gets).unwrap_or(0);
            // It leaves one of the node, or comes to it; in order of their names.
            let of = |seats: &[Seat<'_>]| {
                let mut order: Vec<usize> = (0..seats.len()).collect();
                order.sort_unstable_by_key(|at| seats[*at].c.client.id);
                order
            };
            let goes = of(&here).into_iter().map(|at| (at, to));
            for (at, home) in goes.chain(of(&there).into_iter().map(|at| (at, node))) {
                let leaves = home == to;
                let c = if leaves { here[at].c } else { there[at].c };
                if c.settled == 0 {
                    continue;
                }
                // More unfairness than this is no gain.
                let most = now.saturating_sub(best.map_or(0, |b| b.0));
                let without = if leaves {
                    left[at]
                } else {
                    changed.clone_from(&there);
                    changed.remove(at);
                    self.unfairness(to, &changed, most, &mut gets)
                };
                let Some(without) = without.filter(|w| *w < most) else { continue };
                changed.clone_from(if leaves { &there } else { &here });
                let seat = self.seat_of(c, home);
                changed.insert(changed.partition_point(|s| s.place < seat.place), seat);
                let with = self.unfairness(home, &changed, most - without, &mut gets);
                let Some(gain) = with.map(|with| now - without - with) else { continue };
                if !self.allows(c, home) || c.was_taken_from(home, self.knobs.period_ms) {
                    continue;
                }
                after.clone_from(loads);
                after.shift(c.home, home, c.asks);
                if self.would_leave(&after, c, home) || self.would_return(&after, c, home) {
                    undone = true;
                } else {
                    best = Some((gain, c.client.id, home));
                }
            }
        }
        match best {
            Some((_, id, to)) => Fairest::Move(id, to),
            None if undone => Fairest::Undone,
            None => Fairest::None,
        }
    }

    /// The client of another node with which this one changes homes, if that leaves least
    /// unfairness of all such exchanges and less than now; and that node. What a client lacks whose
    /// node is not contended in the long run it has had to wait for by chance.
    fn fairest_exchange(&self, loads: &Loads, id: ClientId) -> Option<(ClientId, u32)> {
        let c = &self.clients[&id];
        let node = c.home;
        let wanted = loads.wanted_permille(node);
        let wanted = wanted.min(self.loads_of(State::asks_long).wanted_permille(node));
        if c.settled == 0 || wanted <= self.knobs.contended_permille() {
            return None;
        }
        let here = self.seats(node);
        let mut gets = vec![];
        let mut changed: Vec<Seat<'_>> = vec![];
        let now_here = self.unfairness(node, &here, u128::MAX, &mut gets)?;
        let mut best: Option<(u128, ClientId, u32)> = None;
        for to in self.others(node) {
            let there = self.seats(to);
            let now = now_here + self.unfairness(to, &there, u128::MAX, &mut gets)?;
            for other in there.iter().map(|s| s.c) {
                let may = other.settled > 0
                    && other.client.id.vm != id.vm
                    && self.allows_without(c, to, Some(other.client.id))
                    && self.allows_without(other, node, Some(id));
                let most = now.saturating_sub(best.map_or(0, |b| b.0));
                if !may {
                    continue;
                }
                self.exchange(&here, (c, other), node, &mut changed);
                let left = self.unfairness(node, &changed, most, &mut gets);
                let Some(left) = left.filter(|left| *left < most) else { continue };
                self.exchange(&there, (other, c), to, &mut changed);
                let with = self.unfairness(to, &changed, most - left, &mut gets);
                let Some(with) = with else { continue };
                let after = loads.shifted(node, to, c.asks).shifted(to, node, other.asks);
                let back = |c: &State, at: u32| {
                    self.would_leave(&after, c, at) || self.would_return(&after, c, at)
                };
                let apart = |loads: &Loads| loads.permille(node).abs_diff(loads.permille(to));
                let most_apart = (10 * self.knobs.imbalance_percent).max(apart(loads));
                let near = apart(&after) <= most_apart + 10 * self.knobs.improvement_percent;
                if near && !back(c, to) && !back(other, node) {
                    best = Some((now - left - with, other.client.id, to));
                }
            }
        }
        best.map(|(_, other, to)| (other, to))
    }

    /// The clients of a node in `after`, once one has left for another.
    fn exchange<'s>(
        &self,
        seats: &[Seat<'s>],
        (goes, comes): (&State, &'s State),
        node: u32,
        after: &mut Vec<Seat<'s>>,
    ) {
        after.clear();
        after.extend(seats.iter().filter(|s| s.c.client.id != goes.client.id));
        let seat = self.seat_of(comes, node);
        after.insert(after.partition_point(|s| s.place < seat.place), seat);
    }

    fn seat_of<'s>(&self, c: &'s State, node: u32) -> Seat<'s> {
        Seat {
            c,
            place: (c.asks.wants * 1000 / c.share.max(1), c.client.id),
            share: c.share,
            wanted: c.asks.wants,
            missing: c.missing,
            alone: self.worth_alone(c, node),
        }
    }

    /// The clients of a node, in order.
    fn seats(&self, node: u32) -> Vec<Seat<'_>> {
        let of = self.clients.values().filter(|c| c.home == node);
        let mut seats: Vec<Seat<'_>> = Vec::with_capacity(self.clients.len());
        seats.extend(of.map(|c| self.seat_of(c, node)));
        seats.sort_unstable_by_key(|s| s.place);
        seats
    }

    /// What clients in one node, in order, will have had too little until the next look, in
    /// permille, squared and summed; none from `most` on. `gets` is room to work in.
    fn unfairness(
        &self,
        node: u32,
        seats: &[Seat<'_>],
        most: u128,
        gets: &mut Vec<u64>,
    ) -> Option<u128> {
        let rounds = self.knobs.fairness_periods as i64;
        let cores = self.nodes[node as usize].cores;
        let taken = self.taken.get(node as usize).copied().unwrap_or(0);
        divide((1000 * u64::from(cores)).saturating_sub(taken), seats, gets);
        let all: u64 = gets.iter().sum();
        let near = 10 * self.knobs.improvement_percent;
        let mut sum = 0;
        for (seat, gets) in seats.iter().zip(&*gets) {
            if seat.share == 0 {
                continue;
            }
            let worth = seat.alone - crowded(*gets, all, cores);
            let worth = if worth.abs_diff(self.worth) <= near { self.worth } else { worth };
            let lacks = (seat.share * self.worth) as i64 - (gets * worth) as i64;
            let missing = seat.missing + rounds * lacks / 1000;
            let part = u128::from(missing.unsigned_abs() * 1000 / (rounds as u64 * seat.share));
            sum += part * part;
            if sum >= most {
                return None;
            }
        }
        Some(sum)
    }
}

/// What `fairest` finds: a move, only moves that would be undone, or none that is fairer.
enum Fairest {
    Move(ClientId, u32),
    Undone,
    None,
}

/// A client in a node, as it is compared with others there.
#[derive(Clone, Copy)]
struct Seat<'s> {
    c: &'s State,
    /// What it wants for its entitlement, and its name: those that want least come first.
    place: (u64, ClientId),
    share: u64,
    wanted: u64,
    missing: i64,
    /// Worth of its CPU time there if no other ran, in permille.
    alone: u64,
}

/// Divides CPU among clients, in order, by entitlement, up to what each wants: what those that want
/// least for their entitlement leave is for the others.
fn divide(capacity: u64, seats: &[Seat<'_>], gets: &mut Vec<u64>) {
    let share = |s: &Seat<'_>| s.share.max(1);
    let (mut left, mut weights) = (capacity, seats.iter().map(share).sum::<u64>());
    gets.clear();
    gets.extend(seats.iter().map(|s| {
        let part = (left * share(s) / weights.max(1)).min(s.wanted);
        left -= part;
        weights -= share(s);
        part
    }));
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
