//! Trees of pools and VMs drawn at random from a seed, for the tests of division and admission; it
//! never divides or admits anything.

use entitlement::{Names, Tree, TreeLeaf, TreePool};
use units::Rate;

/// Numbers and trees by seed, so that a failure names the seed that repeats it.
pub struct Draw(dice::Draw);

/// A tree as it is given to `Tree::new`, so that a test can change it.
#[derive(Clone, Debug)]
pub struct Parts {
    pub pcpus: u64,
    pub pools: Vec<TreePool>,
    pub leaves: Vec<TreeLeaf>,
}

impl Parts {
    pub fn tree(&self) -> Tree {
        Tree::new(self.pcpus, self.pools.clone(), self.leaves.clone())
    }

    pub fn names(&self) -> Names {
        let pools =
            (0..self.pools.len()).map(|p| if p == 0 { "/".into() } else { format!("/pool{p}") });
        Names {
            pools: pools.collect(),
            leaves: (0..self.leaves.len()).map(|j| format!("/vm{j}")).collect(),
        }
    }

    /// Pools from `p` up to the root, both included.
    pub fn upwards(&self, mut p: usize) -> Vec<usize> {
        let mut path = vec![p];
        while p > 0 {
            p = self.pools[p].parent;
            path.push(p);
        }
        path
    }
}

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(dice::Draw::new(seed))
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Below so many pCPUs: whole, halves, or any number of units.
    pub fn rate(&mut self, pcpus: u64) -> Rate {
        match self.below(3) {
            0 => Rate::pcpus(self.below(pcpus + 1)),
            1 => Rate(self.below(2 * pcpus + 1) << (Rate::SHIFT - 1)),
            _ => Rate(self.below(Rate::pcpus(pcpus).0 + 1)),
        }
    }

    fn shares(&mut self) -> u64 {
        match self.below(3) {
            0 => [500, 1000, 2000, 4000][self.below(4) as usize],
            1 => 1 + self.below(10),
            _ => 1 + self.below(262_144),
        }
    }

    /// A reservation of at most so many pCPUs; the larger `sparse`, the more often none.
    fn reservation(&mut self, pcpus: u64, sparse: u64) -> Rate {
        if sparse > 0 && !self.one_in(sparse) { Rate(0) } else { self.rate(pcpus) }
    }

    fn limit(&mut self, pcpus: u64) -> Option<Rate> {
        self.one_in(3).then(|| self.rate(pcpus))
    }

    /// A tree of up to 6 levels of pools. `sparse` is how rare reservations are; 0 is everywhere.
    pub fn parts(&mut self, sparse: u64) -> Parts {
        let pcpus = 1 + self.below(16);
        let mut parts = Parts { pcpus, pools: vec![], leaves: vec![] };
        for p in 0..1 + self.below(10) as usize {
            let parent = if p == 0 { 0 } else { self.below(p as u64) as usize };
            let parent =
                if parts.pools.is_empty() || parts.upwards(parent).len() > 6 { 0 } else { parent };
            parts.pools.push(TreePool {
                parent,
                shares: self.shares(),
                reservation: self.reservation(pcpus, sparse),
                limit: self.limit(pcpus),
                expandable: !self.one_in(3),
                scalable: self.one_in(3),
            });
        }
        for _ in 0..self.below(16) {
            let vcpus = 1 + self.below(8) as u32;
            parts.leaves.push(TreeLeaf {
                pool: self.below(parts.pools.len() as u64) as usize,
                shares: self.shares(),
                reservation: self.reservation(u64::from(vcpus), sparse),
                limit: self.limit(8),
                vcpus,
            });
        }
        parts
    }
}
