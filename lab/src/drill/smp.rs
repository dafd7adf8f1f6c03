//! Drill "smp": two Linux guests of two vCPUs on two pCPUs pass messages between their vCPUs
//! (hackbench), under the kernel's own scheduler and under Tandem without and with relaxed
//! co-scheduling. Witnesses are the guests' own: rounds done, steal time, and their soft-lockup
//! watchdog; beside them Tandem's accounts and the oracle's word on a trace.
//!
//! Each pCPU has a core of the machine; where others want that too, pCPUs stand still, and what the
//! oracle sees then is reported and not judged. Counting instructions it would be exact, and take
//! half an hour for the guests' boots alone.

use super::record::Record;
use super::steal::{Told, by_guest, told};
use super::{Drill, Report, Setting, TWO_CPUS, begin, spec, tools, unreadable};
use crate::archive::Archive;
use crate::boot::{BootOutcome, GuestFile, Stream};
use crate::cpio::Cpio;
use crate::error::{OnPath, Result};
use crate::tool;
use crate::vm::{Runs, Vm};
use views::Checked;

const SCRIPT: &str = include_str!("../../guest/drill-smp");
const VMS: [&str; 2] = ["left", "right"];
const VCPUS: u32 = 2;
const POLICIES: [&str; 3] = ["eevdf", "off", "relaxed"];
/// More would be better: each load and unload is another chance for the emulator to die of it, seen
/// in two of five boots.
const ROUNDS: usize = 1;
const PERIOD_S: u32 = 10;
/// Longer than the boots and all phases.
const WORK_S: u32 = 600;
/// What of the tools' folder hackbench needs.
const HACKBENCH: [&str; 7] = [
    "hackbench",
    "lib/ld.so",
    "lib/libc.so.6",
    "lib/libnuma.so.1",
    "lib/libpthread.so.0",
    "lib/librt.so.1",
    "lib/libm.so.6",
];
/// What one end of a span may be off: a tick of the guest's /proc/stat.
const TICK_MS: f64 = 10.0;
/// And in proportion: the guest's clock is corrected in steps.
const CLOCK: f64 = 0.01;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let mut starts = String::new();
    for name in VMS {
        starts += &Vm::new(name, VCPUS, Runs::LinuxMessages { work_s: WORK_S }).start_line()?;
        starts.push('\n');
    }
    let before = format!(
        "VMS=\"{}\" PERIOD={PERIOD_S}s ROUNDS={ROUNDS} POLICIES=\"{}\"\nstart_vms() {{\n{starts}}}",
        VMS.join(" "),
        POLICIES.join(" ")
    );
    let mut spec = spec(setting, &before, SCRIPT, 600);
    spec.topology = TWO_CPUS;
    spec.files.push(GuestFile::copy(guest_tools(archive)?, "/lab/in/tools.cpio"));
    let (mut report, outcome, records) = begin(Drill::Smp, &spec, archive, on)?;
    report.columns = vec![
        "policy",
        "rounds",
        "soft_lockups",
        "tandem_ready_ms",
        "tandem_costop_ms",
        "guest_steal_ms",
    ];
    if report.checks.iter().all(|c| c.ok) {
        judge(&mut report, &outcome, &records)?;
    }
    Ok(report)
}

/// Hackbench with its libraries as an archive that the guest's kernel unpacks behind its initramfs.
fn guest_tools(archive: &Archive) -> Result<std::path::PathBuf> {
    tools::fetch(archive)?;
    let folder = archive.root().join("tools");
    let mut cpio = Cpio::default();
    for name in ["tools", "tools/lib"] {
        cpio.add(name, 0o040_755, (0, 0), &[]);
    }
    for name in HACKBENCH.iter().filter(|n| folder.join(n).is_file()) {
        cpio.add(&format!("tools/{name}"), 0o100_755, (0, 0), &tool::read(&folder.join(name))?);
    }
    let place = archive.root().join("guest-tools.cpio");
    std::fs::write(&place, cpio.finish()).on(&place, "write the guest's tools")?;
    Ok(place)
}

/// What Tandem and the guests say of a phase.
#[derive(Default)]
struct Phase {
    ready_ms: f64,
    costop_ms: f64,
    steal_ms: f64,
    /// Of each vCPU, how far the guest's steal is from Tandem's waits, and what is allowed.
    apart: Vec<(f64, f64)>,
}

