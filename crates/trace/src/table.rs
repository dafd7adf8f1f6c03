//! The pCPU-by-time state table of RDY: the world that runs on each pCPU or that it idles, and the
//! waiting worlds; it does not judge.

use crate::waits::{self, WaitOptions};
use crate::{Event, Kind, Now, Replay, State};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use units::{PcpuId, WorldId};

/// Most rows of a table with a step.
pub const ROWS_MAX: u64 = 1_000_000;

/// When there is a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// At each change of a world's state, as in RDY, and where a pCPU begins or ends to idle.
    Changes,
    /// Every so many ns.
    Every(u64),
}

/// What the table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// First time, in ns of the trace's clock.
    pub from_ns: u64,
    /// Time behind the last, in ns.
    pub to_ns: u64,
    /// When there is a row.
    pub step: Step,
    /// Whether rows where a wait ended tell of it, as RDY's do.
    pub notes: bool,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions { from_ns: 0, to_ns: u64::MAX, step: Step::Changes, notes: true }
    }
}

/// A table that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("state table: cannot make rows every {step_ns} ns: {}", self.refused())]
pub struct TableError {
    /// The step asked for, in ns.
    pub step_ns: u64,
    /// Rows that it would have.
    pub rows: u64,
}

impl TableError {
    fn refused(&self) -> String {
        if self.step_ns == 0 {
            return "allowed a step of 1 ns or more; give a longer one".to_owned();
        }
        let next = "give a longer step or a shorter range";
        format!("seen {} of them, allowed 1 to {ROWS_MAX}; {next}", self.rows)
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Events up to here.
    pub event: usize,
    /// When, in ns of the trace's clock.
    pub ns: u64,
    /// When, in ns since the first event.
    pub elapsed_ns: u64,
    /// What each pCPU does.
    pub pcpus: Vec<Now>,
    /// Worlds that wait, and on which pCPU.
    pub ready: Vec<(WorldId, Option<PcpuId>)>,
    /// Waits that ended here, in RDY's words.
    pub notes: Vec<String>,
}

/// The rows of the table, all at once.
///
/// # Errors
/// `TableError` if a step would give no row or too many.
pub fn rows(events: &[Event], options: &TableOptions) -> Result<Vec<Row>, TableError> {
    let mut out = vec![];
    each(events, options, |row| out.push(row))?;
    Ok(out)
}

/// Calls `f` with one row after the other.
///
/// # Errors
/// `TableError` if a step would give no row or too many: `f` is not called then.
pub fn each(
    events: &[Event],
    options: &TableOptions,
    mut f: impl FnMut(Row),
) -> Result<(), TableError> {
    let seen = Seen::of(events);
    let (from, to) =
        (options.from_ns.max(seen.first), options.to_ns.min(seen.last.saturating_add(1)));
    if let Step::Every(step_ns) = options.step {
        let rows = to.saturating_sub(from).checked_div(step_ns).unwrap_or(u64::MAX);
        if rows > ROWS_MAX {
            return Err(TableError { step_ns, rows });
        }
    }
    let mut notes = if options.notes { notes(events, seen.first) } else { BTreeMap::new() };
    let (mut replay, mut next) = (Replay::new(), from);
    for (i, event) in events.iter().enumerate() {
        if let Step::Every(step) = options.step {
            while next < event.ns.min(to) && !event.kind.is_name() {
                f(seen.row(&replay, i, next));
                next = next.saturating_add(step);
            }
        }
        replay.step(event);
        let changes =
            matches!(event.kind, Kind::State { .. } | Kind::Idle { .. } | Kind::Lost { .. });
        if options.step == Step::Changes && changes && (from..to).contains(&event.ns) {
            let mut row = seen.row(&replay, i, event.ns);
            if let Kind::State { world, to: State::Run, .. } = event.kind {
                row.notes.extend(notes.remove(&(event.ns, world)));
            }
            f(row);
        }
    }
    if let Step::Every(step) = options.step {
        while next < to {
            f(seen.row(&replay, events.len(), next));
            next = next.saturating_add(step);
        }
    }
    Ok(())
}

/// What all rows have in common.
struct Seen {
    first: u64,
    last: u64,
    pcpus: usize,
    digits: usize,
}

impl Seen {
    fn of(events: &[Event]) -> Seen {
        let mut seen = Seen { first: u64::MAX, last: 0, pcpus: 0, digits: 1 };
        for event in events.iter().filter(|e| !e.kind.is_name()) {
            (seen.first, seen.last) = (seen.first.min(event.ns), seen.last.max(event.ns));
            seen.digits = seen.digits.max(event.kind.world().map_or(0, |w| w.0.to_string().len()));
        }
        for event in events {
            let on = if let Kind::State { on, .. } = event.kind { on } else { None };
            let told = if let Kind::Host { pcpus } = event.kind { usize::from(pcpus) } else { 0 };
            let most = event.pcpu.max(on).map_or(0, |p| usize::from(p.0) + 1);
            seen.pcpus = seen.pcpus.max(most).max(told);
        }
        seen.first = seen.first.min(seen.last);
        seen
    }

