//! The result document of a run: what worlds and pCPUs did between the end of the warm-up and the
//! end.

use super::Engine;
use crate::cast::Vm as Member;
use crate::kernel::Seat;
use crate::truth::PcpuTimes;
use contract::Scheduler;
use settings::{PlacedPool, Run};
use std::ops::Range;
use views::{
    Guest, GuestTasks, HostCounts, Latencies, MeasuredBy, Pcpu, Pool, RunResult, Times, Vm,
    Wakeups, World, WorldKind,
};

/// All accounts at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    worlds: Vec<Times>,
    entitled: Vec<u64>,
    pcpus: Vec<PcpuTimes>,
    guests: Vec<Option<Guest>>,
}

impl<P: Scheduler> Engine<P> {
    /// All accounts now.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let pcpus = self.kernel.pcpus();
        (0..pcpus).for_each(|p| self.account(p));
        let entitled = self.books.entitled(self.kernel.now(), self.cast.vms().len());
        self.update();
        let world = |w: usize| match self.kernel.seat(w as u32) {
            Seat::Off => self.books.times_of_gone(w as u32),
            _ => self.books.times(self.kernel.now(), w as u32, self.cast.output(w as u32)),
        };
        let pcpu = |p: u32| self.books.truth().pcpu(self.kernel.now(), p);
        Snapshot {
            worlds: (0..self.cast.worlds().end as usize).map(world).collect(),
            entitled,
            pcpus: (0..pcpus).map(pcpu).collect(),
            guests: (0..self.cast.vms().len())
                .map(|vm| self.cast.guest(vm, &self.kernel))
                .collect(),
        }
    }

    /// Names, kinds and VMs of a run around the difference of two snapshots; and what each pCPU
    /// did.
    pub(crate) fn result(&mut self, run: &Run, duration_ns: u64) -> (RunResult, Vec<PcpuTimes>) {
        let end = self.snapshot();
        let start = self.start.take().unwrap_or_default();
        let engine = &*self;
        let zero = Times::default();
        let world = |w: u32| World {
            name: engine.cast.spec(w).name.clone(),
            kind: if engine.cast.is_vcpu(w) { WorldKind::Vcpu } else { WorldKind::Task },
            times: less(&end.worlds[w as usize], start.worlds.get(w as usize).unwrap_or(&zero)),
        };
        let vm = |i: usize| {
            let member = engine.cast.vm(i as u32);
            let worlds: Vec<World> = member.worlds.clone().map(world).collect();
            let mut times = Times::default();
            worlds.iter().for_each(|w| times.add(&w.times));
            // The ideal of a VM is exact, its parts for the worlds are not.
            times.entitled_ns =
                end.entitled[i].saturating_sub(start.entitled.get(i).copied().unwrap_or(0));
            Vm {
                name: member.name.clone(),
                pool: engine.planner.pools()[member.pool].path.clone(),
                vcpus: member.vcpus,
                shares: u64::from(member.resources.shares),
                times,
                cpu_stat: None,
                guest: end.guests[i]
                    .map(|g| since(g, start.guests.get(i).copied().flatten().unwrap_or_default())),
                worlds,
                numa: engine.numa_result(i as u32),
            }
        };
        let system = vm(0);
        let vms: Vec<Vm> = (1..engine.cast.vms().len()).map(vm).collect();
        let pcpu = |(id, times): (usize, &PcpuTimes)| {
            times.since(start.pcpus.get(id).copied().unwrap_or_default())
        };
        let pcpus: Vec<PcpuTimes> = end.pcpus.iter().enumerate().map(pcpu).collect();
        let result = RunResult {
            label: run.label.clone(),
            duration_ns,
            host: HostCounts::from(&run.topology),
            pcpus: (0..).zip(&pcpus).map(|(id, p)| Pcpu { id, busy_ns: p.busy_ns }).collect(),
            pools: pools(engine.planner.pools(), &engine.books.pool_peaks(), &vms, &system),
            vms,
            wakeups: wakeups(engine),
            checked: None,
        };
        (result, pcpus)
    }
}

