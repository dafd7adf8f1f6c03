//! VMs without homes: those for which no node has room while other nodes have idle cores, and wide
//! ones that a crowded node holds back.
//!
//! *Law*: a VM leaves its homes, and its vCPUs run anywhere, if it gains enough by that, now and in
//! the mean of many rounds: `roam_percent` of the cores of its node, and a wide one of what it is
//! entitled to. It has homes again once it would gain less than half of that by having none.
//! - What a *whole* VM gains is the least of what clients of its node are entitled to beyond its
//!   cores, of what no client can use of the other nodes that it may use, and of what it wants. It
//!   leaves once an imbalance has been left as it is for `swap_periods` rounds, and no change is
//!   made now or about to be. Of all the one that gains most leaves, of equals the one that wants
//!   least, for what runs far from its memory is slower.
//! - The parts of a *wide* VM have the pace of the slowest, for co-scheduling keeps vCPUs together:
//!   what a node gives its clients with all threads, of what they are entitled to. What a VM gains
//!   is what parts lose by that, or what it has had too little of in the mean of many rounds,
//!   beside what all clients had, if that is more. It leaves after `swap_periods` such rounds,
//!   before whole VMs do: what shares the slowest node has that pace, too. It has none for
//!   `LONG_ROUNDS`.
//!
//! *Units*: thousandths of a pCPU.
//!
//! *Example*: two nodes of eight cores, three VMs of six vCPUs that burn. Two share a node, and
//! have four cores each; beside the third one two cores idle. One of the two leaves: all have 5.3
//! cores. A VM of eight vCPUs has half of them in each of two nodes of four cores, beside one of
//! four in the first. They are entitled to 5.3 and 2.7 of the eight, but the first node gives them
//! four of 5.3: the wide one has two there, so two in the other node, and two cores idle.
//!
//! *Limits*: what VMs without homes want is load of no node; all of it is taken off what idles.

use crate::loads::{Asks, Loads, NODES_MAX};
use crate::planner::{LONG_ROUNDS, Planner, State};
use crate::{Client, ClientId, Decision, Reason};

/// Why a VM has no homes, in words.
pub const ROAMS: &str =
    "its node gives it less than it is entitled to, and others could give it that: no home";

/// By node.
type Held = [u64; NODES_MAX];

/// What clients want by node: now, and in the mean of many rounds.
struct Wants {
    now: Loads,
    long: Loads,
    /// What parts of wide VMs cannot use of it.
    held: (Held, Held),
    /// What is wanted without a home.
    homeless: (u64, u64),
}

impl Planner {
    /// Whether a VM has no homes because it gains by that.
    #[must_use]
    pub fn roams(&self, vm: u32) -> bool {
        self.roaming.contains(&vm)
    }

    /// VMs leave homes by which they lose, or have some again.
    pub(crate) fn roam(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        self.come_home(at_ns, out);
        if self.knobs.roam_percent == 0 {
            self.held_back.clear();
            return;
        }
        let wants = self.wants();
        let periods = self.knobs.swap_periods.max(1);
        let mut best = self.best_wide(&wants, periods);
        if self.held_back.is_empty() && self.stuck >= periods && out.is_empty() {
            best = self.best_whole(&wants);
            if best.is_some() && self.moves_now() {
                return; // it will be made once that has lasted
            }
        }
        let Some((gain, ids)) = best else { return };
        let mut after = wants.now.clone();
        let mut cores = 0;
        for State { home, asks, .. } in ids.iter().map(|id| &self.clients[id]) {
            after.leave(*home, *asks);
            cores += u64::from(self.nodes[*home as usize].cores);
        }
        for id in &ids {
            let (home, loads) = (self.clients[id].home, (&wants.now, &after));
            out.push(self.change(at_ns, *id, home, Reason::Roams, gain / cores.max(1), loads));
            self.clients.entry(*id).and_modify(|c| c.short_sum = 0);
        }
        self.unseat(ids[0].vm);
        self.roaming.insert(ids[0].vm);
    }

    /// Of whole VMs that which gains most, and what.
    fn best_whole(&self, wants: &Wants) -> Option<(u64, Vec<ClientId>)> {
        let clients: Vec<&State> = self.clients.values().collect();
        let periods = self.knobs.swap_periods.max(1);
        let gains = vms(&clients).filter(|p| p.len() == 1 && self.may_leave(p, periods)).map(|p| {
            (self.gain_of_roaming(p, wants), std::cmp::Reverse((p[0].asks, p[0].client.id)), p)
        });
        let best = gains.filter(|(gain, _, p)| *gain >= self.least_gain(p));
        best.max_by_key(|best| (best.0, best.1)).map(|(gain, _, p)| (gain, vec![p[0].client.id]))
    }

