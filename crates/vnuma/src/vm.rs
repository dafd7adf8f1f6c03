//! A VM with ESXi's NUMA options, by their names and defaults, and what is refused of them; it
//! decides nothing.

use crate::mib::Mib;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::{borrow::Cow, fmt};
use units::caps::VCPUS_MAX;

/// Virtual nodes of one VM: QEMU has no more (its `MAX_NODES`).
pub const VIRTUAL_NODES_MAX: u32 = 128;

/// vCPUs of one VM that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vcpus {
    /// The first, from 0.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Vcpus {
    /// Their numbers.
    #[must_use]
    pub fn ids(self) -> std::ops::Range<u32> {
        self.first..self.first + self.count
    }

    /// Whether some vCPU is in both.
    #[must_use]
    pub fn meets(self, other: Vcpus) -> bool {
        self.first < other.ids().end && other.first < self.ids().end
    }
}

impl fmt::Display for Vcpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "{}", self.first),
            n => write!(f, "{}-{}", self.first, self.first + n - 1),
        }
    }
}

impl JsonSchema for Vcpus {
    fn schema_name() -> Cow<'static, str> {
        "Vcpus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Numbers of vCPUs, such as 0-7.", "type": "string" })
    }
}

impl Serialize for Vcpus {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// What decides on a VM's virtual topology and clients. Defaults are ESXi's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Options {
    /// `numa.vcpu.min`: VMs of fewer vCPUs have no virtual topology; 9.
    pub vcpu_min: u32,
    /// `numa.vcpu.maxPerVirtualNode`: vCPUs of a virtual node at most, where it is set. ESXi lists
    /// 8 as its default, and yet sizes nodes by cores where nothing is set (VS51); so unset here.
    pub max_per_virtual_node: Option<u32>,
    /// `numa.vcpu.maxPerMachineNode`: vCPUs of the VM on one node of the host at most; unset: the
    /// node's cores, or its threads with `prefer_ht`. It lowers that number, and never raises it.
    pub max_per_machine_node: Option<u32>,
    /// `numa.vcpu.preferHT`: a node counts by its threads instead of its cores; FALSE.
    pub prefer_ht: bool,
    /// `numa.autosize`: virtual nodes are sized by the host's nodes, whatever else is set; FALSE.
    pub autosize: bool,
    /// `numa.autosize.once`: what was decided once stays; TRUE. FALSE together with `autosize`
    /// decides anew at each power-on.
    pub autosize_once: bool,
    /// `cpuid.coresPerSocket`: cores of a virtual socket; 1 is not set.
    pub cores_per_socket: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            vcpu_min: 9,
            max_per_virtual_node: None,
            max_per_machine_node: None,
            prefer_ht: false,
            autosize: false,
            autosize_once: true,
            cores_per_socket: 1,
        }
    }
}

/// A VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Vm {
    /// What it is called.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its memory, in MiB.
    pub memory: Mib,
    /// Its NUMA options.
    pub options: Options,
}

/// A VM, or a remembered decision, that cannot be planned for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A number outside its range.
    #[error("VM '{vm}': cannot use {option}: seen {seen}, allowed {low}..{high}; correct it")]
    Range {
        /// The VM.
        vm: String,
        /// The option, by ESXi's name.
        option: &'static str,
        /// What was given.
        seen: u64,
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
    /// Both sizes are set.
    #[error(
        "VM '{vm}': cannot size virtual nodes: seen cpuid.coresPerSocket {cores} and \
        numa.vcpu.maxPerVirtualNode {nodes}, allowed one of them; leave one out"
    )]
    TwoSizes {
        /// The VM.
        vm: String,
        /// `cpuid.coresPerSocket`.
        cores: u32,
        /// `numa.vcpu.maxPerVirtualNode`.
        nodes: u32,
    },
    /// More virtual nodes than QEMU has.
    #[error("VM '{vm}': cannot have {nodes} virtual nodes of {size} vCPUs: seen {nodes}, allowed \
        1..{max}; give it larger virtual nodes", max = VIRTUAL_NODES_MAX)]
    TooManyNodes {
        /// The VM.
        vm: String,
        /// How many there would be.
        nodes: u32,
        /// vCPUs of the largest.
        size: u32,
    },
    /// Too little memory to give each virtual node some.
    #[error(
        "VM '{vm}': cannot divide {memory} among {nodes} virtual nodes: seen less than a MiB \
        for one of them, allowed 1 MiB or more for each; give it more memory"
    )]
    Memory {
        /// The VM.
        vm: String,
        /// What it has.
        memory: Mib,
        /// Its virtual nodes.
        nodes: u32,
    },
    /// A remembered size that no decision can have.
    #[error(
        "VM '{vm}': cannot use its remembered topology: seen a size of {size} for {vcpus} \
        vCPUs, allowed a size that divides them as evenly as can be; restore the file, or remove \
        this VM from it to decide anew"
    )]
    Remembered {
        /// The VM.
        vm: String,
        /// The size.
        size: u32,
        /// The vCPUs it was for.
        vcpus: u32,
    },
}

