//! Stores the names of worlds, VMs and pCPUs, so that a file can repeat them and tables can show
//! them; it drops worlds that have ended.

use crate::{Event, Kind, Place, Role, State};
use std::collections::BTreeMap;
use units::{PcpuId, PcpuSet, VmId, WorldId, caps};

/// Most names that are kept: two for each world (name and pCPUs), one for each VM and pCPU, and the
/// host.
const KEPT_MAX: usize = 2 * caps::WORLDS_MAX + caps::VMS_MAX + caps::PCPUS_MAX + 1;

/// What is named, in the order in which a file repeats it: host, pCPUs, VMs, worlds, their pCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Host,
    Pcpu(PcpuId),
    Vm(VmId),
    World(WorldId),
    Affinity(WorldId),
}

/// The names so far. Memory is bounded: beyond a full host's, names are not kept.
#[derive(Clone, Debug, Default)]
pub struct Names {
    kept: BTreeMap<Key, Event>,
    forget: bool,
}

impl Names {
    /// Names of which those of worlds that are gone are forgotten.
    pub(crate) fn of_living() -> Names {
        Names { forget: true, ..Names::default() }
    }

    /// Takes an event, and keeps it if it is a name.
    pub fn take(&mut self, event: &Event) {
        let key = match (&event.kind, event.pcpu) {
            (Kind::Host { .. }, _) => Key::Host,
            (Kind::Pcpu { .. }, Some(p)) => Key::Pcpu(p),
            (Kind::Vm { vm, .. }, _) => Key::Vm(*vm),
            (Kind::World { world, .. }, _) => Key::World(*world),
            (Kind::Affinity { world, .. }, _) => Key::Affinity(*world),
            (Kind::State { world, to: State::None, .. }, _) if self.forget => {
                self.kept.remove(&Key::World(*world));
                self.kept.remove(&Key::Affinity(*world));
                return;
            }
            _ => return,
        };
        if self.kept.len() < KEPT_MAX || self.kept.contains_key(&key) {
            self.kept.insert(key, event.clone());
        }
    }

    /// The events that tell all of it again.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.kept.values()
    }

    /// Name of a world; its number if it has none.
    #[must_use]
    pub fn world(&self, world: WorldId) -> String {
        match self.kept.get(&Key::World(world)).map(|e| &e.kind) {
            Some(Kind::World { name, .. }) if !name.is_empty() => name.clone(),
            _ => world.0.to_string(),
        }
    }

    /// Name of a world behind its VM's, `db/vcpu0`; alone if its VM is unknown.
    #[must_use]
    pub fn full(&self, world: WorldId) -> String {
        let name = self.world(world);
        self.vm_of(world).map_or_else(|| name.clone(), |(vm, _)| format!("{}/{name}", self.vm(vm)))
    }

    /// VM of a world and its kind there, if that is known.
    #[must_use]
    pub fn vm_of(&self, world: WorldId) -> Option<(VmId, Role)> {
        match self.kept.get(&Key::World(world)).map(|e| &e.kind) {
            Some(Kind::World { vm, role, .. }) => Some((*vm, *role)),
            _ => None,
        }
    }

    /// Name of a VM; `VM n` if it has none.
    #[must_use]
    pub fn vm(&self, vm: VmId) -> String {
        match self.kept.get(&Key::Vm(vm)).map(|e| &e.kind) {
            Some(Kind::Vm { name, .. }) if !name.is_empty() => name.clone(),
            _ => format!("VM {}", vm.0),
        }
    }

    /// pCPUs that a world may use; none if it is unknown, and it may use all.
    #[must_use]
    pub fn allowed(&self, world: WorldId) -> Option<&PcpuSet> {
        match self.kept.get(&Key::Affinity(world)).map(|e| &e.kind) {
            Some(Kind::Affinity { allowed, .. }) => Some(allowed),
            _ => None,
        }
    }

    /// Place of a pCPU, if it is known.
    #[must_use]
    pub fn place(&self, pcpu: PcpuId) -> Option<Place> {
        match self.kept.get(&Key::Pcpu(pcpu)).map(|e| &e.kind) {
            Some(Kind::Pcpu { place }) => Some(*place),
            _ => None,
        }
    }

    /// Number of pCPUs of the host, if it is known.
    #[must_use]
    pub fn pcpus(&self) -> Option<u16> {
        match self.kept.get(&Key::Host).map(|e| &e.kind) {
            Some(Kind::Host { pcpus }) => Some(*pcpus),
            _ => None,
        }
    }
}
