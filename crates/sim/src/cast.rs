//! The VMs and worlds of a run: what each is, what it does with CPU time, and how long it waits; it
//! knows no queue, no timer and no scheduler.
//!
//! Time passes for a world by `works`; the engine asks `piece_done` what comes next, and carries
//! out the `Deed` that a vCPU does to its siblings.

mod build;
mod names;
mod siblings;
mod tasks;

pub(crate) use build::count;
pub(crate) use siblings::Deed;

use crate::behaviour::{Behaviour, ENDLESS, Next};
use crate::guest::{Guest, Vcpu};
use crate::kernel::Kernel;
use hardware::Done;
use settings::{VmResources, Workload};
use std::ops::Range;
use units::PcpuSet;
use views::{Latencies, Lost};

/// A world's part in a run.
#[derive(Debug)]
struct Actor {
    behaviour: Behaviour,
    /// CPU time of its own work done.
    work: u64,
    /// What it lost meanwhile, where hardware is simulated.
    lost: Option<Lost>,
    /// CPU time that it burned waiting for siblings, and whether it does now.
    spun: u64,
    spins: bool,
    /// What it is to its siblings, if it is a vCPU of an SMP guest or a watchdog looks at it.
    sibling: Option<Box<Vcpu>>,
    /// Since when it is READY.
    ready_since: u64,
    /// When the sleep was due from which it has not run yet.
    due: Option<u64>,
    /// From there until it ran, each time.
    late: Latencies,
    /// The same from when it was READY, where wake-ups have paths; both are one elsewhere.
    waited: Option<Box<Latencies>>,
    vm: u32,
    vcpu: bool,
    /// A vCPU whose guest has tasks.
    tasked: bool,
}

/// What came of a world's CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    pub(crate) work: u64,
    /// None where no hardware is simulated.
    pub(crate) lost: Option<Lost>,
}

/// What the scenario says of a world.
#[derive(Clone, Debug)]
pub(crate) struct WorldSpec {
    pub(crate) name: String,
    pub(crate) allowed: Option<PcpuSet>,
    pub(crate) index: u32,
    pub(crate) kthread: bool,
    pub(crate) nice: i8,
}

/// A VM; 0 is the system group.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
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
    on: bool,
    live: u32,
}

impl Vm {
    /// Whether it is powered on.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether it is powered on, or worlds of it still run to their exit.
    pub(crate) fn is_there(&self) -> bool {
        self.on || self.live > 0
    }

    /// Worlds that it starts with.
    pub(crate) fn first_worlds(&self) -> Range<u32> {
        self.worlds.start..self.worlds.end - self.later
    }
}

/// All VMs and worlds.
#[derive(Debug)]
pub(crate) struct Cast {
    actors: Vec<Actor>,
    specs: Vec<WorldSpec>,
    vms: Vec<Vm>,
    /// What vCPUs of a VM share, by VM.
    guests: Vec<Guest>,
    /// The guest's own scheduler and its tasks, by VM; none where a workload says what vCPUs do.
    tasks: Vec<Option<Box<tasks::Tasks>>>,
    /// Whether the hardware takes vCPUs that spin out of their guests.
    pause_exits: bool,
}

/// What was said of them, and does not change.
impl Cast {
    /// The VMs, the system group first.
    pub(crate) fn vms(&self) -> &[Vm] {
        &self.vms
    }

    pub(crate) fn vm(&self, vm: u32) -> &Vm {
        &self.vms[vm as usize]
    }

    /// VMs that are powered on, the system group first.
    pub(crate) fn on(&self) -> Vec<u32> {
        (0..).zip(&self.vms).filter(|(_, v)| v.on).map(|(i, _)| i).collect()
    }

    /// All worlds but world 0, which stands for none.
    pub(crate) fn worlds(&self) -> Range<u32> {
        1..self.actors.len() as u32
    }

    pub(crate) fn spec(&self, world: u32) -> &WorldSpec {
        &self.specs[world as usize]
    }

