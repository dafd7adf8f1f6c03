//! What worlds and pCPUs really did, by the engine's own events: state times, CPU time and counts,
//! whatever the scheduler accounts. It judges nothing.
//!
//! *Law*: every ns of a world's life is in one state; a world runs from `running` to `stopping`, is
//! READY from its wake-up, or from there on if it would go on, and in COSTOP instead where the
//! scheduler says so.

use accounting::Spent;
use check::{State, StateTimes};
use contract::Hold;
use std::collections::BTreeMap;
use topology::{Place, Topology};
use views::Moved;

/// A world's life.
#[derive(Clone, Copy, Debug)]
struct Life {
    state: State,
    since: u64,
    /// Completed stays, by state.
    time: [u64; 5],
    /// CPU time that the scheduler does not charge: lost to a busy thread of the same core.
    lost_ns: u64,
    /// Time that a limit held it back, completed stays only, and since when one does.
    limited_ns: u64,
    limited_since: Option<u64>,
    last_pcpu: Option<u32>,
    moved: Moved,
    switches: u64,
    expiries: u64,
    wakeups: u64,
    gone: bool,
}

impl Life {
    const NEW: Life = Life {
        state: State::Wait,
        since: 0,
        time: [0; 5],
        lost_ns: 0,
        limited_ns: 0,
        limited_since: None,
        last_pcpu: None,
        moved: Moved { twin: 0, core: 0, llc: 0, node: 0 },
        switches: 0,
        expiries: 0,
        wakeups: 0,
        gone: false,
    };

    fn enter(&mut self, now: u64, state: State) {
        self.time[self.state as usize] += now - self.since;
        (self.state, self.since) = (state, now);
    }

    fn times(&self, now: u64) -> StateTimes {
        let mut time = self.time;
        time[self.state as usize] += if self.gone { 0 } else { now - self.since };
        let at = |s: State| time[s as usize];
        StateTimes {
            run_ns: at(State::Run),
            ready_ns: at(State::Ready),
            costop_ns: at(State::Costop),
            wait_ns: at(State::Wait),
            wait_idle_ns: at(State::WaitIdle),
        }
    }
}

/// What a pCPU did with its time. The three are all of it where the pCPU is on line throughout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpuTimes {
    /// Time that it ran worlds, in ns.
    pub busy_ns: u64,
    /// Time that it ran real-time tasks, in ns.
    pub realtime_ns: u64,
    /// Time that it was idle, in ns.
    pub idle_ns: u64,
}

impl PcpuTimes {
    /// What came after an earlier moment.
    pub(crate) fn since(self, before: PcpuTimes) -> PcpuTimes {
        PcpuTimes {
            busy_ns: self.busy_ns - before.busy_ns,
            realtime_ns: self.realtime_ns - before.realtime_ns,
            idle_ns: self.idle_ns - before.idle_ns,
        }
    }
}

/// A pCPU's time.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    /// CPU time of worlds, completed runs only, and since when one runs.
    busy_ns: u64,
    run_since: Option<u64>,
    /// The same of real-time tasks.
    realtime_ns: u64,
    taken_since: Option<u64>,
    awake: bool,
    /// Completed times in which it idled, and since when it does or does not.
    idle_ns: u64,
    turned: u64,
    /// pCPU that stands for its core.
    core: u32,
    /// Of that pCPU: threads that are not idle, since when as many, and how long at least one and
    /// at least two were.
    threads: u32,
    since: u64,
    core_ns: [u64; 2],
}

/// Everything.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    worlds: Vec<Life>,
    pcpus: Vec<Busy>,
    places: Vec<Place>,
    /// What worlds that are gone left behind, by VM.
    past: Vec<Spent>,
}

impl Truth {
    /// Nothing has happened yet. The first thread of a core stands for it.
    pub(crate) fn new(worlds: usize, vms: usize, topology: &Topology) -> Truth {
        let places = topology.places();
        let mut firsts: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (i, p) in (0..).zip(places) {
            let first = firsts.entry(p.core).or_insert((p.thread, i));
            *first = (*first).min((p.thread, i));
        }
        let pcpu = |p: &Place| Busy { core: firsts[&p.core].1, ..Busy::default() };
        Truth {
            worlds: vec![Life::NEW; worlds],
            pcpus: places.iter().map(pcpu).collect(),
            places: places.to_vec(),
            past: vec![Spent::default(); vms],
        }
    }

    /// A world comes to life in this state.
    pub(crate) fn born(&mut self, now: u64, world: u32, state: State) {
        self.worlds[world as usize] = Life { state, since: now, ..Life::NEW };
    }

