//! The engine: determinism, exact accounts, ticks, costs, warm-up and refusals, in numbers.

use settings::{Run, Scenario};
use sim::{Costs, Options, SimError, Ticks, run, run_scenario};
use std::{fs, path::PathBuf};
use units::Span;

/// A scenario from text, by way of a file of its own.
fn scenario(name: &str, text: &str) -> Scenario {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    fs::write(&path, text).expect("the test's folder can be written");
    settings::load(&path.to_string_lossy()).expect("the scenario loads")
}

fn stored(name: &str) -> Scenario {
    settings::load(&format!("{}/../../scenarios/{name}", env!("CARGO_MANIFEST_DIR")))
        .expect("the scenario loads")
}

fn ideal() -> Options {
    Options { costs: Costs::ZERO, ..Options::default() }
}

fn used(run_of: &Run, options: &Options) -> Vec<u64> {
    run(run_of, options).expect("it runs").result.vms.iter().map(|v| v.times.used_ns).collect()
}

const TWO_ON_ONE: &str = r#"
duration = "10s"
[host]
cores_per_llc = 1
[[vm]]
name = "a"
vcpus = 1
[[vm]]
name = "b"
vcpus = 1
"#;

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_does_not() {
    let s = stored("sleepers");
    let json = |seed| {
        let options =
            Options { seed: Some(seed), duration: Some(Span::from_secs(10)), ..Options::default() };
        serde_json::to_string(&run_scenario(&s, &options, |_| ()).expect("it runs")).expect("JSON")
    };
    assert_eq!(json(1), json(1));
    assert_ne!(json(1), json(2));
}

#[test]
fn the_oracle_changes_nothing() {
    let s = stored("sleepers");
    let short =
        |check| Options { check, duration: Some(Span::from_secs(10)), ..Options::default() };
    assert_eq!(used(&s.runs[0], &short(true)), used(&s.runs[0], &short(false)));
}

#[test]
fn state_times_sum_to_the_measured_time_to_the_nanosecond() {
    for name in ["sleepers", "up-smp-mix"] {
        let outcome = run(&stored(name).runs[0], &Options::default()).expect("it runs");
        assert_eq!(outcome.result.duration_ns, 58_000_000_000);
        for world in outcome.result.vms.iter().flat_map(|v| &v.worlds) {
            let t = world.times;
            assert_eq!(t.run_ns + t.ready_ns + t.costop_ns + t.wait_ns, 58_000_000_000, "{name}");
            assert_eq!((t.used_ns, t.wait_ns), (t.run_ns, t.idle_ns), "{name}");
            assert!(t.work <= t.run_ns);
        }
        let used: u64 = outcome.result.pools[0].used_ns;
        assert_eq!(used, outcome.result.pcpus.iter().map(|p| p.busy_ns).sum::<u64>(), "{name}");
    }
}

#[test]
fn a_slice_ends_at_the_first_tick_after_it() {
    // 50 ms end at the tick of 52 ms with 250 ticks a second, and at 50 ms with 1,000.
    let first_60_ms = |hz: &str, ticks| {
        let s = scenario(
            &format!("hz{hz}{ticks:?}"),
            &TWO_ON_ONE.replace("[host]", &format!("[host]\nhz = {hz}")),
        );
        used(&s.runs[0], &Options { ticks, duration: Some(Span::from_ms(60)), ..ideal() })
    };
    assert_eq!(first_60_ms("250", Ticks::Aligned), [52_000_000, 8_000_000]);
    assert_eq!(first_60_ms("1000", Ticks::Staggered), [50_000_000, 10_000_000]);
}

#[test]
fn costs_are_charged_and_take_from_work() {
    let s = scenario("costs", TWO_ON_ONE);
    let outcome = run(
        &s.runs[0],
        &Options { costs: Costs { switch_ns: 10_000, ..Costs::ZERO }, ..Options::default() },
    );
    let outcome = outcome.expect("it runs");
    let sum =
        |f: fn(&views::Times) -> u64| outcome.result.vms.iter().map(|v| f(&v.times)).sum::<u64>();
    assert_eq!(sum(|t| t.used_ns), 10_000_000_000);
    assert_eq!(sum(|t| t.work), 10_000_000_000 - outcome.stats.switches * 10_000);
}

#[test]
fn a_lone_sleeper_does_all_its_work() {
    let text = "duration = \"10s\"\n[host]\ncores_per_llc = 2\n[[vm]]\nname = \"d\"\nvcpus = \
        1\nworkload = { kind = \"periodic\", period = \"10ms\", work = \"3ms\" }\n";
    let outcome = run(&scenario("lone", text).runs[0], &ideal()).expect("it runs");
    let t = outcome.result.vms[0].times;
    // The first release is at a random point of the first period, the last piece may be cut.
    assert!((2_994_000_000..=3_000_000_000).contains(&t.work), "{t:?}");
    assert_eq!((t.ready_ns, t.migrations, t.used_ns), (0, 0, t.work));
}

