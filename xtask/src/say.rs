//! Writes what a command prints: a reader that is gone (`cargo xtask campaign --list | head`) ends
//! no work and fails no command, as the macros of the standard library would by a panic.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// What could not be written first, where the reader is not just gone.
static UNWRITTEN: Mutex<Option<String>> = Mutex::new(None);

/// Text to standard output, by `println!`'s rules.
macro_rules! sayln {
    ($($text:tt)*) => { $crate::say::text(format_args!("{}\n", format_args!($($text)*))) };
}

/// Text to standard output without a line end, by `print!`'s rules.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::text(format_args!($($text)*)) };
}

pub(crate) use {say, sayln};

/// Text to standard output; what cannot be written is reported at the end of the command.
pub fn text(text: fmt::Arguments<'_>) {
    // One write, so that the lines of two threads do not mix.
    if let Err(e) = written(&mut io::stdout().lock(), &text.to_string()) {
        let mut unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        unwritten.get_or_insert(e.to_string());
    }
}

/// Writes a text; a reader that is gone has seen enough.
fn written(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// How a command ends that would end with `code`.
#[must_use]
pub fn end(code: ExitCode) -> ExitCode {
    match UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).take() {
        None => code,
        Some(why) => {
            let next = "free space there, or send it elsewhere";
            eprintln!("standard output: cannot write the output: {why}; {next}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place where nothing can be written, and why.
    struct Refuses(ErrorKind);

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_is_gone_fails_nothing_and_a_full_disk_does() {
        assert!(written(&mut Refuses(ErrorKind::BrokenPipe), "a line\n").is_ok());
        assert!(written(&mut Refuses(ErrorKind::StorageFull), "a line\n").is_err());
    }
}
