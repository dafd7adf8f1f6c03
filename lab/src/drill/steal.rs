//! Drill "steal": two Linux guests of two vCPUs on two pCPUs tell from the inside how long they
//! were kept waiting; Tandem's READY and COSTOP of their vCPU worlds over the same span must
//! say the same, and so must the kernel's run delay.

use super::record::Record;
use super::{Drill, Report, Setting, TWO_CPUS, begin, spec, unreadable};
use crate::archive::Archive;
use crate::boot::{BootOutcome, Stream};
use crate::error::Result;
use crate::vm::{Runs, Vm};

const SCRIPT: &str = include_str!("../../guest/drill-steal");
const VMS: [&str; 2] = ["left", "right"];
const PERIOD_S: u32 = 60;
/// Longer than both boots under contention and the period.
const WORK_S: u32 = 200;
/// What one end of the span may be off, per vCPU, beside one wait: a tick of the guest's
/// /proc/stat. Kernel and guest learn of a wait when it is over, while Tandem counts the one under
/// way; and the guest's steal is known once a second, with a straight line in between. So one wait
/// more at each end, the longest that was seen.
const TICK_MS: f64 = 10.0;
/// And in proportion: the guest's clock is corrected in steps, and its lines arrive up to a quantum
/// late.
const CLOCK: f64 = 0.01;

/// A line that a guest printed: the host's time of its arrival, the guest's clock, and what a vCPU
/// had seen, in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Told {
    arrived: f64,
    clock: f64,
    vcpu: u32,
    busy: f64,
    steal: f64,
}

/// `52340 linux-guest: at 12.34 cpu1 busy=310 idle=4 steal=95`; the counts are ticks of 10 ms.
pub(super) fn told(line: &str) -> Option<Told> {
    let (arrived, rest) = line.trim_end().split_once(" linux-guest: at ")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let ticks = |key: &str| {
        words
            .iter()
            .find_map(|w| w.strip_prefix(key)?.strip_prefix('='))
            .and_then(|n| n.parse::<f64>().ok())
    };
    Some(Told {
        arrived: arrived.parse().ok()?,
        clock: words.first()?.parse::<f64>().ok()? * 1000.0,
        vcpu: words.get(1)?.strip_prefix("cpu")?.parse().ok()?,
        busy: ticks("busy")? * 10.0,
        steal: ticks("steal")? * 10.0,
    })
}

/// Value of a counter at `at`, by a straight line between the two points around it; none outside
/// them.
fn between(points: &[(f64, f64)], at: f64) -> Option<f64> {
    let after = points.iter().position(|p| p.0 >= at)?;
    let (x1, y1) = points[after];
    let (x0, y0) = *points.get(after.checked_sub(1)?)?;
    Some(y0 + (y1 - y0) * (at - x0) / (x1 - x0).max(1.0))
}

/// Steal and busy time of a vCPU by its guest's lines between two moments of the host's clock, in
/// ms. The guest's clock is placed on the host's by the line that arrived soonest after it was
/// written.
pub(super) fn by_guest(lines: &[Told], vcpu: u32, from: f64, to: f64) -> Option<(f64, f64)> {
    let offset = lines.iter().map(|t| t.arrived - t.clock).min_by(f64::total_cmp)?;
    let of = |value: fn(&Told) -> f64| -> Option<f64> {
        let points: Vec<(f64, f64)> =
            lines.iter().filter(|t| t.vcpu == vcpu).map(|t| (t.clock + offset, value(t))).collect();
        Some(between(&points, to)? - between(&points, from)?)
    };
    Some((of(|t| t.steal)?, of(|t| t.busy)?))
}

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let mut starts = String::new();
    for name in VMS {
        starts += &Vm::new(name, 2, Runs::Linux { work_s: WORK_S }).start_line()?;
        starts.push('\n');
    }
    let before =
        format!("VMS=\"{}\" PERIOD={PERIOD_S}s\nstart_vms() {{\n{starts}}}", VMS.join(" "));
    let mut spec = spec(setting, &before, SCRIPT, 420);
    spec.topology = TWO_CPUS;
    let (mut report, outcome, records) = begin(Drill::Steal, &spec, archive, on)?;
    report.columns = vec![
        "vcpu",
        "tandem_waits_ms",
        "run_delay_ms",
        "guest_steal_ms",
        "guest-tandem_ms",
        "tandem_run_ms",
        "guest_busy_ms",
        "longest_wait_ms",
    ];
    if report.checks.iter().all(|c| c.ok) {
        compare(&mut report, &outcome, &records)?;
    }
    Ok(report)
}

