//! What runs: VMs with their payload's orders, affinities and windows, and host tasks.

use std::fmt::Write as _;

use settings::{HostTask, PlacedPool, Run, VmSpec, Workload};
use units::{PcpuSet, Span};

use super::groups::{cpu_max, pool_of, shares, weight, weights};
use super::{decimal, refuse};
use crate::error::Result;
use crate::payload::{Orders, Work};
use crate::vm::{Runs, Vm};

/// Starts a VM in a cgroup of its name, with its cpu.weight, cpu.max, cpuset and affinity.
pub(super) fn start(run: &Run, vm: &VmSpec, pools: &[PlacedPool]) -> Result<String> {
    let orders = orders(run, vm)?;
    let p = pool_of(vm, pools);
    let mut described = Vm::new(vm.name.clone(), vm.vcpus, Runs::Payload(orders));
    described.group = format!("{}/{}", pools[p].path, vm.name).trim_start_matches('/').to_owned();
    let line = described.start_line()?;
    let group = format!("/sys/fs/cgroup/{}", described.group);
    let resources = vm
        .resources(run.spec.host.mhz)
        .map_err(|all| refuse(run, all.join("; "), "correct its settings"))?;
    let weight = weight(shares(vm), weights(run, pools)[p]);
    let mut s = format!(
        "rm -f /lab/out/{0}.debug; mkdir -p {group}; echo {weight} >{group}/cpu.weight\n",
        vm.name
    );
    s += &cpu_max(&group, resources.limit, resources.burst_ns);
    if let Some(set) = &vm.cpuset {
        let _ = writeln!(s, "echo {set} >{group}/cpuset.cpus");
    }
    let pin = vm.affinity.as_ref().map_or_else(String::new, |set| format!("PIN={} ", mask(set)));
    let _ = writeln!(s, "{pin}{line}");
    Ok(s)
}

pub(super) fn pins(vm: &VmSpec) -> String {
    let sets = vm.vcpu_affinity.iter().flatten().enumerate();
    sets.map(|(n, set)| format!("pin $(cat /lab/out/{}.pid) {n} {}\n", vm.name, mask(set)))
        .collect()
}

/// Whether a VM is powered on and one of its windows is open.
pub(super) fn active_at(vm: &VmSpec, t: Span) -> bool {
    let open = vm.active.is_empty()
        || vm.active.iter().any(|w| w.from <= t && w.to.is_none_or(|to| t < to));
    vm.start <= t && open
}

/// When a VM begins and ends to be active by the run's clock, in the background and in `timers`. It
/// was booted before the run and its process is halted, for booting takes seconds here, and a VM's
/// own clock begins when it boots.
pub(super) fn edges(vm: &VmSpec) -> String {
    let pid = format!("$(cat /lab/out/{}.pid)", vm.name);
    let edge = |at: Span, signal: &str| {
        format!("( sleep {}; kill -{signal} {pid} ) & timers=\"$timers $!\"\n", decimal(at))
    };
    let on = (vm.start > Span::ZERO && active_at(vm, vm.start)).then(|| edge(vm.start, "CONT"));
    let begin = vm.active.iter().filter(|w| w.from > vm.start).map(|w| edge(w.from, "CONT"));
    let end = vm
        .active
        .iter()
        .filter_map(|w| w.to)
        .filter(|to| *to > vm.start)
        .map(|to| edge(to, "STOP"));
    on.into_iter().chain(begin).chain(end).chain(vm.stop.map(|stop| edge(stop, "KILL"))).collect()
}

/// The scheduler's mask of a set, as taskset takes it.
fn mask(set: &PcpuSet) -> String {
    let words: Vec<u64> = set.words().iter().rev().copied().skip_while(|w| *w == 0).collect();
    let hex = words
        .iter()
        .enumerate()
        .map(|(i, w)| if i == 0 { format!("{w:x}") } else { format!("{w:016x}") });
    format!("0x{}", hex.collect::<String>())
}

fn orders(run: &Run, vm: &VmSpec) -> Result<Orders> {
    let work = |i: u32| Ok((work(run, vm.workload_of(i as usize))?, vec![]));
    // Each VM has random lengths of its own: with the same ones, they would work and sleep in step.
    if vm.guest.is_some() {
        return Err(refuse(
            run,
            format!("tasks of the guest of VM '{}'", vm.name),
            "add lab.skip with that reason",
        ));
    }
    if !vm.hot_add.is_empty() {
        return Err(refuse(
            run,
            format!("vCPUs that are added to VM '{}'", vm.name),
            "add lab.skip with that reason",
        ));
    }
    let seed = run.spec.vms.iter().position(|v| v.name == vm.name).unwrap_or(0) as u32 + 1;
    let buckets = run.spec.lab.trace; // only these are shown as latencies (wakeups.rs)
    Ok(Orders {
        report_ms: Some(1000),
        seed,
        buckets,
        vcpus: (0..vm.vcpus).map(work).collect::<Result<_>>()?,
        ..Orders::default()
    })
}

