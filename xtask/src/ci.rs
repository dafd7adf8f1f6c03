//! `cargo xtask ci`: everything that must hold before a change goes in, step by step, with a time
//! for each; it stops at no failure.
//!
//! Steps run side by side, as many as the machine has cores. Each writes a log of its own, which is
//! printed when it ends, and its time is kept in target/ci-times.json. A tool that is not there
//! (rustfmt, clippy) is reported as missing and its step skipped: Debian's cargo has neither.

mod lanes;
mod steps;

use crate::say::{say, sayln};
use crate::tidy;
use lanes::Item;
use serde::Serialize;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Mutex, PoisonError},
    time::Instant,
};
use steps::{Context, End, STEPS, Step};

/// Runs everything that CI runs.
#[derive(clap::Args)]
pub struct Ci {
    /// Only the steps whose name contains this, such as 'tests'.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Leave out the steps that boot a machine.
    #[arg(long)]
    no_lab: bool,
    /// Steps that run side by side; by default one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    lanes: Option<u8>,
}

/// A step that has ended.
#[derive(Clone, Debug, Serialize)]
struct Ended {
    name: &'static str,
    /// passed, failed or skipped
    verdict: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    /// Since the run began, and how long it took, in seconds.
    start_s: f64,
    time_s: f64,
}

/// The steps of one run and where their logs are.
struct Run<'r> {
    arguments: &'r Ci,
    root: PathBuf,
    logs: PathBuf,
    xtask: &'r clap::Command,
    begin: Instant,
    steps: Vec<&'static Step>,
    ended: Mutex<Vec<Ended>>,
}

/// Runs the steps; fails when one did.
#[must_use]
pub fn main(arguments: &Ci, xtask: &clap::Command) -> ExitCode {
    let chosen =
        |s: &&Step| arguments.only.as_ref().is_none_or(|only| s.name.contains(only.as_str()));
    let root = tidy::root();
    let logs = root.join("target/ci-logs");
    if let Err(e) = fs::create_dir_all(&logs) {
        eprintln!("{}: cannot make the folder: {e}; make room there", logs.display());
        return ExitCode::FAILURE;
    }
    let run = Run {
        arguments,
        root,
        logs,
        xtask,
        begin: Instant::now(),
        steps: STEPS.iter().filter(chosen).collect(),
        ended: Mutex::new(vec![]),
    };
    let items: Vec<Item> =
        run.steps.iter().map(|s| Item { name: s.name, uses: s.uses, needs: s.needs }).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = arguments.lanes.map_or(cores, usize::from);
    lanes::run(&items, lanes, &|n| run.step(n), &|n, needed| run.refuse(n, needed));
    run.close()
}

