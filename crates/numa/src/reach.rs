//! Nodes where the parts of a VM may have their homes by affinity and cpusets, for the daemon and
//! the simulator; it knows no load and no memory.
//!
//! *Law*: a home takes no pCPU from a VM that its vCPUs could use. A node may be the home of a part
//! if each of its vCPUs may run there, and if the VM may use the whole node, or as many cores of it
//! as the part has vCPUs (as it may use in all nodes together, if that is fewer). If those nodes
//! have no room for all parts, none of them has a home.
//!
//! *Units*: room in cores, or in threads for a VM that prefers threads.
//!
//! *Example*: of two nodes of four cores a VM of four vCPUs may use the last of the first, and
//! three of the second. Neither has room for it: it has no home. One of three vCPUs has the second.
//!
//! *Limits*: vCPUs that may use different pCPUs of a node count together, as if each could use all.

/// What affinity leaves a part of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Nodes where each of them may run, a bit each.
    pub each: u64,
    /// Room by node where some of them may run.
    pub room: Vec<u32>,
}

impl Reach {
    /// Room that it needs in its home.
    fn needs(&self) -> u32 {
        self.vcpus.min(self.room.iter().sum())
    }
}

/// Where the parts of a VM may have their homes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// By part: nodes, a bit each; 0: it has no home.
    pub nodes: Vec<u64>,
    /// Most vCPUs of the VM in one node.
    pub most: u32,
}

/// Where the parts of a VM may have their homes. `room` is what the VM may use by node, `whole`
/// what a node has, `most` how many of its vCPUs may share a node.
#[must_use]
pub fn reached(parts: &[Reach], room: &[u32], whole: &[u32], most: u32) -> Reached {
    let partial = |n: usize| room[n] > 0 && room[n] < whole[n];
    let may = |p: &Reach, n: usize| p.each >> n & 1 != 0 && (!partial(n) || p.room[n] >= p.needs());
    let nodes_of = |p: &Reach| (0..room.len()).filter(|n| may(p, *n)).map(|n| 1u64 << n).sum();
    let mut nodes: Vec<u64> = parts.iter().map(nodes_of).collect();
    let several = room.iter().filter(|r| **r > 0).count() > 1;
    if !several || !(0..room.len()).any(partial) {
        return Reached { nodes, most };
    }
    if !fit(parts, &nodes, room) {
        nodes.fill(0);
    }
    let least = (0..room.len()).filter(|n| partial(*n) && nodes.iter().any(|of| of >> n & 1 != 0));
    let most = least.map(|n| room[n]).min().map_or(most, |least| least.min(most));
    Reached { nodes, most }
}

/// Whether the parts that may have a home fit into the room that there is: those with fewest nodes
/// first, each to the node with most room left.
fn fit(parts: &[Reach], nodes: &[u64], room: &[u32]) -> bool {
    let mut left = room.to_vec();
    let mut order: Vec<usize> = (0..parts.len()).filter(|p| nodes[*p] != 0).collect();
    order.sort_by_key(|p| nodes[*p].count_ones());
    order.into_iter().all(|p| {
        let may = (0..left.len()).filter(|n| nodes[p] >> n & 1 != 0);
        let Some(at) = may.max_by_key(|n| left[*n]) else { return false };
        let fits = left[at] >= parts[p].needs();
        left[at] = left[at].saturating_sub(parts[p].needs());
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of these vCPUs of a VM whose vCPUs may all use this much of two nodes of four cores.
    fn nodes(parts: &[u32], room: [u32; 2]) -> (Vec<u64>, u32) {
        let each = (0..2).filter(|n| room[*n] > 0).map(|n| 1 << n).sum();
        let part = |vcpus: &u32| Reach { vcpus: *vcpus, each, room: room.to_vec() };
        let parts: Vec<Reach> = parts.iter().map(part).collect();
        let out = reached(&parts, &room, &[4, 4], 4);
        (out.nodes, out.most)
    }

    #[test]
    fn a_home_has_room_among_the_pcpus_that_affinity_leaves() {
        assert_eq!(nodes(&[4], [4, 4]), (vec![0b11], 4), "it may run anywhere");
        assert_eq!(nodes(&[4], [1, 3]), (vec![0], 4), "no node has four");
        assert_eq!(nodes(&[3], [1, 3]), (vec![0b10], 3));
        assert_eq!(nodes(&[4], [2, 4]), (vec![0b10], 4));
        assert_eq!(nodes(&[1], [1, 3]), (vec![0b11], 1));
        assert_eq!(nodes(&[4], [2, 0]), (vec![0b01], 4), "there is no other");
    }

    #[test]
    fn parts_have_homes_if_there_is_room_for_all() {
        assert_eq!(nodes(&[4, 4], [4, 1]), (vec![0, 0], 4), "five cores are in one node or two");
        assert_eq!(nodes(&[2, 2], [4, 3]), (vec![0b11, 0b11], 3));
        assert_eq!(nodes(&[3, 3], [4, 2]), (vec![0, 0], 4), "both would share four cores");
        assert_eq!(nodes(&[4, 4, 4], [4, 4]), (vec![0b11; 3], 4), "it is wider than the host");
        assert_eq!(nodes(&[4, 4], [4, 0]), (vec![0b01; 2], 4), "there is no other");
    }

    #[test]
    fn a_vcpu_that_may_not_run_in_a_node_makes_it_no_home() {
        let part = |each, room: [u32; 2]| Reach { vcpus: 2, each, room: room.to_vec() };
        let of = |parts: &[Reach], room| reached(parts, room, &[2, 2], 2).nodes;
        assert_eq!(of(&[part(0, [1, 1])], &[1, 1]), [0], "one in each");
        assert_eq!(of(&[part(0b10, [0, 2]), part(0b01, [1, 0])], &[1, 2]), [0b10, 0b01]);
        assert_eq!(of(&[part(0b01, [1, 0])], &[1, 0]), [0b01], "both on one pCPU");
    }
}
