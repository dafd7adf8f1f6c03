//! Drill "changes": a thousand changes of CPUs, of cpusets, of affinities and of VMs, one after the
//! other, while two VMs and host tasks stay: no thread is lost or stands still, no fresh load is
//! needed, the daemon follows, and in the end the host is divided as on the first day.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dice::Draw;

use super::record::Record;
use super::{Drill, Report, Setting, begin, rogue, spec};
use crate::archive::Archive;
use crate::boot::{GuestFile, Stream, Topology};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-changes");
const CHANGES: usize = 1000;
/// Changes between two looks.
const LOOK_EACH: usize = 25;
/// VMs of two vCPUs that stay, and the host tasks' threads that do: two busy, two that sleep.
const STAY: [&str; 2] = ["a", "b"];
const HOST_THREADS: usize = 4;
/// VMs that come and go, at once at most.
const MOST_VMS: usize = 3;
/// CPUs that stay on line at least. CPU 0 is one of them.
const LEAST_CPUS: usize = 3;
/// The last interval, in which nothing changes.
const LAST_S: u64 = 10;
/// What a busy thread gets of a CPU between two looks at least. On three CPUs all that is pinned
/// may meet on one: there a VM has 1,000 of 5,000 shares, so each of its two threads a tenth; and
/// half of that, for the plan of an interval in which all changes is always a little old.
const LEAST_PART: f64 = 0.05;
/// A thread that sleeps most of the time runs so long between two looks at least.
const LEAST_NS: u64 = 1_000_000;
/// A VM that lived so long has been found and has run.
const SERVED_AFTER_MS: u64 = 2000;
/// What VMs of equal shares may differ by in the last interval: two quanta of 50 ms at each end,
/// of 10 s of CPU time at least.
const APART: f64 = 0.02;

/// A set of CPUs, as files and tools take it, from three bits up.
fn cpus(random: &mut Draw, of: usize) -> String {
    let first = random.below(of as u64 - 1);
    let last = first + 1 + random.below(of as u64 - first - 1);
    format!("{first}-{last}")
}

/// The script's lines for a seed: `CHANGES` changes, looks and pauses; all is as before in the end.
fn lines(seed: u64, topology: Topology) -> String {
    let count = topology.cpus() as usize;
    let mut random = Draw::new(seed);
    let mut online = vec![true; count];
    let mut come: Vec<usize> = vec![];
    let mut next = 0;
    let mut text = String::new();
    for n in 1..=CHANGES {
        let cpu = 1 + random.below(count as u64 - 1) as usize;
        match random.below(8) {
            0..3 if !online[cpu] || online.iter().filter(|o| **o).count() > LEAST_CPUS => {
                online[cpu] = !online[cpu];
                let _ = writeln!(text, "cpu {cpu} {}", u8::from(online[cpu]));
            }
            3..5 if come.len() < MOST_VMS => {
                let _ = writeln!(text, "start v{next} {}", 1 + random.below(4));
                come.push(next);
                next += 1;
            }
            3..6 if !come.is_empty() => {
                let vm = come.remove(random.below(come.len() as u64) as usize);
                let _ = writeln!(text, "stop v{vm}");
            }
            6 => {
                let task = ["busy", "other", "sleeper"][random.below(3) as usize];
                let _ = writeln!(text, "affinity {task} {}", cpus(&mut random, count));
            }
            _ => {
                let group = ["a", "b", "h"][random.below(3) as usize];
                let _ = writeln!(text, "cpuset {group} {}", cpus(&mut random, count));
            }
        }
        if random.below(2) == 0 {
            let _ = writeln!(text, "pause 0.{:02}", random.below(30));
        }
        if n % LOOK_EACH == 0 {
            text += "pause 1\nlook\n";
        }
    }
    come.iter().for_each(|vm| text += &format!("stop v{vm}\n"));
    let off = (0..count).filter(|c| !online[*c]);
    off.for_each(|c| text += &format!("cpu {c} 1\n"));
    let all = format!("0-{}", count - 1);
    ["a", "b", "h"].iter().for_each(|g| text += &format!("cpuset {g} {all}\n"));
    ["busy", "other", "sleeper"].iter().for_each(|t| text += &format!("affinity {t} {all}\n"));
    text
}

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let before = format!("STAY=\"{}\" LAST={LAST_S}", STAY.join(" "));
    let mut spec = spec(setting, &before, SCRIPT, 3600);
    let text = lines(setting.seed, spec.topology);
    let wanted = text.lines().filter(|l| !l.starts_with("pause") && *l != "look").count();
    spec.files.push(GuestFile::text("/lab/in/changes", &text));
    spec.files.extend(rogue::build(archive, rogue::TENANT, &["tenant", "qemu-system-tenant"])?);
    let cpus = spec.topology.cpus();
    let (mut report, _, records) = begin(Drill::Changes, &spec, archive, on)?;
    judge(&mut report, &records, wanted, cpus);
    Ok(report)
}

