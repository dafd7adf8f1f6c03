//! A host for tests of the screen: two VMs in a pool, one of them with a helper, and the system
//! group.

use crate::play::Sample;
use esxtop::{
    CoreCounters, Counters, Gauges, Gid, GroupCounters, GroupKind, HostMemory, LoadAverage,
    NodeMemory, PcpuCounters, Rates, Role, Totals, VmMemory, Wid, WorldCounters,
};
use std::collections::BTreeMap;

const S: u64 = 1_000_000_000;

/// Of so many seconds: run, ready and costop in percent; the rest is idle.
fn totals(ns: u64, run: u64, ready: u64, costop: u64) -> Totals {
    let part = |percent: u64| Some(ns / 100 * percent);
    Totals {
        used_ns: part(run),
        run_ns: part(run),
        ready_ns: part(ready),
        costop_ns: part(costop),
        limited_ns: part(0),
        wait_ns: part(100 - run - ready - costop),
        idle_ns: part(100 - run - ready - costop),
        switches: Some(ns / S * 10),
        ..Totals::default()
    }
}

/// `web` has two homes and 3 of its 4 GiB there, `Database` no home.
fn memory() -> HostMemory {
    let node = |id| NodeMemory { id, bytes: 16 << 30, free: 11 << 30 };
    let web = VmMemory {
        bytes: 4 << 30,
        homes: vec![0, 1],
        places: Some((3 << 30, 1 << 30)),
        migrations: 7,
    };
    let database = VmMemory { bytes: 1 << 30, ..VmMemory::default() };
    HostMemory { nodes: vec![node(0), node(1)], vms: [(Gid(11), web), (Gid(12), database)].into() }
}

fn look(ns: u64, pcpus: u16, smt: bool) -> Counters {
    let group = |name: &str, kind, parent: Option<u64>| GroupCounters {
        name: name.to_owned(),
        kind,
        parent: parent.map(Gid),
        own: Totals::default(),
        nwld: None,
        alloc: None,
        gauges: Gauges::default(),
    };
    let world = |wid: u64, gid: u64, role: Role, totals| {
        (
            Wid(wid),
            WorldCounters { gid: Gid(gid), role, totals, alloc: None, gauges: Gauges::default() },
        )
    };
    let groups = BTreeMap::from([
        (Gid::HOST, group("host", GroupKind::Host, None)),
        (Gid::SYSTEM, group("system", GroupKind::System, Some(0))),
        (Gid(10), group("/prod", GroupKind::Pool, Some(0))),
        (Gid(11), group("web", GroupKind::Vm, Some(10))),
        (Gid(12), group("Database", GroupKind::Vm, Some(10))),
    ]);
    let worlds = [
        world(100, 11, Role::Vcpu(0), totals(ns, 50, 12, 0)),
        world(101, 11, Role::Vcpu(1), totals(ns, 30, 2, 4)),
        world(102, 11, Role::Helper("io\x1b[2J".to_owned()), totals(ns, 5, 0, 0)),
        world(103, 12, Role::Vcpu(0), totals(ns, 90, 7, 0)),
        world(104, 1, Role::Task("kworker".to_owned()), totals(ns, 10, 60, 0)),
    ];
    let busy = |i: u16| Some(ns / 100 * u64::from(i * 7 % 101));
    let pcpu = |i: u16| PcpuCounters {
        id: units::PcpuId(i),
        core: u32::from(if smt { i / 2 } else { i }),
        used_ns: busy(i).filter(|_| !smt),
        busy_ns: busy(i),
        idle_ns: None,
    };
    let cores = if smt {
        (0..pcpus / 2)
            .map(|id| CoreCounters { id: u32::from(id), busy_ns: busy(id * 2 + 1) })
            .collect()
    } else {
        vec![]
    };
    let unix_seconds = 1_795_289_692 + (ns / S) as i64;
    Counters {
        at_ns: ns,
        unix_seconds,
        pcpus: (0..pcpus).map(pcpu).collect(),
        cores,
        groups,
        memory: memory(),
        worlds: worlds.into(),
    }
}

/// Five seconds of that host, so many pCPUs large, with two threads a core or one.
pub(crate) fn sample(pcpus: u16, smt: bool) -> Sample {
    let mut rates =
        Rates::between(&look(0, pcpus, smt), &look(5 * S, pcpus, smt)).expect("time passed");
    rates.feed(&mut LoadAverage::new());
    Sample { rates, up_ns: (4 * 3600 + 31 * 60) * S }
}
