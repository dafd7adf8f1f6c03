//! Reads a trace or a log for `tandem trace`, shows the progress, and reports missing parts at the
//! end; it prints no event.

use crate::{Exit, Failure, say};
use anyhow::Context;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use trace::{Cause, Event, Gap, Loaded, ReadError};

/// How often progress is shown.
const TELL: Duration = Duration::from_millis(300);
/// So many events take a second.
const LONG: usize = 1_000_000;
/// Gaps that are reported one by one; the rest is counted.
const SHOWN: usize = 10;

/// What was read.
pub(super) struct Input {
    name: String,
    loaded: Loaded,
}

impl Input {
    /// Reads a file, or standard input for '-'.
    pub(super) fn read(path: &Path) -> Result<Input, Failure> {
        let name = if path == Path::new("-") {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        let loaded = if path == Path::new("-") {
            trace::load(Shown::new(io::stdin().lock(), None))
        } else {
            let file = File::open(path)
                .with_context(|| format!("{name}: cannot open it"))
                .map_err(|e| Failure::new(Exit::Input, e))?;
            let bytes = file.metadata().ok().map(|m| m.len());
            trace::load(Shown::new(file, bytes))
        };
        let exit =
            |e: &ReadError| if matches!(e, ReadError::Io(_)) { Exit::Other } else { Exit::Input };
        let loaded = loaded
            .map_err(|e| Failure::new(exit(&e), anyhow::Error::from(e).context(name.clone())))?;
        Ok(Input { name, loaded })
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.loaded.trace.events
    }

    /// Says on a terminal what is being done, where it takes a second or more.
    pub(super) fn working(&self, what: &str) {
        if self.events().len() > LONG && io::stderr().is_terminal() {
            say::note(&format!("{what} {} events", self.events().len()));
        }
    }

    /// Sequence number of the first event.
    pub(super) fn first(&self) -> u64 {
        self.loaded.first
    }

    /// Says what is missing, after everything has been shown.
    ///
    /// # Errors
    /// `Exit::Damaged` if something is.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let Loaded { trace, bad_lines, bad, .. } = &self.loaded;
        let begin = self.events().iter().find(|e| !e.kind.is_name()).map_or(0, |e| e.ns);
        let mut said: Vec<String> = trace.gaps.iter().take(SHOWN).map(|g| gap(g, begin)).collect();
        if trace.gaps.len() > SHOWN {
            said.push(format!("and {} more gaps", trace.gaps.len() - SHOWN));
        }
        if let Some(first) = bad {
            said.push(format!("{bad_lines} lines were left out; the first: {first}"));
        }
        if trace.skipped > 0 {
            say::note(&format!(
                "tandem: {}: {} events are of kinds that only a newer version knows; they were \
                    left out",
                self.name, trace.skipped
            ));
        }
        if !self.loaded.is_damaged() {
            said.iter().for_each(|s| say::note(&format!("tandem: {}: {s}", self.name)));
            return Ok(());
        }
        let text = said.join("\n  - ");
        let kept = self.events().len();
        Err(Failure::new(
            Exit::Damaged,
            anyhow::anyhow!(
                "{}: the trace is damaged; {kept} events were read, and worlds are unknown across \
                    each gap:\n  - {text}",
                self.name
            ),
        ))
    }
}

/// One gap in words, times since the trace begins.
fn gap(g: &Gap, begin: u64) -> String {
    let at = |ns: Option<u64>| ns.map(|ns| format!("{} us", ns.saturating_sub(begin) / 1000));
    let place = match (at(g.from_ns), at(g.to_ns)) {
        (Some(from), Some(to)) => format!("between {from} and {to}"),
        (Some(from), None) => format!("behind {from}"),
        (None, Some(to)) => format!("before {to}"),
        (None, None) => "all of it".to_owned(),
    };
    let what = match g.cause {
        Cause::Head => "the head of the file is damaged",
        Cause::Damaged => "bytes are not those that were written",
        Cause::Missing => "blocks are missing",
        Cause::Garbage => "bytes that belong to no block",
        Cause::Cut => "the file ends before the trace does",
    };
    let events = match g.events {
        Some(0) => "no event is missing".to_owned(),
        Some(n) => format!("{n} events are missing"),
        None => "how many events are missing is not known".to_owned(),
    };
    format!("{place}: {what}, {} bytes; {events}", g.bytes)
}

/// Passes bytes on, and shows how many on a terminal.
struct Shown<R> {
    input: R,
    total: Option<u64>,
    seen: u64,
    told: Option<Instant>,
    begun: Instant,
}

impl<R> Shown<R> {
    fn new(input: R, total: Option<u64>) -> Shown<R> {
        Shown { input, total: total.filter(|t| *t > 0), seen: 0, told: None, begun: Instant::now() }
    }

    fn tell(&mut self) {
        let due = self.told.unwrap_or(self.begun).elapsed() >= TELL;
        if !due || !io::stderr().is_terminal() {
            return;
        }
        self.told = Some(Instant::now());
        match self.total {
            Some(total) => {
                say::hint(&format!("\rreading: {:>3} %", (self.seen * 100 / total).min(100)))
            }
            None => say::hint(&format!("\rreading: {} MB", self.seen / 1_000_000)),
        }
        // What cannot be shown need not be.
        let _ = io::stderr().flush();
    }
}

impl<R: Read> Read for Shown<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        self.seen += n as u64;
        self.tell();
        Ok(n)
    }
}

impl<R> Drop for Shown<R> {
    fn drop(&mut self) {
        if self.told.is_some() {
            say::hint("\r                 \r");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_told_with_its_times_and_what_is_known_of_it() {
        let g = Gap {
            from_ns: Some(7_000),
            to_ns: Some(9_500),
            bytes: 12,
            events: Some(3),
            cause: Cause::Damaged,
        };
        let want = "between 2 us and 4 us: bytes are not those that were written, 12 bytes; 3 \
            events are missing";
        assert_eq!(gap(&g, 5_000), want);
        let cut =
            Gap { from_ns: Some(7_000), to_ns: None, bytes: 0, events: None, cause: Cause::Cut };
        let want = "behind 7 us: the file ends before the trace does, 0 bytes; how many events are \
            missing is not known";
        assert_eq!(gap(&cut, 0), want);
    }
}
