//! The plan that the scheduler reads: one weight a VM, from shares and sizes alone; it never looks at demand.
//!
//! Promise: a VM's weight is the CPU time it gets while every powered-on VM and the host's own
//! tasks want all they can use. The ratio of weights is the ratio of shares except where a VM is
//! too small for its shares: there the weight is what it can use, and the rest belongs to the others.
//!
//! Law: `weight_i = min(λ·shares_i, vcpus_i, |allowed_i|)`, with λ such that the weights sum to
//! the host's pCPUs. The `system` group is capped by the host alone, so they always do.
//!
//! Why this cap: a runnable 1-vCPU VM with 90 % of all shares on 8 pCPUs always gets a whole pCPU
//! and never more. A scheduler that advanced its virtual time by the shares themselves would see
//! it fall behind for ever, and owe it time that it can never use.
//!
//! Units: `Rate`, 2^-20 pCPU. A weight is at least 1 unit, so that virtual time can be divided by it.
//!
//! Limits: the caps know the number of allowed pCPUs, and nothing of who else is held there: `fluid` does.
//! A plan is immutable; a change makes the next generation (style rule 14).

use crate::{Claim, fill};
use serde::{Deserialize, Serialize};
use units::{PcpuSet, Rate, VmId};

/// A powered-on VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanVm {
    /// Its id; never `VmId::SYSTEM`.
    pub vm: VmId,
    /// CPU shares.
    pub shares: u32,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// pCPUs that its vCPUs may use, `None` for all.
    pub allowed: Option<PcpuSet>,
}

/// Weights of all VMs at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    generation: u64,
    weights: Vec<(VmId, Rate)>,
}

impl Plan {
    /// Number of the plan; a later plan's is larger.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Weight of each VM, `VmId::SYSTEM` first, then in the order the VMs were given.
    #[must_use]
    pub fn weights(&self) -> &[(VmId, Rate)] {
        &self.weights
    }
}

/// Computes the plan of a host of so many pCPUs by the law above.
#[must_use]
pub fn plan(pcpus: usize, vms: &[PlanVm], system_shares: u32, generation: u64) -> Plan {
    let host = PcpuSet::first(pcpus);
    let capacity = Rate::pcpus(pcpus as u64);
    let cap = |vm: &PlanVm| {
        let allowed = vm.allowed.as_ref().map_or(pcpus, |a| a.and(&host).len());
        Rate::pcpus(u64::from(vm.vcpus).min(allowed as u64))
    };
    let system = Claim { weight: u64::from(system_shares), cap: capacity };
    let claims: Vec<Claim> =
        std::iter::once(system).chain(vms.iter().map(|vm| Claim { weight: u64::from(vm.shares), cap: cap(vm) })).collect();
    let ids = std::iter::once(VmId::SYSTEM).chain(vms.iter().map(|vm| vm.vm));
    let weights = ids.zip(fill(capacity, &claims)).map(|(vm, rate)| (vm, rate.max(Rate(1)))).collect();
    Plan { generation, weights }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(id: u16, shares: u32, vcpus: u32) -> PlanVm {
        PlanVm { vm: VmId(id), shares, vcpus, allowed: None }
    }

    #[test]
    fn weights_are_in_the_ratio_of_shares_and_sum_to_the_host() {
        // Two 8-vCPU VMs 1:6 beside a system group of 1: VS51 figure 3 with the host's own tasks.
        let p = plan(8, &[vm(1, 1000, 8), vm(2, 6000, 8)], 1000, 7);
        assert_eq!(p.weights(), [(VmId(0), Rate::ONE), (VmId(1), Rate::ONE), (VmId(2), Rate::pcpus(6))]);
        assert_eq!(p.generation(), 7);
    }

    #[test]
    fn a_vm_weighs_no_more_than_its_vcpus_and_its_pcpus() {
        let held = PlanVm { allowed: Some("2-3,900".parse().unwrap()), ..vm(2, 200_000, 4) };
        let p = plan(8, &[vm(1, 90_000, 1), held], 1000, 0);
        assert_eq!(p.weights(), [(VmId(0), Rate::pcpus(5)), (VmId(1), Rate::ONE), (VmId(2), Rate::pcpus(2))]);
    }

    #[test]
    fn no_weight_is_zero() {
        let nowhere = PlanVm { allowed: Some("900".parse().unwrap()), ..vm(2, 1, 4) };
        let p = plan(1, &[vm(1, 1, 1), nowhere, vm(3, 0, 1)], 262_144, 0);
        assert_eq!(p.weights().iter().map(|w| w.1.0).collect::<Vec<_>>(), [1_048_572, 4, 1, 1]);
    }
}
