//! Figures of every scenario and of random trees and hosts, one JSON line each, for `cargo xtask
//! ablate`, which runs this with mechanisms of the scheduler switched off. It judges nothing.

mod draw;
mod hot_path;
mod random_hosts;
mod random_trees;

use draw::case::{Judged, Lag};
use expect::{unmet, worst_permille};
use serde_json::json;
use sim::{Options, Progress, run_scenario};
use std::path::Path;
use units::Span;
use views::Where;

/// Longest simulated time of a run: what is to be seen is seen within it.
const LONGEST: Span = Span::from_secs(20);

fn scenario(folder: &Path) {
    let name = folder.file_name().expect("a folder").to_string_lossy().into_owned();
    let scenario = settings::load(&folder.display().to_string()).expect("the scenario loads");
    let longest = scenario.runs.iter().map(|r| r.spec.duration).max().unwrap_or(LONGEST);
    let whole = longest <= LONGEST || scenario.runs.iter().any(|r| r.spec.warmup >= LONGEST);
    let options = Options { duration: (!whole).then_some(LONGEST), ..Options::default() };
    let done = run_scenario(&scenario, &options, |p| {
        let Progress::Done(run, outcome) = p else { return };
        let verdict = outcome.verdict.as_ref().expect("it was checked");
        let vms = &outcome.result.vms;
        let sum = |f: fn(&views::Vm) -> u64| vms.iter().map(f).sum::<u64>();
        let wakeups = outcome.result.wakeups.iter().map(|w| w.mean_ns).max();
        println!(
            "{}",
            json!({
                "scenario": name, "run": run.label, "violated": verdict.violated(),
                "unmet": unmet(&outcome.result, &run.spec, Where::Sim),
                "off_permille": worst_permille(&outcome.result).map(|w| w.0),
                "migrations": sum(|v| v.times.migrations), "work": sum(|v| v.times.work),
                "wakeup_ns": wakeups, "events": outcome.stats.events,
            })
        );
    });
    if let Err(e) = done {
        println!("{}", json!({ "scenario": name, "error": e.to_string() }));
    }
}

#[test]
#[ignore = "prints figures for cargo xtask ablate and judges nothing"]
fn figures() {
    let seeds = std::env::var("SEEDS").ok().and_then(|s| s.parse::<u64>().ok()).unwrap_or(200);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut folders: Vec<_> = std::fs::read_dir(folder)
        .expect("scenarios/ is there")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.join("scenario.toml").is_file())
        .collect();
    folders.sort();
    folders.iter().for_each(|f| scenario(f));
    for (name, count) in hot_path::figures() {
        println!("{}", json!({ "instructions_of": name, "count": count }));
    }
    for (seed, tree, host) in seeds::each(0..seeds, |seed| {
        (
            seed,
            random_trees::drawn(seed).judge(Lag::Held),
            random_hosts::drawn(seed).judge(Lag::Free),
        )
    }) {
        let wrong = |j: &Judged| j.fault.as_ref().map(|f| f.text.clone());
        println!(
            "{}",
            json!({ "tree": seed, "wrong": wrong(&tree), "lag_percent": tree.lag_percent })
        );
        println!("{}", json!({ "host": seed, "wrong": wrong(&host) }));
    }
}
