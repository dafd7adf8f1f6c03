//! Host tasks among themselves: each pCPU has a clock of its own for them (sched/account/task.h).

use crate::text::silent;
use sim::Ticks;

/// Longest wait of any world, in ms.
fn longest_ms(name: &str, text: &str, ticks: Ticks) -> u64 {
    let out = silent(&format!("host-tasks-{name}"), text, ticks);
    out.verdict.as_ref().expect("the oracle watches").ready_max_ns / 1_000_000
}

#[test]
fn one_that_slept_for_long_keeps_a_busy_one_waiting_for_its_credit() {
    let text = "duration = '20s'\n[host]\ncores_per_llc = 1\n\
        [[vm]]\nname = 'idle'\nvcpus = 1\nworkload = { kind = 'idle' }\n\
        [[host_task]]\nname = 'busy'\nworkload = { kind = 'burn' }\n\
        [[host_task]]\nname = 'rested'\nworkload = { kind = 'duty', work = '1s', sleep = '3s' }\n";
    for ticks in [Ticks::Aligned, Ticks::Staggered] {
        let longest = longest_ms("credit", text, ticks);
        println!("{ticks:?}: longest wait {longest} ms");
        // wake_credit_us and a tick for the slice that is under way
        assert!(longest <= 24, "{ticks:?}: {longest} ms");
    }
}

#[test]
fn one_that_comes_from_a_pcpu_whose_clock_is_far_ahead_waits_no_longer() {
    // The clock of pCPU 0 goes three times as fast as that of pCPU 1. The sleepers use both.
    let text = "duration = '20s'\n[host]\ncores_per_llc = 2\n\
        [[vm]]\nname = 'idle'\nvcpus = 1\nworkload = { kind = 'idle' }\n\
        [[host_task]]\nname = 'alone'\naffinity = '0'\nworkload = { kind = 'burn' }\n\
        [[host_task]]\nname = 'crowd'\ncount = 3\naffinity = '1'\nworkload = { kind = 'burn' }\n\
        [[host_task]]\nname = 'sleeper'\ncount = 3\n\
        workload = { kind = 'duty', work = '2ms', sleep = '9ms' }\n";
    for ticks in [Ticks::Aligned, Ticks::Staggered] {
        let longest = longest_ms("clocks", text, ticks);
        println!("{ticks:?}: longest wait {longest} ms");
        // Six others at most, for a tick each.
        assert!(longest <= 24, "{ticks:?}: {longest} ms");
    }
}
