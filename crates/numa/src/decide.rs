//! Three of the four reasons to move: imbalance, locality, action affinity.
//!
//! *Imbalance*: the load of a client's node is above another's by `imbalance_percent` of their
//! cores; its move narrows that by `improvement_percent`, or by a core if that is less, and leaves
//! `thrash_percent` of it at most or no node loaded beyond its cores; by the loads of the last
//! round alone it narrows that, too. Of a contended node a client too small for that goes, too, if
//! the imbalance is there in the mean of many rounds: others go after it.
//! Where its node is not contended to begin with the same must hold of the loads in the mean of
//! many rounds: what is apart for a moment takes nothing from any client, and a move costs memory.
//! Of all such moves the one that narrows most is made, of equals the one that gains most memory,
//! then the next is looked for. Where there is none for `swap_periods`, and none is about to be,
//! two clients change places by the same rules. What a client loses of its action affinity counts
//! against it, the less the more is wanted of its node: in full up to 100 % of the cores, nothing
//! from 150 % on.
//! *Locality*: more of the client's memory is in another node, or nearer to it where nodes are not
//! equally far (`near`), by `improvement_percent`, and the move back asks for no next one: it
//! neither loads that node beyond `core_cap_percent` of its cores, unless no other has less load by
//! `imbalance_percent` or others have less load than that there, nor would an imbalance undo it.
//! *Action affinity*: the same of its communication, which outweighs memory by its weight.
//! For neither, nor for fairness, does a client come again to a node from which an imbalance has
//! just taken it after it came for one of them: what others want there falls while it is there.

use crate::loads::{Asks, Loads};
use crate::planner::{Planner, State, permille};
use crate::{ClientId, Decision, Reason, Refusal};

/// Wake-ups in a second that make two clients belong together for certain; fewer count in part.
const TALK_FULL: u64 = 1_000;
/// What is wanted of a node beyond which it is contended, and from which on that outweighs action
/// affinity, in permille of its cores.
const CONTENDED: u64 = 1_000;
const CROWDED: u64 = 1_500;

/// What a change for an imbalance leaves of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// `thrash_percent` of it at most, or no node loaded beyond its cores.
    Little,
    /// More of it, of a contended node: other clients go there, too.
    Part,
    /// Another one, or a node that is not contended.
    Another,
}

impl Planner {
    /// Whether a node may be the client's home by its affinity.
    pub(crate) fn may_be_home(&self, c: &State, node: u32) -> bool {
        let mask = c.client.nodes;
        let there = self.nodes.get(node as usize).is_some_and(|n| n.cores > 0);
        there && (mask == 0 || mask >> node & 1 != 0)
    }

    /// Whether its siblings leave it room there: together they have no more vCPUs than the node
    /// has cores (VS51 "Support for Wide Virtual Machines"). One client alone may go anywhere.
    pub(crate) fn leaves_room(&self, c: &State, node: u32) -> bool {
        let id = c.client.id;
        let all = ClientId { part: 0, ..id }..=ClientId { part: u32::MAX, ..id };
        let there = self.clients.range(all).filter(|(other, s)| **other != id && s.home == node);
        let siblings: u32 = there.map(|(_, s)| s.client.vcpus).sum();
        let most = match c.client.siblings_most {
            0 => self.nodes[node as usize].cores,
            most => most,
        };
        siblings == 0 || siblings + c.client.vcpus <= most
    }

    /// Whether a client may have its home there.
    pub(crate) fn allows(&self, c: &State, node: u32) -> bool {
        self.allows_without(c, node, None)
    }

    /// The same once this other one has left it.
    pub(crate) fn allows_without(&self, c: &State, node: u32, leaves: Option<ClientId>) -> bool {
        self.may_be_home(c, node)
            && self.leaves_room(c, node)
            && self.can_promise(&c.client, node, leaves)
    }

