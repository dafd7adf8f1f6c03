//! The simulator's answer to what drill "guests" measured: the same work in a simulated guest, with
//! the lab's own figures of a piece of work and of a wake-up, under the same schedulers; it judges
//! nothing.

use std::collections::BTreeMap;

use lab::drill::Report;
use settings::{GuestWork, RunSpec};
use units::Span;
use views::Document;

use crate::experiment_commands::{failed, load};
use crate::history::Row;
use crate::say::sayln;

/// Scenario whose runs are named WORK, LOAD, GUEST.
const SCENARIO: &str = "guest-witness";
const VM: &str = "witness";
/// What a switch between tasks takes in the simulator's guest.
const SWITCH_NS: f64 = 1_500.0;
/// The longest wake-up that a scenario may have.
const WAKE_NS_MOST: f64 = 10e6;
const POLICIES: [&str; 2] = ["eevdf", "tandem"];
const WORKS: [&str; 4] = ["exec", "storm", "rr", "stream"];
const LOADS: [&str; 2] = ["none", "burn"];

/// A drill's table by policy, load, guest, work and place.
struct Lab(BTreeMap<String, BTreeMap<String, f64>>);

impl Lab {
    fn of(report: &Report) -> Lab {
        let row = |cells: &Vec<String>| {
            let numbers = report.columns.iter().zip(cells).skip(5);
            let numbers = numbers.filter_map(|(k, v)| Some(((*k).to_owned(), v.parse().ok()?)));
            (cells.get(..5).unwrap_or_default().join(" "), numbers.collect())
        };
        Lab(report.rows.iter().map(row).collect())
    }

    fn figure(&self, row: &str, column: &str) -> Option<f64> {
        self.0.get(row)?.get(column).copied()
    }

    /// Median, least and most.
    fn spread(&self, row: &str, column: &str) -> Option<[f64; 3]> {
        let of = |suffix: &str| self.figure(row, &format!("{column}{suffix}"));
        Some([of("")?, of("_least")?, of("_most")?])
    }
}

/// What the simulated guest is given: by work, CPU time between two hand-overs and pieces of work
/// in it; and CPU time of a wake-up.
#[derive(Debug, PartialEq)]
struct Given {
    work: BTreeMap<&'static str, (f64, f64)>,
    wake_ns: f64,
}

/// Where sender and receiver are held on one vCPU, a piece takes what a piece takes, and every
/// switch of tasks hands over. Where they are apart, a round trip has two wake-ups besides.
fn given(lab: &Lab) -> Option<Given> {
    let held = |work: &str| format!("eevdf none shown {work} held");
    let ns = |row: &str| lab.figure(row, "rate").filter(|r| *r > 0.0).map(|rate| 1e9 / rate);
    let mut out = Given { work: BTreeMap::new(), wake_ns: 0.0 };
    for work in WORKS {
        let piece = ns(&held(work))?;
        let pieces = match work {
            "exec" => 1.0,
            // A request and its answer are two hand-overs.
            "rr" => 0.5,
            _ => 1.0 / lab.figure(&held(work), "switches")?.max(f64::MIN_POSITIVE),
        };
        let switch = if work == "exec" { 0.0 } else { SWITCH_NS };
        out.work.insert(work, ((piece * pieces - switch).max(1.0), pieces));
    }
    let wakes = ns("eevdf none shown rr apart")? - ns(&held("rr"))?;
    out.wake_ns = (wakes / 2.0).clamp(0.0, WAKE_NS_MOST);
    Some(out)
}

fn put(given: &Given, label: &str, spec: &mut RunSpec) {
    let work_name = label.split(", ").next().unwrap_or_default();
    for vm in spec.vms.iter_mut().filter(|v| v.name == VM) {
        if let Some(guest) = &mut vm.guest {
            guest.wake = Span::from_ns(given.wake_ns as u64);
        }
        for task in &mut vm.tasks {
            let Some((ns, _)) = given.work.get(work_name) else { continue };
            if let GuestWork::Exec { work, .. } | GuestWork::Pipe { work, .. } = &mut task.does {
                *work = Span::from_ns(*ns as u64);
            }
        }
    }
}

/// Pieces of work a second, and interrupts between vCPUs for each, of a run in the simulator.
fn simulated(document: &Document, label: &str, pieces: f64) -> Option<(f64, f64)> {
    let run = document.runs.iter().find(|r| r.label == label)?;
    let guest = run.vms.iter().find(|v| v.name == VM)?.guest?;
    let done = guest.rounds as f64 * pieces;
    let rate = done * 1e9 / run.duration_ns as f64;
    Some((rate, guest.tasks?.interrupts as f64 / done.max(1.0)))
}

/// A row for each work and load, with columns `POLICY lab|simulator FIGURE`: `by_shown` and
/// `by_eevdf`, the rate of the hidden guest by that of the shown one, and that of the shown one by
/// that under the kernel's own scheduler (the lab's: median, least, most); `interrupts`, between
/// vCPUs for each piece, of shown and hidden.
///
/// # Errors
/// `LabError` when the report lacks what the simulator is to be given, or that refuses it.
pub fn rows(report: &Report) -> lab::Result<Vec<Row>> {
    let lab = Lab::of(report);
    let given = given(&lab).ok_or_else(|| {
        failed("simulator", "a drill without work that is held or apart", "repeat the drill")
    })?;
    let mut scenario = load(SCENARIO)?;
    for run in &mut scenario.runs {
        put(&given, &run.label.clone(), &mut run.spec);
    }
    let mut documents = vec![];
    for policy in POLICIES {
        let refused = |e: &dyn std::fmt::Display| {
            failed("simulator", e.to_string(), "run 'tandem sim guest-witness' with that policy")
        };
        let parsed = policy.parse().map_err(|e: sim::PolicyError| refused(&e))?;
        let options = sim::Options { policy: parsed, ..sim::Options::default() };
        documents.push(sim::run_scenario(&scenario, &options, |_| {}).map_err(|e| refused(&e))?);
    }
    let mut inputs = Row::new("given to the simulator");
    for (work, (ns, _)) in &given.work {
        inputs.number(format!("{work} work_us"), ns / 1e3, 0);
    }
    inputs.number("wake_us", given.wake_ns / 1e3, 0);
    let mut out = vec![];
    for work in WORKS {
        for load in LOADS {
            out.push(row(&lab, &documents, work, load, given.work[work].1));
        }
    }
    out.push(inputs);
    Ok(out)
}

