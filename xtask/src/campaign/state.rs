//! What has come of the steps of a campaign, kept in a file between runs; pure but for reading and
//! writing it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lab::LabError;
use serde::{Deserialize, Serialize};

use super::steps::Step;

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Passed,
    /// And why.
    Failed(String),
    /// It cannot be run here, and why.
    Skipped(String),
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    /// Commit at which it ran.
    pub commit: String,
    /// Day in UTC on which it ran.
    pub date: String,
    pub verdict: Verdict,
    /// Wall time.
    pub seconds: u64,
    /// Kernel that it boots; empty where it boots none.
    pub kernel: String,
    /// The figures that its command printed.
    pub figures: String,
}

impl Done {
    /// For the terminal.
    pub(super) fn told(&self) -> String {
        let time = clock(Duration::from_secs(self.seconds));
        match &self.verdict {
            Verdict::Passed => format!("passed in {time}"),
            Verdict::Failed(why) => format!("FAILED in {time}: {why}"),
            Verdict::Skipped(why) => format!("skipped: {why}"),
        }
    }
}

/// What has come of each step, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    steps: BTreeMap<String, Done>,
}

impl State {
    /// The state that a file holds; an empty one if there is none.
    pub(super) fn read(path: &Path) -> Result<State, LabError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(State::default()),
            Err(e) => return Err(LabError::io(path, "read the state", e)),
        };
        serde_json::from_str(&text).map_err(|e| {
            let next = "delete it, and every step runs again";
            LabError::new(path.display().to_string(), "be read", e.to_string(), next)
        })
    }

    /// Replaces the file at once, so that an interruption leaves the old one or the new one.
    pub(super) fn write(&self, path: &Path) -> Result<(), LabError> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        let fresh = path.with_extension("new");
        fs::write(&fresh, text + "\n")
            .and_then(|()| fs::rename(&fresh, path))
            .map_err(|e| LabError::io(path, "write the state", e))
    }

    pub(super) fn set(&mut self, name: &str, done: Done) {
        self.steps.insert(name.to_owned(), done);
    }

    /// What came of a step last, at any commit.
    pub(super) fn last(&self, name: &str) -> Option<&Done> {
        self.steps.get(name)
    }

    /// What came of a step at this commit.
    pub(super) fn at(&self, name: &str, commit: &str) -> Option<&Done> {
        self.steps.get(name).filter(|d| d.commit == commit)
    }

    /// Whether a step need not run again. A tree with changes on top of its commit is another one
    /// each time.
    pub(super) fn has_passed(&self, name: &str, commit: &str) -> bool {
        !commit.ends_with('+')
            && self.at(name, commit).is_some_and(|d| d.verdict == Verdict::Passed)
    }

    /// Steps in the order in which they are worth their time: those that never ran, those that
    /// failed, then those whose result is oldest.
    pub(super) fn order(&self, steps: &mut [&Step]) {
        steps.sort_by_key(|step| match self.last(&step.name) {
            None => (0, String::new()),
            Some(d) if d.verdict != Verdict::Passed => (1, d.date.clone()),
            Some(d) => (2, d.date.clone()),
        });
    }

    /// Names of those that failed at this commit.
    pub(super) fn failed<'s>(&self, steps: &[&'s Step], commit: &str) -> Vec<&'s str> {
        let failed = |s: &&&Step| {
            let done = self.at(&s.name, commit);
            done.is_some_and(|d| matches!(d.verdict, Verdict::Failed(_)))
        };
        steps.iter().filter(failed).map(|s| s.name.as_str()).collect()
    }

    /// Time that these steps take: what each took last if it ended well, otherwise what it is
    /// listed with.
    pub(super) fn estimate(&self, steps: &[&Step]) -> Duration {
        let of = |step: &&Step| match self.steps.get(&step.name) {
            Some(d) if d.verdict == Verdict::Passed => Duration::from_secs(d.seconds),
            _ if step.skip.is_some() => Duration::ZERO,
            _ => step.usual,
        };
        steps.iter().map(of).sum()
    }

    /// A step's line in the list.
    pub(super) fn listed(&self, step: &Step, commit: &str) -> String {
        let told = match self.at(&step.name, commit) {
            Some(done) => done.told(),
            None => format!("not run, about {}", clock(self.estimate(&[step]))),
        };
        format!("{}: {told}\n    {}", step.name, step.command())
    }
}

