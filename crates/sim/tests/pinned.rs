//! VMs that are pinned to a few pCPUs of a host whose other pCPUs idle: among them shares,
//! reservations and limits hold, and one that wants little does not wait.

use crate::text::{self, used_ms};
use sim::{Options, Outcome, Ticks};

const BOTH: [Ticks; 2] = [Ticks::Aligned, Ticks::Staggered];

fn outcome(name: &str, seconds: u64, pcpus: u64, vms: &[String], ticks: Ticks) -> Outcome {
    let whole = seconds + 1; // of which a second is the warm-up: the first plans know no demand
    let head = format!("duration = '{whole}s'\nwarmup = '1s'\n[host]\ncores_per_llc = {pcpus}\n");
    let name = format!("pinned-{name}");
    let options = Options { ticks, ..Options::default() };
    text::outcome(&name, &(head + &vms.concat()), &options)
        .unwrap_or_else(|e| panic!("{name} {ticks:?}: {e}"))
}

fn vm(name: &str, vcpus: u64, affinity: &str, more: &str) -> String {
    format!("[[vm]]\nname = '{name}'\nvcpus = {vcpus}\naffinity = '{affinity}'\n{more}\n")
}

/// Mean wait of the wake-ups of a VM, in us.
fn late_us(out: &Outcome, name: &str) -> u64 {
    out.result.wakeups.iter().find(|w| w.vm == name).expect("it wakes up").mean_ns / 1_000
}

/// Virtual time once went by what all pCPUs of the host could have served, and so twice as fast as
/// pinned VMs could follow: they were all behind by 100 ms, and one that woke, behind by 20 ms at
/// most, was the last of them: 86, 59, 54 and 63 ms.
#[test]
fn one_that_wants_little_does_not_wait_behind_the_busy_ones() {
    let short = "workload = { kind = 'duty', work = '200us', sleep = '5ms' }";
    let long = "workload = { kind = 'duty', work = '5ms', sleep = '45ms' }";
    let busy =
        |count: u64, vcpus: u64, on: &str| vm("busy", vcpus, on, &format!("count = {count}"));
    let hosts = [
        ("short", 4, vec![vm("little", 1, "0-1", short), busy(4, 1, "0-1")]),
        ("half", 8, vec![vm("little", 1, "0-3", short), busy(2, 4, "0-3")]),
        (
            "apart",
            12,
            vec![vm("little", 2, "4-7", short), busy(2, 4, "4-7"), vm("other", 2, "0-2", "")],
        ),
        ("long", 4, vec![vm("little", 1, "2", long), busy(2, 1, "2")]),
    ];
    for (name, pcpus, vms) in hosts {
        for ticks in BOTH {
            let late = late_us(&outcome(name, 10, pcpus, &vms, ticks), "little");
            // Before the first plan, of 100 ms, one of 200 wake-ups waits for a slice of 50 ms.
            assert!(late < 300, "{name} {ticks:?}: {late} us");
        }
    }
}

/// Of one pCPU of three, and of eight: 52, 48 and 17.5, 82.5 % before.
#[test]
fn reservations_and_limits_hold_on_one_pcpu() {
    let reserved =
        [vm("few", 1, "0", "shares = 1\nreservation = '60%'"), vm("many", 1, "0", "shares = 9000")];
    let limited = [vm("limited", 1, "2", "limit = '20%'"), vm("free", 1, "2", "")];
    for ticks in BOTH {
        let out = outcome("reserved", 10, 3, &reserved, ticks);
        let used = used_ms(&out, "few");
        assert!(used.abs_diff(6_000) < 60, "{ticks:?}: {used} ms");
        let out = outcome("limited", 10, 8, &limited, ticks);
        let used = used_ms(&out, "limited");
        assert!(used.abs_diff(2_000) < 20, "{ticks:?}: {used} ms");
    }
}

/// A VM that has a thousandth of its pCPU uses a quantum of 50 ms, which is 50 s of its virtual
/// time. The plan moved it back each time, and it had 9 %.
#[test]
fn shares_of_one_to_a_thousand_hold_on_one_pcpu() {
    let vms = [vm("few", 1, "0", "shares = 10"), vm("many", 1, "0", "shares = 10000")];
    for ticks in BOTH {
        let used = used_ms(&outcome("thousand", 20, 3, &vms, ticks), "few");
        // A world that has waited for 5 s runs for a quantum, whatever its shares are: 5 times.
        assert!(used <= 5 * 54, "{ticks:?}: {used} of 20,000 ms");
    }
}

/// A free VM as wide as the host has no room on the pCPU of VMs that are pinned to it and entitled
/// to all of it. While its gangs took the place of one of these though another waited, they had
/// 92 %.
#[test]
fn pinned_vms_keep_their_pcpu_beside_a_free_wide_vm() {
    for heavy in [3, 7, 12] {
        let vms = [
            vm("light", 1, "0", "shares = 1000"),
            vm("heavy", 1, "0", &format!("shares = {heavy}000")),
            vm("free", 8, "0-7", "shares = 100"),
        ];
        for ticks in BOTH {
            let out = outcome(&format!("beside-{heavy}"), 30, 8, &vms, ticks);
            for (name, part) in [("light", 1), ("heavy", heavy)] {
                let (used, due) = (used_ms(&out, name), 30_000 * part / (1 + heavy));
                // Until the first plan they have equal parts: 1 % of the pCPU.
                assert!(used.abs_diff(due) < 300, "{heavy} {ticks:?} {name}: {used} ms");
            }
        }
    }
}

