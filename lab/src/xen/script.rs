//! Writes the shell script that Domain-0 follows for the runs of one boot; pure, and refuses what
//! Xen or a PV VM of the lab cannot do.

use std::fmt::Write as _;

use settings::{Run, VmSpec, Workload};
use units::{PcpuSet, Span};

use super::guest::MAX_VCPUS;
use crate::error::{LabError, Result};
use crate::payload::{Orders, Work};

/// What a domain weighs at least, so that rounding to whole weights changes a ratio by 0.4 % at
/// most.
const LIGHTEST: u64 = 128;
/// Xen's range of weights.
const HEAVIEST: u64 = 65_535;

const HEAD: &str = r#"
fail() { echo "lab: $*"; xl list; xl dmesg | tail -n 20; exit 1; }
logs=/var/log/xen/console
# vm NAME VCPUS WEIGHT CAP CPUS ORDERS: makes a VM that waits to be started
vm() { cat >/tmp/$1.cfg <<X
name = "$1"
type = "pv"
kernel = "/lab/guest"
memory = 16
vcpus = $2
cpu_weight = $3
cap = $4
cpus = $5
extra = "$6"
tsc_mode = "native"
on_crash = "preserve"
X
  rm -f $logs/guest-$1.log; xl create -q -e -p /tmp/$1.cfg || fail "VM $1 cannot be created"; }
# has TEXT VM...: waits until the consoles of these VMs have a text
has() { text=$1; shift; for v in "$@"; do tries=0
  until grep -q "$text" $logs/guest-$v.log 2>/dev/null; do
    [ $tries -gt 120 ] && fail "VM $v did not say '$text'"
    sleep 0.5; tries=$((tries + 1)); done; done; }
# shot WHEN VM...: keeps what the VMs have reported
shot() { when=$1; shift; for v in "$@"; do cp $logs/guest-$v.log /tmp/$v.$when; done; }
# tell RUN VM...: the reports, each line with its run, VM and moment
tell() { run=$1; shift; for v in "$@"; do for when in before after; do
  sed "s/^/lab-report $run $v $when /" /tmp/$v.$when; done; done; }
"#;

fn refuse(run: &Run, seen: String, next: &str) -> LabError {
    LabError::new(format!("run '{}'", run.label), "be done under Xen", seen, next)
}

/// The script of one boot; `seconds` is the time of a run.
pub(super) fn whole(scheduler: &str, runs: &[(usize, &Run, Span)]) -> Result<String> {
    let mut text = HEAD.to_owned();
    for (i, run, time) in runs {
        text += &one(scheduler, *i, run, *time)?;
    }
    Ok(text)
}

/// One run: its VMs are made, started, measured and destroyed.
fn one(scheduler: &str, i: usize, run: &Run, time: Span) -> Result<String> {
    expressible(run)?;
    let weights = weights(run)?;
    let label = if run.label.is_empty() { "the run" } else { &run.label };
    let seconds = time.ns().div_ceil(1_000_000_000);
    let mut s = format!("echo 'lab: {scheduler}: {label}, {seconds} s'\n");
    // A heavier domain evens out the others in Credit2, even idle (docs/design/014-xen.md).
    let heaviest = weights.iter().max().copied().unwrap_or(LIGHTEST);
    let tool = scheduler.strip_prefix("xen-").unwrap_or(scheduler);
    let _ = writeln!(s, "xl sched-{tool} -d 0 -w {heaviest} || fail 'no weight for Domain-0'");
    for (vm, weight) in run.spec.vms.iter().zip(weights) {
        let line = orders(run, vm)?.command_line()?;
        let cap = cap(run, vm)?;
        let cpus = cpus(run, vm);
        let _ = writeln!(s, "vm {} {} {weight} {cap} '{cpus}' '{line}'", vm.name, vm.vcpus);
    }
    let names: Vec<&str> = run.spec.vms.iter().map(|v| v.name.as_str()).collect();
    let names = names.join(" ");
    let settle = 3_000_000_000 + run.spec.warmup.ns();
    let _ = writeln!(s, "for v in {names}; do xl unpause $v; done; has 'report n=1 ' {names}");
    let _ = writeln!(s, "sleep {}; shot before {names}", decimal(settle));
    let _ = writeln!(s, "sleep {}; shot after {names}", decimal(time.ns()));
    let _ = writeln!(s, "for v in {names}; do xl destroy $v; done; tell {i} {names}");
    Ok(s)
}

/// Refuses what neither Xen has nor a PV VM of the lab can do.
fn expressible(run: &Run) -> Result<()> {
    let spec = &run.spec;
    let without = "leave the scenario out for this system";
    let parts = [
        (spec.pools.is_empty(), "pools"),
        (spec.host_tasks.is_empty(), "host tasks"),
        (spec.changes.is_empty(), "settings that change"),
        (spec.offline.is_empty(), "pCPUs that go off line"),
        (spec.realtime.is_empty(), "real-time tasks"),
    ];
    if let Some((_, what)) = parts.iter().find(|p| !p.0) {
        return Err(refuse(run, format!("{what}, allowed VMs alone"), without));
    }
    for vm in &spec.vms {
        let whole = vm.start == Span::ZERO && vm.stop.is_none() && vm.active.is_empty();
        let parts = [
            (vm.reservation.is_none(), "a reservation"),
            (vm.burst.is_none(), "a burst"),
            (vm.hot_add.is_empty(), "vCPUs that are added"),
            (whole, "a time of its own"),
        ];
        if let Some((_, what)) = parts.iter().find(|p| !p.0) {
            return Err(refuse(run, format!("{what} of VM '{}'", vm.name), without));
        }
        if vm.vcpus > MAX_VCPUS {
            let seen = format!("{} vCPUs of VM '{}', allowed 1..={MAX_VCPUS}", vm.vcpus, vm.name);
            return Err(refuse(run, seen, without));
        }
    }
    Ok(())
}

