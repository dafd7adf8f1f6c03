//! How near the memory of each node is, where nodes are not all equally far from each other.
//!
//! *Law*: memory at the largest distance of the host counts nothing, that of the own node in full,
//! and in between in proportion. What a client has of its memory near by is the mean of that over
//! its pages. Where all others are equally far it is the part in the own node.
//! *Source*: distances are ACPI's (SLIT), as Linux gives them: a node is at 10 from itself.

use crate::Planner;
use crate::planner::{State, permille};

/// Distance of a node from itself.
const OWN: u64 = 10;

/// By node: how near the memory of each is, in permille.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Near(Vec<Vec<u64>>);

impl Near {
    /// Nothing where they say nothing: no square of so many nodes, or all others equally far.
    pub(crate) fn new(distances: &[Vec<u64>], nodes: usize) -> Near {
        let square = distances.len() == nodes && distances.iter().all(|row| row.len() == nodes);
        let others = || {
            let rows = distances.iter().enumerate();
            rows.flat_map(|(i, row)| (0..row.len()).filter(move |j| *j != i).map(|j| row[j]))
        };
        let (least, most) = (others().min().unwrap_or(OWN), others().max().unwrap_or(OWN));
        if !square || least == most || most <= OWN {
            return Near::default();
        }
        let near = |i: usize, j: usize| {
            let distance = if i == j { OWN } else { distances[i][j].max(OWN) };
            permille(most - distance, most - OWN)
        };
        Near((0..nodes).map(|i| (0..nodes).map(|j| near(i, j)).collect()).collect())
    }
}

impl Planner {
    /// The same planner for a host of such distances, a row for each node.
    #[must_use]
    pub fn with_distances(mut self, distances: &[Vec<u64>]) -> Planner {
        self.near = Near::new(distances, self.nodes.len());
        self
    }

    /// How near a client's memory is to a node, in permille.
    pub(crate) fn near_permille(&self, c: &State, node: u32) -> u64 {
        let Some(near) = self.near.0.get(node as usize) else { return c.local_permille(node) };
        let all = c.all_memory();
        let there = c.memory.iter().zip(near);
        let sum: u128 = there.map(|(bytes, near)| u128::from(*bytes) * u128::from(*near)).sum();
        (sum / u128::from(all.max(1))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_by_how_near_it_is_of_the_farthest() {
        let rows = [vec![10, 16, 22], vec![16, 10, 28], vec![22, 28, 10]];
        let near = Near::new(&rows, 3);
        assert_eq!(near.0, [[1000, 666, 333], [666, 1000, 0], [333, 0, 1000]]);
        for equal in [&[vec![10, 16], vec![16, 10]][..], &[vec![10]], &[], &[vec![10, 16]]] {
            assert_eq!(Near::new(equal, 2), Near::default());
        }
    }
}
