//! Maximum flow and minimum cut in a small directed graph (Dinic's algorithm), for `split` alone.

/// More than any sum of capacities that `split` builds.
pub(crate) const UNBOUNDED: u128 = u128::MAX / 4;

/// A graph whose edges come in pairs: edge `e` and its reverse `e ^ 1`.
pub(crate) struct Graph {
    to: Vec<u32>,
    room: Vec<u128>,
    /// Edge ids leaving each node.
    out: Vec<Vec<u32>>,
    level: Vec<u32>,
    next: Vec<u32>,
}

impl Graph {
    /// A graph of so many nodes and no edges.
    pub(crate) fn new(nodes: usize) -> Graph {
        Graph {
            to: vec![],
            room: vec![],
            out: vec![vec![]; nodes],
            level: vec![0; nodes],
            next: vec![0; nodes],
        }
    }

    /// Adds an edge of this capacity.
    pub(crate) fn edge(&mut self, from: usize, to: usize, capacity: u128) {
        for (a, b, room) in [(from, to, capacity), (to, from, 0)] {
            self.out[a].push(self.to.len() as u32);
            self.to.push(b as u32);
            self.room.push(room);
        }
    }

    /// Pushes as much as fits from `source` to `sink`; afterwards `reached` is the smallest minimum
    /// cut.
    pub(crate) fn run(&mut self, source: usize, sink: usize) -> u128 {
        let mut total = 0;
        while self.levels(source, sink) {
            self.next.fill(0);
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
        let mut queue = vec![source as u32];
        let mut head = 0;
        while let Some(&node) = queue.get(head) {
            head += 1;
            for &e in &self.out[node as usize] {
                let to = self.to[e as usize] as usize;
                if self.room[e as usize] > 0 && self.level[to] == 0 {
                    self.level[to] = self.level[node as usize] + 1;
                    queue.push(to as u32);
                }
            }
        }
        self.level[sink] != 0
    }

    /// One path of increasing level with room, by depth-first search without recursion.
    fn augment(&mut self, source: usize, sink: usize) -> u128 {
        let mut path: Vec<u32> = vec![];
        let mut node = source;
        while node != sink {
            let at = self.next[node] as usize;
            if let Some(&e) = self.out[node].get(at) {
                let to = self.to[e as usize] as usize;
                if self.room[e as usize] > 0 && self.level[to] == self.level[node] + 1 {
                    path.push(e);
                    node = to;
                } else {
                    self.next[node] += 1;
                }
            } else if let Some(e) = path.pop() {
                node = self.to[e as usize ^ 1] as usize;
                self.next[node] += 1;
            } else {
                return 0;
            }
        }
        let pushed = path.iter().map(|e| self.room[*e as usize]).min().unwrap_or(0);
        for e in path {
            self.room[e as usize] -= pushed;
            self.room[e as usize ^ 1] += pushed;
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
        let mut g = Graph::new(4);
        for (a, b, c) in [(0, 1, 3), (0, 2, 1), (1, 2, 1), (1, 3, 2), (2, 3, 2)] {
            g.edge(a, b, c);
        }
        assert_eq!(g.run(0, 3), 4);
        let mut g = Graph::new(3);
        g.edge(0, 1, 5);
        g.edge(1, 2, 2);
        assert_eq!((g.run(0, 2), g.reached(1), g.reached(2)), (2, true, false));
    }
}
