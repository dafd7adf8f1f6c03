//! Chooses the lab's kernels: the newest that really loads sched_ext schedulers and has KVM
//! modules, an older one of another series, and Debian 12's with CFS; whether a kernel loads
//! sched_ext schedulers is judged by its BTF, never by its version or configuration.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use btf::Verdict;
use serde::{Deserialize, Serialize};

use super::source::{Source, sources};
use super::{draft_for, settle};
use crate::error::{LabError, Result};
use crate::{bzimage, tool};

/// The packages that hold a kernel image, in order of preference. The cloud flavour has NVMe, ext4,
/// virtio-console and the serial console built in, so it boots without an initramfs. An `unsigned`
/// image appears days before its signed sibling and is tried only when no signed one will do.
const IMAGE_PACKAGES: [&str; 2] = ["linux-binary-", "linux-binary-unsigned-"];
const FLAVOUR: &str = "-cloud-amd64";

/// The function whose tag stands for all sched_ext functions.
const PROBE: &str = "scx_bpf_create_dsq";

/// What a role asks of a kernel.
struct Role<'a> {
    name: &'static str,
    /// Versions the role may take, by how they start; empty for all.
    series: &'a str,
    /// Take the version that is `series` and no longer one.
    exact: bool,
    /// KVM inside the lab needs the modules package of the very same version.
    needs_modules: bool,
    /// Prefixes of the packages that hold the image, in order of preference.
    packages: &'a [&'a str],
    /// The image's package holds modules and configuration as well, as before 6.17.
    whole: bool,
    /// Suites of Debian's archive that have it.
    suites: &'a [&'a str],
    /// Whether the kernel has to load sched_ext schedulers.
    sched_ext: bool,
}

/// What roles have in common: sid has the newest first; trixie-backports keeps many versions for
/// months.
const SCHED_EXT: Role<'static> = Role {
    name: "",
    series: "",
    exact: false,
    needs_modules: false,
    packages: &IMAGE_PACKAGES,
    whole: false,
    suites: &["sid", "trixie-backports"],
    sched_ext: true,
};

/// Tried newest version first within each role. 7.2.12+deb13 is the example of a kernel that is
/// passed over: its sched_ext functions lack their BTF tags. The older series is there because a
/// scheduler must work on more than one kernel; its modules have left the archive, so VMs in it run
/// without KVM. Debian 12's kernel has CFS with bandwidth control, and no sched_ext.
const ROLES: [Role<'static>; 3] = [
    Role { name: "newest", needs_modules: true, ..SCHED_EXT },
    Role { name: "older", series: "7.0.", ..SCHED_EXT },
    Role {
        name: "cfs",
        series: "6.1.",
        needs_modules: true,
        packages: &["linux-image-"],
        whole: true,
        suites: &["bookworm"],
        sched_ext: false,
        ..SCHED_EXT
    },
];

/// The modules that make a KVM host of the guest, in loading order. QEMU's emulator offers AMD's
/// SVM, not Intel's VMX.
pub(crate) const KVM_MODULES: [&str; 3] = ["irqbypass", "kvm", "kvm-amd"];

/// Which kernel a boot wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KernelId {
    /// The newest kernel that loads sched_ext schedulers and has KVM modules.
    Newest,
    /// The newest kernel of the older series; VMs in it run without KVM.
    Older,
    /// Debian 12's 6.1, whose fair class is CFS. It boots by the exact clock alone: its driver of
    /// the other clocks' console is a module.
    Cfs,
    /// Exactly this version, such as `7.2.13+deb14`.
    Exact(String),
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KernelId::Newest => "newest",
            KernelId::Older => "older",
            KernelId::Cfs => "cfs",
            KernelId::Exact(version) => version,
        })
    }
}

impl FromStr for KernelId {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "newest" => Ok(KernelId::Newest),
            "older" => Ok(KernelId::Older),
            "cfs" => Ok(KernelId::Cfs),
            v if v.starts_with(|c: char| c.is_ascii_digit()) => Ok(KernelId::Exact(v.to_owned())),
            _ => Err(LabError::new(
                "kernel name",
                "be understood",
                format!(
                    "\"{text}\", allowed newest, older, cfs, or a version such as 7.2.13+deb14"
                ),
                "pass one of these",
            )),
        }
    }
}

