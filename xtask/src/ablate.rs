//! `cargo xtask ablate`: what each mechanism of the scheduler is worth. Every scenario and a set of
//! random trees and hosts run in the simulator with one mechanism off at a time, beside a run with
//! all of them on.
//!
//! The figures come from `crates/sim/tests/ablate.rs`, a test program built with the feature
//! `ablate`; which mechanisms there are is read from `sched/abi/mechanisms.def`.

mod figures;
mod table;

use crate::say::sayln;
use crate::tidy;
use clap::Args;
use figures::Figures;
use lab::LabError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Runs every scenario and random trees and hosts with one mechanism of the scheduler off at a
/// time, and prints what each is worth.
#[derive(Args)]
pub struct Ablate {
    /// Only these mechanisms, such as COMMIT,OFFSET; by default all of sched/abi/mechanisms.def.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Random trees and as many random hosts of each run.
    #[arg(long, default_value_t = 200)]
    seeds: u32,
    /// Also run the simulator's other tests with each mechanism off, and name those that fail.
    #[arg(long)]
    tests: bool,
    /// Write docs/design/ablation.md; with --only, these rows of it.
    #[arg(long)]
    write: bool,
    /// Write all figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A mechanism as `sched/abi/mechanisms.def` declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mechanism {
    pub name: String,
    pub room: String,
    pub what: String,
}

/// The document that `--write` renews.
const DOCUMENT: &str = "docs/design/ablation.md";
const DECLARED: &str = "sched/abi/mechanisms.def";
/// Variable that the build with `ablate` reads: mechanisms that are off.
const OFF: &str = "TANDEM_ABLATE";
/// Tests that random seeds repeat, or that only measure.
const SKIPPED: [&str; 3] = ["random", "hot_path", "figures"];

/// Mechanisms of the text of a list: lines `MECHANISM(NAME, "room", "what")`.
fn declared(text: &str) -> Vec<Mechanism> {
    let mechanism = |line: &str| {
        let (name, rest) = line.strip_prefix("MECHANISM(")?.split_once(", \"")?;
        let (room, what) = rest.strip_suffix("\")")?.split_once("\", \"")?;
        let owned = str::to_owned;
        Some(Mechanism { name: owned(name), room: owned(room), what: owned(what) })
    };
    text.lines().filter_map(mechanism).collect()
}

/// Runs `cargo xtask ablate`.
pub fn run(args: &Ablate) -> Result<ExitCode, LabError> {
    let root = tidy::root();
    let path = root.join(DECLARED);
    let text =
        std::fs::read_to_string(&path).map_err(|e| LabError::io(&path, "read the list", e))?;
    let mut mechanisms = declared(&text);
    let unknown = args.only.iter().find(|n| mechanisms.iter().all(|m| m.name != **n));
    if let Some(name) = unknown {
        let names: Vec<&str> = mechanisms.iter().map(|m| m.name.as_str()).collect();
        let seen = format!("no such mechanism, allowed {}", names.join(", "));
        return Err(LabError::new(name, "be switched off", seen, "take a name of the list"));
    }
    mechanisms.retain(|m| args.only.is_empty() || args.only.contains(&m.name));
    let programs = build(&root)?;
    let all = run_all(&programs, &mechanisms, args)?;
    let mut table = table::of(&mechanisms, &all, args.seeds, args.tests);
    sayln!("{table}");
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&all).unwrap_or_default();
        std::fs::write(path, text).map_err(|e| LabError::io(path, "be written", e))?;
    }
    if args.write {
        let path = root.join(DOCUMENT);
        if !args.only.is_empty() {
            let old = std::fs::read_to_string(&path).map_err(|e| LabError::io(&path, "read", e))?;
            let names: Vec<String> = declared(&text).into_iter().map(|m| m.name).collect();
            table = table::merged(&old, &table, &names).ok_or_else(|| {
                let seen = "another run with all mechanisms on";
                LabError::new(DOCUMENT, "take these rows", seen, "run all: leave --only out")
            })?;
        }
        std::fs::write(&path, table).map_err(|e| LabError::io(&path, "be written", e))?;
        sayln!("written: {DOCUMENT}");
    }
    let worthless: Vec<&str> = mechanisms
        .iter()
        .filter(|m| all.get(&m.name).is_some_and(|f| !f.differs_from(&all[""])))
        .map(|m| m.name.as_str())
        .collect();
    if !worthless.is_empty() {
        sayln!("no verdict differs without: {}", worthless.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

/// The test programs of the simulator with the feature `ablate`, as cargo names them.
fn build(root: &Path) -> Result<Vec<PathBuf>, LabError> {
    sayln!("building the simulator with switches (feature ablate) ...");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args(
            "test --profile ci -p sim --features ablate --no-run --message-format=json".split(' '),
        )
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| LabError::new("cargo", "run", e.to_string(), "install cargo"))?;
    if !out.status.success() {
        return Err(LabError::new(
            "simulator",
            "be built with the feature ablate",
            out.status.to_string(),
            "look at what cargo said",
        ));
    }
    let program = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_test = message["target"]["kind"][0] == "test" && message["profile"]["test"] == true;
        is_test.then(|| message["executable"].as_str().map(PathBuf::from))?
    };
    Ok(String::from_utf8_lossy(&out.stdout).lines().filter_map(program).collect())
}

