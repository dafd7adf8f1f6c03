//! Runs a scenario with PV VMs under a real Xen in the emulator, and brings back a result document
//! of the simulator's shape; what it schedules with is Xen's Credit or Credit2, and never Tandem.
//!
//! The clock is exact: multi-threaded emulation stands still for ms at a time, which Xen charges to
//! the vCPU that is there. Xen's serial port takes the output of all, and nothing else comes out.

mod guest;
mod script;

use std::path::{Path, PathBuf};
use std::time::Duration;

use settings::{Run, Scenario, VmSpec};
use units::Span;
use views::{Document, HostCounts, MeasuredBy, RunResult, Times, Vm, Where};

use crate::archive::{Archive, Xen};
use crate::boot::{Running, Stream, Tail, run_folder};
use crate::cpio::Cpio;
use crate::error::{LabError, Result};
use crate::{experiment, payload, tool};

const INIT: &[u8] = include_bytes!("../xen/init");
/// An instruction is 2 ns, as in the measurements of docs/design/014-xen.md.
const CLOCK_SHIFT: u8 = 1;
/// Memory of the host in MB: Domain-0's, 16 for each VM, and Xen's own.
const MEMORY_MB: u32 = 2048;
/// Wall time of boot and power-off, many times what was seen (25 s).
const BOOT: Duration = Duration::from_secs(180);
/// Wall time of a run over its own: making VMs and settling.
const OVERHEAD: Duration = Duration::from_secs(120);
/// Wall time of a second of 8 busy pCPUs at most; 2.6 s were seen on a quiet machine.
const SLOWNESS: u32 = 12;

/// What domain-0's init writes.
const ENDED: &str = "lab: command ended with ";
/// How a line of a VM's console begins in the output.
const REPORT: &str = "lab-report ";

/// Xen's schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Credit.
    Credit,
    /// Credit2, Xen's default since 4.12.
    Credit2,
}

impl Scheduler {
    /// The name of the model's policy, and with `xen-` taken away that of Xen's `sched=`.
    pub fn name(self) -> &'static str {
        match self {
            Scheduler::Credit => "xen-credit",
            Scheduler::Credit2 => "xen-credit2",
        }
    }

    fn argument(self) -> &'static str {
        self.name().trim_start_matches("xen-")
    }
}

/// Runs all that the lab does of a scenario; `duration` is the time of a run over the scenario's.
///
/// # Errors
/// `LabError` when a run has what Xen or the lab's PV VMs have not, a boot fails, or a VM does not
/// report.
pub fn run(
    archive: &Archive,
    scenario: &Scenario,
    scheduler: Scheduler,
    duration: Option<Span>,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Document> {
    let time = |run: &Run| experiment::duration_of(run, duration);
    let mut rest: Vec<(usize, &Run, Span)> =
        experiment::runs(scenario)?.into_iter().enumerate().map(|(i, r)| (i, r, time(r))).collect();
    // Refused before the first boot.
    script::whole(scheduler.name(), &rest)?;
    let mut results: Vec<(usize, RunResult)> = vec![];
    while let Some((_, first, _)) = rest.first() {
        let topology = first.topology.clone();
        let (now, later): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, r, _)| r.topology == topology);
        rest = later;
        let console = boot(archive, scheduler, &now, on)?;
        for (i, run, time) in now {
            results.push((i, read_result(&console, i, run, time)?));
        }
    }
    results.sort_by_key(|(i, _)| *i);
    Ok(Document {
        scenario: scenario.name.clone(),
        place: Where::Lab,
        policy: scheduler.name().to_owned(),
        seed: 0,
        command: None,
        runs: results.into_iter().map(|(_, r)| r).collect(),
    })
}

