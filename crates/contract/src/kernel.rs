//! The kernel's services during a callback, as sched_ext gives them to a scheduler. What a service
//! refuses is a breach, or false where a kernel's is; it chooses nothing.

use crate::task::{Task, Tasks};

/// Flag of an enqueue: the world was waiting (`SCX_ENQ_WAKEUP`).
pub const ENQUEUE_WAKEUP: u32 = 1;
/// Flag of a select: the waker is about to sleep (`SCX_WAKE_SYNC`).
pub const WAKE_SYNC: u32 = 1;
/// Flag of a kick: only an idle pCPU is woken (`SCX_KICK_IDLE`).
pub const KICK_IDLE: u32 = 1;
/// Flag of a kick: the running world's slice ends now (`SCX_KICK_PREEMPT`).
pub const KICK_PREEMPT: u32 = 2;
/// Slice that the kernel gives where a scheduler left none, in ns (`SCX_SLICE_DFL`).
pub const SLICE_DEFAULT_NS: u64 = 20_000_000;
/// A slice that never ends (`SCX_SLICE_INF`).
pub const SLICE_ENDLESS: u64 = u64::MAX;
/// Ids of dispatch queues are below this, so that a kernel finds one by its position.
pub const QUEUES_MAX: u64 = 1 << 16;
/// Timers of a scheduler are numbered below this.
pub const TIMERS_MAX: u32 = 2048;

/// What keeps a runnable world from every pCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Nothing: a pCPU that looks for work may take it.
    #[default]
    None,
    /// A limit; the world is READY.
    Limited,
    /// Its VM starts as a whole or not at all (strict co-scheduling); the world is READY.
    Gang,
    /// It is ahead of its siblings; the world is in COSTOP.
    Costopped,
}

/// 32 bytes that say what was decided and why (`sched/abi/trace.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceRecord {
    /// When, in ns.
    pub ns: u64,
    /// The world concerned, 0 for none.
    pub world: u32,
    /// Kind of record.
    pub kind: u16,
    /// The pCPU concerned.
    pub pcpu: u16,
    /// By kind.
    pub a: u64,
    /// By kind.
    pub b: u64,
}

/// A kernel, simulated or toy. It may change the tasks it is given, as a kernel does, and cannot
/// call the scheduler again. Services with a body are what a kernel without them does.
pub trait Kernel {
    /// Creates an ordered dispatch queue below `QUEUES_MAX` (`scx_bpf_create_dsq`), at `init`.
    fn create_queue(&mut self, _queue: u64) {}
    /// Inserts into the local queue of the pCPU that select chooses, or of the task's pCPU
    /// (`SCX_DSQ_LOCAL`).
    fn insert_local(&mut self, tasks: &mut Tasks, world: u32, slice_ns: u64);
    /// Inserts at the head of a pCPU's local queue (`SCX_DSQ_LOCAL_ON`, `SCX_ENQ_HEAD`); with
    /// `preempt`, its running world's slice ends.
    fn insert_on(&mut self, tasks: &mut Tasks, world: u32, pcpu: u32, slice_ns: u64, preempt: bool);
    /// Inserts into an ordered queue (`scx_bpf_dsq_insert_vtime`); equal keys keep their order, so
    /// that a queue of one key is a FIFO.
    fn queue_insert(&mut self, tasks: &mut Tasks, world: u32, queue: u64, slice_ns: u64, key: u64);
    /// Number of tasks in a pCPU's local queue (`scx_bpf_dsq_nr_queued`).
    fn local_length(&mut self, pcpu: u32) -> u32;
    /// World at position `i` of an ordered queue, 0 past its end (`bpf_for_each(scx_dsq)`).
    fn queue_at(&mut self, queue: u64, i: u32) -> u32;
    /// Moves a task from an ordered queue to the local queue of the dispatching pCPU; false if it
    /// is gone.
    fn queue_take(&mut self, tasks: &mut Tasks, queue: u64, world: u32) -> bool;
    /// Moves a task from an ordered queue to another, with the same key and slice; false if it is
    /// not there.
    fn queue_move(&mut self, tasks: &mut Tasks, queue: u64, world: u32, to: u64) -> bool;
    /// Moves a task from an ordered queue to the local queue of its own pCPU, from a timer; one
    /// that is off line gives it to the kernel, which hands it to `Scheduler::enqueue` elsewhere.
    /// False if it is not there.
    fn queue_return(&mut self, _tasks: &mut Tasks, _queue: u64, _world: u32) -> bool {
        false
    }
    /// Takes the first task of an ordered queue that may run on the dispatching pCPU `pcpu`
    /// (`scx_bpf_dsq_move_to_local`); false if there is none.
    fn queue_take_first(&mut self, tasks: &mut Tasks, queue: u64, pcpu: u32) -> bool {
        let mut i = 0;
        loop {
            match self.queue_at(queue, i) {
                0 => return false,
                world if tasks[world as usize].may_run(pcpu) => {
                    return self.queue_take(tasks, queue, world);
                }
                _ => i += 1,
            }
        }
    }
    /// Asks a pCPU to schedule, with `KICK_*` flags.
    fn kick(&mut self, pcpu: u32, flags: u32);
    /// Takes an idle pCPU for a task, `prev` first, then the lowest of its mask
    /// (`scx_bpf_pick_idle_cpu`); until that pCPU idles anew no other caller gets it.
    fn pick_idle(&mut self, _task: &Task, _prev: u32) -> Option<u32> {
        None
    }
    /// Tells what keeps a runnable world from every pCPU from now on.
    fn hold(&mut self, _world: u32, _hold: Hold) {}
    /// Calls `Scheduler::timer` with this number after so many ns; arming it anew moves it.
    fn arm(&mut self, _timer: u32, _after_ns: u64) {}
    /// A pCPU waits for a lock of the scheduler and keeps it, beside what a switch takes: what runs
    /// there now, or next if nothing does before the callback's consequences are carried out, works
    /// that much later. Code under `sched/` is measured and not charged for; this is for models of
    /// schedulers that have locks. A lock is kept by one pCPU at a time.
    fn lock(&mut self, _pcpu: u32, _of: Lock) {}
    /// A random number (`bpf_get_prandom_u32`), the same in every run of one seed.
    fn random(&mut self) -> u32 {
        0
    }
    /// Puts a remark into the trace (`bpf_printk`).
    fn note(&mut self, _text: &str) {}
    /// Takes a record of the trace, in order; called only while `Scheduler::record` is on.
    fn trace(&mut self, _record: &TraceRecord) {}
    /// An assertion of the scheduler does not hold.
    fn assert_failed(&mut self, what: &str, file: &str, line: u32);
}

