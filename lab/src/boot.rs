//! Boots a kernel of the archive under QEMU's emulator, runs one command in it and brings its
//! output, files and findings back; it retries the emulator's own death or hang and nothing else,
//! and never outlives its time limit.

mod command;
mod files;
mod hang;
mod running;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::archive::{Archive, Kernel, KernelId};
use crate::error::{LabError, OnPath, Result};
use crate::{image, tool};

pub use hang::{Hang, excerpt, gone_without_a_word, hang, lost_cpu};
pub(crate) use running::{Running, Tail};
pub use watch::{Finding, died_of_the_emulator, findings};

/// The emulator's own death was seen in 1 of 25 boots; three tries miss it in 1 of 15,000.
pub const MAX_TRIES: u32 = 3;
/// Folders of earlier boots that are kept for reading.
const KEPT_RUNS: usize = 20;
/// What the guest's init writes to the kernel log when the command is done.
const COMMAND_ENDED: &str = "lab: command ended with ";

/// How QEMU emulates the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// A host thread per CPU: fast, right for proportions of CPU time, and what KVM VMs inside
    /// need.
    Multi,
    /// All CPUs in turn on one host thread: half the speed, needs one host core.
    Single,
    /// One instruction is 2^shift ns of guest time: the same boot gives the same output, slowly.
    /// The root is in memory then, so files should be small.
    Icount {
        /// 2 is a 250 MHz machine, 4 a 62 MHz one.
        shift: u8,
    },
}

impl Accel {
    /// All pCPUs together execute a billion instructions a second. At half of that, with 8 of them
    /// busy, a VM that another pool's may not disturb lost 3 % to interrupts and switches; at this,
    /// 2 %.
    pub const EXACT: Accel = Accel::Icount { shift: 0 };

    fn root_shape(self) -> image::Shape {
        match self {
            Accel::Icount { .. } => image::Shape::Initramfs,
            Accel::Multi | Accel::Single => image::Shape::Disk,
        }
    }
}

/// The machine's CPUs. CPUs are numbered socket by socket, core by core, thread by thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    /// CPU packages; each has a last-level cache of its own.
    pub sockets: u32,
    /// NUMA nodes; they share out the CPUs evenly, in order.
    pub nodes: u32,
    /// Cores of each socket.
    pub cores_per_socket: u32,
    /// Hardware threads of each core.
    pub threads: u32,
}

impl Topology {
    /// Two sockets that are two nodes, each two cores of two threads: 8 CPUs, the smallest host
    /// with everything.
    pub const SMALL: Topology = Topology { sockets: 2, nodes: 2, cores_per_socket: 2, threads: 2 };

    /// The number of logical CPUs.
    pub fn cpus(&self) -> u32 {
        self.sockets * self.cores_per_socket * self.threads
    }
}

/// Where the content of a guest file comes from.
#[derive(Debug, Clone)]
pub enum Content {
    /// A file of this machine, with its permission to execute.
    Copy(PathBuf),
    /// Given bytes.
    Bytes {
        /// The file's content.
        bytes: Vec<u8>,
        /// Whether the guest may execute it.
        executable: bool,
    },
}

/// A file to put into the guest before the command starts.
#[derive(Debug, Clone)]
pub struct GuestFile {
    /// Absolute path in the guest; missing folders are made.
    pub guest_path: String,
    /// What goes there.
    pub content: Content,
}

impl GuestFile {
    /// A copy of a file of this machine.
    pub fn copy(host: impl Into<PathBuf>, guest_path: impl Into<String>) -> Self {
        GuestFile { guest_path: guest_path.into(), content: Content::Copy(host.into()) }
    }

    /// A plain text file.
    pub fn text(guest_path: impl Into<String>, text: &str) -> Self {
        Self::bytes(guest_path, text.as_bytes().to_vec(), false)
    }

    /// Given bytes.
    pub fn bytes(guest_path: impl Into<String>, bytes: Vec<u8>, executable: bool) -> Self {
        GuestFile { guest_path: guest_path.into(), content: Content::Bytes { bytes, executable } }
    }
}

