//! Samples this host for esxtop's numbers, by Tandem's accounts or the kernel's own; it reads only.

use crate::sample::wall;
use crate::view::monotonic_ns;
use crate::{
    Accounts, HomesFile, HostError, Names, VmHomes, VmName, discover::Roots,
    watcher_kernel::KernelWatcher,
};
use accounting::{Ledger, Services};
use esxtop::{
    Alloc, AllocUnits, CoreCounters, Counters, Gauges, Gid, GroupCounters, GroupKind, HostMemory,
    NodeMemory, PcpuCounters, Role, SharesLevel, Totals, Wid, WorldCounters,
};
use sched_core::{VM_SYSTEM, WORLD_SERVICE, is_vcpu};
use std::collections::BTreeMap;
use topology::{NodeFacts, Topology};
use units::PcpuId;

/// Process and thread ids are below this (PID_MAX_LIMIT); ids of pools begin here.
const PIDS: u64 = 1 << 22;

/// Looks at this host.
pub struct Watcher {
    ids: Ids,
    accounts: Whose,
}

enum Whose {
    Tandem(Ledger, Services),
    Kernel(Box<KernelWatcher>),
}

impl Watcher {
    /// Looks at the accounts of the scheduler that runs.
    #[must_use]
    pub fn of_tandem() -> Watcher {
        Watcher {
            ids: Ids::default(),
            accounts: Whose::Tandem(Ledger::default(), Services::default()),
        }
    }

    /// Looks at the kernel's own accounts, under any scheduler.
    #[must_use]
    pub fn of_kernel() -> Watcher {
        Watcher { ids: Ids::default(), accounts: Whose::Kernel(Box::default()) }
    }

    /// Everything now.
    ///
    /// # Errors
    /// `HostError` when there are no accounts to read.
    pub fn look(&mut self, topology: &Topology) -> Result<Counters, HostError> {
        self.ids.forget();
        match &mut self.accounts {
            // Opened each time: the daemon loads the scheduler again when pCPUs go on or off line.
            Whose::Tandem(ledger, services) => {
                of_tandem(&Accounts::open()?, topology, &mut self.ids, (ledger, services))
            }
            Whose::Kernel(kernel) => Ok(kernel.look(topology, &mut self.ids)),
        }
    }
}

/// Ids that stay: a process or thread id that is given again between two looks is another's.
#[derive(Default)]
pub(crate) struct Ids {
    born: BTreeMap<u64, Known>,
    pools: BTreeMap<String, u64>,
    round: u64,
}

/// The owner of a process or thread id.
struct Known {
    born: u64,
    /// How many had it before.
    before: u64,
    /// Last look at which it was there.
    round: u64,
}

impl Ids {
    fn of(&mut self, id: u64, born: u64) -> u64 {
        let round = self.round;
        let known = self.born.entry(id).or_insert(Known { born, before: 0, round });
        if known.born != born {
            *known = Known { born, before: known.before + 1, round };
        }
        known.round = round;
        id + known.before * 2 * PIDS
    }

    /// A look begins: owners missing at the last one are dropped, for rates are taken between two
    /// looks.
    pub(crate) fn forget(&mut self) {
        let last = self.round;
        self.born.retain(|_, k| k.round >= last);
        self.round += 1;
    }

    /// Of a VM: its hypervisor's process id.
    pub(crate) fn vm(&mut self, pid: i32, started: u64) -> Gid {
        // Its first thread has the same number, and is a world.
        Gid(self.of(pid as u64, started << 1 | 1))
    }

    /// Of a world: its thread id.
    pub(crate) fn world(&mut self, tid: u64, born_ns: u64) -> Wid {
        // Not in the place of the process that may be a VM of this number.
        Wid(self.of(tid + PIDS, born_ns << 1) - PIDS)
    }

    pub(crate) fn pool(&mut self, path: &str) -> Gid {
        let next = PIDS + self.pools.len() as u64;
        if path == "/" {
            Gid::HOST
        } else {
            Gid(*self.pools.entry(path.to_owned()).or_insert(next))
        }
    }
}

