//! How near the memory of each node is, where nodes are not all equally far from each other.
//!
//! *Law*: memory at the largest distance between nodes with cores counts nothing, nor does any
//! that is farther; that of the own node counts in full, and in between in proportion. How near a
//! client's memory is is the mean of that over its pages. Where all others are equally far it is
//! the part in the own node.
//! *Source*: distances are ACPI's (SLIT), as Linux gives them: a node is at 10 from itself.

use crate::planner::{Node, Planner, State, permille};

/// Distance of a node from itself, and of one that cannot be reached.
const OWN: u64 = 10;
const UNREACHABLE: u64 = 255;

/// By node: how near the memory of each is, in permille.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Near(Vec<Vec<u64>>);

impl Near {
    /// Nothing where they say nothing: no square of these nodes, or all others equally far.
    pub(crate) fn new(distances: &[Vec<u64>], nodes: &[Node]) -> Near {
        let count = nodes.len();
        let square = distances.len() == count && distances.iter().all(|row| row.len() == count);
        if !square {
            return Near::default();
        }
        let has_cores = |n: &usize| nodes[*n].cores > 0;
        let pairs = || {
            let from = (0..count).filter(has_cores);
            from.flat_map(|i| (0..count).filter(move |j| *j != i).map(move |j| (i, j)))
        };
        let reached = |(i, j): (usize, usize)| {
            let distance = distances[i][j];
            (has_cores(&j) && distance < UNREACHABLE).then_some(distance)
        };
        let most = pairs().filter_map(reached).max().unwrap_or(OWN);
        if most <= OWN || pairs().all(|(i, j)| distances[i][j] >= most) {
            return Near::default();
        }
        let near = |i: usize, j: usize| {
            let distance = if i == j { OWN } else { distances[i][j].max(OWN) };
            permille(most.saturating_sub(distance), most - OWN)
        };
        let nodes = count;
        Near((0..nodes).map(|i| (0..nodes).map(|j| near(i, j)).collect()).collect())
    }
}

impl Planner {
    /// The same planner for a host of such distances, a row for each node.
    #[must_use]
    pub fn with_distances(mut self, distances: &[Vec<u64>]) -> Planner {
        self.near = Near::new(distances, &self.nodes);
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
        let nodes = |cores: &[u32]| -> Vec<Node> {
            cores.iter().map(|cores| Node { cores: *cores, memory: 1 }).collect()
        };
        let near = Near::new(&rows, &nodes(&[1; 3]));
        assert_eq!(near.0, [[1000, 666, 333], [666, 1000, 0], [333, 0, 1000]]);
        // What is far from all, or cannot be reached, makes nothing else near.
        let near = Near::new(&rows, &nodes(&[1, 1, 0]));
        assert_eq!(near, Near::default());
        let rows = [vec![10, 16, 255], vec![16, 10, 22], vec![255, 22, 10]];
        let near = Near::new(&rows, &nodes(&[1; 3]));
        assert_eq!(near.0, [[1000, 500, 0], [500, 1000, 0], [0, 0, 1000]]);
        for equal in [&[vec![10, 16], vec![16, 10]][..], &[vec![10]], &[], &[vec![10, 16]]] {
            assert_eq!(Near::new(equal, &nodes(&[1; 2])), Near::default());
        }
    }
}
