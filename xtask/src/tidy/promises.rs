//! Every promise of SPECIFICATION.md has a number of its own and names what holds it, and what it
//! names is there.

use super::markdown::{Cell, Document};
use super::{Finding, Tree};
use std::collections::BTreeSet;

const DOCUMENT: &str = "SPECIFICATION.md";
const RULE: &str = "promises";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = vec![];
    let mut numbers = BTreeSet::new();
    for (line, cells) in Document::of(tree.text(DOCUMENT)).rows {
        let number = cells.first().map_or("", |c| c.text.as_str());
        if !is_number(number) {
            continue;
        }
        let mut say = |what: String| out.push(Finding::new(RULE, DOCUMENT, line, what));
        if !numbers.insert(number.to_owned()) {
            say(format!("{number} is there twice; give it the next number"));
        }
        let Cell { text, spans } = cells.get(3).cloned().unwrap_or_default();
        let excused = ["pending", "same test", "scenario"].iter().any(|w| text.contains(w));
        if spans.is_empty() && !excused {
            say(format!(
                "{number}: seen nothing that holds it; name a test, a scenario or a drill, or \
                    write pending"
            ));
        }
        for (file, name) in spans.iter().filter_map(|s| s.split_once("::")) {
            if !has_word(tree.text(file), name) {
                say(format!(
                    "{number}: seen no '{name}' in {file}; name what holds it now, or write pending"
                ));
            }
        }
    }
    out
}

/// A capital and a count: S1, M12.
fn is_number(cell: &str) -> bool {
    cell.strip_prefix(|c: char| c.is_ascii_uppercase())
        .is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|w| w == word)
}

#[cfg(test)]
mod tests {
    use super::super::SourceFile;
    use super::*;

    #[test]
    fn promises_that_nothing_holds_and_numbers_used_twice_are_seen() {
        let text = "| nr | promise | number | held by |\n|---|---|---|---|\n| S1 | a | 1 % | \
            `t.rs::it_holds` |\n| S2 | b | | pending |\n\
                    | S2 | c | | pending |\n| S3 | d | | `t.rs::it_hold` |\n| S4 | e | | some day |\n";
        let files =
            vec![SourceFile::of(DOCUMENT, text), SourceFile::of("t.rs", "fn it_holds() {}\n")];
        let seen: Vec<usize> =
            check(&Tree { root: "no-such-root".into(), files }).iter().map(|f| f.line).collect();
        assert_eq!(seen, [5, 6, 7]);
    }
}
