//! Takes a Markdown text apart as far as the rules need it: fenced blocks, prose lines, code spans,
//! headings, links.

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

/// A text taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub fences: Vec<Fence>,
    /// Lines outside fences, with their numbers from 1.
    pub prose: Vec<(usize, String)>,
}

impl Document {
    pub(crate) fn of(text: &str) -> Document {
        let mut out = Document::default();
        let mut open: Option<(String, Fence)> = None;
        for (i, line) in text.lines().enumerate() {
            let marks: String =
                line.trim_start().chars().take_while(|c| *c == '`' || *c == '~').collect();
            match &mut open {
                Some((end, fence)) if line.trim() == end => {
                    out.fences.push(fence.clone());
                    open = None;
                }
                Some((_, fence)) => fence.body.push_str(&format!("{line}\n")),
                None if marks.len() >= 3 => {
                    let info = line.trim_start()[marks.len()..].trim().to_owned();
                    open = Some((marks, Fence { info, line: i + 2, body: String::new() }));
                }
                None => out.prose.push((i + 1, line.to_owned())),
            }
        }
        out.fences.extend(open.map(|o| o.1));
        out
    }

    /// Anchors that GitHub makes of the headings.
    pub(crate) fn anchors(&self) -> Vec<String> {
        self.prose
            .iter()
            .filter_map(|(_, l)| l.strip_prefix('#'))
            .map(|l| anchor(l.trim_start_matches('#')))
            .collect()
    }
}

/// `` `a` `` parts of a line.
pub(crate) fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Targets of `[text](target)` in a line, code spans left out.
pub(crate) fn links(line: &str) -> Vec<String> {
    let plain: String =
        line.split('`').enumerate().map(|(i, part)| if i % 2 == 0 { part } else { "x" }).collect();
    plain
        .split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0.trim().to_owned()))
        .collect()
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
    fn fences_prose_spans_links_and_anchors_are_told_apart() {
        let d = Document::of(
            "# A `b` title, here\nsee [x](y.md#z) and `[n](o)`\n```sh run\nmake a\n```\nend\n",
        );
        assert_eq!(d.fences, [Fence { info: "sh run".into(), line: 4, body: "make a\n".into() }]);
        assert_eq!(d.anchors(), ["a-b-title-here"]);
        assert_eq!(
            (links(&d.prose[1].1), spans(&d.prose[1].1)),
            (vec!["y.md#z".to_owned()], vec!["[n](o)"])
        );
        assert_eq!(d.prose[2], (6, "end".to_owned()));
    }
}
