//! The kernel's side of the contract in virtual time: queues, custody and the calls a scheduler may
//! make; it chooses nothing.
//!
//! Rules and order follow sched_ext (kernel/sched/ext.c): a task is in the scheduler's custody only
//! between select and the insertion it leads to; an insertion is legal only from select, enqueue
//! and dispatch; a local queue takes only tasks that may run on its pCPU.

mod hiding;

use crate::contract::{Breach, Rule};
use crate::mutant::{Fault, Mutant};
use crate::queues::{Local, Ordered};
use crate::recorder::Recorder;
use sched_core::{KICK_IDLE, KICK_PREEMPT, PCPUS_MAX, Platform, Tasks, TraceRecord};

/// Where a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// Not born yet, or gone.
    Off,
    Asleep,
    /// In the scheduler's custody: about to be queued.
    Custody,
    Local(u32),
    Queue(u32),
    Running(u32),
}

/// The callback under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    None,
    Select(u32),
    Enqueue(u32),
    Dispatch(u32),
    /// A timer of the scheduler's own: no runqueue is locked, so worlds may be moved out of ordered
    /// queues.
    Timer,
}

/// Where an insertion goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Local,
    On { pcpu: u32, preempt: bool },
    Queue { id: u64, key: u64 },
}

/// What happens to a pCPU after the callback under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nudge {
    /// Something came into its local queue while it was idle, or its slice was ended for it.
    Reschedule,
    Kick(u32),
}

/// A pCPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    /// World running, 0 when idle.
    pub(crate) current: u32,
    pub(crate) local: Local,
    /// Whether the scheduler was told that it is idle.
    pub(crate) idle: bool,
    /// The slice of `current` is accounted up to here.
    pub(crate) slice_from: u64,
    /// Work of `current` is accounted up to here, or begins here.
    pub(crate) work_from: u64,
    /// Time that went to switches and interrupts instead of work.
    pub(crate) system_ns: u64,
}

/// The kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) now: u64,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) seats: Vec<Seat>,
    ordered: Vec<Ordered>,
    /// Slot of the first queue of co-stopped vCPUs.
    costop: usize,
    pub(crate) context: Context,
    /// Insertion made in select: it is carried out in place of enqueue.
    pub(crate) direct: Option<(Target, u64)>,
    /// Insertions since the callback began.
    pub(crate) inserted: u32,
    pub(crate) nudges: Vec<(u32, Nudge)>,
    /// READY worlds that have been parked at a limit, or until all of their VM may start, (true) or
    /// left it, in order.
    pub(crate) held_back: Vec<(u32, bool)>,
    /// Which worlds are in COSTOP, and those that have left it since that was told.
    pub(crate) costopped: Vec<bool>,
    pub(crate) costarted: Vec<u32>,
    pub(crate) breach: Option<Breach>,
    pub(crate) fault: Fault,
    /// Writes the trace, if one is wanted.
    pub(crate) recorder: Option<Recorder>,
    fifo: u64,
    /// The world that `Mutant::Withheld` is after, and until when it hides it, once it does.
    withheld: Option<(u32, Option<u64>)>,
}

impl Kernel {
    pub(crate) fn new(
        pcpus: usize,
        worlds: usize,
        limiters: usize,
        vms: usize,
        fault: Fault,
    ) -> Kernel {
        Kernel {
            now: 0,
            cpus: vec![Cpu::default(); pcpus],
            seats: vec![Seat::Off; worlds],
            ordered: vec![Ordered::default(); 2 * pcpus + limiters + vms],
            costop: 2 * pcpus + limiters,
            context: Context::None,
            direct: None,
            inserted: 0,
            nudges: Vec::with_capacity(64),
            held_back: vec![],
            costopped: vec![false; worlds],
            costarted: vec![],
            breach: None,
            fault,
            recorder: None,
            fifo: 0,
            withheld: None,
        }
    }

    /// Remembers the first breach; the engine stops after the event under way.
    #[cold]
    pub(crate) fn breach(
        &mut self,
        rule: Rule,
        world: Option<u32>,
        pcpu: Option<u32>,
        what: String,
    ) {
        let at_ns = self.now;
        self.breach.get_or_insert(Breach { rule, what, world, pcpu, at_ns });
    }

