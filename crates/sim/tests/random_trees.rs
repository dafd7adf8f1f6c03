//! Trees of pools drawn at random, up to six deep, with all settings mixed and demand that comes
//! and goes: no reservation is missed, no limit passed, and VMs stay near the ideal.
//!
//! A failure names its seed and the smallest tree that fails like it; `SEED=n cargo test -p sim
//! --test all random_trees` replays one alone, `SEEDS=n` tries that many from `FROM=n` on. With
//! `SEED=n` `TRACE=FILE` writes its trace. With `SHARED_CHARGE=625` cores are divided, and not
//! threads.

use crate::draw::{
    Workloads,
    case::{self, Case, Lag},
    hardware,
};
use dice::Draw;
use entitlement::{Names, Tree, TreeLeaf, TreePool};
use sched_core::Knobs;
use settings::{
    HostSpec, LimitSetting, PoolSpec, Run, RunSpec, SharesSetting, VmSpec, Window, place,
};
use topology::Topology;
use units::{CpuAmount, Span};

const DEEPEST: usize = 6;

/// Pools and VMs of a run.
struct Trees<'d>(&'d mut Draw);

impl Trees<'_> {
    fn shares(&mut self) -> SharesSetting {
        match self.0.below(4) {
            0 => SharesSetting::Preset(
                ["low", "normal", "high"][self.0.below(3) as usize].to_owned(),
            ),
            _ => SharesSetting::Number(100 + self.0.below(8000) as i64),
        }
    }

    fn limit(&mut self, least: u64, most: u64) -> Option<LimitSetting> {
        (self.0.below(3) == 0)
            .then(|| LimitSetting::Amount(CpuAmount::percent((least + self.0.below(most)) as u32)))
    }

    fn pools(&mut self, pcpus: u64) -> Vec<PoolSpec> {
        let mut depth = vec![];
        let mut list: Vec<PoolSpec> = vec![];
        for i in 0..self.0.below(10) as usize {
            let parent = (i > 0 && self.0.below(3) > 0)
                .then(|| self.0.below(i as u64) as usize)
                .filter(|p| depth[*p] < DEEPEST);
            depth.push(parent.map_or(1, |p| depth[p] + 1));
            let reservation =
                (self.0.below(4) == 0).then(|| CpuAmount::percent(self.0.below(pcpus * 25) as u32));
            list.push(PoolSpec {
                name: format!("pool{i}"),
                parent: parent.map(|p| format!("pool{p}")),
                shares: self.shares(),
                reservation,
                limit: if reservation.is_some() { None } else { self.limit(20, pcpus * 80) },
                burst: None,
                expandable: self.0.below(3) > 0,
                scalable: self.0.below(4) == 0,
            });
        }
        list
    }

    fn vm(&mut self, i: u64, pools: u64, secs: u64) -> VmSpec {
        let vcpus = 1 + self.0.below(6) as u32;
        let start = if self.0.below(4) == 0 { self.0.below(secs / 2) } else { 0 };
        let from = self.0.below(secs);
        let limit = self.limit(20, u64::from(vcpus) * 80);
        VmSpec {
            name: format!("vm{i}"),
            count: 1,
            vcpus,
            shares: self.shares(),
            pool: (self.0.below(pools + 1) < pools).then(|| format!("pool{}", self.0.below(pools))),
            reservation: (limit.is_none() && self.0.below(3) == 0)
                .then(|| CpuAmount::percent(self.0.below(u64::from(vcpus) * 60) as u32)),
            limit,
            burst: None,
            affinity: None,
            cpuset: None,
            vcpu_affinity: None,
            workload: Some(self.0.workload()),
            profile: None,
            vcpu_workloads: (self.0.below(3) == 0)
                .then(|| (0..vcpus).map(|_| self.0.workload()).collect()),
            memory: None,
            vnuma: None,
            vnuma_node: None,
            prefer_ht: false,
            llc: None,
            watchdog: None,
            guest: None,
            tasks: vec![],
            hot_add: vec![],
            active: if self.0.below(4) == 0 {
                vec![Window { from: Span::from_secs(from), to: Some(Span::from_secs(from + 2)) }]
            } else {
                vec![]
            },
            start: Span::from_secs(start),
            stop: (self.0.below(5) == 0).then(|| Span::from_secs(start + 1 + self.0.below(secs))),
        }
    }

    fn run(&mut self, secs: u64) -> Run {
        let host = HostSpec {
            sockets: 1 + self.0.below(2) as u32,
            nodes_per_socket: 1,
            llcs_per_node: 1 + self.0.below(2) as u32,
            cores_per_llc: 1 + self.0.below(4) as u32,
            threads_per_core: 1 + self.0.below(2) as u32,
            hz: [100, 250, 300, 1000][self.0.below(4) as usize],
            timer_late: Span::ZERO,
            pause_exits: true,
            wake_path: None,
            idle_exit: None,
            idle_residency: HostSpec::IDLE_RESIDENCY,
            mhz: HostSpec::MHZ,
        };
        let topology = Topology::regular(host.shape()).expect("a small host");
        let pcpus = topology.pcpus() as u64;
        let pools = self.pools(pcpus);
        let mut spec = RunSpec {
            title: String::new(),
            source: String::new(),
            seed: self.0.below(1000),
            duration: Span::from_secs(secs),
            warmup: Span::ZERO,
            host,
            vms: (0..2 + self.0.below(pcpus))
                .map(|i| self.vm(i, pools.len() as u64, secs))
                .collect(),
            pools,
            host_tasks: vec![],
            changes: vec![],
            offline: vec![],
            realtime: vec![],
            hardware: None,
            numa: None,
            profiles: vec![],
            knobs: case::knobs(),
            lab: Default::default(),
            expect: Default::default(),
        };
        // What is reserved must fit: admission control would refuse the rest.
        while !admitted(&spec, &topology) {
            spec.vms.iter_mut().for_each(|v| v.reservation = None);
            if let Some(last) = spec.pools.iter_mut().rev().find(|p| p.reservation.is_some()) {
                last.reservation = None;
            }
        }
        Run { label: String::new(), spec, topology }
    }
}