    /// A world enters a state.
    pub(crate) fn enter(&mut self, now: u64, world: u32, state: State) {
        self.worlds[world as usize].enter(now, state);
    }

    /// The state that a world is in, and the pCPU on which it ran last.
    pub(crate) fn at(&self, world: u32) -> (State, Option<u32>) {
        let life = &self.worlds[world as usize];
        (life.state, life.last_pcpu)
    }

    pub(crate) fn woken(&mut self, world: u32) {
        self.worlds[world as usize].wakeups += 1;
    }

    /// Its slice is used up, or cut short for another, while it could go on.
    pub(crate) fn expired(&mut self, world: u32) {
        self.worlds[world as usize].expiries += 1;
    }

    /// What holds a world back changes.
    pub(crate) fn held(&mut self, now: u64, world: u32, hold: Hold) {
        let life = &mut self.worlds[world as usize];
        if let Some(since) = life.limited_since.take() {
            life.limited_ns += now - since;
        }
        life.limited_since = (hold == Hold::Limited).then_some(now);
    }

    /// A world begins to run on a pCPU.
    pub(crate) fn runs(&mut self, now: u64, world: u32, pcpu: u32) {
        let life = &mut self.worlds[world as usize];
        life.enter(now, State::Run);
        if let Some(last) = life.last_pcpu.replace(pcpu).filter(|last| *last != pcpu) {
            let (from, to) = (self.places[last as usize], self.places[pcpu as usize]);
            *counter(&mut life.moved, from, to) += 1;
        }
        life.switches += 1;
        if let Some(since) = life.limited_since.take() {
            life.limited_ns += now - since;
        }
        self.pcpus[pcpu as usize].run_since = Some(now);
    }

    /// What ran on a pCPU stops there.
    pub(crate) fn stops(&mut self, now: u64, pcpu: u32) {
        let busy = &mut self.pcpus[pcpu as usize];
        busy.busy_ns += busy.run_since.take().map_or(0, |since| now - since);
    }

    /// A pCPU enters or leaves idle.
    pub(crate) fn idle(&mut self, now: u64, pcpu: u32, idle: bool) {
        let busy = &mut self.pcpus[pcpu as usize];
        if busy.awake != idle {
            return;
        }
        busy.idle_ns += if idle { 0 } else { now - busy.turned };
        busy.turned = now;
        busy.awake = !idle;
        let core = busy.core as usize;
        let core = &mut self.pcpus[core];
        core.core_ns = core.core_until(now);
        core.since = now;
        core.threads = if idle { core.threads - 1 } else { core.threads + 1 };
    }

    /// A real-time task takes a pCPU, or gives it back.
    pub(crate) fn taken(&mut self, now: u64, pcpu: u32, taken: bool) {
        let busy = &mut self.pcpus[pcpu as usize];
        busy.realtime_ns += busy.taken_since.take().map_or(0, |since| now - since);
        busy.taken_since = taken.then_some(now);
    }

    /// A world is gone; it belonged to this VM.
    pub(crate) fn exit(&mut self, now: u64, world: u32, vm: u32) {
        let life = &mut self.worlds[world as usize];
        life.enter(now, life.state);
        life.gone = true;
        let spent = self.spent(now, world);
        self.past[vm as usize].add(&spent);
    }

    /// Times and counts of a world up to now.
    pub(crate) fn spent(&self, now: u64, world: u32) -> Spent {
        let life = &self.worlds[world as usize];
        let times = life.times(now);
        Spent {
            used_ns: times.run_ns,
            lost_ns: life.lost_ns,
            run_ns: times.run_ns,
            ready_ns: times.ready_ns,
            costop_ns: times.costop_ns,
            wait_ns: times.wait_ns,
            wait_idle_ns: times.wait_idle_ns,
            limited_ns: life.limited_ns + life.limited_since.map_or(0, |since| now - since),
            switches: life.switches,
            migrations: life.moved.sum(),
            expiries: life.expiries,
            wakeups: life.wakeups,
        }
    }

    /// Migrations of a world by distance.
    pub(crate) fn moved(&self, world: u32) -> Moved {
        self.worlds[world as usize].moved
    }

    /// So much of a world's CPU time up to now is not charged.
    pub(crate) fn lost(&mut self, world: u32, ns: u64) {
        self.worlds[world as usize].lost_ns = ns;
    }

    /// The same of the worlds of a VM that are gone.
    pub(crate) fn past(&self, vm: u32) -> &Spent {
        &self.past[vm as usize]
    }

