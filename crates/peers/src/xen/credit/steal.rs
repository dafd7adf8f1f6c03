//! Load balancing: a pCPU that has nothing to run, or only worlds that are OVER, takes one of
//! higher priority from another. It looks at no load and at no weight.
//!
//! *Law*: pCPUs that are busy are looked at node by node, the own node first, from the one after
//! that which was stolen from last. A queue is skipped unless something waits beside what runs. Of
//! it the first world is taken that has a priority above that of the own next world, may run here
//! and has not yielded.
//!
//! *Source*: csched_load_balance and csched_runq_steal, with hard affinity alone.

use super::{Credit, Priority};
use contract::Callback;

impl Credit {
    /// A world above this priority that waits for another pCPU.
    pub(super) fn steal(
        &mut self,
        k: &Callback<'_>,
        pcpu: u32,
        above: Option<Priority>,
    ) -> Option<u32> {
        if !self.machine.is_online(pcpu) {
            return None;
        }
        let nodes = self.steal_bias.len() as u32;
        let own = self.machine.place(pcpu).node;
        for node in (0..nodes).map(|i| (own + i) % nodes) {
            let works = |p: u32| {
                p != pcpu
                    && self.machine.place(p).node == node
                    && self.machine.is_online(p)
                    && self.machine.current(p) != 0
            };
            let bias = self.steal_bias[node as usize];
            let n = self.machine.len();
            let peers = (1..=n).map(|i| (bias + i) % n).filter(|p| works(*p));
            let found = peers.filter_map(|p| Some((p, self.found_in(k, p, pcpu, above)?))).next();
            if let Some((peer, world)) = found {
                self.steal_bias[node as usize] = peer;
                return Some(world);
            }
        }
        None
    }

    /// The first world of a pCPU's queue above a priority that another pCPU may take.
    fn found_in(
        &self,
        k: &Callback<'_>,
        peer: u32,
        to: u32,
        above: Option<Priority>,
    ) -> Option<u32> {
        let of = |w: &u32| self.worlds[*w as usize];
        let queue = self.pcpus[peer as usize].queue.iter().copied();
        queue
            .take_while(|w| Some(of(w).priority) > above)
            .find(|w| !of(w).yields && self.machine.may_run(k.task(*w), to))
    }
}
