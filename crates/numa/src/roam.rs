//! VMs without a home because no node has room for what they ask for, and other nodes have idle
//! cores.
//!
//! *Law*: where clients of a node are entitled to more than its cores give, some imbalance has been
//! left as it is for `swap_periods`, and no change is made now or about to be, a client leaves its
//! home: its vCPUs run anywhere. Its gain is the least of what its node lacks, of
//! what no client can use of the other nodes that it may use, and of what it wants, now and in the
//! mean of many rounds; that must be `roam_percent` of the node's cores. Of all clients the one
//! that gains most leaves, of equals the one that wants least, for what runs far from its memory is
//! slower. It has a home again once it would gain less than half of that.
//!
//! A part of a wide VM can use what it wants, unless another part is in a node that gives its
//! clients less than they are entitled to: co-scheduling keeps all parts to the pace of that one.
//! What they cannot use of what they are entitled to is what the wide VM gains without homes. It
//! leaves them before others do, for beside it in the slowest node all have that pace.
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
        let Some((home, gain, ids)) = self.best_wide(&wants).or_else(|| self.best_whole(&wants))
        else {
            return;
        };
        if self.moves_now() {
            return; // it will be made once that has lasted
        }
        let cause = gain / u64::from(self.nodes[home as usize].cores);
        for id in &ids {
            let State { home, asks, .. } = self.clients[id];
            let mut after = wants.now.clone();
            after.leave(home, asks);
            out.push(self.change(at_ns, *id, home, Reason::Roams, cause, (&wants.now, &after)));
        }
        self.unseat(ids[0].vm);
        self.roaming.insert(ids[0].vm);
    }

    /// Of VMs with one home that which gains most without it, and what.
    fn best_whole(&self, wants: &Wants) -> Option<(u32, u64, Vec<ClientId>)> {
        let gains = self.vms().filter(|parts| parts.len() == 1 && self.may_leave(parts)).map(|p| {
            let gain = self.gain_of_roaming(&p, p[0].home, wants);
            (gain, std::cmp::Reverse((p[0].asks, p[0].client.id)), p[0].home)
        });
        let best = gains.filter(|(gain, _, home)| *gain >= self.least_gain(*home)).max();
        best.map(|(gain, std::cmp::Reverse((_, id)), home)| (home, gain, vec![id]))
    }

    /// Of wide VMs that which gains most without homes, and what; the home is that of the part
    /// that keeps the others to its pace.
    fn best_wide(&self, wants: &Wants) -> Option<(u32, u64, Vec<ClientId>)> {
        let gains = self.vms().filter(|parts| parts.len() > 1 && self.may_leave(parts)).map(|p| {
            let slowest = |c: &&&State| wants.now.pace(c.home);
            let home = p.iter().min_by_key(slowest).map_or(0, |c| c.home);
            (self.gain_of_roaming(&p, home, wants), std::cmp::Reverse(p[0].client.id.vm), home)
        });
        let best = gains.filter(|(gain, _, home)| *gain >= self.least_gain(*home)).max();
        best.map(|(gain, std::cmp::Reverse(vm), home)| {
            let all = ClientId { vm, part: 0 }..=ClientId { vm, part: u32::MAX };
            (home, gain, self.clients.range(all).map(|(id, _)| *id).collect())
        })
    }

    /// The parts of each VM that has homes.
    fn vms(&self) -> impl Iterator<Item = Vec<&State>> {
        let clients: Vec<&State> = self.clients.values().collect();
        let vm = |c: &State| c.client.id.vm;
        let parts: Vec<Vec<&State>> =
            clients.chunk_by(|a, b| vm(a) == vm(b)).map(<[&State]>::to_vec).collect();
        parts.into_iter()
    }

    fn may_leave(&self, parts: &[&State]) -> bool {
        let periods = self.knobs.swap_periods.max(1);
        parts.iter().all(|c| c.settled >= periods && self.nodes[c.home as usize].cores > 0)
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
            let wants = wants.with(&parts);
            let least = parts.iter().map(|c| self.least_gain(c.home)).max().unwrap_or(0);
            let home = parts.iter().min_by_key(|c| wants.now.pace(c.home)).map_or(0, |c| c.home);
            let stays = 2 * self.gain_of_roaming(&parts, home, &wants) >= least;
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
        Wants {
            now: self.loads(),
            long: self.loads_of(State::asks_long),
            homeless: (homeless(|c| c.asks), homeless(State::asks_long)),
        }
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

    /// What a VM gains without homes, of which this one gives it least: what it waits for there, or
    /// what parts cannot use that are kept to that pace, but no more than what idles.
    fn gain_of_roaming(&self, parts: &[&State], home: u32, wants: &Wants) -> u64 {
        let of = |loads: &Loads, asks: fn(&State) -> Asks, homeless: u64| {
            let mut held = self.held(loads, asks, parts[0].client.id.vm);
            let mut lost = 0;
            for c in parts.iter().filter(|_| parts.len() > 1) {
                let used = used(asks(c), loads.pace(home));
                held[c.home as usize] += asks(c).wants - used;
                lost += asks(c).wants.min(asks(c).due) - used.min(asks(c).due);
            }
            let may = 0..self.nodes.len() as u32;
            let may = may.filter(|n| parts.iter().all(|c| self.may_be_home(c, *n)));
            let idle: u64 = may.map(|n| loads.idle(n, held[n as usize])).sum();
            let waits = match parts {
                [one] => loads.waits(home).min(asks(one).wants),
                _ => lost,
            };
            waits.min(idle.saturating_sub(homeless))
        };
        let now = of(&wants.now, |c| c.asks, wants.homeless.0);
        now.min(of(&wants.long, State::asks_long, wants.homeless.1))
    }

    /// Of what is wanted of each node, what parts of wide VMs cannot use, but those of this one.
    fn held(&self, loads: &Loads, asks: fn(&State) -> Asks, but: u32) -> [u64; NODES_MAX] {
        let mut held = [0; NODES_MAX];
        let vm = |c: &State| c.client.id.vm;
        for parts in self.vms().filter(|parts| parts.len() > 1 && vm(parts[0]) != but) {
            let pace = parts.iter().map(|c| loads.pace(c.home)).min().unwrap_or(1000);
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

/// What clients want: now, and in the mean of many rounds.
struct Wants {
    /// By node.
    now: Loads,
    long: Loads,
    /// Without a home.
    homeless: (u64, u64),
}

impl Wants {
    /// The same once the parts of a VM without homes have these.
    fn with(&self, parts: &[&State]) -> Wants {
        let (mut now, mut long, mut homeless) =
            (self.now.clone(), self.long.clone(), self.homeless);
        for c in parts {
            now.add(c.home, c.asks);
            long.add(c.home, c.asks_long());
            homeless = (homeless.0 - c.asks.wants, homeless.1 - c.asks_long().wants);
        }
        Wants { now, long, homeless }
    }
}