    #[inline]
    pub(crate) fn vm_of(&self, world: u32) -> u32 {
        self.actors[world as usize].vm
    }

    #[inline]
    pub(crate) fn is_vcpu(&self, world: u32) -> bool {
        self.actors[world as usize].vcpu
    }

    /// Whether it is a task that another wakes.
    pub(crate) fn in_pipe(&self, world: u32) -> bool {
        matches!(self.actors[world as usize].behaviour.workload(), Workload::Pipe { .. })
    }

    /// Whether some VM may not use all pCPUs.
    pub(crate) fn any_restricted(&self) -> bool {
        self.specs.iter().zip(&self.actors).any(|(s, a)| a.vm != 0 && s.allowed.is_some())
    }
}

/// VMs that come and go.
impl Cast {
    pub(crate) fn power(&mut self, vm: u32, on: bool) {
        self.vms[vm as usize].on = on;
    }

    /// Gives a VM other settings; those before.
    pub(crate) fn set(&mut self, vm: u32, resources: VmResources) -> VmResources {
        std::mem::replace(&mut self.vms[vm as usize].resources, resources)
    }

    /// A world comes to life.
    pub(crate) fn starts(&mut self, world: u32) {
        self.vms[self.actors[world as usize].vm as usize].live += 1;
    }

    /// A world is gone: whether its VM is gone with it.
    pub(crate) fn exits(&mut self, world: u32) -> bool {
        let vm = &mut self.vms[self.actors[world as usize].vm as usize];
        vm.live -= 1;
        vm.live == 0 && !vm.on
    }

    /// Whether its window may open: it is closed, and the world is not about to exit.
    pub(crate) fn can_begin(&self, world: u32) -> bool {
        let behaviour = &self.actors[world as usize].behaviour;
        !behaviour.open && !behaviour.leaving
    }

    /// Whether its window is open.
    pub(crate) fn is_open(&self, world: u32) -> bool {
        self.actors[world as usize].behaviour.open
    }

    /// A world's window opens: what it does first.
    pub(crate) fn begins(&mut self, world: u32, now: u64) -> Next {
        if self.is_tasked(world) {
            return self.tasks_begin(world);
        }
        let behaviour = &mut self.actors[world as usize].behaviour;
        let left = behaviour.remaining;
        let next = behaviour.begin(now);
        if self.is_sibling(world) {
            self.sibling_begins(world, left);
        }
        next
    }

    /// A world's window closes, or it is powered off (`leaves`): what it does is cut short.
    pub(crate) fn ends(&mut self, world: u32, leaves: bool) {
        self.tasks_end(world);
        let behaviour = &mut self.actors[world as usize].behaviour;
        let left = behaviour.remaining;
        if leaves {
            behaviour.leave();
        } else {
            behaviour.close();
        }
        if self.is_sibling(world) {
            self.sibling_ends(world, left);
        }
    }
}

/// Worlds that run and sleep.
impl Cast {
    /// CPU time left of a world's piece of work, `ENDLESS` for one without end.
    #[inline]
    pub(crate) fn remaining(&self, world: u32) -> u64 {
        self.actors[world as usize].behaviour.remaining
    }

    /// A world has worked for so many ns: how much of that was left of its piece.
    #[inline]
    pub(crate) fn works(&mut self, world: u32, ns: u64) -> u64 {
        let actor = &mut self.actors[world as usize];
        let left = &mut actor.behaviour.remaining;
        let done = ns.min(*left);
        *left -= if *left == ENDLESS { 0 } else { done };
        if !actor.behaviour.outside {
            *if actor.spins { &mut actor.spun } else { &mut actor.work } += done;
        }
        done
    }

    /// Whether a world that runs does work of its own, which hardware may slow down: one that spins
    /// for its siblings, or is in its emulator, burns CPU time at any speed.
    #[inline]
    pub(crate) fn computes(&self, world: u32) -> bool {
        let actor = &self.actors[world as usize];
        !actor.spins && !actor.behaviour.outside
    }

