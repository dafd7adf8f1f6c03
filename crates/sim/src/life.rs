//! Life of VMs and worlds: power on and off, windows of activity; the plans that follow are made in
//! `plans`.
//!
//! A VM that starts gets its own weight at once, since its threads are bound to it only when it is
//! known; the weights of the others follow with the plan, `Costs::plan_ns` later. A VM that stops
//! is killed: each of its worlds runs once more, to exit.

use crate::behaviour::{Behaviour, Link, Next};
use crate::clock::Fixed;
use crate::engine::{Actor, Engine};
use crate::guest::Guest;
use crate::kernel::{Context, Seat};
use crate::plans;
use check::State;
use contract::{Scheduler, WorldTerms};
use dice::Stream;
use settings::{HostTask, PlacedPool, RunSpec, VmResources, VmSpec, Workload};
use std::ops::Range;
use units::PcpuSet;

/// A VM as the engine knows it; 0 is the system group.
#[derive(Clone, Debug)]
pub(crate) struct VmSeat {
    pub(crate) name: String,
    /// Index of its pool.
    pub(crate) pool: usize,
    pub(crate) resources: VmResources,
    pub(crate) vcpus: u32,
    /// pCPUs that its vCPUs may use together, `None` for all.
    pub(crate) allowed: Option<PcpuSet>,
    pub(crate) worlds: Range<u32>,
    /// How many of them, the last ones, are added while it runs.
    later: u32,
    pub(crate) on: bool,
    live: u32,
}

/// Time between the beginnings of VMs that the scenario lets begin at one moment: a few interrupts.
const OPEN_APART_NS: u64 = 10_000;

impl VmSeat {
    /// Whether it is powered on, or worlds of it still run to their exit.
    pub(crate) fn is_there(&self) -> bool {
        self.on || self.live > 0
    }
}

/// Something that happens to a VM at a time the scenario gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    at: u64,
    what: What,
    vm: u32,
}

/// At one instant, what ends comes before what begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Close,
    Stop,
    /// Settings change, by this change of `settings::changes`.
    Set(u32),
    Start,
    /// The vCPU of this number is added.
    Add(u32),
    Open,
}

/// What the scenario says of a world.
#[derive(Clone, Debug)]
pub(crate) struct WorldSpec {
    pub(crate) name: String,
    pub(crate) allowed: Option<PcpuSet>,
    pub(crate) index: u32,
    pub(crate) kthread: bool,
}

/// The VMs of a run, the system group first; settings were checked when the scenario was read.
pub(crate) fn vms(spec: &RunSpec, pools: &[PlacedPool], system_shares: u32) -> Vec<VmSeat> {
    let nothing = VmResources { shares: system_shares, ..VmResources::POOL };
    let pool = |vm: &VmSpec| {
        vm.pool.as_ref().and_then(|name| pools.iter().position(|p| p.name == *name)).unwrap_or(0)
    };
    let mut next = 1;
    let mut range = |n: u32| {
        let first = next;
        next += n;
        first..next
    };
    let seat = |vm: &VmSpec, worlds| VmSeat {
        name: vm.name.clone(),
        pool: pool(vm),
        resources: vm.resources(spec.host.mhz).unwrap_or(nothing),
        vcpus: vm.vcpus,
        allowed: (0..vm.vcpus as usize)
            .map(|i| vm.allowed(i))
            .reduce(|a, b| Some(a?.or(&b?)))
            .flatten(),
        worlds,
        later: vm.hot_add.len() as u32,
        on: false,
        live: 0,
    };
    let mut vms: Vec<VmSeat> = spec.vms.iter().map(|vm| seat(vm, range(vm.vcpus))).collect();
    let worlds = range(spec.host_tasks.len() as u32);
    vms.insert(
        0,
        VmSeat {
            name: "system".to_owned(),
            pool: 0,
            resources: nothing,
            vcpus: 0,
            allowed: None,
            worlds,
            later: 0,
            on: true,
            live: 0,
        },
    );
    vms
}

