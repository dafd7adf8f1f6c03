//! VMs without a home because no node has room for what they ask for, and other nodes have idle
//! cores.
//!
//! *Law*: where clients of a node are entitled to more than its cores give, some imbalance has been
//! left as it is for `swap_periods`, and no change is made now or about to be, a client leaves its
//! home: its vCPUs run anywhere. Its gain is the least of what its node lacks, of what no client
//! can use of the other nodes that it may use, and of what it wants, now and in the mean of many
//! rounds; that must be `roam_percent` of the node's cores. Of all clients the one that gains most
//! leaves, of equals the one that wants least, for what runs far from its memory is slower. It has
//! a home again once it would gain less than half of that.
//!
//! A part of a wide VM can use what it wants, unless another part is in a node that gives its
//! clients less than they are entitled to: co-scheduling keeps all parts to the pace of that one.
//! What parts cannot use of what they are entitled to is what a wide VM gains without homes. It
//! leaves them first, and whatever else changes: beside it in the slowest node all have that pace.
//!
//! *Units*: thousandths of a pCPU.
//!
//! *Example*: two nodes of eight cores, three VMs of six vCPUs that burn. Two share a node, and
//! have four cores each; beside the third one two cores idle. One of the two leaves: all have 5.3
//! cores. A VM of eight vCPUs has half of them in each of two nodes of four cores, beside one of
//! four in the first. They are entitled to 5.3 and 2.7 of the eight, but the first node gives them
//! four of 5.3, and in the second the VM of eight can use two of the four that it wants.
//!
//! *Limits*: what VMs without a home want is load of no node; all of it is
//! taken off what idles.

use crate::loads::{Asks, Loads, NODES_MAX};
use crate::planner::{Planner, State};
use crate::{Client, ClientId, Decision, Reason};

/// Why a VM has no homes, in words.
pub const ROAMS: &str =
    "its node gives it less than it is entitled to, and others could give it that: no home";

impl Planner {
    /// Whether a VM has no home because no node has room for what it wants.
    #[must_use]
    pub fn roams(&self, vm: u32) -> bool {
        self.roaming.contains(&vm)
    }

    /// VMs leave homes where they wait beside idle cores, or have one again.
    pub(crate) fn roam(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        self.come_home(at_ns, out);
        if self.knobs.roam_percent == 0 {
            return;
        }
        let wants = self.wants();
        let mut best = self.best_wide(&wants);
        if best.is_none() && self.stuck >= self.knobs.swap_periods.max(1) && out.is_empty() {
            best = self.best_whole(&wants);
            if best.is_some() && self.moves_now() {
                return; // it will be made once that has lasted
            }
        }
        let Some((gain, ids)) = best else { return };
        for id in &ids {
            let State { home, asks, .. } = self.clients[id];
            let cause = gain / u64::from(self.nodes[home as usize].cores);
            let mut after = wants.now.clone();
            after.leave(home, asks);
            out.push(self.change(at_ns, *id, home, Reason::Roams, cause, (&wants.now, &after)));
        }
        self.unseat(ids[0].vm);
        self.roaming.insert(ids[0].vm);
    }

    /// Of VMs with one home that which gains most without it, and what.
    fn best_whole(&self, wants: &Wants) -> Option<(u64, Vec<ClientId>)> {
        let clients: Vec<&State> = self.clients.values().collect();
        let whole = |parts: &&[&State]| parts.len() == 1 && self.may_leave(parts);
        let gains = vms(&clients).filter(whole).map(|p| {
            let gain = self.gain_of_roaming(p, wants);
            (gain, std::cmp::Reverse((p[0].asks, p[0].client.id)), self.least_gain(p))
        });
        let best = gains.filter(|(gain, _, least)| gain >= least).max();
        best.map(|(gain, std::cmp::Reverse((_, id)), _)| (gain, vec![id]))
    }

    /// Of wide VMs that which gains most without homes, and what.
    fn best_wide(&self, wants: &Wants) -> Option<(u64, Vec<ClientId>)> {
        let clients: Vec<&State> = self.clients.values().collect();
        let wide = |parts: &&[&State]| parts.len() > 1 && self.may_leave(parts);
        let gains = vms(&clients).filter(wide).map(|p| {
            let id = std::cmp::Reverse(p[0].client.id.vm);
            (self.gain_of_roaming(p, wants), id, self.least_gain(p), p)
        });
        let best = gains.filter(|(gain, _, least, _)| gain >= least).max_by_key(|g| (g.0, g.1));
        best.map(|(gain, _, _, p)| (gain, p.iter().map(|c| c.client.id).collect()))
    }

