//! Drill "storm": VMs of 1 to 4 vCPUs come and go at random for a minute under one daemon, some
//! killed before their firmware is through; the daemon must stay, free every slot, show no ghost
//! and serve all that live long enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use dice::Draw;
use serde_json::Value;

use super::record::Record;
use super::{Drill, Report, Setting, begin, spec, unreadable};
use crate::archive::Archive;
use crate::boot::{BootOutcome, GuestFile, Stream};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-storm");
const STORM_MS: u64 = 60_000;
/// At once, in all: more vCPUs than CPUs, and memory for all.
const MOST_VMS: usize = 6;
const MOST_VCPUS: u64 = 14;
/// A VM that lived so long must have run; QEMU alone takes a second or two to come up here.
const SERVED_AFTER_MS: u64 = 3000;
const SERVED_LEAST_US: u64 = 50_000;
const LAST: [&str; 3] = ["x1", "x2", "x3"];
const ORDERS: [&str; 4] =
    ["all:burn", "all:duty,3000,5000", "all:io,500,2000,exp", "0:burn 1-3:periodic,10000,2000"];

/// One VM of the storm.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Life {
    name: String,
    vcpus: u64,
    from_ms: u64,
    to_ms: u64,
}

/// The lives of a storm, by seed: three in ten die within two seconds, two in ten live up to
/// twenty.
fn lives(seed: u64) -> Vec<Life> {
    let mut random = Draw::new(seed);
    let mut all: Vec<Life> = vec![];
    let mut at = 0;
    while at < STORM_MS {
        let now: Vec<&Life> = all.iter().filter(|l| l.to_ms > at).collect();
        let vcpus = 1 + random.below(4);
        if now.len() < MOST_VMS && now.iter().map(|l| l.vcpus).sum::<u64>() + vcpus <= MOST_VCPUS {
            let lived = match random.below(10) {
                0..3 => 200 + random.below(1800),
                3..8 => 2000 + random.below(6000),
                _ => 8000 + random.below(12_000),
            };
            all.push(Life {
                name: format!("v{}", all.len()),
                vcpus,
                from_ms: at,
                to_ms: at + lived,
            });
        }
        at += 500 + random.below(1500);
    }
    all
}

/// The script's events; lives that outlast the storm have no stop.
fn events(lives: &[Life], seed: u64) -> String {
    let mut random = Draw::new(!seed);
    let mut all: Vec<(u64, String)> = vec![];
    for life in lives {
        let orders = ORDERS[random.below(ORDERS.len() as u64) as usize];
        // "1-3" of a smaller VM is refused by the workload kernel.
        let orders = if life.vcpus < 4 && orders.contains("1-3") { "all:burn" } else { orders };
        all.push((
            life.from_ms,
            format!("start {} {} report=1000 {orders}", life.name, life.vcpus),
        ));
        let signal = if random.below(3) == 0 { "TERM" } else { "KILL" };
        if life.to_ms < STORM_MS {
            all.push((life.to_ms, format!("stop {} {signal}", life.name)));
        }
    }
    all.sort();
    all.iter().fold(String::new(), |mut text, (ms, what)| {
        let _ = writeln!(text, "{ms} {what}");
        text
    })
}

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let lives = lives(setting.seed);
    let mut spec = spec(setting, &format!("LAST=\"{}\"", LAST.join(" ")), SCRIPT, 420);
    spec.files.push(GuestFile::text("/lab/in/events", &events(&lives, setting.seed)));
    let (mut report, outcome, records) = begin(Drill::Storm, &spec, archive, on)?;
    report.notes.push(format!(
        "seed {}: {} VMs, {} vCPUs in all",
        setting.seed,
        lives.len(),
        lives.iter().map(|l| l.vcpus).sum::<u64>()
    ));
    vms(&mut report, &records, lives.len());
    let at = |moment: &str| records.iter().find(|r| r.kind == "daemon" && r.text("at") == moment);
    for moment in ["storm", "end"] {
        let seen = at(moment).map_or("not seen".to_owned(), |r| {
            format!("up {}, sched_ext {}", r.text("up"), r.text("state"))
        });
        report.check(
            format!("daemon after the {moment}"),
            seen == "up yes, sched_ext enabled",
            seen,
            "up yes, sched_ext enabled",
        );
    }
    if report.checks.iter().any(|c| c.what == "the drill ran to its end" && c.ok) {
        slots(&mut report, &outcome)?;
        documents(&mut report, &outcome)?;
    }
    Ok(report)
}

