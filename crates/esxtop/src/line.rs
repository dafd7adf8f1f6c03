//! Lines of a batch file and the fields in them, for the reader; it knows nothing of what they
//! mean.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

/// Longest line that is read. A host of 1,000 VMs with all that ESXi counts has lines of some 20
/// MB.
pub(crate) const LINE_BYTES_MAX: u64 = 256 << 20;

/// A line.
pub(crate) struct Line {
    /// Its number in the file, from 1.
    pub(crate) number: usize,
    /// The text, without its end.
    pub(crate) text: String,
    /// Whether it was ended.
    pub(crate) ended: bool,
    /// Whether it is longer than can be read.
    pub(crate) too_long: bool,
}

/// Reads lines.
pub(crate) struct Lines<R> {
    input: R,
    number: usize,
    bytes_max: u64,
}

impl<R: BufRead> Lines<R> {
    /// Lines of at most so many bytes.
    pub(crate) fn new(input: R, bytes_max: u64) -> Lines<R> {
        Lines { input, number: 0, bytes_max }
    }

    /// Lines read so far.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The next line that is not blank; a date that a line break parts from its time is one line
    /// with that.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let Some(mut line) = self.one()? else { return Ok(None) };
            if line.text.trim().is_empty() {
                continue;
            }
            if line.ended && is_date_alone(&line.text) {
                if let Some(rest) = self.one()? {
                    line.text = format!("{} {}", line.text, rest.text);
                    (line.ended, line.too_long) = (rest.ended, rest.too_long);
                }
            }
            return Ok(Some(line));
        }
    }

    fn one(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = vec![];
        self.input.by_ref().take(self.bytes_max).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let ended = bytes.last() == Some(&b'\n');
        let too_long = !ended && bytes.len() as u64 == self.bytes_max;
        let end = bytes.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |i| i + 1);
        bytes.truncate(end);
        // What is not UTF-8 is Latin-1, as other readers of such files have found.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|e| e.into_bytes().into_iter().map(char::from).collect());
        Ok(Some(Line { number: self.number, text, ended, too_long }))
    }
}

/// `"MM/DD/YYYY` and nothing more: some files have the time on the next line.
fn is_date_alone(text: &str) -> bool {
    text.len() == 11
        && text.starts_with('"')
        && !text[1..].contains(|c: char| !c.is_ascii_digit() && c != '/')
}

/// A field of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) quoted: bool,
}

/// A line that cannot be parted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadQuote {
    /// The field, from 1.
    pub(crate) column: usize,
    /// Whether the line ends within quotes, as one that was cut does.
    pub(crate) open: bool,
}

/// Parts a line at commas outside quotes. Two quotes within quotes are one.
pub(crate) fn fields(line: &str) -> Result<Vec<Field<'_>>, BadQuote> {
    let mut out = vec![];
    let mut rest = line;
    loop {
        let column = out.len() + 1;
        let (text, quoted, after) = match rest.strip_prefix('"') {
            Some(inner) => {
                let (text, after) = within(inner).ok_or(BadQuote { column, open: true })?;
                (text, true, after)
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), false, &rest[end..])
            }
        };
        out.push(Field { text, quoted });
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(out),
            None => return Err(BadQuote { column, open: false }),
        }
    }
}

/// Text up to the quote that ends it, and what is behind; `None` where none does.
fn within(inner: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = inner.find('"')?;
    let (text, mut after) = (&inner[..end], &inner[end + 1..]);
    if !after.starts_with('"') {
        return Some((Cow::Borrowed(text), after));
    }
    let mut owned = text.to_owned();
    while let Some(more) = after.strip_prefix('"') {
        let end = more.find('"')?;
        owned.push('"');
        owned.push_str(&more[..end]);
        after = &more[end + 1..];
    }
    Some((Cow::Owned(owned), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        fields(line).unwrap().into_iter().map(|f| f.text.into_owned()).collect()
    }

    #[test]
    fn fields_end_at_commas_outside_quotes() {
        assert_eq!(texts(r#""a","b,c","","d""e""f","""""#), ["a", "b,c", "", "d\"e\"f", "\""]);
        assert_eq!(texts("1,2,"), ["1", "2", ""]);
        assert_eq!(texts(""), [""]);
        assert_eq!(
            fields(r#""a",b"#).unwrap().iter().map(|f| f.quoted).collect::<Vec<_>>(),
            [true, false]
        );
        assert_eq!(fields(r#""a","b"#), Err(BadQuote { column: 2, open: true }));
        assert_eq!(fields(r#""a","b"""#), Err(BadQuote { column: 2, open: true }));
        assert_eq!(fields(r#""a","b"x,"c""#), Err(BadQuote { column: 2, open: false }));
    }

    #[test]
    fn lines_are_numbered_blank_ones_passed_over_and_dates_joined_with_their_time() {
        let mut lines =
            Lines::new(&b"one\r\n\n  \r\n\"05/15/2017\n06:49:37\",\"1\"\nG\xf6tz\nlast"[..], 100);
        let mut seen = vec![];
        while let Some(l) = lines.next().unwrap() {
            assert!(!l.too_long);
            seen.push((l.number, l.text, l.ended));
        }
        let text = |s: &str| s.to_owned();
        let expected = [
            (1, text("one"), true),
            (4, text("\"05/15/2017 06:49:37\",\"1\""), true),
            (6, text("Götz"), true),
            (7, text("last"), false),
        ];
        assert_eq!(seen, expected);
        assert_eq!(lines.number(), 7);
    }
}
