//! The way of a trace to its file: keeps why it could not be written, which the simulator hands on
//! as text alone.

use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a trace was not written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded(Arc<Mutex<Option<io::Error>>>);

impl Recorded {
    /// Passes bytes on to `out`. With `without_reader` a reader that is gone is no error, and what
    /// follows goes nowhere.
    pub(crate) fn writer<W>(&self, out: W, without_reader: bool) -> Writer<W> {
        Writer { out: Some(out), without_reader, failed: self.clone() }
    }

    /// The first error.
    pub(crate) fn failed(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Passes bytes on.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    /// Nothing once the reader is gone.
    out: Option<W>,
    without_reader: bool,
    failed: Recorded,
}

impl<W> Writer<W> {
    /// What came of a write; `done` where it goes on without a reader.
    fn kept<T>(&mut self, outcome: io::Result<T>, done: T) -> io::Result<T> {
        let Err(e) = outcome else { return outcome };
        if e.kind() == ErrorKind::Interrupted {
            return Err(e);
        }
        if e.kind() == ErrorKind::BrokenPipe && self.without_reader {
            self.out = None;
            return Ok(done);
        }
        let again = e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error);
        let mut first = self.failed.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(e);
        Err(again)
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(out) = &mut self.out else { return Ok(bytes.len()) };
        let outcome = out.write(bytes);
        self.kept(outcome, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let outcome = out.flush();
        self.kept(outcome, ())
    }
}
