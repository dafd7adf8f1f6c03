//! Names and settings of the VMs and pools behind the scheduler's numbers: a small file that the
//! daemon writes for its readers, and the tree that they make.

use crate::{HostError, loaded, run_dir::write_whole};
use entitlement::{Taken, Tree, TreeLeaf, TreePool};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path};
use units::Rate;

/// Where the daemon writes it.
pub const NAMES_FILE: &str = "/run/tandem/vms.json";

/// Source of each setting that is not a default: `file`, `attribute`, or the cgroup's file.
pub type Sources = BTreeMap<String, String>;

/// One resource pool as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolName {
    /// Path from the root: `/gold/web`, or the cgroup's.
    pub path: String,
    /// Path of the pool it is in; the root's is its own.
    pub parent: String,
    /// CPU shares among its siblings.
    pub shares: u32,
    /// What it gets whatever the load, in 2^-20 pCPU.
    pub reservation: Rate,
    /// What it never exceeds.
    pub limit: Option<Rate>,
    /// CPU time in ns that may be saved up below the limit.
    pub burst_ns: u64,
    /// Whether reservations below it may borrow from its parent.
    pub expandable: bool,
    /// Whether its shares grow with those of its children.
    pub scalable: bool,
    /// Its source.
    pub sources: Sources,
}

/// One VM as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmName {
    /// Number in the scheduler's tables.
    pub id: u32,
    /// Name of the VM.
    pub name: String,
    /// Process of the hypervisor.
    pub pid: i32,
    /// Start time of that process in clock ticks.
    pub started: u64,
    /// Path of the pool it is in.
    pub pool: String,
    /// CPU shares in force.
    pub shares: u32,
    /// What it gets whatever the load, in 2^-20 pCPU.
    pub reservation: Rate,
    /// What it never exceeds.
    pub limit: Option<Rate>,
    /// CPU time in ns that may be saved up below the limit.
    pub burst_ns: u64,
    /// vCPUs found.
    pub vcpus: u32,
    /// Entitlement if all want all they can use, in 2^-20 pCPU.
    pub weight: u64,
    /// Its cgroup.
    pub cgroup: String,
    /// Sources of its settings.
    pub sources: Sources,
}

/// All pools and VMs of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Generation of the plan.
    pub generation: u64,
    /// The daemon's process.
    pub daemon: u32,
    /// pCPUs that are online.
    pub pcpus: u32,
    /// Cores that have one; 0, of an older daemon, for as many.
    #[serde(default)]
    pub cores: u32,
    /// Thousandths of its CPU time that a world is charged on a shared core.
    #[serde(default)]
    pub shared_charge: u64,
    /// What it counts for there where the host is divided; 0, of an older daemon, for the same.
    #[serde(default)]
    pub divided_charge: u64,
    /// Speed of a pCPU in MHz, as reservations and limits count it.
    pub mhz: u32,
    /// Shares of the system group.
    pub system_shares: u32,
    /// What real-time tasks and others of higher scheduling classes take of each pCPU, on the
    /// average.
    #[serde(default)]
    pub taken: Taken,
    /// The pools, the root first, parents before children.
    pub pools: Vec<PoolName>,
    /// The VMs.
    pub vms: Vec<VmName>,
}

impl Names {
    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// `HostError::Object` when /run is not writable.
    pub fn write(&self) -> Result<(), HostError> {
        write_whole(Path::new(NAMES_FILE), &serde_json::to_string_pretty(self).unwrap_or_default())
    }

    /// Reads the file of a running daemon.
    ///
    /// # Errors
    /// `HostError::Object` when there is none or it cannot be read.
    pub fn read() -> Result<Names, HostError> {
        let bad =
            |e: String| HostError::object(NAMES_FILE, "read it", e, "start 'tandem run' first");
        let text = fs::read_to_string(NAMES_FILE).map_err(|e| bad(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| bad(e.to_string()))
    }

    /// The file of the daemon whose scheduler is loaded now.
    ///
    /// # Errors
    /// `HostError::Object` when none is, or its file cannot be read.
    pub fn of_running() -> Result<Names, HostError> {
        let name = loaded::name();
        if loaded::is_ours(&name) {
            return Names::read();
        }
        let seen = if name.is_empty() {
            "no scheduler is loaded".to_owned()
        } else {
            format!("{name} is loaded")
        };
        Err(HostError::object("daemon", "ask it", seen, "start 'tandem run' first"))
    }

    /// Thousandths of its CPU time that a world is charged on a shared core: all, by an older
    /// daemon.
    pub(crate) fn charge(&self) -> u64 {
        if self.cores == 0 { 1000 } else { self.shared_charge }
    }

    /// Parent of each pool, by their paths.
    pub(crate) fn parents(&self) -> BTreeMap<&str, &str> {
        self.pools.iter().map(|p| (p.path.as_str(), p.parent.as_str())).collect()
    }

    /// The tree: leaf 0 is the system group, leaf i + 1 is `vms[i]`.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.tree_of(|vm| vm.vcpus)
    }

