//! The names of worlds and VMs of a recording: looked up in the accounts and in the daemon's file;
//! it records nothing.

use crate::{
    Accounts, Names,
    discover::{self, Roots},
    found::comm_of,
};
use std::collections::BTreeMap;
use topology::Topology;
use trace::{Event, Kind, Place, Role};
use units::{PcpuId, VmId, WorldId};

/// The host's pCPUs, and the places of those that are on line: of others the kernel knows none.
pub(super) fn host(topology: &Topology) -> Vec<(Option<PcpuId>, Kind)> {
    let place = |id: PcpuId| {
        let p = topology.place(id);
        let [smt, core, llc, node] = [p.thread, p.core, p.llc, p.node].map(|x| x as u16);
        (Some(id), Kind::Pcpu { place: Place { smt, core, llc, node } })
    };
    let places = topology.online().iter().map(place);
    [(None, Kind::Host { pcpus: topology.pcpus() as u16 })].into_iter().chain(places).collect()
}

/// Names that were written, so that each is written once.
#[derive(Default)]
pub(super) struct Namer {
    vms: BTreeMap<u32, (String, String)>,
    /// By world: thread, VM, kind, and what it is called.
    worlds: BTreeMap<u32, (u32, u32, u32, String)>,
}

impl Namer {
    /// Names of VMs and worlds that are new since the last look, or other ones.
    pub(super) fn look(&mut self, accounts: &Accounts, ns: u64) -> Vec<Event> {
        let mut out = vec![];
        let names = Names::read().unwrap_or_default();
        let system = (0, ("system".to_owned(), "/".to_owned()));
        let vms = names
            .vms
            .iter()
            .zip(names.called())
            .map(|(v, called)| (v.id, (called, v.pool.clone())));
        for (id, name) in [system].into_iter().chain(vms) {
            if self.vms.get(&id) != Some(&name) {
                let (vm, pool) = name.clone();
                out.push(Event {
                    ns,
                    pcpu: None,
                    kind: Kind::Vm { vm: VmId(id as u16), name: vm, pool },
                });
                self.vms.insert(id, name);
            }
        }
        out.extend((1..accounts.worlds_len() as u32).flat_map(|i| self.world(accounts, i, ns)));
        out
    }

    /// Name and pCPUs of one world, if they are new.
    pub(super) fn world(&mut self, accounts: &Accounts, i: u32, ns: u64) -> Vec<Event> {
        let Some(w) = accounts.settled(i as usize) else { return vec![] };
        let comm = comm_of(&w.comm);
        let (role, name) = match w.kind {
            kind if sched_core::is_vcpu(kind) => (Role::Vcpu, format!("vcpu{}", w.index)),
            sched_core::KIND_HELPER => (Role::Helper, comm),
            _ => (Role::Host, format!("{comm}({})", w.pid)),
        };
        let key = (w.pid, w.vm, w.kind, name.clone());
        if self.worlds.get(&w.id) == Some(&key) {
            return vec![];
        }
        self.worlds.insert(w.id, key);
        let world = WorldId(w.id);
        let named = Kind::World { world, vm: VmId(w.vm as u16), role, name };
        let restricted = w.flags & sched_core::WORLD_RESTRICTED != 0;
        let set = restricted
            .then(|| discover::allowed(&Roots::default(), w.tgid as i32, w.pid as i32))
            .flatten();
        let affinity = set.map(|allowed| Kind::Affinity { world, allowed: Box::new(allowed) });
        [Some(named), affinity]
            .into_iter()
            .flatten()
            .map(|kind| Event { ns, pcpu: None, kind })
            .collect()
    }
}
