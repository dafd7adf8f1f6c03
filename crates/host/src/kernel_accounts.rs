//! What the kernel itself says of a thread's time, whatever scheduler runs it: /proc/PID/task/TID/schedstat.

use crate::discover::Roots;
use std::fs;
use units::caps::PCPUS_MAX;
use views::Times;

/// Run and ready time of a thread since it began, in ns; `None` when it has gone.
pub(crate) fn thread_times(roots: &Roots, pid: i32, tid: i32) -> Option<Times> {
    let text = fs::read_to_string(roots.proc_fs.join(format!("{pid}/task/{tid}/schedstat"))).ok()?;
    let mut words = text.split_whitespace().map(|w| w.parse::<u64>());
    let run_ns = words.next()?.ok()?;
    let ready_ns = words.next()?.ok()?;
    Some(Times { used_ns: run_ns, run_ns, ready_ns, ..Times::default() })
}

/// Busy time of each pCPU in ns since some moment, from what /proc/stat says of its idle time (in steps of 10 ms): a
/// tickless kernel measures that, while it counts busy time by ticks, of which an emulated pCPU gets too few.
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
    for (id, ns) in text.lines().filter(|l| !l.starts_with("cpu ")).filter_map(line).filter(|c| c.0 < PCPUS_MAX) {
        busy.resize(busy.len().max(id + 1), 0); // those that are not online are not listed
        busy[id] = ns;
    }
    busy
}

/// CPU time of a cgroup in ns (`usage_usec` of cpu.stat).
pub(crate) fn cgroup_usage(roots: &Roots, cgroup: &str) -> Option<u64> {
    let text = fs::read_to_string(roots.cgroup.join(cgroup.trim_start_matches('/')).join("cpu.stat")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("usage_usec "))?.trim().parse::<u64>().ok().map(|us| us * 1000)
}
