//! vCPUs whose guest has tasks: the guest's scheduler, driven by the CPU time that its vCPUs get.
//! The guest decides; here is what the hardware makes of it: a task that goes on in another core
//! misses its cache lines, whichever vCPU the guest takes it to be on.

use super::{Cast, Deed};
use crate::behaviour::Next;
use crate::kernel::{Kernel, Seat};
use ::guest::{Effect, Program, Shown, Spread, Step, TaskTerms, Terms};
use dice::Stream;
use settings::{Dist, GuestSpec, GuestTask, GuestWork, HardwareSpec, RunSpec, VmSpec};
use topology::{Place, Topology};

/// Bytes of a cache line.
const LINE: u64 = 64;
/// CPU time of a switch between two tasks of a guest: what a process of `lmbench lat_ctx` takes.
const SWITCH_NS: u64 = 1_500;
/// CPU time of a tick, and of a reschedule interrupt in the guest that receives it: our reading.
const TICK_NS: u64 = 1_000;
const RECEIVE_NS: u64 = 1_000;

/// A guest with its tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    kernel: ::guest::Kernel,
    first_world: u32,
    /// Of each vCPU, CPU time that it was given at its last step, and whether it halted then.
    steps: Vec<(u64, bool)>,
    /// pCPU on which each task ran last.
    last: Vec<Option<u32>>,
    places: Vec<Place>,
    hardware: HardwareSpec,
    wake_ns: u64,
}

impl Tasks {
    fn vcpu(&self, world: u32) -> u32 {
        world - self.first_world
    }

    /// What a task loses that goes on on a pCPU: the lines that its core's cache held, from the LLC
    /// that it shares with the last core, or else all of its set, from memory or, as the lines of
    /// a vCPU that the host moves, from the node where it ran before.
    fn refill_ns(&self, task: u32, pcpu: u32) -> u64 {
        let Some(last) = self.last[task as usize].filter(|last| *last != pcpu) else { return 0 };
        let (a, b) = (&self.places[last as usize], &self.places[pcpu as usize]);
        let (set, h) = (self.kernel.set_of(task), &self.hardware);
        if a.core == b.core {
            0
        } else if a.llc == b.llc {
            set.min(h.private_cache.0) / LINE * h.from_llc.ns()
        } else {
            let far = if a.node == b.node { h.from_memory } else { h.from_node };
            set.min(h.llc.0) / LINE * far.ns()
        }
    }

    /// What the guest did.
    pub(super) fn report(&self) -> views::Guest {
        let c = self.kernel.counts();
        views::Guest {
            rounds: self.kernel.rounds().map(|r| r.1).sum(),
            tasks: Some(views::GuestTasks {
                migrations: c.migrations,
                exec_migrations: c.exec_migrations,
                pulls: c.pulls,
                interrupts: c.interrupts,
            }),
            ..views::Guest::default()
        }
    }
}

impl Cast {
    /// Whether a world is a vCPU whose guest has tasks.
    #[inline]
    pub(crate) fn is_tasked(&self, world: u32) -> bool {
        self.actors[world as usize].tasked
    }

    fn tasks(&mut self, world: u32) -> Option<&mut Tasks> {
        self.tasks[self.actors[world as usize].vm as usize].as_deref_mut()
    }

    /// Its window opens: a vCPU looks whether it has something to run.
    pub(super) fn tasks_begin(&mut self, world: u32) -> Next {
        let behaviour = &mut self.actors[world as usize].behaviour;
        behaviour.open = true;
        behaviour.remaining = 0;
        Next::Work
    }

    /// Its window closes.
    pub(super) fn tasks_end(&mut self, world: u32) {
        if self.is_tasked(world) {
            self.tasks_look(world);
        }
    }

    /// A vCPU has had CPU time; it is to be asked at once what it does next.
    pub(crate) fn tasks_look(&mut self, world: u32) {
        let left = std::mem::take(&mut self.actors[world as usize].behaviour.remaining);
        let Some(tasks) = self.tasks(world) else { return };
        let vcpu = tasks.vcpu(world);
        let given = std::mem::take(&mut tasks.steps[vcpu as usize].0);
        tasks.kernel.worked(vcpu, given - left);
    }

    /// A vCPU runs again: from a halt it takes a while to its guest; other waits were stolen.
    pub(crate) fn tasks_run(&mut self, world: u32, now: u64) {
        let ready = now - self.actors[world as usize].ready_since;
        self.tasks_look(world);
        let Some(tasks) = self.tasks(world) else { return };
        let (vcpu, wake_ns) = (tasks.vcpu(world), tasks.wake_ns);
        if std::mem::take(&mut tasks.steps[vcpu as usize].1) {
            tasks.kernel.delays(vcpu, wake_ns);
        } else {
            tasks.kernel.stolen(vcpu, ready);
        }
    }

    /// When the first timer of a halted vCPU is due.
    pub(crate) fn tasks_timer(&mut self, world: u32) -> Option<u64> {
        let tasks = self.tasks(world)?;
        tasks.kernel.timer_of(tasks.vcpu(world))
    }

