//! The NUMA clients of a run: their homes by the planner, where their memory is, what they did
//! since the last round. It calls no scheduler and knows no pCPU's state: `engine/numa` does.

mod llcs;
mod reach;
mod uses;

use crate::mutant::Mutant;
use ::numa::{
    ClientId, Decision, Knobs, Llcs, Load, Node, Order, Planner, Reason, Talks, VcpuLoads,
};
use check::{HomeSeen, HomeTerms};
use entitlement::Taken;
use hardware::{Memory, NodeMemory};
use settings::{Bytes, HardwareSpec, LlcChoice, NumaSpec, RunSpec, built_in_profiles};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use topology::Topology;
use units::{PcpuId, PcpuSet, Span};
use vnuma::Vcpus;

/// Steps of a period in which pages are moved.
pub(crate) const PAGE_STEPS: u64 = 20;

/// A client, or the whole of a VM that has no home.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) id: ClientId,
    pub(crate) worlds: Range<u32>,
    pub(crate) area: u32,
    /// Clients of one number are of one virtual node; all are where the guest knows of none, or
    /// where clients are made irrespective of them.
    virtual_node: u32,
    bytes: u64,
    hot: u64,
    /// pCPUs that its VM may use; none: all.
    allowed: Option<PcpuSet>,
    /// Whether affinity leaves it no node: it has no home.
    held: bool,
    /// Homes that it had, by reason; memory that followed.
    pub(crate) changes: BTreeMap<Reason, u64>,
    pub(crate) moved: u64,
    /// Of that since the last round, pages that are not hot.
    pub(crate) cold_moved: u64,
}

/// A VM that is powered on: its worlds, and pCPUs that its vCPUs may use together; none: all.
pub(crate) struct Seat {
    pub(crate) vm: u32,
    pub(crate) worlds: Range<u32>,
    pub(crate) allowed: Option<PcpuSet>,
}

/// What a world had wanted and had at the last round, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    wanted: u64,
    used: u64,
}

