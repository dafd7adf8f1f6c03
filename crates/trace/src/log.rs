//! The textual log of RDY ("Scheduler Trace"): events as lines, and lines as events; it judges
//! nothing that it prints.
//!
//! In RDY's style a halted vCPU is WAIT, and a SETWAITSTATE of class IDLE has what it waits for.
//! Where a recording has no SWITCH events, each is made from the world that ran there last. Missing
//! events show as a jump of the sequence number.

use crate::line::{Line, full, parse as parse_line, rdy};
use crate::{Event, Kind, State};
use std::collections::HashMap;
use units::{PcpuId, WorldId};

/// What lines tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// RDY's seven events with RDY's fields, time in whole µs.
    Rdy,
    /// Everything: reading it back gives the same events.
    Full,
}

/// A line that is not one of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "scheduler log line {line}: cannot read '{seen}': allowed {allowed}; correct the line, or skip \
        such lines"
)]
pub struct LogError {
    /// Number of the line in the text, from 1.
    pub line: usize,
    /// The line, its first 80 characters.
    pub seen: String,
    /// What could stand there.
    pub allowed: &'static str,
}

/// What was read with lines that could not be understood left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lenient {
    /// Events of the lines that could.
    pub events: Vec<Event>,
    /// Number of lines that were skipped.
    pub skipped: usize,
    /// The first of them.
    pub first: Option<LogError>,
}

/// How far behind a WAIT_IDLE its own SETWAITSTATE is looked for; RDY's sample has one event
/// between.
const LOOK_AHEAD: usize = 16;

/// The log of these events, a line each, numbered from `first`.
#[must_use]
pub fn print(events: &[Event], style: Style, first: u64) -> String {
    let mut out = Printer { text: String::new(), number: first, switches: HashMap::new() };
    let told = events.iter().any(|e| matches!(e.kind, Kind::Switch { .. }));
    for (i, event) in events.iter().enumerate() {
        match (style, &event.kind) {
            (Style::Full, _) => {
                let line = full(out.number, event);
                out.line(&line);
            }
            (Style::Rdy, Kind::Lost { events }) => {
                out.number += u64::from(events.unwrap_or(1).max(1))
            }
            (Style::Rdy, kind) => {
                if let Some(line) = rdy(out.number, event) {
                    out.line(&line);
                }
                if matches!(kind, Kind::State { world, to: State::WaitIdle, .. } if !waits_on(*world, &events[i + 1..]))
                {
                    out.halted(event);
                }
                if !told {
                    out.switched(event);
                }
            }
        }
    }
    out.text
}

/// Whether the world's next SETWAITSTATE comes before its next state.
fn waits_on(world: WorldId, next: &[Event]) -> bool {
    let own = next.iter().take(LOOK_AHEAD).filter(|e| e.kind.world() == Some(world));
    let mut tells = own.filter_map(|e| match e.kind {
        Kind::WaitOn { .. } => Some(true),
        Kind::State { .. } => Some(false),
        _ => None,
    });
    tells.next() == Some(true)
}

struct Printer {
    text: String,
    number: u64,
    /// Of each pCPU the world switched to last, and since when it has stopped.
    switches: HashMap<PcpuId, (Option<WorldId>, Option<u64>)>,
}

impl Printer {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        self.number += 1;
    }

    fn made(&mut self, event: &Event, kind: Kind) {
        if let Some(line) = rdy(self.number, &Event { kind, ..*event }) {
            self.line(&line);
        }
    }

    fn halted(&mut self, event: &Event) {
        if let Kind::State { world, on, .. } = event.kind {
            let at = Event { pcpu: on.or(event.pcpu), ..event.clone() };
            self.made(&at, Kind::WaitOn { world, event: 0, class: "IDLE".to_owned() });
        }
    }

    /// A switch that follows from a world that begins to run, or a pCPU that begins to idle. A pCPU
    /// that ran nothing since its world stopped has idled.
    fn switched(&mut self, event: &Event) {
        let (pcpu, to) = match event.kind {
            Kind::State { world, to: State::Run, on, .. } => (on.or(event.pcpu), Some(world)),
            Kind::State { world, on, .. } => {
                let here = on
                    .or(event.pcpu)
                    .and_then(|p| self.switches.get_mut(&p))
                    .filter(|s| s.0 == Some(world));
                here.into_iter().for_each(|s| s.1 = Some(event.ns));
                return;
            }
            Kind::Idle { begins: true } => (event.pcpu, None),
            _ => return,
        };
        let Some(pcpu) = pcpu else { return };
        let (last, stopped) = self.switches.insert(pcpu, (to, None)).unwrap_or_default();
        let from = last.filter(|_| to.is_none() || stopped.is_none_or(|ns| ns == event.ns));
        if from != to {
            self.made(&Event { pcpu: Some(pcpu), ..event.clone() }, Kind::Switch { from, to });
        }
    }
}

/// The events of a log. Empty lines and lines that begin with `#` are passed over.
///
/// # Errors
/// `LogError` names the first line that is none of the log.
pub fn parse(text: &str) -> Result<Vec<Event>, LogError> {
    let mut reader = Lines::default();
    for (i, line) in lines(text) {
        reader.add(i, line)?;
    }
    Ok(reader.events)
}

/// The events of a log, without the lines that cannot be understood, which are counted.
#[must_use]
pub fn parse_lenient(text: &str) -> Lenient {
    let (mut reader, mut skipped, mut first) = (Lines::default(), 0, None);
    for (i, line) in lines(text) {
        if let Err(e) = reader.add(i, line) {
            skipped += 1;
            first.get_or_insert(e);
        }
    }
    Lenient { events: reader.events, skipped, first }
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(i, l)| (i + 1, l.trim()))
        .filter(|(_, l)| !l.is_empty() && !l.starts_with('#'))
}

#[derive(Default)]
struct Lines {
    events: Vec<Event>,
    number: Option<u64>,
    /// Where a plain WAIT of each world is, until its next state.
    waits: HashMap<WorldId, usize>,
}

impl Lines {
    fn add(&mut self, at: usize, text: &str) -> Result<(), LogError> {
        let bad = |allowed| LogError { line: at, seen: text.chars().take(80).collect(), allowed };
        let Line { number, event, full } = parse_line(text).map_err(bad)?;
        if let Some(last) = self.number {
            let jump = number
                .checked_sub(last)
                .filter(|j| *j > 0)
                .ok_or_else(|| bad("a sequence number above the last line's"))?;
            if jump > 1 {
                let lost = u32::try_from(jump - 1).unwrap_or(u32::MAX);
                self.events.push(Event {
                    ns: event.ns,
                    pcpu: None,
                    kind: Kind::Lost { events: Some(lost) },
                });
            }
        }
        self.number = Some(number);
        match &event.kind {
            Kind::State { world, to: State::Wait, .. } if !full => {
                self.waits.insert(*world, self.events.len());
            }
            Kind::State { world, .. } => {
                self.waits.remove(world);
            }
            Kind::WaitOn { world, event: resource, class } if class == "IDLE" => {
                if let Some(i) = self.waits.remove(world) {
                    if let Some(Event { kind: Kind::State { to, .. }, .. }) = self.events.get_mut(i)
                    {
                        *to = State::WaitIdle;
                    }
                    // Number 0 tells no more than the state does: `print` makes such lines.
                    if *resource == 0 {
                        return Ok(());
                    }
                }
            }
            _ => {}
        }
        self.events.push(event);
        Ok(())
    }
}
