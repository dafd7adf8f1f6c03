//! What `xtask/tidy.toml` excuses, each with a reason; an excuse may only shrink, and one that
//! excuses nothing is a finding. A ratchet excuses a number of findings, file by file, until the
//! files are clean.

use super::Finding;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Where the exceptions are.
pub(crate) const FILE: &str = "xtask/tidy.toml";
const RULE: &str = "exceptions";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
    /// By rule and file: what is left of a rule that is newer than the files.
    #[serde(default)]
    ratchet: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Exceptions {
    /// All of them as exceptions.
    fn all(self) -> Vec<Exception> {
        let ratchet = self.ratchet.into_iter().flat_map(|(rule, files)| {
            files.into_iter().map(move |(file, max)| Exception {
                rule: rule.clone(),
                file,
                max: Some(max),
                reason: "older than the rule".to_owned(),
            })
        });
        self.exception.into_iter().chain(ratchet).collect()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// Rule that is broken.
    rule: String,
    /// File that breaks it.
    file: String,
    /// For rules that count: the most that is allowed; never more than is there.
    max: Option<usize>,
    /// Why.
    reason: String,
}

impl Exception {
    fn covers(&self, f: &Finding) -> bool {
        let within = match (self.max, f.count) {
            (Some(max), Some(count)) => count <= max,
            (None, None) => true,
            _ => false,
        };
        self.rule == f.rule && self.file == f.file && within
    }
}

/// Takes away what is excused; adds what is wrong with the excuses.
pub(crate) fn apply(text: &str, found: Vec<Finding>) -> Vec<Finding> {
    let parsed: Exceptions = match toml::from_str(text) {
        Ok(parsed) => parsed,
        Err(e) => {
            let what = format!(
                "cannot parse: {}; allowed [[exception]] with rule, file, reason and for lengths \
                    max, [ratchet.RULE] with \"file\" = count",
                e.message()
            );
            return found.into_iter().chain([Finding::new(RULE, FILE, 0, what)]).collect();
        }
    };
    let exceptions = parsed.all();
    let mut wrong = vec![];
    for e in &exceptions {
        let line =
            text.lines().position(|l| l.contains(&format!("\"{}\"", e.file))).map_or(0, |n| n + 1);
        let covered: Vec<&Finding> = found.iter().filter(|f| e.covers(f)).collect();
        let most = covered.iter().filter_map(|f| f.count).max();
        if e.reason.split_whitespace().count() < 3 {
            wrong.push(Finding::new(
                RULE,
                FILE,
                line,
                format!("{} of {}: seen no reason; say why in a sentence", e.rule, e.file),
            ));
        } else if covered.is_empty() {
            wrong.push(Finding::new(
                RULE,
                FILE,
                line,
                format!("{} of {} excuses nothing any more; remove it", e.rule, e.file),
            ));
        } else if most < e.max {
            let most = most.unwrap_or(0);
            wrong.push(Finding::new(
                RULE,
                FILE,
                line,
                format!("{} of {}: it has shrunk to {most}; lower max to that", e.rule, e.file),
            ));
        }
    }
    let left = found.into_iter().filter(|f| !exceptions.iter().any(|e| e.covers(f)));
    left.chain(wrong).collect()
}

/// The text with the ratchet of a rule lowered to what is found, and lines of clean files gone;
/// nothing is ever raised.
pub(crate) fn lowered(text: &str, rule: &str, found: &[Finding]) -> String {
    let head = format!("[ratchet.{rule}]");
    let mut within = false;
    let mut out = String::new();
    for line in text.lines() {
        within = if line.starts_with('[') { line == head } else { within };
        let entry = line.strip_prefix('"').and_then(|l| l.split_once("\" = ")).filter(|_| within);
        let Some((file, max)) = entry.and_then(|(f, n)| Some((f, n.parse::<usize>().ok()?))) else {
            out += &format!("{line}\n");
            continue;
        };
        let now = found.iter().find(|f| f.rule == rule && f.file == file).and_then(|f| f.count);
        if let Some(now) = now {
            out += &format!("\"{file}\" = {}\n", now.min(max));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(count: usize) -> Vec<Finding> {
        vec![Finding { count: Some(count), ..Finding::new("file-length", "a.rs", 0, "long") }]
    }

    fn toml(max: &str, reason: &str) -> String {
        format!(
            "[[exception]]\nrule = \"file-length\"\nfile = \"a.rs\"\n{max}\nreason = \"{reason}\"\n"
        )
    }

    fn whats(text: &str, found: Vec<Finding>) -> Vec<String> {
        apply(text, found).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn an_exception_excuses_up_to_its_max_and_must_follow_when_the_file_shrinks() {
        let text = toml("max = 600", "one table that belongs together");
        assert_eq!(apply(&text, long(600)), []);
        assert_eq!(whats(&text, long(601))[0], "long");
        assert!(whats(&text, long(590))[0].contains("lower max"));
        assert!(whats(&text, vec![])[0].contains("remove it"));
    }

    #[test]
    fn an_exception_without_a_reason_or_with_unknown_keys_is_a_finding() {
        assert!(whats(&toml("max = 600", "because"), long(600))[0].contains("no reason"));
        assert!(whats(&toml("min = 6", "one two three"), long(600))[1].contains("cannot parse"));
    }

    #[test]
    fn a_ratchet_excuses_as_many_as_it_says_and_is_only_ever_lowered() {
        let text = "[ratchet.file-length]\n\"a.rs\" = 600\n\"b.rs\" = 3\n";
        assert_eq!(whats(text, long(600)).len(), 1);
        assert!(whats(text, long(600))[0].contains("file-length of b.rs excuses nothing"));
        assert_eq!(whats(text, long(601))[0], "long");
        assert!(whats(text, long(590))[0].contains("shrunk to 590"));
        let lower = "[ratchet.file-length]\n\"a.rs\" = 590\n";
        assert_eq!(lowered(text, "file-length", &long(590)), lower);
        assert_eq!(lowered(lower, "file-length", &long(600)), lower);
        assert_eq!(lowered(text, "words", &long(590)), text);
    }
}
