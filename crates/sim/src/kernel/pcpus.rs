//! Which world runs on which pCPU, or where else it is, and up to when its slice and its work are
//! accounted: the part of the kernel that the engine moves. It calls no scheduler.

use super::{Context, Hold, Kernel, Nudge, Recorder, Seat, Target, Told};
use contract::{Breach, Lock, Rule, Task};
use std::collections::BTreeMap;
use trace::Event;
use units::{PcpuId, PcpuSet};

/// What has passed on a pCPU since it was looked at last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elapsed {
    /// The world that runs there.
    pub(crate) world: u32,
    /// Time of its slice.
    pub(crate) ran_ns: u64,
    /// Time of its own work: less, where a switch or an interrupt came before.
    pub(crate) worked_ns: u64,
}

/// What the scheduler's own code takes, where it is a model that has locks.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    /// pCPU and ns.
    taken: Vec<(u32, u64)>,
    /// Of each lock the pCPU that had it last, and until when.
    locks: BTreeMap<u32, (u32, u64)>,
}

/// Time and places.
impl Kernel {
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// It is so late now.
    #[inline]
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = now;
    }

    /// Number of pCPUs.
    pub(crate) fn pcpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// Whether a pCPU is on line.
    #[inline]
    pub(crate) fn is_online(&self, pcpu: u32) -> bool {
        self.cpus.get(pcpu as usize).is_some_and(|c| !c.offline)
    }

    /// A pCPU is on line from now on, or off line.
    pub(crate) fn set_online(&mut self, pcpu: u32, online: bool) {
        self.cpus[pcpu as usize].offline = !online;
        self.set_idle(pcpu, online);
    }

    /// Whether a real-time task runs on a pCPU.
    #[inline]
    pub(crate) fn is_taken(&self, pcpu: u32) -> bool {
        self.cpus[pcpu as usize].taken
    }

    /// A real-time task runs on a pCPU from now on, or no longer.
    pub(crate) fn set_taken(&mut self, pcpu: u32, taken: bool) {
        self.cpus[pcpu as usize].taken = taken;
    }

    /// The worlds in the local queue of a pCPU.
    pub(crate) fn local(&self, pcpu: u32) -> impl Iterator<Item = u32> + '_ {
        self.cpus[pcpu as usize].local.iter().copied()
    }

    /// All that are on line.
    pub(crate) fn online(&self) -> PcpuSet {
        (0..self.pcpus()).filter(|p| self.is_online(*p)).map(|p| PcpuId(p as u16)).collect()
    }

    /// The first pCPU on line where a task may run, as the kernel's own fallback.
    pub(crate) fn fallback(&self, task: &Task) -> u32 {
        let all = (0..self.pcpus()).filter(|p| self.is_online(*p));
        all.clone().find(|p| task.may_run(*p)).or_else(|| { all }.next()).unwrap_or(0)
    }

    /// Takes the world that is first in a local queue into custody.
    pub(crate) fn pop_local(&mut self, pcpu: u32) -> Option<u32> {
        let world = self.cpus[pcpu as usize].local.pop_front()?;
        self.seats[world as usize] = Seat::Custody;
        Some(world)
    }

    /// Where a world is.
    #[inline]
    pub(crate) fn seat(&self, world: u32) -> Seat {
        self.seats[world as usize]
    }

    /// A world that is in no queue goes there.
    #[inline]
    pub(crate) fn move_to(&mut self, world: u32, seat: Seat) {
        self.seats[world as usize] = seat;
    }

    /// Whether a world is born, and not gone.
    pub(crate) fn is_there(&self, world: u32) -> bool {
        self.seat(world) != Seat::Off
    }

    /// Whether a world runs.
    pub(crate) fn runs(&self, world: u32) -> bool {
        matches!(self.seat(world), Seat::Running(_))
    }

    /// Whether a world runs, and what comes before its own work there is over.
    pub(crate) fn works(&self, world: u32) -> bool {
        match self.seat(world) {
            Seat::Running(pcpu) => self.cpus[pcpu as usize].work_from <= self.now,
            _ => false,
        }
    }

    /// Whether a world is in a queue, of a pCPU or of the scheduler.
    pub(crate) fn queues(&self, world: u32) -> bool {
        matches!(self.seat(world), Seat::Queue(_) | Seat::Local(_))
    }
}

/// What runs on a pCPU.
impl Kernel {
    /// The world that runs there, 0 when idle.
    #[inline]
    pub(crate) fn current(&self, pcpu: u32) -> u32 {
        self.cpus[pcpu as usize].current
    }

    /// The world that is first in its local queue.
    #[inline]
    pub(crate) fn first_local(&self, pcpu: u32) -> Option<u32> {
        self.cpus[pcpu as usize].local.front().copied()
    }

    /// A world from its local queue runs there from now on; its own work begins after the switch.
    #[inline]
    pub(crate) fn switch_to(&mut self, pcpu: u32, world: u32, switch_ns: u64) {
        self.take_local(world, pcpu);
        self.seats[world as usize] = Seat::Running(pcpu);
        let cpu = &mut self.cpus[pcpu as usize];
        cpu.current = world;
        cpu.slice_from = self.now;
        cpu.work_from = self.now + switch_ns;
    }

    /// Nothing runs there from now on.
    #[inline]
    pub(crate) fn switch_off(&mut self, pcpu: u32) {
        self.cpus[pcpu as usize].current = 0;
    }

    /// The scheduler is to learn whether a pCPU idles: whether that is news.
    #[inline]
    pub(crate) fn turns_idle(&mut self, pcpu: u32, idle: bool) -> bool {
        std::mem::replace(&mut self.cpus[pcpu as usize].idle, idle) != idle
    }

