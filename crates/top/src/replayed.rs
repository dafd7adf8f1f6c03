//! A trace as esxtop's counters: states, pCPUs and counts summed up to a moment; it judges nothing.
//!
//! *Law*: a time is the sum of a world's stays in a state, up to the moment. A core is busy while
//! one of its threads is; a pCPU's used time is its busy time, less half of what both threads of
//! its core were busy together. *Limits*: %USED comes from the kernel, and a trace has states only:
//! it stays unknown, of worlds and groups. So do slices that ended without a change. Lost events
//! are missing from all sums.

use esxtop::{
    CoreCounters, Counters, Gauges, Gid, GroupCounters, GroupKind, HostMemory, PcpuCounters, Role,
    Totals, VmMemory, Wid, WorldCounters,
};
use std::collections::{BTreeMap, BTreeSet};
use trace::{Event, Kind, Now, Replay, Role as TraceRole, State};
use units::{PcpuId, VmId, WorldId};

/// Wall clock of a trace's first event: it tells none. 2000-01-01.
const EPOCH_UNIX_S: i64 = 946_684_800;
/// Ids of VMs, pools and worlds begin here.
const GIDS: u64 = 2_000;
const POOLS: u64 = 10;
const WIDS: u64 = 10_000;

/// What is summed up of a world.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    ns: [u64; 6],
    limited_ns: u64,
    switches: u64,
    migrations: u64,
    wakeups: u64,
}

/// What is summed up of a pCPU.
#[derive(Clone, Copy, Debug, Default)]
struct Pcpu {
    busy_ns: u64,
    shared_ns: u64,
    core: usize,
    busy: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Core {
    busy_ns: u64,
    threads: u32,
}

/// The host so far.
#[derive(Clone)]
pub(crate) struct Host {
    replay: Replay,
    begin: u64,
    at: u64,
    worlds: BTreeMap<WorldId, Sums>,
    pcpus: Vec<Pcpu>,
    cores: Vec<Core>,
    pools: BTreeMap<String, Gid>,
    vms: BTreeMap<VmId, (String, String)>,
    memory: BTreeMap<VmId, VmMemory>,
}

impl Host {
    pub(crate) fn new(begin: u64) -> Host {
        Host {
            replay: Replay::new(),
            begin,
            at: begin,
            worlds: BTreeMap::new(),
            pcpus: vec![],
            cores: vec![],
            pools: BTreeMap::new(),
            vms: BTreeMap::new(),
            memory: BTreeMap::new(),
        }
    }

    /// Takes an event: what lasted until then is summed up first.
    pub(crate) fn take(&mut self, event: &Event) {
        if !event.kind.is_name() {
            self.advance(event.ns);
        }
        match &event.kind {
            Kind::Wake { world, .. } => self.worlds.entry(*world).or_default().wakeups += 1,
            Kind::Migrate { world, .. } => self.worlds.entry(*world).or_default().migrations += 1,
            Kind::Vm { vm, name, pool } => {
                self.vms.insert(*vm, (name.clone(), pool.clone()));
                self.pool(pool);
            }
            Kind::Memory { vm, bytes, homes, places, migrations } => {
                let homes = (0..64).filter(|node| homes >> node & 1 != 0).collect();
                let (bytes, places, migrations) = (*bytes, *places, *migrations);
                self.memory.insert(*vm, VmMemory { bytes, homes, places, migrations });
            }
            _ => {}
        }
        let ended = self.replay.step(event);
        for stay in &ended.stays {
            let sums = self.worlds.entry(stay.world).or_default();
            sums.ns[stay.was.state.code() as usize % 6] +=
                stay.to_ns.saturating_sub(stay.was.since_ns);
            sums.limited_ns += stay.held.iter().map(|(a, b)| b.saturating_sub(*a)).sum::<u64>();
        }
        if let Kind::State { world, to: State::Run, .. } = &event.kind {
            // A repeated state is no switch.
            let begun = self
                .replay
                .world(*world)
                .is_some_and(|w| w.since_ns == self.replay.ns() && w.begun);
            self.worlds.entry(*world).or_default().switches += u64::from(begun);
        }
        self.pcpus_now();
        if let (Kind::Pcpu { .. }, Some(p)) = (&event.kind, event.pcpu) {
            self.place(usize::from(p.0));
        }
    }

