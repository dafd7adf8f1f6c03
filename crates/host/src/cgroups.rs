//! Reads the settings of VMs and pools from their cgroups: cpu.weight, cpu.max, extended
//! attributes. It changes nothing.
//!
//! A cgroup that cannot be read, or has invalid values, is no error: it is reported, and the rest
//! applies.

use crate::{
    found::{FoundVm, LIBVIRT, Named, Roots, chain, folder},
    kept::Kept,
    trust::{Owners, Stranger, Trust},
};
use settings::LiveSettings;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};
use units::Rate;

mod reading;
use reading::Reading;

/// Names of our extended attributes begin so; others are ignored.
const OURS: &str = "user.tandem.";

/// CPU time that a cgroup may use, by a file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// How much at most.
    pub rate: Rate,
    /// What may be saved up, in ns.
    pub burst_ns: u64,
    /// The file that says so, below the cgroup.
    pub from: &'static str,
}

/// What a cgroup says of the VM or pool that it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Whether there is such a cgroup.
    pub present: bool,
    /// `cpu.weight`; `None` where there is none.
    pub weight: Option<u32>,
    /// The lowest limit found.
    pub quota: Option<Quota>,
    /// Whose it is, if that one is not trusted: its attributes do not count then. Of a VM's that
    /// has none it is not asked.
    pub stranger: Option<Stranger>,
    /// Extended attributes of ours.
    pub attributes: Named,
    /// What could not be read, and what counts in its place.
    pub troubles: Vec<String>,
}

/// Every cgroup that matters, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// By path: those above VMs, those that several VMs share, and those that the settings file
    /// names.
    pub pools: BTreeMap<String, Cgroup>,
    /// By process: the cgroups of VMs that have one of their own.
    pub vms: BTreeMap<i32, Cgroup>,
    /// Those that `[[vm]]` entries have, and that are not there.
    pub absent: BTreeSet<String>,
}

impl Cgroups {
    /// Reads them all.
    #[must_use]
    pub fn read(
        roots: &Roots,
        found: &[FoundVm],
        settings: &LiveSettings,
        trust: &Trust,
    ) -> Cgroups {
        Cgroups::read_again(&mut Kept::default(), roots, found, settings, trust)
    }

    /// The same by files that are open since they were read last.
    pub(crate) fn read_again(
        kept: &mut Kept,
        roots: &Roots,
        found: &[FoundVm],
        settings: &LiveSettings,
        trust: &Trust,
    ) -> Cgroups {
        let mut out = Cgroups::default();
        let mut look = Look { roots, trust, owners: Owners::default(), kept };
        let alone = alone(found);
        for vm in found {
            if alone.contains(vm.cgroup.as_str()) {
                out.vms.insert(vm.pid, look.vm(vm));
            }
            out.above(&mut look, home(vm, &alone));
        }
        let named = settings.pools.iter().flat_map(|p| [Some(&p.name), p.parent.as_ref()]);
        let named = named.chain(settings.vms.iter().map(|v| v.pool.as_ref())).flatten();
        named.filter(|name| name.starts_with('/')).for_each(|path| out.above(&mut look, path));
        let matched = settings.vms.iter().filter_map(|v| v.cgroup.as_ref());
        let gone = |path: &&String| fs::metadata(folder(roots, path)).is_err();
        out.absent = matched.filter(gone).cloned().collect();
        look.kept.sweep();
        out
    }

    /// Reads a cgroup and all above it, unless they have been read.
    fn above(&mut self, look: &mut Look<'_>, path: &str) {
        for path in chain(path) {
            if !self.pools.contains_key(path) {
                self.pools.insert(path.to_owned(), look.pool(path));
            }
        }
    }
}

