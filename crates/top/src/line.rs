//! Lines of text with a tone for each piece, of which the screen is made; it knows no terminal.

use crate::cells::{fit, width};
use esxtop::Level;

/// How a piece of text is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Unchanged.
    Plain,
    /// A row of a world.
    World,
    /// The line of titles, and the foot.
    Head,
    /// The title of the column that rows are sorted by.
    Sorted,
    /// Worth a look: yellow, and `+` behind the number.
    Look,
    /// Bad: red, and `!` behind the number.
    Bad,
}

impl Tone {
    pub(crate) fn of(level: Level) -> Tone {
        match level {
            Level::Fine => Tone::Plain,
            Level::Look => Tone::Look,
            Level::Bad => Tone::Bad,
        }
    }
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its pieces.
    pub pieces: Vec<(String, Tone)>,
    /// Whether the cursor is on it.
    pub cursor: bool,
}

impl Line {
    pub(crate) fn of(text: impl Into<String>, tone: Tone) -> Line {
        Line { pieces: vec![(text.into(), tone)], cursor: false }
    }

    pub(crate) fn push(&mut self, text: impl Into<String>, tone: Tone) {
        self.pieces.push((text.into(), tone));
    }

    pub(crate) fn highlighted(self) -> Line {
        Line { cursor: true, ..self }
    }

    /// Replaces what stands in the last column of a line that is so wide.
    pub(crate) fn end_with(&mut self, mark: char, columns: usize) {
        let text = fit(&self.text(), columns - 1, false);
        let mut left = width(&text);
        for (piece, _) in &mut self.pieces {
            *piece = fit(piece, left.min(width(piece)), false);
            left -= width(piece);
        }
        self.push(mark, Tone::Head);
    }

    /// Its text alone.
    #[must_use]
    pub fn text(&self) -> String {
        self.pieces.iter().map(|p| p.0.as_str()).collect()
    }
}
