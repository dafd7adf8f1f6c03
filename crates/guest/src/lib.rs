//! The scheduler of a guest's kernel, for the simulator: which task runs on which vCPU, and when a
//! vCPU halts or interrupts another; it knows no pCPU, nor whether a vCPU runs on one.
//!
//! *Promise*: no task is lost or in two places; a vCPU with a task that waits never halts; the same
//! calls give the same answers.
//!
//! *Law*: that of Linux's fair class, as far as wake-ups, execs and idle vCPUs see it. A vCPU runs
//! the task of the least virtual time of its queue. A woken task is placed near its last vCPU
//! or its waker's, on an idle vCPU of the LLC that the guest is shown (`place`). A vCPU that goes
//! idle, and one at its ticks, pulls a task that waits elsewhere (`balance`).
//!
//! *Units*: ns, of the guest's clock where a moment is meant, of CPU time where work is meant. The
//! guest's clock goes on while a vCPU is READY, and a task is charged for that time too, unless
//! steal time is reported.
//!
//! *Example*: a task execs on vCPU 0 of two, and vCPU 1 is halted. vCPU 0 has one task, vCPU 1
//! none: the stopper of vCPU 0 moves the task, vCPU 1 is interrupted, vCPU 0 halts. Without exec
//! balance neither happens.
//!
//! *Limits*: all tasks have nice 0 and may run on all vCPUs; no cgroups, no real-time tasks but the
//! stopper, no NUMA balancing.

mod balance;
mod domains;
mod place;
mod program;
#[cfg(test)]
mod tests;
mod vcpu;
mod wide;

pub use domains::Shown;
pub use program::{Program, Spread, TaskTerms};
pub use vcpu::Step;

use dice::Stream;
use domains::Domain;
use program::Task;
use vcpu::Vcpu;

/// What a guest is, and what its kernel's operations cost in CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Number of vCPUs.
    pub vcpus: u32,
    /// The topology that the guest is shown; none if it is hidden: one level, without caches.
    pub shown: Option<Shown>,
    /// Whether an exec looks for a less loaded vCPU (`SD_BALANCE_EXEC`).
    pub exec_balance: bool,
    /// Whether a task that execs is itself a load of its vCPU then, as up to Linux 5.4.
    pub exec_counts_itself: bool,
    /// Whether tasks that wake many others are left near their last vCPU (`wake_wide`).
    pub wake_wide: bool,
    /// Whether the hypervisor reports steal time, which is then not charged to tasks.
    pub steal: bool,
    /// Between two ticks, in ns of the guest's clock.
    pub tick_ns: u64,
    /// A switch between two tasks, in ns.
    pub switch_ns: u64,
    /// A tick, in ns.
    pub tick_cost_ns: u64,
    /// What the sender of a reschedule interrupt loses, in ns: the vCPU leaves its guest for it.
    pub send_ns: u64,
    /// What its receiver loses, in ns; one that was halted is woken by the host besides.
    pub receive_ns: u64,
}

/// An effect of the guest's kernel on another vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This vCPU is sent a reschedule interrupt.
    Interrupt(u32),
    /// A timer of this vCPU may now be the next; it is not interrupted before that is due.
    Timer(u32),
}

/// What a guest's scheduler has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks that came to another vCPU.
    pub migrations: u64,
    /// Of these, by an exec.
    pub exec_migrations: u64,
    /// Reschedule interrupts sent.
    pub interrupts: u64,
    /// Tasks that waited, pulled by another vCPU.
    pub pulls: u64,
}

/// A guest's kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    terms: Terms,
    vcpus: Vec<Vcpu>,
    tasks: Vec<Task>,
    /// Domains of each vCPU, the smallest first.
    domains: Vec<Vec<Domain>>,
    effects: Vec<Effect>,
    counts: Counts,
    /// From when on a tick has a halted vCPU balance again.
    next_idle_balance: u64,
}

impl Kernel {
    /// The kernel of a guest with these tasks, each on the vCPU with the fewest, the first of them.
    /// `random` gives each task its numbers.
    ///
    /// # Panics
    /// Without vCPUs.
    #[must_use]
    pub fn new(terms: Terms, tasks: &[TaskTerms], random: impl Fn(&str) -> Stream) -> Kernel {
        assert!(terms.vcpus > 0, "a guest has vCPUs");
        let n = terms.vcpus;
        let mut vcpus: Vec<Vcpu> = (0..n).map(|_| Vcpu::default()).collect();
        let mut all = vec![];
        for (i, of) in (0..).zip(tasks) {
            let vcpu = i % n;
            let mut task = Task::new(of, vcpu, random(&of.name));
            if task.begins() {
                vcpus[vcpu as usize].queue.push(i);
            }
            all.push(task);
        }
        let domains: Vec<Vec<Domain>> =
            (0..n).map(|v| domains::of(v, n, terms.shown.as_ref())).collect();
        for (v, d) in vcpus.iter_mut().zip(&domains) {
            v.levels = vec![balance::Level::default(); d.len()];
        }
        Kernel {
            terms,
            vcpus,
            tasks: all,
            domains,
            effects: vec![],
            counts: Counts::default(),
            next_idle_balance: 0,
        }
    }

    /// What its scheduler has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Names of its tasks, each with how often its work was done: execs, requests, hand-overs.
    pub fn rounds(&self) -> impl Iterator<Item = (&str, u64)> + '_ {
        self.tasks.iter().map(|t| (t.name.as_str(), t.rounds))
    }

    /// Effects on other vCPUs since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The vCPU on which a task is or was last.
    #[must_use]
    pub fn vcpu_of(&self, task: u32) -> u32 {
        self.tasks[task as usize].vcpu
    }

    /// Bytes that a task works on.
    #[must_use]
    pub fn set_of(&self, task: u32) -> u64 {
        self.tasks[task as usize].set
    }

    /// Tasks of a vCPU that are runnable.
    fn running(&self, vcpu: u32) -> usize {
        let v = &self.vcpus[vcpu as usize];
        v.queue.len() + usize::from(v.current.is_some())
    }

    /// Whether a vCPU has nothing to run, as the guest knows it: it may be halted, or about to be.
    fn is_idle(&self, vcpu: u32) -> bool {
        self.running(vcpu) == 0
    }
}
