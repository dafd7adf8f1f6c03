//! Memory of NUMA nodes: where the pages of VMs are, how much slower a world works for those that
//! are not in its node, and what the way between nodes carries.
//!
//! *Law*: a world that waits for memory for `m` of its time with all pages in its node waits for
//! `m · r` with a part of them elsewhere, where `r` is the mean of the distances over the nodes
//! that its accesses go to, by that of its own node. It goes at `1 ÷ (1 + m · (r − 1))`. Where the
//! worlds of a node want more from other nodes than the way to them carries, `D > L`, each waits
//! longer, in proportion to the time that it waits anyway, until together they get `L`.
//! Pages that are moved use that way too.
//!
//! *Pages*: an area of memory has hot pages, a small part that most accesses go to, and others; of
//! both it is known how many bytes are in each node, not which page is where.
//!
//! *Sources*: distances are ACPI's (SLIT): 10 in the own node. docs/hardware.md has the rest.

use crate::speed::ONE;

/// Distance of a node from itself (ACPI 6.5, 5.2.17).
pub const LOCAL_DISTANCE: u64 = 10;

/// What a host's nodes have of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// Bytes of each node; one without cores may have some too.
    pub sizes: Vec<u64>,
    /// Distances, a row for each node: `LOCAL_DISTANCE` is its own.
    pub distances: Vec<Vec<u64>>,
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

    /// What is left of full speed for a world that waits for memory for so much of its time.
    pub(crate) fn speed(self, memory_permille: u64, squeezed: u64) -> u64 {
        let waits = memory_permille * (self.extra + squeezed * self.remote_permille / 1000) / 1000;
        (ONE * ONE / (ONE + waits)).max(1)
    }
}

/// The memory of a host.
#[derive(Clone, Debug)]
pub struct Memory {
    of: NodeMemory,
    areas: Vec<Area>,
    /// Areas that each world uses, and the part of its accesses in permille.
    uses: Vec<Vec<(u32, u64)>>,
    /// By world and node.
    far: Vec<Vec<Far>>,
    /// Of each node: what its worlds want of others, in bytes a us, and what moving pages takes.
    wanted: Vec<u64>,
    moving: Vec<u64>,
    /// How much longer its worlds wait for other nodes, in 2^-16.
    squeezed: Vec<u64>,
    changed: bool,
}

/// Steps of what is squeezed.
const STEP: u64 = ONE / 64;