    /// Puts a remark into the trace, if one is recorded.
    pub(crate) fn mark(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(r) = &mut self.recorder {
            r.mark(now, text());
        }
    }

    /// Slot of an ordered queue: `QUEUE_VM` of each pCPU, then `QUEUE_SYSTEM`, then `QUEUE_PARKED`
    /// of each limit, then `QUEUE_COSTOP` of each VM.
    fn slot(&self, queue: u64) -> Option<usize> {
        let n = self.cpus.len() as u64;
        let max = u64::from(PCPUS_MAX);
        let (base, i, end) = match queue / max {
            0 => (0, queue, n),
            1 => (n, queue - max, n),
            2 => (2 * n, queue - 2 * max, self.costop as u64 - 2 * n),
            _ => (self.costop as u64, queue - 3 * max, (self.ordered.len() - self.costop) as u64),
        };
        (i < end).then_some((base + i) as usize)
    }

    fn put_ordered(&mut self, slot: usize, key: u64, world: u32) {
        self.ordered[slot].insert(key, world);
        self.seats[world as usize] = Seat::Queue(slot as u32);
        if slot >= 2 * self.cpus.len() && !self.costopped[world as usize] {
            self.held_back.push((world, true));
        }
    }

    /// A world has left a queue where something held it back.
    fn let_go(&mut self, slot: usize, world: u32) {
        if slot < 2 * self.cpus.len() {
            return;
        }
        if std::mem::take(&mut self.costopped[world as usize]) {
            self.costarted.push(world);
        } else {
            self.held_back.push((world, false));
        }
    }

    fn queue(&mut self, queue: u64) -> Option<usize> {
        let slot = self.slot(queue);
        if slot.is_none() {
            self.breach(
                Rule::UnknownQueue,
                None,
                None,
                format!(
                    "seen queue {queue:#x}, allowed the two queues of each pCPU and one a \
                    limit and a VM"
                ),
            );
        }
        slot
    }

    /// Checks who inserts what from where, and takes the insertion in.
    fn insert(&mut self, tasks: &mut Tasks, world: u32, target: Target, slice_ns: u64) {
        let Some(seat) = self.seats.get(world as usize).copied() else {
            return self.breach(
                Rule::UnknownWorld,
                Some(world),
                None,
                "seen an insertion of a world that does not exist".to_owned(),
            );
        };
        let own = match self.context {
            Context::Select(w) | Context::Enqueue(w) => w == world,
            Context::Dispatch(_) => true,
            Context::None | Context::Timer => false,
        };
        if !own {
            let what = format!(
                "seen an insertion from {:?}, allowed from its own select and enqueue, and from \
                    dispatch",
                self.context
            );
            return self.breach(Rule::Context, Some(world), None, what);
        }
        if let Context::Select(_) = self.context {
            if self.direct.replace((target, slice_ns)).is_some() {
                self.breach(
                    Rule::Custody,
                    Some(world),
                    None,
                    "seen two insertions in one select, allowed one".to_owned(),
                );
            }
            return;
        }
        if seat != Seat::Custody {
            let what = format!(
                "seen an insertion while it is {seat:?}, allowed only in the scheduler's custody"
            );
            return self.breach(Rule::Custody, Some(world), None, what);
        }
        self.put(tasks, world, target, slice_ns);
    }

    /// Puts a world in custody where it was inserted.
    pub(crate) fn put(&mut self, tasks: &mut Tasks, world: u32, target: Target, slice_ns: u64) {
        let task = &mut tasks[world as usize];
        task.slice_ns = if slice_ns == 0 { task.slice_ns.max(1) } else { slice_ns };
        if self.fault.is(Mutant::EndlessSlice) {
            task.slice_ns = u64::MAX;
        }
        self.inserted += 1;
        match target {
            Target::Queue { id, key } => {
                let Some(slot) = self.queue(id) else { return };
                self.fifo += 1;
                task.key = if self.fault.is(Mutant::Fifo) { (1 << 50) + self.fifo } else { key };
                let key = task.key;
                if self.withheld.is_none()
                    && slot < self.cpus.len()
                    && self.fault.strikes(Mutant::Withheld, 20)
                {
                    self.withheld = Some((world, None));
                }
                self.put_ordered(slot, key, world);
            }
            Target::Local => self.put_local(tasks, world, tasks[world as usize].pcpu as u32, None),
            Target::On { pcpu, preempt } => self.put_local(tasks, world, pcpu, Some(preempt)),
        }
    }

