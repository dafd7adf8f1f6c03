//! Drill "settings": two busy VMs in a pool on two pCPUs, and settings that change while they run:
//! `cpu.weight` and `cpu.max` as libvirt and systemd write them, the settings file, one that is
//! refused, one that is read half written, and a pool that goes. Each must be in force within a
//! second, and be what the VMs then get.

use super::record::Record;
use super::{Drill, IDLE_CONTROL, Report, SLOWNESS, Setting, TWO_CPUS, begin, dilation, spec};
use crate::archive::Archive;
use crate::boot::{Accel, Stream};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-settings");
/// The daemon looks twice a second.
const LIMIT_MS: f64 = 1000.0;
/// Changes, in order.
const CHANGES: [&str; 8] =
    ["found", "cpu.weight", "cpu.max", "lifted", "file", "refused", "half", "gone"];
/// What VM a shall use for each unit that VM b does.
const RATIOS: [(&str, f64); 3] = [("weighed", 3.0), ("limited", 3.0), ("file", 1.0 / 3.0)];
/// By how much the ratio may be off, in four seconds: two quanta are 2.5 %.
const RATIO_OFF: f64 = 0.025;
/// Half a pCPU, and how much of it the pool gets at least: a quantum of four seconds is 1.3 %.
const LIMIT: (f64, f64) = (0.5, 0.98);
/// Over four seconds; what is saved up when they begin is a hundredth of half a pCPU in a second.
const LIMIT_OVER: f64 = 1.01;
/// RUN begins and ends with the pick, CPU time a little later and earlier: some microseconds of a
/// run of 2 ms. A kernel that loses CPU time (`sched/account/charge.h`) is 40 % off if that is not
/// mended.
const RUN_OFF: f64 = 0.003;

/// BPF and PERFMON (bits 39 and 38), SYS_PTRACE (19), DAC_READ_SEARCH (2).
const CAPABILITIES: &str = "000000c000080004";

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let mut spec = spec(setting, IDLE_CONTROL, SCRIPT, 900);
    spec.topology = TWO_CPUS;
    spec.accel = Accel::EXACT;
    let (mut report, _, records) = begin(Drill::Settings, &spec, archive, on)?;
    report.columns = vec!["change", "in_force_ms", "slowness"];
    report.notes.push(SLOWNESS.into());
    changes(&mut report, &records);
    for (name, ratio) in RATIOS {
        amounts(&mut report, &records, name, ratio);
    }
    let reload = |name: &str| records.iter().find(|r| r.kind == "reload" && r.text("name") == name);
    let code = |name: &str| reload(name).map_or("none", |r| r.text("code")).to_owned();
    report.check(
        "exit code of 'tandem reload', a file that is taken over",
        code("file") == "0",
        code("file"),
        "0",
    );
    report.check(
        "exit code of 'tandem reload', a limit below the reservation",
        code("refused") == "3",
        code("refused"),
        "3",
    );
    let before =
        records.iter().find(|r| r.kind == "before").map_or("none", |r| r.text("generation"));
    let after = reload("refused").map_or("", |r| r.text("generation"));
    report.check(
        "plan in force after a refusal",
        before == after,
        format!("generation {after}"),
        format!("generation {before}"),
    );
    at_the_end(&mut report, &records);
    Ok(report)
}

/// The daemon when every pool has gone.
fn at_the_end(report: &mut Report, records: &[Record]) {
    let daemon = records.iter().find(|r| r.kind == "daemon");
    let is = |key: &str, value: &str| daemon.is_some_and(|r| r.text(key) == value);
    let doctor = records.iter().find(|r| r.kind == "doctor");
    let fit = doctor.is_some_and(|r| r.text("code") == "0" && r.text("load") == "1");
    report.check(
        "'tandem doctor' before all, which loads",
        fit,
        if fit { "fit" } else { "not" },
        "fit",
    );
    let up = is("up", "yes") && is("state", "enabled");
    report.check("the daemon when every pool has gone", up, if up { "up" } else { "gone" }, "up");
    let of = |key: &str| daemon.map_or("none", |r| r.text(key)).to_owned();
    report.check("its capabilities", is("caps", CAPABILITIES), of("caps"), CAPABILITIES);
    let hooked = is("unhooked", "0");
    report.check("its hooks of KVM", hooked, if hooked { "there" } else { "missing" }, "there");
    report.check("mode of /run/tandem", is("run_dir", "700"), of("run_dir"), "700");
}

fn changes(report: &mut Report, records: &[Record]) {
    let of = |name: &str| records.iter().find(|r| r.kind == "change" && r.text("name") == name);
    let mut missing = vec![];
    let mut times = vec![];
    for name in CHANGES {
        let Some(r) = of(name).filter(|r| r.text("seen") == "yes") else {
            missing.push(name);
            continue;
        };
        let slowness = dilation(records, r);
        report.rows.push(vec![name.to_owned(), r.text("ms").to_owned(), format!("{slowness:.1}")]);
        times.extend(r.number("ms").map(|ms| (ms, slowness)));
    }
    let seen = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
    report.check("changes that did not come into force", missing.is_empty(), seen, "none");
    report.at_most("until a change is in force", &times, LIMIT_MS);
}

/// What the VMs used after a change.
fn amounts(report: &mut Report, records: &[Record], name: &str, ratio: f64) {
    let used = records.iter().find(|r| r.kind == "used" && r.text("name") == name);
    let number = |key: &str| used.and_then(|r| r.number(key)).unwrap_or(0.0);
    let (a, b, ms) = (number("a_us"), number("b_us"), number("ms"));
    let seen = a / b.max(1.0);
    report.check(
        format!("a : b after '{name}'"),
        (seen / ratio - 1.0).abs() <= RATIO_OFF,
        format!("{seen:.2}"),
        format!("{:.2} to {:.2}", ratio * (1.0 - RATIO_OFF), ratio * (1.0 + RATIO_OFF)),
    );
    if name == "limited" {
        let pcpus = (a + b) / 1000.0 / ms.max(1.0);
        let ok = pcpus <= LIMIT.0 * LIMIT_OVER && pcpus >= LIMIT.0 * LIMIT.1;
        let allowed = format!("{:.3} to {:.3}", LIMIT.0 * LIMIT.1, LIMIT.0 * LIMIT_OVER);
        report.check(
            "pCPUs that the pool uses below its limit",
            ok,
            format!("{pcpus:.3}"),
            allowed,
        );
        let run = number("run_us") / (a + b).max(1.0) - 1.0;
        report.check(
            "time in RUN beyond CPU time by cpu.stat, below the limit",
            run.abs() <= RUN_OFF,
            format!("{:.2} %", run * 100.0),
            format!("at most {:.1} % either way", RUN_OFF * 100.0),
        );
    }
}