/// One boot: what to boot, what to run, how long.
#[derive(Debug, Clone)]
pub struct BootSpec {
    /// The kernel.
    pub kernel: KernelId,
    /// The emulated CPUs.
    pub topology: Topology,
    /// Memory of the whole machine, split evenly between the nodes.
    pub memory_mb: u32,
    /// How the CPUs are emulated.
    pub accel: Accel,
    /// Load the KVM modules. Off saves half a second, and a minute on 32 CPUs, where each patch of
    /// the running kernel's code waits for all CPUs.
    pub kvm_inside: bool,
    /// Shell script run by the guest's init; its exit code is the outcome's.
    pub command: String,
    /// Files put into the guest first. What the command leaves in `/lab/out` comes back.
    pub files: Vec<GuestFile>,
    /// Wall-clock limit of one try, boot and command together.
    pub time_limit: Duration,
    /// Further kernel arguments.
    pub extra_append: Vec<String>,
}

impl BootSpec {
    /// The defaults: newest kernel, 2 sockets × 2 cores × 2 threads, 2 GB, multi-threaded, two
    /// minutes.
    pub fn new(command: impl Into<String>) -> Self {
        BootSpec {
            kernel: KernelId::Newest,
            topology: Topology::SMALL,
            memory_mb: 2048,
            accel: Accel::Multi,
            kvm_inside: true,
            command: command.into(),
            files: Vec::new(),
            time_limit: Duration::from_secs(120),
            extra_append: Vec::new(),
        }
    }
}

/// The writer of a piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The guest's kernel.
    Kernel,
    /// The command.
    Command,
}

/// What came of a boot.
#[derive(Debug, Clone)]
pub struct BootOutcome {
    /// The kernel that was booted.
    pub kernel: String,
    /// The command's exit code; none if it never ended.
    pub exit_code: Option<i32>,
    /// Everything the command wrote.
    pub console: String,
    /// Everything the kernel logged.
    pub kernel_log: String,
    /// Panics, ejected schedulers, lockups and the like, in order.
    pub findings: Vec<Finding>,
    /// Wall time until the guest's init ran.
    pub user_space: Option<Duration>,
    /// Wall time of the last try, from start to end of QEMU.
    pub wall: Duration,
    /// Boots it took; more than one means the emulator died or hung and was tried again.
    pub tries: u32,
    /// Folder of this boot: `kernel.log`, `console.log`, `qemu.log`, `out/`.
    pub folder: PathBuf,
    /// The files brought back, below `out/`.
    pub files: Vec<PathBuf>,
}

impl BootOutcome {
    /// The text of a file that the command left in `/lab/out`.
    pub fn file(&self, name: &str) -> Result<String> {
        let path = self.folder.join("out").join(name);
        tool::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// An error unless the command ended with 0 and no finding is fatal.
    pub fn require_success(&self) -> Result<&Self> {
        let fatal = self.findings.iter().find(|f| f.is_fatal());
        let seen = match (fatal, self.exit_code) {
            (Some(finding), _) => finding.to_string(),
            (None, Some(0)) => return Ok(self),
            (None, Some(code)) => format!("exit code {code}, allowed 0"),
            (None, None) => "the command never ended".into(),
        };
        let next = format!("read {}", self.folder.join("kernel.log").display());
        Err(LabError::new(format!("boot of {}", self.kernel), "succeed", seen, next))
    }
}

/// Boots and runs the command; `on_output` sees all output as it comes.
pub fn boot(
    archive: &Archive,
    spec: &BootSpec,
    on_output: &mut dyn FnMut(Stream, &str),
) -> Result<BootOutcome> {
    if spec.kernel == KernelId::Cfs && spec.accel.root_shape() == image::Shape::Disk {
        return Err(LabError::new(
            "boot of kernel \"cfs\"",
            "be done by this clock",
            "its console's driver is a module, allowed the exact clock",
            "use --accel icount:0, or a scenario without exact_clock = false",
        ));
    }
    let kernel = archive.kernel(&spec.kernel)?;
    let root = image::build(archive, &kernel, spec.accel.root_shape())?;
    let folder = run_folder(archive)?;
    let attempt = Attempt { archive, spec, kernel: &kernel, root: &root, folder: &folder };
    let mut tries = 1;
    loop {
        let outcome = attempt.run(tries, on_output)?;
        let Some(fault) = emulators_fault(&outcome) else { return judge(outcome, spec) };
        if tries == MAX_TRIES {
            let seen = format!(
                "the emulator {} in {tries} of {tries} tries, the last at \"{}\"",
                fault.verb, fault.line
            );
            let next = "try again on a quieter machine, or with the single-threaded accelerator";
            return Err(LabError::new(format!("boot of {}", kernel.version), "run", seen, next));
        }
        tool::progress(&format!("try {tries} of {MAX_TRIES} {}, trying again", fault.told));
        let kept = folder.join(format!("kernel.try{tries}.log"));
        std::fs::rename(folder.join("kernel.log"), &kept).on(&kept, "keep the log")?;
        tries += 1;
    }
}

/// What the emulator did to a boot.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    /// For the error after the last try.
    verb: &'static str,
    /// The line of the log that shows it.
    line: String,
    /// For the terminal before the next try.
    told: String,
}

