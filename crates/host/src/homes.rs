//! Home nodes of this host's VMs: tells the planner (crates/numa) what they did, puts their homes
//! into force in the scheduler, and has their memory follow. It decides nothing itself.
//!
//! *Law*: threads of a VM that are no vCPUs have the homes of all its parts. A home that the
//! scheduler has dropped, because a thread could run on no pCPU of it, is given again with the
//! next scan. A VM that ran before it was found stays where its memory is.

mod file;
mod guest;
mod moving;
mod pages;

use crate::{
    Live,
    discover::{self, FoundVm, Roots},
    publish::Published,
    slots::Slots,
    view::monotonic_ns,
};
pub use file::{HOMES_FILE, HomesFile, VmHomes};
use guest::Guest;
use moving::Moving;
use numa::{Client, ClientId, Decision, Knobs, Load, Node, Planner, Reason};
use sched_core::{
    KIND_HELPER, STATE_COSTOP, STATE_READY, STATE_RUN, VM_SYSTEM, WORLD_RESTRICTED, World,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};
use topology::{NodeFacts, Topology};
use units::{PcpuId, PcpuSet};

/// Pages of all VMs that a round looks at.
const SAMPLES: usize = 65_536;
/// Pages of a part that a round looks at, at least and at most: 64 tell its parts in the nodes to
/// within 6 % (one sigma), 2,048 to within 1 %.
const SAMPLES_OF_PART: (usize, usize) = (64, 2_048);

/// Rounds between two looks at where guests' memory is mapped: hot-plugged memory is seen by then.
const LOOK_AGAIN: u64 = 8;
/// Scans in a row that find another number of vCPUs before a VM is divided anew: of one whose
/// threads have no names, those that run are not always recognized.
const SURE: u32 = 4;

/// A world's home that is none (sched/law/home.h).
const HOME_ANY: u64 = u64::MAX;

/// A node of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostNode {
    /// The kernel's number.
    kernel: u32,
    pcpus: PcpuSet,
    cores: u32,
    /// In bytes.
    memory: u64,
}

/// A part of a VM that has a home of its own.
struct Part {
    id: ClientId,
    /// Numbers of vCPUs; the last part has all higher ones.
    vcpus: Range<u32>,
    tids: Vec<i32>,
    /// Nodes where each of these may run, a bit each; without one it has no home.
    nodes: u64,
    /// What its worlds had wanted and had at the last round, in ns; `None`: it is new.
    seen: Option<(u64, u64)>,
    /// Its memory by node at the last look, in bytes.
    memory: Vec<u64>,
    /// Homes that it has had, by reason; bytes that have followed.
    changes: BTreeMap<Reason, u64>,
    moved: u64,
}

/// A VM that has homes.
struct Homed {
    pid: i32,
    started: u64,
    vcpus: u32,
    /// Scans in a row that have found another number.
    differs: u32,
    guest: Arc<Guest>,
    parts: Vec<Part>,
}

impl Homed {
    /// A part's bytes of the guest's memory.
    fn memory(&self, part: &Part) -> Range<u64> {
        let count = |p: &Part| p.tids.len() as u64;
        let before = self.parts.iter().filter(|p| p.id < part.id).map(count).sum::<u64>();
        let all = self.parts.iter().map(count).sum::<u64>().max(1);
        let below = |n: u64| {
            let at = u128::from(self.guest.bytes()) * u128::from(n) / u128::from(all);
            at as u64 / pages::SIZE * pages::SIZE
        };
        below(before)..below(before + count(part))
    }
}

/// Homes of this host's VMs.
pub(crate) struct Homes {
    /// By the scheduler's numbers; those without pCPUs come last.
    nodes: Vec<HostNode>,
    planner: Planner,
    vms: BTreeMap<u32, Homed>,
    moving: Moving,
    rounds: u64,
    round_ns: u64,
    /// What host tasks had wanted at the last round, in ns.
    system_ns: Option<u64>,
}

