//! The guest's own scheduler: `[vm.guest]` and its tasks, `[[vm.task]]`; and why they cannot be.

use crate::{Bytes, Dist, VmSpec, checks::bad_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use units::Span;

/// The kernel of a VM's guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestSpec {
    /// Whether the guest sees no topology: one level of vCPUs without common caches.
    pub hidden: bool,
    /// Threads of a core, as the guest is shown it.
    pub threads_per_core: u32,
    /// vCPUs that share an LLC, as the guest is shown it; all if left out.
    pub vcpus_per_llc: Option<u32>,
    /// Whether an exec looks for an idler vCPU (SD_BALANCE_EXEC).
    pub exec_balance: bool,
    /// Whether a task that execs is itself a load of its vCPU then, as up to Linux 5.4.
    pub exec_counts_itself: bool,
    /// Whether tasks that wake many others are left near their last vCPU.
    pub wake_wide: bool,
    /// Whether steal time is reported to the guest.
    pub steal: bool,
    /// Time between two ticks.
    pub tick: Span,
    /// CPU time that sending an interrupt to another vCPU takes.
    pub send: Span,
    /// CPU time from the moment a halted vCPU runs on the host to the moment its guest does.
    pub wake: Span,
}

/// A tick of 250 Hz, as that of the host; an exit of some 2 us, a few thousand cycles as
/// kvm-unit-tests' `vmexit` counts them.
impl Default for GuestSpec {
    fn default() -> GuestSpec {
        GuestSpec {
            hidden: false,
            threads_per_core: 1,
            vcpus_per_llc: None,
            exec_balance: true,
            exec_counts_itself: true,
            wake_wide: true,
            steal: false,
            tick: Span::from_ms(4),
            send: Span::from_ns(2_000),
            wake: Span::ZERO,
        }
    }
}

/// Tasks of a guest that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestTask {
    /// Name.
    pub name: String,
    /// How many of them.
    #[serde(default = "one")]
    pub count: u32,
    /// What each does.
    pub does: GuestWork,
    /// Memory that it works on: what it lacks in the caches of another core after a move.
    #[serde(default = "set")]
    pub working_set: Bytes,
}

/// What a task of a guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum GuestWork {
    /// Never stops wanting CPU.
    Burn,
    /// Works, then waits for a device, which interrupts a vCPU: a stream over a network.
    Io {
        /// Mean CPU time of one piece of work.
        work: Span,
        /// Mean wait.
        sleep: Span,
        /// vCPU that the device interrupts; the one where the task went to sleep if left out.
        interrupts: Option<u32>,
        /// How both are spread.
        #[serde(default)]
        dist: Dist,
    },
    /// Replaces itself by exec after each piece of work.
    Exec {
        /// Mean CPU time of an exec and what comes up to the next.
        work: Span,
        /// How it is spread.
        #[serde(default)]
        dist: Dist,
    },
    /// One of a pair that pass a token through pipes.
    Pipe {
        /// Mean CPU time of one piece of work.
        work: Span,
        /// How it is spread.
        #[serde(default)]
        dist: Dist,
    },
}

fn one() -> u32 {
    1
}

/// The private cache of a core of the time of XK.
fn set() -> Bytes {
    Bytes(256 << 10)
}

/// Most tasks of a guest.
const TASKS_MAX: u32 = 4096;

/// What is wrong with a VM's guest and its tasks, without the VM's name.
pub(crate) fn guest_reasons(vm: &VmSpec) -> Vec<String> {
    let mut out = vec![];
    let Some(guest) = &vm.guest else {
        if !vm.tasks.is_empty() {
            out.push(format!(
                "task: seen {} [[vm.task]], allowed only with [vm.guest]; add it",
                vm.tasks.len()
            ));
        }
        return out;
    };
    let others = [
        ("workload", vm.workload.is_some()),
        ("vcpu_workloads", vm.vcpu_workloads.is_some()),
        ("watchdog", vm.watchdog.is_some()),
        ("hot_add", !vm.hot_add.is_empty()),
    ];
    out.extend(others.iter().filter(|o| o.1).map(|(key, _)| {
        format!("{key}: seen with [vm.guest], allowed without; what vCPUs do, its tasks say")
    }));
    if vm.tasks.is_empty() {
        out.push("guest: seen no [[vm.task]], allowed 1 or more; add what its vCPUs do".to_owned());
    }
    shown(vm, guest, &mut out);
    for (key, span, least) in [("tick", guest.tick, 100_000)] {
        if !(least..=100_000_000).contains(&span.ns()) {
            out.push(format!("guest.{key}: seen {span}, allowed 100us..100ms"));
        }
    }
    for (key, span) in [("send", guest.send), ("wake", guest.wake)] {
        if span.ns() > 10_000_000 {
            out.push(format!("guest.{key}: seen {span}, allowed at most 10ms"));
        }
    }
    tasks(vm, &mut out);
    out
}

fn shown(vm: &VmSpec, guest: &GuestSpec, out: &mut Vec<String>) {
    let llc = guest.vcpus_per_llc.unwrap_or(vm.vcpus);
    let threads = guest.threads_per_core;
    if guest.hidden && (threads != 1 || guest.vcpus_per_llc.is_some()) {
        out.push(
            "guest.hidden: seen true beside a topology, allowed true or threads_per_core and \
             vcpus_per_llc; a guest that sees none has neither"
                .to_owned(),
        );
    }
    if llc == 0 || vm.vcpus % llc != 0 {
        let vcpus = vm.vcpus;
        out.push(format!(
            "guest.vcpus_per_llc: seen {llc}, allowed what divides its {vcpus} vCPUs"
        ));
    } else if threads == 0 || llc % threads != 0 {
        out.push(format!(
            "guest.threads_per_core: seen {threads}, allowed what divides the {llc} vCPUs of an LLC"
        ));
    }
}

