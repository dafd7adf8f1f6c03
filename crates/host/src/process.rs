//! What the kernel says of a process that it cannot choose itself: its user, its namespaces,
//! whether it has a virtual machine of KVM, and what it has started. `eligible` and `follow` decide
//! by that; nothing is changed.

use crate::{found::Roots, kept};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Open files of a process that are looked at: QEMU creates its virtual machine before its devices,
/// and has the lowest free number for it. A process may open a million files to keep others busy.
const FILES_MAX: usize = 1024;

/// A process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Real and effective uid; `None` if it has ended.
    pub(crate) uids: Option<[u32; 2]>,
    /// Whether it is in the same user namespace and PID namespace as this one: root of a container
    /// is not the host's.
    pub(crate) of_host: bool,
}

impl Process {
    /// What there is to know of it without its open files.
    pub(crate) fn of(roots: &Roots, pid: i32) -> Process {
        let dir = roots.proc_fs.join(pid.to_string());
        let of_host = ["user", "pid"].iter().all(|kind| shares_namespace(roots, &dir, kind));
        Process { uids: uids(&dir), of_host }
    }

    /// Whether it belongs to a user that is `trusted`, on the host and not in a container.
    pub(crate) fn belongs_to(&self, trusted: impl Fn(u32) -> bool) -> bool {
        self.of_host && self.uids.is_some_and(|uids| uids.into_iter().all(trusted))
    }
}

/// Whether a process has a virtual machine of KVM, or a vCPU of one, among its open files. That it
/// has opened `/dev/kvm` says less: any file of that path in its own mounts looks the same.
pub(crate) fn has_kvm(roots: &Roots, pid: i32) -> bool {
    has_kvm_within(roots, pid, FILES_MAX)
}

fn has_kvm_within(roots: &Roots, pid: i32, files_max: usize) -> bool {
    let Ok(files) = fs::read_dir(roots.proc_fs.join(format!("{pid}/fd"))) else { return false };
    let is_kvm = |link: PathBuf| {
        let name = link.to_str().and_then(|name| name.strip_prefix("anon_inode:"));
        name.is_some_and(|name| name == "kvm-vm" || name.starts_with("kvm-vcpu:"))
    };
    files.take(files_max).flatten().any(|file| fs::read_link(file.path()).is_ok_and(is_kvm))
}

/// All threads of the processes that a process has started, and of those that these have.
pub(crate) fn descendants(roots: &Roots, pid: i32) -> Vec<i32> {
    let threads = |pid: i32| -> Vec<PathBuf> {
        let tasks = fs::read_dir(roots.proc_fs.join(format!("{pid}/task")));
        tasks.map_or(vec![], |all| all.filter_map(|e| Some(e.ok()?.path())).collect())
    };
    let children = |task: &PathBuf| fs::read_to_string(task.join("children")).unwrap_or_default();
    let (mut seen, mut next, mut out) = (BTreeSet::from([pid]), vec![pid], vec![]);
    while let Some(process) = next.pop() {
        let tasks = threads(process);
        let started = tasks.iter().map(children).collect::<String>();
        let new = started.split_whitespace().filter_map(|word| word.parse::<i32>().ok());
        next.extend(new.filter(|child| seen.insert(*child)));
        if process != pid {
            let tid = |task: &PathBuf| task.file_name()?.to_str()?.parse::<i32>().ok();
            out.extend(tasks.iter().filter_map(tid));
        }
    }
    out
}

/// The effective uid of this process.
pub(crate) fn effective_uid() -> Option<u32> {
    uids(Path::new("/proc/self")).map(|uids| uids[1])
}

