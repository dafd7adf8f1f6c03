//! The table of counters as Markdown for a document; it says nothing that is not declared.

use crate::metric::{Thresholds, Unit};
use crate::{COUNTERS, Object};

/// Thresholds as text: `> 5, bad > 10`.
fn warning(t: &Thresholds, unit: Unit) -> String {
    let number = |v: f64| if unit == Unit::Load { format!("{v:.2}") } else { v.to_string() };
    let parts = [
        t.look.map(|v| format!("> {}", number(v))),
        t.bad.map(|v| format!("bad > {}", number(v))),
        t.least.map(|v| format!("bad < {}", number(v))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
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
