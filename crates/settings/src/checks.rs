//! Checks of a run's host, VMs, tasks, names and expectations, each with the reason of a refusal;
//! it changes nothing.

use crate::guest::guest_reasons;
use crate::{HostSpec, HostTask, LimitSetting, RunSpec, VmSpec, Workload};
use std::collections::BTreeSet;
use units::{PcpuSet, caps};

/// Tick and duration of a run.
pub(crate) fn times(spec: &RunSpec, reasons: &mut Vec<String>) {
    if !(100..=10_000).contains(&spec.host.hz) {
        reasons.push(format!("host.hz: seen {}, allowed 100..10000", spec.host.hz));
    }
    if spec.host.timer_late > HostSpec::TIMER_LATE_MAX {
        reasons.push(format!(
            "host.timer_late: seen {}, allowed at most {}",
            spec.host.timer_late,
            HostSpec::TIMER_LATE_MAX
        ));
    }
    delays(&spec.host, reasons);
    if spec.duration <= spec.warmup {
        reasons.push(format!(
            "duration: seen {}, allowed more than warmup ({})",
            spec.duration, spec.warmup
        ));
    }
}

/// What is wrong with what wake-ups take beside the scheduler.
fn delays(host: &HostSpec, reasons: &mut Vec<String>) {
    let path = ("wake_path", host.wake_path, HostSpec::WAKE_PATH_MAX);
    let exit = ("idle_exit", host.idle_exit, HostSpec::IDLE_EXIT_MAX);
    for (key, spread, most) in [path, exit] {
        let Some([from, to]) = spread.filter(|[from, to]| from > to || *to > most) else {
            continue;
        };
        reasons.push(format!(
            "host.{key}: seen {from} to {to}, allowed a least and a most, of at most {most}; \
                leave it out for none"
        ));
    }
    let (seen, most) = (host.idle_residency, HostSpec::IDLE_RESIDENCY_MAX);
    if seen > most {
        reasons.push(format!("host.idle_residency: seen {seen}, allowed at most {most}"));
    }
}

/// What is wrong with the speed of a pCPU.
pub(crate) fn mhz(mhz: u32) -> Option<String> {
    (!(100..=10_000).contains(&mhz)).then(|| format!("seen {mhz}, allowed 100..10000"))
}

/// More VMs, worlds or limits than the scheduler's tables hold; `None` also means that the VMs can
/// be counted out.
pub(crate) fn counts(spec: &RunSpec) -> Option<String> {
    let vms: u64 = spec.vms.iter().map(|v| u64::from(v.count)).sum();
    let worlds: u64 = spec.vms.iter().map(|v| u64::from(v.count) * u64::from(v.vcpus)).sum();
    let worlds = worlds + spec.host_tasks.iter().map(|t| u64::from(t.count)).sum::<u64>();
    (vms + 1 > caps::VMS_MAX as u64 || worlds >= caps::WORLDS_MAX as u64).then(|| {
        format!(
            "vm: seen {vms} VMs and {worlds} worlds, allowed {} and {}",
            caps::VMS_MAX - 1,
            caps::WORLDS_MAX - 1
        )
    })
}

/// Pools that VMs name, and how many limits there are.
pub(crate) fn pools_of_vms(spec: &RunSpec, reasons: &mut Vec<String>) {
    let pools: BTreeSet<&str> = spec.pools.iter().map(|p| p.name.as_str()).collect();
    for (vm, pool) in spec.vms.iter().filter_map(|v| Some((v, v.pool.as_ref()?))) {
        if !pools.contains(pool.as_str()) {
            reasons.push(format!(
                "vm '{}': pool: seen '{pool}', allowed the name of a [[pool]]; leave \
                    it out for a VM of the root",
                vm.name
            ));
        }
    }
    let limited = |l: Option<LimitSetting>| u64::from(l.is_some_and(|l| l.amount().is_some()));
    let of_vms: u64 = spec.vms.iter().map(|v| limited(v.limit) * u64::from(v.count)).sum();
    reasons
        .extend(too_many_limits(of_vms + spec.pools.iter().map(|p| limited(p.limit)).sum::<u64>()));
}

/// Why there cannot be so many limits: number 0 of the scheduler's table stands for none.
pub(crate) fn too_many_limits(limits: u64) -> Option<String> {
    let most = caps::LIMITERS_MAX as u64 - 1;
    (limits > most).then(|| {
        format!(
            "limit: seen {limits} limits on VMs and pools, allowed {most}; \
        limit pools in place of their VMs"
        )
    })
}

