//! LLCs of a node: where the vCPUs of a client run whose VM asks for few of them or for all
//! (ESXi's `sched.cpu.vsmpConsolidate`, KB 1017936).
//!
//! *Law*: as a wide VM is divided over nodes, such a client is divided over the LLCs of its home
//! node: into as few parts as their cores allow (consolidate), or into one for each LLC (spread).
//! The parts have an LLC each for their home, by a planner whose nodes are LLCs: the same
//! thresholds and reasons, without memory, which all LLCs of a node are equally near to. Clients
//! without a choice count as the scheduler places their worlds: LLCs of their home with less load
//! first.
//!
//! *Limits*: 64 LLCs. The loads of host tasks do not count.

use crate::{Client, ClientId, Decision, Knobs, Load, Node, Planner};
use settings::LlcChoice;
use std::collections::{BTreeMap, BTreeSet};

/// Most LLCs: a home is a bit of a word.
const LLCS_MAX: u32 = 64;
/// The VM that stands for all clients without a choice.
const OTHERS: u32 = u32::MAX;

/// An LLC of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Llc {
    /// Its node.
    pub node: u32,
    /// Cores that share it.
    pub cores: u32,
    /// Hardware threads that share it.
    pub threads: u32,
}

/// A client, and what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asks {
    /// Few LLCs, or all.
    pub choice: LlcChoice,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its home node.
    pub node: u32,
    /// Whether threads count in place of cores (`numa.vcpu.preferHT`).
    pub prefer_ht: bool,
    /// LLCs that its affinity leaves it, a bit each; 0: all.
    pub llcs: u64,
}

/// What a client did since the last round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcpuLoads {
    /// Which client.
    pub id: ClientId,
    /// Its home node.
    pub node: u32,
    /// CPU that it was entitled to, in thousandths of a pCPU.
    pub entitled: u64,
    /// CPU that each of its vCPUs wanted and had, in thousandths of a pCPU.
    pub vcpus: Vec<(u64, u64)>,
}

/// LLCs of a host, and the clients that have a choice.
#[derive(Clone, Debug)]
pub struct Llcs {
    planner: Planner,
    llcs: Vec<Llc>,
    /// What each asks for, and the first vCPU of each of its parts.
    clients: BTreeMap<ClientId, (Asks, Vec<u32>)>,
    /// Decisions that `take_said` has not given yet.
    said: Vec<(ClientId, u32, Decision)>,
}

/// A client's part by the numbers of this planner.
fn part_of(id: ClientId, part: usize) -> ClientId {
    ClientId { vm: id.vm, part: id.part * LLCS_MAX + part as u32 }
}

/// The same thresholds; a client has LLCs because its VM asks for them, so it keeps them.
fn of_llcs(knobs: Knobs) -> Knobs {
    Knobs { roam_percent: 0, ..knobs }
}

impl Llcs {
    /// A host of these LLCs; `None` where there is nothing to choose, or more than a home has bits.
    #[must_use]
    pub fn new(llcs: Vec<Llc>, knobs: Knobs) -> Option<Llcs> {
        let with_cores = || llcs.iter().filter(|l| l.cores > 0);
        let several = with_cores().any(|a| with_cores().filter(|b| b.node == a.node).count() > 1);
        if !several || llcs.len() > LLCS_MAX as usize {
            return None;
        }
        let node = |l: &Llc| Node { cores: l.cores, memory: u64::MAX };
        let planner = Planner::new(llcs.iter().map(node).collect(), of_llcs(knobs));
        let mut all = Llcs { planner, llcs, clients: BTreeMap::new(), said: vec![] };
        all.add_others();
        Some(all)
    }

    /// One client of each LLC for all that have no choice.
    fn add_others(&mut self) {
        let one = |(llc, _): (u32, &Llc)| Client {
            id: ClientId { vm: OTHERS, part: llc },
            vcpus: 0,
            memory: 0,
            nodes: 1 << llc,
            siblings_most: 0,
        };
        let with_cores = (0..).zip(&self.llcs).filter(|(_, l)| l.cores > 0);
        let others: Vec<Client> = with_cores.map(one).collect();
        self.planner.add(0, &others);
    }