/// Pools, VMs and the system group as the daemon's file, or the cgroups, name them.
pub(crate) fn groups(
    names: &Names,
    ids: &mut Ids,
    gauges: impl Fn(&VmName) -> Gauges,
) -> BTreeMap<Gid, GroupCounters> {
    let group = |name: &str, kind, parent, alloc| GroupCounters {
        name: name.to_owned(),
        kind,
        parent,
        own: Totals::default(),
        nwld: None,
        alloc,
        gauges: Gauges::default(),
    };
    let system = Alloc {
        min: 0.0,
        max: None,
        shares: SharesLevel::Custom(u64::from(names.system_shares)),
        units: AllocUnits::Percent,
    };
    let mut out = BTreeMap::from([
        (Gid::HOST, group("host", GroupKind::Host, None, None)),
        (Gid::SYSTEM, group("system", GroupKind::System, Some(Gid::HOST), Some(system))),
    ]);
    for p in names.pools.iter().filter(|p| p.path != "/") {
        let alloc = accounting::alloc(p.shares, None, p.reservation, p.limit, names.mhz);
        out.insert(
            ids.pool(&p.path),
            group(&p.path, GroupKind::Pool, Some(ids.pool(&p.parent)), Some(alloc)),
        );
    }
    for (vm, name) in names.vms.iter().zip(names.called()) {
        let alloc =
            accounting::alloc(vm.shares, Some(vm.vcpus), vm.reservation, vm.limit, names.mhz);
        let counters = group(&name, GroupKind::Vm, Some(ids.pool(&vm.pool)), Some(alloc));
        out.insert(ids.vm(vm.pid, vm.started), GroupCounters { gauges: gauges(vm), ..counters });
    }
    out
}

/// Memory of the NUMA nodes, and of the VMs whose homes the daemon knows.
pub(crate) fn memory(roots: &Roots, homes: Option<&HomesFile>, ids: &mut Ids) -> HostMemory {
    let node = |f: &NodeFacts| NodeMemory {
        id: f.id,
        bytes: f.memory_kib.unwrap_or(0) << 10,
        free: topology::free_kib(&roots.sys, f.id).unwrap_or(0) << 10,
    };
    let nodes = topology::nodes_from_sysfs(&roots.sys).unwrap_or_default();
    let nodes = if nodes.len() > 1 { nodes.iter().map(node).collect() } else { vec![] };
    let vms = homes.map_or(&[][..], |f| &f.vms).iter();
    let vm = |vm: &VmHomes| (ids.vm(vm.pid, vm.started), vm.memory());
    HostMemory { nodes, vms: vms.map(vm).collect() }
}

type Remembered<'a> = (&'a mut Ledger, &'a mut Services);

fn of_tandem(
    accounts: &Accounts,
    topology: &Topology,
    ids: &mut Ids,
    (ledger, sys): Remembered,
) -> Result<Counters, HostError> {
    let names = Names::read()?;
    let gid: BTreeMap<u32, Gid> = [(VM_SYSTEM, Gid::SYSTEM)]
        .into_iter()
        .chain(names.vms.iter().map(|v| (v.id, ids.vm(v.pid, v.started))))
        .collect();
    let gauges = |vm: &VmName| {
        accounting::gauges(accounts.vm(vm.id as usize).demand, Some(vm.weight), names.mhz)
    };
    let groups = groups(&names, ids, gauges);
    let past = |gid: &BTreeMap<u32, Gid>| -> BTreeMap<Gid, Totals> {
        gid.iter().map(|(vm, gid)| (*gid, accounting::past(&accounts.vm(*vm as usize)))).collect()
    };
    let mut gone = past(&gid);
    let (mut at_ns, mut worlds, mut services) = (0, BTreeMap::new(), vec![]);
    // A world that ends while they are read would be counted twice or not at all: read again,
    // unless they end all the time.
    for _ in 0..4 {
        at_ns = monotonic_ns();
        (worlds, services) = living(accounts, at_ns, names.charge(), &gid, ids);
        let now = past(&gid);
        if std::mem::replace(&mut gone, now) == gone {
            break;
        }
    }
    let (pcpus, cores) = pcpus(accounts, topology, at_ns);
    let memory = memory(&Roots::default(), HomesFile::read(names.daemon).as_ref(), ids);
    let mut counters =
        Counters { at_ns, unix_seconds: wall(), pcpus, cores, groups, worlds, memory };
    ledger.settle(&mut counters, &gone);
    sys.settle(&mut counters, &services);
    Ok(counters)
}

