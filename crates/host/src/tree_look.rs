//! Reads the tree that the scheduler divides: demand, entitlement and use of each pool and VM, as
//! means over a short interval.

use crate::{
    Accounts, HostError, Names, PoolName,
    measure::{Source, measure_and},
};
use entitlement::Owner;
use sched_core::Node;
use std::{thread, time::Duration};
use topology::Topology;
use units::Rate;
use views::{PlanNow, RunResult};

/// What was seen.
pub struct Look {
    /// Pools and VMs with their settings; `names.tree()` is the tree.
    pub names: Names,
    /// Time that was looked at, in ns.
    pub duration_ns: u64,
    /// Of each pool of the tree.
    pub pools: Vec<PlanNow>,
    /// Of each leaf, the system group first.
    pub leaves: Vec<PlanNow>,
}

/// Looks at the running daemon's tree for `duration`, every `step`.
///
/// # Errors
/// `HostError` when the daemon's accounts cannot be read.
pub fn look(
    accounts: Accounts,
    topology: &Topology,
    (duration, step): (Duration, Duration),
    stop: &dyn Fn() -> bool,
) -> Result<Look, HostError> {
    let source = Source::Tandem(Box::new(accounts));
    let Source::Tandem(accounts) = &source else { unreachable!("just made") };
    let mut seen: Vec<(u64, Vec<Node>)> = vec![];
    let measured = measure_and(&source, topology, (duration, step), stop, &mut || {
        seen.extend(plan(accounts))
    })?;
    // Where VMs are pinned to a few pCPUs the scheduler's own division ignores that: the ideal is
    // used.
    let held = accounts.host().plan_outside != 0;
    Ok(gathered(measured.names, &measured.run, &seen, held))
}

/// The plan's nodes between two divisions: on a big host there is one for half of the time.
pub(crate) fn plan(accounts: &Accounts) -> Option<(u64, Vec<Node>)> {
    let again = |_| {
        thread::sleep(Duration::from_millis(1));
        accounts.plan()
    };
    accounts.plan().or_else(|| (0..10).find_map(again))
}