    /// At the tail of a local queue, or (`head`) at its head with or without preemption.
    fn put_local(&mut self, tasks: &mut Tasks, world: u32, mut pcpu: u32, head: Option<bool>) {
        if self.fault.is(Mutant::WrongPcpu) {
            pcpu = (pcpu + 1) % self.cpus.len() as u32;
        }
        if !self.may_run(tasks, world, pcpu) {
            return;
        }
        tasks[world as usize].pcpu = pcpu as i32;
        self.seats[world as usize] = Seat::Local(pcpu);
        let cpu = &mut self.cpus[pcpu as usize];
        match head {
            Some(_) => cpu.local.push_front(world),
            None => cpu.local.push_back(world),
        }
        let current = cpu.current;
        if current == 0 {
            self.nudges.push((pcpu, Nudge::Reschedule));
        } else if head == Some(true) && current != world {
            tasks[current as usize].slice_ns = 0;
            self.nudges.push((pcpu, Nudge::Reschedule));
        }
    }

    fn may_run(&mut self, tasks: &Tasks, world: u32, pcpu: u32) -> bool {
        if pcpu as usize >= self.cpus.len() {
            let what = format!("seen pCPU {pcpu}, allowed 0..{}", self.cpus.len() - 1);
            self.breach(Rule::UnknownPcpu, Some(world), Some(pcpu), what);
            return false;
        }
        if !tasks[world as usize].may_run(pcpu) {
            let what = "seen in the local queue of a pCPU where it may not run".to_owned();
            self.breach(Rule::Affinity, Some(world), Some(pcpu), what);
            return false;
        }
        true
    }

    /// Takes a world out of an ordered queue, from dispatch or a timer; the queue's slot, none if
    /// it is not there.
    fn leave_queue(&mut self, tasks: &mut Tasks, queue: u64, world: u32) -> Option<usize> {
        if !matches!(self.context, Context::Dispatch(_) | Context::Timer) {
            let what = format!(
                "seen a move between queues from {:?}, allowed from dispatch and timers",
                self.context
            );
            self.breach(Rule::Context, Some(world), None, what);
            return None;
        }
        let slot = self.queue(queue)?;
        if self.is_stuck(slot) {
            return None;
        }
        let here = self.seats.get(world as usize) == Some(&Seat::Queue(slot as u32));
        let left = here && self.ordered[slot].take(tasks[world as usize].key, world);
        if left {
            self.let_go(slot, world);
        }
        left.then_some(slot)
    }

    /// Puts a world with some slice left back to the head of its pCPU's local queue.
    pub(crate) fn put_back(&mut self, world: u32, pcpu: u32) {
        self.seats[world as usize] = Seat::Local(pcpu);
        self.cpus[pcpu as usize].local.push_front(world);
    }

    /// Takes a world that is about to run out of a local queue.
    pub(crate) fn take_local(&mut self, world: u32, pcpu: u32) {
        let local = &mut self.cpus[pcpu as usize].local;
        if local.front() == Some(&world) {
            local.pop_front();
        } else {
            local.retain(|w| *w != world);
        }
    }

    /// Worlds in any queue, each with its place: for audits.
    pub(crate) fn queued(&self) -> impl Iterator<Item = (u32, Seat)> + '_ {
        let ordered = self
            .ordered
            .iter()
            .enumerate()
            .flat_map(|(i, q)| q.worlds().map(move |w| (w, Seat::Queue(i as u32))));
        let local = self
            .cpus
            .iter()
            .enumerate()
            .flat_map(|(i, c)| c.local.iter().map(move |w| (*w, Seat::Local(i as u32))));
        ordered.chain(local)
    }
}