    /// Accounts what runs on a pCPU up to now.
    #[inline]
    pub(crate) fn elapse(&mut self, pcpu: u32) -> Option<Elapsed> {
        let (now, cpu) = (self.now, &mut self.cpus[pcpu as usize]);
        if cpu.current == 0 {
            return None;
        }
        let ran_ns = now - std::mem::replace(&mut cpu.slice_from, now);
        let worked_ns = now.saturating_sub(cpu.work_from);
        cpu.work_from = cpu.work_from.max(now);
        Some(Elapsed { world: cpu.current, ran_ns, worked_ns })
    }

    /// An interrupt takes time from the work of what runs there.
    #[inline]
    pub(crate) fn delay(&mut self, pcpu: u32, ns: u64) {
        self.cpus[pcpu as usize].work_from += ns;
    }

    /// When the work of what runs there goes on.
    #[inline]
    pub(crate) fn work_goes_on(&self, pcpu: u32) -> u64 {
        self.cpus[pcpu as usize].work_from.max(self.now)
    }
}

/// Callbacks, and what they ask for.
impl Kernel {
    /// Whether a trace is recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Writes into the trace what no scheduler knows.
    pub(crate) fn say(&mut self, kind: impl FnOnce() -> trace::Kind) {
        let now = self.now;
        if let Some(r) = &mut self.recorder {
            r.say(now, kind());
        }
    }

    /// Writes into the trace what no scheduler knows of a pCPU.
    pub(crate) fn say_on(&mut self, pcpu: u32, kind: trace::Kind) {
        let (ns, pcpu) = (self.now, Some(PcpuId(pcpu as u16)));
        if let Some(r) = &mut self.recorder {
            r.push(&trace::Event { ns, pcpu, kind });
        }
    }

    /// A callback begins that may insert or move worlds, or (`Context::None`) has ended.
    #[inline]
    pub(crate) fn set_context(&mut self, context: Context) {
        self.context = context;
    }

    /// The insertion that select asked for, in place of enqueue.
    #[inline]
    pub(crate) fn take_direct(&mut self) -> Option<(Target, u64)> {
        self.direct.take()
    }

    /// Counts insertions anew.
    #[inline]
    pub(crate) fn reset_inserted(&mut self) {
        self.inserted = 0;
    }

    /// Insertions since they were counted anew.
    #[inline]
    pub(crate) fn inserted(&self) -> u32 {
        self.inserted
    }

    /// A pCPU is to schedule.
    #[inline]
    pub(crate) fn reschedule(&mut self, pcpu: u32) {
        self.nudges.push((pcpu, Nudge::Reschedule));
    }

    /// What is to happen to pCPUs, by position.
    #[inline]
    pub(crate) fn nudge(&self, i: usize) -> Option<(u32, Nudge)> {
        self.nudges.get(i).copied()
    }

    #[inline]
    pub(crate) fn clear_nudges(&mut self) {
        self.nudges.clear();
    }

    /// Passes on the timers that the scheduler has armed, with the time from now.
    #[inline]
    pub(crate) fn take_arms(&mut self, mut arm: impl FnMut(u32, u64)) {
        self.arms.iter().for_each(|(timer, after)| arm(*timer, *after));
        self.arms.clear();
    }

    /// Puts a world with some slice left back to the head of its pCPU's local queue.
    pub(crate) fn put_back(&mut self, world: u32, pcpu: u32) {
        self.seats[world as usize] = Seat::Local(pcpu);
        self.cpus[pcpu as usize].local.push_front(world);
    }

    /// A pCPU waits for one of the scheduler's locks and keeps it.
    pub(super) fn locked(&mut self, pcpu: u32, of: Lock) {
        if pcpu >= self.pcpus() {
            let what = format!("seen time of pCPU {pcpu}, allowed 0..{}", self.pcpus() - 1);
            return self.breach(Rule::UnknownPcpu, None, Some(pcpu), what);
        }
        let from = self.now + of.waits_ns;
        let (by, until) =
            self.spent.locks.insert(of.id, (pcpu, from + of.keeps_ns)).unwrap_or((0, 0));
        if until > from {
            let what = format!(
                "seen lock {} kept from {from} ns on, allowed from {until} ns on: pCPU {by} has it",
                of.id
            );
            return self.breach(Rule::Lock, None, Some(pcpu), what);
        }
        self.spent.taken.push((pcpu, of.waits_ns + of.keeps_ns));
    }

    /// What the scheduler itself has taken of a pCPU's time, in ns, one after the other.
    #[inline]
    pub(crate) fn take_spent(&mut self) -> Option<(u32, u64)> {
        self.spent.taken.pop()
    }

    /// Passes on what the scheduler holds back since the last time, and what no longer.
    #[inline]
    pub(crate) fn take_holds(&mut self, mut held: impl FnMut(&Told)) {
        self.told.iter().for_each(&mut held);
        self.told.clear();
    }

    /// What keeps a world from every pCPU.
    pub(crate) fn hold_of(&self, world: u32) -> Hold {
        self.holds[world as usize]
    }

    /// A world runs: nothing holds it back.
    #[inline]
    pub(crate) fn unhold(&mut self, world: u32) {
        self.holds[world as usize] = Hold::None;
    }

    /// The first breach since it was taken last.
    #[inline]
    pub(crate) fn take_breach(&mut self) -> Option<Breach> {
        self.breach.take()
    }

    /// The trace goes to this recorder from now on.
    pub(crate) fn record_by(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Puts an event into the trace, if one is recorded.
    pub(crate) fn record(&mut self, event: &Event) {
        if let Some(r) = &mut self.recorder {
            r.push(event);
        }
    }

    /// The trace ends.
    pub(crate) fn take_recorder(&mut self) -> Option<Recorder> {
        self.recorder.take()
    }
}
