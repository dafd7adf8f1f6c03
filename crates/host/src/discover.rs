//! Finds VMs on this host: QEMU processes, their threads, kernel threads that work for them, and
//! their cgroups, as libvirt, Proxmox and plain shells lay them out. It reads /proc and changes
//! nothing.

pub use crate::found::{FoundVm, Named, Roots, Thread};
use crate::{
    cgroups,
    eligible::{Candidate, Eligible, Standing, Which},
    found::{comm_of, safe, scope_name, vm_cgroup},
    found_before::{FoundBefore, Mark},
    kept::{self, Kept},
    trust::{self, Trust},
};
use settings::LiveSettings;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use units::PcpuSet;

impl Default for Roots {
    fn default() -> Roots {
        Roots {
            proc_fs: "/proc".into(),
            sys: "/sys".into(),
            cgroup: "/sys/fs/cgroup".into(),
            passwd: "/etc/passwd".into(),
            attributes: cgroups::attributes,
            owner: trust::owner,
        }
    }
}

/// Finds VMs, scan by scan. A process that was no hypervisor is examined again only every
/// `LOOK_AGAIN` scans: it may have become one by exec. A VM whose mark is the same is looked at
/// every `VMS_AGAIN` scans.
#[derive(Debug, Default)]
pub struct Finder {
    others: BTreeSet<i32>,
    before: FoundBefore,
    /// By what the VMs before were judged.
    judged_by: Option<(Trust, LiveSettings)>,
    kept: Kept,
    /// Kernel threads that work for a VM: the number in the name, and the name.
    kernel: BTreeMap<i32, (i32, String)>,
    eligible: Eligible,
    round: u32,
}

const LOOK_AGAIN: u32 = 4;
const VMS_AGAIN: u32 = 4 * LOOK_AGAIN;
/// The names of threads of the kernel are read again so often: they have them from their start.
const NAMES_AGAIN: u32 = 4 * LOOK_AGAIN;

impl Finder {
    /// One that may keep up to `room` files open.
    pub(crate) fn with_room(room: usize) -> Finder {
        Finder { kept: Kept::with_room(room), ..Finder::default() }
    }

    /// Process `pid` has turned out to be a hypervisor.
    pub(crate) fn found(&mut self, pid: i32) {
        self.others.remove(&pid);
    }

    /// Every VM there is now, by pid.
    pub fn scan(&mut self, roots: &Roots, which: Which<'_>) -> Vec<FoundVm> {
        let Ok(dir) = fs::read_dir(&roots.proc_fs) else { return vec![] };
        let pids: BTreeSet<i32> =
            dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
        self.round = self.round.wrapping_add(1);
        self.eligible.retain(&pids);
        let judged_anew = self.judge_by(which);
        let round = self.round;
        let due = |pid: i32, rounds: u32| (pid as u32).wrapping_add(round) % rounds == 0;
        self.before.retain(|pid| pids.contains(&pid));
        self.kernel.retain(|pid, _| pids.contains(pid));
        let others = std::mem::take(&mut self.others);
        let mut found = vec![];
        for pid in pids {
            let known = others.contains(&pid);
            let rests = |rounds: u32| !judged_anew && !due(pid, rounds);
            if known && rests(LOOK_AGAIN) && !self.eligible.is_new(pid) {
                self.others.insert(pid);
            } else if let Some(vm) = self.vm(roots, which, (pid, rests(VMS_AGAIN))) {
                found.push(vm);
            } else {
                self.others.insert(pid);
                if !known || due(pid, NAMES_AGAIN) {
                    self.kernel.remove(&pid);
                    self.kernel.extend(works_for(roots, pid).map(|w| (pid, w)));
                }
            }
        }
        self.kept.sweep();
        found.iter_mut().for_each(|vm| self.helped(vm));
        found
    }

    /// Whether all have been judged by other settings.
    fn judge_by(&mut self, which: Which<'_>) -> bool {
        let now = if let Which::Trusted(trust, settings) = which {
            Some((trust, settings))
        } else {
            None
        };
        let differ = self.judged_by.as_ref().map(|(trust, settings)| (trust, settings)) != now;
        if differ {
            self.judged_by = now.map(|(trust, settings)| (trust.clone(), settings.clone()));
        }
        differ
    }