impl Platform for Kernel {
    fn insert_local(&mut self, tasks: &mut Tasks, world: u32, slice_ns: u64) {
        self.insert(tasks, world, Target::Local, slice_ns);
    }

    fn insert_on(
        &mut self,
        tasks: &mut Tasks,
        world: u32,
        pcpu: u32,
        slice_ns: u64,
        preempt: bool,
    ) {
        self.insert(tasks, world, Target::On { pcpu, preempt }, slice_ns);
    }

    fn queue_insert(&mut self, tasks: &mut Tasks, world: u32, queue: u64, slice_ns: u64, key: u64) {
        self.insert(tasks, world, Target::Queue { id: queue, key }, slice_ns);
    }

    fn local_length(&mut self, pcpu: u32) -> u32 {
        self.cpus.get(pcpu as usize).map_or(0, |c| c.local.len() as u32)
    }

    fn queue_at(&mut self, queue: u64, i: u32) -> u32 {
        if self.hidden(queue) {
            return 0;
        }
        let Some(slot) = self.queue(queue) else { return 0 };
        let mut i = i as usize;
        if self.fault.is(Mutant::Fifo) && i > 0 {
            return 0;
        }
        if self.withheld.is_some() {
            self.withhold(self.ordered[slot].at(i));
        }
        if let Some(hidden) = self.unfindable() {
            i += usize::from(self.ordered[slot].worlds().take(i + 1).any(|w| w == hidden));
        }
        self.ordered[slot].at(i)
    }

    fn queue_take(&mut self, tasks: &mut Tasks, queue: u64, world: u32) -> bool {
        let Context::Dispatch(pcpu) = self.context else {
            let what = format!(
                "seen a move to the local queue from {:?}, allowed from dispatch",
                self.context
            );
            self.breach(Rule::Context, Some(world), None, what);
            return false;
        };
        let Some(slot) = self.queue(queue) else { return false };
        if self.is_stuck(slot) {
            return false;
        }
        if self.seats.get(world as usize) != Some(&Seat::Queue(slot as u32))
            || !self.may_run(tasks, world, pcpu)
        {
            return false;
        }
        let task = &mut tasks[world as usize];
        if self.fault.strikes(Mutant::DoubleInsert, 50) {
            self.cpus[pcpu as usize].local.push_back(world);
            return true;
        }
        if !self.ordered[slot].take(task.key, world) {
            self.breach(
                Rule::Custody,
                Some(world),
                Some(pcpu),
                "seen outside the queue it was put into".to_owned(),
            );
            return false;
        }
        task.pcpu = pcpu as i32;
        self.let_go(slot, world);
        self.seats[world as usize] = Seat::Local(pcpu);
        self.cpus[pcpu as usize].local.push_back(world);
        true
    }

    fn queue_move(&mut self, tasks: &mut Tasks, queue: u64, world: u32, to: u64) -> bool {
        let Some(from) = self.leave_queue(tasks, queue, world) else { return false };
        let Some(slot) = self.queue(to) else { return false };
        let key = tasks[world as usize].key;
        self.put_ordered(slot, key, world);
        from != slot
    }

    fn kick(&mut self, pcpu: u32, flags: u32) {
        if pcpu as usize >= self.cpus.len() {
            let what = format!("seen a kick of pCPU {pcpu}, allowed 0..{}", self.cpus.len() - 1);
            return self.breach(Rule::UnknownPcpu, None, Some(pcpu), what);
        }
        if flags & !(KICK_IDLE | KICK_PREEMPT) != 0 {
            return self.breach(
                Rule::Context,
                None,
                Some(pcpu),
                format!("seen a kick with flags {flags:#x}, allowed KICK_IDLE and KICK_PREEMPT"),
            );
        }
        self.nudges.push((pcpu, Nudge::Kick(flags)));
    }

    fn trace(&mut self, record: &TraceRecord) {
        if let Some(r) = &mut self.recorder {
            r.record(record);
        }
    }

    fn assert_failed(&mut self, what: &str, file: &str, line: u32) {
        self.breach(
            Rule::Assertion,
            None,
            None,
            format!("seen that '{what}' does not hold at {file}:{line}"),
        );
    }
}

#[cfg(test)]
mod tests;
