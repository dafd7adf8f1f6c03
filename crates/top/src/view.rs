//! The whole screen as lines of text with a tone for each piece, for one size; it draws nothing and
//! knows no terminal.

use crate::cells::{fit, safe, width};
use crate::config::{Panel, Part};
use crate::line::{Line, Tone};
use crate::play::Sample;
use crate::rows::Rows;
use crate::state::{Mode, State};
use crate::{head, help};
use esxtop::Field;

/// Size of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: usize,
    /// Lines.
    pub height: usize,
}

/// What is shown of the source at the foot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// What is looked at.
    pub title: String,
    /// What it does: running, paused, ended; which sample of how many.
    pub doing: String,
}

/// A screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Its lines, from the top.
    pub lines: Vec<Line>,
}

/// The screen as it has to be now; without a sample there is none yet.
#[must_use]
pub fn view(state: &mut State, sample: Option<&Sample>, status: &Status, size: Size) -> View {
    let mut lines = match (&state.mode, sample) {
        (Mode::Help(_), _) => help_lines(state, size),
        (Mode::Fields | Mode::Order, _) => field_lines(state),
        (_, None) => vec![Line::of("tandem top: waiting for the first sample", Tone::Plain)],
        (_, Some(sample)) => panel(state, sample, size),
    };
    let room = size.height.saturating_sub(1);
    lines.truncate(room);
    lines.resize(room, Line::default());
    if size.height > 0 {
        lines.push(foot(state, status, size.width));
    }
    View { lines }
}

fn panel(state: &mut State, sample: &Sample, size: Size) -> Vec<Line> {
    let rates = &sample.rates;
    let mut lines = vec![head::first(sample, size.width)];
    if state.config.panel == Panel::Memory {
        lines.extend(head::nodes(rates, size.width));
    } else if state.config.shows(Part::Counters(Field::Physical)) {
        lines.extend(head::pcpus(rates, size.width, size.height));
    }
    // On a tiny screen the table comes before the lines above it.
    lines.truncate((size.height / 2).max(1));
    lines.push(Line::default());
    let rows = Rows::of(rates, state, size.width);
    let height = size.height.saturating_sub(lines.len() + 2);
    state.rows(rows.rows.iter().map(crate::rows::Row::key).collect(), height);
    let (header, table) = rows.lines(state, size.width, height);
    lines.push(header);
    lines.extend(table);
    lines
}

fn help_lines(state: &mut State, size: Size) -> Vec<Line> {
    let all = help::lines(size.width);
    state.height = size.height.saturating_sub(1).max(1);
    let last = all.len().saturating_sub(state.height);
    let Mode::Help(top) = &mut state.mode else { return all };
    *top = (*top).min(last);
    all.into_iter().skip(*top).collect()
}

fn field_lines(state: &State) -> Vec<Line> {
    let moving = state.mode == Mode::Order;
    let what = if moving {
        "Order of fields: a capital letter moves one to the left, a small letter to the right; any \
            other key leads back."
    } else {
        "Fields: a letter shows or hides one; any other key leads back."
    };
    let letters: String = state
        .config
        .columns()
        .parts
        .iter()
        .map(|(p, s)| if *s { p.letter() } else { p.letter().to_ascii_lowercase() })
        .collect();
    let mut lines = vec![
        Line::of(what, Tone::Plain),
        Line::of(format!("Now: {letters}"), Tone::Plain),
        Line::default(),
    ];
    for (part, shown) in &state.config.columns().parts {
        let mark = if *shown { '*' } else { ' ' };
        lines.push(Line::of(format!("{mark} {}  {}", part.letter(), part.title()), Tone::Plain));
    }
    lines
}

fn foot(state: &State, status: &Status, columns: usize) -> Line {
    let text = match (&state.mode, &state.message) {
        (Mode::Prompt(ask, text), _) => format!("{}{text}_", ask.text(state)),
        (Mode::Help(_), _) => {
            "Help: arrows, PgUp and PgDn scroll; any other key leads back".to_owned()
        }
        (_, Some(message)) => safe(message),
        _ => said(state, status),
    };
    let keys = if matches!(state.mode, Mode::Panel) && state.message.is_none() {
        " h help  q quit"
    } else {
        ""
    };
    let room = columns.saturating_sub(width(keys));
    Line::of(fit(&(fit(&text, room, false) + keys), columns, false), Tone::Head)
}

fn said(state: &State, status: &Status) -> String {
    let mut parts = vec![safe(&status.title)];
    parts.extend(Some(status.doing.clone()).filter(|d| !d.is_empty()));
    parts.push(format!("{} s", state.config.interval_s));
    parts.push(format!(
        "by {}{}",
        state.config.columns().sort.title(),
        if state.config.columns().reverse { " reversed" } else { "" }
    ));
    parts.extend(state.config.vms_only.then(|| "VMs only".to_owned()));
    parts.extend(
        Some(format!("with '{}'", safe(&state.filter))).filter(|_| !state.filter.is_empty()),
    );
    parts.extend(state.only.map(|gid| format!("only GID {}", gid.0)));
    parts.join(" | ")
}
