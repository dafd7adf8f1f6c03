//! Run queues of Credit2: which pCPUs share one, which worlds belong to it, and the order in which
//! they wait. It decides nothing that depends on load.
//!
//! *Law*: pCPUs of one socket share a run queue (credit2_runqueue: socket), up to 16 of them
//! (sched_credit2_max_cpus_runqueue), and threads of a core always. Where a socket has more, its
//! pCPUs are spread over as many queues as the host needs.
//! - Worlds wait by credit, equal ones in the order in which they came.
//! - The largest weight of a queue is that of all worlds that belong to it, asleep or not.
//!
//! *Source*: cpu_add_to_runqueue, runq_insert, update_max_weight.
//!
//! *Example*: 2 sockets of 2 cores of 2 threads: two queues of 4. 48 pCPUs in one socket: three
//! of 16.

use super::Credit2;
use super::load::Average;
use topology::Place;

/// Most pCPUs of a run queue.
const PCPUS_MAX: usize = 16;

/// Which pCPUs share a run queue (credit2_runqueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queues {
    /// Those of a socket.
    Socket,
    /// All.
    All,
}

/// A run queue.
#[derive(Clone, Debug)]
pub(super) struct RunQueue {
    /// Worlds that wait, and all that belong to it.
    pub(super) waiting: Vec<u32>,
    pub(super) worlds: Vec<u32>,
    /// Largest weight of these, in thousandths.
    pub(super) max_weight: u64,
    /// Worlds that want to run, their average, and that with what balancing expects.
    pub(super) wants: u64,
    pub(super) load: Average,
    pub(super) expected: Average,
    /// pCPU that was taken last for a world that came.
    pub(super) bias: u32,
}

impl RunQueue {
    pub(super) fn new(bias: u32) -> RunQueue {
        RunQueue {
            waiting: vec![],
            worlds: vec![],
            max_weight: 1,
            wants: 0,
            load: Average::default(),
            expected: Average::default(),
            bias,
        }
    }
}

/// The run queue of each pCPU.
pub(super) fn lay_out(places: &[Place], by: Queues) -> Vec<usize> {
    let most = places.len() / places.len().div_ceil(PCPUS_MAX).max(1);
    let mut queues: Vec<Vec<&Place>> = vec![];
    let mut out = vec![];
    for place in places {
        let threads = places.iter().filter(|p| p.core == place.core).count();
        let room = |queue: &[&Place]| match by {
            Queues::All => queue.len() < most,
            // Its threads come, too.
            Queues::Socket => queue.len() + threads <= most,
        };
        let belongs = |queue: &[&Place]| by == Queues::All || queue[0].socket == place.socket;
        let twins = queues.iter().position(|q| q.iter().any(|p| p.core == place.core));
        let least = || {
            let fit = (0..queues.len()).filter(|q| belongs(&queues[*q]) && room(&queues[*q]));
            fit.min_by_key(|q| queues[*q].len())
        };
        let queue = twins.or_else(least).unwrap_or_else(|| {
            queues.push(vec![]);
            queues.len() - 1
        });
        queues[queue].push(place);
        out.push(queue);
    }
    out
}

impl Credit2 {
    /// Run queue of a pCPU.
    pub(super) fn queue_of(&self, pcpu: u32) -> usize {
        self.pcpus[pcpu as usize].queue
    }

    /// A world waits in its run queue.
    pub(super) fn insert(&mut self, world: u32) {
        let worlds = &self.worlds;
        let credit = worlds[world as usize].credit;
        let waiting = &mut self.queues[worlds[world as usize].queue].waiting;
        let place = waiting.partition_point(|w| worlds[*w as usize].credit >= credit);
        waiting.insert(place, world);
        self.worlds[world as usize].queued = true;
    }

    /// A world waits there no longer.
    pub(super) fn remove(&mut self, world: u32) {
        let account = &mut self.worlds[world as usize];
        account.queued = false;
        self.queues[account.queue].waiting.retain(|w| *w != world);
    }

    /// A world belongs to a run queue from now on.
    pub(super) fn assign(&mut self, world: u32, queue: usize) {
        self.worlds[world as usize].queue = queue;
        let weight = self.weight(world);
        let of = &mut self.queues[queue];
        of.worlds.push(world);
        of.max_weight = of.max_weight.max(weight);
        of.expected.add(self.worlds[world as usize].load);
    }

    /// A world belongs to its run queue no longer.
    pub(super) fn unassign(&mut self, world: u32) {
        let queue = self.worlds[world as usize].queue;
        let of = &mut self.queues[queue];
        of.worlds.retain(|w| *w != world);
        of.expected.take(self.worlds[world as usize].load);
        self.find_max_weight(queue);
    }

    /// The largest weight of a run queue is found anew.
    pub(super) fn find_max_weight(&mut self, queue: usize) {
        let weights = self.queues[queue].worlds.iter().map(|w| self.weight(*w));
        self.queues[queue].max_weight = weights.max().unwrap_or(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::{Shape, Topology};

    fn counts(sockets: u32, cores_per_llc: u32, threads_per_core: u32, by: Queues) -> Vec<usize> {
        let (nodes_per_socket, llcs_per_node) = (1, 1);
        let shape =
            Shape { sockets, nodes_per_socket, llcs_per_node, cores_per_llc, threads_per_core };
        let host = Topology::regular(shape).expect("a host");
        let of = lay_out(host.places(), by);
        for (queue, place) in of.iter().zip(host.places()) {
            let twins = of.iter().zip(host.places()).filter(|(_, p)| p.core == place.core);
            assert!({ twins }.all(|(q, _)| q == queue), "threads of a core stay together");
        }
        let last = of.iter().max().map_or(0, |last| last + 1);
        (0..last).map(|q| of.iter().filter(|of| **of == q).count()).collect()
    }

    #[test]
    fn a_run_queue_is_a_socket_unless_that_has_more_than_sixteen_pcpus() {
        assert_eq!(counts(2, 2, 2, Queues::Socket), [4, 4]);
        assert_eq!(counts(2, 2, 2, Queues::All), [8]);
        assert_eq!(counts(1, 16, 1, Queues::Socket), [16]);
        assert_eq!(counts(1, 24, 2, Queues::Socket), [16, 16, 16]);
        assert_eq!(counts(1, 17, 1, Queues::Socket), [8, 8, 1]);
        assert_eq!(counts(2, 16, 1, Queues::All), [16, 16]);
    }
}
