//! Long life: a scheduler that has been loaded for ten years decides as one that was loaded just
//! now, while its clock passes an end of the budgets' stamps (2^43 ns) and virtual time an end of
//! the queues' keys (2^56 ns); and a busy host for days.

use esxtop::{Counters, GroupKind};
use sim::{Age, Options, run_scenario, run_watched};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use units::Span;

/// Both ends are passed so long into the run: whole units of the keys, which are rounded down.
const AT_NS: u64 = 1 << 31;
const STAMPS_NS: u64 = 1 << 43;
const KEYS_NS: u64 = 1 << 56;
/// Virtual time of an empty host (`V_START` in sched/law/share.h).
const V_START: u64 = 1 << 50;
/// A clock that begins at 0 would differ: 0 says in records that there is no time yet.
const HOUR_NS: u64 = 3600 * 1_000_000_000;
const TEN_YEARS_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// What comes out of a scenario, to the byte.
fn outcome(name: &str, age: Age) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name);
    let scenario = settings::load(&path.to_string_lossy()).expect("the scenario loads");
    let warmup = scenario.runs[0].spec.warmup.ns();
    let duration = Span::from_ns(warmup + 3 * AT_NS);
    let options = Options { duration: Some(duration), age, ..Options::default() };
    let document = run_scenario(&scenario, &options, |_| ()).expect("it runs");
    serde_json::to_string(&document).expect("JSON")
}

/// Two seconds before an end of so many ns that comes after ten years.
fn before_an_end(of_ns: u64) -> u64 {
    TEN_YEARS_NS.next_multiple_of(of_ns) - AT_NS
}

#[test]
fn after_ten_years_everything_is_as_in_the_first_second() {
    let fresh = Age { clock_ns: HOUR_NS, virtual_ns: 0 };
    let clock = Age { clock_ns: before_an_end(STAMPS_NS), ..fresh };
    let virtual_time = Age { virtual_ns: before_an_end(KEYS_NS) - V_START, ..fresh };
    let names = ["pools-nested", "pool-limit", "up-smp-mix", "sleepers", "coming-and-going"];
    for name in names {
        let young = outcome(name, fresh);
        for age in [clock, virtual_time] {
            assert!(outcome(name, age) == young, "{name} with {age:?}");
        }
    }
}

/// A host of two LLCs on which more is wanted than there is: VMs that compute, sleep, wait for each
/// other, are limited, have a reservation, and that come and go for half a minute; host tasks.
const BUSY: &str = "
[host]
sockets = 2
cores_per_llc = 4
[[pool]]
name = 'capped'
shares = 16000
limit = '150%'
[[vm]]
name = 'burner'
vcpus = 4
shares = 4000
[[vm]]
name = 'wide'
vcpus = 8
shares = 8000
[[vm]]
name = 'batch'
count = 2
vcpus = 2
pool = 'capped'
[[vm]]
name = 'reserved'
vcpus = 2
shares = 100
reservation = '100%'
[[vm]]
name = 'by-turns'
vcpus = 4
shares = 4000
workload = { kind = 'duty', work = '10s', sleep = '30s' }
[[vm]]
name = 'disk'
vcpus = 2
workload = { kind = 'io', work = '1ms', sleep = '20ms', dist = 'exponential' }
[[vm]]
name = 'locks'
vcpus = 2
workload = { kind = 'spinlock', think = '20ms', hold = '2ms', dist = 'exponential' }
[[host_task]]
name = 'backup'
count = 2
workload = { kind = 'io', work = '2ms', sleep = '30ms', dist = 'exponential' }
";
/// What is simulated without HOURS.
const MINUTES: u64 = 2;
/// What a minute may differ from what it should be: two quanta of 50 ms at each end, of 90 s of
/// CPU time and more.
const MINUTE_PERMILLE: u64 = 2;

/// CPU time of the VMs until a look, in ns, by name.
type Used = BTreeMap<String, u64>;

/// `HOURS=72 cargo test -p sim --test all busy_host` simulates days, an hour in half a minute.
#[test]
fn a_busy_host_is_as_fair_in_every_minute_of_days_as_in_the_first() {
    let hours = std::env::var("HOURS").ok().and_then(|n| n.parse::<u64>().ok());
    let minutes = hours.map_or(MINUTES, |n| n * 60);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("busy-host.toml");
    std::fs::write(&path, BUSY).expect("the test's folder can be written");
    let scenario = settings::load(&path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}"));
    let minute = Span::from_secs(60);
    let options = Options { duration: Some(Span::from_secs(60 * minutes)), ..Options::default() };
    let seen: Arc<Mutex<Vec<Used>>> = Arc::default();
    let into = Arc::clone(&seen);
    let on_look = move |c: Counters| {
        let vms = c.groups.values().filter(|g| g.kind == GroupKind::Vm);
        let used = vms.map(|g| (g.name.clone(), g.own.used_ns.expect("it is known")));
        into.lock().expect("one thread").push(used.collect());
        Some(minute)
    };
    let run = run_watched(&scenario.runs[0], &options, minute, Box::new(on_look));
    let out = run.unwrap_or_else(|e| panic!("{e}"));
    let checked = out.result.checked.expect("the oracle looked on");
    assert_eq!(checked.violated, 0, "{:?}", checked.violations);
    let looks = std::mem::take(&mut *seen.lock().expect("one thread"));
    assert_eq!(looks.len() as u64, minutes + 1);
    let mut furthest = 0;
    for (n, pair) in looks.windows(2).enumerate() {
        let of = |name: &str| pair[1][name] - pair[0][name];
        // both compute without end, by shares of 1:2; the limit and the reservation are met
        for (used, wanted) in [
            (of("wide"), 2 * of("burner")),
            (of("batch-1") + of("batch-2"), minute.ns() * 3 / 2),
            (of("reserved"), minute.ns()),
        ] {
            let permille = used.abs_diff(wanted) * 1000 / wanted;
            assert!(permille <= MINUTE_PERMILLE, "minute {n}: {used} of {wanted}");
            furthest = furthest.max(permille);
        }
        let rest = ["by-turns", "disk", "locks"];
        assert!(rest.iter().all(|vm| of(vm) > 0), "minute {n}: all get something");
    }
    println!(
        "{} hours and {} minutes: no violation, {} events, {furthest} permille at most",
        minutes / 60,
        minutes % 60,
        out.stats.events
    );
}
