//! Host tasks among themselves: each pCPU has a clock of its own for them (sched/account/task.h).

use crate::text::{self, silent};
use esxtop::{Counters, Role};
use sim::{Options, Peer, Policy, Ticks, run_watched};
use std::sync::{Arc, Mutex};
use units::Span;

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

/// Two that compute on one pCPU, nice 0 and 5, beside a VM: 1024 to 335 of what the VM leaves (100
/// to 33 in sched_ext's weights). Without nice values they have the same.
#[test]
fn they_share_what_is_theirs_by_their_nice_values_under_each_scheduler_that_has_these() {
    let text = "duration = '20s'\n[host]\ncores_per_llc = 1\n\
        [[vm]]\nname = 'vm'\nvcpus = 1\n\
        [[host_task]]\nname = 'kind'\nnice = 5\n[[host_task]]\nname = 'usual'\n";
    let scenario = text::scenario("host-tasks-nice", text);
    for (policy, least, most) in [
        (Policy::Tandem, 3.0, 3.07),
        (Policy::Peer(Peer::Cfs, None), 3.0, 3.1),
        (Policy::Peer(Peer::Eevdf, None), 3.0, 3.1),
        (Policy::Peer(Peer::Vtime, None), 3.0, 3.1),
    ] {
        let options = Options { policy, ..Options::default() };
        let used = |name: &str| {
            let (seen, whole) = (Arc::new(Mutex::new(0)), Span::from_secs(20));
            let (into, role) = (Arc::clone(&seen), Role::Task(name.to_owned()));
            let look = move |c: Counters| {
                let used =
                    c.worlds.values().find(|w| w.role == role).and_then(|w| w.totals.used_ns);
                *into.lock().expect("one thread") = used.unwrap_or(0);
                Some(whole)
            };
            run_watched(&scenario.runs[0], &options, whole, Box::new(look)).expect("it runs");
            let used = *seen.lock().expect("one thread");
            used as f64
        };
        let ratio = used("usual") / used("kind");
        println!("{policy}: {ratio:.3}");
        assert!((least..most).contains(&ratio), "{policy}: {ratio}");
    }
    let esx = Options { policy: "esx-5.1".parse().expect("a policy"), ..Options::default() };
    let refused = text::outcome("host-tasks-nice", text, &esx).expect_err("it has no nice values");
    assert!(refused.contains("nice values (host task 'kind')"), "{refused}");
}
