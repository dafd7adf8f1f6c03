//! What a wake-up takes beside the scheduler: the path from a timer to READY, and the exit of a
//! pCPU from a deep idle state; in which states both are, and what the oracle makes of them.

use crate::text::{outcome, silent};
use sim::{Options, Outcome, Ticks};
use views::MeasuredBy;

/// A vCPU that works for 50 us and sleeps for 10 ms, on a host with these keys, beside others.
fn text(host: &str, more: &str) -> String {
    format!(
        "duration = '10s'\n[host]\n{host}\n[[vm]]\nname = 'waker'\nvcpus = 1\n\
            workload = {{ kind = 'duty', work = '50us', sleep = '10ms' }}\n{more}"
    )
}

/// Least, mean and most that the waker was late by, in ns.
fn late(out: &Outcome, by: MeasuredBy) -> [u64; 3] {
    let of = |w: &&views::Wakeups| w.vm == "waker" && w.by == by;
    let w = out.result.wakeups.iter().find(of).expect("it woke");
    [w.min_ns, w.mean_ns, w.max_ns]
}

/// Whether these are about evenly spread from the least to the most, in us.
fn spread(seen: [u64; 3], [least, most]: [u64; 2]) -> bool {
    let [least, most] = [1000 * least, 1000 * most];
    let near = (most - least) / 20;
    seen[0] >= least
        && seen[0] < least + near
        && seen[1].abs_diff((least + most) / 2) < near
        && (most - near..=most).contains(&seen[2])
}

/// Times of the waker in RUN, READY and WAIT, in ns.
fn states(out: &Outcome) -> [u64; 3] {
    let times = &out.result.vms[0].times;
    assert_eq!(times.costop_ns, 0);
    assert_eq!(times.run_ns + times.ready_ns + times.wait_ns, 10_000_000_000, "{times:?}");
    assert_eq!(times.used_ns, times.run_ns);
    [times.run_ns, times.ready_ns, times.wait_ns]
}

const PATH: &str = "cores_per_llc = 1\nwake_path = ['24us', '30us']\n";
const EXIT: &str = "cores_per_llc = 1\nidle_exit = ['40us', '130us']\n";

#[test]
fn a_vcpu_waits_for_the_path_of_its_wake_up_and_is_ready_after_it() {
    let out = silent("path", &text(PATH, ""), Ticks::Aligned);
    assert!(spread(late(&out, MeasuredBy::Workload), [26, 32]), "{out:?}");
    assert_eq!(late(&out, MeasuredBy::Scheduler), [0; 3]);
    let [run, ready, _] = states(&out);
    assert_eq!((run, ready), (out.stats.wakeups * 52_000, 0));
    // A host task is no vCPU: a round of it takes 10,052 us, of the waker 27 more.
    let task = "[[host_task]]\nname = 'a'\nworkload = { kind = 'duty', work = '50us', \
        sleep = '10ms' }\n";
    let out = silent("path-task", &text(&PATH.replace('1', "2"), task), Ticks::Aligned);
    let system = out.result.pools.iter().find(|p| p.path == "/system").expect("the system");
    let rounds = [states(&out)[0], system.used_ns].map(|ns| ns / 52_000);
    assert!((991..=993).contains(&rounds[0]) && rounds[1] >= 994, "{rounds:?}");
}

#[test]
fn a_world_is_ready_while_the_pcpu_leaves_a_deep_idle_state() {
    let out = silent("exit", &text(EXIT, ""), Ticks::Aligned);
    assert!(spread(late(&out, MeasuredBy::Workload), [42, 132]), "{out:?}");
    let waited = late(&out, MeasuredBy::Scheduler);
    assert!(spread(waited, [40, 130]), "{waited:?}");
    let [run, ready, _] = states(&out);
    let count = out.stats.wakeups;
    assert_eq!(run, count * 52_000);
    assert!(ready.abs_diff(count * waited[1]) < count, "{ready}");
    // The pCPU idles meanwhile.
    assert_eq!((out.pcpus[0].busy_ns, out.pcpus[0].idle_ns), (run, 10_000_000_000 - run));
    // It sleeps deeply only after its residency, and not at all while something runs.
    let shallow = format!("{EXIT}idle_residency = '11ms'\n");
    let burns = "[[vm]]\nname = 'b'\nvcpus = 1\n";
    for (name, host, more) in [("shallow", shallow.as_str(), ""), ("busy", EXIT, burns)] {
        let out = silent(&format!("exit-{name}"), &text(host, more), Ticks::Aligned);
        assert_eq!(late(&out, MeasuredBy::Workload), [2000; 3], "{name}");
    }
}

#[test]
fn the_oracle_allows_a_pcpu_its_exit_and_no_more() {
    // A pCPU may idle beside a READY world for 600 us, and for an exit of that world's.
    let host = "cores_per_llc = 2\nhz = 10000\nidle_exit = ['950us', '1ms']\n";
    let out = silent("exit-oracle", &text(host, ""), Ticks::Staggered);
    let [least, _, most] = late(&out, MeasuredBy::Scheduler);
    assert!(least >= 950_000 && most <= 1_001_000, "{least} {most}");
}

#[test]
fn delays_are_the_seeds_and_the_same_under_each_policy() {
    let both = "cores_per_llc = 1\nwake_path = ['24us', '30us']\nidle_exit = ['40us', '130us']\n";
    let text = text(both, "");
    let of = |policy: &str, seed| {
        let policy = policy.parse().expect("a policy");
        let options = Options { policy, seed: Some(seed), ..Options::default() };
        let out = outcome("delays", &text, &options).expect("it runs");
        late(&out, MeasuredBy::Workload)
    };
    let first = of("tandem", 1);
    assert!(first[0] >= 66_000 && first[2] <= 162_000, "{first:?}");
    assert_ne!(of("tandem", 2), first);
    let others = ["fifo", "vtime", "cfs", "eevdf", "esx-2.5.3", "esx-3.5", "esx-5.1"];
    for policy in others.into_iter().chain(["tandem", "xen-credit", "xen-credit2"]) {
        assert_eq!(of(policy, 1), first, "{policy}");
    }
}