/// NUMA of a run.
#[derive(Debug)]
pub(crate) struct Numa {
    pub(crate) planner: Planner,
    /// LLCs of the nodes; none where there is nothing to choose.
    pub(crate) llcs: Option<Llcs>,
    managed: bool,
    mutant: Option<Mutant>,
    /// Bytes moved since the last round.
    pub(crate) moved: u64,
    pub(crate) period_ns: u64,
    /// pCPUs of each node, the core of each pCPU, and distances between nodes.
    pcpus: Vec<PcpuSet>,
    core_of: Vec<u32>,
    online: PcpuSet,
    distances: Vec<Vec<u64>>,
    /// Most vCPUs of a client, by its VM.
    most: Vec<u32>,
    /// By VM.
    pub(crate) parts: Vec<Vec<Part>>,
    /// What each VM has of memory: bytes, hot ones, accesses to these, accesses to others' memory;
    /// whether its guest knows its nodes.
    wants: Vec<Wants>,
    seen: Vec<Seen>,
    seen_ns: u64,
    /// Wake-ups between VMs since the last round: the scheduler's, where it counts them.
    pub(crate) talks: Talks,
    pub(crate) orders: Vec<Order>,
    /// Steps that are left of the present period.
    pub(crate) steps: u64,
    /// pCPUs and node of each domain in which a world may have its home.
    domains: Vec<(PcpuSet, u32)>,
    /// By world: its home, a bit for each domain; 0 for none.
    homes: Vec<u64>,
    /// What clients did in the last round, by vCPU.
    vcpu_loads: Vec<VcpuLoads>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Wants {
    bytes: u64,
    hot: u64,
    hot_permille: u64,
    shared_permille: u64,
    vnuma: bool,
    /// vCPUs of a virtual node; 0: by the host's nodes.
    virtual_node: u32,
    /// LLCs that it asks for.
    llc: Option<LlcChoice>,
    prefer_ht: bool,
}

fn knobs(spec: &NumaSpec, mutant: Option<Mutant>) -> Knobs {
    let knobs = Knobs::from(spec);
    match mutant {
        Some(Mutant::HomesThrash) => {
            Knobs { imbalance_percent: 0, improvement_percent: 0, thrash_percent: 100, ..knobs }
        }
        _ => knobs,
    }
}

/// What the oracle holds homes to.
pub(crate) fn terms(spec: &NumaSpec) -> HomeTerms {
    let knobs = knobs(spec, None);
    HomeTerms {
        thrash_percent: knobs.thrash_percent,
        contended_permille: knobs.contended_permille(),
        round_bytes: knobs.memory_rate * knobs.period_ms / 1000,
        slow_rounds: ::numa::SLOW_ROUNDS,
        ramp_rounds: ::numa::RAMP_ROUNDS,
    }
}

/// Memory of nodes of these sizes as the hardware has it.
fn node_memory(
    spec: &NumaSpec,
    hardware: &HardwareSpec,
    topology: &Topology,
    sizes: &[u64],
) -> NodeMemory {
    let nodes = sizes.len();
    let llcs = |node: usize| {
        let there = topology.places().iter().filter(|p| p.node as usize == node);
        there.map(|p| p.llc).collect::<BTreeSet<_>>().len() as u64
    };
    // As much as its LLCs take.
    let usual = |node| Bytes(hardware.bandwidth.0.saturating_mul(llcs(node).max(1)));
    let per_us = |b: Bytes| b.0 / 1_000_000;
    NodeMemory {
        sizes: sizes.to_vec(),
        distances: spec.rows(nodes, (hardware.from_node.ns(), hardware.from_memory.ns())),
        bandwidth: spec.bandwidths(nodes, usual).into_iter().map(per_us).collect(),
        link: per_us(spec.link),
    }
}

impl Numa {
    /// NUMA of a run of so many worlds, and the memory that its hardware has; none where memory is
    /// near everywhere.
    pub(crate) fn new(
        run: &RunSpec,
        topology: &Topology,
        worlds: usize,
        mutant: Option<Mutant>,
    ) -> Option<(Numa, Memory)> {
        let (spec, hardware) = (run.numa()?, run.hardware()?);
        let with_pcpus = topology.places().iter().map(|p| p.node as usize + 1).max().unwrap_or(1);
        let sizes = spec.sizes(with_pcpus);
        let nodes = sizes.len();
        let mut pcpus = vec![PcpuSet::empty(); nodes];
        let (mut cores, mut threads) = (vec![0; nodes], vec![0; nodes]);
        for (id, place) in (0..).zip(topology.places()) {
            let node = place.node as usize;
            pcpus[node].insert(PcpuId(id));
            threads[node] += 1;
            cores[node] += u32::from(place.thread == 0);
        }
        let least = |of: &[u32]| of.iter().filter(|n| **n > 0).min().copied().unwrap_or(1);
        let node = |(cores, memory): (&u32, &u64)| Node { cores: *cores, memory: *memory };
        let of = node_memory(spec, hardware, topology, &sizes);
        let none = &built_in_profiles()[0];
        let permille = |part: f64| (part * 1000.0).round() as u64;
        let wants = |vm: &settings::VmSpec| {
            let profile = vm.profile.as_deref().and_then(|name| run.profile(name)).unwrap_or(none);
            let bytes = vm.memory_bytes();
            Wants {
                bytes,
                hot: (bytes / 1000).saturating_mul(permille(profile.hot_memory)),
                hot_permille: permille(profile.hot_accesses),
                shared_permille: permille(profile.shared_accesses),
                vnuma: vm.has_vnuma(),
                virtual_node: vm.vnuma_node.unwrap_or(0),
                llc: vm.llc,
                prefer_ht: vm.prefer_ht,
            }
        };
        let most = |prefer_ht: bool| least(if prefer_ht { &threads } else { &cores });
        let numa = Numa {
            planner: Planner::new(
                cores.iter().zip(&sizes).map(node).collect(),
                knobs(spec, mutant),
            )
            .with_distances(&of.distances),
            llcs: llcs::of(topology, knobs(spec, mutant)).filter(|_| spec.on),
            managed: spec.on,
            mutant,
            moved: 0,
            period_ns: spec.period.ns(),
            pcpus,
            online: topology.online().clone(),
            core_of: topology.places().iter().map(|p| p.core).collect(),
            distances: of.distances.clone(),
            most: std::iter::once(1).chain(run.vms.iter().map(|v| most(v.prefer_ht))).collect(),
            parts: vec![vec![]; run.vms.len() + 1],
            wants: std::iter::once(Wants::default()).chain(run.vms.iter().map(wants)).collect(),
            seen: vec![Seen::default(); worlds],
            seen_ns: 0,
            talks: Talks::default(),
            orders: vec![],
            steps: 0,
            domains: llcs::domains(topology),
            homes: vec![0; worlds],
            vcpu_loads: vec![],
        };
        Some((numa, Memory::new(of, worlds)))
    }

