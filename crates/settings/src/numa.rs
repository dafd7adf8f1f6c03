//! NUMA: memory of the nodes, and the thresholds by which VMs get and change their homes.

use crate::{Bytes, HardwareSpec, RunSpec, VmSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use toml::{Table, Value};
use topology::Topology;
use units::Span;

/// Memory of the host's nodes, and how VMs get home nodes. Without it memory is near everywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NumaSpec {
    /// Whether VMs have home nodes. Without, their memory is interleaved over all nodes.
    pub on: bool,
    /// Memory of each node; one size: of every node that has pCPUs. Those beyond them have memory
    /// only.
    pub memory: Vec<Bytes>,
    /// What the memory of each node gives to all worlds together, in a second: one number for every
    /// node, or one for each; if left out `hardware.bandwidth` for each LLC of the node,
    /// one at least.
    pub bandwidth: Option<Vec<Bytes>>,
    /// Distances of the nodes as ACPI's SLIT has them, a row for each; if left out 10 in a node and
    /// `hardware.from_node ÷ hardware.from_memory` times as much between two.
    pub distances: Option<Vec<Vec<u64>>>,
    /// What a node gets of memory from all others together, in a second.
    pub link: Bytes,
    /// Time between two rounds (`Numa.RebalancePeriod`).
    pub period: Span,
    /// `Numa.MigImbalanceThreshold`, in percent of a node's cores.
    pub imbalance_percent: u64,
    /// `Numa.MigThreshold`, in percent.
    pub improvement_percent: u64,
    /// `Numa.MigThrashThreshold`, in percent of an imbalance.
    pub thrash_percent: u64,
    /// `Numa.LTermFairnessInterval`, in rounds; 0: no long-term fairness.
    pub fairness_periods: u64,
    /// `Numa.LTermMigImbalThreshold`, in percent of an entitlement.
    pub unfair_percent: u64,
    /// `Numa.LocalityWeightActionAffinity`, in percent; 0: none.
    pub action_affinity: u64,
    /// `Numa.LocalityWeightMem`; 0: no VM goes back to its memory.
    pub locality_weight: u64,
    /// `Numa.CoreCapRatioPct`, in percent of a node's cores.
    pub core_cap_percent: u64,
    /// `Numa.SwapInterval`, in rounds; 0: no swaps.
    pub swap_periods: u64,
    /// What a VM that waits must gain without a home by idle cores of other nodes, in percent of
    /// its node's cores; 0: all have homes.
    pub roam_percent: u64,
    /// Most memory that is moved in a second (`Numa.PageMigRateMax`, in pages of 4 KiB).
    pub memory_rate: Bytes,
}

/// LLCs of its home node that a VM is to use (`sched.cpu.vsmpConsolidate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LlcChoice {
    /// As few as its vCPUs have cores in.
    Consolidate,
    /// All, each with as many of its vCPUs.
    Spread,
}

/// Two sockets of Skylake-SP, and ESXi's defaults; docs/numa.md has the source of each number.
impl Default for NumaSpec {
    fn default() -> NumaSpec {
        NumaSpec {
            on: true,
            memory: vec![Bytes(64 << 30)],
            bandwidth: None,
            distances: None,
            link: Bytes(34_000_000_000),
            period: Span::from_secs(2),
            imbalance_percent: 10,
            improvement_percent: 2,
            thrash_percent: 50,
            fairness_periods: 5,
            unfair_percent: 10,
            action_affinity: 130,
            locality_weight: 1,
            core_cap_percent: 90,
            swap_periods: 3,
            roam_percent: 10,
            memory_rate: Bytes(32_000 * 4096),
        }
    }
}

/// Most nodes: a home is a bit of a word.
const NODES_MAX: usize = 64;
/// Largest distance that says something (ACPI: 255 is unreachable).
const DISTANCE_MAX: u64 = 254;

/// Least bandwidth: a byte a us.
const LEAST_BANDWIDTH: Bytes = Bytes(1_000_000);