/// Figures by the name of the mechanism that is off; the empty name is the run with all on.
fn run_all(
    programs: &[PathBuf],
    mechanisms: &[Mechanism],
    args: &Ablate,
) -> Result<BTreeMap<String, Figures>, LabError> {
    let names: Vec<&str> =
        std::iter::once("").chain(mechanisms.iter().map(|m| m.name.as_str())).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let (begin, failed) = (Instant::now(), Mutex::new(None));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match one(programs, name, args) {
                        Ok(figures) => {
                            let mut done = done.lock().expect("no lane panics");
                            done.insert((*name).to_owned(), figures);
                            let shown = if name.is_empty() { "all on" } else { name };
                            eprintln!(
                                "{}/{} {shown}, {:.0} s",
                                done.len(),
                                names.len(),
                                begin.elapsed().as_secs_f64()
                            );
                        }
                        Err(e) => *failed.lock().expect("no lane panics") = Some(e),
                    }
                }
            });
        }
    });
    match failed.into_inner().expect("no lane panics") {
        Some(e) => Err(e),
        None => Ok(done.into_inner().expect("no lane panics")),
    }
}

/// A run with one mechanism off.
fn one(programs: &[PathBuf], off: &str, args: &Ablate) -> Result<Figures, LabError> {
    let mut figures = Figures::default();
    for program in programs {
        let prints = program.file_name().is_some_and(|n| n.to_string_lossy().starts_with("ablate"));
        let mut command = Command::new(program);
        command.env(OFF, off).env("SEEDS", args.seeds.to_string()).stdin(Stdio::null());
        if prints {
            command.args(["figures", "--exact", "--ignored", "--nocapture", "-q"]);
        } else if args.tests {
            SKIPPED.iter().for_each(|s| {
                command.args(["--skip", s]);
            });
            command.args(["--test-threads", "1"]);
        } else {
            continue;
        }
        let out = command.stderr(Stdio::null()).output().map_err(|e| {
            LabError::new(program.display().to_string(), "run", e.to_string(), "build it again")
        })?;
        let text = String::from_utf8_lossy(&out.stdout);
        if prints { figures.read(&text) } else { figures.read_tests(&text) }
    }
    if figures.is_empty() {
        let seen = "it printed no figure";
        return Err(LabError::new(
            "ablation",
            format!("run without {off}"),
            seen,
            "run the test by hand",
        ));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanisms_are_read_from_the_list() {
        let seen = declared("/* x */\nMECHANISM(COMMIT, \"share\", \"a slice, charged\")\n");
        let all = Mechanism {
            name: "COMMIT".into(),
            room: "share".into(),
            what: "a slice, charged".into(),
        };
        assert_eq!(seen, [all]);
        let path = tidy::root().join(DECLARED);
        let text = std::fs::read_to_string(path).expect("the list is there");
        assert_eq!(declared(&text).len(), text.matches("\nMECHANISM(").count());
    }
}
