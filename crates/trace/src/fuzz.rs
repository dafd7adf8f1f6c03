//! Entry points for fuzzers: any bytes at all, which must not panic (`tests/fuzz.rs` holds it); they find nothing out by themselves.

use crate::log::{Style, parse, parse_lenient, print};
use crate::table::{self, TableOptions};
use crate::waits::{self, WaitOptions};
use crate::{Item, RAW_BYTES, Reader, Trace, expand, from_raw};

/// Reads bytes as a file, and analyses what is in it; the number of events that were read.
#[must_use]
pub fn fuzz_reader(data: &[u8]) -> usize {
    let events = Reader::new(data).map_while(Result::ok).filter(|i| matches!(i, Item::Event(_))).count();
    if let Ok(trace) = Trace::read(data) {
        analyse(&trace.events);
    }
    events
}

/// Reads bytes as a log, strictly and leniently, and analyses what is in it; the number of events that were read.
#[must_use]
pub fn fuzz_log(data: &[u8]) -> usize {
    let text = String::from_utf8_lossy(data);
    let lenient = parse_lenient(&text);
    if let Ok(events) = parse(&text) {
        assert_eq!((&events, 0), (&lenient.events, lenient.skipped), "what is strictly right is read alike by both");
        assert_eq!(parse(&print(&events, Style::Full, 1)).ok().as_ref(), Some(&events), "what was read can be printed and read again");
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