/// Worlds that live, and which of them are threads of the kernel.
fn living(
    accounts: &Accounts,
    at_ns: u64,
    charge: u64,
    gid: &BTreeMap<u32, Gid>,
    ids: &mut Ids,
) -> (BTreeMap<Wid, WorldCounters>, Vec<Wid>) {
    let (mut worlds, mut services) = (BTreeMap::new(), vec![]);
    for i in 1..accounts.worlds_len() {
        let Some(w) = accounts.settled(i) else { continue };
        // A VM that the daemon has not named yet.
        let Some(gid) = gid.get(&w.vm).copied() else { continue };
        let comm = || String::from_utf8_lossy(&w.comm).trim_end_matches('\0').to_owned();
        let role = match (gid, w.kind) {
            (Gid::SYSTEM, _) => Role::Task(comm()),
            (_, kind) if is_vcpu(kind) => Role::Vcpu(w.index),
            _ => Role::Helper(comm()),
        };
        let totals = accounting::world(&w, at_ns, accounts.losing_ns(&w, at_ns, charge));
        let wid = ids.world(u64::from(w.pid), w.born_ns);
        if w.flags & WORLD_SERVICE != 0 {
            services.push(wid);
        }
        worlds.insert(
            wid,
            WorldCounters { gid, role, totals, alloc: None, gauges: Gauges::default() },
        );
    }
    (worlds, services)
}

fn pcpus(
    accounts: &Accounts,
    topology: &Topology,
    at_ns: u64,
) -> (Vec<PcpuCounters>, Vec<CoreCounters>) {
    let smt = accounts.host().smt;
    // Between two words of a change there is nothing to read: so few times in a row that it is
    // another's fault.
    let core = |first: u32| {
        (0..8)
            .find_map(|_| accounting::core(&accounts.pcpu(first as usize), at_ns))
            .filter(|_| smt > 1)
    };
    let mut cores = BTreeMap::new();
    let one = |id: PcpuId| {
        let p = accounts.pcpu(usize::from(id.0));
        let running =
            if p.current_world == 0 { 0 } else { at_ns.saturating_sub(p.current_since_ns) };
        let busy_ns = p.busy_ns + running;
        let times = *cores.entry(p.core).or_insert_with(|| core(p.core_first));
        let used_ns = accounting::used_of_pcpu(busy_ns, smt, times);
        PcpuCounters {
            id,
            core: topology.place(id).core,
            used_ns,
            busy_ns: Some(busy_ns + p.taken_until(at_ns)),
            idle_ns: None,
        }
    };
    let pcpus = topology.online().iter().map(one).collect();
    let known = cores.into_iter().filter(|_| smt > 1);
    (pcpus, known.map(|(id, times)| CoreCounters { id, busy_ns: times.map(|t| t[0]) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_given_again_is_anothers_and_pools_keep_theirs() {
        let mut ids = Ids::default();
        ids.forget();
        let (vm, first) = (ids.vm(4000, 7), ids.world(4000, 7));
        assert_eq!((vm, first), (Gid(4000), Wid(4000)), "as ps shows them");
        ids.forget();
        assert_eq!((ids.vm(4000, 7), ids.world(4000, 7)), (vm, first));
        let second = ids.world(4000, 8);
        assert_ne!(second, first);
        ids.forget();
        assert_eq!(
            (ids.world(4000, 8), ids.pool("/a"), ids.pool("/b"), ids.pool("/a"), ids.pool("/")),
            { (second, Gid(PIDS), Gid(PIDS + 1), Gid(PIDS), Gid::HOST) }
        );
        (0..3).for_each(|_| ids.forget());
        assert!(ids.born.is_empty(), "who is gone is forgotten");
    }
}
