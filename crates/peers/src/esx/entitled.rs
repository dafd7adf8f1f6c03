//! What VMs are entitled to where there is more than shares; it charges nothing.
//!
//! *Law*: each `DIVIDE_NS` the tree of pools is divided by what the worlds want. A vCPU weighs what
//! its VM could have of the host, by the pCPUs that the VM wants.
//!
//! *Documented*: a world's priority is what it has consumed by what it is entitled to, which
//! follows from shares, reservations and limits, and is evaluated anew all the time (VS51
//! "Proportional Share-Based Algorithm"); pools divide what they have among their own.
//! *Our reading*: the division, which is that of Tandem's planner (`entitlement`), and its period.

use super::{DIVIDE, Esx, NORMAL};
use contract::{Callback, Plan};
use entitlement::{Meter, Tree};
use units::Rate;

/// So often the host is divided, in ns.
const DIVIDE_NS: u64 = 100_000_000;

/// A tree that is divided.
#[derive(Clone, Debug)]
pub(super) struct Divided {
    tree: Tree,
    /// VM of each leaf.
    vms: Vec<u32>,
    /// The least that a vCPU can be entitled to.
    least: u64,
    meter: Meter,
    at_ns: u64,
}

impl Esx {
    /// A plan is in force from now on.
    pub(super) fn divide_by(&mut self, k: &mut Callback<'_>, plan: &Plan<'_>) {
        if plan.tree.is_flat() {
            self.divided = None;
            return;
        }
        let (tree, vms) = (plan.tree.clone(), plan.vms.to_vec());
        let worst = tree.worst_case().leaves;
        let each = tree.leaves().iter().zip(&worst).zip(&vms);
        let of_vms = each.filter(|(_, vm)| **vm != 0);
        let least = of_vms.map(|((leaf, rate), _)| rate / u64::from(leaf.vcpus.max(1))).min();
        let least = least.unwrap_or(1).max(1);
        let had = self.divided.take();
        if had.is_none() {
            k.kernel.arm(DIVIDE, DIVIDE_NS);
        }
        let (meter, at_ns) = had.map_or((Meter::default(), k.now_ns), |d| (d.meter, d.at_ns));
        self.divided = Some(Divided { tree, vms, least, meter, at_ns });
        self.divide(k);
    }

    /// Divides the host anew.
    pub(super) fn divide(&mut self, k: &mut Callback<'_>) {
        let Some(mut d) = self.divided.take() else { return };
        let period_ns = k.now_ns - std::mem::replace(&mut d.at_ns, k.now_ns);
        let mut wants = vec![0; self.vms.len()];
        d.meter.begin();
        for world in 1..self.worlds.len() as u32 {
            let account = &self.worlds[world as usize];
            let since = |from: u64, on: bool| if on { k.now_ns - from } else { 0 };
            let ran_ns = account.used_ns + since(account.since_ns, account.runs);
            let wanted_ns = account.wanted_ns + since(account.wanted_at_ns, account.awake);
            let waited_ns = wanted_ns.saturating_sub(ran_ns);
            if wanted_ns > 0 {
                let rate = d.meter.demand(world, ran_ns, waited_ns, period_ns);
                wants[account.vm as usize] += rate.0;
            }
        }
        let demands: Vec<u64> = d.vms.iter().map(|vm| wants[*vm as usize]).collect();
        let could = d.tree.could(Rate::ONE.0, &demands).leaves;
        for ((vm, leaf), could) in d.vms.iter().zip(d.tree.leaves()).zip(could) {
            let most = u64::from(leaf.vcpus.max(1));
            let pcpus = wants[*vm as usize].div_ceil(Rate::ONE.0).clamp(1, most);
            let weight = could * NORMAL / (pcpus * d.least);
            self.vms[*vm as usize].weight_per_vcpu = weight.max(NORMAL);
        }
        self.divided = Some(d);
        self.weigh_vcpus(k.now_ns);
    }

    /// Its timer has come.
    pub(super) fn divide_later(&mut self, k: &mut Callback<'_>) {
        if self.divided.is_some() {
            self.divide(k);
            k.kernel.arm(DIVIDE, DIVIDE_NS);
        }
    }
}
