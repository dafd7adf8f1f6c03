//! Drill "homes": VMs whose memory is all in one node when Tandem begins get home nodes, run in
//! them, and their memory follows; beside it the same VMs under the kernel's own scheduler with its
//! NUMA balancing. On a host of two nodes and on one of four. On the former also a wide VM, one
//! that is pinned, one whose memory is bound, two that wake each other, one that timers wake, and
//! three of which no node has room for the third. On one node of two LLCs VMs that ask for few or
//! all of them. Briefly: two VMs that start on a host of two nodes of one core of two threads, by
//! which they are divided.

use super::record::Record;
use super::{Drill, Report, Setting, begin, spec};
use crate::archive::Archive;
use crate::boot::{Stream, Topology};
use crate::error::Result;

const SCRIPT: &str =
    concat!(include_str!("../../guest/homes-lib"), include_str!("../../guest/drill-homes"));
const OF_LLCS: &str =
    concat!(include_str!("../../guest/homes-lib"), include_str!("../../guest/drill-llcs"));
/// VMs, in a brief drill the first two, of two vCPUs each: together they have one for each pCPU.
const VMS: [&str; 4] = ["a", "b", "c", "d"];
const BRIEF: usize = 2;
const VCPUS: u32 = 2;
const PCPUS: u32 = 8;
const MEGABYTES: u32 = 32;
/// From the load on, in seconds: homes change in the planner's first three rounds, and 30 s after
/// that memory has followed.
const SETTLE_S: u32 = 36;
/// Looks at where vCPUs run, 50 ms apart; half as many in a brief drill.
const LOOKS: u32 = 100;
/// vCPUs of the wide VM; a part of it has half of them.
const WIDE: u32 = 6;
/// vCPUs of a VM that asks for few LLCs of four pCPUs, and of one that asks for all.
const FEW: u32 = 3;
const ALL: u32 = 4;
/// Where the VM that is pinned may run: in node 1 of two.
const PINNED: u32 = 5;
/// Work and halt, in us, of VMs that wake each other between two looks for a byte.
const CHAT: &str = "100,1000";
/// Time between wake-ups and work, in us, of a VM that only timers wake.
const TIMED: &str = "5000,1000";
/// VMs of which no node has room for the third, and vCPUs of each: nine on two nodes of four pCPUs.
const ROAMERS: [&str; 3] = ["r", "s", "q"];
const ROAM: u32 = 3;
/// CPU time of the one that has least, of that with most: two of three for ever in one node have
/// two thirds, and the threads of emulators and drill have their part.
const ROAMED: f64 = 0.8;
/// Of the looks at a VM's vCPUs, those that find them in one node.
const AT_HOME: f64 = 0.99;
/// What others may take meanwhile of the 16th of a node that is kept free, in KiB.
const KEPT_KIB: u64 = 16 << 10;
/// Of a VM's memory, what is in that node.
const LOCAL: f64 = 0.95;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let mut all = one(setting, archive, on, 2)?;
    if setting.brief {
        return Ok(all);
    }
    let four = one(setting, archive, on, 4)?;
    all.rows.extend(four.rows);
    all.checks.extend(four.checks);
    all.checks.extend(llcs(setting, archive, on)?.checks);
    Ok(all)
}

