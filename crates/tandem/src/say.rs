//! Writes what a command prints, and never fails the command for a closed pipe: the macros of the
//! standard library end the program by a panic then.

use crate::Failure;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Something that a command cannot write; `main` takes a reader that is gone (`tandem … | head`)
/// for no failure.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// Where it is written: standard output, or a file as given.
    pub(crate) object: String,
    /// What is written, such as `the result`.
    pub(crate) what: &'static str,
    /// Why it is not.
    pub(crate) cause: io::Error,
    /// What to do.
    pub(crate) next: &'static str,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unwritten { object, what, cause, next } = self;
        write!(f, "{object}: cannot write {what}: {cause}; {next}")
    }
}

impl std::error::Error for Unwritten {}

impl Unwritten {
    /// `what` on standard output.
    pub(crate) fn on_stdout(what: &'static str, cause: io::Error) -> Unwritten {
        let next = "free space there, or send it elsewhere";
        Unwritten { object: "standard output".to_owned(), what, cause, next }
    }
}

impl From<Unwritten> for Failure {
    fn from(e: Unwritten) -> Failure {
        Failure::from(anyhow::Error::from(e))
    }
}

/// The failure of another crate that wrote `what` to standard output: the error of the write where
/// that is the cause, else as it is.
pub(crate) fn failed(what: &'static str, error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    match cause(&error) {
        Some(cause) => Unwritten::on_stdout(what, cause).into(),
        None => error,
    }
}

/// The error of the system that is the cause.
pub(crate) fn cause(error: &anyhow::Error) -> Option<io::Error> {
    let e = error.chain().find_map(|c| c.downcast_ref::<io::Error>())?;
    Some(e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error))
}

/// Whether it failed because the reader is gone.
pub(crate) fn is_gone(error: &anyhow::Error) -> bool {
    error.chain().any(|c| {
        let unwritten = c.downcast_ref::<Unwritten>().map(|u| &u.cause);
        unwritten
            .or_else(|| c.downcast_ref::<io::Error>())
            .is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    })
}

/// A line to standard output.
///
/// # Errors
/// When it cannot be written. A reader that is gone (`tandem … | head`) is no failure of a command:
/// `main` ends with 0 then.
pub(crate) fn line(text: &str) -> Result<(), Unwritten> {
    all(&format!("{text}\n"))
}

/// Text for people to standard output: a terminal obeys nothing in it, such as the name of a VM.
///
/// # Errors
/// As [`line`].
pub(crate) fn all(text: &str) -> Result<(), Unwritten> {
    raw(&top::safe_lines(text))
}

/// Bytes of a document to standard output, unchanged.
///
/// # Errors
/// As [`line`].
pub(crate) fn raw(text: &str) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    let done = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    done.map_err(|e| Unwritten::on_stdout("the output", e))
}

/// A value to standard output as JSON that people can read.
///
/// # Errors
/// As [`line`].
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(raw(&(serde_json::to_string_pretty(value)? + "\n"))?)
}

/// A value to standard output as one line of JSON.
///
/// # Errors
/// As [`line`].
#[cfg(feature = "live")]
pub(crate) fn json_line(value: &impl serde::Serialize) -> Result<(), Unwritten> {
    // Structs of texts and numbers: there is nothing that could fail.
    raw(&(serde_json::to_string(value).unwrap_or_default() + "\n"))
}

/// A word of a command line as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-=,:%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A line to standard error; its reader may be gone.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", top::safe_lines(text));
}

/// Text to standard error without a line end and unchanged, such as the progress of long work; it
/// needs no reader.
pub(crate) fn hint(text: &str) {
    let mut err = io::stderr();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// What a command says beside its work: the work goes on where that cannot be written, and the end
/// reports it.
#[derive(Debug, Default)]
pub(crate) struct Beside(RefCell<Option<Unwritten>>);

impl Beside {
    /// Text for people to standard output.
    pub(crate) fn all(&self, text: &str) {
        self.raw(&top::safe_lines(text));
    }

    /// Bytes of a document to standard output, unchanged.
    pub(crate) fn raw(&self, text: &str) {
        if let Err(e) = raw(text) {
            self.0.borrow_mut().get_or_insert(e);
        }
    }

    /// How the command ends whose work is `done`.
    ///
    /// # Errors
    /// The work's own; else the first text that could not be written.
    pub(crate) fn end(&self, done: Result<(), Failure>) -> Result<(), Failure> {
        match (self.0.take(), done) {
            (None, done) => done,
            (Some(unwritten), Ok(())) => Err(unwritten.into()),
            (Some(unwritten), failed) => {
                let error = anyhow::Error::from(unwritten);
                if !is_gone(&error) {
                    note(&format!("tandem: {error}"));
                }
                failed
            }
        }
    }
}
