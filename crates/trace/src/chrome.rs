//! Export as JSON in Chrome's trace event format, for small traces and tools that read no other; it
//! draws the tracks of `tracks.rs`.

use crate::Event;
use crate::tracks::{Flow, Sink, Track, draw};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Most events that are exported as JSON: about 50 MB, what a browser still opens.
pub const EVENTS_MAX: usize = 250_000;

/// A trace that was not exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChromeError {
    /// Too long for JSON.
    #[error(
        "trace: cannot export as Chrome JSON: seen {seen} events, allowed up to {EVENTS_MAX}; \
            export for Perfetto, or a shorter range"
    )]
    TooLarge {
        /// Events of the trace.
        seen: usize,
    },
    /// Below the export.
    #[error("trace: cannot write Chrome JSON: {0}; look at the disk")]
    Io(#[from] io::Error),
}

/// Writes these events, which are in the order of time, as Chrome JSON.
///
/// # Errors
/// `ChromeError::TooLarge` above `EVENTS_MAX` events: nothing is written then. `ChromeError::Io` if
/// `out` refuses.
pub fn write(events: &[Event], mut out: impl Write) -> Result<(), ChromeError> {
    if events.len() > EVENTS_MAX {
        return Err(ChromeError::TooLarge { seen: events.len() });
    }
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut sink = Json { out, first: true, names: BTreeMap::new() };
    draw(events, &mut sink)?;
    sink.out.write_all(b"\n]}\n")?;
    Ok(sink.out.flush()?)
}

struct Json<W: Write> {
    out: W,
    first: bool,
    /// Names of counters, which have no track of their own.
    names: BTreeMap<Track, String>,
}

/// Process and thread that stand for a track: the host's pCPUs are process 1, each VM is another.
fn place(track: Track) -> (u64, u64) {
    match track {
        Track::Host | Track::Waiting | Track::Idle => (1, 0),
        Track::Pcpu(p) => (1, 1 + u64::from(p.0)),
        Track::Vm(vm) => (vm.map_or(2, |v| 3 + u64::from(v.0)), 0),
        Track::World(vm, w) => (place(Track::Vm(vm)).0, 1 + u64::from(w.0)),
        Track::Used(vm) | Track::Entitled(vm) | Track::Local(vm) => place(Track::Vm(Some(vm))),
    }
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl<W: Write> Json<W> {
    fn record(&mut self, phase: &str, track: Track, ns: Option<u64>, rest: &str) -> io::Result<()> {
        let (pid, tid) = place(track);
        let comma = if std::mem::take(&mut self.first) { "" } else { "," };
        // Times are in µs.
        let ts = ns.map_or(String::new(), |ns| format!(",\"ts\":{}.{:03}", ns / 1000, ns % 1000));
        write!(self.out, "{comma}\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid}{ts}{rest}}}")
    }

    fn arrow(&mut self, ns: u64, track: Track, flow: Option<Flow>) -> io::Result<()> {
        let common = ",\"name\":\"wakes\",\"cat\":\"wake\",\"id\":";
        match flow {
            Some(Flow::From(id)) => self.record("s", track, Some(ns), &format!("{common}{id}")),
            Some(Flow::To(id)) => {
                self.record("f", track, Some(ns), &format!("{common}{id},\"bp\":\"e\""))
            }
            None => Ok(()),
        }
    }
}

impl<W: Write> Sink for Json<W> {
    fn track(&mut self, track: Track, name: &str) -> io::Result<()> {
        let kind = match track {
            Track::Host | Track::Vm(_) => "process_name",
            Track::Pcpu(_) | Track::World(..) => "thread_name",
            Track::Used(_)
            | Track::Entitled(_)
            | Track::Local(_)
            | Track::Waiting
            | Track::Idle => {
                self.names.insert(track, name.to_owned());
                return Ok(());
            }
        };
        self.record(
            "M",
            track,
            None,
            &format!(",\"name\":\"{kind}\",\"args\":{{\"name\":{}}}", quoted(name)),
        )
    }

    fn begin(
        &mut self,
        ns: u64,
        track: Track,
        name: &str,
        notes: &[(&str, String)],
        flow: Option<Flow>,
    ) -> io::Result<()> {
        let notes: Vec<String> =
            notes.iter().map(|(k, v)| format!("{}:{}", quoted(k), quoted(v))).collect();
        self.record(
            "B",
            track,
            Some(ns),
            &format!(",\"name\":{},\"args\":{{{}}}", quoted(name), notes.join(",")),
        )?;
        self.arrow(ns, track, flow)
    }

    fn end(&mut self, ns: u64, track: Track) -> io::Result<()> {
        self.record("E", track, Some(ns), "")
    }

    fn instant(&mut self, ns: u64, track: Track, name: &str, flow: Option<Flow>) -> io::Result<()> {
        self.record("i", track, Some(ns), &format!(",\"name\":{},\"s\":\"t\"", quoted(name)))?;
        self.arrow(ns, track, flow)
    }

    fn counter(&mut self, ns: u64, track: Track, value: f64) -> io::Result<()> {
        let name = self.names.get(&track).map_or("", String::as_str);
        let rest = format!(",\"name\":{},\"args\":{{\"value\":{value:.3}}}", quoted(name));
        self.record("C", track, Some(ns), &rest)
    }
}