    /// Of wide VMs that have gained enough for so many rounds that which gains most, and what.
    fn best_wide(&mut self, wants: &Wants, periods: u64) -> Option<(u64, Vec<ClientId>)> {
        let clients: Vec<&State> = self.clients.values().collect();
        let gains = vms(&clients).filter(|p| p.len() > 1 && self.may_leave(p, 1));
        let gain = |p: &[&State]| self.gain_of_roaming(p, wants).max(short(p));
        let gains = gains.map(|p| (gain(p), p[0].client.id.vm, p));
        let enough: Vec<_> = gains.filter(|(gain, _, p)| *gain >= self.least_gain(p)).collect();
        let rounds = |vm: u32| self.held_back.get(&vm).map_or(1, |rounds| rounds + 1);
        let held_back = enough.iter().map(|(_, vm, _)| (*vm, rounds(*vm))).collect();
        let lasts = enough.into_iter().filter(|(_, vm, _)| rounds(*vm) >= periods);
        let best = lasts.max_by_key(|(gain, vm, _)| (*gain, std::cmp::Reverse(*vm)));
        let best = best.map(|(gain, _, p)| (gain, p.iter().map(|c| c.client.id).collect()));
        self.held_back = held_back;
        best
    }

    /// Whether a VM may leave its homes: it has been there for so many rounds, and each of its
    /// vCPUs may run in all of them.
    fn may_leave(&self, parts: &[&State], periods: u64) -> bool {
        let anywhere = |c: &&State| parts.iter().all(|other| self.may_be_home(c, other.home));
        let may = |c: &&State| c.settled >= periods && self.nodes[c.home as usize].cores > 0;
        parts.iter().all(may) && (parts.len() == 1 || parts.iter().all(anywhere))
    }

    /// VMs that gain nothing more without homes have some again; one for which no node has room by
    /// what it has reserved waits for that (`reserve`).
    fn come_home(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        if self.roaming.is_empty() {
            return;
        }
        let mut wants = self.wants();
        for vm in self.roaming.clone() {
            let all = ClientId { vm, part: 0 }..=ClientId { vm, part: u32::MAX };
            let mut parts: Vec<State> = self.homeless.range(all).map(|(_, c)| c.clone()).collect();
            if !self.seats_of(&mut parts, &wants) {
                self.roaming.remove(&vm);
                continue;
            }
            let parts: Vec<&State> = parts.iter().collect();
            let there = self.wants_with(&wants, &parts);
            let stays = parts.len() > 1 && parts[0].settled < LONG_ROUNDS
                || 2 * self.gain_of_roaming(&parts, &there) >= self.least_gain(&parts);
            if self.knobs.roam_percent > 0 && stays {
                continue;
            }
            self.roaming.remove(&vm);
            let homes: Vec<(Client, Option<u32>)> =
                parts.iter().map(|c| (c.client, Some(c.home))).collect();
            out.extend(self.seat(at_ns, &homes));
            wants = self.wants();
        }
    }

    /// Chooses a home for each part of a VM that has none; false if there is none.
    fn seats_of(&self, parts: &mut [State], wants: &Wants) -> bool {
        let (mut now, mut long) = (wants.now.clone(), wants.long.clone());
        for i in 0..parts.len() {
            let taken = |n: &u32| parts[..i].iter().any(|c| c.home == *n);
            let may = |n: &u32| self.allows(&parts[i], *n);
            let apart = |n: &u32| may(n) && !taken(n);
            let nodes = || 0..self.nodes.len() as u32;
            let nearest = |may: &dyn Fn(&u32) -> bool| {
                self.nearest_room(&parts[i], &now, &long, nodes().filter(may))
            };
            let Some(home) = nearest(&apart).or_else(|| nearest(&may)) else { return false };
            parts[i].home = home;
            now.add(home, parts[i].asks);
            long.add(home, parts[i].asks_long());
        }
        !parts.is_empty()
    }

