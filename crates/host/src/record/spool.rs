//! What a recorder writes while it records, and how a trace comes from it: the rings' records
//! unchanged, in the order in which they were read, and between them the events that user space has
//! made. It needs no other source: a file left over is enough.
//!
//! A chunk is 32 bytes, `{ u64 magic; u64 kind; u64 bytes; u64 ns }`, and so many bytes: records of
//! 32 bytes (kind 1), or events as a whole trace file (kind 2). `ns` is when the rings began to be
//! read: what comes in a later chunk is hardly older.

use crate::HostError;
use std::io::{self, Read, Write};
use trace::{Event, Kind, RAW_BYTES, Trace, Writer};

const MAGIC: u64 = u64::from_le_bytes(*b"tdmspool");
const HEAD: usize = 32;
const RECORDS: u64 = 1;
const EVENTS: u64 = 2;
/// So much is kept in memory before it is written, unless it gets old (`record::FLUSH`).
const KEEP: usize = 8 << 20;
/// What comes on top of it at one look at a few dozen rings; more takes more memory.
const MORE: usize = 4 << 20;
/// Programs are interrupted between the time that they note and the record: so much older a record
/// of a later chunk may be.
const SETTLE_NS: u64 = 50_000_000;
/// More than a chunk ever has: 1,024 rings.
const CHUNK_MAX: u64 = 1 << 29;

/// Bytes on their way into the file.
pub(super) struct Spool<W: Write> {
    to: W,
    kept: Vec<u8>,
    written: u64,
}

impl<W: Write> Spool<W> {
    pub(super) fn new(to: W) -> Spool<W> {
        // written to, so that no page has to be found while it records
        let mut kept = vec![1; KEEP + MORE];
        kept.clear();
        Spool { to, kept, written: 0 }
    }

    /// A chunk of records, which `fill` appends.
    pub(super) fn records<T>(
        &mut self,
        ns: u64,
        fill: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> io::Result<T> {
        self.chunk(RECORDS, ns, fill)
    }

    /// A chunk of events.
    pub(super) fn events(&mut self, ns: u64, events: &[Event]) -> Result<(), HostError> {
        if events.is_empty() {
            return Ok(());
        }
        let mut writer = Writer::new(vec![]).map_err(|e| super::written(&e))?;
        events.iter().try_for_each(|e| writer.push(e)).map_err(|e| super::written(&e))?;
        let bytes = writer.finish().map_err(|e| super::written(&e))?;
        self.chunk(EVENTS, ns, |to| to.extend_from_slice(&bytes)).map_err(|e| super::written(&e))
    }

    fn chunk<T>(
        &mut self,
        kind: u64,
        ns: u64,
        fill: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> io::Result<T> {
        let at = self.kept.len();
        self.kept.resize(at + HEAD, 0);
        let out = fill(&mut self.kept);
        let bytes = self.kept.len() - at - HEAD;
        if bytes == 0 {
            self.kept.truncate(at);
            return Ok(out);
        }
        for (i, word) in [MAGIC, kind, bytes as u64, ns].iter().enumerate() {
            self.kept[at + 8 * i..at + 8 * i + 8].copy_from_slice(&word.to_le_bytes());
        }
        if self.kept.len() >= KEEP {
            self.flush()?;
        }
        Ok(out)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.written + self.kept.len() as u64
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.kept)?;
        self.written += self.kept.len() as u64;
        self.kept.clear();
        self.to.flush()
    }
}

/// What a trace came to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Merged {
    /// Records of the scheduler.
    pub(super) records: u64,
    /// Records that the rings could not hold, by those that tell of them.
    pub(super) lost: u64,
    /// Bytes read.
    pub(super) bytes: u64,
    /// The file ends within a chunk: its writer was killed.
    pub(super) cut: bool,
    /// When the first chunk and the last one were written.
    pub(super) span_ns: (u64, u64),
}

/// Turns a spool into a trace, sorted by time; `look` is called after each chunk.
pub(super) fn merge<W: Write>(
    mut from: impl Read,
    to: W,
    mut look: impl FnMut(&Merged),
) -> Result<(Merged, W), HostError> {
    let mut writer = Writer::new(to).map_err(|e| super::written(&e))?;
    let (mut waiting, mut done) = (Vec::<Event>::new(), Merged::default());
    let unreadable = |seen: String| HostError::Records { seen };
    loop {
        let (head, whole) = read(&mut from, HEAD as u64).map_err(|e| unreadable(e.to_string()))?;
        if !whole {
            done.cut |= !head.is_empty();
            if done.bytes == 0 {
                return Err(unreadable("seen no whole chunk, allowed one or more".to_owned()));
            }
            break;
        }
        let word =
            |i: usize| head[8 * i..8 * i + 8].iter().rev().fold(0, |v, b| v << 8 | u64::from(*b));
        let (kind, bytes, ns) = (word(1), word(2), word(3));
        if word(0) != MAGIC || !matches!(kind, RECORDS | EVENTS) || bytes > CHUNK_MAX {
            return Err(unreadable(format!(
                "seen a chunk of kind {kind} with {bytes} bytes after {}, allowed 1 and 2",
                done.bytes
            )));
        }
        let (body, whole) = read(&mut from, bytes).map_err(|e| unreadable(e.to_string()))?;
        let first = if done.bytes == 0 { ns } else { done.span_ns.0 };
        done.span_ns = (first, ns);
        done.bytes += (head.len() + body.len()) as u64;
        if kind == RECORDS {
            for raw in body.chunks_exact(RAW_BYTES) {
                let raw = raw.try_into().expect("chunks of a record");
                done.records += 1;
                let took = trace::expand(raw, |event| {
                    if let Kind::Lost { events } = event.kind {
                        (done.records, done.lost) =
                            (done.records - 1, done.lost + u64::from(events.unwrap_or(0)));
                    }
                    waiting.push(event);
                });
                took.map_err(|e| unreadable(e.to_string()))?;
            }
        } else {
            waiting.extend(Trace::read(&body[..]).map_err(|e| unreadable(e.to_string()))?.events);
        }
        done.cut = !whole;
        settle(&mut waiting, ns.saturating_sub(SETTLE_NS), &mut writer)?;
        look(&done);
    }
    settle(&mut waiting, u64::MAX, &mut writer)?;
    Ok((done, writer.finish().map_err(|e| super::written(&e))?))
}

