//! Writes the trace of a run: the scheduler's own records, with the names that only the scenario
//! knows; it changes nothing in the run.

use contract::TraceRecord;
use std::{fmt, io::Write};
use trace::{Event, Kind, RAW_BYTES, Writer};

/// Where a trace goes.
pub type TraceOut = Box<dyn Write + Send>;

/// The trace of one run.
pub(crate) struct Recorder {
    writer: Writer<TraceOut>,
    /// The first thing that went wrong; nothing is written after it.
    error: Option<String>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("error", &self.error).finish_non_exhaustive()
    }
}

/// The 32 bytes of a record, as `trace::expand` takes them.
fn bytes(r: &TraceRecord) -> [u8; RAW_BYTES] {
    let mut out = [0; RAW_BYTES];
    out[..8].copy_from_slice(&r.ns.to_le_bytes());
    out[8..12].copy_from_slice(&r.world.to_le_bytes());
    out[12..14].copy_from_slice(&r.kind.to_le_bytes());
    out[14..16].copy_from_slice(&r.pcpu.to_le_bytes());
    out[16..24].copy_from_slice(&r.a.to_le_bytes());
    out[24..].copy_from_slice(&r.b.to_le_bytes());
    out
}

impl Recorder {
    /// Begins a trace.
    pub(crate) fn new(out: TraceOut) -> Result<Recorder, String> {
        Ok(Recorder { writer: Writer::new(out).map_err(|e| e.to_string())?, error: None })
    }

    pub(crate) fn push(&mut self, event: &Event) {
        if self.error.is_none() {
            self.error = self.writer.push(event).err().map(|e| e.to_string());
        }
    }

    /// Takes a record of the scheduler.
    pub(crate) fn record(&mut self, record: &TraceRecord) {
        if let Err(e) = trace::expand(&bytes(record), |event| self.push(&event)) {
            self.error.get_or_insert(e.to_string());
        }
    }

    /// Writes what no scheduler knows.
    pub(crate) fn say(&mut self, ns: u64, kind: Kind) {
        self.push(&Event { ns, pcpu: None, kind });
    }

    /// Ends the trace; says what went wrong, if anything did.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.error {
            Some(e) => Err(e),
            None => self.writer.finish().map(drop).map_err(|e| e.to_string()),
        }
    }
}
