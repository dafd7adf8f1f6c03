//! Trees of pools drawn at random, up to six deep, with all settings mixed and demand that comes
//! and goes: no reservation is missed, no limit passed, and VMs stay near the ideal.
//!
//! A failure names its seed; `SEED=n cargo test -p sim --test random_trees` replays it alone, and
//! `SEEDS=n` tries that many. With `SEED=n` `TRACE=FILE` writes its trace.

mod draw;

use check::Invariant;
use draw::Draw;
use entitlement::{Names, Tree, TreeLeaf, TreePool};
use settings::{
    HostSpec, LimitSetting, PoolSpec, Run, RunSpec, SharesSetting, VmSpec, Window, place,
};
use sim::{Costs, Options, Ticks, run, run_traced, scheduler_terms};
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
            workload: self.0.workload(),
            vcpu_workloads: (self.0.below(3) == 0)
                .then(|| (0..vcpus).map(|_| self.0.workload()).collect()),
            watchdog: None,
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
            knobs: Default::default(),
            lab: Default::default(),
            expect: Default::default(),
        };
        // What is reserved must fit: admission control would refuse the rest.
        while !admitted(&spec, pcpus) {
            spec.vms.iter_mut().for_each(|v| v.reservation = None);
            if let Some(last) = spec.pools.iter_mut().rev().find(|p| p.reservation.is_some()) {
                last.reservation = None;
            }
        }
        Run { label: String::new(), spec, topology }
    }
}

fn admitted(spec: &RunSpec, pcpus: u64) -> bool {
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
    let tree =
        Tree::new(pcpus, placed.iter().map(pool).collect(), spec.vms.iter().map(leaf).collect());
    let names = Names {
        pools: placed.iter().map(|p| p.path.clone()).collect(),
        leaves: spec.vms.iter().map(|v| v.name.clone()).collect(),
    };
    entitlement::check(&tree, &names).fits()
}

/// What came out of a seed: what is wrong, and the largest distance of a VM from the ideal, in
/// percent of what is allowed.
pub fn outcome(seed: u64) -> (Option<String>, u64) {
    let mut draw = Draw(seed);
    let run_of = Trees(&mut draw).run(8);
    let ticks = if draw.below(2) == 0 { Ticks::Aligned } else { Ticks::Staggered };
    let costs = if draw.below(2) == 0 { Costs::ZERO } else { Costs::default() };
    let options = Options { ticks, costs, ..Options::default() };
    let done = match std::env::var("TRACE") {
        Ok(file) => run_traced(
            &run_of,
            &options,
            Box::new(std::fs::File::create(file).expect("TRACE can be written")),
        ),
        Err(_) => run(&run_of, &options),
    };
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(e) => return (Some(format!("seed {seed}: {e}")), 0),
    };
    let verdict = outcome.verdict.expect("it was checked");
    let host = format!(
        "{} pCPUs, hz {}, {} pools",
        run_of.topology.pcpus(),
        run_of.spec.host.hz,
        run_of.spec.pools.len()
    );
    let bounds = scheduler_terms(&outcome.knobs, run_of.spec.host.hz).bounds();
    let apart = |v: &check::VmVerdict| {
        let vcpus =
            run_of.spec.vms.iter().find(|s| s.name == v.name).map_or(0, |s| u64::from(s.vcpus));
        let worlds = vcpus.min(run_of.topology.pcpus() as u64);
        let allowed = bounds.lag_ns(worlds, false);
        v.owed_max_ns.max(v.surplus_max_ns) * 100 / allowed
    };
    let worst = verdict.vms.iter().map(apart).max().unwrap_or(0);
    let odd = outcome.stats.default_slices + outcome.stats.fallbacks;
    let found = match verdict.violations.iter().find(|v| v.invariant != Invariant::Lag) {
        Some(v) => Some(format!("seed {seed} ({host}): {:?} {v}", verdict.counts)),
        None => (odd > 0).then(|| format!("seed {seed}: {:?}", outcome.stats)),
    };
    (found, worst)
}

