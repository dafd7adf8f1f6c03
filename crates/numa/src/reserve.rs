//! Reservations and homes: what the clients of a node have reserved together fits into it.
//!
//! *Law*: a client with a reservation has its home only in a node whose clients, with it, have
//! reserved no more than all its cores give. A VM none of whose homes leave that has none: its
//! vCPUs run anywhere, and each round it is seen whether there is room by now. So it is with one
//! whose reservation grows, or whose node loses cores: the last VM of a node that has promised too
//! much leaves it.
//!
//! *Units*: thousandths of a pCPU, as entitlements are. A part of a wide VM has reserved as much as
//! its vCPUs are of the VM's.
//!
//! *Example*: two nodes of four cores, three VMs that have reserved 250 % each: two in one node
//! would have reserved 500 % of its 400 %, so the third has no home.
//!
//! *Limits*: what pools have reserved does not count, nor does the load of a VM without a home.

use crate::planner::{Planner, State};
use crate::{Client, ClientId, Decision};

/// Why a VM has no home, in words.
pub const NO_ROOM: &str = "no node has room for what it has reserved: no home";

impl Planner {
    /// So much a core gives from now on with all its threads busy, as entitlements count it: a pCPU
    /// for each thread; where cores are divided twice what a world is charged on a shared one.
    pub fn set_core(&mut self, threads: u32, charge_permille: u64) {
        self.core_gives = match (threads, charge_permille) {
            (0 | 1, _) => 1000,
            (threads, 1000) => 1000 * u64::from(threads),
            (_, charge) => (2 * charge).max(1000),
        };
    }

    /// A VM of so many vCPUs has reserved so much from now on, in thousandths of a pCPU.
    pub fn reserve(&mut self, vm: u32, vcpus: u32, reserved: u64) {
        if reserved == 0 {
            self.reserved.remove(&vm);
        } else {
            self.reserved.insert(vm, (reserved, vcpus.max(1)));
        }
    }

    /// Whether a VM has no home, because no node has room for what it has reserved or because it
    /// gains by that (`roams`).
    #[must_use]
    pub fn is_homeless(&self, vm: u32) -> bool {
        self.homeless.keys().any(|id| id.vm == vm)
    }

    /// What a client has reserved, rounded down.
    fn reserves(&self, c: &Client) -> u64 {
        let of = self.reserved.get(&c.id.vm);
        of.map_or(0, |(all, vcpus)| all * u64::from(c.vcpus) / u64::from(*vcpus))
    }

    /// What the clients of a node have reserved that are none of these.
    fn reserved_at(&self, node: u32, without: [Option<ClientId>; 2]) -> u64 {
        let there =
            |(id, c): &(&ClientId, &State)| c.home == node && !without.contains(&Some(**id));
        self.clients.iter().filter(there).map(|(_, c)| self.reserves(&c.client)).sum()
    }

    fn gives(&self, node: u32) -> u64 {
        u64::from(self.nodes[node as usize].cores) * self.core_gives
    }

    /// Whether a node has room for what a client has reserved, if this other one leaves it.
    pub(crate) fn can_promise(&self, c: &Client, node: u32, leaves: Option<ClientId>) -> bool {
        let own = self.reserves(c);
        own == 0 || own + self.reserved_at(node, [Some(c.id), leaves]) <= self.gives(node)
    }

    /// VMs leave nodes that have promised more than they have; those without a home get one where
    /// there is room now.
    pub(crate) fn hold_reservations(&mut self, at_ns: u64, out: &mut Vec<Decision>) {
        if self.reserved.is_empty() && self.homeless.is_empty() {
            return;
        }
        for node in 0..self.nodes.len() as u32 {
            let gives = self.gives(node);
            while gives > 0 && self.reserved_at(node, [None; 2]) > gives {
                let last = self
                    .clients
                    .iter()
                    .rev()
                    .find(|(_, c)| c.home == node && self.reserves(&c.client) > 0);
                let Some(vm) = last.map(|(id, _)| id.vm) else { break };
                self.unseat(vm);
            }
        }
        let waits = |vm: &u32| !self.roaming.contains(vm);
        let mut waiting: Vec<u32> = self.homeless.keys().map(|id| id.vm).filter(waits).collect();
        waiting.dedup();
        for vm in waiting {
            let of = self.homeless.iter().filter(|(id, _)| id.vm == vm);
            let clients: Vec<(Client, Option<u32>)> =
                of.map(|(_, c)| (c.client, Some(c.home))).collect();
            out.extend(self.seat(at_ns, &clients));
        }
    }

