//! Long life: a scheduler that has been loaded for ten years decides as one that was loaded just
//! now, while its clock passes an end of the budgets' stamps (2^43 ns) and virtual time an end of
//! the queues' keys (2^56 ns).

use sim::{Age, Options, run_scenario};
use std::path::Path;
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
