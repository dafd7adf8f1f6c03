//! Fetches one QEMU that runs anywhere: Debian 13's, with every library down to its C library and
//! loader, unpacked into the cache; it is never installed, and the same files go into the guest.
//!
//! Why not the machine's QEMU: version 7.2 (Debian 12) dies in multi-threaded emulation when the
//! guest kernel patches its own code, which loading a scheduler does; 10.0 does not. Why the whole
//! closure and not only what the machine lacks: run through its own loader it depends on nothing of
//! the machine, so every machine and the guest run the same emulator.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Apt;
use super::{draft_for, settle};
use crate::error::{LabError, Result};
use crate::tool;

/// The suite is fixed, so that two machines agree; its QEMU is 10.0.
const SUITE: &str = "trixie";
/// busybox-static is the guest's user space; it comes along so that the machine needs none.
const PACKAGES: [&str; 2] = ["qemu-system-x86", "busybox-static"];
/// Below 10, see above.
const OLDEST_MAJOR: u32 = 10;

/// A QEMU in the cache, with the C library it runs on.
#[derive(Debug, Clone)]
pub struct Qemu {
    root: PathBuf,
    version: String,
}

/// Where Debian's packages put the parts of QEMU, below their root.
const BINARY: &str = "usr/bin/qemu-system-x86_64";
pub(super) const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
pub(super) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Firmware is in two folders; both go to `-L`.
pub(crate) const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

impl Qemu {
    /// QEMU's version, such as `10.0.13`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder that holds the unpacked packages, laid out as a root file system.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The static busybox that came along.
    pub fn busybox(&self) -> PathBuf {
        self.root.join("usr/bin/busybox")
    }

    /// A command that runs this QEMU through its own loader, with its libraries, modules and
    /// firmware.
    pub fn command(&self) -> Command {
        let mut command = self.bare_command();
        for folder in FIRMWARE {
            command.arg("-L").arg(self.root.join(folder));
        }
        command
    }

    fn bare_command(&self) -> Command {
        let libraries = self.root.join(LIBRARIES);
        let mut command = Command::new(self.root.join(LOADER));
        command.env("QEMU_MODULE_DIR", libraries.join("qemu"));
        command.arg("--library-path").arg(libraries).arg(self.root.join(BINARY));
        command
    }

    /// The files a guest needs to run this QEMU, as paths below [`Qemu::root`]: the binary, the
    /// loader, the libraries it loads. No modules: they are sound, display and USB.
    pub(crate) fn program_files(&self) -> Result<Vec<PathBuf>> {
        let libraries = self.root.join(LIBRARIES);
        let mut list = Command::new(self.root.join(LOADER));
        list.arg("--library-path").arg(&libraries).arg("--list").arg(self.root.join(BINARY));
        let text = tool::run(
            &mut list,
            "list QEMU's libraries",
            "delete the cache folder and fetch again",
        )?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let loaded = text.lines().filter_map(|l| {
            let path = l.split_whitespace().find(|w| w.starts_with('/'))?;
            Path::new(path).strip_prefix(&self.root).ok().map(Path::to_path_buf)
        });
        let mut files: Vec<PathBuf> = vec![BINARY.into(), LOADER.into()];
        files.extend(loaded.filter(|p| p != Path::new(LOADER)));
        files.sort();
        files.dedup();
        Ok(files)
    }
}

/// Finds the QEMU in the cache or fetches it.
pub(super) fn find(cache: &Path) -> Result<Qemu> {
    let place = cache.join("qemu");
    if let Ok(version) = std::fs::read_to_string(place.join("version")) {
        return Ok(Qemu { root: place.join("root"), version: version.trim().to_owned() });
    }
    let draft = draft_for(&place)?;
    let apt = Apt::open(cache, "qemu", &[SUITE])?;
    let debs = apt.download_closure(&PACKAGES)?;
    let bytes: u64 = debs.iter().filter_map(|d| std::fs::metadata(d).ok()).map(|m| m.len()).sum();
    tool::progress(&format!("QEMU: unpacking {} packages, {}", debs.len(), tool::megabytes(bytes)));
    let root = draft.join("root");
    make_merged_usr(&root)?;
    for deb in &debs {
        tool::unpack_deb(deb, &root)?;
    }
    drop_ballast(&root)?;
    let mut qemu = Qemu { root: root.clone(), version: String::new() };
    qemu.version = ask_version(&qemu)?;
    tool::write(&draft.join("version"), qemu.version.as_bytes())?;
    settle(&draft, &place)?;
    qemu.root = place.join("root");
    Ok(qemu)
}

/// Debian merges /lib and /usr/lib; packages that still say /lib must land in /usr/lib.
pub(super) fn make_merged_usr(root: &Path) -> Result<()> {
    for name in ["lib", "lib64", "bin", "sbin"] {
        tool::make_dir(&root.join("usr").join(name))?;
        let link = root.join(name);
        std::os::unix::fs::symlink(format!("usr/{name}"), &link)
            .map_err(|e| LabError::io(&link, "make the link", e))?;
    }
    Ok(())
}

/// Documentation, locales and other machines' firmware are two thirds of the unpacked size.
fn drop_ballast(root: &Path) -> Result<()> {
    for folder in
        ["usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/perl5", "etc", "var"]
    {
        tool::remove_dir(&root.join(folder))?;
    }
    Ok(())
}

fn ask_version(qemu: &Qemu) -> Result<String> {
    let text = tool::run(
        qemu.bare_command().arg("--version"),
        "say its version",
        "delete the cache folder",
    )?;
    let text = String::from_utf8_lossy(&text).into_owned();
    parse_version(&text).ok_or_else(|| {
        LabError::new(
            "QEMU",
            "be used",
            format!(
                "\"{}\", allowed version {OLDEST_MAJOR} or newer",
                text.lines().next().unwrap_or("")
            ),
            "the suite in lab/src/archive/qemu.rs must have a newer one",
        )
    })
}

/// The version in `QEMU emulator version 10.0.13 (…)`, if it is new enough.
fn parse_version(text: &str) -> Option<String> {
    let version = text.split("version ").nth(1)?.split_whitespace().next()?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (major >= OLDEST_MAJOR).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_older_than_ten_is_refused() {
        let new = "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\nCopyright";
        assert_eq!(parse_version(new).as_deref(), Some("10.0.13"));
        assert_eq!(parse_version("QEMU emulator version 7.2.19 (Debian 1:7.2)"), None);
        assert_eq!(parse_version("no emulator"), None);
    }
}
