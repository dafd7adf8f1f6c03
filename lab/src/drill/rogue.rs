//! Compiles the guest's programs in `lab/rogue`: those that ask for more than they are given, and
//! one that shows what that costs; and the one in `lab/witness` that VMs run.

use std::path::PathBuf;
use std::process::Command;

use crate::archive::Archive;
use crate::boot::GuestFile;
use crate::error::{LabError, Result};
use crate::tool;

const FLAGS: [&str; 4] = ["-O2", "-Wall", "-Werror", "-static"];

/// A program of the guest's.
#[derive(Clone, Copy)]
pub(super) struct Program {
    name: &'static str,
    source: &'static str,
}

/// Asks for more threads than there is room for.
pub(super) const ROGUE: Program =
    Program { name: "rogue", source: include_str!("../../rogue/rogue.c") };
/// Plays for more than its share, and looks like a VM if it is called like one.
pub(super) const TENANT: Program =
    Program { name: "tenant", source: include_str!("../../rogue/tenant.c") };
/// Real-time tasks that take CPUs.
pub(super) const HOG: Program = Program { name: "hog", source: include_str!("../../rogue/hog.c") };
/// A VM that holds a lock of the kernel for which a host task waits.
pub(super) const LOCKER: Program =
    Program { name: "locker", source: include_str!("../../rogue/locker.c") };
/// Prints what the kernel says of BPF programs.
pub(super) const PROGSTAT: Program =
    Program { name: "progstat", source: include_str!("../../rogue/progstat.c") };
/// The first process of a Linux VM, which works as it is ordered.
pub(super) const WITNESS: Program =
    Program { name: "witness", source: include_str!("../../witness/witness.c") };

/// A program for the guest; there it is in `/usr/bin` by the names given.
pub(super) fn build(archive: &Archive, program: Program, names: &[&str]) -> Result<Vec<GuestFile>> {
    let place = compiled(archive, program)?;
    Ok(names.iter().map(|n| GuestFile::copy(&place, format!("/usr/bin/{n}"))).collect())
}

/// A program's file, compiled on first use and kept in the cache.
pub(super) fn compiled(archive: &Archive, program: Program) -> Result<PathBuf> {
    let (name, flags) = (program.name, FLAGS.join(" "));
    let key = tool::content_key([program.source.as_bytes(), flags.as_bytes()]);
    let place = archive.root().join(format!("{name}-{key}"));
    if !place.is_file() {
        let compiler = tool::need_program(&["gcc", "clang", "clang-19", "cc"], "gcc")?;
        let folder = place.with_extension(format!("build{}", std::process::id()));
        let file = format!("{name}.c");
        tool::write(&folder.join(&file), program.source.as_bytes())?;
        let mut command = Command::new(compiler);
        command.current_dir(&folder).args(FLAGS).args(["-o", name, &file]);
        tool::run(&mut command, &format!("compile {name}"), "install gcc and libc6-dev")?;
        std::fs::rename(folder.join(name), &place)
            .map_err(|e| LabError::io(&place, &format!("put {name} in place"), e))?;
        tool::remove_dir(&folder)?;
    }
    Ok(place)
}
