//! Runs the machine's own tools (apt, dpkg-deb, mke2fs, the C compiler) and reads and writes files,
//! for the rest of the lab; it decides nothing and never touches anything outside the paths it is
//! given.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LabError, OnPath, Result};

/// Prints one line of progress on standard error; long steps announce themselves through it.
pub fn progress(line: &str) {
    eprintln!("lab: {line}");
}

/// Runs a command to its end and returns its standard output, or an error that quotes the end of
/// its complaints.
pub fn run(command: &mut Command, action: &str, next: &str) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| LabError::new(&name, action, e.to_string(), next))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.trim().is_empty() {
        said = String::from_utf8_lossy(&output.stdout).into_owned();
    }
    let seen = format!("{}, saying \"{}\"", output.status, last_lines(&said, 4));
    Err(LabError::new(name, action, seen, next))
}

/// The last `count` non-empty lines of a text, joined by " | ".
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join(" | ")
}

/// The first of these program names that the search path holds.
pub fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(extra).collect();
    names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|p| p.is_file())
}

/// Like [`find_program`], with an error that names the Debian package to install.
pub fn need_program(names: &[&str], package: &str) -> Result<PathBuf> {
    find_program(names).ok_or_else(|| {
        LabError::new(
            names.join(" or "),
            "be run",
            "no such program in the search path",
            format!("install the package {package}"),
        )
    })
}

/// Unpacks a Debian package below a folder.
pub fn unpack_deb(deb: &Path, into: &Path) -> Result<()> {
    make_dir(into)?;
    let next = "delete the file so that it is fetched again";
    let mut command = Command::new("dpkg-deb");
    run(command.arg("-x").arg(deb).arg(into), "unpack a package", next).map(drop)
}

/// Creates a folder and its parents.
pub fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).on(path, "create the folder")
}

/// Reads a whole file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).on(path, "read the file")
}

/// Writes a whole file and its parent folders; a reader sees the old or the new content, never half
/// of it.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.new", std::process::id()));
    let draft = PathBuf::from(draft);
    fs::write(&draft, content).on(&draft, "write the file")?;
    fs::rename(&draft, path).on(path, "put the file in place")
}

/// Copies a file, following symbolic links, with its permission bits.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        make_dir(parent)?;
    }
    fs::copy(from, to).on(from, &format!("copy it to {}", to.display())).map(drop)
}

/// Deletes a folder with everything below it; a missing folder is no error.
pub fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::io(path, "delete the folder", e))
        }
        _ => Ok(()),
    }
}

/// All files below a folder, sorted, symbolic links to files included and links to folders not
/// followed.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).on(&dir, "list the folder")? {
            let entry = entry.on(&dir, "list the folder")?;
            let kind = entry.file_type().on(&entry.path(), "look at it")?;
            if kind.is_dir() {
                pending.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A size in megabytes (1,000,000 bytes), rounded to one decimal, for progress lines.
pub fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

/// FNV-1a over several byte strings, as 16 hexadecimal digits; a cache key, not a protection
/// against malice.
pub fn content_key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        let length = (part.len() as u64).to_le_bytes();
        for byte in length.iter().chain(part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_key_tells_where_one_part_ends() {
        let ab = [b"ab".as_slice(), b"c".as_slice()];
        let bc = [b"a".as_slice(), b"bc".as_slice()];
        assert_ne!(content_key(ab), content_key(bc));
        assert_eq!(content_key(ab), content_key(ab));
    }

    #[test]
    fn a_failing_tool_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no room >&2; exit 3"]);
        let error = run(&mut command, "do it", "try again").unwrap_err();
        assert!(error.to_string().contains("no room"), "{error}");
        assert!(error.to_string().ends_with("; try again"), "{error}");
    }

    #[test]
    fn sizes_read_in_decimal_megabytes() {
        assert_eq!(megabytes(13_717_736), "13.7 MB");
        assert_eq!(megabytes(417_000), "0.4 MB");
    }
}
