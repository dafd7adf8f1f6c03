//! The table of counters for people: as text for a terminal and as Markdown for a document; it says
//! nothing that is not declared.

use super::metric::{Counter, Panel, Thresholds, Unit};
use super::{COUNTERS, Object};
use crate::Table;

/// Thresholds as text: `> 5, bad > 10`.
fn warning(t: &Thresholds, unit: Unit) -> String {
    let number = |v: f64| if unit == Unit::Load { format!("{v:.2}") } else { v.to_string() };
    let parts =
        [t.look.map(|v| format!("> {}", number(v))), t.bad.map(|v| format!("bad > {}", number(v)))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Counters of a panel, or all, as text: a line each, and below it what they mean and what to do.
#[must_use]
pub fn help(panel: Option<Panel>) -> String {
    let shown = |c: &&Counter| panel.is_none_or(|p| c.panels.contains(&p));
    let all: Vec<&Counter> = COUNTERS.iter().filter(shown).collect();
    let mut t = Table::new(&["<counter", "<field", "<unit", "<warning", "<in the batch file"]);
    for c in &all {
        let field = c.field.letter().to_string();
        t.row([
            c.column.to_owned(),
            field,
            c.unit.name().to_owned(),
            warning(&c.thresholds, c.unit),
            c.batch.unwrap_or("-").to_owned(),
        ]);
    }
    let words = all.iter().map(|c| format!("{}\n    {}\n    {}\n", c.column, c.meaning, c.advice));
    t.text() + "\n" + &words.collect::<String>()
}

/// All counters as a table in Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "| counter | batch file | JSON | of | unit | warning | what it says | what to do \
            |\n|---|---|---|---|---|---|---|---|\n",
    );
    for c in &COUNTERS {
        let of = c.on.iter().map(|o: &Object| o.name()).collect::<Vec<_>>().join(", ");
        let batch = c.batch.map_or("-".to_owned(), |b| format!("`{b}`"));
        let warning = warning(&c.thresholds, c.unit);
        let cells = [
            &format!("`{}`", c.column),
            &batch,
            &format!("`{}`", c.key),
            &of,
            c.unit.name(),
            &warning,
            c.meaning,
            c.advice,
        ];
        out += &format!("| {} |\n", cells.map(|s| s.replace('|', "\\|")).join(" | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::esxtop::Metric;

    #[test]
    fn help_shows_each_counter_of_a_panel_with_its_unit_warning_meaning_and_advice() {
        let text = help(Some(Panel::CpuWorlds));
        let line = text.lines().find(|l| l.starts_with("%RDY ")).unwrap();
        assert_eq!(
            line.split("  ").map(str::trim).filter(|w| !w.is_empty()).collect::<Vec<_>>()[1..],
            ["F", "% of one pCPU", "> 5, bad > 10", "% Ready"]
        );
        let ready = Metric::Ready.counter();
        assert!(
            text.contains(&format!("%RDY\n    {}\n    {}\n", ready.meaning, ready.advice)),
            "{text}"
        );
        assert!(!text.contains("NWLD") && !text.contains("PCPU"), "those are of other panels");
        assert!(
            help(Some(Panel::CpuHead))
                .contains("CPU load average 1   K      1.00 = host full  > 0.80, bad > 1.00")
        );
        let all = help(None);
        assert!(COUNTERS.iter().all(|c| all.contains(&format!("{}\n    {}", c.column, c.meaning))));
    }

    #[test]
    fn markdown_has_a_row_for_each_counter_and_as_many_cells_in_each() {
        let text = markdown();
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), COUNTERS.len());
        assert!(
            text.lines()
                .all(|l| l.matches('|').count() == 9 && l.starts_with('|') && l.ends_with('|')),
            "{text}"
        );
        let ready = rows.iter().find(|r| r.starts_with("| `%RDY` |")).unwrap();
        assert!(
            ready.starts_with(
                "| `%RDY` | `% Ready` | `ready_pct` | Group Cpu, Vcpu | % of one \
                pCPU | > 5, bad > 10 | Time ready"
            ),
            "{ready}"
        );
        assert!(rows.iter().any(|r| r.starts_with("| `NWLD` | - | `nwld` | Group Cpu | worlds |")));
    }
}