impl Memory {
    /// Memory of which nothing is used, on a host of so many worlds.
    ///
    /// # Panics
    /// If the distances are not square.
    #[must_use]
    pub fn new(of: NodeMemory, worlds: usize) -> Memory {
        let nodes = of.sizes.len();
        assert!(of.distances.len() == nodes && of.distances.iter().all(|r| r.len() == nodes));
        Memory {
            areas: vec![],
            uses: vec![vec![]; worlds],
            far: vec![vec![Far::NONE; nodes]; worlds],
            wanted: vec![0; nodes],
            moving: vec![0; nodes],
            squeezed: vec![0; nodes],
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

    /// Moving pages takes so much of a node's way to others from now on, in bytes a us.
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
        for from in 0..self.of.sizes.len() {
            let (mut extra, mut remote) = (0, 0);
            for (area, part) in &self.uses[world as usize] {
                let area = &self.areas[*area as usize];
                if area.bytes() == 0 {
                    continue;
                }
                for to in (0..self.of.sizes.len()).filter(|to| *to != from) {
                    let row = &self.of.distances[from];
                    let accesses = area.accesses(to) * part;
                    extra += accesses * row[to].saturating_sub(row[from]) * ONE
                        / row[from].max(1)
                        / 1_000_000;
                    remote += accesses;
                }
            }
            let far = Far { extra, remote_permille: remote / 1000 };
            if std::mem::replace(&mut self.far[world as usize][from], far) != far {
                self.changed = true;
            }
        }
    }

    pub(crate) fn far(&self, world: u32, node: u32) -> Far {
        self.far[world as usize][node as usize]
    }

    /// How much longer the worlds of a node wait for others, in 2^-16.
    pub(crate) fn squeezed(&self, node: u32) -> u64 {
        self.squeezed[node as usize]
    }

    /// A world begins or ceases to want so much of other nodes, in bytes a us.
    pub(crate) fn wants(&mut self, node: u32, bytes: u64, more: bool) {
        let wanted = &mut self.wanted[node as usize];
        *wanted = if more { *wanted + bytes } else { wanted.saturating_sub(bytes) };
        let moving = self.moving[node as usize];
        self.changed |= *wanted + moving > self.of.link || self.squeezed[node as usize] != 0;
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Finds anew how much longer the worlds of each node wait for others. `runs` has, by node,
    /// what each world there wants of others in bytes a us, and for what part of its time it waits
    /// for memory, in permille. Nodes where that has changed.
    pub(crate) fn renew(&mut self, runs: impl Fn(u32) -> Vec<(u64, u64)>) -> Vec<u32> {
        self.changed = false;
        let mut out = vec![];
        for node in 0..self.of.sizes.len() as u32 {
            let of = runs(node);
            let wanted: u64 = of.iter().map(|w| w.0).sum();
            self.wanted[node as usize] = wanted;
            let moving = self.moving[node as usize];
            let link = self.of.link.saturating_sub(moving).max(1);
            // Each goes at 1 / (1 + m·x): with the mean m, x = (wanted ÷ link − 1) ÷ m.
            let squeezed = if wanted > link {
                let waits: u64 = of.iter().map(|w| w.0 * w.1 / 1000).sum();
                ((wanted - link) * ONE / link * wanted / waits.max(1)).div_ceil(STEP) * STEP
            } else {
                0
            };
            let squeezed = squeezed.min(64 * ONE);
            if std::mem::replace(&mut self.squeezed[node as usize], squeezed) != squeezed {
                out.push(node);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn memory(nodes: usize) -> Memory {
        let row = |i: usize| (0..nodes).map(|j| if i == j { 10 } else { 16 }).collect();
        let distances = (0..nodes).map(row).collect();
        Memory::new(NodeMemory { sizes: vec![4 * GIB; nodes], distances, link: 10_000 }, 4)
    }

    #[test]
    fn a_world_is_slowed_by_the_part_of_its_accesses_that_are_remote() {
        let mut m = memory(2);
        let a = m.area(0);
        m.used_by(1, vec![(a, 1000)]);
        assert_eq!(m.allocate(a, 2 * GIB, 0, &[0]), 0);
        assert_eq!((m.far(1, 0).speed(500, 0), m.remote_permille(1, 0)), (ONE, 0));
        assert_eq!(m.remote_permille(1, 1), 1000);
        // m = 0.5, r = 1.6: 1 ÷ 1.3.
        assert!(m.far(1, 1).speed(500, 0).abs_diff(ONE * 10 / 13) <= 2);
        assert_eq!(m.move_to(a, 1, GIB, GIB), (vec![(0, GIB)], GIB));
        // Half is remote: 1 ÷ 1.15 in both nodes.
        for node in 0..2 {
            assert!(m.far(1, node).speed(500, 0).abs_diff(ONE * 100 / 115) <= 2);
        }
        assert_eq!((m.free(0), m.free(1)), (3 * GIB, 3 * GIB));
        m.release(a);
        assert_eq!((m.free(0), m.far(1, 1)), (4 * GIB, Far::NONE));
    }

    #[test]
    fn hot_pages_come_first_and_count_for_their_accesses() {
        let mut m = memory(2);
        let a = m.area(800);
        m.used_by(1, vec![(a, 1000)]);
        m.allocate(a, 2 * GIB, GIB / 4, &[0]);
        assert_eq!(m.move_to(a, 1, GIB / 4, GIB), (vec![(0, GIB / 4)], 0));
        assert_eq!(m.remote_permille(1, 1), 200, "the hot ones are there");
        assert_eq!(m.move_to(a, 1, GIB, 0), (vec![], 0), "the others may not follow yet");
        assert_eq!(m.move_to(a, 1, GIB, GIB / 2), (vec![(0, GIB / 2)], GIB / 2));
    }

    #[test]
    fn what_does_not_fit_goes_to_the_next_node_and_no_byte_is_lost() {
        let mut m = memory(2);
        let (a, b) = (m.area(0), m.area(500));
        assert_eq!(m.allocate(a, 3 * GIB, 0, &[0, 1]), 0);
        assert_eq!(m.allocate(b, 3 * GIB, GIB, &[0, 1]), 0);
        assert_eq!((m.pages(a), m.pages(b)), (vec![3 * GIB, 0], vec![GIB, 2 * GIB]));
        assert_eq!(m.move_to(b, 0, GIB, GIB), (vec![], 0), "it is full");
        assert_eq!(m.allocate(a, 3 * GIB, 0, &[0, 1]), GIB, "more than there is");
        let all: u64 = [a, b].iter().flat_map(|x| m.pages(*x)).sum();
        assert_eq!(all, 8 * GIB);
    }

    #[test]
    fn the_way_to_other_nodes_carries_no_more_than_it_does() {
        let mut m = memory(2);
        let want = |speed: u64, n: u64| 4_000 * n * speed / ONE;
        for (worlds, moving) in [(2, 0), (3, 0), (5, 0), (3, 4_000), (8, 6_000)] {
            m.moves(0, moving);
            let runs = |node: u32| vec![(4_000, 500); if node == 0 { worlds as usize } else { 0 }];
            m.renew(runs);
            let far = Far { extra: 0, remote_permille: 1000 };
            let sum = want(far.speed(500, m.squeezed(0)), worlds);
            let link = 10_000 - moving;
            assert!(sum <= link, "{worlds} {moving}: {sum}");
            if 4_000 * worlds > link {
                assert!(sum * 100 >= link * 96, "{worlds} {moving}: {sum} of {link}");
            } else {
                assert_eq!(m.squeezed(0), 0);
            }
        }
    }
}
