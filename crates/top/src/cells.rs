//! Numbers and names as cells of a table: text of a width, and the level of its warning; it chooses
//! no rows.

use esxtop::{Level, Metric, Unit};
use unicode_width::UnicodeWidthStr;

/// What is not known.
pub(crate) const UNKNOWN: &str = "-";

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) level: Level,
}

impl Cell {
    pub(crate) fn plain(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), level: Level::Fine }
    }
}

/// A number as its column shows it; percentages and rates with so many decimals.
pub(crate) fn number(metric: Metric, value: Option<f64>, decimals: usize) -> String {
    let Some(v) = value.filter(|v| v.is_finite()) else { return UNKNOWN.to_owned() };
    let decimals = match metric.counter().unit {
        Unit::Count | Unit::Shares | Unit::Mhz | Unit::Alloc => 0,
        _ => decimals,
    };
    let text = format!("{v:.decimals$}");
    if text.starts_with('-') && text.trim_start_matches('-').parse() == Ok(0.0) {
        text.trim_start_matches('-').to_owned()
    } else {
        text
    }
}

/// The mark beside a number, so that its colour is not the only sign.
pub(crate) fn mark(level: Level) -> char {
    match level {
        Level::Fine => ' ',
        Level::Look => '+',
        Level::Bad => '!',
    }
}

/// Whether a terminal might do something else than show it.
fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
}

/// A name fit for a terminal: nothing in it moves the cursor.
pub(crate) fn safe(name: &str) -> String {
    name.chars().map(|c| if acts(c) { '?' } else { c }).collect()
}

/// Lines fit for a terminal, whatever names are in them.
#[must_use]
pub fn safe_lines(text: &str) -> String {
    let fits = |c: char| matches!(c, '\n' | '\t') || !acts(c);
    text.chars().map(|c| if fits(c) { c } else { '?' }).collect()
}

/// Columns of a terminal that a text takes.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The text in exactly so many columns, cut or filled up on the right (or the left).
pub(crate) fn fit(text: &str, columns: usize, to_the_right: bool) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if width(&out) + width(c.encode_utf8(&mut [0; 4])) > columns {
            break;
        }
        out.push(c);
    }
    let fill = " ".repeat(columns - width(&out));
    if to_the_right { fill + &out } else { out + &fill }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_wide_as_they_have_to_be() {
        assert_eq!(number(Metric::Used, Some(12.345), 2), "12.35");
        assert_eq!(number(Metric::Used, Some(-0.001), 2), "0.00");
        assert_eq!(number(Metric::AllocMax, Some(-1.0), 2), "-1");
        assert_eq!(number(Metric::Worlds, Some(12.0), 2), "12");
        assert_eq!([None, Some(f64::NAN)].map(|v| number(Metric::Used, v, 2)), ["-", "-"]);
    }

    #[test]
    fn names_cannot_take_over_the_terminal_and_fill_their_columns() {
        assert_eq!(safe_lines("a\x1b[2Jb\tc\r\n\u{9b}d\n"), "a?[2Jb\tc?\n?d\n");
        assert_eq!(safe("a\x1b[2Jb\u{202e}c\n"), "a?[2Jb?c?");
        assert_eq!(fit("abc", 5, false), "abc  ");
        assert_eq!(fit("abc", 5, true), "  abc");
        assert_eq!(fit("abcdef", 4, false), "abcd");
        assert_eq!(fit("日本語", 5, false), "日本 ");
    }
}
