//! What the oracle said of runs, as a table; it judges nothing.

use crate::{Document, Table};

/// The oracle's measures in several documents of one scenario, a line for each run and document;
/// nothing where it watched none.
#[must_use]
pub fn checked_side_by_side(documents: &[&Document]) -> String {
    let ms = |ns: u64| format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000);
    let mut t = Table::new(&[
        "<run",
        "<where",
        "skew ms",
        "co-stop ms",
        "ready ms",
        "idle beside ms",
        "violations",
    ]);
    let mut any = false;
    for run in documents.first().iter().flat_map(|d| &d.runs) {
        for d in documents {
            let same = d.runs.iter().find(|r| r.label == run.label);
            let Some(c) = same.and_then(|r| r.checked.as_ref()) else { continue };
            any = true;
            let mut row =
                vec![run.label.clone(), format!("{:?} {}", d.place, d.policy).to_lowercase()];
            row.extend(
                [c.skew_max_ns, c.costop_max_ns, c.ready_max_ns, c.idle_while_waiting_max_ns]
                    .map(ms),
            );
            row.push(c.violated.to_string());
            t.row(row);
        }
    }
    if any { t.text() } else { String::new() }
}
