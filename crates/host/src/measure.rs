//! Measures the CPU time, waits and entitlements of VMs over an interval on this host, by Tandem's
//! accounts or the kernel's own, as a result document. It reads only.

use crate::{
    HomesFile, HostError, Names, PoolName, VmName,
    ideal::{self, Allowed, Wants},
    peaks::Uses,
    sample::{Sample, Sampled, Seen, Thread},
};
use std::{collections::BTreeMap, time::Duration};
use topology::Topology;
use views::{HostCounts, NumaClient, Pcpu, Pool, RunResult, Times, Vm, World, WorldKind};

pub use crate::sample::Source;

/// What was measured.
pub struct Measured {
    /// The result.
    pub run: RunResult,
    /// Pools and VMs as they were at the end, with their settings.
    pub names: Names,
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
) -> Result<Measured, HostError> {
    measure_and(source, topology, (duration, step), stop, &mut || {})
}

/// The same, with something done at every look.
pub(crate) fn measure_and(
    source: &Source,
    topology: &Topology,
    (duration, step): (Duration, Duration),
    stop: &dyn Fn() -> bool,
    each: &mut dyn FnMut(),
) -> Result<Measured, HostError> {
    let mut seen = Seen::default();
    let first = source.sample(topology, &mut seen)?;
    let begin = std::time::Instant::now();
    let mut sums = Sums::default();
    sums.begin(&first);
    let mut last = first.clone();
    loop {
        each();
        let left = duration.saturating_sub(begin.elapsed());
        std::thread::sleep(left.min(step));
        let now = source.sample(topology, &mut seen)?;
        sums.step(&last, &now, topology);
        last = now;
        if begin.elapsed() >= duration || stop() {
            break;
        }
    }
    Ok(Measured { run: sums.result(&first, &last, topology), names: last.names })
}

/// What threads, host tasks and pools did so far.
#[derive(Default)]
struct Sums {
    sets: Allowed,
    vms: BTreeMap<String, BTreeMap<i32, Thread>>,
    system: Times,
    /// Of each pool with a limit, by path.
    uses: BTreeMap<String, Uses>,
}

impl Sums {
    fn begin(&mut self, first: &Sample) {
        for pool in first.names.pools.iter().filter(|p| p.limit.is_some()) {
            self.uses.entry(pool.path.clone()).or_default().add(first.at_ns, 0);
        }
    }

    /// Adds one interval: what each thread did, and what its VM was entitled to by what it wanted.
    fn step(&mut self, a: &Sample, b: &Sample, topology: &Topology) {
        let span = b.at_ns.saturating_sub(a.at_ns).max(1);
        let (all, domains) = (topology.online(), topology.domains());
        let mut wants = vec![];
        let mut deltas = vec![];
        for name in &b.called {
            let mut wanted = Wants::default();
            let threads = did(a, b, name, span);
            for (tid, (thread, want)) in &threads {
                let set = self.sets.of(thread.pid, *tid, b.at_ns, all);
                wanted.add(ideal::at_home(set, thread.home, &domains), *want);
            }
            wants.push(wanted);
            deltas.push(threads);
        }
        let host = minus(&b.system, &a.system);
        let entitled = ideal::entitled(&b.names, all, span, host.run_ns, &wants);
        let mut used: BTreeMap<&str, u64> = BTreeMap::new();
        for ((vm, name), (threads, entitled)) in
            b.names.vms.iter().zip(&b.called).zip(deltas.into_iter().zip(entitled))
        {
            let wanted: u64 = threads.values().map(|t| t.1).sum();
            let into = self.vms.entry(name.clone()).or_default();
            for (tid, (mut thread, want)) in threads {
                thread.times.entitled_ns =
                    (u128::from(entitled) * u128::from(want) / u128::from(wanted.max(1))) as u64;
                *used.entry(vm.pool.as_str()).or_default() += thread.times.used_ns;
                let sum = into
                    .entry(tid)
                    .or_insert_with(|| Thread { times: Times::default(), ..thread.clone() });
                sum.name.clone_from(&thread.name);
                sum.kind = thread.kind;
                sum.times.add(&thread.times);
            }
        }
        self.system.add(&Times { entitled_ns: host.used_ns, ..host });
        for pool in b.names.pools.iter().filter(|p| p.limit.is_some()) {
            let below: u64 =
                used.iter().filter(|(path, _)| is_in(path, &pool.path)).map(|(_, ns)| ns).sum();
            self.uses.entry(pool.path.clone()).or_default().add(b.at_ns, below);
        }
    }