    /// Other thresholds count from now on.
    pub fn set_knobs(&mut self, knobs: Knobs) {
        self.planner.set_knobs(of_llcs(knobs));
    }

    /// So many cores of each LLC are on line from now on: clients of nodes where that has changed
    /// are divided anew.
    pub fn set_cores(&mut self, at_ns: u64, cores: &[u32]) -> Vec<Decision> {
        let now = self.llcs.iter().zip(cores);
        let changed: BTreeSet<u32> =
            now.filter(|(l, cores)| l.cores != **cores).map(|(l, _)| l.node).collect();
        self.llcs.iter_mut().zip(cores).for_each(|(l, cores)| l.cores = *cores);
        let of = self.clients.iter().filter(|(_, (asks, _))| changed.contains(&asks.node));
        let again: Vec<(ClientId, Asks)> = of.map(|(id, (asks, _))| (*id, *asks)).collect();
        again.iter().for_each(|(id, _)| self.leave(*id));
        self.planner.set_cores(at_ns, cores);
        self.add_others();
        again.into_iter().flat_map(|(id, asks)| self.seat(at_ns, id, asks)).collect()
    }

    /// Decisions since the last call, each with its client, and the first vCPU of its part.
    pub fn take_said(&mut self) -> Vec<(ClientId, u32, Decision)> {
        std::mem::take(&mut self.said)
    }

    fn say(&mut self, decisions: &[Decision]) {
        for d in decisions {
            let id = ClientId { part: d.client.part / LLCS_MAX, ..d.client };
            let firsts = self.clients.get(&id).map(|(_, firsts)| firsts);
            let first = firsts.and_then(|f| f.get((d.client.part % LLCS_MAX) as usize));
            self.said.push((id, first.copied().unwrap_or(0), *d));
        }
    }

    /// Gives a client LLCs of its home node, unless it has them; decisions are of its parts.
    pub fn seat(&mut self, at_ns: u64, id: ClientId, asks: Asks) -> Vec<Decision> {
        if self.clients.get(&id).is_some_and(|(before, _)| *before == asks) {
            return vec![];
        }
        self.leave(id);
        let allowed = |(n, l): &(u32, &Llc)| {
            l.node == asks.node && l.cores > 0 && (asks.llcs == 0 || asks.llcs >> n & 1 != 0)
        };
        let here: Vec<(u32, &Llc)> = (0..).zip(&self.llcs).filter(allowed).collect();
        let room = |l: &Llc| if asks.prefer_ht { l.threads } else { l.cores };
        let most = here.iter().map(|(_, l)| room(l)).max().unwrap_or(0);
        if most == 0 || asks.vcpus == 0 {
            return vec![];
        }
        let parts = match asks.choice {
            LlcChoice::Consolidate => asks.vcpus.div_ceil(most).min(here.len() as u32),
            LlcChoice::Spread => asks.vcpus.min(here.len() as u32),
        };
        let first = |part: u32| part * asks.vcpus / parts;
        let siblings_most = match asks.choice {
            LlcChoice::Consolidate => most.max(asks.vcpus.div_ceil(parts)),
            LlcChoice::Spread => 1, // none beside another
        };
        let client = |part: u32| Client {
            id: part_of(id, part as usize),
            vcpus: first(part + 1) - first(part),
            memory: 0,
            nodes: here.iter().map(|(n, _)| 1 << n).sum(),
            siblings_most,
        };
        let clients: Vec<Client> = (0..parts).map(client).collect();
        self.clients.insert(id, (asks, (0..parts).map(first).collect()));
        let out = self.planner.add(at_ns, &clients);
        self.say(&out);
        out
    }

    /// A VM is powered off.
    pub fn remove(&mut self, vm: u32) {
        self.clients.retain(|id, _| id.vm != vm);
        self.planner.remove(vm);
    }

    /// A client has no LLCs of its own any more.
    pub fn leave(&mut self, id: ClientId) {
        if let Some((_, firsts)) = self.clients.remove(&id) {
            (0..firsts.len()).for_each(|part| self.planner.remove_client(part_of(id, part)));
        }
    }

