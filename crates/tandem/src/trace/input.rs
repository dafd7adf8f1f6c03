//! Reads a trace or a log for `tandem trace`, shows the progress, and reports missing parts at the
//! end; it prints no event.

use crate::{Exit, Failure, say};
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use trace::{Event, Loaded};

/// How often progress is shown.
const TELL: Duration = Duration::from_millis(300);
/// So many events take a second.
const LONG: usize = 1_000_000;

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
            let input = files::Bounded::new(io::stdin().lock(), files::PIPE_MAX);
            trace::load(Shown::new(input, None))
        } else {
            let next = "name a trace, or a log that 'tandem trace log' printed";
            let file = files::open(path, files::RECORD_MAX)
                .map_err(|e| anyhow::anyhow!("{name}: cannot open it: {e}; {next}"))
                .map_err(|e| Failure::new(Exit::Input, e))?;
            let bytes = std::fs::metadata(path).ok().map(|m| m.len());
            trace::load(Shown::new(file, bytes))
        };
        let named = |e| anyhow::Error::from(e).context(name.clone());
        let loaded = loaded.map_err(|e| Failure::new(Exit::Input, named(e)))?;
        Ok(Input { name, loaded })
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.loaded.trace.events
    }

    /// Time from the first event to the last, in ns.
    pub(super) fn length_ns(&self) -> u64 {
        self.loaded.trace.length_ns()
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
        let trace = &self.loaded.trace;
        if trace.skipped > 0 {
            say::note(&format!(
                "tandem: {}: {} events are of kinds that only a newer version knows; they were \
                    left out",
                self.name, trace.skipped
            ));
        }
        let damage = trace.damage_of(&self.name);
        damage.map_or(Ok(()), |text| Err(Failure::new(Exit::Damaged, anyhow::anyhow!(text))))
    }
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
