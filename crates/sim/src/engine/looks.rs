//! Hands out the accounts of a run while it goes on, as esxtop's counters; the run does not notice,
//! and costs nothing more where there is no look.

use super::Engine;
use crate::clock::Fixed;
use accounting::Ledger;
use contract::Scheduler;
use esxtop::{
    CoreCounters, Counters, Gauges, Gid, GroupCounters, GroupKind, HostMemory, NodeMemory,
    PcpuCounters, Role, Totals, VmMemory, Wid, WorldCounters,
};
use settings::Run;
use std::collections::BTreeMap;
use std::fmt;
use topology::Topology;
use units::{PcpuId, Span};
use views::NumaClient;

/// What is done at a look. It says when to look next, or that the run may end now.
pub type OnLook = Box<dyn FnMut(Counters) -> Option<Span> + Send>;

/// Simulated time 0 by the wall clock, in s since 1970 UTC: 2000-01-01. A run has no clock of its
/// own, and is the same every day.
pub const EPOCH_UNIX_S: i64 = 946_684_800;

/// Ids of VMs and worlds begin here, apart from each other and from the host's own. Pools are
/// in between.
const GIDS: (u64, u64) = (10, 2_000);
const WIDS: u64 = 10_000;

const _: () = assert!(
    GIDS.0 + (units::caps::POOLS_MAX as u64) < GIDS.1
        && GIDS.1 + (units::caps::VMS_MAX as u64) < WIDS
);

/// The looks at a run.
pub(crate) struct Looks {
    interval: Span,
    on_look: OnLook,
    ledger: Ledger,
    topology: Topology,
    /// Speed of a pCPU in MHz, as reservations and limits count it.
    mhz: u32,
}

impl fmt::Debug for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl Looks {
    pub(crate) fn new(run: &Run, interval: Span, on_look: OnLook) -> Looks {
        let (topology, mhz) = (run.topology.clone(), run.spec.host.mhz);
        Looks { interval, on_look, ledger: Ledger::default(), topology, mhz }
    }
}

fn gid_of_pool(pool: usize) -> Gid {
    if pool == 0 { Gid::HOST } else { Gid(GIDS.0 + pool as u64) }
}

fn gid_of_vm(vm: u32) -> Gid {
    if vm == 0 { Gid::SYSTEM } else { Gid(GIDS.1 + u64::from(vm)) }
}

impl<P: Scheduler> Engine<P> {
    /// Shows everything as it is now, if it is to be seen.
    pub(super) fn look(&mut self) {
        let Some(mut looks) = self.looks.take() else { return };
        self.update();
        let mut counters = self.counters(&looks);
        let past = (0..self.cast.vms().len() as u32)
            .map(|vm| (gid_of_vm(vm), self.books.truth().past(vm).totals()))
            .collect();
        looks.ledger.settle(&mut counters, &past);
        match (looks.on_look)(counters) {
            Some(next) => {
                looks.interval = Span::from_ns(next.ns().max(1));
                self.clock.arm(Fixed::Look, self.kernel.now() + looks.interval.ns());
                self.looks = Some(looks);
            }
            None => self.clock.end_at(self.kernel.now()),
        }
    }

    /// The books are up to date, the runs under way included.
    pub(super) fn update(&mut self) {
        let there = self.cast.worlds().filter(|w| self.kernel.is_there(*w));
        self.books.update(self.kernel.now(), &self.policy, there);
    }

    fn counters(&self, looks: &Looks) -> Counters {
        let now = self.kernel.now();
        let places = looks.topology.places();
        let smt = places.iter().map(|p| p.thread + 1).max().unwrap_or(1);
        let core = |p: u32| (smt > 1).then(|| self.books.truth().core_ns(now, p));
        let pcpu = |p: u32| {
            // What real-time tasks take is in use too.
            let times = self.books.truth().pcpu(now, p);
            let busy = times.busy_ns + times.realtime_ns;
            PcpuCounters {
                id: PcpuId(p as u16),
                core: places[p as usize].core,
                used_ns: accounting::used_of_pcpu(busy, smt, core(p)),
                busy_ns: Some(busy),
                idle_ns: None,
            }
        };
        let all = 0..self.kernel.pcpus();
        let cores = all.filter(|p| smt > 1 && self.books.truth().core_of(*p) == *p);
        let worlds = self.cast.worlds().filter(|w| self.kernel.is_there(*w));
        Counters {
            at_ns: now,
            unix_seconds: EPOCH_UNIX_S + (now / 1_000_000_000) as i64,
            pcpus: (0..self.kernel.pcpus()).map(pcpu).collect(),
            cores: cores
                .map(|p| CoreCounters {
                    id: places[p as usize].core,
                    busy_ns: core(p).map(|c| c[0]),
                })
                .collect(),
            groups: self.groups(looks.mhz),
            worlds: worlds.map(|w| self.world_counters(w)).collect(),
            memory: self.host_memory(),
        }
    }

