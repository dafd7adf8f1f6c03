//! Plain-text tables for terminals: aligned columns, no colour, one line a row.

use crate::{Document, Guest, RunResult, Times};
use comfy_table::{CellAlignment, TableComponent, presets};

/// A table with a header line.
#[derive(Clone, Debug)]
pub struct Table(comfy_table::Table);

impl Table {
    /// A table with these columns; a name that starts with `<` is left-aligned.
    #[must_use]
    pub fn new(columns: &[&str]) -> Table {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '-');
        table.set_header(columns.iter().map(|name| name.trim_start_matches('<')));
        for (i, (column, name)) in table.column_iter_mut().zip(columns).enumerate() {
            let is_text = name.starts_with('<');
            let align = if is_text { CellAlignment::Left } else { CellAlignment::Right };
            let gap = if i + 1 < columns.len() { 2 } else { 0 };
            column.set_padding((0, gap)).set_cell_alignment(align);
        }
        Table(table)
    }

    /// Adds a row; missing cells stay empty, and those behind the last column are left out.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let room = self.0.column_count();
        self.0.add_row(cells.into_iter().map(Into::into).take(room).collect::<Vec<String>>());
    }

    /// The table as text, each line ended.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.trim_fmt() + "\n"
    }
}

fn secs(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e9)
}

/// Used against entitled in percent, or `-` without an entitlement.
fn of_entitled(used: u64, entitled: u64) -> String {
    if entitled == 0 {
        "-".to_owned()
    } else {
        format!("{:.2}%", used as f64 * 100.0 / entitled as f64)
    }
}

/// What an SMP guest made of its time.
fn guest_cells(g: Guest) -> [String; 4] {
    [
        secs(g.spin_ns),
        g.rounds.to_string(),
        g.lockups.to_string(),
        format!("{:.3}", g.longest_wait_ns as f64 / 1e6),
    ]
}

/// One run as a table: a line a VM. Guests whose vCPUs wait for each other add columns.
#[must_use]
pub fn summary(run: &RunResult) -> String {
    let mut columns = vec![
        "<VM",
        "vCPUs",
        "shares",
        "used s",
        "entitled s",
        "of entitled",
        "ready s",
        "idle s",
        "migrations",
        "work s",
    ];
    if run.vms.iter().any(|vm| vm.guest.is_some()) {
        columns.extend(["spin s", "rounds", "lockups", "longest wait ms"]);
    }
    let mut t = Table::new(&columns);
    for vm in &run.vms {
        let x = &vm.times;
        let known = [
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
        ];
        t.row(known.into_iter().chain(vm.guest.map(guest_cells).into_iter().flatten()));
    }
    let busy: u64 = run.pcpus.iter().map(|p| p.busy_ns).sum();
    let whole = run.duration_ns as f64 * run.host.pcpus as f64;
    let label = if run.label.is_empty() { String::new() } else { format!("run {}: ", run.label) };
    let of_host = |ns: u64| ns as f64 * 100.0 / whole.max(1.0);
    let realtime: u64 = run.checked.iter().flat_map(|c| &c.realtime_ns).sum();
    let realtime = match realtime {
        0 => String::new(),
        ns => format!(", {:.1} % real-time", of_host(ns)),
    };
    let head = format!(
        "{label}{} s, {} pCPUs {:.1} % busy{realtime}\n",
        run.duration_ns as f64 / 1e9,
        run.host.pcpus,
        of_host(busy)
    );
    head + &t.text()
}

/// Pools of a run, a line each: what each used of what it was entitled to, and what its limit did;
/// without any but the root and the system group nothing.
#[must_use]
pub fn pools(run: &RunResult) -> String {
    if run.pools.len() <= 2 {
        return String::new();
    }
    let mut t = Table::new(&[
        "<pool",
        "used s",
        "entitled s",
        "of entitled",
        "ready s",
        "limited s",
        "peak %",
    ]);
    for pool in &run.pools {
        t.row([
            pool.path.clone(),
            secs(pool.used_ns),
            secs(pool.entitled_ns),
            of_entitled(pool.used_ns, pool.entitled_ns),
            secs(pool.ready_ns),
            secs(pool.limited_ns),
            // In any second: so many ns of 10^9 are percent of one pCPU.
            pool.peak_ns.map_or("-".to_owned(), |ns| percent(ns, 1_000_000_000)),
        ]);
    }
    t.text()
}

pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}", part as f64 * 100.0 / whole.max(1) as f64)
}

/// Several documents of one scenario side by side: for each run and VM, the share of its
/// entitlement that it got, a column a document.
#[must_use]
pub fn side_by_side(documents: &[&Document]) -> String {
    let names: Vec<String> =
        documents.iter().map(|d| format!("{:?} {}", d.place, d.policy).to_lowercase()).collect();
    let mut columns = vec!["<run", "<VM", "shares"];
    columns.extend(names.iter().map(String::as_str));
    let mut t = Table::new(&columns);
    let Some(first) = documents.first() else { return String::new() };
    for run in &first.runs {
        for vm in &run.vms {
            let cell = |d: &&Document| {
                let found = d
                    .runs
                    .iter()
                    .find(|r| r.label == run.label)
                    .and_then(|r| r.vms.iter().find(|v| v.name == vm.name));
                found.map_or_else(
                    || "-".to_owned(),
                    |v| {
                        format!(
                            "{:.2}  {:>8}",
                            v.times.used_ns as f64 / 1e9,
                            of_entitled(v.times.used_ns, v.times.entitled_ns)
                        )
                    },
                )
            };
            let mut row = vec![run.label.clone(), vm.name.clone(), vm.shares.to_string()];
            row.extend(documents.iter().map(cell));
            t.row(row);
        }
    }
    t.text()
}

