//! Figures of one run of `crates/sim/tests/ablate.rs`: what its lines say, and whether two runs
//! differ in a verdict.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A run of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioRun {
    /// Violations that the oracle saw.
    pub violated: u64,
    /// What the scenario expects and did not get.
    pub unmet: Vec<String>,
    /// Distance of the furthest VM from its entitlement, in permille.
    pub off_permille: Option<u64>,
    pub migrations: u64,
    /// CPU time of guests' own work, in ns.
    pub work: u64,
    /// Largest mean delay of a VM's wake-ups, in ns.
    pub wakeup_ns: Option<u64>,
    pub events: u64,
}

/// What was seen with one mechanism off, or with all on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// By scenario and run.
    pub runs: BTreeMap<String, ScenarioRun>,
    /// Scenarios that ended with an error, such as a breach of sched_ext's rules.
    pub errors: BTreeMap<String, String>,
    /// Distance of the furthest VM from the ideal by seed, in percent of the oracle's bound.
    pub trees: BTreeMap<u64, u64>,
    /// Seeds of trees and hosts where something was wrong.
    pub wrong_trees: BTreeSet<u64>,
    pub wrong_hosts: BTreeSet<u64>,
    /// Instructions of a wake-up: on an idle pCPU and on a busy one, below no limit and below
    /// seven.
    pub instructions: BTreeMap<String, u64>,
    /// Tests that failed.
    pub failed_tests: BTreeSet<String>,
}

impl Figures {
    /// Takes the lines that the figures' test prints; others are left out.
    pub fn read(&mut self, text: &str) {
        for line in text.lines() {
            let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let text_of = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            if let Some(name) = value["scenario"].as_str() {
                if let Some(error) = value["error"].as_str() {
                    self.errors.insert(name.to_owned(), error.to_owned());
                } else if let Ok(run) = serde_json::from_value(value.clone()) {
                    self.runs.insert(format!("{name} {}", text_of("run")).trim().to_owned(), run);
                }
            } else if let Some(seed) = value["tree"].as_u64() {
                self.trees.insert(seed, value["lag_percent"].as_u64().unwrap_or(0));
                if !value["wrong"].is_null() {
                    self.wrong_trees.insert(seed);
                }
            } else if let Some(seed) = value["host"].as_u64() {
                if !value["wrong"].is_null() {
                    self.wrong_hosts.insert(seed);
                }
            } else if let Some(name) = value["instructions_of"].as_str() {
                let count = value["count"].as_u64().unwrap_or(0);
                self.instructions.insert(name.to_owned(), count);
            }
        }
    }

    /// Takes the names of failed tests from what a test program prints.
    pub fn read_tests(&mut self, text: &str) {
        let name = |l: &str| Some(l.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
        self.failed_tests.extend(text.lines().filter_map(name));
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.errors.is_empty()
    }

    /// Scenario runs and scenarios that do not get what they expect, in order.
    pub fn misses(&self) -> BTreeSet<&str> {
        let wrong = |r: &ScenarioRun| r.violated > 0 || !r.unmet.is_empty();
        let runs = self.runs.iter().filter(|(_, r)| wrong(r)).map(|(n, _)| n.as_str());
        runs.chain(self.errors.keys().map(String::as_str)).collect()
    }

    /// Whether any verdict is another one than in the run with all mechanisms on.
    pub fn differs_from(&self, all_on: &Figures) -> bool {
        self.misses() != all_on.misses()
            || self.wrong_trees != all_on.wrong_trees
            || self.wrong_hosts != all_on.wrong_hosts
            || self.failed_tests != all_on.failed_tests
    }

    /// Sum over all runs of scenarios.
    pub fn sum(&self, of: impl Fn(&ScenarioRun) -> u64) -> u64 {
        self.runs.values().map(of).sum()
    }

    /// Largest and mean distance of the furthest VM of each tree, in percent of the bound.
    pub fn tree_lag(&self) -> (u64, f64) {
        let sum: u64 = self.trees.values().sum();
        let count = self.trees.len().max(1);
        (self.trees.values().copied().max().unwrap_or(0), sum as f64 / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"scenario":"a","run":"x","violated":0,"unmet":[],"off_permille":3,"migrations":2,"work":5,"wakeup_ns":null,"events":9}
running 1 test
{"scenario":"b","error":"breach"}
{"tree":4,"wrong":"lag","lag_percent":120}
{"tree":5,"wrong":null,"lag_percent":20}
{"host":4,"wrong":null}
{"instructions_of":"idle, flat","count":900}
"#;

    #[test]
    fn lines_are_read_and_others_left_out() {
        let mut seen = Figures::default();
        seen.read(LINES);
        assert_eq!(seen.runs["a x"].migrations, 2);
        assert_eq!(seen.misses().into_iter().collect::<Vec<_>>(), ["b"]);
        assert_eq!(seen.tree_lag(), (120, 70.0));
        assert_eq!(seen.wrong_trees.into_iter().collect::<Vec<_>>(), [4]);
        assert!(seen.wrong_hosts.is_empty());
        assert_eq!(seen.instructions["idle, flat"], 900);
    }

    #[test]
    fn a_verdict_differs_and_a_figure_does_not() {
        let mut all = Figures::default();
        all.read(LINES);
        let mut other = all.clone();
        other.runs.get_mut("a x").expect("it is there").migrations = 99;
        assert!(!other.differs_from(&all));
        other.read_tests("test x::y ... ok\ntest x::z ... FAILED\n");
        assert_eq!(other.failed_tests.iter().collect::<Vec<_>>(), ["x::z"]);
        assert!(other.differs_from(&all));
        let mut unmet = all.clone();
        unmet.runs.get_mut("a x").expect("it is there").unmet.push("less".into());
        assert!(unmet.differs_from(&all));
    }
}