/// So many bytes, or those that there are; whether there were as many.
fn read(from: &mut impl Read, bytes: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut out = vec![];
    let n = from.take(bytes).read_to_end(&mut out)?;
    Ok((out, n as u64 == bytes))
}

/// Writes what is older than `ns`.
fn settle<W: Write>(
    waiting: &mut Vec<Event>,
    ns: u64,
    writer: &mut Writer<W>,
) -> Result<(), HostError> {
    // stable: what has the same time stays in the order in which it was recorded
    waiting.sort_by_key(|e| e.ns);
    let end = waiting.partition_point(|e| e.ns < ns);
    waiting.drain(..end).try_for_each(|event| writer.push(&event)).map_err(|e| super::written(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{State, Why, to_raw};
    use units::{PcpuId, WorldId};

    fn ran(ns: u64, world: u32) -> Event {
        let kind = Kind::State {
            world: WorldId(world),
            from: Some(State::Ready),
            to: State::Run,
            why: Why::Picked,
            on: Some(PcpuId(1)),
        };
        Event { ns, pcpu: Some(PcpuId(1)), kind }
    }

    fn lost(ns: u64, n: u32) -> Event {
        Event { ns, pcpu: Some(PcpuId(0)), kind: Kind::Lost { events: Some(n) } }
    }

    fn mark(ns: u64) -> Event {
        Event {
            ns,
            pcpu: None,
            kind: Kind::Mark { text: "a text that no raw record could hold".to_owned() },
        }
    }

    /// Chunks of records, each read at a time, and a mark of user space behind the first.
    fn spooled(chunks: &[(u64, &[Event])]) -> Vec<u8> {
        let mut out = vec![];
        let mut spool = Spool::new(&mut out);
        for (i, (ns, events)) in chunks.iter().enumerate() {
            let raw: Vec<u8> = events.iter().flat_map(|e| to_raw(e).expect("raw")).collect();
            spool.records(*ns, |to| to.extend_from_slice(&raw)).expect("memory");
            if i == 0 {
                spool.events(*ns, &[mark(15)]).expect("memory");
            }
        }
        spool.flush().expect("memory");
        let bytes = spool.bytes();
        assert_eq!(bytes, out.len() as u64);
        out
    }

    fn merged(raw: &[u8]) -> (Merged, Vec<Event>) {
        let (done, bytes) = merge(raw, vec![], |_| {}).expect("a spool");
        (done, Trace::read(&bytes[..]).expect("a trace").events)
    }

    #[test]
    fn records_of_several_rings_come_out_in_the_order_of_time_and_what_was_lost_where_it_was() {
        let late = 100 * SETTLE_NS;
        // Ring after ring within a chunk; one record of the second chunk is older than some of the
        // first.
        let chunks: [(u64, &[Event]); 3] = [
            (30, &[ran(10, 1), ran(20, 2), ran(5, 3), lost(12, 7)]),
            (60, &[ran(40, 1), ran(19, 4)]),
            (late, &[ran(late + 1, 5)]),
        ];
        let raw = spooled(&chunks);
        let (done, events) = merged(&raw);
        let want = [
            ran(5, 3),
            ran(10, 1),
            lost(12, 7),
            mark(15),
            ran(19, 4),
            ran(20, 2),
            ran(40, 1),
            ran(late + 1, 5),
        ];
        assert_eq!(events, want);
        let (bytes, span_ns) = (raw.len() as u64, (30, late));
        assert_eq!(done, Merged { records: 6, lost: 7, bytes, cut: false, span_ns });
    }

    #[test]
    fn what_a_killed_recorder_left_is_read_up_to_its_last_whole_record() {
        let chunks: [(u64, &[Event]); 2] = [(30, &[ran(10, 1)]), (60, &[ran(40, 2), ran(50, 3)])];
        let raw = spooled(&chunks);
        let (done, events) = merged(&raw[..raw.len() - 5]);
        assert_eq!(
            (events, done.records, done.cut),
            (vec![ran(10, 1), mark(15), ran(40, 2)], 2, true)
        );
        let (done, events) = merged(&raw[..raw.len() - 64 - 5]);
        assert_eq!((events.len(), done.cut), (2, true), "within the head of a chunk");
    }

    #[test]
    fn what_is_no_spool_is_refused() {
        let mut raw = spooled(&[(30, &[ran(10, 1)])]);
        raw[0] ^= 1;
        let said = merge(&raw[..], vec![], |_| {}).map(|_| ()).expect_err("refused").to_string();
        assert!(
            said.starts_with("records of a trace: cannot read them: seen a chunk of kind"),
            "{said}"
        );
        for short in [&b""[..], b"short"] {
            let said = merge(short, vec![], |_| {}).map(|_| ()).expect_err("refused").to_string();
            assert!(said.contains("seen no whole chunk"), "{said}");
        }
    }
}
