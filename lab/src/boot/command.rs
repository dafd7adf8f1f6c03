//! Writes QEMU's command line for a boot of the lab: accelerator, topology, disks, consoles and
//! kernel arguments; pure, so that tests can read it.

use std::path::Path;

use super::{Accel, BootSpec, Topology};
use crate::error::{LabError, Result};
use crate::image;

/// QEMU's limit for the plain PC machine, and more than a 2-core host can emulate in useful time.
const MAX_CPUS: u32 = 64;
/// Below this the kernel, its BTF and one small VM do not fit.
const MIN_MEMORY_MB: u32 = 512;
/// Above this the host swaps rather than emulates.
const MAX_MEMORY_MB: u32 = 65_536;

/// The files of one boot.
pub(super) struct Files<'a> {
    pub vmlinuz: &'a Path,
    /// The root disk; unused under icount.
    pub root: &'a Path,
    /// The caller's files: a disk, or under icount the whole initramfs.
    pub input: &'a Path,
    pub output: &'a Path,
    pub kernel_log: &'a Path,
    pub console: &'a Path,
}

fn refuse(seen: String) -> LabError {
    LabError::new("boot", "be described to QEMU", seen, "change the topology or the memory")
}

/// QEMU's arguments after the firmware folders.
pub(super) fn arguments(spec: &BootSpec, files: &Files) -> Result<Vec<String>> {
    check(&spec.topology, spec.memory_mb)?;
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|w| (*w).to_owned()));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none"]);
    match spec.accel {
        Accel::Multi => add(&["-accel", "tcg,thread=multi", "-cpu", "max"]),
        Accel::Single => add(&["-accel", "tcg,thread=single", "-cpu", "max"]),
        Accel::Icount { shift } => {
            add(&["-accel", "tcg,thread=single", "-icount", &format!("shift={shift},sleep=off")]);
            add(&["-rtc", "base=2026-01-01,clock=vm", "-cpu", "max,-rdrand,-rdseed"]);
        }
    }
    topology(&mut args, &spec.topology, spec.memory_mb);
    if let Accel::Icount { .. } = spec.accel {
        serial_ports(&mut args, files);
    } else {
        disks_and_console(&mut args, files);
    }
    let mut add = |words: &[&str]| args.extend(words.iter().map(|w| (*w).to_owned()));
    add(&["-kernel", &files.vmlinuz.display().to_string(), "-append", &kernel_arguments(spec)]);
    Ok(args)
}

fn check(t: &Topology, memory_mb: u32) -> Result<()> {
    let cpus = t.cpus();
    if cpus == 0 || cpus > MAX_CPUS {
        return Err(refuse(format!("{cpus} CPUs, allowed 1..={MAX_CPUS}")));
    }
    if t.nodes == 0 || cpus % t.nodes != 0 {
        return Err(refuse(format!("{} nodes, allowed a divisor of {cpus} CPUs", t.nodes)));
    }
    if !(MIN_MEMORY_MB..=MAX_MEMORY_MB).contains(&memory_mb) {
        return Err(refuse(format!("{memory_mb} MB, allowed {MIN_MEMORY_MB}..={MAX_MEMORY_MB}")));
    }
    Ok(())
}

fn topology(args: &mut Vec<String>, t: &Topology, memory_mb: u32) {
    let (cpus, nodes) = (t.cpus(), t.nodes);
    let node_mb = memory_mb / nodes;
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    add("-m", format!("{}M", node_mb * nodes));
    add(
        "-smp",
        format!("{cpus},sockets={},cores={},threads={}", t.sockets, t.cores_per_socket, t.threads),
    );
    let per_node = cpus / nodes;
    for node in 0..nodes {
        let (first, last) = (node * per_node, (node + 1) * per_node - 1);
        add("-object", format!("memory-backend-ram,id=node{node},size={node_mb}M"));
        add("-numa", format!("node,nodeid={node},memdev=node{node},cpus={first}-{last}"));
    }
}

fn disks_and_console(args: &mut Vec<String>, files: &Files) {
    disk(args, "root", files.root, "labroot", ",snapshot=on");
    disk(args, "input", files.input, "labin", ",readonly=on");
    disk(args, "output", files.output, "labout", "");
    let mut add = |words: &[&str]| args.extend(words.iter().map(|w| (*w).to_owned()));
    add(&["-serial", &format!("file:{}", files.kernel_log.display())]);
    add(&["-chardev", &format!("file,id=console,path={}", files.console.display())]);
    add(&["-device", "virtio-serial-pci", "-device", "virtconsole,chardev=console"]);
}

