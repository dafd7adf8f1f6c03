//! Writes the shell script and the settings that one boot of an experiment follows inside the
//! guest; pure.

mod groups;
mod guests;

pub(super) use groups::settings;

use std::fmt::Write as _;

use settings::{PlacedPool, Run, VmSpec};
use units::Span;

use super::{Experiment, Policy};
use crate::error::{LabError, Result};
use groups::{make_pools, pools, weights};
use guests::{active_at, edges, host_task, pins, start};

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
# The log says when the scheduler is there, so that a hang can be told from the emulator's (boot/hang.rs).
tandem_on() { rm -f /run/tandem/vms.json; echo "lab: scheduler loads" >/dev/kmsg; tandem run --config $1 >>/lab/out/tandem.log 2>&1 & daemon=$!
  for i in $(seq 150); do grep -q enabled /sys/kernel/sched_ext/state && return; kill -0 $daemon 2>/dev/null || break; sleep 0.2; done
  cat /lab/out/tandem.log; fail "tandem did not start"; }
# knows N: waits until the daemon has found so many VMs
knows() { for i in $(seq 150); do [ "$(cat /run/tandem/vms.json 2>/dev/null | grep -c \
    '"name"')" -ge $1 ] && return; sleep 0.2; done; fail "tandem found too few VMs"; }
tandem_off() { kill -INT $daemon; wait $daemon; [ $? = 0 ] || { tail -5 /lab/out/tandem.log; fail "tandem did not leave cleanly"; }
  echo "lab: scheduler unloaded" >/dev/kmsg
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

/// One run under one policy: its VMs are started, measured and powered off.
fn one(experiment: &Experiment<'_>, policy: Policy, i: usize, run: &Run) -> Result<String> {
    let mut s = String::new();
    let label = if run.label.is_empty() { "the run" } else { &run.label };
    let duration = experiment.duration_of(run);
    let seconds = duration.ns().div_ceil(1_000_000_000);
    let _ = writeln!(s, "echo; echo '== {}: {label}, {seconds} s'", policy.name());
    if !run.spec.changes.is_empty() {
        return Err(refuse(
            run,
            "settings that change while it goes on".to_owned(),
            "add lab.skip with that reason",
        ));
    }
    let pools = pools(run)?;
    s += &make_pools(&pools, &weights(run, &pools));
    s += &boot_vms(run, &pools)?;
    for (n, task) in run.spec.host_tasks.iter().enumerate() {
        s += &host_task(run, n, task)?;
    }
    if policy == Policy::Tandem {
        let vms = run.spec.vms.len();
        let _ = writeln!(s, "tandem_on /lab/in/settings-{i}.toml; knows {vms}");
    }
    s += &wake_vms(run);
    s += &measure(experiment, policy, i, run);
    if policy == Policy::Tandem {
        if run.spec.lab.trace {
            s += &record(run, i, duration);
        }
        s += "grep -q enabled /sys/kernel/sched_ext/state || fail 'the kernel ejected the \
            scheduler'\ntandem_off\n";
    }
    let all: Vec<&VmSpec> = run.spec.vms.iter().collect();
    let _ = writeln!(s, "power_off {}; for t in $tasks; do kill -9 $t; done; tasks=", names(&all));
    for pool in pools.iter().skip(1).rev() {
        let _ = writeln!(s, "rmdir /sys/fs/cgroup{}", pool.path);
    }
    Ok(s)
}

/// Boots all VMs, one after the other, each stopped once it is up: a VM that burns would keep the
/// next from booting.
fn boot_vms(run: &Run, pools: &[PlacedPool]) -> Result<String> {
    let mut s = String::new();
    for vm in &run.spec.vms {
        s += &start(run, vm, pools)?;
        let _ = writeln!(
            s,
            "lab-wait 90 'payload up' /lab/out/{0}.debug || lost 'VM {0} did not start'",
            vm.name
        );
        s += &pins(vm);
        let _ = writeln!(s, "kill -STOP $(cat /lab/out/{}.pid)", vm.name);
    }
    Ok(s)
}

/// VMs that are active from the run's start go on, once the scheduler is there. While they burned,
/// the kernel's own one gave khugepaged (nice 19, beside groups of weight 10,000) so little of the
/// emulated host in the 45 s of the load that RCU waited 21 s for it; 7.3 then ejects any
/// scheduler. Drills load beside VMs that run.
fn wake_vms(run: &Run) -> String {
    let awake: Vec<&VmSpec> = run.spec.vms.iter().filter(|v| active_at(v, Span::ZERO)).collect();
    format!("for v in {}; do kill -CONT $(cat /lab/out/$v.pid); done\n", names(&awake))
}

/// Takes the accounts of a run between two looks at its guests' reports.
fn measure(experiment: &Experiment<'_>, policy: Policy, i: usize, run: &Run) -> String {
    let (name, duration) = (policy.name(), experiment.duration_of(run));
    let all = names(&run.spec.vms.iter().collect::<Vec<_>>());
    let report = |when: &str| {
        format!("for v in {all}; do cp /lab/out/$v.debug /lab/out/{name}-{i}.$v.{when}; done\n")
    };
    let mut s = format!("sleep 3; {}", report("before"));
    run.spec.vms.iter().for_each(|vm| s += &edges(vm));
    if run.spec.warmup > Span::ZERO {
        let _ = writeln!(s, "sleep {}", decimal(run.spec.warmup));
    }
    let kernel = if policy != Policy::Tandem { "--kernel" } else { "" };
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
        "tandem top --once --json {kernel} --interval {duration} >/lab/out/{name}-{i}.json || \
            fail 'no accounts'"
    );
    s += &alive(policy, run);
    if experiment.show_top {
        s += "kill $top; wait $top $shown 2>/dev/null\n";
    }
    // what is due after the run's end is not for the next one
    s += "[ -z \"$timers\" ] || kill $timers 2>/dev/null; timers=\n";
    s + &report("after")
}

/// Fails where a VM is gone of those that neither start nor stop while it is measured.
fn alive(policy: Policy, run: &Run) -> String {
    let stays = |v: &&VmSpec| v.start == Span::ZERO && v.stop.is_none();
    let always = names(&run.spec.vms.iter().filter(stays).collect::<Vec<_>>());
    let gone = if policy != Policy::Tandem { "lost" } else { "fail" };
    format!(
        "for v in {always}; do kill -0 $(cat /lab/out/$v.pid) || {gone} \"VM $v is gone\"; done\n"
    )
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
         tandem trace waits /tmp/{i}.trace{vcpus}{knobs} --json /lab/out/tandem-{i}.waits --most 3 || fail 'no waits'\n\
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

#[cfg(test)]
mod tests {
    use super::*;

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
                --set system_shares=200 --json /lab/out/tandem-0.waits",
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
}
