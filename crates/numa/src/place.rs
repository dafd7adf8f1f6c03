//! The first home of a client: by CPU and memory load of the nodes (VS51 "NUMA Migration").

use crate::planner::{State, permille};
use crate::{Client, Decision, Planner, Reason};
use std::cmp::Reverse;
use std::collections::VecDeque;

impl Planner {
    /// A VM is powered on: its clients get homes, in the order given. Until it is known what they
    /// want they count as if all their vCPUs burned, so that VMs that start together spread.
    ///
    /// *Law*: of the nodes that its affinity leaves it, and where its siblings leave it room, those
    /// with memory for it come first; of these the one whose CPU or memory, whichever is worse,
    /// will be loaded least; of equals the one with more memory free, then the first.
    pub fn add(&mut self, at_ns: u64, clients: &[Client]) -> Vec<Decision> {
        clients.iter().filter_map(|c| self.place(at_ns, c, None)).collect()
    }

    /// A VM that has run before it is known: its clients get homes as `add` gives them, but one
    /// stays in the node beside it, where its memory is, if its affinity and siblings let it.
    pub fn adopt(&mut self, at_ns: u64, clients: &[(Client, Option<u32>)]) -> Vec<Decision> {
        clients.iter().filter_map(|(c, at)| self.place(at_ns, c, *at)).collect()
    }

    fn place(&mut self, at_ns: u64, client: &Client, at: Option<u32>) -> Option<Decision> {
        let wanted = 1000 * u64::from(client.vcpus);
        let state = State {
            client: *client,
            home: 0,
            wanted,
            wants_now: wanted,
            memory: vec![0; self.nodes.len()],
            talks: vec![],
            settled: 0,
            missing: 0,
            share: 0,
            log: VecDeque::new(),
        };
        let (loads, memory) = (self.loads(), self.memory_asked());
        let rank = |node: u32| {
            let at = &self.nodes[node as usize];
            let mut after = loads.clone();
            after.add(node, wanted);
            let asked = memory[node as usize] + client.memory;
            let full = permille(asked, at.memory.max(1));
            let fits = asked <= at.memory;
            let room = self.leaves_room(&state, node);
            let free = at.memory.saturating_sub(asked);
            (!room, !fits, after.permille(node).max(full), Reverse(free), node)
        };
        let home = (0..self.nodes.len() as u32)
            .filter(|n| self.may_be_home(&state, *n))
            .min_by_key(|n| (at != Some(*n) || !self.leaves_room(&state, *n), rank(*n)))?;
        let mut after = loads.clone();
        after.add(home, wanted);
        self.clients.insert(client.id, state);
        Some(self.change(at_ns, client.id, home, Reason::Placed, 0, (&loads, &after)))
    }

    /// Memory that clients will have in each node, if all of it is at home.
    fn memory_asked(&self) -> Vec<u64> {
        let mut asked = vec![0; self.nodes.len()];
        for c in self.clients.values() {
            asked[c.home as usize] += c.client.memory.max(c.all_memory());
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use crate::{Client, ClientId, Knobs, Node, Planner};

    #[test]
    fn a_vm_that_has_run_before_stays_where_its_memory_is() {
        let node = Node { cores: 4, memory: 64 << 30 };
        let mut planner = Planner::new(vec![node; 2], Knobs::default());
        let part = |vm, part, nodes| Client {
            id: ClientId { vm, part },
            vcpus: 2,
            memory: 1 << 30,
            nodes,
            siblings_most: 2,
        };
        // The other node has less load each time.
        for vm in 0..3 {
            planner.adopt(0, &[(part(vm, 0, 0), Some(1))]);
            assert_eq!(planner.home(ClientId { vm, part: 0 }), Some(1));
        }
        planner.adopt(0, &[(part(3, 0, 0b01), Some(1))]);
        assert_eq!(planner.home(ClientId { vm: 3, part: 0 }), Some(0), "its affinity");
        planner.adopt(0, &[(part(4, 0, 0), Some(1)), (part(4, 1, 0), Some(1))]);
        assert_eq!(planner.home(ClientId { vm: 4, part: 1 }), Some(0), "its sibling");
    }
}
