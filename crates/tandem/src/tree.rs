//! The source of a tree of pools and VMs, for `tandem plan` and `tandem admit`: a scenario, or the
//! running daemon.

use crate::{Exit, Failure};
use entitlement::{Names, Tree, TreeLeaf, TreePool};
use settings::{PlacedPool, Run, VmSpec};
use std::collections::BTreeMap;
use units::{Rate, caps::SHARES_MAX};

/// Source of each setting of a pool or VM.
pub type Sources = BTreeMap<String, String>;

/// A tree with what its pools and VMs are called. Leaf 0 is the system group.
pub struct Grown {
    /// The tree.
    pub tree: Tree,
    /// Paths of its pools and leaves.
    pub names: Names,
    /// Speed of a pCPU in MHz.
    pub mhz: u32,
    /// Generation of the plan; 0 for a scenario.
    pub generation: u64,
    /// Sources of the settings of each pool and each leaf; empty where one file has them all.
    pub sources: (Vec<Sources>, Vec<Sources>),
}

/// The tree of a scenario's run, the first if none is named, with all its VMs powered on.
///
/// # Errors
/// `Exit::Input` for a refused scenario or a run that it has not.
pub fn of_scenario(name: &str, label: Option<&str>) -> Result<Grown, Failure> {
    let scenario = settings::load(name).map_err(|e| Failure::new(Exit::Input, e))?;
    let found = scenario.runs.iter().find(|r| label.is_none_or(|l| r.label == l));
    found.map(of_run).ok_or_else(|| crate::runs::not_found(&scenario, label.unwrap_or_default()))
}

/// The tree of a run with all its VMs powered on.
pub fn of_run(run: &Run) -> Grown {
    let (spec, pcpus) = (&run.spec, run.topology.online().len() as u32);
    // Settings were checked when the scenario was read.
    let placed = settings::place(&spec.pools, spec.host.mhz).unwrap_or_default();
    let index: BTreeMap<&str, usize> =
        placed.iter().enumerate().map(|(i, p)| (p.name.as_str(), i)).collect();
    let of =
        |vm: &VmSpec| vm.pool.as_ref().and_then(|p| index.get(p.as_str()).copied()).unwrap_or(0);
    let pool = |p: &PlacedPool| TreePool {
        parent: p.parent,
        shares: u64::from(p.shares),
        reservation: p.reservation,
        limit: p.limit,
        expandable: p.expandable,
        scalable: p.scalable,
    };
    let leaf = |vm: &VmSpec| {
        let r = vm.resources(spec.host.mhz).unwrap_or(settings::VmResources::POOL);
        let allowed =
            (0..vm.vcpus as usize).map(|i| vm.allowed(i)).reduce(|a, b| Some(a?.or(&b?))).flatten();
        let vcpus = allowed.map_or(vm.vcpus, |a| vm.vcpus.min(a.len() as u32));
        TreeLeaf {
            pool: of(vm),
            shares: u64::from(r.shares),
            reservation: r.reservation,
            limit: r.limit,
            vcpus,
        }
    };
    let shares = match spec.knobs.get("system_shares") {
        None | Some(0) => (u64::from(pcpus) * 1000).min(SHARES_MAX),
        Some(n) => *n,
    };
    let system = TreeLeaf { pool: 0, shares, reservation: Rate(0), limit: None, vcpus: pcpus };
    let leaves: Vec<TreeLeaf> = [system].into_iter().chain(spec.vms.iter().map(leaf)).collect();
    let path = |vm: &VmSpec| format!("{}/{}", placed[of(vm)].path.trim_end_matches('/'), vm.name);
    let names = Names {
        pools: placed.iter().map(|p| p.path.clone()).collect(),
        leaves: ["/system".to_owned()].into_iter().chain(spec.vms.iter().map(path)).collect(),
    };
    let sources = (vec![Sources::new(); placed.len()], vec![Sources::new(); leaves.len()]);
    let knobs = crate::knobs::resolve(&spec.knobs, &[]).unwrap_or_default();
    let tree = Tree::new(u64::from(pcpus), placed.iter().map(pool).collect(), leaves)
        .on_cores(u64::from(sched_core::cores_online(&run.topology)), knobs.divided_charge());
    Grown { tree, names, mhz: spec.host.mhz, generation: 0, sources }
}

/// The tree of what a daemon says.
#[cfg(feature = "live")]
pub fn of_names(names: &host::Names) -> Grown {
    let pools = names.pools.iter().map(|p| p.sources.clone()).collect();
    let leaves =
        [Sources::new()].into_iter().chain(names.vms.iter().map(|v| v.sources.clone())).collect();
    Grown {
        tree: names.tree(),
        names: names.paths(),
        mhz: names.mhz,
        generation: names.generation,
        sources: (pools, leaves),
    }
}

/// The tree of the daemon that runs.
///
/// # Errors
/// `Exit::Host` when none does.
#[cfg(feature = "live")]
pub fn of_daemon() -> Result<Grown, Failure> {
    let lacks = |e: host::HostError| Failure::new(Exit::Host, e.or(host::instead::SCENARIO));
    host::Names::of_running().map(|names| of_names(&names)).map_err(lacks)
}

/// This build has no live host.
///
/// # Errors
/// Always.
#[cfg(not(feature = "live"))]
pub fn of_daemon() -> Result<Grown, Failure> {
    let error = anyhow::anyhow!(
        "daemon: cannot ask it: seen a tandem built without the live host; give --scenario NAME, \
            or build it with --features live"
    );
    Err(Failure::new(Exit::Host, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scenario of this repository, from wherever tests run.
    pub(crate) fn scenario(name: &str) -> String {
        format!("{}/../../scenarios/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn a_scenarios_tree_has_its_pools_its_vms_and_the_system_group() {
        let grown = of_scenario(&scenario("pools-nested"), None)
            .unwrap_or_else(|f| panic!("{:#}", f.error));
        assert_eq!(
            grown.names.pools,
            ["/", "/prod", "/prod/web", "/prod/db", "/test", "/test/batch"]
        );
        assert_eq!(grown.names.leaves[..3], ["/system", "/prod/web/front", "/prod/web/cache"]);
        assert_eq!(
            grown.tree.leaves()[0],
            TreeLeaf { pool: 0, shares: 16_000, reservation: Rate(0), limit: None, vcpus: 16 }
        );
        let sql = grown.names.leaves.iter().position(|n| n == "/prod/db/sql").unwrap();
        assert_eq!(
            (grown.tree.leaves()[sql].pool, grown.tree.leaves()[sql].reservation),
            (3, Rate::pcpus(2))
        );
        assert_eq!(grown.tree.pools()[4].limit, Some(Rate::pcpus(3)));
    }

    #[test]
    fn a_run_is_found_by_its_label_and_one_that_is_not_there_is_refused() {
        let tree = |label| of_scenario(&scenario("pool-limit"), label);
        assert_eq!(tree(Some("1 VM")).map(|g| g.tree.leaves().len()).ok(), Some(3));
        let refused = tree(Some("9 VMs")).err().unwrap();
        assert_eq!(refused.exit, Exit::Input);
        assert!(
            refused
                .error
                .to_string()
                .contains("cannot find run '9 VMs': allowed '1 VM', '2 VMs', '3 VMs'"),
            "{}",
            refused.error
        );
    }
}
