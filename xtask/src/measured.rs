//! `cargo xtask measured`: renews the tables of documents that are made from `bench/history`; it
//! measures nothing, and changes no line outside the marked blocks.
//!
//! A block names one or more histories and its columns, and is filled with the newest figure of
//! each cell. A list can be shown in part: `[0]` is its first, `[-1]` its last, `[1..]` least and
//! most of the rest.
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

use crate::history::{self, Line, Row, Source, UNNAMED};
use crate::say::sayln;
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
            sayln!("{path}: a table is not what its history makes; run 'cargo xtask measured'");
        } else {
            let file = root.join(&path);
            fs::write(&file, made).map_err(|e| LabError::io(&file, "write the document", e))?;
            sayln!("{path}: renewed");
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
        let mut table = Table::new(&columns).map_err(wrong)?;
        let names: Vec<&str> = name.split_whitespace().collect();
        for name in &names {
            let file = format!("{}/{name}.jsonl", history::FOLDER);
            let told = history(name).ok_or_else(|| wrong(format!("seen no {file}")))?;
            let told = history::parse(&told).map_err(|(n, e)| wrong(format!("{file}:{n}: {e}")))?;
            table.add((names.len() > 1).then_some(*name), &told);
        }
        out.push_str(&table.text().map_err(wrong)?);
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

    /// The figure of this column in a row, or the part of a list that it names.
    fn of_row(&self, row: &Row) -> Option<Value> {
        if let Some(whole) = row.figures.get(self.figure) {
            return Some(whole.clone());
        }
        let (name, part) = self.figure.strip_suffix(']')?.split_once('[')?;
        let Value::Array(all) = row.figures.get(name)? else { return None };
        // -1 is the last, and as an end what stands before it.
        let at = |text: &str| -> Option<usize> {
            let n: i64 = text.parse().ok()?;
            usize::try_from(if n < 0 { n + all.len() as i64 } else { n }).ok()
        };
        let Some((from, to)) = part.split_once("..") else { return all.get(at(part)?).cloned() };
        let to = if to.is_empty() { all.len() } else { at(to)? };
        let part = all.get(at(from)?..to)?;
        let by = |a: &&Value, b: &&Value| {
            a.as_f64().unwrap_or(f64::NAN).total_cmp(&b.as_f64().unwrap_or(f64::NAN))
        };
        let (least, most) = (part.iter().min_by(by)?, part.iter().max_by(by)?);
        Some(Value::Array(vec![least.clone(), most.clone()]))
    }

    /// Lines that may fill this column: those that a command wrote, where there are any with this
    /// figure, and otherwise those that were transcribed.
    fn lines<'l>(&self, told: &'l [Line]) -> Vec<&'l Line> {
        let has = |l: &&Line| l.rows.iter().any(|r| self.of_row(r).is_some());
        let all: Vec<&Line> = told.iter().filter(has).collect();
        let measured: Vec<&Line> =
            all.iter().copied().filter(|l| l.source == Source::Measured).collect();
        if measured.is_empty() { all } else { measured }
    }
}

/// A table as it is filled, history by history.
struct Table<'a> {
    first: &'a Column<'a>,
    figures: &'a [Column<'a>],
    rows: Vec<String>,
    /// Whether a history has a figure of this column.
    seen: Vec<bool>,
    origins: BTreeSet<String>,
}

