//! The tree of resource pools, for the simulator and the live host: checked whole, and laid out
//! with parents before children.

use crate::{
    PoolSpec, VmResources, VmSpec,
    checks::bad_name,
    resources::{self, Said},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};
use units::{Rate, caps};

/// The root's index, name and path.
const ROOT: (usize, &str) = (0, "/");

/// Path of the host's own tasks in result documents.
const SYSTEM: &str = "/system";

/// A pool in its place, with its settings in the scheduler's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPool {
    /// Name; the root's is `/`.
    pub name: String,
    /// Names from the root down: `/gold/web`.
    pub path: String,
    /// Index of the parent in the same list; the root is its own.
    pub parent: usize,
    /// Levels below the root.
    pub depth: usize,
    /// Shares, compared with its siblings' only.
    pub shares: u32,
    /// What it gets whatever the load.
    pub reservation: Rate,
    /// What it and all below it never exceed; `None` is unlimited.
    pub limit: Option<Rate>,
    /// CPU time in ns that may be saved up while the limit is not used.
    pub burst_ns: u64,
    /// Whether a reservation below it may borrow from its parent.
    pub expandable: bool,
    /// Whether its shares grow with those of its children.
    pub scalable: bool,
}

/// A pool as the tree sees it: what it is called and where it says it belongs.
#[derive(Clone, Copy, Debug)]
pub struct Branch<'a> {
    /// Name, or a cgroup's path that begins with `/` and is then its path in the tree too.
    pub name: &'a str,
    /// Name of the parent; `None` is the root.
    pub parent: Option<&'a str>,
    /// Levels it is below its parent: 1, or more for a cgroup whose own parents are not listed.
    pub levels: usize,
}

impl<'a> Branch<'a> {
    /// A pool right below its parent.
    #[must_use]
    pub fn below(name: &'a str, parent: Option<&'a str>) -> Branch<'a> {
        Branch { name, parent, levels: 1 }
    }

    /// A cgroup whose own parents are not listed: as deep as its path is long.
    #[must_use]
    pub fn cgroup(path: &'a str) -> Branch<'a> {
        Branch {
            name: path,
            parent: None,
            levels: path.split('/').filter(|part| !part.is_empty()).count(),
        }
    }
}

/// The place of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the branch in the list that was given.
    pub branch: usize,
    /// Place of the parent, counted from 1 in the list of places; 0 is the root, which is not in
    /// it.
    pub parent: usize,
    /// Levels below the root.
    pub depth: usize,
    /// Names from the root down: `/gold/web`.
    pub path: String,
}

/// The pools of a scenario in their places: index 0 is the root, parents come before their
/// children, and where that leaves a choice the file's order holds. Takes n log n.
///
/// # Errors
/// Every reason why they make no tree, or why a pool's settings cannot be.
pub fn place(pools: &[PoolSpec], mhz: u32) -> Result<Vec<PlacedPool>, Vec<String>> {
    if let Some(reason) = too_many(pools.len()) {
        return Err(vec![reason]);
    }
    let mut reasons = vec![];
    let mut given = vec![];
    for pool in pools {
        let mut say = |r: String| reasons.push(format!("pool '{}': {r}", pool.name));
        bad_name(&pool.name).into_iter().for_each(&mut say);
        match pool.resources(mhz) {
            Ok(resources) => given.push(resources),
            Err(all) => all.into_iter().for_each(say),
        }
    }
    let branches: Vec<Branch> =
        pools.iter().map(|p| Branch::below(&p.name, p.parent.as_deref())).collect();
    let places = arrange(&branches, "the name of a [[pool]]").unwrap_or_else(|all| {
        reasons.extend(all);
        vec![]
    });
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let placed = places.into_iter().map(|p| {
        let (spec, VmResources { shares, reservation, limit, burst_ns }) =
            (&pools[p.branch], given[p.branch]);
        let (expandable, scalable) = (spec.expandable, spec.scalable);
        let Place { parent, depth, path, .. } = p;
        PlacedPool {
            name: spec.name.clone(),
            path,
            parent,
            depth,
            shares,
            reservation,
            limit,
            burst_ns,
            expandable,
            scalable,
        }
    });
    Ok([root()].into_iter().chain(placed).collect())
}

/// The root: without siblings its shares decide nothing, and without a parent it cannot borrow.
fn root() -> PlacedPool {
    let VmResources { shares, reservation, limit, burst_ns } = VmResources::POOL;
    let (parent, name, path) = (ROOT.0, ROOT.1.to_owned(), ROOT.1.to_owned());
    PlacedPool {
        name,
        path,
        parent,
        depth: 0,
        shares,
        reservation,
        limit,
        burst_ns,
        expandable: false,
        scalable: false,
    }
}

/// Why there cannot be so many pools, said once and not for each.
pub(crate) fn too_many(pools: usize) -> Option<String> {
    let most = caps::POOLS_MAX - 1;
    (pools > most).then(|| {
        format!(
            "pool: seen {pools} pools, allowed {most} beside the root; leave some out, or join them"
        )
    })
}

