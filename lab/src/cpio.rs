//! Writes cpio archives for the kernel's initramfs, with equal bytes for equal content: no times,
//! no owners.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{OnPath, Result};
use crate::tool;

/// Writer of the "newc" format, the one the kernel unpacks
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
#[derive(Default)]
pub(crate) struct Cpio {
    out: Vec<u8>,
    count: u32,
}

impl Cpio {
    /// Adds one entry: a mode with its file type, a device number for device nodes, a link's target
    /// as content.
    pub(crate) fn add(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.count += 1;
        let size = content.len() as u32;
        let name_len = name.len() as u32 + 1;
        self.out.extend(b"070701");
        let fields = [self.count, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_len, 0];
        for field in fields {
            self.out.extend(format!("{field:08X}").bytes());
        }
        self.out.extend(name.bytes());
        self.out.push(0);
        self.pad();
        self.out.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.out.resize(self.out.len().next_multiple_of(4), 0);
    }

    /// Ends the archive. Another archive may follow: the kernel unpacks them one after the other.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, (0, 0), &[]);
        self.out.resize(self.out.len().next_multiple_of(512), 0);
        self.out
    }

    /// Adds everything below a folder, sorted, so that equal trees give equal archives.
    pub(crate) fn add_tree(&mut self, tree: &Path) -> Result<()> {
        let mut pending = vec![tree.to_path_buf()];
        while let Some(folder) = pending.pop() {
            let mut entries: Vec<PathBuf> = fs::read_dir(&folder)
                .on(&folder, "list the folder")?
                .flatten()
                .map(|e| e.path())
                .collect();
            entries.sort();
            for path in entries {
                let name = path.strip_prefix(tree).unwrap_or(&path).to_string_lossy().into_owned();
                let metadata = fs::symlink_metadata(&path).on(&path, "look at it")?;
                let mode = metadata.mode();
                if metadata.is_symlink() {
                    let target = fs::read_link(&path).on(&path, "read the link")?;
                    self.add(&name, mode, (0, 0), target.as_os_str().as_bytes());
                } else if metadata.is_dir() {
                    self.add(&name, mode, (0, 0), &[]);
                    pending.push(path);
                } else {
                    self.add(&name, mode, (0, 0), &tool::read(&path)?);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpio_header_starts_on_a_multiple_of_four() {
        let mut cpio = Cpio::default();
        cpio.add("a", 0o100_644, (0, 0), b"12345");
        cpio.add("bc", 0o100_644, (0, 0), b"");
        let out = cpio.finish();
        let starts: Vec<usize> =
            (0..out.len() - 6).filter(|i| &out[*i..*i + 6] == b"070701").collect();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|s| s % 4 == 0), "{starts:?}");
    }
}
