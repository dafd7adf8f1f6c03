//! How long the scheduler's table of threads is to be: as long as the kernel lets threads be.

use std::{fs, path::Path};

use crate::HostError;
use units::caps::WORLDS_MAX;

/// Slots for threads that have just ended, and the least that there are: a kernel starts threads
/// of its own beyond its limit.
const LEAST: u64 = 4096;

/// Slots of the table of threads for this host; slot 0 stands for no thread. There are more than
/// the kernel lets threads be: the slot of one that has ended is free a moment later than its
/// number. Each has the size of a `World`: with the kernel's own limit, one thread for each 128 KB,
/// they take 0.4 % of memory.
///
/// # Errors
/// `HostError::Object` when more threads run than the largest table has slots.
pub(crate) fn slots() -> Result<u32, HostError> {
    slots_of(Path::new("/proc"))
}

fn slots_of(proc: &Path) -> Result<u32, HostError> {
    let limit = |name: &str| -> u64 {
        let text = fs::read_to_string(proc.join("sys/kernel").join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(WORLDS_MAX as u64)
    };
    let allowed = limit("threads-max").min(limit("pid_max"));
    let running = running(&fs::read_to_string(proc.join("loadavg")).unwrap_or_default());
    let most = WORLDS_MAX as u64 - 1;
    if running > most {
        return Err(HostError::object(
            "host",
            "give each thread its slot in the scheduler's table",
            format!("{running} threads, allowed {most}"),
            "find the program with so many threads: ps -eLo comm | sort | uniq -c | sort -n",
        ));
    }
    // Twice those that run: the limits may have been lowered below them.
    let wanted = (allowed + allowed / 8).max(2 * running) + LEAST;
    let wanted = wanted.min(most);
    Ok(wanted as u32 + 1)
}

/// Threads that exist, by the fourth word of /proc/loadavg: "3/512".
fn running(loadavg: &str) -> u64 {
    let word = loadavg.split_whitespace().nth(3).and_then(|w| w.split_once('/'));
    word.and_then(|(_, all)| all.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(threads_max: &str, pid_max: &str, loadavg: &str) -> Result<u32, String> {
        let name = format!("tandem-threads-{}-{threads_max}-{pid_max}", std::process::id());
        let proc = std::env::temp_dir().join(name);
        let kernel = proc.join("sys/kernel");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("threads-max"), threads_max).unwrap();
        fs::write(kernel.join("pid_max"), pid_max).unwrap();
        fs::write(proc.join("loadavg"), format!("0.1 0.2 0.3 {loadavg} 99\n")).unwrap();
        let out = slots_of(&proc).map_err(|e| e.to_string());
        fs::remove_dir_all(&proc).unwrap();
        out
    }

    #[test]
    fn the_table_has_room_for_all_threads_that_the_kernel_allows() {
        assert_eq!(of("63000\n", "4194304\n", "1/500"), Ok(63_000 * 9 / 8 + 4097));
        assert_eq!(of("63000\n", "32768\n", "1/500"), Ok(32_768 * 9 / 8 + 4097));
        assert_eq!(of("4000000\n", "4194304\n", "1/500"), Ok(1 << 20), "the largest there is");
        assert_eq!(of("1000\n", "32768\n", "1/500"), Ok(5222), "kernel threads come all the same");
        assert_eq!(of("9000\n", "32768\n", "3/8000"), Ok(20_097), "the limit was lowered");
        assert_eq!(of("junk", "", "junk"), Ok(1 << 20));
    }

    #[test]
    fn more_threads_than_the_largest_table_has_are_named() {
        let text = of("4000000", "4194304", "1/1048576").unwrap_err();
        assert!(text.contains("1048576 threads, allowed 1048575"), "{text}");
    }
}