    /// LLC of a client's vCPU, if it has a choice.
    #[must_use]
    pub fn of(&self, id: ClientId, vcpu: u32) -> Option<u32> {
        let (_, firsts) = self.clients.get(&id)?;
        let part = firsts.partition_point(|first| *first <= vcpu).checked_sub(1)?;
        self.planner.home(part_of(id, part))
    }

    /// What was decided of the parts of a client, each with its first vCPU.
    pub fn decisions(&self, id: ClientId) -> impl Iterator<Item = (u32, &Decision)> {
        let firsts = self.clients.get(&id).into_iter().flat_map(|(_, firsts)| firsts);
        let of = move |(part, first): (usize, &u32)| {
            let first = *first;
            self.planner.decisions(part_of(id, part)).map(move |d| (first, d))
        };
        firsts.enumerate().flat_map(of)
    }

    /// A round: what all clients did since the last, and LLCs that change by that.
    pub fn round(&mut self, at_ns: u64, loads: &[VcpuLoads]) -> Vec<Decision> {
        let mut chosen = vec![0; self.llcs.len()];
        let nodes = self.llcs.iter().filter(|l| l.cores > 0).map(|l| (l.node, 0));
        let mut free: BTreeMap<u32, u64> = nodes.collect();
        let mut due: BTreeMap<u32, u64> = BTreeMap::new();
        let mut of_parts = vec![];
        for load in loads {
            let Some((_, firsts)) = self.clients.get(&load.id) else {
                let wanted: u64 = load.vcpus.iter().map(|v| v.0).sum();
                *free.entry(load.node).or_insert(0) += wanted;
                *due.entry(load.node).or_insert(0) += load.entitled.min(wanted);
                continue;
            };
            let all: u64 = load.vcpus.iter().map(|v| v.0).sum();
            for (part, first) in firsts.iter().enumerate() {
                let end = firsts.get(part + 1).map_or(load.vcpus.len(), |next| *next as usize);
                let own = load.vcpus.get(*first as usize..end).unwrap_or_default();
                let wanted: u64 = own.iter().map(|v| v.0).sum();
                if let Some(llc) = self.planner.home(part_of(load.id, part)) {
                    chosen[llc as usize] += wanted;
                }
                let used = own.iter().map(|v| v.1).sum();
                let entitled = load.entitled * wanted / all.max(1);
                of_parts.push(self.load(part_of(load.id, part), wanted, used, entitled));
            }
        }
        for (node, wanted) in free {
            for (part, more) in self.fill(node, &chosen, wanted) {
                // What has no choice is where it likes to be: it lacks nothing.
                let all = due.get(&node).copied().unwrap_or(0);
                let due = more * all / wanted.max(1);
                of_parts.push(self.load(ClientId { vm: OTHERS, part }, more, due, due));
            }
        }
        let out = self.planner.round(at_ns, &of_parts);
        self.say(&out);
        out
    }

    fn load(&self, id: ClientId, wanted: u64, used: u64, entitled: u64) -> Load {
        Load { id, wanted, used, entitled, memory: vec![0; self.llcs.len()], talks: vec![] }
    }

    /// So much more load in the LLCs of a node, the least loaded first, as water fills basins: what
    /// comes to each.
    fn fill(&self, node: u32, chosen: &[u64], wanted: u64) -> Vec<(u32, u64)> {
        let basin = |(n, l): (u32, &Llc)| (chosen[n as usize], u64::from(l.cores), n);
        let here = (0..).zip(&self.llcs).filter(|(_, l)| l.node == node && l.cores > 0);
        let mut basins: Vec<(u64, u64, u32)> = here.map(basin).collect();
        let by_load = |(load, cores, n): &(u64, u64, u32)| (load * 1000 / cores, *n);
        basins.sort_by_key(by_load);
        let (mut load, mut cores, mut level) = (wanted, 0, 0);
        for (own, of, _) in &basins {
            if cores > 0 && load * of <= own * cores {
                break; // the water does not reach it
            }
            (load, cores) = (load + own, cores + of);
            level = load * 1000 / cores;
        }
        let more = |(own, of, n): (u64, u64, u32)| (n, (level * of / 1000).saturating_sub(own));
        basins.into_iter().map(more).collect()
    }
}