    /// Part of a client's communication that is with clients of a node, in permille.
    fn talks_permille(&self, c: &State, node: u32) -> u64 {
        let with = |(id, n): &(ClientId, u64)| {
            self.clients.get(id).filter(|other| other.home == node).map(|_| *n)
        };
        permille(c.talks.iter().filter_map(with).sum(), c.talks.iter().map(|(_, n)| n).sum())
    }

    /// The same of one that communicates in full; of less in proportion.
    fn affinity_permille(&self, c: &State, node: u32) -> u64 {
        let all: u64 = c.talks.iter().map(|(_, n)| n).sum();
        self.talks_permille(c, node) * all.min(TALK_FULL) / TALK_FULL
    }

    /// What a client that leaves `from` for `to` gains by action affinity, in permille.
    fn affinity_gain(&self, c: &State, from: u32, to: u32) -> i64 {
        if self.knobs.action_affinity == 0 || c.talks.is_empty() {
            return 0;
        }
        let there = |node| self.affinity_permille(c, node) as i64;
        let gain = there(to) - there(from);
        gain * self.knobs.action_affinity as i64 / 100
    }

    /// What one that leaves `from` for CPU loses of its action affinity, in permille: in full up to
    /// `CONTENDED`, nothing from `CROWDED` on.
    fn affinity_lost(&self, loads: &Loads, c: &State, from: u32, to: u32) -> i64 {
        let lost = -self.affinity_gain(c, from, to);
        if lost <= 0 {
            return 0;
        }
        let counts = (CROWDED - loads.wanted_permille(from).clamp(CONTENDED, CROWDED)) as i64;
        lost * counts / (CROWDED - CONTENDED) as i64
    }

    /// What it gains by the memory that is there, in permille.
    fn memory_gain(&self, c: &State, from: u32, to: u32) -> i64 {
        let gain = self.near_permille(c, to) as i64 - self.near_permille(c, from) as i64;
        gain * self.knobs.locality_weight as i64
    }

    /// By how much a move narrows the imbalance of two nodes, in permille, if it may be made for
    /// that; why not otherwise.
    fn narrows(&self, loads: &Loads, c: &State, from: u32, to: u32) -> Result<u64, Refusal> {
        let k = &self.knobs;
        let (left, before) = loads.apart((from, to), c.asks.due as i64);
        let gain = before as i64 - left as i64 - self.affinity_lost(loads, c, from, to);
        if loads.permille(from) < loads.permille(to) + 10 * k.imbalance_percent {
            return Err(Refusal::TooLittle);
        }
        if self.leaves(loads, (from, to), c.asks.due as i64) == Leaves::Another {
            return Err(Refusal::Thrash);
        }
        if gain < self.least_gain_of(from, to) as i64 {
            Err(Refusal::TooLittle)
        } else {
            Ok(gain as u64)
        }
    }

    /// What a change leaves of the difference of two nodes, by which so much comes from one to the
    /// other.
    fn leaves(&self, loads: &Loads, (from, to): (u32, u32), due: i64) -> Leaves {
        let free = self.knobs.contended_permille();
        let after = (loads.permille_with(from, -due), loads.permille_with(to, due));
        let before = loads.permille(from).saturating_sub(loads.permille(to));
        let small = |left: u64| left * 100 <= before * self.knobs.thrash_percent;
        // Where no node is loaded beyond its cores after it nothing asks for the next.
        let resolves = loads.permille(from) > free && after.0.max(after.1) <= free;
        if small(after.0.abs_diff(after.1)) || resolves {
            Leaves::Little
        } else if after.0 > after.1 && loads.wanted_permille(from) > free {
            Leaves::Part
        } else {
            Leaves::Another
        }
    }

    /// What a change must narrow the imbalance of two nodes by, in permille: on nodes of many cores
    /// that of a core is enough, or no small client could ever leave.
    fn least_gain_of(&self, a: u32, b: u32) -> u64 {
        let cores = |n: u32| u64::from(self.nodes[n as usize].cores);
        (10 * self.knobs.improvement_percent).min(1000 / cores(a).max(cores(b)).max(1))
    }