fn compare(report: &mut Report, outcome: &BootOutcome, records: &[Record]) -> Result<()> {
    let document: views::Document =
        serde_json::from_str(&outcome.file("top.json")?).map_err(|e| unreadable("top.json", e))?;
    let run = document.runs.first().ok_or_else(|| unreadable("top.json", "no run in it"))?;
    let duration = run.duration_ns as f64 / 1e6;
    let time = |at: &str| {
        records
            .iter()
            .find(|r| r.kind == "time" && r.text("at") == at)
            .and_then(|r| r.number("ms"))
            .unwrap_or(0.0)
    };
    let (begin, end) = (time("begin"), time("end"));
    let (mut guest_off, mut kernel_off, mut missing, mut total) = (vec![], vec![], vec![], 0.0);
    for vm in &run.vms {
        let lines: Vec<Told> =
            outcome.file(&format!("{}.stamped", vm.name))?.lines().filter_map(told).collect();
        for vcpu in 0..2 {
            let Some(world) = vm.worlds.iter().find(|w| w.name == format!("vcpu{vcpu}")) else {
                continue;
            };
            // A co-stopped vCPU waits for its pCPU, too, as its guest and the kernel see it.
            let ready = (world.times.ready_ns + world.times.costop_ns) as f64 / 1e6;
            // The looks at the kernel's counters enclose top's span: in proportion.
            let delay =
                delay(records, &vm.name, vcpu).map(|ms| ms * duration / (end - begin).max(1.0));
            let Some(((steal, busy), delay)) =
                by_guest(&lines, vcpu, end - duration, end).zip(delay)
            else {
                missing.push(format!("{} vcpu{vcpu}", vm.name));
                continue;
            };
            total += ready;
            let longest = longest_wait(records, &vm.name, vcpu);
            let allowed = 2.0 * (TICK_MS + longest) + CLOCK * ready;
            guest_off.push(((steal - ready).abs(), allowed));
            kernel_off.push(((delay - ready).abs(), allowed));
            let ms = |n: f64| format!("{n:.0}");
            report.rows.push(vec![
                format!("{} vcpu{vcpu}", vm.name),
                ms(ready),
                ms(delay),
                ms(steal),
                ms(steal - ready),
                ms(world.times.run_ns as f64 / 1e6),
                ms(busy),
                ms(longest),
            ]);
        }
    }
    report.notes.push(format!(
        "over {duration:.0} ms; allowed per vCPU: at each end a tick of 10 ms and the longest wait \
            seen, under way and known to Tandem only; and {:.0} % for the clocks",
        CLOCK * 100.0
    ));
    report.check(
        "vCPUs told by Tandem, kernel and guest",
        missing.is_empty() && report.rows.len() == 2 * VMS.len(),
        format!("{} of {}", report.rows.len(), 2 * VMS.len()),
        "all",
    );
    report.check(
        "ready and co-stop in all (the guests did contend)",
        total > f64::from(PERIOD_S) * 1000.0,
        format!("{total:.0} ms"),
        format!("over {PERIOD_S} s"),
    );
    agree(report, "guest's steal against Tandem's ready and co-stop", &guest_off);
    agree(report, "kernel's run delay against Tandem's ready and co-stop", &kernel_off);
    Ok(())
}

fn agree(report: &mut Report, what: &str, off: &[(f64, f64)]) {
    let worst = off.iter().copied().max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (seen, allowed) = worst.unwrap_or((f64::INFINITY, 0.0));
    report.check(
        what,
        seen <= allowed,
        format!("{seen:.0} ms apart at most"),
        format!("{allowed:.0} ms"),
    );
}

/// Growth of the kernel's run delay of a vCPU thread between the two looks, in ms.
fn delay(records: &[Record], vm: &str, vcpu: u32) -> Option<f64> {
    let at = |at: &str| {
        let mut of = records
            .iter()
            .filter(|r| r.kind == "delay" && r.text("at") == at && r.text("vm") == vm);
        of.find(|r| r.count("vcpu") == Some(u64::from(vcpu)))?.number("delay_ns")
    };
    Some((at("end")? - at("begin")?) / 1e6)
}

/// The longest single wait of a vCPU by growth of its run delay, in ms.
fn longest_wait(records: &[Record], vm: &str, vcpu: u32) -> f64 {
    let name = format!("{vm}_{vcpu}");
    records
        .iter()
        .filter(|r| r.kind == "wait" && r.text("of") == name)
        .filter_map(|r| r.number("ns"))
        .fold(0.0, f64::max)
        / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_clock_is_placed_by_its_quickest_line_and_steal_interpolated() {
        let text = "40100 linux-guest: at 10.00 cpu0 busy=100 idle=4 steal=50\r\n\
            41000 linux-guest: at 11.00 cpu0 busy=150 idle=4 steal=100\n\
            42090 linux-guest: at 12.00 cpu0 busy=200 idle=4 steal=150\n\
            43050 linux-guest: at 13.00 cpu0 busy=250 idle=4 ste";
        let lines: Vec<Told> = text.lines().filter_map(told).collect();
        assert_eq!(lines.len(), 3);
        // Offset 30,000: the points lie at 40,000, 41,000 and 42,000.
        assert_eq!(by_guest(&lines, 0, 40_500.0, 41_500.0), Some((500.0, 500.0)));
        assert_eq!(by_guest(&lines, 0, 39_000.0, 41_500.0), None);
        assert_eq!(by_guest(&lines, 1, 40_500.0, 41_500.0), None);
    }
}
