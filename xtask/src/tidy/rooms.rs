//! Holds the includes of `sched/` to the arrows between its rooms that ARCHITECTURE.md lists: no
//! other, none that nothing uses, and none that runs back up.

use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

const RULE: &str = "rooms";
const DOCUMENT: &str = "ARCHITECTURE.md";
const FENCE: &str = "```rooms";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let sources: Vec<(&str, &str)> = tree
        .files
        .iter()
        .filter(|f| f.path.starts_with("sched/") && f.has_extension(&["c", "h"]))
        .map(|f| (f.path.as_str(), f.text.as_str()))
        .collect();
    compare(tree.text(DOCUMENT), &sources)
}

/// The room of a path below `sched/`: its folder, or `core` for what stands at the top.
fn room(path: &str) -> &str {
    path.split_once('/').map_or("core", |p| p.0)
}

/// The path below `sched/` that an include names in the file `path`, both below `sched/`.
fn included(path: &str, name: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |p| p.0);
    match name.strip_prefix("../") {
        Some(rest) => rest.to_owned(),
        None if folder.is_empty() => name.to_owned(),
        None => format!("{folder}/{name}"),
    }
}

/// Compares the listed arrows with the includes of the sources, given as (path, text).
fn compare(document: &str, sources: &[(&str, &str)]) -> Vec<Finding> {
    let Some(first) = document.lines().position(|l| l.trim() == FENCE) else {
        let what = format!("seen no {FENCE} block; list 'room: rooms it may include' there");
        return vec![Finding::new(RULE, DOCUMENT, 0, what)];
    };
    let mut out = vec![];
    let mut allowed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (i, line) in document.lines().enumerate().skip(first + 1) {
        if line.trim() == "```" {
            break;
        }
        let Some((own, may)) = line.split_once(':') else { continue };
        let may: BTreeSet<&str> = may.split_whitespace().filter(|r| *r != "-").collect();
        for up in may.iter().filter(|r| !allowed.contains_key(*r)) {
            let what = format!("'{own}' may include '{up}', which is not listed above it");
            out.push(Finding::new(RULE, DOCUMENT, i + 1, what));
        }
        allowed.insert(own.trim(), may);
    }
    let mut used: BTreeSet<(&str, String)> = BTreeSet::new();
    for (path, text) in sources {
        let below = path.strip_prefix("sched/").unwrap_or(path);
        let own = room(below);
        for (i, line) in text.lines().enumerate() {
            let name = line.strip_prefix("#include \"").and_then(|l| l.split('"').next());
            let Some(name) = name else { continue };
            let to = included(below, name);
            let other = room(&to);
            if other == own {
                continue;
            }
            used.insert((own, other.to_owned()));
            if !allowed.get(own).is_some_and(|may| may.contains(other)) {
                let what = format!(
                    "seen '{own}' include '{other}', which {DOCUMENT} does not list; move what is \
                        needed below both, or argue for the arrow there"
                );
                out.push(Finding::new(RULE, path, i + 1, what));
            }
        }
    }
    for (own, may) in &allowed {
        for other in may.iter().filter(|o| !used.contains(&(*own, (**o).to_owned()))) {
            let what = format!("'{own}' does not include '{other}' any more; take the arrow out");
            out.push(Finding::new(RULE, DOCUMENT, first + 1, what));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(rooms: &str) -> Vec<(String, usize)> {
        let document = format!("# A\n\n```rooms\n{rooms}```\n");
        let sources = [
            ("sched/law/a.h", "/* A. */\n#include \"b.h\"\n"),
            ("sched/tick/c.h", "#include \"../law/a.h\"\n"),
            ("sched/core.c", "#include \"tick/c.h\"\n#include <stdio.h>\n"),
        ];
        compare(&document, &sources).into_iter().map(|f| (f.file, f.line)).collect()
    }

    #[test]
    fn arrows_that_are_listed_are_allowed_and_all_others_refused() {
        assert_eq!(whats("law: -\ntick: law\ncore: tick\n"), []);
        assert_eq!(whats("law: -\ntick: -\ncore: tick\n"), [("sched/tick/c.h".to_owned(), 1)]);
    }

    #[test]
    fn unused_arrows_arrows_back_up_and_a_missing_list_are_seen() {
        let document = || DOCUMENT.to_owned();
        assert_eq!(whats("law: -\ntick: law\ncore: law tick\n"), [(document(), 3)]);
        let up = whats("law: tick\ntick: law\ncore: tick\n");
        assert!(up.contains(&(document(), 4)), "{up:?}");
        assert_eq!(compare("no fence", &[]).len(), 1);
    }
}