fn one(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
    nodes: u32,
) -> Result<Report> {
    let vms = if setting.brief { &VMS[..BRIEF] } else { &VMS };
    let pcpus = VCPUS * vms.len() as u32;
    let before = format!(
        "VMS=\"{}\" VCPUS={VCPUS} MEGABYTES={MEGABYTES} NODES={nodes} SETTLE={SETTLE_S} \
            LOOKS={} WIDE={WIDE} CHAT={CHAT} TIMED={TIMED} PINNED={:x} ALL={:x} ROAM={ROAM} \
            ROAMERS=\"{}\" BRIEF={}",
        vms.join(" "),
        if setting.brief { LOOKS / 2 } else { LOOKS },
        1 << PINNED,
        (1u32 << pcpus) - 1,
        ROAMERS.join(" "),
        if setting.brief { "yes" } else { "" }
    );
    let mut spec = spec(setting, &before, SCRIPT, 900);
    let threads = if setting.brief { pcpus / nodes } else { 1 };
    let cores_per_socket = pcpus / nodes / threads;
    spec.topology = Topology { sockets: nodes, nodes, cores_per_socket, threads };
    let (mut report, _, records) = begin(Drill::Homes, &spec, archive, on)?;
    judge(&mut report, &records, nodes, setting.brief);
    if nodes == 2 && !setting.brief {
        judge_held(&mut report, &records);
        judge_talks(&mut report, &records);
        judge_roamers(&mut report, &records);
    }
    Ok(report)
}

/// One node of two LLCs.
fn llcs(setting: &Setting, archive: &Archive, on: &mut dyn FnMut(Stream, &str)) -> Result<Report> {
    let before = format!("NODES=2 LOOKS={LOOKS} FEW={FEW} ALL={ALL}");
    let mut spec = spec(setting, &before, OF_LLCS, 600);
    spec.topology = Topology { sockets: 2, nodes: 1, cores_per_socket: PCPUS / 2, threads: 1 };
    let (mut report, _, records) = begin(Drill::Homes, &spec, archive, on)?;
    judge_llcs(&mut report, &records);
    Ok(report)
}

/// A VM that asks for few LLCs, and one that asks for all.
fn judge_llcs(report: &mut Report, records: &[Record]) {
    let held = |name: &str| records.iter().find(|r| r.kind == "held" && r.text("name") == name);
    let at = |name: &str| {
        let (llc, part) = largest(&by_node(held(name)?, "at", 2));
        (part >= AT_HOME).then_some(llc)
    };
    let seen = ["few", "all0", "all1"].map(at);
    report.check(
        "LLCs of a VM that is consolidated, and of the halves of one that is spread",
        seen[0].is_some() && seen[1].zip(seen[2]).is_some_and(|(a, b)| a != b),
        format!("{seen:?}"),
        format!("one, two others, {} % of the looks", 100.0 * AT_HOME),
    );
    let explained: Vec<&str> =
        records.iter().filter(|r| r.kind == "llcs").map(|r| r.text("of")).collect();
    let few = seen[0].map_or(String::new(), |llc| llc.to_string());
    report.check(
        "'tandem numa explain' says the same",
        !few.is_empty() && explained == [few.as_str(), "0,1", ""],
        format!("{explained:?}"),
        format!("[{few:?}, \"0,1\", \"\"]"),
    );
    let d = records.iter().find(|r| r.kind == "daemon");
    let seen = ["up", "state", "asserts"].map(|key| d.map_or("", |r| r.text(key))).join(", ");
    report.check(
        "LLCs: the daemon is up, the scheduler, its assertions",
        seen == "yes, enabled, 0",
        seen,
        "yes, enabled, 0",
    );
}

/// A VM's numbers by node: `at` those of its vCPUs, `n` its memory in pages.
fn by_node(record: &Record, key: &str, nodes: u32) -> Vec<f64> {
    (0..nodes).map(|n| record.number(&format!("{key}{n}")).unwrap_or(0.0)).collect()
}

/// The largest of these and its part of their sum.
fn largest(of: &[f64]) -> (usize, f64) {
    let most = (0..of.len()).max_by(|a, b| of[*a].total_cmp(&of[*b])).unwrap_or(0);
    (most, of[most] / of.iter().sum::<f64>().max(1.0))
}

