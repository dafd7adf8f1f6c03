//! Checks that a world does not share its core for long while a whole one idles that it may use; it
//! knows nothing of shares (VS51 "Hyper-Threading": a whole core comes first).
//!
//! Law: for a world that runs and a core of the same node that it may use, the time that another
//! thread of the one's core is busy, too, and all threads of the other are idle, without
//! interruption, is at most `sharing_max_ns`. It is looked at whenever a window closes, and each
//! run of a world is reported once: what is over by less than a window may be missed.

use topology::Topology;
use units::PcpuId;

/// A run that shared its core for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) world: u32,
    pub(crate) pcpu: PcpuId,
    /// First pCPU of the core that idled.
    pub(crate) beside: PcpuId,
    pub(crate) ns: u64,
}

#[derive(Clone, Debug)]
struct Core {
    node: u32,
    pcpus: Vec<PcpuId>,
    /// Threads that are busy, with a world or a real-time task.
    busy: usize,
    /// Threads that are off line: such a core is no whole one.
    offline: usize,
    /// Busy threads of which it is not known whether they are: they share nothing.
    unseen: usize,
    /// Since when it is as it is: idle, with one busy thread, or shared.
    since: u64,
}

impl Core {
    fn is_idle(&self) -> bool {
        self.busy == 0 && self.offline == 0
    }

    fn is_shared(&self) -> bool {
        self.busy.saturating_sub(self.unseen) >= 2
    }
}

/// A world that runs, with its allowed set.
#[derive(Clone, Copy, Debug)]
struct Running {
    world: u32,
    set: u32,
    since: u64,
    reported: bool,
}

/// The cores of a host.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    max: Option<u64>,
    cores: Vec<Core>,
    core_of: Vec<u32>,
    running: Vec<Option<Running>>,
    /// How many cores are shared, and how many idle: nothing is looked at without both.
    shared: usize,
    idle: usize,
    /// Some core has several threads.
    twins: bool,
    /// Cores of which a thread has become busy or idle, or gone off line, since they were asked
    /// for.
    changed: Vec<u32>,
}

impl Sharing {
    /// Cores that idle; `max` is none where nothing is asked. Cores of one thread are never shared.
    pub(crate) fn new(topology: &Topology, max: Option<u64>) -> Sharing {
        let places = topology.places();
        let count = places.iter().map(|p| p.core + 1).max().unwrap_or(0) as usize;
        let none = Core { node: 0, pcpus: vec![], busy: 0, offline: 0, unseen: 0, since: 0 };
        let mut cores = vec![none; count];
        for (id, place) in (0..).zip(places) {
            let core = &mut cores[place.core as usize];
            core.node = place.node;
            core.pcpus.push(PcpuId(id));
        }
        let twins = cores.iter().any(|c| c.pcpus.len() > 1);
        Sharing {
            max: max.filter(|_| twins),
            twins,
            changed: vec![],
            core_of: places.iter().map(|p| p.core).collect(),
            running: vec![None; places.len()],
            shared: 0,
            idle: cores.len(),
            cores,
        }
    }

    fn change(&mut self, now: u64, pcpu: PcpuId, change: impl FnOnce(&mut Core)) {
        let at = self.core_of[pcpu.0 as usize];
        if self.changed.last() != Some(&at) {
            self.changed.push(at);
        }
        let core = &mut self.cores[at as usize];
        let before = (core.is_idle(), core.is_shared());
        change(core);
        let after = (core.is_idle(), core.is_shared());
        if before != after {
            core.since = now;
            self.idle = self.idle + usize::from(after.0) - usize::from(before.0);
            self.shared = self.shared + usize::from(after.1) - usize::from(before.1);
        }
    }

    /// A thread is busy from now on, or no longer: with a world, or with a real-time task.
    pub(crate) fn busy(&mut self, now: u64, pcpu: PcpuId, busy: bool) {
        if self.twins {
            self.change(now, pcpu, |c| {
                c.busy = if busy { c.busy + 1 } else { c.busy.saturating_sub(1) }
            });
        }
    }

    /// It is not known whether a thread that counts as busy is, or it is known again.
    pub(crate) fn unseen(&mut self, now: u64, pcpu: PcpuId, unseen: bool) {
        if self.twins {
            self.change(now, pcpu, |c| {
                c.unseen = if unseen { c.unseen + 1 } else { c.unseen.saturating_sub(1) }
            });
        }
    }

    /// A core that has changed since the last call.
    pub(crate) fn changed(&mut self) -> Option<u32> {
        self.changed.pop()
    }

    /// Thread `i` of a core, and how many of them are busy.
    pub(crate) fn thread(&self, core: u32, i: usize) -> Option<(PcpuId, usize)> {
        let core = &self.cores[core as usize];
        Some((*core.pcpus.get(i)?, core.busy))
    }

