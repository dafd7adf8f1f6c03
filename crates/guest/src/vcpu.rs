//! A vCPU as its guest's kernel sees it: what it runs, its queue, ticks and timers, and what it
//! does next; it chooses no vCPU for a task.

use crate::balance::{Level, MIGRATION_COST_NS};
use crate::program::Program;
use crate::wide::{KERNEL, Wakes};
use crate::{Effect, Kernel};
use std::collections::VecDeque;

/// Within so long each task of a queue runs (`sched_latency_ns`), for at least `SLICE_MIN_NS`
/// (`sched_min_granularity_ns`); Linux's values before they are scaled by the number of CPUs.
const LATENCY_NS: u64 = 6_000_000;
const SLICE_MIN_NS: u64 = 750_000;
/// A woken task preempts one whose virtual time is later by so much
/// (`sched_wakeup_granularity_ns`).
const WAKEUP_NS: u64 = 1_000_000;
/// How far behind its queue a woken task may be at most: half of `LATENCY_NS`
/// (GENTLE_FAIR_SLEEPERS).
const SLEEPER_NS: u64 = LATENCY_NS / 2;

/// What a vCPU does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It works for so much CPU time, for a task or in the kernel; it is asked again then.
    Work(u64),
    /// It halts until an interrupt, or until then by a timer of its own.
    Halt(Option<u64>),
}

/// A vCPU.
#[derive(Clone, Debug)]
pub(crate) struct Vcpu {
    pub(crate) current: Option<u32>,
    /// Runnable tasks that wait, the last that came at the end.
    pub(crate) queue: Vec<u32>,
    /// The task that ran last, whose address space is loaded.
    last: Option<u32>,
    /// CPU time that the kernel takes before anything else.
    pub(crate) overhead: u64,
    /// It waits in the idle loop, halted.
    pub(crate) halted: bool,
    /// A reschedule interrupt is under way to it.
    pub(crate) interrupted: bool,
    /// It is to choose anew.
    resched: bool,
    /// It is to look for work on behalf of the halted.
    pub(crate) balances: bool,
    /// Tasks that its stopper moves, each to another vCPU.
    stops: VecDeque<(u32, u32)>,
    /// Least virtual time of its queue; it never goes back.
    pub(crate) least: u64,
    /// Up to when its task is charged, and of that interval, what was stolen.
    since: u64,
    stolen: u64,
    /// CPU time that the current task got since it was picked.
    slice: u64,
    next_tick: u64,
    /// When each task that sleeps here is woken.
    timers: Vec<(u64, u32)>,
    pub(crate) levels: Vec<Level>,
    /// What its idle loop has woken.
    pub(crate) idle_wakes: Wakes,
    /// Average time that it idles (`avg_idle`).
    pub(crate) average_idle: u64,
}

impl Default for Vcpu {
    fn default() -> Vcpu {
        Vcpu {
            current: None,
            queue: vec![],
            last: None,
            overhead: 0,
            halted: true,
            interrupted: false,
            resched: false,
            balances: false,
            stops: VecDeque::new(),
            least: 0,
            since: 0,
            stolen: 0,
            slice: 0,
            next_tick: 0,
            timers: vec![],
            levels: vec![],
            idle_wakes: Wakes::default(),
            average_idle: 2 * MIGRATION_COST_NS,
        }
    }
}

impl Kernel {
    /// A vCPU has had so much CPU time since it was asked last.
    pub fn worked(&mut self, vcpu: u32, ns: u64) {
        let v = &mut self.vcpus[vcpu as usize];
        let kernel = ns.min(v.overhead);
        v.overhead -= kernel;
        if let Some(task) = v.current {
            let left = &mut self.tasks[task as usize].left;
            if *left != u64::MAX {
                *left = left.saturating_sub(ns - kernel);
            }
        }
    }

    /// A vCPU runs again after it was READY for so long.
    pub fn stolen(&mut self, vcpu: u32, ns: u64) {
        self.vcpus[vcpu as usize].stolen += ns;
    }

    /// A vCPU loses so much CPU time: caches are cold after a move.
    pub fn delays(&mut self, vcpu: u32, ns: u64) {
        self.vcpus[vcpu as usize].overhead += ns;
    }

    /// The task that a vCPU runs.
    #[must_use]
    pub fn current(&self, vcpu: u32) -> Option<u32> {
        self.vcpus[vcpu as usize].current
    }

