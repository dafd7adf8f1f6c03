//! Reads the settings of VMs and pools from their cgroups: cpu.weight, cpu.max, extended
//! attributes. It changes nothing.
//!
//! A cgroup that cannot be read, or has invalid values, is no error: it is reported, and the rest
//! applies.

use crate::{
    found::{FoundVm, Named, Roots, chain, folder},
    trust::{ALLOWED, Stranger, Trust},
};
use settings::{LiveSettings, parse_cpu_max};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read},
    path::Path,
};
use units::Rate;

/// Names of our extended attributes begin so; others are ignored.
const OURS: &str = "user.tandem.";
/// No file that is read here is longer.
const FILE_MAX: usize = 256;

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
    /// Whose it is, if that one is not trusted: its attributes do not count then.
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
        let mut out = Cgroups::default();
        let alone = alone(found);
        for vm in found {
            if alone.contains(vm.cgroup.as_str()) {
                out.vms.insert(vm.pid, of_vm(roots, trust, vm));
            }
            out.above(roots, trust, home(vm, &alone));
        }
        let named = settings.pools.iter().flat_map(|p| [Some(&p.name), p.parent.as_ref()]);
        let named = named.chain(settings.vms.iter().map(|v| v.pool.as_ref())).flatten();
        named.filter(|name| name.starts_with('/')).for_each(|path| out.above(roots, trust, path));
        let matched = settings.vms.iter().filter_map(|v| v.cgroup.as_ref());
        let gone = |path: &&String| fs::metadata(folder(roots, path)).is_err();
        out.absent = matched.filter(gone).cloned().collect();
        out
    }

    /// Reads a cgroup and all above it, unless they have been read.
    fn above(&mut self, roots: &Roots, trust: &Trust, path: &str) {
        for path in chain(path) {
            if !self.pools.contains_key(path) {
                self.pools.insert(path.to_owned(), of_pool(roots, trust, path));
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

/// What the cgroup of a pool says.
fn of_pool(roots: &Roots, trust: &Trust, path: &str) -> Cgroup {
    let folder = folder(roots, path);
    let mut read = Reading { path, folder: &folder, troubles: vec![] };
    let (weight, quota) = (read.weight("cpu.weight"), read.quota("", "cpu.max"));
    let present = weight.is_some() || fs::metadata(&folder).is_ok();
    let stranger = trust.stranger(roots, path).filter(|_| present);
    let attributes = read.attributes(roots, stranger.as_ref());
    Cgroup { present, weight, quota, stranger, attributes, troubles: read.troubles }
}

/// What a VM's own cgroup says, and what libvirt has set below it: shares and quota of the whole in
/// `libvirt`, quotas of vCPUs in `libvirt/vcpuN`.
fn of_vm(roots: &Roots, trust: &Trust, vm: &FoundVm) -> Cgroup {
    const UNSET: u32 = 100;
    let mut out = of_pool(roots, trust, &vm.cgroup);
    let folder = folder(roots, &vm.cgroup);
    let mut read = Reading { path: &vm.cgroup, folder: &folder, troubles: vec![] };
    if out.weight.is_none_or(|w| w == UNSET) {
        out.weight = read.weight("libvirt/cpu.weight").or(out.weight);
    }
    let below = [read.quota("libvirt/", "libvirt/cpu.max"), read.of_vcpus(vm)];
    out.quota = below.into_iter().flatten().chain(out.quota).min_by_key(|q| q.rate);
    out.troubles.extend(read.troubles);
    out
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

/// Files of one cgroup, and what was wrong with them.
struct Reading<'a> {
    path: &'a str,
    folder: &'a Path,
    troubles: Vec<String>,
}

impl Reading<'_> {
    /// A small file; `None` where there is none.
    fn text(&mut self, file: &str, instead: &str) -> Option<String> {
        match small(&self.folder.join(file)) {
            Ok(text) => text,
            Err(e) => {
                self.troubles.push(format!(
                    "cgroup '{}': {file}: cannot read it: {e}; {instead}",
                    self.path
                ));
                None
            }
        }
    }

    fn weight(&mut self, file: &str) -> Option<u32> {
        const INSTEAD: &str = "it counts as 100";
        let text = self.text(file, INSTEAD)?;
        let weight = text.trim().parse().ok().filter(|w| *w <= 10_000); // 0 is cpu.idle
        if weight.is_none() {
            let seen: String = text.trim().chars().take(40).collect();
            let trouble = format!(
                "cgroup '{}': {file}: cannot use it: seen '{}', allowed 1..10000; {INSTEAD}",
                self.path,
                seen.escape_debug()
            );
            self.troubles.push(trouble);
        }
        weight
    }

    /// Limit and burst by the cpu.max in the folder `below`.
    fn quota(&mut self, below: &str, from: &'static str) -> Option<Quota> {
        const INSTEAD: &str = "it counts as unlimited";
        let max = self.text(&format!("{below}cpu.max"), INSTEAD)?;
        // Most cgroups have no limit, and these files are read twice a second.
        let limited = !max.starts_with("max ");
        let burst = if limited {
            self.text(&format!("{below}cpu.max.burst"), "it counts as 0")
        } else {
            None
        };
        match parse_cpu_max(&max, burst.as_deref()) {
            Ok(found) => found.map(|(rate, burst_ns)| Quota { rate, burst_ns, from }),
            Err(reason) => {
                self.troubles.push(format!("cgroup '{}': {below}{reason}; {INSTEAD}", self.path));
                None
            }
        }
    }

    /// The quotas of all vCPUs together; none unless each has one.
    fn of_vcpus(&mut self, vm: &FoundVm) -> Option<Quota> {
        const FROM: &str = "libvirt/vcpuN/cpu.max";
        let vcpus: Vec<u32> = vm.threads.iter().filter_map(|t| t.vcpu).collect();
        let quotas: Vec<Quota> = vcpus
            .iter()
            .filter_map(|vcpu| self.quota(&format!("libvirt/vcpu{vcpu}/"), FROM))
            .collect();
        if quotas.len() < vcpus.len() {
            if !quotas.is_empty() {
                self.troubles.push(format!(
                    "cgroup '{}': {FROM}: cannot use it: seen quotas of {} of {} vCPUs, allowed of \
                        all; they count as none; give each one, or the VM a limit",
                    self.path,
                    quotas.len(),
                    vcpus.len()
                ));
            }
            return None;
        }
        let sum = |all: Quota, one: &Quota| Quota {
            rate: Rate(all.rate.0 + one.rate.0),
            burst_ns: all.burst_ns.saturating_add(one.burst_ns),
            from: FROM,
        };
        let all = quotas.iter().fold(Quota { rate: Rate(0), burst_ns: 0, from: FROM }, sum);
        (all.rate.0 > 0).then_some(all)
    }

    /// Attributes, unless they may be a stranger's.
    fn attributes(&mut self, roots: &Roots, stranger: Option<&Stranger>) -> Named {
        let path = self.path;
        let all = (roots.attributes)(self.folder).unwrap_or_else(|e| {
            self.troubles.push(format!(
                "cgroup '{path}': cannot read its extended attributes: {e}; it counts as having \
                    none"
            ));
            vec![]
        });
        match stranger {
            Some(stranger) if !all.is_empty() => {
                self.troubles.push(format!(
                    "cgroup '{path}': cannot use its attributes {OURS}*: seen {stranger}, allowed \
                        {ALLOWED}; none of them counts; {}, or say it in the settings file",
                    stranger.next()
                ));
                vec![]
            }
            _ => all,
        }
    }
}

/// The text of a file of a few words; `None` if it is not there, or its cgroup is just going.
fn small(path: &Path) -> io::Result<Option<String>> {
    let mut bytes = [0u8; FILE_MAX];
    let read = File::open(path).and_then(|mut f| f.read(&mut bytes));
    match read {
        Ok(n) => String::from_utf8(bytes[..n].to_vec())
            .map(Some)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
        Err(e)
            if e.kind() == io::ErrorKind::NotFound || e.kind() == io::ErrorKind::NotADirectory =>
        {
            Ok(None)
        }
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Which, discover::Finder, made_up::MadeUp};

    fn read_by(t: &MadeUp, settings: &LiveSettings) -> (Vec<FoundVm>, Cgroups) {
        let trust = Trust::of(settings, &t.roots()).unwrap();
        let found = Finder::default().scan(&t.roots(), Which::All);
        let cgroups = Cgroups::read(&t.roots(), &found, settings, &trust);
        (found, cgroups)
    }

    fn read(t: &MadeUp) -> (Vec<FoundVm>, Cgroups) {
        read_by(t, &LiveSettings::default())
    }

    #[test]
    fn a_chain_leads_from_the_root_down() {
        assert_eq!(chain("/a/b.slice/c"), ["/a", "/a/b.slice", "/a/b.slice/c"]);
        assert_eq!((chain("/a"), chain("/"), chain("")), (vec!["/a"], vec![], vec![]));
    }

    #[test]
    fn libvirts_weight_and_quotas_are_found_below_the_scope_and_the_lowest_counts() {
        let t = MadeUp::new("libvirt");
        let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope";
        t.vm(10, "web", &format!("{scope}/libvirt/emulator"), 2);
        t.cgroup(scope, "cpu.weight", "100\n");
        t.cgroup(scope, "cpu.max", "max 100000\n");
        t.cgroup(scope, "libvirt/cpu.weight", "700\n");
        t.cgroup(scope, "libvirt/cpu.max", "200000 100000\n");
        t.cgroup(scope, "libvirt/cpu.max.burst", "5000\n");
        t.cgroup("/machine.slice", "cpu.weight", "300\n");
        let quota =
            |t: &MadeUp| read(t).1.vms[&10].quota.clone().map(|q| (q.rate, q.burst_ns, q.from));
        let (_, seen) = read(&t);
        assert_eq!(
            (seen.vms[&10].weight, seen.pools["/machine.slice"].weight),
            (Some(700), Some(300))
        );
        assert_eq!(quota(&t), Some((Rate::pcpus(2), 5_000_000, "libvirt/cpu.max")));
        // One vCPU alone says nothing of the VM; both do.
        t.cgroup(scope, "libvirt/vcpu0/cpu.max", "25000 100000\n");
        t.cgroup(scope, "libvirt/vcpu1/cpu.max", "max 100000\n");
        assert_eq!(quota(&t).unwrap().0, Rate::pcpus(2));
        let one = format!(
            "cgroup '{scope}': libvirt/vcpuN/cpu.max: cannot use it: seen quotas of 1 of 2 vCPUs, \
                allowed of all; they count as none; give each one, or the VM a limit"
        );
        assert_eq!(read(&t).1.vms[&10].troubles, [one]);
        t.cgroup(scope, "libvirt/vcpu1/cpu.max", "50000 100000\n");
        t.cgroup(scope, "libvirt/vcpu1/cpu.max.burst", "1000\n");
        assert_eq!(
            quota(&t),
            Some((Rate(Rate::ONE.0 * 3 / 4), 1_000_000, "libvirt/vcpuN/cpu.max"))
        );
        t.cgroup(scope, "cpu.max", "10000 100000\n");
        assert_eq!(quota(&t), Some((Rate(104_858), 0, "cpu.max")));
        assert_eq!(read(&t).1.vms[&10].troubles, Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_read_is_told_with_what_counts_in_its_place() {
        let t = MadeUp::new("unreadable");
        t.vm(10, "web", "/a/web", 1);
        t.cgroup("/a", "cpu.weight", "many\n");
        t.cgroup("/a", "cpu.max", "50000\n");
        t.put("cgroup/a/web/cpu.weight", &[0xff, 0xfe]);
        fs::create_dir_all(t.path("cgroup/a/web/cpu.max")).unwrap();
        let (_, seen) = read(&t);
        assert_eq!(
            seen.pools["/a"].troubles,
            [
                "cgroup '/a': cpu.weight: cannot use it: seen 'many', allowed 1..10000; it counts \
                    as 100",
                "cgroup '/a': cpu.max: seen '50000', allowed QUOTA PERIOD in us as in '50000 \
                    100000', or max PERIOD; it counts as unlimited",
            ]
        );
        let web = &seen.vms[&10];
        assert_eq!((web.weight, web.quota.as_ref(), web.present), (None, None, true));
        assert!(
            web.troubles[0]
                .starts_with("cgroup '/a/web': cpu.weight: cannot read it: invalid utf-8"),
            "{}",
            web.troubles[0]
        );
        assert!(
            web.troubles[1].starts_with("cgroup '/a/web': cpu.max: cannot read it: Is a directory"),
            "{}",
            web.troubles[1]
        );
        assert_eq!(web.troubles.len(), 2);
    }

    #[test]
    fn attributes_count_if_root_or_a_trusted_user_owns_the_cgroup_and_all_above_it() {
        let t = MadeUp::new("strangers");
        t.vm(10, "web", "/a/b/web", 1);
        t.cgroup("/a/b", "cpu.weight", "700\n");
        t.cgroup("/a/b/web", "cpu.max", "50000 100000\n");
        for path in ["/a", "/a/b", "/a/b/web"] {
            t.attribute(path, "user.tandem.reservation", "50%");
        }
        let counts = |users: &str| {
            let text = format!("[trust]\nusers = {users}\n");
            let (_, seen) = read_by(&t, &LiveSettings::parse("t.toml", &text).unwrap());
            let all = [&seen.pools["/a"], &seen.pools["/a/b"], &seen.vms[&10]];
            (all.map(|c| c.attributes.len()), all.map(|c| c.troubles.clone()))
        };
        assert_eq!(counts("[]"), ([1, 1, 1], [vec![], vec![], vec![]]));
        t.owner("/a/b", 1000);
        let trouble = |path: &str| {
            vec![format!(
                "cgroup '{path}': cannot use its attributes user.tandem.*: seen uid 1000 as owner \
                    of '/a/b', allowed root or a user of [trust] users; none of them counts; add \
                    1000 to [trust] users, or say it in the settings file"
            )]
        };
        let told = [vec![], trouble("/a/b"), trouble("/a/b/web")];
        assert_eq!(counts("[]"), ([1, 0, 0], told));
        assert_eq!(counts("[1000]").0, [1, 1, 1]);
        // What a delegate cannot write, or only within what the cgroup has, counts.
        let seen = read(&t).1;
        assert_eq!(seen.pools["/a/b"].weight, Some(700));
        assert_eq!(seen.vms[&10].quota.as_ref().map(|q| q.rate), Some(Rate(Rate::ONE.0 / 2)));
        // A cgroup that is not there is no stranger's, and one without attributes is not named.
        assert_eq!(seen.pools["/a"].stranger, None);
        let file = LiveSettings::parse("t.toml", "[[pool]]\nname = \"/gone\"\n").unwrap();
        assert_eq!(read_by(&t, &file).1.pools["/gone"], Cgroup::default());
        fs::remove_dir_all(t.path("cgroup/a/b/.attributes")).unwrap();
        assert!(read(&t).1.pools["/a/b"].troubles.is_empty());
    }

    #[test]
    fn a_cgroup_that_several_vms_share_is_their_pool() {
        let t = MadeUp::new("shared");
        t.vm(10, "a", "/both", 1);
        t.vm(20, "b", "/both", 1);
        t.vm(30, "c", "/x/own", 1);
        t.vm(40, "d", "/", 1);
        let (found, seen) = read(&t);
        let alone = alone(&found);
        assert_eq!(
            found.iter().map(|vm| home(vm, &alone)).collect::<Vec<_>>(),
            ["/both", "/both", "/x", "/"]
        );
        assert_eq!(seen.vms.keys().collect::<Vec<_>>(), [&30]);
        assert_eq!(seen.pools.keys().collect::<Vec<_>>(), ["/both", "/x"]);
    }

    #[test]
    fn cgroups_that_the_settings_file_names_are_read_with_all_above_them() {
        let t = MadeUp::new("named");
        t.cgroup("/m", "cpu.weight", "50\n");
        let text = "[[pool]]\nname = \"/m/n\"\n[[pool]]\nname = \"gold\"\nparent = \
            \"/k\"\n[[vm]]\nname = \"w\"\npool = \"/v/w\"\n";
        let settings = LiveSettings::parse("t.toml", text).unwrap();
        let seen = Cgroups::read(&t.roots(), &[], &settings, &Trust::default());
        assert_eq!(seen.pools.keys().collect::<Vec<_>>(), ["/k", "/m", "/m/n", "/v", "/v/w"]);
        assert_eq!(
            (seen.pools["/m"].present, seen.pools["/m/n"].present, seen.pools["/m"].weight),
            (true, false, Some(50))
        );
    }

    #[test]
    fn extended_attributes_are_read_from_the_file_system_where_it_has_them() {
        let t = MadeUp::new("xattr");
        let folder = t.path("cgroup");
        if xattr::set(&folder, "user.tandem.shares", b"high").is_err() {
            return; // this machine's temporary folder has none: nothing can be read
        }
        xattr::set(&folder, "user.other", b"1").unwrap();
        assert_eq!(
            attributes(&folder).unwrap(),
            [("user.tandem.shares".to_owned(), b"high".to_vec())]
        );
        assert_eq!(attributes(&t.path("nothing-there")).unwrap(), []);
    }
}