/// Whether the boot is worth another try; everything else is final.
fn emulators_fault(outcome: &BootOutcome) -> Option<Fault> {
    if died_of_the_emulator(&outcome.kernel_log) {
        let told =
            "died of the emulator (Oops: int3, or a VM that was gone without Tandem)".to_owned();
        return Some(Fault { verb: "died", line: tool::last_lines(&outcome.kernel_log, 1), told });
    }
    if let Some(line) = lost_cpu(&outcome.kernel_log) {
        let told = format!("had a CPU that the emulator lost ({line})");
        return Some(Fault { verb: "hung", line, told });
    }
    if !outcome.findings.iter().any(Finding::is_fatal)
        && let Some(line) = gone_without_a_word(&outcome.kernel_log)
    {
        let told = format!("was gone without a word and without Tandem (\"{line}\")");
        return Some(Fault { verb: "died", line, told });
    }
    let limit = outcome.findings.iter().find(|f| matches!(f, Finding::TimeLimit(_)))?;
    let Some(Hang::Emulator(line)) = hang(&outcome.kernel_log) else { return None };
    let told = format!("hung in the emulator without Tandem ({line}; {limit})");
    Some(Fault { verb: "hung", line, told })
}

/// A boot that never reached user space and did not even panic has no outcome, only an error.
fn judge(outcome: BootOutcome, spec: &BootSpec) -> Result<BootOutcome> {
    if outcome.user_space.is_some()
        || outcome.findings.iter().any(|f| matches!(f, Finding::Panic(_)))
    {
        return Ok(outcome);
    }
    let qemu = tool::read(&outcome.folder.join("qemu.log")).unwrap_or_default();
    let seen = format!(
        "no user space after {:.1} s, allowed {} s; QEMU said \"{}\"; the kernel's last words were \
            \"{}\"",
        outcome.wall.as_secs_f64(),
        spec.time_limit.as_secs(),
        tool::last_lines(&String::from_utf8_lossy(&qemu), 2),
        tool::last_lines(&outcome.kernel_log, 2),
    );
    let next = format!("read {}", outcome.folder.join("kernel.log").display());
    Err(LabError::new(format!("boot of {}", outcome.kernel), "reach user space", seen, next))
}

/// One boot of QEMU with everything it needs, and what it left.
struct Attempt<'a> {
    archive: &'a Archive,
    spec: &'a BootSpec,
    kernel: &'a Kernel,
    root: &'a Path,
    folder: &'a Path,
}

impl Attempt<'_> {
    fn run(&self, tries: u32, on_output: &mut dyn FnMut(Stream, &str)) -> Result<BootOutcome> {
        let (input, output) = (self.folder.join("input.tar"), self.folder.join("output.tar"));
        match self.spec.accel.root_shape() {
            image::Shape::Disk => files::write_input(&input, &self.spec.command, &self.spec.files)?,
            image::Shape::Initramfs => {
                files::write_initrd(&input, self.root, &self.spec.command, &self.spec.files)?;
            }
        }
        files::make_output(&output)?;
        let mut kernel_log = Tail::new(self.folder.join("kernel.log"))?;
        let mut console = Tail::new(self.folder.join("console.log"))?;
        let paths = command::Files {
            vmlinuz: &self.kernel.vmlinuz(),
            root: self.root,
            input: &input,
            output: &output,
            kernel_log: &kernel_log.path,
            console: &console.path,
        };
        let arguments = command::arguments(self.spec, &paths)?;
        let mut qemu = Running::start(self.archive, &arguments, &self.folder.join("qemu.log"))?;
        let seen = qemu.watch(&mut kernel_log, &mut console, self.spec.time_limit, on_output)?;
        drop(qemu);
        let mut found = findings(&kernel_log.text);
        if seen.cut_off {
            if let Some(Hang::Scheduler(line)) = hang(&kernel_log.text) {
                found.push(Finding::SchedulerHung(line));
            }
            found.push(Finding::TimeLimit(format!(
                "stopped after {} s",
                self.spec.time_limit.as_secs()
            )));
        }
        let files = files::read_output(&output, &self.folder.join("out"))?;
        for disk in [&input, &output] {
            std::fs::remove_file(disk).on(disk, "delete the disk")?;
        }
        Ok(BootOutcome {
            kernel: self.kernel.version.clone(),
            exit_code: exit_code(&kernel_log.text),
            console: console.text,
            kernel_log: kernel_log.text,
            findings: found,
            user_space: seen.user_space,
            wall: seen.wall,
            tries,
            folder: self.folder.to_path_buf(),
            files,
        })
    }
}