    /// How cores are divided among worlds that share them.
    pub(crate) fn set_charge(&mut self, topology: &Topology, charge: u64) {
        let threads = topology.places().iter().map(|p| p.thread + 1).max().unwrap_or(1);
        self.planner.set_core(threads, charge);
    }

    /// Whether VMs have homes.
    pub(crate) fn is_managed(&self) -> bool {
        self.managed
    }

    /// These pCPUs are on line from now on: clients whose home has none left get others.
    pub(crate) fn set_online(&mut self, now: u64, online: &PcpuSet) -> Vec<Decision> {
        let cores_of = |of: &PcpuSet| {
            let there = of.and(online);
            let cores = there.iter().map(|p| self.core_of[usize::from(p.0)]);
            cores.collect::<BTreeSet<u32>>().len() as u32
        };
        let cores: Vec<u32> = self.pcpus.iter().map(cores_of).collect();
        let decisions = self.planner.set_cores(now, &cores);
        let of_llcs: Vec<u32> = self.domains.iter().map(|(set, _)| cores_of(set)).collect();
        let moved = self.llcs.as_mut().map_or(vec![], |llcs| llcs.set_cores(now, &of_llcs));
        self.online = online.clone();
        self.note(&decisions);
        self.note_llcs(&moved);
        decisions
    }

    /// So much of these pCPUs is taken that VMs cannot have.
    pub(crate) fn set_taken(&mut self, taken: &Taken) {
        let at = |p: &PcpuId| self.pcpus.iter().position(|of| of.contains(*p));
        let mut by_node = vec![0; self.pcpus.len()];
        for (p, rate) in taken {
            at(p).into_iter().for_each(|node| by_node[node] += rate.over(Span::from_ns(1_000)));
        }
        self.planner.set_taken(by_node);
    }

    /// Home of a world, a bit for each domain; 0 for none.
    pub(crate) fn home(&self, world: u32) -> u64 {
        self.homes[world as usize]
    }

    /// pCPUs of a world's home.
    pub(crate) fn pcpus(&self, world: u32) -> Option<PcpuSet> {
        let home = self.homes[world as usize];
        let at = (0..).zip(&self.domains).filter(|(domain, _)| home >> domain & 1 != 0);
        at.map(|(_, (set, _))| set.clone()).reduce(|a, b| a.or(&b))
    }

