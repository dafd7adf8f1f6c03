//! Holds the result of a real scheduler against that of its model, VM by VM, as rows of a history;
//! pure.

use views::{Document, MeasuredBy, RunResult, Vm, Wakeups};

use super::tasks;
use crate::history::Row;

/// A model agrees where it is at most so far from the real CPU time, in %.
pub(super) const ALLOWED_PERCENT: f64 = 5.0;
/// Wake-ups agree where the mean latencies are less than so many times each other.
const ORDER: f64 = 10.0;

/// The figures of a row.
///
/// | column | figure |
/// |---|---|
/// | `real cpu_s`, `model cpu_s` | CPU time of the VM, or of all that are alike together, in s |
/// | `apart_percent` | the model's by the real one's, less 1 |
/// | `tasks_s` | CPU time of the lab's own tasks in that run, in s |
/// | `beside cpu_s` | that of the model beside such tasks: least and most of its seeds |
/// | `beside_percent` | their mean by the real one, less 1 |
/// | `one_by_one_percent` | of VMs that are alike, the one that is furthest apart, without tasks |
/// | `within` | whether the difference is within 5 %, beside tasks where the lab had them |
/// | `real wake_us`, `model wake_us` | how late vCPUs woke: least, mean, most |
/// | `beside wake_us` | that of the model beside tasks: least, mean and most of all its seeds |
/// | `same_order` | whether the means are less than 10 times each other, beside tasks as above |
pub(super) const COLUMNS: [&str; 12] = [
    "real cpu_s",
    "model cpu_s",
    "apart_percent",
    "tasks_s",
    "beside cpu_s",
    "beside_percent",
    "one_by_one_percent",
    "within",
    "real wake_us",
    "model wake_us",
    "beside wake_us",
    "same_order",
];

/// One row for each VM, or for VMs that are alike (`vm-1`, `vm-2`), of each run.
pub(super) fn rows(
    scenario: &str,
    real: &Document,
    model: &Document,
    beside: &[Document],
) -> Vec<Row> {
    let mut out = vec![];
    for result in &real.runs {
        let same_run = |d: &Document| {
            let run = d.runs.iter().find(|r| r.label == result.label)?;
            Some(as_long(run, result.duration_ns))
        };
        let Some(other) = same_run(model) else { continue };
        let beside: Vec<RunResult> = beside.iter().filter_map(same_run).collect();
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
            let alone = cpu_time(&mut row, &alike, &other.vms);
            row.number("tasks_s", tasks::used_ns(result) as f64 / 1e9, 2);
            let apart = beside_tasks(&mut row, &alike, &beside).unwrap_or(alone);
            let yes = apart.abs() <= ALLOWED_PERCENT;
            row.text("within", if yes { "yes" } else { "no" });
            wakeups(&mut row, &alike[0].name, result, &other, &beside);
            out.push(row);
        }
    }
    out
}

