//! Quantities and ids used at every boundary of Tandem; it computes nothing and depends on no other
//! crate of the workspace.

mod amount;
mod pcpus;
mod span;

pub use amount::{CpuAmount, CpuAmountError};
pub use pcpus::{PcpuSet, PcpuSetError};
pub use span::{Span, SpanError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every cap of the scheduler's fixed arrays, in one place. `sched/abi/caps.h` states the same
/// numbers for C; `sched-core` checks at compile time that both agree.
pub mod caps {
    /// pCPUs of one host: twice the largest x86 host sold today.
    pub const PCPUS_MAX: usize = 1024;
    /// VMs of one host, the `system` group included. VS51 names 512 for vSphere 5.1.
    pub const VMS_MAX: usize = 1024;
    /// Worlds of one host: vCPUs, helpers and host tasks. A live host has a table as long as its
    /// kernel's threads-max, and this long at most.
    pub const WORLDS_MAX: usize = 1 << 20;
    /// vCPUs of one VM; more than any guest of KVM runs today.
    pub const VCPUS_MAX: u32 = 1024;
    /// Resource pools of one host, the root included: ten for each VM of a host with a hundred.
    pub const POOLS_MAX: usize = 1024;
    /// Levels of pools below the root: cgroup trees of libvirt, Proxmox and KubeVirt have 2 to 5.
    pub const POOL_DEPTH_MAX: usize = 16;
    /// Limits in force at once, of VMs and pools together.
    pub const LIMITERS_MAX: usize = 1024;
    /// Largest shares a VM or pool may have: ESXi's own range (libvirt's esx driver accepts
    /// 0..262144).
    pub const SHARES_MAX: u64 = 262_144;
}

/// Ways of co-scheduling the vCPUs of a VM by the value of the knob `cosched`, as `--set
/// cosched=relaxed` and files name them.
pub const COSCHED_MODES: [&str; 3] = ["off", "relaxed", "strict"];

/// What the threads of a core may run at once by the value of the knob `core_sharing`: worlds of
/// any VMs, of one VM, or one world of a VM.
pub const CORE_SHARING_MODES: [&str; 3] = ["any", "vm", "none"];

/// What the threads of a core may run at once; host tasks run beside all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoreSharing {
    /// Worlds of any VMs.
    #[default]
    Any,
    /// Worlds of one VM (ESXi's side-channel-aware scheduler, version 2).
    Vm,
    /// One world of a VM (version 1).
    None,
}

impl CoreSharing {
    /// Whether worlds of two VMs, or two worlds of one, may run at once.
    #[must_use]
    pub fn lets(self, one: VmId, other: VmId) -> bool {
        let host = one == VmId::SYSTEM || other == VmId::SYSTEM;
        host || match self {
            CoreSharing::Any => true,
            CoreSharing::Vm => one == other,
            CoreSharing::None => false,
        }
    }

    /// By the value of the knob `core_sharing`.
    #[must_use]
    pub fn of(knob: u64) -> CoreSharing {
        match knob {
            0 => CoreSharing::Any,
            1 => CoreSharing::Vm,
            _ => CoreSharing::None,
        }
    }
}

/// Names of a knob's values, in their order; empty for one that is a number.
#[must_use]
pub fn knob_modes(name: &str) -> &'static [&'static str] {
    match name {
        "cosched" => &COSCHED_MODES,
        "core_sharing" => &CORE_SHARING_MODES,
        _ => &[],
    }
}

/// Value of a knob: a number, or a name where it has names; none if it is neither.
#[must_use]
pub fn knob_value(name: &str, text: &str) -> Option<u64> {
    let mode = || knob_modes(name).iter().position(|m| *m == text);
    text.parse().ok().or_else(|| mode().map(|i| i as u64))
}

/// Index of a pCPU (a logical processor of the host).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct PcpuId(pub u16);

/// Index of a world (vCPU, helper of a VM or host task) in the scheduler's tables.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct WorldId(pub u32);

/// Index of a VM in the scheduler's tables; 0 is the `system` group of host tasks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct VmId(pub u16);

impl VmId {
    /// The group that all host tasks belong to.
    pub const SYSTEM: VmId = VmId(0);
}

/// CPU shares of a VM: unitless, compared with its siblings' only (spec P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shares(u32);

/// Shares outside what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shares: cannot use {seen}: allowed 1..{max}; give low, normal, high or a number in that \
    range", max = caps::SHARES_MAX)]
pub struct SharesError {
    /// What was given.
    pub seen: i128,
}

impl Shares {
    /// Shares of one vCPU at the presets low, normal and high (VMware vSphere Resource Management).
    pub const PER_VCPU: [(&'static str, u32); 3] = [("low", 500), ("normal", 1000), ("high", 2000)];

    /// Checks the range 1..=262144.
    ///
    /// # Errors
    /// `SharesError` outside that range.
    pub fn new(shares: i128) -> Result<Self, SharesError> {
        if shares < 1 || shares > i128::from(caps::SHARES_MAX) {
            return Err(SharesError { seen: shares });
        }
        Ok(Shares(shares as u32))
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// A rate of CPU time in units of 2^-20 pCPU: 1 << 20 is one whole pCPU (rounding error below
/// one millionth of a pCPU). The scheduler's weights and the planner's entitlements use it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Rate(pub u64);

impl Rate {
    /// Fraction bits of a `Rate`.
    pub const SHIFT: u32 = 20;
    /// One whole pCPU.
    pub const ONE: Rate = Rate(1 << Self::SHIFT);

    /// `n` whole pCPUs.
    #[must_use]
    pub fn pcpus(n: u64) -> Rate {
        Rate(n << Self::SHIFT)
    }

    /// CPU time in ns that this rate yields over `wall`, rounded down.
    #[must_use]
    pub fn over(self, wall: Span) -> u64 {
        ((u128::from(self.0) * u128::from(wall.ns())) >> Self::SHIFT) as u64
    }

    /// As a text in percent of one pCPU, `37.5 %`, rounded to the nearest thousandth.
    #[must_use]
    pub fn percent(self) -> String {
        let thousandths = (u128::from(self.0) * 100_000 + (1 << (Self::SHIFT - 1))) >> Self::SHIFT;
        format!("{} %", amount::decimal(thousandths))
    }
}
