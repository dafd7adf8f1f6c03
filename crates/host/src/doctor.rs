//! Checks whether this kernel can run the scheduler, with a remedy for each problem. It changes
//! nothing.
#![allow(unsafe_code)]

use std::{fs, path::Path};

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// Whether it is as needed.
    pub ok: bool,
    /// What was seen.
    pub seen: String,
    /// What to do; empty when all is well.
    pub next: &'static str,
}

/// What the scheduler calls and cannot do without; of several names in one row, any will do: they
/// changed in 6.13.
const KFUNCS: [&[&str]; 9] = [
    &["scx_bpf_create_dsq"],
    &["scx_bpf_dsq_insert", "scx_bpf_dispatch"],
    &["scx_bpf_dsq_insert_vtime", "scx_bpf_dispatch_vtime"],
    &["scx_bpf_dsq_move", "scx_bpf_dispatch_from_dsq"],
    &["scx_bpf_dsq_nr_queued"],
    &["scx_bpf_kick_cpu"],
    &["scx_bpf_get_online_cpumask"],
    &["bpf_cpumask_any_and_distribute"],
    &["bpf_iter_scx_dsq_new"],
];

fn finding(what: &'static str, ok: bool, seen: impl Into<String>, next: &'static str) -> Finding {
    Finding { what, ok, seen: seen.into(), next: if ok { "" } else { next } }
}

/// Looks at everything; the host can run the scheduler if all findings are ok.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let mut out = vec![privileges(), release(), sched_ext(), other_scheduler()];
    out.extend(btf());
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
    out.push(finding(
        "cgroup v2",
        controllers.as_deref().is_ok_and(|c| c.split_whitespace().any(|w| w == "cpu")),
        controllers.map_or_else(|e| e.to_string(), |c| format!("controllers: {}", c.trim())),
        "boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 cgroup2 /sys/fs/cgroup",
    ));
    let bpffs = fs::metadata("/sys/fs/bpf").is_ok() && mounted("/sys/fs/bpf", "bpf");
    out.push(finding(
        "bpffs",
        bpffs,
        if bpffs { "on /sys/fs/bpf" } else { "not mounted" },
        "mount -t bpf bpf /sys/fs/bpf",
    ));
    out.push(qemu());
    out
}

fn privileges() -> Finding {
    // SAFETY: no arguments, cannot fail.
    let uid = unsafe { libc::geteuid() };
    finding(
        "privileges",
        uid == 0,
        format!("user id {uid}"),
        "run it as root (it needs CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN)",
    )
}

fn release() -> Finding {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = text.trim().split(['.', '-']).map(|p| p.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    finding("kernel", version >= (6, 12), text.trim(), "boot a kernel of 6.12 or later")
}

fn sched_ext() -> Finding {
    let state = fs::read_to_string("/sys/kernel/sched_ext/state");
    let next = "boot a kernel with CONFIG_SCHED_CLASS_EXT=y (Debian: a 7.x kernel from backports; \
        the stock 6.12 has it off)";
    finding(
        "sched_ext",
        state.is_ok(),
        state.map_or_else(|_| "no /sys/kernel/sched_ext".to_owned(), |s| s.trim().to_owned()),
        next,
    )
}

fn other_scheduler() -> Finding {
    let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    let name = name.trim();
    let free = name.is_empty();
    finding(
        "scheduler loaded",
        free,
        if name.is_empty() { "none" } else { name },
        "end its process first: tandem run of another shell, or systemctl stop scx",
    )
}

/// The kernel's BTF offers every call that the scheduler makes.
fn btf() -> Vec<Finding> {
    let Ok(bytes) = fs::read("/sys/kernel/btf/vmlinux") else {
        return vec![finding(
            "BTF",
            false,
            "no /sys/kernel/btf/vmlinux",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
        )];
    };
    let (ok, seen) = calls(&bytes);
    vec![finding(
        "BTF of the kernel's calls",
        ok,
        seen,
        "boot another kernel: sched_ext is off in this one, or its BTF lacks the tags of these \
            calls (Debian's 7.2.12 lacks them, 7.2.13 has them)",
    )]
}

/// Whether all calls are there and tagged, in words.
fn calls(section: &[u8]) -> (bool, String) {
    let mut lacking = vec![];
    for names in KFUNCS {
        let verdicts: Result<Vec<btf::Verdict>, btf::Damaged> =
            names.iter().map(|n| btf::kfunc_verdict(section, n)).collect();
        match verdicts {
            Err(e) => return (false, e.to_string()),
            Ok(all) if all.contains(&btf::Verdict::Callable) => {}
            Ok(all) if all.contains(&btf::Verdict::Untagged) => {
                lacking.push(format!("{} without its tag", names[0]))
            }
            Ok(_) => lacking.push(format!("no {}", names[0])),
        }
    }
    if lacking.is_empty() {
        (true, format!("{} kB, every call is there", section.len() >> 10))
    } else {
        (false, lacking.join(", "))
    }
}

fn mounted(path: &str, kind: &str) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|l| {
        l.split_whitespace().nth(1) == Some(path) && l.split_whitespace().nth(2) == Some(kind)
    })
}

fn qemu() -> Finding {
    let kvm = Path::new("/dev/kvm").exists();
    finding(
        "KVM",
        true,
        if kvm {
            "/dev/kvm is there"
        } else {
            "no /dev/kvm: VMs run by TCG are scheduled all the same"
        },
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_whose_btf_cannot_be_read_is_not_called_fit() {
        let (ok, seen) = calls(b"junk");
        assert!(!ok && seen.contains("BTF section: cannot be read"), "{seen}");
    }
}