    /// The same for VMs that use so many vCPUs as `vcpus` says.
    pub(crate) fn tree_of(&self, vcpus: impl Fn(&VmName) -> u32) -> Tree {
        let index: BTreeMap<&str, usize> =
            self.pools.iter().enumerate().map(|(i, p)| (p.path.as_str(), i)).collect();
        let of = |path: &str| index.get(path).copied().unwrap_or(0);
        let pool = |(i, p): (usize, &PoolName)| TreePool {
            // The file may be of another version; a tree wants parents before children.
            parent: Some(of(&p.parent)).filter(|parent| *parent < i).unwrap_or(0),
            shares: u64::from(p.shares),
            reservation: p.reservation,
            limit: p.limit,
            expandable: p.expandable,
            scalable: p.scalable,
        };
        let root = TreePool {
            parent: 0,
            shares: 1,
            reservation: Rate(0),
            limit: None,
            expandable: false,
            scalable: false,
        };
        let pools = if self.pools.is_empty() {
            vec![root]
        } else {
            self.pools.iter().enumerate().map(pool).collect()
        };
        let system = TreeLeaf {
            pool: 0,
            shares: u64::from(self.system_shares),
            reservation: Rate(0),
            limit: None,
            vcpus: self.pcpus,
        };
        let leaf = |vm: &VmName| TreeLeaf {
            pool: of(&vm.pool),
            shares: u64::from(vm.shares),
            reservation: vm.reservation,
            limit: vm.limit,
            vcpus: vcpus(vm).max(1),
        };
        let leaves = [system].into_iter().chain(self.vms.iter().map(leaf)).collect();
        let tree = Tree::new(u64::from(self.pcpus), pools, leaves);
        let cores = if self.cores == 0 { self.pcpus } else { self.cores };
        let divided = if self.divided_charge == 0 { self.charge() } else { self.divided_charge };
        let tree = tree.on_cores(u64::from(cores), divided);
        tree.without(self.taken.clone())
    }

    /// Names of pools and leaves of the tree: paths, distinct for VMs of one name.
    #[must_use]
    pub fn paths(&self) -> entitlement::Names {
        let called = self.called();
        let leaf =
            |(vm, name): (&VmName, &String)| format!("{}/{name}", vm.pool.trim_end_matches('/'));
        entitlement::Names {
            pools: if self.pools.is_empty() {
                vec!["/".to_owned()]
            } else {
                self.pools.iter().map(|p| p.path.clone()).collect()
            },
            leaves: ["/system".to_owned()]
                .into_iter()
                .chain(self.vms.iter().zip(&called).map(leaf))
                .collect(),
        }
    }

    /// Names of the VMs: where several have one name, each gets its process id behind it.
    #[must_use]
    pub fn called(&self) -> Vec<String> {
        let told = told_apart(self.vms.iter().map(|v| (v.pid, v.name.as_str())));
        self.vms.iter().map(|v| told.get(&v.pid).cloned().unwrap_or_default()).collect()
    }
}

/// Names by process: where several VMs have one name, each gets its process id behind it.
fn told_apart<'a>(vms: impl Iterator<Item = (i32, &'a str)>) -> BTreeMap<i32, String> {
    let all: Vec<(i32, &str)> = vms.collect();
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    all.iter().for_each(|(_, name)| *users.entry(name).or_default() += 1);
    let name = |(pid, name): &(i32, &str)| {
        (*pid, if users[name] < 2 { (*name).to_owned() } else { format!("{name}({pid})") })
    };
    all.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_of_one_name_are_told_apart_by_their_process() {
        let names = told_apart([(7, "web"), (8, "db"), (9, "web")].into_iter());
        assert_eq!(names.into_values().collect::<Vec<_>>(), ["web(7)", "db", "web(9)"]);
    }

    #[test]
    fn a_file_that_names_no_pools_or_later_parents_still_makes_a_tree() {
        let empty = Names { pcpus: 4, system_shares: 4000, ..Names::default() };
        assert_eq!(empty.tree().worst_case().leaves, [Rate::pcpus(4).0]);
        assert_eq!(
            (empty.paths().pools, empty.paths().leaves),
            (vec!["/".to_owned()], vec!["/system".to_owned()])
        );
        let pool = |path: &str, parent: &str| PoolName {
            path: path.to_owned(),
            parent: parent.to_owned(),
            shares: 4000,
            reservation: Rate(0),
            limit: None,
            burst_ns: 0,
            expandable: true,
            scalable: false,
            sources: Sources::new(),
        };
        let odd = Names { pools: vec![pool("/", "/"), pool("/b", "/a"), pool("/a", "/")], ..empty };
        assert_eq!(odd.tree().pools().iter().map(|p| p.parent).collect::<Vec<_>>(), [0, 0, 0]);
    }
}
