//! `cargo xtask measured`: renews the tables of documents that are made from `bench/history`; it
//! measures nothing, and changes no line outside the marked blocks.
//!
//! A block names its history and its columns, and is filled with the newest figure of each cell:
//!
//! ```text
//! <!-- measured: shares-ratio-2x2x2
//! run
//! kernel's own = eevdf lab ratio :ratio
//! Tandem, lab = tandem lab percent :.1 %
//! -->
//! (the table, and a line that says where the figures come from)
//! <!-- end measured -->
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use lab::LabError;
use serde_json::Value;

use crate::history::{self, Line, Source};
use crate::tidy;

/// Renews the tables of documents that are made from bench/history.
#[derive(Args)]
pub struct Measured {
    /// Change nothing; fail where a table is not what its history makes.
    #[arg(long)]
    check: bool,
}

const OPEN: &str = "<!-- measured: ";
const CLOSE: &str = "<!-- end measured -->";

/// Runs `cargo xtask measured`.
///
/// # Errors
/// `LabError` when a block or a history cannot be read, or a document cannot be written.
pub fn run(arguments: &Measured) -> Result<ExitCode, LabError> {
    let root = tidy::root();
    let mut stale = 0;
    for (path, text) in tidy::documents(&root) {
        let made = renewed(&text, &|name| read(&root, name)).map_err(|(line, seen)| {
            let next = "correct the block or the history";
            LabError::new(format!("{path}:{line}"), "renew the table", seen, next)
        })?;
        if made == text {
            continue;
        }
        stale += 1;
        if arguments.check {
            println!("{path}: a table is not what its history makes; run 'cargo xtask measured'");
        } else {
            let file = root.join(&path);
            fs::write(&file, made).map_err(|e| LabError::io(&file, "write the document", e))?;
            println!("{path}: renewed");
        }
    }
    let failed = arguments.check && stale > 0;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The text of a history; none if there is no such file.
fn read(root: &Path, name: &str) -> Option<String> {
    fs::read_to_string(root.join(history::FOLDER).join(format!("{name}.jsonl"))).ok()
}

/// The document with every block renewed; `history` gives the text of a history by its name.
///
/// # Errors
/// The line from 1 of a block that cannot be made, and why.
pub fn renewed(
    text: &str,
    history: &dyn Fn(&str) -> Option<String>,
) -> Result<String, (usize, String)> {
    let mut out = String::new();
    let mut lines = (1..).zip(text.split_inclusive('\n'));
    while let Some((number, line)) = lines.next() {
        out.push_str(line);
        let Some(name) = line.strip_prefix(OPEN) else { continue };
        let wrong = |seen: String| (number, seen);
        let mut columns = vec![];
        loop {
            let (_, line) =
                lines.next().ok_or_else(|| wrong("seen no '-->', allowed a line of it".into()))?;
            out.push_str(line);
            if line.trim() == "-->" {
                break;
            }
            columns.push(Column::of(line.trim()));
        }
        let closed = lines.by_ref().find(|(_, l)| l.trim() == CLOSE);
        let (_, close) = closed.ok_or_else(|| wrong(format!("seen no '{CLOSE}'")))?;
        let name = name.trim();
        let told = history(name)
            .ok_or_else(|| wrong(format!("seen no {}/{name}.jsonl", history::FOLDER)))?;
        let told = history::parse(&told)
            .map_err(|(n, e)| wrong(format!("{}/{name}.jsonl:{n}: {e}", history::FOLDER)))?;
        out.push_str(&table(&columns, &told).map_err(wrong)?);
        out.push_str(close);
    }
    Ok(out)
}

/// A column of a block: `HEADING = COLUMN :FORMAT`; the first has a heading only and shows the
/// row's name.
struct Column<'a> {
    heading: &'a str,
    figure: &'a str,
    format: &'a str,
}

impl<'a> Column<'a> {
    fn of(line: &'a str) -> Column<'a> {
        let (heading, rest) = line.split_once(" = ").unwrap_or((line, ""));
        let (figure, format) = rest.split_once(" :").unwrap_or((rest, ""));
        Column { heading, figure: figure.trim(), format }
    }

    /// Lines that may fill this column: those that a command wrote, where there are any with this
    /// figure, and otherwise those that were transcribed.
    fn lines<'l>(&self, told: &'l [Line]) -> Vec<&'l Line> {
        let has = |l: &&Line| l.rows.iter().any(|r| r.figures.contains_key(self.figure));
        let all: Vec<&Line> = told.iter().filter(has).collect();
        let measured: Vec<&Line> =
            all.iter().copied().filter(|l| l.source == Source::Measured).collect();
        if measured.is_empty() { all } else { measured }
    }
}

