//! Files that a command writes: whether they can be written is found out before its work begins,
//! and an old file stays as it is until the new one is whole.

use crate::drafts;
use crate::say::{self, Unwritten};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// A file to be written.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    what: &'static str,
    to: To,
}

/// Where the bytes go.
#[derive(Debug)]
enum To {
    Stdout,
    /// The file itself: a device, a pipe, a descriptor, or a file in a folder that takes no other.
    There(File),
    /// A file in the same folder, renamed at the end.
    Draft(Draft),
}

/// A file that takes the place of `target`, or goes.
#[derive(Debug)]
struct Draft {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Where it was renamed there is none.
        drafts::remove(&self.path);
    }
}

impl Output {
    /// Opens `path` for `what`, such as `the result`; an old file keeps its content until
    /// [`Output::finish`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn open(path: &Path, what: &'static str) -> Result<Output, Unwritten> {
        let to = open(path).map_err(|e| unwritten(path, what, e))?;
        Ok(Output { path: path.to_owned(), what, to })
    }

    /// The same, and '-' is standard output.
    ///
    /// # Errors
    /// As [`Output::open`].
    pub(crate) fn open_or_stdout(path: &Path, what: &'static str) -> Result<Output, Unwritten> {
        if path == Path::new("-") {
            return Ok(Output { path: path.to_owned(), what, to: To::Stdout });
        }
        Output::open(path, what)
    }

    /// Whether it is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.to, To::Stdout)
    }

    /// Takes bytes as they come; [`Output::finish`] ends the file.
    ///
    /// # Errors
    /// When the file cannot be shared or emptied.
    pub(crate) fn writer(&self) -> Result<Box<dyn Write + Send>, Unwritten> {
        let shared = |file: &File| -> io::Result<Box<dyn Write + Send>> {
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            Ok(Box::new(file.try_clone()?))
        };
        match &self.to {
            To::Stdout => Ok(Box::new(io::stdout())),
            To::There(file) | To::Draft(Draft { file, .. }) => {
                shared(file).map_err(|e| self.failed(e))
            }
        }
    }

    /// Writes all that there is, and ends the file.
    ///
    /// # Errors
    /// When it cannot be written; an old file is there as before then.
    pub(crate) fn write(self, text: &str) -> Result<(), Unwritten> {
        if self.is_stdout() {
            return say::raw(text);
        }
        self.writer()?.write_all(text.as_bytes()).map_err(|e| self.failed(e))?;
        self.finish()
    }

    /// The value as JSON that people can read, in place of [`Output::write`]'s text.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub(crate) fn json(self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        Ok(self.write(&(serde_json::to_string_pretty(value)? + "\n"))?)
    }

    /// Ends the file: it has its name from now on.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub(crate) fn finish(self) -> Result<(), Unwritten> {
        match &self.to {
            To::Stdout | To::There(_) => Ok(()),
            To::Draft(draft) => draft.publish().map_err(|e| self.failed(e)),
        }
    }

    /// The failure of another crate that wrote it: the error of the write where that is the cause,
    /// else as it is.
    pub(crate) fn failure(&self, error: anyhow::Error) -> anyhow::Error {
        match say::cause(&error) {
            Some(cause) => self.failed(cause).into(),
            None => error,
        }
    }

    /// The error of a write that failed.
    pub(crate) fn failed(&self, cause: io::Error) -> Unwritten {
        match self.to {
            To::Stdout => Unwritten::on_stdout(self.what, cause),
            _ => unwritten(&self.path, self.what, cause),
        }
    }
}

fn unwritten(path: &Path, what: &'static str, cause: io::Error) -> Unwritten {
    let next = "name a file that can be written";
    Unwritten { object: path.display().to_string(), what, cause, next }
}

fn open(path: &Path) -> io::Result<To> {
    let there = || OpenOptions::new().write(true).open(path);
    match fs::metadata(path) {
        Ok(old) if old.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(old) if !old.is_file() || is_descriptor(path) => Ok(To::There(there()?)),
        Ok(_) => {
            let old = there()?;
            match Draft::new(&fs::canonicalize(path)?) {
                Err(e) if refuses(&e) => Ok(To::There(old)),
                draft => Ok(To::Draft(draft?)),
            }
        }
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        Err(_) if path.as_os_str().as_bytes().ends_with(b"/") => {
            Err(ErrorKind::IsADirectory.into())
        }
        // A link to a file that is not there yet.
        Err(_) if path.is_symlink() => Ok(To::There(File::create(path)?)),
        Err(_) => Ok(To::Draft(Draft::new(path)?)),
    }
}

/// Whether the name stands for an open file of a process, such as /dev/stdout and /dev/fd/5.
fn is_descriptor(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}

/// Whether a folder takes no new file.
fn refuses(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

impl Draft {
    /// A file in the folder of `target` under a name that no other has.
    fn new(target: &Path) -> io::Result<Draft> {
        if target.file_name().is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        let mut number = 0;
        loop {
            let name = format!(".tandem-{}-{number}.part", std::process::id());
            let path = target.with_file_name(name);
            let new = || OpenOptions::new().write(true).create_new(true).open(&path);
            match drafts::make(&path, new) {
                Ok(file) => return Ok(Draft { file, path, target: target.to_owned() }),
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
                Err(_) => number += 1,
            }
        }
    }

    /// Takes the target's place, and its owner and mode.
    fn publish(&self) -> io::Result<()> {
        self.file.sync_all()?;
        let Ok(old) = fs::metadata(&self.target) else {
            return fs::rename(&self.path, &self.target);
        };
        // Only root may give a file away.
        let _ = fchown(&self.file, Some(old.uid()), Some(old.gid()));
        self.file.set_permissions(old.permissions())?;
        match fs::rename(&self.path, &self.target) {
            // A mount point, and another user's file in a folder such as /tmp.
            Err(e) if e.kind() == ErrorKind::ResourceBusy || refuses(&e) => {
                fs::copy(&self.path, &self.target).map(drop)
            }
            done => done,
        }
    }
}