fn work(run: &Run, w: Workload) -> Result<Work> {
    let us = |t: Span| {
        u32::try_from(t.ns() / 1000)
            .map_err(|_| refuse(run, format!("a time of {t}"), "keep times below 71 minutes"))
    };
    Ok(match w {
        Workload::Idle => Work::Idle,
        Workload::Burn => Work::Burn,
        Workload::Duty { work, sleep } => Work::Duty { work_us: us(work)?, sleep_us: us(sleep)? },
        Workload::Periodic { period, work } => {
            Work::Periodic { period_us: us(period)?, work_us: us(work)? }
        }
        Workload::Io { halts: false, .. } => {
            return Err(refuse(
                run,
                "a vCPU that waits and does not halt".to_owned(),
                "add lab.skip with that reason",
            ));
        }
        Workload::Io { work, sleep, dist, halts: true } => Work::Io {
            work_us: us(work)?,
            sleep_us: us(sleep)?,
            exponential: dist == settings::Dist::Exponential,
        },
        Workload::Spinlock { think, hold, ticket, dist: settings::Dist::Fixed } => {
            Work::Lock { think_us: us(think)?, hold_us: us(hold)?, ticket }
        }
        Workload::Exits { work, emulate, dist: settings::Dist::Fixed } => {
            Work::Exits { work_us: us(work)?, emulate_us: us(emulate)? }
        }
        Workload::Barrier { work, spin: None, dist: settings::Dist::Fixed } => {
            Work::Barrier { work_us: us(work)? }
        }
        Workload::Spinlock { .. } | Workload::Barrier { .. } | Workload::Exits { .. } => {
            return Err(refuse(
                run,
                format!("a {} with 'dist' or 'spin'", w.kind()),
                "leave them out, or add lab.skip with that reason",
            ));
        }
        Workload::Ipi { .. } | Workload::Pipe { .. } => {
            return Err(refuse(
                run,
                format!("vCPUs that wake each other (kind {})", w.kind()),
                "add lab.skip with that reason",
            ));
        }
    })
}

/// A host task: only burners and idle ones, which the shell can be.
pub(super) fn host_task(run: &Run, n: usize, task: &HostTask) -> Result<String> {
    match task.workload {
        Workload::Idle => Ok(String::new()),
        Workload::Burn if !task.per_cpu_kthread => {
            let set = task.affinity.as_ref().map_or_else(String::new, |s| {
                format!("taskset -p {} $task{n} >/dev/null; ", mask(s))
            });
            let root = format!("echo $task{n} >/sys/fs/cgroup/cgroup.procs; ");
            let nice = match task.nice {
                0 => String::new(),
                nice => format!("renice -n {nice} -p $task{n}; "),
            };
            Ok(format!(
                "( while :; do :; done ) & task{n}=$!; \
                    {root}{set}{nice}tasks=\"$tasks $task{n}\"\n"
            ))
        }
        _ => Err(refuse(
            run,
            format!("host_task '{}' of another kind than burn", task.name),
            "add lab.skip with that reason",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_open_and_close_by_the_runs_clock() {
        // Figure 4's six VMs: vm3 is active but from 10 to 20 s, vm6 from 20 to 30 s alone.
        let scenario =
            settings::load(&format!("{}/../scenarios/shares-active", env!("CARGO_MANIFEST_DIR")))
                .unwrap();
        let (vm3, vm6) = (&scenario.runs[0].spec.vms[2], &scenario.runs[0].spec.vms[5]);
        let at = |ms: u64| Span::from_ns(ms * 1_000_000);
        assert_eq!(
            [0, 9999, 10_000, 20_000].map(|ms| active_at(vm3, at(ms))),
            [true, true, false, true]
        );
        assert_eq!([0, 20_000, 30_000].map(|ms| active_at(vm6, at(ms))), [false, true, false]);
        let timer = |s: &str, signal: &str, vm: &str| {
            format!(
                "( sleep {s}; kill -{signal} $(cat /lab/out/{vm}.pid) ) & timers=\"$timers $!\"\n"
            )
        };
        assert_eq!(edges(vm3), timer("20.000", "CONT", "vm3") + &timer("10.000", "STOP", "vm3"));
        let vm5 = &scenario.runs[0].spec.vms[4]; // on from 20 to 40 s
        assert_eq!([19_999, 20_000].map(|ms| active_at(vm5, at(ms))), [false, true]);
        assert_eq!(edges(vm5), timer("20.000", "CONT", "vm5") + &timer("40.000", "KILL", "vm5"));
        assert_eq!(edges(vm6), timer("20.000", "CONT", "vm6") + &timer("30.000", "STOP", "vm6"));
    }

    #[test]
    fn no_two_vms_draw_the_same_lengths() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let scenario = settings::load(&format!("{root}/ready-vs-util")).unwrap();
        let run = &scenario.runs[0];
        let seeds: std::collections::BTreeSet<u32> =
            run.spec.vms.iter().map(|vm| orders(run, vm).unwrap().seed).collect();
        assert_eq!((run.spec.vms.len(), seeds.len()), (6, 6));
    }

    #[test]
    fn masks_are_hex_without_leading_zeros() {
        assert_eq!(mask(&"0-1".parse().unwrap()), "0x3");
        assert_eq!(mask(&"4,64".parse().unwrap()), "0x10000000000000010");
    }
}
