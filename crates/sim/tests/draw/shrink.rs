//! Makes a host that fails smaller, a step at a time, as long as it fails in the same way: what is
//! left is what the fault needs.

use super::case::Case;
use settings::{Dist, RealtimeSpec, RunSpec, Workload, offline_reasons, realtime_reasons};
use sim::{Costs, Ticks};
use topology::Topology;
use units::{PcpuSet, Span};

/// Runs that may be tried; each takes milliseconds.
const TRIES: usize = 2_000;

/// The smallest case found that `fails`; `case` must.
pub fn smallest(mut case: Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    let mut tries = 0;
    'again: loop {
        for smaller in all_smaller(&case) {
            tries += 1;
            if tries > TRIES {
                return case;
            }
            if fails(&smaller) {
                case = smaller;
                continue 'again;
            }
        }
        return case;
    }
}

/// Cases that lack one thing of this one, what shrinks it most first.
fn all_smaller(case: &Case) -> Vec<Case> {
    let with = |change: &dyn Fn(&mut RunSpec)| {
        let mut smaller = case.clone();
        change(&mut smaller.run.spec);
        smaller
    };
    let spec = &case.run.spec;
    let mut all = vec![];
    if spec.duration > Span::from_secs(1) {
        all.push(with(&|s| s.duration = Span::from_ns(s.duration.ns() / 2)));
    }
    all.extend((0..spec.vms.len()).map(|i| with(&|s| drop(s.vms.remove(i)))));
    all.extend((0..spec.host_tasks.len()).map(|i| with(&|s| drop(s.host_tasks.remove(i)))));
    all.extend((0..spec.pools.len()).map(|i| with(&|s| without_pool(s, i))));
    all.extend(topologies(case));
    all.extend((0..spec.vms.len()).flat_map(|i| simpler_vms(spec, i)).map(|vm| {
        let (i, vm) = vm;
        with(&|s| s.vms[i] = vm.clone())
    }));
    all.extend((0..spec.pools.len()).flat_map(|i| {
        let mut some = vec![];
        if spec.pools[i].limit.is_some() {
            some.push(with(&|s| s.pools[i].limit = None));
        }
        if spec.pools[i].reservation.is_some() {
            some.push(with(&|s| s.pools[i].reservation = None));
        }
        some
    }));
    if spec.host.timer_late > Span::ZERO {
        all.push(with(&|s| s.host.timer_late = Span::ZERO));
    }
    if spec.host.wake_path.is_some() {
        all.push(with(&|s| s.host.wake_path = None));
    }
    if spec.host.idle_exit.is_some() {
        all.push(with(&|s| s.host.idle_exit = None));
    }
    if case.costs != Costs::ZERO {
        all.push(Case { costs: Costs::ZERO, ..case.clone() });
    }
    if case.ticks != Ticks::Aligned {
        all.push(Case { ticks: Ticks::Aligned, ..case.clone() });
    }
    all.extend((0..spec.offline.len()).map(|i| with(&|s| _ = s.offline.remove(i))));
    all.extend((0..spec.realtime.len()).map(|i| with(&|s| _ = s.realtime.remove(i))));
    if spec.hardware.is_some() {
        all.push(with(&without_hardware));
    }
    all.extend(
        simpler_realtime(spec).into_iter().map(|(i, t)| with(&|s| s.realtime[i] = t.clone())),
    );
    all.retain(|c| {
        let (spec, pcpus) = (&c.run.spec, c.run.topology.pcpus());
        let wrong = [offline_reasons(spec, pcpus), realtime_reasons(spec, pcpus)];
        !spec.vms.is_empty() && wrong.iter().all(Vec::is_empty)
    });
    all
}

/// Takes a pool away; what is below it goes one level up.
fn without_pool(spec: &mut RunSpec, i: usize) {
    let gone = spec.pools.remove(i);
    for pool in &mut spec.pools {
        if pool.parent.as_ref() == Some(&gone.name) {
            pool.parent.clone_from(&gone.parent);
        }
    }
    for vm in &mut spec.vms {
        if vm.pool.as_ref() == Some(&gone.name) {
            vm.pool.clone_from(&gone.parent);
        }
    }
}

