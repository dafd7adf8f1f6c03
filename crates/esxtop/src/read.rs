//! Reads a batch file, Tandem's or ESXi's, into one series a counter, for comparisons and charts;
//! it opens no file by itself.
//!
//! *Promise*: what is read is what stands there. An empty cell, or one of `-` or a blank, is a gap.
//! Counters that Tandem does not know stay under their names; where their cells are no numbers, the
//! text is kept. A file that was cut gives all its whole lines. Any other damage is an error with
//! line and column. *Units*: as in the file. Times are ms since 1970, by the offset that the first
//! column states: minutes to add to get UTC, as perfmon has it (digitalflapjack.com, 2018-05-15:
//! summer time in Britain is `(GMT Standard Time)(-60)`). *Limits*: a cut line is noticed by fields
//! that are missing or quotes that are open; without quotes, by a last line that is not ended.

use crate::clock::unix_ms;
use crate::line::{BadQuote, Field, LINE_BYTES_MAX, Line, Lines, fields};
use crate::path::{ObjectKind, Path};
use crate::{COUNTERS, Object};
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Time zone that the file names.
    pub zone: String,
    /// Minutes that were added to its times to get UTC.
    pub bias_minutes: i32,
    /// Time of each sample, in ms since 1970 UTC.
    pub unix_ms: Vec<i64>,
    /// One a column, in the file's order.
    pub series: Vec<Series>,
    /// Number of the last line, where it was cut; it is not among the samples.
    pub cut_line: Option<usize>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What it is. Of a header field that is no path, the field is the counter and all else empty.
    pub path: Path,
    /// A number a sample; none where there is none.
    pub numbers: Vec<Option<f64>>,
    /// What stands where no number is, by sample.
    pub texts: BTreeMap<usize, String>,
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk does not give it.
    #[error(
        "batch file: cannot read on after line {line}: {source}; check the disk, and copy the file \
            again"
    )]
    Io {
        /// Lines read.
        line: usize,
        /// Why.
        source: io::Error,
    },
    /// Nothing there.
    #[error(
        "batch file: cannot read it: seen no line at all, allowed a header and samples; give a \
            file that batch mode wrote"
    )]
    Empty,
    /// No batch file.
    #[error(
        "batch file, line {line}, column 1: cannot read the header: seen '{seen}', allowed \
            '(PDH-CSV 4.0) (zone)(minutes)'; give a file \
         that batch mode wrote"
    )]
    Header {
        /// Line of the header.
        line: usize,
        /// What stands there.
        seen: String,
    },
    /// Quotes that do not fit.
    #[error(
        "batch file, line {line}, column {column}: cannot read the field: seen a quote that does \
            not end it, allowed two of them around \
         a field; copy the file again, or take the line out"
    )]
    Quote {
        /// The line.
        line: usize,
        /// The field.
        column: usize,
    },
    /// Another number of fields than the header.
    #[error(
        "batch file, line {line}: cannot read the sample: seen {seen} columns, allowed {allowed} \
            as in the header; copy the file again, \
         or take the line out"
    )]
    Columns {
        /// The line.
        line: usize,
        /// Fields seen.
        seen: usize,
        /// Fields of the header.
        allowed: usize,
    },
    /// A time that is none.
    #[error(
        "batch file, line {line}, column 1: cannot read the time: seen '{seen}', allowed \
            MM/DD/YYYY HH:MM:SS; copy the file again, or \
         take the line out"
    )]
    Time {
        /// The line.
        line: usize,
        /// What stands there.
        seen: String,
    },
    /// A number that is none.
    #[error(
        "batch file, line {line}, column {column} ({path}): cannot read the number: seen '{seen}', \
            allowed a decimal number or nothing; \
         correct the cell, or empty it"
    )]
    Number {
        /// The line.
        line: usize,
        /// The field.
        column: usize,
        /// What the column is.
        path: String,
        /// What stands there.
        seen: String,
    },
    /// A line without end.
    #[error(
        "batch file, line {line}: cannot read it: seen more than {LINE_BYTES_MAX} bytes without an \
            end, allowed so many; give a file \
         that batch mode wrote"
    )]
    TooLong {
        /// The line.
        line: usize,
    },
}