    /// A vCPU has done its last step: what it does next, and to its siblings.
    pub(super) fn tasks_done(&mut self, world: u32, kernel: &Kernel) -> (Next, Deed) {
        self.tasks_look(world);
        let behaviour = &mut self.actors[world as usize].behaviour;
        if !behaviour.open || behaviour.leaving {
            return (behaviour.done(kernel.now()), Deed::Nothing);
        }
        let Some(tasks) = self.tasks(world) else { return (Next::Halt, Deed::Nothing) };
        let (vcpu, now) = (tasks.vcpu(world), kernel.now());
        let mut step = tasks.kernel.next(vcpu, now);
        if let (Seat::Running(pcpu), Some(task)) = (kernel.seat(world), tasks.kernel.current(vcpu))
        {
            let refill = tasks.refill_ns(task, pcpu);
            tasks.last[task as usize] = Some(pcpu);
            if refill > 0 {
                tasks.kernel.delays(vcpu, refill);
                step = tasks.kernel.next(vcpu, now);
            }
        }
        let first = tasks.first_world;
        let deeds: Vec<(u32, bool)> = tasks
            .kernel
            .take_effects()
            .into_iter()
            .map(|effect| match effect {
                Effect::Interrupt(to) => (first + to, true),
                Effect::Timer(to) => (first + to, false),
            })
            .collect();
        let (given, next) = match step {
            Step::Work(ns) => (ns, Next::Work),
            Step::Halt(until) => (0, until.map_or(Next::Halt, Next::Sleep)),
        };
        tasks.steps[vcpu as usize] = (given, next != Next::Work);
        self.actors[world as usize].behaviour.remaining = given;
        (next, if deeds.is_empty() { Deed::Nothing } else { Deed::Reschedule(deeds) })
    }
}

/// The guests of a run that have tasks, by VM, the system group first.
pub(super) fn of(spec: &RunSpec, seed: u64) -> Vec<Option<Box<Tasks>>> {
    let places = Topology::regular(spec.host.shape()).map(|t| t.places().to_vec());
    let places = places.unwrap_or_default();
    let hardware = spec.hardware().cloned().unwrap_or_default();
    let (mut first_world, mut out) = (1, vec![None]);
    for vm in &spec.vms {
        out.push(vm.guest.as_ref().map(|guest| {
            let tasks = tasks_of(vm);
            let random = |name: &str| Stream::new(seed, &format!("{}/task/{name}", vm.name));
            Box::new(Tasks {
                last: vec![None; tasks.len()],
                kernel: ::guest::Kernel::new(terms(vm, guest), &tasks, random),
                first_world,
                steps: vec![(0, true); vm.vcpus as usize],
                places: places.clone(),
                hardware: hardware.clone(),
                wake_ns: guest.wake.ns(),
            })
        }));
        first_world += vm.vcpus;
    }
    out
}

fn terms(vm: &VmSpec, guest: &GuestSpec) -> Terms {
    Terms {
        vcpus: vm.vcpus,
        shown: (!guest.hidden).then(|| Shown {
            threads_per_core: guest.threads_per_core,
            vcpus_per_llc: guest.vcpus_per_llc.unwrap_or(vm.vcpus),
        }),
        exec_balance: guest.exec_balance,
        exec_counts_itself: guest.exec_counts_itself,
        wake_wide: guest.wake_wide,
        steal: guest.steal,
        tick_ns: guest.tick.ns(),
        switch_ns: SWITCH_NS,
        tick_cost_ns: TICK_NS,
        send_ns: guest.send.ns(),
        receive_ns: RECEIVE_NS,
    }
}

/// The tasks of a guest, each counted out.
fn tasks_of(vm: &VmSpec) -> Vec<TaskTerms> {
    let mut out = vec![];
    for task in &vm.tasks {
        for i in 0..task.count {
            let name = match task.count {
                1 => task.name.clone(),
                _ => format!("{}-{}", task.name, i + 1),
            };
            let (program, dist) = program(task, out.len() as u32, i % 2 == 0);
            let spread = match dist {
                Dist::Fixed => Spread::Fixed,
                Dist::Exponential => Spread::Exponential,
            };
            out.push(TaskTerms { name, program, spread, set: task.working_set.0 });
        }
    }
    out
}

/// What a task of this number does; `even` if it is the first end of its pipe.
fn program(task: &GuestTask, number: u32, even: bool) -> (Program, Dist) {
    match task.does {
        GuestWork::Burn => (Program::Burn, Dist::Fixed),
        GuestWork::Io { work, sleep, interrupts, dist } => {
            (Program::Io { work: work.ns(), sleep: sleep.ns(), interrupts }, dist)
        }
        GuestWork::Exec { work, dist } => (Program::Exec { work: work.ns() }, dist),
        GuestWork::Pipe { work, dist } => {
            let next = if even { number + 1 } else { number - 1 };
            (Program::Pipe { work: work.ns(), next, first: even }, dist)
        }
    }
}
