//! Drill "idle": vCPUs of real VMs that are halted by their guest, paused, and blocked in their
//! emulator; Tandem must count the first as idle and the others as waiting. One that QEMU emulates
//! without KVM is idle whenever it sleeps. And %SYS of a VM: the threads of the kernel that work
//! for it, each counted once.

use super::{Drill, Report, Setting, TWO_CPUS, begin, spec, unreadable};
use crate::archive::Archive;
use crate::boot::{Accel, BootOutcome, Stream};
use crate::error::Result;
use esxtop::{Batch, Series, read};
use views::Times;

const SCRIPT: &str = include_str!("../../guest/drill-idle");
/// Length of each look.
const PERIOD_S: u32 = 4;
/// What may be counted wrongly, of a vCPU's sleep.
const WRONG: f64 = 0.01;
/// What a vCPU that has little work sleeps at least, of each look: its work, 0.5 ms, takes a busy
/// machine ten times as long. One blocked in its emulator looks again every 0.1 ms.
const ASLEEP: f64 = 0.3;
const BLOCKED: f64 = 0.1;
/// Sums of numbers that the batch file rounds to two places.
const ROUNDED: f64 = 0.1;

/// What a vCPU does while it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleeps {
    /// Mostly halted by its guest.
    Halted,
    /// Paused by QEMU.
    Paused,
    /// Blocked in the device that QEMU emulates.
    Blocked,
}

/// A VM, how many vCPUs it has, and what they do.
type Does = (&'static str, u32, Sleeps);

/// Each look, and what the VMs do meanwhile.
const LOOKS: [(&str, [Does; 3]); 3] = [
    (
        "halted",
        [("quiet", 2, Sleeps::Halted), ("plain", 1, Sleeps::Halted), ("loud", 1, Sleeps::Blocked)],
    ),
    (
        "paused",
        [("quiet", 2, Sleeps::Paused), ("plain", 1, Sleeps::Halted), ("loud", 1, Sleeps::Blocked)],
    ),
    (
        "resumed",
        [("quiet", 2, Sleeps::Halted), ("plain", 1, Sleeps::Halted), ("loud", 1, Sleeps::Blocked)],
    ),
];

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let mut spec = spec(setting, &format!("PERIOD={PERIOD_S}s"), SCRIPT, 900);
    spec.topology = TWO_CPUS;
    spec.accel = Accel::EXACT;
    let (mut report, outcome, _) = begin(Drill::Idle, &spec, archive, on)?;
    report.columns = vec![
        "look",
        "vcpu",
        "run_ms",
        "ready_ms",
        "wait_ms",
        "idle_ms",
        "vmwait_pct_of_wait",
        "used_ms",
    ];
    report.notes.push(
        "quiet: KVM, mostly halted; plain: the same without KVM; loud: KVM, blocked \
        in an emulated device"
            .into(),
    );
    if report.checks.iter().all(|c| c.ok) {
        for (look, vms) in LOOKS {
            judge(&mut report, &outcome, look, &vms)?;
        }
        services(&mut report, &outcome)?;
    }
    Ok(report)
}

fn judge(report: &mut Report, outcome: &BootOutcome, look: &str, vms: &[Does]) -> Result<()> {
    let file = format!("{look}.json");
    let document: views::Document =
        serde_json::from_str(&outcome.file(&file)?).map_err(|e| unreadable(&file, e))?;
    let run = document.runs.first().ok_or_else(|| unreadable(&file, "no run in it"))?;
    for (vm, vcpus, sleeps) in vms {
        let worlds = run
            .vms
            .iter()
            .filter(|v| v.name == *vm)
            .flat_map(|v| &v.worlds)
            .filter(|w| w.name.starts_with("vcpu"));
        let times: Vec<(&str, &Times)> = worlds.map(|w| (w.name.as_str(), &w.times)).collect();
        for (name, t) in &times {
            let ms = |ns: u64| format!("{:.0}", ns as f64 / 1e6);
            report.rows.push(vec![
                look.to_owned(),
                format!("{vm} {name}"),
                ms(t.run_ns),
                ms(t.ready_ns),
                ms(t.wait_ns),
                ms(t.idle_ns),
                format!("{:.2}", 100.0 * (1.0 - idle_part(t))),
                ms(t.used_ns),
            ]);
        }
        let all = times.len() == *vcpus as usize;
        let right = times.iter().filter(|(_, t)| is_right(t, *sleeps, run.duration_ns)).count();
        report.check(
            format!("{look}: vCPUs of {vm} told as {}", told(*sleeps)),
            all && right == times.len(),
            format!("{right} of {}", times.len()),
            format!("{vcpus}, within {:.0} % of their sleep", 100.0 * WRONG),
        );
    }
    Ok(())
}

