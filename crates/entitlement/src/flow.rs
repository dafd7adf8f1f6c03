//! Maximum flow and minimum cut in a small directed graph (Dinic's algorithm), for `split` alone.

/// More than any sum of capacities that `split` builds.
pub(crate) const UNBOUNDED: u128 = u128::MAX / 4;

/// No further edge of a node.
const END: u32 = u32::MAX;

/// A graph whose edges come in pairs: edge `e` and its reverse `e ^ 1`. It keeps its memory from
/// one graph to the next: the oracle builds some thousands a simulated second.
#[derive(Default)]
pub(crate) struct Graph {
    edges: Vec<Edge>,
    /// First edge that leaves each node, or `END`.
    first: Vec<u32>,
    level: Vec<u32>,
    /// Edge of each node that is tried next.
    next: Vec<u32>,
    queue: Vec<u32>,
    path: Vec<u32>,
}

struct Edge {
    to: u32,
    /// Next edge that leaves the same node, or `END`.
    after: u32,
    room: u128,
}

impl Graph {
    /// Makes it a graph of so many nodes and no edges.
    pub(crate) fn begin(&mut self, nodes: usize) {
        self.edges.clear();
        self.first.clear();
        self.first.resize(nodes, END);
        self.level.resize(nodes, 0);
        self.next.resize(nodes, END);
    }

    /// Adds an edge of this capacity.
    pub(crate) fn edge(&mut self, from: usize, to: usize, capacity: u128) {
        for (a, b, room) in [(from, to, capacity), (to, from, 0)] {
            let id = self.edges.len() as u32;
            let after = std::mem::replace(&mut self.first[a], id);
            self.edges.push(Edge { to: b as u32, after, room });
        }
    }

    /// Pushes as much as fits from `source` to `sink`; afterwards `reached` is the smallest minimum
    /// cut.
    pub(crate) fn run(&mut self, source: usize, sink: usize) -> u128 {
        let mut total = 0;
        while self.levels(source, sink) {
            self.next.copy_from_slice(&self.first);
            loop {
                let pushed = self.augment(source, sink);
                if pushed == 0 {
                    break;
                }
                total += pushed;
            }
        }
        total
    }

    /// Whether `node` is on the source's side of the cut, after `run`.
    pub(crate) fn reached(&self, node: usize) -> bool {
        self.level[node] != 0
    }

    /// Breadth-first levels over edges with room, 0 for unreached; whether `sink` was reached.
    fn levels(&mut self, source: usize, sink: usize) -> bool {
        self.level.fill(0);
        self.level[source] = 1;
        self.queue.clear();
        self.queue.push(source as u32);
        let mut head = 0;
        while let Some(&node) = self.queue.get(head) {
            head += 1;
            let mut at = self.first[node as usize];
            while let Some(e) = self.edges.get(at as usize) {
                if e.room > 0 && self.level[e.to as usize] == 0 {
                    self.level[e.to as usize] = self.level[node as usize] + 1;
                    self.queue.push(e.to);
                }
                at = e.after;
            }
        }
        self.level[sink] != 0
    }

    /// One path of increasing level with room, by depth-first search without recursion.
    fn augment(&mut self, source: usize, sink: usize) -> u128 {
        self.path.clear();
        let mut node = source;
        while node != sink {
            let at = self.next[node];
            if let Some(e) = self.edges.get(at as usize) {
                let to = e.to as usize;
                if e.room > 0 && self.level[to] == self.level[node] + 1 {
                    self.path.push(at);
                    node = to;
                } else {
                    self.next[node] = e.after;
                }
            } else if let Some(e) = self.path.pop() {
                node = self.edges[e as usize ^ 1].to as usize;
                self.next[node] = self.edges[e as usize].after;
            } else {
                return 0;
            }
        }
        let room = |e: &u32| self.edges[*e as usize].room;
        let pushed = self.path.iter().map(room).min().unwrap_or(0);
        for e in &self.path {
            self.edges[*e as usize].room -= pushed;
            self.edges[*e as usize ^ 1].room += pushed;
        }
        pushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_flow_that_needs_a_detour_and_its_cut() {
        // 0 to 1 and 2, both to 3; the middle edge 1-2 must carry 1.
        let mut g = Graph::default();
        g.begin(4);
        for (a, b, c) in [(0, 1, 3), (0, 2, 1), (1, 2, 1), (1, 3, 2), (2, 3, 2)] {
            g.edge(a, b, c);
        }
        assert_eq!(g.run(0, 3), 4);
        g.begin(3);
        g.edge(0, 1, 5);
        g.edge(1, 2, 2);
        assert_eq!((g.run(0, 2), g.reached(1), g.reached(2)), (2, true, false));
    }
}