/// One boot for runs of one topology; what came out of the serial port.
fn boot(
    archive: &Archive,
    scheduler: Scheduler,
    runs: &[(usize, &Run, Span)],
    on: &mut dyn FnMut(Stream, &str),
) -> Result<String> {
    let xen = archive.xen()?;
    let folder = run_folder(archive)?;
    let initrd = folder.join("initrd.cpio");
    write_initrd(archive, &xen, &script::whole(scheduler.name(), runs)?, &initrd)?;
    let mut serial = Tail::new(folder.join("serial.log"))?;
    let mut unused = Tail::new(folder.join("console.log"))?;
    let arguments = arguments(scheduler, runs[0].1, &xen, &initrd, &serial.path);
    let limit = runs.iter().map(|(_, run, time)| {
        OVERHEAD + Duration::from_nanos(time.ns() + run.spec.warmup.ns()) * SLOWNESS
    });
    let limit = BOOT + limit.sum::<Duration>();
    let mut qemu = Running::start(archive, &arguments, &folder.join("qemu.log"))?;
    let mut half = String::new();
    let seen = qemu.watch(&mut serial, &mut unused, limit, &mut |_, text| {
        half.push_str(text);
        while let Some(end) = half.find('\n') {
            let line: String = half.drain(..=end).collect();
            if line.starts_with("lab: ") {
                on(Stream::Command, &line);
            }
        }
    })?;
    drop(qemu);
    std::fs::remove_file(&initrd).ok();
    let ended = serial.text.lines().find_map(|l| l.trim().strip_prefix(ENDED));
    let told = || tool::last_lines(&serial.text, 3);
    let seen = match ended {
        Some("0") => return Ok(serial.text),
        Some(code) => format!("exit code {code}, allowed 0; its last words were \"{}\"", told()),
        None if seen.cut_off => format!("no end after {} s; \"{}\"", limit.as_secs(), told()),
        None => format!("QEMU ended before the command did; \"{}\"", told()),
    };
    let next = format!("read {}", serial.path.display());
    Err(LabError::new(format!("boot of Xen {}", xen.version()), "succeed", seen, next))
}

/// Domain-0's root: tools, busybox, the VMs' kernel and the command.
fn write_initrd(archive: &Archive, xen: &Xen, command: &str, to: &Path) -> Result<()> {
    const FOLDER: u32 = 0o040_755;
    const PROGRAM: u32 = 0o100_755;
    const LINK: u32 = 0o120_777;
    let mut cpio = Cpio::default();
    for name in ["dev", "usr", "usr/sbin", "lab"] {
        cpio.add(name, FOLDER, (0, 0), &[]);
    }
    cpio.add("dev/console", 0o020_600, (5, 1), &[]);
    for name in ["bin", "sbin", "lib", "lib64"] {
        cpio.add(name, LINK, (0, 0), format!("usr/{name}").as_bytes());
    }
    cpio.add_tree(&xen.tree())?;
    cpio.add("usr/bin/busybox", PROGRAM, (0, 0), &tool::read(&archive.qemu()?.busybox())?);
    cpio.add("usr/bin/sh", LINK, (0, 0), b"busybox");
    cpio.add("init", PROGRAM, (0, 0), INIT);
    cpio.add("lab/guest", PROGRAM, (0, 0), &tool::read(&guest::build(archive, xen)?)?);
    cpio.add("lab/command", PROGRAM, (0, 0), command.as_bytes());
    tool::write(to, &cpio.finish())
}

/// QEMU's arguments. x2APIC and an exact clock do not go together; with AMD's name Xen sees no
/// threads; multiboot modules are separated by commas, so that paths have theirs doubled.
fn arguments(
    scheduler: Scheduler,
    run: &Run,
    xen: &Xen,
    initrd: &Path,
    serial: &Path,
) -> Vec<String> {
    let host = &run.spec.host;
    let cores = host.nodes_per_socket * host.llcs_per_node * host.cores_per_llc;
    let (sockets, threads) = (host.sockets, host.threads_per_core);
    let path = |p: PathBuf| p.display().to_string().replace(',', ",,");
    let mut args: Vec<String> =
        ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none"]
            .map(str::to_owned)
            .to_vec();
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    add("-accel", "tcg,thread=single".into());
    add("-icount", format!("shift={CLOCK_SHIFT},sleep=off"));
    add("-rtc", "base=2026-01-01,clock=vm".into());
    add("-cpu", "max,vendor=GenuineIntel,-x2apic,-rdrand,-rdseed".into());
    add("-m", MEMORY_MB.to_string());
    let cpus = sockets * cores * threads;
    add("-smp", format!("{cpus},sockets={sockets},cores={cores},threads={threads}"));
    add("-serial", format!("file:{}", serial.display()));
    add("-kernel", xen.hypervisor().display().to_string());
    let words = "dom0_mem=512M,max:512M dom0_max_vcpus=1 console=com1 com1=115200,8n1 noreboot \
        spec-ctrl=no xpti=no loglvl=warning";
    add("-append", format!("{words} sched={}", scheduler.argument()));
    let words = "console=hvc0 loglevel=4 mitigations=off rdinit=/init panic=-1";
    let modules = [path(xen.kernel()), path(initrd.to_path_buf())];
    add("-initrd", format!("{} {words},{}", modules[0], modules[1]));
    args
}