fn judge(report: &mut Report, records: &[Record], nodes: u32, brief: bool) {
    report.columns = vec!["nodes", "scheduler", "vm", "node", "vcpus_there_%", "memory_there_%"];
    if let Some(kernel) = records.iter().find(|r| r.kind == "kernel") {
        let balancing = kernel.text("balancing");
        report.notes.push(format!("eevdf: kernel.numa_balancing is {balancing}"));
    }
    let percent = |part: f64| format!("{:.1}", 100.0 * part);
    let mut homes = vec![0; nodes as usize];
    let (mut right, mut local) = (0, 0);
    for r in records.iter().filter(|r| r.kind == "vm") {
        let (home, there) = largest(&by_node(r, "at", nodes));
        let memory = by_node(r, "n", nodes);
        let near = memory[home] / memory.iter().sum::<f64>().max(1.0);
        report.rows.push(vec![
            nodes.to_string(),
            r.text("when").to_owned(),
            r.text("name").to_owned(),
            home.to_string(),
            percent(there),
            percent(near),
        ]);
        if r.text("when") == "tandem" {
            homes[home] += 1;
            right += usize::from(there >= AT_HOME);
            local += usize::from(near >= LOCAL);
        }
    }
    let starts = records.iter().filter(|r| r.kind == "start");
    let in_one = starts.filter(|r| largest(&by_node(r, "n", nodes)).1 >= LOCAL).count();
    let vms = if brief { BRIEF } else { VMS.len() };
    let begun = if brief { vms } else { 2 * vms };
    report.check(
        format!("{nodes} nodes: VMs whose memory was in one node at the start"),
        in_one == begun,
        in_one.to_string(),
        begun.to_string(),
    );
    let said = records.iter().find(|r| r.kind == "homes").map_or("", |r| r.text("said"));
    report.check(
        format!("{nodes} nodes: times that the daemon says that VMs have homes"),
        said == "1",
        said,
        "1",
    );
    report.check(
        format!("{nodes} nodes: VMs that have their home there"),
        homes.iter().all(|n| n * homes.len() == vms),
        format!("{homes:?}"),
        format!("{} in each", vms / homes.len()),
    );
    report.check(
        format!("{nodes} nodes: VMs whose vCPUs run at home"),
        right == vms,
        right.to_string(),
        format!("{vms}, {} % of the looks", percent(AT_HOME)),
    );
    report.check(
        format!("{nodes} nodes: VMs whose memory is at home {SETTLE_S} s later"),
        local == vms,
        local.to_string(),
        format!("{vms}, {} % of it", percent(LOCAL)),
    );
    let d = records.iter().find(|r| r.kind == "daemon");
    let seen = ["up", "state", "asserts"].map(|key| d.map_or("", |r| r.text(key))).join(", ");
    report.check(
        format!("{nodes} nodes: the daemon is up, the scheduler, its assertions"),
        seen == "yes, enabled, 0",
        seen,
        "yes, enabled, 0",
    );
}