/// Names of VMs, host tasks and pools once they are counted out; `written` are the VMs' names
/// before that.
pub(crate) fn names(spec: &RunSpec, written: &[String], reasons: &mut Vec<String>) {
    let vms: BTreeSet<&str> =
        spec.vms.iter().map(|v| &v.name).chain(written).map(String::as_str).collect();
    let tasks: BTreeSet<&str> = spec.host_tasks.iter().map(|t| t.name.as_str()).collect();
    let counted = || spec.vms.iter().map(|v| v.name.as_str());
    let mut twice = BTreeSet::new();
    for names in [
        written.iter().map(String::as_str).collect::<Vec<_>>(),
        counted().chain(spec.host_tasks.iter().map(|t| t.name.as_str())).collect(),
    ] {
        let mut seen = BTreeSet::new();
        twice.extend(names.into_iter().filter(|n| !seen.insert(*n)));
    }
    reasons.extend(twice.iter().map(|n| match (vms.contains(n), tasks.contains(n)) {
        (true, true) => format!("vm '{n}': a host task has this name too; each needs its own"),
        (true, false) => format!("vm '{n}': two have this name; each needs its own"),
        _ => format!("host task '{n}': two have this name; each needs its own"),
    }));
    for pool in spec.pools.iter().map(|p| p.name.as_str()) {
        for (kind, taken) in [("VM", &vms), ("host task", &tasks)] {
            if taken.contains(pool) {
                reasons
                    .push(format!("pool '{pool}': a {kind} has this name too; each needs its own"));
            }
        }
    }
}

/// VMs and host tasks that expectations name, once they are counted out, and the share of their
/// wishes that VMs are to get.
pub(crate) fn expectations(spec: &RunSpec, reasons: &mut Vec<String>) {
    let expect = &spec.expect;
    let vms: BTreeSet<&str> = spec.vms.iter().map(|v| v.name.as_str()).collect();
    let named = expect
        .ratio_of
        .iter()
        .map(|n| ("ratio_of", n))
        .chain(expect.equal_of.iter().map(|n| ("equal_of", n)));
    let named = named.chain(expect.at_least.keys().map(|n| ("at_least", n)));
    let named = named.chain(expect.lab_at_least.keys().map(|n| ("lab_at_least", n)));
    let late = [("late_mean_us", &expect.late_mean_us), ("late_max_us", &expect.late_max_us)];
    let lab_late = [
        ("lab_late_mean_us", &expect.lab_late_mean_us),
        ("lab_late_max_us", &expect.lab_late_max_us),
    ];
    let lab_named = lab_late.into_iter().flat_map(|(key, of)| of.keys().map(move |n| (key, n)));
    let unknown = named.chain(lab_named).filter(|(_, n)| !vms.contains(n.as_str()));
    reasons.extend(
        unknown.map(|(key, n)| format!("expect.{key}: seen '{n}', allowed the names of its VMs")),
    );
    let in_pipes = spec.host_tasks.iter().filter(|t| matches!(t.workload, Workload::Pipe { .. }));
    let woken: BTreeSet<&str> = in_pipes.map(|t| t.name.as_str()).chain(vms).collect();
    for (key, of) in late {
        reasons.extend(of.keys().filter(|n| !woken.contains(n.as_str())).map(|n| {
            format!(
                "expect.{key}: seen '{n}', allowed the names of its VMs and of host tasks of kind \
                    pipe"
            )
        }));
    }
    if expect.refill_permille.is_some() && spec.hardware.is_none() {
        reasons.push(
            "expect.refill_permille: seen it without [hardware], allowed with the caches that it \
                counts; add [hardware], or leave it out"
                .to_owned(),
        );
    }
    for (key, all) in [("at_least", &expect.at_least), ("lab_at_least", &expect.lab_at_least)] {
        let over = all.iter().filter(|(_, permille)| **permille > 1000);
        reasons.extend(over.map(|(n, permille)| {
            format!("expect.{key}: seen {permille} for '{n}', allowed 0..1000 permille")
        }));
    }
}