impl<'a> Table<'a> {
    fn new(columns: &'a [Column<'a>]) -> Result<Table<'a>, String> {
        let (first, figures) = columns
            .split_first()
            .ok_or("seen no columns, allowed the row's heading and one a line")?;
        let seen = vec![false; figures.len()];
        Ok(Table { first, figures, rows: vec![], seen, origins: BTreeSet::new() })
    }

    /// Adds the rows of a history, under its name where there are several.
    fn add(&mut self, name: Option<&str>, told: &[Line]) {
        let filled: Vec<Vec<&Line>> = self.figures.iter().map(|c| c.lines(told)).collect();
        for row in rows(self.figures, &filled) {
            let shown_name = match name {
                Some(name) if row == UNNAMED => name.to_owned(),
                Some(name) => format!("{name}: {row}"),
                None => row.to_owned(),
            };
            let mut text = format!("| {shown_name} |");
            for (i, (column, lines)) in self.figures.iter().zip(&filled).enumerate() {
                let cell = lines.iter().rev().find_map(|line| {
                    let mut of_row = line.rows.iter().filter(|r| r.row == row);
                    Some((of_row.find_map(|r| column.of_row(r))?, line))
                });
                let shown = cell.map_or_else(String::new, |(value, line)| {
                    self.origins.insert(origin(line));
                    shown(&value, column.format)
                });
                self.seen[i] |= !lines.is_empty();
                text += &if shown.is_empty() { " |".to_owned() } else { format!(" {shown} |") };
            }
            self.rows.push(text + "\n");
        }
    }

    /// The table in Markdown and a line with the origin of its figures.
    fn text(self) -> Result<String, String> {
        if let Some((c, _)) = self.figures.iter().zip(&self.seen).find(|(_, seen)| !**seen) {
            return Err(format!("seen no figure '{}' in the history", c.figure));
        }
        let mut out = format!("| {} |", self.first.heading);
        self.figures.iter().for_each(|c| out.push_str(&format!(" {} |", c.heading)));
        out.push_str(&format!("\n|{}\n", "---|".repeat(self.figures.len() + 1)));
        out.push_str(&self.rows.concat());
        let origins: Vec<String> = self.origins.into_iter().collect();
        Ok(format!("{out}\n{}\n", origins.join("; ")))
    }
}

/// Rows with one of the figures, as the newest line orders them; those of older lines follow.
fn rows<'l>(figures: &[Column<'_>], filled: &[Vec<&'l Line>]) -> Vec<&'l str> {
    let mut lines: Vec<&'l Line> = filled.iter().flatten().copied().collect();
    lines.sort_by(|a, b| b.date.cmp(&a.date));
    let fills = |line: &Line, row: &Row| {
        let of = |all: &[&Line]| all.iter().any(|l| std::ptr::eq(*l, line));
        figures.iter().zip(filled).any(|(c, all)| of(all) && c.of_row(row).is_some())
    };
    let mut out: Vec<&str> = vec![];
    for line in lines {
        for row in line.rows.iter().filter(|r| fills(line, r)) {
            if !out.contains(&row.row.as_str()) {
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
        (Some(n), None) => grouped(n),
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

/// A number with commas where it is whole and has five digits or more.
fn grouped(n: f64) -> String {
    let text = format!("{n}");
    if n.fract() != 0.0 || n < 10_000.0 {
        return text;
    }
    let comma = |i: usize| if i > 0 && (text.len() - i) % 3 == 0 { "," } else { "" };
    text.char_indices().map(|(i, c)| format!("{}{c}", comma(i))).collect()
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
    fn parts_of_lists_and_several_histories_make_one_table() {
        let block = "<!-- measured: x y\nwhat\nfirst = p[0] :.1 %\n\
            others = p[1..] :.1 %\nlast = p[-1]\n-->\n\
            <!-- end measured -->\n";
        let x = line("2026-11-21", "measured", &row("the run", "\"p\":[40.0,10.0,30.0]"));
        let y = line("2026-11-21", "measured", &row("half", "\"p\":[1.0],\"p[1..]\":\"told\""));
        let read = |name: &str| Some(if name == "x" { x.clone() } else { y.clone() });
        let text = renewed(block, &read).unwrap();
        let table = "| what | first | others | last |\n|---|---|---|---|\n\
            | x | 40.0 % | 10.0–30.0 % | 30 |\n| y: half | 1.0 % | told | 1 |\n\n2026-11-21,";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn large_numbers_have_commas() {
        for (n, text) in [(9_999.0, "9999"), (10_000.0, "10,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
        assert_eq!((grouped(12_345.5), grouped(-0.5)), ("12345.5".into(), "-0.5".into()));
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