/// A wide VM, one that is pinned to node 1, and one whose memory is bound to node 0.
fn judge_held(report: &mut Report, records: &[Record]) {
    let held = |name: &str| records.iter().find(|r| r.kind == "held" && r.text("name") == name);
    let at = |name: &str| held(name).map(|r| largest(&by_node(r, "at", 2)));
    let memory = |name: &str| held(name).map(|r| by_node(r, "n", 2)).unwrap_or_default();
    let there = |name: &str| at(name).filter(|(_, part)| *part >= AT_HOME).map(|(node, _)| node);
    let seen = ["w0", "w1", "p", "m"].map(there);
    report.check(
        "parts of a wide VM, a pinned VM, and one whose memory is bound: nodes of their vCPUs",
        seen[0].zip(seen[1]).is_some_and(|(a, b)| a != b) && seen[2..] == [Some(1), Some(0)],
        format!("{seen:?}"),
        "one part in each, 1, 0",
    );
    let part = |name: &str, node: usize| {
        let of = memory(name);
        of.get(node).copied().unwrap_or(0.0) / of.iter().sum::<f64>().max(1.0)
    };
    let seen = [part("w0", 0), part("w0", 1), part("p", 1), part("m", 0)];
    report.check(
        "their memory: of the wide VM in each node, of the others at home",
        seen[..2].iter().all(|p| *p >= LOCAL / 2.0) && seen[2..].iter().all(|p| *p >= LOCAL),
        seen.map(|p| format!("{:.1}", 100.0 * p)).join(", "),
        format!("half of {} in each, {0}", 100.0 * LOCAL),
    );
    let full = records.iter().find(|r| r.kind == "full");
    let of_full = |key: &str| full.and_then(|r| r.count(key)).unwrap_or(0);
    let (free, total) = (of_full("free"), of_full("total"));
    let moved = part("f", 1);
    report.check(
        "a VM whose home is full: node of its vCPU, what was moved there, what is kept free",
        there("f") == Some(1)
            && (0.0..0.5).contains(&moved)
            && total > 0
            && free + KEPT_KIB >= total / 16
            && full.is_some_and(|r| r.text("killed") == "0"),
        format!("{:?}, {:.1} %, {free} of {total} KiB", there("f"), 100.0 * moved),
        format!("1, less than half, {} KiB, nothing killed", total / 16),
    );
    let explained: Vec<(&str, String, f64)> = records
        .iter()
        .filter(|r| r.kind == "explained")
        .map(|r| (r.text("vm"), r.text("home").to_owned(), r.number("local").unwrap_or(0.0)))
        .collect();
    let homes: Vec<&str> = explained.iter().map(|e| e.1.as_str()).collect();
    let as_run = at("w0").zip(at("w1")).map(|(a, b)| [a.0.to_string(), b.0.to_string()]);
    report.check(
        "'tandem numa explain' says the same",
        as_run.is_some_and(|[a, b]| homes == [a.as_str(), b.as_str(), "1", "0"])
            && explained.iter().all(|e| e.2 >= 100.0 * LOCAL),
        format!("{explained:?}"),
        format!("the homes that were seen, {} % local", 100.0 * LOCAL),
    );
    let number = |kind: &str, key: &str| {
        records.iter().find(|r| r.kind == kind).and_then(|r| r.count(key)).unwrap_or(0)
    };
    let seen = (number("said", "bound"), number("metrics", "local"));
    report.check(
        "that memory is bound is printed, and metrics have the memory of each VM",
        seen == (1, 3),
        format!("{seen:?}"),
        "once, 3",
    );
}

/// Two VMs that wake each other, begun in different nodes.
fn judge_talks(report: &mut Report, records: &[Record]) {
    let at = |kind: &str, name: &str| {
        let found = records.iter().find(|r| r.kind == kind && r.text("name") == name)?;
        let (node, part) = largest(&by_node(found, "at", 2));
        (part >= AT_HOME).then_some(node)
    };
    let seen = ["before", "after"].map(|when| [at(when, "x"), at(when, "y")]);
    let moves = |r: &Record| r.count("moves").unwrap_or(0);
    let moves: u64 = records.iter().filter(|r| r.kind == "talks").map(moves).sum();
    report.check(
        "two VMs that wake each other: nodes while each is pinned, and after that; changes for it",
        seen[0] == [Some(0), Some(1)]
            && seen[1][0].is_some()
            && seen[1][0] == seen[1][1]
            && moves > 0,
        format!("{seen:?}, {moves}"),
        "0 and 1, then one node, 1 or more",
    );
    let with = |vm: &str| {
        let said = records.iter().find(|r| r.kind == "talks" && r.text("vm") == vm);
        said.map_or("?", |r| r.text("with"))
    };
    let seen = ["x", "y", "t"].map(with);
    report.check(
        "VMs that wake each of the two, by 'tandem numa explain'; the third, by timers: none",
        seen == ["y", "x", ""],
        format!("{seen:?}"),
        "y, x, none",
    );
}

