//! Finds and caches what the lab boots: kernels and a QEMU, out of Debian's archive; it installs
//! nothing on the machine and leaves the machine's own package sources alone.
//!
//! Why Debian packages: they are signed, small (14 MB a kernel), reachable from every machine that
//! can build this repository, and their kernels have sched_ext and BTF switched on. Why not the
//! machine's own kernel: most machines that build this have none with sched_ext, and the lab's
//! answers must not depend on the machine.

mod apt;
mod kernel;
mod qemu;
mod source;
mod xen;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::tool;

pub use kernel::{Kernel, KernelId};
pub use qemu::Qemu;
pub use xen::Xen;

/// The lab's cache folder and everything found in it.
#[derive(Debug, Clone)]
pub struct Archive {
    root: PathBuf,
}

impl Archive {
    /// Opens the cache: `TANDEM_LAB_CACHE` if set, else `.cache/lab` in the repository.
    pub fn open() -> Result<Self> {
        let root = match std::env::var_os("TANDEM_LAB_CACHE") {
            Some(folder) => PathBuf::from(folder),
            None => repository().join(".cache/lab"),
        };
        Self::at(&root)
    }

    /// Opens a cache at a given folder, for callers with their own.
    pub fn at(root: &Path) -> Result<Self> {
        tool::make_dir(root)?;
        Ok(Archive { root: root.to_path_buf() })
    }

    /// The cache folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The kernel a role stands for, fetched on first use and remembered from then on.
    pub fn kernel(&self, id: &KernelId) -> Result<Kernel> {
        kernel::find(&self.root, id)
    }

    /// Forgets which kernels the roles stand for, so that the next use asks the archive again.
    pub fn forget_choices(&self) -> Result<()> {
        kernel::forget_choices(&self.root)
    }

    /// The QEMU that both runs the lab and runs inside it, fetched on first use.
    pub fn qemu(&self) -> Result<Qemu> {
        qemu::find(&self.root)
    }

    /// The Xen that the lab boots beside Linux, fetched on first use (130 MB, of which 40 stay).
    pub fn xen(&self) -> Result<Xen> {
        xen::find(&self.root, &self.qemu()?)
    }
}

/// The repository: the nearest folder above the current one that has a lab, else the one this crate
/// was built in.
pub fn repository() -> PathBuf {
    let built_in = || {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
        lab.parent().unwrap_or(lab).to_path_buf()
    };
    let here = std::env::current_dir().unwrap_or_default();
    repository_above(&here).unwrap_or_else(built_in)
}

fn repository_above(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().find(|f| f.join("lab/guest/init").is_file()).map(Path::to_path_buf)
}

/// Puts a finished draft folder in place; where another process was faster, its equal result stays.
fn settle(draft: &Path, place: &Path) -> Result<()> {
    if std::fs::rename(draft, place).is_err() {
        if !place.is_dir() {
            return Err(crate::LabError::new(
                place.display().to_string(),
                "put the fetched files in place",
                "the rename failed",
                "delete that path and try again",
            ));
        }
        tool::remove_dir(draft)?;
    }
    Ok(())
}

/// A fresh folder beside `place` for a draft that [`settle`] will move.
fn draft_for(place: &Path) -> Result<PathBuf> {
    let mut name = place.as_os_str().to_owned();
    name.push(format!(".draft{}", std::process::id()));
    let draft = PathBuf::from(name);
    tool::remove_dir(&draft)?;
    tool::make_dir(&draft)?;
    Ok(draft)
}

/// QEMU's firmware folders below its root.
pub(crate) fn firmware_folders() -> [&'static str; 2] {
    qemu::FIRMWARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_found_from_any_folder_inside_it() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(repository_above(&lab.join("src/archive")).as_deref(), lab.parent());
        assert_eq!(repository_above(Path::new("/")), None);
    }
}
