//! Memory of guests that is bound to nodes: by numatune or `host-nodes` (mbind(2)), by numactl
//! (set_mempolicy(2)). A cpuset binds too, and is another matter: `discover::allowed_memory`.

use super::guest::Guest;
use std::io::BufRead;
use units::PcpuSet;

/// The kernel's nodes that policies of a guest's memory name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// Of any policy but the kernel's default: each is an administrator's wish, and holds the
    /// memory.
    pub(super) all: PcpuSet,
    /// Of those that allow no other node.
    pub(super) only: PcpuSet,
}

impl Bound {
    /// Nothing.
    pub(super) fn none() -> Bound {
        Bound { all: PcpuSet::empty(), only: PcpuSet::empty() }
    }
}

/// What binds a guest's memory, by the text of `/proc/PID/numa_maps`; `None` if that is not all
/// there, for a mapping has changed since.
///
/// The kernel walks the pages of each mapping to write its line: some 10 ms for a GiB of small
/// pages.
pub(super) fn bound(numa_maps: impl BufRead, guest: &Guest) -> Option<Bound> {
    let mut left = guest.mappings();
    let mut out = Bound::none();
    for line in numa_maps.lines().map_while(Result::ok) {
        let Some((at, rest)) = line.split_once(' ') else { continue };
        if !u64::from_str_radix(at, 16).is_ok_and(|at| guest.begins(at)) {
            continue;
        }
        let nodes = nodes(rest);
        out.all = out.all.or(&nodes);
        if rest.starts_with("bind") {
            out.only = out.only.or(&nodes);
        }
        left -= 1;
        if left == 0 {
            return Some(out);
        }
    }
    None
}

/// Nodes of a policy such as `bind:0`, `bind=static:0-1`, `prefer (many):1`; none of `default`.
fn nodes(policy: &str) -> PcpuSet {
    // Other words of a line follow: `file=`, `anon=`, `N0=`. A path may have a colon.
    let words = policy.split_whitespace().take_while(|w| *w == "default" || !is_count(w));
    let named = words.take(2).find_map(|w| w.rsplit_once(':'));
    named.and_then(|(_, list)| list.parse().ok()).unwrap_or_else(PcpuSet::empty)
}

/// Whether a word is a count or a file, `key=value`; `bind=static:0` is none.
fn is_count(word: &str) -> bool {
    word.split_once('=').is_some_and(|(_, value)| {
        !["static:", "relative:"].iter().any(|flag| value.starts_with(flag))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_the_guests_memory_are_found_and_others_passed_by() {
        let guest = Guest::at(0x7f10_0000_0000..0x7f10_4000_0000);
        let of = |policy: &str| {
            let maps = format!(
                "55d0c8a00000 bind:7 file=/usr/bin/qemu mapped=12\n\
                 7f1000000000 {policy} anon=8192 dirty=8192 N0=8192 kernelpagesize_kB=4\n\
                 7f3000000000 bind:9 anon=1\n"
            );
            let of = bound(maps.as_bytes(), &guest).expect("it is there");
            assert_eq!(of.only.is_empty(), !policy.starts_with("bind"), "{policy}");
            of.all.to_string()
        };
        for (policy, nodes) in [
            ("default", ""),
            ("local", ""),
            ("default file=/memfd:ram0\\040(deleted)", ""),
            ("bind:0", "0"),
            ("bind=static:0-1", "0-1"),
            ("prefer:1 file=/memfd:2", "1"),
            ("prefer (many):0,2", "0,2"),
            ("interleave:0-3", "0-3"),
            ("weighted interleave:1", "1"),
        ] {
            assert_eq!(of(policy), nodes, "{policy}");
        }
        assert_eq!(bound(&b"damaged\n"[..], &guest), None);
    }
}