    /// Whether a change that leaves so much of a difference narrows it, by the loads of the last
    /// round; where all of it may be left, whether it does not widen it.
    fn narrows_now(&self, (left, before): (u64, u64)) -> bool {
        left < before + u64::from(self.knobs.thrash_percent >= 100)
    }

    /// Whether an imbalance is one to change homes for: of a contended node at once if the change,
    /// by which so much of it comes from one node to the other, leaves no part to others; else
    /// only if the loads in the mean of many rounds are apart, too, and the change narrows that
    /// likewise.
    fn lasts(
        &self,
        (loads, long): (&Loads, &Loads),
        (from, to): (u32, u32),
        (due, due_long): (i64, i64),
    ) -> bool {
        let k = &self.knobs;
        let part = self.leaves(loads, (from, to), due) == Leaves::Part;
        if !part && loads.wanted_permille(from) > k.contended_permille() {
            return true;
        }
        let before = long.permille(from).saturating_sub(long.permille(to));
        let after = (long.permille_with(from, -due_long), long.permille_with(to, due_long));
        let turned = after.1.saturating_sub(after.0);
        let left = if part { turned } else { after.0.abs_diff(after.1) };
        before >= 10 * k.imbalance_percent && left * 100 <= before * k.thrash_percent
    }

    /// Whether a client might be moved on for an imbalance, were it in `node`: by the loads
    /// now, whether that lasts or not.
    pub(crate) fn would_leave(&self, loads: &Loads, c: &State, node: u32) -> bool {
        let leaves = |to: u32| self.narrows(loads, c, node, to).is_ok() && self.allows(c, to);
        self.others(node).any(leaves)
    }

