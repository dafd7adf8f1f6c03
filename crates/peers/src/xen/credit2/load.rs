//! Load of worlds and run queues: how many want to run, on average over the last second. It moves
//! nothing.
//!
//! *Law*: with `d` the time since the last look and `W` = 2^30 ns, an average becomes `a + d ÷ W ·
//! now - d ÷ W · a`, each quotient rounded down, and `now` itself once `d` is above `W`. Of a world
//! `now` is 1 while it wants to run, else 0; of a run queue the sum of that. A run queue has a
//! second average, to which the load of a world that comes is added at once, and taken of one that
//! goes.
//!
//! *Source*: update_runq_load, update_svc_load (credit2_load_window_shift: 30,
//! credit2_load_precision_shift: 18).
//!
//! *Units*: loads in 2^-18 worlds; times in 2^10 ns.
//!
//! *Example*: a world begins with 0.5. After half a second without sleep it has
//! 0.5 + 0.466 · (1 - 0.5) = 0.73.

use super::Credit2;

/// Bits of a load's fraction.
const FRACTION: u32 = 18;
/// One world that always wants to run.
pub(super) const ONE: i64 = 1 << FRACTION;
/// Bits of a time, in ns, that are left out, and of the window in what is left.
const GRAIN: u32 = 10;
const WINDOW: u32 = 20;

/// An average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Average {
    pub(super) load: i64,
    /// Up to when.
    at: u64,
}

impl Average {
    /// The average of a world that begins.
    pub(super) fn new(now_ns: u64) -> Average {
        Average { load: ONE / 2, at: now_ns >> GRAIN }
    }

    /// So many wanted to run since the last call.
    pub(super) fn update(&mut self, wants: u64, now_ns: u64) {
        let now = now_ns >> GRAIN;
        let passed = now - self.at;
        let wanted = (wants as i64) << FRACTION;
        self.load = if passed > 1 << WINDOW {
            wanted
        } else {
            let part = |load: i64| (passed as i64 * load) >> WINDOW;
            self.load + part(wanted) - part(self.load)
        };
        self.at = now;
    }

    /// A world comes.
    pub(super) fn add(&mut self, of: Average) {
        self.load += of.load;
    }

    /// A world goes.
    pub(super) fn take(&mut self, of: Average) {
        self.load = (self.load - of.load).max(0);
    }
}

impl Credit2 {
    /// Brings the averages of a run queue up to now.
    pub(super) fn note_queue(&mut self, queue: usize, now_ns: u64) {
        let of = &mut self.queues[queue];
        of.load.update(of.wants, now_ns);
        of.expected.update(of.wants, now_ns);
    }

    /// The same for that of a pCPU.
    pub(super) fn note_load(&mut self, pcpu: u32, now_ns: u64) {
        self.note_queue(self.queue_of(pcpu), now_ns);
    }

    /// Brings the averages of a world that wants to run, and of its queue, up to now.
    pub(super) fn update_load(&mut self, world: u32, now_ns: u64) {
        self.note_queue(self.worlds[world as usize].queue, now_ns);
        self.worlds[world as usize].load.update(1, now_ns);
    }

    /// A world wants to run from now on (1), or no longer (-1).
    pub(super) fn change_load(&mut self, world: u32, change: i64, now_ns: u64) {
        self.change_wants(self.worlds[world as usize].queue, change, now_ns);
        self.worlds[world as usize].load.update(u64::from(change < 0), now_ns);
    }

    /// A world more or less of a run queue wants to run.
    pub(super) fn change_wants(&mut self, queue: usize, change: i64, now_ns: u64) {
        self.note_queue(queue, now_ns);
        let of = &mut self.queues[queue];
        of.wants = of.wants.checked_add_signed(change).expect("no more go than came");
    }

    /// Load of a world now.
    pub(super) fn load_now(&mut self, world: u32, now_ns: u64) -> i64 {
        let of = &mut self.worlds[world as usize];
        of.load.update(u64::from(of.queued || of.scheduled), now_ns);
        of.load.load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_nears_what_wants_to_run_and_is_that_after_the_window() {
        let mut load = Average::new(0);
        load.update(1, 500_000_000);
        assert_eq!(load.load * 1000 / ONE, 732);
        load.update(0, 2_000_000_000);
        assert_eq!(load.load, 0);
        load.update(8, 2_000_000_000 + (1 << 30));
        assert_eq!(load.load, 8 * ONE);
        load.take(Average { load: 9 * ONE, at: 0 });
        assert_eq!(load.load, 0);
    }
}