    /// What a vCPU, which runs now, does next; `take_effects` has what it does to others.
    pub fn next(&mut self, vcpu: u32, now: u64) -> Step {
        self.wakes_up(vcpu, now);
        self.charge(vcpu, now);
        loop {
            self.interrupts(vcpu, now);
            if self.vcpus[vcpu as usize].overhead > 0 {
                return Step::Work(self.vcpus[vcpu as usize].overhead);
            }
            if let Some((task, to)) = self.vcpus[vcpu as usize].stops.pop_front() {
                self.stop(vcpu, task, to);
                continue;
            }
            let current = self.vcpus[vcpu as usize].current;
            if let Some(task) = current.filter(|t| self.tasks[*t as usize].left == 0) {
                self.task_done(vcpu, task, now);
                continue;
            }
            if current.is_none() || self.vcpus[vcpu as usize].resched {
                if !self.pick(vcpu, now) {
                    return self.halt(vcpu, now);
                }
                continue;
            }
            let left = current.map_or(0, |t| self.tasks[t as usize].left);
            let v = &self.vcpus[vcpu as usize];
            let timer = v.timers.iter().map(|t| t.0).min().unwrap_or(u64::MAX);
            return Step::Work(left.min(v.next_tick.min(timer) - now));
        }
    }

    /// It leaves the idle loop, if it was there.
    fn wakes_up(&mut self, vcpu: u32, now: u64) {
        let (tick_ns, receive) = (self.terms.tick_ns, self.terms.receive_ns);
        let v = &mut self.vcpus[vcpu as usize];
        if std::mem::take(&mut v.halted) {
            let idle = now - v.since;
            v.average_idle = (7 * v.average_idle + idle.min(2 * MIGRATION_COST_NS)) / 8;
            (v.since, v.stolen) = (now, 0);
            v.next_tick = (now / tick_ns + 1) * tick_ns;
        }
        if std::mem::take(&mut v.interrupted) {
            v.overhead += receive;
        }
    }

    /// Charges the current task up to now, by the guest's clock; without what was stolen if that is
    /// reported.
    fn charge(&mut self, vcpu: u32, now: u64) {
        let steal = self.terms.steal;
        let v = &mut self.vcpus[vcpu as usize];
        let stolen = if steal { v.stolen } else { 0 };
        let ran = (now - v.since).saturating_sub(stolen);
        (v.since, v.stolen) = (now, 0);
        let Some(task) = v.current else { return };
        let t = &mut self.tasks[task as usize];
        t.vruntime += ran;
        t.ran_at = now;
        v.slice += ran;
        let waits = v.queue.iter().map(|t| self.tasks[*t as usize].vruntime).min();
        let least = waits.unwrap_or(u64::MAX).min(self.tasks[task as usize].vruntime);
        v.least = v.least.max(least);
    }

    /// Timers and the tick that are due, and a halted vCPU's search for work.
    fn interrupts(&mut self, vcpu: u32, now: u64) {
        while let Some(at) = self.vcpus[vcpu as usize].timers.iter().position(|t| t.0 <= now) {
            let (_, task) = self.vcpus[vcpu as usize].timers.remove(at);
            self.wake(task, vcpu, false, now);
        }
        if now >= self.vcpus[vcpu as usize].next_tick {
            self.tick(vcpu, now);
        }
        if std::mem::take(&mut self.vcpus[vcpu as usize].balances) {
            self.idle_balance(vcpu, now);
        }
    }

    /// A tick: those that passed while it did not run are one.
    fn tick(&mut self, vcpu: u32, now: u64) {
        let (tick_ns, cost) = (self.terms.tick_ns, self.terms.tick_cost_ns);
        let v = &mut self.vcpus[vcpu as usize];
        v.next_tick = (now / tick_ns + 1) * tick_ns;
        v.overhead += cost;
        let slice = (LATENCY_NS / (v.queue.len() as u64 + 1)).max(SLICE_MIN_NS);
        v.resched |= !v.queue.is_empty() && v.slice >= slice;
        // RCU and the timers of the kernel wake their threads at ticks, in the name of what runs.
        self.records_wake(vcpu, KERNEL, now);
        self.tick_balance(vcpu, now);
    }

    /// Takes the task of the least virtual time; one of another vCPU if there is none. Whether
    /// there is one.
    fn pick(&mut self, vcpu: u32, now: u64) -> bool {
        let v = &mut self.vcpus[vcpu as usize];
        v.resched = false;
        if let Some(task) = v.current.take() {
            v.queue.push(task);
        }
        if v.queue.is_empty() && !self.newidle(vcpu, now) {
            return false;
        }
        let v = &mut self.vcpus[vcpu as usize];
        let least = |i: &usize| (self.tasks[v.queue[*i] as usize].vruntime, v.queue[*i]);
        let Some(at) = (0..v.queue.len()).min_by_key(least) else { return false };
        let task = v.queue.remove(at);
        if v.last != Some(task) {
            v.overhead += self.terms.switch_ns;
            v.slice = 0;
        }
        (v.current, v.last) = (Some(task), Some(task));
        true
    }