/// What a VM of a run had said at a moment, out of the serial port's text.
fn said(console: &str, i: usize, vm: &str, when: &str) -> String {
    let begin = format!("{REPORT}{i} {vm} {when} ");
    let lines = console.lines().filter_map(|l| l.trim().strip_prefix(&begin));
    lines.map(|l| format!("{l}\n")).collect()
}

fn read_result(console: &str, i: usize, run: &Run, time: Span) -> Result<RunResult> {
    let mut result = RunResult {
        label: run.label.clone(),
        duration_ns: time.ns(),
        host: HostCounts::from(&run.topology),
        pcpus: vec![],
        pools: vec![],
        vms: vec![],
        wakeups: vec![],
        checked: None,
    };
    for spec in &run.spec.vms {
        let (before, after) =
            (said(console, i, &spec.name, "before"), said(console, i, &spec.name, "after"));
        let used = guest::used_ns(&before, &after, spec.vcpus, time.ns()).ok_or_else(|| {
            let seen = "no reports of all its vCPUs before and after".to_owned();
            let next = "look at the serial.log of the newest folder in .cache/lab/runs";
            LabError::new(format!("VM {} of run '{}'", spec.name, run.label), "be read", seen, next)
        })?;
        result.vms.push(vm(spec, &used));
        let late = payload::latencies(&before, &after);
        result.wakeups.extend(late.sums(&spec.name, MeasuredBy::Workload, 1000, 0));
    }
    Ok(result)
}

fn vm(spec: &VmSpec, used: &[u64]) -> Vm {
    Vm {
        name: spec.name.clone(),
        pool: "/".into(),
        vcpus: spec.vcpus,
        shares: spec.shares.resolve(spec.vcpus).map_or(0, |s| u64::from(s.get())),
        times: Times { used_ns: used.iter().sum(), ..Times::default() },
        cpu_stat: None,
        guest: None,
        worlds: vec![],
        numa: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_out_of_a_console_on_which_others_write_as_well() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let scenario = settings::load(&format!("{root}/models-mix")).unwrap();
        let run = scenario.runs.iter().find(|r| r.label == "wake-ups").unwrap();
        let line = |vm: &str, when: &str, n: u32, run_ns: u64, late: &str| {
            format!(
                "lab-report 1 {vm} {when} report n={n} ms=0 vcpu=0 run_ns={run_ns} \
                    now_ns={} work_us=0 rounds=0 wakeups=0 missed=0 {late}\r\n",
                u64::from(n) * 1_000_000_000
            )
        };
        let console = [
            "(XEN) Freed 2048kB init memory\r\n".to_owned(),
            line("light", "before", 3, 0, "late_us_sum=0 late="),
            line("light", "after", 13, 9_000_000_000, "late_us_sum=0 late="),
            line("worker", "before", 3, 0, "late_us_sum=0 late="),
            line(
                "worker",
                "after",
                13,
                50_000_000,
                "late_us_sum=9 late_us_min=9 late_us_max=9 late=9:1",
            ),
        ]
        .concat();
        let result = read_result(&console, 1, run, Span::from_secs(10)).unwrap();
        let used: Vec<u64> = result.vms.iter().map(|v| v.times.used_ns).collect();
        assert_eq!(used, [9_000_000_000, 50_000_000]);
        assert_eq!((result.wakeups.len(), result.wakeups[0].max_ns), (1, 9000));
        let error = read_result(&console, 2, run, Span::from_secs(10)).unwrap_err().to_string();
        assert!(
            error.starts_with("VM light of run 'wake-ups': cannot be read: no reports"),
            "{error}"
        );
    }

    #[test]
    fn the_clock_is_exact_and_x2apic_is_off() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let scenario = settings::load(&format!("{root}/shares-ratio-2x2x2")).unwrap();
        let folder = std::env::temp_dir().join(format!("lab-xen-{}", std::process::id()));
        tool::write(&folder.join("xen/version"), b"4.20\n").unwrap();
        tool::write(&folder.join("qemu/version"), b"10.0\n").unwrap();
        let xen = Archive::at(&folder).unwrap().xen().unwrap();
        tool::remove_dir(&folder).unwrap();
        let paths = (Path::new("/r/a,b.cpio"), Path::new("/r/serial.log"));
        let run = &scenario.runs[0];
        let text = arguments(Scheduler::Credit2, run, &xen, paths.0, paths.1).join(" ");
        for word in [
            "-icount shift=1,sleep=off",
            "-x2apic",
            "-smp 8,sockets=2,cores=2,threads=2",
            "sched=credit2",
            " panic=-1,/r/a,,b.cpio",
        ] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
}
