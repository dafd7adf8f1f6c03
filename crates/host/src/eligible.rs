//! Decides which processes that look like hypervisors are followed as VMs, and to which of them
//! settings by name apply; `discover` finds them. What it refuses runs as a host task.
//!
//! A process chooses its program, its arguments and the names of its threads. It chooses neither
//! its cgroup nor its user, and cannot have a virtual machine of KVM unless it runs one.

use crate::{
    found::{Roots, scope_name},
    process::{Process, has_kvm},
    trust::{ALLOWED, Stranger, Trust},
};
use settings::{Called, LiveSettings};
use std::collections::{BTreeMap, BTreeSet};

/// Which processes that look like hypervisors count.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// All: for views, which give them nothing.
    All,
    /// Those that are trusted, and what the settings file makes a VM.
    Trusted(&'a Trust, &'a LiveSettings),
}

/// A process that looks like a hypervisor.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) pid: i32,
    /// Its start in clock ticks.
    pub(crate) started: u64,
    /// File name of its program.
    pub(crate) program: String,
    /// The name that its VM would have.
    pub(crate) name: String,
    /// Its own cgroup, below the cgroup root.
    pub(crate) own: String,
    /// Its VM's: that or one above.
    pub(crate) cgroup: String,
}

/// What is known of a process that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Its effective uid; `None` if it was not looked at.
    pub(crate) uid: Option<u32>,
    /// Whether settings by name apply.
    pub(crate) named: bool,
}

#[derive(Debug)]
struct Refused {
    text: String,
    /// How often it was looked at since.
    looks: u32,
}

/// Processes that looked like hypervisors so far.
#[derive(Debug, Default)]
pub(crate) struct Eligible {
    /// Start of those that have had a virtual machine of KVM: none loses it.
    kvm: BTreeMap<i32, u64>,
    refused: BTreeMap<i32, Refused>,
    /// Start of those that a VM has started.
    of_vms: BTreeMap<i32, u64>,
}

/// So often one that was refused is looked at with every scan: QEMU opens KVM after its start.
const NEW_LOOKS: u32 = 4;
/// So many that are refused are named at once: others may start as many as they like.
const NAMED_MAX: usize = 16;

impl Eligible {
    /// Whether a process is followed.
    pub(crate) fn judge(
        &mut self,
        roots: &Roots,
        which: Which<'_>,
        it: &Candidate,
    ) -> Option<Standing> {
        let Which::Trusted(trust, settings) = which else {
            return Some(Standing { uid: None, named: true });
        };
        let process = Process::of(roots, it.pid);
        let Some(text) = self.refusal(roots, (trust, settings), &process, it) else {
            self.refused.remove(&it.pid);
            let named = process.belongs_to(|uid| trust.trusts(uid)) || has_name(it);
            return Some(Standing { uid: process.uids.map(|uids| uids[1]), named });
        };
        let looks = self.refused.get(&it.pid).map_or(0, |refused| refused.looks);
        self.refused.insert(it.pid, Refused { text, looks: looks.saturating_add(1) });
        None
    }

    /// Why a process is not followed.
    fn refusal(
        &mut self,
        roots: &Roots,
        (trust, settings): (&Trust, &LiveSettings),
        process: &Process,
        it: &Candidate,
    ) -> Option<String> {
        if self.of_vms.get(&it.pid) == Some(&it.started) {
            return Some(started_by_a_vm(it));
        }
        if let Some(stranger) = trust.stranger(roots, &it.own) {
            return Some(untrusted(it, &stranger));
        }
        let by_file = Called { name: &it.name, named: false, cgroup: &it.cgroup };
        let counts = process.belongs_to(|uid| uid == 0)
            || self.has_kvm(roots, it)
            || settings.is_vm(by_file);
        (!counts).then(|| without_kvm(it, process))
    }

    /// A VM has started this process, which began then; `None`: that VM is gone.
    pub(crate) fn is_of_a_vm(&mut self, pid: i32, started: Option<u64>) {
        match started {
            Some(started) => self.of_vms.insert(pid, started),
            None => self.of_vms.remove(&pid),
        };
    }

