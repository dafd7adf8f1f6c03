//! The scheduler's rings of records, one for each pCPU, mapped into memory: takes out what is
//! whole, in order; it understands no record.
#![allow(unsafe_code)]

use crate::{
    HostError,
    view::{Records, pinned},
};
use sched_core::{TRACE_RECORDS, TRACE_STATE, TraceRecord, TraceRing, WHY_BORN};
use std::sync::atomic::{AtomicU64, Ordering};
use units::PcpuId;

const SLOTS: usize = TRACE_RECORDS as usize;
const RECORD: usize = size_of::<TraceRecord>();

/// One ring, as `struct trace_of_pcpu` of `sched/platform/bpf.h`.
#[derive(Clone, Copy)]
#[repr(C)]
struct OfPcpu {
    ring: TraceRing,
    records: [TraceRecord; SLOTS],
}

/// A world that began, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Born {
    pub(super) world: u32,
    pub(super) ns: u64,
}

/// All rings; the holder of the lock of recordings is their one reader.
pub(super) struct Rings(Records<OfPcpu>);

/// A word that programs of the scheduler change at any time.
///
/// # Safety
/// `word` is aligned and within a mapping that outlives the result.
unsafe fn shared<'a>(word: *mut u64) -> &'a AtomicU64 {
    // SAFETY: by the contract above.
    unsafe { AtomicU64::from_ptr(word) }
}

impl Rings {
    pub(super) fn open() -> Result<Rings, HostError> {
        Ok(Rings(Records::new(&pinned("trace_rings")?, "trace_rings", true)?))
    }

    /// Discards what others have left there, even half read; no recorder may run.
    pub(super) fn clear(&self) {
        for i in 0..self.0.len() {
            let of = self.0.pointer(i);
            // SAFETY: `pointer` is within the mapping, which `self` keeps; fields of repr(C)
            // records are aligned.
            unsafe {
                for slot in 0..SLOTS {
                    shared((&raw mut (*of).records[slot].world).cast()).store(0, Ordering::Relaxed);
                }
                let ring = &raw mut (*of).ring;
                shared(&raw mut (*ring).told).store(
                    shared(&raw mut (*ring).lost).load(Ordering::Relaxed),
                    Ordering::Relaxed,
                );
                shared(&raw mut (*ring).tail).store(
                    shared(&raw mut (*ring).head).load(Ordering::Relaxed),
                    Ordering::Release,
                );
            }
        }
    }

    /// Appends every record that is whole, ring by ring, returns the new worlds, and how many
    /// records the fullest ring had.
    pub(super) fn take(&self, out: &mut Vec<u8>, born: &mut Vec<Born>) -> usize {
        (0..self.0.len()).map(|i| self.take_one(i, out, born)).max().unwrap_or(0)
    }

    fn take_one(&self, i: usize, out: &mut Vec<u8>, born: &mut Vec<Born>) -> usize {
        let of = self.0.pointer(i);
        // SAFETY: as in `clear`. A record whose last word is not 0 is whole, and nothing else
        // touches it until its slot is given back by `tail`; `reserve` has made room for as many
        // records as there are slots taken.
        unsafe {
            let tail = shared(&raw mut (*of).ring.tail);
            let first = tail.load(Ordering::Relaxed);
            let taken = (shared(&raw mut (*of).ring.head)
                .load(Ordering::Acquire)
                .wrapping_sub(first) as usize)
                .min(SLOTS);
            out.reserve(taken * RECORD);
            let mut to = out.as_mut_ptr().add(out.len());
            let mut n = 0;
            while n < taken {
                let record = &raw mut (*of).records[(first as usize).wrapping_add(n) % SLOTS];
                let word = shared((&raw mut (*record).world).cast());
                let head = word.load(Ordering::Acquire);
                if head == 0 {
                    break;
                }
                std::ptr::copy_nonoverlapping(record.cast::<u8>().cast_const(), to, RECORD);
                if (head >> 32) as u16 == TRACE_STATE as u16
                    && (*record).a >> 16 & 0xff == u64::from(WHY_BORN)
                {
                    born.push(Born { world: head as u32, ns: (*record).ns });
                }
                word.store(0, Ordering::Relaxed);
                to = to.add(RECORD);
                n += 1;
            }
            out.set_len(out.len() + n * RECORD);
            tail.store(first.wrapping_add(n as u64), Ordering::Release);
            taken
        }
    }

    /// Records of a pCPU so far, those included that were taken.
    pub(super) fn recorded(&self, pcpu: PcpuId) -> u64 {
        if usize::from(pcpu.0) >= self.0.len() {
            return 0; // it came after the load
        }
        let of = self.0.pointer(usize::from(pcpu.0));
        // SAFETY: as in `clear`.
        unsafe { shared(&raw mut (*of).ring.head) }.load(Ordering::Relaxed)
    }

    /// Lost so far, and of these so many that no record tells of yet.
    pub(super) fn lost(&self) -> (u64, u64) {
        let one = |i| {
            let ring = self.0.pointer(i);
            // SAFETY: as in `clear`.
            let read = |word: *mut u64| unsafe { shared(word) }.load(Ordering::Relaxed);
            // SAFETY: addresses within the mapping.
            let (lost, told) = unsafe { (&raw mut (*ring).ring.lost, &raw mut (*ring).ring.told) };
            let (lost, told) = (read(lost), read(told));
            (lost, lost.saturating_sub(told))
        };
        (0..self.0.len()).map(one).fold((0, 0), |sum, l| (sum.0 + l.0, sum.1 + l.1))
    }
}
