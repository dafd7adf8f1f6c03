//! The figures that a history keeps of result documents and drills; it judges nothing, and rounds
//! as far as the lab repeats.

use lab::drill::Report;
use settings::{Run, Scenario};
use views::{Document, MeasuredBy, RunResult, Where};

use crate::history::{Row, UNNAMED};

/// One row a run, with columns such as `tandem lab percent` for each document.
///
/// | column | figure |
/// |---|---|
/// | `percent` | CPU time by entitlement of the VMs that count: least and most, in % |
/// | `vm_percent` | the same of each VM, in the file's order |
/// | `ratio` | CPU time of the second VM by the first's, of those that `ratio_of` names or of two |
/// | `cpu_s` | CPU time of each VM, in s |
/// | `used_percent` | CPU time of all VMs by the host's |
/// | `ready_s` | ready time of all VMs for every 600 s |
/// | `wake_us` | how late vCPUs woke by the workload's clock: least, mean, most |
/// | `peak_percent` | the most that any pool with a limit used of a second, in % of a pCPU |
/// | `work_s` | work of each VM, in s of a CPU |
/// | `costop_percent` | co-stop by all VMs' time as RUN, READY and COSTOP |
/// | `skew_ms`, `violations` | what the oracle saw in the trace |
pub fn of_documents(scenario: &Scenario, documents: &[&Document]) -> Vec<Row> {
    let mut rows: Vec<Row> = vec![];
    for document in documents {
        let place = if document.place == Where::Sim { "simulator" } else { "lab" };
        let prefix = format!("{} {place}", document.policy);
        for result in &document.runs {
            let label = if result.label.is_empty() { UNNAMED } else { &result.label };
            let spec = scenario.runs.iter().find(|r| r.label == result.label);
            let at = rows.iter().position(|r| r.row == label).unwrap_or_else(|| {
                rows.push(Row::new(label));
                rows.len() - 1
            });
            of_run(&mut rows[at], &prefix, result, spec);
        }
    }
    rows
}

fn of_run(row: &mut Row, prefix: &str, result: &RunResult, spec: Option<&Run>) {
    let column = |name: &str| format!("{prefix} {name}");
    let seconds = |ns: u64| ns as f64 / 1e9;
    let counted = result.vms.iter().filter(|v| expect::counts(v, result));
    let part = |v: &views::Vm| v.times.used_ns as f64 * 100.0 / v.times.entitled_ns.max(1) as f64;
    let parts: Vec<f64> = counted.map(part).collect();
    row.numbers(column("percent"), &least_and_most(&parts), 1);
    let each: Vec<f64> = result.vms.iter().map(part).collect();
    row.numbers(column("vm_percent"), &each, 1);
    if let Some([first, second]) = pair(result, spec) {
        row.number(column("ratio"), second as f64 / first as f64, 3);
    }
    let of = |ns: fn(&views::Times) -> u64| -> Vec<f64> {
        result.vms.iter().map(|v| seconds(ns(&v.times))).collect()
    };
    row.numbers(column("cpu_s"), &of(|t| t.used_ns), 2);
    let sum = |all: Vec<f64>| all.iter().sum::<f64>();
    let (length, pcpus) = (seconds(result.duration_ns), result.host.pcpus as f64);
    let (used, ready) = (sum(of(|t| t.used_ns)), sum(of(|t| t.ready_ns)));
    row.number(column("used_percent"), used * 100.0 / (length * pcpus), 1);
    row.number(column("ready_s"), ready * 600.0 / length, 0);
    let work = of(|t| t.work);
    if work.iter().any(|w| *w > 0.0) {
        row.numbers(column("work_s"), &work, 2);
    }
    let costop = sum(of(|t| t.costop_ns));
    let wanted = costop + ready + sum(of(|t| t.run_ns));
    row.number(column("costop_percent"), costop * 100.0 / wanted, 1);
    let peaks = result.pools.iter().filter_map(|p| p.peak_ns);
    if let Some(peak) = peaks.max() {
        row.number(column("peak_percent"), peak as f64 / 1e7, 1);
    }
    let woken = result.wakeups.iter().find(|w| w.by == MeasuredBy::Workload);
    if let Some(w) = woken {
        let us = [w.min_ns, w.mean_ns, w.max_ns].map(|ns| ns as f64 / 1e3);
        row.numbers(column("wake_us"), &us, 0);
    }
    if let Some(checked) = &result.checked {
        row.number(column("skew_ms"), checked.skew_max_ns as f64 / 1e6, 1);
        row.number(column("violations"), checked.violated as f64, 0);
    }
}

