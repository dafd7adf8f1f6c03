//! Reads all accounts at one moment, Tandem's or the kernel's own, together with the tree of pools
//! that they belong to.

use crate::{
    Accounts, HostError, Names, Speed, Trust, VmName, Which,
    cgroups::Cgroups,
    discover::{self, Finder, Roots},
    found::comm_of,
    kernel_accounts,
    layout::{Known, layout},
    view::monotonic_ns,
};
use settings::LiveSettings;
use std::collections::BTreeMap;
use topology::Topology;
use views::{Times, WorldKind};

/// Whose accounts are read.
pub enum Source {
    /// The scheduler's own.
    Tandem(Box<Accounts>),
    /// The kernel's, under any scheduler.
    Kernel,
}

/// A thread within one sample.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) kind: WorldKind,
    pub(crate) pid: i32,
    /// Its home: a bit for each domain, or all (sched/law/home.h).
    pub(crate) home: u64,
    pub(crate) times: Times,
}

/// A VM within one sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampled {
    pub(crate) stat: Option<views::CpuStat>,
    /// Of each thread: how long it has waited for a pCPU by the kernel and by the scheduler, waits
    /// under way left out.
    pub(crate) delays: BTreeMap<i32, [u64; 3]>,
    pub(crate) threads: BTreeMap<i32, Thread>,
}

/// Everything at one moment.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) at_ns: u64,
    /// Pools and VMs with their settings.
    pub(crate) names: Names,
    /// What the VMs are called, in the order of `names`.
    pub(crate) called: Vec<String>,
    /// The VMs by that name.
    pub(crate) vms: BTreeMap<String, Sampled>,
    pub(crate) system: Times,
    pub(crate) busy: Vec<u64>,
}

/// What is remembered between two samples of the kernel's accounts.
#[derive(Default)]
pub(crate) struct Seen {
    finder: Finder,
    speed: Option<Speed>,
}

impl Source {
    /// Everything now.
    ///
    /// # Errors
    /// `HostError` when the daemon's accounts cannot be read, or were not in force to the end.
    pub(crate) fn sample(&self, topology: &Topology, seen: &mut Seen) -> Result<Sample, HostError> {
        match self {
            Source::Tandem(accounts) => of_tandem(accounts, topology),
            Source::Kernel => Ok(of_kernel(topology, seen)),
        }
    }
}

fn of_tandem(accounts: &Accounts, topology: &Topology) -> Result<Sample, HostError> {
    let names = Names::read()?;
    let called = names.called();
    let stats: Vec<_> = names.vms.iter().map(|v| both_accounts(accounts, v)).collect();
    let (at_ns, worlds) = worlds(accounts);
    let mut vms: BTreeMap<u32, Sampled> = names
        .vms
        .iter()
        .zip(stats)
        .map(|(v, stat)| (v.id, Sampled { stat, ..Sampled::default() }))
        .collect();
    let process: BTreeMap<u32, i32> = names.vms.iter().map(|v| (v.id, v.pid)).collect();
    // Host tasks come and go by the thousand: the group's own counters miss none.
    let group = accounts.vm(0);
    let mut system_lost_ns = group.past_lost_ns;
    let mut system = Times::default();
    let delays = both_delays(accounts, &worlds);
    for (i, mut w) in worlds {
        w.lost_ns += accounts.losing_ns(&w, at_ns, names.charge());
        let times = world_times(&w, at_ns);
        if w.vm == sched_core::VM_SYSTEM {
            system.add(&times);
            system_lost_ns += w.lost_ns;
        } else if let Some(vm) = vms.get_mut(&w.vm) {
            if let Some(stat) =
                vm.stat.as_mut().filter(|_| process.get(&w.vm) != Some(&(w.tgid as i32)))
            {
                // A kernel thread works for the VM, and is in no cgroup of it.
                stat.used_ns = stat.used_ns.saturating_sub(w.used_ns);
            }
            let comm = comm_of(&w.comm);
            let (name, kind) = if sched_core::is_vcpu(w.kind) {
                (format!("vcpu{}", w.index), WorldKind::Vcpu)
            } else {
                (comm, WorldKind::Helper)
            };
            vm.delays.extend(delays.get(&i).map(|d| (w.pid as i32, *d)));
            vm.threads.insert(
                w.pid as i32,
                Thread { name, kind, pid: w.tgid as i32, home: w.home, times },
            );
        }
    }
    system.run_ns = group.used_ns;
    system.used_ns = group.used_ns.saturating_sub(system_lost_ns);
    let busy = (0..topology.pcpus()).map(|i| accounts.pcpu(i)).map(|p| {
        let running =
            if p.current_world == 0 { 0 } else { at_ns.saturating_sub(p.current_since_ns) };
        p.busy_ns + running
    });
    let busy = busy.collect();
    let vms = names
        .vms
        .iter()
        .zip(&called)
        .map(|(v, name)| (name.clone(), vms.remove(&v.id).unwrap_or_default()))
        .collect();
    // Records that are mapped stay as they were when the scheduler has been ended.
    accounts.check()?;
    Ok(Sample { at_ns, names, called, vms, system, busy })
}

