//! SMP guests whose vCPUs wait for each other: work and spinning, locks, barriers, interrupts, the
//! guest's watchdog; in exact numbers.

use check::Invariant;
use settings::Scenario;
use sim::{Costs, Options, Outcome, run};
use std::{fs, path::PathBuf};
use views::{Guest, Vm};

const MS: u64 = 1_000_000;

/// The scenario of one VM on a host of so many pCPUs; `more` are keys of the VM.
fn scenario(name: &str, pcpus: u32, duration: &str, more: &str) -> Scenario {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("guests-{name}.toml"));
    // A quantum of 50 ms ends at the tick of 52 ms. Two busy vCPUs on one pCPU run 0..52 ms,
    // 52..156, 156..260, 260..364, 364..468.
    let text = format!(
        "duration = '{duration}'\n[host]\ncores_per_llc = {pcpus}\n[knobs]\nquantum_us = \
            50000\ncosched = 0\n[[vm]]\nname = 'smp'\n{more}\n"
    );
    fs::write(&path, text).expect("the test's folder can be written");
    settings::load(&path.to_string_lossy()).expect("the scenario loads")
}

/// One run of it on an ideal machine, with a silent oracle.
fn outcome(name: &str, pcpus: u32, duration: &str, more: &str) -> Outcome {
    let options = Options { costs: Costs::ZERO, ..Options::default() };
    let outcome = run(&scenario(name, pcpus, duration, more).runs[0], &options).expect("it runs");
    let verdict = outcome.verdict.as_ref().expect("the oracle watches");
    assert_eq!(verdict.violated(), 0, "{name}: {:?}", verdict.violations);
    outcome
}

fn vm(name: &str, pcpus: u32, duration: &str, more: &str) -> Vm {
    outcome(name, pcpus, duration, more).result.vms.remove(0)
}

fn guest(vm: &Vm) -> Guest {
    vm.guest.expect("its vCPUs wait for each other")
}

/// Work and spinning in ms, and rounds.
fn progress(vm: &Vm) -> (u64, u64, u64) {
    let g = guest(vm);
    assert_eq!(
        vm.times.used_ns,
        vm.times.work + g.spin_ns,
        "on an ideal machine CPU time is work or spinning"
    );
    assert_eq!((vm.times.work % MS, g.spin_ns % MS), (0, 0));
    (vm.times.work / MS, g.spin_ns / MS, g.rounds)
}

const LOCK: &str =
    "vcpus = 2\nworkload = { kind = 'spinlock', think = '4ms', hold = '5ms', ticket = TICKET }";

fn lock(ticket: bool) -> String {
    LOCK.replace("TICKET", &ticket.to_string())
}

#[test]
fn two_vcpus_that_both_run_hand_the_lock_over_at_the_instant_of_its_release() {
    let x = vm(
        "handover",
        2,
        "41ms",
        "vcpus = 2\nworkload = { kind = 'spinlock', think = '1ms', hold = '2ms' }",
    );
    // vCPU 0: 1 ms of thought, then 2 ms with the lock, 1 ms of thought, 1 ms of spinning, and so
    // on. vCPU 1 the same, 2 ms later.
    assert_eq!(progress(&x), (61, 21, 19));
    assert_eq!((x.worlds[0].times.work, x.worlds[1].times.work), (31 * MS, 30 * MS));
    assert_eq!(
        guest(&x),
        Guest { spin_ns: 21 * MS, rounds: 19, lockups: 0, longest_wait_ns: 2 * MS, tasks: None }
    );
}

#[test]
fn while_the_holder_is_preempted_its_sibling_burns_all_its_time() {
    // vCPU 0 is preempted at 52 ms, 3 ms after it took the lock for the sixth time; vCPU 1 thinks
    // for 4 ms and spins for 100.
    let out = outcome("preempted", 1, "156ms", &lock(false));
    let x = &out.result.vms[0];
    assert_eq!(progress(x), (52 + 4, 100, 5));
    assert_eq!(guest(x).longest_wait_ns, 104 * MS); // vCPU 0 in READY, to the end
    assert_eq!(out.stats.pause_loop_exits, 2000); // after 10 us, then every 50 us
}