/// Three VMs of which no node has room for the third, and what is left when one has ended.
fn judge_roamers(report: &mut Report, records: &[Record]) {
    let roamers: Vec<&Record> = records.iter().filter(|r| r.kind == "roamer").collect();
    let homeless = |r: &&&Record| r.text("homeless") != "0";
    let seen: Vec<&str> = roamers.iter().filter(homeless).map(|r| r.text("name")).collect();
    report.check(
        "three VMs that ask for nine of eight pCPUs: that have had no home, by 'numa explain'",
        !seen.is_empty(),
        format!("{seen:?}"),
        "one or more",
    );
    let used: Vec<f64> = roamers.iter().filter_map(|r| r.number("used")).collect();
    let most = used.iter().copied().fold(0.0, f64::max);
    let least = used.iter().copied().fold(f64::INFINITY, f64::min);
    report.check(
        "their CPU time, ms",
        used.len() == ROAMERS.len() && least >= ROAMED * most,
        format!("{used:?}"),
        format!("{ROAMED} of the most"),
    );
    let left = records.iter().filter(|r| r.kind == "roam" && r.text("when") == "two");
    let at: Vec<(usize, f64)> = left.map(|r| largest(&by_node(r, "at", 2))).collect();
    let apart = at.len() == 2 && at[0].0 != at[1].0;
    report.check(
        "one with a home ends: nodes of the others, and looks that find them there",
        apart && at.iter().all(|(_, part)| *part >= AT_HOME),
        format!("{at:.2?}"),
        format!("two, {AT_HOME}"),
    );
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    #[test]
    fn a_vm_that_strays_and_memory_that_stays_are_seen() {
        let failed = |away: u32, far: u32, home: usize, brief: bool| {
            let mut text = "drill: homes said=1\n".to_owned();
            let vms = if brief { &VMS[..BRIEF] } else { &VMS };
            for (i, vm) in vms.iter().enumerate() {
                let n = if i == 0 { home } else { i % 2 };
                let (at, of) = ([200 - away, away], [24_000 - far, far]);
                let starts = if brief { 1 } else { 2 };
                text += &format!("drill: start name={vm} n0=8192 n1=0\n").repeat(starts);
                text += &format!(
                    "drill: vm name={vm} when=tandem at{n}={} at{}={} n{n}={} n{}={}\n",
                    at[0],
                    1 - n,
                    at[1],
                    of[0],
                    1 - n,
                    of[1]
                );
            }
            text += "drill: daemon up=yes state=enabled asserts=0\n";
            let mut report = Report::of_no_boot("homes");
            judge(&mut report, &records(&text), 2, brief);
            report.checks.iter().filter(|c| !c.ok).count()
        };
        assert_eq!(failed(2, 1_200, 0, false), 0);
        assert_eq!(failed(3, 1_200, 0, false), 1);
        assert_eq!(failed(2, 1_300, 0, false), 1);
        assert_eq!(failed(2, 1_200, 1, false), 1);
        assert_eq!(failed(2, 1_200, 0, true), 0);
        assert_eq!(failed(2, 1_200, 1, true), 1);
    }

    #[test]
    fn a_vm_in_both_llcs_and_halves_in_one_are_seen() {
        let failed = |few: u32, half: u32, said: &str| {
            let text = format!(
                "drill: held name=few at0={} at1={few}\ndrill: held name=all0 at0=200 at1=0\n\
                    drill: held name=all1 at0={half} at1={}\ndrill: llcs vm=few of={said}\n\
                    drill: llcs vm=all of=0,1\ndrill: llcs vm=any of=\n\
                    drill: daemon up=yes state=enabled asserts=0\n",
                300 - few,
                200 - half
            );
            let mut report = Report::of_no_boot("homes");
            judge_llcs(&mut report, &records(&text));
            report.checks.iter().filter(|c| !c.ok).count()
        };
        assert_eq!(failed(0, 0, "0"), 0);
        assert_eq!(failed(30, 0, "0"), 2);
        assert_eq!(failed(0, 200, "0"), 1);
        assert_eq!(failed(0, 0, "1"), 1);
    }

    #[test]
    fn vms_that_stay_apart_or_meet_for_another_reason_are_seen() {
        let failed = |y: u32, moves: u32, timed: &str| {
            let text = format!(
                "drill: before name=x at0=100 at1=0\ndrill: before name=y at0=0 at1=100\n\
                    drill: after name=x at0=0 at1=100\ndrill: after name=y at0={y} at1={}\n\
                    drill: talks vm=x moves={moves} with=y\ndrill: talks vm=y moves=0 with=x\n\
                    drill: talks vm=t moves=0 with={timed}\n",
                100 - y
            );
            let mut report = Report::of_no_boot("homes");
            judge_talks(&mut report, &records(&text));
            report.checks.iter().filter(|c| !c.ok).count()
        };
        let seen = [failed(0, 1, ""), failed(100, 1, ""), failed(3, 1, ""), failed(0, 0, "")];
        assert_eq!((seen, failed(0, 1, "x")), ([0, 1, 1, 1], 1));
    }

    #[test]
    fn a_vm_that_waits_beside_an_idle_core_or_does_not_come_home_is_seen() {
        let failed = |used: [u32; 3], homeless: u32, q: u32| {
            let mut text = String::new();
            for (name, used) in ROAMERS.iter().zip(used) {
                let none = if *name == "q" { homeless } else { 0 };
                text +=
                    &format!("drill: roamer name={name} used={used} of=10000 homeless={none}\n");
            }
            text += &format!(
                "drill: roam name=s when=two at0=300 at1=0\n\
                    drill: roam name=q when=two at0={q} at1={}\n",
                300 - q
            );
            let mut report = Report::of_no_boot("homes");
            judge_roamers(&mut report, &records(&text));
            report.checks.iter().filter(|c| !c.ok).count()
        };
        let equal = [26_000; 3];
        assert_eq!(failed(equal, 1, 3), 0);
        assert_eq!(failed([20_000, 20_000, 30_000], 0, 0), 2);
        assert_eq!([failed(equal, 1, 4), failed(equal, 1, 300)], [1, 1]);
    }

    #[test]
    fn a_part_that_strays_and_bound_memory_that_moves_are_seen() {
        let failed = |stray: u32, moved: u32, said: u32, local: f64, full: (u32, u64)| {
            let mut text = format!(
                "drill: held name=f at0=0 at1=100 n0={} n1={}\ndrill: full free={} total=800000 \
                    killed=0\n",
                8_000 - full.0,
                full.0,
                full.1
            );
            for (name, node, n0) in [("w0", 0, 4_000), ("w1", 1, 4_000), ("p", 1, 0)] {
                let at = [(1 - node) * 100, node * 100 + stray];
                text += &format!(
                    "drill: held name={name} at0={} at1={} n0={n0} n1={}\n",
                    at[0],
                    at[1],
                    8_000 - n0
                );
            }
            text += &format!("drill: held name=m at0=100 at1=0 n0={} n1={moved}\n", 8_000 - moved);
            for (vm, home) in [("w", 0), ("w", 1), ("p", 1), ("m", 0)] {
                text += &format!("drill: explained vm={vm} part=0 home={home} local={local}\n");
            }
            text += &format!("drill: said bound={said}\ndrill: metrics local=3\n");
            let mut report = Report::of_no_boot("homes");
            judge_held(&mut report, &records(&text));
            report.checks.iter().filter(|c| !c.ok).count()
        };
        let usual = (2_000, 50_000);
        assert_eq!(failed(0, 0, 1, 100.0, usual), 0);
        assert_eq!(failed(9, 0, 1, 100.0, usual), 1);
        assert_eq!(failed(0, 500, 1, 100.0, usual), 1);
        assert_eq!(failed(0, 0, 0, 100.0, usual), 1);
        assert_eq!(failed(0, 0, 1, 90.0, usual), 1);
        assert_eq!(failed(0, 0, 1, 100.0, (4_000, 50_000)), 1);
        assert_eq!(failed(0, 0, 1, 100.0, (2_000, 33_000)), 1);
    }
}
