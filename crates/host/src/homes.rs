//! Home nodes of this host's VMs: tells the planner (crates/numa) what they did, puts their homes
//! into force in the scheduler, and has their memory follow. It decides nothing itself.
//!
//! *Law*: threads of a VM that are no vCPUs have the homes of all its parts. A home that the
//! scheduler has dropped, because a thread could run on no pCPU of it, is given again with the
//! next scan. Linux's own NUMA balancing may run beside it: it brings pages to where threads run,
//! which is their home.

mod guest;
mod pages;

use crate::{
    Live,
    discover::{self, FoundVm, Roots},
    publish::Published,
    slots::Slots,
    view::monotonic_ns,
};
use guest::Guest;
use numa::{Client, ClientId, Decision, Knobs, Load, Node, Order, Planner};
use pages::Pages;
use sched_core::{KIND_HELPER, STATE_COSTOP, STATE_READY, STATE_RUN, WORLD_RESTRICTED, World};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};
use topology::{NodeFacts, Topology};
use units::PcpuSet;

/// Of the time that passes, the part in which pages are moved at most, in percent: the daemon has
/// other work, and a kernel that takes long is busy.
const MOVING_PERCENT: u64 = 25;
/// Pages of all VMs that a round looks at.
const SAMPLES: usize = 65_536;
/// Pages of a part that a round looks at, at least and at most: 64 tell its parts in the nodes to
/// within 6 % (one sigma), 2,048 to within 1 %.
const SAMPLES_OF_PART: (usize, usize) = (64, 2_048);

/// Rounds between two looks at where guests' memory is mapped: hot-plugged memory is seen by then.
const LOOK_AGAIN: u64 = 8;

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
    vcpus: Range<u32>,
    /// Bytes of the guest's memory, from its first on.
    memory: Range<u64>,
    /// What its worlds had wanted and had at the last round, in ns.
    seen: (u64, u64),
}

/// A VM that has homes.
struct Homed {
    pid: i32,
    started: u64,
    vcpus: u32,
    /// Nodes that its affinity leaves it.
    nodes: u64,
    guest: Guest,
    parts: Vec<Part>,
}

