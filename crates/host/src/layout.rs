//! Lays out pools and VMs as a tree, from the settings file, the cgroups and their extended
//! attributes; it reads nothing itself.
//!
//! Precedence: the settings file, then extended attributes, then cpu.weight and cpu.max, key by
//! key. Contradictions are reported with what applies instead, and the rest is in force.

use crate::{
    Names, PoolName, Sources, Speed, SpeedSource, VmName,
    cgroups::{Cgroup, Cgroups, alone, home},
    discover::FoundVm,
    trust::{ALLOWED, Stranger},
};
use entitlement::Taken;
use settings::{
    Attributes, Branch, Called, LIMIT_MIN, LimitSetting, LivePool, LiveSettings, VmResources,
    arrange, from_attributes,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ptr,
};
use units::{
    CpuAmount, Rate,
    caps::{POOLS_MAX, SHARES_MAX},
};

mod grove;
use grove::Grove;

/// Shares for one unit of `cpu.weight`: its default of 100 is ESXi's normal 1000 of one vCPU.
pub const SHARES_PER_WEIGHT: u32 = 10;
/// `cpu.weight` of a cgroup that has none.
const WEIGHT_UNSET: u32 = 100;
/// What a pool's parent and a VM's pool may be.
const POOLS: &str = "the name of a [[pool]] or a cgroup's path such as /machine.slice";

/// What a layout depends on beside what was found.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The settings file's content.
    pub settings: &'a LiveSettings,
    /// Speed of a pCPU.
    pub speed: Speed,
    /// pCPUs that are online.
    pub pcpus: u32,
    /// Shares of the system group.
    pub system_shares: u32,
}

/// A tree as it shall be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Its pools and VMs; the VMs' numbers are not set.
    pub names: Names,
    /// What could not be taken over, and what counts in its place.
    pub troubles: BTreeSet<String>,
}

/// Lays out the VMs that were found.
///
/// # Errors
/// Every reason why the settings file's pools make no tree; such a file is not taken over.
pub fn layout(found: &[FoundVm], cgroups: &Cgroups, known: &Known) -> Result<Layout, Vec<String>> {
    let mut troubles: BTreeSet<String> = cgroups
        .pools
        .values()
        .chain(cgroups.vms.values())
        .flat_map(|c| c.troubles.clone())
        .collect();
    let mut grove = Grove::of(known.settings, cgroups);
    let alone = alone(found);
    let pool_of: Vec<Option<String>> =
        found.iter().map(|vm| grove.pool_of(vm, home(vm, &alone))).collect();
    let branches = grove.branches();
    let borrowed: Vec<Branch> =
        branches.iter().map(|(name, above)| Branch::below(name, above.as_deref())).collect();
    let places = arrange(&borrowed, POOLS)?;
    troubles.append(&mut grove.troubles);
    if let Some(first) = grove.beyond.first() {
        let n = grove.beyond.len();
        troubles.insert(format!(
            "pools: cannot hold {n} cgroups more, '{first}' first: allowed {POOLS_MAX}; VMs in \
                them are in the pool above"
        ));
    }

    let mut merge = Merge { known, troubles, mhz_used: false };
    let mut pools = vec![root()];
    let mut path_of: BTreeMap<&str, String> = BTreeMap::new();
    for place in &places {
        let name = borrowed[place.branch].name;
        path_of.insert(name, place.path.clone());
        let parent = place.parent.checked_sub(1).map_or("/", |p| &places[p].path).to_owned();
        pools.push(merge.pool(name, &place.path, parent, cgroups.pools.get(name)));
    }
    let path = |pool: &Option<String>| {
        pool.as_ref()
            .and_then(|p| path_of.get(p.as_str()).cloned())
            .unwrap_or_else(|| "/".to_owned())
    };
    let vms = found
        .iter()
        .zip(&pool_of)
        .map(|(vm, pool)| merge.vm(vm, path(pool), cgroups.vms.get(&vm.pid)))
        .collect();
    if merge.mhz_used && known.speed.from == SpeedSource::Assumed {
        merge.troubles.insert(format!(
            "host: cannot find the speed of a pCPU: seen none in cpufreq and /proc/cpuinfo, {} MHz \
                assumed; write [host] mhz",
            known.speed.mhz
        ));
    }
    let Known { speed, pcpus, system_shares, .. } = *known;
    let names = Names {
        generation: 0,
        daemon: std::process::id(),
        pcpus,
        cores: 0,
        shared_charge: 0,
        divided_charge: 0,
        mhz: speed.mhz,
        system_shares,
        taken: Taken::new(),
        pools,
        vms,
    };
    Ok(Layout { names, troubles: merge.troubles })
}