    pub(crate) fn others(&self, node: u32) -> impl Iterator<Item = u32> + use<'_> {
        let with_cores = |n: &u32| self.nodes[*n as usize].cores > 0;
        (0..self.nodes.len() as u32).filter(move |n| *n != node).filter(with_cores)
    }

    /// Imbalance of CPU load: moves; where there has been none to make for `swap_periods`, two
    /// clients change places.
    pub(crate) fn balance(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        self.refused = None;
        for _ in 0..self.nodes.len() {
            let loads = self.loads();
            let Some((id, to, cause)) = self.best_move(&loads) else { break };
            let c = &self.clients[&id];
            let after = loads.shifted(c.home, to, c.asks);
            out.push(self.change(at_ns, id, to, Reason::Imbalance, cause, (&loads, &after)));
        }
        self.stuck = if self.refused.is_some() { self.stuck + 1 } else { 0 };
        if self.knobs.swap_periods == 0 || self.stuck < self.knobs.swap_periods {
            return;
        }
        if self.moves_now() {
            return; // it will be made once that has lasted
        }
        let loads = self.loads();
        let Some((a, b, cause)) = self.best_swap(&loads) else { return };
        let (x, y) = (&self.clients[&a], &self.clients[&b]);
        let (home, other) = (x.home, y.home);
        let after = loads.shifted(home, other, x.asks).shifted(other, home, y.asks);
        let both = (&loads, &after);
        (self.refused, self.stuck) = (None, 0);
        out.push(self.change(at_ns, a, other, Reason::Swap, cause, both));
        out.push(self.change(at_ns, b, home, Reason::Swap, cause, both));
    }

    /// Whether there is a move by what clients asked for in the last round alone.
    pub(crate) fn moves_now(&mut self) -> bool {
        let exchange = |c: &mut State| std::mem::swap(&mut c.asks, &mut c.asks_now);
        self.clients.values_mut().for_each(exchange);
        let (loads, refused) = (self.loads(), self.refused);
        let moves = self.best_move(&loads).is_some();
        self.refused = refused;
        self.clients.values_mut().for_each(exchange);
        moves
    }

    /// The move that narrows an imbalance most, and that imbalance.
    fn best_move(&mut self, loads: &Loads) -> Option<(ClientId, u32, u64)> {
        let mut best: Option<((u64, i64), ClientId, u32)> = None;
        let mut refused = None;
        let least = 10 * self.knobs.imbalance_percent;
        let (now, long) = (self.loads_of(|c| c.asks_now), self.loads_of(State::asks_long));
        for (id, c) in &self.clients {
            if c.settled == 0 || self.nodes[c.home as usize].cores == 0 {
                continue; // it has just come, or has nowhere to be
            }
            for to in self.others(c.home) {
                let due = (c.asks.due as i64, c.asks_long().due as i64);
                if loads.permille(c.home) < loads.permille(to).saturating_add(least) {
                    continue;
                }
                if !self.lasts((loads, &long), (c.home, to), due) {
                    let part = self.leaves(loads, (c.home, to), due.0) == Leaves::Part;
                    refused = refused.or(part.then_some(Refusal::Thrash));
                    continue;
                }
                let by_now = self.narrows_now(now.apart((c.home, to), c.asks_now.due as i64));
                let passing = |gain| if by_now { Ok(gain) } else { Err(Refusal::Passing) };
                match self.narrows(loads, c, c.home, to).and_then(passing) {
                    Err(_) if refused == Some(Refusal::Pinned) => {}
                    Err(why) => refused = Some(why),
                    Ok(gain) => {
                        let gain = (gain, self.memory_gain(c, c.home, to));
                        if best.is_some_and(|b| gain <= b.0) {
                            continue;
                        }
                        if self.allows(c, to) {
                            best = Some((gain, *id, to));
                        } else {
                            refused = Some(Refusal::Pinned);
                        }
                    }
                }
            }
        }
        if best.is_none() {
            self.refused = refused;
        }
        best.map(|(_, id, to)| {
            (id, to, loads.permille(self.clients[&id].home) - loads.permille(to))
        })
    }

    /// A client of the most loaded node and one of another, whose exchange narrows their imbalance
    /// most.
    fn best_swap(&self, loads: &Loads) -> Option<(ClientId, ClientId, u64)> {
        let k = &self.knobs;
        let (now, long) = (self.loads_of(|c| c.asks_now), self.loads_of(State::asks_long));
        let mut best: Option<(u64, ClientId, ClientId, u64)> = None;
        let most = (0..self.nodes.len() as u32)
            .filter(|n| self.nodes[*n as usize].cores > 0)
            .max_by_key(|n| (loads.permille(*n), std::cmp::Reverse(*n)))?;
        let crowded = |c: &&State| c.settled > 0 && c.home == most;
        for (a, from) in self.clients.iter().filter(|(_, c)| crowded(c)) {
            let near = |node: u32| loads.permille(from.home).saturating_sub(loads.permille(node));
            for (b, to) in self.clients.iter().filter(|(_, c)| c.settled > 0) {
                let before = if a.vm == b.vm { 0 } else { near(to.home) };
                if from.home == to.home
                    || before < 10 * k.imbalance_percent
                    || to.asks.due >= from.asks.due
                {
                    continue;
                }
                let more = to.asks.due as i64 - from.asks.due as i64;
                let homes = (from.home, to.home);
                let (left, _) = loads.apart(homes, -more);
                let lost = self.affinity_lost(loads, from, from.home, to.home)
                    + self.affinity_lost(loads, to, to.home, from.home);
                let gain = before.saturating_sub(left).saturating_sub(lost as u64);
                let of_both = |of: fn(&State) -> Asks| of(from).due as i64 - of(to).due as i64;
                let fits = self.leaves(loads, homes, -more) != Leaves::Another
                    && self.lasts((loads, &long), homes, (-more, of_both(State::asks_long)))
                    && self.narrows_now(now.apart(homes, of_both(|c| c.asks_now)));
                if fits
                    && gain >= self.least_gain_of(from.home, to.home)
                    && best.is_none_or(|x| gain > x.0)
                    && self.allows_without(from, to.home, Some(*b))
                    && self.allows_without(to, from.home, Some(*a))
                {
                    best = Some((gain, *a, *b, before));
                }
            }
        }
        best.map(|(_, a, b, cause)| (a, b, cause))
    }

    /// Whether a client of `from` may come to a node for something else than CPU: that is not
    /// contended then, or no other has less load by an imbalance, or others there are less load
    /// than an imbalance.
    fn has_cores_for(&self, loads: &Loads, c: &State, from: u32, to: u32) -> bool {
        let (k, due) = (&self.knobs, c.asks.due as i64);
        let after = |n: u32| loads.permille_with(n, if n == from { -due } else { 0 });
        let load = loads.permille_with(to, due);
        let least = self.others(to).map(after).min().unwrap_or(load);
        let imbalance = 10 * k.imbalance_percent;
        let alone = loads.permille(to) < imbalance;
        let wanted = loads.wanted_permille_with(to, c.asks.wants as i64);
        let fits = wanted <= 10 * k.core_cap_percent || load < least + imbalance || alone;
        let leaves = || self.would_leave(&loads.shifted(from, to, c.asks), c, to);
        fits && self.allows(c, to) && !leaves()
    }

    /// What the memory of a client that is elsewhere makes another home than `from` worth, in
    /// permille.
    fn pull_of_memory(&self, c: &State, from: u32, to: u32) -> i64 {
        if self.knobs.locality_weight == 0 {
            return 0;
        }
        self.memory_gain(c, from, to) + self.affinity_gain(c, from, to).min(0)
    }

    /// The same of its communication.
    fn pull_of_affinity(&self, c: &State, from: u32, to: u32) -> i64 {
        let affinity = self.affinity_gain(c, from, to);
        if affinity <= 0 { 0 } else { affinity + self.memory_gain(c, from, to).min(0) }
    }

    /// What a client must gain at least to come; nothing moves for nothing.
    fn least_pull(&self) -> i64 {
        (10 * self.knobs.improvement_percent as i64).max(1)
    }

    /// Whether a client would come back from `to` for its memory or for others, with these loads
    /// when it is there.
    pub(crate) fn would_return(&self, loads: &Loads, c: &State, to: u32) -> bool {
        let pull = self.pull_of_memory(c, to, c.home).max(self.pull_of_affinity(c, to, c.home));
        pull >= self.least_pull() && self.has_cores_for(loads, c, to, c.home)
    }

    /// Clients go back to their memory.
    pub(crate) fn be_local(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        let cause = Planner::near_permille;
        self.come(at_ns, out, Reason::Locality, Planner::pull_of_memory, cause);
    }

    /// Clients that communicate come together.
    pub(crate) fn bring_together(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        let pull = Planner::pull_of_affinity;
        self.come(at_ns, out, Reason::ActionAffinity, pull, Planner::talks_permille);
    }

    /// Each client goes to the node where it gains most, if that is enough.
    fn come(
        &mut self,
        at_ns: u64,
        out: &mut Vec<Decision>,
        reason: Reason,
        gain: impl Fn(&Planner, &State, u32, u32) -> i64,
        cause: impl Fn(&Planner, &State, u32) -> u64,
    ) {
        let least = self.least_pull();
        let mut loads = self.loads();
        for id in self.clients.keys().copied().collect::<Vec<_>>() {
            let c = &self.clients[&id];
            if c.settled == 0 {
                continue;
            }
            let best = self
                .others(c.home)
                .map(|to| (gain(self, c, c.home, to), to))
                .filter(|(_, to)| !c.was_taken_from(*to, self.knobs.period_ms))
                .filter(|(gain, to)| *gain >= least && self.has_cores_for(&loads, c, c.home, *to))
                .max_by_key(|(gain, to)| (*gain, std::cmp::Reverse(*to)));
            if let Some((_, to)) = best {
                let cause = cause(self, c, to);
                let after = loads.shifted(c.home, to, c.asks);
                out.push(self.change(at_ns, id, to, reason, cause, (&loads, &after)));
                loads = after;
            }
        }
    }
}
