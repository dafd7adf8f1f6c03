//! The verdict of a drill: a table of what was measured and a list of checks, as text for people
//! and as JSON; it measures nothing itself.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::boot::BootOutcome;

/// One thing that was asked of a drill.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What was asked.
    pub what: String,
    /// Whether it held.
    pub ok: bool,
    /// What was seen.
    pub seen: String,
    /// What is allowed.
    pub allowed: String,
}

/// What came of a drill.
#[derive(Debug, Clone)]
pub struct Report {
    /// The drill.
    pub drill: &'static str,
    /// Kernel that was booted.
    pub kernel: String,
    /// Boots it took; more than one means the emulator died and was tried again.
    pub tries: u32,
    /// Folder of the boot.
    pub folder: String,
    /// Names of the table's columns.
    pub columns: Vec<&'static str>,
    /// The table.
    pub rows: Vec<Vec<String>>,
    /// What was asked and seen.
    pub checks: Vec<Check>,
    /// Remarks that explain a number.
    pub notes: Vec<String>,
}

impl Report {
    /// One of no boot, for tests of judges.
    #[cfg(test)]
    pub(super) fn of_no_boot(drill: &'static str) -> Self {
        Report {
            drill,
            kernel: String::new(),
            tries: 1,
            folder: String::new(),
            columns: vec![],
            rows: vec![],
            checks: vec![],
            notes: vec![],
        }
    }

    pub(super) fn new(drill: &'static str, outcome: &BootOutcome) -> Self {
        Report {
            drill,
            kernel: outcome.kernel.clone(),
            tries: outcome.tries,
            folder: outcome.folder.display().to_string(),
            columns: Vec::new(),
            rows: Vec::new(),
            checks: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn check(
        &mut self,
        what: impl Into<String>,
        ok: bool,
        seen: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        self.checks.push(Check {
            what: what.into(),
            ok,
            seen: seen.into(),
            allowed: allowed.into(),
        });
    }

    /// A check that times, each divided by the emulator's slowness beside it, stay at or below a
    /// limit; the times by the guest's clock are shown too. Without any it fails.
    pub(super) fn at_most(&mut self, what: &str, times: &[(f64, f64)], limit_ms: f64) {
        let spread =
            |of: fn(&(f64, f64)) -> f64| super::record::spread(times.iter().map(of).collect());
        let (ok, seen) = match (spread(|t| t.0), spread(|t| t.0 / t.1)) {
            (Some(clock), Some(scaled)) => (
                scaled.2 <= limit_ms,
                format!(
                    "{:.0} / {:.0} / {:.0} ms in {} (least, median, most); by the clock {:.0} / \
                        {:.0} / {:.0} ms",
                    scaled.0,
                    scaled.1,
                    scaled.2,
                    times.len(),
                    clock.0,
                    clock.1,
                    clock.2
                ),
            ),
            _ => (false, "nothing measured".to_owned()),
        };
        self.check(
            format!("{what}, divided by the slowness"),
            ok,
            seen,
            format!("at most {limit_ms:.0} ms"),
        );
    }

    /// Whether every check held.
    pub fn passed(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|c| c.ok)
    }

    /// The verdict for machines; cells that are numbers are numbers.
    pub fn json(&self) -> Value {
        let cell = |text: &String| text.parse::<f64>().map_or_else(|_| json!(text), |n| json!(n));
        let row = |cells: &Vec<String>| -> Map<String, Value> {
            self.columns
                .iter()
                .zip(cells)
                .map(|(name, text)| ((*name).to_owned(), cell(text)))
                .collect()
        };
        json!({
            "drill": self.drill,
            "kernel": self.kernel,
            "passed": self.passed(),
            "tries": self.tries,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "checks": self.checks,
            "notes": self.notes,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "drill {}: kernel {}, boots {}, all in {}",
            self.drill, self.kernel, self.tries, self.folder
        )?;
        let width = |i: usize| {
            self.rows
                .iter()
                .filter_map(|r| r.get(i))
                .map(|c| c.chars().count())
                .chain([self.columns[i].len()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| -> String {
            cells.zip(&widths).map(|(cell, w)| format!("{cell:>w$}")).collect::<Vec<_>>().join("  ")
        };
        if !self.rows.is_empty() {
            let head = line(&mut self.columns.iter().copied());
            writeln!(f, "{head}\n{}", "-".repeat(head.chars().count()))?;
        }
        for row in &self.rows {
            writeln!(f, "{}", line(&mut row.iter().map(String::as_str)))?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        for c in &self.checks {
            writeln!(
                f,
                "{} {}: {}; allowed {}",
                if c.ok { "ok  " } else { "FAIL" },
                c.what,
                c.seen,
                c.allowed
            )?;
        }
        writeln!(f, "drill {}: {}", self.drill, if self.passed() { "passed" } else { "FAILED" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            drill: "load",
            kernel: "7.2.13".into(),
            tries: 1,
            folder: "/r".into(),
            columns: vec!["host", "load_ms"],
            rows: vec![vec!["idle".into(), "1200".into()]],
            checks: vec![],
            notes: vec![],
        }
    }

    #[test]
    fn without_a_check_or_without_numbers_nothing_has_passed() {
        let mut r = report();
        assert!(!r.passed());
        r.at_most("load", &[], 5000.0);
        assert!(
            !r.passed()
                && r.to_string().contains(
                    "FAIL load, divided by the slowness: nothing measured; allowed at most 5000 ms"
                )
        );
    }

    #[test]
    fn text_is_aligned_and_json_has_numbers() {
        let mut r = report();
        r.at_most("load", &[(1200.0, 1.0), (12_000.0, 10.0)], 5000.0);
        assert!(r.to_string().contains(
            "host  load_ms\n-------------\nidle     1200\nok   load, \
            divided by the slowness: 1200 / 1200 / 1200 ms in 2 (least, median, most); by the \
            clock 1200 / 6600 / 12000 ms"
        ));
        assert_eq!(r.json()["rows"][0]["load_ms"], 1200.0);
        assert_eq!(r.json()["passed"], true);
    }
}