/// A wait once counted as demand where VMs are pinned: one that wants 4 % and had waited looked
/// busy, the burners beside it were given a third of the pCPU each, and the free VM took a fifth of
/// it: 78 % of what was due to them. It then waited for them in its place: 2.6 ms in the mean.
#[test]
fn one_that_has_waited_is_not_taken_for_busy_and_does_not_wait_for_a_free_vm() {
    let little = "workload = { kind = 'duty', work = '200us', sleep = '5ms' }";
    let free = |shares| format!("[[vm]]\nname = 'free'\nvcpus = 4\nshares = {shares}\n");
    let hosts = [
        ("one", vec![vm("little", 1, "1", little), vm("busy", 1, "1", "count = 2"), free(4000)]),
        (
            "two",
            vec![vm("little", 1, "1-2", little), vm("busy", 1, "1-2", "count = 4"), free(4000)],
        ),
    ];
    for (name, vms) in hosts {
        for ticks in BOTH {
            let out = outcome(&format!("free-{name}"), 20, 4, &vms, ticks);
            let least = expect::worst_permille(&out.result).expect("it is entitled");
            assert!(least.0 <= 10, "{name} {ticks:?}: {least:?}");
            let late = late_us(&out, "little");
            assert!(late < 300, "{name} {ticks:?}: {late} us");
        }
    }
}

/// Of shares 1 to 9,000 the first is ahead by the seconds that its last slice was of its weight. At
/// as many shares as the other it once waited for all of them: 0.16 s of 5.
#[test]
fn new_shares_hold_at_once_for_one_that_is_far_ahead() {
    let change = "[[change]]\nat = '12s'\nvm = 'few'\nshares = 9000\n".to_owned();
    let vms = [vm("few", 1, "0", "shares = 1"), vm("many", 1, "0", "shares = 9000"), change];
    for ticks in BOTH {
        let used = used_ms(&outcome("change", 21, 3, &vms, ticks), "few");
        // Half of 10 s, and 50 ms in each 5 s before.
        assert!((4_900..=5_300).contains(&used), "{ticks:?}: {used} ms");
    }
}

/// A pool of 300 %, of whose VMs one is pinned to the first half of the host and one to the other,
/// beside `c`. What the limit admitted again was handed to the next world that might run on the
/// pCPU where one had stopped: `b` had 0.03 and 0.05 s of 10.
#[test]
fn a_limit_is_divided_by_shares_wherever_its_vms_are_pinned() {
    let pool = "[[pool]]\nname = 'p'\nlimit = '300%'\n".to_owned();
    let a = vm("a", 4, "0-3", "pool = 'p'");
    let few = vm("b", 2, "4-7", "pool = 'p'\nlimit = '50%'");
    let half = vm("b", 2, "4-7", "pool = 'p'");
    let c = |count: u64| vm("c", 4, "4-7", &format!("count = {count}"));
    for (name, b, beside, asked) in [
        ("limit-few", &few, 1, (50_000, 10_000)),
        // The tree would give the pool 2.67 pCPUs, but `c` may not run where `a` does.
        ("limit-crowd", &few, 2, (50_000, 10_000)),
        ("limit-half", &half, 1, (40_000, 20_000)),
    ] {
        for ticks in BOTH {
            let vms = [pool.clone(), a.clone(), b.clone(), c(beside)];
            let out = outcome(name, 20, 8, &vms, ticks);
            let used = (used_ms(&out, "a"), used_ms(&out, "b"));
            let near = |used: u64, asked: u64| used.abs_diff(asked) * 100 <= asked;
            assert!(near(used.0, asked.0) && near(used.1, asked.1), "{name} {ticks:?}: {used:?}");
        }
    }
}

/// A third VM that is pinned and hardly runs, and the division of the pool tree is that without it.
/// Each leaf weighed its part of the host before, and reservations of pools did not count: 20 %, 4
/// % and 40 %.
#[test]
fn pools_keep_reservations_and_parts_beside_a_vm_that_is_pinned() {
    let duty = |work: u32| {
        format!("workload = {{ kind = 'duty', work = '{work}ms', sleep = '{}ms' }}", 100 - work)
    };
    let pool = |more: &str| format!("[[pool]]\nname = 'pool'\n{more}\n");
    let change = "[[change]]\nat = '500ms'\npool = 'pool'\nreservation = '200%'\n".to_owned();
    let cases = [
        // Of two pCPUs 150 % are reserved for the pool.
        (
            "reserved",
            2,
            vec![
                pool("shares = 1000\nreservation = '150%'"),
                vm("a", 2, "0-1", "pool = 'pool'"),
                vm("b", 2, "0-1", "shares = 9000"),
                vm("pinned", 1, "0", &duty(1)),
            ],
            14_950,
        ),
        (
            "changed",
            4,
            vec![
                pool("shares = 100"),
                vm("a", 4, "0-3", "pool = 'pool'"),
                vm("b", 4, "0-3", "shares = 9000"),
                vm("pinned", 1, "0", &duty(1)),
                change,
            ],
            19_900,
        ),
        // What the sleeper leaves of the pool's half is its sibling's.
        (
            "siblings",
            2,
            vec![
                pool("shares = 4000"),
                vm("sleeper", 1, "0-1", &format!("pool = 'pool'\nshares = 3000\n{}", duty(1))),
                vm("a", 2, "0-1", "pool = 'pool'\nshares = 1000"),
                vm("b", 2, "0-1", "shares = 4000"),
                vm("pinned", 1, "0", &format!("shares = 100\n{}", duty(1))),
            ],
            9_750,
        ),
    ];
    for (name, pcpus, vms, least) in cases {
        for ticks in BOTH {
            let used = used_ms(&outcome(name, 10, pcpus, &vms, ticks), "a");
            println!("{name} {ticks:?}: {used} of {least}");
            assert!((least..least + 250).contains(&used), "{name} {ticks:?}: {used} of {least}");
        }
    }
}