/// The table of VMs, and the check that all that lived long enough ran.
fn vms(report: &mut Report, records: &[Record], started: usize) {
    report.columns = vec!["vm", "vcpus", "lived_ms", "cpu_ms", "threads", "least_vcpu_ms"];
    let stopped: Vec<&Record> = records.iter().filter(|r| r.kind == "vm").collect();
    let (mut unserved, mut judged, mut dead) = (vec![], 0, vec![]);
    for r in &stopped {
        let least =
            r.text("ran").split(',').filter_map(|n| n.parse::<u64>().ok()).min().unwrap_or(0);
        let (lived, used) = (r.count("lived_ms").unwrap_or(0), r.count("usage_us").unwrap_or(0));
        let vm = r.text("name").to_owned();
        report.rows.push(vec![
            vm.clone(),
            r.text("vcpus").into(),
            lived.to_string(),
            (used / 1000).to_string(),
            r.text("threads").into(),
            (least / 1_000_000).to_string(),
        ]);
        if r.text("died_before") == "yes" {
            dead.push(vm.clone());
        }
        if lived > SERVED_AFTER_MS {
            judged += 1;
            if used < SERVED_LEAST_US || r.count("threads") != r.count("vcpus") {
                unserved.push(vm);
            }
        }
    }
    let none = |list: &[String]| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    report.check(
        "VMs started and ended",
        stopped.len() == started,
        stopped.len().to_string(),
        started.to_string(),
    );
    report.check("VMs that died by themselves", dead.is_empty(), none(&dead), "none");
    report.check(
        format!(
            "of {judged} VMs that lived over {SERVED_AFTER_MS} ms, those without all vCPUs or \
            {} ms of CPU",
            SERVED_LEAST_US / 1000
        ),
        unserved.is_empty() && judged > 0,
        none(&unserved),
        "none",
    );
}

/// Slots as the daemon's names file had them over time.
fn slots(report: &mut Report, outcome: &BootOutcome) -> Result<()> {
    let mut users: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in outcome.file("slots.txt")?.lines() {
        let Ok(names) = serde_json::from_str::<Value>(line) else { continue };
        for vm in names["vms"].as_array().into_iter().flatten() {
            users
                .entry(vm["id"].as_u64().unwrap_or(0))
                .or_default()
                .insert(vm["name"].as_str().unwrap_or("").to_owned());
        }
    }
    let highest = users.keys().max().copied().unwrap_or(0);
    let reused = users.values().filter(|names| names.len() > 1).count();
    let seen: usize = users.values().map(BTreeSet::len).sum();
    // A slot is free a scan (0.5 s) after its last thread has gone: a few more than VMs at once.
    let allowed = MOST_VMS as u64 + 4;
    report.check(
        "highest slot in use",
        highest > 0 && highest <= allowed,
        format!("{highest}, {reused} slots with several users, {seen} VMs seen in them"),
        format!("at most {allowed}"),
    );
    let last: Value = serde_json::from_str(&outcome.file("last-slots.json")?)
        .map_err(|e| unreadable("last-slots.json", e))?;
    let ids: BTreeSet<u64> =
        last["vms"].as_array().into_iter().flatten().filter_map(|v| v["id"].as_u64()).collect();
    report.check(
        "slots of the three VMs after the storm",
        ids == BTreeSet::from([1, 2, 3]),
        format!("{ids:?}"),
        "{1, 2, 3}, as on a fresh host",
    );
    Ok(())
}