#[test]
fn a_ticket_waits_for_who_came_first_though_it_does_not_run() {
    // From 156 ms on vCPU 0 runs again and releases the lock at 158 ms, when vCPU 1 does not run.
    // It can have it again and again, and at 260 ms, when vCPU 1 runs, it is free.
    let x = vm("plain", 1, "360ms", &lock(false));
    assert_eq!(progress(&x), (52 + 4 + 104 + 100, 100, 5 + (1 + 11) + (1 + 10)));
    assert_eq!(guest(&x).longest_wait_ns, (260 - 56) * MS);
    // A ticket lock goes to vCPU 1 all the same: vCPU 0 thinks and spins, and vCPU 1 does the same
    // to it from 269 ms on.
    let x = vm("ticket", 1, "360ms", &lock(true));
    assert_eq!(progress(&x), (52 + 4 + (2 + 4) + (5 + 4), 100 + 98 + 91, 5 + 1 + 1));
    assert_eq!(guest(&x).longest_wait_ns, (260 - 56) * MS);
}

#[test]
fn a_watchdog_reports_each_silence_that_is_longer_than_it_allows() {
    let lockups = |watchdog: &str| {
        let x = vm(
            &format!("dog-{watchdog}"),
            1,
            "156ms",
            &format!("watchdog = '{watchdog}'\n{}", lock(false)),
        );
        guest(&x).lockups
    };
    // vCPU 1 did not run for 52 ms, then spun for 100 ms. vCPU 0 has not run again when the run
    // ends.
    assert_eq!(["51ms", "52ms", "99990us", "100ms"].map(lockups), [2, 1, 1, 0]);
    // Waits of 1 and, once, of 2 ms are longer than 1 ms once, and never longer than 2.
    let handover = |watchdog: &str| {
        let keys = format!(
            "vcpus = 2\nwatchdog = '{watchdog}'\nworkload = {{ kind = 'spinlock', think = '1ms', \
                hold = '2ms' }}"
        );
        guest(&vm(&format!("dog-handover-{watchdog}"), 2, "41ms", &keys)).lockups
    };
    assert_eq!(["1ms", "1999us", "2ms"].map(handover), [1, 1, 0]);
    // It reports a wait once, however long, and when the vCPU runs: vCPU 0 is in READY 52..156 and
    // spins 162..260, which is too long when it runs again at 364; vCPU 1 spins 56..156 and
    // 269..364, which is too long at 260 and at 468. What they wait for from 373 and 477 on is not
    // reported yet.
    let x = vm("dog-ticket", 1, "560ms", &format!("watchdog = '100ms'\n{}", lock(true)));
    assert_eq!(guest(&x).lockups, 4);
}

#[test]
fn a_watchdog_looks_at_burners_too_and_not_at_vcpus_that_are_halted() {
    let x = vm("dog-burn", 1, "250ms", "vcpus = 2\nwatchdog = '40ms'");
    assert_eq!(
        guest(&x),
        Guest { spin_ns: 0, rounds: 0, lockups: 2, longest_wait_ns: 104 * MS, tasks: None }
    );
    let halted =
        "vcpus = 2\nwatchdog = '1ms'\nvcpu_workloads = [{ kind = 'burn' }, { kind = 'idle' }]";
    assert_eq!(guest(&vm("dog-idle", 1, "156ms", halted)), Guest::default());
}

#[test]
fn a_barrier_on_one_pcpu_costs_the_rest_of_each_quantum() {
    // vCPU 0 works 0..20 and spins to 52; vCPU 1 works 52..92, spins to 156; vCPU 0 works
    // 156..196, spins to 260.
    let x = vm("barrier", 1, "260ms", "vcpus = 2\nworkload = { kind = 'barrier', work = '20ms' }");
    assert_eq!(progress(&x), (100, 32 + 64 + 64, 2));
    // One that halts after 2 ms of it leaves the pCPU to the other.
    let x = vm(
        "barrier-2ms",
        1,
        "156ms",
        "vcpus = 2\nworkload = { kind = 'barrier', work = '20ms', spin = '2ms' }",
    );
    // Each time one waits for 2 ms and not more; the fourth wait is not over.
    assert_eq!(progress(&x), (148, 8, 3));
}