/// Hosts with one less of a level.
fn topologies(case: &Case) -> Vec<Case> {
    let less = |change: &dyn Fn(&mut settings::HostSpec) -> &mut u32| {
        let mut smaller = case.clone();
        let level = change(&mut smaller.run.spec.host);
        *level = level.checked_sub(1).filter(|n| *n > 0)?;
        smaller.run.topology = Topology::regular(smaller.run.spec.host.shape()).ok()?;
        let left = PcpuSet::first(smaller.run.topology.pcpus());
        let spec = &mut smaller.run.spec;
        let sets = spec
            .vms
            .iter_mut()
            .flat_map(|v| [&mut v.affinity, &mut v.cpuset])
            .chain(spec.host_tasks.iter_mut().map(|t| &mut t.affinity));
        for set in sets.flatten() {
            *set = set.and(&left);
            (!set.is_empty()).then_some(())?;
        }
        spec.realtime.iter_mut().for_each(|t| t.pcpus = t.pcpus.and(&left));
        spec.realtime.retain(|t| !t.pcpus.is_empty());
        Some(smaller)
    };
    [
        less(&|h| &mut h.sockets),
        less(&|h| &mut h.nodes_per_socket),
        less(&|h| &mut h.llcs_per_node),
        less(&|h| &mut h.cores_per_llc),
        less(&|h| &mut h.threads_per_core),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Real-time tasks with one setting less, or on one pCPU less.
fn simpler_realtime(spec: &RunSpec) -> Vec<(usize, RealtimeSpec)> {
    let mut all = vec![];
    for (i, task) in spec.realtime.iter().enumerate() {
        let mut with = |wanted: bool, change: &dyn Fn(&mut RealtimeSpec)| {
            if wanted {
                let mut simpler = task.clone();
                change(&mut simpler);
                all.push((i, simpler));
            }
        };
        for p in task.pcpus.iter().filter(|_| task.pcpus.len() > 1) {
            with(true, &|t| t.pcpus = task.pcpus.iter().filter(|q| *q != p).collect());
        }
        with(task.dist != Dist::Fixed, &|t| t.dist = Dist::Fixed);
        with(task.from > Span::ZERO, &|t| t.from = Span::ZERO);
        with(task.to.is_some(), &|t| t.to = None);
    }
    all
}

/// Profiles mean something only with hardware.
fn without_hardware(spec: &mut RunSpec) {
    spec.hardware = None;
    spec.vms.iter_mut().for_each(|vm| vm.profile = None);
    spec.host_tasks.iter_mut().for_each(|task| task.profile = None);
}

/// A VM with one setting less.
fn simpler_vms(spec: &RunSpec, i: usize) -> Vec<(usize, settings::VmSpec)> {
    let vm = &spec.vms[i];
    let mut all = vec![];
    let mut with = |wanted: bool, change: &dyn Fn(&mut settings::VmSpec)| {
        if wanted {
            let mut simpler = vm.clone();
            change(&mut simpler);
            all.push((i, simpler));
        }
    };
    with(vm.vcpus > 1 && vm.hot_add.is_empty() && vm.vcpu_affinity.is_none(), &|v| {
        v.vcpus -= 1;
        if let Some(of_vcpus) = &mut v.vcpu_workloads {
            of_vcpus.pop();
        }
    });
    with(vm.pool.is_some(), &|v| v.pool = None);
    with(!vm.active.is_empty(), &|v| v.active.clear());
    with(!vm.hot_add.is_empty(), &|v| v.hot_add.clear());
    with(vm.vcpu_workloads.is_some(), &|v| v.vcpu_workloads = None);
    with(vm.affinity.is_some(), &|v| v.affinity = None);
    with(vm.limit.is_some(), &|v| v.limit = None);
    with(vm.reservation.is_some(), &|v| v.reservation = None);
    with(vm.stop.is_some(), &|v| v.stop = None);
    with(vm.start > Span::ZERO, &|v| v.start = Span::ZERO);
    let burns = matches!(vm.every_workload(), Workload::Burn | Workload::Idle);
    with(!burns, &|v| v.workload = Some(Workload::Burn));
    with(vm.profile.is_some(), &|v| v.profile = None);
    all
}

#[test]
fn what_a_fault_does_not_need_goes() {
    // A made-up fault: two VMs of at least two vCPUs on two pCPUs or more, one of them limited.
    let fails = |c: &Case| {
        let wide = c.run.spec.vms.iter().filter(|v| v.vcpus >= 2).count() >= 2;
        let limited = c.run.spec.vms.iter().any(|v| v.limit.is_some());
        wide && limited && c.run.topology.pcpus() >= 2
    };
    let big = (0..).map(crate::random_trees::drawn).find(|c| fails(c)).expect("one in a few");
    let small = smallest(big, &fails);
    let spec = &small.run.spec;
    assert!(fails(&small));
    let seen = (spec.vms.len(), spec.pools.len(), spec.host_tasks.len());
    assert_eq!(seen, (2, 0, 0), "{}", small.text());
    assert_eq!(spec.vms.iter().map(|v| v.vcpus).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(small.run.topology.pcpus(), 2);
    assert!(spec.duration < Span::from_secs(2) && small.costs == Costs::ZERO);
    assert!(spec.vms.iter().all(|v| v.reservation.is_none() && v.stop.is_none()));
    assert_eq!(spec.vms.iter().filter(|v| v.limit.is_some()).count(), 1);
}
