//! Memory of NUMA nodes: where the pages of VMs are, and how much slower a world works for those
//! that are not in its node, or in a node that many worlds want.
//!
//! *Law*: a world that waits for memory for `m` of its time with all pages in its node waits for
//! `m · r` with a part of them elsewhere, where `r` is the mean of the distances over the nodes
//! that its accesses go to, by that of its own node. It waits longer where worlds want more of a
//! node's memory than that gives, or more of the way from their node to the others than that
//! carries (`bandwidth`). Pages that are moved use both.
//!
//! *Pages*: an area of memory has hot pages, a small part that most accesses go to, and others; of
//! both it is known how many bytes are in each node, not which page is where.
//!
//! *Sources*: distances are ACPI's (SLIT): 10 in the own node. docs/hardware.md has the rest.

use crate::bandwidth::{self, User, Way};
use crate::speed::ONE;
use smallvec::SmallVec;

/// Distance of a node from itself (ACPI 6.5, 5.2.17).
pub const LOCAL_DISTANCE: u64 = 10;

/// What a host's nodes have of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// Bytes of each node; one without cores may have some too.
    pub sizes: Vec<u64>,
    /// Distances, a row for each node: `LOCAL_DISTANCE` is its own.
    pub distances: Vec<Vec<u64>>,
    /// What the memory of each node gives to all worlds together, in bytes a us.
    pub bandwidth: Vec<u64>,
    /// What a node gets from all others together, in bytes a us.
    pub link: u64,
}

/// Memory that some worlds use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Area {
    /// Bytes by node: hot ones, others.
    pages: [Vec<u64>; 2],
    /// Part of the accesses that go to hot pages, in permille.
    hot_permille: u64,
}

impl Area {
    fn bytes(&self) -> u64 {
        self.pages.iter().flatten().sum()
    }

    /// Part of the accesses that go to a node, in permille.
    fn accesses(&self, node: usize) -> u64 {
        let of = |pages: &Vec<u64>| {
            let all: u64 = pages.iter().sum();
            (all > 0).then(|| (u128::from(pages[node]) * 1000 / u128::from(all)) as u64)
        };
        match (of(&self.pages[0]), of(&self.pages[1])) {
            (Some(hot), Some(cold)) => {
                (hot * self.hot_permille + cold * (1000 - self.hot_permille)) / 1000
            }
            (one, other) => one.or(other).unwrap_or(0),
        }
    }
}

/// What a world loses to memory that is not near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Far {
    /// Mean distance by the own one, less 1, in 2^-16.
    pub(crate) extra: u64,
    /// Part of the accesses to other nodes, in permille.
    pub(crate) remote_permille: u64,
}

impl Far {
    const NONE: Far = Far { extra: 0, remote_permille: 0 };
}

/// What is left of a world's full speed, parts in 2^-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// By the controllers of nodes.
    pub(crate) fed: u64,
    /// By distances, and the way to other nodes.
    pub(crate) near: u64,
}

/// A world that runs: its node, and what it wants of memory at full speed, in bytes a us.
type Running = Option<(u32, u64)>;

/// The memory of a host.
#[derive(Clone, Debug)]
pub struct Memory {
    of: NodeMemory,
    areas: Vec<Area>,
    /// Areas that each world uses, and the part of its accesses in permille.
    uses: Vec<Vec<(u32, u64)>>,
    /// By world: parts of its accesses that go to each node, in permille, those of none left out.
    accesses: Vec<Vec<(u32, u64)>>,
    /// By world and node.
    far: Vec<Vec<Far>>,
    /// By world.
    running: Vec<Running>,
    /// Of each way, the memory of each node and then the links: what worlds want of it at most, in
    /// bytes a us, and how much longer an access takes, in 2^-16.
    wanted: Vec<u64>,
    longer: Vec<u64>,
    /// What moving pages takes of each node's memory and link.
    moving: Vec<u64>,
    changed: bool,
}

impl Memory {
    /// Memory of which nothing is used, on a host of so many worlds.
    ///
    /// # Panics
    /// If the distances are not square, or there is not one bandwidth for each node.
    #[must_use]
    pub fn new(of: NodeMemory, worlds: usize) -> Memory {
        let nodes = of.sizes.len();
        assert!(of.distances.len() == nodes && of.distances.iter().all(|r| r.len() == nodes));
        assert!(of.bandwidth.len() == nodes);
        Memory {
            areas: vec![],
            uses: vec![vec![]; worlds],
            accesses: vec![vec![]; worlds],
            far: vec![vec![Far::NONE; nodes]; worlds],
            running: vec![None; worlds],
            wanted: vec![0; 2 * nodes],
            longer: vec![0; 2 * nodes],
            moving: vec![0; nodes],
            changed: false,
            of,
        }
    }

    /// What the host has.
    #[must_use]
    pub fn nodes(&self) -> &NodeMemory {
        &self.of
    }

