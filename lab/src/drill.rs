//! Drills: what a scheduler must survive and keep within bounds on a real kernel, each one boot of
//! the lab (or two), with a verdict in numbers. The guest's scripts only observe; every judgement
//! is taken here, from their lines.
//!
//! `kill` the daemon dies under load; `eject` the kernel ejects the scheduler, too; `storm` VMs
//! come and go; `steal` two Linux guests' own clocks against Tandem's accounts; `smp` Linux guests
//! that pass messages, with and without co-scheduling; `latency` wake-ups and messages against the
//! kernel's own scheduler; `load` the time a load takes; `settings` what is changed while VMs run;
//! `idle` what vCPUs sleep for; `watch` everything that shows a live host; `forks` 200,000 threads;
//! `tenant` ways to game a share; `big` 64 CPUs and 500 VMs; `changes` 1,000 changes of CPUs,
//! cpusets and VMs; `realtime` tasks of higher scheduling classes; `locks` a
//! lock of the kernel in the hands of a VM that is limited; `homes` home nodes of VMs, and their
//! memory; `vnuma` a guest with virtual nodes; `guests` what Linux guests make of a topology that
//! they are shown or not; `cores` cores and their threads.

mod big;
mod changes;
mod cores;
mod forks;
mod guests;
mod homes;
mod idle;
mod kill;
mod latency;
mod load;
mod locks;
mod realtime;
mod record;
mod report;
mod rogue;
mod settings;
mod smp;
mod steal;
mod storm;
mod tenant;
mod tools;
mod vnuma;
mod watch;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::archive::{Archive, KernelId};
use crate::boot::{BootOutcome, BootSpec, Finding, GuestFile, Stream, Topology, boot, excerpt};
use crate::error::{LabError, Result};

pub use kill::CYCLES;
pub use latency::ROUNDS;
pub use report::{Check, Report};

const LIB: &str = include_str!("../guest/drill-lib");
/// Two CPUs: what is finer than 15 ms can be measured only if each has a core of the machine.
const TWO_CPUS: Topology = Topology { sockets: 1, nodes: 1, cores_per_socket: 2, threads: 1 };

/// Begins a script whose times are to be held against the emulator's slowness.
const IDLE_CONTROL: &str = "control; control; say \"control ns=$control_ns\"";

/// Explains the column of [`dilation`].
const SLOWNESS: &str = "slowness: CPU time of a fixed piece of work, by that on the idle host; \
    busy emulated CPUs share the machine's few";

/// Which drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drill {
    /// SIGKILL of the daemon under load, again and again.
    Kill,
    /// SIGKILL of the daemon and ejections by the kernel in turn, on two CPUs.
    Eject,
    /// VMs started and killed at random under one daemon.
    Storm,
    /// Guests' steal time against ready time.
    Steal,
    /// SMP guests that pass messages, with and without co-scheduling.
    Smp,
    /// Wake-up latency, pipe and hackbench against the kernel's own scheduler.
    Latency,
    /// Time of loading, idle and under load.
    Load,
    /// Settings that change while VMs run.
    Settings,
    /// Halted vCPUs against those that wait.
    Idle,
    /// Everything that shows a live host, read back.
    Watch,
    /// 200,000 threads of a host task, and more than there is room for.
    Forks,
    /// Ways in which a tenant may play for more than its share.
    Tenant,
    /// 500 stand-ins for VMs on 64 CPUs.
    Big,
    /// A thousand changes of CPUs, cpusets, affinities and VMs.
    Changes,
    /// Real-time and deadline tasks that take CPUs.
    Realtime,
    /// A lock of the kernel that a limited VM holds.
    Locks,
    /// Home nodes, and memory that follows.
    Homes,
    /// A guest that boots with virtual nodes.
    Vnuma,
    /// Linux guests that are shown a topology or none, under both schedulers.
    Guests,
    /// Whole cores for busy VMs, and what a shared core is charged.
    Cores,
}

impl Drill {
    /// Every drill, in the order in which `all` runs them.
    pub const ALL: [Drill; 20] = [
        Drill::Load,
        Drill::Settings,
        Drill::Idle,
        Drill::Watch,
        Drill::Kill,
        Drill::Eject,
        Drill::Storm,
        Drill::Steal,
        Drill::Smp,
        Drill::Latency,
        Drill::Forks,
        Drill::Tenant,
        Drill::Big,
        Drill::Changes,
        Drill::Realtime,
        Drill::Locks,
        Drill::Homes,
        Drill::Vnuma,
        Drill::Guests,
        Drill::Cores,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Drill::Kill => "kill",
            Drill::Eject => "eject",
            Drill::Storm => "storm",
            Drill::Steal => "steal",
            Drill::Smp => "smp",
            Drill::Latency => "latency",
            Drill::Load => "load",
            Drill::Settings => "settings",
            Drill::Idle => "idle",
            Drill::Watch => "watch",
            Drill::Forks => "forks",
            Drill::Tenant => "tenant",
            Drill::Big => "big",
            Drill::Changes => "changes",
            Drill::Realtime => "realtime",
            Drill::Locks => "locks",
            Drill::Homes => "homes",
            Drill::Vnuma => "vnuma",
            Drill::Guests => "guests",
            Drill::Cores => "cores",
        }
    }
}

impl FromStr for Drill {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let names = || Drill::ALL.map(Drill::name).join(", ");
        Drill::ALL
            .into_iter()
            .find(|d| d.name() == text)
            .ok_or_else(|| format!("allowed {}", names()))
    }
}