    fn result(&self, first: &Sample, last: &Sample, topology: &Topology) -> RunResult {
        let stat = |name: &String| both_accounts(first.vms.get(name)?, last.vms.get(name)?);
        let homes = HomesFile::read(last.names.daemon);
        let vm = |(name, threads): (&String, &BTreeMap<i32, Thread>)| {
            let mut times = Times::default();
            threads.values().for_each(|t| times.add(&t.times));
            let known = [last, first]
                .into_iter()
                .find_map(|s| Some(&s.names.vms[s.called.iter().position(|n| n == name)?]));
            Vm {
                name: name.clone(),
                pool: known.map_or("/", |v| &v.pool).to_owned(),
                vcpus: known.map_or(0, |v| v.vcpus),
                shares: known.map_or(0, |v| u64::from(v.shares)),
                times,
                cpu_stat: stat(name),
                guest: None,
                numa: known.map_or(vec![], |v| clients(homes.as_ref(), v)),
                worlds: threads
                    .values()
                    .map(|t| World { name: t.name.clone(), kind: t.kind, times: t.times })
                    .collect(),
            }
        };
        let vms: Vec<Vm> = self.vms.iter().map(vm).collect();
        let busy = |i: usize| {
            last.busy
                .get(i)
                .copied()
                .unwrap_or(0)
                .saturating_sub(first.busy.get(i).copied().unwrap_or(0))
        };
        RunResult {
            label: String::new(),
            duration_ns: last.at_ns - first.at_ns,
            host: HostCounts::from(topology),
            pcpus: topology
                .online()
                .iter()
                .map(|p| usize::from(p.0))
                .map(|id| Pcpu { id, busy_ns: busy(id) })
                .collect(),
            pools: self.pools(&last.names, &vms),
            vms,
            wakeups: vec![],
            checked: None,
        }
    }

    /// The root with all VMs, the system group, then the other pools; each with everything below
    /// it.
    fn pools(&self, names: &Names, vms: &[Vm]) -> Vec<Pool> {
        let sum = |path: &str| {
            let mut t = Times::default();
            vms.iter().filter(|vm| is_in(&vm.pool, path)).for_each(|vm| t.add(&vm.times));
            of(path, &t)
        };
        let peak_ns = |p: &PoolName| p.limit.and_then(|_| self.uses.get(&p.path)?.peak());
        let first = [sum("/"), of("/system", &self.system)];
        first
            .into_iter()
            .chain(names.pools.iter().skip(1).map(|p| Pool { peak_ns: peak_ns(p), ..sum(&p.path) }))
            .collect()
    }
}

/// What the kernel and the accounts say of the time between two samples; of waits, of threads that
/// were there at both.
fn both_accounts(a: &Sampled, b: &Sampled) -> Option<views::CpuStat> {
    let (x, y) = (a.stat?, b.stat?);
    let delays = b.delays.iter().filter_map(|(tid, late)| Some((a.delays.get(tid)?, late)));
    let [kernel_delay_ns, delay_ns, waits] =
        delays.fold([0; 3], |sum, (early, late): (&[u64; 3], &[u64; 3])| {
            std::array::from_fn(|i| sum[i] + late[i].saturating_sub(early[i]))
        });
    let (kernel_ns, used_ns) =
        (y.kernel_ns.saturating_sub(x.kernel_ns), y.used_ns.saturating_sub(x.used_ns));
    Some(views::CpuStat { kernel_ns, used_ns, kernel_delay_ns, delay_ns, waits })
}

fn of(path: &str, t: &Times) -> Pool {
    let Times { used_ns, entitled_ns, ready_ns, costop_ns, limited_ns, .. } = *t;
    Pool {
        path: path.to_owned(),
        used_ns,
        entitled_ns,
        ready_ns,
        costop_ns,
        limited_ns,
        peak_ns: None,
    }
}

/// Whether the pool at `path` is `pool` or below it.
fn is_in(path: &str, pool: &str) -> bool {
    let below = pool.trim_end_matches('/');
    path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What each thread of a VM did in an interval, and how long it wanted a pCPU.
fn did(a: &Sample, b: &Sample, name: &str, span: u64) -> BTreeMap<i32, (Thread, u64)> {
    let before = a.vms.get(name);
    let mut out = BTreeMap::new();
    for (tid, thread) in b.vms.get(name).into_iter().flat_map(|vm| &vm.threads) {
        // A VM may be called otherwise by now, where another of its name has come or gone.
        let old = before
            .and_then(|v| v.threads.get(tid))
            .or_else(|| a.vms.values().find_map(|v| v.threads.get(tid)));
        // The past of a VM that has just been found is unknown: it counts from here.
        let unknown = || if before.is_some() { Times::default() } else { thread.times };
        let old = old.map_or_else(unknown, |t| t.times);
        let mut delta = minus(&thread.times, &old);
        if matches!(thread.kind, WorldKind::Vcpu) && delta.run_ns + delta.ready_ns > span {
            // two clocks were read a moment apart
            delta.ready_ns = span.saturating_sub(delta.run_ns);
        }
        delta.limited_ns = delta.limited_ns.min(delta.ready_ns);
        let want = (delta.run_ns + delta.ready_ns).min(span);
        out.insert(*tid, (Thread { times: delta, ..thread.clone() }, want));
    }
    out
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
        lost: None,
        moved: None,
    }
}

