//! `cargo xtask tidy`: holds the tree to the mechanical rules of STYLE.md; it changes nothing but
//! the generated documents and the ratchets, and those only with --write.
//!
//! A rule takes the tracked files and gives findings, each with file, line and what to do. A
//! finding that `xtask/tidy.toml` excuses with a reason does not count; an excuse that excuses
//! nothing does.

mod commands;
mod constants;
mod documented;
mod edges;
mod exceptions;
mod knobs;
mod links;
pub(crate) mod markdown;
mod metrics_document;
mod modules;
mod profiles;
mod promises;
mod rooms;
pub(crate) mod scan;
mod schema;
mod sources;
mod subjects;
mod tables;
mod words;

use crate::say::sayln;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// Checks the mechanical rules of STYLE.md.
#[derive(clap::Args)]
pub struct Tidy {
    /// Write what is generated (docs/knobs.md, docs/metrics.md, docs/schema, numbers of constants,
    /// tables of what was measured) instead of comparing it, and lower the ratchets of
    /// xtask/tidy.toml to what is left.
    #[arg(long)]
    write: bool,
}

/// A rule that a line of a file breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the rule, as `xtask/tidy.toml` writes it.
    pub rule: &'static str,
    /// File, from the repository's root.
    pub file: String,
    /// Line from 1; 0 for the file as a whole.
    pub line: usize,
    /// What was seen, what is allowed, what to do.
    pub what: String,
    /// What the rule counted, for rules with a limit.
    pub count: Option<usize>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line.max(1), self.rule, self.what)
    }
}

impl Finding {
    fn new(rule: &'static str, file: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { rule, file: file.to_owned(), line, what: what.into(), count: None }
    }
}

/// A file of the repository with its text.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl SourceFile {
    #[cfg(test)]
    fn of(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn has_extension(&self, all: &[&str]) -> bool {
        Path::new(&self.path).extension().and_then(|e| e.to_str()).is_some_and(|e| all.contains(&e))
    }
}

/// Everything a rule may look at.
pub(crate) struct Tree {
    pub root: PathBuf,
    pub files: Vec<SourceFile>,
}

impl Tree {
    fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|f| f.path == path)
    }

    fn text(&self, path: &str) -> &str {
        self.file(path).map_or("", |f| f.text.as_str())
    }
}

/// Root of the repository: the folder above xtask.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Runs `cargo xtask tidy`; `xtask` is the command line of xtask itself, whose commands the
/// documents may name.
#[must_use]
pub fn main(arguments: &Tidy, xtask: &clap::Command) -> ExitCode {
    match check(&root(), arguments.write, xtask) {
        Ok(findings) if findings.is_empty() => {
            sayln!("tidy: clean");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            findings.iter().for_each(|f| sayln!("{f}"));
            sayln!(
                "tidy: {} findings; STYLE.md has the rules, xtask/tidy.toml the exceptions",
                findings.len()
            );
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("tidy: cannot read the tree: {e}; run it in a complete checkout");
            ExitCode::FAILURE
        }
    }
}

/// All findings that no exception excuses, by file and line.
///
/// # Errors
/// When a file cannot be read.
pub fn check(root: &Path, write: bool, xtask: &clap::Command) -> io::Result<Vec<Finding>> {
    let mut tree = Tree { root: root.to_path_buf(), files: read(root)? };
    if write {
        let knobs = knobs::document(tree.text(knobs::SOURCE)).unwrap_or_default();
        for (path, text) in [
            (knobs::DOCUMENT, knobs),
            (metrics_document::DOCUMENT, metrics::document()),
            (profiles::DOCUMENT, profiles::document()),
        ] {
            fs::write(root.join(path), &text)?;
            tree.files.retain(|f| f.path != path);
            tree.files.push(SourceFile { path: path.to_owned(), text });
        }
        if let Some(text) = schema::renewed(&tree) {
            let path = schema::document();
            fs::write(root.join(&path), &text)?;
            tree.files.retain(|f| f.path != path);
            tree.files.push(SourceFile { path, text });
        }
        renew(&mut tree)?;
    }
    let mut found: Vec<Finding> = tree.files.iter().flat_map(sources::check).collect();
    found.extend(edges::check(&tree));
    found.extend(rooms::check(&tree));
    found.extend(modules::check(&tree));
    found.extend(links::check(&tree));
    found.extend(commands::check(&tree, xtask));
    found.extend(knobs::check(&tree));
    found.extend(metrics_document::check(&tree));
    found.extend(profiles::check(&tree));
    found.extend(schema::check(&tree));
    found.extend(documented::check(&tree));
    found.extend(promises::check(&tree));
    found.extend(constants::check(&tree));
    found.extend(tables::check(&tree));
    found.extend(words::check(&tree));
    match subjects::check(root) {
        Ok(subjects) => found.extend(subjects),
        Err(why) => sayln!("tidy: subjects of commits are not checked: {why}"),
    }
    let mut excuses = tree.text(exceptions::FILE).to_owned();
    if write {
        excuses = exceptions::lowered(&excuses, words::RULE, &found);
        fs::write(root.join(exceptions::FILE), &excuses)?;
    }
    let mut left = exceptions::apply(&excuses, found);
    left.sort_by(|a, b| (&a.file, a.line, a.rule).cmp(&(&b.file, b.line, b.rule)));
    Ok(left)
}

/// Writes numbers of constants and tables of what was measured into the documents that have them;
/// what cannot be made stays, and is found afterwards.
fn renew(tree: &mut Tree) -> io::Result<()> {
    for i in 0..tree.files.len() {
        if !tree.files[i].has_extension(&["md"]) {
            continue;
        }
        let path = tree.files[i].path.clone();
        let text = constants::renewed(tree, &tree.files[i]);
        let file = SourceFile { path, text };
        let text = tables::renewed(tree, &file).unwrap_or_else(|_| file.text.clone());
        if text != tree.files[i].text {
            fs::write(tree.root.join(&file.path), &text)?;
            tree.files[i].text = text;
        }
    }
    Ok(())
}

/// Every Markdown document with its text.
#[must_use]
pub fn documents(root: &Path) -> Vec<(String, String)> {
    let files = read(root).unwrap_or_default();
    files.into_iter().filter(|f| f.has_extension(&["md"])).map(|f| (f.path, f.text)).collect()
}

/// Text files that git tracks or would track; binary files are passed over.
fn read(root: &Path) -> io::Result<Vec<SourceFile>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    if !listed.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&listed.stderr).trim().to_owned()));
    }
    let mut files = vec![];
    for path in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|p| !p.is_empty()) {
        match fs::read(root.join(path)) {
            Ok(bytes) => files.extend(
                String::from_utf8(bytes)
                    .ok()
                    .map(|text| SourceFile { path: path.to_owned(), text }),
            ),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {} // deleted, not yet committed
            Err(e) => return Err(io::Error::other(format!("{path}: {e}"))),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_file_line_rule_and_what_to_do() {
        let finding =
            Finding::new("file-length", "a.rs", 0, "seen 501 lines, allowed 500; split it");
        assert_eq!(
            finding.to_string(),
            "a.rs:1: file-length: seen 501 lines, allowed 500; split it"
        );
    }
}
