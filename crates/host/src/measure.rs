//! Measures what VMs used, waited and were entitled to over a time on this host, by Tandem's accounts or the
//! kernel's own, as a result document. It reads only.

use crate::{
    Accounts, HostError, Names,
    discover::{self, Finder, Roots},
    kernel_accounts,
    names::told_apart,
    view::monotonic_ns,
};
use entitlement::{FluidClaim, fluid};
use std::{collections::BTreeMap, time::Duration};
use topology::Topology;
use units::{PcpuSet, Rate};
use views::{HostCounts, Pcpu, Pool, RunResult, Times, Vm, World, WorldKind};

/// Whose accounts are read.
pub enum Source {
    /// The scheduler's own.
    Tandem(Accounts),
    /// The kernel's, under any scheduler.
    Kernel,
}

/// A thread within one sample.
#[derive(Clone, Debug)]
struct Thread {
    name: String,
    kind: WorldKind,
    pid: i32,
    times: Times,
}

/// A VM within one sample.
#[derive(Clone, Debug)]
struct Sampled {
    shares: u32,
    vcpus: u32,
    stat: Option<views::CpuStat>,
    threads: BTreeMap<i32, Thread>,
}

/// Everything at one moment.
struct Sample {
    at_ns: u64,
    vms: BTreeMap<String, Sampled>,
    system: Times,
    system_shares: u32,
    busy: Vec<u64>,
}

