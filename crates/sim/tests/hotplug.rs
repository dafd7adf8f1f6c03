//! pCPUs that go off line and come on line again while worlds run: every world goes on, what is
//! left of the host is divided as ever, and nothing of the scheduler's is lost.

use crate::text::{silent, used_ms};
use sim::Ticks;

const TICKS: [Ticks; 2] = [Ticks::Aligned, Ticks::Staggered];

/// Half of eight pCPUs are off line for half of the time.
const HALF: &str = "[[offline]]\npcpus = '4-7'\nfrom = '2s'\nto = '6s'\n";

#[test]
fn what_is_left_of_the_host_is_divided_by_shares() {
    let text = format!(
        "duration = '8s'\n[host]\ncores_per_llc = 8\n{HALF}\
            [[vm]]\nname = 'rich'\nvcpus = 8\nshares = 6000\n\
            [[vm]]\nname = 'poor'\nvcpus = 8\nshares = 2000\n"
    );
    for ticks in TICKS {
        let out = silent("hotplug-shares", &text, ticks);
        // 4 s of eight pCPUs and 4 s of four: 48 s, 3:1.
        let (rich, poor) = (used_ms(&out, "rich"), used_ms(&out, "poor"));
        println!("{ticks:?}: rich {rich} ms, poor {poor} ms");
        assert!(rich + poor >= 47_980, "{rich} + {poor} ms: nothing of 48 s is wasted");
        assert!(rich.abs_diff(36_000) <= 100, "{rich} ms: two quanta of 36 s");
    }
}

/// Host tasks on eight pCPUs, of which one after another is off line for 200 ms; a pCPU that is
/// busy with host tasks pulls none from another.
fn host_tasks() -> String {
    let mut text = "duration = '10s'\n[host]\ncores_per_llc = 8\n\
        [[vm]]\nname = 'idle'\nvcpus = 1\nworkload = { kind = 'idle' }\n\
        [[host_task]]\nname = 'busy'\ncount = 12\nworkload = { kind = 'burn' }\n\
        [[host_task]]\nname = 'sleeper'\ncount = 2\n\
        workload = { kind = 'duty', work = '1ms', sleep = '20ms' }\n"
        .to_owned();
    for i in 0..24 {
        let (pcpu, from) = (1 + i % 7, 300 + 400 * i);
        text +=
            &format!("[[offline]]\npcpus = '{pcpu}'\nfrom = '{from}ms'\nto = '{}ms'\n", from + 200);
    }
    text
}

#[test]
fn no_host_task_waits_long_when_its_pcpu_goes() {
    for ticks in TICKS {
        let out = silent("hotplug-tasks", &host_tasks(), ticks);
        let longest = out.verdict.as_ref().expect("the oracle watches").ready_max_ns / 1_000_000;
        println!("{ticks:?}: longest wait {longest} ms");
        // A round of housekeeping until it is handed back, then three others for a tick each.
        assert!(longest <= 22, "{ticks:?}: {longest} ms");
    }
}

/// Two pCPUs are on line, and a VM may use two, of which one is not: counts are equal, but it may
/// not run everywhere. It waited in the queue of the third pCPU, where it may not run, for 5 s.
#[test]
fn one_that_may_use_as_many_pcpus_as_are_on_line_does_not_wait_where_it_may_not_run() {
    for to in ["2004ms", "2010ms", "2017ms", "2040ms"] {
        let text = format!(
            "duration = '10s'\n[host]\ncores_per_llc = 3\n\
                [[offline]]\npcpus = '0'\nfrom = '1s'\nto = '{to}'\n\
                [[vm]]\nname = 'a'\nvcpus = 2\naffinity = '0-1'\n[[vm]]\nname = 'b'\nvcpus = 3\n"
        );
        for ticks in TICKS {
            let (out, name) = (silent("hotplug-counts", &text, ticks), format!("{to} {ticks:?}"));
            let times = out.result.vms.iter().find(|v| v.name == "a").expect("it").times;
            println!("{name}: {} of {}", times.used_ns, times.entitled_ns);
            assert!(times.used_ns.abs_diff(times.entitled_ns) < times.entitled_ns / 50, "{name}");
        }
    }
}

/// A home node goes off line whole, pCPU by pCPU: its worlds are on their way from one of its
/// queues to the next as the last one goes. They waited behind another world for 26 ms, beside idle
/// pCPUs of their new home.
#[test]
fn the_worlds_of_a_home_node_that_goes_run_at_once_where_pcpus_idle() {
    for cores in [8, 12] {
        for ticks in TICKS {
            let text = format!(
                "duration = '17s'\n[host]\nsockets = 2\ncores_per_llc = {cores}\n[hardware]\n\
                 [numa]\n[[vm]]\nname = 'a'\nvcpus = 4\n[[vm]]\nname = 'b'\nvcpus = 4\n\
                 [[offline]]\npcpus = '{cores}-{}'\nfrom = '15s'\nto = '40s'\n",
                2 * cores - 1
            );
            let out = silent("hotplug-home", &text, ticks);
            let (a, b) = (used_ms(&out, "a"), used_ms(&out, "b"));
            println!("{cores} {ticks:?}: a {a} ms, b {b} ms");
            assert!(a.min(b) >= 67_950, "{cores}: {a} and {b} ms of 68,000");
        }
    }
}