#[test]
fn a_barrier_counts_those_that_take_part_and_wakes_those_that_halted() {
    let workloads = |spin: &str| {
        let one = |work: &str| format!("{{ kind = 'barrier', work = '{work}'{spin} }}");
        format!("vcpus = 3\nvcpu_workloads = [{}, {}, {{ kind = 'idle' }}]", one("1ms"), one("3ms"))
    };
    // Each 3 ms: vCPU 0 works for 1 and waits for 2. The last barrier would open at the end.
    assert_eq!(progress(&vm("members", 3, "30ms", &workloads(""))), (10 + 30, 20, 9));
    // A wait under way counts as long as it is: the first barrier opens at 3 ms.
    assert_eq!(guest(&vm("under-way", 3, "2930us", &workloads(""))).longest_wait_ns, 1_930_000);
    let x = vm("halts", 3, "30ms", &workloads(", spin = '1ms'"));
    assert_eq!(progress(&x), (10 + 30, 10, 9));
    assert_eq!(x.worlds[0].times.idle_ns, 10 * MS);
    assert_eq!(guest(&x).longest_wait_ns, MS, "one that is halted does not spin");
    let x = vm("blocks", 3, "30ms", &workloads(", spin = '0s'"));
    assert_eq!(progress(&x), (10 + 30, 0, 9));
}

#[test]
fn an_interrupt_wakes_a_halted_sibling_and_its_sender_spins_until_it_is_handled() {
    let ipi = "{ kind = 'ipi', work = '4ms', handle = '1ms' }";
    let x = vm(
        "ipi-halted",
        2,
        "50ms",
        &format!("vcpus = 2\nvcpu_workloads = [{ipi}, {{ kind = 'idle' }}]"),
    );
    assert_eq!(progress(&x), (40 + 10, 10, 9));
    assert_eq!((x.worlds[1].times.run_ns, x.worlds[1].times.idle_ns), (10 * MS, 40 * MS));
    // One that burns is interrupted.
    let x = vm(
        "ipi-burns",
        2,
        "50ms",
        &format!("vcpus = 2\nvcpu_workloads = [{ipi}, {{ kind = 'burn' }}]"),
    );
    assert_eq!(progress(&x), (40 + 50, 10, 9));
    // Both are done at 4 ms. vCPU 0 sends first and spins while vCPU 1 handles it; then the other
    // way round; at 6 ms both work again.
    let x = vm("ipi-both", 2, "50ms", &format!("vcpus = 2\nworkload = {ipi}"));
    assert_eq!(progress(&x), (2 * (8 * 5 + 2), 16, 16));
    // On one pCPU vCPU 0 works 0..4 and spins to 52; vCPU 1 handles that, works 53..57 and spins to
    // 156.
    let x = vm("ipi-one", 1, "156ms", &format!("vcpus = 2\nworkload = {ipi}"));
    assert_eq!(progress(&x), (4 + 5, 48 + 99, 1));
}

#[test]
fn a_sleeper_that_an_interrupt_wakes_sleeps_on_and_loses_no_work() {
    let with = |first: &str| {
        let more = format!(
            "vcpus = 2\nvcpu_workloads = [{first}, {{ kind = 'periodic', period = '10ms', work = \
                '2ms' }}]"
        );
        vm(&format!("sleeper-{}", first.len()), 2, "1005ms", &more)
    };
    let (alone, asked) =
        (with("{ kind = 'idle' }"), with("{ kind = 'ipi', work = '3100us', handle = '300us' }"));
    // Some releases come while an interrupt is handled.
    let handled = guest(&asked).rounds * 300_000;
    assert!(guest(&asked).rounds > 250);
    let (before, after) = (alone.worlds[1].times.work, asked.worlds[1].times.work - handled);
    assert!(before.abs_diff(after) <= 2 * MS, "{before} {after}");
    assert_eq!(guest(&asked).spin_ns + asked.worlds[0].times.work, 1005 * MS);
}

