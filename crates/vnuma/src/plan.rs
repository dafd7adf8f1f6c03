//! All that a VM's start on a host needs: decision, clients, the guest's sockets, distances, notes;
//! it is data, and `draw`, `libvirt` and `qemu` write it.

use crate::{
    decide::{Decision, Remembered, decide},
    host::Host,
    mapping::{Case, Mapping},
    note::Note,
    vm::{Refused, Vm},
};
use schemars::JsonSchema;
use serde::Serialize;

/// Distance of a node to itself, and the least to another that Linux takes from a guest's table
/// (`slit_valid`), by ACPI's SLIT.
const DISTANCE_LOCAL: u32 = 10;
/// Distance between any two nodes that QEMU takes where none is given.
const DISTANCE_DEFAULT: u32 = 20;
/// The largest distance; 255 is unreachable.
const DISTANCE_MAX: u32 = 254;

/// What the guest sees of sockets; threads of a core are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Guest {
    /// Virtual sockets.
    pub sockets: u32,
    /// Cores of each.
    pub cores: u32,
}

impl Guest {
    /// Sockets of `cpuid.coresPerSocket` where that is set and divides the vCPUs. Else the largest
    /// sockets that span no two virtual nodes: one each where nodes are equal.
    #[must_use]
    pub fn of(vm: &Vm, decision: &Decision) -> Guest {
        let set = vm.options.cores_per_socket;
        let cores = if set > 1 && vm.vcpus % set == 0 {
            set
        } else {
            decision.nodes.iter().fold(0, |d, n| greatest_divisor(n.vcpus.count, d))
        };
        Guest { sockets: vm.vcpus / cores, cores }
    }
}

fn greatest_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Plan {
    /// The VM.
    pub vm: Vm,
    /// The host.
    pub host: Host,
    /// Virtual nodes.
    pub decision: Decision,
    /// Clients.
    pub mapping: Mapping,
    /// Sockets of the guest.
    pub guest: Guest,
    /// Distances between virtual nodes, a row each; `None` where QEMU's own, 20, will do or those
    /// of the host are not known.
    pub distances: Option<Vec<Vec<u32>>>,
    /// What to know.
    pub notes: Vec<Note>,
}

/// Plans `vm` for a power-on on `host`, with what was remembered of an earlier one.
///
/// # Errors
/// As [`decide`].
pub fn plan(vm: &Vm, host: &Host, remembered: Option<&Remembered>) -> Result<Plan, Refused> {
    let decision = decide(vm, host, remembered)?;
    let mapping = Mapping::new(vm, &decision, host);
    Ok(Plan {
        guest: Guest::of(vm, &decision),
        distances: distances(host, &mapping),
        notes: Note::of(vm, host, &decision, &mapping),
        vm: vm.clone(),
        host: host.clone(),
        decision,
        mapping,
    })
}

impl Plan {
    /// Whether the guest sees more than one node.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.decision.nodes.len() > 1
    }

    /// Whether memory is bound: a host of one node has no choice, and a kernel without NUMA refuses
    /// to.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.host.nodes.len() > 1 && !self.mapping.all_memory_on().is_empty()
    }

    /// Whether the host takes from the guest what vNUMA would give it: its virtual nodes match none
    /// of several nodes that have its memory.
    #[must_use]
    pub fn is_void(&self) -> bool {
        let several = self.mapping.all_memory_on().len() > 1;
        self.is_exposed() && several && self.mapping.case == Case::Irreconcilable
    }

    /// What it costs to run there, in words.
    #[must_use]
    pub fn cost(&self) -> String {
        let clients = self.mapping.clients.len();
        let homes = |i: usize| self.mapping.memory_on(i).len();
        let widest = (0..self.decision.nodes.len()).map(homes).max().unwrap_or(0);
        if self.mapping.all_memory_on().len() == 1 {
            return "all its memory is on one node".into();
        }
        match (self.mapping.case, self.is_exposed()) {
            (Case::Fits, false) => "all its memory is local".into(),
            (Case::Fits, true) => "what is local for the guest is local on the host".into(),
            (Case::Multiple { .. }, true) => format!(
                "memory of a virtual node is interleaved over {widest} nodes: of what is local for \
                 the guest, 1 in {widest} is local on the host"
            ),
            (Case::Irreconcilable, true) => format!(
                "vNUMA has no effect: all memory is interleaved over the homes of {clients} clients"
            ),
            (_, false) => format!(
                "the guest sees one node: memory is interleaved over the homes of {clients} clients"
            ),
        }
    }
}

/// Distances between virtual nodes as between their homes, where each has one.
fn distances(host: &Host, mapping: &Mapping) -> Option<Vec<Vec<u32>>> {
    if mapping.case != Case::Fits || mapping.clients.len() < 2 {
        return None;
    }
    let between = |i: usize, j: usize| {
        let (from, to) = (mapping.clients[i].home, mapping.clients[j].home);
        let seen = host.distance(from, to)?;
        Some(if i == j { DISTANCE_LOCAL } else { seen.clamp(DISTANCE_LOCAL + 1, DISTANCE_MAX) })
    };
    let all = 0..mapping.clients.len();
    let rows: Option<Vec<Vec<u32>>> =
        all.clone().map(|i| all.clone().map(|j| between(i, j)).collect()).collect();
    let is_default = |d: &u32| [DISTANCE_LOCAL, DISTANCE_DEFAULT].contains(d);
    rows.filter(|rows| !rows.iter().flatten().all(is_default))
}
