//! Reads a guest kernel's log for what a test must not overlook: panics, ejected schedulers,
//! lockups, and the two deaths that are the emulator's fault and may be tried again; pure, so that
//! canned logs test it.

use std::fmt;

/// QEMU's emulator can run into a half-patched branch of the guest kernel; the kernel never takes
/// an int3 of its own without handling it, so this line is reason to try again.
const EMULATOR_DEATH: &str = "Oops: int3";
/// The KVM that QEMU emulates loses a VM now and then, one of wide ones in some tens, without a
/// word. Where Tandem is not loaded it has no part in it: reason to try again as well, and nothing
/// else is. The script of an experiment writes this into the log.
const VM_LOST: &str = "lab: lost without Tandem: ";

/// Something in the kernel's log that a result must be judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The kernel gave up.
    Panic(String),
    /// An oops or BUG.
    Oops(String),
    /// A sched_ext scheduler was thrown out: an error, a stalled task, or the operator's key.
    SchedulerEjected(String),
    /// CPUs locked up while a scheduler was loaded, and the boot never ended.
    SchedulerHung(String),
    /// A CPU or task stood still for too long. Under emulation on a busy machine this can be the
    /// machine's fault.
    Lockup(String),
    /// The kernel complained (`WARNING:`).
    Warning(String),
    /// The boot was ended from outside because its time was up.
    TimeLimit(String),
}

impl Finding {
    /// Whether a run with this finding cannot count as passed.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Finding::Lockup(_) | Finding::Warning(_))
    }

    /// Whether this is an ejection that was asked for, by SysRq S.
    pub fn is_of_the_operator(&self) -> bool {
        matches!(self, Finding::SchedulerEjected(line) if line.contains("(disabled by sysrq-S)"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, line) = match self {
            Finding::Panic(line) => ("kernel panic", line),
            Finding::Oops(line) => ("kernel oops", line),
            Finding::SchedulerEjected(line) => ("scheduler ejected", line),
            Finding::SchedulerHung(line) => ("scheduler hung", line),
            Finding::Lockup(line) => ("lockup", line),
            Finding::Warning(line) => ("kernel warning", line),
            Finding::TimeLimit(line) => ("time limit", line),
        };
        write!(f, "{what}: {line}")
    }
}

/// Whether this log shows the death that is the emulator's fault.
pub fn died_of_the_emulator(log: &str) -> bool {
    log.contains(EMULATOR_DEATH) || log.contains(VM_LOST)
}

/// Everything notable in a kernel log, in order.
pub fn findings(log: &str) -> Vec<Finding> {
    log.lines().filter_map(classify).collect()
}

fn classify(line: &str) -> Option<Finding> {
    let text = || line.trim().to_owned();
    let has = |words: &[&str]| words.iter().any(|w| line.contains(w));
    if has(&["Kernel panic - not syncing"]) {
        Some(Finding::Panic(text()))
    } else if has(&["sched_ext:"]) {
        // "disabled (unregistered …)" is an orderly exit; every other reason is an ejection.
        let ejected = has(&["disabled (", "disabled due to"]) && !has(&["(unregistered"]);
        ejected.then(|| Finding::SchedulerEjected(text()))
    } else if has(&[
        "soft lockup",
        "hard LOCKUP",
        "detected stall",
        "self-detected stall",
        "blocked for more than",
    ]) {
        Some(Finding::Lockup(text()))
    } else if has(&["Oops: ", "BUG: ", "kernel BUG at", "general protection fault"]) {
        Some(Finding::Oops(text()))
    } else if has(&["WARNING: "]) {
        Some(Finding::Warning(text()))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT3: &str = "[    1.93] smp: Bringing up secondary CPUs ...\n\
        [    2.11] Oops: int3: 0000 [#1] SMP NOPTI\n\
        [    2.12] RIP: 0010:try_to_wake_up+0x41/0x5a0\n\
        [    2.30] Kernel panic - not syncing: Fatal exception in interrupt\n";

    #[test]
    fn an_int3_oops_and_a_vm_lost_without_tandem_are_the_emulators_fault_and_nothing_else_is() {
        assert!(died_of_the_emulator(INT3));
        assert!(died_of_the_emulator(
            "[   98.5] lab: lost without Tandem: VM build did not start\n"
        ));
        assert!(!died_of_the_emulator("[   98.5] lab: command ended with 1\n"));
        let own = "[    9.1] Oops: 0000 [#1] SMP NOPTI\n[    9.2] Kernel panic - not syncing: \
            Fatal exception\n";
        assert!(!died_of_the_emulator(own));
        assert!(!died_of_the_emulator("[    3.0] Run /init as init process\n"));
    }

    #[test]
    fn a_panic_and_its_oops_are_both_found_in_order() {
        let found = findings(INT3);
        assert_eq!(found.len(), 2);
        assert!(matches!(&found[0], Finding::Oops(l) if l.contains("int3")));
        assert!(matches!(&found[1], Finding::Panic(_)) && found[1].is_fatal());
    }

    #[test]
    fn an_ejected_scheduler_is_told_from_one_that_left() {
        let log = "[ 20.1] sched_ext: BPF scheduler \"tandem\" enabled\n\
            [ 31.5] sched_ext: BPF scheduler \"tandem\" disabled (runnable task stall)\n\
            [ 31.6] sched_ext: tandem: burn[211] failed to run for 30.004s\n\
            [ 40.0] sched_ext: BPF scheduler \"tandem\" disabled (unregistered from user space)\n";
        let found = findings(log);
        assert_eq!(found.len(), 1);
        assert!(matches!(&found[0], Finding::SchedulerEjected(l) if l.contains("task stall")));
        assert!(found[0].is_fatal() && !found[0].is_of_the_operator());
        let asked = "[ 9.1] sched_ext: BPF scheduler \"tandem\" disabled (disabled by sysrq-S)\n";
        assert!(findings(asked)[0].is_fatal() && findings(asked)[0].is_of_the_operator());
    }

    #[test]
    fn lockups_and_warnings_are_reported_but_do_not_fail_a_run_by_themselves() {
        let log = "[ 9.0] watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [burn:77]\n\
            [ 9.5] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n\
            [ 9.9] WARNING: CPU: 1 PID: 5 at kernel/sched/ext.c:100 foo+0x1/0x2\n";
        let found = findings(log);
        assert_eq!(found.len(), 3);
        assert!(matches!((&found[0], &found[1]), (Finding::Lockup(_), Finding::Lockup(_))));
        assert!(found.iter().all(|f| !f.is_fatal()));
    }

    #[test]
    fn a_healthy_log_has_no_findings() {
        let log = "[ 0.0] Linux version 7.2.13+deb14-cloud-amd64\n[ 5.1] lab: user space reached\n";
        assert_eq!(findings(log), []);
    }
}
