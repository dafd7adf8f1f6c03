//! Writes the shell script and the settings that one boot of an experiment follows inside the
//! guest; pure.

use std::fmt::Write as _;

use settings::{HostTask, PlacedPool, Run, VmSpec, Workload, place};
use units::{PcpuSet, Rate, Span};

use super::{Experiment, Policy};
use crate::error::{LabError, Result};
use crate::payload::{Orders, Work};
use crate::vm::{Runs, Vm};

/// Functions that the script uses. Cgroups are named after the VMs, each in the cgroup of its pool;
/// those are the pools.
const HEAD: &str = r#"
fail() { echo "lab: $*"; exit 1; }
# A VM that is gone while the kernel's own scheduler runs: the emulator's fault, and the boot is tried again (boot/watch.rs).
lost() { echo "lab: $*"; echo "lab: lost without Tandem: $*" >/dev/kmsg; exit 1; }
# pin PID INDEX MASK: affinity of one vCPU thread
pin() { for t in /proc/$1/task/*; do case "$(cat $t/comm)" in "CPU $2/"*) taskset -p $3 ${t##*/} >/dev/null;; esac; done; }
power_off() { for v in "$@"; do [ -f /lab/out/$v.pid ] && kill $(cat /lab/out/$v.pid) 2>/dev/null; done; sleep 1
  for v in "$@"; do [ -f /lab/out/$v.pid ] && kill -9 $(cat /lab/out/$v.pid) 2>/dev/null; done; sleep 1
  for v in "$@"; do rmdir $(find /sys/fs/cgroup -type d -name $v) 2>/dev/null; rm -f /lab/out/$v.pid; done; }
tandem_on() { rm -f /run/tandem/vms.json; tandem run --config $1 >>/lab/out/tandem.log 2>&1 & daemon=$!
  for i in $(seq 150); do grep -q enabled /sys/kernel/sched_ext/state && return; kill -0 $daemon 2>/dev/null || break; sleep 0.2; done
  cat /lab/out/tandem.log; fail "tandem did not start"; }
# knows N: waits until the daemon has found so many VMs
knows() { for i in $(seq 150); do [ "$(cat /run/tandem/vms.json 2>/dev/null | grep -c \
    '"name"')" -ge $1 ] && return; sleep 0.2; done; fail "tandem found too few VMs"; }
tandem_off() { kill -INT $daemon; wait $daemon; [ $? = 0 ] || { tail -5 /lab/out/tandem.log; fail "tandem did not leave cleanly"; }
  ! grep "cannot tell when one is in its emulator" /lab/out/tandem.log || fail "the hooks of KVM are missing"; }
echo +cpu +cpuset >/sys/fs/cgroup/cgroup.subtree_control
# The kernel's own scheduler weighs groups: what measures beside VMs of weight 10,000 needs as much to measure in time.
mkdir /sys/fs/cgroup/lab; echo 10000 >/sys/fs/cgroup/lab/cpu.weight; echo $$ >/sys/fs/cgroup/lab/cgroup.procs
"#;

fn refuse(run: &Run, seen: String, next: &str) -> LabError {
    LabError::new(format!("run '{}'", run.label), "be done in the lab", seen, next)
}

/// The script of one boot.
pub(super) fn whole(experiment: &Experiment<'_>, runs: &[&Run]) -> Result<String> {
    let mut text = HEAD.to_owned();
    for policy in &experiment.policies {
        for (i, run) in runs.iter().enumerate() {
            text += &one(experiment, *policy, i, run)?;
        }
    }
    Ok(text)
}

