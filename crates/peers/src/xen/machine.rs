//! pCPUs as both schedulers of Xen see them: what runs where and since when, CPU time charged, the
//! end of a run. It decides nothing.

use super::WAITING;
use super::alarms::Alarms;
use contract::{Callback, KICK_IDLE, KICK_PREEMPT, SLICE_ENDLESS, Setup, Task};
use topology::Place;

/// A pCPU.
#[derive(Clone, Debug)]
struct Cpu {
    place: Place,
    online: bool,
    /// World that runs there, 0 for none; since when, and charged up to when, in ns.
    current: u32,
    since_ns: u64,
    charged_ns: u64,
    busy_ns: u64,
}

/// All pCPUs. The alarm of a pCPU's number is the end of the run there; others are the policy's.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    cpus: Vec<Cpu>,
    used_ns: Vec<u64>,
    pub(super) alarms: Alarms,
}

impl Machine {
    /// A host whose policy has so many alarms of its own, after those of the pCPUs.
    pub(super) fn new(setup: &Setup<'_>, alarms: usize) -> Machine {
        let cpu = |place: &Place| Cpu {
            place: *place,
            online: true,
            current: 0,
            since_ns: 0,
            charged_ns: 0,
            busy_ns: 0,
        };
        let cpus: Vec<Cpu> = setup.topology.places().iter().map(cpu).collect();
        let alarms = Alarms::new(cpus.len() + alarms);
        Machine { cpus, used_ns: vec![0; setup.worlds], alarms }
    }

    /// Number of pCPUs.
    pub(super) fn len(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// Where a pCPU is.
    pub(super) fn place(&self, pcpu: u32) -> Place {
        self.cpus[pcpu as usize].place
    }

    /// Whether two pCPUs are threads of one core.
    pub(super) fn share_core(&self, a: u32, b: u32) -> bool {
        self.place(a).core == self.place(b).core
    }

    /// Whether two pCPUs are on one socket.
    pub(super) fn share_socket(&self, a: u32, b: u32) -> bool {
        self.place(a).socket == self.place(b).socket
    }

    /// Whether a pCPU is on line.
    pub(super) fn is_online(&self, pcpu: u32) -> bool {
        self.cpus[pcpu as usize].online
    }

    /// A pCPU comes on line or goes off line.
    pub(super) fn set_online(&mut self, pcpu: u32, online: bool) {
        self.cpus[pcpu as usize].online = online;
    }

    /// Whether a thread may run on a pCPU, and the pCPU is on line.
    pub(super) fn may_run(&self, task: &Task, pcpu: u32) -> bool {
        self.is_online(pcpu) && task.may_run(pcpu)
    }

    /// The first pCPU after `from` for which `fits` holds, `from` itself the last of all.
    pub(super) fn cycle(&self, from: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
        let n = self.len();
        (1..=n).map(|i| (from + i) % n).find(|p| fits(*p))
    }

    /// World that runs on a pCPU, 0 for none.
    pub(super) fn current(&self, pcpu: u32) -> u32 {
        self.cpus[pcpu as usize].current
    }

    /// For how long the world there has run without interruption, in ns.
    pub(super) fn ran_ns(&self, pcpu: u32, now_ns: u64) -> u64 {
        now_ns - self.cpus[pcpu as usize].since_ns
    }

    /// CPU time charged to a world so far, in ns.
    pub(super) fn used_ns(&self, world: u32) -> u64 {
        self.used_ns[world as usize]
    }

    /// CPU time that a pCPU has spent on worlds so far, in ns.
    pub(super) fn busy_ns(&self, pcpu: u32) -> u64 {
        self.cpus[pcpu as usize].busy_ns
    }

    /// A world runs on its task's pCPU from now on; without a decision of ours, for `default_ns`.
    pub(super) fn starts(&mut self, k: &mut Callback<'_>, world: u32, default_ns: u64) {
        let pcpu = k.task(world).pcpu as u32;
        let cpu = &mut self.cpus[pcpu as usize];
        (cpu.current, cpu.since_ns, cpu.charged_ns) = (world, k.now_ns, k.now_ns);
        if !self.alarms.is_set(pcpu) {
            self.run_for(k, pcpu, default_ns);
        }
    }

    /// Nothing runs on a pCPU from now on; it has been charged.
    pub(super) fn stops(&mut self, pcpu: u32) {
        self.cpus[pcpu as usize].current = 0;
    }

    /// What the world on a pCPU has used since the last call, in ns.
    pub(super) fn charge(&mut self, pcpu: u32, now_ns: u64) -> u64 {
        let cpu = &mut self.cpus[pcpu as usize];
        if cpu.current == 0 {
            return 0;
        }
        let ran = now_ns - std::mem::replace(&mut cpu.charged_ns, now_ns);
        cpu.busy_ns += ran;
        self.used_ns[cpu.current as usize] += ran;
        ran
    }

    /// The pCPU schedules anew when this time has passed.
    pub(super) fn run_for(&mut self, k: &mut Callback<'_>, pcpu: u32, ns: u64) {
        let at = k.now_ns.saturating_add(ns);
        self.alarms.set(k, pcpu, at);
    }

    /// What runs on the dispatching pCPU next, `prev` or a world that waits, and for how long.
    pub(super) fn switch(&mut self, k: &mut Callback<'_>, pcpu: u32, next: u32, ns: u64) {
        if next == self.current(pcpu) {
            k.set_slice(next, SLICE_ENDLESS);
        } else {
            k.kernel.queue_take(k.tasks, WAITING, next);
        }
        self.run_for(k, pcpu, ns);
    }

    /// A world waits from now on.
    pub(super) fn wait(&self, k: &mut Callback<'_>, world: u32) {
        k.queue_insert(world, WAITING, SLICE_ENDLESS, u64::from(world));
    }

    /// Asks a pCPU to schedule.
    pub(super) fn reschedule(&self, k: &mut Callback<'_>, pcpu: u32) {
        let flags = if self.current(pcpu) == 0 { KICK_IDLE } else { KICK_PREEMPT };
        k.kernel.kick(pcpu, flags);
    }
}
