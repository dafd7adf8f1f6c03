//! The calls of the scheduler into its environment: C's `plat_*_` functions forward to a
//! `Platform`.

use crate::native::{Native, PlatTask};
use crate::records::TraceRecord;
use std::ffi::{CStr, c_char};

/// The threads of a host, as the kernel sees them during a callback.
pub type Tasks = [PlatTask];

/// A kernel, simulated or toy. Each method stands for one call of `sched/platform/platform.h`; it
/// may change the tasks it is given, as a kernel does, and cannot call the scheduler again.
pub trait Platform {
    /// Inserts into the local queue of the pCPU that select chooses, or of the task's pCPU.
    fn insert_local(&mut self, tasks: &mut Tasks, world: u32, slice_ns: u64);
    /// Inserts at the head of a pCPU's local queue; with `preempt`, its running world's slice ends.
    fn insert_on(&mut self, tasks: &mut Tasks, world: u32, pcpu: u32, slice_ns: u64, preempt: bool);
    /// Inserts into an ordered queue; equal keys keep their order.
    fn queue_insert(&mut self, tasks: &mut Tasks, world: u32, queue: u64, slice_ns: u64, key: u64);
    /// Number of tasks in a pCPU's local queue.
    fn local_length(&mut self, pcpu: u32) -> u32;
    /// World at position `i` of an ordered queue, 0 past its end.
    fn queue_at(&mut self, queue: u64, i: u32) -> u32;
    /// Moves a task from an ordered queue to the local queue of the dispatching pCPU.
    fn queue_take(&mut self, tasks: &mut Tasks, queue: u64, world: u32) -> bool;
    /// Moves a task from an ordered queue to another, with key and slice unchanged; false if it
    /// is not there.
    fn queue_move(&mut self, tasks: &mut Tasks, queue: u64, world: u32, to: u64) -> bool;
    /// Asks a pCPU to schedule, with `KICK_*` flags.
    fn kick(&mut self, pcpu: u32, flags: u32);
    /// Takes a record of the trace, in order; called only while `Host::record_trace` is on.
    fn trace(&mut self, _record: &TraceRecord) {}
    /// An assertion of the scheduler does not hold.
    fn assert_failed(&mut self, what: &str, file: &str, line: u32);
}

/// What the kernel handle of a `Native` points to while the scheduler is being called.
pub(crate) struct Call<'c> {
    pub(crate) native: *mut Native,
    pub(crate) platform: *mut (dyn Platform + 'c),
}

/// Turns a handle back into the platform and the tasks of its host.
///
/// # Safety
/// `kernel` must be the handle that `Host::call` put into the `Native`, and that call must still be
/// under way on this thread; the references must be gone before C goes on.
unsafe fn parts<'c>(kernel: u64) -> (&'c mut dyn Platform, &'c mut Tasks) {
    let call = std::ptr::with_exposed_provenance::<Call<'c>>(kernel as usize);
    // SAFETY: by the contract above `call` is alive. The platform is borrowed exclusively by
    // `Host::call`, which does not touch it while C runs; the tasks belong to the Native, whose
    // owner is borrowed exclusively by the same call. C waits for this function to return, so both
    // references are the only ones in use.
    unsafe {
        let call = &*call;
        let native = call.native;
        let count = (*native).worlds_cap as usize;
        (&mut *call.platform, std::slice::from_raw_parts_mut((*native).tasks, count))
    }
}

macro_rules! forward {
    ($($(#[$doc:meta])* fn $c:ident ( $($arg:ident : $t:ty),* ) $(-> $ret:ty)? { |$p:ident, $tasks:ident| $body:expr })*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $c(kernel: u64 $(, $arg: $t)*) $(-> $ret)? {
                // SAFETY: only sched/ calls this, with the handle of the call under way.
                let ($p, $tasks) = unsafe { parts(kernel) };
                $body
            }
        )*
    };
}

forward! {
    fn plat_insert_local_(world: u32, slice_ns: u64) { |p, tasks| p.insert_local(tasks, world, slice_ns) }
    fn plat_insert_on_(world: u32, pcpu: u32, slice_ns: u64, preempt: u32) {
        |p, tasks| p.insert_on(tasks, world, pcpu, slice_ns, preempt != 0)
    }
    fn plat_queue_insert_(world: u32, queue: u64, slice_ns: u64, key: u64) {
        |p, tasks| p.queue_insert(tasks, world, queue, slice_ns, key)
    }
    fn plat_local_length_(pcpu: u32) -> u32 { |p, _tasks| p.local_length(pcpu) }
    fn plat_queue_at_(queue: u64, i: u32) -> u32 { |p, _tasks| p.queue_at(queue, i) }
    fn plat_queue_take_(queue: u64, world: u32) -> u32 { |p, tasks| u32::from(p.queue_take(tasks, queue, world)) }
    fn plat_queue_move_(queue: u64, world: u32, to: u64) -> u32 { |p, tasks| u32::from(p.queue_move(tasks, queue, world, to)) }
    fn plat_kick_(pcpu: u32, flags: u32) { |p, _tasks| p.kick(pcpu, flags) }
    fn plat_trace_(record: *const TraceRecord) {
        // SAFETY: it points to a record on the stack of trace_put, which waits for this function to
        // return.
        |p, _tasks| unsafe { p.trace(&*record) }
    }
    fn plat_assert_failed_(what: *const c_char, file: *const c_char, line: u32) {
        // SAFETY: both are string literals of the C source.
        |p, _tasks| unsafe { p.assert_failed(&CStr::from_ptr(what).to_string_lossy(), &CStr::from_ptr(file).to_string_lossy(), line) }
    }
}
