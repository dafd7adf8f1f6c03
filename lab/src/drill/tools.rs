//! Finds the measuring tools that drills run in the guest: perf, hackbench and cyclictest out of
//! Debian's packages, with their own loader and libraries, so that the guest's stay as they are;
//! nothing is installed on the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive::Archive;
use crate::boot::GuestFile;
use crate::error::{LabError, OnPath, Result};
use crate::tool;

const PACKAGES: [&str; 2] = ["linux-perf", "rt-tests"];
const PROGRAMS: [&str; 3] = ["usr/bin/perf", "usr/bin/hackbench", "usr/bin/cyclictest"];
/// In the guest: programs here, loader and libraries in `lib` below.
const GUEST: &str = "/lab/tools";
const LOADER: &str = "ld.so";
const NEXT: &str = "run apt-get update, or check the network";

/// The tools as files for the guest, fetched on first use (37 MB) and kept in the cache.
pub(super) fn fetch(archive: &Archive) -> Result<Vec<GuestFile>> {
    let place = archive.root().join("tools");
    if !place.is_dir() {
        let work = archive.root().join(format!("tools.{}", std::process::id()));
        let made = make(&work, &place);
        tool::remove_dir(&work)?;
        made?;
    }
    let file = |path: PathBuf| {
        let inside = path.strip_prefix(&place).unwrap_or(&path).display().to_string();
        GuestFile::copy(path, format!("{GUEST}/{inside}"))
    };
    Ok(tool::files_below(&place)?.into_iter().map(file).collect())
}

fn make(work: &Path, place: &Path) -> Result<()> {
    let (packages, root, draft) = (work.join("archives"), work.join("root"), work.join("tools"));
    tool::make_dir(&packages.join("partial"))?;
    tool::make_dir(&root)?;
    download(work, &packages)?;
    for deb in
        tool::files_below(&packages)?.iter().filter(|f| f.extension().is_some_and(|e| e == "deb"))
    {
        tool::unpack_deb(deb, &root)?;
    }
    let loader = loader(&root)?;
    tool::copy(&loader, &draft.join("lib").join(LOADER))?;
    for program in PROGRAMS.map(|p| root.join(p)) {
        for library in libraries(&loader, &root, &program)? {
            tool::copy(&library, &draft.join("lib").join(library.file_name().unwrap_or_default()))?;
        }
        tool::copy(&program, &draft.join(program.file_name().unwrap_or_default()))?;
    }
    std::fs::rename(&draft, place).on(place, "put the tools in place")
}

/// The packages with all they need: the empty package state makes apt take nothing of the machine's
/// for granted.
fn download(work: &Path, into: &Path) -> Result<()> {
    tool::progress(&format!("fetching {} with their libraries", PACKAGES.join(", ")));
    let status = work.join("status");
    tool::write(&status, b"")?;
    let mut command = Command::new("apt-get");
    command.args([
        "install",
        "--download-only",
        "--yes",
        "-o",
        "APT::Install-Recommends=false",
        "-o",
        "Debug::NoLocking=1",
    ]);
    command.args([
        "-o",
        &format!("Dir::State::status={}", status.display()),
        "-o",
        &format!("Dir::Cache::archives={}", into.display()),
    ]);
    command.args(PACKAGES).env("LC_ALL", "C");
    tool::run(&mut command, &format!("download {}", PACKAGES.join(", ")), NEXT).map(drop)
}

fn loader(root: &Path) -> Result<PathBuf> {
    let names = [
        "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    ];
    let found = names.iter().map(|n| root.join(n)).find(|p| p.is_file());
    found.ok_or_else(|| {
        LabError::new(
            "C library",
            "give its loader",
            format!("none of {}", names.join(", ")),
            "report the layout of libc6",
        )
    })
}

/// Every library that a program asks for, by its own loader.
fn libraries(loader: &Path, root: &Path, program: &Path) -> Result<Vec<PathBuf>> {
    let folders = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"]
        .map(|f| root.join(f).display().to_string())
        .join(":");
    let mut command = Command::new(loader);
    command.args(["--library-path", &folders, "--list"]).arg(program);
    let list = tool::run(
        &mut command,
        "list a program's libraries",
        "delete the cache folder and fetch again",
    )?;
    Ok(String::from_utf8_lossy(&list).lines().filter_map(library).collect())
}

/// `libc.so.6 => /x/libc.so.6 (0x7f…)`
fn library(line: &str) -> Option<PathBuf> {
    let (_, rest) = line.split_once(" => ")?;
    let path = rest.split(' ').next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_and_the_vdso_is_none() {
        assert_eq!(
            library("\tlibc.so.6 => /r/lib/libc.so.6 (0x00007f)"),
            Some(PathBuf::from("/r/lib/libc.so.6"))
        );
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007ffc)"), None);
    }
}