/// Several documents of one scenario side by side: for each run what all VMs used, in percent of
/// the host, and how long they were ready together, in s for every 600 s as RDY's figures have it.
#[must_use]
pub fn ready_side_by_side(documents: &[&Document]) -> String {
    let names: Vec<String> = documents
        .iter()
        .map(|d| format!("{:?} {}: used  ready", d.place, d.policy).to_lowercase())
        .collect();
    let mut columns = vec!["<run"];
    columns.extend(names.iter().map(String::as_str));
    let mut t = Table::new(&columns);
    let Some(first) = documents.first() else { return String::new() };
    for run in &first.runs {
        let cell = |d: &&Document| {
            let Some(r) = d.runs.iter().find(|r| r.label == run.label) else {
                return "-".to_owned();
            };
            let sum = |of: fn(&Times) -> u64| r.vms.iter().map(|v| of(&v.times)).sum::<u64>();
            let used = percent(sum(|t| t.used_ns), r.duration_ns * r.host.pcpus as u64);
            format!(
                "{used} %  {:>5.0} s",
                sum(|t| t.ready_ns) as f64 * 600.0 / r.duration_ns.max(1) as f64
            )
        };
        t.row([run.label.clone()].into_iter().chain(documents.iter().map(cell)));
    }
    t.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checked, HostCounts, Pcpu, Pool, Vm, Where};

    #[test]
    fn columns_align_by_their_widest_cell() {
        let mut t = Table::new(&["<VM", "used"]);
        t.row(["a", "1"]);
        t.row(["long name", "12345"]);
        assert_eq!(
            t.text(),
            "VM          used\n----------------\na              1\nlong name  12345\n"
        );
    }

    #[test]
    fn rows_may_be_short_and_names_wide_or_indented() {
        let mut t = Table::new(&["<VM", "used", "<what"]);
        t.row(["日本"]);
        t.row(["  in", "7", "x", "too many"]);
        assert_eq!(t.text(), "VM    used  what\n----------------\n日本\n  in     7  x\n");
    }

    #[test]
    fn ready_time_is_that_of_all_vms_for_600_s() {
        let vm = |used_ns, ready_ns| Vm {
            name: String::new(),
            pool: "/".to_owned(),
            vcpus: 1,
            shares: 1,
            times: Times { used_ns, ready_ns, ..Times::default() },
            cpu_stat: None,
            guest: None,
            numa: vec![],
            worlds: vec![],
        };
        let run = RunResult {
            label: "4".to_owned(),
            duration_ns: 20_000_000_000,
            host: HostCounts { pcpus: 2, cores: 2, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: vec![],
            pools: vec![],
            vms: vec![vm(5_000_000_000, 7_000_000_000), vm(7_000_000_000, 3_000_000_000)],
            wakeups: vec![],
            checked: None,
        };
        let document = |policy: &str, runs| Document {
            scenario: String::new(),
            place: Where::Lab,
            policy: policy.to_owned(),
            seed: 0,
            command: None,
            runs,
        };
        let (one, none) = (document("eevdf", vec![run]), document("tandem", vec![]));
        let text = ready_side_by_side(&[&one, &none]);
        assert_eq!(
            text.lines().last(),
            Some("4           30.0 %    300 s                        -"),
            "{text}"
        );
    }

    #[test]
    fn what_smp_guests_made_of_their_time_is_shown_where_there_are_any() {
        let vm = |name: &str, guest| Vm {
            name: name.to_owned(),
            pool: "/".to_owned(),
            vcpus: 2,
            shares: 2000,
            times: Times { used_ns: 3_000_000_000, work: 2_000_000_000, ..Times::default() },
            cpu_stat: None,
            guest,
            numa: vec![],
            worlds: vec![],
        };
        let some = Guest {
            spin_ns: 1_000_000_000,
            rounds: 17,
            lockups: 2,
            longest_wait_ns: 104_000_000,
            tasks: None,
        };
        let mut run = RunResult {
            label: String::new(),
            duration_ns: 3_000_000_000,
            host: HostCounts { pcpus: 2, cores: 2, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: vec![],
            pools: vec![],
            vms: vec![vm("smp", Some(some)), vm("other", None)],
            wakeups: vec![],
            checked: None,
        };
        let text = summary(&run);
        let ends = [
            "work s  spin s  rounds  lockups  longest wait ms",
            " 2.000   1.000      17        2          104.000",
            " 2.000",
        ];
        assert!(
            text.lines()
                .skip(1)
                .filter(|l| !l.starts_with('-'))
                .zip(ends)
                .all(|(l, end)| l.ends_with(end)),
            "{text}"
        );
        run.vms.remove(0);
        assert!(summary(&run).contains("work s\n"), "{}", summary(&run));
    }

    #[test]
    fn the_head_says_what_real_time_tasks_took_where_there_are_any() {
        let took = |realtime_ns| RunResult {
            label: "a".to_owned(),
            duration_ns: 3_000_000_000,
            host: HostCounts { pcpus: 2, cores: 2, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: [1, 2].map(|s| Pcpu { id: 0, busy_ns: s * 900_000_000 }).to_vec(),
            pools: vec![],
            vms: vec![],
            wakeups: vec![],
            checked: Some(Checked { realtime_ns, ..Checked::default() }),
        };
        let head = |run: &RunResult| summary(run).lines().next().map(str::to_owned);
        let busy = "run a: 3 s, 2 pCPUs 45.0 % busy".to_owned();
        assert_eq!(head(&took(vec![])), Some(busy.clone()));
        assert_eq!(head(&took(vec![600_000_000, 0])), Some(busy + ", 10.0 % real-time"));
    }

    #[test]
    fn pools_are_shown_with_their_peaks_where_a_limit_stands() {
        let pool = |path: &str, used_ns: u64, peak_ns| Pool {
            path: path.to_owned(),
            used_ns,
            entitled_ns: 2_000_000_000,
            peak_ns,
            ..Pool::default()
        };
        let mut run = RunResult {
            label: String::new(),
            duration_ns: 2_000_000_000,
            host: HostCounts { pcpus: 4, cores: 4, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: vec![],
            pools: vec![
                pool("/", 4_000_000_000, None),
                pool("/system", 0, None),
                pool("/lab", 1_990_000_000, Some(1_004_000_000)),
            ],
            vms: vec![],
            wakeups: vec![],
            checked: None,
        };
        run.pools[2].limited_ns = 5_000_000;
        assert_eq!(
            pools(&run),
            "pool     used s  entitled s  of entitled  ready s  limited s  peak %
--------------------------------------------------------------------
/         4.000       2.000      200.00%    0.000      0.000       -
/system   0.000       2.000        0.00%    0.000      0.000       -
/lab      1.990       2.000       99.50%    0.000      0.005   100.4
"
        );
        run.pools.truncate(2);
        assert_eq!(pools(&run), "");
    }
}
