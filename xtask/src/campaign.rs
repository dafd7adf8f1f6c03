//! `cargo xtask campaign`: hours of work that no change waits for, step by step and resumable, with
//! one report at the end; every judgement is that of the step's own command.
//!
//! Each step is a command that can be typed by hand. Its output is in `target/campaign/logs`, what
//! came of it in `bench/campaign.json`, so that a campaign goes on in another checkout. A
//! step that has passed at the commit that is checked out is not run again.

mod report;
mod state;
mod steps;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use lab::{Archive, LabError};

use crate::say::sayln;
use crate::{history, tidy};
use state::{Done, State, Verdict};
use steps::Step;

/// Runs what takes hours: every drill, every scenario in the lab, random trees and hosts, fuzzers,
/// ablation, all kernels.
///
/// Goes on where it was interrupted. Ends with 1 when a step failed.
#[derive(Args)]
pub struct Campaign {
    /// Go on where the last campaign of this commit ended; this is the default.
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// Run steps again that have passed at this commit.
    #[arg(long)]
    fresh: bool,
    /// Only the steps whose name contains this, such as 'lab' or 'drill kill'.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Begin no step after so many minutes; those that never ran come first, then those that
    /// failed, then the oldest.
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
    /// List the steps with their commands and what came of them, and run none.
    #[arg(long)]
    list: bool,
    /// Write the report to docs/campaign.md at the end.
    #[arg(long)]
    report: bool,
}

/// Where the report is, from the repository's root.
pub const DOCUMENT: &str = "docs/campaign.md";
/// What came of each step, from the repository's root.
pub const STATE: &str = "bench/campaign.json";
const FOLDER: &str = "campaign";

/// Runs `cargo xtask campaign`; `xtask` is the command line of xtask itself.
///
/// # Errors
/// `LabError` when the state cannot be read or written; a step that fails is no error.
pub fn run(arguments: &Campaign, xtask: &clap::Command) -> Result<ExitCode, LabError> {
    let root = tidy::root();
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |dir| root.join(PathBuf::from(dir)));
    let folder = target.join(FOLDER);
    let commit = history::commit(&root)?;
    let all = steps::all(&root, xtask);
    let file = root.join(STATE);
    let mut state = State::read(&file)?;
    let chosen = |s: &&Step| arguments.only.as_ref().is_none_or(|only| s.name.contains(&**only));
    let wanted: Vec<&Step> = all.iter().filter(chosen).collect();
    if arguments.list {
        wanted.iter().for_each(|s| sayln!("{}", state.listed(s, &commit)));
        return Ok(ExitCode::SUCCESS);
    }
    let mut due: Vec<&Step> = wanted
        .iter()
        .copied()
        .filter(|s| (arguments.fresh && !arguments.resume) || !state.has_passed(&s.name, &commit))
        .collect();
    state.order(&mut due);
    sayln!("campaign: {} of {} steps to run at {commit}", due.len(), wanted.len());
    let begin = Instant::now();
    let most = arguments.minutes.map(|m| Duration::from_secs(m * 60));
    for (i, step) in due.iter().enumerate() {
        if most.is_some_and(|most| begin.elapsed() >= most) {
            sayln!("campaign: time is up, {} steps are left; run it again", due.len() - i);
            break;
        }
        let left = state.estimate(&due[i..]);
        sayln!(
            "[{}/{}] {}: begins, {} so far, about {} left",
            i + 1,
            due.len(),
            step.name,
            state::clock(begin.elapsed()),
            state::clock(left)
        );
        let done = execute(&root, &folder, step, &commit)?;
        sayln!("[{}/{}] {}: {}", i + 1, due.len(), step.name, done.told());
        state.set(&step.name, done);
        state.write(&file)?;
    }
    let text = report::text(&all, &state);
    if arguments.report {
        let path = root.join(DOCUMENT);
        fs::write(&path, &text).map_err(|e| LabError::io(&path, "write the report", e))?;
        sayln!("campaign: report in {DOCUMENT}");
    }
    let failed = state.failed(&wanted, &commit);
    sayln!("campaign: {} of {} failed{}", failed.len(), wanted.len(), listed(&failed));
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
}

