//! Writes what a command prints, and never fails the command for a closed pipe: the macros of the
//! standard library end the program by a panic then.

use std::io::{self, Write};

/// A line to standard output.
///
/// # Errors
/// When it cannot be written. A reader that is gone (`tandem … | head`) is no failure of a command:
/// `main` ends with 0 then.
pub(crate) fn line(text: &str) -> io::Result<()> {
    all(&format!("{text}\n"))
}

/// Text to standard output, unchanged.
///
/// # Errors
/// As [`line`].
pub(crate) fn all(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A value to standard output as JSON that people can read.
///
/// # Errors
/// As [`line`].
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(line(&serde_json::to_string_pretty(value)?)?)
}

/// A line to standard error; its reader may be gone.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Text to standard error without a line end, such as the progress of long work; it needs no
/// reader.
pub(crate) fn hint(text: &str) {
    let mut err = io::stderr();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
