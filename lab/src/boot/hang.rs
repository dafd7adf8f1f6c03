//! Tells from a guest kernel's log alone which side a boot that stopped making progress hung on:
//! the emulator, whose pCPU stays in a nested guest, or the scheduler; pure, and it does
//! not ask whether the boot did stop.

/// What the guest's scripts write into the log before they start Tandem. The kernel tells the end
/// of loading only, and verifying takes seconds.
const LOADS: &str = "lab: scheduler loads";
/// What they write when the kernel's own scheduler has all tasks again.
const UNLOADED: &str = "lab: scheduler unloaded";
/// What the guest's init writes before and after the boot's command.
const COMMAND_STARTS: &str = "lab: command starts";
const COMMAND_ENDED: &str = "lab: command ended";
/// How the kernel tells both itself.
const KERNEL_LOADED: &str = "\" enabled";
const KERNEL_UNLOADED: &str = "disabled (unregistered";
/// What a CPU waits in for one that takes no interrupts: an emulated one in a nested guest.
const WAITS_FOR_A_CPU: &str = "smp_call_function_many_cond";
/// What asks a CPU that RCU has waited for where it is: `Sending NMI from CPU 1 to CPUs 0,2-3:`.
const ASKED: &str = "Sending NMI from CPU";
/// What comes before the registers of such a CPU.
const STALLED_CPU: &str = "NMI backtrace for cpu";
/// For how long the kernel waits for such answers, and a second more, in s of the guest.
const ANSWERS_S: f64 = 11.0;
/// Lines of a log that say what a hang is, beside those of sched_ext, and how many are shown.
const TELLING: [&str; 7] =
    ["rcu:", "soft lockup", "hard LOCKUP", ASKED, STALLED_CPU, "RIP: ", "blocked for more than"];
const SHOWN: usize = 16;
/// Where a CPU is while its nested guest runs.
const IN_NESTED_GUEST: [&str; 2] = ["svm_vcpu_run+", "vmx_vcpu_run+"];
/// CONFIG_RCU_CPU_STALL_TIMEOUT of Debian's kernels, in seconds: a stall is as old as that when its
/// first line comes.
const RCU_STALL_S: f64 = 21.0;
/// CONFIG_HZ of Debian's kernels.
const HZ: f64 = 250.0;

/// Which side a boot hung on, with the line of the log that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hang {
    /// The lockup's whole signature, no part of it while a scheduler was loaded, and no error of
    /// sched_ext: reason to try again.
    Emulator(String),
    /// CPUs were locked up while a scheduler was loaded: its failure.
    Scheduler(String),
}

/// A CPU that stood still, as one line of the log tells it.
struct Lockup<'a> {
    line: &'a str,
    /// Guest time in s at which it began; unknown is before everything.
    began: f64,
    /// A scheduler was loaded when the line came.
    loaded: bool,
    /// Guest time in s at which a scheduler was unloaded last before the line.
    unloaded: f64,
}

impl Lockup<'_> {
    fn beside_a_scheduler(&self) -> bool {
        self.loaded || self.began < self.unloaded
    }
}

/// Which side hung by the log of a boot that ran into its time limit; none where the log shows no
/// lockup, or not all that tells one of the emulator.
pub fn hang(log: &str) -> Option<Hang> {
    let all = lockups(log);
    let first = all.first()?;
    if let Some(lockup) = all.iter().find(|l| l.beside_a_scheduler()) {
        return Some(Hang::Scheduler(lockup.line.to_owned()));
    }
    let shown = log.contains(WAITS_FOR_A_CPU) && !log.lines().any(is_error_of_sched_ext);
    shown.then(|| Hang::Emulator(first.line.to_owned()))
}

/// The line that shows a CPU that RCU has waited for in vain and that the emulator has lost: one
/// that ran a nested guest, or that took no NMI. Each timer interrupt ends a nested guest's run,
/// whatever the scheduler does, and for 21 s none has come through; and nothing that a kernel does
/// keeps an NMI out for 10 s.
pub fn lost_cpu(log: &str) -> Option<String> {
    lost_in_nested_guest(log).or_else(|| takes_no_nmi(log))
}

/// Those lines of a log that say what a hang is.
pub fn excerpt(log: &str) -> Vec<&str> {
    let of_scheduler = |l: &&str| l.contains("sched_ext:") && !is_loading(l) && !is_unloading(l);
    let tells = |l: &&str| TELLING.iter().any(|word| l.contains(word)) || of_scheduler(l);
    log.lines().filter(tells).map(str::trim).take(SHOWN).collect()
}