impl Homes {
    /// Homes on this host; `None` where all memory is equally near.
    pub(crate) fn new(topology: &Topology, roots: &Roots) -> Option<Homes> {
        let facts = topology::nodes_from_sysfs(&roots.sys).ok()?;
        let nodes = nodes(topology, &facts);
        if nodes.iter().filter(|n| n.cores > 0).count() < 2 || nodes.len() > 64 {
            return None;
        }
        let of = |n: &HostNode| Node { cores: n.cores, memory: n.memory };
        Some(Homes {
            planner: Planner::new(nodes.iter().map(of).collect(), Knobs::default()),
            nodes,
            vms: BTreeMap::new(),
            moving: Moving::new().ok()?,
            rounds: 0,
            round_ns: monotonic_ns(),
            system_ns: None,
        })
    }

    /// pCPUs where a world may run by its home; `None`: all.
    pub(crate) fn pcpus(&self, world: &World) -> Option<PcpuSet> {
        let at = (0..).zip(&self.nodes).filter(|(node, _)| world.home >> node & 1 != 0);
        let set = at.map(|(_, n)| n.pcpus.clone()).reduce(|a, b| a.or(&b));
        set.filter(|_| world.home != HOME_ANY)
    }

    /// Gives the VMs that there are now their homes, and the scheduler those that it lacks.
    pub(crate) fn seat(&mut self, live: &Live, slots: &Slots, roots: &Roots, say: &dyn Fn(&str)) {
        let found: BTreeMap<u32, &FoundVm> =
            slots.found().filter_map(|vm| Some((slots.of(vm.pid)?, vm))).collect();
        for (id, vm) in &mut self.vms {
            let same = found.get(id).filter(|f| (f.pid, f.started) == (vm.pid, vm.started));
            vm.differs = match same {
                Some(f) if f.vcpus() == vm.vcpus => 0,
                Some(_) => vm.differs + 1,
                None => SURE,
            };
        }
        let gone: Vec<u32> =
            self.vms.iter().filter(|(_, vm)| vm.differs >= SURE).map(|(id, _)| *id).collect();
        for id in gone {
            self.vms.remove(&id);
            self.planner.remove(id);
        }
        for (id, vm) in found {
            if self.vms.contains_key(&id) || vm.vcpus() == 0 {
                continue;
            }
            if let Some(guest) = Guest::read(roots, vm.pid) {
                self.take(id, vm, roots, guest);
                self.adopt(id, &vm.name, &[], say);
            }
        }
        self.put(live);
    }

    /// Nodes where each of these threads may run and have memory, a bit each.
    fn allowed(&self, roots: &Roots, pid: i32, tids: &[i32]) -> u64 {
        let with_pcpus = (0..).zip(&self.nodes).filter(|(_, n)| n.cores > 0);
        tids.iter().fold(u64::MAX, |all, tid| {
            let pcpus = discover::allowed(roots, pid, *tid);
            let mems = discover::allowed_memory(roots, pid, *tid);
            let may = |n: &HostNode| {
                pcpus.as_ref().is_none_or(|set| !set.and(&n.pcpus).is_empty())
                    && mems.as_ref().is_none_or(|set| set.contains(PcpuId(n.kernel as u16)))
            };
            let of = with_pcpus.clone().filter(|(_, n)| may(n)).map(|(node, _)| 1 << node);
            all & of.sum::<u64>()
        })
    }

    /// Divides a VM into parts.
    fn take(&mut self, id: u32, vm: &FoundVm, roots: &Roots, guest: Guest) {
        let mut threads: Vec<(u32, i32)> =
            vm.threads.iter().filter_map(|t| Some((t.vcpu?, t.tid))).collect();
        threads.sort_unstable();
        let sizes = vnuma::balanced(threads.len() as u32, self.most());
        let (last, mut first) = (sizes.len() - 1, 0);
        let mut parts = vec![];
        for (part, size) in sizes.into_iter().enumerate() {
            let (own, more) = threads.split_at(size as usize);
            let end = more.first().filter(|_| part < last).map_or(u32::MAX, |next| next.0);
            let tids: Vec<i32> = own.iter().map(|t| t.1).collect();
            parts.push(Part {
                id: ClientId { vm: id, part: part as u32 },
                vcpus: std::mem::replace(&mut first, end)..end,
                nodes: self.allowed(roots, vm.pid, &tids),
                tids,
                seen: None,
                memory: vec![],
                changes: BTreeMap::new(),
                moved: 0,
            });
            threads = more.to_vec();
        }
        let (pid, started, vcpus) = (vm.pid, vm.started, vm.vcpus());
        let guest = Arc::new(guest);
        self.vms.insert(id, Homed { pid, started, vcpus, differs: 0, guest, parts });
    }

