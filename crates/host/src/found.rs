//! What a scan of the host reads from and what it finds: roots, VMs, threads, paths of cgroups.

use settings::Called;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Roots of what is read, so that tests can use made-up trees.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`.
    pub proc_fs: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
    /// `/etc/passwd`.
    pub passwd: PathBuf,
    /// Reads the extended attributes of a folder that are ours.
    pub attributes: fn(&Path) -> io::Result<Named>,
    /// The uid of a folder's owner.
    pub owner: fn(&Path) -> io::Result<u32>,
}

/// Extended attributes: names and values.
pub type Named = Vec<(String, Vec<u8>)>;

/// A thread of a VM, or a kernel thread that works for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id.
    pub tid: i32,
    /// Its process: the VM's, or a kernel thread's own.
    pub pid: i32,
    /// Number of the vCPU; `None` for a helper (emulator, I/O).
    pub vcpu: Option<u32>,
    /// Its name.
    pub comm: String,
}

impl Thread {
    /// Whether it is a vCPU that QEMU itself emulates: by its name, for nothing but QEMU knows. One
    /// without such a name is KVM's.
    #[must_use]
    pub fn emulated(&self) -> bool {
        self.vcpu.is_some() && self.comm.ends_with("/TCG")
    }
}

/// A VM found on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVm {
    /// Process of the hypervisor.
    pub pid: i32,
    /// Start time of that process in clock ticks: a pid alone may be used again.
    pub started: u64,
    /// Name given to QEMU, else the scope's, else the pid.
    pub name: String,
    /// Its cgroup, below the cgroup root.
    pub cgroup: String,
    /// Its threads, vCPUs first.
    pub threads: Vec<Thread>,
    /// Effective uid of the process; `None` if it was not looked at.
    pub uid: Option<u32>,
    /// Whether settings by its name apply: a trusted user gave it, or the cgroup has it.
    pub named: bool,
}

impl FoundVm {
    /// Number of vCPUs found.
    #[must_use]
    pub fn vcpus(&self) -> u32 {
        self.threads.iter().filter(|t| t.vcpu.is_some()).count() as u32
    }

    /// What entries of the settings file match.
    pub(crate) fn called(&self) -> Called<'_> {
        Called { name: &self.name, named: self.named, cgroup: &self.cgroup }
    }
}

/// A name that a process has chosen, with an escape such as `\n` in place of each character that
/// would break a line, or change what a terminal shows of it.
pub(crate) fn safe(name: &str) -> String {
    let hidden = ['\u{200e}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    let breaks = |c: char| c.is_control() || hidden.iter().any(|range| range.contains(&c));
    let one = |c: char| if breaks(c) { c.escape_default().to_string() } else { c.to_string() };
    name.chars().map(one).collect()
}

/// The name of a thread as the kernel and the scheduler's records have it, up to the first zero.
pub(crate) fn comm_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    safe(&String::from_utf8_lossy(&bytes[..end]))
}

/// A cgroup's path and those of all above it but the root, the outermost first.
pub(crate) fn chain(path: &str) -> Vec<&str> {
    let ends = path
        .char_indices()
        .filter(|(i, c)| *c == '/' && *i > 0)
        .map(|(i, _)| i)
        .chain([path.len()]);
    ends.map(|end| &path[..end]).filter(|part| *part != "/" && !part.is_empty()).collect()
}

/// The folder of a cgroup.
pub(crate) fn folder(roots: &Roots, path: &str) -> PathBuf {
    roots.cgroup.join(path.trim_start_matches('/'))
}

/// How the cgroup of a VM ends that libvirt has made where there is no systemd:
/// `/machine/qemu-3-web1.libvirt-qemu`.
pub(crate) const LIBVIRT: &str = ".libvirt-qemu";

/// The VM's own cgroup: libvirt puts `libvirt/emulator` and `libvirt/vcpuN` below the scope, or
/// `emulator` and `vcpuN` below its own kind.
pub(crate) fn vm_cgroup(own: &str) -> &str {
    let ends = |part: &str| part.ends_with(".scope") || part.ends_with(LIBVIRT);
    let above = chain(own.trim_end_matches('/'));
    let last = above.last().copied();
    above.into_iter().find(|path| ends(path)).or(last).unwrap_or("/")
}

/// Name in a cgroup: `machine-qemu\x2d3\x2dweb1.scope` and `qemu-3-web1.libvirt-qemu` are web1
/// (libvirt), `100.scope` is 100 (Proxmox).
pub(crate) fn scope_name(cgroup: &str) -> Option<String> {
    let last = cgroup.rsplit('/').next()?;
    let (own, prefix) = match last.strip_suffix(LIBVIRT) {
        Some(own) => (own.to_owned(), "qemu-"),
        None => (last.strip_suffix(".scope")?.replace("\\x2d", "-"), "machine-qemu-"),
    };
    let name = match own.strip_prefix(prefix) {
        Some(rest) => rest.split_once('-').map_or(rest, |r| r.1).to_owned(),
        None => own,
    };
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_has_the_cgroup_that_its_manager_has_made_for_it() {
        let scope = "/machine.slice/machine-qemu\\x2d3\\x2da\\x2db.scope";
        for (cgroup, below, name) in [
            (scope, "/libvirt/emulator", Some("a-b")),
            ("/machine/qemu-3-a-b.libvirt-qemu", "/emulator", Some("a-b")),
            ("/machine/qemu-3-web1.libvirt-qemu", "", Some("web1")),
            ("/machine/web1.libvirt-qemu", "/vcpu0", Some("web1")),
            ("/qemu.slice/100.scope", "", Some("100")),
            ("/kubepods/burstable/pod7/12ab", "", None),
            ("/", "", None),
        ] {
            let own = format!("{cgroup}{below}");
            assert_eq!((vm_cgroup(&own), scope_name(cgroup).as_deref()), (cgroup, name), "{own}");
        }
    }

    #[test]
    fn a_name_cannot_break_lines_or_change_a_terminal() {
        assert_eq!(safe("web-1 (é), \\n"), "web-1 (é), \\n");
        assert_eq!(safe("a\nb\x1b[2J\u{85}\u{202e}"), "a\\nb\\u{1b}[2J\\u{85}\\u{202e}");
        assert_eq!(comm_of(b"CPU 0/\tKVM\0\0x"), "CPU 0/\\tKVM");
    }
}