/// CPU time of the two VMs that are held against each other.
fn pair(result: &RunResult, spec: Option<&Run>) -> Option<[u64; 2]> {
    let named = spec.map_or(&[][..], |run| &run.spec.expect.ratio_of);
    let of = |name: &String| result.vms.iter().find(|v| v.name == *name);
    let used: Vec<u64> = match named {
        [one, other] => [one, other].into_iter().filter_map(of).map(|v| v.times.used_ns).collect(),
        _ => result.vms.iter().map(|v| v.times.used_ns).collect(),
    };
    <[u64; 2]>::try_from(used).ok().filter(|pair| pair[0] > 0)
}

fn least_and_most(all: &[f64]) -> Vec<f64> {
    let least = all.iter().copied().min_by(f64::total_cmp);
    let most = all.iter().copied().max_by(f64::total_cmp);
    least.into_iter().chain(most).collect()
}

/// One row a check, with columns `seen`, `allowed` and `verdict`.
pub fn of_drill(report: &Report) -> Vec<Row> {
    let row = |check: &lab::drill::Check| {
        let mut row = Row::new(&check.what);
        row.text("seen", &check.seen);
        row.text("allowed", &check.allowed);
        row.text("verdict", if check.ok { "ok" } else { "FAIL" });
        row
    };
    report.checks.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_two_vms_is_a_row_with_percent_ratio_and_seconds_of_each_document() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let scenario = settings::load(&format!("{root}/shares-ratio-2x2x2")).unwrap();
        let mut document = Document {
            scenario: "s".into(),
            place: Where::Lab,
            policy: "tandem".into(),
            seed: 0,
            command: None,
            runs: vec![],
        };
        let label = scenario.runs[0].label.clone();
        let vm = |name: &str, used_ns: u64| views::Vm {
            name: name.into(),
            pool: "/".into(),
            vcpus: 1,
            shares: 1000,
            times: views::Times { used_ns, entitled_ns: 1_000_000_000, ..Default::default() },
            cpu_stat: None,
            guest: None,
            worlds: vec![],
            numa: vec![],
        };
        document.runs = vec![RunResult {
            label: label.clone(),
            duration_ns: 4_000_000_000,
            host: views::HostCounts { pcpus: 2, cores: 2, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: vec![],
            pools: vec![],
            vms: vec![vm("one", 990_000_000), vm("two", 1_010_000_000)],
            wakeups: vec![],
            checked: None,
        }];
        let mut sim = document.clone();
        sim.place = Where::Sim;
        let rows = of_documents(&scenario, &[&document, &sim]);
        assert_eq!((rows.len(), rows[0].row.as_str()), (1, label.as_str()));
        let figure = |name: &str| rows[0].figures.get(name).map(ToString::to_string);
        for (name, shown) in [
            ("tandem lab percent", "[99.0,101.0]"),
            ("tandem lab vm_percent", "[99.0,101.0]"),
            ("tandem lab ratio", "1.02"),
            ("tandem lab cpu_s", "[0.99,1.01]"),
            ("tandem simulator used_percent", "25.0"),
            ("tandem simulator ready_s", "0.0"),
        ] {
            assert_eq!(figure(name).as_deref(), Some(shown), "{name}");
        }
        assert_eq!(figure("tandem lab wake_us"), None);
        assert_eq!(figure("tandem lab costop_percent"), None, "nothing ran");
    }
}