    /// The VM of a process: as it was, if it `rests` and its mark is the same.
    fn vm(
        &mut self,
        roots: &Roots,
        which: Which<'_>,
        (pid, rests): (i32, bool),
    ) -> Option<FoundVm> {
        let kept = &mut self.kept;
        let mark = || Mark::read(kept, &folder(roots, pid));
        let same = if rests { self.before.same(pid, mark) } else { None };
        same.or_else(|| self.anew(roots, which, pid))
    }

    /// The VM of one process as it is now.
    fn anew(&mut self, roots: &Roots, which: Which<'_>, pid: i32) -> Option<FoundVm> {
        let before = self.before.take(pid);
        let (mark, mut vm) = look(&mut self.eligible, &mut self.kept, roots, which, pid)?;
        number(roots, before.filter(|old| old.started == vm.started), &mut vm);
        self.before.put(mark, &vm);
        Some(vm)
    }

    /// The VM of one process, with the kernel threads that are known to work for it; `None` if it
    /// is not to be followed, is no hypervisor or has ended.
    pub(crate) fn look(&mut self, roots: &Roots, which: Which<'_>, pid: i32) -> Option<FoundVm> {
        let mut vm = self.anew(roots, which, pid)?;
        self.helped(&mut vm);
        Some(vm)
    }

    /// A process that was found has been started by another VM, and belongs to that.
    pub(crate) fn is_of_a_vm(&mut self, it: &FoundVm) {
        self.eligible.is_of_a_vm(it.pid, Some(it.started));
        self.before.take(it.pid);
    }

    /// The VM that has started process `pid` is gone.
    pub(crate) fn outlives_its_vm(&mut self, pid: i32) {
        self.eligible.is_of_a_vm(pid, None);
    }

    /// Whether a process looks like a hypervisor and is not followed.
    pub(crate) fn refuses(&self, pid: i32) -> bool {
        self.eligible.refuses(pid)
    }

    /// A message for each of those processes.
    pub(crate) fn refused(&self) -> BTreeSet<String> {
        self.eligible.refused()
    }

    /// Adds the kernel threads that work for a VM; they are called after the thread of it that
    /// asked for them.
    fn helped(&self, vm: &mut FoundVm) {
        let its = |number: i32| number == vm.pid || vm.threads.iter().any(|t| t.tid == number);
        let helpers: Vec<Thread> = self
            .kernel
            .iter()
            .filter(|(_, (of, _))| its(*of))
            .map(|(pid, (_, comm))| Thread { tid: *pid, pid: *pid, vcpu: None, comm: comm.clone() })
            .collect();
        vm.threads.extend(helpers);
    }
}

/// The folder of a process.
fn folder(roots: &Roots, pid: i32) -> PathBuf {
    roots.proc_fs.join(pid.to_string())
}

fn look(
    eligible: &mut Eligible,
    kept: &mut Kept,
    roots: &Roots,
    which: Which<'_>,
    pid: i32,
) -> Option<(Mark, FoundVm)> {
    let dir = folder(roots, pid);
    let program = hypervisor(&dir);
    // Before all else, so that what changes meanwhile is another mark.
    let mark = program.as_ref().and_then(|_| Mark::read(kept, &dir));
    let Some((program, mark)) = program.zip(mark) else {
        eligible.forget(pid);
        return None;
    };
    let it = candidate(&dir, pid, program, &mark);
    let Standing { uid, named } = eligible.judge(roots, which, &it)?;
    let Candidate { started, name, cgroup, .. } = it;
    let vm = FoundVm { pid, started, name, cgroup, threads: threads(&dir, pid), uid, named };
    Some((mark, vm))
}

/// A process that looks like a hypervisor.
fn candidate(dir: &Path, pid: i32, program: String, mark: &Mark) -> Candidate {
    let Mark { started, own, .. } = mark.clone();
    let cgroup = vm_cgroup(&own).to_owned();
    let name = qemu_name(dir)
        .unwrap_or_else(|| scope_name(&cgroup).unwrap_or_else(|| format!("pid-{pid}")));
    Candidate { pid, started, program, name: safe(&name), own, cgroup }
}