/// Number of worlds of a run, world 0 included.
pub(crate) fn count(spec: &RunSpec) -> usize {
    1 + spec.vms.iter().map(|v| v.vcpus as usize).sum::<usize>() + spec.host_tasks.len()
}

/// The worlds of a run: their descriptions and behaviours by id, world 0 standing for nobody.
pub(crate) fn worlds(spec: &RunSpec, guests: &[Guest], seed: u64) -> (Vec<WorldSpec>, Vec<Actor>) {
    let mut specs =
        vec![WorldSpec { name: String::new(), allowed: None, index: 0, kthread: false }];
    let actor = |workload, link, stream: &str, vm, vcpu| Actor {
        behaviour: Behaviour::new(workload, link, Stream::new(seed, stream)),
        work: 0,
        spun: 0,
        spins: false,
        sibling: None,
        ready_since: 0,
        due: None,
        late: views::Latencies::default(),
        vm,
        vcpu,
    };
    let alone = Link::default();
    let mut actors = vec![actor(Workload::Idle, alone, "", 0, false)];
    for (vm, v) in spec.vms.iter().enumerate() {
        for i in 0..v.vcpus as usize {
            let name = format!("vcpu{i}");
            let stream = format!("{}/{name}", v.name);
            let vcpu = actor(v.workload_of(i), alone, &stream, vm as u32 + 1, true);
            actors.push(Actor { sibling: guests[vm + 1].on.then(Box::default), ..vcpu });
            specs.push(WorldSpec { name, allowed: v.allowed(i), index: i as u32, kthread: false });
        }
    }
    let links = links(&spec.host_tasks, actors.len() as u32);
    for (t, link) in spec.host_tasks.iter().zip(links) {
        actors.push(actor(t.workload, link, &t.name, 0, false));
        specs.push(WorldSpec {
            name: t.name.clone(),
            allowed: t.affinity.clone(),
            index: 0,
            kthread: t.per_cpu_kthread,
        });
    }
    (specs, actors)
}

/// The place of each task in its ring; `world` is the world of the first task. Rings are whole, and
/// the tasks of a ring follow one another.
fn links(tasks: &[HostTask], world: u32) -> Vec<Link> {
    let mut links = vec![];
    while let Some(task) = tasks.get(links.len()) {
        let Workload::Pipe { ring, .. } = task.workload else {
            links.push(Link::default());
            continue;
        };
        let begin = links.len();
        let end = tasks.len().min(begin + ring.max(1) as usize);
        let link = |at: usize| {
            let next = if at + 1 == end { begin } else { at + 1 };
            Link { next: world + next as u32, first: at == begin }
        };
        links.extend((begin..end).map(link));
    }
    links
}

/// Everything that the scenario lets happen to VMs, in order.
pub(crate) fn changes(spec: &RunSpec, settings: &[settings::Change]) -> Vec<Change> {
    let set =
        |(i, c): (u32, &settings::Change)| Change { at: c.at.ns(), what: What::Set(i), vm: 0 };
    let mut all: Vec<Change> = (0..).zip(settings).map(set).collect();
    for (vm, v) in spec.vms.iter().enumerate() {
        let mut push = |at: u64, what| all.push(Change { at, what, vm: vm as u32 + 1 });
        push(v.start.ns(), What::Start);
        v.stop.iter().for_each(|s| push(s.ns(), What::Stop));
        for (i, at) in v.hot_add.iter().enumerate() {
            push(at.ns(), What::Add(v.vcpus - (v.hot_add.len() - i) as u32));
        }
        for window in v.active.iter().filter(|w| w.to.is_none_or(|t| t > v.start)) {
            push(window.from.ns().max(v.start.ns()), What::Open);
            window.to.iter().for_each(|t| push(t.ns(), What::Close));
        }
        if v.active.is_empty() {
            push(v.start.ns(), What::Open);
        }
    }
    all.sort();
    // VMs do not begin in the same ns: each sees what the one before it has made of the host.
    let mut rank = 0;
    let mut last = None;
    for change in all.iter_mut().filter(|c| c.what == What::Open) {
        rank = if last.replace(change.at) == Some(change.at) { rank + 1 } else { 0 };
        change.at += rank * OPEN_APART_NS;
    }
    all.sort();
    all
}

