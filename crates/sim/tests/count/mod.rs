//! Counts the instructions of a piece of work one by one, by single-stepping a child process: the
//! result is the same everywhere.
#![allow(unsafe_code, dead_code, reason = "not every test program uses all")]

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicPtr, Ordering},
};

/// Parts of a piece of work that are counted apart.
pub const PARTS: usize = 64;
/// Instructions by part.
pub type Counts = [u64; PARTS];

/// The part that runs now: a page that the counted child shares with its parent.
static NOW: AtomicPtr<u32> = AtomicPtr::new(std::ptr::null_mut());

/// Held from when a page is named until the child that counts there is made.
static NAMING: Mutex<()> = Mutex::new(());

/// A part of the work begins, in the child.
pub fn begins(part: usize) {
    assert!(part < PARTS, "part {part}");
    let page = NOW.load(Ordering::Relaxed);
    if !page.is_null() {
        // SAFETY: the page is mapped before the child is made, and is never unmapped.
        unsafe { page.write_volatile(part as u32) };
    }
}

/// Work within a part that is not counted there, but in part 0.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let page = NOW.load(Ordering::Relaxed);
    if page.is_null() {
        return work();
    }
    // SAFETY: as in `begins`.
    let part = unsafe { page.read_volatile() };
    begins(0);
    let out = work();
    begins(part as usize);
    out
}

/// Whether this is a build that counts are held to: what is not optimised takes several times as
/// many.
pub fn optimised() -> bool {
    if cfg!(debug_assertions) {
        println!("not counted: this build is not optimised; use --release or --profile ci");
    }
    !cfg!(debug_assertions)
}

/// Holds a count to that of `today`, a ratchet: what becomes dearer must raise the number where it
/// is written, with the reason in the commit; what becomes cheaper by a tenth must lower it.
pub fn held(what: &str, seen: u64, today: u64) {
    // 3 %: another version of the compiler.
    let most = today + today * 3 / 100;
    assert!(seen <= most, "{what}: {seen} instructions, allowed {most}");
    assert!(seen * 10 >= today * 9, "{what}: {seen} instructions; lower its number, {today}");
}

/// A page that a child process shares.
fn shared_page() -> *mut u32 {
    // SAFETY: a new mapping of its own.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED, "mmap");
    page.cast()
}

/// Keeps this thread, and the children that it forks, on the CPU where it is, until dropped: parent
/// and child wait for each other at every step, and to wake an idle CPU takes longer than a step.
struct OnOneCpu(libc::cpu_set_t);

impl OnOneCpu {
    fn new() -> OnOneCpu {
        // SAFETY: both sets are this frame's; where a call fails the mask stays.
        unsafe {
            let (mut before, mut one): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
            let size = size_of_val(&before);
            libc::sched_getaffinity(0, size, &raw mut before);
            if let Ok(cpu) = usize::try_from(libc::sched_getcpu()) {
                libc::CPU_SET(cpu, &mut one);
                libc::sched_setaffinity(0, size, &raw const one);
            }
            OnOneCpu(before)
        }
    }
}

impl Drop for OnOneCpu {
    fn drop(&mut self) {
        // SAFETY: the set is this object's.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) };
    }
}

/// Instructions of `work` in a child process, by the part that has begun last; part 0 before.
pub fn counted(work: impl FnOnce()) -> Counts {
    let (page, _one) = (shared_page(), OnOneCpu::new());
    let naming = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
    NOW.store(page, Ordering::Relaxed);
    // SAFETY: the child touches only its own copy of what was made before, and leaves by _exit; the
    // parent waits for it.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "fork");
        if child == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            work();
            libc::_exit(0);
        }
        drop(naming);
        let (mut status, mut steps): (_, Counts) = (0, [0; PARTS]);
        loop {
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child, "waitpid");
            if libc::WIFEXITED(status) {
                return steps;
            }
            steps[page.read_volatile() as usize] += 1;
            assert_eq!(libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0), 0, "single step");
        }
    }
}
