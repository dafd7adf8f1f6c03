//! Home nodes of this host's VMs: tells the planner (crates/numa) what they did, puts their homes
//! into force in the scheduler, and has their memory follow. It decides nothing itself.
//!
//! *Law*: threads of a VM that are no vCPUs have the homes of all its parts. A home that the
//! scheduler has dropped, because a thread could run on no pCPU of it, is given again with the
//! next scan. A VM that ran before it was found stays where its memory is.

mod file;
mod guest;
mod llcs;
mod loads;
mod moving;
mod pages;
mod places;
mod policy;
mod reach;

use crate::{
    Live,
    discover::{FoundVm, Roots},
    publish::Published,
    slots::Slots,
    view::monotonic_ns,
};
pub use file::{HOMES_FILE, HomesFile, VmHomes};
use guest::Guest;
use llcs::Chosen;
use moving::Moving;
use numa::{Client, ClientId, Decision, Knobs, Node, Planner, Reason};
use places::{Domain, HostNode, domains, nodes};
use policy::Bound;
use sched_core::{WORLD_RESTRICTED, World};
use settings::LlcChoice;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};
use topology::Topology;
use units::PcpuSet;

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

/// What the settings say of a VM's homes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asks {
    /// LLCs of its home that it is to use.
    pub(crate) llc: Option<LlcChoice>,
    /// Whether a node has room for as many vCPUs of it as it has threads, in place of cores.
    pub(crate) threads: bool,
}

/// A VM that has homes.
struct Homed {
    pid: i32,
    started: u64,
    vcpus: u32,
    /// Whether it is divided by threads.
    threads: bool,
    /// Scans in a row that have found another number.
    differs: u32,
    guest: Arc<Guest>,
    /// What binds its memory, by what was found last, and whether that is of these mappings.
    bound: Bound,
    known: bool,
    parts: Vec<Part>,
    /// Most of its vCPUs in one node.
    most: u32,
}

impl Homed {
    /// Whether its memory may be moved.
    fn is_free(&self) -> bool {
        self.known && self.bound.all.is_empty()
    }

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
    online: PcpuSet,
    /// LLCs in which worlds may have their homes, or nodes.
    domains: Vec<Domain>,
    chosen: Chosen,
    planner: Planner,
    vms: BTreeMap<u32, Homed>,
    moving: Moving,
    rounds: u64,
    round_ns: u64,
    /// What host tasks had wanted at the last round, in ns.
    system_ns: Option<u64>,
    /// Thousandths of its CPU time that a world is charged on a shared core.
    charge: u64,
}

impl Homes {
    /// Homes on this host by these thresholds; `None` where all memory is equally near, and all
    /// pCPUs share an LLC.
    pub(crate) fn new(topology: &Topology, roots: &Roots, knobs: Knobs) -> Option<Homes> {
        let facts = topology::nodes_from_sysfs(&roots.sys).ok()?;
        let nodes = nodes(topology, &facts);
        let domains = domains(topology);
        let chosen = Chosen::new(&domains, knobs);
        let of = |n: &HostNode| Node { cores: n.cores, memory: n.memory };
        let homes = Homes {
            planner: Planner::new(nodes.iter().map(of).collect(), knobs)
                .with_distances(&places::distances(&nodes, &facts)),
            nodes,
            online: topology.online().clone(),
            domains,
            chosen,
            vms: BTreeMap::new(),
            moving: Moving::new(roots).ok()?,
            rounds: 0,
            round_ns: monotonic_ns(),
            system_ns: None,
            charge: 1000,
        };
        let several = homes.nodes.iter().filter(|n| n.cores > 0).count() > 1;
        let has = several || homes.chosen.is_possible();
        (has && homes.nodes.len() <= 64).then_some(homes)
    }

