//! The calls of the scheduler into its environment: C's `plat_*_` functions forward to a `Kernel`,
//! and report what a queue of the scheduler means for the worlds in it.

use crate::native::Native;
use crate::records::{PCPUS_MAX, TraceRecord};
use contract::{Hold, Kernel, Tasks};
use std::ffi::{CStr, c_char};

/// What keeps the worlds of a queue from every pCPU.
fn hold_of(queue: u64) -> Hold {
    match queue / u64::from(PCPUS_MAX) {
        0 | 1 => Hold::None,
        2 => Hold::Limited,
        _ => Hold::Gang,
    }
}

/// A world has come into a queue.
fn entered(p: &mut dyn Kernel, world: u32, queue: u64) {
    let hold = hold_of(queue);
    if hold != Hold::None {
        p.hold(world, hold);
    }
}

/// A world has left a queue.
fn left(p: &mut dyn Kernel, world: u32, queue: u64) {
    if hold_of(queue) != Hold::None {
        p.hold(world, Hold::None);
    }
}

/// What the kernel handle of a `Native` points to while the scheduler is being called.
pub(crate) struct Call<'c> {
    pub(crate) native: *mut Native,
    pub(crate) platform: *mut (dyn Kernel + 'c),
}

/// Turns a handle back into the platform and the tasks of its host.
///
/// # Safety
/// `kernel` must be the handle that `Host::call` put into the `Native`, and that call must still be
/// under way on this thread; the references must be gone before C goes on.
unsafe fn parts<'c>(kernel: u64) -> (&'c mut dyn Kernel, &'c mut Tasks) {
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
        |p, tasks| {
            p.queue_insert(tasks, world, queue, slice_ns, key);
            entered(p, world, queue);
        }
    }
    fn plat_local_length_(pcpu: u32) -> u32 { |p, _tasks| p.local_length(pcpu) }
    fn plat_queue_at_(queue: u64, i: u32) -> u32 { |p, _tasks| p.queue_at(queue, i) }
    fn plat_queue_take_(queue: u64, world: u32) -> u32 {
        |p, tasks| {
            let taken = p.queue_take(tasks, queue, world);
            if taken {
                left(p, world, queue);
            }
            u32::from(taken)
        }
    }
    fn plat_queue_move_(queue: u64, world: u32, to: u64) -> u32 {
        |p, tasks| {
            let moved = p.queue_move(tasks, queue, world, to);
            if moved {
                left(p, world, queue);
                entered(p, world, to);
            }
            u32::from(moved)
        }
    }
    fn plat_queue_return_(queue: u64, world: u32) -> u32 {
        |p, tasks| u32::from(p.queue_return(tasks, queue, world))
    }
    fn plat_kick_(pcpu: u32, flags: u32) { |p, _tasks| p.kick(pcpu, flags) }
    fn plat_look_(pcpu: u32, in_ns: u64) { |p, _tasks| p.arm(crate::tandem::LOOK + pcpu, in_ns) }
    fn plat_trace_(record: *const TraceRecord) {
        // SAFETY: it points to a record on the stack of trace_put, which waits for this function to
        // return.
        |p, _tasks| {
            let TraceRecord { ns, world, kind, pcpu, a, b } = unsafe { *record };
            p.trace(&contract::TraceRecord { ns, world, kind, pcpu, a, b });
        }
    }
    fn plat_assert_failed_(what: *const c_char, file: *const c_char, line: u32) {
        // SAFETY: both are string literals of the C source.
        |p, _tasks| unsafe { p.assert_failed(&CStr::from_ptr(what).to_string_lossy(), &CStr::from_ptr(file).to_string_lossy(), line) }
    }
}