    /// A new area without pages, to the hot pages of which so many of its accesses go.
    pub fn area(&mut self, hot_permille: u64) -> u32 {
        let none = vec![0; self.of.sizes.len()];
        self.areas.push(Area { pages: [none.clone(), none], hot_permille });
        self.areas.len() as u32 - 1
    }

    /// A world uses these areas from now on, each for so many permille of its accesses. All its
    /// time until now has been passed.
    pub fn used_by(&mut self, world: u32, areas: Vec<(u32, u64)>) {
        self.uses[world as usize] = areas;
        self.look(world);
    }

    /// Bytes that are free in a node.
    #[must_use]
    pub fn free(&self, node: u32) -> u64 {
        let used = |a: &Area| a.pages.iter().map(|p| p[node as usize]).sum::<u64>();
        self.of.sizes[node as usize].saturating_sub(self.areas.iter().map(used).sum())
    }

    /// Bytes of an area by node.
    #[must_use]
    pub fn pages(&self, area: u32) -> Vec<u64> {
        let [hot, cold] = &self.areas[area as usize].pages;
        hot.iter().zip(cold).map(|(a, b)| a + b).collect()
    }

    /// Gives an area pages, so many of which are hot: in the first of these nodes as far as there
    /// is room, then in the next. What no node has room for is not there; its size.
    pub fn allocate(&mut self, area: u32, bytes: u64, hot: u64, nodes: &[u32]) -> u64 {
        let mut left = [hot.min(bytes), bytes - hot.min(bytes)];
        for node in nodes {
            for (kind, left) in left.iter_mut().enumerate() {
                let take = (*left).min(self.free(*node));
                self.areas[area as usize].pages[kind][*node as usize] += take;
                *left -= take;
            }
        }
        self.look_at(area);
        left.iter().sum()
    }

    /// Gives all pages of an area back.
    pub fn release(&mut self, area: u32) {
        self.areas[area as usize].pages.iter_mut().flatten().for_each(|p| *p = 0);
        self.look_at(area);
    }

    /// Moves pages of an area to a node, at most so many, hot ones first, and at most so many that
    /// are not hot; those of the node that has most of them come first. Bytes moved, by the node
    /// that they come from, and how many of them are not hot.
    pub fn move_to(&mut self, area: u32, to: u32, most: u64, cold: u64) -> (Vec<(u32, u64)>, u64) {
        let mut out = vec![0; self.of.sizes.len()];
        let mut left = most.min(self.free(to));
        let mut colds = 0;
        for kind in 0..2 {
            loop {
                let pages = &mut self.areas[area as usize].pages[kind];
                let others = (0..pages.len()).filter(|n| *n != to as usize);
                let Some(from) = others.max_by_key(|n| (pages[*n], std::cmp::Reverse(*n))) else {
                    break;
                };
                let may = if kind == 1 { left.min(cold - colds) } else { left };
                let take = pages[from].min(may);
                if take == 0 {
                    break;
                }
                pages[from] -= take;
                pages[to as usize] += take;
                out[from] += take;
                left -= take;
                colds += if kind == 1 { take } else { 0 };
            }
        }
        self.look_at(area);
        ((0..).zip(out).filter(|(_, bytes)| *bytes > 0).collect(), colds)
    }

    /// Moving pages takes so much of a node's memory and link from now on, in bytes a us.
    pub fn moves(&mut self, node: u32, per_us: u64) {
        if std::mem::replace(&mut self.moving[node as usize], per_us) != per_us {
            self.changed = true;
        }
    }

