//! Writes events to a file, block by block, in bounded memory; it does not know where the file goes
//! or what events mean.

use crate::block::{BLOCK_MAX, Head, file_head, kind};
use crate::kinds::described;
use crate::wire::{Base, put_kinds};
use crate::{Event, Names, flat};
use std::io::Write;

/// A block is closed when it has this many bytes: what a damaged place costs.
const BLOCK_BYTES: usize = 16 << 10;
/// Bytes between two repetitions of names: what a cut file may lack them for.
const REPEAT_BYTES: usize = 1 << 20;
/// An event has at most this many bytes: 3 numbers in front, 6 fields, 2 texts.
const EVENT_MAX: usize = 9 * 10 + 2 * (crate::wire::TEXT_MAX + 2);

const _: () = assert!(BLOCK_BYTES + EVENT_MAX <= BLOCK_MAX);

/// Why an event was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Below the trace.
    #[error("trace: cannot write: {0}; free space on the disk")]
    Io(#[from] std::io::Error),
    /// An id that no host has.
    #[error("trace: cannot write event {event:?}: seen a pCPU beyond the cap, allowed 0..{max}; \
        correct the source of the event", max = units::caps::PCPUS_MAX - 1)]
    Event {
        /// The event.
        event: Box<Event>,
    },
}

/// Writes a trace. Without `finish` the file is readable, and shows as cut.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    data: Vec<u8>,
    count: u32,
    first_ns: u64,
    base: Base,
    number: u32,
    since_names: usize,
    names: Names,
    last_ns: u64,
    repeat_bytes: usize,
}

impl<W: Write> Writer<W> {
    /// Begins a trace: its head and the table of kinds.
    ///
    /// # Errors
    /// `WriteError::Io` if `out` refuses.
    pub fn new(out: W) -> Result<Writer<W>, WriteError> {
        let mut writer = Writer {
            out,
            data: Vec::with_capacity(BLOCK_BYTES + EVENT_MAX),
            count: 0,
            first_ns: 0,
            base: Base::default(),
            number: 0,
            since_names: 0,
            names: Names::of_living(),
            last_ns: 0,
            repeat_bytes: REPEAT_BYTES,
        };
        writer.out.write_all(&file_head())?;
        writer.block(kind::KINDS, 0, 0, &put_kinds(&described()))?;
        Ok(writer)
    }

    /// Repeats kinds and names after this many bytes instead of 1 MiB.
    #[must_use]
    pub fn repeat_after(mut self, bytes: usize) -> Writer<W> {
        self.repeat_bytes = bytes;
        self
    }

    /// Adds an event. Texts longer than 4096 bytes are cut.
    ///
    /// # Errors
    /// `WriteError::Event` for an id that no host has: nothing is written then. `WriteError::Io` if
    /// the file refuses.
    pub fn push(&mut self, event: &Event) -> Result<(), WriteError> {
        if !flat::fits(event) {
            return Err(WriteError::Event { event: Box::new(event.clone()) });
        }
        if self.count == 0 {
            self.first_ns = event.ns;
            self.base = Base::new(event.ns);
        }
        self.base.write(&mut self.data, event);
        self.count += 1;
        self.last_ns = event.ns;
        self.names.take(event);
        if self.data.len() >= BLOCK_BYTES { self.close() } else { Ok(()) }
    }

    /// Closes the block that is open and flushes the file: what was pushed is safe then.
    ///
    /// # Errors
    /// `WriteError::Io` if the file refuses.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.close()?;
        Ok(self.out.flush()?)
    }

    /// Ends the trace and gives back what it was written to.
    ///
    /// # Errors
    /// `WriteError::Io` if the file refuses.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.close()?;
        self.block(kind::END, 0, self.last_ns, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn close(&mut self) -> Result<(), WriteError> {
        if self.count == 0 {
            return Ok(());
        }
        let data = std::mem::take(&mut self.data);
        self.block(kind::EVENTS, self.count, self.first_ns, &data)?;
        self.since_names += data.len();
        self.data = data;
        self.data.clear();
        self.count = 0;
        if self.since_names >= self.repeat_bytes { self.repeat() } else { Ok(()) }
    }

    /// Kinds and names once more, so that what follows can be read without what went before.
    fn repeat(&mut self) -> Result<(), WriteError> {
        self.since_names = 0;
        self.block(kind::KINDS, 0, self.last_ns, &put_kinds(&described()))?;
        let names = std::mem::take(&mut self.names);
        let mut told = names.events().peekable();
        while told.peek().is_some() {
            let (mut data, mut count, mut base) = (vec![], 0, Base::new(self.last_ns));
            while let Some(event) = told.next_if(|_| data.len() < BLOCK_BYTES) {
                base.write(&mut data, event);
                count += 1;
            }
            self.block(kind::NAMES, count, self.last_ns, &data)?;
        }
        drop(told);
        self.names = names;
        Ok(())
    }

    fn block(
        &mut self,
        kind: u8,
        count: u32,
        first_ns: u64,
        data: &[u8],
    ) -> Result<(), WriteError> {
        let crc = crc32fast::hash(data);
        let head = Head { kind, len: data.len() as u32, count, number: self.number, first_ns, crc };
        self.number = self.number.wrapping_add(1);
        self.out.write_all(&head.bytes())?;
        Ok(self.out.write_all(data)?)
    }
}
