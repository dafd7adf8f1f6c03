//! Looking at a run while it goes on: it is the same run, and what was seen adds up to its result.

use esxtop::{Counters, Gid, GroupKind, Metric, Rates, Role, Totals};
use sim::{Options, run, run_watched};
use std::sync::{Arc, Mutex};
use units::Span;

fn scenario(name: &str) -> settings::Scenario {
    settings::load(&format!("{}/../../scenarios/{name}", env!("CARGO_MANIFEST_DIR")))
        .expect("the scenario loads")
}

/// The looks at a run of so many seconds, and its result.
fn watched(name: &str, seconds: u64, every: Span) -> (Vec<Counters>, views::RunResult) {
    watched_of(scenario(name), seconds, every)
}

fn watched_of(
    mut scenario: settings::Scenario,
    seconds: u64,
    every: Span,
) -> (Vec<Counters>, views::RunResult) {
    let seen = Arc::new(Mutex::new(vec![]));
    let into = Arc::clone(&seen);
    let mut one = scenario.runs.swap_remove(0);
    one.spec.warmup = Span::ZERO;
    let options = Options { duration: Some(Span::from_secs(seconds)), ..Options::default() };
    let on_look = move |c: Counters| {
        into.lock().expect("one thread").push(c);
        Some(every)
    };
    let outcome = run_watched(&one, &options, every, Box::new(on_look)).expect("it runs");
    let alone = run(&one, &options).expect("it runs");
    assert_eq!(
        format!("{:?}", outcome.result),
        format!("{:?}", alone.result),
        "looking changes nothing"
    );
    let looks = std::mem::take(&mut *seen.lock().expect("one thread"));
    (looks, outcome.result)
}

fn run_of(t: &Totals) -> [u64; 6] {
    [t.used_ns, t.run_ns, t.ready_ns, t.wait_ns, t.idle_ns, t.migrations]
        .map(|n| n.expect("the scheduler knows it"))
}

#[test]
fn what_was_seen_adds_up_to_the_result() {
    for name in ["demo", "pools-nested", "coming-and-going"] {
        let (looks, result) = watched(name, 12, Span::from_ms(700));
        assert_eq!(looks.len(), 19, "at 0, every 700 ms, and at the end");
        let (first, last) = (&looks[0], &looks[18]);
        assert_eq!((first.at_ns, last.at_ns), (0, 12_000_000_000));
        for vm in &result.vms {
            let Some((gid, group)) =
                last.groups.iter().find(|(_, g)| g.name == vm.name && g.kind == GroupKind::Vm)
            else {
                continue; // it is off at the end
            };
            let t = &vm.times;
            let want = [t.used_ns, t.run_ns, t.ready_ns, t.wait_ns, t.idle_ns, t.migrations];
            assert_eq!(run_of(&group.own), want, "{name}: {}", vm.name);
            let rates: f64 = looks
                .windows(2)
                .filter_map(|w| {
                    Some(
                        Rates::between(&w[0], &w[1])
                            .expect("time passed")
                            .groups
                            .get(gid)?
                            .values
                            .get(Metric::Run)?
                            * (w[1].at_ns - w[0].at_ns) as f64
                            / 100.0,
                    )
                })
                .sum();
            let unseen = looks
                .iter()
                .find(|l| l.groups.contains_key(gid))
                .and_then(|l| l.groups[gid].own.run_ns)
                .unwrap_or(0);
            assert!(
                (rates + unseen as f64 - t.run_ns as f64).abs() < 1e3,
                "{name}: {}: {rates} {}",
                vm.name,
                t.run_ns
            );
        }
        let busy: Vec<u64> = last.pcpus.iter().filter_map(|p| p.busy_ns).collect();
        assert_eq!(busy, result.pcpus.iter().map(|p| p.busy_ns).collect::<Vec<_>>());
    }
}

#[test]
fn a_vm_that_stops_leaves_its_group_and_totals_never_go_back() {
    let (looks, _) = watched("coming-and-going", 40, Span::from_ms(500));
    for pair in looks.windows(2) {
        for (gid, group) in &pair[0].groups {
            let Some(after) = pair[1].groups.get(gid).filter(|g| g.kind != GroupKind::Host) else {
                continue;
            };
            let back = run_of(&group.own).into_iter().zip(run_of(&after.own)).any(|(a, b)| b < a);
            assert!(!back, "{}: {:?} {:?}", group.name, group.own, after.own);
        }
    }
    let vms = |c: &Counters| c.groups.values().filter(|g| g.kind == GroupKind::Vm).count();
    let counts: Vec<usize> = looks.iter().map(vms).collect();
    assert!(counts.iter().max() > counts.iter().min(), "they come and go: {counts:?}");
}

#[test]
fn a_slice_that_is_used_up_counts_as_expired_and_sleepers_have_none() {
    let (looks, _) = watched("demo", 10, Span::from_secs(1));
    let last = looks.last().expect("looks");
    let of = |name: &str| last.groups.values().find(|g| g.name == name).expect("the VM").own;
    // One vCPU that is never put off: a slice of 50 ms, looked at by ticks of 4 ms, so 52 ms.
    let database = of("database");
    let expiries = database.quantum_expiries.expect("counted");
    assert!((150..=260).contains(&expiries), "10 s of slices of about 50 ms: {expiries}");
    assert!(database.switches.expect("counted") < 20, "it goes on without a switch");
    let web = of("web");
    assert!(
        web.wakeups.expect("counted") > 100
            && web.quantum_expiries.expect("counted") * 20 < web.wakeups.expect("counted"),
        "{web:?}"
    );
}

