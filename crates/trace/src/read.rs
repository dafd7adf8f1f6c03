//! Reads a trace in bounded memory and goes on behind damage, which it reports as gaps; it fills no
//! gap with a guess.
//!
//! A block is taken whole or not at all: which of its events a damaged byte belongs to cannot be
//! known. Only the last block of a file that ends too early is read up to its last whole event.
//! After damage the next sync marker is looked for. Where the head of a file comes again another
//! trace begins, of which nothing is read.

use crate::Event;
use crate::block::{BLOCK_HEAD, BLOCK_MAX, FILE_HEAD, Head, SYNC, VERSION, file_version, kind};
use crate::damage::{Cause, Gap};
use crate::kinds::described;
use crate::wire::{Base, Kinds, Taken, take_kinds};
use std::collections::VecDeque;
use std::io::Read;

/// What a reader yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// A span that could not be read.
    Gap(Gap),
}

/// Why a trace cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Below the trace.
    #[error("trace: cannot read: {0}; look at the file")]
    Io(#[from] std::io::Error),
    /// No block of a trace is in it.
    #[error(
        "trace: cannot read: seen {}, allowed what 'tandem sim --trace' or 'tandem trace record' \
            wrote, or a log that 'tandem trace log' printed; name such a file",
        without_a_block(*bytes)
    )]
    NotATrace {
        /// Bytes that were looked at.
        bytes: u64,
    },
    /// A newer version of the format.
    #[error(
        "trace: cannot read: seen version {seen}, allowed {VERSION}; read it with the version of \
            Tandem that wrote it"
    )]
    Version {
        /// The file's version.
        seen: u16,
    },
    /// A text of which no line is one of the log.
    #[error("trace: cannot read it, neither as a trace nor as a log: {0}")]
    NotALog(crate::log::LogError),
    /// A table of kinds that is whole but not understood.
    #[error(
        "trace: cannot read its table of kinds: seen a coding that is not allowed in version \
            {VERSION}; read it with the version of Tandem that wrote it"
    )]
    Kinds,
}

/// What is in a file of so many bytes that is no trace.
fn without_a_block(bytes: u64) -> String {
    if bytes == 0 {
        "an empty file".to_owned()
    } else {
        format!("{bytes} bytes without a block of a trace")
    }
}

/// Reads a trace.
pub struct Reader<R: Read> {
    input: R,
    buf: Vec<u8>,
    at: usize,
    eof: bool,
    started: bool,
    ended: bool,
    /// Another trace has begun.
    another: bool,
    done: bool,
    kinds: Kinds,
    ready: VecDeque<Item>,
    expected: u32,
    blocks: u64,
    bytes: u64,
    last_ns: Option<u64>,
    gap: Option<Gap>,
    /// Blocks and events in the gap whose heads could be read.
    in_gap: (u32, u32),
    /// Names may have been lost, and some of them have been repeated.
    missed: bool,
    told: bool,
    skipped: u64,
}

