//! The kernel's side of the contract in virtual time: queues, custody and the calls a scheduler may
//! make; it chooses nothing.
//!
//! Rules and order follow sched_ext (kernel/sched/ext.c): a task is in the scheduler's custody only
//! between select and the insertion it leads to; an insertion is legal only from select, enqueue
//! and dispatch; a local queue takes only tasks that may run on its pCPU.

mod pcpus;

pub(crate) use pcpus::Elapsed;
use pcpus::Spent;

use crate::queues::{Local, Ordered};
use crate::recorder::Recorder;
use contract::{
    Breach, Hold, KICK_IDLE, KICK_PREEMPT, Lock, QUEUES_MAX, Rule, TIMERS_MAX, Task, Tasks,
    TraceRecord,
};
use dice::Stream;

/// Position of a queue that was not created.
const NOWHERE: u32 = u32::MAX;

/// Where a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// Not born yet, or gone.
    Off,
    Asleep,
    /// In the scheduler's custody: about to be queued.
    Custody,
    /// In the local queue of a pCPU.
    Local(u32),
    /// In the ordered queue of this id.
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
struct Cpu {
    offline: bool,
    /// A real-time task runs there.
    taken: bool,
    /// World running, 0 when idle.
    current: u32,
    local: Local,
    /// Whether the scheduler knows it as idle.
    idle: bool,
    /// The slice of `current` is accounted up to here.
    slice_from: u64,
    /// Work of `current` is accounted up to here, or begins here.
    work_from: u64,
}

/// What keeps a world from every pCPU has changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) world: u32,
    pub(crate) from: Hold,
    pub(crate) to: Hold,
    pub(crate) at_ns: u64,
    /// The world is in the local queue of a pCPU.
    pub(crate) taken: bool,
}

/// The kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    now: u64,
    cpus: Vec<Cpu>,
    seats: Vec<Seat>,
    /// Ordered queues with their ids, in the order of creation, and the position of each id.
    ordered: Vec<(u32, Ordered)>,
    positions: Vec<u32>,
    context: Context,
    /// Insertion made in select: it is carried out in place of enqueue.
    direct: Option<(Target, u64)>,
    /// Insertions since the callback began.
    inserted: u32,
    nudges: Vec<(u32, Nudge)>,
    /// What keeps each world from every pCPU, and the changes of that since the last report.
    holds: Vec<Hold>,
    told: Vec<Told>,
    /// Timers of the scheduler that it has armed, with the time from now.
    arms: Vec<(u32, u64)>,
    /// Time that the scheduler itself takes, and its locks.
    spent: Spent,
    /// Idle pCPUs that are not taken.
    idle: Vec<u64>,
    random: Stream,
    breach: Option<Breach>,
    /// Writes the trace, if one is wanted.
    recorder: Option<Recorder>,
}

impl Kernel {
    pub(crate) fn new(pcpus: usize, worlds: usize, random: Stream) -> Kernel {
        Kernel {
            now: 0,
            cpus: vec![Cpu::default(); pcpus],
            seats: vec![Seat::Off; worlds],
            ordered: vec![],
            positions: vec![],
            context: Context::None,
            direct: None,
            inserted: 0,
            nudges: Vec::with_capacity(64),
            holds: vec![Hold::None; worlds],
            told: vec![],
            arms: vec![],
            spent: Spent::default(),
            idle: vec![0; pcpus.div_ceil(64)],
            random,
            breach: None,
            recorder: None,
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
        self.say(|| trace::Kind::Mark { text: text() });
    }

    fn put_ordered(&mut self, position: usize, key: u64, world: u32) {
        let (id, queue) = &mut self.ordered[position];
        queue.insert(key, world);
        self.seats[world as usize] = Seat::Queue(*id);
    }

    /// Position of an ordered queue.
    fn queue(&mut self, queue: u64) -> Option<usize> {
        let position = self.positions.get(queue as usize).copied().unwrap_or(NOWHERE);
        if position != NOWHERE {
            return Some(position as usize);
        }
        let what = format!("seen queue {queue:#x}, allowed only queues that it has created");
        self.breach(Rule::UnknownQueue, None, None, what);
        None
    }

    /// A pCPU idles from now on, or no longer.
    pub(crate) fn set_idle(&mut self, pcpu: u32, idle: bool) {
        let (word, bit) = (&mut self.idle[pcpu as usize / 64], 1 << (pcpu % 64));
        *word = if idle { *word | bit } else { *word & !bit };
    }

    /// Checks which callback inserts what from where, and takes the insertion in.
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
        self.inserted += 1;
        match target {
            Target::Queue { id, key } => {
                let Some(position) = self.queue(id) else { return };
                tasks[world as usize].key = key;
                self.put_ordered(position, key, world);
            }
            Target::Local => self.put_local(tasks, world, tasks[world as usize].pcpu as u32, None),
            Target::On { pcpu, preempt } => self.put_local(tasks, world, pcpu, Some(preempt)),
        }
    }