    /// Memory of nodes and VMs, where it is not equally near from everywhere.
    fn host_memory(&self) -> HostMemory {
        let memory = self.hardware.as_ref().and_then(|h| h.memory());
        let (Some(numa), Some(memory)) = (&self.numa, memory) else { return HostMemory::default() };
        let node =
            |(id, bytes): (u32, &u64)| NodeMemory { id, bytes: *bytes, free: memory.free(id) };
        let there = |vm: &u32| *vm != 0 && !numa.parts[*vm as usize].is_empty();
        let vm = |vm: u32| (gid_of_vm(vm), self.vm_memory(vm));
        let vms = (0..self.cast.vms().len() as u32).filter(there);
        HostMemory {
            nodes: (0..).zip(&memory.nodes().sizes).map(node).collect(),
            vms: vms.map(vm).collect(),
        }
    }

    /// Memory of a VM, where it is not equally near from everywhere.
    pub(super) fn vm_memory(&self, vm: u32) -> VmMemory {
        let clients = self.numa_result(vm);
        let size = clients.iter().flat_map(|c| &c.bytes).sum();
        let migrations = clients.iter().map(NumaClient::migrations).sum();
        let parts = clients.iter().map(|c| (c.home, &c.bytes[..]));
        VmMemory::of(size, migrations, parts)
    }

    fn world_counters(&self, world: u32) -> (Wid, WorldCounters) {
        let spec = self.cast.spec(world);
        let role = if self.cast.is_vcpu(world) {
            Role::Vcpu(spec.index)
        } else {
            Role::Task(spec.name.clone())
        };
        let totals = self.books.truth().spent(self.kernel.now(), world).totals();
        (
            Wid(WIDS + u64::from(world)),
            WorldCounters {
                gid: gid_of_vm(self.cast.vm_of(world)),
                role,
                totals,
                alloc: None,
                gauges: Gauges::default(),
            },
        )
    }

    fn groups(&self, mhz: u32) -> BTreeMap<Gid, GroupCounters> {
        let group = |name: &str, kind, parent| GroupCounters {
            name: name.to_owned(),
            kind,
            parent,
            own: Totals::default(),
            nwld: None,
            alloc: None,
            gauges: Gauges::default(),
        };
        let mut out = BTreeMap::new();
        for (i, pool) in self.planner.pools().iter().enumerate() {
            let (kind, parent, name) = match i {
                0 => (GroupKind::Host, None, "host"),
                _ => (GroupKind::Pool, Some(gid_of_pool(pool.parent)), pool.path.as_str()),
            };
            let alloc = (i > 0)
                .then(|| accounting::alloc(pool.shares, None, pool.reservation, pool.limit, mhz));
            out.insert(gid_of_pool(i), GroupCounters { alloc, ..group(name, kind, parent) });
        }
        let (tree, on) = self.planner.tree(&self.cast, false);
        let worst = tree.worst_case().leaves;
        for (leaf, vm) in on.into_iter().enumerate() {
            let of = self.cast.vm(vm);
            let r = &of.resources;
            let kind = if vm == 0 { GroupKind::System } else { GroupKind::Vm };
            let alloc = (vm != 0)
                .then(|| accounting::alloc(r.shares, Some(of.vcpus), r.reservation, r.limit, mhz));
            let demand = self.policy.demand(vm).unwrap_or(0);
            let gauges = accounting::gauges(demand, worst.get(leaf).copied(), mhz);
            let parent = Some(gid_of_pool(of.pool));
            out.insert(
                gid_of_vm(vm),
                GroupCounters { alloc, gauges, ..group(&of.name, kind, parent) },
            );
        }
        out
    }
}
