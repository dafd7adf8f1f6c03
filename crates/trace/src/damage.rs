//! A trace in memory, and what of it the file has lost, in data and in words.

use crate::log::LogError;
use crate::read::{Item, ReadError, Reader};
use crate::{Event, Kind};
use serde::Serialize;
use std::io::Read;

/// Gaps that are described one by one; the rest is counted.
const SHOWN: usize = 10;

/// What damaged a span of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The head of the file is damaged or missing; kinds are taken from the first block that has
    /// them.
    Head,
    /// Bytes of a block are not those that were written.
    Damaged,
    /// Whole blocks are missing.
    Missing,
    /// Bytes that belong to no block; nothing is missing.
    Garbage,
    /// The file ends before the trace does.
    Cut,
    /// Another trace begins, of which nothing is read.
    Another,
}

/// A span of a file that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// Time of the last event before it, in ns; none if there is none.
    pub from_ns: Option<u64>,
    /// Time of the first event behind it, in ns; none if there is none.
    pub to_ns: Option<u64>,
    /// Bytes that were skipped.
    pub bytes: u64,
    /// Events that are missing; none where their number is not known.
    pub events: Option<u32>,
    /// Events of which the file says that they are missing: at least so many are.
    pub least: u32,
    /// What happened.
    pub cause: Cause,
}

impl Gap {
    /// A gap of which nothing else is known yet.
    pub(crate) fn at(from_ns: Option<u64>, cause: Cause) -> Gap {
        Gap { from_ns, to_ns: None, bytes: 0, events: None, least: 0, cause }
    }

    /// The number of events that this trace misses, none if it is not known.
    fn lost(&self) -> Option<u32> {
        if self.cause == Cause::Another { Some(0) } else { self.events }
    }

    /// The gap in words, times since `begin`, in ns.
    #[must_use]
    pub fn text(&self, begin: u64) -> String {
        let at = |ns: Option<u64>| ns.map(|ns| format!("{} us", ns.saturating_sub(begin) / 1000));
        let place = match (at(self.from_ns), at(self.to_ns)) {
            (Some(from), Some(to)) => format!("between {from} and {to}"),
            (Some(from), None) => format!("behind {from}"),
            (None, Some(to)) => format!("before {to}"),
            (None, None) => "all of it".to_owned(),
        };
        let what = match self.cause {
            Cause::Head => "the head of the file is damaged",
            Cause::Damaged => "bytes are not those that were written",
            Cause::Missing => "blocks are missing",
            Cause::Garbage => "bytes that belong to no block",
            Cause::Cut => "the file ends before the trace does",
            Cause::Another => "another trace begins in the same file",
        };
        let events = match (self.cause, self.events) {
            (Cause::Another, _) => {
                format!("its {} events are left out: give it a file of its own", self.least)
            }
            (_, Some(0)) => "no event is missing".to_owned(),
            (_, Some(n)) => format!("{n} events are missing"),
            (_, None) if self.least > 0 => {
                format!("at least {} events are missing, how many is not known", self.least)
            }
            (_, None) => "how many events are missing is not known".to_owned(),
        };
        format!("{place}: {what}, {} bytes; {events}", self.bytes)
    }
}

/// A trace in memory, as the analyses take it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Events in the order of time. Where some are missing there is a `Kind::Lost`.
    pub events: Vec<Event>,
    /// Spans of the file that could not be read.
    pub gaps: Vec<Gap>,
    /// Events and blocks that only a newer version knows.
    pub skipped: u64,
    /// Lines of a log that could not be read and were left out.
    pub bad_lines: usize,
    /// The first of them.
    pub bad: Option<LogError>,
}

impl Trace {
    /// Reads a whole trace and puts its events in the order of time.
    ///
    /// # Errors
    /// `ReadError` if it is no trace, or of a newer version.
    pub fn read(input: impl Read) -> Result<Trace, ReadError> {
        let mut reader = Reader::new(input);
        let mut trace = Trace::default();
        while let Some(item) = reader.next_item()? {
            match item {
                Item::Event(e) => trace.events.push(e),
                Item::Gap(gap) => {
                    trace.gaps.push(gap);
                    let events = gap.lost();
                    if let (Some(ns), true) = (gap.from_ns.or(gap.to_ns), events != Some(0)) {
                        trace.events.push(Event { ns, pcpu: None, kind: Kind::Lost { events } });
                    }
                }
            }
        }
        trace.skipped = reader.skipped();
        trace.events.sort_by_key(|e| e.ns);
        Ok(trace)
    }

    /// Time from its first event to its last, in ns; names are none.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        let mut times = self.events.iter().filter(|e| !e.kind.is_name()).map(|e| e.ns);
        times.next().map_or(0, |begin| times.next_back().unwrap_or(begin).saturating_sub(begin))
    }

    /// What is damaged, a text for each place, and what is known of the missing part; none for a
    /// file that is as it was written. What the recorder says it lost is no damage.
    #[must_use]
    pub fn damage(&self) -> Vec<String> {
        let begin = self.events.iter().find(|e| !e.kind.is_name()).map_or(0, |e| e.ns);
        let mut out: Vec<String> = self.gaps.iter().take(SHOWN).map(|g| g.text(begin)).collect();
        if self.gaps.len() > SHOWN {
            out.push(format!("and {} more gaps", self.gaps.len() - SHOWN));
        }
        if let Some(first) = &self.bad {
            out.push(format!("{} lines were left out; the first: {first}", self.bad_lines));
        }
        out
    }

    /// The damage in a message, as the end of a command reports it; `name` is the file's.
    #[must_use]
    pub fn damage_of(&self, name: &str) -> Option<String> {
        let damage = self.damage();
        let unknown = self.gaps.iter().any(|g| g.lost() != Some(0));
        let across = if unknown { ", and worlds are unknown across each gap" } else { "" };
        let kept = self.events.len();
        (!damage.is_empty()).then(|| {
            format!(
                "{name}: the trace is damaged; {kept} events were read{across}:\n  - {}",
                damage.join("\n  - ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_described_with_its_times_and_what_is_known_of_it() {
        let g = Gap {
            from_ns: Some(7_000),
            to_ns: Some(9_500),
            bytes: 12,
            events: Some(3),
            least: 3,
            cause: Cause::Damaged,
        };
        let want = "between 2 us and 4 us: bytes are not those that were written, 12 bytes; 3 \
            events are missing";
        assert_eq!(g.text(5_000), want);
        let cut = Gap::at(Some(7_000), Cause::Cut);
        let want = "behind 7 us: the file ends before the trace does, 0 bytes; how many events are \
            missing is not known";
        assert_eq!(cut.text(0), want);
        let want = "behind 7 us: the file ends before the trace does, 0 bytes; at least 9 events \
            are missing, how many is not known";
        assert_eq!(Gap { least: 9, ..cut }.text(0), want);
    }
}