/// Cgroups of exactly one VM: not the root, and no other VM's.
pub(crate) fn alone(found: &[FoundVm]) -> BTreeSet<&str> {
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    found.iter().for_each(|vm| *users.entry(&vm.cgroup).or_default() += 1);
    users.into_iter().filter(|(path, n)| *n == 1 && *path != "/").map(|(path, _)| path).collect()
}

/// The cgroup that a VM is in as its pool: the one above its own; one that it shares, itself.
pub(crate) fn home<'a>(vm: &'a FoundVm, alone: &BTreeSet<&str>) -> &'a str {
    if !alone.contains(vm.cgroup.as_str()) {
        return &vm.cgroup;
    }
    match vm.cgroup.rfind('/') {
        None | Some(0) => "/",
        Some(end) => &vm.cgroup[..end],
    }
}

/// A look at all of them.
struct Look<'a> {
    roots: &'a Roots,
    trust: &'a Trust,
    owners: Owners,
    kept: &'a mut Kept,
}

impl Look<'_> {
    /// What the cgroup of a pool says.
    fn pool(&mut self, path: &str) -> Cgroup {
        self.cgroup(path, true)
    }

    /// The same of any; whose it is, if `whose` or if it has attributes.
    fn cgroup(&mut self, path: &str, whose: bool) -> Cgroup {
        let Look { roots, trust, .. } = *self;
        let folder = folder(roots, path);
        let mut read = Reading { path, folder: &folder, kept: self.kept, troubles: vec![] };
        let (weight, quota) = (read.weight("cpu.weight"), read.quota("", "cpu.max"));
        let present = weight.is_some() || fs::metadata(&folder).is_ok();
        let all = read.attributes(roots);
        let stranger = if present && (whose || !all.is_empty()) {
            trust.stranger_by(&mut self.owners, roots, path)
        } else {
            None
        };
        let attributes = read.trusted(all, stranger.as_ref());
        Cgroup { present, weight, quota, stranger, attributes, troubles: read.troubles }
    }

    /// What a VM's own cgroup says, and what libvirt has set below it: shares and quota of the
    /// whole in `libvirt`, quotas of vCPUs in `libvirt/vcpuN`; without systemd there is no such
    /// folder between.
    fn vm(&mut self, vm: &FoundVm) -> Cgroup {
        const UNSET: u32 = 100;
        let mut out = self.cgroup(&vm.cgroup, false);
        let folder = folder(self.roots, &vm.cgroup);
        let whole = vm.cgroup.ends_with(LIBVIRT);
        if !whole && fs::metadata(folder.join("libvirt")).is_err() {
            return out;
        }
        let mut read =
            Reading { path: &vm.cgroup, folder: &folder, kept: self.kept, troubles: vec![] };
        let below = if whole {
            [None, read.of_vcpus(vm, "", "vcpuN/cpu.max")]
        } else {
            if out.weight.is_none_or(|w| w == UNSET) {
                out.weight = read.weight("libvirt/cpu.weight").or(out.weight);
            }
            let quota = read.quota("libvirt/", "libvirt/cpu.max");
            [quota, read.of_vcpus(vm, "libvirt/", "libvirt/vcpuN/cpu.max")]
        };
        out.quota = below.into_iter().flatten().chain(out.quota).min_by_key(|q| q.rate);
        out.troubles.extend(read.troubles);
        out
    }
}

/// Extended attributes of a folder that are ours. A file system that knows none has none.
///
/// # Errors
/// What the kernel says.
pub fn attributes(folder: &Path) -> io::Result<Named> {
    let names = match xattr::list(folder) {
        Ok(names) => names,
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::NotFound) => {
            return Ok(vec![]);
        }
        Err(e) => return Err(e),
    };
    let ours = names.filter_map(|n| n.to_str().filter(|n| n.starts_with(OURS)).map(str::to_owned));
    // A cgroup removed since is none.
    ours.filter_map(|name| Some(xattr::get(folder, &name).transpose()?.map(|value| (name, value))))
        .collect()
}

#[cfg(test)]
mod tests;