#[test]
fn a_window_that_closes_lets_the_holder_finish_and_nobody_else() {
    let keys = "vcpus = 2\nworkload = { kind = 'spinlock', think = '1ms', hold = '2ms' }\n";
    // vCPU 0 holds the lock 1..3, vCPU 1 spins 1..2.
    assert_eq!(
        progress(&vm("close", 2, "9ms", &format!("{keys}active = ['..2ms']"))),
        (3 + 1, 1, 1)
    );
    assert_eq!(
        progress(&vm("reopen", 2, "14ms", &format!("{keys}active = ['..2ms', '10ms..']"))),
        (4 + 4 + 2, 1 + 2, 2)
    );
    assert_eq!(progress(&vm("off", 2, "9ms", &format!("{keys}stop = '2ms'"))), (2 + 1, 1, 0));
    // Opened again while vCPU 0 still holds it: it goes on to 3, and vCPU 1, which thinks 1.8..2.8,
    // waits for it.
    let x = vm("soon", 2, "5500us", &format!("{keys}active = ['..1500us', '1800us..']"));
    assert_eq!((x.times.work, guest(&x).spin_ns, guest(&x).rounds), (9 * MS, 1_700_000, 2));
    // A barrier begins anew.
    let barrier = "vcpus = 2\nvcpu_workloads = [{ kind = 'barrier', work = '1ms' }, { kind = \
        'barrier', work = '3ms' }]\n";
    assert_eq!(
        progress(&vm("anew", 2, "17ms", &format!("{barrier}active = ['..2ms', '10ms..']"))),
        (1 + 2 + 3 + 7, 1 + 4, 2)
    );
}

#[test]
fn a_vm_of_one_vcpu_waits_for_nobody() {
    let of = |kind: &str| {
        progress(&vm(
            &format!("one-{}", kind.len()),
            1,
            "41ms",
            &format!("vcpus = 1\nworkload = {{ kind = '{kind}' }}"),
        ))
    };
    assert_eq!(of("spinlock', think = '1ms', hold = '3ms"), (41, 0, 10));
    assert_eq!(of("barrier', work = '4ms"), (41, 0, 10));
    assert_eq!(of("ipi', work = '4ms', handle = '1ms"), (41, 0, 0));
}

#[test]
fn a_single_thread_in_a_wide_vm_gets_a_whole_pcpu() {
    let idle = ", { kind = 'idle' }".repeat(7);
    let x =
        vm("single", 2, "1s", &format!("vcpus = 8\nvcpu_workloads = [{{ kind = 'burn' }}{idle}]"));
    assert_eq!((x.times.work, x.times.used_ns, x.times.idle_ns), (1000 * MS, 1000 * MS, 7000 * MS));
    assert_eq!(x.guest, None);
}

#[test]
fn what_came_meanwhile_is_seen_only_after_the_switch_that_is_under_way() {
    // vCPU 1 runs from 52 ms on and vCPU 0 again from 156: work begins a ms later. vCPU 0 has done
    // its piece at 259 and is the last at the barrier; vCPU 1, which has spun since 63, sees it
    // when it is in the guest again, after 260.
    let options = Options { costs: Costs { switch_ns: MS, ..Costs::ZERO }, ..Options::default() };
    let keys = "vcpus = 2\nvcpu_workloads = [{ kind = 'barrier', work = '153ms' }, { kind = \
        'barrier', work = '10ms' }]";
    let x = run(&scenario("switch", 1, "270ms", keys).runs[0], &options)
        .expect("it runs")
        .result
        .vms
        .remove(0);
    assert_eq!((guest(&x).rounds, guest(&x).spin_ns), (1, (156 - 63) * MS));
    assert_eq!(guest(&x).longest_wait_ns, (261 - 63) * MS);
    assert_eq!(x.times.used_ns, x.times.work + guest(&x).spin_ns + 4 * MS);
}