/// Homes of this host's VMs.
pub(crate) struct Homes {
    /// By the scheduler's numbers; those without pCPUs come last.
    nodes: Vec<HostNode>,
    planner: Planner,
    vms: BTreeMap<u32, Homed>,
    pages: Pages,
    /// What is to follow until the next round.
    orders: Vec<Order>,
    rounds: u64,
    round_ns: u64,
    step_ns: u64,
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
            pages: Pages::default(),
            orders: vec![],
            rounds: 0,
            round_ns: monotonic_ns(),
            step_ns: 0,
        })
    }

    /// pCPUs where a world may run by its home; `None`: all.
    pub(crate) fn pcpus(&self, world: &World) -> Option<PcpuSet> {
        let at = (0..).zip(&self.nodes).filter(|(node, _)| world.home >> node & 1 != 0);
        let set = at.map(|(_, n)| n.pcpus.clone()).reduce(|a, b| a.or(&b));
        set.filter(|_| world.home != u64::MAX)
    }

    /// Gives the VMs that there are now their homes, and the scheduler those that it lacks.
    pub(crate) fn seat(&mut self, live: &Live, slots: &Slots, roots: &Roots, say: &dyn Fn(&str)) {
        let now = monotonic_ns();
        let found: BTreeMap<u32, &FoundVm> =
            slots.found().filter_map(|vm| Some((slots.of(vm.pid)?, vm))).collect();
        let stays = |id: &u32, vm: &Homed| {
            found
                .get(id)
                .is_some_and(|f| (f.pid, f.started, f.vcpus()) == (vm.pid, vm.started, vm.vcpus))
        };
        let gone: Vec<u32> =
            self.vms.iter().filter(|(id, vm)| !stays(id, vm)).map(|(id, _)| *id).collect();
        for id in gone {
            self.vms.remove(&id);
            self.planner.remove(id);
        }
        for (id, vm) in found {
            if self.vms.contains_key(&id) || vm.vcpus() == 0 {
                continue;
            }
            let nodes = self.allowed(vm, roots);
            let guest = Guest::read(roots, vm.pid);
            if let Some(guest) = guest {
                self.power_on(now, id, vm, nodes, guest, say);
            }
        }
        self.put(live);
    }

    /// Nodes where each vCPU of a VM may run; 0: all.
    fn allowed(&self, vm: &FoundVm, roots: &Roots) -> u64 {
        let of = |tid: i32| {
            let set = discover::allowed(roots, vm.pid, tid)?;
            let bit =
                |(node, n): (u32, &HostNode)| u64::from(!n.pcpus.and(&set).is_empty()) << node;
            Some((0..).zip(&self.nodes).map(bit).sum::<u64>())
        };
        let vcpus = vm.threads.iter().filter(|t| t.vcpu.is_some());
        vcpus.filter_map(|t| of(t.tid)).fold(u64::MAX, |a, b| a & b)
    }

    fn power_on(
        &mut self,
        now: u64,
        id: u32,
        vm: &FoundVm,
        nodes: u64,
        guest: Guest,
        say: &dyn Fn(&str),
    ) {
        let vcpus = vm.vcpus();
        let cores = self.nodes.iter().map(|n| n.cores).filter(|c| *c > 0);
        let most = cores.min().unwrap_or(1);
        let (all, mut first) = (guest.bytes(), 0);
        let below = |vcpu: u32| {
            (u128::from(all) * u128::from(vcpu) / u128::from(vcpus)) as u64 / pages::SIZE
                * pages::SIZE
        };
        let parts: Vec<Part> = (0..)
            .zip(vnuma::balanced(vcpus, most))
            .map(|(part, size)| {
                let of = first..first + size;
                first += size;
                let memory = below(of.start)..below(of.end);
                Part { id: ClientId { vm: id, part }, vcpus: of, memory, seen: (0, 0) }
            })
            .collect();
        let client = |p: &Part| Client {
            id: p.id,
            vcpus: p.vcpus.end - p.vcpus.start,
            memory: p.memory.end - p.memory.start,
            nodes,
            siblings_most: most,
        };
        let placed = self.planner.add(now, &parts.iter().map(client).collect::<Vec<_>>());
        placed.iter().for_each(|d| self.say(&vm.name, d, say));
        let of = Homed { pid: vm.pid, started: vm.started, vcpus, nodes, guest, parts };
        self.vms.insert(id, of);
    }

    fn say(&self, vm: &str, d: &Decision, say: &dyn Fn(&str)) {
        say(&format!("VM {vm}, part {}: {d}", d.client.part));
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
            if home != 0 && home != w.home {
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
        self.step(now);
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
        self.renew(live, slots, roots);
        let loads = self.loads(live, published, wall);
        let decisions = self.planner.round(now, &loads);
        for d in &decisions {
            let found = slots.found().find(|f| slots.of(f.pid) == Some(d.client.vm));
            self.say(found.map_or("?", |f| &f.name), d, say);
        }
        self.put(live);
        self.orders = self.planner.memory_orders();
        self.step_ns = now;
    }

    /// VMs whose affinity or memory is another are powered on anew.
    fn renew(&mut self, live: &Live, slots: &Slots, roots: &Roots) {
        let restricted: BTreeSet<u32> =
            worlds(live).filter(|w| w.flags & WORLD_RESTRICTED != 0).map(|w| w.vm).collect();
        let mut changed = vec![];
        for found in slots.found() {
            let Some(id) = slots.of(found.pid) else { continue };
            let Some(vm) = self.vms.get(&id) else { continue };
            let nodes =
                if restricted.contains(&id) { self.allowed(found, roots) } else { u64::MAX };
            let all = self.nodes.iter().enumerate().map(|(n, _)| 1 << n).sum::<u64>();
            let looks = self.rounds % LOOK_AGAIN == 0;
            let guest = looks.then(|| Guest::read(roots, found.pid)).flatten();
            if nodes & all != vm.nodes & all || guest.is_some_and(|g| g != vm.guest) {
                changed.push(id);
            }
        }
        for id in changed {
            self.vms.remove(&id);
            self.planner.remove(id);
        }
    }

    /// What the parts did since the last round.
    fn loads(&mut self, live: &Live, published: &Published, wall: u64) -> Vec<Load> {
        let mut times: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        let now = monotonic_ns();
        for w in worlds(live).filter_map(|w| live.accounts().world(w.id as usize, now)) {
            let Some(vm) = self.vms.get(&w.vm) else { continue };
            let of = vm.parts.iter().find(|p| p.vcpus.contains(&w.index));
            let Some(part) = of.filter(|_| w.kind != KIND_HELPER) else { continue };
            let time = |state: u32| w.time_ns[state as usize];
            let sum = times.entry((w.vm, part.id.part)).or_default();
            sum.0 += time(STATE_RUN) + time(STATE_READY) + time(STATE_COSTOP);
            sum.1 += time(STATE_RUN);
        }
        let rate = |ns: u64| (u128::from(ns) * 1000 / u128::from(wall.max(1))) as u64;
        let samples = SAMPLES / self.vms.values().map(|v| v.parts.len()).sum::<usize>().max(1);
        let samples = samples.clamp(SAMPLES_OF_PART.0, SAMPLES_OF_PART.1);
        let (mut loads, mut wanted) = (vec![], BTreeMap::new());
        for (id, vm) in &mut self.vms {
            for part in &mut vm.parts {
                let all = times.get(&(*id, part.id.part)).copied().unwrap_or(part.seen);
                let seen = std::mem::replace(&mut part.seen, all);
                let wants = rate(all.0.saturating_sub(seen.0));
                *wanted.entry(*id).or_insert(0) += wants;
                loads.push(Load {
                    id: part.id,
                    wanted: wants,
                    used: rate(all.1.saturating_sub(seen.1)),
                    entitled: 0,
                    memory: self.pages.by_node(
                        vm.pid,
                        &vm.guest,
                        part.memory.clone(),
                        (samples, self.rounds),
                        &self.nodes.iter().map(|n| n.kernel).collect::<Vec<_>>(),
                    ),
                    talks: vec![],
                });
            }
        }
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

    /// Moves memory for a part of the time that has passed since the last step; each part of a VM
    /// has an equal part of it, and what one does not need is for the others.
    fn step(&mut self, now: u64) {
        let passed = now - std::mem::replace(&mut self.step_ns, now);
        let period = self.planner.knobs().period_ms * 1_000_000;
        let passed = passed.min(period);
        let until = now + passed * MOVING_PERCENT / 100;
        let orders = self.orders.iter().filter(|o| o.cold > 0);
        let mut left = orders.clone().count() as u64;
        for order in orders {
            let begin = monotonic_ns();
            let until = begin + until.saturating_sub(begin) / left;
            left -= 1;
            let Some(vm) = self.vms.get(&order.client.vm) else { continue };
            let Some(part) = vm.parts.get(order.client.part as usize) else { continue };
            let Some(node) = self.nodes.get(order.to as usize) else { continue };
            // Which pages are hot is not known: none is moved at once.
            let most = u128::from(order.cold) * u128::from(passed) / u128::from(period);
            let at = (order.client, part.memory.clone());
            self.pages.move_to(vm.pid, &vm.guest, at, (node.kernel, most as u64), until);
        }
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
mod tests {
    use super::*;
    use topology::Place;

    #[test]
    fn nodes_are_numbered_as_the_scheduler_does_and_keep_the_kernels_numbers() {
        // The first pCPU is in the kernel's node 1.
        let place = |core, node| Place { socket: 0, node, llc: node, core, thread: 0 };
        let places = vec![place(0, 0), place(1, 1), place(2, 0)];
        let topology = Topology::from_places(places).unwrap();
        let set = |text: &str| text.parse::<PcpuSet>().unwrap();
        let fact = |id, pcpus| NodeFacts {
            id,
            pcpus,
            memory_kib: Some(u64::from(id) + 1),
            distances: vec![],
        };
        let facts = [fact(0, set("1")), fact(1, set("0,2")), fact(4, PcpuSet::empty())];
        let node =
            |kernel, pcpus, cores, kib: u64| HostNode { kernel, pcpus, cores, memory: kib * 1024 };
        assert_eq!(
            nodes(&topology, &facts),
            [node(1, set("0,2"), 2, 2), node(0, set("1"), 1, 1), node(4, PcpuSet::empty(), 0, 5)]
        );
    }
}
