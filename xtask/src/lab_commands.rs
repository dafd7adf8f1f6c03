//! `lab-fetch` and `lab-shell`: the lab from the command line; everything they do is in the `lab`
//! crate.

use crate::say::{say, sayln};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use lab::{Accel, Archive, BootSpec, GuestFile, KernelId, LabError, Stream};

/// Fetches all that the lab needs (about 90 MB) and prints what is where.
#[derive(Args)]
pub struct Fetch {
    /// Ask the archive again which kernels are the newest, even if some were chosen before.
    #[arg(long)]
    refresh: bool,
}

/// Boots the lab and runs a command in it, showing its output as it comes.
///
/// The command's exit code becomes this command's; 70 means that the lab itself could not run.
/// Files that the command leaves in /lab/out are brought back.
#[derive(Args)]
pub struct Shell {
    /// Kernel to boot: newest, older, cfs, or an exact version such as 7.2.13+deb14.
    #[arg(long, default_value = "newest")]
    kernel: KernelId,
    /// CPUs as SOCKETSxCORESxTHREADS.
    #[arg(long, default_value = "2x2x2", value_parser = parse_topology)]
    topology: lab::Topology,
    /// NUMA nodes; without it, one per socket.
    #[arg(long)]
    nodes: Option<u32>,
    /// Memory in MB.
    #[arg(long, default_value_t = 2048)]
    memory: u32,
    /// Emulation: multi, single, or icount:SHIFT for runs that repeat exactly.
    #[arg(long, default_value = "multi", value_parser = parse_accel)]
    accel: Accel,
    /// Do not load the KVM modules; on many CPUs that saves a minute.
    #[arg(long)]
    no_kvm: bool,
    /// Wall-clock limit in seconds, boot included.
    #[arg(long, default_value_t = 120)]
    time_limit: u64,
    /// File to put into the guest, as HOST:GUEST with an absolute guest path; may be given often.
    #[arg(long, value_name = "HOST:GUEST", value_parser = parse_file)]
    file: Vec<GuestFile>,
    /// Further kernel argument; may be given often.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    append: Vec<String>,
    /// Show the kernel's log as well.
    #[arg(long)]
    verbose: bool,
    /// The command and its arguments, run by the guest's shell.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

fn parse_topology(text: &str) -> Result<lab::Topology, String> {
    let numbers: Vec<u32> = text.split('x').filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [sockets, cores_per_socket, threads] => {
            Ok(lab::Topology { sockets, nodes: sockets, cores_per_socket, threads })
        }
        _ => Err("allowed SOCKETSxCORESxTHREADS, such as 2x2x2".into()),
    }
}

fn parse_accel(text: &str) -> Result<Accel, String> {
    match text.split_once(':') {
        None if text == "multi" => Ok(Accel::Multi),
        None if text == "single" => Ok(Accel::Single),
        Some(("icount", shift)) => match shift.parse() {
            Ok(shift @ 0..=10) => Ok(Accel::Icount { shift }),
            _ => Err("allowed icount:0 to icount:10".into()),
        },
        _ => Err("allowed multi, single, icount:SHIFT".into()),
    }
}

fn parse_file(text: &str) -> Result<GuestFile, String> {
    match text.split_once(':') {
        Some((host, guest)) if guest.starts_with('/') => {
            Ok(GuestFile::copy(PathBuf::from(host), guest))
        }
        _ => Err("allowed HOST:GUEST with an absolute guest path".into()),
    }
}

/// Runs `lab-fetch`.
pub fn fetch(arguments: &Fetch) -> Result<ExitCode, LabError> {
    let archive = Archive::open()?;
    if arguments.refresh {
        archive.forget_choices()?;
    }
    let qemu = archive.qemu()?;
    sayln!("QEMU {} in {}", qemu.version(), qemu.root().display());
    for id in [KernelId::Newest, KernelId::Older] {
        let kernel = archive.kernel(&id)?;
        let root = lab::image::build(&archive, &kernel, lab::image::Shape::Disk)?;
        let kvm = if kernel.has_kvm { "KVM inside" } else { "no KVM inside" };
        sayln!("kernel {} ({id}, {kvm}) from {}", kernel.version, kernel.origin);
        sayln!("  image {}", kernel.vmlinuz().display());
        sayln!("  guest root {}", root.display());
    }
    sayln!("workload kernel {}", lab::payload::build(&archive)?.display());
    sayln!("Linux VM's initramfs {}", lab::guest_linux::build(&archive)?.display());
    Ok(ExitCode::SUCCESS)
}

/// Runs `lab-shell`.
pub fn shell(arguments: &Shell) -> Result<ExitCode, LabError> {
    let mut spec = BootSpec::new(arguments.command.join(" "));
    spec.kernel = arguments.kernel.clone();
    spec.topology = arguments.topology;
    spec.topology.nodes = arguments.nodes.unwrap_or(spec.topology.nodes);
    spec.memory_mb = arguments.memory;
    spec.accel = arguments.accel;
    spec.kvm_inside = !arguments.no_kvm;
    spec.time_limit = Duration::from_secs(arguments.time_limit);
    spec.files = arguments.file.clone();
    spec.extra_append = arguments.append.clone();

    let archive = Archive::open()?;
    let verbose = arguments.verbose;
    let outcome = lab::boot(&archive, &spec, &mut |stream, text| {
        if stream == Stream::Command || verbose {
            say!("{text}");
            std::io::stdout().flush().ok();
        }
    })?;
    let booted = outcome.user_space.map_or("never".into(), |t| format!("{:.1} s", t.as_secs_f64()));
    eprintln!(
        "lab: kernel {}, user space at {booted}, whole run {:.1} s, {} of {} tries, {} files back, \
            all in {}",
        outcome.kernel,
        outcome.wall.as_secs_f64(),
        outcome.tries,
        lab::boot::MAX_TRIES,
        outcome.files.len(),
        outcome.folder.display()
    );
    for finding in &outcome.findings {
        eprintln!("lab: {finding}");
    }
    match outcome.exit_code {
        Some(code) if code != 0 && !outcome.findings.iter().any(lab::Finding::is_fatal) => {
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        _ => outcome.require_success().map(|_| ExitCode::SUCCESS),
    }
}