/// The number in the name of a kernel thread that works for a VM, and the name: `vhost-4711`
/// (network and disks; on kernels before 6.4, later ones are threads of the VM itself) and
/// `kvm-pit/4711`.
fn works_for(roots: &Roots, pid: i32) -> Option<(i32, String)> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let dir = folder(roots, pid);
    let comm = kept::text(&dir.join("comm"))?.trim_end().to_owned();
    let number =
        comm.strip_prefix("vhost-").or_else(|| comm.strip_prefix("kvm-pit/"))?.parse().ok()?;
    // Any thread may have this name; a kernel thread is recognised by its flags, field 9.
    let stat = kept::text(&dir.join("stat"))?;
    let flags: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()?;
    (flags & PF_KTHREAD != 0).then_some((number, comm))
}

/// The program of a process if it is one that runs VMs: QEMU under its names in the distributions.
fn hypervisor(dir: &Path) -> Option<String> {
    let exe = fs::read_link(dir.join("exe")).ok()?;
    let name = exe.file_name()?.to_str()?.trim_end_matches(" (deleted)");
    let known = name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm";
    known.then(|| name.to_owned())
}

fn threads(dir: &Path, pid: i32) -> Vec<Thread> {
    let Ok(tasks) = fs::read_dir(dir.join("task")) else { return vec![] };
    let thread = |task: &Path| {
        let tid = task.file_name()?.to_str()?.parse().ok()?;
        let comm = comm_of(kept::once(&task.join("comm")).ok()?.trim_ascii_end());
        Some(Thread { tid, pid, vcpu: vcpu_of_name(&comm), comm })
    };
    tasks.filter_map(|entry| thread(&entry.ok()?.path())).collect()
}

/// Numbers the vCPUs of a VM, and puts them first. Where no thread has a vCPU's name, those count
/// that are seen to run one, now or `before`: one that computes is not seen to.
fn number(roots: &Roots, before: Option<FoundVm>, vm: &mut FoundVm) {
    if vm.vcpus() == 0 {
        let dir = folder(roots, vm.pid);
        let known = |t: &Thread| {
            let old = before.iter().flat_map(|vm| &vm.threads);
            old.filter(|old| (old.tid, &old.comm) == (t.tid, &t.comm)).find_map(|old| old.vcpu)
        };
        for t in &mut vm.threads {
            t.vcpu = known(t).or_else(|| vcpu_of_ioctl(&dir, &dir.join(format!("task/{}", t.tid))));
        }
    }
    let in_order = |t: &Thread| (t.vcpu.is_none(), t.vcpu, t.tid);
    vm.threads.sort_by_key(in_order);
    // A vCPU thread's own children (KVM's workers) keep its name: the first of a name is the vCPU.
    let mut seen = BTreeSet::new();
    for t in &mut vm.threads {
        t.vcpu = t.vcpu.filter(|n| seen.insert(*n));
    }
    vm.threads.sort_by_key(in_order);
}

/// `CPU 3/KVM` and `CPU 3/TCG` (QEMU with `-name …,debug-threads=on`, as libvirt and Proxmox start
/// it).
fn vcpu_of_name(comm: &str) -> Option<u32> {
    let (number, kind) = comm.strip_prefix("CPU ")?.split_once('/')?;
    (kind.starts_with("KVM") || kind.starts_with("TCG")).then(|| number.parse().ok())?
}

/// A thread without such a name that sits in KVM_RUN: the file it runs is `anon_inode:kvm-vcpu:3`.
fn vcpu_of_ioctl(process: &Path, task: &Path) -> Option<u32> {
    const IOCTL: &str = "16";
    const KVM_RUN: &str = "0xae80";
    let call = kept::text(&task.join("syscall"))?;
    let mut words = call.split_whitespace();
    if words.next()? != IOCTL {
        return None;
    }
    let fd = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    if words.next()? != KVM_RUN {
        return None;
    }
    let file = fs::read_link(process.join(format!("fd/{fd}"))).ok()?;
    file.to_str()?.strip_prefix("anon_inode:kvm-vcpu:")?.parse().ok()
}

