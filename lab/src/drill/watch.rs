//! Drill "watch": whatever shows a live host, in one boot with two real VMs: the endpoint, `tandem
//! metrics`, batch mode, JSON lines, a result document, a trace with its commands, a report. Here
//! what came back is read, by readers that did not write it.

mod batch;
mod exposition;
mod lines;
mod recorded;

use super::{Drill, Report, Setting, begin, spec, unreadable};
use crate::archive::Archive;
use crate::boot::{Accel, BootOutcome, Stream};
use crate::error::Result;
use crate::payload::{Orders, Work};
use crate::vm::{Runs, Vm};

const SCRIPT: &str = include_str!("../../guest/drill-watch");
/// Two vCPUs each: one VM that always works and one that works and sleeps.
const BUSY: &str = "busy";
const BEAT: &str = "beat";
const VMS: [&str; 2] = [BUSY, BEAT];
const VCPUS: u32 = 2;
/// Samples of batch mode and of JSON lines, as the script asks for them.
const SAMPLES: usize = 3;
/// Accounts are read after the clock, and one after another: what passes meanwhile may be missing
/// in one sample and be in the next. 0.6 ms were seen by the exact clock.
const READING_MS: f64 = 10.0;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let duty = Work::Duty { work_us: 3000, sleep_us: 5000 };
    let vms = [
        Vm::new(BUSY, VCPUS, Runs::Payload(Orders::all(VCPUS, Work::Burn))),
        Vm::new(BEAT, VCPUS, Runs::Payload(Orders::all(VCPUS, duty))),
    ];
    let lines = vms.iter().map(Vm::start_line).collect::<Result<Vec<_>>>()?.join("\n");
    let before = format!("VMS=\"{}\"\nstart_vms() {{\n{lines}\n}}", VMS.join(" "));
    let mut spec = spec(setting, &before, SCRIPT, 900);
    spec.accel = Accel::EXACT;
    let (mut report, outcome, records) = begin(Drill::Watch, &spec, archive, on)?;
    report.columns = vec!["what", "seen"];
    let up = records.iter().find(|r| r.kind == "daemon").map_or("not seen", |r| r.text("up"));
    report.check("the daemon after all that", up == "yes", up, "yes");
    if !report.checks.iter().any(|c| c.what == "the drill ran to its end" && c.ok) {
        return Ok(report);
    }
    let scrapes = exposition::judge(&mut report, &outcome)?;
    batch::judge(&mut report, &outcome.file("top.csv")?);
    lines::judge(&mut report, &outcome.file("top.jsonl")?);
    document(&mut report, &outcome)?;
    recorded::judge(&mut report, &outcome, &setting.tandem, &scrapes)?;
    Ok(report)
}

fn row(report: &mut Report, what: &str, seen: impl Into<String>) {
    report.rows.push(vec![what.to_owned(), seen.into()]);
}

/// Checks that nothing is wrong, and otherwise says what.
fn none_wrong(report: &mut Report, what: &str, wrong: &[String], allowed: &str) {
    let seen = if wrong.is_empty() { "all".to_owned() } else { wrong.join("; ") };
    report.check(what, wrong.is_empty(), seen, allowed);
}

/// `tandem top --once --json`: each vCPU's states sum to the time of the look.
fn document(report: &mut Report, outcome: &BootOutcome) -> Result<()> {
    let read: views::Document =
        serde_json::from_str(&outcome.file("top.json")?).map_err(|e| unreadable("top.json", e))?;
    let mut wrong = vec![];
    let mut vcpus = 0;
    for run in &read.runs {
        for vm in &run.vms {
            for w in vm.worlds.iter().filter(|w| w.kind == views::WorldKind::Vcpu) {
                vcpus += 1;
                let all = w.times.run_ns + w.times.ready_ns + w.times.costop_ns + w.times.wait_ns;
                // Two readings of a clock a moment apart, and top's own rounds of 100 ms.
                if all.abs_diff(run.duration_ns) > 100_000_000 {
                    wrong.push(format!(
                        "{}/{}: {} of {} ms",
                        vm.name,
                        w.name,
                        all / 1_000_000,
                        run.duration_ns / 1_000_000
                    ));
                }
            }
        }
    }
    if vcpus != VMS.len() * VCPUS as usize {
        wrong.push(format!("{vcpus} vCPUs"));
    }
    none_wrong(
        report,
        "top --once --json: the states of each vCPU sum to the time",
        &wrong,
        "4 vCPUs, each to 100 ms",
    );
    Ok(())
}
