//! docs/metrics.md is generated from the declarations of crates/metrics, and the documents name no
//! metric that is not declared.

use super::{Finding, Tree};
use std::collections::BTreeSet;

/// Where the metrics are documented.
pub(crate) const DOCUMENT: &str = "docs/metrics.md";
const SOURCE: &str = "crates/metrics/src/table.rs";
const RULE: &str = "metrics";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let (made, text) = (metrics::document(), tree.text(DOCUMENT));
    let mut out = vec![];
    if made != text {
        let line = made.lines().zip(text.lines()).position(|(a, b)| a != b).map_or(0, |n| n + 1);
        out.push(Finding::new(
            RULE,
            DOCUMENT,
            line,
            format!("not what {SOURCE} makes; run 'cargo xtask tidy --write'"),
        ));
    }
    let declared: BTreeSet<String> =
        metrics::METRICS.iter().map(metrics::Declared::sample).collect();
    for file in tree.files.iter().filter(|f| f.has_extension(&["md"])) {
        for (i, line) in file.text.lines().enumerate() {
            for name in named(line).filter(|name| !declared.contains(*name)) {
                out.push(Finding::new(
                    RULE,
                    &file.path,
                    i + 1,
                    format!("seen metric '{name}', allowed those of 'tandem metrics --list'"),
                ));
            }
        }
    }
    out
}

/// Words that are names of metrics: by unit, total, or what they are of.
fn named(line: &str) -> impl Iterator<Item = &str> {
    const OF: [&str; 4] = ["tandem_vm_", "tandem_pool_", "tandem_pcpu_", "tandem_scheduler_"];
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|w| {
        OF.iter().any(|of| w.starts_with(of)) || (w.starts_with("tandem_") && w.ends_with("_total"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::SourceFile;
    use super::*;

    fn findings(document: &str, other: &str) -> Vec<(String, usize)> {
        let files = vec![SourceFile::of(DOCUMENT, document), SourceFile::of("docs/a.md", other)];
        check(&Tree { root: "no-such-root".into(), files })
            .into_iter()
            .map(|f| (f.file, f.line))
            .collect()
    }

    #[test]
    fn a_stale_document_and_a_metric_that_is_not_declared_are_seen() {
        let made = metrics::document();
        assert_eq!(findings(&made, "`rate(tandem_vm_used_seconds_total[5m])`\n"), []);
        let last = made.lines().count();
        let stale = made.replace("| Kicks that", "| Kick that");
        assert_eq!(findings(&stale, ""), [(DOCUMENT.to_owned(), last)]);
        assert_eq!(
            findings(&made, "\n`tandem_vm_used_seconds > 1`\n"),
            [("docs/a.md".to_owned(), 2)]
        );
    }
}