/// Hosts of 1 to 4 pCPUs with VMs of all kinds of siblings, windows and limits among them.
fn random_text(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |n: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut text =
        format!("seed = {seed}\nduration = '6s'\n[host]\ncores_per_llc = {}\n", 1 + below(4));
    for vm in 0..1 + below(4) {
        let (vcpus, ticket) = (1 + below(6), below(2) == 0);
        let mut kind = || {
            let (a, b, dist) =
                (1 + below(3000), 1 + below(300), ["fixed", "exponential"][below(2) as usize]);
            match below(7) {
                0 | 1 => format!(
                    "{{ kind = 'spinlock', think = '{a}us', hold = '{b}us', ticket = {ticket}, \
                        dist = '{dist}' }}"
                ),
                2 => format!("{{ kind = 'barrier', work = '{a}us', dist = '{dist}' }}"),
                3 => format!("{{ kind = 'barrier', work = '{a}us', spin = '{b}us' }}"),
                4 | 5 => {
                    format!("{{ kind = 'ipi', work = '{a}us', handle = '{b}us', dist = '{dist}' }}")
                }
                _ => {
                    format!("{{ kind = 'io', work = '{b}us', sleep = '{a}us', halts = {ticket} }}")
                }
            }
        };
        let first = kind();
        let all: Vec<String> = (0..vcpus).map(|_| kind()).collect();
        let what = if seed % 2 == 0 {
            format!("workload = {first}")
        } else {
            format!("vcpu_workloads = [{}]", all.join(", "))
        };
        let more = [
            "",
            "active = ['..700ms', '701ms..1500ms', '1501ms..']",
            "limit = '70%'",
            "start = '300ms'",
        ][below(4) as usize];
        text += &format!(
            "[[vm]]\nname = 'v{vm}'\nvcpus = {vcpus}\nwatchdog = '20ms'\n{what}\n{more}\n"
        );
    }
    text
}

#[test]
fn random_guests_never_stand_still_and_one_seed_decides_all() {
    for seed in 0..60 {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("guests-random.toml");
        fs::write(&path, random_text(seed)).expect("the test's folder can be written");
        let scenario = settings::load(&path.to_string_lossy())
            .unwrap_or_else(|e| panic!("{e}\n{}", random_text(seed)));
        let done = |duration: Option<units::Span>| {
            let options = Options { duration, ticks: sim::Ticks::Staggered, ..Options::default() };
            run(&scenario.runs[0], &options).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
        };
        let (whole, again, half) = (done(None), done(None), done(Some(units::Span::from_secs(3))));
        let verdict = whole.verdict.as_ref().expect("the oracle watches");
        // The ideal takes time in READY for a claim. A vCPU that sleeps or halts after each short
        // burst is never given it later, for there is nothing more to do then; that may pass for
        // lag.
        let sleeps = ["spin = ", "'io'"].iter().any(|k| random_text(seed).contains(k));
        let allowed = if sleeps { verdict.count(Invariant::Lag) } else { 0 };
        assert_eq!(verdict.violated(), allowed, "seed {seed}: {:?}", verdict.violations);
        let json = |o: &Outcome| serde_json::to_string(&o.result).expect("JSON");
        assert_eq!((json(&whole), whole.stats), (json(&again), again.stats), "seed {seed}");
        for (x, before) in whole.result.vms.iter().zip(&half.result.vms) {
            let (g, earlier) = (guest(x), guest(before));
            assert!(x.times.work + g.spin_ns <= x.times.used_ns, "seed {seed}: {x:?}");
            let meets = earlier.rounds > 0 || g.spin_ns > 0;
            assert!(
                !meets || g.rounds > earlier.rounds,
                "seed {seed}: VM {} stands still: {earlier:?} {g:?}",
                x.name
            );
        }
    }
}

#[test]
fn a_lock_of_64_vcpus_costs_events_by_its_rounds_and_not_by_time() {
    let keys = "vcpus = 64\nworkload = { kind = 'spinlock', think = '900us', hold = '10us', dist = \
        'exponential' }";
    let out = outcome("wide", 64, "2s", keys);
    let g = guest(&out.result.vms[0]);
    assert!(g.rounds > 100_000, "{g:?}");
    // The end of thought, the end of the hold, the look of the next; ticks and exits beside them.
    let beside = 2 * 250 * 64 + out.stats.pause_loop_exits + 1000;
    assert!(
        out.stats.events < 3 * g.rounds + beside,
        "{} events for {} rounds",
        out.stats.events,
        g.rounds
    );
}
