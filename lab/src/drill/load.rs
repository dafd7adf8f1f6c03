//! Drill "load": how long the kernel takes to verify the scheduler and to hand it all tasks, on an
//! idle host of 8 CPUs and on a full one.

use super::{Drill, IDLE_CONTROL, Report, SLOWNESS, Setting, begin, dilation, spec};
use crate::archive::Archive;
use crate::boot::Stream;
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-load");
/// Loads on each kind of host.
const LOADS: u32 = 5;
/// One for each CPU; the loader and the script come on top.
const BURNERS: u32 = 8;
/// A host that comes up must not wait longer for its scheduler, not even an emulated one; 5.2 to
/// 7.0 s there on kernel 7.3, most of which the kernel's verifier spends by the size of the
/// programs (its analysis of the stack, and rewriting), not by the ways through them.
const LIMIT_MS: f64 = 10_000.0;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let mut spec =
        spec(setting, &format!("{IDLE_CONTROL}\nLOADS={LOADS} BURNERS={BURNERS}"), SCRIPT, 600);
    spec.kvm_inside = false;
    let (mut report, _, records) = begin(Drill::Load, &spec, archive, on)?;
    report.columns = vec!["host", "load", "verified_ms", "enabled_ms", "daemon_says_s", "slowness"];
    let loads: Vec<_> = records.iter().filter(|r| r.kind == "load").collect();
    for r in &loads {
        let mut row = ["host", "n", "verify_ms", "load_ms", "daemon_s"]
            .map(|k| r.text(k).to_owned())
            .to_vec();
        row.push(format!("{:.1}", dilation(&records, r)));
        report.rows.push(row);
    }
    report.notes.push(
        "verified_ms: from the start of the process until the kernel begins to switch tasks; \
            enabled_ms: until all are switched"
            .into(),
    );
    report.notes.push(SLOWNESS.into());
    for host in ["idle", "loaded"] {
        let of = loads.iter().filter(|r| r.text("host") == host);
        let times: Vec<(f64, f64)> =
            of.filter_map(|r| Some((r.number("load_ms")?, dilation(&records, r)))).collect();
        report.check(
            format!("loads on the {host} host"),
            times.len() == LOADS as usize,
            times.len().to_string(),
            LOADS.to_string(),
        );
        report.at_most(&format!("from start to enabled, {host} host"), &times, LIMIT_MS);
    }
    Ok(report)
}
