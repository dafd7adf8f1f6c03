//! Drill "vnuma": a real QEMU boots a Linux guest by the arguments of `tandem vnuma plan` for the
//! host; the guest sees the planned nodes, and the memory of each is in its home.

use super::record::Record;
use super::{Drill, Report, Setting, begin, spec, unreadable};
use crate::archive::Archive;
use crate::boot::{Stream, Topology};
use crate::error::Result;
use crate::guest_linux;
use crate::image::guest_path;
use serde_json::Value;

const SCRIPT: &str = include_str!("../../guest/drill-vnuma");
const VCPUS: u32 = 4;
const MEGABYTES: u32 = 256;
/// What a guest's kernel keeps of a node's memory before it counts it: its image, tables of pages,
/// what firmware has.
const KEPT_KIB: u64 = 60 << 10;

pub(super) fn run(
    setting: &Setting,
    archive: &Archive,
    on: &mut dyn FnMut(Stream, &str),
) -> Result<Report> {
    let before = format!(
        "VCPUS={VCPUS} MEGABYTES={MEGABYTES} LINUX_KERNEL={} LINUX_INITRD={} LINUX_LINE=\"{}\"",
        guest_path::LINUX_KERNEL,
        guest_path::LINUX_INITRD,
        guest_linux::command_line(1)
    );
    let mut spec = spec(setting, &before, SCRIPT, 600);
    spec.topology = Topology { sockets: 4, nodes: 4, cores_per_socket: 2, threads: 1 };
    let (mut report, outcome, records) = begin(Drill::Vnuma, &spec, archive, on)?;
    let plan = outcome.file("plan.json")?;
    let plan: Value = serde_json::from_str(&plan).map_err(|e| unreadable("plan.json", e))?;
    judge(&mut report, &plan, &records);
    Ok(report)
}

/// A virtual node: its vCPUs as a list, its memory in KiB.
type Node = (String, u64);

/// Virtual nodes of a plan, and the host's nodes where the memory of each is.
fn planned(plan: &Value) -> (Vec<Node>, Vec<String>) {
    let empty = vec![];
    let list = |value: &Value| value.as_array().unwrap_or(&empty).clone();
    let node = |n: &Value| {
        let vcpus = n["vcpus"].as_str().unwrap_or("?").to_owned();
        (vcpus, n["memory"].as_u64().unwrap_or(0) << 10)
    };
    let nodes = list(&plan["decision"]["nodes"]).iter().map(node).collect();
    let homes = list(&plan["mapping"]["clients"]).iter().map(|c| c["home"].to_string()).collect();
    (nodes, homes)
}

fn judge(report: &mut Report, plan: &Value, records: &[Record]) {
    report.columns = vec!["virtual node", "vcpus", "planned_mib", "guest_sees_mib", "home"];
    let (nodes, homes) = planned(plan);
    let seen: Vec<Node> = records
        .iter()
        .filter(|r| r.kind == "guest")
        .map(|r| (r.text("cpus").to_owned(), r.count("kib").unwrap_or(0)))
        .collect();
    for (i, ((vcpus, kib), home)) in nodes.iter().zip(&homes).enumerate() {
        let sees = seen.get(i).map_or(0, |n| n.1);
        let row = [i.to_string(), vcpus.clone(), (kib >> 10).to_string(), (sees >> 10).to_string()];
        report.rows.push(row.into_iter().chain([home.clone()]).collect());
    }
    let cpus = |of: &[Node]| of.iter().map(|n| n.0.clone()).collect::<Vec<_>>().join(" ");
    let fits = |(planned, seen): (&Node, &Node)| {
        seen.0 == planned.0 && seen.1 <= planned.1 && seen.1 + KEPT_KIB >= planned.1
    };
    report.check(
        "the guest's nodes: their vCPUs and memory",
        nodes.len() > 1 && seen.len() == nodes.len() && nodes.iter().zip(&seen).all(fits),
        cpus(&seen),
        format!("{}; what the kernel keeps less of memory", cpus(&nodes)),
    );
    // A mapping that is bound, its node, and whether all its pages are there.
    let bound = records.iter().filter(|r| r.kind == "bound").map(|r| {
        let other = (0..8).map(|n| n.to_string()).filter(|n| n != r.text("to"));
        let pages = |n: &str| r.count(&format!("n{n}")).unwrap_or(0);
        let strays: u64 = other.map(|n| pages(&n)).sum();
        (r.text("to").to_owned(), pages(r.text("to")) > 0 && strays == 0)
    });
    let mut bound: Vec<(String, bool)> = bound.collect();
    bound.sort();
    let mut wanted: Vec<(String, bool)> = homes.iter().map(|home| (home.clone(), true)).collect();
    wanted.sort();
    report.check(
        "memory of each virtual node: the host's node that has all its pages",
        !wanted.is_empty() && bound == wanted,
        format!("{bound:?}"),
        format!("{wanted:?}"),
    );
    let state = records.iter().find(|r| r.kind == "scheduler").map_or("", |r| r.text("state"));
    report.check("the scheduler", state == "enabled", state, "enabled");
}

#[cfg(test)]
mod tests {
    use super::super::record::records;
    use super::*;

    #[test]
    fn other_nodes_and_memory_elsewhere_are_seen() {
        let plan = serde_json::json!({
            "decision": {"nodes": [
                {"vcpus": "0-1", "memory": 128}, {"vcpus": "2-3", "memory": 128},
            ]},
            "mapping": {"clients": [{"home": 0}, {"home": 1}]},
        });
        let failed = |cpus: &str, kib: u64, stray: u64, state: &str| {
            let text = format!(
                "drill: guest 0 cpus=0-1 kib={kib}\ndrill: guest 1 cpus={cpus} kib=130000\n\
                    drill: bound to=0 n0=900 n1={stray}\ndrill: bound to=1 n1=800\n\
                    drill: scheduler state={state}\n"
            );
            let mut report = Report::of_no_boot("vnuma");
            judge(&mut report, &plan, &records(&text));
            report.checks.iter().filter(|c| !c.ok).count()
        };
        assert_eq!(failed("2-3", 90_000, 0, "enabled"), 0);
        assert_eq!(failed("3", 90_000, 0, "enabled"), 1);
        assert_eq!(failed("2-3", 60_000, 0, "enabled"), 1);
        assert_eq!(failed("2-3", 140_000, 0, "enabled"), 1);
        assert_eq!(failed("2-3", 90_000, 1, "enabled"), 1);
        assert_eq!(failed("2-3", 90_000, 0, "disabled"), 1);
    }
}