/// `tandem top` on the empty host, and with the last three VMs.
fn documents(report: &mut Report, outcome: &BootOutcome) -> Result<()> {
    let read = |name: &str| -> Result<views::Document> {
        serde_json::from_str(&outcome.file(name)?).map_err(|e| unreadable(name, e))
    };
    let (empty, last) = (read("empty.json")?, read("last.json")?);
    let ghosts: Vec<&str> =
        empty.runs.iter().flat_map(|r| &r.vms).map(|v| v.name.as_str()).collect();
    report.check(
        "VMs that top shows on the empty host",
        ghosts.is_empty(),
        format!("{ghosts:?}"),
        "none",
    );
    let vms: Vec<&views::Vm> = last.runs.iter().flat_map(|r| &r.vms).collect();
    let names: BTreeSet<&str> = vms.iter().map(|v| v.name.as_str()).collect();
    report.check(
        "VMs that top shows at the end",
        vms.len() == LAST.len() && names == BTreeSet::from(LAST),
        format!("{names:?}"),
        format!("{LAST:?}"),
    );
    let duration = last.runs.first().map_or(0, |r| r.duration_ns);
    let mut bad = vec![];
    for vm in &vms {
        let vcpus: BTreeSet<&str> = vm
            .worlds
            .iter()
            .filter(|w| w.kind == views::WorldKind::Vcpu)
            .map(|w| w.name.as_str())
            .collect();
        let life = |w: &views::World| {
            w.times.run_ns + w.times.ready_ns + w.times.costop_ns + w.times.wait_ns
        };
        // Two readings of a clock a moment apart, and top's own rounds of 100 ms.
        let whole = vm
            .worlds
            .iter()
            .filter(|w| w.kind == views::WorldKind::Vcpu)
            .all(|w| life(w).abs_diff(duration) < 100_000_000);
        let kernel = vm.cpu_stat.map_or(0, |s| s.kernel_ns);
        let agrees = vm.times.used_ns.abs_diff(kernel) * 20 <= kernel;
        if vcpus != BTreeSet::from(["vcpu0", "vcpu1"]) || !whole || !agrees || vm.times.used_ns == 0
        {
            bad.push(format!(
                "{}: vCPUs {vcpus:?}, used {} ms, cgroup {} ms",
                vm.name,
                vm.times.used_ns / 1_000_000,
                kernel / 1_000_000
            ));
        }
    }
    report.check(
        "their worlds: two vCPUs each, whole lives, used within 5 % of the cgroup's",
        bad.is_empty(),
        if bad.is_empty() { "all".to_owned() } else { bad.join("; ") },
        "all",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_repeats_by_seed_and_stays_within_its_bounds() {
        for seed in 0..50 {
            let all = lives(seed);
            assert_eq!(all, lives(seed));
            assert!(all.len() > 20, "{} VMs of seed {seed}", all.len());
            for l in &all {
                let now: Vec<&Life> =
                    all.iter().filter(|o| o.from_ms <= l.from_ms && o.to_ms > l.from_ms).collect();
                assert!(
                    now.len() <= MOST_VMS && now.iter().map(|o| o.vcpus).sum::<u64>() <= MOST_VCPUS
                );
            }
        }
    }

    #[test]
    fn every_start_has_at_most_one_stop_and_stops_come_later() {
        let text = events(&lives(7), 7);
        let mut running = BTreeSet::new();
        let mut last = 0;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let at: u64 = words[0].parse().unwrap();
            assert!(at >= last && at < STORM_MS);
            last = at;
            assert!(
                if words[1] == "start" {
                    running.insert(words[2])
                } else {
                    running.remove(words[2])
                },
                "{line}"
            );
        }
    }
}
