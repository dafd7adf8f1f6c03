//! Every relative link of a document leads to a file of the repository, and to a heading of it
//! where it names one.

use super::markdown::Document;
use super::{Finding, Tree};
use std::path::{Component, Path, PathBuf};

const RULE: &str = "links";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = vec![];
    for file in tree.files.iter().filter(|f| f.has_extension(&["md"])) {
        let document = Document::of(&file.text);
        let own = |t: &str| !t.contains("://") && !t.starts_with("mailto:");
        for (line, target) in document.links.iter().filter(|l| own(&l.1)) {
            let wrong = broken(tree, &file.path, &document, target);
            out.extend(wrong.map(|what| Finding::new(RULE, &file.path, *line, what)));
        }
    }
    out
}

/// What is wrong with a link, if anything.
fn broken(tree: &Tree, from: &str, own: &Document, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let other;
    let document = if path.is_empty() {
        own
    } else {
        let whole = normal(&Path::new(from).parent()?.join(path))?;
        let name = whole.to_string_lossy().into_owned();
        let folder = format!("{}/", name.trim_end_matches('/'));
        if tree.file(&name).is_none()
            && !tree.files.iter().any(|f| f.path.starts_with(&folder))
            && !tree.root.join(&whole).exists()
        {
            return Some(format!("the link '{target}' leads nowhere; seen no {name}"));
        }
        other = Document::of(tree.text(&name));
        &other
    };
    let missing = !anchor.is_empty() && !document.anchors.iter().any(|a| a == anchor);
    missing.then(|| {
        format!("the link '{target}' leads to no heading; allowed {}", document.anchors.join(", "))
    })
}

/// The path without `.` and `..`; `None` if it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => out.pop().then_some(())?,
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::SourceFile;
    use super::*;

    #[test]
    fn links_to_nowhere_and_to_no_heading_are_seen() {
        let text = "[a](docs/b.md) [c](docs/b.md#two-words) [d](docs) [e](https://x.y) \
            [f](#here)\n# Here\n[g](docs/c.md)\n[h](docs/b.md#three)\n[i](#there)\n";
        let files = vec![
            SourceFile::of("a.md", text),
            SourceFile::of("docs/b.md", "# Two words\n[a](../a.md)\n[b](../a)\n"),
        ];
        let tree = Tree { root: "no-such-root".into(), files };
        let seen: Vec<(String, usize)> =
            check(&tree).into_iter().map(|f| (f.file, f.line)).collect();
        assert_eq!(
            seen,
            [("a.md".into(), 3), ("a.md".into(), 4), ("a.md".into(), 5), ("docs/b.md".into(), 3)]
        );
    }
}
