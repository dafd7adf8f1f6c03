//! Accounts that go from one load of the scheduler to the next: what VMs and host tasks have done,
//! and pCPUs. Worlds begin anew; what they did under the last load is their VM's past.

use crate::Live;
use sched_core::{Pcpu, VM_SYSTEM, Vm};
use std::collections::BTreeMap;

/// A VM that was followed: its slot, its process and that one's start.
pub(crate) type Known = (u32, (i32, u64));

/// What is carried over.
#[derive(Default)]
pub(crate) struct Carried {
    system: Option<Vm>,
    vms: BTreeMap<(i32, u64), Vm>,
    pcpus: Vec<Pcpu>,
}

impl Carried {
    /// The accounts of a scheduler that is detached: all its worlds have ended.
    pub(crate) fn of(live: &Live, vms: &[Known]) -> Carried {
        let accounts = live.accounts();
        let pcpus = 0..accounts.host().pcpus as usize;
        Carried {
            system: Some(accounts.vm(VM_SYSTEM as usize)),
            vms: vms.iter().map(|(id, key)| (*key, accounts.vm(*id as usize))).collect(),
            pcpus: pcpus.map(|i| accounts.pcpu(i)).collect(),
        }
    }

    /// Gives a scheduler that is not attached yet the past of host tasks and of pCPUs.
    ///
    /// # Errors
    /// The kernel's words.
    pub(crate) fn begin(&mut self, live: &Live) -> Result<(), crate::HostError> {
        if let Some(past) = self.system.take() {
            live.accounts().set_past(VM_SYSTEM, &past);
        }
        for (i, past) in std::mem::take(&mut self.pcpus).iter().enumerate() {
            live.set_counters(i, past)?;
        }
        Ok(())
    }

    /// Gives a VM its past, once; no world is bound to it yet.
    pub(crate) fn give(&mut self, live: &Live, (id, key): Known) {
        if let Some(past) = self.vms.remove(&key) {
            live.accounts().set_past(id, &past);
        }
    }
}
