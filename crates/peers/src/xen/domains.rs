//! Weight and cap of each domain, from the shares and the limit of its VM. It divides nothing.
//!
//! *Law*: both of Xen's schedulers weigh a vCPU by the weight of its domain, so a domain of eight
//! vCPUs that all want to run weighs eight times as much. Shares are of a VM as a whole. A weight
//! is `256 · shares ÷ (1000 · vCPUs)`: that of normal shares is 256, Xen's default. It is kept in
//! thousandths, so that shares per vCPU keep their ratio to three digits where Xen has whole
//! weights of 1 to 65,535. A limit is a cap in whole percents of a pCPU, rounded to the nearest and
//! 1 at least; one of more than the VM's vCPUs is none.
//!
//! *Example*: 4,000 shares over 8 vCPUs are 500 each, and a weight of 128 (128,000 here).

use contract::{LimitOf, Limits, Plan, VmTerms};

/// Domain-0, to which host tasks belong.
pub(super) const DOMAIN_0: u32 = 0;
/// A weight of 256, in thousandths.
const DEFAULT_WEIGHT: u64 = 256_000;

/// A domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain {
    vcpus: u64,
    /// Weight of each of its vCPUs, in thousandths.
    pub(super) weight: u64,
    /// Cap in percent of a pCPU, 0 for none.
    pub(super) cap: u64,
}

/// All domains, by VM.
#[derive(Clone, Debug)]
pub(super) struct Domains(Vec<Domain>);

impl Domains {
    /// So many domains of default weight.
    pub(super) fn new(vms: usize) -> Domains {
        Domains(vec![Domain { vcpus: 1, weight: DEFAULT_WEIGHT, cap: 0 }; vms])
    }

    /// A domain.
    pub(super) fn of(&self, vm: u32) -> Domain {
        self.0[vm as usize]
    }

    /// A VM has these shares.
    pub(super) fn terms(&mut self, terms: &VmTerms) {
        self.0[terms.vm as usize].vcpus = u64::from(terms.vcpus.max(1));
        self.weigh(terms.vm, u64::from(terms.shares));
    }

    /// VMs have the shares of a plan.
    pub(super) fn plan(&mut self, plan: &Plan<'_>) {
        for (vm, leaf) in plan.vms.iter().zip(plan.tree.leaves()) {
            self.weigh(*vm, leaf.shares);
        }
    }

    fn weigh(&mut self, vm: u32, shares: u64) {
        if vm != DOMAIN_0 {
            let domain = &mut self.0[vm as usize];
            domain.weight = (shares * 256 / domain.vcpus).max(1);
        }
    }

    /// VMs have these limits, and no others.
    pub(super) fn limits(&mut self, limits: &Limits<'_>) {
        self.0.iter_mut().for_each(|d| d.cap = 0);
        for limit in limits.limits {
            if let LimitOf::Vm(vm) = limit.of {
                let domain = &mut self.0[vm as usize];
                domain.cap = cap(limit.rate.0, domain.vcpus);
            }
        }
    }
}

/// The cap of a domain by a limit in 2^-20 pCPU.
fn cap(rate: u64, vcpus: u64) -> u64 {
    let percent = ((rate * 100 + (1 << 19)) >> 20).max(1);
    if percent > 100 * vcpus { 0 } else { percent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_per_vcpu_are_weights_and_those_of_domain_0_are_its_own() {
        let mut domains = Domains::new(3);
        for (vm, vcpus, shares) in [(0, 8, 8000), (1, 8, 4000), (2, 3, 100)] {
            domains.terms(&VmTerms { vm, vcpus, shares });
        }
        assert_eq!([0, 1, 2].map(|vm| domains.of(vm).weight), [256_000, 128_000, 8533]);
    }

    #[test]
    fn a_limit_is_a_cap_in_whole_percents_unless_the_vcpus_cannot_reach_it() {
        let cap = |vcpus, permille: u64| cap((permille << 20) / 1000, vcpus);
        assert_eq!([cap(8, 4000), cap(1, 374), cap(1, 1), cap(1, 1020)], [400, 37, 1, 0]);
    }
}