/// Puts parents before their children and says where each is; `parents` is what a parent may be,
/// for the reasons. Takes n log n.
///
/// # Errors
/// Every reason: too many, a name used twice, a parent that is not there, a circle, too deep a
/// tree.
pub fn arrange(branches: &[Branch], parents: &str) -> Result<Vec<Place>, Vec<String>> {
    if let Some(reason) = too_many(branches.len()) {
        return Err(vec![reason]);
    }
    let mut reasons = vec![];
    let mut by_name = BTreeMap::new();
    for (i, b) in branches.iter().enumerate() {
        if by_name.insert(b.name, i).is_some() {
            reasons.push(format!("pool '{}': two have this name; each needs its own", b.name));
        }
    }
    let above: Vec<Above> = branches.iter().map(|b| Above::of(b, &by_name)).collect();
    for (b, _) in branches.iter().zip(&above).filter(|(_, a)| **a == Above::Unknown) {
        let seen = b.parent.unwrap_or_default();
        reasons.push(format!(
            "pool '{}': parent: seen '{seen}', allowed {parents}; leave it out \
            for a pool of the root",
            b.name
        ));
    }
    reasons.extend(circles(branches, &above));
    let places = walk(branches, &above, &mut reasons);
    for p in places.iter().filter(|p| p.path == SYSTEM) {
        let name = branches[p.branch].name;
        reasons.push(format!(
            "pool '{name}': seen the path {SYSTEM}, which means the host's own \
            tasks; give it another name"
        ));
    }
    reasons.extend(shared_paths(branches, &places));
    if reasons.is_empty() { Ok(places) } else { Err(reasons) }
}

/// Pools of our own whose path is that of a cgroup too.
fn shared_paths(branches: &[Branch], places: &[Place]) -> Vec<String> {
    let mut names = BTreeMap::new();
    let mut out = vec![];
    for place in places {
        let name = branches[place.branch].name;
        if let Some(other) = names.insert(place.path.as_str(), name).filter(|other| *other != name)
        {
            let own = if name.starts_with('/') { other } else { name };
            out.push(format!(
                "pool '{own}': seen the path {} of a cgroup, allowed one of its own; \
                give it another name",
                place.path
            ));
        }
    }
    out
}

/// What is above a branch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Above {
    Root,
    Branch(usize),
    Unknown,
}

impl Above {
    fn of(branch: &Branch, by_name: &BTreeMap<&str, usize>) -> Above {
        match branch.parent {
            None => Above::Root,
            Some(parent) => by_name.get(parent).map_or(Above::Unknown, |i| Above::Branch(*i)),
        }
    }
}

/// A reason for every circle, with its whole chain. Each branch is passed once: a walk ends at a
/// node of an older walk.
fn circles(branches: &[Branch], above: &[Above]) -> Vec<String> {
    let mut out = vec![];
    let mut trail = vec![None; branches.len()];
    for first in 0..branches.len() {
        let mut at = first;
        while trail[at].is_none() {
            trail[at] = Some(first);
            match above[at] {
                Above::Branch(next) => at = next,
                Above::Root | Above::Unknown => break,
            }
        }
        // Only a branch that leads back to its own trail by a parent closes a circle; the end of
        // the trail has none.
        if trail[at] == Some(first) && matches!(above[at], Above::Branch(_)) {
            let mut chain = vec![branches[at].name];
            let mut next = above[at];
            while let Above::Branch(i) = next {
                chain.push(branches[i].name);
                next = if i == at { Above::Root } else { above[i] };
            }
            let name = branches[at].name;
            out.push(format!(
                "pool '{name}': parent: seen the circle {}, allowed a chain that ends at the root; \
                    give one of them another parent",
                chain.join(" -> ")
            ));
        }
    }
    out
}

/// Walks down from the root, always to the first branch of the list whose parent has its place. It
/// does not go below a branch that is too deep, and never reaches circles and branches without a
/// known parent.
fn walk(branches: &[Branch], above: &[Above], reasons: &mut Vec<String>) -> Vec<Place> {
    let mut below = vec![vec![]; branches.len()];
    let mut ready = BinaryHeap::new();
    for (i, a) in above.iter().enumerate() {
        match a {
            Above::Root => ready.push(Reverse(i)),
            Above::Branch(parent) => below[*parent].push(i),
            Above::Unknown => {}
        }
    }
    let mut places: Vec<Place> = vec![];
    let mut place_of = vec![0; branches.len()];
    while let Some(Reverse(branch)) = ready.pop() {
        let b = &branches[branch];
        let parent = if let Above::Branch(p) = above[branch] { place_of[p] } else { ROOT.0 };
        let (depth, path) = match parent.checked_sub(1).map(|p| &places[p]) {
            None => (b.levels, ""),
            Some(p) => (p.depth + b.levels, p.path.as_str()),
        };
        if depth > caps::POOL_DEPTH_MAX {
            let most = caps::POOL_DEPTH_MAX;
            reasons.push(format!(
                "pool '{}': seen {depth} levels below the root, allowed {most}; \
                give it a parent further up",
                b.name
            ));
            continue;
        }
        let path =
            if b.name.starts_with('/') { b.name.to_owned() } else { format!("{path}/{}", b.name) };
        places.push(Place { branch, parent, depth, path });
        place_of[branch] = places.len();
        ready.extend(below[branch].iter().map(|i| Reverse(*i)));
    }
    places
}

impl PoolSpec {
    /// Its settings in the scheduler's units, on a host whose pCPUs run at `mhz`.
    ///
    /// # Errors
    /// Every reason, without the pool's name.
    pub fn resources(&self, mhz: u32) -> Result<VmResources, Vec<String>> {
        let said = Said {
            reservation: self.reservation,
            limit: self.limit,
            burst: self.burst,
            vcpus: None,
            mhz: Some(mhz),
        };
        resources::resolve(&self.shares, &said, mhz)
    }
}

impl VmSpec {
    /// Its settings in the scheduler's units, on a host whose pCPUs run at `mhz`.
    ///
    /// # Errors
    /// Every reason, without the VM's name.
    pub fn resources(&self, mhz: u32) -> Result<VmResources, Vec<String>> {
        let vcpus = Some(self.vcpus.clamp(1, caps::VCPUS_MAX));
        let said = Said {
            reservation: self.reservation,
            limit: self.limit,
            burst: self.burst,
            vcpus,
            mhz: Some(mhz),
        };
        resources::resolve(&self.shares, &said, mhz)
    }
}
