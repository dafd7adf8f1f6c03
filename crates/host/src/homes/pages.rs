//! Pages of guests: in which nodes they are, by samples, and moving them, in batches. Both with
//! move_pages(2).
#![allow(unsafe_code)]

use super::guest::Guest;
use crate::view::monotonic_ns;
use numa::ClientId;
use std::{collections::BTreeMap, io, ops::Range, ptr};

/// The smallest page. Of a larger one all addresses are in one node, and it moves as a whole.
pub(crate) const SIZE: u64 = 4096;
/// Pages of one call: 8 MiB, some milliseconds. Each call that moves waits for all pCPUs once (the
/// kernel drains their caches of pages), so smaller ones cost more.
const BATCH: usize = 2048;
/// Batches of pages at home already that are passed by in one step.
const PASSED_MOST: usize = 16;
/// Bytes of a step that moves nothing.
pub(crate) const PASSED: u64 = (PASSED_MOST * BATCH) as u64 * SIZE;
/// Move pages that no other process has.
const MPOL_MF_MOVE: libc::c_int = 2;

/// Where moving goes on.
#[derive(Default)]
pub(crate) struct Pages {
    next: BTreeMap<ClientId, u64>,
}

/// Bytes of a part of a guest by node, estimated from so many samples; others for each
/// `round`. All 0 if the process is gone.
pub(crate) fn by_node(
    pid: i32,
    guest: &Guest,
    part: Range<u64>,
    (samples, round): (usize, u64),
    kernel: &[u32],
) -> Vec<u64> {
    let pages = (part.end - part.start) / SIZE;
    let samples = (samples as u64).min(pages);
    let mut out = vec![0; kernel.len()];
    if samples == 0 {
        return out;
    }
    // Each of so many equal strides at another place in each round, by the golden ratio.
    let stride = pages / samples;
    let within = ((round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * stride) >> 32;
    let at: Vec<u64> =
        (0..samples).map(|i| guest.address(part.start + (i * stride + within) * SIZE)).collect();
    for status in at.chunks(BATCH).flat_map(|chunk| nodes_of(pid, chunk)) {
        let node = kernel.iter().position(|k| i64::from(*k) == i64::from(status));
        if let Some(n) = node {
            out[n] += stride * SIZE;
        }
    }
    out
}

impl Pages {
    /// Moves the pages of a part that are not in a node, batch by batch, until it has moved `most`
    /// bytes or it is `until`; how many it has moved. A batch is moved whole: of a large page all
    /// is.
    ///
    /// # Errors
    /// In words, if of a batch nothing moved.
    pub(crate) fn move_to(
        &mut self,
        pid: i32,
        guest: &Guest,
        (id, part): (ClientId, Range<u64>),
        (node, most): (u32, u64),
        until: u64,
    ) -> Result<u64, String> {
        let (mut done, mut passed) = (0, 0);
        let pages = (part.end - part.start) / SIZE;
        let next = self.next.entry(id).or_insert(0);
        while done < most && passed < PASSED_MOST && pages > 0 && monotonic_ns() < until {
            *next = if *next >= pages { 0 } else { *next };
            let end = (*next + BATCH as u64).min(pages);
            let at: Vec<u64> =
                (*next..end).map(|page| guest.address(part.start + page * SIZE)).collect();
            *next = end;
            let away = |(_, n): &(&u64, i32)| *n >= 0 && *n != node as i32;
            let nodes = nodes_of(pid, &at);
            let move_now: Vec<u64> = at.iter().zip(nodes).filter(away).map(|(at, _)| *at).collect();
            if move_now.is_empty() {
                passed += 1;
            } else {
                done += moved(pid, &move_now, node)? * SIZE;
            }
        }
        Ok(done)
    }
}

/// Node of each page; negative: none, or it is not known.
fn nodes_of(pid: i32, at: &[u64]) -> Vec<i32> {
    move_pages(pid, at, None).unwrap_or_default()
}

/// Moves pages to a node; how many are there after it, or why none is.
fn moved(pid: i32, at: &[u64], node: u32) -> Result<u64, String> {
    let status = move_pages(pid, at, Some(node)).map_err(|e| e.to_string())?;
    let there = status.iter().filter(|s| **s == node as i32).count() as u64;
    let first = status.iter().find(|s| **s < 0).map_or(libc::EBUSY, |s| -s);
    if there == 0 { Err(io::Error::from_raw_os_error(first).to_string()) } else { Ok(there) }
}

/// move_pages(2): where pages are, or, of those that are to be in a node, what came of it.
fn move_pages(pid: i32, at: &[u64], to: Option<u32>) -> io::Result<Vec<i32>> {
    let nodes: Vec<libc::c_int> = to.map_or(vec![], |node| vec![node as libc::c_int; at.len()]);
    let (to, flags) = match to {
        Some(_) => (nodes.as_ptr(), MPOL_MF_MOVE),
        None => (ptr::null(), 0),
    };
    let mut status = vec![-libc::ENOENT; at.len()];
    // SAFETY: the arrays have so many entries; the kernel reads two and writes the third.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            at.len(),
            at.as_ptr(),
            to,
            status.as_mut_ptr(),
            flags,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_see_the_pages_that_are_there() {
        // Half of it is touched.
        const BYTES: usize = 64 << 20;
        // SAFETY: a mapping of its own, of which the first half is written.
        let at = unsafe {
            let at = libc::mmap(
                ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, BYTES, libc::MADV_NOHUGEPAGE);
            ptr::write_bytes(at.cast::<u8>(), 1, BYTES / 2);
            at as u64
        };
        let guest = Guest::at(at..at + BYTES as u64);
        let pid = std::process::id() as i32;
        let of = |round| by_node(pid, &guest, 0..BYTES as u64, (1024, round), &[0]);
        if nodes_of(pid, &[at]) != [0] {
            return println!("skipped: this kernel does not tell in which node a page is");
        }
        assert_eq!(of(0), [BYTES as u64 / 2]);
        assert_eq!(of(7), [BYTES as u64 / 2]);
    }
}
