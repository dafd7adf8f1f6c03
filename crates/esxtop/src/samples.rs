//! A small host for tests: a pool with two VMs beside the system group, looked at twice; it checks
//! nothing.

use crate::*;
use std::collections::BTreeMap;
use units::PcpuId;

/// One second, in ns.
pub(crate) const S: u64 = 1_000_000_000;

/// A world's totals where only running time and wake-ups are known.
pub(crate) fn totals(run_ns: u64, wakeups: u64) -> Totals {
    Totals { run_ns: Some(run_ns), wakeups: Some(wakeups), ..Totals::default() }
}

/// Of `ns`: 40 % run, 20 % ready (5 % limited), 10 % co-stopped, 30 % waiting (20 % halted), on top
/// of what was before.
fn world(ns: u64, base: u64) -> Totals {
    let part = |percent: u64| Some(base + ns * percent / 100);
    let count = |per_s: u64| Some(base + ns * per_s / S);
    Totals {
        used_ns: part(38),
        run_ns: part(40),
        ready_ns: part(20),
        limited_ns: part(5),
        costop_ns: part(10),
        wait_ns: part(30),
        idle_ns: part(20),
        switches: count(200),
        migrations: count(2),
        quantum_expiries: count(4),
        wakeups: count(160),
        ..Totals::default()
    }
}

fn group(name: &str, kind: GroupKind, parent: Option<u64>) -> GroupCounters {
    let (own, nwld, alloc) = (Totals::default(), None, None);
    GroupCounters {
        name: name.to_owned(),
        kind,
        parent: parent.map(Gid),
        own,
        nwld,
        alloc,
        gauges: Gauges::default(),
    }
}

fn look(ns: u64) -> Counters {
    let alloc = |min, max, shares| Some(Alloc { min, max, shares, units: AllocUnits::Mhz });
    let mut groups = BTreeMap::from([
        (Gid::HOST, group("host", GroupKind::Host, None)),
        (Gid::SYSTEM, group("system", GroupKind::System, Some(0))),
        (Gid(10), group("prod", GroupKind::Pool, Some(0))),
        (Gid(11), group("web", GroupKind::Vm, Some(10))),
        (Gid(12), group("db", GroupKind::Vm, Some(10))),
    ]);
    let system = groups.get_mut(&Gid::SYSTEM).unwrap();
    let halved = world(ns / 2, 5);
    // Host tasks are not listed; their group counts for itself.
    system.own = Totals {
        used_ns: Some(ns * 15 / 100),
        run_ns: halved.run_ns,
        ready_ns: halved.ready_ns,
        switches: Some(0),
        ..Totals::default()
    };
    system.nwld = Some(50);
    groups.get_mut(&Gid(11)).unwrap().alloc = alloc(500.0, Some(2400.0), SharesLevel::Normal);
    groups.get_mut(&Gid(12)).unwrap().alloc = alloc(0.0, None, SharesLevel::Custom(1500));
    let one = |wid: u64, gid: u64, role: Role| {
        (
            Wid(wid),
            WorldCounters {
                gid: Gid(gid),
                role,
                totals: world(ns, wid),
                alloc: None,
                gauges: Gauges::default(),
            },
        )
    };
    let worlds = [
        one(100, 11, Role::Vcpu(0)),
        one(101, 11, Role::Vcpu(1)),
        one(102, 11, Role::Helper("io".to_owned())),
        one(103, 12, Role::Vcpu(0)),
    ];
    let part = |percent: u64| Some(77 + ns * percent / 100);
    let pcpu = |id, core, used_ns, busy_ns, idle_ns| PcpuCounters {
        id: PcpuId(id),
        core,
        used_ns,
        busy_ns,
        idle_ns,
    };
    Counters {
        at_ns: S + ns,
        unix_seconds: 1_795_289_692 + (ns / S) as i64,
        pcpus: vec![
            pcpu(0, 0, part(50), part(80), None),
            pcpu(1, 0, part(20), None, part(60)),
            pcpu(2, 1, None, part(60), None),
        ],
        cores: vec![CoreCounters { id: 0, busy_ns: part(90) }],
        groups,
        worlds: worlds.into(),
        memory: memory(ns),
    }
}

/// Of `web` 3 of 4 GiB are at home, and its home has changed; `db` has no home.
fn memory(ns: u64) -> HostMemory {
    let gib = |n: u64| n << 30;
    let node = |id, free| NodeMemory { id, bytes: gib(16), free };
    let web = VmMemory {
        bytes: gib(4),
        homes: vec![0, 1],
        places: Some((gib(3), gib(1))),
        migrations: 5 + u64::from(ns > 0),
    };
    let db = VmMemory { bytes: gib(1), ..VmMemory::default() };
    HostMemory {
        nodes: vec![node(0, gib(12)), node(2, gib(15))],
        vms: [(Gid(11), web), (Gid(12), db)].into(),
    }
}

/// Two looks, so far apart.
pub(crate) fn host(ns: u64) -> (Counters, Counters) {
    (look(0), look(ns))
}

/// What happened in five seconds.
pub(crate) fn rates() -> Rates {
    let (before, after) = host(5 * S);
    let mut rates = Rates::between(&before, &after).expect("time passed");
    rates.feed(&mut LoadAverage::new());
    rates
}