fn takes_no_nmi(log: &str) -> Option<String> {
    let last = log.lines().rev().find_map(stamp)?;
    let mut lines = log.lines().skip_while(|l| stood_still(l).is_none());
    lines.find_map(|asks| {
        let asked = asks.split_once(ASKED)?.1.split_once("to CPUs ")?.1;
        let cpus = asked.trim_end_matches(':').split(',').filter_map(|part| {
            let (first, end) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse::<u32>().ok()?..=end.trim().parse().ok()?)
        });
        let answers = |cpu: u32| {
            let said = |l: &str| l.split_once(STALLED_CPU).map(|(_, n)| n.trim().to_owned());
            log.lines().filter_map(said).any(|n| n.split(' ').next() == Some(&cpu.to_string()))
        };
        let silent = cpus.flatten().any(|cpu| !answers(cpu));
        (silent && last > stamp(asks)? + ANSWERS_S).then(|| asks.trim().to_owned())
    })
}

fn lost_in_nested_guest(log: &str) -> Option<String> {
    let mut lines = log.lines().skip_while(|l| stood_still(l).is_none());
    while lines.any(|l| l.contains(STALLED_CPU)) {
        let at = lines.by_ref().find(|l| l.contains("RIP: "))?;
        if IN_NESTED_GUEST.iter().any(|place| at.contains(place)) {
            return Some(at.trim().to_owned());
        }
    }
    None
}

/// The last line of a boot whose machine was gone in the middle of its command, without a panic or
/// a word, while no scheduler was loaded: the emulated CPU took a triple fault.
pub fn gone_without_a_word(log: &str) -> Option<String> {
    let (mut loaded, mut runs) = (false, false);
    for line in log.lines() {
        loaded = (loaded || is_loading(line)) && !is_unloading(line);
        runs = (runs || line.contains(COMMAND_STARTS)) && !line.contains(COMMAND_ENDED);
    }
    (runs && !loaded).then(|| log.lines().last().unwrap_or_default().trim().to_owned())
}

fn lockups(log: &str) -> Vec<Lockup<'_>> {
    let (mut loaded, mut unloaded) = (false, f64::NEG_INFINITY);
    let mut out = vec![];
    for line in log.lines() {
        let at = stamp(line);
        if is_unloading(line) {
            (loaded, unloaded) = (false, at.unwrap_or(f64::INFINITY));
        } else if is_loading(line) {
            loaded = true;
        } else if let Some(seconds) = stood_still(line) {
            let began = at.map_or(f64::NEG_INFINITY, |at| at - seconds);
            out.push(Lockup { line: line.trim(), began, loaded, unloaded });
        }
    }
    out
}

fn is_loading(line: &str) -> bool {
    line.contains(LOADS) || line.contains("sched_ext:") && line.contains(KERNEL_LOADED)
}

fn is_unloading(line: &str) -> bool {
    line.contains(UNLOADED) || line.contains("sched_ext:") && line.contains(KERNEL_UNLOADED)
}

/// Anything that sched_ext says beside loading and unloading, and warnings of its source.
fn is_error_of_sched_ext(line: &str) -> bool {
    let said = line.contains("sched_ext:") && !is_loading(line) && !is_unloading(line);
    said || line.contains("WARNING: ") && line.contains("kernel/sched/ext")
}

/// For how many seconds a CPU has stood still, if the line says that one has.
fn stood_still(line: &str) -> Option<f64> {
    if line.contains("soft lockup") {
        let told = line.split("stuck for ").nth(1).and_then(|rest| rest.split('s').next());
        return Some(told.and_then(|n| n.parse().ok()).unwrap_or(f64::INFINITY));
    }
    if !line.contains("rcu:") {
        return None;
    }
    let jiffies = line.split("t=").nth(1).and_then(|rest| rest.split(" jiffies").next());
    let told = jiffies.and_then(|n| n.parse::<f64>().ok()).map(|n| n / HZ);
    let begins = line.contains("detected stall") || line.contains("self-detected stall");
    told.or_else(|| begins.then_some(RCU_STALL_S))
}

