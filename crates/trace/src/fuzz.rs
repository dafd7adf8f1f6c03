//! Entry points for fuzzers (`fuzz/`, `cargo xtask fuzz`): any bytes, which must not cause a panic
//! (`tests/fuzz.rs` checks it); they contain no checks of their own.

use crate::block::{BLOCK_HEAD, FILE_HEAD, Head, SYNC, file_head};
use crate::log::{Style, parse, parse_lenient, print};
use crate::table::{self, TableOptions};
use crate::waits::{self, WaitOptions};
use crate::{Item, RAW_BYTES, Reader, Trace, expand, from_raw};

/// Reads bytes as a file, and analyses what is in it; the number of events that were read.
#[must_use]
pub fn fuzz_reader(data: &[u8]) -> usize {
    let events =
        Reader::new(data).map_while(Result::ok).filter(|i| matches!(i, Item::Event(_))).count();
    if let Ok(trace) = Trace::read(data) {
        analyse(&trace.events);
    }
    events
}

/// Reads bytes as a file whose checksums are right, so that any bytes at all come to the decoder
/// behind them; the number of events that were read.
#[must_use]
pub fn fuzz_blocks(data: &[u8]) -> usize {
    fuzz_reader(&sealed(data))
}

/// A file of the same bytes behind a head, with the markers, lengths and checksums of its blocks
/// set right.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut out = file_head().to_vec();
    let mut rest = data.get(FILE_HEAD..).unwrap_or_default();
    while rest.len() >= BLOCK_HEAD {
        let (head, body) = rest.split_at(BLOCK_HEAD);
        let u32_at =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let first_ns = u64::from(u32_at(24)) | u64::from(u32_at(28)) << 32;
        let len = body.len().min(u32_at(12) as usize & 0xffff);
        let (body, behind) = body.split_at(len);
        let crc = crc32fast::hash(body);
        let sealed = Head {
            kind: head[8],
            len: len as u32,
            count: u32_at(16),
            number: u32_at(20),
            first_ns,
            crc,
        }
        .bytes();
        assert_eq!(sealed[..SYNC.len()], SYNC, "a block begins with its marker");
        out.extend_from_slice(&sealed);
        out.extend_from_slice(body);
        rest = behind;
    }
    out
}

/// Reads bytes as a log, strictly and leniently, and analyses what is in it; the number of events
/// that were read.
#[must_use]
pub fn fuzz_log(data: &[u8]) -> usize {
    let text = String::from_utf8_lossy(data);
    let lenient = parse_lenient(&text);
    if let Ok(events) = parse(&text) {
        assert_eq!(
            (&events, 0),
            (&lenient.events, lenient.skipped),
            "what is strictly right is read alike by both"
        );
        assert_eq!(
            parse(&print(&events, Style::Full, 1)).ok().as_ref(),
            Some(&events),
            "what was read can be printed and read again"
        );
    }
    analyse(&lenient.events);
    lenient.events.len()
}

/// Reads bytes as raw records of 32 bytes, and analyses them; the number of events that were read.
#[must_use]
pub fn fuzz_raw(data: &[u8]) -> usize {
    let records = data.chunks_exact(RAW_BYTES).filter_map(|r| r.try_into().ok());
    let mut events = vec![];
    for r in records {
        let told = expand(r, |e| events.push(e)).is_ok();
        assert!(!told || from_raw(r).is_ok(), "what is no record tells of nothing");
    }
    analyse(&events);
    events.len()
}

fn analyse(events: &[crate::Event]) {
    let report = waits::analyse(events, &WaitOptions::default());
    let _ = report.text(10).len();
    // Writing to nowhere cannot fail.
    let _ = table::write(events, &TableOptions::default(), std::io::sink());
    let _ = crate::perfetto::write(events, std::io::sink());
    let _ = crate::chrome::write(events, std::io::sink());
}
