//! What the tests of esxtop's numbers share: random numbers by seed, and a host whose names are as
//! awkward as names get; it checks nothing.

#![allow(dead_code)] // Each test file uses a part.

use esxtop::{
    Alloc, AllocUnits, BatchWriter, CoreCounters, Counters, Gauges, Gid, GroupCounters, GroupKind,
    HostMemory, LoadAverage, NodeMemory, PcpuCounters, Rates, Role, SharesLevel, Totals, VmMemory,
    Wid, WorldCounters,
};
use std::collections::BTreeMap;
use units::PcpuId;

/// Random numbers by seed (xorshift).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Known in seven cases of eight.
    fn maybe(&mut self, n: u64) -> Option<u64> {
        (self.below(8) > 0).then(|| self.below(n))
    }
}

/// Names that people could give, and some that they should not.
pub const AWKWARD: [&str; 14] = [
    "VM_web-01",
    "two words",
    "a,b",
    "say \"hi\"",
    "back\\slash",
    "x (copy)",
    "a:b:c",
    "100%41",
    "new\nline\r\n",
    "Größe 日本 🦀",
    "",
    " ",
    "Group Cpu(1:system)\\% Used",
    "\u{feff}a\u{2028}b\u{85}c\u{0}",
];

const S: u64 = 1_000_000_000;

/// A look in which everything is random; `more` is added to each count of the look before.
fn totals(r: &mut Rng, before: &Totals) -> Totals {
    let mut add = |b: Option<u64>| r.maybe(6 * S).map(|n| b.unwrap_or(0) + n);
    Totals {
        used_ns: add(before.used_ns),
        run_ns: add(before.run_ns),
        sys_ns: add(before.sys_ns),
        lost_ns: None, // no column of a batch
        wait_ns: add(before.wait_ns),
        vmwait_ns: add(before.vmwait_ns),
        ready_ns: add(before.ready_ns),
        idle_ns: add(before.idle_ns),
        overlap_ns: add(before.overlap_ns),
        costop_ns: add(before.costop_ns),
        limited_ns: add(before.limited_ns),
        swap_wait_ns: add(before.swap_wait_ns),
        latency_ns: add(before.latency_ns),
        switches: add(before.switches),
        migrations: add(before.migrations),
        quantum_expiries: add(before.quantum_expiries),
        wakeups: add(before.wakeups),
        timers: add(before.timers),
    }
}

/// A host of so many VMs with awkward names, and its first look.
pub fn host(vms: u64) -> Counters {
    let group = |name: &str, kind, parent| {
        let alloc =
            Alloc { min: 0.0, max: None, shares: SharesLevel::Normal, units: AllocUnits::Mhz };
        let gauges = Gauges { demand_percent: Some(12.5), emin_mhz: Some(2400.0) };
        GroupCounters {
            name: String::from(name),
            kind,
            parent,
            own: Totals::default(),
            nwld: None,
            alloc: Some(alloc),
            gauges,
        }
    };
    let mut groups = BTreeMap::from([
        (Gid::HOST, group("/", GroupKind::Host, None)),
        (Gid::SYSTEM, group("host tasks", GroupKind::System, Some(Gid::HOST))),
        (Gid(2), group("pool, \"gold\"", GroupKind::Pool, Some(Gid::HOST))),
    ]);
    let mut worlds = BTreeMap::new();
    let mut add = |gid: u64, n: u64, role| {
        let world = WorldCounters {
            gid: Gid(gid),
            role,
            totals: Totals::default(),
            alloc: None,
            gauges: Gauges::default(),
        };
        worlds.insert(Wid(gid * 100 + n), world);
    };
    add(1, 0, Role::Task("kworker/0:1 (rcu)".to_owned()));
    for vm in 0..vms {
        let name = AWKWARD[vm as usize % AWKWARD.len()];
        groups.insert(Gid(10 + vm), group(name, GroupKind::Vm, Some(Gid(2))));
        (0..2).for_each(|n| add(10 + vm, n, Role::Vcpu(n as u32)));
        add(10 + vm, 2, Role::Helper(name.to_owned()));
    }
    let pcpu = |id| PcpuCounters {
        id: PcpuId(id),
        core: u32::from(id / 2),
        used_ns: None,
        busy_ns: None,
        idle_ns: None,
    };
    let cores = (0..2).map(|id| CoreCounters { id, busy_ns: None }).collect();
    let node = |id| NodeMemory { id, bytes: 16 << 30, free: 3 << 30 };
    let memory = |vm| {
        let at = [vm << 28, 1 << 30];
        (Gid(10 + vm), VmMemory::of(2 << 30, vm, [(Some((vm % 2) as u32), &at[..])]))
    };
    Counters {
        at_ns: S,
        unix_seconds: 1_795_289_692,
        pcpus: (0..4).map(pcpu).collect(),
        cores,
        groups,
        worlds,
        memory: HostMemory {
            nodes: (0..2).map(node).collect(),
            vms: (0..vms).map(memory).collect(),
        },
    }
}

/// The look after `before`, five seconds later.
pub fn later(r: &mut Rng, before: &Counters) -> Counters {
    let mut c = before.clone();
    (c.at_ns, c.unix_seconds) = (c.at_ns + 5 * S, c.unix_seconds + 5);
    c.worlds.values_mut().for_each(|w| w.totals = totals(r, &w.totals));
    for p in &mut c.pcpus {
        p.used_ns = Some(p.used_ns.unwrap_or(0) + r.below(5 * S));
        p.busy_ns = Some(p.busy_ns.unwrap_or(0) + r.below(5 * S));
    }
    c.cores
        .iter_mut()
        .for_each(|core| core.busy_ns = Some(core.busy_ns.unwrap_or(0) + r.below(5 * S)));
    c
}

/// So many samples of such a host.
pub fn samples(seed: u64, vms: u64, n: usize) -> Vec<Rates> {
    let (mut r, mut load, mut out) = (Rng(seed), LoadAverage::new(), vec![]);
    let mut before = later(&mut r, &host(vms));
    for _ in 0..n {
        let after = later(&mut r, &before);
        let mut rates = Rates::between(&before, &after).unwrap();
        load.feed(rates.interval_ns, r.below(800) as f64 / 100.0, 4);
        rates.feed(&mut load);
        out.push(rates);
        before = after;
    }
    out
}

/// The file of these samples.
pub fn file(samples: &[Rates], host: &str) -> Vec<u8> {
    let mut w = BatchWriter::new(vec![], host);
    for s in samples {
        w.write(s).unwrap();
    }
    w.into_inner()
}
