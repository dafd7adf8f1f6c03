//! Opens a recorded file, a batch file of esxtop or Tandem or a trace, and gives its samples by
//! number.

use crate::cut::Cut;
use crate::play::{Player, Sample};
use esxtop::{Recorded, read};
use std::io::{BufReader, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

/// A file that cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The disk does not give it.
    #[error("{file}: cannot open it: {source}; give a batch file or a trace")]
    Open {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It begins as a batch file, and is none.
    #[error("{file}: {source}")]
    Batch {
        /// The file.
        file: String,
        /// Why.
        source: esxtop::ReadError,
    },
    /// It is no trace either.
    #[error(
        "{file}: cannot show it: {source}; allowed are a batch file of esxtop or 'tandem top -b', \
            and a trace"
    )]
    Trace {
        /// The file.
        file: String,
        /// Why.
        source: trace::ReadError,
    },
    /// Nothing in it.
    #[error(
        "{file}: cannot show it: seen no whole interval of {interval_s} s, allowed at least one; \
            take a shorter --interval"
    )]
    Empty {
        /// The file.
        file: String,
        /// Interval of samples, in s.
        interval_s: f64,
    },
}

/// The samples of a file.
pub struct Opened {
    /// What it is, for people.
    pub title: String,
    /// Number of samples.
    pub len: usize,
    /// A sample by its number.
    pub get: Box<dyn Fn(usize) -> Option<Sample>>,
    /// Time of a sample since the first look, in ns, by its number.
    pub up_ns: Box<dyn Fn(usize) -> Option<u64>>,
    /// What is missing of a batch file, where something is.
    pub missing: Option<String>,
    /// What is damaged of a trace, and what is known of the missing part.
    pub damage: Option<String>,
    /// The host that the file names.
    pub host: Option<String>,
}

impl Opened {
    /// Plays it, `pace` times as fast as the interval says; `None`: as fast as possible.
    #[must_use]
    pub fn player(self, pace: Option<f64>) -> Player {
        Player::of_file(self.title, self.len, self.get, self.up_ns, pace)
    }
}

/// Opens a file; a trace is cut into intervals of that length, in s.
///
/// # Errors
/// `FileError` where it is neither, or has no sample.
pub fn open(path: &Path, interval_s: f64) -> Result<Opened, FileError> {
    let file = path.display().to_string();
    let io = |source| FileError::Open { file: file.clone(), source };
    let mut input = files::open(path, files::RECORD_MAX).map_err(io)?;
    let mut head = vec![];
    (&mut input).take(16).read_to_end(&mut head).map_err(io)?;
    let text = String::from_utf8_lossy(&head).into_owned();
    let input = Cursor::new(head).chain(input);
    let is_batch =
        text.trim_start_matches('\u{feff}').trim_start_matches('"').starts_with("(PDH-CSV");
    let opened = if is_batch { batch(&file, input)? } else { of_trace(&file, input, interval_s)? };
    if opened.len == 0 { Err(FileError::Empty { file, interval_s }) } else { Ok(opened) }
}

fn batch(file: &str, input: impl Read) -> Result<Opened, FileError> {
    let batch = read(BufReader::new(input))
        .map_err(|source| FileError::Batch { file: file.to_owned(), source })?;
    let missing = batch.cut_line.map(|line| format!("line {line}, the last, is cut and left out"));
    let host = batch.host().map(str::to_owned);
    let title = format!("{file}{}", host.as_ref().map_or_else(String::new, |h| format!(" of {h}")));
    let recorded = Rc::new(Recorded::new(batch));
    let len = recorded.len();
    let (first, second) = (Rc::clone(&recorded), recorded);
    let up_ns = move |i: usize| {
        (i < len).then(|| u64::try_from(second.since_ms(i)).unwrap_or(0) * 1_000_000)
    };
    let up = up_ns.clone();
    let get = move |i: usize| Some(Sample { rates: first.rates(i)?, up_ns: up(i)? });
    let (get, up_ns) = (Box::new(get), Box::new(up_ns));
    Ok(Opened { title, len, get, up_ns, missing, damage: None, host })
}

fn of_trace(file: &str, input: impl Read, interval_s: f64) -> Result<Opened, FileError> {
    let loaded = trace::load(BufReader::new(input))
        .map_err(|source| FileError::Trace { file: file.to_owned(), source })?;
    let damage = loaded.trace.damage_of(file);
    let cut = Rc::new(Cut::new(loaded.trace.events, (interval_s * 1e9) as u64));
    let (title, len) = (format!("trace {file}"), cut.len());
    let times = Rc::clone(&cut);
    let (get, up_ns) = (Box::new(move |i| cut.get(i)), Box::new(move |i| times.up_ns(i)));
    Ok(Opened { title, len, get, up_ns, missing: None, damage, host: None })
}