/// A run of a model with the CPU time of a run so long: a real one lasts until what measures it has
/// been woken, which took 1.7 s more where it had to wait. It rounds down.
fn as_long(run: &RunResult, length_ns: u64) -> RunResult {
    let mut run = run.clone();
    for vm in &mut run.vms {
        let used = u128::from(vm.times.used_ns) * u128::from(length_ns);
        vm.times.used_ns = (used / u128::from(run.duration_ns.max(1))) as u64;
    }
    run
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

/// Adds CPU times of the model alone; by how many % it is apart.
fn cpu_time(row: &mut Row, alike: &[&Vm], others: &[Vm]) -> f64 {
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
    apart(sum)
}

/// Adds CPU times of the model beside the lab's tasks; by how many % it is apart.
fn beside_tasks(row: &mut Row, alike: &[&Vm], beside: &[RunResult]) -> Option<f64> {
    let counts = |v: &&Vm| alike.iter().any(|a| a.name == v.name);
    let used = |r: &RunResult| r.vms.iter().filter(counts).map(|v| v.times.used_ns).sum::<u64>();
    let real: u64 = alike.iter().map(|v| v.times.used_ns).sum();
    let all: Vec<f64> = beside.iter().map(used).map(|ns| ns as f64).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.numbers("beside cpu_s", &[least / 1e9, most / 1e9], 2);
    let apart = (mean / real as f64 - 1.0) * 100.0;
    row.number("beside_percent", apart, 1);
    (!beside.is_empty()).then_some(apart)
}

/// Adds how late the vCPUs of a VM woke, alone and beside tasks.
fn wakeups(row: &mut Row, vm: &str, real: &RunResult, model: &RunResult, beside: &[RunResult]) {
    let of = |r: &RunResult| {
        r.wakeups.iter().find(|w| w.vm == vm && w.by == MeasuredBy::Workload).cloned()
    };
    let (Some(real), Some(model)) = (of(real), of(model)) else { return };
    let us = |w: &Wakeups| [w.min_ns, w.mean_ns, w.max_ns].map(|ns| ns as f64 / 1e3);
    row.numbers("real wake_us", &us(&real), 0);
    row.numbers("model wake_us", &us(&model), 0);
    let beside: Vec<Wakeups> = beside.iter().filter_map(of).collect();
    let judged = together(&beside).map_or(model, |all| {
        row.numbers("beside wake_us", &us(&all), 0);
        all
    });
    // A microsecond at least: below it the model has no time of interrupts and switches at all.
    let mean = |w: &Wakeups| (w.mean_ns as f64).max(1e3);
    let times = mean(&judged) / mean(&real);
    let same = times < ORDER && times > 1.0 / ORDER;
    row.text("same_order", if same { "yes" } else { "no" });
}

/// Wake-ups of several seeds as of one run; none of none.
fn together(seeds: &[Wakeups]) -> Option<Wakeups> {
    let mut all = seeds.first()?.clone();
    all.count = seeds.iter().map(|w| w.count).sum();
    all.min_ns = seeds.iter().map(|w| w.min_ns).min()?;
    all.max_ns = seeds.iter().map(|w| w.max_ns).max()?;
    let late = seeds.iter().map(|w| u128::from(w.mean_ns) * u128::from(w.count)).sum::<u128>();
    all.mean_ns = (late / u128::from(all.count.max(1))) as u64;
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use views::{Times, Where};

    fn vm(name: &str, used_ms: u64) -> Vm {
        let times = Times { used_ns: used_ms * 1_000_000, ..Times::default() };
        let (pool, shares) = ("/".to_owned(), 1000);
        Vm {
            name: name.into(),
            pool,
            vcpus: 1,
            shares,
            times,
            cpu_stat: None,
            guest: None,
            worlds: vec![],
            numa: vec![],
        }
    }

    fn document(vms: Vec<Vm>, mean_us: u64) -> Document {
        let late = Wakeups {
            vm: "other".into(),
            by: MeasuredBy::Workload,
            count: 1,
            min_ns: 0,
            mean_ns: mean_us * 1000,
            p99_ns: 0,
            max_ns: 0,
        };
        let host = views::HostCounts { pcpus: 2, cores: 2, llcs: 1, nodes: 1, sockets: 1 };
        let run = RunResult {
            label: "a".into(),
            duration_ns: 1_000_000_000,
            host,
            pcpus: vec![],
            pools: vec![],
            vms,
            wakeups: vec![late],
            checked: None,
        };
        let (place, policy) = (Where::Lab, "cfs".to_owned());
        Document { scenario: "s".into(), place, policy, seed: 0, command: None, runs: vec![run] }
    }

    #[test]
    fn vms_that_are_alike_count_together_and_the_furthest_apart_is_told() {
        let real = document(vec![vm("vm-1", 100), vm("vm-2", 100), vm("other", 500)], 30);
        let model = document(vec![vm("vm-1", 128), vm("vm-2", 80), vm("other", 480)], 2);
        let rows = rows("s", &real, &model, &[]);
        let names: Vec<&str> = rows.iter().map(|r| r.row.as_str()).collect();
        assert_eq!(names, ["s a: 2 VMs vm", "s a: other"]);
        let figure = |row: usize, name: &str| rows[row].figures.get(name).map(ToString::to_string);
        for (row, name, shown) in [
            (0, "real cpu_s", Some("0.2")),
            (0, "apart_percent", Some("4.0")),
            (0, "one_by_one_percent", Some("28.0")),
            (0, "within", Some("\"yes\"")),
            (1, "apart_percent", Some("-4.0")),
            (1, "one_by_one_percent", None),
            (1, "same_order", Some("\"no\"")),
            (0, "same_order", None),
        ] {
            assert_eq!(figure(row, name).as_deref(), shown, "{row} {name}");
        }
        assert_eq!(within(&rows), (2, 2));
    }

    #[test]
    fn a_real_run_that_lasted_longer_is_held_against_as_much_of_the_model() {
        let mut real = document(vec![vm("other", 600)], 30);
        real.runs[0].duration_ns = 1_200_000_000;
        let rows = rows("s", &real, &document(vec![vm("other", 500)], 30), &[]);
        assert_eq!(rows[0].figures["model cpu_s"].to_string(), "0.6");
        assert_eq!(rows[0].figures["apart_percent"].to_string(), "0.0");
    }

    #[test]
    fn beside_tasks_the_model_is_judged_by_the_mean_of_its_seeds() {
        let real = document(vec![vm("other", 500)], 30);
        let alone = document(vec![vm("other", 600)], 40);
        let beside = [490, 530].map(|ms| document(vec![vm("other", ms)], 40));
        let rows = rows("s", &real, &alone, &beside);
        let figure = |name: &str| rows[0].figures[name].to_string();
        assert_eq!(
            (figure("apart_percent"), figure("beside_percent")),
            ("20.0".into(), "2.0".into())
        );
        assert_eq!((within(&rows), figure("same_order")), ((1, 1), "\"yes\"".into()));
    }
}