/// What each thread ran, look by look; `None` where it was gone.
type Ran<'r> = BTreeMap<&'r str, Vec<(u64, Option<u64>)>>;

fn ran(records: &[Record]) -> Ran<'_> {
    let mut all = Ran::new();
    for r in records.iter().filter(|r| r.kind == "ran") {
        let at = r.count("at_ms").unwrap_or(0);
        all.entry(r.text("who")).or_default().push((at, r.count("ns")));
    }
    all
}

fn judge(report: &mut Report, records: &[Record], wanted: usize, cpus: u32) {
    let threads = ran(records);
    report.columns = vec!["thread", "looks", "least_ms", "least_percent", "last_percent"];
    let (mut lost, mut stood) = (vec![], vec![]);
    for (who, looks) in &threads {
        let (mut least, mut part, mut last) = (u64::MAX, f64::MAX, 0.0);
        for pair in looks.windows(2) {
            let (Some(from), Some(to)) = (pair[0].1, pair[1].1) else {
                lost.push((*who).to_owned());
                break;
            };
            let ns = to.saturating_sub(from);
            last = ns as f64 / 1e4 / (pair[1].0 - pair[0].0).max(1) as f64;
            (least, part) = (least.min(ns), part.min(last));
        }
        let sleeps = who.starts_with("sleeper");
        if least < LEAST_NS || !sleeps && part < 100.0 * LEAST_PART {
            stood.push((*who).to_owned());
        }
        report.rows.push(vec![
            (*who).to_owned(),
            looks.len().to_string(),
            (least / 1_000_000).to_string(),
            format!("{part:.1}"),
            format!("{last:.1}"),
        ]);
    }
    report.notes.push("least_ms, least_percent: between two looks".to_owned());
    let none = |list: &[String]| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let stay = 2 * STAY.len() + HOST_THREADS;
    let seen = threads.len();
    report.check("threads watched", seen == stay, seen.to_string(), stay.to_string());
    report.check("threads lost", lost.is_empty(), none(&lost), "none");
    report.check(
        format!("busy threads that got less than {:.0} % between two looks", 100.0 * LEAST_PART),
        stood.is_empty(),
        none(&stood),
        "none",
    );
    daemon(report, records, wanted, cpus);
    vms(report, records);
    last(report, &threads);
}

/// The daemon stays, without a fresh load, and knows in the end what there is.
fn daemon(report: &mut Report, records: &[Record], wanted: usize, cpus: u32) {
    let looks: Vec<&Record> = records.iter().filter(|r| r.kind == "daemon").collect();
    let is_up = |r: &&Record| r.text("up") == "yes" && r.text("state") == "enabled";
    let up = looks.iter().filter(|r| is_up(r)).count();
    let ok = up == looks.len() && up > CHANGES / LOOK_EACH;
    report.check(
        "looks that found daemon and scheduler",
        ok,
        up.to_string(),
        looks.len().to_string(),
    );
    let made = looks.last().and_then(|r| r.count("changes")).unwrap_or(0);
    let refused = looks.last().map_or("", |r| r.text("refused"));
    report.notes.push(format!("{refused} affinities refused by the kernel: all off line"));
    report.check("changes made", made == wanted as u64, made.to_string(), wanted.to_string());
    let m = records.iter().find(|r| r.kind == "metrics");
    let seen = ["loads", "asserts", "vms", "pcpus"].map(|key| m.map_or("", |r| r.text(key)));
    let allowed = format!("1, 0, {}, {cpus}", STAY.len());
    report.check(
        "loads, failed assertions, VMs and pCPUs in the end",
        seen.join(", ") == allowed,
        seen.join(", "),
        allowed,
    );
    let off = m.and_then(|r| r.count("off")).unwrap_or(0);
    report.check("times the daemon says that a pCPU is off line", off > 0, off.to_string(), "some");
}

/// VMs that came and went.
fn vms(report: &mut Report, records: &[Record]) {
    let all: Vec<&Record> = records.iter().filter(|r| r.kind == "vm").collect();
    let long = |r: &&&Record| r.count("lived_ms").unwrap_or(0) >= SERVED_AFTER_MS;
    let bad = |r: &&&Record| {
        r.text("died_before") != "no" || r.count("usage_us").unwrap_or(0) < LEAST_NS / 1000
    };
    let judged = all.iter().filter(long).count();
    let unserved: Vec<&str> = all.iter().filter(long).filter(bad).map(|r| r.text("name")).collect();
    report.check(
        format!(
            "of {} VMs that came, {judged} for {SERVED_AFTER_MS} ms, those that did not run",
            all.len()
        ),
        unserved.is_empty() && judged > 0,
        if unserved.is_empty() { "none".to_owned() } else { unserved.join(", ") },
        "none",
    );
}