    /// These pCPUs are on line from now on. VMs whose home has none left get another with the next
    /// round.
    pub(crate) fn set_pcpus(&mut self, online: &PcpuSet) {
        self.online = online.clone();
        for n in &mut self.nodes {
            n.cores = places::cores(&n.core_of, online);
            n.threads = n.pcpus.and(online).len() as u32;
        }
        let cores: Vec<u32> = self.nodes.iter().map(|n| n.cores).collect();
        // Parts that change their home by it are taken anew by `renew`, as by another affinity.
        self.planner.set_cores(monotonic_ns(), &cores);
        let of_llcs = self.domains.iter().map(|d| places::cores(&d.core_of, online)).collect();
        self.chosen.set_cores(of_llcs);
    }

    /// How cores are divided among worlds that share them.
    pub(crate) fn set_charge(&mut self, topology: &Topology, knobs: &sched_core::Knobs) {
        let threads = topology.places().iter().map(|p| p.thread + 1).max().unwrap_or(1);
        self.planner.set_core(threads, knobs.divided_charge());
        self.charge = knobs.charge();
    }

    /// Other thresholds count from now on.
    pub(crate) fn set_knobs(&mut self, knobs: Knobs) {
        self.planner.set_knobs(knobs);
        self.chosen.set_knobs(knobs);
    }

    /// VMs run anywhere again. Called with each scan while there are no homes, for a world that is
    /// being bound is to be asked again.
    pub(crate) fn none(live: &Live) {
        if live.accounts().host().homes == 0 {
            return;
        }
        for w in worlds(live).filter(|w| w.home != HOME_ANY) {
            let _ = live.home(w.pid as i32, 0); // one that has ended is no error
        }
    }

    /// Nothing is known of homes any more.
    pub(crate) fn forget_file() {
        file::remove();
    }

    /// Time to the next round.
    pub(crate) fn due_in(&self) -> Duration {
        let period = self.planner.knobs().period_ms * 1_000_000;
        Duration::from_nanos((self.round_ns + period).saturating_sub(monotonic_ns()))
    }