/// All worlds at one moment, with their slots: copied in one go, for an interruption would show
/// later worlds at a later time, after 5 ms of 8 pCPUs for example; that would look like a limit
/// exceeded.
fn worlds(accounts: &Accounts) -> (u64, Vec<(usize, sched_core::World)>) {
    let mut best: Option<(u64, u64, Vec<_>)> = None;
    for _ in 0..5 {
        let at_ns = monotonic_ns();
        let seen: Vec<_> = (1..accounts.worlds_len())
            .filter_map(|i| Some((i, accounts.world(i, at_ns)?)))
            .collect();
        let took = monotonic_ns() - at_ns;
        if best.as_ref().is_none_or(|b| took < b.0) {
            best = Some((took, at_ns, seen));
        }
        if took < CLOSE_NS {
            break;
        }
    }
    best.map(|b| (b.1, b.2)).unwrap_or_default()
}

/// Reading one file or all worlds takes 0.1 ms; more means that we were interrupted in between.
const CLOSE_NS: u64 = 1_000_000;

/// The wall clock, in s since 1970 UTC.
pub(crate) fn wall() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

/// A VM's CPU time by cpu.stat and by the scheduler, as close together as this process is let.
fn both_accounts(accounts: &Accounts, vm: &VmName) -> Option<views::CpuStat> {
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
        let used_ns = accounts.vm(vm.id as usize).used_ns + open;
        let stat = views::CpuStat { kernel_ns, used_ns, ..views::CpuStat::default() };
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

/// How long the threads of VMs have waited so far by their schedstat and by the scheduler, and how
/// often they were switched to, by slot: read where neither changes, one after the other, and again
/// what changed meanwhile. What changes each time is left out.
fn both_delays(
    accounts: &Accounts,
    worlds: &[(usize, sched_core::World)],
) -> BTreeMap<usize, [u64; 3]> {
    let mut found = BTreeMap::new();
    let of_vms = |(_, w): &&(usize, sched_core::World)| w.vm != sched_core::VM_SYSTEM;
    let mut left: Vec<_> = worlds.iter().filter(of_vms).collect();
    for _ in 0..5 {
        left.retain(|(i, w)| match both_delays_of(accounts, *i, w) {
            Reading::Both(delays) => found.insert(*i, delays).is_some(),
            Reading::Changes => true,
            Reading::Gone => false,
        });
        if left.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_nanos(SWITCHED_NS / 2));
    }
    found
}

/// The kernel ends a thread's wait in its schedstat when it switches to it, the scheduler a moment
/// before, in `running`. An emulated pCPU may stand still in between while the others run, for as
/// long as a tick.
const SWITCHED_NS: u64 = 5_000_000;

/// What two accounts say of the waits of a thread.
enum Reading {
    Both([u64; 3]),
    /// They changed meanwhile, or one of them may have and the other not yet.
    Changes,
    Gone,
}

fn both_delays_of(accounts: &Accounts, i: usize, w: &sched_core::World) -> Reading {
    let same = || accounts.settled(i).filter(|x| x.pid == w.pid);
    let Some(before) = same() else { return Reading::Gone };
    let stat = kernel_accounts::thread_stat(&Roots::default(), w.tgid as i32, w.pid as i32);
    let (Some([_, kernel, switches]), Some(after)) = (stat, same()) else { return Reading::Gone };
    if before.seq == after.seq && !just_switched(&after, monotonic_ns()) {
        Reading::Both([kernel, waited(&after), switches])
    } else {
        Reading::Changes
    }
}

/// Whether the kernel may not have switched yet to what the scheduler says is running.
fn just_switched(w: &sched_core::World, now_ns: u64) -> bool {
    w.state == sched_core::STATE_RUN && now_ns.saturating_sub(w.state_since_ns) < SWITCHED_NS
}

/// How long a world has waited as the kernel counts it. The kernel's CPU time begins when it picks
/// the thread, RUN when the scheduler hears of it: what was executed before RUN is no wait.
fn waited(w: &sched_core::World) -> u64 {
    let t = |s: u32| w.time_ns[s as usize];
    let under_way = w.run_since_ns.saturating_sub(w.state_since_ns);
    let charged = if w.state == sched_core::STATE_RUN { under_way } else { 0 };
    let before_run = w.used_ns.saturating_sub(t(sched_core::STATE_RUN) + charged);
    (t(sched_core::STATE_READY) + t(sched_core::STATE_COSTOP)).saturating_sub(before_run)
}