/// Guest time of a line in s: `[   12.345678] …`.
fn stamp(line: &str) -> Option<f64> {
    line.trim_start().strip_prefix('[')?.split(']').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADING: &str = "[   40.100000] lab: scheduler loads\n\
        [   42.500000] sched_ext: BPF scheduler \"tandem\" enabled\n";
    const UNLOADING: &str = "[   80.000000] sched_ext: BPF scheduler \"tandem\" disabled \
        (unregistered from user space)\n[   80.100000] lab: scheduler unloaded\n";
    const STACK: &str = "[  130.000100] RIP: 0010:smp_call_function_many_cond+0x129/0x540\n";

    #[test]
    fn a_machine_that_is_gone_in_the_middle_is_the_emulators_fault_without_a_scheduler() {
        let starts = "[    4.4] lab: command starts\n[    8.9] kvm: a guest\n";
        assert_eq!(gone_without_a_word(starts).as_deref(), Some("[    8.9] kvm: a guest"));
        let with = |more: &str| gone_without_a_word(&format!("{starts}{more}"));
        assert_eq!(with(LOADING), None);
        assert!(with(&format!("{LOADING}{UNLOADING}")).is_some());
        assert_eq!(with("[   90.0] lab: command ended with 1\n"), None);
        assert_eq!(gone_without_a_word("[    2.7] Run /init as init process\n"), None);
    }

    fn soft(at: f64, seconds: u32) -> String {
        format!(
            "[{at:12.6}] watchdog: BUG: soft lockup - CPU#3 stuck for {seconds}s! \
                [qemu-system-x86:412]\n"
        )
    }

    fn is_emulators(log: &str) -> bool {
        matches!(hang(log), Some(Hang::Emulator(_)))
    }

    fn is_schedulers(log: &str) -> bool {
        matches!(hang(log), Some(Hang::Scheduler(_)))
    }

    #[test]
    fn a_lockup_after_the_scheduler_was_unloaded_is_the_emulators() {
        let log = format!("{LOADING}{UNLOADING}{}{STACK}", soft(130.0, 26));
        let line = "[  130.000000] watchdog: BUG: soft lockup - CPU#3 stuck for 26s! \
            [qemu-system-x86:412]";
        assert_eq!(hang(&log), Some(Hang::Emulator(line.to_owned())));
        assert!(is_emulators(&format!("{}{STACK}", soft(130.0, 26))), "it was never loaded");
    }

    #[test]
    fn a_lockup_while_the_scheduler_is_loaded_or_loads_is_the_schedulers() {
        let lockup = format!("{}{STACK}", soft(130.0, 26));
        assert!(is_schedulers(&format!("{LOADING}{lockup}")));
        let loads = LOADING.lines().next().unwrap();
        assert!(is_schedulers(&format!("{loads}\n{lockup}")), "before the kernel says enabled");
        let enabled = LOADING.lines().nth(1).unwrap();
        assert!(is_schedulers(&format!("{enabled}\n{lockup}")), "loaded by no script of the lab");
        assert!(is_schedulers(&format!("{LOADING}{UNLOADING}{LOADING}{lockup}")), "loaded again");
    }

    #[test]
    fn a_lockup_that_began_while_the_scheduler_was_loaded_is_the_schedulers() {
        // Unloaded at 80.1 s: a lockup of 26 s reported at 106 s began at 80.0 s.
        let log = |at| format!("{LOADING}{UNLOADING}{}{STACK}", soft(at, 26));
        assert!(is_schedulers(&log(106.0)));
        assert!(is_emulators(&log(106.2)));
    }

    #[test]
    fn one_lockup_beside_the_scheduler_makes_all_of_them_its_own() {
        let log = format!("{LOADING}{}{UNLOADING}{}{STACK}", soft(70.0, 22), soft(130.0, 26));
        let Some(Hang::Scheduler(line)) = hang(&log) else { panic!("the scheduler's") };
        assert!(line.starts_with("[   70.000000]"), "{line}");
    }

    #[test]
    fn a_stall_of_rcu_is_a_lockup_as_old_as_its_jiffies() {
        let stall = |at: f64, jiffies: u32| {
            format!(
                "[{at:12.6}] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n\
                 [{at:12.6}] rcu: \t(detected by 2, t={jiffies} jiffies, g=5521, q=91 ncpus=8)\n"
            )
        };
        let log = |at, jiffies| format!("{LOADING}{UNLOADING}{}{STACK}", stall(at, jiffies));
        assert!(is_emulators(&log(102.0, 5250)), "21 s before: 81.0 s");
        assert!(is_schedulers(&log(101.0, 5250)), "80.0 s");
        assert!(is_schedulers(&log(102.0, 21_003)), "84 s before");
    }

    #[test]
    fn a_stalled_cpu_in_a_nested_guest_is_the_emulators_with_a_scheduler_too() {
        let stall = "[  425.968962] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n\
            [  425.984568] rcu: \t(detected by 3, t=5252 jiffies, g=31157, q=1364 ncpus=8)\n";
        let backtrace = |at: &str| {
            format!(
                "[  425.984568] Sending NMI from CPU 3 to CPUs 0:\n\
                 [  425.499205] NMI backtrace for cpu 0\n\
                 [  425.499205] RIP: 0010:{at}+0x2d7/0x850\n"
            )
        };
        let guest = backtrace("svm_vcpu_run");
        let line = "[  425.499205] RIP: 0010:svm_vcpu_run+0x2d7/0x850";
        assert_eq!(lost_cpu(&format!("{LOADING}{stall}{guest}")), Some(line.into()));
        let kernel = backtrace("native_queued_spin_lock_slowpath");
        assert_eq!(lost_cpu(&format!("{LOADING}{stall}{kernel}")), None);
        let both = format!("{LOADING}{stall}{kernel}{guest}");
        assert!(lost_cpu(&both).is_some(), "the second CPU of two");
        assert_eq!(lost_cpu(&format!("{LOADING}{guest}")), None, "no stall");
    }

    #[test]
    fn a_cpu_that_takes_no_nmi_is_the_emulators_with_a_scheduler_too() {
        let stall = "[   54.069183] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n";
        let asks = "[   54.100000] Sending NMI from CPU 3 to CPUs 0,2:";
        let answer = |cpu: u32| format!("[   54.100000] NMI backtrace for cpu {cpu}\n");
        let later = |at: u32| format!("[   {at}.000000] a line\n");
        let lost = |answers: &str, at| {
            lost_cpu(&format!("{LOADING}{stall}{asks}\n{answers}{}", later(at)))
        };
        assert_eq!(lost("", 66).as_deref(), Some(asks));
        assert_eq!(lost(&answer(0), 66).as_deref(), Some(asks), "CPU 2 does not answer");
        assert_eq!(lost("", 64), None, "it may answer yet");
        assert_eq!(lost(&(answer(2) + &answer(0)), 66), None);
        assert_eq!(lost_cpu(&format!("{LOADING}{asks}\n{}", later(66))), None, "no stall");
    }

    #[test]
    fn what_is_shown_of_a_hang_is_what_tells_of_it() {
        let ejects = "[   60.0] sched_ext: tandem: RCU CPU stall detected!\n";
        let log = format!("{LOADING}[   50.0] a line\n{ejects}{}", soft(130.0, 26));
        let shown = excerpt(&log);
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert_eq!(shown[0], ejects.trim());
    }

    #[test]
    fn without_the_whole_signature_or_with_an_error_of_sched_ext_nothing_is_said() {
        assert_eq!(hang(&format!("{LOADING}{UNLOADING}")), None, "no lockup");
        assert_eq!(hang(&format!("{LOADING}{UNLOADING}{}", soft(130.0, 26))), None, "no IPI");
        for error in [
            "[   60.0] sched_ext: BPF scheduler \"tandem\" disabled (runnable task stall)\n",
            "[   60.0] sched_ext: tandem: burn[211] failed to run for 30.004s\n",
            "[   60.0] WARNING: CPU: 1 PID: 5 at kernel/sched/ext.c:100 foo+0x1/0x2\n",
        ] {
            let log = format!("{LOADING}{error}{UNLOADING}{}{STACK}", soft(130.0, 26));
            assert_eq!(hang(&log), None, "{error}");
        }
    }

    #[test]
    fn a_lockup_without_a_time_is_the_schedulers_once_one_was_loaded() {
        let lockup = "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [x:1]\n";
        assert!(is_schedulers(&format!("{LOADING}{UNLOADING}{lockup}{STACK}")));
        assert!(is_emulators(&format!("{lockup}{STACK}")));
    }

    #[test]
    fn the_guests_scripts_write_the_markers_that_are_read() {
        let drills = include_str!("../../guest/drill-lib");
        let runs = include_str!("../experiment/script.rs");
        for (text, marker) in [drills, runs].into_iter().flat_map(|t| [(t, LOADS), (t, UNLOADED)]) {
            assert!(text.contains(&format!("echo \"{marker}\" >/dev/kmsg")), "{marker}");
        }
    }
}
