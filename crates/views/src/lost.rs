//! What became of CPU time on simulated hardware, and how far worlds moved, as tables; it judges
//! nothing.

use crate::{RunResult, Table, Times};

/// VMs of which something is known, and all together if there are several.
fn rows(run: &RunResult, is_known: fn(&Times) -> bool) -> Vec<(&str, Times)> {
    let known = run.vms.iter().filter(|vm| is_known(&vm.times));
    let mut rows: Vec<_> = known.map(|vm| (vm.name.as_str(), vm.times)).collect();
    if rows.len() > 1 {
        let mut all = Times::default();
        rows.iter().for_each(|(_, times)| all.add(times));
        rows.push(("all", all));
    }
    rows
}

fn text(t: &Table, rows: &[(&str, Times)]) -> String {
    if rows.is_empty() { String::new() } else { format!("\n{}", t.text()) }
}

/// What each VM made of its time in RUN, a line each: its work, what it lost by cause, and its
/// slowdown; nothing where no hardware is simulated.
#[must_use]
pub fn lost(run: &RunResult) -> String {
    let mut t = Table::new(&[
        "<VM",
        "ran s",
        "work s",
        "work %",
        "smt %",
        "refill %",
        "bandwidth %",
        "remote %",
        "switches %",
        "guest %",
        "slowdown",
    ]);
    let rows = rows(run, |times| times.lost.is_some());
    for (name, times) in &rows {
        let lost = times.lost.unwrap_or_default();
        let of = |ns: u64| format!("{:.2}", ns as f64 * 100.0 / (times.run_ns as f64).max(1.0));
        let secs = |ns: u64| format!("{:.3}", ns as f64 / 1e9);
        let causes = [
            lost.smt_ns,
            lost.refill_ns,
            lost.bandwidth_ns,
            lost.remote_ns,
            lost.switch_ns,
            lost.guest_ns,
        ];
        let mut row =
            vec![(*name).to_owned(), secs(times.run_ns), secs(times.work), of(times.work)];
        row.extend(causes.map(of));
        row.push(times.slowdown().map_or("-".to_owned(), |x| format!("{x:.3}")));
        t.row(row);
    }
    text(&t, &rows)
}

/// How often each VM's worlds moved to another pCPU, by distance, a line each; nothing where no
/// hardware is simulated.
#[must_use]
pub fn moved(run: &RunResult) -> String {
    let mut t = Table::new(&["<VM", "migrations", "twin", "core", "LLC", "node"]);
    let rows = rows(run, |times| times.moved.is_some());
    for (name, times) in &rows {
        let moved = times.moved.unwrap_or_default();
        let counts = [moved.sum(), moved.twin, moved.core, moved.llc, moved.node];
        t.row(std::iter::once((*name).to_owned()).chain(counts.map(|n| n.to_string())));
    }
    text(&t, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostCounts, Lost, Moved, Vm};

    #[test]
    fn causes_are_parts_of_the_time_in_run() {
        let vm = |name: &str, lost| Vm {
            name: name.to_owned(),
            pool: "/".to_owned(),
            vcpus: 1,
            shares: 1000,
            times: Times {
                run_ns: 4_000_000_000,
                ready_ns: 500_000_000,
                costop_ns: 500_000_000,
                work: 2_500_000_000,
                lost,
                ..Times::default()
            },
            cpu_stat: None,
            guest: None,
            numa: vec![],
            worlds: vec![],
        };
        let some = Lost {
            smt_ns: 1_000_000_000,
            refill_ns: 300_000_000,
            bandwidth_ns: 100_000_000,
            remote_ns: 60_000_000,
            switch_ns: 4_000_000,
            guest_ns: 36_000_000,
        };
        let mut run = RunResult {
            label: String::new(),
            duration_ns: 4_000_000_000,
            host: HostCounts { pcpus: 2, cores: 1, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: vec![],
            pools: vec![],
            vms: vec![vm("a", Some(some)), vm("b", None)],
            wakeups: vec![],
            checked: None,
        };
        assert_eq!(
            lost(&run),
            "
VM  ran s  work s  work %  smt %  refill %  bandwidth %  remote %  switches %  guest %  slowdown
------------------------------------------------------------------------------------------------
a   4.000   2.500   62.50  25.00      7.50         2.50      1.50        0.10     0.90     2.000
"
        );
        run.vms[0].times.moved = Some(Moved { twin: 12, core: 3, llc: 0, node: 1 });
        assert_eq!(
            moved(&run),
            "
VM  migrations  twin  core  LLC  node
-------------------------------------
a           16    12     3    0     1
"
        );
        run.vms.push(Vm { name: "c".to_owned(), ..run.vms[0].clone() });
        assert!(lost(&run).ends_with(
            "
all  8.000   5.000   62.50  25.00      7.50         2.50      1.50        0.10     0.90     2.000
"
        ));
        assert!(moved(&run).ends_with("\nall          32    24     6    0     2\n"));
        run.vms.retain(|vm| vm.name == "b");
        assert_eq!((lost(&run), moved(&run)), (String::new(), String::new()));
    }
}