    fn row(&self, replay: &Replay, event: usize, ns: u64) -> Row {
        let ready = replay.ready().map(|w| (w, replay.world(w).and_then(|n| n.on))).collect();
        let mut pcpus: Vec<Now> = replay.pcpus().iter().map(|p| p.0).collect();
        pcpus.resize(self.pcpus.max(pcpus.len()), Now::Unknown);
        Row { event, ns, elapsed_ns: ns.saturating_sub(self.first), pcpus, ready, notes: vec![] }
    }
}

/// RDY's line for each wait that ended, by when it did and whose it was.
fn notes(events: &[Event], zero: u64) -> BTreeMap<(u64, WorldId), String> {
    let report = waits::analyse(events, &WaitOptions::default());
    report
        .waits
        .iter()
        .filter(|w| w.ran_on.is_some() && w.ns > 0)
        .map(|w| ((w.since_ns + w.ns, w.world), w.rdy(zero)))
        .collect()
}

/// Why a table was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The table cannot be made.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Below the table.
    #[error("state table: cannot write: {0}; look at the disk")]
    Io(#[from] std::io::Error),
}

/// Writes the table as text: RDY's columns, then waiting worlds (`world@pCPU`), then notes.
///
/// # Errors
/// `WriteError::Table` if a step would give no row or too many: nothing is written then.
/// `WriteError::Io` if `out` refuses.
pub fn write(events: &[Event], options: &TableOptions, out: impl Write) -> Result<(), WriteError> {
    write_some(events, options, |_| true, |_| true, out)
}

/// The same with some columns, and with rows at some events; rows of a step are there in any case.
///
/// # Errors
/// As for `write`.
pub fn write_some(
    events: &[Event],
    options: &TableOptions,
    keep: impl Fn(&Event) -> bool,
    column: impl Fn(PcpuId) -> bool,
    mut out: impl Write,
) -> Result<(), WriteError> {
    let seen = Seen::of(events);
    let width = seen.digits.max(format!("CPU{}", seen.pcpus.saturating_sub(1)).len());
    let mut head = format!("{:>8}  {:>14}", "Event#", "Elapsed us");
    for p in (0..seen.pcpus).filter(|p| column(PcpuId(*p as u16))) {
        head.push_str(&format!("  {:>width$}", format!("CPU{p}")));
    }
    head.push_str("  READY\n");
    let (mut first, mut result) = (true, Ok(()));
    each(events, options, |row| {
        if std::mem::take(&mut first) && result.is_ok() {
            result = out.write_all(head.as_bytes());
        }
        let kept = options.step != Step::Changes || events.get(row.event).is_none_or(&keep);
        if kept && result.is_ok() {
            result = out.write_all(line(&row, width, &column).as_bytes());
        }
    })?;
    result?;
    Ok(out.flush()?)
}

fn line(row: &Row, width: usize, column: impl Fn(PcpuId) -> bool) -> String {
    let mut out =
        format!("{:>8}  {:>10}.{:03}", row.event, row.elapsed_ns / 1000, row.elapsed_ns % 1000);
    for (_, now) in row.pcpus.iter().enumerate().filter(|(p, _)| column(PcpuId(*p as u16))) {
        out.push_str(&format!("  {now:>width$}"));
    }
    let waits =
        row.ready.iter().map(|(w, on)| on.map_or(w.0.to_string(), |p| format!("{}@{}", w.0, p.0)));
    for word in waits.chain(row.notes.iter().cloned()) {
        out.push_str("  ");
        out.push_str(&word);
    }
    out.push('\n');
    out
}
