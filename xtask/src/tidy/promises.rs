//! Every promise of SPECIFICATION.md has a number of its own and names what holds it, and what it
//! names is there.

use super::markdown::{Document, spans};
use super::{Finding, Tree};
use std::collections::BTreeSet;

const DOCUMENT: &str = "SPECIFICATION.md";
const RULE: &str = "promises";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = vec![];
    let mut numbers = BTreeSet::new();
    for (line, text) in Document::of(tree.text(DOCUMENT)).prose {
        let cells: Vec<&str> = text.trim().trim_matches('|').split('|').map(str::trim).collect();
        let number = cells.first().copied().unwrap_or("");
        if !text.starts_with('|') || !is_number(number) {
            continue;
        }
        let mut say = |what: String| out.push(Finding::new(RULE, DOCUMENT, line, what));
        if !numbers.insert(number.to_owned()) {
            say(format!("{number} is there twice; give it the next number"));
        }
        let holder = cells.last().copied().unwrap_or("");
        if cells.len() < 4
            || spans(holder).is_empty()
                && !["pending", "same test", "scenario"].iter().any(|w| holder.contains(w))
        {
            say(format!(
                "{number}: seen nothing that holds it; name a test, a scenario or a drill, or \
                    write pending"
            ));
        }
        for (file, name) in spans(holder).into_iter().filter_map(|s| s.split_once("::")) {
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
