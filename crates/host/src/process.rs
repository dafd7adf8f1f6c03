//! What the kernel says of a process that it cannot choose itself: its user. Nothing is changed.

use std::{fs, path::Path};

/// The effective uid of this process.
pub(crate) fn effective_uid() -> Option<u32> {
    uids(Path::new("/proc/self")).map(|uids| uids[1])
}

/// Real and effective uid, by the line `Uid:` of `status`.
fn uids(dir: &Path) -> Option<[u32; 2]> {
    let status = fs::read_to_string(dir.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut words = line.split_whitespace().map(|word| word.parse().ok());
    Some([words.next()??, words.next()??])
}