/// Weights in the ratio of the shares per vCPU, which is what both schedulers weigh; the lightest
/// VM's is 128, or less where the heaviest one's would be out of range. Rounds to the nearest.
fn weights(run: &Run) -> Result<Vec<u64>> {
    let per_vcpu = |vm: &VmSpec| {
        let shares = vm.shares.resolve(vm.vcpus);
        let shares = shares.map_err(|e| refuse(run, e, "correct its shares"))?;
        Ok(f64::from(shares.get()) / f64::from(vm.vcpus))
    };
    let all = run.spec.vms.iter().map(per_vcpu).collect::<Result<Vec<f64>>>()?;
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    let scale = (LIGHTEST as f64 / least).min(HEAVIEST as f64 / most);
    Ok(all.iter().map(|w| ((w * scale).round() as u64).max(1)).collect())
}

/// The cap of a domain in whole percent of a pCPU; 0 is none.
fn cap(run: &Run, vm: &VmSpec) -> Result<u64> {
    let resources = vm
        .resources(run.spec.host.mhz)
        .map_err(|all| refuse(run, all.join("; "), "correct its settings"))?;
    let Some(limit) = resources.limit else { return Ok(0) };
    let percent = (limit.0 * 100) >> units::Rate::SHIFT;
    // Xen refuses a cap above what the vCPUs can use, which is none.
    Ok(if percent > 100 * u64::from(vm.vcpus) { 0 } else { percent.max(1) })
}

/// The pCPUs that vCPUs are pinned to, in xl's words.
fn cpus(run: &Run, vm: &VmSpec) -> String {
    let all = format!("0-{}", run.topology.pcpus() - 1);
    let shown = |set: &PcpuSet| set.to_string();
    if let Some(each) = &vm.vcpu_affinity {
        let each: Vec<String> = each.iter().map(|set| format!("\"{}\"", shown(set))).collect();
        return format!("[{}]", each.join(", "));
    }
    let set = vm.affinity.as_ref().or(vm.cpuset.as_ref());
    format!("\"{}\"", set.map_or(all, shown))
}

fn orders(run: &Run, vm: &VmSpec) -> Result<Orders> {
    let us = |t: Span| {
        u32::try_from(t.ns() / 1000)
            .map_err(|_| refuse(run, format!("a time of {t}"), "keep times below 71 minutes"))
    };
    let work = |i: u32| {
        let work = match vm.workload_of(i as usize) {
            Workload::Idle => Work::Idle,
            Workload::Burn => Work::Burn,
            Workload::Duty { work, sleep } => {
                Work::Duty { work_us: us(work)?, sleep_us: us(sleep)? }
            }
            other => {
                let seen = format!("kind {}, allowed idle, burn, duty", other.kind());
                return Err(refuse(run, seen, "leave the scenario out for this system"));
            }
        };
        Ok((work, vec![]))
    };
    Ok(Orders {
        report_ms: Some(1000),
        buckets: run.spec.lab.trace,
        vcpus: (0..vm.vcpus).map(work).collect::<Result<_>>()?,
        ..Orders::default()
    })
}

fn decimal(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str) -> settings::Scenario {
        settings::load(&format!("{}/../scenarios/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn script(name: &str, label: &str) -> Result<String> {
        let scenario = load(name);
        let run = scenario.runs.iter().find(|r| r.label == label).expect("such a run");
        one("xen-credit2", 0, run, Span::from_secs(10))
    }

    #[test]
    fn weights_have_the_ratio_of_shares_per_vcpu_and_domain_0_is_not_heavier() {
        let text = script("shares-ratio", "1:7").unwrap();
        assert!(text.contains("\nxl sched-credit2 -d 0 -w 896 "), "{text}");
        let burners: String = (0..8).map(|i| format!(" {i}:burn")).collect();
        let vm = |name: &str, weight: u32| {
            format!("\nvm {name} 8 {weight} 0 '\"0-7\"' 'report=1000 seed=0{burners}'\n")
        };
        assert!(text.contains(&vm("vm1", 128)) && text.contains(&vm("vm2", 896)), "{text}");
        // As wide as the others, but for one vCPU: it is weighed by its shares for each.
        let text = script("models-mix", "mix").unwrap();
        assert!(text.contains("\nvm worker 1 128 0 '\"0-0\"' "), "{text}");
        assert!(text.contains(" 0:duty,2000,5000'\n") && text.contains("\nvm heavy 1 384 0 "));
    }

    #[test]
    fn a_limit_is_a_cap_in_percent_and_reports_are_taken_a_runs_time_apart() {
        let text = script("models-mix", "limit 100 %").unwrap();
        assert!(text.contains("\nvm heavy 2 384 100 ") && text.contains("\nvm light 2 128 0 "));
        assert!(text.contains("\nsleep 4.000; shot before light heavy\nsleep 10.000; shot after"));
    }

    #[test]
    fn what_xen_has_not_is_refused_by_name() {
        let refused = |name: &str, label: &str| script(name, label).unwrap_err().to_string();
        let pools = refused("pool-limit", "8 VMs");
        assert!(pools.contains("run '8 VMs': cannot be done under Xen: pools, allowed VMs alone"));
        let tasks = refused("wakeup-latency", "idle host");
        assert!(tasks.contains("host tasks"), "{tasks}");
    }
}
