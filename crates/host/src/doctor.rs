//! Checks whether this kernel can run the scheduler, with a remedy for each problem: the judge is a
//! load. It changes nothing that stays.
#![allow(unsafe_code)]

use std::{fs, path::Path};

use crate::{
    live::{self, Refused},
    loaded,
};

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
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

/// Kernels that are known to be bad, by how their release begins and what it contains.
const KNOWN: [(&str, &str, &str); 3] = [
    ("7.2.12", "+deb", "its BTF lacks the tags of sched_ext's calls; 7.2.13 has them"),
    (
        "7.1.",
        ".fc44",
        "built with dwarves 1.30, which leaves out the tags of sched_ext's calls \
            (Fedora bug 2514913)",
    ),
    ("7.", "-cachyos", "some are built with an old pahole, see CachyOS/copr-linux-cachyos#107"),
];

/// Kernels on which the scheduler loads, and that are known to be bad all the same, by how their
/// release begins.
const KNOWN_WHEN_LOADED: [(&str, &str); 1] = [(
    "7.1.",
    "hosts with 7.1 have frozen under sched_ext schedulers, most of them with AMD GPUs; the stall \
        that only a reset ends is reported as fixed in 7.2 (sched-ext/scx#3687)",
)];

/// Looks at everything, and loads the scheduler without attaching it: whatever its parts look like,
/// a kernel is fit if that works. The host can run the scheduler if all findings are ok.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let mut out = before_load();
    out.iter_mut().filter(|f| f.what == LOADED).for_each(runs_here);
    out.push(btf());
    let possible = out[..PRIVILEGES_TO_SCHED_EXT].iter().all(|f| f.ok);
    let load = judged(&mut out, possible.then(trial), &release_text());
    out.push(load);
    out.push(qemu());
    out
}

/// What a load needs and does not tell by itself; looks are quick.
#[must_use]
pub fn before_load() -> Vec<Finding> {
    let mut out = vec![privileges(), release(), sched_ext(), other_scheduler()];
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
    out
}

/// Without the first findings nothing can be loaded.
const PRIVILEGES_TO_SCHED_EXT: usize = 3;

fn trial() -> Result<u64, Refused> {
    let topology = topology::from_sysfs(Path::new("/sys"))
        .map_err(|e| Refused { kernel: false, seen: e.to_string() })?;
    live::trial(&topology)
}

/// The finding of a load: instructions that were verified, or the words of kernel and libbpf;
/// `None` if it was not tried. One that worked overrules what the BTF looks like.
fn judged(others: &mut [Finding], load: Option<Result<u64, Refused>>, release: &str) -> Finding {
    let known = KNOWN.iter().find(|k| release.starts_with(k.0) && release.contains(k.1));
    match load {
        None => finding("load", false, "not tried", "mend what is named above first"),
        Some(Ok(instructions)) => {
            for f in others.iter_mut().filter(|f| f.what == BTF) {
                (f.ok, f.next) = (true, "");
            }
            let known = KNOWN_WHEN_LOADED.iter().find(|k| release.starts_with(k.0));
            let known = known.map_or(String::new(), |k| format!("; this kernel is known: {}", k.1));
            let works = format!("works, not attached: {instructions} instructions verified");
            finding("load", true, works + &known, "")
        }
        Some(Err(Refused { kernel: false, seen })) => {
            finding("load", false, seen, "mend that; the kernel was not asked")
        }
        Some(Err(Refused { seen, .. })) => {
            let known = known.map_or(String::new(), |k| format!("; this kernel is known: {}", k.2));
            let next = "boot another kernel (docs/operating.md lists those of distributions); if \
                none of its findings says why, report this with 'tandem run --verbose'";
            finding("load", false, seen + &known, next)
        }
    }
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

fn release_text() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn release() -> Finding {
    let text = release_text();
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

const LOADED: &str = "scheduler loaded";

/// A host that this scheduler runs is fit for it, and nothing has to end first.
fn runs_here(f: &mut Finding) {
    if loaded::is_ours(&f.seen) {
        (f.ok, f.next) = (true, "");
        f.seen += ": it runs here";
    }
}

fn other_scheduler() -> Finding {
    let name = loaded::name();
    let free = name.is_empty();
    finding(
        LOADED,
        free,
        if free { "none".to_owned() } else { name },
        "end its process first: tandem run of another shell, or systemctl stop scx",
    )
}

const BTF: &str = "BTF of the kernel's calls";

/// The kernel's BTF offers every call that the scheduler makes.
fn btf() -> Finding {
    let Ok(bytes) = fs::read("/sys/kernel/btf/vmlinux") else {
        let next = "boot a kernel with CONFIG_DEBUG_INFO_BTF=y";
        return finding(BTF, false, "no /sys/kernel/btf/vmlinux", next);
    };
    let (ok, seen) = calls(&bytes);
    let next = "boot another kernel: sched_ext is off in this one, or its BTF lacks the tags of \
        these calls, for it was built with an old pahole (dwarves)";
    finding(BTF, ok, seen, next)
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
    fn a_load_that_works_overrules_the_btf_and_one_that_fails_names_a_known_kernel() {
        let mut others = vec![finding(BTF, false, "scx_bpf_kick_cpu without its tag", "boot")];
        let no = |kernel| Some(Err(Refused { kernel, seen: "no".into() }));
        let failed = judged(&mut others, no(true), "7.2.12+deb13-cloud-amd64");
        assert!(!failed.ok && failed.seen.starts_with("no; this kernel is known: its BTF lacks"));
        let unknown = judged(&mut others, no(true), "7.2.13+deb14-cloud-amd64");
        assert!(unknown.seen == "no" && unknown.next.starts_with("boot another kernel"));
        let host = judged(&mut others, no(false), "7.2.12+deb13-cloud-amd64");
        assert!(host.seen == "no" && host.next.starts_with("mend that"));
        assert!(!judged(&mut others, None, "7.2.13").ok && !others[0].ok);
        assert!(judged(&mut others, Some(Ok(42)), "7.2.12+deb13-cloud-amd64").ok && others[0].ok);
        let frozen = judged(&mut others, Some(Ok(42)), "7.1.9-1-default");
        assert!(frozen.ok && frozen.seen.contains("known: hosts with 7.1"), "{}", frozen.seen);
        assert!(!judged(&mut others, Some(Ok(42)), "7.2.13").seen.contains("known"));
    }

    #[test]
    fn a_host_that_runs_the_scheduler_is_fit_and_one_that_runs_another_is_not() {
        let after = |name: &str| {
            let mut f = finding(LOADED, false, name, "end its process first");
            runs_here(&mut f);
            (f.ok, f.next.is_empty())
        };
        assert_eq!([after("tandem"), after("scx_lavd")], [(true, true), (false, false)]);
    }

    #[test]
    fn a_kernel_whose_btf_cannot_be_read_is_not_called_fit() {
        let (ok, seen) = calls(b"junk");
        assert!(!ok && seen.contains("BTF section: cannot be read"), "{seen}");
    }
}