/// Runs a step to its end or its time limit.
fn execute(root: &Path, folder: &Path, step: &Step, commit: &str) -> Result<Done, LabError> {
    let logs = folder.join("logs");
    fs::create_dir_all(&logs).map_err(|e| LabError::io(&logs, "make the folder", e))?;
    let path = logs.join(format!("{}.log", step.name.replace([' ', '/'], "-")));
    let log = File::create(&path).map_err(|e| LabError::io(&path, "create the log", e))?;
    let copy = log.try_clone().map_err(|e| LabError::io(&path, "share the log", e))?;
    let begin = Instant::now();
    let status = step.skip.is_none().then(|| {
        bounded(step.limit)
            .args(&step.words)
            .envs(step.environment.iter().map(|(k, v)| (k, v)))
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            .status()
    });
    let text = fs::read(&path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let verdict = match (&step.skip, status) {
        (Some(why), _) => Verdict::Skipped(why.clone()),
        (None, Some(Ok(status))) if status.success() => Verdict::Passed,
        (None, Some(Ok(status))) if status.code() == Some(TIMED_OUT) => {
            Verdict::Failed(format!("stopped after {}", state::clock(step.limit)))
        }
        (None, Some(Ok(status))) => Verdict::Failed(format!("{status}")),
        (None, Some(Err(e))) => Verdict::Failed(e.to_string()),
        (None, None) => Verdict::Failed("never ran".to_owned()),
    };
    Ok(Done {
        commit: commit.to_owned(),
        date: history::today(root)?,
        verdict,
        seconds: begin.elapsed().as_secs(),
        kernel: kernel(step),
        figures: step.figures(&text),
    })
}

/// Version of the kernel that a step boots; the name that it was asked by if the archive cannot
/// tell.
fn kernel(step: &Step) -> String {
    let version = || {
        let id = step.kernel.parse().ok()?;
        Some(Archive::open().ok()?.kernel(&id).ok()?.version)
    };
    let boots = !step.kernel.is_empty() && step.skip.is_none();
    boots.then(version).flatten().unwrap_or_else(|| step.kernel.clone())
}

/// Exit code of coreutils' timeout for a command that it stopped.
const TIMED_OUT: i32 = 124;

/// A command that stops what it runs, with all its children, after so long, and when this process
/// dies.
fn bounded(limit: Duration) -> Command {
    let mut command = match lab::tool::find_program(&["setpriv"]) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM", "--", "timeout"]);
            command
        }
        None => Command::new("timeout"),
    };
    command.args(["--kill-after=10", &limit.as_secs().to_string()]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(script: &str, limit: u64) -> (Verdict, String) {
        let root = std::env::temp_dir();
        let folder = root.join(format!("tandem-campaign-{}-{limit}", std::process::id()));
        let step = Step::shell("a step", script, Duration::from_secs(limit));
        let done = execute(&root, &folder, &step, "abc").unwrap();
        fs::remove_dir_all(&folder).unwrap();
        (done.verdict, done.figures)
    }

    #[test]
    fn a_step_passes_by_its_exit_code_and_is_stopped_at_its_limit() {
        let text = "echo noise; echo 'test result: ok. 3 passed'";
        assert_eq!(done(text, 60), (Verdict::Passed, "test result: ok. 3 passed".to_owned()));
        let (failed, _) = done("exit 3", 61);
        assert_eq!(failed, Verdict::Failed("exit status: 3".to_owned()));
        let (stopped, _) = done("sleep 30", 1);
        assert_eq!(stopped, Verdict::Failed("stopped after 0:00:01".to_owned()));
    }
}