    /// A VM is powered on, the vCPUs of which may use `each`: its clients get homes and memory.
    pub(crate) fn start(
        &mut self,
        now: u64,
        on: &Seat,
        each: &[Option<PcpuSet>],
        memory: &mut Memory,
    ) -> Vec<Decision> {
        let (vm, worlds) = (on.vm, on.worlds.clone());
        let vcpus = worlds.end - worlds.start;
        let w = self.wants[vm as usize];
        let clients = if self.managed {
            uses::clients(vcpus, w, self.most[vm as usize])
        } else {
            vec![(0, Vcpus { first: 0, count: vcpus })]
        };
        let start = worlds.start;
        let part = |(part, (virtual_node, of_vm)): (u32, &(u32, Vcpus))| {
            let ids = of_vm.ids();
            // Borders by vCPUs: the sum is exact.
            let below = |all: u64, vcpu: u32| {
                (u128::from(all) * u128::from(vcpu) / u128::from(vcpus)) as u64
            };
            let of = |all: u64| below(all, ids.end) - below(all, ids.start);
            Part {
                id: ClientId { vm, part },
                worlds: start + ids.start..start + ids.end,
                area: memory.area(w.hot_permille),
                virtual_node: *virtual_node,
                bytes: of(w.bytes),
                hot: of(w.hot),
                allowed: on.allowed.clone(),
                held: false,
                changes: BTreeMap::new(),
                moved: 0,
                cold_moved: 0,
            }
        };
        let mut parts: Vec<Part> = (0..).zip(&clients).map(part).collect();
        let out = if self.managed { self.place(now, on, &mut parts, each) } else { vec![] };
        for p in &parts {
            self.allocate(p, memory);
            for world in p.worlds.clone() {
                memory.used_by(world, uses::areas(&parts, p, w));
            }
        }
        self.parts[vm as usize] = parts;
        self.note(&out);
        out
    }

    /// Pages of a client: at home, then in the nearest nodes; of one without a home in all alike.
    fn allocate(&self, p: &Part, memory: &mut Memory) {
        let nodes = self.pcpus.len() as u32;
        let from = |home: u32| {
            let mut order: Vec<u32> = (0..nodes).collect();
            order.sort_by_key(|n| (*n != home, self.distances[home as usize][*n as usize], *n));
            order
        };
        if let Some(home) = self.planner.home(p.id) {
            memory.allocate(p.area, p.bytes, p.hot, &from(home));
            return;
        }
        let with_pcpus: Vec<u32> =
            (0..nodes).filter(|n| !self.pcpus[*n as usize].is_empty()).collect();
        let n = with_pcpus.len() as u64;
        for (i, node) in (0..).zip(&with_pcpus) {
            let part = |all: u64| all / n + u64::from(i < all % n);
            memory.allocate(p.area, part(p.bytes), part(p.hot), &from(*node));
        }
    }

    /// A VM is powered off.
    pub(crate) fn stop(&mut self, vm: u32, memory: &mut Memory) {
        self.planner.remove(vm);
        self.llcs.iter_mut().for_each(|l| l.remove(vm));
        self.parts[vm as usize].iter().for_each(|p| memory.release(p.area));
    }

    /// Takes down the homes of these decisions.
    pub(crate) fn note(&mut self, decisions: &[Decision]) {
        let stays = self.mutant == Some(Mutant::HomesStay);
        for d in decisions.iter().filter(|d| !stays || d.reason == Reason::Placed) {
            let parts = &mut self.parts[d.client.vm as usize];
            let Some(part) = parts.get_mut(d.client.part as usize) else { continue };
            *part.changes.entry(d.reason).or_insert(0) += 1;
            let part = part.clone();
            self.seat(d.at_ns, &part);
            self.set_home(&part);
        }
    }

    /// A world of one VM has woken one of another.
    pub(crate) fn talk(&mut self, a: u32, b: u32) {
        self.talks.add(a, b, 1);
    }