/// A kernel in the cache.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kernel {
    /// Debian's version, such as `7.2.13+deb14`; `uname -r` adds `-cloud-amd64`.
    pub version: String,
    /// Where it came from: the archive or a given folder.
    pub origin: String,
    /// What its BTF says about sched_ext.
    pub verdict: Verdict,
    /// Whether the KVM modules of the same version are there.
    pub has_kvm: bool,
    /// Whether Debian's configuration file of the same version is there; if not, the guest makes a
    /// minimal one.
    pub has_config: bool,
    #[serde(skip)]
    folder: PathBuf,
}

impl Kernel {
    /// The compressed image that QEMU boots.
    pub fn vmlinuz(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// What `uname -r` says in the guest.
    pub fn release(&self) -> String {
        format!("{}{FLAVOUR}", self.version)
    }

    /// The uncompressed KVM modules in loading order; empty without KVM.
    pub fn modules(&self) -> Vec<PathBuf> {
        let count = if self.has_kvm { KVM_MODULES.len() } else { 0 };
        KVM_MODULES[..count].iter().map(|m| self.folder.join(format!("{m}.ko"))).collect()
    }

    /// Debian's configuration file of this kernel.
    pub fn config(&self) -> Option<PathBuf> {
        self.has_config.then(|| self.folder.join("config"))
    }

    fn load(folder: &Path) -> Option<Self> {
        let text = std::fs::read(folder.join("kernel.json")).ok()?;
        let mut kernel: Kernel = serde_json::from_slice(&text).ok()?;
        kernel.folder = folder.to_path_buf();
        Some(kernel)
    }
}

/// Finds the kernel of a role, first in the cache, then in the archive, then among given files.
pub(super) fn find(cache: &Path, id: &KernelId) -> Result<Kernel> {
    let kernels = cache.join("kernels");
    if let Some(kernel) = remembered(&kernels, id) {
        return Ok(kernel);
    }
    let exact;
    let role = match id {
        KernelId::Newest => &ROLES[0],
        KernelId::Older => &ROLES[1],
        KernelId::Cfs => &ROLES[2],
        KernelId::Exact(version) => {
            exact = Role { series: version, exact: true, ..SCHED_EXT };
            &exact
        }
    };
    let mut refused = Vec::new();
    for source in sources(cache, role.suites, &mut refused) {
        if let Some(kernel) = try_source(&kernels, source.as_ref(), role, &mut refused)? {
            if !role.name.is_empty() {
                tool::write(&kernels.join(role.name), kernel.version.as_bytes())?;
            }
            return Ok(kernel);
        }
    }
    Err(LabError::new(
        format!("kernel \"{id}\""),
        "be found",
        if refused.is_empty() { "no candidate".into() } else { refused.join(", ") },
        "put linux-binary-*-cloud-amd64 and linux-modules-*-cloud-amd64 .deb files into a folder \
            and set \
         TANDEM_LAB_KERNELS to it",
    ))
}

pub(super) fn forget_choices(cache: &Path) -> Result<()> {
    for role in &ROLES {
        std::fs::remove_file(cache.join("kernels").join(role.name)).ok();
    }
    Ok(())
}

fn remembered(kernels: &Path, id: &KernelId) -> Option<Kernel> {
    let version = match id {
        KernelId::Exact(version) => version.clone(),
        role => std::fs::read_to_string(kernels.join(role.to_string())).ok()?,
    };
    let wanted = |k: &Kernel| *id == KernelId::Cfs || k.verdict == Verdict::Callable;
    Kernel::load(&kernels.join(version)).filter(wanted)
}

/// Sort key of a Debian kernel version: every number in it, in order.
pub(super) fn version_key(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

/// The (image package, version) pairs to try, best first.
fn candidates(names: &[String], role: &Role) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for prefix in role.packages {
        let version = |n: &String| Some(n.strip_prefix(prefix)?.strip_suffix(FLAVOUR)?.to_owned());
        let mut versions: Vec<String> = names
            .iter()
            .filter_map(version)
            .filter(|v| v.starts_with(|c: char| c.is_ascii_digit()) && v.starts_with(role.series))
            .filter(|v| !role.exact || v == role.series)
            .filter(|v| {
                !role.needs_modules
                    || role.whole
                    || names.contains(&format!("linux-modules-{v}{FLAVOUR}"))
            })
            .collect();
        versions.sort_by_key(|v| std::cmp::Reverse(version_key(v)));
        out.extend(versions.into_iter().map(|v| (format!("{prefix}{v}{FLAVOUR}"), v)));
    }
    out
}

fn try_source(
    kernels: &Path,
    source: &dyn Source,
    role: &Role,
    refused: &mut Vec<String>,
) -> Result<Option<Kernel>> {
    let names = source.names().unwrap_or_default();
    for (package, version) in candidates(&names, role) {
        let place = kernels.join(&version);
        let kernel = match Kernel::load(&place) {
            Some(known) => known,
            None => match take(&place, source, role, &names, &package, &version) {
                Ok(kernel) => kernel,
                Err(e) => {
                    tool::progress(&format!("kernel {version}: passed over, {e}"));
                    refused.push(format!("{version}: {}", e.seen));
                    continue;
                }
            },
        };
        let loads = !role.sched_ext || kernel.verdict == Verdict::Callable;
        if loads && (kernel.has_kvm || !role.needs_modules) {
            return Ok(Some(kernel));
        }
        tool::progress(&format!(
            "kernel {version}: passed over, {} is {:?}",
            PROBE, kernel.verdict
        ));
        refused.push(format!("{version} has {} {:?}", PROBE, kernel.verdict));
    }
    Ok(None)
}

/// Fetches one kernel, judges it and keeps it; of a kernel that is no use only the verdict is kept.
fn take(
    place: &Path,
    source: &dyn Source,
    role: &Role,
    names: &[String],
    package: &str,
    version: &str,
) -> Result<Kernel> {
    let draft = draft_for(place)?;
    let unpacked = draft.join("unpacked");
    let size = fetch_into(source, package, &unpacked)?;
    tool::progress(&format!(
        "kernel {version}: {} from {}, reading its BTF",
        tool::megabytes(size),
        source.label()
    ));
    let image = find_file(&unpacked, |n| n.starts_with("vmlinuz"))?;
    let vmlinux = bzimage::vmlinux(&tool::read(&image)?)?;
    let section = bzimage::elf_section(&vmlinux, ".BTF")?;
    let next = "name another kernel with --kernel";
    let verdict = btf::kfunc_verdict(section, PROBE).map_err(|e| {
        LabError::new(format!("kernel {version}"), "be judged", e.to_string(), next)
    })?;
    let mut kernel = Kernel {
        version: version.to_owned(),
        origin: source.label(),
        verdict,
        has_kvm: false,
        has_config: false,
        folder: draft.clone(),
    };
    if role.whole {
        tool::copy(&image, &kernel.vmlinuz())?;
        keep_modules(&draft, &unpacked)?;
        kernel.has_kvm = true;
        tool::copy(&find_file(&unpacked, |n| n.starts_with("config-"))?, &draft.join("config"))?;
        kernel.has_config = true;
    } else if verdict == Verdict::Callable {
        tool::copy(&image, &kernel.vmlinuz())?;
        kernel.has_kvm = take_modules(&draft, source, names, version)?;
        kernel.has_config = take_config(&draft, source, names, version)?;
    }
    tool::remove_dir(&unpacked)?;
    let json = serde_json::to_vec_pretty(&kernel).expect("a plain record serialises");
    tool::write(&draft.join("kernel.json"), &json)?;
    settle(&draft, place)?;
    kernel.folder = place.to_path_buf();
    Ok(kernel)
}

fn take_modules(
    draft: &Path,
    source: &dyn Source,
    names: &[String],
    version: &str,
) -> Result<bool> {
    let package = format!("linux-modules-{version}{FLAVOUR}");
    if !names.contains(&package) {
        tool::progress(&format!("kernel {version}: no {package} there, so no KVM inside"));
        return Ok(false);
    }
    let unpacked = draft.join("unpacked-modules");
    let size = fetch_into(source, &package, &unpacked)?;
    tool::progress(&format!("kernel {version}: {} of modules for KVM", tool::megabytes(size)));
    keep_modules(draft, &unpacked)?;
    tool::remove_dir(&unpacked)?;
    Ok(true)
}

/// Keeps KVM's modules of an unpacked package, uncompressed.
fn keep_modules(draft: &Path, unpacked: &Path) -> Result<()> {
    for module in KVM_MODULES {
        let file =
            find_file(unpacked, |n| n == format!("{module}.ko.xz") || n == format!("{module}.ko"))?;
        let packed = tool::read(&file)?;
        let is_packed = file.extension().is_some_and(|e| e == "xz");
        let plain = if is_packed { bzimage::through("xz", &packed)? } else { packed };
        tool::write(&draft.join(format!("{module}.ko")), &plain)?;
    }
    Ok(())
}

fn take_config(draft: &Path, source: &dyn Source, names: &[String], version: &str) -> Result<bool> {
    let package = format!("linux-base-{version}{FLAVOUR}");
    if !names.contains(&package) {
        return Ok(false);
    }
    let unpacked = draft.join("unpacked-base");
    fetch_into(source, &package, &unpacked)?;
    let found = find_file(&unpacked, |n| n == "config" || n.starts_with("config-")).ok();
    if let Some(file) = &found {
        tool::copy(file, &draft.join("config"))?;
    }
    tool::remove_dir(&unpacked)?;
    Ok(found.is_some())
}

fn fetch_into(source: &dyn Source, package: &str, folder: &Path) -> Result<u64> {
    let deb = source.fetch(package)?;
    let size = std::fs::metadata(&deb).map_or(0, |m| m.len());
    tool::unpack_deb(&deb, folder)?;
    Ok(size)
}

fn find_file(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let files = tool::files_below(folder)?;
    let named = |f: &PathBuf| f.file_name().and_then(|n| n.to_str()).is_some_and(&wanted);
    files.into_iter().find(named).ok_or_else(|| {
        LabError::new(
            folder.display().to_string(),
            "find the file in the unpacked package",
            "no such file",
            "the package's layout may have changed; adapt lab/src/archive/kernel.rs",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|n| format!("linux-{n}-cloud-amd64")).collect()
    }

    #[test]
    fn candidates_come_newest_first_by_number_and_unsigned_last() {
        let all = names(&[
            "binary-7.2.9+deb13",
            "binary-7.2.13+deb14",
            "binary-unsigned-7.3.4+deb13",
            "binary-7.0.13+deb13",
            "modules-7.2.9+deb13",
            "modules-7.2.13+deb14",
            "modules-7.3.4+deb13",
        ]);
        let versions: Vec<String> = candidates(&all, &ROLES[0]).into_iter().map(|c| c.1).collect();
        assert_eq!(versions, ["7.2.13+deb14", "7.2.9+deb13", "7.3.4+deb13"]);
    }

    #[test]
    fn the_older_role_stays_in_its_series_and_needs_no_modules() {
        let all = names(&[
            "binary-7.0.9+deb13",
            "binary-7.0.13+deb13",
            "binary-7.2.13+deb14",
            "binary-6.19.8+deb13",
        ]);
        let versions: Vec<String> = candidates(&all, &ROLES[1]).into_iter().map(|c| c.1).collect();
        assert_eq!(versions, ["7.0.13+deb13", "7.0.9+deb13"]);
    }

    #[test]
    fn the_role_of_cfs_takes_debian_12s_signed_images_that_hold_their_modules() {
        let all = names(&[
            "image-6.1.0-9",
            "image-6.1.0-56",
            "image-6.12.9+deb12",
            "binary-7.2.13+deb14",
        ]);
        let versions: Vec<String> = candidates(&all, &ROLES[2]).into_iter().map(|c| c.1).collect();
        assert_eq!(versions, ["6.1.0-56", "6.1.0-9"]);
    }

    #[test]
    fn kernel_names_parse_or_are_refused_with_what_is_allowed() {
        assert_eq!("older".parse::<KernelId>().unwrap(), KernelId::Older);
        assert_eq!("7.2.13+deb14".parse::<KernelId>().unwrap().to_string(), "7.2.13+deb14");
        let error = "latest".parse::<KernelId>().unwrap_err().to_string();
        assert!(error.contains("allowed newest, older"), "{error}");
    }
}