fn row(lab: &Lab, documents: &[Document], work: &str, load: &str, pieces: f64) -> Row {
    let mut out = Row::new(format!("{work}, {load}"));
    let mut first = None;
    for (policy, document) in POLICIES.iter().zip(documents) {
        let cell = |guest: &str| format!("{policy} {load} {guest} {work} free");
        for (guest, column) in [("hidden", "by_shown"), ("shown", "by_eevdf")] {
            if let Some(s) = lab.spread(&cell(guest), column) {
                out.numbers(format!("{policy} lab {column}"), &s, 2);
            }
        }
        let seen = |guest: &str| lab.figure(&cell(guest), "interrupts");
        if let (Some(a), Some(b)) = (seen("shown"), seen("hidden")) {
            out.numbers(format!("{policy} lab interrupts"), &[a, b], 2);
        }
        let model = |guest: &str| simulated(document, &format!("{work}, {load}, {guest}"), pieces);
        let (Some(shown), Some(hidden)) = (model("shown"), model("hidden")) else { continue };
        out.number(format!("{policy} simulator by_shown"), hidden.0 / shown.0, 2);
        out.numbers(format!("{policy} simulator interrupts"), &[shown.1, hidden.1], 2);
        match first {
            None => first = Some(shown.0),
            Some(eevdf) => {
                out.number(format!("{policy} simulator by_eevdf"), shown.0 / eevdf, 2);
            }
        }
    }
    out
}

/// Prints the rows, lab and simulator side by side.
pub fn print(rows: &[Row]) {
    sayln!("lab: median (least to most); simulator; figures are hidden guest by shown one,");
    sayln!("Tandem by the kernel's own scheduler, and interrupts of shown, hidden");
    for row in rows {
        sayln!("{}", row.row);
        for (column, value) in &row.figures {
            sayln!("  {column:<28} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab(rows: &[(&str, f64, f64)]) -> Lab {
        let row = |(name, rate, switches): &(&str, f64, f64)| {
            let numbers = [("rate".to_owned(), *rate), ("switches".to_owned(), *switches)];
            ((*name).to_owned(), numbers.into_iter().collect())
        };
        Lab(rows.iter().map(row).collect())
    }

    const MEASURED: [(&str, f64, f64); 5] = [
        ("eevdf none shown exec held", 100.0, 3.0),
        ("eevdf none shown storm held", 50_000.0, 0.02),
        ("eevdf none shown rr held", 1000.0, 2.1),
        ("eevdf none shown rr apart", 200.0, 4.0),
        ("eevdf none shown stream held", 2000.0, 0.5),
    ];

    #[test]
    fn a_piece_is_what_it_takes_on_one_vcpu_and_a_wake_up_what_it_takes_more_on_two() {
        let of = given(&lab(&MEASURED)).unwrap();
        assert_eq!(of.work["exec"], (10e6, 1.0));
        assert_eq!(of.work["rr"], (500e3 - SWITCH_NS, 0.5));
        assert_eq!(of.work["storm"], (1e6 - SWITCH_NS, 50.0), "50 messages a hand-over");
        assert_eq!(of.work["stream"], (1e6 - SWITCH_NS, 2.0));
        assert!((of.wake_ns - 2e6).abs() < 1e-3, "a round trip of 5 ms has two: {}", of.wake_ns);
        assert_eq!(given(&lab(&MEASURED[..4])), None);
        let mut nothing = MEASURED;
        nothing[0].1 = 0.0;
        assert_eq!(given(&lab(&nothing)), None, "no work was done");
        let mut slow = MEASURED;
        slow[3].1 = 1.0;
        assert_eq!(given(&lab(&slow)).unwrap().wake_ns, WAKE_NS_MOST);
    }

    #[test]
    fn every_run_of_the_scenario_gets_the_figures_of_its_work() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let scenario = settings::load(&format!("{root}/{SCENARIO}")).unwrap();
        let given = given(&lab(&MEASURED)).unwrap();
        let mut labels = vec![];
        for run in &scenario.runs {
            let mut spec = run.spec.clone();
            put(&given, &run.label, &mut spec);
            let vm = spec.vms.iter().find(|v| v.name == VM).unwrap();
            let guest = vm.guest.as_ref().unwrap();
            assert_eq!(guest.wake.ns(), 2_000_000, "{}", run.label);
            assert_eq!(guest.hidden, run.label.ends_with("hidden"), "{}", run.label);
            let (GuestWork::Exec { work, .. } | GuestWork::Pipe { work, .. }) = vm.tasks[0].does
            else {
                panic!("{}: {:?}", run.label, vm.tasks[0].does)
            };
            let name = run.label.split(", ").next().unwrap();
            assert_eq!(work.ns(), given.work[name].0 as u64, "{}", run.label);
            labels.push(run.label.as_str());
        }
        for work in WORKS {
            for load in LOADS {
                for guest in ["shown", "hidden"] {
                    assert!(labels.contains(&format!("{work}, {load}, {guest}").as_str()));
                }
            }
        }
    }
}