/// The code that the guest's init wrote to the kernel log.
fn exit_code(log: &str) -> Option<i32> {
    let rest = &log[log.rfind(COMMAND_ENDED)? + COMMAND_ENDED.len()..];
    rest.lines().next()?.trim().parse().ok()
}

/// Tells boots of one process apart that start in the same millisecond.
static RUNS_STARTED: AtomicU32 = AtomicU32::new(0);

/// A fresh folder for one boot; the oldest are cleared away.
pub(crate) fn run_folder(archive: &Archive) -> Result<PathBuf> {
    let runs = archive.root().join("runs");
    tool::make_dir(&runs)?;
    let mut known: Vec<PathBuf> = std::fs::read_dir(&runs)
        .on(&runs, "list the folder")?
        .flatten()
        .map(|e| e.path())
        .collect();
    known.sort();
    for old in known.iter().take((known.len() + 1).saturating_sub(KEPT_RUNS)) {
        tool::remove_dir(old)?;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = RUNS_STARTED.fetch_add(1, Ordering::Relaxed);
    let name =
        format!("{}.{:03}-{}-{number}", now.as_secs(), now.subsec_millis(), std::process::id());
    let folder = runs.join(name);
    tool::make_dir(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_last_one_the_guest_wrote() {
        assert_eq!(exit_code("[ 5.0] lab: command ended with 3\n[ 5.1] x\n"), Some(3));
        assert_eq!(exit_code("[ 5.0] lab: command starts\n"), None);
    }

    fn outcome(kernel_log: &str, findings: Vec<Finding>) -> BootOutcome {
        BootOutcome {
            kernel: "7.2.13".into(),
            exit_code: Some(0),
            console: String::new(),
            kernel_log: kernel_log.into(),
            findings,
            user_space: None,
            wall: Duration::ZERO,
            tries: 1,
            folder: PathBuf::from("/r"),
            files: Vec::new(),
        }
    }

    #[test]
    fn success_needs_exit_code_zero_and_no_fatal_finding() {
        let mut outcome = outcome("", vec![Finding::Lockup("cpu 3".into())]);
        assert!(outcome.require_success().is_ok());
        outcome.findings.push(Finding::SchedulerEjected("stall".into()));
        let error = outcome.require_success().unwrap_err().to_string();
        assert!(
            error.starts_with("boot of 7.2.13: cannot succeed: scheduler ejected: stall; read"),
            "{error}"
        );
    }

    #[test]
    fn a_hang_is_the_emulators_fault_only_at_the_time_limit_and_without_tandem() {
        let hung = "[  130.0] watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [x:1]\n\
            [  130.1] RIP: 0010:smp_call_function_many_cond+0x129/0x540\n";
        let limit = || vec![Finding::TimeLimit("stopped after 120 s".into())];
        let fault = emulators_fault(&outcome(hung, limit())).expect("worth another try");
        assert_eq!((fault.verb, &fault.line[..9]), ("hung", "[  130.0]"));
        assert_eq!(
            fault.told,
            "hung in the emulator without Tandem ([  130.0] watchdog: BUG: soft lockup - CPU#3 \
                stuck for 26s! [x:1]; time limit: stopped after 120 s)"
        );
        assert_eq!(emulators_fault(&outcome(hung, vec![])), None, "it went on in time");
        let loaded = format!("[   40.0] lab: scheduler loads\n{hung}");
        assert_eq!(emulators_fault(&outcome(&loaded, limit())), None);
        assert_eq!(emulators_fault(&outcome("[ 1.0] slow\n", limit())), None);
    }
}