/// Thresholds, in the order of their fields: least and most.
const THRESHOLDS: [(&str, u64, u64); 10] = [
    ("imbalance_percent", 1, 200),
    ("improvement_percent", 0, 100),
    ("thrash_percent", 0, 100),
    ("fairness_periods", 0, 1_000),
    ("unfair_percent", 0, 100),
    ("action_affinity", 0, 200),
    ("locality_weight", 0, 100),
    ("core_cap_percent", 0, 100),
    ("swap_periods", 0, 10_000),
    ("roam_percent", 0, 100),
];

/// Removes numbers below zero of `[numa]`, which a parser cannot read, and gives a reason for each.
pub(crate) fn take_negative(numa: &mut Table) -> Vec<String> {
    let mut out = vec![];
    for (what, least, most) in THRESHOLDS {
        if let Some(seen) = numa.get(what).and_then(Value::as_integer).filter(|seen| *seen < 0) {
            out.push(format!("numa.{what}: seen {seen}, allowed {least}..{most}"));
            numa.remove(what);
        }
    }
    let rows = numa.get("distances").and_then(Value::as_array).into_iter().flatten();
    let all = rows.filter_map(Value::as_array).flatten().filter_map(Value::as_integer);
    let below: Vec<i64> = all.filter(|seen| *seen < 0).collect();
    let said = |seen: &i64| format!("numa.distances: seen {seen}, allowed 10..{DISTANCE_MAX}");
    out.extend(below.iter().map(said));
    if !below.is_empty() {
        numa.remove("distances");
    }
    out
}

impl NumaSpec {
    /// Memory of each node, in bytes, on a host where so many have pCPUs.
    #[must_use]
    pub fn sizes(&self, nodes: usize) -> Vec<u64> {
        match self.memory[..] {
            [one] => vec![one.0; nodes],
            _ => self.memory.iter().map(|m| m.0).collect(),
        }
    }

    /// What the memory of each of so many nodes gives in a second, where that is usual.
    #[must_use]
    pub fn bandwidths(&self, nodes: usize, usual: impl Fn(usize) -> Bytes) -> Vec<Bytes> {
        match self.bandwidth.as_deref() {
            Some([one]) => vec![*one; nodes],
            Some(each) => each.to_vec(),
            None => (0..nodes).map(usual).collect(),
        }
    }

    /// Distances of so many nodes, where a line from another takes so much by one of the own.
    #[must_use]
    pub fn rows(&self, nodes: usize, far: (u64, u64)) -> Vec<Vec<u64>> {
        let other = 10 * far.0 / far.1.max(1);
        let row = |i| (0..nodes).map(|j| if i == j { 10 } else { other.max(10) }).collect();
        self.distances.clone().unwrap_or_else(|| (0..nodes).map(row).collect())
    }
}

impl RunSpec {
    /// NUMA of the run, if memory has a place in it.
    #[must_use]
    pub fn numa(&self) -> Option<&NumaSpec> {
        self.numa.as_ref().filter(|_| self.hardware().is_some())
    }
}

