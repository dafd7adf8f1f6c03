//! Compiles `rogue`, the guest's program that asks for more than it is given, from `lab/rogue`.

use std::process::Command;

use crate::archive::Archive;
use crate::boot::GuestFile;
use crate::error::{LabError, Result};
use crate::tool;

const SOURCE: &str = include_str!("../../rogue/rogue.c");
const FLAGS: [&str; 4] = ["-O2", "-Wall", "-Werror", "-static"];
const GUEST: &str = "/usr/bin/rogue";

/// The program for the guest, compiled on first use and kept in the cache.
pub(super) fn build(archive: &Archive) -> Result<GuestFile> {
    let flags = FLAGS.join(" ");
    let key = tool::content_key([SOURCE.as_bytes(), flags.as_bytes()]);
    let place = archive.root().join(format!("rogue-{key}"));
    if !place.is_file() {
        let compiler = tool::need_program(&["gcc", "clang", "clang-19", "cc"], "gcc")?;
        let folder = place.with_extension(format!("build{}", std::process::id()));
        tool::write(&folder.join("rogue.c"), SOURCE.as_bytes())?;
        let mut command = Command::new(compiler);
        command.current_dir(&folder).args(FLAGS).args(["-o", "rogue", "rogue.c"]);
        tool::run(&mut command, "compile rogue", "install gcc and libc6-dev")?;
        std::fs::rename(folder.join("rogue"), &place)
            .map_err(|e| LabError::io(&place, "put rogue in place", e))?;
        tool::remove_dir(&folder)?;
    }
    Ok(GuestFile::copy(place, GUEST))
}
