//! Carries files between the machine and a guest: a tar archive on a disk of its own in each
//! direction; it never mounts a guest's file system.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Content, GuestFile};
use crate::cpio::Cpio;
use crate::error::{LabError, OnPath, Result};
use crate::tool;

/// Room for what a guest hands back; a sparse file, so unused room costs nothing.
const OUTPUT_BYTES: u64 = 512 << 20;
/// The guest's init runs this script.
const COMMAND_PATH: &str = "/lab/command";

/// Writes a root in memory: the base archive and, behind it, the caller's files and the command.
pub(super) fn write_initrd(
    initrd: &Path,
    base: &Path,
    command: &str,
    files: &[GuestFile],
) -> Result<()> {
    let mut cpio = Cpio::default();
    let command = GuestFile::bytes(COMMAND_PATH, format!("{command}\n").into_bytes(), true);
    for file in files.iter().chain([&command]) {
        let relative = relative(&file.guest_path)?;
        // In the root, bin and its like are links: a folder of that name would take the link's
        // place.
        let linked = ["bin/", "sbin/", "lib/", "lib64/"].iter().any(|l| relative.starts_with(l));
        let relative = if linked { format!("usr/{relative}") } else { relative.to_owned() };
        for (at, _) in relative.match_indices('/') {
            cpio.add(&relative[..at], 0o040_755, (0, 0), &[]);
        }
        let (content, executable) = file_content(file)?;
        cpio.add(&relative, if executable { 0o100_755 } else { 0o100_644 }, (0, 0), &content);
    }
    let mut whole = tool::read(base)?;
    whole.extend(cpio.finish());
    tool::write(initrd, &whole)
}

fn file_content(file: &GuestFile) -> Result<(Vec<u8>, bool)> {
    match &file.content {
        Content::Copy(host) => Ok((tool::read(host)?, is_executable(host)?)),
        Content::Bytes { bytes, executable } => Ok((bytes.clone(), *executable)),
    }
}

fn relative(guest_path: &str) -> Result<&str> {
    guest_path.strip_prefix('/').filter(|p| !p.is_empty()).ok_or_else(|| {
        LabError::new(
            guest_path,
            "be put into the guest",
            "not an absolute path",
            "start the guest path with a slash",
        )
    })
}

/// Writes the archive that the guest unpacks into its root: the caller's files and the command.
pub(super) fn write_input(disk: &Path, command: &str, files: &[GuestFile]) -> Result<()> {
    let sink = File::create(disk).on(disk, "create the input disk")?;
    let mut archive = tar::Builder::new(std::io::BufWriter::new(sink));
    for file in files {
        let (content, executable) = file_content(file)?;
        append(&mut archive, disk, &file.guest_path, &content, executable)?;
    }
    append(&mut archive, disk, COMMAND_PATH, format!("{command}\n").as_bytes(), true)?;
    archive
        .into_inner()
        .and_then(|mut w| std::io::Write::flush(&mut w))
        .on(disk, "write the input disk")
}

fn append<W: std::io::Write>(
    archive: &mut tar::Builder<W>,
    disk: &Path,
    guest_path: &str,
    content: &[u8],
    executable: bool,
) -> Result<()> {
    let relative = relative(guest_path)?;
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(if executable { 0o755 } else { 0o644 });
    archive
        .append_data(&mut header, relative, content)
        .on(disk, &format!("add {guest_path} to the input disk"))
}

fn is_executable(host: &Path) -> Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = std::fs::metadata(host).on(host, "look at it")?;
    Ok(metadata.permissions().mode() & 0o111 != 0)
}

/// Makes the empty disk that the guest writes its archive to.
pub(super) fn make_output(disk: &Path) -> Result<()> {
    let file = File::create(disk).on(disk, "create the output disk")?;
    file.set_len(OUTPUT_BYTES).on(disk, "size the output disk")
}

/// Unpacks what the guest wrote and returns the files, sorted; an untouched disk holds none.
pub(super) fn read_output(disk: &Path, into: &Path) -> Result<Vec<PathBuf>> {
    tool::remove_dir(into)?;
    tool::make_dir(into)?;
    let source = File::open(disk).on(disk, "open the output disk")?;
    let mut archive = tar::Archive::new(std::io::BufReader::new(source.take(OUTPUT_BYTES)));
    for entry in archive.entries().on(disk, "read the output disk")? {
        // A guest that was cut off in the middle leaves a torn end; what came before it still
        // counts.
        let Ok(mut entry) = entry else { break };
        if entry.unpack_in(into).is_err() {
            break;
        }
    }
    tool::files_below(into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("lab-files-{name}-{}", std::process::id()));
        tool::make_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn files_and_the_command_arrive_with_their_modes() {
        let folder = scratch("in");
        let disk = folder.join("in.tar");
        let files = [
            GuestFile::bytes("/usr/bin/x", b"#!/bin/sh".to_vec(), true),
            GuestFile::text("/etc/y", "1"),
        ];
        write_input(&disk, "x --now", &files).unwrap();
        assert_eq!(std::fs::metadata(&disk).unwrap().len() % 512, 0, "a disk is whole sectors");
        let mut archive = tar::Archive::new(File::open(&disk).unwrap());
        let seen: Vec<(String, u32)> = archive
            .entries()
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| (e.path().unwrap().display().to_string(), e.header().mode().unwrap()))
            .collect();
        let expected = [("usr/bin/x", 0o755), ("etc/y", 0o644), ("lab/command", 0o755)];
        assert_eq!(seen, expected.map(|(p, m)| (p.to_owned(), m)));
        tool::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_relative_guest_path_is_refused() {
        let folder = scratch("rel");
        let error = write_input(&folder.join("in.tar"), "true", &[GuestFile::text("etc/y", "1")])
            .unwrap_err();
        assert!(error.to_string().contains("start the guest path with a slash"), "{error}");
        tool::remove_dir(&folder).unwrap();
    }

    #[test]
    fn an_untouched_output_disk_gives_no_files() {
        let folder = scratch("out");
        let disk = folder.join("out.tar");
        make_output(&disk).unwrap();
        assert_eq!(read_output(&disk, &folder.join("out")).unwrap(), Vec::<PathBuf>::new());
        tool::remove_dir(&folder).unwrap();
    }
}
