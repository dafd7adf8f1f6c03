//! The state of the screen by the keys so far: mode, cursor, expansion, choice and filter; it knows
//! no terminal.

use crate::config::{Config, INTERVAL_S, LIVE_S};
use esxtop::{Gid, Rates, Wid};
use std::collections::BTreeSet;

/// What the keys act on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    /// The table.
    Panel,
    /// Help, from this line on.
    Help(usize),
    /// Fields are switched.
    Fields,
    /// Fields are moved.
    Order,
    /// A line is asked for.
    Prompt(Ask, String),
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The interval, in s.
    Interval,
    /// What names have to contain.
    Filter,
    /// A time since the beginning, in s.
    Jump,
}

impl Ask {
    /// What stands before the line.
    pub(crate) fn text(self, state: &State) -> String {
        match self {
            Ask::Interval => format!("Interval in seconds ({}): ", state.intervals()),
            Ask::Filter => "Only names with (empty: all): ".to_owned(),
            Ask::Jump => "Seconds after the first sample: ".to_owned(),
        }
    }
}

/// Everything that keys change.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// What W writes.
    pub config: Config,
    /// The shortest interval of the host that is shown, in s.
    pub(crate) shortest_s: f64,
    pub(crate) mode: Mode,
    /// Highlighted row, by its identity, so that the highlight stays on it when rows are sorted
    /// again.
    pub(crate) at: Option<(Gid, Option<Wid>)>,
    /// The same as a number, for when that row is gone.
    pub(crate) cursor: usize,
    /// First row on the screen.
    pub(crate) top: usize,
    /// Columns of counters that are scrolled out on the left.
    pub(crate) left: usize,
    /// Rows of the table as shown last.
    pub(crate) shown: Vec<(Gid, Option<Wid>)>,
    /// Rows that fit on the screen.
    pub(crate) height: usize,
    pub(crate) expanded: BTreeSet<Gid>,
    /// The only group shown.
    pub(crate) only: Option<Gid>,
    pub(crate) filter: String,
    /// Said at the foot until the next key.
    pub(crate) message: Option<String>,
}

impl State {
    /// At the beginning.
    #[must_use]
    pub fn new(config: Config) -> State {
        State {
            config,
            shortest_s: LIVE_S,
            mode: Mode::Panel,
            at: None,
            cursor: 0,
            top: 0,
            left: 0,
            shown: vec![],
            height: 1,
            expanded: BTreeSet::new(),
            only: None,
            filter: String::new(),
            message: None,
        }
    }

    /// Only names that contain this, in capitals or not.
    #[must_use]
    pub fn with_filter(self, filter: &str) -> State {
        State { filter: filter.to_owned(), ..self }
    }

    /// Of a simulated or recorded host, on which any interval may be set.
    #[must_use]
    pub fn not_live(self) -> State {
        State { shortest_s: *INTERVAL_S.start(), ..self }
    }

    /// Intervals that may be set, in words.
    pub(crate) fn intervals(&self) -> String {
        format!("{} to {}", self.shortest_s, INTERVAL_S.end())
    }

    /// Shows the worlds of all groups.
    pub fn expand_all(&mut self, rates: &Rates) {
        self.expanded.extend(rates.groups.keys());
    }

    /// Says something at the foot until the next key.
    pub fn say(&mut self, text: impl Into<String>) {
        self.message = Some(text.into());
    }

    /// Takes over the rows of a new table: the cursor stays on its row, or where it was.
    pub(crate) fn rows(&mut self, rows: Vec<(Gid, Option<Wid>)>, height: usize) {
        self.height = height.max(1);
        if let Some(found) = self.at.and_then(|at| rows.iter().position(|r| *r == at)) {
            self.cursor = found;
        }
        self.shown = rows;
        self.go(self.cursor);
    }

    /// Puts the cursor on a row, and scrolls so that it is seen.
    pub(crate) fn go(&mut self, row: usize) {
        let last = self.shown.len().saturating_sub(1);
        self.cursor = row.min(last);
        // At the top it stays at the top, whatever row that is, so that the worst row stays in
        // view.
        self.at = self.shown.get(self.cursor).copied().filter(|_| self.cursor > 0);
        self.top = self.top.min(self.cursor).max((self.cursor + 1).saturating_sub(self.height));
        self.top = self.top.min((last + 1).saturating_sub(self.height));
    }

    /// The group that the cursor is on.
    pub(crate) fn group(&self) -> Option<Gid> {
        self.shown.get(self.cursor).map(|r| r.0)
    }
}