/// In the last interval nothing changes: VMs of equal shares and of equal demand get the same.
fn last(report: &mut Report, threads: &Ran<'_>) {
    let of = |vm: &str| -> Option<f64> {
        let own = threads.iter().filter(|(who, _)| who.split('.').next() == Some(vm));
        let last = |looks: &Vec<(u64, Option<u64>)>| {
            let [from, to] = looks.last_chunk::<2>()?;
            Some((to.1? - from.1?) as f64)
        };
        own.map(|(_, looks)| last(looks)).sum::<Option<f64>>().filter(|ns| *ns > 0.0)
    };
    let both = of(STAY[0]).zip(of(STAY[1]));
    report.check(
        format!("VM {} beside VM {} in the last {LAST_S} s", STAY[0], STAY[1]),
        both.is_some_and(|(a, b)| (a / b - 1.0).abs() <= APART),
        both.map_or("not seen".to_owned(), |(a, b)| format!("{:.4}", a / b)),
        format!("1 ± {APART}"),
    );
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    #[test]
    fn changes_repeat_by_seed_keep_some_cpus_and_end_as_they_began() {
        for seed in 0..20 {
            let text = lines(seed, Topology::SMALL);
            assert_eq!(text, lines(seed, Topology::SMALL));
            let (mut off, mut vms) = (vec![], vec![]);
            for line in text.lines() {
                let words: Vec<&str> = line.split(' ').collect();
                match words[..] {
                    ["cpu", n, "0"] => off.push(n),
                    ["cpu", n, "1"] => off.retain(|o| *o != n),
                    ["start", vm, _] => vms.push(vm),
                    ["stop", vm] => vms.retain(|v| *v != vm),
                    _ => {}
                }
                assert!(off.len() <= 8 - LEAST_CPUS && !off.contains(&"0"), "{line}");
                assert!(vms.len() <= MOST_VMS, "{line}");
            }
            assert!(off.is_empty() && vms.is_empty());
            let of = |word: &str| text.lines().filter(|l| l.starts_with(word)).count();
            let kinds = ["cpu ", "cpuset", "affinity", "start", "stop"].map(of);
            assert!(kinds.iter().all(|n| *n > 50), "{kinds:?} of seed {seed}");
        }
    }

    fn console(stood: u64, gone: &str, loads: u32, vms: u32, b_ns: u64) -> String {
        let mut text = String::new();
        for look in 0..=CHANGES / LOOK_EACH + 1 {
            let at = look * 10_000;
            let _ = writeln!(text, "drill: daemon look={look} up=yes state=enabled changes=1000");
            for thread in ["a.1", "a.2", "b.3", "b.4", "busy.5", "other.6", "sleeper.7"] {
                let each = if thread.starts_with('b') { b_ns } else { 5_000_000_000 };
                let ns = look as u64 * each;
                let _ = writeln!(text, "drill: ran at_ms={at} who={thread} ns={ns}");
            }
            let ns = look as u64 * stood;
            let ns = if gone.is_empty() { ns.to_string() } else { gone.to_owned() };
            let _ = writeln!(text, "drill: ran at_ms={at} who=sleeper.8 ns={ns}");
        }
        text + "drill: vm name=v1 lived_ms=3000 usage_us=2000 died_before=no\n"
            + &format!("drill: metrics vms={vms} pcpus=8 asserts=0 loads={loads} off=3\n")
    }

    #[test]
    fn a_thread_lost_or_standing_a_fresh_load_and_an_unfair_end_are_seen() {
        let failed = |text: &str| {
            let mut report = Report::of_no_boot("changes");
            judge(&mut report, &records(text), 1000, 8);
            report.checks.iter().filter(|c| !c.ok).count()
        };
        let usual = 5_000_000_000;
        assert_eq!(failed(&console(1_000_000, "", 1, 2, usual)), 0);
        assert_eq!(failed(&console(999_999, "", 1, 2, usual)), 1);
        assert_eq!(failed(&console(1_000_000, "gone", 1, 2, usual)), 1);
        assert_eq!(failed(&console(1_000_000, "", 2, 2, usual)), 1);
        assert_eq!(failed(&console(1_000_000, "", 1, 3, usual)), 1);
        assert_eq!(failed(&console(1_000_000, "", 1, 2, usual / 2)), 1);
        assert_eq!(failed(&console(1_000_000, "", 1, 2, usual / 11)), 2);
        assert_eq!(failed(""), 7);
    }
}