    /// Ids of pools stay for the whole trace.
    fn pool(&mut self, path: &str) -> Gid {
        if path == "/" || path.is_empty() {
            return Gid::HOST;
        }
        let next = Gid(POOLS + self.pools.len() as u64);
        let gid = *self.pools.entry(path.to_owned()).or_insert(next);
        let above = path.rsplit_once('/').map_or("", |p| p.0).to_owned();
        self.pool(&above);
        gid
    }

    /// Sums up what pCPUs did until `ns`.
    pub(crate) fn advance(&mut self, ns: u64) {
        let passed = ns.saturating_sub(self.at);
        self.at = self.at.max(ns);
        if passed == 0 {
            return;
        }
        for core in self.cores.iter_mut().filter(|c| c.threads > 0) {
            core.busy_ns += passed;
        }
        for p in self.pcpus.iter_mut().filter(|p| p.busy) {
            p.busy_ns += passed;
            p.shared_ns += if self.cores[p.core].threads > 1 { passed } else { 0 };
        }
    }

    /// Takes over the core of each pCPU; a pCPU without one is a core of its own.
    fn place(&mut self, i: usize) {
        let place = self.replay.names().place(PcpuId(i as u16));
        let core = place.map_or(i, |p| usize::from(p.core));
        self.cores.resize(self.cores.len().max(core + 1), Core::default());
        let p = &mut self.pcpus[i];
        if p.busy {
            self.cores[p.core].threads -= 1;
            self.cores[core].threads += 1;
        }
        p.core = core;
    }

