//! Names of the VMs behind the scheduler's numbers: a small file that the daemon writes for its readers.

use crate::HostError;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path};

/// Where the daemon writes it.
pub const NAMES_FILE: &str = "/run/tandem/vms.json";

/// One VM as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmName {
    /// Number in the scheduler's tables.
    pub id: u32,
    /// Name of the VM.
    pub name: String,
    /// Process of the hypervisor.
    pub pid: i32,
    /// CPU shares in force.
    pub shares: u32,
    /// vCPUs found.
    pub vcpus: u32,
    /// Entitlement of the plan in 2^-20 pCPU.
    pub weight: u64,
    /// Its cgroup.
    pub cgroup: String,
}

/// All VMs of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Generation of the plan.
    pub generation: u64,
    /// Shares of the system group.
    pub system_shares: u32,
    /// The daemon's process.
    pub daemon: u32,
    /// The VMs.
    pub vms: Vec<VmName>,
}

impl Names {
    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// `HostError::Object` when /run is not writable.
    pub fn write(&self) -> Result<(), HostError> {
        let bad = |e: std::io::Error| HostError::object(NAMES_FILE, "write it", e, "make /run writable");
        let path = Path::new(NAMES_FILE);
        fs::create_dir_all(path.parent().unwrap_or(path)).map_err(bad)?;
        let part = path.with_extension("part");
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        fs::write(&part, text).map_err(bad)?;
        fs::rename(&part, path).map_err(bad)
    }

    /// Reads the file of a running daemon.
    ///
    /// # Errors
    /// `HostError::Object` when there is none or it cannot be read.
    pub fn read() -> Result<Names, HostError> {
        let bad = |e: String| HostError::object(NAMES_FILE, "read it", e, "start 'tandem run' first, or use --kernel");
        let text = fs::read_to_string(NAMES_FILE).map_err(|e| bad(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| bad(e.to_string()))
    }
}

/// Names by process: where several VMs have one name, each gets its process id behind it.
pub(crate) fn told_apart<'a>(vms: impl Iterator<Item = (i32, &'a str)>) -> BTreeMap<i32, String> {
    let all: Vec<(i32, &str)> = vms.collect();
    let name = |(pid, name): &(i32, &str)| {
        let alone = all.iter().filter(|o| o.1 == *name).count() < 2;
        (*pid, if alone { (*name).to_owned() } else { format!("{name}({pid})") })
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
}
