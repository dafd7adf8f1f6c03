//! Takes a Markdown text apart as far as the rules need it: fences, code spans, headings, links and
//! rows of tables, each with its line; it judges nothing.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    /// What follows the opening fence, such as `sh` or `toml scenario`.
    pub info: String,
    /// Line of its first line of text, from 1.
    pub line: usize,
    /// Its text.
    pub body: String,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Its text without code spans.
    pub text: String,
    /// Its code spans.
    pub spans: Vec<String>,
}

/// A text taken apart; lines count from 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    /// Fenced blocks.
    pub fences: Vec<Fence>,
    /// Code spans.
    pub spans: Vec<(usize, String)>,
    /// Targets of links and images.
    pub links: Vec<(usize, String)>,
    /// Rows of tables, heads too.
    pub rows: Vec<(usize, Vec<Cell>)>,
    /// Anchors that GitHub makes of the headings.
    pub anchors: Vec<String>,
}

/// What a text belongs to.
enum Part {
    Other,
    Fence,
    Heading(String),
    Cell,
}

impl Document {
    pub(crate) fn of(text: &str) -> Document {
        let ends: Vec<usize> = text.match_indices('\n').map(|m| m.0).collect();
        let (mut out, mut part) = (Document::default(), Part::Other);
        for (event, at) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            out.take(event, ends.partition_point(|end| *end < at.start) + 1, &mut part);
        }
        out
    }

    fn take(&mut self, event: Event<'_>, line: usize, part: &mut Part) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let info = info.trim().to_owned();
                self.fences.push(Fence { info, line: line + 1, body: String::new() });
                *part = Part::Fence;
            }
            Event::Start(Tag::Heading { .. }) => *part = Part::Heading(String::new()),
            Event::Start(Tag::TableHead | Tag::TableRow) => self.rows.push((line, vec![])),
            Event::Start(Tag::TableCell) => {
                self.rows.last_mut().into_iter().for_each(|r| r.1.push(Cell::default()));
                *part = Part::Cell;
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                self.links.push((line, dest_url.into_string()));
            }
            Event::End(TagEnd::CodeBlock | TagEnd::Heading(_) | TagEnd::TableCell) => {
                if let Part::Heading(text) = std::mem::replace(part, Part::Other) {
                    self.anchors.push(anchor(&text));
                }
            }
            Event::Text(text) => self.text(&text, false, part),
            Event::Code(text) => {
                self.text(&text, true, part);
                self.spans.push((line, text.into_string()));
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str, is_code: bool, part: &mut Part) {
        let cell = self.rows.last_mut().and_then(|r| r.1.last_mut());
        match (part, self.fences.last_mut(), cell) {
            (Part::Fence, Some(fence), _) => fence.body.push_str(text),
            (Part::Heading(heading), ..) => heading.push_str(text),
            (Part::Cell, _, Some(cell)) if is_code => cell.spans.push(text.to_owned()),
            (Part::Cell, _, Some(cell)) => cell.text.push_str(text),
            _ => {}
        }
    }
}

/// Lines outside fenced blocks, as they stand, with their numbers from 1.
pub(crate) fn prose(text: &str) -> Vec<(usize, &str)> {
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let fenced: Vec<_> = Parser::new_ext(text, Options::ENABLE_TABLES)
        .into_offset_iter()
        .filter(|(e, _)| matches!(e, Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_)))))
        .map(|(_, at)| line_of(at.start)..=line_of(at.end.saturating_sub(1)))
        .collect();
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    lines.filter(|(n, _)| fenced.iter().all(|range| !range.contains(n))).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_spans_links_and_anchors_are_told_apart() {
        let d = Document::of(
            "# A `b` title, here\nsee [x](y.md#z) and `[n](o)`\n```sh run\nmake a\n```\na [link\nof \
            two](p.md) lines\n",
        );
        assert_eq!(d.fences, [Fence { info: "sh run".into(), line: 4, body: "make a\n".into() }]);
        assert_eq!(d.anchors, ["a-b-title-here"]);
        assert_eq!(d.links, [(2, "y.md#z".to_owned()), (6, "p.md".to_owned())]);
        assert_eq!(d.spans, [(1, "b".to_owned()), (2, "[n](o)".to_owned())]);
    }

    #[test]
    fn a_fence_may_hold_a_shorter_one_and_stand_in_a_list() {
        let d =
            Document::of("````md\n```sh\nmake a\n```\n````\n- x\n\n  ~~~toml\n  a = 1\n  ~~~\n");
        let seen: Vec<_> = d.fences.iter().map(|f| (f.line, f.info.as_str(), &*f.body)).collect();
        assert_eq!(seen, [(2, "md", "```sh\nmake a\n```\n"), (9, "toml", "a = 1\n")]);
    }

    #[test]
    fn prose_is_what_stands_outside_fences() {
        let text = "a\n```sh\nb\n```\n\n- c\n  ~~~\n  d\n  ~~~\ne `f`\n";
        let seen = prose(text);
        assert_eq!(seen, [(1, "a"), (5, ""), (6, "- c"), (10, "e `f`")]);
    }

    #[test]
    fn rows_have_their_cells_with_bars_and_code_in_them() {
        let d = Document::of("| a | b |\n|---|---|\n| x \\| y | see `c::d` and `e` |\n");
        assert_eq!(d.rows[0].1.iter().map(|c| c.text.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let cell = |text: &str, spans: &[&str]| Cell {
            text: text.to_owned(),
            spans: spans.iter().map(|s| (*s).to_owned()).collect(),
        };
        assert_eq!(d.rows[1], (3, vec![cell("x | y", &[]), cell("see  and ", &["c::d", "e"])]));
    }
}
