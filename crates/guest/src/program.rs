//! Tasks of a guest and what each does with CPU time; no vCPU is chosen here.

use crate::wide::Wakes;
use dice::Stream;

/// How a mean is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Always the mean.
    Fixed,
    /// Exponential.
    Exponential,
}

/// What a task does; times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// It never stops.
    Burn,
    /// It works, then waits for a device, the interrupt of which comes to vCPU `interrupts`, or to
    /// the vCPU on which it went to sleep: a stream over a network is that, too.
    Io {
        /// Mean work.
        work: u64,
        /// Mean wait.
        sleep: u64,
        /// The vCPU that is interrupted.
        interrupts: Option<u32>,
    },
    /// It works and replaces itself by exec, again and again.
    Exec {
        /// Mean work of an exec and what comes up to the next.
        work: u64,
    },
    /// It works, wakes the task of number `next`, which reads what it wrote, and waits.
    Pipe {
        /// Mean work.
        work: u64,
        /// Task that it hands over to.
        next: u32,
        /// Whether it begins with the token.
        first: bool,
    },
}

/// A task as a scenario gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTerms {
    /// Name, by which its rounds are reported.
    pub name: String,
    /// What it does.
    pub program: Program,
    /// How its times are spread.
    pub spread: Spread,
    /// Bytes that it works on.
    pub set: u64,
}

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) program: Program,
    spread: Spread,
    random: Stream,
    pub(crate) set: u64,
    /// CPU time left of its piece of work.
    pub(crate) left: u64,
    /// Virtual time, as that of the queue of `vcpu` has it.
    pub(crate) vruntime: u64,
    /// vCPU where it is, or was last.
    pub(crate) vcpu: u32,
    /// When it was charged last: within `MIGRATION_COST_NS` its caches are warm.
    pub(crate) ran_at: u64,
    pub(crate) rounds: u64,
    pub(crate) asleep: bool,
    pub(crate) wakes: Wakes,
}

impl Task {
    pub(crate) fn new(of: &TaskTerms, vcpu: u32, random: Stream) -> Task {
        Task {
            name: of.name.clone(),
            program: of.program,
            spread: of.spread,
            random,
            set: of.set,
            left: 0,
            vruntime: 0,
            vcpu,
            ran_at: 0,
            rounds: 0,
            asleep: false,
            wakes: Wakes::default(),
        }
    }

    /// It is made: whether it is runnable at once.
    pub(crate) fn begins(&mut self) -> bool {
        self.renew();
        self.asleep = matches!(self.program, Program::Pipe { first: false, .. });
        !self.asleep
    }

    /// Its next piece of work.
    pub(crate) fn renew(&mut self) {
        self.left = match self.program {
            Program::Burn => u64::MAX,
            Program::Io { work, .. } | Program::Exec { work } | Program::Pipe { work, .. } => {
                self.draw(work)
            }
        };
    }

    pub(crate) fn draw(&mut self, mean: u64) -> u64 {
        match self.spread {
            Spread::Fixed => mean,
            Spread::Exponential => self.random.exponential(mean),
        }
    }
}