/// How drills run.
pub struct Setting {
    /// Kernel to boot.
    pub kernel: KernelId,
    /// The static `tandem` binary with the live host built in.
    pub tandem: PathBuf,
    /// Seed of everything random.
    pub seed: u64,
    /// How often drills "kill" and "eject" end the daemon, from 1.
    pub cycles: usize,
    /// How often drills "latency" and "guests" measure under each scheduler, from 1.
    pub rounds: usize,
    /// Drill "homes": two VMs on two nodes, under Tandem alone.
    pub brief: bool,
}

/// Runs one drill to its verdict; an error means that the lab could not run, never that the drill
/// failed.
///
/// # Errors
/// `LabError` when the lab cannot boot, or a tool that the drill needs cannot be had.
pub fn run(
    drill: Drill,
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    match drill {
        Drill::Kill | Drill::Eject => kill::run(drill, setting, archive, on),
        Drill::Storm => storm::run(setting, archive, on),
        Drill::Steal => steal::run(setting, archive, on),
        Drill::Smp => smp::run(setting, archive, on),
        Drill::Latency => latency::run(setting, archive, on),
        Drill::Load => load::run(setting, archive, on),
        Drill::Settings => settings::run(setting, archive, on),
        Drill::Idle => idle::run(setting, archive, on),
        Drill::Watch => watch::run(setting, archive, on),
        Drill::Forks => forks::run(setting, archive, on),
        Drill::Tenant => tenant::run(setting, archive, on),
        Drill::Big => big::run(setting, archive, on),
        Drill::Changes => changes::run(setting, archive, on),
        Drill::Realtime => realtime::run(setting, archive, on),
        Drill::Locks => locks::run(setting, archive, on),
        Drill::Homes => homes::run(setting, archive, on),
        Drill::Vnuma => vnuma::run(setting, archive, on),
        Drill::Guests => guests::run(setting, archive, on),
        Drill::Cores => cores::run(setting, archive, on),
    }
}

/// A boot that sources the drills' functions, runs `before` and then the drill's script.
fn spec(setting: &Setting, before: &str, script: &str, seconds: u64) -> BootSpec {
    let mut spec = BootSpec::new(format!(". /lab/in/drill-lib\n{before}\n{script}"));
    spec.kernel = setting.kernel.clone();
    spec.time_limit = Duration::from_secs(seconds);
    spec.files = vec![
        GuestFile::copy(&setting.tandem, "/usr/bin/tandem"),
        GuestFile::text("/lab/in/drill-lib", LIB),
    ];
    spec
}

/// Boots, and begins the report with what every drill asks: no fatal finding, a script that ended,
/// no failure reported.
fn begin(
    drill: Drill,
    spec: &BootSpec,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<(Report, BootOutcome, Vec<record::Record>)> {
    let outcome = boot(archive, spec, on)?;
    let records = record::records(&outcome.console);
    let mut report = Report::new(drill.name(), &outcome);
    // A drill that asks for ejections judges them itself.
    let asked = |f: &Finding| drill == Drill::Eject && f.is_of_the_operator();
    let of = outcome.findings.iter().filter(|f| f.is_fatal() && !asked(f));
    let fatal: Vec<String> = of.map(ToString::to_string).collect();
    report.check(
        "kernel: panics, oopses, ejections",
        fatal.is_empty(),
        if fatal.is_empty() { "none".into() } else { fatal.join("; ") },
        "none",
    );
    if outcome.findings.iter().any(|f| matches!(f, Finding::SchedulerHung(_))) {
        report.notes.extend(excerpt(&outcome.kernel_log).into_iter().map(str::to_owned));
    }
    let ended = records.iter().any(|r| r.kind == "end");
    report.check("the drill ran to its end", ended, if ended { "yes" } else { "no" }, "yes");
    let failures: Vec<String> = records
        .iter()
        .filter(|r| r.kind == "failure")
        .map(|r| r.text("what").to_owned() + " " + r.text("said"))
        .collect();
    report.check(
        "failures that the guest told",
        failures.is_empty(),
        if failures.is_empty() { "none".into() } else { failures.join("; ") },
        "none",
    );
    let left: Vec<&str> =
        records.iter().filter(|r| r.kind == "left").map(|r| r.text("code")).collect();
    if !left.is_empty() {
        let clean = left.iter().all(|c| *c == "0");
        report.check("exit codes of 'tandem run' on SIGINT", clean, left.join(" "), "0");
    }
    Ok((report, outcome, records))
}

/// How many times slower than on the idle host an emulated CPU was beside this record: 8 busy ones
/// share the machine's few, and the guest's clock runs on. The same work is timed in CPU time, so
/// waiting within the guest does not count.
fn dilation(records: &[record::Record], beside: &record::Record) -> f64 {
    let idle = records.iter().find(|r| r.kind == "control").and_then(|r| r.number("ns"));
    idle.zip(beside.number("control_ns")).map_or(1.0, |(a, b)| (b / a.max(1.0)).max(1.0))
}

/// A document of the guest's that could not be read.
fn unreadable(name: &str, seen: impl ToString) -> LabError {
    LabError::new(name, "be read", seen.to_string(), "look at the console of that boot")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drill_is_found_by_its_name_and_no_other_word_is_one() {
        for drill in Drill::ALL {
            assert_eq!(drill.name().parse(), Ok(drill));
        }
        assert!(
            "kil"
                .parse::<Drill>()
                .unwrap_err()
                .contains("allowed load, settings, idle, watch, kill")
        );
    }
}
