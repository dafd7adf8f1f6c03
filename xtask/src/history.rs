//! What was measured, run by run: one JSON line in `bench/history/NAME.jsonl` for each command that
//! was asked to record; it holds figures, the commit and the kernel, and nothing of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use lab::LabError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::campaign;
use crate::say::sayln;

/// Where the lines are, from the repository's root.
pub const FOLDER: &str = "bench/history";

/// Name of the one row of a scenario whose run has no label.
pub const UNNAMED: &str = "the run";

/// Where a line's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Written by the command that measured them.
    Measured,
    /// Copied by hand from a document that had them before there were lines; date and commit are
    /// the document's.
    Transcribed,
}

/// What one command measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Day in UTC, such as 2026-11-24.
    pub date: String,
    /// Abbreviated commit, with `+` where the tree had changes on top.
    pub commit: String,
    /// Where the figures come from.
    pub source: Source,
    /// The command that measures them, to be typed again.
    pub command: String,
    /// Version of the kernel that was booted; empty where none was.
    pub kernel: String,
    /// The figures.
    pub rows: Vec<Row>,
}

/// Figures of one run, check or size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Label of the run, what was checked, or what was measured.
    pub row: String,
    /// By column, such as `tandem lab percent`: a number, a list of numbers (two are least and
    /// most), or text.
    pub figures: BTreeMap<String, Value>,
}

impl Row {
    /// A row without figures.
    pub fn new(row: impl Into<String>) -> Row {
        Row { row: row.into(), figures: BTreeMap::new() }
    }

    /// Adds a number rounded to so many decimals; what is no number is left out.
    pub fn number(&mut self, column: impl Into<String>, value: f64, decimals: u32) {
        if value.is_finite() {
            self.figures.insert(column.into(), rounded(value, decimals));
        }
    }

    /// Adds a list of numbers; an empty one is left out.
    pub fn numbers(&mut self, column: impl Into<String>, values: &[f64], decimals: u32) {
        if !values.is_empty() && values.iter().all(|v| v.is_finite()) {
            let all = values.iter().map(|v| rounded(*v, decimals)).collect();
            self.figures.insert(column.into(), Value::Array(all));
        }
    }

    /// Adds text.
    pub fn text(&mut self, column: impl Into<String>, text: impl Into<String>) {
        self.figures.insert(column.into(), Value::String(text.into()));
    }
}

fn rounded(value: f64, decimals: u32) -> Value {
    let scale = 10_f64.powi(decimals as i32);
    Value::from((value * scale).round() / scale)
}

/// The lines of a history's text, oldest first.
///
/// # Errors
/// The number of the line from 1 that cannot be read, and why.
pub fn parse(text: &str) -> Result<Vec<Line>, (usize, String)> {
    let whole = (1..).zip(text.lines()).filter(|(_, l)| !l.trim().is_empty());
    whole.map(|(n, l)| serde_json::from_str(l).map_err(|e| (n, e.to_string()))).collect()
}

/// Appends what was measured today at this commit to `bench/history/NAME.jsonl`.
///
/// # Errors
/// `LabError` when git cannot tell the commit or the file cannot be written.
pub fn record(
    root: &Path,
    name: &str,
    command: String,
    kernel: &str,
    rows: Vec<Row>,
) -> Result<(), LabError> {
    let line = Line {
        date: today(root)?,
        commit: commit(root)?,
        source: Source::Measured,
        command,
        kernel: kernel.to_owned(),
        rows,
    };
    let path = root.join(FOLDER).join(format!("{name}.jsonl"));
    append(&path, &line)?;
    sayln!("recorded in {FOLDER}/{name}.jsonl; 'cargo xtask measured' renews the documents");
    Ok(())
}

fn append(path: &Path, line: &Line) -> Result<(), LabError> {
    let text = serde_json::to_string(line).map_err(|e| {
        LabError::new(path.display().to_string(), "be written", e.to_string(), "report this")
    })?;
    fs::create_dir_all(path.parent().unwrap_or(path))
        .and_then(|()| fs::OpenOptions::new().create(true).append(true).open(path))
        .and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()))
        .map_err(|e| LabError::io(path, "append a line", e))
}

/// The day in UTC, such as 2026-11-24.
///
/// # Errors
/// `LabError` when `date` cannot tell.
pub fn today(root: &Path) -> Result<String, LabError> {
    says(root, "date", &["-u", "+%F"])
}

/// The commit that is checked out, abbreviated, with `+` where tracked files differ from it; what
/// is written of it, histories and the report of a campaign, does not count.
///
/// # Errors
/// `LabError` when git cannot tell.
pub fn commit(root: &Path) -> Result<String, LabError> {
    let head = says(root, "git", &["rev-parse", "--short=7", "HEAD"])?;
    let (histories, report) = (format!(":!{FOLDER}"), format!(":!{}", campaign::DOCUMENT));
    let state = format!(":!{}", campaign::STATE);
    let paths = ["status", "--porcelain", "-uno", "--", ".", &histories, &report, &state];
    let changed = says(root, "git", &paths)?;
    Ok(if changed.is_empty() { head } else { head + "+" })
}

/// What a program prints.
fn says(root: &Path, program: &str, words: &[&str]) -> Result<String, LabError> {
    let failed = |seen: String| {
        LabError::new(program, format!("tell {}", words.join(" ")), seen, "run it in a checkout")
    };
    let out = Command::new(program).args(words).current_dir(root).output();
    match out {
        Ok(out) if out.status.success() => {
            Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
        }
        Ok(out) => Err(failed(String::from_utf8_lossy(&out.stderr).trim().to_owned())),
        Err(e) => Err(failed(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let mut row = Row::new("1:7");
        row.number("tandem lab ratio", 6.9984, 2);
        row.numbers("tandem lab percent", &[99.96, 100.04], 1);
        row.text("note", "quiet");
        row.number("none", f64::NAN, 1);
        row.numbers("nothing", &[], 1);
        Line {
            date: "2026-11-24".into(),
            commit: "998f0f7".into(),
            source: Source::Measured,
            command: "cargo xtask lab x".into(),
            kernel: "7.2.13".into(),
            rows: vec![row],
        }
    }

    #[test]
    fn a_line_is_read_back_as_it_was_written_and_lines_are_appended() {
        let path = std::env::temp_dir()
            .join(format!("tandem-history-{}", std::process::id()))
            .join("x.jsonl");
        let second = Line { date: "2026-11-25".into(), ..line() };
        append(&path, &line()).unwrap();
        append(&path, &second).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(
            text.lines().next().unwrap(),
            concat!(
                r#"{"date":"2026-11-24","commit":"998f0f7","#,
                r#""source":"measured","command":"cargo xtask lab x","#,
                r#""kernel":"7.2.13","rows":[{"row":"1:7","#,
                r#""figures":{"note":"quiet","tandem lab percent":[100.0,100.0],"tandem lab ratio":7.0}}]}"#,
            )
        );
        assert_eq!(parse(&text), Ok(vec![line(), second]));
    }

    #[test]
    fn a_line_that_is_cut_or_has_a_strange_key_is_refused_with_its_number() {
        let good = serde_json::to_string(&line()).unwrap();
        let number = |text: String| parse(&text).unwrap_err().0;
        assert_eq!(number(format!("{good}\n\n{}", &good[..40])), 3);
        assert_eq!(number(good.replace("\"kernel\"", "\"machine\"")), 1);
    }
}
