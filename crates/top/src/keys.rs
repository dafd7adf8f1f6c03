//! Keys as a state machine: esxtop's where it has one for the purpose; it knows no terminal and
//! executes no action.

use crate::config::{INTERVAL_S, Panel, SortBy};
use crate::state::{Ask, Mode, State};
use esxtop::Metric;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// The arrow left.
    Left,
    /// The arrow right.
    Right,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// To the first row.
    Home,
    /// To the last row.
    End,
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Control and C.
    Interrupt,
}

/// What has to be done outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Only draw again.
    None,
    /// End.
    Quit,
    /// Take a sample now.
    Refresh,
    /// The interval is another, see the configuration.
    Interval,
    /// Write the configuration.
    Write,
    /// Stop and go on.
    Pause,
    /// So many samples forward, or back.
    Step(i64),
    /// To the first sample so many seconds after the first.
    Jump(f64),
}

/// Every key and what it does, for help and documents; a star marks those that esxtop does not have
/// or uses otherwise.
pub const KEYS: &[(&str, &str)] = &[
    ("q", "quit; Ctrl-C as well"),
    ("h ?", "help: keys, colours, and what each column means"),
    ("space", "take a sample now"),
    ("s", "interval in seconds"),
    ("c", "CPU panel"),
    ("m", "memory panel: home nodes of VMs, and where their memory is"),
    ("f", "fields on and off, by their letters"),
    ("o", "order of fields: a capital letter to the left, a small one to the right"),
    ("e", "expand the highlighted group into its worlds, and back"),
    ("V", "only VMs, and all again"),
    ("l", "only the highlighted group, and all again"),
    ("/ *", "only names that contain something"),
    ("U R N", "sort by %USED, %RDY, GID"),
    ("< > *", "sort by the column to the left, to the right"),
    ("r *", "sort the other way round"),
    ("2 8", "highlight the next row, the row before; arrows, PgUp, PgDn, Home, End as well"),
    ("left right *", "scroll the columns"),
    ("W", "write fields, order, sorting and interval to the configuration file"),
    ("p *", "pause and go on: on a live host no samples are taken, a simulated host stands still"),
    (", . *", "pause, and step back or forward by one sample"),
    ("j *", "jump to a time, in seconds after the first sample"),
];

/// The keys as a table in Markdown, for the document.
#[must_use]
pub fn keys_markdown() -> String {
    let row = |(keys, what): &(&str, &str)| {
        let (keys, star) = keys.strip_suffix(" *").map_or((*keys, ""), |k| (k, "\\*"));
        let words: Vec<String> = keys
            .split_whitespace()
            .map(|k| if k.len() == 1 { format!("`{k}`") } else { k.to_owned() })
            .collect();
        format!("| {}{star} | {what} |\n", words.join(" "))
    };
    "| key | what it does |\n|---|---|\n".to_owned() + &KEYS.iter().map(row).collect::<String>()
}

impl State {
    /// Takes a key.
    pub fn key(&mut self, key: Key) -> Action {
        self.message = None;
        if key == Key::Interrupt {
            return Action::Quit;
        }
        match std::mem::replace(&mut self.mode, Mode::Panel) {
            Mode::Panel => self.panel_key(key),
            Mode::Help(top) => self.help_key(key, top),
            Mode::Fields => self.letters(key, Mode::Fields),
            Mode::Order => self.letters(key, Mode::Order),
            Mode::Prompt(ask, text) => self.prompt_key(key, ask, text),
        }
    }