/// The root: it has the host, and no settings.
fn root() -> PoolName {
    let VmResources { shares, reservation, limit, burst_ns } = VmResources::POOL;
    let (path, parent) = ("/".to_owned(), "/".to_owned());
    PoolName {
        path,
        parent,
        shares,
        reservation,
        limit,
        burst_ns,
        expandable: false,
        scalable: false,
        sources: Sources::new(),
    }
}

/// Layers what is said of each pool and VM.
struct Merge<'a> {
    known: &'a Known<'a>,
    troubles: BTreeSet<String>,
    /// Whether the speed of a pCPU decides anything.
    mhz_used: bool,
}

impl Merge<'_> {
    fn pool(
        &mut self,
        name: &str,
        path: &str,
        parent: String,
        cgroup: Option<&Cgroup>,
    ) -> PoolName {
        let object = format!("pool '{path}'");
        let mut file = self.known.settings.pool(name).map(LivePool::attributes).unwrap_or_default();
        if let (Some(true), Some(stranger)) =
            (file.scalable, cgroup.and_then(|c| c.stranger.as_ref()))
        {
            // Its owner could raise its shares by the weights of cgroups in it.
            file.scalable = None;
            self.troubles.insert(not_scalable(&object, stranger));
        }
        let base = if name.starts_with('/') { of_cgroup(cgroup) } else { VmResources::POOL };
        let (all, resources, sources) = self.layer(&object, name, file, cgroup, (base, None));
        let VmResources { shares, reservation, limit, burst_ns } = resources;
        let (expandable, scalable) =
            (all.expandable.unwrap_or(true), all.scalable.unwrap_or(false));
        PoolName {
            path: path.to_owned(),
            parent,
            shares,
            reservation,
            limit,
            burst_ns,
            expandable,
            scalable,
            sources,
        }
    }

    fn vm(&mut self, vm: &FoundVm, pool: String, cgroup: Option<&Cgroup>) -> VmName {
        let vcpus = vm.vcpus().max(1);
        self.troubles.extend(names_itself(self.known.settings, vm));
        let file =
            self.known.settings.vm(vm.called()).map(|s| s.attributes(vcpus)).unwrap_or_default();
        let object = format!("VM '{}'", vm.name);
        let (_, resources, sources) =
            self.layer(&object, &vm.cgroup, file, cgroup, (of_cgroup(cgroup), Some(vcpus)));
        let VmResources { shares, reservation, limit, burst_ns } = resources;
        VmName {
            id: 0,
            name: vm.name.clone(),
            pid: vm.pid,
            started: vm.started,
            pool,
            shares,
            reservation,
            limit,
            burst_ns,
            vcpus: vm.vcpus(),
            weight: 0,
            cgroup: vm.cgroup.clone(),
            sources,
        }
    }

    /// The file over the attributes of the cgroup at `path` over what the cgroup's files say.
    fn layer(
        &mut self,
        object: &str,
        path: &str,
        file: Attributes,
        cgroup: Option<&Cgroup>,
        (base, vcpus): (VmResources, Option<u32>),
    ) -> (Attributes, VmResources, Sources) {
        let own = cgroup.map_or(&[][..], |c| &c.attributes);
        let own =
            from_attributes(&format!("cgroup '{path}'"), own, vcpus).unwrap_or_else(|reasons| {
                self.troubles.extend(
                    reasons.into_iter().map(|r| format!("{r}; none of its attributes counts")),
                );
                Attributes::default()
            });
        let all = file.or(own);
        let amounts = [all.reservation, all.limit.and_then(LimitSetting::amount)];
        self.mhz_used |= amounts.into_iter().flatten().any(CpuAmount::is_mhz);
        if let (None, Some(low)) = (all.limit, base.limit.filter(|l| *l < LIMIT_MIN)) {
            self.troubles.insert(format!(
                "{object}: limit: seen {} in the cgroup's cpu.max, allowed 1 % or \
                    more; it counts as 1 %",
                low.percent()
            ));
        }
        let (kept, resources) = self.fitting(object, all, base, vcpus);
        (all, resources, sources(&kept, &file, cgroup))
    }

    /// What is said, and what it comes to; where it does not hold together, without the
    /// reservation, and with the lowest limit in place of one that is too low.
    fn fitting(
        &mut self,
        object: &str,
        all: Attributes,
        base: VmResources,
        vcpus: Option<u32>,
    ) -> (Attributes, VmResources) {
        let mhz = self.known.speed.mhz;
        let lowest = all.limit.map(|_| LimitSetting::Amount(CpuAmount::percent(1)));
        let tries = [
            (all, ""),
            (Attributes { reservation: None, ..all }, "it is left without a reservation"),
            (
                Attributes { reservation: None, limit: lowest, ..all },
                "it is left without a reservation, and limited to 1 %",
            ),
        ];
        let mut reasons = vec![];
        for (said, instead) in tries {
            match said.over(base, vcpus, mhz) {
                Ok(resources) => {
                    self.troubles.extend(
                        reasons.iter().map(|r| format!("{object}: {r}; until then {instead}")),
                    );
                    return (said, resources);
                }
                Err(why) if reasons.is_empty() => reasons = why,
                Err(_) => {}
            }
        }
        unreachable!(
            "without a reservation and with the lowest limit nothing is left to refuse: {reasons:?}"
        )
    }
}