    /// Takes over which pCPUs are busy now.
    fn pcpus_now(&mut self) {
        let n = self.replay.pcpus().len();
        if self.pcpus.len() < n {
            self.pcpus.resize(n, Pcpu::default());
            (0..n).for_each(|i| self.place(i));
        }
        for (p, (now, _)) in self.pcpus.iter_mut().zip(self.replay.pcpus()) {
            let busy = matches!(now, Now::World(_) | Now::Other);
            if busy != p.busy {
                p.busy = busy;
                let threads = &mut self.cores[p.core].threads;
                *threads = if busy { *threads + 1 } else { threads.saturating_sub(1) };
            }
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let known = |id: usize| self.pcpus.iter().any(|p| p.core == id);
        let cores = self
            .cores
            .iter()
            .enumerate()
            .filter(|(id, _)| known(*id))
            .map(|(id, c)| CoreCounters { id: id as u32, busy_ns: Some(c.busy_ns) });
        let pcpu = |(i, p): (usize, &Pcpu)| PcpuCounters {
            id: PcpuId(i as u16),
            core: p.core as u32,
            used_ns: Some(p.busy_ns - p.shared_ns / 2),
            busy_ns: Some(p.busy_ns),
            idle_ns: None,
        };
        let since = self.at.saturating_sub(self.begin);
        let groups = self.groups();
        Counters {
            at_ns: self.at,
            unix_seconds: EPOCH_UNIX_S + (since / 1_000_000_000) as i64,
            pcpus: self.pcpus.iter().enumerate().map(pcpu).collect(),
            cores: cores.collect(),
            memory: self.host_memory(&groups),
            groups,
            worlds: self.replay.worlds().map(|(id, _)| self.world(id)).collect(),
        }
    }

    /// Memory of the VMs that are there; a trace says nothing of the nodes.
    fn host_memory(&self, groups: &BTreeMap<Gid, GroupCounters>) -> HostMemory {
        let of = self.memory.iter().map(|(vm, of)| (gid_of(*vm), of.clone()));
        HostMemory { nodes: vec![], vms: of.filter(|(gid, _)| groups.contains_key(gid)).collect() }
    }

    fn groups(&self) -> BTreeMap<Gid, GroupCounters> {
        let group = |name: &str, kind, parent| {
            let (own, nwld, alloc, gauges) = (Totals::default(), None, None, Gauges::default());
            GroupCounters { name: name.to_owned(), kind, parent, own, nwld, alloc, gauges }
        };
        let of = |path: &str| self.pools.get(path).copied().unwrap_or(Gid::HOST);
        let mut out = BTreeMap::from([
            (Gid::HOST, group("host", GroupKind::Host, None)),
            (Gid::SYSTEM, group("system", GroupKind::System, Some(Gid::HOST))),
        ]);
        for (path, gid) in &self.pools {
            let above = path.rsplit_once('/').map_or("", |p| p.0);
            out.insert(*gid, group(path, GroupKind::Pool, Some(of(above))));
        }
        // VMs that are not there now have no worlds.
        let there: BTreeSet<VmId> = self.replay.worlds().map(|(w, _)| self.vm_of(w)).collect();
        for (vm, (name, pool)) in self.vms.iter().filter(|(vm, _)| vm.0 != 0 && there.contains(vm))
        {
            out.insert(gid_of(*vm), group(name, GroupKind::Vm, Some(of(pool))));
        }
        // Worlds that are gone count in their group, so that its totals never go back.
        let mut own: BTreeMap<Gid, Sums> = [(Gid::SYSTEM, Sums::default())].into();
        // A world whose first state lasts counts as well.
        let now = self.replay.worlds().map(|(world, _)| world);
        let known: BTreeSet<WorldId> = now.chain(self.worlds.keys().copied()).collect();
        for world in known {
            own.entry(gid_of(self.vm_of(world))).or_default().add(&self.sums(world));
        }
        for (gid, sums) in own {
            out.entry(gid).and_modify(|g| g.own = sums.totals());
        }
        out
    }

    fn vm_of(&self, world: WorldId) -> VmId {
        self.replay.names().vm_of(world).map_or(VmId(0), |v| v.0)
    }

    /// What a world has had up to now.
    fn sums(&self, id: WorldId) -> Sums {
        let mut sums = self.worlds.get(&id).copied().unwrap_or_default();
        if let Some(now) = self.replay.world(id) {
            sums.ns[now.state.code() as usize % 6] += self.at.saturating_sub(now.since_ns);
            sums.limited_ns += now.held_since.map_or(0, |since| self.at.saturating_sub(since));
        }
        sums
    }

    fn world(&self, id: WorldId) -> (Wid, WorldCounters) {
        let names = self.replay.names();
        let (vm, role) = names.vm_of(id).unwrap_or((VmId(0), TraceRole::Host));
        let name = names.world(id);
        let number =
            || name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(id.0);
        let role = match role {
            TraceRole::Vcpu => Role::Vcpu(number()),
            TraceRole::Host => Role::Task(name.clone()),
            _ => Role::Helper(name.clone()),
        };
        let totals = self.sums(id).totals();
        (
            Wid(WIDS + u64::from(id.0)),
            WorldCounters { gid: gid_of(vm), role, totals, alloc: None, gauges: Gauges::default() },
        )
    }
}

fn gid_of(vm: VmId) -> Gid {
    if vm.0 == 0 { Gid::SYSTEM } else { Gid(GIDS + u64::from(vm.0)) }
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.ns.iter_mut().zip(other.ns).for_each(|(sum, ns)| *sum += ns);
        self.limited_ns += other.limited_ns;
        self.switches += other.switches;
        self.migrations += other.migrations;
        self.wakeups += other.wakeups;
    }

    fn totals(&self) -> Totals {
        let of = |s: State| self.ns[s.code() as usize];
        Totals {
            run_ns: Some(of(State::Run)),
            ready_ns: Some(of(State::Ready)),
            costop_ns: Some(of(State::Costop)),
            wait_ns: Some(of(State::Wait) + of(State::WaitIdle)),
            idle_ns: Some(of(State::WaitIdle)),
            limited_ns: Some(self.limited_ns),
            latency_ns: Some(
                (of(State::Ready) + of(State::Costop)).saturating_sub(self.limited_ns),
            ),
            switches: Some(self.switches),
            migrations: Some(self.migrations),
            wakeups: Some(self.wakeups),
            ..Totals::default()
        }
    }
}
