//! A run's tree as cgroups with their weights and limits, and as the settings file of what cgroups
//! cannot say.

use std::fmt::Write as _;

use settings::{PlacedPool, Run, VmSpec, place};
use units::Rate;

use super::refuse;
use crate::error::Result;

/// The pools of a run, the root first.
pub(super) fn pools(run: &Run) -> Result<Vec<PlacedPool>> {
    place(&run.spec.pools, run.spec.host.mhz)
        .map_err(|all| refuse(run, all.join("; "), "correct its pools"))
}

/// Position of a VM's pool.
pub(super) fn pool_of(vm: &VmSpec, pools: &[PlacedPool]) -> usize {
    vm.pool.as_ref().and_then(|name| pools.iter().position(|p| p.name == *name)).unwrap_or(0)
}

pub(super) fn shares(vm: &VmSpec) -> u64 {
    vm.shares.resolve(vm.vcpus).map_or(1000, |s| u64::from(s.get()))
}

/// For each pool what cpu.weight its children's shares are divided by: exact while the largest are
/// at most 10,000.
pub(super) fn weights(run: &Run, pools: &[PlacedPool]) -> Vec<u64> {
    let mut largest = vec![0u64; pools.len()];
    for pool in pools.iter().skip(1) {
        largest[pool.parent] = largest[pool.parent].max(u64::from(pool.shares));
    }
    for vm in &run.spec.vms {
        let p = pool_of(vm, pools);
        largest[p] = largest[p].max(shares(vm));
    }
    largest
}

pub(super) fn weight(shares: u64, largest: u64) -> u64 {
    if largest <= 10_000 { shares } else { (shares * 10_000 / largest).max(1) }
}

/// `cpu.max` of a limit: as libvirt and systemd write it, for a period of 100 ms.
pub(super) fn cpu_max(group: &str, limit: Option<Rate>, burst_ns: u64) -> String {
    const PERIOD_US: u64 = 100_000;
    let Some(limit) = limit else { return String::new() };
    let quota = (limit.0 * PERIOD_US) >> Rate::SHIFT;
    let burst = if burst_ns > 0 {
        format!("; echo {} >{group}/cpu.max.burst", burst_ns / 1000)
    } else {
        String::new()
    };
    format!("echo {quota} {PERIOD_US} >{group}/cpu.max{burst}\n")
}

/// Makes the cgroups of the pools, with their weights and limits.
pub(super) fn make_pools(pools: &[PlacedPool], largest: &[u64]) -> String {
    let mut s = String::new();
    for pool in pools.iter().skip(1) {
        let group = format!("/sys/fs/cgroup{}", pool.path);
        let weight = weight(u64::from(pool.shares), largest[pool.parent]);
        let _ = writeln!(
            s,
            "mkdir -p {group}; echo +cpu +cpuset >{group}/cgroup.subtree_control; echo {weight} \
                >{group}/cpu.weight"
        );
        s += &cpu_max(&group, pool.limit, pool.burst_ns);
    }
    s
}

/// The settings file of a run: shares beyond what cpu.weight can say, reservations, and knobs.
/// Limits are the cgroups' own.
pub(in crate::experiment) fn settings(run: &Run) -> Result<String> {
    let mut s = String::new();
    for pool in &run.spec.pools {
        let path = pools(run)?
            .into_iter()
            .find(|p| p.name == pool.name)
            .map_or_else(String::new, |p| p.path);
        let _ = writeln!(
            s,
            "[[pool]]\nname = \"{path}\"\nexpandable = {}\nscalable = {}",
            pool.expandable, pool.scalable
        );
        let resources = pool
            .resources(run.spec.host.mhz)
            .map_err(|all| refuse(run, all.join("; "), "correct its settings"))?;
        let _ = writeln!(s, "shares = {}", resources.shares);
        s += &reservation(resources.reservation);
    }
    for vm in &run.spec.vms {
        let resources = vm
            .resources(run.spec.host.mhz)
            .map_err(|all| refuse(run, all.join("; "), "correct its settings"))?;
        let _ = writeln!(s, "[[vm]]\nname = \"{}\"\nshares = {}", vm.name, resources.shares);
        s += &reservation(resources.reservation);
    }
    if !run.spec.knobs.is_empty() {
        s += "[knobs]\n";
        run.spec.knobs.iter().for_each(|(name, value)| {
            let _ = writeln!(s, "{name} = {value}");
        });
    }
    Ok(s)
}

fn reservation(rate: Rate) -> String {
    if rate.0 == 0 {
        String::new()
    } else {
        format!("reservation = \"{}\"\n", rate.percent().replace(' ', ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_cgroups_with_weights_in_the_ratio_of_shares_and_limits_of_100_ms() {
        let pool = |path: &str, parent, shares, limit: Option<u64>| PlacedPool {
            name: path.into(),
            path: path.into(),
            parent,
            depth: 1,
            shares,
            reservation: Rate(0),
            limit: limit.map(|percent| Rate(Rate::ONE.0 * percent / 100)),
            burst_ns: 5_000_000,
            expandable: true,
            scalable: false,
        };
        let pools = [
            pool("/", 0, 4000, None),
            pool("/a", 0, 20_000, Some(250)),
            pool("/a/b", 1, 4000, None),
        ];
        let text = make_pools(&pools, &[20_000, 4000, 0]);
        let group = |path: &str, weight: u64| {
            let at = format!("/sys/fs/cgroup{path}");
            format!(
                "mkdir -p {at}; echo +cpu +cpuset >{at}/cgroup.subtree_control; echo {weight} \
                    >{at}/cpu.weight\n"
            )
        };
        let limit = "echo 250000 100000 >/sys/fs/cgroup/a/cpu.max; echo 5000 \
            >/sys/fs/cgroup/a/cpu.max.burst\n";
        assert_eq!(text, [group("/a", 10_000), limit.to_owned(), group("/a/b", 4000)].concat());
        assert_eq!(
            (reservation(Rate::pcpus(2)), reservation(Rate(0))),
            ("reservation = \"200%\"\n".to_owned(), String::new())
        );
    }
}
