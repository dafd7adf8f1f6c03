//! Reads the NUMA nodes of a machine by the kernel's numbers from `/sys/devices/system/node`, for
//! planners of memory; it changes nothing.

use crate::sysfs::{SysfsError, read};
use std::path::Path;
use units::PcpuSet;

/// A NUMA node by the kernel's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The kernel's number; numbers may have gaps.
    pub id: u32,
    /// Its pCPUs; none for a node of memory alone.
    pub pcpus: PcpuSet,
    /// Its memory in KiB; `None` if the kernel does not say.
    pub memory_kib: Option<u64>,
    /// Distances to all nodes of the list, in its order (10 is the node itself); empty if the
    /// kernel does not say.
    pub distances: Vec<u32>,
}

/// NUMA nodes that are online on the machine whose sysfs is mounted at `root`, in order of their
/// numbers; empty for a kernel without NUMA.
///
/// # Errors
/// `SysfsError` names the file that cannot be read or makes no sense.
pub fn nodes_from_sysfs(root: &Path) -> Result<Vec<NodeFacts>, SysfsError> {
    let folder = root.join("devices/system/node");
    if !folder.is_dir() {
        return Ok(vec![]);
    }
    // Lists of nodes are written as lists of pCPUs are.
    let online = folder.join("online");
    let ids = parsed(&online, &read(&online)?)?;
    ids.iter().map(|id| node(&folder, u32::from(id.0), ids.len())).collect()
}

/// Free memory of a node in KiB, by the kernel's number of it; `None` if the kernel does not say.
#[must_use]
pub fn free_kib(root: &Path, node: u32) -> Option<u64> {
    let path = root.join(format!("devices/system/node/node{node}/meminfo"));
    read(&path).ok().and_then(|text| kib_of(&text, "MemFree:"))
}

fn node(folder: &Path, id: u32, nodes: usize) -> Result<NodeFacts, SysfsError> {
    let dir = folder.join(format!("node{id}"));
    let list = dir.join("cpulist");
    let text = read(&list)?;
    // The kernel writes an empty line for a node without pCPUs.
    let pcpus = if text.is_empty() { PcpuSet::empty() } else { parsed(&list, &text)? };
    let memory_kib = read(&dir.join("meminfo")).ok().and_then(|t| kib_of(&t, "MemTotal:"));
    let distances: Vec<u32> = read(&dir.join("distance"))
        .map(|t| t.split_whitespace().filter_map(|d| d.parse().ok()).collect())
        .unwrap_or_default();
    let distances = if distances.len() == nodes { distances } else { vec![] };
    Ok(NodeFacts { id, pcpus, memory_kib, distances })
}

fn parsed(path: &Path, text: &str) -> Result<PcpuSet, SysfsError> {
    text.parse().map_err(|e: units::PcpuSetError| SysfsError::Read {
        path: path.display().to_string(),
        cause: e.to_string(),
    })
}

/// Of a line such as `Node 0 MemTotal:       16308644 kB`.
fn kib_of(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find(|l| l.contains(key))?;
    line.split(key).nth(1)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn sysfs(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("tandem-nodes-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join("devices/system/node").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn nodes_have_the_kernels_numbers_and_those_without_pcpus_are_there() {
        let root = sysfs(
            "gaps",
            &[
                ("online", "0,2-3\n"),
                ("node0/cpulist", "0-3\n"),
                ("node0/meminfo", "Node 0 MemTotal:       2097152 kB\nNode 0 MemFree: 1 kB\n"),
                ("node0/distance", "10 21 28\n"),
                ("node2/cpulist", "4-7\n"),
                ("node2/distance", "21 10\n"),
                ("node3/cpulist", "\n"),
                ("node3/meminfo", "Node 3 MemTotal: 4096 kB\n"),
            ],
        );
        let nodes = nodes_from_sysfs(&root).unwrap();
        let seen: Vec<_> = nodes.iter().map(|n| (n.id, n.pcpus.len(), n.memory_kib)).collect();
        assert_eq!(seen, [(0, 4, Some(2_097_152)), (2, 4, None), (3, 0, Some(4096))]);
        // A list that is too short for the nodes says nothing.
        assert_eq!(
            (nodes[0].distances.clone(), nodes[1].distances.clone()),
            (vec![10, 21, 28], vec![])
        );
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_kernel_without_numa_has_none_and_a_damaged_list_is_refused() {
        assert_eq!(nodes_from_sysfs(Path::new("/nowhere")).unwrap(), vec![]);
        let root = sysfs("damaged", &[("online", "0\n"), ("node0/cpulist", "x\n")]);
        let refused = nodes_from_sysfs(&root).unwrap_err().to_string();
        assert!(refused.contains("node0/cpulist"), "{refused}");
        fs::remove_dir_all(root).unwrap();
    }
}