    fn halt(&mut self, vcpu: u32, now: u64) -> Step {
        let v = &mut self.vcpus[vcpu as usize];
        assert!(v.queue.is_empty() && v.current.is_none(), "a vCPU with tasks halts");
        v.halted = true;
        v.since = now;
        Step::Halt(self.timer_of(vcpu))
    }

    /// When the first timer of a vCPU is due.
    #[must_use]
    pub fn timer_of(&self, vcpu: u32) -> Option<u64> {
        self.vcpus[vcpu as usize].timers.iter().map(|t| t.0).min()
    }

    /// A task has done its piece of work on a vCPU.
    fn task_done(&mut self, vcpu: u32, task: u32, now: u64) {
        let t = &mut self.tasks[task as usize];
        t.rounds += 1;
        t.renew();
        match t.program {
            Program::Burn => {}
            Program::Io { sleep, interrupts, .. } => {
                let (until, at) = (now + t.draw(sleep), interrupts.unwrap_or(vcpu));
                self.sleeps(vcpu, task);
                self.vcpus[at as usize].timers.push((until, task));
                if at != vcpu {
                    self.effects.push(Effect::Timer(at));
                }
            }
            Program::Exec { .. } if self.terms.exec_balance => self.exec(vcpu, task),
            Program::Exec { .. } => {}
            Program::Pipe { next, .. } => {
                self.wake(next, vcpu, true, now);
                self.sleeps(vcpu, task);
            }
        }
    }

    fn sleeps(&mut self, vcpu: u32, task: u32) {
        self.tasks[task as usize].asleep = true;
        self.vcpus[vcpu as usize].current = None;
    }

    /// An exec: if another vCPU is less loaded, the stopper of this one is woken and runs, and
    /// moves the task, which must not run meanwhile.
    fn exec(&mut self, vcpu: u32, task: u32) {
        let to = self.place_exec(vcpu);
        if to != vcpu {
            let v = &mut self.vcpus[vcpu as usize];
            v.overhead += self.terms.switch_ns;
            v.last = None;
            v.stops.push_back((task, to));
        }
    }

    /// The stopper of a vCPU moves a task that execs, unless another vCPU has pulled it meanwhile.
    fn stop(&mut self, vcpu: u32, task: u32, to: u32) {
        if self.tasks[task as usize].vcpu != vcpu {
            return;
        }
        let v = &mut self.vcpus[vcpu as usize];
        if v.current == Some(task) {
            v.current = None;
        } else {
            v.queue.retain(|t| *t != task);
        }
        self.counts.exec_migrations += 1;
        self.enqueue(task, to);
        self.preempt(task, vcpu);
    }

    /// A task that sleeps is woken, from a vCPU. Another vCPU, unless it shares a cache with that,
    /// is interrupted to put it into its queue itself, busy or not (`ttwu_queue`).
    pub(crate) fn wake(&mut self, task: u32, waker: u32, sync: bool, now: u64) {
        if !std::mem::take(&mut self.tasks[task as usize].asleep) {
            return;
        }
        self.records_wake(waker, task, now);
        let to = self.place_wake(task, waker, sync);
        self.enqueue(task, to);
        let least = self.vcpus[to as usize].least;
        let t = &mut self.tasks[task as usize];
        t.vruntime = t.vruntime.max(least.saturating_sub(SLEEPER_NS));
        self.preempt(task, waker);
        if !self.share_cache(waker, to) {
            self.interrupt(waker, to);
        }
    }

    /// What runs on a vCPU, or its idle loop, wakes a task.
    fn records_wake(&mut self, waker: u32, task: u32, now: u64) {
        let v = &mut self.vcpus[waker as usize];
        let by = v.current.map_or(&mut v.idle_wakes, |t| &mut self.tasks[t as usize].wakes);
        by.wakes(task, now);
    }

    /// Puts a task into the queue of a vCPU; its virtual time follows that of the queue.
    pub(crate) fn enqueue(&mut self, task: u32, to: u32) {
        let t = &mut self.tasks[task as usize];
        let from = std::mem::replace(&mut t.vcpu, to);
        if from != to {
            let (was, is) = (self.vcpus[from as usize].least, self.vcpus[to as usize].least);
            t.vruntime = (t.vruntime + is).saturating_sub(was);
            self.counts.migrations += 1;
        }
        self.vcpus[to as usize].queue.push(task);
    }

    /// A task has come to a vCPU: whatever runs there makes way if its virtual time is later by
    /// `WAKEUP_NS`; an idle vCPU takes it up.
    fn preempt(&mut self, task: u32, from: u32) {
        let to = self.tasks[task as usize].vcpu;
        let of = |t: u32| self.tasks[t as usize].vruntime;
        let current = self.vcpus[to as usize].current;
        if current.is_none_or(|c| of(c) > of(task) + WAKEUP_NS) {
            self.vcpus[to as usize].resched = true;
            self.interrupt(from, to);
        }
    }
}