/// NUMA clients of a VM, if the daemon gives it homes.
fn clients(homes: Option<&HomesFile>, vm: &VmName) -> Vec<NumaClient> {
    let all = homes.map_or(&[][..], |f| &f.vms);
    let found = all.iter().find(|h| (h.pid, h.started) == (vm.pid, vm.started));
    found.map_or(vec![], |h| h.clients.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, VmName};
    use topology::Shape;
    use units::Rate;

    const MS: u64 = 1_000_000;

    fn pool(path: &str, parent: &str, limit: Option<u64>) -> PoolName {
        let (path, parent) = (path.to_owned(), parent.to_owned());
        let (limit, sources) = (limit.map(Rate::pcpus), Sources::new());
        PoolName {
            path,
            parent,
            shares: 4000,
            reservation: Rate(0),
            limit,
            burst_ns: 0,
            expandable: true,
            scalable: false,
            sources,
        }
    }

    fn vm(id: u32, pool: &str) -> VmName {
        VmName {
            id,
            name: format!("vm{id}"),
            pid: id as i32 * 10,
            started: 0,
            pool: pool.to_owned(),
            shares: 1000,
            reservation: Rate(0),
            limit: None,
            burst_ns: 0,
            vcpus: 1,
            weight: 0,
            cgroup: String::new(),
            sources: Sources::new(),
        }
    }

    /// Four pCPUs; in /lab (limit 1) vm1 and, below it, vm2; beside it vm3. Each has used and been
    /// ready for so much.
    fn sample(at_ms: u64, times: [(u64, u64); 3]) -> Sample {
        let pools = vec![
            pool("/", "/", None),
            pool("/lab", "/", Some(1)),
            pool("/lab/x", "/lab", None),
            pool("/labx", "/", None),
        ];
        let names = Names {
            pcpus: 4,
            system_shares: 4000,
            pools,
            vms: vec![vm(1, "/lab"), vm(2, "/lab/x"), vm(3, "/labx")],
            ..Names::default()
        };
        let called = names.called();
        let thread = |(run, ready): (u64, u64)| Thread {
            name: "vcpu0".to_owned(),
            kind: WorldKind::Vcpu,
            pid: 0, // no thread of this machine: it may run anywhere
            home: u64::MAX,
            times: Times {
                used_ns: run * MS,
                run_ns: run * MS,
                ready_ns: ready * MS,
                limited_ns: ready * 2 * MS,
                ..Times::default()
            },
        };
        let vms = called.iter().zip(times).enumerate();
        let vms = vms.map(|(i, (name, t))| {
            (
                name.clone(),
                Sampled {
                    threads: BTreeMap::from([(-1 - i as i32, thread(t))]),
                    ..Sampled::default()
                },
            )
        });
        Sample {
            at_ns: at_ms * MS,
            vms: vms.collect(),
            called,
            names,
            system: Times::default(),
            busy: vec![0; 4],
        }
    }

    #[test]
    fn pools_are_sums_of_what_is_below_them_with_their_peaks() {
        let shape = Shape {
            sockets: 1,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: 4,
            threads_per_core: 1,
        };
        let topology = Topology::regular(shape).unwrap();
        let steps = [
            sample(0, [(0, 0), (0, 0), (0, 0)]),
            sample(500, [(200, 300), (300, 200), (500, 0)]),
            sample(1000, [(500, 500), (600, 400), (1000, 0)]),
            sample(1500, [(700, 800), (700, 800), (1500, 0)]),
        ];
        let mut sums = Sums::default();
        sums.begin(&steps[0]);
        steps.windows(2).for_each(|w| sums.step(&w[0], &w[1], &topology));
        let run = sums.result(&steps[0], &steps[3], &topology);
        let seen: Vec<_> = run
            .pools
            .iter()
            .map(|p| {
                (p.path.as_str(), p.used_ns / MS, p.entitled_ns / MS, p.peak_ns.map(|n| n / MS))
            })
            .collect();
        // /lab used 0.5, 0.6 and 0.3 s in half a second each; its pCPU goes 1:4 to vm1 and /lab/x.
        assert_eq!(
            seen,
            [
                ("/", 2900, 3000, None),
                ("/system", 0, 0, None),
                ("/lab", 1400, 1500, Some(1100)),
                ("/lab/x", 700, 1200, None),
                ("/labx", 1500, 1500, None)
            ]
        );
        let vms: Vec<_> = run
            .vms
            .iter()
            .map(|v| {
                (v.name.as_str(), v.pool.as_str(), v.times.limited_ns / MS, v.times.ready_ns / MS)
            })
            .collect();
        assert_eq!(
            vms,
            [("vm1", "/lab", 800, 800), ("vm2", "/lab/x", 800, 800), ("vm3", "/labx", 0, 0)]
        );
    }

    #[test]
    fn a_pool_is_in_those_above_it_and_in_no_other() {
        let seen =
            [("/a/b", "/a"), ("/a", "/a"), ("/a", "/"), ("/", "/"), ("/ab", "/a"), ("/a", "/a/b")]
                .map(|(p, q)| is_in(p, q));
        assert_eq!(seen, [true, true, true, true, false, false]);
    }
}