    /// A world has run on simulated hardware, for `switch_ns` beside what came of the rest.
    #[inline]
    pub(crate) fn works_on(&mut self, world: u32, switch_ns: u64, done: Done) {
        let computes = self.computes(world);
        let worked = self.works(world, done.work_ns);
        let Some(lost) = &mut self.actors[world as usize].lost else { return };
        lost.smt_ns += done.smt_ns;
        lost.refill_ns += done.refill_ns;
        lost.bandwidth_ns += done.bandwidth_ns;
        lost.remote_ns += done.remote_ns;
        // A piece of work ends in whole ns: up to 4 too late, one for each rounding.
        lost.switch_ns += switch_ns + done.work_ns - worked;
        if !computes {
            lost.guest_ns += worked;
        }
    }

    /// A world's piece of work is over: what it does next, and to its siblings. `kernel` has which
    /// of them run.
    #[inline]
    pub(crate) fn piece_done(&mut self, world: u32, kernel: &Kernel) -> (Next, Deed) {
        if self.is_sibling(world) {
            return self.sibling_done(world, kernel);
        }
        if self.is_tasked(world) {
            return self.tasks_done(world, kernel);
        }
        (self.actors[world as usize].behaviour.done(kernel.now()), Deed::Nothing)
    }

    /// Whether it is in its emulator's code, and not in its guest.
    #[inline]
    pub(crate) fn is_outside(&self, world: u32) -> bool {
        self.actors[world as usize].behaviour.outside
    }

    /// Whether it sleeps for something else than that it has nothing to do.
    #[inline]
    pub(crate) fn waits(&self, world: u32) -> bool {
        self.actors[world as usize].behaviour.waits()
    }

    /// Powered off: its next work is to exit.
    #[inline]
    pub(crate) fn is_leaving(&self, world: u32) -> bool {
        self.actors[world as usize].behaviour.leaving
    }

    /// A world's sleep ends now, as its workload wanted.
    #[inline]
    pub(crate) fn is_due(&mut self, world: u32, now: u64) {
        self.actors[world as usize].due = Some(now);
    }

    /// A world is READY from now on.
    #[inline]
    pub(crate) fn readies(&mut self, world: u32, now: u64) {
        self.actors[world as usize].ready_since = now;
    }

    /// Since when it is READY, if it is.
    #[inline]
    pub(crate) fn ready_since(&self, world: u32) -> u64 {
        self.actors[world as usize].ready_since
    }

    /// A world is about to run: its latency is counted.
    #[inline]
    pub(crate) fn is_picked(&mut self, world: u32, now: u64) {
        let actor = &mut self.actors[world as usize];
        if let Some(due) = actor.due.take() {
            actor.late.add(now - due);
            if let Some(waited) = &mut actor.waited {
                waited.add(now - actor.ready_since);
            }
        }
    }

    /// What came of a world's CPU time.
    pub(crate) fn output(&self, world: u32) -> Output {
        let actor = &self.actors[world as usize];
        Output { work: actor.work, lost: actor.lost }
    }

    /// How late a world ran after it should have woken, each time since the warm-up.
    pub(crate) fn late(&self, world: u32) -> &Latencies {
        &self.actors[world as usize].late
    }

    /// The same after it was READY.
    pub(crate) fn waited(&self, world: u32) -> &Latencies {
        let actor = &self.actors[world as usize];
        actor.waited.as_deref().unwrap_or(&actor.late)
    }

    /// The warm-up ends: latencies and waits count from here on.
    pub(crate) fn warmed_up(&mut self) {
        for actor in &mut self.actors {
            actor.late = Latencies::default();
            actor.waited.iter_mut().for_each(|w| **w = Latencies::default());
        }
        self.guests.iter_mut().for_each(|g| g.longest = 0);
    }
}