fn one(experiment: &Experiment<'_>, policy: Policy, i: usize, run: &Run) -> Result<String> {
    let mut s = String::new();
    let label = if run.label.is_empty() { "the run" } else { &run.label };
    let duration = experiment.duration_of(run);
    let seconds = duration.ns().div_ceil(1_000_000_000);
    let _ = writeln!(s, "echo; echo '== {}: {label}, {seconds} s'", policy.name());
    let pools = pools(run)?;
    s += &make_pools(&pools, &weights(run, &pools));
    let all: Vec<&VmSpec> = run.spec.vms.iter().collect();
    // One after the other, each stopped once it is up: a VM that burns would keep the next from
    // booting.
    for vm in &all {
        s += &start(run, vm, &pools)?;
        let _ = writeln!(
            s,
            "lab-wait 90 'payload up' /lab/out/{0}.debug || lost 'VM {0} did not start'",
            vm.name
        );
        s += &pins(vm);
        let _ = writeln!(s, "kill -STOP $(cat /lab/out/{}.pid)", vm.name);
    }
    let awake: Vec<&VmSpec> = all.iter().copied().filter(|v| active_at(v, Span::ZERO)).collect();
    let _ = writeln!(s, "for v in {}; do kill -CONT $(cat /lab/out/$v.pid); done", names(&awake));
    for (n, task) in run.spec.host_tasks.iter().enumerate() {
        s += &host_task(run, n, task)?;
    }
    if policy == Policy::Tandem {
        let _ = writeln!(s, "tandem_on /lab/in/settings-{i}.toml; knows {}", all.len());
    }
    let _ = writeln!(
        s,
        "sleep 3; for v in {}; do cp /lab/out/$v.debug /lab/out/{}-{i}.$v.before; done",
        names(&all),
        policy.name()
    );
    run.spec.vms.iter().for_each(|vm| s += &edges(vm));
    if run.spec.warmup > Span::ZERO {
        let _ = writeln!(s, "sleep {}", decimal(run.spec.warmup));
    }
    let kernel = if policy == Policy::Eevdf { "--kernel" } else { "" };
    if experiment.show_top {
        // Through a pipe: on a terminal it would take the whole screen.
        let _ = writeln!(
            s,
            "[ -p /tmp/top ] || mkfifo /tmp/top; cat /tmp/top & shown=$!; tandem top {kernel} \
                --interval 2s >/tmp/top & top=$!"
        );
    }
    let _ = writeln!(
        s,
        "tandem top --once --json {kernel} --interval {duration} >/lab/out/{0}-{i}.json || fail \
            'no accounts'",
        policy.name()
    );
    // Those that neither start nor stop while it is measured.
    let always = all
        .iter()
        .filter(|v| v.start == Span::ZERO && v.stop.is_none())
        .map(|v| v.name.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    let gone = if policy == Policy::Eevdf { "lost" } else { "fail" };
    let _ = writeln!(
        s,
        "for v in {always}; do kill -0 $(cat /lab/out/$v.pid) || {gone} \"VM $v is gone\"; done"
    );
    if experiment.show_top {
        s += "kill $top; wait $top $shown 2>/dev/null\n";
    }
    // what is due after the run's end is not for the next one
    s += "[ -z \"$timers\" ] || kill $timers 2>/dev/null; timers=\n";
    let _ = writeln!(
        s,
        "for v in {}; do cp /lab/out/$v.debug /lab/out/{}-{i}.$v.after; done",
        names(&all),
        policy.name()
    );
    if policy == Policy::Tandem && run.spec.lab.trace {
        s += &record(run, i, duration);
    }
    if policy == Policy::Tandem {
        s += "grep -q enabled /sys/kernel/sched_ext/state || fail 'the kernel ejected the \
            scheduler'\ntandem_off\n";
    }
    let _ = writeln!(s, "power_off {}; for t in $tasks; do kill -9 $t; done; tasks=", names(&all));
    for pool in pools.iter().skip(1).rev() {
        let _ = writeln!(s, "rmdir /sys/fs/cgroup{}", pool.path);
    }
    Ok(s)
}

/// Records for as long as was measured, lists what the vCPUs waited, and asks the oracle. Not while
/// it is measured: a recorder is a host task as well. The trace stays with what the run left, for
/// 'tandem trace'.
fn record(run: &Run, i: usize, duration: Span) -> String {
    let most = run.spec.vms.iter().map(|v| v.vcpus).max().unwrap_or(1);
    let vcpus: String = (0..most).map(|v| format!(" --world vcpu{v}")).collect();
    let knobs: String =
        run.spec.knobs.iter().map(|(name, value)| format!(" --set {name}={value}")).collect();
    format!(
        "tandem trace record -o /tmp/{i}.trace --duration {duration} >/lab/out/record.log 2>&1 || \
            fail 'no trace'\n\
         tandem trace waits /tmp/{i}.trace{vcpus} --json /lab/out/tandem-{i}.waits --most 3 || fail 'no waits'\n\
         tandem trace check /tmp/{i}.trace{knobs} --json /lab/out/tandem-{i}.checked; case $? in 0|6) ;; *) fail 'not checked';; esac\n\
         mv /tmp/{i}.trace /lab/out/tandem-{i}.trace\n"
    )
}

fn names(vms: &[&VmSpec]) -> String {
    vms.iter().map(|v| v.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn decimal(t: Span) -> String {
    format!("{}.{:03}", t.ns() / 1_000_000_000, t.ns() / 1_000_000 % 1000)
}

/// The pools of a run, the root first.
fn pools(run: &Run) -> Result<Vec<PlacedPool>> {
    place(&run.spec.pools, run.spec.host.mhz)
        .map_err(|all| refuse(run, all.join("; "), "correct its pools"))
}

/// Position of a VM's pool.
fn pool_of(vm: &VmSpec, pools: &[PlacedPool]) -> usize {
    vm.pool.as_ref().and_then(|name| pools.iter().position(|p| p.name == *name)).unwrap_or(0)
}

fn shares(vm: &VmSpec) -> u64 {
    vm.shares.resolve(vm.vcpus).map_or(1000, |s| u64::from(s.get()))
}

/// For each pool what cpu.weight its children's shares are divided by: exact while the largest are
/// at most 10,000.
fn weights(run: &Run, pools: &[PlacedPool]) -> Vec<u64> {
    let mut largest = vec![0u64; pools.len()];
    for pool in pools.iter().skip(1) {
        largest[pool.parent] = largest[pool.parent].max(u64::from(pool.shares));
    }
    for vm in &run.spec.vms {
        let p = pool_of(vm, pools);
        largest[p] = largest[p].max(shares(vm));
    }
    largest
}

fn weight(shares: u64, largest: u64) -> u64 {
    if largest <= 10_000 { shares } else { (shares * 10_000 / largest).max(1) }
}

/// `cpu.max` of a limit: as libvirt and systemd write it, for a period of 100 ms.
fn cpu_max(group: &str, limit: Option<Rate>, burst_ns: u64) -> String {
    const PERIOD_US: u64 = 100_000;
    let Some(limit) = limit else { return String::new() };
    let quota = (limit.0 * PERIOD_US) >> Rate::SHIFT;
    let burst = if burst_ns > 0 {
        format!("; echo {} >{group}/cpu.max.burst", burst_ns / 1000)
    } else {
        String::new()
    };
    format!("echo {quota} {PERIOD_US} >{group}/cpu.max{burst}\n")
}

/// Makes the cgroups of the pools, with their weights and limits.
fn make_pools(pools: &[PlacedPool], largest: &[u64]) -> String {
    let mut s = String::new();
    for pool in pools.iter().skip(1) {
        let group = format!("/sys/fs/cgroup{}", pool.path);
        let weight = weight(u64::from(pool.shares), largest[pool.parent]);
        let _ = writeln!(
            s,
            "mkdir -p {group}; echo +cpu +cpuset >{group}/cgroup.subtree_control; echo {weight} \
                >{group}/cpu.weight"
        );
        s += &cpu_max(&group, pool.limit, pool.burst_ns);
    }
    s
}

/// Starts a VM in a cgroup of its name, with its cpu.weight, cpu.max, cpuset and affinity.
fn start(run: &Run, vm: &VmSpec, pools: &[PlacedPool]) -> Result<String> {
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

fn pins(vm: &VmSpec) -> String {
    let sets = vm.vcpu_affinity.iter().flatten().enumerate();
    sets.map(|(n, set)| format!("pin $(cat /lab/out/{}.pid) {n} {}\n", vm.name, mask(set)))
        .collect()
}

/// Whether a VM is powered on and one of its windows is open.
fn active_at(vm: &VmSpec, t: Span) -> bool {
    let open = vm.active.is_empty()
        || vm.active.iter().any(|w| w.from <= t && w.to.is_none_or(|to| t < to));
    vm.start <= t && open
}

/// When a VM begins and ends to be active by the run's clock, in the background and in `timers`. It
/// was booted before the run and its process is halted, for booting takes seconds here, and a VM's
/// own clock begins when it boots.
fn edges(vm: &VmSpec) -> String {
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
        Workload::Ipi { .. } => {
            return Err(refuse(
                run,
                "vCPUs that interrupt each other (kind ipi)".to_owned(),
                "add lab.skip with that reason",
            ));
        }
    })
}

/// A host task: only burners and idle ones, which the shell can be.
fn host_task(run: &Run, n: usize, task: &HostTask) -> Result<String> {
    match task.workload {
        Workload::Idle => Ok(String::new()),
        Workload::Burn if !task.per_cpu_kthread => {
            let set = task.affinity.as_ref().map_or_else(String::new, |s| {
                format!("taskset -p {} $task{n} >/dev/null; ", mask(s))
            });
            let root = format!("echo $task{n} >/sys/fs/cgroup/cgroup.procs; ");
            Ok(format!(
                "( while :; do :; done ) & task{n}=$!; {root}{set}tasks=\"$tasks $task{n}\"\n"
            ))
        }
        _ => Err(refuse(
            run,
            format!("host_task '{}' of another kind than burn", task.name),
            "add lab.skip with that reason",
        )),
    }
}

/// The settings file of a run: shares beyond what cpu.weight can say, reservations, and knobs.
/// Limits are the cgroups' own.
pub(super) fn settings(run: &Run) -> Result<String> {
    let mut s = String::new();
    for pool in &run.spec.pools {
        let path = pools(run)?
            .into_iter()
            .find(|p| p.name == pool.name)
            .map_or_else(String::new, |p| p.path);
        let _ = writeln!(
            s,
            "[[pool]]\nname = \"{path}\"\nexpandable = {}\nscalable = {}",
            pool.expandable, pool.scalable
        );
        let resources = pool
            .resources(run.spec.host.mhz)
            .map_err(|all| refuse(run, all.join("; "), "correct its settings"))?;
        let _ = writeln!(s, "shares = {}", resources.shares);
        s += &reservation(resources.reservation);
    }
    for vm in &run.spec.vms {
        let resources = vm
            .resources(run.spec.host.mhz)
            .map_err(|all| refuse(run, all.join("; "), "correct its settings"))?;
        let _ = writeln!(s, "[[vm]]\nname = \"{}\"\nshares = {}", vm.name, resources.shares);
        s += &reservation(resources.reservation);
    }
    if !run.spec.knobs.is_empty() {
        s += "[knobs]\n";
        run.spec.knobs.iter().for_each(|(name, value)| {
            let _ = writeln!(s, "{name} = {value}");
        });
    }
    Ok(s)
}

fn reservation(rate: Rate) -> String {
    if rate.0 == 0 {
        String::new()
    } else {
        format!("reservation = \"{}\"\n", rate.percent().replace(' ', ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_cgroups_with_weights_in_the_ratio_of_shares_and_limits_of_100_ms() {
        let pool = |path: &str, parent, shares, limit: Option<u64>| PlacedPool {
            name: path.into(),
            path: path.into(),
            parent,
            depth: 1,
            shares,
            reservation: Rate(0),
            limit: limit.map(|percent| Rate(Rate::ONE.0 * percent / 100)),
            burst_ns: 5_000_000,
            expandable: true,
            scalable: false,
        };
        let pools = [
            pool("/", 0, 4000, None),
            pool("/a", 0, 20_000, Some(250)),
            pool("/a/b", 1, 4000, None),
        ];
        let text = make_pools(&pools, &[20_000, 4000, 0]);
        let group = |path: &str, weight: u64| {
            let at = format!("/sys/fs/cgroup{path}");
            format!(
                "mkdir -p {at}; echo +cpu +cpuset >{at}/cgroup.subtree_control; echo {weight} \
                    >{at}/cpu.weight\n"
            )
        };
        let limit = "echo 250000 100000 >/sys/fs/cgroup/a/cpu.max; echo 5000 \
            >/sys/fs/cgroup/a/cpu.max.burst\n";
        assert_eq!(text, [group("/a", 10_000), limit.to_owned(), group("/a/b", 4000)].concat());
        assert_eq!(
            (reservation(Rate::pcpus(2)), reservation(Rate(0))),
            ("reservation = \"200%\"\n".to_owned(), String::new())
        );
    }

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

    fn load(name: &str) -> settings::Scenario {
        settings::load(&format!("{}/../scenarios/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// The script of a scenario's first run.
    fn script(policy: Policy, name: &str) -> String {
        let scenario = load(name);
        let experiment = Experiment {
            scenario: &scenario,
            policies: vec![policy],
            kernel: crate::archive::KernelId::Newest,
            tandem: "tandem".into(),
            duration: None,
            show_top: false,
        };
        one(&experiment, policy, 0, &scenario.runs[0]).unwrap()
    }

    #[test]
    fn a_trace_is_recorded_after_the_accounts_and_only_of_tandem_where_it_is_wanted() {
        let text = script(Policy::Tandem, "wakeup-latency");
        let accounts = text.find("tandem top --once").unwrap();
        let recorded = text.find("tandem trace record -o /tmp/0.trace --duration 10s").unwrap();
        let waits = text
            .find(
                "tandem trace waits /tmp/0.trace --world vcpu0 --world vcpu1 --world vcpu2 \
                --json /lab/out/tandem-0.waits",
            )
            .unwrap();
        assert!(
            accounts < recorded
                && recorded < waits
                && waits < text.find("tandem_off\npower_off").unwrap()
        );
        assert!(!script(Policy::Eevdf, "wakeup-latency").contains("trace"));
        assert!(!script(Policy::Tandem, "shares-active").contains("trace"));
    }

    #[test]
    fn a_vm_that_is_gone_is_told_and_tried_again_where_tandem_is_not_loaded() {
        let scenario = load("coming-and-going");
        for (policy, how) in [
            (Policy::Eevdf, "|| lost \"VM $v is gone\""),
            (Policy::Tandem, "|| fail \"VM $v is gone\""),
        ] {
            let text = script(policy, "coming-and-going");
            let line = text.lines().find(|l| l.contains("is gone")).expect("it is looked at");
            assert!(line.contains(how), "{line}");
            let stays = |v: &VmSpec| v.start == Span::ZERO && v.stop.is_none();
            let words: Vec<&str> = line.split([' ', ';']).collect();
            assert!(
                scenario.runs[0]
                    .spec
                    .vms
                    .iter()
                    .all(|v| words.contains(&v.name.as_str()) == stays(v)),
                "{line}"
            );
        }
    }

    #[test]
    fn no_two_vms_draw_the_same_lengths() {
        let scenario = load("ready-vs-util");
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
