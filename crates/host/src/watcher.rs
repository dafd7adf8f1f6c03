//! Samples this host for esxtop's numbers, by Tandem's accounts or the kernel's own; it reads only.

use crate::found::comm_of;
use crate::sample::wall;
use crate::view::monotonic_ns;
use crate::watched::{Ids, groups, memory};
use crate::{
    Accounts, HomesFile, HostError, Names, VmName, discover::Roots, watcher_kernel::KernelWatcher,
};
use accounting::{Ledger, Services};
use esxtop::{CoreCounters, Counters, Gauges, Gid, PcpuCounters, Role, Totals, Wid, WorldCounters};
use sched_core::{VM_SYSTEM, WORLD_SERVICE, is_vcpu};
use std::collections::BTreeMap;
use topology::Topology;
use units::PcpuId;

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
        match &mut self.accounts {
            // Opened each time: the daemon loads the scheduler again when pCPUs go on or off line.
            Whose::Tandem(ledger, services) => {
                let (accounts, names) = (Accounts::open()?, Names::read()?);
                // A look that fails is none: owners are remembered over it.
                self.ids.forget();
                Ok(of_tandem((&accounts, &names), topology, &mut self.ids, (ledger, services)))
            }
            Whose::Kernel(kernel) => {
                self.ids.forget();
                Ok(kernel.look(topology, &mut self.ids))
            }
        }
    }
}

type Remembered<'a> = (&'a mut Ledger, &'a mut Services);

fn of_tandem(
    (accounts, names): (&Accounts, &Names),
    topology: &Topology,
    ids: &mut Ids,
    (ledger, sys): Remembered,
) -> Counters {
    let gid: BTreeMap<u32, Gid> = [(VM_SYSTEM, Gid::SYSTEM)]
        .into_iter()
        .chain(names.vms.iter().map(|v| (v.id, ids.vm(v.pid, v.started))))
        .collect();
    let gauges = |vm: &VmName| {
        accounting::gauges(accounts.vm(vm.id as usize).demand, Some(vm.weight), names.mhz)
    };
    let groups = groups(names, ids, gauges);
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
    counters
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
        let comm = || comm_of(&w.comm);
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
        // What higher classes take is in use too.
        let busy_ns = p.busy_ns + running + p.taken_until(at_ns);
        let times = *cores.entry(p.core).or_insert_with(|| core(p.core_first));
        let used_ns = accounting::used_of_pcpu(busy_ns, smt, times);
        PcpuCounters {
            id,
            core: topology.place(id).core,
            used_ns,
            busy_ns: Some(busy_ns),
            idle_ns: None,
        }
    };
    let pcpus = topology.online().iter().map(one).collect();
    let known = cores.into_iter().filter(|_| smt > 1);
    (pcpus, known.map(|(id, times)| CoreCounters { id, busy_ns: times.map(|t| t[0]) }).collect())
}