/// What is wrong with the NUMA settings of a run on a host.
#[must_use]
pub(crate) fn numa_reasons(spec: &RunSpec, host: Option<&Topology>) -> Vec<String> {
    let mut out = vec![];
    let nodes = host.map_or(1, |t| t.counts().2);
    let asks = |v: &&VmSpec| {
        v.memory.is_some() || v.vnuma.is_some() || v.vnuma_node.is_some() || v.llc.is_some()
    };
    let with_memory = spec.vms.iter().find(asks);
    let Some(numa) = &spec.numa else {
        out.extend(with_memory.map(|v| {
            format!(
                "vm '{}': memory, vnuma, vnuma_node, llc: seen one of them, allowed only with \
                    [numa], which says what the nodes have",
                v.name
            )
        }));
        return out;
    };
    if spec.hardware.is_none() {
        out.push("[numa]: seen without [hardware], whose memory it divides; add it".to_owned());
    }
    let all = numa.memory.len();
    if nodes > NODES_MAX {
        out.push(format!(
            "numa: seen a host of {nodes} nodes, allowed {NODES_MAX} at most: a home is a bit each"
        ));
        return out;
    }
    if all != 1 && all < nodes || all > NODES_MAX {
        out.push(format!(
            "numa.memory: seen {all} sizes, allowed one for all nodes, or {nodes} to {NODES_MAX}: \
                one for each node that has pCPUs, more for nodes without"
        ));
        return out;
    }
    let sizes = numa.sizes(nodes);
    for (node, size) in sizes.iter().enumerate().take(nodes).filter(|(_, size)| **size == 0) {
        out.push(format!(
            "numa.memory: seen {} of node {node}, allowed more than 0B",
            Bytes(*size)
        ));
    }
    out.extend(numa.bandwidth.as_ref().and_then(|each| bandwidth_reason(each, sizes.len())));
    match &numa.distances {
        Some(rows) => out.extend(distance_reasons(rows, sizes.len())),
        None if sizes.len() > 1 => out.extend(spec.hardware.as_ref().and_then(line_reason)),
        None => {}
    }
    out.extend(
        spec.vms
            .iter()
            .filter(|v| v.memory == Some(Bytes(0)))
            .map(|v| format!("vm '{}': memory: seen 0B, allowed more than 0B", v.name)),
    );
    out.extend(threshold_reasons(numa));
    out.extend(spec.vms.iter().filter_map(virtual_node_reason));
    out.extend(host.and_then(|host| llc_reason(spec, numa, host)));
    let (asked, there): (u64, u64) = (
        spec.vms
            .iter()
            .map(|v| v.memory_bytes().saturating_mul(u64::from(v.count)))
            .fold(0, u64::saturating_add),
        sizes.iter().copied().fold(0, u64::saturating_add),
    );
    if asked > there {
        out.push(format!(
            "numa.memory: seen {} in all, allowed as much as the VMs have together, {}",
            Bytes(there),
            Bytes(asked)
        ));
    }
    out
}

/// What is wrong with the NUMA settings of a live host, whose memory is its own.
#[must_use]
pub(crate) fn live_numa_reasons(numa: &NumaSpec) -> Vec<String> {
    let usual = NumaSpec::default();
    let of_hardware = [
        ("memory", numa.memory != usual.memory),
        ("bandwidth", numa.bandwidth != usual.bandwidth),
        ("distances", numa.distances != usual.distances),
        ("link", numa.link != usual.link),
    ];
    let seen = of_hardware.iter().filter(|(_, seen)| *seen).map(|(key, _)| {
        format!(
            "numa.{key}: seen, allowed in a scenario alone; this host has its own: leave it out"
        )
    });
    seen.chain(threshold_reasons(numa)).collect()
}

/// Why a VM cannot have virtual nodes of so many vCPUs.
fn virtual_node_reason(vm: &VmSpec) -> Option<String> {
    let size = vm.vnuma_node?;
    let divides = |n: &u32| vm.vcpus % n == 0;
    if size > 0 && divides(&size) {
        return None;
    }
    let all: Vec<String> = (1..=vm.vcpus).filter(divides).map(|n| n.to_string()).collect();
    Some(format!(
        "vm '{}': vnuma_node: seen {size}, allowed what divides its {} vCPUs: {}; virtual nodes \
            are equal",
        vm.name,
        vm.vcpus,
        all.join(", ")
    ))
}

/// Why a VM cannot choose LLCs.
fn llc_reason(spec: &RunSpec, numa: &NumaSpec, host: &Topology) -> Option<String> {
    let vm = &spec.vms.iter().find(|v| v.llc.is_some())?.name;
    if !numa.on {
        return Some(format!(
            "vm '{vm}': llc: seen with numa.on = false, allowed where VMs have homes: leave one out"
        ));
    }
    let all: BTreeSet<(u32, u32)> =
        host.places().iter().zip(host.domains()).map(|(p, domain)| (p.node, domain)).collect();
    let several = all.iter().any(|(node, _)| all.iter().filter(|(n, _)| n == node).count() > 1);
    (!several).then(|| {
        let (_, llcs, nodes, _) = host.counts();
        format!(
            "vm '{vm}': llc: seen on a host of {llcs} LLCs in {nodes} nodes, allowed where a node \
                has several, and the host 64 at most: set host.llcs_per_node"
        )
    })
}

