//! Plain-text tables for terminals: aligned columns, no colour, one line a row.

use crate::{Document, RunResult};

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table with a header line.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Align {
    fn of(name: &str) -> (String, Align) {
        name.strip_prefix('<').map_or_else(|| (name.to_owned(), Align::Right), |n| (n.to_owned(), Align::Left))
    }
}

impl Table {
    /// A table with these columns; a name that starts with `<` is left-aligned.
    #[must_use]
    pub fn new(columns: &[&str]) -> Table {
        Table { columns: columns.iter().map(|c| Align::of(c)).collect(), rows: vec![] }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text, each line ended.
    #[must_use]
    pub fn text(&self) -> String {
        let cell = |row: &[String], i: usize| row.get(i).cloned().unwrap_or_default();
        let width = |i: usize| {
            let head = self.columns[i].0.chars().count();
            self.rows.iter().map(|r| cell(r, i).chars().count()).chain([head]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |row: &[String]| {
            let cells: Vec<String> = widths
                .iter()
                .enumerate()
                .map(|(i, w)| match self.columns[i].1 {
                    Align::Left => format!("{:<w$}", cell(row, i)),
                    Align::Right => format!("{:>w$}", cell(row, i)),
                })
                .collect();
            cells.join("  ").trim_end().to_owned() + "\n"
        };
        let head: Vec<String> = self.columns.iter().map(|c| c.0.clone()).collect();
        let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)) + "\n";
        self.rows.iter().fold(line(&head) + &rule, |text, row| text + &line(row))
    }
}

fn secs(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e9)
}

/// Used against entitled in percent, or `-` without an entitlement.
fn of_entitled(used: u64, entitled: u64) -> String {
    if entitled == 0 { "-".to_owned() } else { format!("{:.2}%", used as f64 * 100.0 / entitled as f64) }
}

/// One run as a table: a line a VM.
#[must_use]
pub fn summary(run: &RunResult) -> String {
    let mut t = Table::new(&["<VM", "vCPUs", "shares", "used s", "entitled s", "of entitled", "ready s", "idle s", "migrations", "work s"]);
    for vm in &run.vms {
        let x = &vm.times;
        t.row([
            vm.name.clone(),
            vm.vcpus.to_string(),
            vm.shares.to_string(),
            secs(x.used_ns),
            secs(x.entitled_ns),
            of_entitled(x.used_ns, x.entitled_ns),
            secs(x.ready_ns),
            secs(x.idle_ns),
            x.migrations.to_string(),
            secs(x.work),
        ]);
    }
    let busy: u64 = run.pcpus.iter().map(|p| p.busy_ns).sum();
    let whole = run.duration_ns as f64 * run.host.pcpus as f64;
    let label = if run.label.is_empty() { String::new() } else { format!("run {}: ", run.label) };
    let head =
        format!("{label}{} s, {} pCPUs {:.1} % busy\n", run.duration_ns as f64 / 1e9, run.host.pcpus, busy as f64 * 100.0 / whole.max(1.0));
    head + &t.text()
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}", part as f64 * 100.0 / whole.max(1) as f64)
}

/// One look of `tandem top`: a line a VM, in percent of one pCPU as esxtop has them.
#[must_use]
pub fn top(run: &RunResult, policy: &str) -> String {
    let wall = run.duration_ns;
    let busy: u64 = run.pcpus.iter().map(|p| p.busy_ns).sum();
    let system = run.pools.iter().find(|p| p.path == "/system").map_or(0, |p| p.used_ns);
    let mut t = Table::new(&["<VM", "vCPUs", "shares", "%USED", "%ENTITLED", "%RUN", "%RDY", "%CSTP", "%WAIT", "%IDLE", "MIG/s"]);
    for vm in &run.vms {
        let x = &vm.times;
        let mut row = vec![vm.name.clone(), vm.vcpus.to_string(), vm.shares.to_string()];
        row.extend([x.used_ns, x.entitled_ns, x.run_ns, x.ready_ns, x.costop_ns, x.wait_ns, x.idle_ns].map(|ns| percent(ns, wall)));
        row.push(format!("{:.1}", x.migrations as f64 * 1e9 / wall.max(1) as f64));
        t.row(row);
    }
    let pcpus: Vec<String> = run.pcpus.iter().map(|p| percent(p.busy_ns, wall)).collect();
    format!(
        "{policy}: {} VMs, {} vCPUs on {} pCPUs; host {} % busy, system {} %\nPCPU USED(%): {}\n{}",
        run.vms.len(),
        run.vms.iter().map(|v| v.vcpus).sum::<u32>(),
        run.host.pcpus,
        percent(busy, wall * run.host.pcpus as u64),
        percent(system, wall),
        pcpus.join(" "),
        t.text()
    )
}

/// A line a world, for `tandem top --worlds`.
#[must_use]
pub fn worlds(run: &RunResult) -> String {
    let mut t = Table::new(&["<VM", "<world", "%USED", "%ENTITLED", "%RDY", "%WAIT", "%IDLE", "migrations"]);
    for (vm, w) in run.vms.iter().flat_map(|v| v.worlds.iter().map(move |w| (v, w))) {
        let x = &w.times;
        let mut row = vec![vm.name.clone(), w.name.clone()];
        row.extend([x.used_ns, x.entitled_ns, x.ready_ns, x.wait_ns, x.idle_ns].map(|ns| percent(ns, run.duration_ns)));
        row.push(x.migrations.to_string());
        t.row(row);
    }
    t.text()
}

/// Several documents of one scenario side by side: for each run and VM, the share of its
/// entitlement that it got, a column a document.
#[must_use]
pub fn side_by_side(documents: &[&Document]) -> String {
    let names: Vec<String> = documents.iter().map(|d| format!("{:?} {}", d.place, d.policy).to_lowercase()).collect();
    let mut columns = vec!["<run", "<VM", "shares"];
    columns.extend(names.iter().map(String::as_str));
    let mut t = Table::new(&columns);
    let Some(first) = documents.first() else { return String::new() };
    for run in &first.runs {
        for vm in &run.vms {
            let cell = |d: &&Document| {
                let found = d.runs.iter().find(|r| r.label == run.label).and_then(|r| r.vms.iter().find(|v| v.name == vm.name));
                found.map_or_else(
                    || "-".to_owned(),
                    |v| format!("{:.2}  {:>8}", v.times.used_ns as f64 / 1e9, of_entitled(v.times.used_ns, v.times.entitled_ns)),
                )
            };
            let mut row = vec![run.label.clone(), vm.name.clone(), vm.shares.to_string()];
            row.extend(documents.iter().map(cell));
            t.row(row);
        }
    }
    t.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_their_widest_cell() {
        let mut t = Table::new(&["<VM", "used"]);
        t.row(["a", "1"]);
        t.row(["long name", "12345"]);
        assert_eq!(t.text(), "VM          used\n----------------\na              1\nlong name  12345\n");
    }
}