/// A VM as written in the file, on a host of so many pCPUs of so many MHz.
pub(crate) fn vm(vm: &VmSpec, pcpus: usize, mhz: u32, reasons: &mut Vec<String>) {
    let mut say = |r: String| reasons.push(format!("vm '{}': {r}", vm.name));
    if let Some(reason) = bad_name(&vm.name) {
        say(reason);
    }
    if vm.vcpus == 0 || vm.vcpus > caps::VCPUS_MAX {
        say(format!("vcpus: seen {}, allowed 1..{}", vm.vcpus, caps::VCPUS_MAX));
    }
    vm.resources(mhz).err().into_iter().flatten().for_each(&mut say);
    for (what, len) in [
        ("vcpu_affinity", vm.vcpu_affinity.as_ref().map(Vec::len)),
        ("vcpu_workloads", vm.vcpu_workloads.as_ref().map(Vec::len)),
    ] {
        if len.is_some_and(|l| l != vm.vcpus as usize) {
            say(format!(
                "{what}: seen {} entries, allowed exactly {} (one a vCPU)",
                len.unwrap_or(0),
                vm.vcpus
            ));
        }
    }
    let sets =
        [&vm.affinity, &vm.cpuset].into_iter().flatten().chain(vm.vcpu_affinity.iter().flatten());
    for reason in sets.filter_map(|s| absent(s, pcpus)) {
        say(reason);
    }
    if (0..vm.vcpus.min(caps::VCPUS_MAX) as usize)
        .any(|i| vm.allowed(i).is_some_and(|s| s.is_empty()))
    {
        say("affinity and cpuset leave a vCPU without any pCPU; let them overlap".to_owned());
    }
    if vm.stop.is_some_and(|s| s <= vm.start) {
        say(format!(
            "stop: seen {}, allowed after start ({})",
            vm.stop.unwrap_or_default(),
            vm.start
        ));
    }
    if vm.hot_add.len() >= vm.vcpus as usize && !vm.hot_add.is_empty() {
        say(format!(
            "hot_add: seen {} times, allowed fewer than its {} vCPUs",
            vm.hot_add.len(),
            vm.vcpus
        ));
    }
    for at in vm.hot_add.iter().filter(|t| **t <= vm.start || vm.stop.is_some_and(|s| **t >= s)) {
        say(format!(
            "hot_add: seen {at}, allowed times after start ({}) and before stop",
            vm.start
        ));
    }
    let every = vm.every_workload();
    let workloads = vm.vcpu_workloads.as_deref().unwrap_or(std::slice::from_ref(&every));
    workloads.iter().flat_map(|w| w.reasons()).for_each(&mut say);
    rings(workloads, vm.count).into_iter().for_each(&mut say);
    siblings(vm, workloads).into_iter().for_each(&mut say);
    guest_reasons(vm).into_iter().for_each(say);
}

/// What is wrong with the rings that so many VMs or host tasks with these workloads form.
fn rings(workloads: &[Workload], count: u32) -> Vec<String> {
    let of = |w: &Workload| match w {
        Workload::Pipe { ring, .. } => Some(*ring),
        _ => None,
    };
    let sizes: BTreeSet<u32> = workloads.iter().filter_map(of).collect();
    let reason = |ring: u32| match ring {
        0 | 1 => Some(format!("workload.ring: seen {ring}, allowed 2 or more")),
        _ => (count % ring != 0)
            .then(|| format!("count: seen {count}, allowed a multiple of workload.ring ({ring})")),
    };
    if sizes.len() > 1 {
        let all: Vec<String> = sizes.iter().map(u32::to_string).collect();
        let seen = all.join(" and ");
        return vec![format!(
            "vcpu_workloads.ring: seen {seen}, allowed one of them: VMs of a ring pass all their \
                tokens in the same order"
        )];
    }
    sizes.into_iter().filter_map(reason).collect()
}

/// What is wrong with vCPUs that wait for each other, and with the watchdog over them.
fn siblings(vm: &VmSpec, workloads: &[Workload]) -> Vec<String> {
    let mut out = vec![];
    let lock = |fair| {
        workloads.iter().any(|w| matches!(w, Workload::Spinlock { ticket, .. } if *ticket == fair))
    };
    if lock(true) && lock(false) {
        out.push(
            "vcpu_workloads.ticket: seen true and false, allowed one of them: a VM has one lock"
                .to_owned(),
        );
    }
    if let Some(w) = vm.watchdog.filter(|w| w.ns() < 1_000_000) {
        out.push(format!("watchdog: seen {w}, allowed 1ms or more"));
    }
    out
}

