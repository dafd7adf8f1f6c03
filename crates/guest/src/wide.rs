//! How often a task wakes another one than before, by which Linux tells whether a wake-up may draw
//! the woken task to its waker's vCPU (`record_wakee`, `wake_wide`); it places none.

/// Stands for a thread of the kernel: one that is woken in the name of whatever runs.
pub(crate) const KERNEL: u32 = u32::MAX;
/// Flips are halved if so long has passed since the last time, in ns.
const DECAY_NS: u64 = 1_000_000_000;

/// What a task, or the idle loop of a vCPU, has woken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wakes {
    last: Option<u32>,
    /// Wake-ups of another task than the last one (`wakee_flips`).
    pub(crate) flips: u32,
    decayed: u64,
}

/// A task begins with the flips of its parent, which has made others.
impl Default for Wakes {
    fn default() -> Wakes {
        Wakes { last: None, flips: 1, decayed: 0 }
    }
}

impl Wakes {
    /// It wakes this task.
    pub(crate) fn wakes(&mut self, task: u32, now: u64) {
        if now > self.decayed + DECAY_NS {
            self.flips /= 2;
            self.decayed = now;
        }
        if self.last != Some(task) {
            self.last = Some(task);
            self.flips += 1;
        }
    }
}

/// Whether both wake so many others that the woken task stays near its last vCPU: the one that
/// flips less does at least once for each vCPU of the LLC, the other that many times as often. An
/// LLC of one vCPU, which a guest without a topology has, is exceeded by any two that ever woke
/// something else.
pub(crate) fn is_wide(waker: u32, woken: u32, llc_vcpus: u32) -> bool {
    let (less, more) = (waker.min(woken), waker.max(woken));
    less >= llc_vcpus && more >= less.saturating_mul(llc_vcpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_task_than_the_last_is_a_flip_and_flips_are_halved_after_a_second() {
        let mut w = Wakes::default();
        for task in [7, 7, 8, 8, 7] {
            w.wakes(task, 10);
        }
        assert_eq!(w.flips, 4);
        w.wakes(7, DECAY_NS);
        assert_eq!(w.flips, 4);
        w.wakes(7, DECAY_NS + 1);
        assert_eq!(w.flips, 2);
        w.wakes(8, 2 * DECAY_NS);
        assert_eq!(w.flips, 3, "not halved again within a second");
    }

    #[test]
    fn an_llc_of_one_vcpu_is_exceeded_at_once_and_a_wider_one_by_a_waker_of_many() {
        assert!(is_wide(1, 1, 1) && is_wide(5, 1, 1) && !is_wide(0, 9, 1));
        assert!(!is_wide(100, 100, 2), "two that wake as many others as each other");
        assert!(is_wide(4, 2, 2) && is_wide(2, 4, 2) && !is_wide(100, 1, 2));
    }
}
