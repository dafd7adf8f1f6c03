//! Removes the files that are being written when a signal ends the program: Ctrl-C, a `kill`, a
//! terminal that closes.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{iterator::Signals, low_level};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that are there only until they are whole.
static DRAFTS: Mutex<Drafts> = Mutex::new(Drafts { paths: vec![], watched: false });

struct Drafts {
    paths: Vec<PathBuf>,
    watched: bool,
}

fn drafts() -> MutexGuard<'static, Drafts> {
    DRAFTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `make` make the file of that path, and removes it when a signal ends the program.
///
/// # Errors
/// As `make` does, and where no signal can be watched.
pub(crate) fn make(path: &Path, make: impl FnOnce() -> io::Result<File>) -> io::Result<File> {
    let mut all = drafts();
    if !all.watched {
        watch()?;
        all.watched = true;
    }
    let file = make()?;
    all.paths.push(path.to_owned());
    Ok(file)
}

/// Removes a file now, where it still has this name.
pub(crate) fn remove(path: &Path) {
    let mut all = drafts();
    let _ = fs::remove_file(path);
    all.paths.retain(|p| p != path);
}

/// Waits for the signals in a thread; those that the program ignores, as under nohup, it goes on
/// ignoring.
fn watch() -> io::Result<()> {
    let ignored = ignored();
    let signals = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|s| ignored >> (s - 1) & 1 == 0);
    let mut signals = Signals::new(signals)?;
    let end = move || {
        if let Some(signal) = signals.forever().next() {
            // Held to the end: no other draft is made.
            let all = drafts();
            all.paths.iter().for_each(|p| _ = fs::remove_file(p));
            let _ = low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(end).map(drop)
}

/// The signals that this program ignores, a bit each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}