/// Thresholds and rates that are out of range.
fn threshold_reasons(numa: &NumaSpec) -> Vec<String> {
    let mut out = vec![];
    let seen = [
        numa.imbalance_percent,
        numa.improvement_percent,
        numa.thrash_percent,
        numa.fairness_periods,
        numa.unfair_percent,
        numa.action_affinity,
        numa.locality_weight,
        numa.core_cap_percent,
        numa.swap_periods,
        numa.roam_percent,
    ];
    for ((what, least, most), seen) in THRESHOLDS.into_iter().zip(seen) {
        if !(least..=most).contains(&seen) {
            out.push(format!("numa.{what}: seen {seen}, allowed {least}..{most}"));
        }
    }
    let period = numa.period;
    if !(Span::from_ms(100)..=Span::from_secs(60)).contains(&period) {
        out.push(format!("numa.period: seen {period}, allowed 100ms to 60s"));
    }
    if numa.link.0 < LEAST_BANDWIDTH.0 {
        let least = LEAST_BANDWIDTH;
        out.push(format!("numa.link: seen {}, allowed {least} or more, a second", numa.link));
    }
    if numa.memory_rate.0 > 8_000_000 * 4096 {
        let most = Bytes(8_000_000 * 4096);
        out.push(format!("numa.memory_rate: seen {}, allowed up to {most}", numa.memory_rate));
    }
    out
}

/// What is wrong with the times of lines from memory, where distances follow from them.
fn line_reason(hardware: &HardwareSpec) -> Option<String> {
    let (near, far) = (hardware.from_memory, hardware.from_node);
    if near.ns() == 0 {
        return Some(
            "hardware.from_memory: seen 0ns, allowed 1ns or more where distances of nodes follow \
                from it: set numa.distances, or a time"
                .to_owned(),
        );
    }
    let most = Span::from_ns(near.ns().saturating_mul(DISTANCE_MAX) / 10);
    (!(near..=most).contains(&far)).then(|| {
        format!(
            "hardware.from_node: seen {far}, allowed {near} (from_memory) to {most}, a distance of \
                10 to {DISTANCE_MAX}: set numa.distances, or another time"
        )
    })
}

/// What is wrong with what the memory of so many nodes gives.
fn bandwidth_reason(each: &[Bytes], nodes: usize) -> Option<String> {
    let at = "numa.bandwidth";
    if each.len() != 1 && each.len() != nodes {
        let seen = each.len();
        return Some(format!(
            "{at}: seen {seen} numbers, allowed one for all nodes, or {nodes}: one for each"
        ));
    }
    let seen = each.iter().find(|seen| seen.0 < LEAST_BANDWIDTH.0)?;
    Some(format!("{at}: seen {seen}, allowed {LEAST_BANDWIDTH} or more, a second"))
}