/// A lock of a model's scheduler, as a decision takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Which of its locks.
    pub id: u32,
    /// How long it waits for it, in ns.
    pub waits_ns: u64,
    /// How long it keeps it then, in ns.
    pub keeps_ns: u64,
}

/// A kernel that schedules nothing, for tests and measurements of single callbacks.
pub struct NoKernel;

impl Kernel for NoKernel {
    fn insert_local(&mut self, _: &mut Tasks, _: u32, _: u64) {}
    fn insert_on(&mut self, _: &mut Tasks, _: u32, _: u32, _: u64, _: bool) {}
    fn queue_insert(&mut self, _: &mut Tasks, _: u32, _: u64, _: u64, _: u64) {}
    fn local_length(&mut self, _: u32) -> u32 {
        0
    }
    fn queue_at(&mut self, _: u64, _: u32) -> u32 {
        0
    }
    fn queue_take(&mut self, _: &mut Tasks, _: u64, _: u32) -> bool {
        false
    }
    fn queue_move(&mut self, _: &mut Tasks, _: u64, _: u32, _: u64) -> bool {
        false
    }
    fn kick(&mut self, _: u32, _: u32) {}
    fn assert_failed(&mut self, what: &str, file: &str, line: u32) {
        panic!("{what} at {file}:{line}");
    }
}

/// A callback under way: when and where it runs, and what the kernel lends to it.
pub struct Callback<'k> {
    /// The services.
    pub kernel: &'k mut dyn Kernel,
    /// All threads, by world.
    pub tasks: &'k mut Tasks,
    /// The time, in ns; it stands still during a callback.
    pub now_ns: u64,
    /// The pCPU that it runs on, where one is known.
    pub here: Option<u32>,
    /// The world that caused it, 0 for an interrupt.
    pub waker: u32,
}

impl Callback<'_> {
    /// The thread of a world.
    #[must_use]
    pub fn task(&self, world: u32) -> &Task {
        &self.tasks[world as usize]
    }

    /// Sets what is left of a thread's slice, in ns.
    pub fn set_slice(&mut self, world: u32, ns: u64) {
        self.tasks[world as usize].slice_ns = ns;
    }

    /// `Kernel::insert_local`.
    pub fn insert_local(&mut self, world: u32, slice_ns: u64) {
        self.kernel.insert_local(self.tasks, world, slice_ns);
    }

    /// `Kernel::queue_insert`.
    pub fn queue_insert(&mut self, world: u32, queue: u64, slice_ns: u64, key: u64) {
        self.kernel.queue_insert(self.tasks, world, queue, slice_ns, key);
    }

    /// `Kernel::queue_take_first`.
    pub fn queue_take_first(&mut self, queue: u64, pcpu: u32) -> bool {
        self.kernel.queue_take_first(self.tasks, queue, pcpu)
    }

    /// `Kernel::pick_idle` for the thread of a world.
    pub fn pick_idle(&mut self, world: u32, prev: u32) -> Option<u32> {
        self.kernel.pick_idle(&self.tasks[world as usize], prev)
    }
}