    fn panel_key(&mut self, key: Key) -> Action {
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char(' ') => return Action::Refresh,
            Key::Char('W') => return Action::Write,
            Key::Char('p') => return Action::Pause,
            Key::Char(',') => return Action::Step(-1),
            Key::Char('.') => return Action::Step(1),
            Key::Char('h' | '?') => self.mode = Mode::Help(0),
            Key::Char('f') => self.mode = Mode::Fields,
            Key::Char('o') => self.mode = Mode::Order,
            Key::Char('s') => self.mode = Mode::Prompt(Ask::Interval, String::new()),
            Key::Char('/') => self.mode = Mode::Prompt(Ask::Filter, self.filter.clone()),
            Key::Char('j') => self.mode = Mode::Prompt(Ask::Jump, String::new()),
            Key::Char('c') => self.panel(Panel::Cpu),
            Key::Char('m') => self.panel(Panel::Memory),
            Key::Char('V') => self.config.vms_only = !self.config.vms_only,
            Key::Char('e') => self.expand(),
            Key::Char('l') => self.only = if self.only.is_some() { None } else { self.group() },
            Key::Escape => (self.only, self.filter) = (None, String::new()),
            Key::Char('U') => self.sort_if(SortBy::Metric(Metric::Used)),
            Key::Char('R') => self.sort_if(SortBy::Metric(Metric::Ready)),
            Key::Char('N') => self.sort(SortBy::Gid),
            Key::Char('r') => {
                let columns = self.config.columns_mut();
                columns.reverse = !columns.reverse;
            }
            Key::Char('<') => self.sort_beside(false),
            Key::Char('>') => self.sort_beside(true),
            _ => self.move_key(key),
        }
        Action::None
    }

    fn move_key(&mut self, key: Key) {
        let columns = self.config.metrics().count();
        match key {
            Key::Up | Key::Char('8') => self.go(self.cursor.saturating_sub(1)),
            Key::Down | Key::Char('2') => self.go(self.cursor + 1),
            Key::PageUp => self.go(self.cursor.saturating_sub(self.height)),
            Key::PageDown => self.go(self.cursor + self.height),
            Key::Home => self.go(0),
            Key::End => self.go(usize::MAX),
            Key::Left => self.left = self.left.saturating_sub(1),
            Key::Right => self.left = (self.left + 1).min(columns.saturating_sub(1)),
            Key::Enter => {}
            Key::Char(other) => self.say(format!("Key '{other}' does nothing; h shows the keys.")),
            _ => {}
        }
    }

    fn help_key(&mut self, key: Key, top: usize) -> Action {
        let page = self.height.max(1);
        self.mode = match key {
            Key::Char('q') => return Action::Quit,
            Key::Up | Key::Char('8') => Mode::Help(top.saturating_sub(1)),
            Key::Down | Key::Char('2') => Mode::Help(top + 1),
            Key::PageUp => Mode::Help(top.saturating_sub(page)),
            Key::PageDown | Key::Char(' ') => Mode::Help(top + page),
            Key::Home => Mode::Help(0),
            Key::End => Mode::Help(usize::MAX),
            _ => Mode::Panel,
        };
        Action::None
    }

    fn letters(&mut self, key: Key, mode: Mode) -> Action {
        // Any other key leads back.
        let Key::Char(c) = key else { return Action::None };
        if self.config.panel.parts().iter().any(|p| p.letter() == c.to_ascii_uppercase()) {
            if mode == Mode::Fields {
                self.config.switch(c);
            } else {
                self.config.shift(c);
            }
            self.mode = mode;
        }
        Action::None
    }

    fn prompt_key(&mut self, key: Key, ask: Ask, mut text: String) -> Action {
        /// No name is longer than this on a screen.
        const LONGEST: usize = 64;
        match key {
            Key::Enter => return self.answer(ask, text.trim()),
            Key::Escape => return Action::None,
            Key::Backspace => drop(text.pop()),
            Key::Char(c) if text.chars().count() < LONGEST && !c.is_control() => text.push(c),
            _ => {}
        }
        self.mode = Mode::Prompt(ask, text);
        Action::None
    }

    fn answer(&mut self, ask: Ask, text: &str) -> Action {
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        match (ask, number) {
            (Ask::Filter, _) => self.filter = text.to_owned(),
            (Ask::Interval, Some(s)) if (self.shortest_s..=*INTERVAL_S.end()).contains(&s) => {
                self.config.interval_s = s;
                return Action::Interval;
            }
            (Ask::Jump, Some(s)) => return Action::Jump(s),
            _ if text.is_empty() => {}
            (Ask::Interval, _) => {
                let allowed = self.intervals();
                self.say(format!("interval: cannot set '{text}': allowed {allowed} seconds"))
            }
            (Ask::Jump, _) => self.say(format!(
                "jump: cannot go to '{text}': allowed seconds after the first sample, such as 90"
            )),
        }
        Action::None
    }

    fn expand(&mut self) {
        if self.config.panel == Panel::Memory {
            return self.say("Memory is a VM's, not its worlds': c shows the CPU panel.");
        }
        let Some(gid) = self.group() else { return };
        if !self.expanded.remove(&gid) {
            self.expanded.insert(gid);
        }
        self.at = Some((gid, None));
    }

    fn panel(&mut self, panel: Panel) {
        self.config.panel = panel;
        self.left = 0;
        self.go(0);
    }

    fn sort(&mut self, by: SortBy) {
        let columns = self.config.columns_mut();
        (columns.sort, columns.reverse) = (by, false);
        self.go(0);
    }

    /// Sorts by a column if the panel has it.
    fn sort_if(&mut self, by: SortBy) {
        if self.config.panel.orders().any(|o| o == by) {
            self.sort(by);
        } else {
            self.say(format!("This panel has no {}: c shows the CPU panel.", by.title()));
        }
    }

    fn sort_beside(&mut self, right: bool) {
        let shown: Vec<SortBy> = [SortBy::Gid, SortBy::Name]
            .into_iter()
            .chain(self.config.metrics().map(SortBy::Metric))
            .collect();
        let at = shown.iter().position(|s| *s == self.config.columns().sort);
        let next = match (at, right) {
            (Some(at), true) => at + 1,
            (Some(at), false) => at.saturating_sub(1),
            (None, _) => 0,
        };
        if let Some(by) = shown.get(next) {
            self.sort(*by);
        }
    }
}
