//! The full-screen program behind `tandem top`, with esxtop's panel, columns and keys: what it
//! shows, what keys do, and how both come onto a terminal; it reads no accounts by itself.
//!
//! | file | what |
//! |---|---|
//! | `config.rs` | what is remembered from session to session: fields, order, sorting, interval |
//! | `state.rs`, `keys.rs` | what the user has asked for so far; keys as a state machine without a
//! terminal |
//! | `rows.rs`, `cells.rs` | the table: groups and worlds chosen, sorted, as text with the level of
//! each number |
//! | `head.rs` | the lines above the table |
//! | `view.rs`, `help.rs` | the whole screen as lines; help, made from the table of counters |
//! | `play.rs` | samples one after the other: as they come, or back and forth in what was recorded
//! |
//! | `file.rs`, `cut.rs` | samples from a batch file; from a trace, each when it is asked for |
//! | `replayed.rs` | the events of a trace summed up to esxtop's counters |
//! | `write.rs` | samples as batch file, lines of JSON, or one screen as text |
//! | `term.rs` | the terminal: drawing, keys, and putting everything back at the end |

mod cells;
mod config;
mod cut;
mod file;
mod head;
mod help;
mod keys;
mod line;
mod play;
mod replayed;
mod rows;
mod state;
mod term;
mod view;
mod write;

pub use cells::safe_lines;
pub use config::{Columns, Config, ConfigError, INTERVAL_S, LIVE_S, Panel, Part, SortBy};
pub use file::{FileError, Opened, open};
pub use keys::{Action, KEYS, Key, keys_markdown};
pub use line::Tone;
pub use play::{Error, Player, Polled, Sample, Source};
pub use state::State;
pub use term::{TermError, run};
pub use view::{Size, Status, View, view};
pub use write::{Format, WriteError, only, screen, write};

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod screen_tests;
