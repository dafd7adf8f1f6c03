//! Divides the pCPUs among VMs whose worlds may be pinned to some of them, for planner and oracle;
//! it never rounds on the way.
//!
//! Promise: weighted max-min fairness under placement (spec P2, P4). No VM can get more per unit of
//! weight without taking from a VM that has no more per unit of weight, and no pCPU time is left
//! over that a VM could use.
//!
//! Law: VM `i` has weight `w_i` and classes, each a set of pCPUs and the most it can use there.
//! Amounts `x_i` are feasible if they can flow VM → class → pCPU within the classes' amounts and
//! the pCPUs' capacity. Among the feasible, `x_i ÷ w_i` in ascending order is the lexicographic
//! maximum. It exists and is unique, because the feasible sums form a polymatroid.
//!
//! Units: `Rate` for `fluid`; whatever the caller counts one pCPU in for `Fluid` (the oracle uses
//! ns). The exact result splits the VMs into groups; group `g` shares a whole number of units `K_g`
//! by weight. Rounding is as in `fill` within each group: the sum is exact, each VM is less than
//! one unit off, and so any set of n VMs gets less than n units more than its pCPUs have
//! (`tests/fluid.rs` holds this against an independent solver).
//!
//! Example: A (100 shares, 2 vCPUs) and B (300, 2) are pinned to pCPUs 0-1, C (400, 8) is
//! unrestricted on 8. A and B divide their two pCPUs 1:3, C has the other six:
//! ```
//! use entitlement::{FluidClaim, fluid};
//! use units::{PcpuSet, Rate};
//! let vm = |weight, pcpus, vcpus| FluidClaim {
//!     weight,
//!     classes: vec![(PcpuSet::first(pcpus), Rate::pcpus(vcpus))],
//! };
//! let x = fluid(&PcpuSet::first(8), &[vm(100, 2, 2), vm(300, 2, 2), vm(400, 8, 8)]);
//! assert_eq!(x, [Rate(1 << 19), Rate(3 << 19), Rate::pcpus(6)]); // 0.5, 1.5, 6
//! let x = fluid(&PcpuSet::first(8), &[vm(100, 2, 2), vm(400, 8, 8)]);
//! assert_eq!(x, [Rate(1_677_722), Rate(6_710_886)]); // 1.6, 6.4
//! ```
//!
//! Limits: all capacity together at most 2^62 units; weights sum below 2^64. A VM of weight 0 gets
//! nothing. Classes that no pCPU can serve get nothing.
//!
//! Known weakness: the time grows with VMs × levels where many are restricted; hosts without any
//! restriction take the O(n log n) path of `fill`.

use crate::{
    Taken, Tree, fill_units,
    placed::{Placed, place},
    split,
    tree::scaled,
};
use smallvec::SmallVec;
use units::{PcpuSet, Rate};

/// Claim of one VM: its weight, and for each set of pCPUs the most that its worlds pinned there can
/// use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FluidClaim {
    /// Unitless weight, such as shares.
    pub weight: u64,
    /// Allowed set and demand of each class of worlds; one busy world demands `Rate::ONE`.
    pub classes: Vec<(PcpuSet, Rate)>,
}

/// The same with sets named by their index in a `Fluid`, and in any unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Unitless weight, such as shares.
    pub weight: u64,
    /// Index of the allowed set, and the most the class can use.
    pub classes: Classes,
}

/// Classes of a VM's worlds: nearly all VMs have one, which then takes no memory of its own.
pub type Classes = SmallVec<[(u32, u64); 1]>;

impl Demand {
    /// What all classes want.
    pub(crate) fn total(&self) -> u64 {
        self.classes.iter().fold(0, |sum, c| sum.saturating_add(c.1))
    }
}

/// The rate of CPU time of each VM, by the law above.
///
/// # Panics
/// Beyond the limits above.
#[must_use]
pub fn fluid(pcpus: &PcpuSet, claims: &[FluidClaim]) -> Vec<Rate> {
    let mut sets: Vec<PcpuSet> =
        claims.iter().flat_map(|c| c.classes.iter().map(|x| x.0.and(pcpus))).collect();
    sets.sort_unstable_by(|a, b| a.words().cmp(b.words()));
    sets.dedup();
    let index = |set: &PcpuSet| sets.partition_point(|s| s.words() < set.and(pcpus).words()) as u32;
    let demands: Vec<Demand> = claims
        .iter()
        .map(|c| Demand {
            weight: c.weight,
            classes: c.classes.iter().map(|x| (index(&x.0), x.1.0)).collect(),
        })
        .collect();
    Fluid::new(pcpus, &sets).divide(Rate::ONE.0, &demands).into_iter().map(Rate).collect()
}

/// The rate of CPU time of each leaf of a tree, whose worlds are held to these sets and want so
/// much, as `divide_placed` has it.
pub(crate) fn placed_rates(pcpus: &PcpuSet, tree: &Tree, classes: &[&[(PcpuSet, Rate)]]) -> Placed {
    let mut sets: Vec<PcpuSet> =
        classes.iter().flat_map(|c| c.iter().map(|x| x.0.and(pcpus))).collect();
    sets.sort_unstable_by(|a, b| a.words().cmp(b.words()));
    sets.dedup();
    let index = |set: &PcpuSet| sets.partition_point(|s| s.words() < set.and(pcpus).words()) as u32;
    let demand = |c: &&[(PcpuSet, Rate)]| Demand {
        weight: 0,
        classes: c.iter().map(|x| (index(&x.0), x.1.0)).collect(),
    };
    let demands: Vec<Demand> = classes.iter().map(demand).collect();
    let leaves: Vec<u32> = (0..demands.len() as u32).collect();
    let asked = classes.iter().flat_map(|c| c.iter()).map(|x| x.1.0).sum();
    let fluid = Fluid::new(pcpus, &sets).without(&tree.taken_beside(pcpus, asked));
    place(tree, &fluid, Rate::ONE.0, &leaves, &demands)
}