/// Counts since an earlier look; the longest wait has been counted anew from there on.
fn since(now: Guest, before: Guest) -> Guest {
    Guest {
        spin_ns: now.spin_ns - before.spin_ns,
        rounds: now.rounds - before.rounds,
        lockups: now.lockups - before.lockups,
        longest_wait_ns: now.longest_wait_ns,
        tasks: now.tasks.map(|t| tasks_since(t, before.tasks.unwrap_or_default())),
    }
}

fn tasks_since(now: GuestTasks, before: GuestTasks) -> GuestTasks {
    GuestTasks {
        migrations: now.migrations - before.migrations,
        exec_migrations: now.exec_migrations - before.exec_migrations,
        pulls: now.pulls - before.pulls,
        interrupts: now.interrupts - before.interrupts,
    }
}

fn less(a: &Times, b: &Times) -> Times {
    Times {
        used_ns: a.used_ns.saturating_sub(b.used_ns),
        run_ns: a.run_ns.saturating_sub(b.run_ns),
        ready_ns: a.ready_ns.saturating_sub(b.ready_ns),
        costop_ns: a.costop_ns.saturating_sub(b.costop_ns),
        limited_ns: a.limited_ns.saturating_sub(b.limited_ns),
        wait_ns: a.wait_ns.saturating_sub(b.wait_ns),
        idle_ns: a.idle_ns.saturating_sub(b.idle_ns),
        entitled_ns: a.entitled_ns.saturating_sub(b.entitled_ns),
        migrations: a.migrations.saturating_sub(b.migrations),
        work: a.work.saturating_sub(b.work),
        lost: a.lost.map(|lost| lost.since(&b.lost.unwrap_or_default())),
        moved: a.moved.map(|moved| moved.since(&b.moved.unwrap_or_default())),
    }
}

/// Wake-ups of each VM's vCPUs and of host tasks that others wake, by the workload and by the
/// scheduler. A timer fires when it is due; a vCPU is READY when its path is over, any other world
/// at once, and own work begins a switch after it runs.
fn wakeups<P>(engine: &Engine<P>) -> Vec<Wakeups> {
    let of = |name: &str, worlds: Range<u32>| {
        let (mut late, mut waited) = (Latencies::default(), Latencies::default());
        for w in worlds {
            late.merge(engine.cast.late(w));
            waited.merge(engine.cast.waited(w));
        }
        let late = late.sums(name, MeasuredBy::Workload, 1, engine.costs.switch_ns);
        late.into_iter().chain(waited.sums(name, MeasuredBy::Scheduler, 1, 0))
    };
    let vm = |member: &Member| of(&member.name, member.worlds.clone());
    let task = |w: u32| of(&engine.cast.spec(w).name, w..w + 1);
    let in_pipe = engine.cast.vm(0).worlds.clone().filter(|w| engine.cast.in_pipe(*w));
    engine.cast.vms()[1..].iter().flat_map(vm).chain(in_pipe.flat_map(task)).collect()
}

/// The root, the system group, then the other pools; each with everything below it.
fn pools(all: &[PlacedPool], peaks: &[(usize, u64)], vms: &[Vm], system: &Vm) -> Vec<Pool> {
    let inside = |(i, p): (usize, &PlacedPool)| {
        let below = format!("{}/", p.path);
        let sums = pool(
            &p.path,
            vms.iter().filter(move |vm| vm.pool == p.path || vm.pool.starts_with(&below)),
        );
        Pool { peak_ns: peaks.iter().find(|x| x.0 == i).map(|x| x.1), ..sums }
    };
    let first = [pool("/", vms.iter().chain([system])), pool("/system", [system])];
    first.into_iter().chain(all.iter().enumerate().skip(1).map(inside)).collect()
}

fn pool<'v>(path: &str, vms: impl IntoIterator<Item = &'v Vm>) -> Pool {
    let mut t = Times::default();
    vms.into_iter().for_each(|vm| t.add(&vm.times));
    Pool {
        path: path.to_owned(),
        used_ns: t.used_ns,
        entitled_ns: t.entitled_ns,
        ready_ns: t.ready_ns,
        costop_ns: t.costop_ns,
        limited_ns: t.limited_ns,
        peak_ns: None,
    }
}
