//! Dispatch queues of the simulated kernel: a local one for each pCPU, and ordered ones, with
//! sched_ext's order.

use std::collections::VecDeque;

/// A queue ordered by key, equal keys in the order of insertion; keys compare as the kernel's
/// `time_before64` does, so they may wrap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ordered {
    entries: Vec<(u64, u32)>,
}

fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

impl Ordered {
    pub(crate) fn insert(&mut self, key: u64, world: u32) {
        let at = self.entries.partition_point(|e| !before(key, e.0));
        self.entries.insert(at, (key, world));
    }

    /// Takes a world that was queued with `key`; false if it is not here.
    pub(crate) fn take(&mut self, key: u64, world: u32) -> bool {
        let first = self.entries.partition_point(|e| before(e.0, key));
        let found =
            self.entries[first..].iter().take_while(|e| e.0 == key).position(|e| e.1 == world);
        found.is_some_and(|i| {
            self.entries.remove(first + i);
            true
        })
    }

    /// World at a position, 0 past the end.
    pub(crate) fn at(&self, i: usize) -> u32 {
        self.entries.get(i).map_or(0, |e| e.1)
    }

    pub(crate) fn worlds(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|e| e.1)
    }
}

/// Worlds that a pCPU will run next, in order.
pub(crate) type Local = VecDeque<u32>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_keep_their_order_and_keys_may_wrap() {
        let mut q = Ordered::default();
        for (key, world) in [(5, 1), (u64::MAX, 2), (5, 3), (0, 4), (5, 5)] {
            q.insert(key, world);
        }
        assert_eq!(q.worlds().collect::<Vec<_>>(), [2, 4, 1, 3, 5]);
        assert!(q.take(5, 3) && !q.take(5, 3) && !q.take(4, 1));
        assert_eq!((q.at(0), q.at(2), q.at(3), q.at(4)), (2, 1, 5, 0));
    }
}