    /// The other threads of a pCPU's core.
    pub(crate) fn beside(&self, pcpu: PcpuId) -> impl Iterator<Item = PcpuId> + '_ {
        let core = &self.cores[self.core_of[pcpu.0 as usize] as usize];
        core.pcpus.iter().copied().filter(move |p| *p != pcpu)
    }

    /// A world runs on a pCPU from now on, or none.
    pub(crate) fn runs(&mut self, now: u64, pcpu: PcpuId, world: Option<(u32, u32)>) {
        let running = |(world, set)| Running { world, set, since: now, reported: false };
        self.running[pcpu.0 as usize] = world.map(running);
    }

    /// A pCPU goes off line, or comes on line.
    pub(crate) fn online(&mut self, now: u64, pcpu: PcpuId, online: bool) {
        if self.twins {
            self.change(now, pcpu, |c| {
                c.offline = if online { c.offline.saturating_sub(1) } else { c.offline + 1 }
            });
        }
    }

    /// Runs that have shared for too long by now.
    pub(crate) fn look(&mut self, now: u64, may: impl Fn(u32, PcpuId) -> bool) -> Vec<Shared> {
        let mut found = vec![];
        let Some(max) = self.max.filter(|_| self.shared > 0 && self.idle > 0) else {
            return found;
        };
        let long = |since: u64| now - since > max;
        let idle: Vec<&Core> = self.cores.iter().filter(|c| c.is_idle() && long(c.since)).collect();
        if idle.is_empty() {
            return found;
        }
        for core in self.cores.iter().filter(|c| c.is_shared() && long(c.since)) {
            for pcpu in core.pcpus.iter().copied() {
                let Some(run) = &mut self.running[pcpu.0 as usize] else { continue };
                if run.reported || !long(run.since) {
                    continue;
                }
                let there =
                    |c: &&&Core| c.node == core.node && c.pcpus.iter().any(|p| may(run.set, *p));
                let Some(beside) = idle.iter().filter(there).min_by_key(|c| c.since) else {
                    continue;
                };
                let ns = now - beside.since.max(core.since).max(run.since);
                run.reported = true;
                let first = beside.pcpus.first().copied().unwrap_or(pcpu);
                found.push(Shared { world: run.world, pcpu, beside: first, ns });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::Shape;

    /// Two nodes of two cores of two threads; a bound of 100 ns.
    fn sharing() -> Sharing {
        let shape = Shape {
            sockets: 2,
            nodes_per_socket: 1,
            llcs_per_node: 1,
            cores_per_llc: 2,
            threads_per_core: 2,
        };
        Sharing::new(&Topology::regular(shape).expect("a host"), Some(100))
    }

    fn run(s: &mut Sharing, now: u64, pcpu: u16, world: u32) {
        s.busy(now, PcpuId(pcpu), true);
        s.runs(now, PcpuId(pcpu), Some((world, 0)));
    }

    #[test]
    fn both_worlds_of_a_shared_core_are_found_once_when_one_of_their_node_idles_too_long() {
        let mut s = sharing();
        run(&mut s, 0, 0, 7);
        run(&mut s, 50, 1, 8);
        assert_eq!(s.look(150, |_, _| true), []);
        let shared = |world, pcpu| Shared { world, pcpu: PcpuId(pcpu), beside: PcpuId(2), ns: 101 };
        assert_eq!(s.look(151, |_, _| true), [shared(7, 0), shared(8, 1)]);
        assert_eq!(s.look(400, |_, _| true), []);
    }

    #[test]
    fn cores_of_other_nodes_and_those_that_it_may_not_use_do_not_count() {
        let mut s = sharing();
        run(&mut s, 0, 0, 7);
        run(&mut s, 0, 1, 8);
        assert_eq!(s.look(500, |_, p| p.0 < 2), []);
        run(&mut s, 500, 2, 9);
        assert_eq!(s.look(900, |_, _| true), [], "the other node's cores idle");
    }

    #[test]
    fn a_thread_of_which_nothing_is_known_shares_no_core_and_leaves_none_idle() {
        let mut s = sharing();
        run(&mut s, 0, 0, 7);
        run(&mut s, 0, 1, 8);
        s.unseen(0, PcpuId(1), true);
        assert_eq!(s.look(400, |_, _| true), []);
        s.unseen(400, PcpuId(1), false);
        s.busy(400, PcpuId(2), true);
        s.unseen(400, PcpuId(2), true);
        assert_eq!(s.look(600, |_, _| true), []);
        s.unseen(600, PcpuId(2), false);
        s.busy(600, PcpuId(2), false);
        assert_eq!(s.look(701, |_, _| true).len(), 2);
    }

    #[test]
    fn each_change_of_the_core_of_the_idle_one_and_of_the_run_begins_anew() {
        let mut s = sharing();
        run(&mut s, 0, 0, 7);
        run(&mut s, 0, 1, 8);
        s.busy(90, PcpuId(2), true);
        s.busy(91, PcpuId(2), false);
        assert_eq!(s.look(190, |_, _| true), []);
        s.runs(190, PcpuId(0), Some((9, 0)));
        assert_eq!(s.look(192, |_, _| true).len(), 1, "world 8 alone");
        s.online(193, PcpuId(3), false);
        assert_eq!(s.look(400, |_, _| true), [], "half of the idle core is off line");
        s.online(400, PcpuId(3), true);
        assert_eq!(s.look(501, |_, _| true).len(), 1, "world 9");
    }
}
