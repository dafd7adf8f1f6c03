//! `fuzz`: builds the fuzzers of `fuzz/` with counters of coverage, gives them inputs to begin
//! with, and says what they found; what is right is said by `crates/trace/src/fuzz.rs`.
//!
//! The compiler is the stable one: the counters come from LLVM's pass, which needs no nightly, and
//! there is no address sanitizer, which does: these crates have no unsafe code.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};
use lab::LabError;

use crate::say::sayln;
use crate::tidy;

/// Runs the coverage-guided fuzzers of what reads traces, or one of them; inputs and findings are
/// kept in .cache/fuzz.
///
/// Needs a C++ compiler, for libFuzzer. Ends with 1 when a fuzzer found something, and says how to
/// replay it.
#[derive(Args)]
pub struct Fuzz {
    /// Which fuzzer; without it, one after the other.
    target: Option<Target>,
    /// How long each runs.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Run this one input instead, such as one that was found.
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with = "seconds")]
    replay: Option<PathBuf>,
    /// Build the fuzzers and their first inputs, and run none.
    #[arg(long, conflicts_with_all = ["replay", "seconds"])]
    build_only: bool,
}

/// What is fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// A trace's file, any bytes.
    Reader,
    /// A trace's file whose checksums are right.
    Blocks,
    /// A textual log.
    Log,
    /// Records of a scheduler's ring.
    Raw,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::Reader => "reader",
            Target::Blocks => "blocks",
            Target::Log => "log",
            Target::Raw => "raw",
        }
    }
}

const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
/// An input that takes longer or more memory than this is a finding; longer ones than this find
/// nothing that shorter ones do not.
const LIMITS: [&str; 3] = ["-timeout=25", "-rss_limit_mb=2048", "-max_len=8192"];
/// A program without counters tells 0, or the few of libFuzzer's glue.
const LEAST_COVERAGE: u64 = 500;

/// Runs `cargo xtask fuzz`.
pub fn run(args: &Fuzz) -> Result<ExitCode, LabError> {
    if let Some(what) = missing() {
        return Err(failed("libFuzzer", "be built", what, "install Debian's package g++"));
    }
    let programs = build()?;
    let cache = tidy::root().join(".cache/fuzz");
    if let (Some(target), Some(input)) = (args.target, &args.replay) {
        let status = Command::new(programs.join(target.name()))
            .args(&LIMITS[..2])
            .arg(input)
            .stdin(Stdio::null())
            .status();
        return Ok(if status.is_ok_and(|s| s.success()) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    let mut seeds = cargo(&[
        "run",
        "--quiet",
        "--profile",
        "ci",
        "-p",
        "trace",
        "--example",
        "fuzz_seeds",
        "--",
    ]);
    finish(seeds.arg(&cache), "seeds")?;
    if args.build_only {
        return Ok(ExitCode::SUCCESS);
    }
    let mut passed = true;
    for target in args.target.map_or(Target::value_variants().to_vec(), |t| vec![t]) {
        passed &=
            fuzz(&programs.join(target.name()), &cache.join(target.name()), target, args.seconds)?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What this machine lacks to build them.
pub fn missing() -> Option<&'static str> {
    let runs = Command::new("c++")
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|o| o.status.success());
    (!runs).then_some("no C++ compiler")
}

fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    // As in CI: it is not worth optimising small programs as a whole.
    command
        .args(words)
        .current_dir(tidy::root())
        .stdin(Stdio::null())
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    command
}

/// Builds all fuzzers; the folder that they are in.
fn build() -> Result<PathBuf, LabError> {
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let folder = tidy::root().join(folder).join("fuzz");
    // With a target, the flags are not for build scripts and macros, which run in the compiler.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = cargo(&[
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        &triple,
    ]);
    command
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", COVERAGE)
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    finish(&mut command, "fuzzers")?;
    Ok(folder.join(triple).join("release"))
}