    /// CPU time of a pCPU up to now.
    pub(crate) fn busy_ns(&self, now: u64, pcpu: u32) -> u64 {
        let busy = &self.pcpus[pcpu as usize];
        busy.busy_ns + busy.run_since.map_or(0, |since| now - since)
    }

    /// What a pCPU did up to now.
    pub(crate) fn pcpu(&self, now: u64, pcpu: u32) -> PcpuTimes {
        let busy = &self.pcpus[pcpu as usize];
        PcpuTimes {
            busy_ns: self.busy_ns(now, pcpu),
            realtime_ns: busy.realtime_ns + busy.taken_since.map_or(0, |since| now - since),
            idle_ns: busy.idle_ns + if busy.awake { 0 } else { now - busy.turned },
        }
    }

    /// pCPU that stands for the core of a pCPU.
    pub(crate) fn core_of(&self, pcpu: u32) -> u32 {
        self.pcpus[pcpu as usize].core
    }

    /// Times when at least one, and when at least two, threads of a pCPU's core were not idle.
    pub(crate) fn core_ns(&self, now: u64, pcpu: u32) -> [u64; 2] {
        self.pcpus[self.core_of(pcpu) as usize].core_until(now)
    }
}

/// The count that a migration belongs to.
fn counter(moved: &mut Moved, from: Place, to: Place) -> &mut u64 {
    if from.core == to.core {
        &mut moved.twin
    } else if from.llc == to.llc {
        &mut moved.core
    } else if from.node == to.node {
        &mut moved.llc
    } else {
        &mut moved.node
    }
}

impl Busy {
    fn core_until(&self, now: u64) -> [u64; 2] {
        let more = now - self.since;
        let [one, two] = self.core_ns;
        [
            one + if self.threads > 0 { more } else { 0 },
            two + if self.threads > 1 { more } else { 0 },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(worlds: usize) -> Truth {
        let place = |thread| Place { socket: 0, node: 0, llc: 0, core: 0, thread };
        let topology = Topology::from_places(vec![place(0), place(1)]).expect("a host");
        Truth::new(worlds, 1, &topology)
    }

    #[test]
    fn every_ns_of_a_life_is_in_one_state_and_a_limit_is_part_of_ready() {
        let mut t = truth(2);
        t.born(10, 1, State::WaitIdle);
        t.woken(1);
        t.enter(25, 1, State::Ready);
        t.held(30, 1, Hold::Limited);
        t.held(34, 1, Hold::None);
        t.runs(40, 1, 1);
        t.stops(70, 1);
        t.enter(70, 1, State::Costop);
        t.enter(71, 1, State::Ready);
        t.runs(73, 1, 0);
        let times = t.worlds[1].times(80);
        assert_eq!(
            [times.wait_idle_ns, times.ready_ns, times.run_ns, times.costop_ns, times.wait_ns],
            [15, 17, 37, 1, 0]
        );
        let spent = t.spent(80, 1);
        assert_eq!(
            [spent.limited_ns, spent.migrations, spent.switches, spent.wakeups],
            [4, 1, 2, 1]
        );
        assert_eq!((t.busy_ns(80, 0), t.busy_ns(80, 1)), (7, 30));
        t.enter(90, 1, State::Wait);
        t.exit(95, 1, 0);
        assert_eq!((t.past(0).run_ns, t.past(0).wait_ns, t.spent(200, 1).wait_ns), (47, 5, 5));
    }

    #[test]
    fn a_migration_is_counted_by_the_nearest_thing_that_its_two_pcpus_share() {
        let (cores_per_llc, threads_per_core) = (2, 2);
        let shape = topology::Shape {
            sockets: 2,
            nodes_per_socket: 1,
            llcs_per_node: 2,
            cores_per_llc,
            threads_per_core,
        };
        let mut t = Truth::new(2, 1, &Topology::regular(shape).expect("a host"));
        t.born(0, 1, State::Ready);
        for (now, pcpu) in [0, 1, 0, 1, 2, 2, 0, 4, 8, 0].into_iter().enumerate() {
            t.runs(now as u64, 1, pcpu);
        }
        assert_eq!(t.moved(1), Moved { twin: 3, core: 2, llc: 1, node: 2 });
        assert_eq!(t.spent(20, 1).migrations, 8);
    }

    #[test]
    fn a_cores_time_is_that_of_at_least_one_and_of_both_threads() {
        let mut t = truth(1);
        t.idle(0, 0, true);
        t.idle(10, 1, false);
        t.idle(15, 0, false);
        t.idle(18, 1, true);
        t.idle(18, 1, true);
        assert_eq!((t.core_ns(20, 1), t.core_ns(20, 0)), ([10, 3], [10, 3]));
    }
}
