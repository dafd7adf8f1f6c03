//! Life of VMs and worlds: power on and off, windows of activity, and the plans that follow, as the daemon makes them.
//!
//! A VM that starts gets its own weight at once, since its threads are bound to it only when it is
//! known; the weights of the others follow with the plan, `Costs::plan_ns` later. A VM that stops is
//! killed: each of its worlds runs once more, to exit.

use crate::behaviour::{Behaviour, Next};
use crate::engine::{Actor, Engine, Fixed};
use crate::kernel::Seat;
use crate::mutant::Mutant;
use crate::random::Random;
use check::State;
use entitlement::{ActiveVm, Order, Plan, PlanVm, active_plan, plan};
use sched_core::{KIND_TASK, KIND_VCPU, WORLD_PCPU_KTHREAD};
use settings::{RunSpec, VmSpec};
use std::ops::Range;
use units::{PcpuSet, Rate, VmId};

/// A VM as the engine knows it; 0 is the system group.
#[derive(Clone, Debug)]
pub(crate) struct VmSeat {
    pub(crate) name: String,
    pub(crate) shares: u32,
    pub(crate) vcpus: u32,
    /// pCPUs that its vCPUs may use together, `None` for all.
    allowed: Option<PcpuSet>,
    pub(crate) worlds: Range<u32>,
    on: bool,
    live: u32,
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
    Start,
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

/// The VMs of a run, the system group first; shares were checked when the scenario was read.
pub(crate) fn vms(spec: &RunSpec, system_shares: u32) -> Vec<VmSeat> {
    let mut next = 1;
    let mut range = |n: u32| {
        let first = next;
        next += n;
        first..next
    };
    let seat = |vm: &VmSpec, worlds| VmSeat {
        name: vm.name.clone(),
        shares: vm.shares.resolve(vm.vcpus).map_or(1, |s| s.get()),
        vcpus: vm.vcpus,
        allowed: (0..vm.vcpus as usize).map(|i| vm.allowed(i)).reduce(|a, b| Some(a?.or(&b?))).flatten(),
        worlds,
        on: false,
        live: 0,
    };
    let mut vms: Vec<VmSeat> = spec.vms.iter().map(|vm| seat(vm, range(vm.vcpus))).collect();
    let worlds = range(spec.host_tasks.len() as u32);
    vms.insert(0, VmSeat { name: "system".to_owned(), shares: system_shares, vcpus: 0, allowed: None, worlds, on: true, live: 0 });
    vms
}

/// The worlds of a run: their descriptions and behaviours by id, world 0 standing for nobody.
pub(crate) fn worlds(spec: &RunSpec, seed: u64) -> (Vec<WorldSpec>, Vec<Actor>) {
    let mut specs = vec![WorldSpec { name: String::new(), allowed: None, index: 0, kthread: false }];
    let actor = |workload, stream: &str, vm, vcpu| Actor {
        behaviour: Behaviour::new(workload, Random::new(seed, stream)),
        work: 0,
        ready_since: 0,
        charged: 0,
        vm,
        vcpu,
    };
    let mut actors = vec![actor(settings::Workload::Idle, "", 0, false)];
    for (vm, v) in spec.vms.iter().enumerate() {
        for i in 0..v.vcpus as usize {
            let name = format!("vcpu{i}");
            actors.push(actor(v.workload_of(i), &format!("{}/{name}", v.name), vm as u32 + 1, true));
            specs.push(WorldSpec { name, allowed: v.allowed(i), index: i as u32, kthread: false });
        }
    }
    for t in &spec.host_tasks {
        actors.push(actor(t.workload, &t.name, 0, false));
        specs.push(WorldSpec { name: t.name.clone(), allowed: t.affinity.clone(), index: 0, kthread: t.per_cpu_kthread });
    }
    (specs, actors)
}

/// Everything that the scenario lets happen to VMs, in order.
pub(crate) fn changes(spec: &RunSpec) -> Vec<Change> {
    let mut all = vec![];
    for (vm, v) in spec.vms.iter().enumerate() {
        let mut push = |at: u64, what| all.push(Change { at, what, vm: vm as u32 + 1 });
        push(v.start.ns(), What::Start);
        v.stop.iter().for_each(|s| push(s.ns(), What::Stop));
        for window in v.active.iter().filter(|w| w.to.is_none_or(|t| t > v.start)) {
            push(window.from.ns().max(v.start.ns()), What::Open);
            window.to.iter().for_each(|t| push(t.ns(), What::Close));
        }
        if v.active.is_empty() {
            push(v.start.ns(), What::Open);
        }
    }
    all.sort();
    all
}

impl Engine {
    /// Starts the run: every pCPU idle, host tasks there, VMs of time 0 powered on.
    pub(crate) fn boot(&mut self) {
        for pcpu in 0..self.kernel.cpus.len() as u32 {
            self.kernel.cpus[pcpu as usize].idle = true;
            self.tell_idle(pcpu, true);
        }
        self.kernel.nudges.clear();
        self.watch.vm_added(0, 0, "system", self.system_shares);
        for change in self.changes.iter().filter(|c| c.at == 0 && c.what == What::Start) {
            self.vms[change.vm as usize].on = true;
        }
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
                return self.timers.arm(Self::fixed(Fixed::Change), change.at);
            }
            self.next_change += 1;
            let worlds = self.vms[change.vm as usize].worlds.clone();
            match change.what {
                What::Start => self.start_vm(change.vm),
                What::Stop => self.stop_vm(change.vm),
                What::Open => worlds.for_each(|w| self.open_world(w)),
                What::Close => worlds.for_each(|w| self.end_world(w, Behaviour::close)),
            }
        }
    }

    /// The plan for the VMs that are powered on now.
    fn plan(&mut self) -> Plan {
        self.generation += 1;
        let on = self.vms.iter().enumerate().skip(1).filter(|v| v.1.on);
        let vms: Vec<PlanVm> =
            on.map(|(i, v)| PlanVm { vm: VmId(i as u16), shares: v.shares, vcpus: v.vcpus, allowed: v.allowed.clone() }).collect();
        plan(self.kernel.cpus.len(), &vms, self.system_shares, self.generation)
    }

    /// Whether some VM may not use all pCPUs.
    pub(crate) fn any_held(&self) -> bool {
        self.specs.iter().zip(&self.actors).any(|(s, a)| a.vm != 0 && s.allowed.is_some())
    }

    /// Weights by what is active now, as the daemon makes them where VMs are held.
    pub(crate) fn replan(&mut self) {
        let (period, now) = (entitlement::REPLAN.ns(), self.kernel.now);
        let host = PcpuSet::first(self.kernel.cpus.len());
        self.meter.begin();
        let mut vms = vec![];
        for (i, seat) in self.vms.iter().enumerate().filter(|v| v.1.on) {
            let mut classes: Vec<(PcpuSet, Rate)> = vec![];
            for world in seat.worlds.clone().filter(|w| self.kernel.seats[*w as usize] != Seat::Off) {
                let times = self.times(world);
                let demand = self.meter.demand(world, times.run_ns + times.ready_ns, period);
                let set = self.specs[world as usize].allowed.as_ref().map_or_else(|| host.clone(), |a| a.and(&host));
                match classes.iter_mut().find(|c| c.0 == set) {
                    Some(class) => class.1.0 += demand.0,
                    None => classes.push((set, demand)),
                }
            }
            let vcpus = if i == 0 { host.len() as u32 } else { seat.vcpus };
            let vt_ns = self.host.vm(i as u32).vt_ns;
            vms.push(ActiveVm { vm: VmId(i as u16), shares: seat.shares, vcpus, classes, vt_ns });
        }
        for order in active_plan(&host, &vms, self.host.record().v_ns) {
            self.order(order);
        }
        self.timers.arm(Self::fixed(Fixed::Replan), now + period);
    }

    fn order(&mut self, order: Order) {
        let seat = &self.vms[order.vm.0 as usize];
        let rate = if self.kernel.fault.is(Mutant::EqualWeights) { Rate::ONE } else { order.weight };
        self.stats.calls += 1;
        self.host.vm_plan(u32::from(order.vm.0), rate.0, seat.vcpus, seat.shares, order.held, order.shift_ns);
    }

    /// Applies the weights of all VMs, until the next plan of the active ones if some are held.
    pub(crate) fn publish(&mut self) {
        let plan = self.plan();
        plan.weights().iter().for_each(|(vm, rate)| self.weigh(*vm, *rate));
    }

    fn weigh(&mut self, vm: VmId, rate: Rate) {
        let seat = &self.vms[vm.0 as usize];
        let rate = if self.kernel.fault.is(Mutant::EqualWeights) { Rate::ONE } else { rate };
        self.stats.calls += 1;
        self.host.vm_weight(u32::from(vm.0), rate.0, seat.vcpus, seat.shares);
    }

    fn plan_later(&mut self) {
        let slot = Self::fixed(Fixed::Plan);
        if self.timers.armed(slot).is_none() {
            self.timers.arm(slot, self.kernel.now + self.costs.plan_ns);
        }
    }

    fn start_vm(&mut self, vm: u32) {
        let now = self.kernel.now;
        let seat = &mut self.vms[vm as usize];
        seat.on = true;
        self.watch.vm_added(now, vm, &seat.name, seat.shares);
        if now > 0 {
            let plan = self.plan();
            let own = plan.weights().iter().find(|w| u32::from(w.0.0) == vm);
            own.iter().for_each(|w| self.weigh(w.0, w.1));
            self.plan_later();
        }
        self.vms[vm as usize].worlds.clone().for_each(|w| self.start_world(w));
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
        let task = self.host.task_mut(world);
        task.allowed.copy_from_slice(allowed.words());
        task.allowed_count = count as u32;
        task.pcpu = i32::from(first as i16);
        let record = self.host.world_mut(world);
        record.vm = actor.vm;
        record.kind = if actor.vcpu { KIND_VCPU } else { KIND_TASK };
        record.index = spec.index;
        record.flags = if spec.kthread { WORLD_PCPU_KTHREAD } else { 0 };
        record.nice_weight = 100;
        self.kernel.seats[world as usize] = Seat::Asleep;
        self.vms[actor.vm as usize].live += 1;
        let asleep = if actor.vcpu { State::WaitIdle } else { State::Wait };
        self.watch.world_added(self.kernel.now, world, actor.vm, spec.allowed.clone(), asleep);
        self.stats.calls += 1;
        self.host.world_start(&mut self.kernel, world);
    }

    /// A world's window opens.
    fn open_world(&mut self, world: u32) {
        let actor = &mut self.actors[world as usize];
        if self.kernel.seats[world as usize] == Seat::Off || actor.behaviour.open || actor.behaviour.leaving {
            return;
        }
        match (actor.behaviour.begin(self.kernel.now), self.kernel.seats[world as usize]) {
            (Next::Sleep(until), Seat::Asleep) => self.timers.arm(self.sleep_slot(world), until),
            (Next::Work, Seat::Asleep) => self.wake(world),
            // It has not even noticed that its last window closed: it goes on with the new piece.
            (_, Seat::Running(pcpu)) => self.arm_done(pcpu),
            _ => {}
        }
    }

    /// A world's window closes, or it is powered off: what it does is cut short.
    fn end_world(&mut self, world: u32, how: fn(&mut Behaviour)) {
        let seat = self.kernel.seats[world as usize];
        if let Seat::Running(pcpu) = seat {
            self.account(pcpu);
        }
        let behaviour = &mut self.actors[world as usize].behaviour;
        how(behaviour);
        let leaving = behaviour.leaving;
        match seat {
            Seat::Running(pcpu) => self.arm_done(pcpu),
            Seat::Asleep => {
                self.timers.disarm(self.sleep_slot(world));
                if leaving {
                    self.wake(world);
                }
            }
            _ => {}
        }
    }

    /// A world has run to its end.
    pub(crate) fn exit(&mut self, world: u32) {
        let (now, vm) = (self.kernel.now, self.actors[world as usize].vm);
        self.watch.reported(now, &self.host, world);
        self.gone[world as usize] = Some(self.times(world));
        self.kernel.seats[world as usize] = Seat::Off;
        self.watch.world_removed(now, world);
        self.stats.calls += 1;
        self.host.world_exit(&mut self.kernel, world);
        self.vms[vm as usize].live -= 1;
        if self.vms[vm as usize].live == 0 && !self.vms[vm as usize].on {
            self.watch.vm_removed(now, vm);
        }
    }
}