#[test]
fn the_ideal_reservations_and_limits_hold_in_any_tree() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let seeds = number("SEED").map_or(0..number("SEEDS").unwrap_or(60), |seed| seed..seed + 1);
    // Two more in which one VM far ahead made all others equal; both were beyond the bound then, up
    // to three times. And two in which a reservation was missed, by 4 %, because the host's virtual
    // time forgave all that lagged together. And one in which a pool that sleepers woke in lost 12
    // % of its limit.
    let more = if number("SEED").is_some() { vec![] } else { vec![101, 263, 361, 567, 1150] };
    let all: Vec<(u64, (Option<String>, u64))> =
        seeds.chain(more).map(|s| (s, outcome(s))).collect();
    let wrong: Vec<&String> = all.iter().filter_map(|o| o.1.0.as_ref()).collect();
    // 97 % at most in 9,005 trees (3831), and of those only 3831, 5569, 7469, 5079 and 5005 are
    // beyond 75 %.
    let mut far: Vec<(u64, u64)> = all.iter().map(|o| (o.0, o.1.1)).filter(|o| o.1 > 75).collect();
    far.sort_by_key(|f| std::cmp::Reverse(f.1));
    println!(
        "{} of {} seeds beyond three quarters of the bound: (seed, percent) {far:?}",
        far.len(),
        all.len()
    );
    assert!(wrong.is_empty(), "{} seeds:\n{wrong:#?}", wrong.len());
    let alone = number("SEED").is_some();
    assert!(
        far.iter().all(|f| f.1 <= 100) && (alone || far.len() * 1000 <= all.len()),
        "(seed, percent of the bound): {far:?}"
    );
}

#[test]
fn trees_that_were_beyond_the_bound_stay_within() {
    // What had gone wrong, and what is allowed now: less than with one of the pieces missing that
    // mended it.
    let seeds = [
        (
            1721,
            85,
            "a world that starts was compared with its request, a parked one without: 102 %",
        ),
        (
            965,
            60,
            "what a limit hands out went to who was owed nothing while the grants of those who \
                were owed time ended: 68 %",
        ),
        (
            7940,
            50,
            "and so did what is left when those who are owed time have theirs, although it is no \
                more than the next grant: 99 %",
        ),
        (
            3811,
            60,
            "all siblings of a vCPU that a limit had parked stopped at once, and not a ms later: \
                80 %",
        ),
        (892, 55, "waits of bursts longer than what a plan goes by counted as not wanted: 61 %"),
        (
            3056,
            100,
            "worlds that were let go waited for pCPUs of a full host, and ran with their grants in \
                the same second: a limit was passed",
        ),
        (2023, 100, "what VMs had kept of their grants passed the limit of their pool"),
        (
            8082,
            100,
            "one vCPU that burns beside siblings that sleep led them by more than its VM may be \
                behind for: 112 %",
        ),
    ];
    let beyond: Vec<String> = seeds
        .into_iter()
        .filter_map(|(seed, most, why)| {
            let (wrong, percent) = outcome(seed);
            println!("seed {seed}: {percent} % of the bound, {most} % allowed");
            (wrong.is_some() || percent > most)
                .then(|| format!("seed {seed} ({why}): {percent} % of the bound, {wrong:?}"))
        })
        .collect();
    assert!(beyond.is_empty(), "{beyond:#?}");
}

#[test]
fn who_waits_with_short_bursts_does_not_count_as_asking_for_a_whole_pcpu() {
    // Seeds in which that took up to 186 % of the bound from who had a place in the same pool
    // beside such bursts.
    for seed in [185, 451, 554, 768] {
        let (wrong, percent) = outcome(seed);
        assert!(
            wrong.is_none() && percent <= 80,
            "seed {seed}: {percent} % of the bound, {wrong:?}"
        );
    }
}
