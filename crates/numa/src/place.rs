//! The first home of a client: by CPU and memory load of the nodes (VS51 "NUMA Migration").

use crate::explain::STAYS;
use crate::loads::Asks;
use crate::planner::{LONG_ROUNDS, REMEMBERED, State, permille};
use crate::{Client, Decision, Planner, Reason};
use std::cmp::Reverse;
use std::collections::VecDeque;

impl Planner {
    /// A VM is powered on: its clients get homes, in the order given. Until it is known what they
    /// want they count as if all their vCPUs burned, so that VMs that start together spread.
    ///
    /// *Law*: of the nodes that its affinity leaves it, which have room for what it has reserved
    /// (`reserve`), and where its siblings leave it room, those
    /// with memory for it come first; of these the one whose CPU or memory, whichever is worse,
    /// will be loaded least; of equals the one with more memory free, then the first.
    pub fn add(&mut self, at_ns: u64, clients: &[Client]) -> Vec<Decision> {
        let clients: Vec<_> = clients.iter().map(|c| (*c, None)).collect();
        self.adopt(at_ns, &clients)
    }

    /// A VM that has run before it is known: its clients get homes as `add` gives them, but one
    /// stays in the node beside it, where its memory is, if its affinity and siblings let it.
    pub fn adopt(&mut self, at_ns: u64, clients: &[(Client, Option<u32>)]) -> Vec<Decision> {
        let of_vms = clients.chunk_by(|a, b| a.0.id.vm == b.0.id.vm);
        of_vms.flat_map(|clients| self.seat(at_ns, clients)).collect()
    }

    /// So many cores of each node are on line from now on. Clients whose home has none left get
    /// another, as `add` gives it, and so do those whose siblings leave them no room there if they
    /// do elsewhere; those that may have none stay.
    pub fn set_cores(&mut self, at_ns: u64, cores: &[u32]) -> Vec<Decision> {
        self.nodes.iter_mut().zip(cores).for_each(|(node, cores)| node.cores = *cores);
        let all: Vec<Client> = self.clients.values().map(|c| c.client).collect();
        let mut out = vec![];
        for client in all {
            let c = &self.clients[&client.id];
            let has_cores = self.nodes[c.home as usize].cores > 0;
            let room = (0..self.nodes.len() as u32).any(|n| self.allows(c, n));
            if !has_cores || room && !self.leaves_room(c, c.home) {
                out.extend(self.place(at_ns, &client, None));
            }
        }
        out
    }

    /// A client that is new, or as it was when it had a home.
    pub(crate) fn state(&self, at_ns: u64, client: &Client) -> State {
        let burn = 1000 * u64::from(client.vcpus);
        let new = || State {
            client: *client,
            home: 0,
            since_ns: at_ns,
            known: false,
            asks: Asks::all(burn),
            asks_now: Asks::all(burn),
            long_sum: Asks::all(LONG_ROUNDS * burn),
            short_sum: 0,
            memory: vec![0; self.nodes.len()],
            talks: vec![],
            settled: 0,
            missing: 0,
            share: 0,
            log: VecDeque::with_capacity(REMEMBERED),
        };
        let of = self.clients.get(&client.id).or_else(|| self.homeless.get(&client.id));
        of.cloned().unwrap_or_else(new)
    }

    pub(crate) fn place(
        &mut self,
        at_ns: u64,
        client: &Client,
        at: Option<u32>,
    ) -> Option<Decision> {
        let state = self.state(at_ns, client);
        let asks = state.asks;
        let (loads, memory) = (self.loads(), self.memory_asked());
        let rank = |node: u32| {
            let at = &self.nodes[node as usize];
            let mut after = loads.clone();
            after.add(node, asks);
            let asked = memory[node as usize] + client.memory;
            let full = permille(asked, at.memory.max(1));
            let fits = asked <= at.memory;
            let room = self.leaves_room(&state, node);
            let free = at.memory.saturating_sub(asked);
            (!room, !fits, after.permille(node).max(full), Reverse(free), node)
        };
        let may = || (0..self.nodes.len() as u32).filter(|n| self.may_be_home(&state, *n));
        // Siblings do not come together because of what others have reserved.
        let apart = may().any(|n| self.leaves_room(&state, n));
        let home = may()
            .filter(|n| self.can_promise(client, *n, None))
            .filter(|n| !apart || self.leaves_room(&state, *n))
            .min_by_key(|n| (at != Some(*n) || !self.leaves_room(&state, *n), rank(*n)))?;
        let mut after = loads.clone();
        after.add(home, asks);
        // One that has run before stays where it was; another node has been found for the others.
        let known = self.homeless.contains_key(&client.id);
        let stays = at == Some(home) && (!known || state.home == home);
        let cause = if stays { STAYS } else { 0 };
        self.homeless.remove(&client.id);
        self.roaming.remove(&client.id.vm);
        self.clients.insert(client.id, state);
        Some(self.change(at_ns, client.id, home, Reason::Placed, cause, (&loads, &after)))
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
    fn a_node_without_pcpus_on_line_is_no_home() {
        let node = Node { cores: 4, memory: 64 << 30 };
        let mut planner = Planner::new(vec![node; 3], Knobs::default());
        let client = |vm, nodes| Client {
            id: ClientId { vm, part: 0 },
            vcpus: 2,
            memory: 1 << 30,
            nodes,
            siblings_most: 4,
        };
        planner.add(0, &[client(0, 0), client(1, 0), client(2, 0), client(3, 0b1)]);
        let homes = |p: &Planner| p.homes().map(|h| h.1).collect::<Vec<_>>();
        assert_eq!(homes(&planner), [0, 1, 2, 0]);
        let moved = planner.set_cores(1, &[0, 4, 2]);
        assert_eq!(moved.iter().map(|d| (d.client.vm, d.to)).collect::<Vec<_>>(), [(0, 1)]);
        assert_eq!(homes(&planner), [1, 1, 2, 0], "VM 3 may be nowhere else");
        for round in 1..9 {
            planner.round(round * 2_000_000_000, &[]);
            assert_eq!(planner.refused(), None, "what is nowhere asks for no change");
        }
        assert_eq!(planner.set_cores(2, &[4, 4, 4]), [], "they stay where they are");
        let wide = |part| Client { id: ClientId { vm: 9, part }, vcpus: 4, ..client(9, 0b11) };
        let mut planner = Planner::new(vec![node; 2], Knobs::default());
        planner.add(0, &[wide(0), wide(1)]);
        planner.set_cores(1, &[4, 0]);
        assert_eq!(homes(&planner), [0, 0], "there is no other");
        planner.set_cores(2, &[4, 4]);
        assert_eq!(homes(&planner), [1, 0], "siblings part as soon as they can");
    }

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
        let said = |p: &Planner, vm, part| {
            p.decisions(ClientId { vm, part }).last().map(ToString::to_string).expect("it is there")
        };
        assert_eq!(
            said(&planner, 2, 0),
            "placed on node 1, where it was before; load 100.0 %, expected 150.0 %"
        );
        planner.adopt(0, &[(part(3, 0, 0b01), Some(1))]);
        assert_eq!(planner.home(ClientId { vm: 3, part: 0 }), Some(0), "its affinity");
        planner.adopt(0, &[(part(4, 0, 0), Some(1)), (part(4, 1, 0), Some(1))]);
        assert_eq!(planner.home(ClientId { vm: 4, part: 1 }), Some(0), "its sibling");
        assert!(said(&planner, 4, 0).contains("on node 1, where it was before;"));
        assert!(said(&planner, 4, 1).contains("on node 0, the least loaded that has room;"));
    }
}