    fn has_kvm(&mut self, roots: &Roots, it: &Candidate) -> bool {
        if self.kvm.get(&it.pid) == Some(&it.started) {
            return true;
        }
        let has = has_kvm(roots, it.pid);
        if has {
            self.kvm.insert(it.pid, it.started);
        }
        has
    }

    /// A process looks like no hypervisor, or has ended.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.kvm.remove(&pid);
        self.refused.remove(&pid);
    }

    /// Forgets all that are not among the processes that there are.
    pub(crate) fn retain(&mut self, pids: &BTreeSet<i32>) {
        self.kvm.retain(|pid, _| pids.contains(pid));
        self.refused.retain(|pid, _| pids.contains(pid));
        self.of_vms.retain(|pid, _| pids.contains(pid));
    }

    /// Whether a process was refused so recently that it may be on its way to be a VM.
    pub(crate) fn is_new(&self, pid: i32) -> bool {
        self.refused.get(&pid).is_some_and(|refused| refused.looks < NEW_LOOKS)
    }

    /// Whether a process looks like a hypervisor and is not followed.
    pub(crate) fn refuses(&self, pid: i32) -> bool {
        self.refused.contains_key(&pid)
    }

    /// A message for each process that is not followed, as far as they are named.
    pub(crate) fn refused(&self) -> BTreeSet<String> {
        let named = self.refused.values().take(NAMED_MAX).map(|refused| refused.text.clone());
        let more = (self.refused.len() > NAMED_MAX).then(|| {
            format!(
                "processes: cannot follow more than {NAMED_MAX} others as VMs: allowed {ALLOWED} \
                    as owner of their cgroups, and KVM; they run as host tasks; stop those that \
                    are named to see others"
            )
        });
        named.chain(more).collect()
    }
}

/// Whether the VM's cgroup has its name, which only a trusted user can have given it:
/// `machine-qemu\x2d3\x2dweb1.scope` of libvirt, which leaves out signs that host names lack,
/// `web1.service`, or `web1`.
fn has_name(it: &Candidate) -> bool {
    let last = it.cgroup.rsplit('/').next().unwrap_or_default();
    let own = scope_name(&it.cgroup)
        .unwrap_or_else(|| last.strip_suffix(".service").unwrap_or(last).to_owned());
    let kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let plain: String = it.name.chars().filter(kept).collect();
    !own.is_empty() && (own == it.name || own == plain)
}

/// What a message calls a process. It has chosen its program's name, and may have chosen its
/// cgroup's.
fn title(it: &Candidate) -> String {
    let shown = |text: &str| text.replace(char::is_control, "?");
    format!("process {} (pid {}) in cgroup '{}'", shown(&it.program), it.pid, shown(&it.own))
}

fn untrusted(it: &Candidate, stranger: &Stranger) -> String {
    format!(
        "{}: cannot follow it as a VM: seen {stranger}, allowed {ALLOWED}; it runs as a host \
            task; to follow it, {}",
        title(it),
        stranger.next()
    )
}

fn started_by_a_vm(it: &Candidate) -> String {
    format!(
        "{}: cannot follow it as a VM: seen a process that another VM has started, allowed one \
            that the host has; it is a helper of that VM; start it outside of the VM's process",
        title(it)
    )
}

fn without_kvm(it: &Candidate, process: &Process) -> String {
    let user = match process.uids {
        Some([0, 0]) if process.of_host => "root".to_owned(),
        Some([0, 0]) => "root in a container".to_owned(),
        Some([_, uid]) => format!("uid {uid}"),
        None => "no user".to_owned(),
    };
    format!(
        "{}: cannot follow it as a VM: seen no KVM among its open files, and {user}, allowed KVM, \
            or root outside of containers, or a [[vm]] entry with its cgroup; it runs as a host \
            task; to follow it, start it with -accel kvm, or write [[vm]] cgroup = '{}'",
        title(it),
        it.cgroup.replace(char::is_control, "?")
    )
}

#[cfg(test)]
mod tests;