    /// What clients did since the last round: `times` has what a world wanted and had in all, in
    /// ns, `entitled` what the VMs are entitled to by what they want, in thousandths of a pCPU.
    pub(crate) fn loads(
        &mut self,
        now: u64,
        memory: &Memory,
        mut times: impl FnMut(u32) -> (u64, u64),
        entitled: impl FnOnce(&BTreeMap<u32, u64>) -> BTreeMap<u32, u64>,
    ) -> Vec<Load> {
        let wall = (now - std::mem::replace(&mut self.seen_ns, now)).max(1);
        let rate = |ns: u64| (u128::from(ns) * 1000 / u128::from(wall)) as u64;
        self.vcpu_loads.clear();
        let mut loads = vec![];
        let mut wanted = BTreeMap::new();
        for part in self.parts.iter().flatten() {
            let (mut wants, mut uses) = (0, 0);
            let mut vcpus = vec![];
            for world in part.worlds.clone() {
                let (all, had) = times(world);
                let seen = &mut self.seen[world as usize];
                let own =
                    (rate(all.saturating_sub(seen.wanted)), rate(had.saturating_sub(seen.used)));
                (wants, uses) = (wants + own.0, uses + own.1);
                vcpus.push(own);
                *seen = Seen { wanted: all, used: had };
            }
            let home = self.planner.home(part.id);
            let own = home.map(|node| VcpuLoads { id: part.id, node, entitled: 0, vcpus });
            self.vcpu_loads.extend(own);
            *wanted.entry(part.id.vm).or_insert(0) += wants;
            loads.push(Load {
                id: part.id,
                wanted: wants,
                used: uses,
                entitled: 0,
                memory: memory.pages(part.area),
                talks: self.talks.of(part.id, wall),
            });
        }
        self.talks = Talks::default();
        let entitled = entitled(&wanted);
        for load in &mut loads {
            let all = entitled.get(&load.id.vm).copied().unwrap_or(load.wanted);
            load.entitled = all * load.wanted / wanted[&load.id.vm].max(1);
        }
        let of: BTreeMap<ClientId, u64> = loads.iter().map(|l| (l.id, l.entitled)).collect();
        self.vcpu_loads.iter_mut().for_each(|own| own.entitled = of[&own.id]);
        loads
    }

    /// What is to be moved of a client in one step.
    pub(crate) fn step(&self, order: &Order) -> (u64, u64) {
        match self.mutant {
            Some(Mutant::MemoryStays) => (0, 0),
            Some(Mutant::MemoryHurries) => (order.bytes, order.bytes),
            _ => (order.bytes.div_ceil(self.steps.max(1)), order.cold.div_ceil(self.steps.max(1))),
        }
    }

    /// The clients of each VM as the oracle sees them.
    pub(crate) fn seen(&self, memory: &Memory) -> Vec<(u32, Vec<HomeSeen>)> {
        let client = |p: &Part| {
            let domain = self.homes[p.worlds.start as usize].trailing_zeros();
            let of_planner = self.planner.home(p.id).unwrap_or(0);
            let home = self.domains.get(domain as usize).map_or(of_planner, |d| d.1);
            let pages = memory.pages(p.area);
            let bytes = pages.iter().sum();
            let local = pages.get(home as usize).copied().unwrap_or(0);
            // More clients than nodes have to share one.
            let may = |of: &&PcpuSet| {
                let of = of.and(&self.online);
                !p.allowed.as_ref().map_or(of.clone(), |a| a.and(&of)).is_empty()
            };
            let nodes = self.pcpus.iter().filter(may).count();
            let fits = self.parts[p.id.vm as usize].len() <= nodes;
            HomeSeen {
                part: p.id.part,
                vcpus: p.worlds.end - p.worlds.start,
                home,
                most: if fits { self.most[p.id.vm as usize] } else { u32::MAX },
                bytes,
                away: bytes - local,
                room: memory.free(home),
                cold_moved: p.cold_moved,
            }
        };
        let there = |p: &&Part| self.planner.home(p.id).is_some();
        let all = self.parts.iter().map(|of| of.iter().filter(there).map(client).collect());
        (0..).zip(all).filter(|(_, of): &(u32, Vec<_>)| !of.is_empty()).collect()
    }
}
