//! The time in which the daemon loads its scheduler anew, such as when a pCPU comes on line: its
//! readers wait for that, and end at once where the daemon has gone.

use crate::{HostError, Names, discover::Roots};
use std::{
    fs,
    time::{Duration, Instant},
};

/// A reader waits so long at most; a load takes a few seconds.
const LONGEST: Duration = Duration::from_secs(30);
/// How often it looks.
const EACH: Duration = Duration::from_millis(100);

/// What a reader of the accounts remembers of such a time.
#[derive(Debug, Default)]
pub struct Gap {
    since: Option<Instant>,
}

impl Gap {
    /// How long to wait before the next look, if `e` means that the daemon loads anew.
    pub fn wait(&mut self, e: &HostError) -> Option<Duration> {
        let loads = e.lacks_daemon()
            && Names::read().is_ok_and(|names| lives(&Roots::default(), names.daemon));
        self.lasts(loads, Instant::now()).then_some(EACH)
    }

    /// It is over.
    pub fn end(&mut self) {
        self.since = None;
    }

    fn lasts(&mut self, loads: bool, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        loads && now.saturating_duration_since(since) < LONGEST
    }
}

/// Whether a process is a daemon that has not ended.
fn lives(roots: &Roots, daemon: u32) -> bool {
    let dir = |process: &str| roots.proc_fs.join(process);
    let comm = |process: &str| fs::read_to_string(dir(process).join("comm")).unwrap_or_default();
    let daemon = daemon.to_string();
    let name = comm(&daemon);
    let ours = name.trim() == "tandem" || !name.is_empty() && name == comm("self");
    // A process that has ended and waits for its parent has no program.
    ours && fs::read_link(dir(&daemon).join("exe")).is_ok()
}

/// What `read` gives, read anew where the daemon was loading its scheduler anew meanwhile; `stop`
/// ends the wait.
///
/// # Errors
/// What `read` says where the daemon has gone, or is gone for long.
pub fn over_gaps<T>(
    stop: &dyn Fn() -> bool,
    read: &mut dyn FnMut() -> Result<T, HostError>,
) -> Result<T, HostError> {
    let mut gap = Gap::default();
    loop {
        match read() {
            Err(e) => match gap.wait(&e).filter(|_| !stop()) {
                Some(wait) => std::thread::sleep(wait),
                None => return Err(e),
            },
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    #[test]
    fn a_gap_lasts_as_long_as_the_daemon_loads_and_not_for_ever() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut gap = Gap::default();
        assert!(gap.lasts(true, at(0)) && gap.lasts(true, at(29)) && !gap.lasts(true, at(30)));
        gap.end();
        assert!(gap.lasts(true, at(40)) && !gap.lasts(false, at(41)), "it has gone");
    }

    #[test]
    fn a_daemon_lives_while_a_process_of_its_name_has_a_program() {
        let t = MadeUp::new("lives");
        t.process(10, "/usr/bin/tandem", b"tandem\0run\0", "/", &[]);
        t.process(20, "/usr/bin/bash", b"bash\0", "/", &[]);
        t.put("proc/10/comm", b"tandem\n");
        t.put("proc/20/comm", b"bash\n");
        t.put("proc/self/comm", b"tandem-new\n");
        let alive = |pid| lives(&t.roots(), pid);
        assert_eq!([alive(10), alive(20), alive(30)], [true, false, false]);
        fs::remove_file(t.path("proc/10/exe")).unwrap();
        assert!(!alive(10), "it waits for its parent");
    }

    #[test]
    fn what_fails_for_another_reason_is_not_tried_again() {
        let mut times = 0;
        let other = over_gaps::<()>(&|| false, &mut || {
            times += 1;
            Err(HostError::object("map a", "map it into memory", "12 bytes", "run the same"))
        });
        assert_eq!((other.is_err(), times), (true, 1));
    }
}