/// A world's times up to now, what is not completed yet included; `used_ns` is what it is charged,
/// without what it lost to other threads of its core.
fn world_times(w: &sched_core::World, now_ns: u64) -> Times {
    let t = |s: u32| w.time_ns[s as usize];
    let idle_ns = t(sched_core::STATE_WAIT_IDLE);
    let parked_ns = if w.parked_ns == 0 { 0 } else { now_ns.saturating_sub(w.parked_ns) };
    Times {
        used_ns: w.used_ns.saturating_sub(w.lost_ns),
        run_ns: t(sched_core::STATE_RUN),
        ready_ns: t(sched_core::STATE_READY),
        costop_ns: t(sched_core::STATE_COSTOP),
        limited_ns: w.limited_ns + parked_ns,
        wait_ns: t(sched_core::STATE_WAIT) + idle_ns,
        idle_ns,
        migrations: w.migrations,
        ..Times::default()
    }
}

fn of_kernel(topology: &Topology, seen: &mut Seen) -> Sample {
    let roots = Roots::default();
    let found = seen.finder.scan(&roots, Which::All);
    let speed = *seen.speed.get_or_insert_with(|| Speed::of(&roots, None));
    let settings = LiveSettings::default();
    let cgroups = Cgroups::read(&roots, &found, &settings, &Trust::default());
    let pcpus = topology.online().len() as u32;
    let known = Known { settings: &settings, speed, pcpus, system_shares: pcpus * 1000 };
    let mut names = layout(&found, &cgroups, &known).map(|l| l.names).unwrap_or_default();
    names.vms.iter_mut().zip(1..).for_each(|(vm, id)| vm.id = id);
    let called = names.called();
    let at_ns = monotonic_ns();
    let thread = |vm: &discover::FoundVm, t: &discover::Thread| {
        let mut times = kernel_accounts::thread_times(&roots, t.pid, t.tid)?;
        times.wait_ns = at_ns.saturating_sub(times.run_ns + times.ready_ns);
        times.idle_ns = if t.vcpu.is_some() { times.wait_ns } else { 0 };
        let (name, kind) = match t.vcpu {
            Some(n) => (format!("vcpu{n}"), WorldKind::Vcpu),
            None => (t.comm.clone(), WorldKind::Helper),
        };
        Some((t.tid, Thread { name, kind, pid: vm.pid, home: u64::MAX, times }))
    };
    let sampled = |vm: &discover::FoundVm| Sampled {
        threads: vm.threads.iter().filter_map(|t| thread(vm, t)).collect(),
        ..Sampled::default()
    };
    let vms: BTreeMap<String, Sampled> =
        found.iter().zip(&called).map(|(vm, name)| (name.clone(), sampled(vm))).collect();
    let busy = kernel_accounts::pcpu_busy(&roots, at_ns);
    let used: u64 = vms.values().flat_map(|v| v.threads.values()).map(|t| t.times.run_ns).sum();
    let used_ns = busy.iter().sum::<u64>().saturating_sub(used);
    Sample {
        at_ns,
        names,
        called,
        vms,
        system: Times { used_ns, run_ns: used_ns, ..Times::default() },
        busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_a_limit_holds_back_counts_while_it_does() {
        let mut w = sched_core::World { limited_ns: 40, ..sched_core::World::ZERO };
        assert_eq!(world_times(&w, 1000).limited_ns, 40);
        w.parked_ns = 900;
        assert_eq!(world_times(&w, 1000).limited_ns, 140);
        assert_eq!(world_times(&w, 800).limited_ns, 40, "read a moment apart");
    }

    #[test]
    fn a_wait_that_has_just_ended_may_be_open_by_the_kernels_account() {
        let run = sched_core::World {
            state: sched_core::STATE_RUN,
            state_since_ns: 1000,
            ..sched_core::World::ZERO
        };
        assert!(just_switched(&run, 1000) && just_switched(&run, 999));
        assert!(!just_switched(&run, 1000 + SWITCHED_NS));
        let waits = sched_core::World { state: sched_core::STATE_READY, ..run };
        assert!(!just_switched(&waits, 1000));
    }

    #[test]
    fn what_is_lost_to_another_thread_of_the_core_is_run_and_not_used() {
        let mut w = sched_core::World { used_ns: 80, lost_ns: 30, ..sched_core::World::ZERO };
        w.time_ns[sched_core::STATE_RUN as usize] = 80;
        let times = world_times(&w, 1000);
        assert_eq!((times.used_ns, times.run_ns), (50, 80));
    }

    #[test]
    fn cpu_time_before_run_is_no_wait_and_a_charge_within_run_is_not_before_it() {
        let mut w = sched_core::World::ZERO;
        w.time_ns[sched_core::STATE_READY as usize] = 100;
        w.time_ns[sched_core::STATE_COSTOP as usize] = 20;
        w.time_ns[sched_core::STATE_RUN as usize] = 50;
        w.used_ns = 50;
        assert_eq!(waited(&w), 120);
        w.used_ns = 65;
        assert_eq!(waited(&w), 105, "15 ns from the pick to RUN");
        w.used_ns = 45;
        assert_eq!(waited(&w), 120, "5 ns of interrupts are no wait");
        // It runs since 1,000 and was charged at 1,010.
        (w.state, w.state_since_ns, w.run_since_ns) = (sched_core::STATE_RUN, 1_000, 1_010);
        w.used_ns = 75;
        assert_eq!(waited(&w), 105);
    }
}
