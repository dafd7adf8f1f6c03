//! Where a VM may run: in its cell, or on its home node. It places no world.
//!
//! *Documented*: a VM is confined to a cell, and a cell has one lock (ESX4 section 5); cells have 4
//! pCPUs (KB 1007361), and are made larger for wider VMs (ESX4 4.6). Where there are no cells a VM
//! has a home node, unless it has more vCPUs than a node has cores (VS51 "NUMA Scheduling Policy";
//! as before vSphere 4.1).
//!
//! *Our reading*: a VM goes to the zone with the fewest vCPUs when it is powered on, the first of
//! several; it stays there. ESX moved VMs between nodes and cells later on, which is not modelled.

use super::terms::Cells;
use contract::Lock;
use topology::Place;

/// The zones of a host.
#[derive(Clone, Debug)]
pub(crate) struct Zones {
    cells: Option<Cells>,
    places: Vec<Place>,
    /// Zone of each pCPU.
    of: Vec<u32>,
    /// Most vCPUs of a VM that fits, of each zone.
    room: Vec<u32>,
    /// vCPUs of the VMs of each zone.
    vcpus: Vec<u32>,
    /// When the lock of each cell is free again, in ns.
    free_at: Vec<u64>,
}

impl Zones {
    /// Zones of a host without VMs.
    pub(crate) fn new(cells: Option<Cells>, places: &[Place]) -> Zones {
        let mut zones = Zones {
            cells,
            places: places.to_vec(),
            of: vec![],
            room: vec![],
            vcpus: vec![],
            free_at: vec![],
        };
        zones.lay_out();
        zones
    }

    fn lay_out(&mut self) {
        let zone = |(id, place): (u32, &Place)| self.cells.map_or(place.node, |c| id / c.pcpus);
        self.of = (0..).zip(&self.places).map(zone).collect();
        let count = self.of.iter().max().map_or(0, |last| *last as usize + 1);
        let room = |zone: usize| {
            let inside = self.places.iter().zip(&self.of).filter(|p| *p.1 as usize == zone);
            // A cell holds as many as it has pCPUs, a node as many as it has cores.
            inside.filter(|p| self.cells.is_some() || p.0.thread == 0).count() as u32
        };
        self.room = (0..count).map(room).collect();
        self.vcpus = vec![0; count];
        self.free_at = vec![0; count];
    }

    /// Makes cells large enough for a VM of so many vCPUs; whether that has changed them, so that
    /// no VM has a zone any more.
    pub(crate) fn grow(&mut self, vcpus: u32) -> bool {
        let size = vcpus.next_power_of_two();
        let Some(cells) = self.cells.as_mut().filter(|c| c.pcpus < size) else { return false };
        cells.pcpus = size;
        self.lay_out();
        true
    }

    /// A zone for a VM of so many vCPUs that is powered on; none if it fits into no zone, or if
    /// there is only one.
    pub(crate) fn enter(&mut self, vcpus: u32) -> Option<u32> {
        let fits = (0..self.room.len()).filter(|z| vcpus <= self.room[*z]);
        let zone = fits.min_by_key(|z| self.vcpus[*z])?;
        self.vcpus[zone] += vcpus;
        Some(zone as u32)
    }

    /// A VM of so many vCPUs leaves its zone.
    pub(crate) fn leave(&mut self, zone: u32, vcpus: u32) {
        self.vcpus[zone as usize] -= vcpus;
    }

    /// Zone of a pCPU.
    pub(crate) fn of(&self, pcpu: u32) -> u32 {
        self.of[pcpu as usize]
    }

    /// The lock of its cell as a decision on a pCPU takes it; none where there are no cells.
    pub(crate) fn lock(&mut self, pcpu: u32, now_ns: u64) -> Option<Lock> {
        let keeps_ns = self.cells?.lock_ns;
        let id = self.of[pcpu as usize];
        let free_at = &mut self.free_at[id as usize];
        let waits_ns = free_at.saturating_sub(now_ns);
        *free_at = now_ns + waits_ns + keeps_ns;
        Some(Lock { id, waits_ns, keeps_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::{Shape, Topology};

    fn places(cores_per_llc: u32, threads_per_core: u32) -> Vec<Place> {
        let shape = Shape {
            sockets: 2,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc,
            threads_per_core,
        };
        Topology::regular(shape).expect("a host").places().to_vec()
    }

    #[test]
    fn a_cell_has_four_pcpus_and_grows_for_a_wider_vm() {
        let cells = Some(Cells { pcpus: 4, lock_ns: 3 });
        let mut zones = Zones::new(cells, &places(8, 1));
        assert_eq!((zones.of(3), zones.of(4), zones.of(15)), (0, 1, 3));
        assert_eq!([4, 2, 2, 1].map(|vcpus| zones.enter(vcpus)), [0, 1, 2, 3].map(Some));
        assert_eq!(zones.enter(8), None);
        assert!(zones.grow(7));
        assert!(!zones.grow(8));
        assert_eq!((zones.of(7), zones.of(8), zones.enter(8)), (0, 1, Some(0)));
        zones.leave(0, 8);
        assert_eq!([2, 2, 2].map(|vcpus| zones.enter(vcpus)), [0, 1, 0].map(Some));
    }

    #[test]
    fn a_node_is_home_to_no_more_vcpus_of_a_vm_than_it_has_cores() {
        let mut zones = Zones::new(None, &places(2, 2));
        assert_eq!((zones.of(3), zones.of(4)), (0, 1));
        assert_eq!([2, 3, 2].map(|vcpus| zones.enter(vcpus)), [Some(0), None, Some(1)]);
        assert!(!zones.grow(64));
    }

    #[test]
    fn decisions_of_a_cell_wait_for_each_other_and_those_of_two_cells_do_not() {
        let cells = Some(Cells { pcpus: 4, lock_ns: 3 });
        let mut zones = Zones::new(cells, &places(4, 1));
        let lock = |(id, waits_ns)| Some(Lock { id, waits_ns, keeps_ns: 3 });
        let seen = [0, 1, 4, 0].map(|pcpu| zones.lock(pcpu, 10));
        assert_eq!(seen, [(0, 0), (0, 3), (1, 0), (0, 6)].map(lock));
        assert_eq!([0, 4].map(|pcpu| zones.lock(pcpu, 17)), [(0, 2), (1, 0)].map(lock));
        assert_eq!(Zones::new(None, &places(4, 1)).lock(0, 10), None);
    }
}
