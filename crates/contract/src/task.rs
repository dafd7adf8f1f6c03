//! A thread as the kernel lends it to a callback: what sched_ext lets a scheduler read and write of
//! `struct task_struct`. It decides nothing.

use units::caps;

/// Words of 64 pCPUs in an affinity mask.
pub const PCPU_WORDS: usize = caps::PCPUS_MAX / 64;

/// A thread. The native scheduler reads it as `struct plat_task` (`sched/platform/native.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is left of its slice, in ns (`p->scx.slice`).
    pub slice_ns: u64,
    /// Key it was queued with last (`p->scx.dsq_vtime`).
    pub key: u64,
    /// pCPUs it may run on, lowest in bit 0 of word 0 (`p->cpus_ptr`).
    pub allowed: [u64; PCPU_WORDS],
    /// Its world.
    pub world: u32,
    /// pCPU it belongs to now (`scx_bpf_task_cpu`).
    pub pcpu: i32,
    /// Number of bits in `allowed` (`p->nr_cpus_allowed`).
    pub allowed_count: u32,
    /// Above zero while it must stay on `pcpu`.
    pub migration_disabled: u32,
    /// Not 0: if it is a vCPU, what it sleeps for next is not that its guest has halted it.
    pub waits: u32,
    /// Not 0: a vCPU that runs in its emulator's code.
    pub outside: u32,
}

impl Task {
    /// A thread that may run nowhere yet.
    pub const ZERO: Task = Task {
        slice_ns: 0,
        key: 0,
        allowed: [0; PCPU_WORDS],
        world: 0,
        pcpu: 0,
        allowed_count: 0,
        migration_disabled: 0,
        waits: 0,
        outside: 0,
    };

    /// Whether its affinity allows `pcpu`.
    #[must_use]
    pub fn may_run(&self, pcpu: u32) -> bool {
        if self.migration_disabled != 0 && self.pcpu != pcpu as i32 {
            return false;
        }
        self.allowed.get(pcpu as usize / 64).is_some_and(|w| w >> (pcpu % 64) & 1 == 1)
    }

    /// The lowest pCPU of its affinity mask, 0 for an empty one.
    #[must_use]
    pub fn first_allowed(&self) -> u32 {
        let first = self.allowed.iter().zip(0..).find(|w| *w.0 != 0);
        first.map_or(0, |(w, i)| i * 64 + w.trailing_zeros())
    }
}

/// The threads of a host, by world; entry 0 stands for none.
pub type Tasks = [Task];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_its_mask_and_its_migration_state_allow() {
        let mut task = Task { pcpu: 3, allowed_count: 2, ..Task::ZERO };
        (task.allowed[0], task.allowed[1]) = (0b1000, 1);
        let may = |t: &Task| [0, 3, 64, 65, 5000].map(|p| t.may_run(p));
        assert_eq!(may(&task), [false, true, true, false, false]);
        assert_eq!((task.first_allowed(), Task::ZERO.first_allowed()), (3, 0));
        task.migration_disabled = 1;
        assert_eq!(may(&task), [false, true, false, false, false]);
        task.allowed[0] = 0;
        assert_eq!(task.first_allowed(), 64);
    }
}