/// Under icount no device may take part that a host thread serves: when its answer comes would be
/// chance. Serial ports answer on the spot.
fn serial_ports(args: &mut Vec<String>, files: &Files) {
    for file in [files.kernel_log, files.console, files.output] {
        args.extend(["-serial".into(), format!("file:{}", file.display())]);
    }
    args.extend(["-initrd".into(), files.input.display().to_string()]);
}

fn disk(args: &mut Vec<String>, id: &str, file: &Path, serial: &str, more: &str) {
    let file = file.display().to_string().replace(',', ",,");
    let drive = format!("if=none,id={id},file={file},format=raw,cache=unsafe{more}");
    args.extend([
        "-drive".into(),
        drive,
        "-device".into(),
        format!("nvme,drive={id},serial={serial}"),
    ]);
}

fn kernel_arguments(spec: &BootSpec) -> String {
    let root = match spec.accel {
        Accel::Icount { .. } => "rdinit=/init lab.serial nokaslr norandmaps".into(),
        _ => image::root_argument(),
    };
    let mut words = vec![
        root,
        // The early console shows deaths before the serial driver is up; they are the ones worth a
        // retry.
        "console=ttyS0 earlycon=uart8250,io,0x3f8".into(),
        // Any oops ends the boot at once, and QEMU leaves instead of booting again.
        "oops=panic panic=-1".into(),
        "loglevel=7 printk.devkmsg=on mitigations=off no_timer_check".into(),
    ];
    if !spec.kvm_inside {
        words.push("lab.kvm=off".into());
    }
    words.extend(spec.extra_append.clone());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(spec: &BootSpec) -> Result<String> {
        let p = Path::new;
        let files = Files {
            vmlinuz: p("/k/vmlinuz"),
            root: p("/c/root.img"),
            input: p("/c/a,b.tar"),
            output: p("/c/out.tar"),
            kernel_log: p("/c/kernel.log"),
            console: p("/c/console.log"),
        };
        arguments(spec, &files).map(|args| args.join(" "))
    }

    #[test]
    fn two_sockets_and_two_nodes_split_cpus_and_memory_evenly() {
        let mut spec = BootSpec::new("true");
        spec.memory_mb = 3000;
        let text = line(&spec).unwrap();
        assert!(text.contains("-smp 8,sockets=2,cores=2,threads=2"), "{text}");
        assert!(text.contains("node,nodeid=0,memdev=node0,cpus=0-3"), "{text}");
        assert!(text.contains("node,nodeid=1,memdev=node1,cpus=4-7"), "{text}");
        assert!(text.contains("-m 3000M") && text.contains("id=node1,size=1500M"), "{text}");
    }

    #[test]
    fn only_the_root_disk_is_a_snapshot_and_commas_in_paths_are_doubled() {
        let text = line(&BootSpec::new("true")).unwrap();
        assert!(text.contains("file=/c/root.img,format=raw,cache=unsafe,snapshot=on"), "{text}");
        assert!(text.contains("file=/c/a,,b.tar,"), "{text}");
        assert_eq!(text.matches("snapshot=on").count(), 1);
    }

    #[test]
    fn icount_takes_every_source_of_chance_away() {
        let mut spec = BootSpec::new("true");
        spec.accel = Accel::Icount { shift: 2 };
        let text = line(&spec).unwrap();
        for word in [
            "shift=2,sleep=off",
            "thread=single",
            "-rdrand,-rdseed",
            "clock=vm",
            "nokaslr norandmaps",
        ] {
            assert!(text.contains(word), "{word} in {text}");
        }
        for device in ["nvme", "virtio", "-drive"] {
            assert!(!text.contains(device), "{device} in {text}");
        }
    }

    #[test]
    fn a_topology_that_does_not_divide_is_refused_with_the_allowed_range() {
        let mut spec = BootSpec::new("true");
        spec.topology.nodes = 3;
        assert!(
            line(&spec).unwrap_err().to_string().contains("3 nodes, allowed a divisor of 8 CPUs")
        );
        spec.topology = Topology { sockets: 4, nodes: 4, cores_per_socket: 16, threads: 2 };
        assert!(line(&spec).unwrap_err().to_string().contains("128 CPUs, allowed 1..=64"));
    }
}