    /// Cores of the smallest node.
    fn most(&self) -> u32 {
        self.nodes.iter().map(|n| n.cores).filter(|c| *c > 0).min().unwrap_or(1)
    }

    /// Has the planner take a VM's parts: each stays in its node of `before`, or else where most of
    /// its memory is, if it may.
    fn adopt(&mut self, id: u32, name: &str, before: &[Option<u32>], say: &dyn Fn(&str)) {
        let (Some(vm), most) = (self.vms.get(&id), self.most()) else { return };
        let mut clients = vec![];
        for (n, part) in vm.parts.iter().enumerate().filter(|(_, p)| p.nodes != 0) {
            let memory = vm.memory(part);
            let client = Client {
                id: part.id,
                vcpus: part.tids.len() as u32,
                memory: memory.end - memory.start,
                nodes: part.nodes,
                siblings_most: most,
            };
            let at = self.memory_of(vm, part, SAMPLES_OF_PART.1);
            let all = at.iter().sum::<u64>();
            let local = (0..).zip(at).find(|(_, bytes)| 2 * bytes > all).map(|(node, _)| node);
            clients.push((client, before.get(n).copied().flatten().or(local)));
        }
        for d in self.planner.adopt(monotonic_ns(), &clients) {
            self.note(name, &d, say);
        }
    }

    /// Memory of a part by node.
    fn memory_of(&self, vm: &Homed, part: &Part, samples: usize) -> Vec<u64> {
        let kernel: Vec<u32> = self.nodes.iter().map(|n| n.kernel).collect();
        pages::by_node(vm.pid, &vm.guest, vm.memory(part), (samples, self.rounds), &kernel)
    }

    /// Counts a decision, and prints it.
    fn note(&mut self, vm: &str, d: &Decision, say: &dyn Fn(&str)) {
        let of = self.vms.get_mut(&d.client.vm);
        if let Some(part) = of.and_then(|vm| vm.parts.get_mut(d.client.part as usize)) {
            *part.changes.entry(d.reason).or_default() += 1;
        }
        say(&format!("VM {vm}, part {}: {}", d.client.part, self.shown(d)));
    }

    /// A decision with the kernel's numbers of nodes.
    fn shown(&self, d: &Decision) -> Decision {
        let kernel = |node: u32| self.nodes.get(node as usize).map_or(node, |n| n.kernel);
        Decision { from: d.from.map(kernel), to: kernel(d.to), ..*d }
    }

    /// Home of a world of one of these VMs, a bit for each node.
    fn home(&self, vm: &Homed, w: &World) -> u64 {
        let homes = vm.parts.iter().filter_map(|p| {
            let own = w.kind == KIND_HELPER || p.vcpus.contains(&w.index);
            self.planner.home(p.id).filter(|_| own)
        });
        homes.fold(0, |all, home| all | 1 << home)
    }

    /// Puts homes into force that are not.
    fn put(&self, live: &Live) {
        for w in worlds(live) {
            let Some(vm) = self.vms.get(&w.vm) else { continue };
            let home = self.home(vm, &w);
            let as_put = if home == 0 { HOME_ANY } else { home };
            if as_put != w.home {
                // One that has ended is no error; one that is not bound yet is asked again.
                let _ = live.home(w.pid as i32, home);
            }
        }
    }