/// What is wrong with the distances of so many nodes.
fn distance_reasons(rows: &[Vec<u64>], nodes: usize) -> Vec<String> {
    let at = "numa.distances";
    if rows.len() != nodes {
        return vec![format!(
            "{at}: seen {} rows, allowed one for each of {nodes} nodes",
            rows.len()
        )];
    }
    let mut out = vec![];
    for (i, row) in rows.iter().enumerate() {
        if row.len() != nodes {
            out.push(format!(
                "{at}: seen {} numbers in row {i}, allowed one for each of {nodes} nodes",
                row.len()
            ));
            continue;
        }
        for (j, seen) in row.iter().enumerate() {
            if i == j && *seen != 10 {
                out.push(format!("{at}: seen {seen} from node {i} to itself, allowed 10"));
            } else if !(10..=DISTANCE_MAX).contains(seen) {
                out.push(format!(
                    "{at}: seen {seen} from node {i} to {j}, allowed 10..{DISTANCE_MAX}"
                ));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::raw::parse;

    fn refused(host: &str, numa: &str, vm: &str) -> String {
        let text = format!(
            "[host]\nsockets = 2\ncores_per_llc = 4\n{host}\n[numa]\n{numa}\n[[vm]]\nname = 'a'\n\
                vcpus = 2\n{vm}\n"
        );
        parse("t.toml", "t", &text).expect_err("must be refused").to_string()
    }

    #[test]
    fn what_no_host_is_is_refused_with_its_place() {
        for (numa, vm, part) in [
            ("memory = ['1GiB', '1GiB', '1GiB']\ndistances = [[10, 16]]", "", "seen 1 rows"),
            (
                "distances = [[10, 16], [16]]",
                "",
                "seen 1 numbers in row 1, allowed one for each of 2",
            ),
            ("distances = [[10, 16], [16, 11]]", "", "seen 11 from node 1 to itself, allowed 10"),
            ("distances = [[10, 9], [16, 10]]", "", "seen 9 from node 0 to 1, allowed 10..254"),
            ("memory = ['1GiB', '0B']", "", "numa.memory: seen 0B of node 1"),
            ("memory = []", "", "numa.memory: seen 0 sizes, allowed one for all nodes, or 2 to 64"),
            (
                "memory = ['1GiB']",
                "memory = '3GiB'",
                "seen 2GiB in all, allowed as much as the VMs",
            ),
            ("", "memory = '0GiB'", "vm 'a': memory: seen 0B, allowed more than 0B"),
            ("swap_periods = -1", "", "numa.swap_periods: seen -1, allowed 0..10000"),
            (
                "imbalance_percent = -3\nunfair_percent = -1",
                "",
                "numa.unfair_percent: seen -1, allowed 0..100",
            ),
            ("distances = [[10, -9], [16, 10]]", "", "numa.distances: seen -9, allowed 10..254"),
            ("period = '1ms'", "", "numa.period: seen 1ms, allowed 100ms to 60s"),
            ("thrash_percent = 101", "", "numa.thrash_percent: seen 101, allowed 0..100"),
            ("link = '1KB'", "", "numa.link: seen 1000B, allowed 1MB or more"),
            ("bandwidth = ['1KB']", "", "numa.bandwidth: seen 1000B, allowed 1MB or more"),
            (
                "bandwidth = ['9GB', '9GB', '9GB']",
                "",
                "numa.bandwidth: seen 3 numbers, allowed one for all nodes, or 2: one for each",
            ),
            ("bandwidth = []", "", "numa.bandwidth: seen 0 numbers, allowed one for all nodes"),
            (
                "",
                "llc = 'spread'",
                "vm 'a': llc: seen on a host of 2 LLCs in 2 nodes, allowed where a",
            ),
            ("on = false", "llc = 'spread'", "vm 'a': llc: seen with numa.on = false"),
            ("", "vnuma_node = 0", "vm 'a': vnuma_node: seen 0, allowed what divides its 2 vCPUs"),
            ("", "vnuma_node = 3", "seen 3, allowed what divides its 2 vCPUs: 1, 2; virtual"),
        ] {
            let text = refused("[hardware]", numa, vm);
            assert!(text.contains(part), "{part} in {text}");
        }
        for (line, part) in [
            ("from_memory = '0ns'", "hardware.from_memory: seen 0ns, allowed 1ns or more"),
            (
                "from_node = '9us'",
                "hardware.from_node: seen 9us, allowed 22ns (from_memory) to 558",
            ),
            ("from_node = '5ns'", "hardware.from_node: seen 5ns, allowed 22ns (from_memory) to"),
        ] {
            let text = refused(&format!("[hardware]\n{line}"), "", "");
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(refused("", "", "").contains("[numa]: seen without [hardware], whose"));
        for key in ["memory = '1GiB'", "vnuma = true", "vnuma_node = 1", "llc = 'spread'"] {
            let text = format!(
                "[host]\ncores_per_llc = 4\n[hardware]\n[[vm]]\nname = 'a'\nvcpus = 2\n{key}\n"
            );
            let text = parse("t.toml", "t", &text).expect_err("must be refused").to_string();
            let said =
                "vm 'a': memory, vnuma, vnuma_node, llc: seen one of them, allowed only with";
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_node_without_pcpus_has_memory_only() {
        let text = "[host]\nsockets = 2\ncores_per_llc = 4\n[hardware]\n[numa]\n\
            memory = ['1GiB', '2GiB', '512GiB']\n[[vm]]\nname = 'a'\nvcpus = 2\n";
        let run = parse("t.toml", "t", text).unwrap().runs.remove(0);
        let numa = run.spec.numa().expect("it is there");
        assert_eq!(numa.sizes(2), [1 << 30, 2 << 30, 512 << 30]);
        assert_eq!(numa.rows(3, (35, 22))[0], [10, 15, 15]);
        assert_eq!(run.spec.vms[0].memory_bytes(), 2 << 30, "1 GiB a vCPU");
    }
}
