//! What worlds are charged, and what they weigh; it picks none.
//!
//! *Law*: a world is charged the CPU time that it uses, and `Terms::shared_charge` of it while
//! another thread of its core is busy. Its virtual time grows by that over its weight.

use super::{Esx, NORMAL};
use contract::{Accounts, Callback};

impl Esx {
    /// Shares of a vCPU, such that the least of all is `NORMAL`: shares are relative, and virtual
    /// time, which is bounded by quanta, grows no faster than time.
    pub(super) fn scaled(&self, shares: u64, vcpus: u32) -> u64 {
        let (by, of) = (u128::from(self.scale.0), u128::from(self.scale.1));
        (u128::from(shares) * by / (of * u128::from(vcpus.max(1)))) as u64
    }

    /// Weight of a world, `NORMAL` for a vCPU of the least shares.
    pub(super) fn weight(&self, world: u32) -> u64 {
        let account = &self.worlds[world as usize];
        self.vms[account.vm as usize].weight_per_vcpu.max(1)
    }

    /// Charges what a running world used since the last charge.
    pub(super) fn charge(&mut self, k: &Callback<'_>, world: u32) {
        let weight = self.weight(world);
        let pcpu = k.task(world).pcpu as usize;
        let shares_core = self.pcpus[pcpu].twins.iter().any(|p| self.is_busy(*p));
        let account = &mut self.worlds[world as usize];
        let ran = k.now_ns - std::mem::replace(&mut account.since_ns, k.now_ns);
        let charged = if shares_core { ran * self.terms.shared_charge / 1000 } else { ran };
        account.used_ns += ran;
        account.lost_ns += ran - charged;
        account.vtime_ns += charged * NORMAL / weight;
        if !(self.terms.guest_progress && account.outside) {
            account.progress_ns += ran;
        }
        self.pcpus[pcpu].busy_ns += ran;
        let vm = account.vm;
        self.pay(k.now_ns, vm, ran);
        self.hand_out(world, k.now_ns, charged);
    }

    /// Whether a world runs on a pCPU.
    pub(super) fn is_busy(&self, pcpu: u32) -> bool {
        self.pcpus[pcpu as usize].runs != 0
    }

    /// Charges the worlds on the other threads of a core: from now on they are charged otherwise.
    pub(super) fn charge_twins(&mut self, k: &Callback<'_>, pcpu: u32) {
        for i in 0..self.pcpus[pcpu as usize].twins.len() {
            let twin = self.pcpus[pcpu as usize].twins[i];
            match self.pcpus[twin as usize].runs {
                0 => {}
                world => self.charge(k, world),
            }
        }
    }
}

impl Accounts for Esx {
    fn charged_ns(&self, world: u32) -> Option<u64> {
        Some(self.worlds[world as usize].used_ns)
    }

    fn lost_ns(&self, world: u32, now_ns: u64) -> u64 {
        let account = &self.worlds[world as usize];
        let shared = |pcpu: u32| self.pcpus[pcpu as usize].twins.iter().any(|p| self.is_busy(*p));
        let running = account.runs && account.at.is_some_and(shared);
        let ran = if running { now_ns - account.since_ns } else { 0 };
        account.lost_ns + ran - ran * self.terms.shared_charge / 1000
    }

    fn busy_ns(&self, pcpu: u32) -> Option<u64> {
        Some(self.pcpus[pcpu as usize].busy_ns)
    }
}
