//! The kernel's own account of a thread's time, under any scheduler: /proc/PID/task/TID/schedstat.

use crate::discover::Roots;
use std::fs;
use units::caps::PCPUS_MAX;
use views::Times;

/// Run and ready time of a thread since its start, in ns; `None` if it has ended.
pub(crate) fn thread_times(roots: &Roots, pid: i32, tid: i32) -> Option<Times> {
    let [run_ns, ready_ns, _] = thread_stat(roots, pid, tid)?;
    Some(Times { used_ns: run_ns, run_ns, ready_ns, ..Times::default() })
}

/// Run and ready time of a thread since its start, in ns, and the number of switches to it; `None`
/// if it has ended.
pub(crate) fn thread_stat(roots: &Roots, pid: i32, tid: i32) -> Option<[u64; 3]> {
    let text =
        fs::read_to_string(roots.proc_fs.join(format!("{pid}/task/{tid}/schedstat"))).ok()?;
    let mut words = text.split_whitespace().map(|w| w.parse::<u64>().ok());
    Some([words.next()??, words.next()??, words.next()??])
}

/// Time that tasks waited for any pCPU since the host started, in ns, and how often pCPUs switched
/// to one: the last two of nine fields of each `cpu` line of /proc/schedstat
/// (Documentation/scheduler/sched-stats.rst). `None` where the kernel does not count.
pub(crate) fn host_waits(roots: &Roots) -> Option<[u64; 2]> {
    let text = fs::read_to_string(roots.proc_fs.join("schedstat")).ok()?;
    let mut sums = [0; 2];
    let mut cpus = 0;
    for line in text.lines().filter(|l| l.starts_with("cpu")) {
        let words: Vec<u64> =
            line.split_whitespace().skip(1).filter_map(|w| w.parse().ok()).collect();
        sums = [sums[0] + words.get(7)?, sums[1] + words.get(8)?];
        cpus += 1;
    }
    (cpus > 0).then_some(sums)
}

/// Number of threads on the host: behind the slash of /proc/loadavg.
pub(crate) fn host_threads(roots: &Roots) -> Option<u64> {
    let text = fs::read_to_string(roots.proc_fs.join("loadavg")).ok()?;
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Busy time of each pCPU in ns since some moment, from what /proc/stat says of its idle time (in
/// steps of 10 ms): a tickless kernel measures that, while it counts busy time by ticks, of which
/// an emulated pCPU gets too few.
pub(crate) fn pcpu_busy(roots: &Roots, now_ns: u64) -> Vec<u64> {
    const TICK_NS: u64 = 10_000_000;
    let text = fs::read_to_string(roots.proc_fs.join("stat")).unwrap_or_default();
    let line = |l: &str| {
        let mut words = l.strip_prefix("cpu")?.split_whitespace();
        let id: usize = words.next()?.parse().ok()?; // none for the sum
        let ticks: Vec<u64> = words.filter_map(|w| w.parse().ok()).collect();
        // user nice system idle iowait
        Some((id, now_ns.saturating_sub((ticks.get(3)? + ticks.get(4)?) * TICK_NS)))
    };
    let mut busy = vec![];
    for (id, ns) in
        text.lines().filter(|l| !l.starts_with("cpu ")).filter_map(line).filter(|c| c.0 < PCPUS_MAX)
    {
        busy.resize(busy.len().max(id + 1), 0); // those that are not online are not listed
        busy[id] = ns;
    }
    busy
}

/// CPU time of a cgroup in ns (`usage_usec` of cpu.stat).
pub(crate) fn cgroup_usage(roots: &Roots, cgroup: &str) -> Option<u64> {
    let text =
        fs::read_to_string(roots.cgroup.join(cgroup.trim_start_matches('/')).join("cpu.stat"))
            .ok()?;
    text.lines()
        .find_map(|l| l.strip_prefix("usage_usec "))?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|us| us * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn what_the_kernel_counts_is_summed_up_and_what_it_does_not_is_unknown() {
        let proc_fs: PathBuf =
            std::env::temp_dir().join(format!("tandem-kernel-accounts-{}", std::process::id()));
        fs::create_dir_all(proc_fs.join("7/task/9")).unwrap();
        let roots = Roots { proc_fs: proc_fs.clone(), ..Roots::default() };
        assert_eq!(
            (host_waits(&roots), host_threads(&roots), thread_stat(&roots, 7, 9)),
            (None, None, None)
        );
        let schedstat = "version 15\ntimestamp 4294\ncpu0 0 0 0 0 0 0 500 30 4\ndomain0 3 1 \
            2\ncpu1 0 0 0 0 0 0 700 50 6\n";
        fs::write(proc_fs.join("schedstat"), schedstat).unwrap();
        fs::write(proc_fs.join("loadavg"), "0.10 0.20 0.30 2/345 6789\n").unwrap();
        fs::write(proc_fs.join("7/task/9/schedstat"), "111 22 3\n").unwrap();
        assert_eq!((host_waits(&roots), host_threads(&roots)), (Some([80, 10]), Some(345)));
        assert_eq!(thread_stat(&roots, 7, 9), Some([111, 22, 3]));
        assert_eq!(
            thread_times(&roots, 7, 9).map(|t| [t.used_ns, t.run_ns, t.ready_ns]),
            Some([111, 111, 22])
        );
        fs::remove_dir_all(proc_fs).unwrap();
    }
}
