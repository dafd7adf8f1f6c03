//! What every look at this host has, whatever its accounts: ids that stay, groups by their names,
//! memory by node.

use crate::{HomesFile, Names, VmHomes, VmName, discover::Roots};
use esxtop::{
    Alloc, AllocUnits, Gauges, Gid, GroupCounters, GroupKind, HostMemory, NodeMemory, SharesLevel,
    Totals, Wid,
};
use std::collections::BTreeMap;
use topology::NodeFacts;

/// Process and thread ids are below this (PID_MAX_LIMIT); ids of pools begin here.
const PIDS: u64 = 1 << 22;

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
        assert!(ids.born.is_empty(), "what is gone is forgotten");
    }
}
