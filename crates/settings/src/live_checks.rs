//! Checks of pools and VMs in the live host's settings file, with the reason of a refusal; it never
//! sees cgroups.

use crate::{
    Branch, LivePool, LiveSettings, arrange,
    checks::{bad_name, mhz as bad_speed},
    numa::live_numa_reasons,
    resources::{Said, pool_or_vm},
};
use std::collections::BTreeSet;

/// What a parent or a VM's pool may be.
const POOLS: &str = "the name of a [[pool]] or a cgroup's path such as /machine.slice";
/// The kernel's longest path; `/proc/PID/cgroup` shows no longer one.
const PATH_MAX: usize = 4096;

/// Everything that is wrong with a file; amounts in MHz are held to the speed of a pCPU where that
/// is known.
pub(crate) fn reasons(settings: &LiveSettings, mhz: Option<u32>) -> Vec<String> {
    let mut out: Vec<String> =
        mhz.and_then(bad_speed).map(|reason| format!("host.mhz: {reason}")).into_iter().collect();
    // What a wrong speed makes of amounts in MHz would be reasons of no use.
    let mhz = mhz.filter(|_| out.is_empty());
    for pool in &settings.pools {
        let all = of_pool(pool, mhz);
        out.extend(all.into_iter().map(|reason| format!("pool '{}': {reason}", pool.name)));
    }
    out.extend(tree(settings).err().into_iter().flatten());
    out.extend(settings.numa.iter().flat_map(live_numa_reasons));
    let pools: BTreeSet<&str> = settings.pools.iter().map(|p| p.name.as_str()).collect();
    let mut seen = BTreeSet::new();
    for vm in &settings.vms {
        let mut say = |reason: String| out.push(format!("vm '{}': {reason}", vm.title()));
        if vm.name.is_none() && vm.cgroup.is_none() {
            say("seen neither name nor cgroup, allowed one of them or both; write name = \"*\" \
                    for all VMs"
                .to_owned());
        } else if !seen.insert((&vm.name, &vm.cgroup)) {
            say(
                "two have this name or pattern and this cgroup, and the second never counts; join \
                    them"
                    .to_owned(),
            );
        }
        vm.cgroup.as_deref().and_then(bad_cgroup).into_iter().for_each(&mut say);
        let shares = vm.shares.as_ref().and_then(|s| pool_or_vm(s, Some(1)).err());
        let said = Said {
            reservation: vm.reservation,
            limit: vm.limit,
            burst: vm.burst,
            vcpus: None,
            mhz,
        };
        shares.into_iter().chain(said.reasons()).chain(said.loose_burst(true)).for_each(&mut say);
        for (key, said) in [("llc", vm.llc.is_some()), ("prefer_ht", vm.prefer_ht)] {
            if said && settings.homes().is_none() {
                say(format!(
                    "{key}: seen without homes, allowed with [numa], which gives VMs homes, and \
                        without its 'on = false'"
                ));
            }
        }
        match vm.pool.as_deref() {
            Some(path) if path.starts_with('/') => {
                bad_path(path).into_iter().for_each(|r| say(format!("pool: {r}")))
            }
            Some(name) if !pools.contains(name) => {
                say(format!(
                    "pool: seen '{name}', allowed {POOLS}; leave it out for the pool that its \
                        cgroup is in"
                ));
            }
            _ => {}
        }
    }
    out
}

/// What is wrong with one pool, without its name.
fn of_pool(pool: &LivePool, mhz: Option<u32>) -> Vec<String> {
    let mut out = vec![];
    if pool.is_cgroup() {
        out.extend(bad_path(&pool.name).map(|reason| format!("name: {reason}")));
        if pool.name == "/" {
            out.push(
                "name: seen the root, allowed a cgroup below it; the root has all that the \
                host has"
                    .to_owned(),
            );
        }
        if let Some(parent) = &pool.parent {
            out.push(format!(
                "parent: seen '{parent}', allowed none, since a cgroup is where it is; leave it out"
            ));
        }
    } else {
        out.extend(
            bad_name(&pool.name)
                .map(|reason| format!("{reason}, or a cgroup's path such as /machine.slice")),
        );
        let path = pool.parent.as_deref().filter(|p| p.starts_with('/'));
        out.extend(path.and_then(bad_path).map(|reason| format!("parent: {reason}")));
    }
    out.extend(pool.shares.as_ref().and_then(|s| pool_or_vm(s, None).err()));
    let said = Said {
        reservation: pool.reservation,
        limit: pool.limit,
        burst: pool.burst,
        vcpus: None,
        mhz,
    };
    out.extend(said.reasons().into_iter().chain(said.loose_burst(pool.is_cgroup())));
    out
}

/// The tree as far as the file knows it: its pools, and the cgroups that it names as parents, each
/// as deep as its path is long.
fn tree(settings: &LiveSettings) -> Result<(), Vec<String>> {
    let named: BTreeSet<&str> = settings.pools.iter().map(|p| p.name.as_str()).collect();
    let parents =
        settings.pools.iter().filter_map(|p| p.parent.as_deref().filter(|_| !p.is_cgroup()));
    let cgroups: BTreeSet<&str> =
        parents.filter(|p| p.starts_with('/') && *p != "/" && !named.contains(p)).collect();
    let own = settings.pools.iter().map(|p| match p.parent.as_deref() {
        _ if p.is_cgroup() => Branch::cgroup(&p.name),
        above => Branch::below(&p.name, above.filter(|a| *a != "/")),
    });
    let branches: Vec<Branch> = own.chain(cgroups.iter().map(|c| Branch::cgroup(c))).collect();
    arrange(&branches, POOLS).map(drop)
}

/// What is wrong with the cgroup that VMs shall be in.
fn bad_cgroup(path: &str) -> Option<String> {
    let reason = if path == "/" {
        "seen the root, allowed a cgroup below it; leave it out for all VMs".to_owned()
    } else if !path.starts_with('/') || bad_path(path).is_some() {
        not_a_path(path)
    } else if path.split_once(".scope/").is_some() {
        format!(
            "seen '{}', allowed a path up to its first .scope, which is the cgroup of a VM; leave \
                out what follows",
            shown(path)
        )
    } else {
        return None;
    };
    Some(format!("cgroup: {reason}"))
}

/// Why this is no path of a cgroup as `/proc/PID/cgroup` shows it.
fn bad_path(path: &str) -> Option<String> {
    let parts = || path.split('/').skip(1);
    let odd = path != "/" && parts().any(|part| matches!(part, "" | "." | ".."))
        || path.contains(|c: char| c.is_control());
    let long = path.len() >= PATH_MAX;
    let mounted = path.starts_with("/sys/fs/cgroup");
    (odd || long || mounted).then(|| not_a_path(path))
}

fn not_a_path(path: &str) -> String {
    format!(
        "seen '{}', allowed a cgroup's path as /proc/PID/cgroup shows it, such as /machine.slice; \
            write it so",
        shown(path)
    )
}

fn shown(path: &str) -> String {
    path.chars().take(80).collect::<String>().escape_debug().to_string()
}