/// No atom.
const NONE: u32 = u32::MAX;

/// The pCPUs of a host cut into atoms: pCPUs that belong to the same of the given sets. To be
/// used for many divisions: only what is taken of it changes.
#[derive(Clone, Debug)]
pub struct Fluid {
    pcpus: u64,
    /// Atom of each pCPU by its id, `NONE` for one that is not there.
    atom_of: Vec<u32>,
    /// How many pCPUs each has.
    widths: Vec<u64>,
    /// What others take of each atom.
    taken: Vec<Rate>,
    /// The same by pCPU.
    by_pcpu: Taken,
    /// Atoms of each set.
    pub(crate) sets: Vec<Vec<u32>>,
}

impl Fluid {
    /// Cuts `pcpus` by `sets`; a `Demand` names them by index.
    #[must_use]
    pub fn new(pcpus: &PcpuSet, sets: &[PcpuSet]) -> Fluid {
        let mut atoms: Vec<PcpuSet> = vec![pcpus.clone()];
        for set in sets {
            let cut = |a: &PcpuSet| [a.and(set), minus(a, set)];
            atoms = atoms.iter().flat_map(cut).filter(|a| !a.is_empty()).collect();
        }
        let of = |set: &PcpuSet| {
            (0..atoms.len() as u32).filter(|i| !atoms[*i as usize].and(set).is_empty()).collect()
        };
        let mut atom_of = vec![NONE; pcpus.iter().last().map_or(0, |p| usize::from(p.0) + 1)];
        for (i, atom) in (0..).zip(&atoms) {
            atom.iter().for_each(|p| atom_of[usize::from(p.0)] = i);
        }
        Fluid {
            pcpus: pcpus.len() as u64,
            atom_of,
            sets: sets.iter().map(of).collect(),
            widths: atoms.iter().map(|a| a.len() as u64).collect(),
            taken: vec![Rate(0); atoms.len()],
            by_pcpu: Taken::new(),
        }
    }

    /// The same host, of which so much is taken.
    #[must_use]
    pub fn without(mut self, taken: &Taken) -> Fluid {
        self.set_taken(taken);
        self
    }

    /// So much of the host is taken from now on.
    pub fn set_taken(&mut self, taken: &Taken) {
        self.taken.fill(Rate(0));
        for (pcpu, rate) in taken {
            let atom = self.atom_of.get(usize::from(pcpu.0)).copied().unwrap_or(NONE);
            if let Some(sum) = self.taken.get_mut(atom as usize) {
                sum.0 += rate.0;
            }
        }
        self.by_pcpu.clone_from(taken);
    }

    /// What is taken.
    #[must_use]
    pub fn taken(&self) -> &Taken {
        &self.by_pcpu
    }

    /// Atoms of the host.
    pub(crate) fn atoms(&self) -> usize {
        self.widths.len()
    }

    /// What there is of an atom, `one` units for each pCPU.
    pub(crate) fn capacity(&self, atom: u32, one: u64) -> u64 {
        let all = self.widths[atom as usize] * one;
        all.saturating_sub(scaled(self.taken[atom as usize], one))
    }

    /// What there is of a set.
    pub(crate) fn room(&self, set: u32, one: u64) -> u64 {
        self.sets[set as usize].iter().map(|a| self.capacity(*a, one)).sum()
    }

    /// What a VM alone could use, each class by itself.
    pub(crate) fn usable(&self, one: u64, d: &Demand) -> u64 {
        d.classes.iter().fold(0, |sum, c| sum.saturating_add(c.1.min(self.room(c.0, one))))
    }

    /// How much of these amounts can be had together where the demands are.
    pub(crate) fn flows(&self, one: u64, demands: &[Demand], amounts: &[u64]) -> u64 {
        split::flows(self, one, demands, amounts)
    }

    /// Whether a set is the whole host.
    #[must_use]
    pub fn is_whole(&self, set: u32) -> bool {
        self.sets[set as usize].len() == self.widths.len()
    }

    /// Divides the host's capacity, `one` units for each pCPU, by the law above. The sum is the
    /// most that can be used, exactly.
    ///
    /// # Panics
    /// Beyond the limits above, or for a class that names no set.
    #[must_use]
    pub fn divide(&self, one: u64, demands: &[Demand]) -> Vec<u64> {
        self.divide_most(one, demands, &vec![u64::MAX; demands.len()])
    }

    /// The same, of which each gets so much at most.
    pub(crate) fn divide_most(&self, one: u64, demands: &[Demand], most: &[u64]) -> Vec<u64> {
        assert!(
            self.pcpus.checked_mul(one).is_some_and(|c| c <= 1 << 62),
            "capacity: cannot divide it exactly: seen {} × {one}, allowed up to 2^62",
            self.pcpus
        );
        let capacity = (0..self.widths.len() as u32).map(|atom| self.capacity(atom, one)).sum();
        if self.all_whole(demands) {
            let claim = |(d, most): (&Demand, &u64)| (d.weight, d.total().min(*most));
            return fill_units(capacity, &demands.iter().zip(most).map(claim).collect::<Vec<_>>());
        }
        split::divide(self, one, demands, most)
    }

    /// Whether nothing is wanted of less than the whole host.
    pub(crate) fn all_whole(&self, demands: &[Demand]) -> bool {
        demands.iter().all(|d| d.classes.iter().all(|c| self.is_whole(c.0) || c.1 == 0))
    }
}

fn minus(a: &PcpuSet, b: &PcpuSet) -> PcpuSet {
    a.iter().filter(|p| !b.contains(*p)).collect()
}
