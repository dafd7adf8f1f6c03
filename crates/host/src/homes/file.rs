//! The file of homes that the daemon writes for its readers, every round.

use super::{Homed, Homes, Part};
use crate::{HostError, run_dir::write_whole, slots::Slots};
use esxtop::VmMemory;
use numa::{ClientId, Decision};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path};
use units::{PcpuId, PcpuSet};
use views::NumaClient;

/// Where the daemon writes it.
pub const HOMES_FILE: &str = "/run/tandem/homes.json";

/// Homes of a VM, and where its memory is; nodes by the kernel's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmHomes {
    /// Number in the scheduler's tables.
    pub id: u32,
    /// Name of the VM.
    pub name: String,
    /// Process of the hypervisor.
    pub pid: i32,
    /// Start time of that process in clock ticks.
    pub started: u64,
    /// Size of its memory, in bytes.
    pub memory: u64,
    /// Its parts.
    pub clients: Vec<NumaClient>,
}

/// Removes the file, if there is one.
pub(super) fn remove() {
    let _ = fs::remove_file(HOMES_FILE);
}

impl VmHomes {
    /// Its memory as esxtop has it.
    #[must_use]
    pub fn memory(&self) -> VmMemory {
        let migrations = self.clients.iter().map(NumaClient::migrations).sum();
        let parts = self.clients.iter().map(|c| (c.home, &c.bytes[..]));
        VmMemory::of(self.memory, migrations, parts)
    }
}

/// Homes of all VMs that have some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomesFile {
    /// The daemon's process.
    pub daemon: u32,
    /// The VMs.
    pub vms: Vec<VmHomes>,
}

impl HomesFile {
    /// The file of the daemon with this process id; `None` if it gives VMs no homes.
    #[must_use]
    pub fn read(daemon: u32) -> Option<HomesFile> {
        let text = fs::read_to_string(HOMES_FILE).ok()?;
        let file: HomesFile = serde_json::from_str(&text).ok()?;
        // An older daemon may have left one.
        (file.daemon == daemon).then_some(file)
    }

    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// `HostError::Object` when /run is not writable.
    pub(crate) fn write(&self) -> Result<(), HostError> {
        write_whole(Path::new(HOMES_FILE), &serde_json::to_string(self).unwrap_or_default())
    }
}

impl Homes {
    /// All that the readers get.
    pub(super) fn file(&self, slots: &Slots) -> HomesFile {
        let names: BTreeMap<u32, &str> =
            slots.found().filter_map(|f| Some((slots.of(f.pid)?, f.name.as_str()))).collect();
        let vm = |(id, vm): (&u32, &Homed)| VmHomes {
            id: *id,
            name: names.get(id).copied().unwrap_or_default().to_owned(),
            pid: vm.pid,
            started: vm.started,
            memory: vm.guest.bytes(),
            clients: vm.parts.iter().map(|p| self.client(vm, p, &names)).collect(),
        };
        HomesFile { daemon: std::process::id(), vms: self.vms.iter().map(vm).collect() }
    }

    fn client(&self, vm: &Homed, part: &Part, names: &BTreeMap<u32, &str>) -> NumaClient {
        let kernel = |node: u32| self.nodes.get(node as usize).map_or(node, |n| n.kernel);
        let nodes = self.nodes.iter().map(|n| n.kernel as usize + 1).max().unwrap_or(0);
        let mut bytes = vec![0; nodes];
        for (n, at) in self.nodes.iter().zip(&part.memory) {
            bytes[n.kernel as usize] = *at;
        }
        let talks = self.planner.talks(part.id);
        let talks = talks.filter_map(|(with, n)| Some(((*names.get(&with.vm)?).to_owned(), n)));
        NumaClient {
            vcpus: part.tids.len() as u32,
            home: self.planner.home(part.id).map(kernel),
            bytes,
            changes: part.changes.iter().map(|(r, n)| (r.name().to_owned(), *n)).collect(),
            moved_bytes: part.moved,
            llcs: self.chosen.of(part),
            decisions: self
                .decisions(part.id)
                .map(|d| format!("{}: {d}", d.ago(self.round_ns)))
                .chain(self.chosen.decisions(part.id, self.round_ns))
                .collect(),
            notes: self.notes(vm, part),
            talks: talks.collect(),
        }
    }

    /// What affinity, cpusets and bound memory leave a part, in words; `None`: all nodes.
    pub(super) fn held(&self, part: &Part) -> Option<String> {
        let nodes = |mask: u64| -> PcpuSet {
            let at = (0..).zip(&self.nodes).filter(|(node, _)| mask >> node & 1 != 0);
            at.map(|(_, n)| PcpuId(n.kernel as u16)).collect()
        };
        match part.nodes & self.all() {
            0 => Some(
                "affinity or cpuset leave no node with room for all its vCPUs: no home".to_owned(),
            ),
            some if some == self.all() => None,
            some => Some(format!(
                "affinity, cpuset or bound memory leave it NUMA nodes {}",
                nodes(some)
            )),
        }
    }

    /// What holds a part and its memory, in words.
    fn notes(&self, vm: &Homed, part: &Part) -> Vec<String> {
        let mut out: Vec<String> = self.held(part).into_iter().collect();
        if self.planner.roams(part.id.vm) {
            out.push(numa::ROAMS.to_owned());
        } else if self.planner.is_homeless(part.id.vm) {
            out.push(numa::NO_ROOM.to_owned());
        }
        out.extend(self.chosen.note(part.id));
        let bound = &vm.bound.all;
        if !bound.is_empty() {
            out.push(format!("its memory is bound to NUMA nodes {bound}: it is not moved"));
        } else if !vm.known {
            out.push("its memory waits: what binds it is not known yet".to_owned());
        }
        out
    }

    /// What was decided of a part last.
    fn decisions(&self, id: ClientId) -> impl Iterator<Item = Decision> + '_ {
        self.planner.decisions(id).map(|d| self.shown(d))
    }
}