    /// Worlds that use an area.
    pub fn users(&self, area: u32) -> impl Iterator<Item = u32> + '_ {
        let uses = move |u: &Vec<(u32, u64)>| u.iter().any(|(a, _)| *a == area);
        (0..).zip(&self.uses).filter(move |(_, u)| uses(u)).map(|(world, _)| world)
    }

    /// Part of a world's accesses that go to other nodes from this one, in permille.
    #[must_use]
    pub fn remote_permille(&self, world: u32, node: u32) -> u64 {
        self.far[world as usize][node as usize].remote_permille
    }

    fn look_at(&mut self, area: u32) {
        for world in self.users(area).collect::<Vec<_>>() {
            self.look(world);
        }
    }

    /// Finds anew what a world loses in each node.
    fn look(&mut self, world: u32) {
        let running = self.running[world as usize];
        self.stops(world);
        let nodes = self.of.sizes.len();
        let mut accesses = vec![0; nodes];
        for (area, part) in &self.uses[world as usize] {
            let area = &self.areas[*area as usize];
            if area.bytes() > 0 {
                (0..nodes).for_each(|to| accesses[to] += area.accesses(to) * part);
            }
        }
        for (from, row) in self.of.distances.iter().enumerate() {
            let others = accesses.iter().enumerate().filter(|(to, _)| *to != from);
            let far = |(to, part): (usize, &u64)| {
                part * row[to].saturating_sub(row[from]) * ONE / row[from].max(1) / 1_000_000
            };
            self.far[world as usize][from] = Far {
                extra: others.clone().map(far).sum(),
                remote_permille: others.map(|(_, part)| part).sum::<u64>() / 1000,
            };
        }
        let some = (0..).zip(&accesses).filter(|(_, part)| **part >= 1000);
        self.accesses[world as usize] = some.map(|(to, part)| (to, part / 1000)).collect();
        if let Some((node, bytes)) = running {
            self.starts(world, node, bytes);
        }
    }

    /// Ways that the accesses of a world on a node go by, and the part of each in permille. One
    /// without memory of its own uses that of its node.
    fn ways(&self, world: u32, node: u32) -> impl Iterator<Item = (usize, u64)> + '_ {
        let link = self.of.sizes.len() + node as usize;
        let remote = self.remote_permille(world, node);
        let of = &self.accesses[world as usize];
        let memory = of.iter().map(|(to, part)| (*to as usize, *part));
        let near = of.is_empty().then_some((node as usize, 1000));
        memory.chain(near).chain((remote > 0).then_some((link, remote)))
    }

    /// The same with the part of its time that it waits for each, in permille, where it waits so
    /// much for memory and is alone: as long as that, or as long as the way is busy with it.
    fn waits(&self, world: u32, node: u32, memory_permille: u64) -> impl Iterator<Item = Way> + '_ {
        let bytes = self.running[world as usize].map_or(0, |(_, bytes)| bytes);
        self.ways(world, node).map(move |(way, part)| {
            let busy = bytes * part / self.carries(way).max(1);
            let waits = memory_permille.max(busy.min(1000)) * part / 1000;
            Way { way, part, waits }
        })
    }

    /// What a way carries for worlds, in bytes a us.
    fn carries(&self, way: usize) -> u64 {
        let nodes = self.of.sizes.len();
        let all = self.of.bandwidth.get(way).copied().unwrap_or(self.of.link);
        all.saturating_sub(self.moving[way % nodes])
    }

    /// A world runs on a node from now on, and wants so much of memory, in bytes a us.
    pub(crate) fn starts(&mut self, world: u32, node: u32, bytes: u64) {
        self.stops(world);
        self.running[world as usize] = Some((node, bytes));
        self.counts(world, node, |sum, part| sum + bytes * part / 1000);
    }

    /// It runs no longer.
    pub(crate) fn stops(&mut self, world: u32) {
        if let Some((node, bytes)) = self.running[world as usize].take() {
            self.counts(world, node, |sum, part| sum - bytes * part / 1000);
        }
    }

    fn counts(&mut self, world: u32, node: u32, sum: impl Fn(u64, u64) -> u64) {
        let ways: SmallVec<[(usize, u64); 4]> = self.ways(world, node).collect();
        for (way, part) in ways {
            self.wanted[way] = sum(self.wanted[way], part);
            self.changed |= self.wanted[way] > self.carries(way) || self.longer[way] > 0;
        }
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    /// `1 ÷ speed` of a world on a node by distances alone, in 2^-16.
    fn near(&self, world: u32, node: u32, memory_permille: u64) -> u64 {
        ONE + memory_permille * self.far[world as usize][node as usize].extra / 1000
    }

    /// A core's other thread has begun or ceased to slow worlds, which want less or more.
    pub(crate) fn twin_changed(&mut self) {
        let pressed = |way: usize| self.longer[way] > 0 || self.wanted[way] > self.carries(way);
        self.changed |= (0..self.wanted.len()).any(pressed);
    }

    /// What is left of full speed for a world on a node that waits for memory for so much of its
    /// time.
    pub(crate) fn speed(&self, world: u32, node: u32, memory_permille: u64) -> Left {
        let nodes = self.of.sizes.len();
        let (mut near, mut fed) = (self.near(world, node, memory_permille), 0);
        for Way { way, waits, .. } in self.waits(world, node, memory_permille) {
            let waits = self.longer[way] * waits / 1000;
            if way < nodes {
                fed += waits;
            } else {
                near += waits;
            }
        }
        let all = near + fed;
        Left { fed: (near * ONE / all).max(1), near: (ONE * ONE / near).max(1) }
    }

    /// Finds anew how much longer accesses take. `runs` are the worlds that run: world, node, what
    /// each wants of memory while that does not slow it, in bytes a us, and for what part of its
    /// time it waits for memory, in permille. Whether any goes at another speed now.
    pub(crate) fn renew(&mut self, runs: &[(u32, u32, u64, u64)]) -> bool {
        self.changed = false;
        let user = |(world, node, wanted, memory_permille): &(u32, u32, u64, u64)| User {
            wanted: *wanted,
            near: self.near(*world, *node, *memory_permille),
            by: self.waits(*world, *node, *memory_permille).collect(),
        };
        let users: Vec<User> = runs.iter().map(user).collect();
        let carries: Vec<u64> = (0..self.wanted.len()).map(|way| self.carries(way)).collect();
        let before = self.longer.clone();
        bandwidth::solve(&users, &carries, &mut self.longer);
        before != self.longer
    }
}

#[cfg(test)]
mod tests;