    /// A round of the planner if one is due, and memory that follows until the next.
    pub(crate) fn follow(
        &mut self,
        live: &Live,
        published: &Published,
        slots: &Slots,
        roots: &Roots,
        say: &dyn Fn(&str),
    ) {
        let now = monotonic_ns();
        if now - self.round_ns >= self.planner.knobs().period_ms * 1_000_000 {
            self.round(now, live, published, slots, roots, say);
        }
        self.followed(slots, say);
    }

    fn round(
        &mut self,
        now: u64,
        live: &Live,
        published: &Published,
        slots: &Slots,
        roots: &Roots,
        say: &dyn Fn(&str),
    ) {
        let wall = now - std::mem::replace(&mut self.round_ns, now);
        self.rounds += 1;
        self.renew(live, slots, roots, say);
        let loads = self.loads(live, published, wall);
        let decisions = self.planner.round(now, &loads);
        for d in &decisions {
            let found = slots.found().find(|f| slots.of(f.pid) == Some(d.client.vm));
            self.note(found.map_or("?", |f| &f.name), d, say);
        }
        self.put(live);
        self.order(roots);
        // A reader that finds none says so.
        let _ = self.file(slots).write();
    }

    /// Affinities and guests' memory that have changed. A part stays at home if it still may.
    fn renew(&mut self, live: &Live, slots: &Slots, roots: &Roots, say: &dyn Fn(&str)) {
        let restricted: BTreeSet<u32> =
            worlds(live).filter(|w| w.flags & WORLD_RESTRICTED != 0).map(|w| w.vm).collect();
        let all = (0..).zip(&self.nodes).filter(|(_, n)| n.cores > 0).map(|(n, _)| 1 << n).sum();
        for found in slots.found() {
            let Some(id) = slots.of(found.pid) else { continue };
            let Some(vm) = self.vms.get(&id) else { continue };
            let of = |p: &Part| {
                let read = restricted.contains(&id) || p.nodes != all;
                if read { self.allowed(roots, vm.pid, &p.tids) } else { all }
            };
            let nodes: Vec<u64> = vm.parts.iter().map(of).collect();
            let before: Vec<Option<u32>> =
                vm.parts.iter().map(|p| self.planner.home(p.id)).collect();
            let looks = self.rounds % LOOK_AGAIN == 0;
            let guest = looks.then(|| Guest::read(roots, found.pid)).flatten();
            let Some(vm) = self.vms.get_mut(&id) else { continue };
            if let Some(guest) = guest {
                vm.guest = Arc::new(guest);
            }
            if vm.parts.iter().map(|p| p.nodes).eq(nodes.iter().copied()) {
                continue;
            }
            vm.parts.iter_mut().zip(nodes).for_each(|(p, of)| p.nodes = of);
            self.planner.remove(id);
            self.adopt(id, &found.name, &before, say);
        }
    }