impl Vm {
    /// Whether every number is in its range, and not both sizes are set.
    ///
    /// # Errors
    /// `Refused` names the first that is not.
    pub fn check(&self) -> Result<(), Refused> {
        let o = &self.options;
        let most = u64::from(VCPUS_MAX);
        let in_range = |option: &'static str, seen: u64, high: u64| {
            let vm = self.name.clone();
            let refused = Refused::Range { vm, option, seen, low: 1, high };
            if (1..=high).contains(&seen) { Ok(()) } else { Err(refused) }
        };
        in_range("vCPUs", self.vcpus.into(), most)?;
        in_range("memory in MiB", self.memory.0, Mib::MAX.0)?;
        in_range("numa.vcpu.min", o.vcpu_min.into(), most + 1)?;
        in_range("cpuid.coresPerSocket", o.cores_per_socket.into(), most)?;
        if let Some(n) = o.max_per_machine_node {
            in_range("numa.vcpu.maxPerMachineNode", n.into(), most)?;
        }
        let Some(nodes) = o.max_per_virtual_node else { return Ok(()) };
        in_range("numa.vcpu.maxPerVirtualNode", nodes.into(), most)?;
        if o.cores_per_socket > 1 {
            let cores = o.cores_per_socket;
            return Err(Refused::TwoSizes { vm: self.name.clone(), cores, nodes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(options: Options) -> Vm {
        Vm { name: "db".into(), vcpus: 16, memory: Mib(1024), options }
    }

    #[test]
    fn defaults_are_those_of_esxi() {
        let o = Options::default();
        assert_eq!((o.vcpu_min, o.cores_per_socket), (9, 1));
        assert!(!o.prefer_ht && !o.autosize && o.autosize_once);
        assert_eq!((o.max_per_virtual_node, o.max_per_machine_node), (None, None));
        assert_eq!(vm(o).check(), Ok(()));
    }

    #[test]
    fn numbers_outside_their_range_and_two_sizes_are_refused_by_name() {
        let said = |vm: Vm| vm.check().unwrap_err().to_string();
        let of = |o: Options| said(vm(o));
        let base = Options::default();
        assert_eq!(
            said(Vm { vcpus: 0, ..vm(base) }),
            "VM 'db': cannot use vCPUs: seen 0, allowed 1..1024; correct it"
        );
        assert!(said(Vm { memory: Mib(0), ..vm(base) }).contains("memory in MiB: seen 0,"));
        assert!(of(Options { vcpu_min: 0, ..base }).contains("numa.vcpu.min: seen 0"));
        assert!(
            of(Options { cores_per_socket: 0, ..base }).contains("cpuid.coresPerSocket: seen 0")
        );
        let none = Some(0);
        assert!(
            of(Options { max_per_machine_node: none, ..base })
                .contains("maxPerMachineNode: seen 0")
        );
        assert!(
            of(Options { max_per_virtual_node: none, ..base })
                .contains("maxPerVirtualNode: seen 0")
        );
        assert!(
            of(Options { max_per_virtual_node: Some(4), cores_per_socket: 8, ..base })
                .contains("seen cpuid.coresPerSocket 8 and numa.vcpu.maxPerVirtualNode 4")
        );
    }

    #[test]
    fn vcpus_are_written_as_the_kernel_writes_lists() {
        let v = |first, count| Vcpus { first, count };
        assert_eq!((v(3, 1).to_string(), v(4, 4).to_string()), ("3".into(), "4-7".into()));
        assert!(v(0, 4).meets(v(3, 4)) && !v(0, 4).meets(v(4, 4)) && !v(4, 4).meets(v(0, 4)));
    }
}
