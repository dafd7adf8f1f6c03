//! Where a guest's memory is in its hypervisor's process.

use crate::discover::Roots;
use std::{fs, ops::Range};

/// Mappings smaller than this part of the largest are the hypervisor's own: firmware, stacks,
/// arenas of its allocator.
const PART: u64 = 16;
/// A guest has more: a process without such a mapping has not made its guest's memory yet. A
/// thread's stack has 8 MiB, by the usual limit.
const LEAST: u64 = 16 << 20;

/// The memory of a guest: mappings from the highest address down.
///
/// *Law*: mappings that can be read and written and not executed, of no file or of one in memory
/// (memfd, /dev/shm, hugetlbfs), as QEMU makes them for RAM and memory backends. Linux
/// maps downwards: where virtual nodes have a backend each, made in their order, they come in that
/// order here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guest(Vec<Range<u64>>);

impl Guest {
    /// The guest of a process; `None` if it has made none yet.
    pub(crate) fn read(roots: &Roots, pid: i32) -> Option<Guest> {
        let text = fs::read_to_string(roots.proc_fs.join(format!("{pid}/maps"))).ok()?;
        let guest = Guest::of(&text);
        (!guest.0.is_empty()).then_some(guest)
    }

    /// From the text of `/proc/PID/maps`.
    fn of(maps: &str) -> Guest {
        let all: Vec<Range<u64>> = maps.lines().filter_map(mapping).collect();
        let size = |r: &Range<u64>| r.end - r.start;
        let most = all.iter().map(size).max().unwrap_or(0);
        Guest(all.into_iter().rev().filter(|r| size(r) >= (most / PART).max(LEAST)).collect())
    }

    /// A guest of one mapping.
    #[cfg(test)]
    pub(crate) fn at(range: Range<u64>) -> Guest {
        Guest(vec![range])
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|r| r.end - r.start).sum()
    }

    /// Number of its mappings.
    pub(crate) fn mappings(&self) -> usize {
        self.0.len()
    }

    /// Whether one of them begins there.
    pub(crate) fn begins(&self, address: u64) -> bool {
        self.0.iter().any(|r| r.start == address)
    }

    /// Address of its byte number `at`, below `bytes`.
    pub(crate) fn address(&self, mut at: u64) -> u64 {
        for r in &self.0 {
            let size = r.end - r.start;
            if at < size {
                return r.start + at;
            }
            at -= size;
        }
        0
    }
}

/// A mapping that may be a guest's memory.
fn mapping(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let path = words.nth(3).unwrap_or("");
    let in_memory = ["", "/memfd:", "/dev/shm/", "/dev/hugepages", "/anon_hugepage", "[anon"];
    let fits =
        in_memory.iter().any(|p| if p.is_empty() { path == *p } else { path.starts_with(p) });
    if !rights.starts_with("rw-") || !fits {
        return None;
    }
    Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_memory_is_told_from_its_hypervisors() {
        let maps = "\
            55d0c8a00000-55d0c9200000 rw-p 00000000 00:00 0                          [heap]\n\
            7f0000000000-7f0008000000 rw-s 00000000 00:01 12   /memfd:ram0 (deleted)\n\
            7f1000000000-7f1008000000 rw-p 00000000 00:00 0\n\
            7f2000000000-7f2040000000 rwxp 00000000 00:00 0\n\
            7f3000000000-7f3000800000 rw-p 00000000 00:00 0\n\
            7f4000000000-7f4008000000 r--p 00000000 fe:00 77   /usr/share/qemu/edk2.fd\n\
            7f5000000000-7f5008000000 rw-p 00000000 fe:00 78   /usr/lib/libx.so\n";
        let guest = Guest::of(maps);
        assert_eq!(
            guest,
            Guest(vec![0x7f10_0000_0000..0x7f10_0800_0000, 0x7f00_0000_0000..0x7f00_0800_0000])
        );
        assert_eq!(guest.bytes(), 256 << 20);
        assert_eq!(guest.address(0), 0x7f10_0000_0000);
        assert_eq!(guest.address(128 << 20), 0x7f00_0000_0000);
        assert_eq!(Guest::of("7f3000000000-7f3000800000 rw-p 00000000 00:00 0"), Guest(vec![]));
    }
}