    /// What the parts did since the last round.
    fn loads(&mut self, live: &Live, published: &Published, wall: u64) -> Vec<Load> {
        let mut times: BTreeMap<ClientId, (u64, u64)> = BTreeMap::new();
        let (now, mut system) = (monotonic_ns(), 0);
        for i in 1..live.accounts().worlds_len() {
            let Some(w) = live.accounts().world(i, now) else { continue };
            let time = |state: u32| w.time_ns[state as usize];
            // What a limit holds back wants no CPU.
            let parked = if w.parked_ns == 0 { 0 } else { now.saturating_sub(w.parked_ns) };
            let ready = time(STATE_READY).saturating_sub(w.limited_ns + parked);
            let wanted = time(STATE_RUN) + ready + time(STATE_COSTOP);
            if w.vm == VM_SYSTEM {
                system += wanted;
            }
            let Some(vm) = self.vms.get(&w.vm) else { continue };
            let of = vm.parts.iter().find(|p| p.vcpus.contains(&w.index));
            let Some(part) = of.filter(|_| w.kind != KIND_HELPER) else { continue };
            let sum = times.entry(part.id).or_default();
            (sum.0, sum.1) = (sum.0 + wanted, sum.1 + time(STATE_RUN));
        }
        let rate = |ns: u64| (u128::from(ns) * 1000 / u128::from(wall.max(1))) as u64;
        let system = rate(system.saturating_sub(self.system_ns.replace(system).unwrap_or(system)));
        let samples = SAMPLES / self.vms.values().map(|v| v.parts.len()).sum::<usize>().max(1);
        let samples = samples.clamp(SAMPLES_OF_PART.0, SAMPLES_OF_PART.1);
        let parts = self.vms.values().flat_map(|vm| vm.parts.iter().map(move |p| (vm, p)));
        let mut memory: Vec<Vec<u64>> =
            parts.map(|(vm, p)| self.memory_of(vm, p, samples)).rev().collect();
        let (mut loads, mut wanted) = (vec![], BTreeMap::new());
        for part in self.vms.values_mut().flat_map(|vm| &mut vm.parts) {
            let all = times.get(&part.id).copied().or(part.seen).unwrap_or_default();
            let (wants, used) = match part.seen.replace(all) {
                Some(seen) => {
                    (rate(all.0.saturating_sub(seen.0)), rate(all.1.saturating_sub(seen.1)))
                }
                // As the planner takes it to be: all its vCPUs burn.
                None => [1000 * part.tids.len() as u64; 2].into(),
            };
            *wanted.entry(part.id.vm).or_insert(0) += wants;
            part.memory = memory.pop().unwrap_or_default();
            let memory = part.memory.clone();
            loads.push(Load {
                id: part.id,
                wanted: wants,
                used,
                entitled: 0,
                memory,
                talks: vec![],
            });
        }
        wanted.insert(VM_SYSTEM, system);
        let ids = published.ids();
        let demands: Vec<u64> = ids.iter().map(|id| wanted.get(id).copied().unwrap_or(0)).collect();
        let tree = published.tree();
        if tree.leaves().len() == demands.len() {
            let division = tree.divide(1000, &demands).leaves;
            let entitled: BTreeMap<u32, u64> = ids.into_iter().zip(division).collect();
            for load in &mut loads {
                let all = entitled.get(&load.id.vm).copied().unwrap_or(0);
                load.entitled = all * load.wanted / wanted[&load.id.vm].max(1);
            }
        }
        loads
    }
}

fn worlds(live: &Live) -> impl Iterator<Item = World> + '_ {
    let accounts = live.accounts();
    (1..accounts.worlds_len()).filter_map(|i| accounts.settled(i)).filter(|w| w.vm != 0)
}

/// The host's nodes by the scheduler's numbers, which are those of its pCPUs' places; then those
/// without pCPUs.
fn nodes(topology: &Topology, facts: &[NodeFacts]) -> Vec<HostNode> {
    let places = || topology.online().iter().map(|id| (id, topology.place(id)));
    let with_pcpus = topology.places().iter().map(|p| p.node + 1).max().unwrap_or(0);
    let bytes = |f: &NodeFacts| f.memory_kib.unwrap_or(0) * 1024;
    let one = |node: u32| {
        let pcpus: PcpuSet = places().filter(|(_, p)| p.node == node).map(|(id, _)| id).collect();
        let cores: BTreeSet<u32> =
            places().filter(|(_, p)| p.node == node).map(|(_, p)| p.core).collect();
        let fact = facts.iter().find(|f| !f.pcpus.and(&pcpus).is_empty());
        HostNode {
            kernel: fact.map_or(node, |f| f.id),
            cores: cores.len() as u32,
            memory: fact.map_or(0, bytes),
            pcpus,
        }
    };
    let mut out: Vec<HostNode> = (0..with_pcpus).map(one).collect();
    let known: BTreeSet<u32> = out.iter().map(|n| n.kernel).collect();
    out.extend(facts.iter().filter(|f| !known.contains(&f.id)).map(|f| HostNode {
        kernel: f.id,
        pcpus: PcpuSet::empty(),
        cores: 0,
        memory: bytes(f),
    }));
    out
}

#[cfg(test)]
mod tests;