impl<R: Read> Reader<R> {
    /// A reader of `input`, which need not be buffered.
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            buf: vec![],
            at: 0,
            eof: false,
            started: false,
            ended: false,
            another: false,
            done: false,
            kinds: Kinds::new(&described()),
            ready: VecDeque::new(),
            expected: 0,
            blocks: 0,
            bytes: 0,
            last_ns: None,
            gap: None,
            in_gap: (0, 0),
            missed: false,
            told: false,
            skipped: 0,
        }
    }

    /// Events and blocks that were skipped because only a newer version knows their kind.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next event or gap; none at the end.
    ///
    /// # Errors
    /// `ReadError`, when nothing more can be read.
    pub fn next_item(&mut self) -> Result<Option<Item>, ReadError> {
        while self.ready.is_empty() && !self.done {
            self.advance()?;
        }
        let item = self.ready.pop_front();
        if let Some(Item::Event(e)) = &item {
            self.last_ns = Some(self.last_ns.map_or(e.ns, |l| l.max(e.ns)));
        }
        Ok(item)
    }

    fn data(&self) -> &[u8] {
        &self.buf[self.at..]
    }

    /// Has `n` bytes at hand, or all that are left.
    fn fill(&mut self, n: usize) -> Result<(), ReadError> {
        if self.data().len() >= n || self.eof {
            return Ok(());
        }
        self.buf.drain(..self.at);
        self.at = 0;
        let want = (n.max(BLOCK_MAX) - self.buf.len()) as u64;
        let got = (&mut self.input).take(want).read_to_end(&mut self.buf)?;
        self.eof = (got as u64) < want;
        Ok(())
    }

    fn advance(&mut self) -> Result<(), ReadError> {
        if !self.started {
            return self.start();
        }
        self.fill(BLOCK_HEAD)?;
        if self.data().is_empty() {
            return self.end();
        }
        if self.blocks > 0 && file_version(self.data()).is_some() {
            self.joined();
            self.at += FILE_HEAD;
            self.open_gap(Cause::Another, FILE_HEAD);
            return Ok(());
        }
        let Some(head) = Head::of(self.data()) else { return self.skip(Cause::Damaged) };
        let whole = BLOCK_HEAD + head.len as usize;
        self.fill(whole)?;
        if self.another {
            self.pass_over(&head, whole.min(self.data().len()));
            return Ok(());
        }
        let Some(body) = self.data().get(BLOCK_HEAD..whole) else { return self.cut(head) };
        if crc32fast::hash(body) != head.crc {
            self.in_gap = (self.in_gap.0 + 1, self.in_gap.1.saturating_add(head.count));
            return self.skip(Cause::Damaged);
        }
        let body = body.to_vec();
        self.at += whole;
        self.bytes += whole as u64;
        self.block(head, &body)
    }

    fn start(&mut self) -> Result<(), ReadError> {
        self.started = true;
        self.fill(FILE_HEAD)?;
        match file_version(self.data()) {
            Some(VERSION) => {
                self.at += FILE_HEAD;
                self.bytes += FILE_HEAD as u64;
                Ok(())
            }
            Some(seen) => Err(ReadError::Version { seen }),
            None if self.data().is_empty() => Ok(()),
            None if self.data().starts_with(&SYNC) => {
                self.open_gap(Cause::Head, 0);
                Ok(())
            }
            None => self.skip(Cause::Head),
        }
    }

    /// Ends this trace, with its gap if one is open, where another begins.
    fn joined(&mut self) {
        if !std::mem::replace(&mut self.another, true) {
            self.last_gap();
        }
    }

    /// Counts the events of another trace's block.
    fn pass_over(&mut self, head: &Head, bytes: usize) {
        if head.kind == kind::EVENTS {
            self.in_gap = (self.in_gap.0 + 1, self.in_gap.1.saturating_add(head.count));
        }
        self.at += bytes;
        self.open_gap(Cause::Another, bytes);
    }

    fn open_gap(&mut self, cause: Cause, bytes: usize) {
        let from_ns = self.last_ns;
        let gap = self.gap.get_or_insert(Gap::at(from_ns, cause));
        gap.bytes += bytes as u64;
        self.bytes += bytes as u64;
    }

    /// Goes to the next sync marker behind the present byte.
    fn skip(&mut self, cause: Cause) -> Result<(), ReadError> {
        let data = self.data();
        let next = data.windows(SYNC.len()).skip(1).position(|w| w == SYNC).map(|i| i + 1);
        // Before it may be the head of another file.
        let head = next.and_then(|i| i.checked_sub(FILE_HEAD)).filter(|i| *i > 0);
        let head = head.filter(|i| self.blocks > 0 && file_version(&data[*i..]).is_some());
        // Head and marker may begin in the last bytes at hand.
        let look = FILE_HEAD + SYNC.len() - 1;
        let keep = if self.eof { 0 } else { look.min(data.len() - 1) };
        let by = head.or(next).unwrap_or(data.len() - keep).max(1);
        self.at += by;
        self.open_gap(cause, by);
        Ok(())
    }

    /// The last block of a file that ends too early: events up to where it ends, unless another
    /// block follows.
    fn cut(&mut self, head: Head) -> Result<(), ReadError> {
        let body = self.data()[BLOCK_HEAD..].to_vec();
        let follows = body.windows(SYNC.len()).any(|w| w == SYNC);
        if follows || head.kind != kind::EVENTS || self.misplaced(&head) {
            return self.skip(Cause::Damaged);
        }
        self.close_gap(&head);
        self.at = self.buf.len();
        let found = self.events(&head, &body);
        let from_ns = found.1.or(self.last_ns);
        let least = head.count.saturating_sub(found.0);
        let gap = Gap { bytes: found.2, least, ..Gap::at(from_ns, Cause::Cut) };
        self.ready.push_back(Item::Gap(gap));
        (self.ended, self.blocks) = (true, self.blocks + 1);
        Ok(())
    }

    /// Whether a block cannot come next: one that was there before.
    fn misplaced(&self, head: &Head) -> bool {
        self.blocks > 0 && head.number.wrapping_sub(self.expected) > u32::MAX / 2
    }

    fn block(&mut self, head: Head, body: &[u8]) -> Result<(), ReadError> {
        if self.misplaced(&head) {
            self.bytes -= (BLOCK_HEAD + body.len()) as u64;
            self.open_gap(Cause::Garbage, BLOCK_HEAD + body.len());
            return Ok(());
        }
        self.close_gap(&head);
        self.blocks += 1;
        match head.kind {
            kind::KINDS => self.kinds = Kinds::new(&take_kinds(body).ok_or(ReadError::Kinds)?),
            kind::EVENTS => self.whole_events(&head, body),
            kind::NAMES if self.missed => {
                self.events(&head, body);
                self.told = true;
            }
            kind::NAMES => {}
            kind::END => self.ended = true,
            _ => self.skipped += 1,
        }
        Ok(())
    }

    fn whole_events(&mut self, head: &Head, body: &[u8]) {
        let found = self.events(head, body);
        if found.0 < head.count {
            let from_ns = found.1.or(self.last_ns);
            let events = Some(head.count - found.0);
            let gap = Gap { bytes: found.2, events, ..Gap::at(from_ns, Cause::Damaged) };
            self.ready.push_back(Item::Gap(gap));
        }
    }

    /// Takes events off a block: how many, the time of the last, and the bytes that are left.
    fn events(&mut self, head: &Head, body: &[u8]) -> (u32, Option<u64>, u64) {
        let (mut rest, mut base, mut last) = (body, Base::new(head.first_ns), None);
        for i in 0..head.count {
            let before = rest;
            match base.read(&mut rest, &self.kinds) {
                Taken::Bad => return (i, last, before.len() as u64),
                Taken::Unknown => self.skipped += 1,
                Taken::Event(e) => {
                    last = Some(e.ns);
                    self.ready.push_back(Item::Event(e));
                }
            }
        }
        (head.count, last, rest.len() as u64)
    }

    /// Ends a gap at a block that can be read, and notes a gap if blocks are missing before it.
    fn close_gap(&mut self, head: &Head) {
        let missing = head.number.wrapping_sub(self.expected);
        let (blocks, events) = std::mem::take(&mut self.in_gap);
        self.expected = head.number.wrapping_add(1);
        let mut gap = self.gap.take();
        if missing > 0 && gap.is_none() {
            gap = Some(Gap::at(self.last_ns, Cause::Missing));
        }
        if self.told && head.kind != kind::NAMES {
            (self.missed, self.told) = (false, false);
        }
        self.missed |= missing > 0;
        let Some(mut gap) = gap else { return };
        gap.to_ns = Some(head.first_ns);
        gap.events = match missing {
            0 => Some(0),
            n if n == blocks => Some(events),
            _ => None,
        };
        gap.least = events;
        if missing == 0 && gap.cause == Cause::Damaged {
            gap.cause = Cause::Garbage;
        }
        self.ready.push_back(Item::Gap(gap));
    }

    fn end(&mut self) -> Result<(), ReadError> {
        self.done = true;
        if self.blocks == 0 {
            return Err(ReadError::NotATrace { bytes: self.bytes });
        }
        self.last_gap();
        Ok(())
    }

    /// The gap behind the last block.
    fn last_gap(&mut self) {
        let (blocks, events) = std::mem::take(&mut self.in_gap);
        let Some(mut gap) = self.gap.take() else {
            if !self.ended {
                self.ready.push_back(Item::Gap(Gap::at(self.last_ns, Cause::Cut)));
            }
            return;
        };
        gap.least = events;
        (gap.events, gap.cause) = match (gap.cause, self.ended) {
            (Cause::Another, _) => (Some(events), Cause::Another),
            (_, false) => (None, Cause::Cut),
            // After the end nothing is missing.
            (_, true) => (Some(if blocks > 0 { events } else { 0 }), Cause::Garbage),
        };
        self.ready.push_back(Item::Gap(gap));
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Item, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.next_item();
        if item.is_err() {
            self.done = true;
            self.ready.clear();
        }
        item.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Writer};
    use units::PcpuId;

    /// Noise of 4 MB, then a trace, then noise that looks like the beginning of blocks.
    #[test]
    fn a_reader_keeps_no_more_than_two_blocks_at_hand() {
        let mut writer = Writer::new(vec![]).unwrap();
        let event =
            |ns| Event { ns, pcpu: Some(PcpuId(1)), kind: Kind::Idle { begins: ns % 2 == 0 } };
        (0..200_000).for_each(|ns| writer.push(&event(ns)).unwrap());
        let trace = writer.finish().unwrap();
        let (noise, sham) = (vec![0xf5; 4_000_000], SYNC.repeat(100_000));
        let mut reader = Reader::new((&noise[..]).chain(&trace[..]).chain(&sham[..]));
        let (mut events, mut gaps) = (0, vec![]);
        while let Some(item) = reader.next_item().unwrap() {
            assert!(
                reader.buf.len() <= 2 * BLOCK_MAX && reader.ready.len() <= BLOCK_MAX / 4,
                "{}",
                reader.buf.len()
            );
            match item {
                Item::Event(e) => {
                    assert_eq!(e.ns, events);
                    events += 1;
                }
                Item::Gap(gap) => gaps.push((gap.bytes, gap.cause, gap.events)),
            }
        }
        // The file's head, 16 bytes, is part of the noise: it is looked for in front only.
        assert_eq!(
            (events, gaps),
            (200_000, vec![(4_000_016, Cause::Head, Some(0)), (800_000, Cause::Garbage, Some(0))])
        );
    }
}