/// Means of what was seen of the plan that these names are of.
fn gathered(names: Names, run: &RunResult, seen: &[(u64, Vec<Node>)], held: bool) -> Look {
    let tree = names.tree();
    let order: Vec<Owner> = tree.nodes().iter().map(|n| n.owner).collect();
    let seen: Vec<&Vec<Node>> = seen
        .iter()
        .filter(|(g, nodes)| *g == names.generation && nodes.len() == order.len())
        .map(|s| &s.1)
        .collect();
    let mean = |at: usize, field: fn(&Node) -> u64| {
        let sum: u128 = seen.iter().map(|nodes| u128::from(field(&nodes[at]))).sum();
        Rate((sum / seen.len().max(1) as u128) as u64)
    };
    let rate = |ns: u64| {
        Rate(((u128::from(ns) << Rate::SHIFT) / u128::from(run.duration_ns.max(1))) as u64)
    };
    let of = |owner: Owner, used: u64, entitled: u64| {
        let at = order.iter().position(|o| *o == owner).unwrap_or(0);
        let gets = if held { rate(entitled) } else { mean(at, |n| n.gets) };
        PlanNow { asks: mean(at, |n| n.demand), gets, used: rate(used) }
    };
    let pool = |(i, p): (usize, &PoolName)| {
        let times = run.pools.iter().find(|r| r.path == p.path);
        let system = run.pools.iter().find(|r| r.path == "/system" && i == 0);
        let sum = |f: fn(&views::Pool) -> u64| times.map_or(0, f) + system.map_or(0, f);
        of(Owner::Pool(i), sum(|t| t.used_ns), sum(|t| t.entitled_ns))
    };
    let system = run
        .pools
        .iter()
        .find(|r| r.path == "/system")
        .map_or((0, 0), |s| (s.used_ns, s.entitled_ns));
    let called = names.called();
    let vm = |(i, name): (usize, &String)| {
        let times = run
            .vms
            .iter()
            .find(|v| v.name == *name)
            .map_or((0, 0), |v| (v.times.used_ns, v.times.entitled_ns));
        of(Owner::Leaf(i + 1), times.0, times.1)
    };
    let leaves = [of(Owner::Leaf(0), system.0, system.1)]
        .into_iter()
        .chain(called.iter().enumerate().map(vm))
        .collect();
    let pools = names.pools.iter().enumerate().map(pool).collect();
    Look { duration_ns: run.duration_ns, pools, leaves, names }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, VmName};
    use views::{HostCounts, Pool, Times, Vm};

    fn names() -> Names {
        let pool = |path: &str| PoolName {
            path: path.to_owned(),
            parent: "/".to_owned(),
            shares: 4000,
            reservation: Rate(0),
            limit: None,
            burst_ns: 0,
            expandable: true,
            scalable: false,
            sources: Sources::new(),
        };
        let vm = |id: u32, pool: &str| VmName {
            id,
            name: format!("v{id}"),
            pid: id as i32,
            started: 0,
            pool: pool.to_owned(),
            shares: 1000,
            reservation: Rate(0),
            limit: None,
            burst_ns: 0,
            vcpus: 2,
            weight: 0,
            cgroup: String::new(),
            sources: Sources::new(),
        };
        let (pools, vms) = (vec![pool("/"), pool("/a")], vec![vm(5, "/a"), vm(3, "/")]);
        Names {
            generation: 9,
            pcpus: 4,
            mhz: 2000,
            system_shares: 4000,
            pools,
            vms,
            daemon: 1,
            ..Names::default()
        }
    }

    fn run() -> RunResult {
        let times = |used_ns, entitled_ns| Times { used_ns, entitled_ns, ..Times::default() };
        let vm = |name: &str, t: Times| Vm {
            name: name.to_owned(),
            pool: "/".to_owned(),
            vcpus: 2,
            shares: 1,
            times: t,
            cpu_stat: None,
            guest: None,
            numa: vec![],
            worlds: vec![],
        };
        let pool = |path: &str, used_ns, entitled_ns| Pool {
            path: path.to_owned(),
            used_ns,
            entitled_ns,
            ..Pool::default()
        };
        RunResult {
            label: String::new(),
            duration_ns: 2000,
            host: HostCounts { pcpus: 4, cores: 4, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: vec![],
            pools: vec![pool("/", 5000, 6000), pool("/system", 1000, 1000), pool("/a", 3000, 4000)],
            vms: vec![vm("v3", times(2000, 2000)), vm("v5", times(3000, 4000))],
            wakeups: vec![],
            checked: None,
        }
    }

    #[test]
    fn what_the_scheduler_divided_is_averaged_and_other_plans_are_passed_over() {
        // Nodes: root, /a, system, v3, v5.
        let nodes = |n: u64| {
            (1..=5)
                .map(|i| Node { demand: i * n, gets: i * n + 1, ..Node::ZERO })
                .collect::<Vec<_>>()
        };
        let seen = [(9, nodes(10)), (8, nodes(1000)), (9, nodes(30)), (9, nodes(1)[..2].to_vec())];
        let look = gathered(names(), &run(), &seen, false);
        let part = |p: &PlanNow| (p.asks.0, p.gets.0, p.used.0 >> (Rate::SHIFT - 1));
        assert_eq!(look.pools.iter().map(part).collect::<Vec<_>>(), [(20, 21, 6), (40, 41, 3)]);
        assert_eq!(
            look.leaves.iter().map(part).collect::<Vec<_>>(),
            [(60, 61, 1), (100, 101, 3), (80, 81, 2)]
        );
    }

    #[test]
    fn where_vms_are_held_they_get_what_is_ideal() {
        let look = gathered(names(), &run(), &[], true);
        let half = |p: &PlanNow| (p.asks.0, p.gets.0 >> (Rate::SHIFT - 1));
        assert_eq!(look.pools.iter().map(half).collect::<Vec<_>>(), [(0, 7), (0, 4)]);
        assert_eq!(look.leaves.iter().map(half).collect::<Vec<_>>(), [(0, 1), (0, 4), (0, 2)]);
    }
}
