//! Reads the topology of this machine from `/sys/devices/system/cpu`, for the live host.

use crate::{Place, ShapeError, Topology};
use std::{fs, path::Path};
use units::{PcpuId, PcpuSet};

/// A sysfs that does not describe a host.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// A file is missing or unreadable.
    #[error("topology: cannot read {path}: {cause}; mount sysfs on /sys")]
    Read {
        /// The file.
        path: String,
        /// Why.
        cause: String,
    },
    /// The pCPUs read make no host.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

pub(crate) fn read(path: &Path) -> Result<String, SysfsError> {
    fs::read_to_string(path)
        .map(|t| t.trim().to_owned())
        .map_err(|e| SysfsError::Read { path: path.display().to_string(), cause: e.to_string() })
}

fn set(path: &Path) -> Result<PcpuSet, SysfsError> {
    let text = read(path)?;
    text.parse().map_err(|e: units::PcpuSetError| SysfsError::Read {
        path: path.display().to_string(),
        cause: e.to_string(),
    })
}

/// Gives each distinct set of pCPUs an index in order of first appearance.
struct Index(Vec<PcpuSet>);

impl Index {
    fn of(&mut self, set: PcpuSet) -> u32 {
        if let Some(i) = self.0.iter().position(|s| *s == set) {
            return i as u32;
        }
        self.0.push(set);
        self.0.len() as u32 - 1
    }
}

/// The topology of the machine whose sysfs is mounted at `root` (usually `/sys`), with the pCPUs
/// that are online now.
///
/// # Errors
/// `SysfsError` names the file that could not be read.
pub fn from_sysfs(root: &Path) -> Result<Topology, SysfsError> {
    let cpus = root.join("devices/system/cpu");
    let possible = set(&cpus.join("possible"))?;
    let n = possible.last().map_or(0, |p| p.0 as usize + 1);
    let (mut cores, mut llcs, mut nodes, mut sockets) =
        (Index(vec![]), Index(vec![]), Index(vec![]), Index(vec![]));
    let mut places = Vec::with_capacity(n);
    for i in 0..n {
        let dir = cpus.join(format!("cpu{i}"));
        let alone = || [PcpuId(i as u16)].into_iter().collect::<PcpuSet>();
        let threads = set(&dir.join("topology/thread_siblings_list")).unwrap_or_else(|_| alone());
        let package = set(&dir.join("topology/package_cpus_list"))
            .or_else(|_| set(&dir.join("topology/core_siblings_list")));
        let package = package.unwrap_or_else(|_| alone());
        let llc = last_level_cache(&dir).unwrap_or_else(|| package.clone());
        let node = node_of(root, i).unwrap_or_else(|| package.clone());
        let thread = threads.iter().position(|p| p.0 as usize == i).unwrap_or(0) as u32;
        places.push(Place {
            thread,
            core: cores.of(threads),
            llc: llcs.of(llc),
            node: nodes.of(node),
            socket: sockets.of(package),
        });
    }
    Ok(Topology::from_places(places)?.with_online(&online(root)?))
}

/// The pCPUs that are online now on the machine whose sysfs is mounted at `root`.
///
/// # Errors
/// `SysfsError` names the file that could not be read.
pub fn online(root: &Path) -> Result<PcpuSet, SysfsError> {
    set(&root.join("devices/system/cpu/online"))
}

/// pCPUs that share the deepest cache of `dir`'s pCPU, as the kernel lists them.
fn last_level_cache(dir: &Path) -> Option<PcpuSet> {
    (0..8)
        .filter_map(|k| {
            let cache = dir.join(format!("cache/index{k}"));
            let level: u32 = read(&cache.join("level")).ok()?.parse().ok()?;
            Some((level, set(&cache.join("shared_cpu_list")).ok()?))
        })
        .max_by_key(|c| c.0)
        .map(|c| c.1)
}

fn node_of(root: &Path, cpu: usize) -> Option<PcpuSet> {
    let dir = root.join(format!("devices/system/cpu/cpu{cpu}"));
    let name = fs::read_dir(dir).ok()?.filter_map(Result::ok).find_map(|e| {
        let name = e.file_name().into_string().ok()?;
        name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()).then_some(name)
    })?;
    set(&root.join(format!("devices/system/node/{name}/cpulist"))).ok()
}
