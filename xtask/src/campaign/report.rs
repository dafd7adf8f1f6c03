//! The report of a campaign as a Markdown document; pure.

use super::state::{State, Verdict, clock};
use super::steps::Step;
use std::time::Duration;

/// What came of each step last, with its commit and day, as a table; the commands below.
pub(super) fn text(steps: &[Step], state: &State) -> String {
    let of = |step: &Step| state.last(&step.name);
    let count =
        |is: fn(&Verdict) -> bool| steps.iter().filter_map(of).filter(|d| is(&d.verdict)).count();
    let passed = count(|v| *v == Verdict::Passed);
    let failed = count(|v| matches!(v, Verdict::Failed(_)));
    let skipped = count(|v| matches!(v, Verdict::Skipped(_)));
    let seconds = steps.iter().filter_map(of).map(|d| d.seconds).sum();
    let mut out = format!(
        "# Campaign\n\n<!-- Written by `cargo xtask campaign --report`; changes here are lost. -->\n\n\
         {passed} of {} steps passed, {failed} failed, {skipped} skipped, {} not run; {} in all. \
         Each row has the commit and the day of its run: a campaign goes on from commit to commit.\
         \n\n| step | verdict | time | figures | kernel | commit | day |\n\
         |---|---|---:|---|---|---|---|\n",
        steps.len(),
        steps.len() - passed - failed - skipped,
        clock(Duration::from_secs(seconds))
    );
    for step in steps {
        let Some(done) = of(step) else {
            out +=
                &format!("| {} | not run | | | {} | | |\n", cell(&step.name), cell(&step.kernel));
            continue;
        };
        let verdict = match &done.verdict {
            Verdict::Passed => "passed".to_owned(),
            Verdict::Failed(why) => format!("**failed**: {}", cell(why)),
            Verdict::Skipped(why) => format!("skipped: {}", cell(why)),
        };
        out += &format!(
            "| {} | {verdict} | {} | {} | {} | {} | {} |\n",
            cell(&step.name),
            clock(Duration::from_secs(done.seconds)),
            cell(&done.figures),
            cell(&done.kernel),
            done.commit,
            done.date
        );
    }
    out += "\n## Commands\n\n```text\n";
    steps.iter().for_each(|s| out += &format!("{}: {}\n", s.name, s.command()));
    out + "```\n"
}

/// Text that ends no cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::state::Done;
    use super::*;

    #[test]
    fn every_step_is_a_row_with_its_last_verdict_commit_and_day() {
        let step = |name: &str| Step {
            kernel: "newest".into(),
            ..Step::shell(name, "a | b", Duration::from_secs(9))
        };
        let steps = ["one", "two", "three", "four", "five"].map(step);
        let mut state = State::default();
        let done = |commit: &str, verdict| Done {
            commit: commit.into(),
            date: "2026-11-24".into(),
            verdict,
            seconds: 61,
            kernel: "newest".into(),
            figures: "3 | 4".into(),
        };
        state.set("one", done("abc", Verdict::Passed));
        state.set("two", done("abc", Verdict::Failed("exit status: 1".into())));
        state.set("three", done("old", Verdict::Passed));
        state.set("four", done("abc", Verdict::Skipped("no clang".into())));
        let text = text(&steps, &state);
        for line in [
            "| one | passed | 0:01:01 | 3 \\| 4 | newest | abc | 2026-11-24 |",
            "| two | **failed**: exit status: 1 | 0:01:01 | 3 \\| 4 | newest | abc | 2026-11-24 |",
            "| three | passed | 0:01:01 | 3 \\| 4 | newest | old | 2026-11-24 |",
            "| four | skipped: no clang | 0:01:01 | 3 \\| 4 | newest | abc | 2026-11-24 |",
            "| five | not run | | | newest | | |",
            "one: sh -c 'a | b'",
        ] {
            assert!(text.contains("2 of 5 steps passed, 1 failed, 1 skipped, 1 not run; 0:04:04"));
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