    /// Whether a VM may leave its homes: it has been there for a while, and each of its vCPUs may run
    /// in all of them.
    fn may_leave(&self, parts: &[&State]) -> bool {
        let periods = self.knobs.swap_periods.max(1);
        let anywhere = |c: &&State| parts.iter().all(|other| self.may_be_home(c, other.home));
        let may = |c: &&State| c.settled >= periods && self.nodes[c.home as usize].cores > 0;
        parts.iter().all(may) && (parts.len() == 1 || parts.iter().all(anywhere))
    }

    /// VMs that gain nothing more without a home have one again; one for which no node has room by
    /// what it has reserved waits for that (`reserve`).
    fn come_home(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        for vm in self.roaming.clone() {
            let wants = self.wants();
            let all = ClientId { vm, part: 0 }..=ClientId { vm, part: u32::MAX };
            let mut parts: Vec<State> = self.homeless.range(all).map(|(_, c)| c.clone()).collect();
            if let [one] = &mut parts[..] {
                let Some(node) = self.nearest_room(one, &wants) else {
                    self.roaming.remove(&vm);
                    continue;
                };
                one.home = node;
            }
            let parts: Vec<&State> = parts.iter().collect();
            let wants = self.wants_with(wants, &parts);
            let stays = 2 * self.gain_of_roaming(&parts, &wants) >= self.least_gain(&parts);
            if self.knobs.roam_percent > 0 && stays {
                continue;
            }
            self.roaming.remove(&vm);
            let homes: Vec<(Client, Option<u32>)> =
                parts.iter().map(|c| (c.client, Some(c.home))).collect();
            out.extend(self.seat(at_ns, &homes));
        }
    }

    fn wants(&self) -> Wants {
        let homeless = |of: fn(&State) -> Asks| self.homeless.values().map(|c| of(c).wants).sum();
        let (now, long) = (self.loads(), self.loads_of(State::asks_long));
        let held = (self.held(&now, |c| c.asks), self.held(&long, State::asks_long));
        let homeless = (homeless(|c| c.asks), homeless(State::asks_long));
        Wants { now, long, held, homeless }
    }

    /// The same once the parts of a VM without homes have these.
    fn wants_with(&self, mut wants: Wants, parts: &[&State]) -> Wants {
        for c in parts {
            wants.now.add(c.home, c.asks);
            wants.long.add(c.home, c.asks_long());
            wants.homeless.0 -= c.asks.wants;
            wants.homeless.1 -= c.asks_long().wants;
        }
        let Wants { now, long, .. } = &wants;
        wants.held = (self.held(now, |c| c.asks), self.held(long, State::asks_long));
        wants
    }

    /// What a VM must gain to leave its homes: so much of the largest of these.
    fn least_gain(&self, parts: &[&State]) -> u64 {
        let cores = parts.iter().map(|c| self.nodes[c.home as usize].cores).max().unwrap_or(0);
        10 * self.knobs.roam_percent * u64::from(cores)
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

    /// What a VM gains without homes: one with one home what it waits for there, as far as cores of
    /// other nodes idle; a wide one what its parts cannot use of what they are entitled to, which
    /// idles or is what others have beyond that.
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

    /// Of what the parts of a VM are entitled to, what they cannot use.
    fn lost(&self, parts: &[&State], loads: &Loads, asks: fn(&State) -> Asks) -> u64 {
        let pace = self.pace(parts, loads);
        let lost =
            |Asks { wants, due }: Asks| wants.min(due) - used(Asks { wants, due }, pace).min(due);
        parts.iter().map(|c| lost(asks(c))).sum()
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
            for c in parts {
                held[c.home as usize] += asks(c).wants - used(asks(c), pace);
            }
        }
        held
    }
}

/// What a part of a wide VM can use of what it asks for at this pace, in permille.
fn used(Asks { wants, due }: Asks, pace: u64) -> u64 {
    if pace < 1000 { wants.min(due * pace / 1000) } else { wants }
}

/// The parts of each VM.
fn vms<'a>(clients: &'a [&'a State]) -> impl Iterator<Item = &'a [&'a State]> {
    clients.chunk_by(|a, b| a.client.id.vm == b.client.id.vm)
}

/// By node.
type Held = [u64; NODES_MAX];

/// What clients want: now, and in the mean of many rounds.
struct Wants {
    /// By node.
    now: Loads,
    long: Loads,
    /// What parts of wide VMs cannot use of it.
    held: (Held, Held),
    /// Without a home.
    homeless: (u64, u64),
}