/// Hours, minutes and seconds.
pub(super) fn clock(time: Duration) -> String {
    let s = time.as_secs();
    format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str) -> Step {
        Step { usual: Duration::from_secs(100), ..Step::shell(name, "x", Duration::from_secs(500)) }
    }

    fn done(commit: &str, verdict: Verdict, seconds: u64) -> Done {
        Done {
            commit: commit.into(),
            date: "2026-11-24".into(),
            verdict,
            seconds,
            kernel: String::new(),
            figures: String::new(),
        }
    }

    #[test]
    fn only_what_passed_at_this_very_commit_is_not_run_again() {
        let mut state = State::default();
        state.set("a", done("abc", Verdict::Passed, 7));
        state.set("b", done("abc", Verdict::Failed("exit status: 1".into()), 7));
        state.set("c", done("abc+", Verdict::Passed, 7));
        state.set("d", done("abc", Verdict::Skipped("no clang".into()), 0));
        let passed = |name: &str, commit: &str| state.has_passed(name, commit);
        assert!(passed("a", "abc"));
        assert!(!passed("a", "def") && !passed("b", "abc") && !passed("d", "abc"));
        assert!(!passed("c", "abc+"), "a tree with changes is another one each time");
        assert!(!passed("e", "abc"));
        let steps = ["a", "b", "c", "d", "e"].map(step);
        let all: Vec<&Step> = steps.iter().collect();
        assert_eq!(state.failed(&all, "abc"), ["b"]);
        assert_eq!(state.failed(&all, "def"), [""; 0]);
    }

    #[test]
    fn what_never_ran_comes_first_then_what_failed_then_the_oldest() {
        let mut state = State::default();
        state.set("a", done("abc", Verdict::Passed, 7));
        state.set("b", Done { date: "2026-11-20".into(), ..done("def", Verdict::Passed, 7) });
        state.set("c", done("abc", Verdict::Failed("exit status: 1".into()), 7));
        let steps = ["a", "b", "c", "d"].map(step);
        let mut all: Vec<&Step> = steps.iter().collect();
        state.order(&mut all);
        assert_eq!(all.iter().map(|s| &*s.name).collect::<Vec<_>>(), ["d", "c", "b", "a"]);
    }

    #[test]
    fn time_left_is_what_steps_took_or_what_they_are_listed_with() {
        let mut state = State::default();
        state.set("a", done("old", Verdict::Passed, 7));
        state.set("b", done("old", Verdict::Failed("x".into()), 3));
        let (a, b, c) = (step("a"), step("b"), step("c"));
        let skipped = Step { skip: Some("no".into()), ..step("d") };
        let left = state.estimate(&[&a, &b, &c, &skipped]);
        assert_eq!((left.as_secs(), clock(left).as_str()), (207, "0:03:27"));
        assert_eq!(clock(Duration::from_secs(36_061)), "10:01:01");
    }

    #[test]
    fn the_state_is_read_back_and_none_is_an_empty_one() {
        let path = std::env::temp_dir().join(format!("tandem-state-{}.json", std::process::id()));
        assert_eq!(State::read(&path).unwrap(), State::default());
        let mut state = State::default();
        state.set("a", done("abc", Verdict::Failed("exit status: 1".into()), 7));
        state.write(&path).unwrap();
        assert_eq!(State::read(&path).unwrap(), state);
        fs::write(&path, "{").unwrap();
        assert!(State::read(&path).unwrap_err().to_string().contains("cannot be read"));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_list_says_what_came_of_a_step_at_this_commit() {
        let mut state = State::default();
        state.set("a", done("abc", Verdict::Failed("exit status: 1".into()), 61));
        let listed = state.listed(&step("a"), "abc");
        assert_eq!(listed, "a: FAILED in 0:01:01: exit status: 1\n    sh -c x");
        assert!(state.listed(&step("a"), "def").starts_with("a: not run, about 0:01:40\n"));
    }
}