#[test]
fn settings_roles_and_ids_are_told() {
    let (looks, _) = watched("pools-nested", 2, Span::from_secs(1));
    let last = looks.last().expect("looks");
    let find = |name: &str| last.groups.iter().find(|(_, g)| g.name == name).expect("the group");
    let (prod, web, front) = (find("/prod"), find("/prod/web"), find("front"));
    assert_eq!(
        (front.1.parent, web.1.parent, prod.1.parent),
        (Some(*web.0), Some(*prod.0), Some(Gid::HOST))
    );
    assert!(prod.1.alloc.is_some() && front.1.gauges.emin_mhz.is_some_and(|mhz| mhz > 0.0));
    let worlds: Vec<_> = last.worlds.values().filter(|w| w.gid == *front.0).collect();
    assert!(worlds.iter().enumerate().all(|(i, w)| w.role == Role::Vcpu(i as u32)), "{worlds:?}");
    assert_eq!((last.unix_seconds, looks.len()), (sim::EPOCH_UNIX_S + 2, 3));
}

#[test]
fn a_run_ends_when_nobody_looks_any_more() {
    let one = scenario("demo").runs.swap_remove(0);
    let seen = Arc::new(Mutex::new(0));
    let into = Arc::clone(&seen);
    let on_look = move |c: Counters| {
        *into.lock().expect("one thread") = c.at_ns;
        (c.at_ns < 3_000_000_000).then_some(Span::from_secs(1))
    };
    let outcome = run_watched(
        &one,
        &Options { check: false, ..Options::default() },
        Span::from_secs(1),
        Box::new(on_look),
    );
    assert!(outcome.is_ok());
    assert_eq!(*seen.lock().expect("one thread"), 3_000_000_000);
}

/// Two threads of one core: one burns, the other half of the time. The core is never idle, and
/// shared half of the time.
#[test]
fn a_cores_time_is_that_of_its_threads_together() {
    let text = r#"
        title = "one core"
        source = "esxtop's CORE UTIL"
        duration = "10s"
        [host]
        cores_per_llc = 1
        threads_per_core = 2
        [[vm]]
        name = "burn"
        vcpus = 1
        affinity = "0"
        active = ["2s..8s"]
        [[vm]]
        name = "half"
        vcpus = 1
        affinity = "1"
        workload = { kind = "duty", work = "50ms", sleep = "50ms" }
    "#;
    let (looks, _) = watched_of(crate::text::scenario("one-core", text), 10, Span::from_ms(1000));
    let times = |c: &Counters| {
        let busy = |i: usize| c.pcpus[i].busy_ns.expect("known");
        let used = |i: usize| c.pcpus[i].used_ns.expect("known");
        assert_eq!((c.cores.len(), c.cores[0].id), (1, 0));
        (busy(0), busy(1), c.cores[0].busy_ns.expect("known"), used(0), used(1))
    };
    for look in &looks {
        let (burn, half, core, used_burn, used_half) = times(look);
        // Both at once is what they have together beyond the core's time.
        let shared = burn + half - core;
        assert_eq!(
            (used_burn, used_half),
            (burn - shared / 2, half - shared / 2),
            "at {}",
            look.at_ns
        );
        assert!(core <= look.at_ns && core >= burn.max(half), "{core} {burn} {half}");
    }
    let (burn, half, core, ..) = times(looks.last().expect("the end"));
    // 6 s of one, half of the other's 10 s: 3 s of which were beside it; wake-ups cost
    // microseconds.
    for (seen, want) in [(burn, 6_000), (half, 5_000), (core, 8_000)] {
        assert!(seen.abs_diff(want * 1_000_000) < 60_000_000, "{seen} ns, about {want} ms");
    }
}

#[test]
fn a_pcpu_that_a_real_time_task_has_is_in_use() {
    let text = r#"
        duration = "10s"
        [host]
        cores_per_llc = 2
        threads_per_core = 2
        [[realtime]]
        name = "packets"
        pcpus = "0-1"
        work = "3ms"
        period = "10ms"
        [[vm]]
        name = "burn"
        vcpus = 1
        affinity = "0"
        [[vm]]
        name = "half"
        vcpus = 1
        affinity = "2"
        workload = { kind = "duty", work = "50ms", sleep = "50ms" }
    "#;
    let scenario = crate::text::scenario("in-use", text);
    let (looks, result) = watched_of(scenario, 10, Span::from_ms(1000));
    let last = looks.last().expect("the end");
    let taken = &result.checked.as_ref().expect("it is checked").realtime_ns;
    assert!(taken[1].abs_diff(3_000_000_000) < 20_000_000 && taken[2..] == [0, 0], "{taken:?}");
    let busy: Vec<u64> = last.pcpus.iter().filter_map(|p| p.busy_ns).collect();
    let want: Vec<u64> = result.pcpus.iter().zip(taken).map(|(p, t)| p.busy_ns + t).collect();
    assert_eq!(busy, want);
    // pCPU 0 is always in use: of its core what both threads have at once is pCPU 1's time.
    assert!(busy[0].abs_diff(10_000_000_000) < 1_000_000, "{busy:?}");
    let used: Vec<u64> = last.pcpus.iter().filter_map(|p| p.used_ns).collect();
    let near = |seen: u64, want: u64| seen.abs_diff(want) < 1_000_000;
    assert!(near(used[0], busy[0] - busy[1] / 2) && near(used[1], busy[1] / 2), "{used:?}");
    let core = last.cores[0].busy_ns.expect("known");
    assert!(near(core, busy[0]), "{core} {busy:?}");
}