impl<P: Scheduler> Engine<P> {
    /// Starts the run: every pCPU idle, host tasks there, VMs of time 0 powered on.
    pub(crate) fn boot(&mut self) {
        self.call_from(Context::Timer, |p, k| p.init(k));
        for pcpu in 0..self.kernel.cpus.len() as u32 {
            self.kernel.cpus[pcpu as usize].idle = true;
            self.tell_idle(pcpu, true);
        }
        self.kernel.nudges.clear();
        self.watch.pools(0, plans::pool_terms(&self.pools));
        self.watch.vm_added(0, 0, "system", plans::vm_terms(&self.vms[0]));
        for change in self.changes.iter().filter(|c| c.at == 0 && c.what == What::Start) {
            self.vms[change.vm as usize].on = true;
        }
        (0..self.vms.len() as u32).for_each(|vm| self.weigh(vm));
        self.put_limits();
        let held = self.any_held();
        self.ordered = self.call(|p, k| p.ordered(k, held));
        self.publish();
        let tasks = self.vms[0].worlds.clone();
        tasks.clone().for_each(|w| self.start_world(w));
        tasks.for_each(|w| self.open_world(w));
        self.change();
    }

    /// Carries out the changes that are due and waits for the next.
    pub(crate) fn change(&mut self) {
        while let Some(change) = self.changes.get(self.next_change).copied() {
            if change.at > self.kernel.now {
                return self.clock.arm(Fixed::Change, change.at);
            }
            self.next_change += 1;
            let worlds = self.vms[change.vm as usize].worlds.clone();
            match change.what {
                What::Start => self.start_vm(change.vm),
                What::Stop => self.stop_vm(change.vm),
                What::Set(i) => {
                    self.set(i);
                    // Those of one moment come into force together.
                    let next = self.changes.get(self.next_change);
                    if !next.is_some_and(|n| n.at == change.at && matches!(n.what, What::Set(_))) {
                        self.put_limits();
                        self.plan_later();
                    }
                }
                What::Add(vcpu) => self.add_vcpu(change.vm, vcpu),
                What::Open => worlds.for_each(|w| self.open_world(w)),
                What::Close => worlds.for_each(|w| self.end_world(w, Behaviour::close)),
            }
        }
    }

    fn start_vm(&mut self, vm: u32) {
        let now = self.kernel.now;
        let seat = &mut self.vms[vm as usize];
        seat.on = true;
        self.watch.vm_added(now, vm, &seat.name, plans::vm_terms(seat));
        if now > 0 {
            self.weigh(vm);
            self.plan_later();
        }
        let seat = &self.vms[vm as usize];
        let first = seat.worlds.start;
        (first..seat.worlds.end - seat.later).for_each(|w| self.start_world(w));
    }

    /// A vCPU comes to a VM under way, and does what its siblings do.
    fn add_vcpu(&mut self, vm: u32, vcpu: u32) {
        let seat = &self.vms[vm as usize];
        if !seat.on {
            return;
        }
        let (first, world) = (seat.worlds.start, seat.worlds.start + vcpu);
        self.start_world(world);
        if self.actors[first as usize].behaviour.open {
            self.open_world(world);
        }
    }

    fn stop_vm(&mut self, vm: u32) {
        self.vms[vm as usize].on = false;
        self.plan_later();
        self.vms[vm as usize].worlds.clone().for_each(|w| self.end_world(w, Behaviour::leave));
    }