#[test]
fn what_happens_in_the_warm_up_does_not_count() {
    let text = format!(
        "warmup = \"4s\"{}",
        TWO_ON_ONE.replace("[[vm]]\nname = \"b\"", "[[vm]]\nname = \"b\"\nstop = \"2s\"")
    );
    let outcome = run(&scenario("warm", &text).runs[0], &ideal()).expect("it runs");
    let used: Vec<u64> = outcome.result.vms.iter().map(|v| v.times.used_ns).collect();
    assert_eq!((used, outcome.result.duration_ns), (vec![6_000_000_000, 0], 6_000_000_000));
    let entitled: Vec<u64> = outcome.result.vms.iter().map(|v| v.times.entitled_ns).collect();
    assert_eq!(entitled, [6_000_000_000, 0]);
}

#[test]
fn a_per_cpu_kthread_runs_at_once() {
    let task = "\n[[host_task]]\nname = \"k\"\naffinity = \"0\"\nper_cpu_kthread = true\nworkload \
        = { kind = \"periodic\", period = \"7ms\", work = \"50us\" }\n";
    let outcome = run(&scenario("kthread", &format!("{TWO_ON_ONE}{task}")).runs[0], &ideal())
        .expect("it runs");
    let system = &outcome.result.pools[1];
    assert_eq!(system.path, "/system");
    assert!((1427 * 50_000..=1429 * 50_000).contains(&system.used_ns), "{system:?}");
    assert_eq!(system.ready_ns, 0);
}

#[test]
fn what_cannot_be_run_is_refused_with_its_reason() {
    let s = scenario("refused", TWO_ON_ONE);
    let knob = Options { knobs: [("quantum_us".to_owned(), 7)].into(), ..ideal() };
    let text = run(&s.runs[0], &knob).expect_err("refused").to_string();
    assert!(text.contains("quantum_us': cannot set 7 us: allowed 1000..1000000 us"), "{text}");
    let short = Options { duration: Some(Span::ZERO), ..ideal() };
    assert!(matches!(run(&s.runs[0], &short), Err(SimError::Duration { .. })));
}

#[test]
fn time_held_back_by_a_limit_is_inside_ready_time_and_only_there_where_a_limit_stands() {
    let scenario = stored("pools-nested");
    let options = Options { duration: Some(Span::from_secs(5)), ..Options::default() };
    let result = run(&scenario.runs[0], &options).expect("it keeps the contract").result;
    let of = |name: &str| result.vms.iter().find(|v| v.name == name).expect("a VM").times;
    assert!(
        result.vms.iter().flat_map(|v| &v.worlds).all(|w| w.times.limited_ns <= w.times.ready_ns)
    );
    // Two vCPUs that want all of 5 s each and may have 2.5 s together: the rest but a little is the
    // limit's.
    let t = of("try");
    assert!(t.limited_ns > 7_000_000_000 && t.limited_ns + t.run_ns <= 10_000_000_000, "{t:?}");
    assert_eq!((of("front").limited_ns, of("loner").limited_ns), (0, 0));
    let pool = |path: &str| result.pools.iter().find(|p| p.path == path).expect("a pool");
    assert!(pool("/test").limited_ns >= t.limited_ns && pool("/prod").limited_ns == 0);
}

#[test]
fn a_vcpu_that_waits_in_its_emulator_is_not_idle_and_one_that_halts_is() {
    let vm = |name: &str, halts: bool, active: &str| {
        let io = format!(
            "workload = {{ kind = \"io\", work = \"1ms\", sleep = \"9ms\", halts = {halts} }}"
        );
        format!("[[vm]]\nname = \"{name}\"\nvcpus = 1\n{io}\nactive = [\"{active}\"]\n")
    };
    let vms = [vm("halts", true, "0s.."), vm("waits", false, "0s.."), vm("stops", false, "..6s")]
        .concat();
    let text = format!("duration = \"11s\"\nwarmup = \"1s\"\n[host]\ncores_per_llc = 4\n{vms}");
    let outcome = run(&scenario("waits", &text).runs[0], &ideal()).expect("it runs");
    assert_eq!(
        outcome.verdict.expect("it was checked").violated(),
        0,
        "the oracle knows why each sleeps"
    );
    let times: Vec<(u64, u64)> =
        outcome.result.vms.iter().map(|v| (v.times.wait_ns, v.times.idle_ns)).collect();
    let [halts, waits, stops] = times[..] else { panic!("three VMs") };
    assert!(halts.0 >= 8_990_000_000 && halts.0 == halts.1, "{halts:?}");
    assert!(waits.0 >= 8_990_000_000 && waits.1 == 0, "{waits:?}");
    // Five of its ten seconds are outside its window: halted.
    assert!(
        stops.1.abs_diff(5_000_000_000) <= 2_000_000 && stops.0 - stops.1 >= 4_490_000_000,
        "{stops:?}"
    );
}