/// Value of QEMU's `-name`: `-name guest=web1,debug-threads=on` or `-name web1,…`.
fn qemu_name(dir: &Path) -> Option<String> {
    let line = fs::read(dir.join("cmdline")).ok()?;
    let args: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    let at = args.iter().position(|a| *a == b"-name" || *a == b"--name")?;
    let options = options(&String::from_utf8_lossy(args.get(at + 1)?));
    let guest = options.iter().find_map(|p| p.strip_prefix("guest="));
    let name = guest.or_else(|| options.iter().map(String::as_str).find(|p| !p.contains('=')))?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// QEMU's options in one argument, which commas part; `,,` is a comma within one.
fn options(value: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut rest = value.chars().peekable();
    while let Some(c) = rest.next() {
        if c == ',' && rest.next_if_eq(&',').is_none() {
            out.push(String::new());
        } else {
            out.last_mut().expect("it begins with one").push(c);
        }
    }
    out
}

/// pCPUs a thread may use, by its status.
#[must_use]
pub fn allowed(roots: &Roots, pid: i32, tid: i32) -> Option<PcpuSet> {
    listed(roots, pid, tid, "Cpus_allowed_list:")
}

/// Nodes where a thread may have memory, by its status; a list of nodes is written as one of pCPUs.
pub(crate) fn allowed_memory(roots: &Roots, pid: i32, tid: i32) -> Option<PcpuSet> {
    listed(roots, pid, tid, "Mems_allowed_list:")
}

fn listed(roots: &Roots, pid: i32, tid: i32, key: &str) -> Option<PcpuSet> {
    let status = kept::text(&folder(roots, pid).join(format!("task/{tid}/status")))?;
    status.lines().find_map(|l| l.strip_prefix(key))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;
    use std::os::unix::fs::symlink;

    #[test]
    fn libvirt_proxmox_and_plain_layouts_are_found() {
        let t = MadeUp::new("layouts");
        let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope";
        t.process(
            10,
            "/usr/bin/qemu-system-x86_64",
            b"qemu\0-name\0guest=web,debug-threads=on\0",
            &format!("{scope}/libvirt/emulator"),
            &[(10, "qemu-system-x86"), (12, "CPU 1/KVM"), (11, "CPU 0/KVM"), (13, "CPU 0/KVM")],
        );
        t.process(
            20,
            "/usr/bin/qemu-system-x86_64",
            b"kvm\0-id\x00100\0",
            "/qemu.slice/100.scope",
            &[(20, "kvm"), (21, "CPU 0/TCG")],
        );
        t.process(30, "/usr/bin/bash", b"bash\0", "/", &[(30, "bash")]);
        let found = Finder::default().scan(&t.roots(), Which::All);
        let seen: Vec<_> = found
            .iter()
            .map(|v| (v.pid, v.name.as_str(), v.cgroup.as_str(), v.vcpus(), v.started))
            .collect();
        assert_eq!(
            seen,
            [(10, "web", scope, 2, 777), (20, "100", "/qemu.slice/100.scope", 1, 777)]
        );
        assert_eq!(
            found[0].threads.iter().map(|t| (t.tid, t.vcpu)).collect::<Vec<_>>(),
            [(11, Some(0)), (12, Some(1)), (10, None), (13, None)]
        );
        let emulated = |vm: &FoundVm| vm.threads.iter().map(Thread::emulated).collect::<Vec<_>>();
        assert_eq!((emulated(&found[0]), emulated(&found[1])), (vec![false; 4], vec![true, false]));
    }

    #[test]
    fn names_are_as_qemu_reads_them_and_cannot_break_a_line() {
        let t = MadeUp::new("names");
        let names = [
            (&b"guest=db,,1,debug-threads=on"[..], "db,1"),
            (b"db,,,,x,process=y", "db,,x"),
            (b"debug-threads=on,guest=a=b", "a=b"),
            (b"a\n[ 1.0] VM b\x1b[2J", "a\\n[ 1.0] VM b\\u{1b}[2J"),
        ];
        for (pid, (value, _)) in (10..).step_by(10).zip(names) {
            let args = [&b"qemu\0-name\0"[..], value, b"\0"].concat();
            t.process(pid, "/usr/bin/qemu-kvm", &args, "/a", &[(pid, "a\rb")]);
        }
        let found = Finder::default().scan(&t.roots(), Which::All);
        assert_eq!(found.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), names.map(|n| n.1));
        assert_eq!(found[0].threads[0].comm, "a\\rb");
    }

    #[test]
    fn a_vcpu_without_a_name_is_known_by_what_it_runs() {
        let t = MadeUp::new("ioctl");
        t.process(
            40,
            "/usr/libexec/qemu-kvm",
            b"qemu-kvm\0",
            "/plain (deleted)",
            &[(40, "qemu-kvm"), (41, "qemu-kvm")],
        );
        t.put("proc/40/task/41/syscall", b"16 0xd 0xae80 0x0 0x0 0x0 0x0 0x7f 0x7f\n");
        fs::create_dir_all(t.path("proc/40/fd")).unwrap();
        symlink("anon_inode:kvm-vcpu:3", t.path("proc/40/fd/13")).unwrap();
        let mut finder = Finder::default();
        let vm = finder.look(&t.roots(), Which::All, 40).unwrap();
        assert_eq!((vm.name.as_str(), vm.cgroup.as_str()), ("pid-40", "/plain"));
        let vcpu = Thread { tid: 41, pid: 40, vcpu: Some(3), comm: "qemu-kvm".into() };
        assert_eq!(vm.threads[0], vcpu);
        // It computes, and is the same vCPU as long as the process is the same.
        t.put("proc/40/task/41/syscall", b"running\n");
        assert_eq!(finder.look(&t.roots(), Which::All, 40).unwrap().threads[0], vcpu);
        t.stat_says(40, " 777 ", " 778 ");
        assert_eq!(finder.look(&t.roots(), Which::All, 40).unwrap().vcpus(), 0);
    }

    #[test]
    fn a_process_that_becomes_a_hypervisor_by_exec_is_found_within_a_few_scans() {
        let t = MadeUp::new("exec");
        t.process(50, "/usr/bin/bash", b"bash\0", "/", &[(50, "bash")]);
        let mut finder = Finder::default();
        assert_eq!(finder.scan(&t.roots(), Which::All), []);
        fs::remove_file(t.path("proc/50/exe")).unwrap();
        symlink("/usr/bin/qemu-system-x86_64", t.path("proc/50/exe")).unwrap();
        let found: Vec<usize> =
            (0..2 * LOOK_AGAIN).map(|_| finder.scan(&t.roots(), Which::All).len()).collect();
        let first = found.iter().position(|n| *n == 1).expect("found") as u32;
        assert!(first < LOOK_AGAIN && found[first as usize..].iter().all(|n| *n == 1), "{found:?}");
    }

    #[test]
    fn kernel_threads_that_work_for_a_vm_are_its_helpers_and_who_only_calls_himself_so_is_not() {
        let t = MadeUp::new("vhost");
        t.vm(60, "web", "/web", 1);
        t.vm(70, "db", "/db", 1);
        t.kernel_thread(61, "vhost-60"); // asked for by the main thread
        t.kernel_thread(62, "vhost-71"); // and by a vCPU of the other VM
        t.kernel_thread(63, "kvm-pit/60");
        t.kernel_thread(64, "vhost-99"); // of no known process
        t.process(65, "/usr/bin/evil", b"evil\0", "/", &[(65, "vhost-60")]);
        t.put("proc/65/comm", b"vhost-60\n");
        let mut finder = Finder::default();
        for round in 0..2 * LOOK_AGAIN {
            let helpers: Vec<Vec<(i32, i32)>> = finder
                .scan(&t.roots(), Which::All)
                .iter()
                .map(|vm| {
                    vm.threads.iter().filter(|t| t.pid != vm.pid).map(|t| (t.tid, t.pid)).collect()
                })
                .collect();
            assert_eq!(helpers, [vec![(61, 61), (63, 63)], vec![(62, 62)]], "round {round}");
        }
        assert_eq!(
            finder.look(&t.roots(), Which::All, 60).unwrap().threads.last().unwrap().comm,
            "kvm-pit/60"
        );
        fs::remove_dir_all(t.path("proc/61")).unwrap();
        assert_eq!(
            finder.scan(&t.roots(), Which::All)[0].threads.iter().filter(|t| t.pid != 60).count(),
            1
        );
    }
}
