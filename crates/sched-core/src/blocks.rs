//! Which pCPU of a block takes over which of its timers, as a kernel's callbacks ask the scheduler;
//! the simulator's timers belong to no pCPU.

use crate::native;

/// The timers of a block (`struct block_timers` of `sched/tick/blocks.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockTimers {
    /// pCPU that has the tick of co-scheduling, plus 1; 0 while none has.
    pub cosched: u16,
    /// pCPU that has the part of the tick of limits, plus 1; 0 while none has.
    pub limits: u16,
    unclaimed: u8,
}

impl BlockTimers {
    /// The housekeeper has started them.
    #[must_use]
    pub fn started(cosched: bool, limits: bool) -> BlockTimers {
        let mut out = BlockTimers::default();
        // SAFETY: it reads and writes the one record that it gets.
        unsafe {
            native::sched_block_start(&raw mut out, u32::from(cosched) | u32::from(limits) << 1)
        };
        out
    }

    /// A pCPU of the block asks what to run, and takes over what it may; `house` has housekeeping.
    /// Whether it has taken a timer.
    pub fn asked(&mut self, pcpu: u32, house: u32) -> bool {
        // SAFETY: as above.
        unsafe { native::sched_block_claim(&raw mut *self, pcpu, house) != 0 }
    }
}
