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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A sysfs that is made up, by its files below `devices/system`.
    struct Sysfs(PathBuf);

    impl Sysfs {
        fn new(name: &str, possible: &str, online: &str) -> Sysfs {
            let root =
                std::env::temp_dir().join(format!("tandem-sysfs-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            let sysfs = Sysfs(root);
            sysfs.write("cpu/possible", possible);
            sysfs.write("cpu/online", online);
            sysfs
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join("devices/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }

        /// A pCPU on line: threads of its core, pCPUs of its LLC, of its package, and its node with
        /// the pCPUs of that; its private caches are there as well.
        fn pcpu(&self, id: u16, threads: &str, llc: &str, package: &str, node: (u32, &str)) {
            let cpu = format!("cpu/cpu{id}");
            self.write(&format!("{cpu}/topology/thread_siblings_list"), threads);
            self.write(&format!("{cpu}/topology/package_cpus_list"), package);
            for (index, level, shared) in
                [(0, 1, threads), (1, 1, threads), (2, 2, threads), (3, 3, llc)]
            {
                self.write(&format!("{cpu}/cache/index{index}/level"), &format!("{level}"));
                self.write(&format!("{cpu}/cache/index{index}/shared_cpu_list"), shared);
            }
            // As in sysfs: a folder for the link, and the node's list.
            self.write(&format!("{cpu}/node{}/cpulist", node.0), node.1);
            self.write(&format!("node/node{}/cpulist", node.0), node.1);
        }

        fn topology(&self) -> Topology {
            from_sysfs(&self.0).unwrap()
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// Core, thread, LLC, node and socket of each pCPU.
    fn places(t: &Topology) -> Vec<[u32; 5]> {
        t.places().iter().map(|p| [p.core, p.thread, p.llc, p.node, p.socket]).collect()
    }

    #[test]
    fn a_node_of_several_llcs_has_them_and_second_threads_may_come_last() {
        let sysfs = Sysfs::new("llcs", "0-7", "0-7");
        for id in 0..8 {
            let core = id % 4;
            let llc = if core < 2 { "0-1,4-5" } else { "2-3,6-7" };
            sysfs.pcpu(id, &format!("{core},{}", core + 4), llc, "0-7", (0, "0-7"));
        }
        let t = sysfs.topology();
        assert_eq!(t.counts(), (4, 2, 1, 1));
        let first = [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [2, 0, 1, 0, 0], [3, 0, 1, 0, 0]];
        assert_eq!(places(&t)[..4], first);
        let second = first.map(|[core, _, llc, ..]| [core, 1, llc, 0, 0]);
        assert_eq!(places(&t)[4..], second);
        assert_eq!(t.domains(), [0, 0, 1, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn pcpus_off_line_keep_their_ids_and_are_in_no_core_of_others() {
        // Of a pCPU off line the kernel has neither topology nor caches.
        let sysfs = Sysfs::new("offline", "0-9", "0-2,4-5,7");
        for id in [0, 1, 2] {
            sysfs.pcpu(id, &id.to_string(), "0-2", "0-2", (0, "0-2"));
        }
        for (id, threads) in [(4, "4-5"), (5, "4-5"), (7, "7")] {
            sysfs.pcpu(id, threads, "4-5,7", "4-5,7", (1, "4-5,7"));
        }
        sysfs.write("cpu/cpu3/node0/cpulist", "0-2");
        let t = sysfs.topology();
        assert_eq!((t.pcpus(), t.online().to_string()), (10, "0-2,4-5,7".to_owned()));
        assert_eq!(t.counts(), (5, 2, 2, 2));
        let place = |id| t.place(PcpuId(id));
        assert_eq!((place(4).core, place(4).thread), (place(5).core, 0));
        assert_eq!((place(5).thread, place(7).thread), (1, 0));
        for off in [3, 6, 8, 9] {
            let others = (0..10).filter(|id| *id != off);
            assert!(others.clone().all(|id| place(id).core != place(off).core), "{off}");
            assert!(others.clone().all(|id| place(id).llc != place(off).llc), "{off}");
            assert_eq!(place(off).thread, 0);
        }
        assert_eq!(place(3).node, place(0).node, "its link says so");
        assert_eq!(online(&sysfs.0).unwrap().len(), 6);
    }

    #[test]
    fn without_hyper_threads_each_core_has_one() {
        // Switched off at run time: the second threads are off line.
        let sysfs = Sysfs::new("smt-off", "0-7", "0,2,4,6");
        for id in [0, 2, 4, 6] {
            sysfs.pcpu(id, &id.to_string(), "0,2,4,6", "0,2,4,6", (0, "0,2,4,6"));
        }
        let t = sysfs.topology();
        assert_eq!(t.counts(), (4, 1, 1, 1));
        assert!(t.places().iter().all(|p| p.thread == 0), "{:?}", places(&t));
    }

    #[test]
    fn cores_of_one_two_and_three_threads_are_counted_as_they_are() {
        let sysfs = Sysfs::new("odd", "0-5", "0-5");
        for (id, threads) in [(0, "0,3,5"), (1, "1"), (2, "2,4"), (3, "0,3,5"), (4, "2,4")] {
            sysfs.pcpu(id, threads, "0-5", "0-5", (0, "0-5"));
        }
        sysfs.pcpu(5, "0,3,5", "0-5", "0-5", (0, "0-5"));
        let t = sysfs.topology();
        let seen: Vec<(u32, u32)> = t.places().iter().map(|p| (p.core, p.thread)).collect();
        assert_eq!(seen, [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2)]);
    }

    #[test]
    fn a_node_without_pcpus_has_no_number() {
        let sysfs = Sysfs::new("memory", "0-3", "0-3");
        for id in 0..4 {
            let (package, node) = if id < 2 { ("0-1", 0) } else { ("2-3", 2) };
            sysfs.pcpu(id, &id.to_string(), package, package, (node, package));
        }
        sysfs.write("node/node1/cpulist", "");
        let t = sysfs.topology();
        assert_eq!(t.places().iter().map(|p| p.node).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!(t.counts(), (4, 2, 2, 2));
    }

    #[test]
    fn where_the_kernel_says_nothing_of_caches_and_nodes_they_are_the_package() {
        let sysfs = Sysfs::new("bare", "0-3", "0-3");
        for id in 0..4 {
            let package = if id < 2 { "0-1" } else { "2-3" };
            // The older name of the file.
            sysfs.write(&format!("cpu/cpu{id}/topology/core_siblings_list"), package);
        }
        assert_eq!(sysfs.topology().counts(), (4, 2, 2, 2));
    }

    #[test]
    fn a_sysfs_that_says_too_little_or_too_much_is_refused_with_its_place() {
        let refused = |sysfs: &Sysfs| from_sysfs(&sysfs.0).unwrap_err().to_string();
        let sysfs = Sysfs::new("refused", "0-3", "0-3");
        fs::remove_file(sysfs.0.join("devices/system/cpu/online")).unwrap();
        assert!(refused(&sysfs).contains("cpu/online"), "{}", refused(&sysfs));
        sysfs.write("cpu/possible", "0-x");
        assert!(refused(&sysfs).contains("cpu/possible"), "{}", refused(&sysfs));
        sysfs.write("cpu/possible", "0-1024");
        assert!(refused(&sysfs).contains("allowed ids 0..1023"), "{}", refused(&sysfs));
    }
}
