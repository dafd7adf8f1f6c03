//! What `xtask/tidy.toml` excuses, each with a reason; an excuse may only shrink, and one that
//! excuses nothing is a finding.

use super::Finding;
use serde::Deserialize;

/// Where the exceptions are.
pub(crate) const FILE: &str = "xtask/tidy.toml";
const RULE: &str = "exceptions";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
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
                    max",
                e.message()
            );
            return found.into_iter().chain([Finding::new(RULE, FILE, 0, what)]).collect();
        }
    };
    let mut wrong = vec![];
    for e in &parsed.exception {
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
    let left = found.into_iter().filter(|f| !parsed.exception.iter().any(|e| e.covers(f)));
    left.chain(wrong).collect()
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
}
