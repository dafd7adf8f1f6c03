//! An allocator that counts for each thread: blocks that it was given, and bytes that it holds.

#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HEAP: Cell<Heap> = const { Cell::new(Heap { blocks: 0, live: 0 }) };
}

/// What a thread has had of the heap; what another frees counts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Blocks that it was given, those included that became larger.
    pub blocks: u64,
    /// Bytes that it was given and has not freed.
    pub live: i64,
}

/// What this thread has had so far.
pub fn heap() -> Heap {
    HEAP.get()
}

fn count(blocks: u64, bytes: i64) {
    let Heap { blocks: all, live } = HEAP.get();
    HEAP.set(Heap { blocks: all + blocks, live: live + bytes });
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
