//! What QEMU's command line says of a VM that runs on this machine; it plans nothing.
//!
//! Format: QEMU's manual page, `-name`, `-smp`, `-m`. Of an option that is given twice the last one
//! holds, as for QEMU. libvirt writes `-name guest=web,debug-threads=on`, Proxmox VE runs QEMU as
//! `kvm`.

use ::vnuma::Mib;
use anyhow::{Error, anyhow};
use std::{collections::BTreeMap, fs, path::Path};

/// A VM that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    /// Process of its QEMU.
    pub(super) pid: u32,
    /// Its name; none if QEMU was not given one.
    pub(super) name: Option<String>,
    /// Its vCPUs.
    pub(super) vcpus: u32,
    /// Its memory.
    pub(super) memory: Mib,
    /// Cores of a virtual socket; 1 if QEMU was given none.
    pub(super) cores_per_socket: u32,
}

/// Finds a VM by its name or by the process of its QEMU, below `proc` (`/proc`).
///
/// # Errors
/// A message if there is none, if there are several, or if it has no usable number.
pub(super) fn running(proc: &Path, which: &str) -> Result<Running, Error> {
    let all = machines(proc);
    let name = |args: &[String]| name_of(args);
    let is = |(pid, args): &&(u32, Vec<String>)| {
        name(args).as_deref() == Some(which) || pid.to_string() == which
    };
    match all.iter().filter(is).collect::<Vec<_>>()[..] {
        [(pid, args)] => read(*pid, args),
        [] => {
            let shown = |(pid, args): &(u32, Vec<String>)| {
                name(args).map_or(pid.to_string(), |name| format!("'{name}'"))
            };
            let names: Vec<String> = all.iter().map(shown).collect();
            let allowed = if names.is_empty() {
                "none: no QEMU runs here".to_owned()
            } else {
                names.join(", ")
            };
            Err(anyhow!(
                "VM '{which}': cannot find it: seen no QEMU of that name or process, allowed \
                    {allowed}"
            ))
        }
        ref several => {
            let pids: Vec<String> = several.iter().map(|(pid, _)| pid.to_string()).collect();
            Err(anyhow!(
                "VM '{which}': cannot choose: seen processes {}, allowed one of these numbers",
                pids.join(", ")
            ))
        }
    }
}

/// Processes that are QEMUs, with their arguments.
fn machines(proc: &Path) -> Vec<(u32, Vec<String>)> {
    let dirs = fs::read_dir(proc).into_iter().flatten().flatten();
    let machine = |dir: fs::DirEntry| {
        let pid: u32 = dir.file_name().to_str()?.parse().ok()?;
        let line = fs::read(dir.path().join("cmdline")).ok()?;
        let args: Vec<String> =
            line.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
        let program = Path::new(args.first()?).file_name()?.to_str()?.to_owned();
        let is = program.starts_with("qemu-system-") || ["qemu-kvm", "kvm"].contains(&&*program);
        is.then_some((pid, args))
    };
    let mut all: Vec<(u32, Vec<String>)> = dirs.filter_map(machine).collect();
    all.sort();
    all
}

/// Value of an option.
fn option<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let is = |pair: &&[String]| pair[0] == format!("-{name}") || pair[0] == format!("--{name}");
    args.windows(2).rfind(is).map(|pair| pair[1].as_str())
}

/// Keys of a value such as `8,sockets=2,cores=4`; what stands first without a key has that of
/// `first`.
fn keys<'a>(value: &'a str, first: &'a str) -> BTreeMap<&'a str, &'a str> {
    let pair = |(i, part): (usize, &'a str)| match part.split_once('=') {
        Some(pair) => Some(pair),
        None if i == 0 => Some((first, part)),
        None => None,
    };
    value.split(',').enumerate().filter_map(pair).collect()
}

fn name_of(args: &[String]) -> Option<String> {
    keys(option(args, "name")?, "guest").get("guest").map(|name| (*name).to_owned())
}