fn tasks(vm: &VmSpec, out: &mut Vec<String>) {
    let all: u64 = vm.tasks.iter().map(|t| u64::from(t.count)).sum();
    if all > u64::from(TASKS_MAX) {
        out.push(format!("task: seen {all} tasks, allowed {TASKS_MAX}"));
    }
    let mut names = BTreeSet::new();
    for task in &vm.tasks {
        let mut say = |reason: String| out.push(format!("task '{}': {reason}", task.name));
        bad_name(&task.name).into_iter().for_each(&mut say);
        if !names.insert(&task.name) {
            say("two have this name; each needs its own".to_owned());
        }
        let mut times = vec![];
        match task.does {
            GuestWork::Burn => {}
            GuestWork::Io { work, sleep, interrupts, .. } => {
                times.extend([("work", work), ("sleep", sleep)]);
                if let Some(v) = interrupts.filter(|v| *v >= vm.vcpus) {
                    let last = vm.vcpus.saturating_sub(1);
                    say(format!("does.interrupts: seen vCPU {v}, allowed 0..{last}"));
                }
            }
            GuestWork::Exec { work, .. } => times.push(("work", work)),
            GuestWork::Pipe { work, .. } => {
                times.push(("work", work));
                if task.count % 2 != 0 {
                    let seen = task.count;
                    say(format!("count: seen {seen}, allowed even numbers; a pipe has two ends"));
                }
            }
        }
        for (key, span) in times.into_iter().filter(|t| t.1.ns() < 1_000) {
            say(format!("does.{key}: seen {span}, allowed 1us or more"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ScenarioError, raw::parse};

    const EXEC: &str = "[[vm.task]]\nname = 'x'\ndoes = { kind = 'exec', work = '1ms' }\n";

    fn read(keys: &str) -> Result<VmSpec, Vec<String>> {
        let text = format!("[host]\ncores_per_llc = 4\n[[vm]]\nname = 'a'\nvcpus = 4\n{keys}");
        match parse("t.toml", "t", &text) {
            Ok(mut s) => Ok(s.runs.remove(0).spec.vms.remove(0)),
            Err(ScenarioError::Invalid { reasons, .. }) => Err(reasons),
            Err(other) => panic!("{keys}: {other}"),
        }
    }

    #[test]
    fn a_guest_is_read_with_its_tasks_and_defaults() {
        let vm = read(&format!("[vm.guest]\nwake = '30us'\n{EXEC}")).expect("it is read");
        let wake = Span::from_ns(30_000);
        assert_eq!(vm.guest, Some(GuestSpec { wake, ..GuestSpec::default() }));
        let work = Span::from_ms(1);
        assert_eq!(vm.tasks[0].does, GuestWork::Exec { work, dist: Dist::Fixed });
        assert_eq!((vm.tasks[0].count, vm.tasks[0].working_set), (1, Bytes(256 << 10)));
    }

    #[test]
    fn what_a_guest_cannot_be_is_refused_with_every_reason() {
        let guest = |keys: &str| read(&format!("[vm.guest]\n{keys}\n{EXEC}")).unwrap_err();
        assert_eq!(
            read(EXEC).unwrap_err(),
            ["vm 'a': task: seen 1 [[vm.task]], allowed only with [vm.guest]; add it"]
        );
        assert_eq!(
            read("workload = { kind = 'burn' }\n[vm.guest]\n").unwrap_err(),
            [
                "vm 'a': workload: seen with [vm.guest], allowed without; what vCPUs do, its tasks \
                 say",
                "vm 'a': guest: seen no [[vm.task]], allowed 1 or more; add what its vCPUs do"
            ]
        );
        assert_eq!(
            guest("vcpus_per_llc = 3"),
            ["vm 'a': guest.vcpus_per_llc: seen 3, allowed what divides its 4 vCPUs"]
        );
        assert_eq!(
            guest("vcpus_per_llc = 2\nthreads_per_core = 4\ntick = '1us'"),
            [
                "vm 'a': guest.threads_per_core: seen 4, allowed what divides the 2 vCPUs of an \
                 LLC",
                "vm 'a': guest.tick: seen 1us, allowed 100us..100ms"
            ]
        );
        assert!(
            guest("hidden = true\nthreads_per_core = 2")[0].contains("guest.hidden: seen true")
        );
        let task = |does: &str| {
            read(&format!("[vm.guest]\n[[vm.task]]\nname = 'x'\ndoes = {does}\n")).unwrap_err()
        };
        assert_eq!(
            task("{ kind = 'io', work = '1ns', sleep = '1ms', interrupts = 4 }"),
            [
                "vm 'a': task 'x': does.interrupts: seen vCPU 4, allowed 0..3",
                "vm 'a': task 'x': does.work: seen 1ns, allowed 1us or more"
            ]
        );
        assert_eq!(
            task("{ kind = 'pipe', work = '1ms' }"),
            ["vm 'a': task 'x': count: seen 1, allowed even numbers; a pipe has two ends"]
        );
    }
}