/// Measures for `duration`, looking every `step`; `stop` ends it early.
///
/// # Errors
/// `HostError` when the daemon's accounts cannot be read.
pub fn measure(
    source: &Source,
    topology: &Topology,
    duration: Duration,
    step: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<RunResult, HostError> {
    let (mut sets, mut finder) = (Allowed::default(), Finder::default());
    let first = sample(source, topology, &mut finder)?;
    let begin = std::time::Instant::now();
    let mut total: BTreeMap<String, BTreeMap<i32, Thread>> = BTreeMap::new();
    let mut system = Times::default();
    let mut last = first.clone_light();
    loop {
        let left = duration.saturating_sub(begin.elapsed());
        std::thread::sleep(left.min(step));
        let now = sample(source, topology, &mut finder)?;
        step_over(&last, &now, topology, &mut sets, &mut total, &mut system);
        last = now;
        if begin.elapsed() >= duration || stop() {
            break;
        }
    }
    Ok(result(&first, &last, topology, &total, system))
}

impl Sample {
    fn clone_light(&self) -> Sample {
        Sample { at_ns: self.at_ns, vms: self.vms.clone(), system: self.system, system_shares: self.system_shares, busy: self.busy.clone() }
    }
}

/// Affinity of threads, read anew every second.
#[derive(Default)]
struct Allowed {
    sets: BTreeMap<i32, PcpuSet>,
    read_ns: u64,
}

impl Allowed {
    fn of(&mut self, pid: i32, tid: i32, now_ns: u64, all: &PcpuSet) -> PcpuSet {
        if now_ns.saturating_sub(self.read_ns) > 1_000_000_000 {
            self.sets.clear();
            self.read_ns = now_ns;
        }
        let read = || discover::allowed(&Roots::default(), pid, tid).map_or_else(|| all.clone(), |s| s.and(all));
        self.sets.entry(tid).or_insert_with(read).clone()
    }
}

/// What each thread of a VM did in an interval, and how long it wanted a pCPU.
type Wants = BTreeMap<i32, (Thread, u64)>;

/// Adds one interval: what each thread did, and what its VM was entitled to by what it wanted.
fn step_over(
    a: &Sample,
    b: &Sample,
    topology: &Topology,
    sets: &mut Allowed,
    total: &mut BTreeMap<String, BTreeMap<i32, Thread>>,
    system: &mut Times,
) {
    let span = b.at_ns.saturating_sub(a.at_ns).max(1);
    let all = topology.online().clone();
    let mut claims = vec![];
    let mut wants: Vec<(&String, Wants)> = vec![];
    for (name, vm) in &b.vms {
        let before = a.vms.get(name);
        let mut threads = BTreeMap::new();
        let mut classes: Vec<(PcpuSet, u64)> = vec![];
        for (tid, thread) in &vm.threads {
            // A VM may be called otherwise by now, where another of its name has come or gone.
            let old = before.and_then(|v| v.threads.get(tid)).or_else(|| a.vms.values().find_map(|v| v.threads.get(tid)));
            // Of a VM that has just been found nobody knows what it did before: it counts from here.
            let unknown = || if before.is_some() { Times::default() } else { thread.times };
            let old = old.map_or_else(unknown, |t| t.times);
            let mut delta = minus(&thread.times, &old);
            if matches!(thread.kind, WorldKind::Vcpu) && delta.run_ns + delta.ready_ns > span {
                delta.ready_ns = span.saturating_sub(delta.run_ns); // two clocks were read a moment apart
            }
            let want = (delta.run_ns + delta.ready_ns).min(span);
            let set = sets.of(thread.pid, *tid, b.at_ns, &all);
            match classes.iter_mut().find(|c| c.0 == set) {
                Some(class) => class.1 += want,
                None => classes.push((set, want)),
            }
            threads.insert(*tid, (Thread { times: delta, ..thread.clone() }, want));
        }
        let rate = |ns: u64| Rate((u128::from(ns) * u128::from(Rate::ONE.0) / u128::from(span)) as u64);
        claims.push(FluidClaim { weight: u64::from(vm.shares), classes: classes.into_iter().map(|c| (c.0, rate(c.1))).collect() });
        wants.push((name, threads));
    }
    let host = minus(&b.system, &a.system);
    let rate = Rate((u128::from(host.used_ns) * u128::from(Rate::ONE.0) / u128::from(span)) as u64);
    claims.push(FluidClaim { weight: u64::from(b.system_shares.max(1)), classes: vec![(all, rate)] });
    let rates = fluid(topology.online(), &claims);
    for ((name, threads), rate) in wants.into_iter().zip(&rates) {
        let entitled = rate.over(units::Span::from_ns(span));
        let wanted: u64 = threads.values().map(|t| t.1).sum();
        let into = total.entry(name.clone()).or_default();
        for (tid, (mut thread, want)) in threads {
            thread.times.entitled_ns = (u128::from(entitled) * u128::from(want) / u128::from(wanted.max(1))) as u64;
            let sum = into.entry(tid).or_insert_with(|| Thread { times: Times::default(), ..thread.clone() });
            sum.name.clone_from(&thread.name);
            sum.kind = thread.kind;
            sum.times.add(&thread.times);
        }
    }
    system.add(&Times { entitled_ns: host.used_ns, ..host });
}

fn minus(a: &Times, b: &Times) -> Times {
    Times {
        used_ns: a.used_ns.saturating_sub(b.used_ns),
        run_ns: a.run_ns.saturating_sub(b.run_ns),
        ready_ns: a.ready_ns.saturating_sub(b.ready_ns),
        costop_ns: a.costop_ns.saturating_sub(b.costop_ns),
        limited_ns: a.limited_ns.saturating_sub(b.limited_ns),
        wait_ns: a.wait_ns.saturating_sub(b.wait_ns),
        idle_ns: a.idle_ns.saturating_sub(b.idle_ns),
        entitled_ns: 0,
        migrations: a.migrations.saturating_sub(b.migrations),
        work: a.work.saturating_sub(b.work),
    }
}

fn sample(source: &Source, topology: &Topology, finder: &mut Finder) -> Result<Sample, HostError> {
    match source {
        Source::Tandem(accounts) => tandem_sample(accounts, topology),
        Source::Kernel => Ok(kernel_sample(topology, finder)),
    }
}

fn tandem_sample(accounts: &Accounts, topology: &Topology) -> Result<Sample, HostError> {
    let names = Names::read()?;
    let stats: BTreeMap<u32, views::CpuStat> = names.vms.iter().filter_map(|v| Some((v.id, both_accounts(accounts, v)?))).collect();
    let at_ns = monotonic_ns();
    let mut vms: BTreeMap<u32, Sampled> = names
        .vms
        .iter()
        .map(|v| (v.id, Sampled { shares: v.shares, vcpus: v.vcpus, stat: stats.get(&v.id).copied(), threads: BTreeMap::new() }))
        .collect();
    let mut system = Times::default();
    for i in 1..accounts.worlds_len() {
        let Some(w) = accounts.world(i, at_ns) else { continue };
        let times = world_times(&w);
        if w.vm == sched_core::VM_SYSTEM {
            system.add(&times);
        } else if let Some(vm) = vms.get_mut(&w.vm) {
            let comm = String::from_utf8_lossy(&w.comm).trim_end_matches('\0').to_owned();
            let (name, kind) =
                if w.kind == sched_core::KIND_VCPU { (format!("vcpu{}", w.index), WorldKind::Vcpu) } else { (comm, WorldKind::Helper) };
            vm.threads.insert(w.pid as i32, Thread { name, kind, pid: w.tgid as i32, times });
        }
    }
    // Host tasks come and go by the thousand: the group's own counter misses none.
    let group = accounts.vm(0);
    system.used_ns = group.used_ns;
    let busy = (0..topology.pcpus()).map(|i| accounts.pcpu(i)).map(|p| {
        let running = if p.current_world == 0 { 0 } else { at_ns.saturating_sub(p.current_since_ns) };
        p.busy_ns + running
    });
    let told = told_apart(names.vms.iter().map(|v| (v.pid, v.name.as_str())));
    let pid = |id: &u32| names.vms.iter().find(|v| v.id == *id).map_or(0, |v| v.pid);
    let name = |id: &u32| told.get(&pid(id)).cloned().unwrap_or_default();
    Ok(Sample {
        at_ns,
        busy: busy.collect(),
        system,
        system_shares: names.system_shares,
        vms: vms.iter().map(|(id, v)| (name(id), v.clone())).collect(),
    })
}

/// A VM's CPU time by cpu.stat and by the scheduler, as close together as this process is let.
fn both_accounts(accounts: &Accounts, vm: &crate::VmName) -> Option<views::CpuStat> {
    /// Reading one file takes 0.1 ms; more means that we were interrupted in between.
    const CLOSE_NS: u64 = 1_000_000;
    let roots = Roots::default();
    let mut best: Option<(u64, views::CpuStat)> = None;
    for _ in 0..5 {
        let before = monotonic_ns();
        let kernel_ns = kernel_accounts::cgroup_usage(&roots, &vm.cgroup)?;
        let at = monotonic_ns();
        let running = |p: &sched_core::Pcpu| p.current_world != 0 && p.current_vm == vm.id;
        let pcpus = (0..accounts.host().pcpus as usize).map(|i| accounts.pcpu(i));
        // What runs now is charged from its last settlement on.
        let open: u64 = pcpus.filter(running).map(|p| at.saturating_sub(p.current_since_ns)).sum();
        let stat = views::CpuStat { kernel_ns, used_ns: accounts.vm(vm.id as usize).used_ns + open };
        let took = monotonic_ns() - before;
        if best.is_none_or(|b| took < b.0) {
            best = Some((took, stat));
        }
        if took < CLOSE_NS {
            break;
        }
    }
    best.map(|b| b.1)
}

fn world_times(w: &sched_core::World) -> Times {
    let t = |s: u32| w.time_ns[s as usize];
    let idle_ns = t(sched_core::STATE_WAIT_IDLE);
    Times {
        used_ns: w.used_ns,
        run_ns: t(sched_core::STATE_RUN),
        ready_ns: t(sched_core::STATE_READY),
        costop_ns: t(sched_core::STATE_COSTOP),
        wait_ns: t(sched_core::STATE_WAIT) + idle_ns,
        idle_ns,
        migrations: w.migrations,
        ..Times::default()
    }
}

fn kernel_sample(topology: &Topology, finder: &mut Finder) -> Sample {
    let roots = Roots::default();
    let found = finder.scan(&roots);
    let at_ns = monotonic_ns();
    let told = told_apart(found.iter().map(|v| (v.pid, v.name.as_str())));
    let mut vms = BTreeMap::new();
    for vm in found {
        let thread = |t: &discover::Thread| {
            let mut times = kernel_accounts::thread_times(&roots, vm.pid, t.tid)?;
            times.wait_ns = at_ns.saturating_sub(times.run_ns + times.ready_ns);
            times.idle_ns = if t.vcpu.is_some() { times.wait_ns } else { 0 };
            let (name, kind) = match t.vcpu {
                Some(n) => (format!("vcpu{n}"), WorldKind::Vcpu),
                None => (t.comm.clone(), WorldKind::Helper),
            };
            Some((t.tid, Thread { name, kind, pid: vm.pid, times }))
        };
        let threads = vm.threads.iter().filter_map(thread).collect();
        vms.insert(
            told[&vm.pid].clone(),
            Sampled { shares: vm.weight * crate::run::SHARES_PER_WEIGHT, vcpus: vm.vcpus(), stat: None, threads },
        );
    }
    let busy = kernel_accounts::pcpu_busy(&roots, at_ns);
    let used: u64 = vms.values().flat_map(|v| v.threads.values()).map(|t| t.times.run_ns).sum();
    let used_ns = busy.iter().sum::<u64>().saturating_sub(used);
    let system_shares = topology.online().len() as u32 * 1000;
    Sample { at_ns, vms, busy, system: Times { used_ns, run_ns: used_ns, ..Times::default() }, system_shares }
}

fn result(first: &Sample, last: &Sample, topology: &Topology, total: &BTreeMap<String, BTreeMap<i32, Thread>>, system: Times) -> RunResult {
    let mut root = Pool { path: "/".to_owned(), ..Pool::default() };
    let mut vms = vec![];
    let stat = |name: &String| {
        let (a, b) = (first.vms.get(name)?.stat?, last.vms.get(name)?.stat?);
        Some(views::CpuStat { kernel_ns: b.kernel_ns.saturating_sub(a.kernel_ns), used_ns: b.used_ns.saturating_sub(a.used_ns) })
    };
    for (name, threads) in total {
        let mut times = Times::default();
        threads.values().for_each(|t| times.add(&t.times));
        root.used_ns += times.used_ns;
        root.entitled_ns += times.entitled_ns;
        root.ready_ns += times.ready_ns;
        root.costop_ns += times.costop_ns;
        root.limited_ns += times.limited_ns;
        let known = last.vms.get(name).or_else(|| first.vms.get(name));
        vms.push(Vm {
            name: name.clone(),
            pool: "/".to_owned(),
            vcpus: known.map_or(0, |v| v.vcpus),
            shares: known.map_or(0, |v| u64::from(v.shares)),
            times,
            cpu_stat: stat(name),
            worlds: threads.values().map(|t| World { name: t.name.clone(), kind: t.kind, times: t.times }).collect(),
        });
    }
    let group = Pool {
        path: "/system".to_owned(),
        used_ns: system.used_ns,
        entitled_ns: system.entitled_ns,
        ready_ns: system.ready_ns,
        ..Pool::default()
    };
    let busy = |i: usize| last.busy.get(i).copied().unwrap_or(0).saturating_sub(first.busy.get(i).copied().unwrap_or(0));
    RunResult {
        label: String::new(),
        duration_ns: last.at_ns - first.at_ns,
        host: HostCounts::from(topology),
        pcpus: topology.online().iter().map(|p| usize::from(p.0)).map(|id| Pcpu { id, busy_ns: busy(id) }).collect(),
        pools: vec![root, group],
        vms,
    }
}
