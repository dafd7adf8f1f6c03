//! Reads a trace whichever way it was written, as a file of blocks or as RDY's text, and says what
//! of it is missing; it guesses nothing.

use crate::damage::Trace;
use crate::log::parse_lenient;
use crate::read::ReadError;
use std::io::{self, Read};

/// Bytes that are looked at to tell text from blocks.
const LOOK: usize = 4096;

/// A trace as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its events and gaps.
    pub trace: Trace,
    /// Sequence number of its first event: 1, or what the first line of a log says.
    pub first: u64,
}

/// Reads a trace or a log.
///
/// # Errors
/// `ReadError` if it is neither, or of a newer version, or if `input` fails.
pub fn load(mut input: impl Read) -> Result<Loaded, ReadError> {
    let mut head = vec![];
    (&mut input).take(LOOK as u64).read_to_end(&mut head)?;
    let whole = io::Cursor::new(&head).chain(input);
    if is_text(&head) { log(whole) } else { Ok(Loaded { trace: Trace::read(whole)?, first: 1 }) }
}

/// Whether these first bytes are text: no control characters but those of lines.
fn is_text(head: &[u8]) -> bool {
    let plain = |b: &u8| *b >= b' ' && *b != 0x7f || matches!(b, b'\n' | b'\r' | b'\t');
    let utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        // A letter may be cut in two where the look ends.
        Err(e) => e.error_len().is_none(),
    };
    !head.is_empty() && utf8 && head.iter().all(plain)
}

fn log(mut input: impl Read) -> Result<Loaded, ReadError> {
    let mut bytes = vec![];
    input.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let read = parse_lenient(&text);
    match read.first {
        Some(error) if read.events.is_empty() => return Err(ReadError::NotALog(error)),
        _ => {}
    }
    let numbers = text.lines().filter(|l| !l.starts_with('#'));
    let first =
        numbers.filter_map(|l| l.split_ascii_whitespace().next()?.parse().ok()).next().unwrap_or(1);
    let mut events = read.events;
    events.sort_by_key(|e| e.ns);
    Ok(Loaded {
        trace: Trace { events, bad_lines: read.skipped, bad: read.first, ..Trace::default() },
        first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Kind, Writer, log};
    use units::{PcpuId, WorldId};

    const SAMPLE: &str = include_str!("../tests/data/rdy.log");

    fn file(events: u64) -> Vec<u8> {
        let mut writer = Writer::new(vec![]).unwrap();
        for ns in 0..events {
            writer
                .push(&Event {
                    ns,
                    pcpu: Some(PcpuId(1)),
                    kind: Kind::Unqueued { world: WorldId(ns as u32) },
                })
                .unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_file_and_a_log_are_told_apart_by_their_first_bytes() {
        let text = load(SAMPLE.as_bytes()).unwrap();
        assert_eq!((text.trace.events.len(), text.first, text.trace.damage()), (23, 39989, vec![]));
        assert_eq!(log::print(&text.trace.events, log::Style::Rdy, text.first), SAMPLE);
        let blocks = load(&file(5)[..]).unwrap();
        assert_eq!(
            (blocks.trace.events.len(), blocks.first, blocks.trace.damage()),
            (5, 1, vec![])
        );
    }

    #[test]
    fn damage_is_said_and_what_is_there_is_kept() {
        let whole = file(20_000);
        let cut = load(&whole[..whole.len() / 2]).unwrap();
        assert!(
            !cut.trace.damage().is_empty() && cut.trace.events.len() > 5000,
            "{}",
            cut.trace.events.len()
        );
        let mut noisy = whole;
        noisy.extend(b"\x01noise behind the end");
        let noisy = load(&noisy[..]).unwrap().trace;
        let want = "behind 19 us: bytes that belong to no block, 21 bytes; no event is missing";
        assert_eq!((noisy.events.len(), noisy.damage()), (20_000, vec![want.to_owned()]));
        let log = load(format!("{SAMPLE}and so on\n").as_bytes()).unwrap();
        assert_eq!((log.trace.events.len(), log.trace.bad_lines), (23, 1));
        assert_eq!(log.trace.bad.map(|b| b.line), Some(24));
    }

    #[test]
    fn what_is_neither_is_refused() {
        assert!(matches!(load(&b""[..]), Err(ReadError::NotATrace { bytes: 0 })));
        assert!(matches!(load(&b"\x7fELF"[..]), Err(ReadError::NotATrace { bytes: 4 })));
        let text = load(&b"[host]\ncores_per_llc = 4\n"[..]).unwrap_err().to_string();
        assert!(
            text.starts_with(
                "trace: cannot read it, neither as a trace nor as a log: scheduler \
                log line 1: cannot read '[host]'"
            ),
            "{text}"
        );
    }
}