/// The table in Markdown and a line with the origin of its figures.
fn table(columns: &[Column<'_>], told: &[Line]) -> Result<String, String> {
    let Some((first, figures)) = columns.split_first() else {
        return Err("seen no columns, allowed the row's heading and one a line".into());
    };
    let filled: Vec<Vec<&Line>> = figures.iter().map(|c| c.lines(told)).collect();
    if let Some(c) = figures.iter().zip(&filled).find(|(_, lines)| lines.is_empty()) {
        return Err(format!("seen no figure '{}' in the history", c.0.figure));
    }
    let mut out = format!("| {} |", first.heading);
    figures.iter().for_each(|c| out.push_str(&format!(" {} |", c.heading)));
    out.push_str(&format!("\n|{}\n", "---|".repeat(columns.len())));
    let mut origins = BTreeSet::new();
    for row in rows(figures, &filled) {
        out.push_str(&format!("| {row} |"));
        for (column, lines) in figures.iter().zip(&filled) {
            let cell = lines.iter().rev().find_map(|line| {
                let of_row = line.rows.iter().filter(|r| r.row == row);
                Some((of_row.filter_map(|r| r.figures.get(column.figure)).next()?, line))
            });
            let text = cell.map_or_else(String::new, |(value, line)| {
                origins.insert(origin(line));
                shown(value, column.format)
            });
            out.push_str(&if text.is_empty() { " |".to_owned() } else { format!(" {text} |") });
        }
        out.push('\n');
    }
    let origins: Vec<String> = origins.into_iter().collect();
    Ok(format!("{out}\n{}\n", origins.join("; ")))
}

/// Rows with one of the figures, as the newest line orders them; those of older lines follow.
fn rows<'l>(figures: &[Column<'_>], filled: &[Vec<&'l Line>]) -> Vec<&'l str> {
    let mut out: Vec<&str> = vec![];
    let mut lines: Vec<(&Line, &Column<'_>)> = figures
        .iter()
        .zip(filled)
        .flat_map(|(c, lines)| lines.iter().map(move |l| (*l, c)))
        .collect();
    lines.sort_by(|a, b| b.0.date.cmp(&a.0.date));
    let of = |line: &'l Line| line.rows.iter();
    for line in lines.iter().map(|l| l.0) {
        for row in of(line) {
            let wanted = figures.iter().zip(filled).any(|(c, all)| {
                row.figures.contains_key(c.figure) && all.iter().any(|l| std::ptr::eq(*l, line))
            });
            if wanted && !out.contains(&row.row.as_str()) {
                out.push(&row.row);
            }
        }
    }
    out
}

/// Where figures come from: `2026-11-21, 998f0f7, kernel 7.2.13: …`.
fn origin(line: &Line) -> String {
    let kernel =
        if line.kernel.is_empty() { String::new() } else { format!(", kernel {}", line.kernel) };
    let how = if line.source == Source::Transcribed { ", transcribed" } else { "" };
    format!("{}, {}{kernel}{how}: `{}`", line.date, line.commit, line.command)
}

/// A figure as the document shows it. The format is `.N` for decimals and then a unit, or `ratio`.
fn shown(value: &Value, format: &str) -> String {
    if let Value::String(text) = value {
        return text.clone();
    }
    let (decimals, unit) = match format.strip_prefix('.') {
        Some(rest) => {
            let digits = rest.chars().take_while(char::is_ascii_digit).count();
            (rest[..digits].parse::<usize>().ok(), &rest[digits..])
        }
        None => (None, format),
    };
    let one = |v: &Value| match (v.as_f64(), decimals) {
        (Some(n), _) if format == "ratio" && n < 1.0 => format!("{:.2} : 1", 1.0 / n),
        (Some(n), _) if format == "ratio" => format!("1 : {n:.2}"),
        (Some(n), Some(d)) => format!("{n:.d$}"),
        (Some(n), None) => format!("{n}"),
        (None, _) => v.to_string(),
    };
    let text = match value {
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(one).collect();
            match &all[..] {
                [least, most] if least == most => least.clone(),
                [least, most] => format!("{least}–{most}"),
                more => more.join(", "),
            }
        }
        other => one(other),
    };
    if format == "ratio" { text } else { text + unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "before\n<!-- measured: x\nrun\nown = eevdf lab ratio :ratio\n\
        Tandem = tandem lab percent :.1 %\n-->\nstale\n<!-- end measured -->\nafter\n";

    fn line(date: &str, source: &str, rows: &str) -> String {
        format!(
            "{{\"date\":\"{date}\",\"commit\":\"abc\",\"source\":\"{source}\",\"command\":\"c\",\
             \"kernel\":\"7.2\",\"rows\":[{rows}]}}\n"
        )
    }

    fn row(name: &str, figures: &str) -> String {
        format!("{{\"row\":\"{name}\",\"figures\":{{{figures}}}}}")
    }

    fn made(history: &str) -> Result<String, (usize, String)> {
        renewed(BLOCK, &|name| (name == "x").then(|| history.to_owned()))
    }

    #[test]
    fn a_block_has_the_newest_figure_of_each_cell_and_says_where_it_is_from() {
        let old = row("1:7", "\"eevdf lab ratio\":3.2,\"tandem lab percent\":[99.0,100.0]");
        let new = row("1:7", "\"tandem lab percent\":[99.96,100.04]")
            + ","
            + &row("7:1", "\"eevdf lab ratio\":0.5");
        let history = line("2026-11-21", "measured", &old) + &line("2026-11-24", "measured", &new);
        assert_eq!(
            made(&history).unwrap(),
            "before\n<!-- measured: x\nrun\nown = eevdf lab ratio :ratio\n\
             Tandem = tandem lab percent :.1 %\n-->\n\
             | run | own | Tandem |\n|---|---|---|\n| 1:7 | 1 : 3.20 | 100.0 % |\n\
             | 7:1 | 2.00 : 1 | |\n\n2026-11-21, abc, kernel 7.2: `c`; 2026-11-24, abc, \
             kernel 7.2: `c`\n<!-- end measured -->\nafter\n"
        );
    }

    #[test]
    fn what_was_transcribed_fills_a_column_until_it_is_measured() {
        let old = row("a", "\"eevdf lab ratio\":\"1 : 3\",\"tandem lab percent\":\"99–100 %\"");
        let new = row("b", "\"tandem lab percent\":[99.0,101.0]");
        let history =
            line("2026-11-21", "transcribed", &old) + &line("2026-11-24", "measured", &new);
        let text = made(&history).unwrap();
        assert!(text.contains("| b | | 99.0–101.0 % |\n| a | 1 : 3 | |\n"), "{text}");
        let only = made(&line("2026-11-21", "transcribed", &old)).unwrap();
        assert!(only.contains(
            "| a | 1 : 3 | 99–100 % |\n\n2026-11-21, abc, kernel 7.2, transcribed: `c`\n"
        ));
    }

    #[test]
    fn a_block_that_cannot_be_made_is_refused_with_its_line() {
        let wrong = |history: &str, why: &str| {
            let (line, seen) = made(history).unwrap_err();
            assert!(line == 2 && seen.contains(why), "{line}: {seen}");
        };
        wrong("{\n", "x.jsonl:1: ");
        wrong(&line("2026-11-21", "measured", ""), "no figure 'eevdf lab ratio'");
        let none = renewed(BLOCK, &|_| None).unwrap_err();
        assert_eq!(none, (2, "seen no bench/history/x.jsonl".to_owned()));
        let open = renewed("<!-- measured: x\nrun\n-->\n", &|_| Some(String::new()));
        assert_eq!(open.unwrap_err().0, 1);
    }

    #[test]
    fn a_document_without_blocks_stays_and_a_renewed_one_too() {
        assert_eq!(renewed("a\n\nb", &|_| None), Ok("a\n\nb".to_owned()));
        let all = row("1:7", "\"eevdf lab ratio\":3.2,\"tandem lab percent\":[1.0,2.0,3.5]");
        let history = line("2026-11-21", "measured", &all);
        let once = made(&history).unwrap();
        assert!(once.contains("| 1.0, 2.0, 3.5 % |"), "{once}");
        assert_eq!(renewed(&once, &|_| Some(history.clone())), Ok(once.clone()));
    }
}