impl Batch {
    /// The series of one counter of one object.
    #[must_use]
    pub fn find(&self, object: &str, instance: Option<&str>, counter: &str) -> Option<&Series> {
        let wanted = |p: &Path| {
            p.object == object && p.counter == counter && p.instance.as_deref() == instance
        };
        self.series.iter().find(|s| wanted(&s.path))
    }

    /// The series of one counter of all objects of a kind.
    pub fn of<'a>(&'a self, object: &'a str, counter: &'a str) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |s| s.path.object == object && s.path.counter == counter)
    }

    /// The host, where the file names one.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.series.iter().map(|s| s.path.host.as_str()).find(|h| !h.is_empty())
    }
}

/// Reads a file.
///
/// # Errors
/// `ReadError` where it is no batch file, or is damaged elsewhere than at its end.
pub fn read(input: impl Read) -> Result<Batch, ReadError> {
    within(input, LINE_BYTES_MAX)
}

/// Reads a file with lines of at most so many bytes.
fn within(input: impl Read, bytes_max: u64) -> Result<Batch, ReadError> {
    let mut lines = Lines::new(BufReader::new(input), bytes_max);
    let Some(first) = next(&mut lines)? else { return Err(ReadError::Empty) };
    let (mut batch, known) = header(&first)?;
    // What is wrong with the line before, if that could be because it was cut.
    let mut cut: Option<(usize, ReadError)> = None;
    while let Some(line) = next(&mut lines)? {
        if let Some((_, error)) = cut {
            return Err(error);
        }
        match sample(&mut batch, &known, &line) {
            Ok(()) => {}
            Err(Wrong::Cut(error)) => cut = Some((line.number, error)),
            Err(Wrong::Damaged(error)) => return Err(error),
        }
    }
    batch.cut_line = cut.map(|c| c.0);
    Ok(batch)
}

fn next<R: io::BufRead>(lines: &mut Lines<R>) -> Result<Option<Line>, ReadError> {
    let line = lines.next().map_err(|source| ReadError::Io { line: lines.number(), source })?;
    match line {
        Some(l) if l.too_long => Err(ReadError::TooLong { line: l.number }),
        other => Ok(other),
    }
}

/// A line that is no sample: perhaps because it was cut, or not.
enum Wrong {
    Cut(ReadError),
    Damaged(ReadError),
}