    /// Gives the VMs that there are now their homes, and the scheduler those that it lacks.
    /// `asks`: what the settings say of a VM.
    pub(crate) fn seat(
        &mut self,
        live: &Live,
        slots: &Slots,
        roots: &Roots,
        asks: &dyn Fn(&FoundVm) -> Asks,
        say: &dyn Fn(&str),
    ) {
        let found: BTreeMap<u32, &FoundVm> =
            slots.found().filter_map(|vm| Some((slots.of(vm.pid)?, vm))).collect();
        for (id, vm) in &mut self.vms {
            let same = found.get(id).filter(|f| (f.pid, f.started) == (vm.pid, vm.started));
            vm.differs = match same {
                Some(f) if asks(f).threads != vm.threads => SURE,
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
            self.chosen.remove(id);
        }
        for (id, vm) in found {
            let asks = asks(vm);
            self.chosen.asks(id, asks.llc);
            if self.vms.contains_key(&id) || vm.vcpus() == 0 {
                continue;
            }
            if let Some(guest) = Guest::read(roots, vm.pid) {
                self.take(id, vm, roots, guest, asks.threads);
                self.adopt(id, &vm.name, &[], say);
            }
        }
        self.choose(roots);
        self.say_llcs(slots, say);
        self.put(live);
    }

    /// Takes down what binds the memory of VMs, and prints it.
    fn bind(&mut self, slots: &Slots, say: &dyn Fn(&str)) {
        for (process, guest, bound) in self.moving.bound() {
            let vm = self.vms.values_mut().find(|vm| (vm.pid, vm.started) == process);
            let Some(vm) = vm.filter(|vm| Arc::ptr_eq(&vm.guest, &guest)) else { continue };
            let nodes = &bound.all;
            if !nodes.is_empty() && bound != vm.bound {
                let found = slots.found().find(|f| f.pid == process.0);
                say(&format!(
                    "VM {}: its memory is bound to NUMA nodes {nodes} (numatune, numactl or \
                        QEMU's host-nodes): it stays there",
                    found.map_or("?", |f| &f.name)
                ));
            }
            (vm.bound, vm.known) = (bound, true);
        }
    }

    /// Divides a VM into parts.
    fn take(&mut self, id: u32, vm: &FoundVm, roots: &Roots, guest: Guest, by_threads: bool) {
        let mut threads: Vec<(u32, i32)> =
            vm.threads.iter().filter_map(|t| Some((t.vcpu?, t.tid))).collect();
        threads.sort_unstable();
        let sizes = vnuma::balanced(threads.len() as u32, self.most(by_threads));
        let (last, mut first) = (sizes.len() - 1, 0);
        let mut parts = vec![];
        for (part, size) in sizes.into_iter().enumerate() {
            let (own, more) = threads.split_at(size as usize);
            let end = more.first().filter(|_| part < last).map_or(u32::MAX, |next| next.0);
            let tids: Vec<i32> = own.iter().map(|t| t.1).collect();
            parts.push(Part {
                id: ClientId { vm: id, part: part as u32 },
                vcpus: std::mem::replace(&mut first, end)..end,
                nodes: 0,
                tids,
                seen: None,
                memory: vec![],
                changes: BTreeMap::new(),
                moved: 0,
            });
            threads = more.to_vec();
        }
        let (pid, started, vcpus) = (vm.pid, vm.started, vm.vcpus());
        let reached = self.reached(roots, pid, &parts, by_threads);
        parts.iter_mut().zip(&reached.nodes).for_each(|(p, nodes)| p.nodes = *nodes);
        let most = reached.most;
        let guest = Arc::new(guest);
        self.moving.ask((pid, started), &guest);
        let (bound, known, differs) = (Bound::none(), false, 0);
        let threads = by_threads;
        let vm = Homed { pid, started, vcpus, threads, differs, guest, bound, known, parts, most };
        self.vms.insert(id, vm);
    }

    /// Has the planner take a VM's parts: each stays in its node of `before`, or else where most of
    /// its memory is, if it may.
    fn adopt(&mut self, id: u32, name: &str, before: &[Option<u32>], say: &dyn Fn(&str)) {
        let Some(vm) = self.vms.get(&id) else { return };
        let most = vm.most;
        for part in &vm.parts {
            if let Some(held) = self.held(part) {
                say(&format!("VM {name}, part {}: {held}", part.id.part));
            }
        }
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
        if self.nodes.len() == 1 {
            let all = vm.memory(part);
            return vec![all.end - all.start];
        }
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
        self.bind(slots, say);
        self.renew(live, slots, roots, say);
        let loads = self.loads(live, published, wall);
        self.planner.set_taken(places::taken(&self.nodes, published.tree().taken()));
        let decisions = self.planner.round(now, &loads);
        self.choose(roots);
        self.chosen.round(now, &loads, &self.planner);
        self.say_llcs(slots, say);
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
        let all = self.all();
        for found in slots.found() {
            let Some(id) = slots.of(found.pid) else { continue };
            let Some(vm) = self.vms.get(&id) else { continue };
            let looks_at = restricted.contains(&id) || vm.parts.iter().any(|p| p.nodes != all);
            let may = self.may(roots, vm, looks_at);
            let before: Vec<Option<u32>> =
                vm.parts.iter().map(|p| self.planner.home(p.id)).collect();
            let looks = self.rounds % LOOK_AGAIN == 0;
            let guest = looks.then(|| Guest::read(roots, found.pid)).flatten();
            let Some(vm) = self.vms.get_mut(&id) else { continue };
            if let Some(guest) = guest.filter(|g| *g != *vm.guest) {
                (vm.guest, vm.known) = (Arc::new(guest), false);
            }
            if looks && !vm.known {
                self.moving.ask((vm.pid, vm.started), &vm.guest);
            }
            vm.most = may.most;
            if vm.parts.iter().map(|p| p.nodes).eq(may.nodes.iter().copied()) {
                continue;
            }
            vm.parts.iter_mut().zip(may.nodes).for_each(|(p, of)| p.nodes = of);
            self.planner.remove(id);
            self.adopt(id, &found.name, &before, say);
        }
    }
}

fn worlds(live: &Live) -> impl Iterator<Item = World> + '_ {
    let accounts = live.accounts();
    (1..accounts.worlds_len()).filter_map(|i| accounts.settled(i)).filter(|w| w.vm != 0)
}

#[cfg(test)]
mod tests;
