//! Drill "homes": VMs whose memory is all in one node when Tandem begins get home nodes, run in
//! them, and their memory follows; beside it the same VMs under the kernel's own scheduler with its
//! NUMA balancing. On a host of two nodes and on one of four.

use super::record::Record;
use super::{Drill, Report, Setting, begin, spec};
use crate::archive::Archive;
use crate::boot::{Stream, Topology};
use crate::error::Result;

const SCRIPT: &str = include_str!("../../guest/drill-homes");
const VMS: [&str; 4] = ["a", "b", "c", "d"];
const VCPUS: u32 = 2;
const PCPUS: u32 = 8;
const MEGABYTES: u32 = 32;
/// From the load on, in seconds: homes change in the planner's first three rounds, and 30 s after
/// that memory has followed.
const SETTLE_S: u32 = 36;
/// Looks at where vCPUs run, 50 ms apart.
const LOOKS: u32 = 100;
/// Of the looks at a VM's vCPUs, those that find them in one node.
const AT_HOME: f64 = 0.99;
/// Of a VM's memory, what is in that node.
const LOCAL: f64 = 0.95;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let mut all = one(setting, archive, on, 2)?;
    let four = one(setting, archive, on, 4)?;
    all.rows.extend(four.rows);
    all.checks.extend(four.checks);
    Ok(all)
}

fn one(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
    nodes: u32,
) -> Result<Report> {
    let before = format!(
        "VMS=\"{}\" VCPUS={VCPUS} MEGABYTES={MEGABYTES} NODES={nodes} SETTLE={SETTLE_S} \
            LOOKS={LOOKS} ALL={:x}",
        VMS.join(" "),
        (1u32 << PCPUS) - 1
    );
    let mut spec = spec(setting, &before, SCRIPT, 600);
    spec.topology = Topology { sockets: nodes, nodes, cores_per_socket: PCPUS / nodes, threads: 1 };
    let (mut report, _, records) = begin(Drill::Homes, &spec, archive, on)?;
    judge(&mut report, &records, nodes);
    Ok(report)
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

fn judge(report: &mut Report, records: &[Record], nodes: u32) {
    report.columns = vec!["nodes", "scheduler", "vm", "node", "vcpus_there_%", "memory_there_%"];
    let kernel = records.iter().find(|r| r.kind == "kernel");
    report.notes.push(format!(
        "eevdf: kernel.numa_balancing is {}",
        kernel.map_or("not seen", |r| r.text("balancing"))
    ));
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
    let vms = VMS.len();
    report.check(
        format!("{nodes} nodes: VMs whose memory was in one node at the start"),
        in_one == 2 * vms,
        in_one.to_string(),
        (2 * vms).to_string(),
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
        format!("{nodes} nodes: VMs whose memory is at home {SETTLE_S} s after the load"),
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

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    #[test]
    fn a_vm_that_strays_and_memory_that_stays_are_seen() {
        let failed = |away: u32, far: u32, home: usize| {
            let mut text = String::new();
            for (i, vm) in VMS.iter().enumerate() {
                let n = if i == 0 { home } else { i % 2 };
                let (at, of) = ([200 - away, away], [24_000 - far, far]);
                text += &format!("drill: start name={vm} n0=8192 n1=0\n").repeat(2);
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
            judge(&mut report, &records(&text), 2);
            report.checks.iter().filter(|c| !c.ok).count()
        };
        assert_eq!(failed(2, 1_200, 0), 0);
        assert_eq!(failed(3, 1_200, 0), 1);
        assert_eq!(failed(2, 1_300, 0), 1);
        assert_eq!(failed(2, 1_200, 1), 1);
    }
}
