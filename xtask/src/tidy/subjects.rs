//! Holds the subjects of commits to `area: what` in 72 columns, from the commit on that came before
//! the rule; merges and git's own reverts have theirs. Where git or that commit is missing, as in a
//! shallow clone, nothing is held to it.

use super::Finding;
use std::path::Path;
use std::process::Command;

const RULE: &str = "commit-subject";
/// The last commit that the rule does not bind.
const BASE: &str = "c9901c7e822f6220ec8bc706ba75b7aa358622a9";
const COLUMNS_MAX: usize = 72;

/// Findings in the commits since [`BASE`].
///
/// # Errors
/// Why they could not be looked at.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    since(root, BASE)
}

fn since(root: &Path, base: &str) -> Result<Vec<Finding>, String> {
    git(root, &["rev-parse", "--quiet", "--verify", &format!("{base}^{{commit}}")])
        .map_err(|e| if e.is_empty() { format!("{base} is not in this clone") } else { e })?;
    let range = format!("{base}..HEAD");
    let log = git(root, &["log", "--no-merges", "--format=%h %s", &range])?;
    let commits = log.lines().filter_map(|l| l.split_once(' '));
    Ok(commits
        .filter_map(|(commit, subject)| {
            let what = format!("'{subject}': {}; git commit --amend, or rebase", wrong(subject)?);
            Some(Finding::new(RULE, &format!("commit {commit}"), 0, what))
        })
        .collect())
}

fn git(root: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    // A hook of git runs with these, and they would name another repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let out = command.args(words).current_dir(root).output();
    let out = out.map_err(|e| format!("git: cannot run it: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) }
}

/// What is wrong with a subject.
fn wrong(subject: &str) -> Option<String> {
    if subject.starts_with("Revert \"") {
        return None;
    }
    let columns = subject.chars().count();
    if columns > COLUMNS_MAX {
        return Some(format!("seen {columns} columns, allowed {COLUMNS_MAX}"));
    }
    let area = |a: &str| {
        a.starts_with(|c: char| c.is_ascii_lowercase())
            && a.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/.".contains(c))
    };
    let formed = subject.split_once(": ").is_some_and(|(areas, what)| {
        areas.split(", ").all(area) && !what.trim().is_empty() && !what.ends_with('.')
    });
    (!formed).then(|| "allowed 'area: what', areas with commas between, no full stop".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_an_area_and_72_columns() {
        for good in [
            "sched: masks tell also of a thread that comes",
            "sched, sim: eight frames in a chain of calls; no change behind the end",
            "Revert \"Revert the merge of homes by affinity, reservations and cores, again\"",
        ] {
            assert_eq!(wrong(good), None, "{good}");
        }
        for bad in ["wip", "Merge of homes", "Sched: masks", "sched:masks", "sched: ", "sched: a."]
        {
            assert!(wrong(bad).is_some(), "{bad}");
        }
        let long = |n: usize| wrong(&format!("a: {}", "x".repeat(n - 3)));
        assert_eq!((long(72), long(73).is_some()), (None, true));
    }

    #[test]
    fn commits_are_read_from_the_base_on_and_a_missing_base_is_reported() {
        let root = std::env::temp_dir().join(format!("tandem-subjects-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let run = |words: &[&str]| git(&root, words).unwrap();
        let commit = |subject: &str| {
            let by =
                ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.hooksPath=/dev/null"];
            run(&[&by[..], &["commit", "-q", "--allow-empty", "-m", subject]].concat());
        };
        run(&["init", "-q"]);
        commit("Begin");
        let base = run(&["rev-parse", "HEAD"]);
        commit("sim: a test");
        commit("wip");
        let found = since(&root, &base).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.starts_with("'wip': allowed"), "{found:?}");
        let missing = "0123456789012345678901234567890123456789";
        assert!(since(&root, missing).unwrap_err().contains("not in this clone"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