/// The first 60 characters of what stands there, fit for a terminal.
fn short(text: &str) -> String {
    text.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// An empty batch with the columns of the header, and whether Tandem knows each as a number.
fn header(line: &Line) -> Result<(Batch, Vec<bool>), ReadError> {
    let text = line.text.trim_start_matches('\u{feff}');
    let mut all =
        fields(text).map_err(|b| ReadError::Quote { line: line.number, column: b.column })?;
    // A comma at the end is no column.
    if all.len() > 1 && all.last().is_some_and(|f| f.text.trim().is_empty()) {
        all.pop();
    }
    let first = all[0].text.trim();
    let (zone, bias_minutes) =
        zone(first).ok_or_else(|| ReadError::Header { line: line.number, seen: short(first) })?;
    let path = |f: &Field| {
        let none = || Path {
            host: String::new(),
            object: String::new(),
            instance: None,
            counter: f.text.to_string(),
        };
        Path::parse(f.text.trim()).unwrap_or_else(none)
    };
    let series = |f: &Field| Series { path: path(f), numbers: vec![], texts: BTreeMap::new() };
    let series: Vec<Series> = all[1..].iter().map(series).collect();
    let known = series.iter().map(|s| is_known(&s.path)).collect();
    Ok((Batch { zone, bias_minutes, unix_ms: vec![], series, cut_line: None }, known))
}

/// Zone and minutes of `(PDH-CSV 4.0) (UTC)(0)`.
fn zone(first: &str) -> Option<(String, i32)> {
    let rest = first.strip_prefix("(PDH-CSV ")?.split_once(')')?.1.trim();
    let (zone, bias) = rest.strip_suffix(')')?.rsplit_once('(')?;
    let zone = zone.trim().strip_prefix('(')?.strip_suffix(')')?;
    // No zone is a day or more away.
    let bias: i32 = bias.parse().ok().filter(|b: &i32| b.abs() < 24 * 60)?;
    Some((zone.to_owned(), bias))
}

/// Whether Tandem declares the counter, so that its cells have to be numbers.
fn is_known(path: &Path) -> bool {
    let object = match path.kind() {
        ObjectKind::Load => Object::Load,
        ObjectKind::Pcpu => Object::Pcpu,
        ObjectKind::Group => Object::Group,
        ObjectKind::World => Object::World,
        ObjectKind::VmMemory => Object::Memory,
        ObjectKind::Other => return false,
    };
    COUNTERS.iter().any(|c| c.on.contains(&object) && c.batch == Some(path.counter.as_str()))
}

/// Adds a sample, whole or not at all.
fn sample(batch: &mut Batch, known: &[bool], line: &Line) -> Result<(), Wrong> {
    let number = line.number;
    let quote = |b: BadQuote| {
        let error = ReadError::Quote { line: number, column: b.column };
        if b.open { Wrong::Cut(error) } else { Wrong::Damaged(error) }
    };
    let mut all = fields(&line.text).map_err(quote)?;
    let allowed = batch.series.len() + 1;
    if all.len() == allowed + 1 && all.last().is_some_and(|f| !f.quoted && f.text.trim().is_empty())
    {
        all.pop();
    }
    let seen = all.len();
    // Without quotes nothing says that the last number is whole but the end of the line.
    let open_end = !line.ended && all.last().is_some_and(|f| !f.quoted);
    if seen < allowed || (seen == allowed && open_end) {
        return Err(Wrong::Cut(ReadError::Columns { line: number, seen, allowed }));
    }
    if seen > allowed {
        return Err(Wrong::Damaged(ReadError::Columns { line: number, seen, allowed }));
    }
    let time = || Wrong::Damaged(ReadError::Time { line: number, seen: short(&all[0].text) });
    let ms = unix_ms(&all[0].text).ok_or_else(time)? + i64::from(batch.bias_minutes) * 60_000;
    let cells: Vec<Cell> = all[1..].iter().map(|f| cell(&f.text)).collect();
    if let Some(i) =
        cells.iter().zip(known).position(|(c, known)| *known && matches!(c, Cell::Text(_)))
    {
        let (column, path, seen) =
            (i + 2, short(&batch.series[i].path.to_string()), short(&all[i + 1].text));
        return Err(Wrong::Damaged(ReadError::Number { line: number, column, path, seen }));
    }
    let at = batch.unix_ms.len();
    batch.unix_ms.push(ms);
    for (series, cell) in batch.series.iter_mut().zip(cells) {
        let value = match cell {
            Cell::Nothing => None,
            Cell::Number(n) => Some(n),
            Cell::Text(text) => {
                series.texts.insert(at, text.to_owned());
                None
            }
        };
        series.numbers.push(value);
    }
    Ok(())
}

/// What stands in a cell.
enum Cell<'a> {
    Nothing,
    Number(f64),
    Text(&'a str),
}

fn cell(text: &str) -> Cell<'_> {
    let text = text.trim();
    match text.parse::<f64>() {
        _ if text.is_empty() || text == "-" => Cell::Nothing,
        Ok(n) if n.is_finite() => Cell::Number(n),
        _ => Cell::Text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] = b"\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\o\\c\"\n";

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let max = HEADER.len() as u64;
        assert!(within(HEADER, max).is_ok(), "as long as allowed");
        let said = within(HEADER.chain(io::repeat(b'x')), max).unwrap_err().to_string();
        assert!(
            said.starts_with(
                "batch file, line 2: cannot read it: seen more than 268435456 bytes without an end"
            ),
            "{said}"
        );
    }

    #[test]
    fn a_disk_that_fails_is_said() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("bad sector"))
            }
        }
        let said = read(HEADER.chain(Fails)).unwrap_err().to_string();
        assert_eq!(
            said,
            "batch file: cannot read on after line 1: bad sector; check the disk, and copy the \
                file again"
        );
    }
}