/// A host task as written in the file.
pub(crate) fn task(task: &HostTask, pcpus: usize, reasons: &mut Vec<String>) {
    let mut say = |r: String| reasons.push(format!("host_task '{}': {r}", task.name));
    if let Some(reason) = bad_name(&task.name) {
        say(reason);
    }
    if let Some(reason) = task.affinity.as_ref().and_then(|s| absent(s, pcpus)) {
        say(reason);
    }
    if task.per_cpu_kthread && task.affinity.as_ref().is_none_or(|a| a.len() != 1) {
        say("per_cpu_kthread: allowed only with an affinity of exactly one pCPU".to_owned());
    }
    if !(-20..=19).contains(&task.nice) {
        say(format!("nice: seen {}, allowed -20 to 19", task.nice));
    }
    let kind = task.workload.kind();
    if task.workload.has_siblings() {
        say(format!(
            "workload.kind: seen '{kind}', allowed in a [[vm]] only: a host task has no siblings to wait for"
        ));
    } else if matches!(task.workload, Workload::Exits { .. }) {
        say(format!(
            "workload.kind: seen '{kind}', allowed in a [[vm]] only: a host task has no guest to \
                leave"
        ));
    }
    rings(&[task.workload], task.count).into_iter().for_each(&mut say);
    task.workload.reasons().into_iter().for_each(say);
}

/// Why a VM, task or pool cannot be called so.
pub(crate) fn bad_name(name: &str) -> Option<String> {
    let bad = name.is_empty() || name.len() > 64 || name.contains(['/', '.', '"', ',', '\n']);
    bad.then(|| "name: allowed 1..64 characters without / . , \" or line ends".to_owned())
}

fn absent(set: &PcpuSet, pcpus: usize) -> Option<String> {
    let last = set.last()?.0 as usize;
    (last >= pcpus)
        .then(|| format!("affinity: seen pCPU {last}, allowed 0..{} on this host", pcpus - 1))
}

#[cfg(test)]
mod tests {
    use crate::{HostSpec, ScenarioError, raw::parse};
    use units::Span;

    fn host(keys: &str) -> Result<HostSpec, ScenarioError> {
        let vm = "[[vm]]\nname = 'a'\nvcpus = 1\n";
        let text = format!("[host]\ncores_per_llc = 1\n{keys}\n{vm}");
        parse("t.toml", "t", &text).map(|s| s.runs[0].spec.host.clone())
    }

    #[test]
    fn wake_ups_take_nothing_beside_the_scheduler_unless_a_scenario_says_so() {
        let seen = |keys| {
            let host = host(keys).expect("it is allowed");
            (host.wake_path, host.idle_exit, host.idle_residency)
        };
        let us = |n: u64| Span::from_ns(1000 * n);
        assert_eq!(seen(""), (None, None, us(600)));
        let all = "wake_path = ['23.5us', '30us']\nidle_exit = ['0s', '1ms']\n\
            idle_residency = '1s'";
        let path = Some([Span::from_ns(23_500), us(30)]);
        assert_eq!(seen(all), (path, Some([us(0), us(1_000)]), Span::from_secs(1)));
    }

    #[test]
    fn delays_that_cannot_be_are_refused_with_each_reason() {
        let keys = "wake_path = ['30us', '24us']\nidle_exit = ['1us', '1001us']\n\
            idle_residency = '1001ms'";
        let Err(ScenarioError::Invalid { reasons, .. }) = host(keys) else {
            panic!("must be refused")
        };
        let spreads =
            [("wake_path", "30us to 24us", "10ms"), ("idle_exit", "1us to 1001us", "1ms")];
        let reason = |(key, seen, most)| {
            format!(
                "host.{key}: seen {seen}, allowed a least and a most, of at most {most}; leave it \
                    out for none"
            )
        };
        let mut due = spreads.map(reason).to_vec();
        due.push("host.idle_residency: seen 1001ms, allowed at most 1s".to_owned());
        assert_eq!(reasons, due);
        for odd in ["wake_path = '24us'", "wake_path = ['24us']", "idle_exit = ['1us', '2']"] {
            let error = host(odd).expect_err("must be refused").to_string();
            let key = odd.split(' ').next().expect("a key");
            assert!(error.contains(key) && error.contains("line 3"), "{error}");
        }
    }
}