    /// A VM has no home.
    pub(crate) fn unseat(&mut self, vm: u32) {
        let all = ClientId { vm, part: 0 }..=ClientId { vm, part: u32::MAX };
        let ids: Vec<ClientId> = self.clients.range(all).map(|(id, _)| *id).collect();
        for id in ids {
            self.homeless.extend(self.clients.remove(&id).map(|c| (id, c)));
        }
    }

    /// The clients of a VM get homes, all of them or none.
    pub(crate) fn seat(&mut self, at_ns: u64, clients: &[(Client, Option<u32>)]) -> Vec<Decision> {
        let mut out = vec![];
        for (client, at) in clients {
            let Some(decision) = self.place(at_ns, client, *at) else {
                if self.reserves(client) > 0 {
                    let waits = clients.iter().filter(|c| !self.clients.contains_key(&c.0.id));
                    let waits: Vec<State> = waits.map(|c| self.state(at_ns, &c.0)).collect();
                    self.homeless.extend(waits.into_iter().map(|c| (c.client.id, c)));
                    self.unseat(client.id.vm);
                    return vec![];
                }
                continue;
            };
            out.push(decision);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::{Client, ClientId, Knobs, Node, Planner};

    fn client(vm: u32, part: u32, vcpus: u32) -> Client {
        let id = ClientId { vm, part };
        Client { id, vcpus, memory: 1 << 30, nodes: 0, siblings_most: 0 }
    }

    /// Two nodes of four cores.
    fn host() -> Planner {
        Planner::new(vec![Node { cores: 4, memory: 64 << 30 }; 2], Knobs::default())
    }

    fn homes(planner: &Planner) -> Vec<(u32, u32)> {
        planner.homes().map(|(id, home)| (id.vm, home)).collect()
    }

    #[test]
    fn a_vm_without_room_for_what_it_has_reserved_has_no_home_until_there_is() {
        let mut planner = host();
        for vm in 1..=3 {
            planner.reserve(vm, 4, 2_500);
            planner.add(0, &[client(vm, 0, 4)]);
        }
        planner.add(0, &[client(4, 0, 4)]);
        assert_eq!(homes(&planner), [(1, 0), (2, 1), (4, 0)], "VM 4 has reserved nothing");
        assert!(planner.is_homeless(3) && !planner.is_homeless(4));
        planner.remove(2);
        let out = planner.round(2_000_000_000, &[]);
        assert_eq!(out.iter().map(|d| (d.client.vm, d.to)).collect::<Vec<_>>(), [(3, 1)]);
        assert!(!planner.is_homeless(3));
    }

    #[test]
    fn the_last_vm_leaves_a_node_that_has_promised_too_much() {
        let mut planner = host();
        for vm in 1..=3 {
            planner.reserve(vm, 4, 2_000);
            planner.add(0, &[client(vm, 0, 4)]);
        }
        assert_eq!(homes(&planner), [(1, 0), (2, 1), (3, 0)]);
        planner.reserve(3, 4, 2_001);
        planner.round(2_000_000_000, &[]);
        assert_eq!(homes(&planner), [(1, 0), (2, 1)]);
        planner.reserve(1, 4, 1_999);
        planner.round(4_000_000_000, &[]);
        assert_eq!(homes(&planner), [(1, 0), (2, 1), (3, 0)]);
        // Four cores of two threads give eight pCPUs, five where cores are divided.
        for (charge, reserved, has) in
            [(1000, 6_001, true), (625, 3_001, true), (625, 3_002, false)]
        {
            planner.set_core(2, charge);
            planner.reserve(3, 4, reserved);
            planner.round(6_000_000_000, &[]);
            assert_eq!(planner.is_homeless(3), !has, "{charge} {reserved}");
        }
    }

    #[test]
    fn all_parts_of_a_wide_vm_have_homes_or_none() {
        let mut planner = host();
        planner.reserve(1, 4, 2_500);
        planner.add(0, &[client(1, 0, 4)]);
        planner.reserve(2, 8, 4_000);
        let wide = [client(2, 0, 4), client(2, 1, 4)];
        planner.add(0, &wide);
        assert_eq!(homes(&planner), [(1, 0)]);
        planner.reserve(2, 8, 3_000);
        planner.round(2_000_000_000, &[]);
        assert_eq!(homes(&planner), [(1, 0), (2, 1), (2, 0)]);
    }
}