    /// A world comes to life, asleep, on one of its pCPUs.
    fn start_world(&mut self, world: u32) {
        let n = self.kernel.cpus.len();
        let (spec, actor) = (&self.specs[world as usize], &self.actors[world as usize]);
        let host = PcpuSet::first(n);
        let allowed = spec.allowed.as_ref().map_or_else(|| host.clone(), |a| a.and(&host));
        let count = allowed.len();
        let first = allowed.iter().nth(world as usize % count.max(1)).map_or(0, |p| p.0);
        let task = &mut self.tasks[world as usize];
        task.allowed.copy_from_slice(allowed.words());
        task.allowed_count = count as u32;
        task.pcpu = i32::from(first as i16);
        let terms = WorldTerms {
            vm: actor.vm,
            vcpu: actor.vcpu.then_some(spec.index),
            index: spec.index,
            per_cpu_kthread: spec.kthread,
            nice_weight: 100,
        };
        self.kernel.seats[world as usize] = Seat::Asleep;
        self.vms[actor.vm as usize].live += 1;
        let asleep = if actor.vcpu { State::WaitIdle } else { State::Wait };
        self.truth.born(self.kernel.now, world, asleep);
        self.watch.world_added(self.kernel.now, world, actor.vm, spec.allowed.clone(), asleep);
        self.call(|p, k| p.world_start(k, world, &terms));
    }

    /// A world's window opens.
    fn open_world(&mut self, world: u32) {
        let behaviour = &self.actors[world as usize].behaviour;
        if self.kernel.seats[world as usize] == Seat::Off || behaviour.open || behaviour.leaving {
            return;
        }
        let next = self.begin(world);
        match (next, self.kernel.seats[world as usize]) {
            (Next::Sleep(until), Seat::Asleep) => self.clock.arm_sleep(world, until),
            (Next::Work, Seat::Asleep) => self.wake(world),
            // It has not even noticed that its last window closed: it goes on with the new piece.
            (_, Seat::Running(pcpu)) => self.arm_done(pcpu),
            _ => {}
        }
    }

    fn begin(&mut self, world: u32) -> Next {
        let sibling = self.is_sibling(world);
        if let (true, Seat::Running(pcpu)) = (sibling, self.kernel.seats[world as usize]) {
            self.account(pcpu);
        }
        let behaviour = &mut self.actors[world as usize].behaviour;
        let left = behaviour.remaining;
        let next = behaviour.begin(self.kernel.now);
        if sibling {
            self.sibling_begins(world, left);
        }
        next
    }

    /// A world's window closes, or it is powered off: what it does is cut short.
    fn end_world(&mut self, world: u32, how: fn(&mut Behaviour)) {
        let seat = self.kernel.seats[world as usize];
        if seat == Seat::Off {
            return; // not there yet, or gone
        }
        if let Seat::Running(pcpu) = seat {
            self.account(pcpu);
        }
        let behaviour = &mut self.actors[world as usize].behaviour;
        let left = behaviour.remaining;
        how(behaviour);
        let leaving = behaviour.leaving;
        if self.is_sibling(world) {
            self.sibling_ends(world, left);
        }
        match seat {
            Seat::Running(pcpu) => self.arm_done(pcpu),
            Seat::Asleep => {
                self.clock.disarm_sleep(world);
                // One that waits and is not halted notices that its window closes; else it would be
                // told as waiting until the next.
                if leaving || self.tasks[world as usize].waits != 0 {
                    self.wake(world);
                }
            }
            _ => {}
        }
    }

    /// A world has run to its end.
    pub(crate) fn exit(&mut self, world: u32) {
        let (now, vm) = (self.kernel.now, self.actors[world as usize].vm);
        self.watch.reported(now, &self.policy, world);
        self.gone[world as usize] = Some(self.times(world));
        self.kernel.seats[world as usize] = Seat::Off;
        self.watch.world_removed(now, world);
        self.truth.exit(now, world, vm);
        self.call(|p, k| p.world_exit(k, world));
        self.vms[vm as usize].live -= 1;
        if self.vms[vm as usize].live == 0 && !self.vms[vm as usize].on {
            self.watch.vm_removed(now, vm);
        }
    }
}
