//! What an administrator should know about a plan, with what to do about it; a note refuses
//! nothing.

use crate::{
    decide::{Decision, Reason, Renewed, Unfit},
    host::Host,
    mapping::{Case, Mapping},
    mib::Mib,
    vm::{Options, Vm},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::{borrow::Cow, fmt};

/// More vCPUs need an IOMMU that remaps interrupts, which a plan does not add: x86's old APIC ids
/// have 8 bits.
const PLAIN_VCPUS_MAX: u32 = 255;

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Cores of a virtual socket are not the size of a virtual node.
    CoresPerSocket(u32, Unfit),
    /// `numa.autosize` stands above sizes that are set.
    Autosize,
    /// What was remembered is not followed.
    Renewed(Renewed),
    /// Virtual nodes are larger than the host's.
    Case(Case, u32),
    /// The guest sees one node, and its memory is on several.
    Unseen(u32),
    /// A node has more vCPUs of the VM than room, and whether all nodes have threads for them.
    Crowded(u32, u32, u32, bool),
    /// A node has more vCPUs of the VM than `numa.vcpu.maxPerMachineNode`, and cores for them.
    Above(u32, u32, u32),
    /// More vCPUs than the host has pCPUs.
    Threads(u32, u32),
    /// A node has less memory than the VM is to have there.
    Memory(u32, Mib, Mib),
    /// Homes without memory.
    Bare(Vec<u32>),
    /// The host counts by its smallest node.
    Uneven(u32),
    /// More vCPUs than plain interrupts reach.
    ManyVcpus(u32),
}

impl Note {
    /// All that holds of a plan.
    #[must_use]
    pub fn of(vm: &Vm, host: &Host, decision: &Decision, mapping: &Mapping) -> Vec<Note> {
        let mut notes = vec![];
        let o = &vm.options;
        notes.extend(decision.renewed.map(Note::Renewed));
        let sized = o.cores_per_socket > 1 || o.max_per_virtual_node.is_some();
        if sized && o.autosize && matches!(decision.reason, Reason::HostNode { .. }) {
            notes.push(Note::Autosize);
        } else {
            notes.extend(decision.unfit.map(|u| Note::CoresPerSocket(o.cores_per_socket, u)));
        }
        let exposed = decision.nodes.len() > 1;
        let several = mapping.all_memory_on().len() > 1;
        if several && exposed && mapping.case != Case::Fits {
            notes.push(Note::Case(mapping.case, mapping.room));
        } else if several && mapping.clients.len() > 1 && !exposed {
            notes.push(Note::Unseen(mapping.clients.len() as u32));
        }
        let crowded = |(id, vcpus): (u32, u32)| {
            let node = host.node(id)?;
            let all = node.room(&Options { max_per_machine_node: None, ..*o });
            let room = node.room(o);
            let threads = Options { prefer_ht: true, ..*o };
            let fits = host.nodes.len() as u32 * host.room(&threads) >= vm.vcpus;
            let note = if vcpus > all {
                Note::Crowded(id, vcpus, room, fits && !o.prefer_ht)
            } else {
                Note::Above(id, vcpus, room)
            };
            (vcpus > room).then_some(note)
        };
        if vm.vcpus > host.threads() {
            notes.push(Note::Threads(vm.vcpus, host.threads()));
        } else {
            notes.extend(mapping.vcpus_on().into_iter().find_map(crowded));
        }
        for (id, asked) in mapping.memory_by_node(decision) {
            if let Some(has) = host.node(id).and_then(|n| n.memory).filter(|has| asked > *has) {
                notes.push(Note::Memory(id, asked, has));
            }
        }
        let is_bare = |id: &u32| host.node(*id).is_some_and(|n| n.memory == Some(Mib(0)));
        let bare: Vec<u32> = mapping.vcpus_on().into_keys().filter(is_bare).collect();
        if !bare.is_empty() {
            notes.push(Note::Bare(bare));
        }
        if host.is_uneven(o) {
            notes.push(Note::Uneven(host.room(o)));
        }
        if vm.vcpus > PLAIN_VCPUS_MAX {
            notes.push(Note::ManyVcpus(vm.vcpus));
        }
        notes
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::CoresPerSocket(cores, unfit) => {
                write!(f, "cpuid.coresPerSocket {cores} is not the size of a virtual node: {unfit}")
            }
            Note::Autosize => write!(
                f,
                "numa.autosize sizes virtual nodes by the host's nodes, whatever other size is set; \
                 leave one out"
            ),
            Note::Renewed(renewed) => write!(f, "decided anew: {renewed}"),
            Note::Case(Case::Irreconcilable, room) => write!(
                f,
                "virtual nodes are no multiple of the host's, which have room for {room} vCPUs: vNUMA \
                 has no effect here; set a size that fits all hosts: tandem vnuma check"
            ),
            Note::Case(_, room) => write!(
                f,
                "virtual nodes are larger than the host's, which have room for {room} vCPUs: memory \
                 of each is interleaved between several; set a size that fits all hosts: tandem \
                 vnuma check"
            ),
            Note::Unseen(clients) => write!(
                f,
                "the guest sees one node, and has {clients} clients: its memory is interleaved between \
                 their homes; a lower numa.vcpu.min shows them to a guest that is new"
            ),
            Note::Crowded(node, vcpus, room, threads) => write!(
                f,
                "node {node} has {vcpus} vCPUs of this VM, and room for {room}: they wait for each \
                 other, or share cores; give it {}fewer vCPUs, or virtual nodes of another size",
                if *threads {
                    "numa.vcpu.preferHT (--prefer-ht), by which threads count, "
                } else {
                    ""
                }
            ),
            Note::Above(node, vcpus, room) => write!(
                f,
                "node {node} has {vcpus} vCPUs of this VM, more than numa.vcpu.maxPerMachineNode, \
                 {room}: the nodes together have no room for all; raise it, or give it fewer vCPUs"
            ),
            Note::Threads(vcpus, threads) => write!(
                f,
                "{vcpus} vCPUs on a host of {threads} pCPUs: they wait for each other, and ESXi would \
                 not power it on; give it fewer vCPUs"
            ),
            Note::Memory(node, asked, has) => write!(
                f,
                "node {node} has {has}, and {asked} of this VM is to be there; give it less memory"
            ),
            Note::Bare(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
                write!(
                    f,
                    "node {} has no memory: that of its clients is elsewhere",
                    nodes.join(", ")
                )
            }
            Note::Uneven(room) => write!(
                f,
                "nodes of this host differ: virtual nodes count by its smallest, of {room} vCPUs"
            ),
            Note::ManyVcpus(vcpus) => write!(
                f,
                "{vcpus} vCPUs, more than {PLAIN_VCPUS_MAX}: add an IOMMU with interrupt remapping and \
                 eim=on, and a split irqchip"
            ),
        }
    }
}

impl JsonSchema for Note {
    fn schema_name() -> Cow<'static, str> {
        "Note".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "A sentence.", "type": "string" })
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