fn read(pid: u32, args: &[String]) -> Result<Running, Error> {
    let name = name_of(args);
    let refused = |option: &str, cause: String| {
        let name = name.clone().unwrap_or_else(|| pid.to_string());
        anyhow!("VM '{name}', process {pid}: cannot read {option}: {cause}")
    };
    let smp = keys(option(args, "smp").unwrap_or("1"), "cpus");
    let number = |key: &str| match smp.get(key) {
        None => Ok(None),
        Some(text) => text.parse::<u32>().ok().filter(|n| *n > 0).map(Some).ok_or_else(|| {
            refused("-smp", format!("{key}: seen '{text}', allowed a number of 1 or more"))
        }),
    };
    let of = |key| number(key).map(|n| n.unwrap_or(1));
    let mut cores = of("cores")?;
    for key in ["dies", "clusters", "modules"] {
        cores = cores.saturating_mul(of(key)?);
    }
    let all = cores.saturating_mul(of("sockets")?).saturating_mul(of("threads")?);
    let vcpus = number("cpus")?.or(number("maxcpus")?).unwrap_or(all);
    let memory = keys(option(args, "m").unwrap_or("128"), "size");
    let text = memory.get("size").copied().unwrap_or("128");
    let memory = mib(text).ok_or_else(|| {
        refused("-m", format!("seen '{text}', allowed whole MiB, as in 64G, 8192 or 8388608k"))
    })?;
    Ok(Running { pid, name: name.clone(), vcpus, memory, cores_per_socket: cores })
}

/// QEMU's amounts are MiB unless they have a unit.
fn mib(text: &str) -> Option<Mib> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let kib = match text[end..].to_ascii_lowercase().as_str() {
        "k" => Some(number),
        "" | "m" => number.checked_mul(1 << 10),
        "g" => number.checked_mul(1 << 20),
        "t" => number.checked_mul(1 << 30),
        _ => None,
    }?;
    let whole = kib > 0 && kib % 1024 == 0 && Mib(kib / 1024) <= Mib::MAX;
    whole.then_some(Mib(kib / 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_command_line_says_what_a_vm_has() {
        let seen = |line: &str| {
            let vm = read(7, &args(line)).expect(line);
            (vm.name.unwrap_or_default(), vm.vcpus, vm.memory.0, vm.cores_per_socket)
        };
        // libvirt, Proxmox VE, by hand, and nothing said.
        let libvirt = "qemu-system-x86_64 -name guest=web,debug-threads=on -m size=8388608k \
            -smp 16,sockets=2,dies=1,clusters=1,cores=8,threads=1";
        assert_eq!(seen(libvirt), ("web".to_owned(), 16, 8192, 8));
        let proxmox = "/usr/bin/kvm -id 100 -name db,debug-threads=on -smp 4,sockets=1,cores=4,\
            maxcpus=4 -m 16384";
        assert_eq!(seen(proxmox), ("db".to_owned(), 4, 16384, 4));
        assert_eq!(seen("qemu-kvm -m 1G -smp cores=2,sockets=3"), (String::new(), 6, 1024, 2));
        assert_eq!(seen("qemu-kvm -smp 2 -smp 12 -m 3G,slots=2"), (String::new(), 12, 3072, 1));
        assert_eq!(seen("qemu-kvm"), (String::new(), 1, 128, 1));
        for (line, part) in [
            ("qemu-kvm -smp 0", "cannot read -smp: cpus: seen '0'"),
            ("qemu-kvm -smp x", "seen 'x', allowed a number"),
            ("qemu-kvm -name a -m 1025k", "VM 'a', process 7: cannot read -m: seen '1025k'"),
        ] {
            let text = read(7, &args(line)).expect_err(line).to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_vm_is_found_by_name_or_process() {
        let proc = std::env::temp_dir().join(format!("tandem-running-{}", std::process::id()));
        for (pid, line) in [
            ("11", "qemu-system-x86_64 -name guest=web -smp 2 -m 1G"),
            ("12", "/usr/bin/kvm -name db -smp 4 -m 2G"),
            ("13", "/usr/bin/kvm -name db -smp 8 -m 2G"),
            ("14", "/usr/bin/qemu-img -name disk"),
            ("self", "qemu-kvm -name self"),
        ] {
            fs::create_dir_all(proc.join(pid)).expect("a folder");
            fs::write(proc.join(pid).join("cmdline"), line.replace(' ', "\0") + "\0")
                .expect("a file");
        }
        let seen = |which: &str| running(&proc, which).map(|vm| (vm.pid, vm.vcpus));
        assert_eq!(seen("web").expect("one"), (11, 2));
        assert_eq!(seen("13").expect("one"), (13, 8));
        let text = |which: &str| seen(which).expect_err(which).to_string();
        assert_eq!(
            text("db"),
            "VM 'db': cannot choose: seen processes 12, 13, allowed one of these numbers"
        );
        assert!(text("disk").ends_with("allowed 'web', 'db', 'db'"), "{}", text("disk"));
        fs::remove_dir_all(&proc).expect("it is removed");
        assert!(text("web").ends_with("allowed none: no QEMU runs here"), "{}", text("web"));
    }
}