/// %SYS of VM quiet, for which the kernel's emulation of a timer chip works at least.
fn services(report: &mut Report, outcome: &BootOutcome) -> Result<()> {
    let text = outcome.file("esxtop.csv")?;
    let batch = read(text.as_bytes()).map_err(|e| unreadable("esxtop.csv", e))?;
    let group = |counter| of(&batch, "Group Cpu", counter, "quiet").next().and_then(last);
    let worlds: Vec<(bool, f64)> = of(&batch, "Vcpu", "% Used", "quiet")
        .filter_map(|s| Some((is_service(s), last(s)?)))
        .collect();
    let sum = |wanted: fn(&(bool, f64)) -> bool| {
        worlds.iter().filter(|w| wanted(w)).map(|w| w.1).sum::<f64>()
    };
    let (kernel, all) = (sum(|w| w.0), sum(|_| true));
    let checks = [("% System", kernel, "its threads of the kernel"), ("% Used", all, "its worlds")];
    for (counter, worlds, whose) in checks {
        let seen = group(counter);
        let ok = seen.is_some_and(|s| s > 0.0 && (s - worlds).abs() <= ROUNDED);
        let seen = seen.map_or("not known".to_owned(), |s| format!("{s:.2}"));
        report.check(
            format!("{counter} of quiet"),
            ok,
            seen,
            format!("{worlds:.2}, %Used of {whose}, and not 0"),
        );
    }
    Ok(())
}

/// A counter's columns of a VM, or of its worlds.
fn of<'a>(
    batch: &'a Batch,
    object: &'a str,
    counter: &'a str,
    vm: &'a str,
) -> impl Iterator<Item = &'a Series> {
    let is_its =
        move |s: &&Series| s.path.instance.as_deref().and_then(|i| i.split(':').nth(1)) == Some(vm);
    batch.of(object, counter).filter(is_its)
}

fn last(series: &Series) -> Option<f64> {
    series.numbers.last().copied().flatten()
}

/// Threads of the kernel are called after what they do, not after QEMU.
fn is_service(series: &Series) -> bool {
    series
        .path
        .instance
        .as_deref()
        .and_then(|i| i.split(':').nth(3))
        .is_some_and(|name| name.starts_with("kvm-"))
}

fn told(sleeps: Sleeps) -> &'static str {
    match sleeps {
        Sleeps::Halted => "idle",
        Sleeps::Paused | Sleeps::Blocked => "waiting, not idle",
    }
}

fn idle_part(t: &Times) -> f64 {
    t.idle_ns as f64 / (t.wait_ns as f64).max(1.0)
}

/// Whether a vCPU slept as it should have, and was reported so.
fn is_right(t: &Times, sleeps: Sleeps, duration_ns: u64) -> bool {
    let asleep = t.wait_ns as f64 / (duration_ns as f64).max(1.0);
    match sleeps {
        Sleeps::Halted => asleep >= ASLEEP && idle_part(t) > 1.0 - WRONG,
        Sleeps::Paused => asleep >= 1.0 - WRONG && idle_part(t) < WRONG,
        Sleeps::Blocked => asleep >= BLOCKED && idle_part(t) < WRONG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_of_the_other_kind_or_none_at_all_is_not_right() {
        let slept = |wait_ns, idle_ns| Times { wait_ns, idle_ns, ..Times::default() };
        let right = |t: &Times| {
            [Sleeps::Halted, Sleeps::Paused, Sleeps::Blocked].map(|s| is_right(t, s, 1000))
        };
        assert_eq!(right(&slept(995, 994)), [true, false, false]);
        assert_eq!(right(&slept(995, 3)), [false, true, true]);
        assert_eq!(right(&slept(300, 0)), [false, false, true]);
        assert_eq!(right(&slept(200, 200)), [false; 3]);
        assert_eq!(right(&slept(995, 500)), [false; 3]);
        assert_eq!(right(&slept(0, 0)), [false; 3]);
    }
}
