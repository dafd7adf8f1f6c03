//! Fetches a real Xen with a kernel for its Domain-0, out of Debian 13, for the lab's boots of it;
//! nothing is installed, and of the packages only what a boot needs is kept.
//!
//! Why Debian 13: its Xen 4.20 has Credit and Credit2 compiled in, and its 6.12 is the newest
//! kernel that can be Domain-0; later ones have `CONFIG_XEN_DOM0` off.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Apt;
use super::kernel::version_key;
use super::qemu::{LIBRARIES, LOADER, Qemu, make_merged_usr};
use super::{draft_for, settle};
use crate::error::{LabError, Result};
use crate::{bzimage, tool};

const SUITE: &str = "trixie";
/// Named one by one: all that the tools depend on would bring Python and systemd along. Libraries
/// that are not here are QEMU's as well.
const PACKAGES: [&str; 14] = [
    "xen-hypervisor-4.20-amd64",
    "xen-utils-4.20",
    "libxenmisc4.20",
    "libxenstore4",
    "libxencall1",
    "libxendevicemodel1",
    "libxenevtchn1",
    "libxenforeignmemory1",
    "libxengnttab1",
    "libxenhypfs1",
    "libxentoolcore1",
    "libxentoollog1",
    "libyajl2",
    "libxen-dev",
];
/// The kernel's package: this, a version and `-amd64`.
const KERNEL: &str = "linux-image-6.12.";
const FLAVOUR: &str = "-amd64";
/// What Domain-0 runs of the tools.
const TOOLS: [&str; 4] = ["xl", "xenstored", "xenconsoled", "xen-init-dom0"];
/// What the tools need of the kernel that is not built in, in loading order.
const MODULES: [&str; 5] = ["xen-privcmd", "xen-evtchn", "xen-gntdev", "xen-gntalloc", "xenfs"];
/// A library that is loaded where a thread is cancelled, which xl does.
const UNWINDER: &str = "libgcc_s.so.1";

const NEXT: &str = "the packages' layout may have changed; adapt lab/src/archive/xen.rs";

/// A Xen in the cache.
#[derive(Debug, Clone)]
pub struct Xen {
    folder: PathBuf,
    version: String,
}

impl Xen {
    /// Debian's version of the hypervisor, such as `4.20.2+7-g1badcf5035-0+deb13u1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The hypervisor, a multiboot file.
    pub fn hypervisor(&self) -> PathBuf {
        self.folder.join("xen")
    }

    /// Domain-0's compressed kernel.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// What goes into Domain-0's root: tools, libraries, and modules in `lab/modules`.
    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// The public headers, which the VMs' kernel is compiled with.
    pub fn headers(&self) -> PathBuf {
        self.folder.join("include")
    }
}

/// Finds the Xen in the cache or fetches it.
pub(super) fn find(cache: &Path, qemu: &Qemu) -> Result<Xen> {
    let place = cache.join("xen");
    if let Ok(version) = std::fs::read_to_string(place.join("version")) {
        return Ok(Xen { folder: place, version: version.trim().to_owned() });
    }
    let draft = draft_for(&place)?;
    let apt = Apt::open(cache, "xen", &[SUITE])?;
    let kernel = newest(&apt.names(KERNEL)?)?;
    let packages = draft.join("packages");
    make_merged_usr(&packages)?;
    let mut version = String::new();
    for package in PACKAGES.iter().copied().chain([kernel.as_str()]) {
        let deb = apt.download(package)?;
        let size = std::fs::metadata(&deb).map_or(0, |m| m.len());
        tool::progress(&format!("Xen: {package}, {}", tool::megabytes(size)));
        tool::unpack_deb(&deb, &packages)?;
        if package == PACKAGES[0] {
            version = version_of(&deb);
        }
    }
    keep(&packages, &draft, qemu)?;
    tool::remove_dir(&packages)?;
    tool::write(&draft.join("version"), version.as_bytes())?;
    settle(&draft, &place)?;
    Ok(Xen { folder: place, version })
}

/// The newest kernel of the plain flavour.
fn newest(names: &[String]) -> Result<String> {
    let plain = |n: &&String| {
        let middle = n.strip_prefix(KERNEL).and_then(|n| n.strip_suffix(FLAVOUR));
        middle.is_some_and(|m| !m.contains('-'))
    };
    let found = names.iter().filter(plain).max_by_key(|n| version_key(n));
    found.cloned().ok_or_else(|| {
        let seen = format!("no {KERNEL}*{FLAVOUR} among {} packages", names.len());
        LabError::new("a kernel for Domain-0", "be found", seen, NEXT)
    })
}

