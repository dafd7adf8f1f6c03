//! Holds the workspace's dependencies to the edges that ARCHITECTURE.md allows: no other, and none
//! that no crate uses.

use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

const RULE: &str = "dependency-edges";
const DOCUMENT: &str = "ARCHITECTURE.md";
const FENCE: &str = "```edges";

/// Crate and crates that it names.
type Edges = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests: Vec<(&str, &str)> = tree
        .files
        .iter()
        .filter(|f| f.path.ends_with("/Cargo.toml"))
        .map(|f| (f.path.as_str(), f.text.as_str()))
        .collect();
    compare(tree.text(DOCUMENT), &manifests)
}

/// Compares the allowed edges with those of the manifests, given as (path, text).
fn compare(document: &str, manifests: &[(&str, &str)]) -> Vec<Finding> {
    let parsed: Vec<(&str, toml::Table)> =
        manifests.iter().filter_map(|(path, text)| Some((*path, text.parse().ok()?))).collect();
    let name = |t: &toml::Table| Some(t.get("package")?.get("name")?.as_str()?.to_owned());
    let crates: BTreeSet<String> = parsed.iter().filter_map(|(_, t)| name(t)).collect();
    let Some((first, allowed)) = allowed(document) else {
        return vec![Finding::new(
            RULE,
            DOCUMENT,
            0,
            format!("seen no {FENCE} block; list 'crate: crates it may use' there"),
        )];
    };
    let mut out = vec![];
    for (path, table) in &parsed {
        let Some(own) = name(table) else { continue };
        let seen = uses(table, &crates);
        let Some(may) = allowed.get(&own) else {
            out.push(Finding::new(
                RULE,
                DOCUMENT,
                first,
                format!("seen no line for '{own}'; say what it may use"),
            ));
            continue;
        };
        for edge in seen.difference(may) {
            let what = format!(
                "seen '{own}' use '{edge}', allowed {}; take it out, or argue for the edge in \
                    {DOCUMENT}",
                list(may)
            );
            out.push(Finding::new(RULE, path, line_of(manifests, path, edge), what));
        }
        for edge in may.difference(&seen) {
            out.push(Finding::new(
                RULE,
                DOCUMENT,
                first,
                format!("'{own}' does not use '{edge}' any more; take the edge out of the list"),
            ));
        }
    }
    for gone in allowed.keys().filter(|k| !crates.contains(*k)) {
        out.push(Finding::new(
            RULE,
            DOCUMENT,
            first,
            format!("there is no crate '{gone}'; take its line out"),
        ));
    }
    out
}

/// Line of the fence, and its edges.
fn allowed(document: &str) -> Option<(usize, Edges)> {
    let first = document.lines().position(|l| l.trim() == FENCE)?;
    let lines = document.lines().skip(first + 1).take_while(|l| l.trim() != "```");
    let edges = lines.filter_map(|l| l.split_once(':')).map(|(own, uses)| {
        let uses = uses.split_whitespace().filter(|u| *u != "-").map(str::to_owned).collect();
        (own.trim().to_owned(), uses)
    });
    Some((first + 1, edges.collect()))
}

/// Crates of the workspace in any table of dependencies, those for tests and builds included.
fn uses(table: &toml::Table, crates: &BTreeSet<String>) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (key, value) in table {
        let Some(inner) = value.as_table() else { continue };
        if key.ends_with("dependencies") {
            out.extend(inner.keys().filter(|k| crates.contains(*k)).cloned());
        } else if key == "target" {
            out.extend(inner.values().filter_map(|v| v.as_table()).flat_map(|t| uses(t, crates)));
        }
    }
    out
}

fn list(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.iter().cloned().collect::<Vec<_>>().join(", ")
    }
}

fn line_of(manifests: &[(&str, &str)], path: &str, edge: &str) -> usize {
    let text = manifests.iter().find(|m| m.0 == path).map_or("", |m| m.1);
    text.lines().position(|l| l.trim_start().starts_with(edge)).map_or(0, |n| n + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: (&str, &str) =
        ("crates/units/Cargo.toml", "[package]\nname = \"units\"\n[dependencies]\nserde = \"1\"\n");
    const SIM: (&str, &str) = (
        "crates/sim/Cargo.toml",
        "[package]\nname = \"sim\"\n[dev-dependencies]\nunits = { path = \"../units\" }\n",
    );

    fn whats(edges: &str) -> Vec<(String, usize, String)> {
        let document = format!("# A\n\n```edges\n{edges}```\n");
        compare(&document, &[UNITS, SIM]).into_iter().map(|f| (f.file, f.line, f.what)).collect()
    }

    #[test]
    fn edges_that_are_listed_are_allowed_and_all_others_refused() {
        assert_eq!(whats("units: -\nsim: units\n"), []);
        let seen = whats("units: -\nsim: -\n");
        assert_eq!((seen[0].0.as_str(), seen[0].1), ("crates/sim/Cargo.toml", 4));
        assert!(seen[0].2.contains("seen 'sim' use 'units', allowed nothing"));
    }

    #[test]
    fn crates_without_a_line_lines_without_a_crate_and_unused_edges_are_seen() {
        assert!(whats("units: -\n")[0].2.contains("no line for 'sim'"));
        assert!(whats("units: -\nsim: units\nold: -\n")[0].2.contains("no crate 'old'"));
        assert!(whats("units: sim\nsim: units\n")[0].2.contains("'units' does not use 'sim'"));
        assert!(compare("no fence", &[UNITS])[0].what.contains("no ```edges"));
    }
}