/// Real and effective uid, by the line `Uid:` of `status`.
fn uids(dir: &Path) -> Option<[u32; 2]> {
    let status = kept::text(&dir.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut words = line.split_whitespace().map(|word| word.parse().ok());
    Some([words.next()??, words.next()??])
}

/// Whether it is known to be in the same namespace of that kind as this process.
fn shares_namespace(roots: &Roots, dir: &Path, kind: &str) -> bool {
    let link = |dir: &Path| fs::read_link(dir.join("ns").join(kind)).ok();
    let own = link(&roots.proc_fs.join("self"));
    own.is_some() && own == link(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    #[test]
    fn a_process_is_of_its_user_and_of_the_host_unless_it_is_in_a_container() {
        let t = MadeUp::new("process");
        t.process(10, "/usr/bin/x", b"x\0", "/", &[]);
        let of = |t: &MadeUp| Process::of(&t.roots(), 10);
        assert_eq!(of(&t), Process { uids: Some([0, 0]), of_host: true });
        t.user(10, [1000, 0]);
        assert_eq!(of(&t).uids, Some([1000, 0]));
        let belongs = |t: &MadeUp, trusted: &[u32]| of(t).belongs_to(|uid| trusted.contains(&uid));
        assert!(belongs(&t, &[0, 1000]) && !belongs(&t, &[0]) && !belongs(&t, &[1000]));
        t.user(10, [0, 0]);
        for kind in ["user", "pid"] {
            t.namespace(10, kind, Some("4026539999"));
            assert!(!of(&t).of_host && !belongs(&t, &[0]), "{kind}");
            t.namespace(10, kind, None);
            assert!(!of(&t).of_host, "{kind} that cannot be read");
            t.namespace(10, kind, Some("4026531837"));
            assert!(belongs(&t, &[0]));
        }
        fs::remove_file(t.path("proc/10/status")).unwrap();
        assert!(!belongs(&t, &[0]), "of no known user");
    }

    #[test]
    fn only_a_virtual_machine_or_a_vcpu_of_kvm_counts_as_kvm() {
        let t = MadeUp::new("has-kvm");
        t.process(10, "/usr/bin/x", b"x\0", "/", &[]);
        for (link, counts) in [
            ("/dev/kvm", false),
            ("anon_inode:kvm-vm", true),
            ("anon_inode:kvm-vcpu:3", true),
            ("anon_inode:kvm-vcpu-stats:3", false),
            ("anon_inode:[eventfd]", false),
            ("/tmp/anon_inode:kvm-vm", false),
        ] {
            t.open(10, 7, link);
            assert_eq!(has_kvm(&t.roots(), 10), counts, "{link}");
        }
        assert!(!has_kvm(&t.roots(), 11), "a process that has gone");
    }

    #[test]
    fn no_process_keeps_the_scan_busy_with_its_open_files() {
        let t = MadeUp::new("many-files");
        let (files, looked_at) = (30, 10);
        // Each of these has it as another one of its files, in whatever order folders have them.
        for n in 0..files {
            let kinds = |fd| if fd == n { "anon_inode:kvm-vm" } else { "anon_inode:[eventfd]" };
            (0..files).for_each(|fd| t.open(100 + n, fd, kinds(fd)));
        }
        let count = |files_max| {
            (0..files).filter(|n| has_kvm_within(&t.roots(), 100 + n, files_max)).count()
        };
        assert!((1..20).contains(&count(looked_at)), "{}", count(looked_at));
        assert_eq!(count(FILES_MAX), files as usize);
    }

    #[test]
    fn this_process_has_a_user_and_is_of_its_own_namespaces() {
        let pid = std::process::id() as i32;
        let own = Process::of(&Roots::default(), pid);
        assert_eq!(own.uids.map(|uids| uids[1]), effective_uid());
        assert!(own.of_host && effective_uid().is_some());
    }

    #[test]
    fn descendants_are_all_threads_of_all_processes_below_one() {
        let t = MadeUp::new("process-descendants");
        for (pid, tid, children) in [
            (10, 10, "12 "),
            (10, 11, "13 "),
            (12, 12, ""),
            (13, 13, "14 "),
            (13, 15, ""),
            (14, 14, "10 "),
            (16, 16, "17 "),
        ] {
            t.put(&format!("proc/{pid}/task/{tid}/children"), children.as_bytes());
        }
        let mut all = descendants(&t.roots(), 10);
        all.sort_unstable();
        assert_eq!(all, [12, 13, 14, 15]);
        assert!(descendants(&t.roots(), 99).is_empty());
    }
}