/// The version in a package's file name, `NAME_VERSION_ARCH.deb`, in which `%3a` is a colon.
fn version_of(deb: &Path) -> String {
    let name = deb.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split('_').nth(1).unwrap_or("unknown").replace("%3a", ":")
}

/// Keeps what a boot needs.
fn keep(packages: &Path, draft: &Path, qemu: &Qemu) -> Result<()> {
    let files = tool::files_below(packages)?;
    let file = |wanted: &dyn Fn(&str) -> bool| {
        let named = |f: &&PathBuf| f.file_name().and_then(|n| n.to_str()).is_some_and(wanted);
        files.iter().find(named).cloned().ok_or_else(|| {
            let seen = "a file that is needed is not there";
            LabError::new(packages.display().to_string(), "be used", seen, NEXT)
        })
    };
    let plain_xen = |n: &str| n.starts_with("xen-4.20") && n.ends_with("amd64.gz");
    let packed = tool::read(&file(&plain_xen)?)?;
    tool::write(&draft.join("xen"), &bzimage::through("gzip", &packed)?)?;
    tool::copy(&file(&|n| n.starts_with("vmlinuz"))?, &draft.join("vmlinuz"))?;
    let tree = draft.join("tree");
    for (n, module) in MODULES.iter().enumerate() {
        let file = file(&|n| n == format!("{module}.ko.xz") || n == format!("{module}.ko"))?;
        let packed = tool::read(&file)?;
        let is_packed = file.extension().is_some_and(|e| e == "xz");
        let plain = if is_packed { bzimage::through("xz", &packed)? } else { packed };
        tool::write(&tree.join(format!("lab/modules/{n}-{module}.ko")), &plain)?;
    }
    for name in TOOLS {
        let from = files
            .iter()
            .find(|f| f.file_name().is_some_and(|n| n == name) && is_program(f))
            .ok_or_else(|| LabError::new(name, "be found", "no such program", NEXT))?;
        tool::copy(from, &tree.join("usr/bin").join(name))?;
        for library in libraries(from, packages, qemu)? {
            let name = library.file_name().unwrap_or_default();
            tool::copy(&library, &tree.join(LIBRARIES).join(name))?;
        }
    }
    for name in [LOADER.to_owned(), format!("{LIBRARIES}/{UNWINDER}")] {
        tool::copy(&qemu.root().join(&name), &tree.join(&name))?;
    }
    copy_headers(&packages.join("usr/include"), &draft.join("include"))
}

/// Debian puts scripts of the same names in front of the tools of each version.
fn is_program(file: &Path) -> bool {
    let mut start = [0; 4];
    let read = std::fs::File::open(file).and_then(|mut f| f.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF"
}

/// The libraries that a tool loads, found among Xen's packages and QEMU's.
fn libraries(program: &Path, packages: &Path, qemu: &Qemu) -> Result<Vec<PathBuf>> {
    let paths = [packages.join(LIBRARIES), qemu.root().join(LIBRARIES)];
    let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    let mut list = Command::new(qemu.root().join(LOADER));
    list.arg("--library-path").arg(paths.join(":")).arg("--list").arg(program);
    let text = tool::run(&mut list, "list libraries", NEXT)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let missing = text.lines().find(|l| l.contains("not found"));
    if let Some(line) = missing {
        let object = program.display().to_string();
        return Err(LabError::new(object, "be run", line.trim(), NEXT));
    }
    let path = |l: &str| l.split_whitespace().find(|w| w.starts_with('/')).map(PathBuf::from);
    let not_loader = |p: &PathBuf| !p.ends_with("ld-linux-x86-64.so.2");
    Ok(text.lines().filter_map(path).filter(not_loader).collect())
}

fn copy_headers(from: &Path, to: &Path) -> Result<()> {
    for file in tool::files_below(from)? {
        let below = file.strip_prefix(from).unwrap_or(&file);
        tool::copy(&file, &to.join(below))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_plain_kernel_is_domain_0s() {
        let names: Vec<String> = [
            "linux-image-6.12.9+deb13-amd64",
            "linux-image-6.12.57+deb13-amd64",
            "linux-image-6.12.90+deb13-cloud-amd64",
            "linux-image-6.12.90+deb13-rt-amd64",
            "linux-image-6.12.90+deb13-amd64-dbg",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(newest(&names).unwrap(), "linux-image-6.12.57+deb13-amd64");
        let error = newest(&names[2..]).unwrap_err().to_string();
        assert!(error.contains("no linux-image-6.12.*-amd64 among 3 packages"), "{error}");
    }

    #[test]
    fn a_packages_version_is_in_its_files_name() {
        assert_eq!(version_of(Path::new("/a/xen_4.20.2+7-0_amd64.deb")), "4.20.2+7-0");
    }
}
