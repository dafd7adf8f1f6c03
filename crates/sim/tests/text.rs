//! Runs of scenarios that tests hold as text.

use settings::Scenario;
use sim::{Options, Outcome, Ticks, run};
use std::{fs, path::PathBuf};

/// A scenario's text as a scenario; its file is named after the test.
pub fn scenario(name: &str, text: &str) -> Scenario {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("text-{name}.toml"));
    fs::write(&path, text).expect("the test's folder can be written");
    settings::load(&path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Runs a scenario's text.
pub fn outcome(name: &str, text: &str, options: &Options) -> Result<Outcome, String> {
    run(&scenario(name, text).runs[0], options).map_err(|e| e.to_string())
}

/// Runs it under the oracle, which must find nothing.
pub fn silent(name: &str, text: &str, ticks: Ticks) -> Outcome {
    let options = Options { ticks, ..Options::default() };
    let out = outcome(name, text, &options).unwrap_or_else(|e| panic!("{name} {ticks:?}: {e}"));
    let verdict = out.verdict.as_ref().expect("the oracle watches");
    let first: Vec<String> = verdict.violations.iter().take(3).map(ToString::to_string).collect();
    assert_eq!(verdict.violated(), 0, "{name} {ticks:?}: {}", first.join("\n"));
    assert_eq!(out.stats.default_slices, 0, "{name} {ticks:?}: {:?}", out.stats);
    out
}

/// CPU time of the VMs whose names begin so, in ms.
pub fn used_ms(out: &Outcome, name: &str) -> u64 {
    let of = out.result.vms.iter().filter(|v| v.name.starts_with(name));
    of.map(|v| v.times.used_ns).sum::<u64>() / 1_000_000
}