    /// At the tail of a local queue, or (`head`) at its head with or without preemption.
    fn put_local(&mut self, tasks: &mut Tasks, world: u32, pcpu: u32, head: Option<bool>) {
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
        if !self.is_online(pcpu) {
            let what = "seen in the local queue of a pCPU that is off line".to_owned();
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

    /// Takes a world out of an ordered queue, from dispatch or a timer; the queue's position, none
    /// if it is not there.
    fn leave_queue(&mut self, tasks: &mut Tasks, queue: u64, world: u32) -> Option<usize> {
        if !matches!(self.context, Context::Dispatch(_) | Context::Timer) {
            let what = format!(
                "seen a move between queues from {:?}, allowed from dispatch and timers",
                self.context
            );
            self.breach(Rule::Context, Some(world), None, what);
            return None;
        }
        let position = self.queue(queue)?;
        let here = self.seats.get(world as usize) == Some(&Seat::Queue(queue as u32));
        let left = here && self.ordered[position].1.take(tasks[world as usize].key, world);
        left.then_some(position)
    }

    /// Takes a world that is about to run out of a local queue.
    fn take_local(&mut self, world: u32, pcpu: u32) {
        let local = &mut self.cpus[pcpu as usize].local;
        if local.front() == Some(&world) {
            local.pop_front();
        } else {
            local.retain(|w| *w != world);
        }
    }

    /// Worlds in any queue, each with its place: for audits.
    pub(crate) fn queued(&self) -> impl Iterator<Item = (u32, Seat)> + '_ {
        let ordered =
            self.ordered.iter().flat_map(|(id, q)| q.worlds().map(move |w| (w, Seat::Queue(*id))));
        let local = self
            .cpus
            .iter()
            .enumerate()
            .flat_map(|(i, c)| c.local.iter().map(move |w| (*w, Seat::Local(i as u32))));
        ordered.chain(local)
    }
}

impl contract::Kernel for Kernel {
    fn create_queue(&mut self, queue: u64) {
        if queue >= QUEUES_MAX {
            let what = format!("seen queue {queue:#x}, allowed below {QUEUES_MAX:#x}");
            return self.breach(Rule::UnknownQueue, None, None, what);
        }
        let at = queue as usize;
        self.positions.resize(self.positions.len().max(at + 1), NOWHERE);
        if self.positions[at] == NOWHERE {
            self.positions[at] = self.ordered.len() as u32;
            self.ordered.push((queue as u32, Ordered::default()));
        }
    }

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
        self.queue(queue).map_or(0, |position| self.ordered[position].1.at(i as usize))
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
        let Some(position) = self.queue(queue) else { return false };
        if self.seats.get(world as usize) != Some(&Seat::Queue(queue as u32))
            || !self.may_run(tasks, world, pcpu)
        {
            return false;
        }
        let task = &mut tasks[world as usize];
        if !self.ordered[position].1.take(task.key, world) {
            self.breach(
                Rule::Custody,
                Some(world),
                Some(pcpu),
                "seen outside the queue it was put into".to_owned(),
            );
            return false;
        }
        task.pcpu = pcpu as i32;
        self.seats[world as usize] = Seat::Local(pcpu);
        self.cpus[pcpu as usize].local.push_back(world);
        true
    }

    fn queue_move(&mut self, tasks: &mut Tasks, queue: u64, world: u32, to: u64) -> bool {
        let Some(from) = self.leave_queue(tasks, queue, world) else { return false };
        let Some(position) = self.queue(to) else { return false };
        let key = tasks[world as usize].key;
        self.put_ordered(position, key, world);
        from != position
    }

    fn queue_return(&mut self, tasks: &mut Tasks, queue: u64, world: u32) -> bool {
        if self.leave_queue(tasks, queue, world).is_none() {
            return false;
        }
        let pcpu = tasks[world as usize].pcpu as u32;
        self.seats[world as usize] = Seat::Local(pcpu);
        self.cpus[pcpu as usize].local.push_back(world);
        self.nudges.push((pcpu, Nudge::Reschedule));
        true
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

    fn pick_idle(&mut self, task: &Task, prev: u32) -> Option<u32> {
        let free = |p: u32, idle: &[u64]| {
            task.may_run(p) && idle.get(p as usize / 64).is_some_and(|w| w >> (p % 64) & 1 == 1)
        };
        let mut all = std::iter::once(prev).chain(0..self.cpus.len() as u32);
        let found = all.find(|p| free(*p, &self.idle))?;
        self.set_idle(found, false);
        Some(found)
    }

    fn hold(&mut self, world: u32, hold: Hold) {
        let Some(held) = self.holds.get_mut(world as usize) else { return };
        let before = *held;
        // One that is co-stopped stays so, whatever queue it waits in.
        if before != Hold::Costopped || hold == Hold::None {
            *held = hold;
        }
        let taken = matches!(self.seats[world as usize], Seat::Local(_));
        self.told.push(Told { world, from: before, to: hold, at_ns: self.now, taken });
    }

    fn arm(&mut self, timer: u32, after_ns: u64) {
        if timer >= TIMERS_MAX {
            let what = format!("seen timer {timer}, allowed 0..{}", TIMERS_MAX - 1);
            return self.breach(Rule::Context, None, None, what);
        }
        self.arms.push((timer, after_ns));
    }

    fn lock(&mut self, pcpu: u32, of: Lock) {
        self.locked(pcpu, of);
    }

    fn random(&mut self) -> u32 {
        self.random.bits()
    }

    fn note(&mut self, text: &str) {
        self.mark(|| text.to_owned());
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