fn finish(command: &mut Command, what: &str) -> Result<(), LabError> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(what, "be built", &status.to_string(), "look at what cargo said")),
        Err(e) => Err(failed(what, "be built", &e.to_string(), "install cargo")),
    }
}

/// Runs one fuzzer and says how it went; whether it found nothing.
fn fuzz(program: &Path, own: &Path, target: Target, seconds: u64) -> Result<bool, LabError> {
    let (name, found, log) = (target.name(), own.join("found"), own.join("last.log"));
    std::fs::create_dir_all(&found).map_err(|e| LabError::io(&found, "make the folder", e))?;
    let sink = std::fs::File::create(&log).map_err(|e| LabError::io(&log, "create it", e))?;
    let status = Command::new(program)
        .args(LIMITS)
        .args([
            format!("-max_total_time={seconds}"),
            format!("-artifact_prefix={}/", found.display()),
            "-print_final_stats=1".to_owned(),
        ])
        .arg(own.join("corpus"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(sink)
        .status()
        .map_err(|e| LabError::io(program, "run it", e))?;
    let text = std::fs::read(&log).map_err(|e| LabError::io(&log, "read it", e))?;
    let text = String::from_utf8_lossy(&text);
    let seen = Seen::of(&text);
    if let Some(Seen { inputs, first, last, kept }) = seen {
        sayln!(
            "fuzz {name}: {inputs} inputs, coverage {first} at the start, {last} at the end, \
                {kept} inputs kept"
        );
    }
    // A fault may show before anything was counted, in an input that was kept earlier.
    if !status.success() {
        let input = text
            .lines()
            .find_map(|l| l.split("Test unit written to ").nth(1))
            .unwrap_or("(it kept no input)");
        let said =
            text.lines().find(|l| l.contains("panicked at") || l.contains("ERROR:")).unwrap_or("");
        sayln!(
            "fuzz {name}: FAILED: {said}\nsee {}; again: cargo xtask fuzz {name} --replay {input}",
            log.display()
        );
        return Ok(false);
    }
    let coverage = seen.map_or(0, |s| s.last);
    if coverage < LEAST_COVERAGE {
        let seen = format!("{coverage}, allowed {LEAST_COVERAGE} or more");
        return Err(failed(
            name,
            "count coverage",
            &seen,
            &format!("read {}, and look at the compiler's flags", log.display()),
        ));
    }
    Ok(true)
}

/// What libFuzzer printed of a run.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    inputs: u64,
    first: u64,
    last: u64,
    kept: u64,
}

impl Seen {
    /// Lines such as `#864 NEW cov: 2887 ft: 12467 corp: 389/2102Kb lim: …`.
    fn of(text: &str) -> Option<Seen> {
        let number = |line: &str, behind: &str| {
            line.split(behind)
                .nth(1)?
                .split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse::<u64>()
                .ok()
        };
        let lines: Vec<&str> =
            text.lines().filter(|l| l.starts_with('#') && l.contains("cov: ")).collect();
        let (first, last) =
            (lines.iter().find(|l| l.contains("INITED")).or(lines.first())?, lines.last()?);
        let kept = number(last, "corp: ").unwrap_or(0);
        Some(Seen {
            inputs: number(last, "#")?,
            first: number(first, "cov: ")?,
            last: number(last, "cov: ")?,
            kept,
        })
    }
}

fn failed(object: &str, action: &str, seen: &str, next: &str) -> LabError {
    LabError::new(object, action, seen, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_is_read_from_what_libfuzzer_says() {
        let text = "INFO: Seed: 1\n#26\tINITED cov: 1500 ft: 9 corp: 24/1Kb exec/s: 0\n#27\tNEW    \
            cov: 1501 ft: 9 corp: 25/2Kb\n#90\tDONE   cov: 1600 ft: 9 corp: 31/2Kb lim: 4\n";
        assert_eq!(Seen::of(text), Some(Seen { inputs: 90, first: 1500, last: 1600, kept: 31 }));
        assert_eq!(Seen::of("INFO: Seed: 1\n"), None);
    }
}
