//! Holds the result of a real scheduler against that of its model, VM by VM, as rows of a history;
//! pure.

use views::{Document, MeasuredBy, RunResult, Vm, Wakeups};

use crate::history::Row;

/// A model agrees where it is at most so far from the real CPU time, in %.
pub(super) const ALLOWED_PERCENT: f64 = 5.0;
/// Wake-ups agree where the mean latencies are less than so many times each other.
const ORDER: f64 = 10.0;

/// The figures of a row.
///
/// | column | figure |
/// |---|---|
/// | `real cpu_s`, `model cpu_s` | CPU time of the VM, or of all VMs that are alike together, in s |
/// | `apart_percent` | the model's by the real one's, less 1 |
/// | `one_by_one_percent` | of VMs that are alike, the one that is furthest apart |
/// | `within` | whether `apart_percent` is within 5 % |
/// | `real wake_us`, `model wake_us` | how late vCPUs woke: least, mean, most |
/// | `same_order` | whether the means are less than 10 times each other |
pub(super) const COLUMNS: [&str; 8] = [
    "real cpu_s",
    "model cpu_s",
    "apart_percent",
    "one_by_one_percent",
    "within",
    "real wake_us",
    "model wake_us",
    "same_order",
];

/// One row for each VM, or for VMs that are alike (`vm-1`, `vm-2`), of each run.
pub(super) fn rows(scenario: &str, real: &Document, model: &Document) -> Vec<Row> {
    let mut out = vec![];
    for result in &real.runs {
        let Some(other) = model.runs.iter().find(|r| r.label == result.label) else { continue };
        let at = if result.label.is_empty() {
            scenario.to_owned()
        } else {
            format!("{scenario} {}", result.label)
        };
        for alike in groups(&result.vms) {
            let name = match &alike[..] {
                [vm] => vm.name.clone(),
                many => format!("{} VMs {}", many.len(), base(&many[0].name)),
            };
            let mut row = Row::new(format!("{at}: {name}"));
            cpu_time(&mut row, &alike, &other.vms);
            wakeups(&mut row, &alike[0].name, result, other);
            out.push(row);
        }
    }
    out
}

/// How many of how many rows are within 5 %.
pub(super) fn within(rows: &[Row]) -> (usize, usize) {
    let said: Vec<_> = rows.iter().filter_map(|r| r.figures.get("within")).collect();
    (said.iter().filter(|v| **v == "yes").count(), said.len())
}

/// The name that VMs of one description have in common.
fn base(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((base, number)) if number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

fn groups(vms: &[Vm]) -> Vec<Vec<&Vm>> {
    let mut out: Vec<Vec<&Vm>> = vec![];
    for vm in vms {
        match out.iter_mut().find(|g| base(&g[0].name) == base(&vm.name)) {
            Some(group) => group.push(vm),
            None => out.push(vec![vm]),
        }
    }
    out
}

fn cpu_time(row: &mut Row, alike: &[&Vm], others: &[Vm]) {
    let of = |name: &str| others.iter().find(|v| v.name == name).map(|v| v.times.used_ns as f64);
    let pairs: Vec<(f64, f64)> =
        alike.iter().filter_map(|v| Some((v.times.used_ns as f64, of(&v.name)?))).collect();
    let apart = |(real, model): (f64, f64)| (model / real - 1.0) * 100.0;
    let sum = pairs.iter().fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
    row.number("real cpu_s", sum.0 / 1e9, 2);
    row.number("model cpu_s", sum.1 / 1e9, 2);
    row.number("apart_percent", apart(sum), 1);
    if pairs.len() > 1 {
        let furthest = pairs.iter().map(|p| apart(*p)).max_by(|a, b| a.abs().total_cmp(&b.abs()));
        row.number("one_by_one_percent", furthest.unwrap_or(f64::NAN), 1);
    }
    let yes = apart(sum).abs() <= ALLOWED_PERCENT;
    row.text("within", if yes { "yes" } else { "no" });
}

fn wakeups(row: &mut Row, vm: &str, real: &RunResult, model: &RunResult) {
    let of = |r: &RunResult| {
        r.wakeups.iter().find(|w| w.vm == vm && w.by == MeasuredBy::Workload).cloned()
    };
    let (Some(real), Some(model)) = (of(real), of(model)) else { return };
    let us = |w: &Wakeups| [w.min_ns, w.mean_ns, w.max_ns].map(|ns| ns as f64 / 1e3);
    row.numbers("real wake_us", &us(&real), 0);
    row.numbers("model wake_us", &us(&model), 0);
    // A microsecond at least: below it the model has no time of interrupts and switches at all.
    let mean = |w: &Wakeups| (w.mean_ns as f64).max(1e3);
    let times = mean(&model) / mean(&real);
    let same = times < ORDER && times > 1.0 / ORDER;
    row.text("same_order", if same { "yes" } else { "no" });
}