fn admitted(spec: &RunSpec, topology: &Topology) -> bool {
    let placed = place(&spec.pools, spec.host.mhz).expect("they make a tree");
    let pool = |p: &settings::PlacedPool| TreePool {
        parent: p.parent,
        shares: u64::from(p.shares),
        reservation: p.reservation,
        limit: p.limit,
        expandable: p.expandable,
        scalable: p.scalable,
    };
    let leaf = |v: &VmSpec| {
        let r = v.resources(spec.host.mhz).expect("they fit each other");
        let pool = v
            .pool
            .as_ref()
            .map_or(0, |name| placed.iter().position(|p| p.name == *name).expect("its pool"));
        TreeLeaf {
            pool,
            shares: u64::from(r.shares),
            reservation: r.reservation,
            limit: r.limit,
            vcpus: v.vcpus,
        }
    };
    let (pools, leaves) = (placed.iter().map(pool), spec.vms.iter().map(leaf));
    let tree = Tree::new(topology.pcpus() as u64, pools.collect(), leaves.collect());
    let cores = topology.places().iter().filter(|p| p.thread == 0).count() as u64;
    let mut knobs = Knobs::default();
    for (name, value) in &spec.knobs {
        knobs.set(name, *value).expect("a knob");
    }
    let tree = tree.on_cores(cores, knobs.divided_charge());
    let names = Names {
        pools: placed.iter().map(|p| p.path.clone()).collect(),
        leaves: spec.vms.iter().map(|v| v.name.clone()).collect(),
    };
    entitlement::check(&tree, &names).fits()
}

/// The tree of a seed, and all else that the seed decides.
pub fn drawn(seed: u64) -> Case {
    let mut draw = Draw::new(seed);
    let run = Trees(&mut draw).run(8);
    Case::of(run, seed, &mut draw)
}

/// Trees of each run of the suite: the first seeds, and those of [`FAILED_ONCE`].
const DRAWN: u64 = 1_200;

/// The same, on a third of the seeds with simulated hardware: caches and partners slow worlds down,
/// and CPU time is divided as before.
fn drawn_on_hardware(seed: u64) -> Case {
    let mut case = drawn(seed);
    hardware(seed, &mut case.run.spec);
    case
}

/// Trees that earlier schedulers failed in: a reservation missed, a limit passed, a VM beyond the
/// bound on lag or (5370, 8318) near it, a vCPU beyond that on skew.
const FAILED_ONCE: [u64; 28] = [
    101, 185, 263, 361, 451, 554, 567, 768, 892, 965, 1150, 1721, 2023, 3056, 3482, 3811, 3831,
    5005, 5040, 5079, 5336, 5370, 5569, 5853, 7469, 7940, 8082, 8318,
];

/// A ratchet: none of these trees is further off than this part of the bound on lag. It stands a
/// few percent above the furthest of them and is lowered when that falls; docs/design/003-shares.md
/// has the figures.
const FURTHEST_PERCENT: u64 = 70;

#[test]
fn the_ideal_reservations_and_limits_hold_in_any_tree() {
    let mut all = case::hold(Lag::Held, &case::seeds(DRAWN, &[]), drawn_on_hardware);
    all.extend(case::hold(Lag::Held, &case::seeds(0, &FAILED_ONCE), drawn));
    let mut far: Vec<(u64, u64)> = all.iter().map(|(seed, j)| (j.lag_percent, *seed)).collect();
    far.sort_unstable_by(|a, b| b.cmp(a));
    let sum: u64 = far.iter().map(|f| f.0).sum();
    println!("{} trees: mean {} % of the bound on lag", far.len(), sum / far.len() as u64);
    println!("furthest, percent and seed: {:?}", &far[..far.len().min(10)]);
    assert!(far[0].0 <= FURTHEST_PERCENT, "seed {}: {} % of the bound", far[0].1, far[0].0);
}

/// The same where each core has an LLC of its own: few worlds wait, each in another cluster.
#[test]
fn they_hold_where_each_core_is_a_cluster() {
    let split = |seed: u64| {
        let mut case = drawn(seed);
        let host = &mut case.run.spec.host;
        host.llcs_per_node *= host.cores_per_llc;
        host.cores_per_llc = 1;
        case.run.topology = Topology::regular(host.shape()).expect("a small host");
        case
    };
    case::hold(Lag::Held, &case::seeds(200, &[]), split);
}