fn not_scalable(object: &str, stranger: &Stranger) -> String {
    format!(
        "{object}: cannot be scalable: seen {stranger}, allowed {ALLOWED}; it keeps its own \
            shares; {}, or leave scalable out",
        stranger.next()
    )
}

/// What to say of a VM to which an entry does not apply because its process gave itself the name.
fn names_itself(settings: &LiveSettings, vm: &FoundVm) -> Option<String> {
    let (own, given) = (vm.called(), Called { named: true, ..vm.called() });
    let entry = settings.vm(given)?;
    if settings.vm(own).is_some_and(|applies| ptr::eq(applies, entry)) {
        return None;
    }
    let (seen, next) = match vm.uid {
        Some(0) => ("of root in a container".to_owned(), String::new()),
        Some(uid) => (format!("of uid {uid}"), format!("add {uid} to [trust] users, or ")),
        None => ("of no user".to_owned(), String::new()),
    };
    Some(format!(
        "VM '{}' (pid {}): cannot apply [[vm]] '{}' to it: seen a process {seen} that named itself \
            so, allowed {ALLOWED} as its user, or a cgroup of that name; {next}match it by \
            cgroup = '{}'",
        vm.name.replace(char::is_control, "?"),
        vm.pid,
        entry.title(),
        vm.cgroup.replace(char::is_control, "?")
    ))
}

/// What a cgroup's own files come to.
fn of_cgroup(cgroup: Option<&Cgroup>) -> VmResources {
    let weight = cgroup.and_then(|c| c.weight).unwrap_or(WEIGHT_UNSET);
    let quota = cgroup.and_then(|c| c.quota.as_ref());
    VmResources {
        shares: (weight * SHARES_PER_WEIGHT).clamp(1, SHARES_MAX as u32),
        reservation: Rate(0),
        limit: quota.map(|q| q.rate),
        burst_ns: quota.map_or(0, |q| q.burst_ns),
    }
}

/// Source of each setting that is in force and no default.
fn sources(said: &Attributes, file: &Attributes, cgroup: Option<&Cgroup>) -> Sources {
    let quota = cgroup.and_then(|c| c.quota.as_ref());
    let burst = quota.filter(|q| q.burst_ns > 0 && said.limit.is_none()).map(|q| q.from);
    let weight = cgroup.and_then(|c| c.weight).map(|_| "cpu.weight");
    let keys = [
        ("shares", said.shares.is_some(), file.shares.is_some(), weight),
        ("reservation", said.reservation.is_some(), file.reservation.is_some(), None),
        ("limit", said.limit.is_some(), file.limit.is_some(), quota.map(|q| q.from)),
        ("burst", said.burst.is_some(), file.burst.is_some(), burst),
        ("expandable", said.expandable.is_some(), file.expandable.is_some(), None),
        ("scalable", said.scalable.is_some(), file.scalable.is_some(), None),
    ];
    let source = |(key, said, file, cgroup): (&str, bool, bool, Option<&str>)| {
        let from = if !said {
            cgroup?
        } else if file {
            "file"
        } else {
            "attribute"
        };
        Some((key.to_owned(), from.to_owned()))
    };
    keys.into_iter().filter_map(source).collect()
}

#[cfg(test)]
mod tests;
