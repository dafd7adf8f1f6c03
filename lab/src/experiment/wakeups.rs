//! How late vCPUs ran after they should have woken: by the VMs' own clock under any scheduler, and
//! by Tandem's trace where one was recorded.

use serde::Deserialize;
use settings::{Run, Workload};
use views::{Latencies, MeasuredBy, Wakeups};

use crate::boot::BootOutcome;
use crate::payload;

/// What is read of `tandem trace waits --json`.
#[derive(Deserialize)]
struct Waits {
    waits: Vec<Wait>,
}

#[derive(Deserialize)]
struct Wait {
    name: String,
    vm_name: String,
    ns: u64,
    ran_on: Option<u32>,
    slept: bool,
}

/// Wake-ups of all VMs of a run whose files begin with `prefix`, in the scenario's order.
pub(super) fn all(outcome: &BootOutcome, prefix: &str, run: &Run) -> Vec<Wakeups> {
    let waits = outcome.file(&format!("{prefix}.waits")).ok();
    let mut out = vec![];
    for vm in &run.spec.vms {
        let text = |when: &str| outcome.file(&format!("{prefix}.{}.{when}", vm.name));
        if let (Ok(before), Ok(after)) = (text("before"), text("after")) {
            out.extend(payload::latencies(&before, &after).sums(
                &vm.name,
                MeasuredBy::Workload,
                1000,
                0,
            ));
        }
        let timed = |vcpu: usize| !matches!(vm.workload_of(vcpu), Workload::Burn | Workload::Idle);
        let names: Vec<String> =
            (0..vm.vcpus as usize).filter(|i| timed(*i)).map(|i| format!("vcpu{i}")).collect();
        let seen = waits.as_ref().map(|text| of_trace(text, &vm.name, &names));
        out.extend(seen.and_then(|l| l.sums(&vm.name, MeasuredBy::Scheduler, 1, 0)));
    }
    out
}

/// From READY to RUN after each sleep of these vCPUs of a VM.
fn of_trace(text: &str, vm: &str, vcpus: &[String]) -> Latencies {
    let mut all = Latencies::default();
    let Ok(waits) = serde_json::from_str::<Waits>(text) else { return all };
    let of_vm = waits.waits.iter().filter(|w| w.vm_name == vm && vcpus.contains(&w.name));
    of_vm.filter(|w| w.slept && w.ran_on.is_some()).for_each(|w| all.add(w.ns));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sleeps_of_the_vcpus_that_were_asked_for_count_and_only_if_they_ended_in_running() {
        let wait = |vm: &str, name: &str, ns: u64, ran_on: &str, slept: bool| {
            format!(
                r#"{{"world":1,"name":"{name}","vm_name":"{vm}","ns":{ns},"ran_on":{ran_on},"slept":{slept},"end":"open"}}"#
            )
        };
        let waits = [
            wait("waker", "vcpu2", 40, "0", true),
            wait("waker", "vcpu2", 60, "1", true),
            wait("waker", "vcpu2", 900, "null", true), // it still waits when the trace ends
            wait("waker", "vcpu2", 800, "0", false),   // it was put off
            wait("waker", "vcpu0", 700, "0", true),    // it writes reports
            wait("load", "vcpu2", 600, "0", true),
        ];
        let text = format!(r#"{{"waits":[{}],"all":{{}},"brief_ns":100000}}"#, waits.join(","));
        let sums = of_trace(&text, "waker", &["vcpu2".to_owned()])
            .sums("waker", MeasuredBy::Scheduler, 1, 0)
            .expect("some");
        assert_eq!((sums.count, sums.min_ns, sums.mean_ns, sums.max_ns), (2, 40, 50, 60));
        assert_eq!(of_trace("{}", "waker", &[]).sums("waker", MeasuredBy::Scheduler, 1, 0), None);
    }
}