impl Run<'_> {
    fn since(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Runs a step; whether what needs it may start.
    fn step(&self, n: usize) -> bool {
        let step = self.steps[n];
        let (start_s, log) = (self.since(), self.log_of(step.name));
        sayln!("=== {}: started at {start_s:.0} s", step.name);
        let end = match File::create(&log) {
            Ok(file) => (step.run)(&Context {
                root: &self.root,
                xtask: self.xtask,
                no_lab: self.arguments.no_lab,
                log: file,
            }),
            Err(e) => End::Failed(format!("{}: cannot write the log: {e}", log.display())),
        };
        self.end(step.name, start_s, &end, &log);
        !matches!(end, End::Failed(_))
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.logs.join(name.replace(' ', "-") + ".log")
    }

    fn refuse(&self, n: usize, needed: &str) {
        let end = End::Failed(format!("it needs '{needed}', which failed"));
        self.end(self.steps[n].name, self.since(), &end, Path::new(""));
    }

    fn end(&self, name: &'static str, start_s: f64, end: &End, log: &Path) {
        let time_s = self.since() - start_s;
        let (verdict, why) = match end {
            End::Passed => ("passed", ""),
            End::Failed(why) => ("failed", why.as_str()),
            End::Skipped(why) => ("skipped", why.as_str()),
        };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // One print, so that the lines of two steps do not mix.
        let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        let shown = if verdict == "failed" { verdict.to_uppercase() } else { verdict.to_owned() };
        let colon = if why.is_empty() { "" } else { ": " };
        sayln!("{text}--- {name}: {shown} in {time_s:.1} s{colon}{why}\n");
        ended.push(Ended { name, verdict, why: why.to_owned(), start_s, time_s });
    }

    /// Prints the times and the verdict, and keeps both.
    fn close(self) -> ExitCode {
        let total_s = self.since();
        let ended = &*self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        say!("{}", times(ended, total_s));
        let kept = serde_json::json!({
            "commit": commit(&self.root), "total_s": total_s, "steps": ended,
        });
        let path = self.root.join("target/ci-times.json");
        if let Err(e) = fs::write(&path, format!("{kept:#}\n")) {
            eprintln!("{}: cannot keep the times: {e}", path.display());
        }
        let (text, ok) = summary(ended);
        for step in ended.iter().filter(|e| e.verdict == "failed") {
            let log = fs::read(self.log_of(step.name)).unwrap_or_default();
            say!("{}", end_of_log(step, &String::from_utf8_lossy(&log)));
        }
        say!("{text}");
        if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The commit that is checked out; empty where there is no git.
fn commit(root: &Path) -> String {
    let out = Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root).output();
    out.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// A line for each step, in the order in which they started.
fn times(ended: &[Ended], total_s: f64) -> String {
    let mut rows: Vec<&Ended> = ended.iter().collect();
    rows.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    let row = |e: &&Ended| {
        format!("ci: {:>5.0} s +{:>5.0} s  {:<7}  {}\n", e.start_s, e.time_s, e.verdict, e.name)
    };
    let lines: String = rows.iter().map(row).collect();
    format!("{lines}ci: {total_s:.0} s in all\n")
}

/// Why a step failed and the end of its log: a reader of the last lines alone needs no other.
fn end_of_log(step: &Ended, log: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    let text: String = last.iter().map(|l| format!("ci: {}: {l}\n", step.name)).collect();
    if step.why.is_empty() { text } else { format!("{text}ci: {}: {}\n", step.name, step.why) }
}

/// The last lines, and whether all is well.
fn summary(ended: &[Ended]) -> (String, bool) {
    let names =
        |verdict| ended.iter().filter(|e| e.verdict == verdict).map(|e| e.name).collect::<Vec<_>>();
    let (failed, skipped) = (names("failed"), names("skipped"));
    let line = |what: &str, names: &[&str]| {
        if names.is_empty() { String::new() } else { format!("ci: {what}: {}\n", names.join(", ")) }
    };
    let passed = ended.len() - failed.len() - skipped.len();
    let text = format!(
        "{}{}{passed} passed, {} failed\n",
        line("skipped", &skipped),
        line("failed", &failed),
        failed.len()
    );
    (text, failed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(name: &'static str, verdict: &'static str, start_s: f64) -> Ended {
        Ended { name, verdict, why: String::new(), start_s, time_s: 2.0 }
    }

    #[test]
    fn the_last_line_counts_and_names_come_before_it() {
        let ends =
            [ended("a", "passed", 0.0), ended("b", "failed", 0.0), ended("c", "skipped", 0.0)];
        assert_eq!(
            summary(&ends),
            ("ci: skipped: c\nci: failed: b\n1 passed, 1 failed\n".to_owned(), false)
        );
        assert_eq!(summary(&ends[..1]), ("1 passed, 0 failed\n".to_owned(), true));
    }

    #[test]
    fn the_end_of_a_failed_steps_log_is_repeated() {
        let step = Ended { why: "exit status: 1".into(), ..ended("b", "failed", 0.0) };
        let log: String = (0..20).map(|n| format!("line {n}\n\n")).collect();
        let text = end_of_log(&step, &log);
        assert!(text.starts_with("ci: b: line 8\n"), "{text}");
        assert!(text.ends_with("ci: b: line 19\nci: b: exit status: 1\n"), "{text}");
    }

    #[test]
    fn times_are_in_the_order_of_starts() {
        let text = times(&[ended("b", "failed", 7.0), ended("a", "passed", 1.0)], 9.0);
        assert_eq!(
            text,
            "ci:     1 s +    2 s  passed   a\nci:     7 s +    2 s  failed   b\nci: 9 s in all\n"
        );
    }

    #[test]
    fn every_step_that_is_needed_is_a_step_before() {
        for (n, step) in STEPS.iter().enumerate() {
            for needed in step.needs {
                assert!(STEPS[..n].iter().any(|s| s.name == *needed), "{}: {needed}", step.name);
            }
        }
    }
}