    /// Of these nodes where a client without a home would have one: where it was last if there is
    /// room for it, or else where least is wanted.
    fn nearest_room(
        &self,
        c: &State,
        now: &Loads,
        long: &Loads,
        of: impl Iterator<Item = u32>,
    ) -> Option<u32> {
        let free = self.knobs.contended_permille();
        let fits = |n: u32| {
            let now = now.wanted_permille_with(n, c.asks.wants as i64);
            now.max(long.wanted_permille_with(n, c.asks_long().wants as i64)) <= free
        };
        of.min_by_key(|n| (!(fits(*n) && *n == c.home), long.wanted_permille(*n), *n))
    }

    fn wants(&self) -> Wants {
        let homeless = |of: fn(&State) -> Asks| self.homeless.values().map(|c| of(c).wants).sum();
        let homeless = (homeless(|c| c.asks), homeless(State::asks_long));
        self.wants_of(self.loads(), self.loads_of(State::asks_long), homeless)
    }

    /// The same once the parts of a VM without homes have these.
    fn wants_with(&self, wants: &Wants, parts: &[&State]) -> Wants {
        let Wants { mut now, mut long, mut homeless, .. } =
            Wants { now: wants.now.clone(), long: wants.long.clone(), ..*wants };
        for c in parts {
            now.add(c.home, c.asks);
            long.add(c.home, c.asks_long());
            homeless = (homeless.0 - c.asks.wants, homeless.1 - c.asks_long().wants);
        }
        self.wants_of(now, long, homeless)
    }

    fn wants_of(&self, now: Loads, long: Loads, homeless: (u64, u64)) -> Wants {
        let held = (self.held(&now, |c| c.asks), self.held(&long, State::asks_long));
        Wants { now, long, held, homeless }
    }

    /// What a VM must gain to leave its homes: so much of its node, or of what it is entitled to.
    fn least_gain(&self, parts: &[&State]) -> u64 {
        let of = match parts {
            [one] => 1000 * u64::from(self.nodes[one.home as usize].cores),
            _ => parts.iter().map(|c| c.asks.due).sum(),
        };
        self.knobs.roam_percent * of / 100
    }

    /// What a VM gains without homes.
    fn gain_of_roaming(&self, parts: &[&State], wants: &Wants) -> u64 {
        let of = |loads: &Loads, asks: fn(&State) -> Asks, held: &Held, homeless: u64| {
            let [one] = parts else { return self.lost(parts, loads, asks) };
            let may = (0..self.nodes.len() as u32).filter(|n| self.may_be_home(one, *n));
            let idle: u64 = may.map(|n| loads.idle(n, held[n as usize])).sum();
            loads.waits(one.home).min(asks(one).wants).min(idle.saturating_sub(homeless))
        };
        let Wants { now, long, held, homeless } = wants;
        let now = of(now, |c| c.asks, &held.0, homeless.0);
        now.min(of(long, State::asks_long, &held.1, homeless.1))
    }

    /// Of what the parts of a VM are entitled to, what they lose by the pace of the slowest.
    fn lost(&self, parts: &[&State], loads: &Loads, asks: fn(&State) -> Asks) -> u64 {
        let due: u64 = parts.iter().map(|c| asks(c).due).sum();
        due - due * self.pace(parts, loads) / 1000
    }

    /// That of the slowest of these nodes.
    fn pace(&self, parts: &[&State], loads: &Loads) -> u64 {
        parts.iter().map(|c| loads.pace(c.home, self.core_gives)).min().unwrap_or(1000)
    }

    /// Of what is wanted of each node, what parts of wide VMs cannot use.
    fn held(&self, loads: &Loads, asks: fn(&State) -> Asks) -> Held {
        let mut held = [0; NODES_MAX];
        let clients: Vec<&State> = self.clients.values().collect();
        for parts in vms(&clients).filter(|parts| parts.len() > 1) {
            let pace = self.pace(parts, loads);
            for c in parts.iter().filter(|_| pace < 1000) {
                held[c.home as usize] += asks(c).wants - asks(c).due * pace / 1000;
            }
        }
        held
    }
}

/// What a VM has had less than it was entitled to, in the mean of many rounds.
fn short(parts: &[&State]) -> u64 {
    let sum: i64 = parts.iter().map(|c| c.short_sum).sum();
    sum.max(0) as u64 / LONG_ROUNDS
}

/// The parts of each VM.
fn vms<'a>(clients: &'a [&'a State]) -> impl Iterator<Item = &'a [&'a State]> {
    clients.chunk_by(|a, b| a.client.id.vm == b.client.id.vm)
}