fn phase(outcome: &BootOutcome, record: &Record, longest_ms: f64) -> Result<Phase> {
    let name = format!("top-{}-{}.json", record.text("policy"), record.text("n"));
    let document: views::Document =
        serde_json::from_str(&outcome.file(&name)?).map_err(|e| unreadable(&name, e))?;
    let run = document.runs.first().ok_or_else(|| unreadable(&name, "no run in it"))?;
    let (end, ms) = (record.number("to_ms").unwrap_or(0.0), run.duration_ns as f64 / 1e6);
    let mut sum = Phase::default();
    for vm in run.vms.iter().filter(|v| VMS.contains(&v.name.as_str())) {
        let lines: Vec<Told> =
            outcome.file(&format!("{}.stamped", vm.name))?.lines().filter_map(told).collect();
        for vcpu in 0..VCPUS {
            let Some(world) = vm.worlds.iter().find(|w| w.name == format!("vcpu{vcpu}")) else {
                continue;
            };
            let waited = (world.times.ready_ns + world.times.costop_ns) as f64 / 1e6;
            sum.ready_ms += world.times.ready_ns as f64 / 1e6;
            sum.costop_ms += world.times.costop_ns as f64 / 1e6;
            let Some((steal, _)) = by_guest(&lines, vcpu, end - ms, end) else { continue };
            sum.steal_ms += steal;
            sum.apart.push(((steal - waited).abs(), 2.0 * (TICK_MS + longest_ms) + CLOCK * waited));
        }
    }
    Ok(sum)
}

/// The guests' steal is what their vCPUs waited, by `apart`: how far they are from each other, and
/// what is allowed.
fn steal_is_waiting(report: &mut Report, policy: &str, apart: &[(f64, f64)]) {
    let worst = apart
        .iter()
        .copied()
        .max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))
        .unwrap_or((f64::INFINITY, 0.0));
    let all = apart.len() == ROUNDS * VMS.len() * VCPUS as usize;
    let seen = format!("{:.0} ms apart at most, {} times", worst.0, apart.len());
    let what = format!("{policy}: a vCPU's steal by its guest against READY and COSTOP");
    report.check(what, all && worst.0 <= worst.1, seen, format!("{:.0} ms, each", worst.1));
}

/// No guest locked up, and all phases did their work.
fn phases_are_whole(report: &mut Report, phases: &[&Record]) {
    let lockups: f64 = phases.iter().filter_map(|r| r.number("lockups")).sum();
    let all = phases.len() == POLICIES.len() * ROUNDS;
    report.check(
        "soft lockups that the guests told (after 2 s)",
        lockups == 0.0 && all,
        format!("{lockups:.0}"),
        "0",
    );
    let done = phases.iter().all(|r| r.number("rounds").is_some_and(|n| n >= 10.0));
    report.check(
        "every phase did 10 rounds of messages or more",
        done && all,
        if done { "yes" } else { "no" },
        "yes",
    );
}

fn judge(report: &mut Report, outcome: &BootOutcome, records: &[Record]) -> Result<()> {
    let phases: Vec<&Record> = records.iter().filter(|r| r.kind == "phase").collect();
    let ms = |n: f64| format!("{n:.0}");
    let mut skews = vec![];
    for policy in POLICIES {
        let checked = match policy {
            "eevdf" => Checked::default(),
            _ => {
                let name = format!("checked-{policy}.json");
                serde_json::from_str(&outcome.file(&name)?).map_err(|e| unreadable(&name, e))?
            }
        };
        let longest = (checked.ready_max_ns + checked.costop_max_ns) as f64 / 1e6;
        skews.push(format!(
            "{policy} {:.1} ms, {} violations",
            checked.skew_max_ns as f64 / 1e6,
            checked.violated
        ));
        let mut apart = vec![];
        for record in phases.iter().filter(|r| r.text("policy") == policy) {
            let mut row = vec![
                policy.to_owned(),
                record.text("rounds").to_owned(),
                record.text("lockups").to_owned(),
            ];
            if policy == "eevdf" {
                row.extend(std::iter::repeat_n("-".to_owned(), 3));
            } else {
                let p = phase(outcome, record, longest)?;
                row.extend([ms(p.ready_ms), ms(p.costop_ms), ms(p.steal_ms)]);
                apart.extend(p.apart);
            }
            report.rows.push(row);
        }
        if policy != "eevdf" {
            steal_is_waiting(report, policy, &apart);
        }
    }
    phases_are_whole(report, &phases);
    report.notes.push(format!(
        "{} guests of {VCPUS} vCPUs on {VCPUS} pCPUs, {PERIOD_S} s each; a round is hackbench of 8 \
            tasks and 800 messages",
        VMS.len()
    ));
    report.notes.push(format!("skew in a trace of as long: {}", skews[1..].join("; ")));
    report.notes.push(
        "rounds are told, not judged: beside other work on the machine they go up \
        and down by a third"
            .into(),
    );
    report.notes.push(
        "steal: at each end a tick of 10 ms and the longest wait seen may be under \
        way, and 1 % for the clocks"
            .into(),
    );
    Ok(())
}
