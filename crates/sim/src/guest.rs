//! What the vCPUs of an SMP guest share, and what each waits for: one lock, one barrier,
//! interrupts; it runs nothing and knows no pCPU.
//!
//! VS51 "Relaxed Co-Scheduling": vCPUs that synchronize by spinning lose CPU time while the one
//! they wait for does not run, and a guest's watchdog may take a vCPU that it does not hear of for
//! dead. `siblings` moves the vCPUs; here is what decides when one goes on.

use std::collections::VecDeque;

/// CPU time that a vCPU spins for before hardware takes it out of the guest for the first time
/// (pause-loop exiting), and between that and each further time. KVM's window begins at 4096 cycles
/// and grows.
const PAUSE_LOOP_NS: (u64, u64) = (10_000, 50_000);

/// What a vCPU does, as its siblings see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has nothing to do with its siblings, or is outside its windows.
    #[default]
    Apart,
    /// Work that no other vCPU waits for.
    Work,
    /// Work with the lock held.
    Hold,
    /// Waits, and burns CPU time whenever it runs.
    Spin,
    /// Waits at the barrier, halted.
    Halted,
}

/// An interrupt from a sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ipi {
    /// The world that spins until it is handled.
    pub(crate) from: u32,
    /// CPU time that handling it takes.
    pub(crate) handle: u64,
}

/// How an interrupt found a vCPU, and so what it goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Awake,
    /// Halted, until then if a timer was to wake it.
    Asleep(Option<u64>),
}

/// An interrupt that is being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handling {
    pub(crate) from: u32,
    pub(crate) found: Found,
    /// CPU time left of the piece of work that it interrupted, or that comes after the sleep.
    pub(crate) left: u64,
}

/// One vCPU of an SMP guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vcpu {
    pub(crate) phase: Phase,
    /// What it waits for has come; it goes on as soon as it runs in the guest.
    pub(crate) due: bool,
    /// Since when it waits, and how much CPU time the vCPU had spun until then.
    since: u64,
    spun_before: u64,
    /// CPU time of this wait at which the hardware takes it out of the guest next.
    exit_at: u64,
    /// The watchdog has reported this wait.
    reported: bool,
    /// An interrupt that it has not begun to handle, with how it was found.
    pub(crate) pending: Option<(Ipi, Found)>,
    pub(crate) handling: Option<Handling>,
}

impl Vcpu {
    /// Begins to wait.
    pub(crate) fn wait(&mut self, now: u64, spun: u64) {
        *self = Vcpu {
            phase: Phase::Spin,
            due: false,
            since: now,
            spun_before: spun,
            exit_at: PAUSE_LOOP_NS.0,
            reported: false,
            ..std::mem::take(self)
        };
    }

    /// CPU time that this wait has burned, where the vCPU has spun so much in all.
    pub(crate) fn burned(&self, spun: u64) -> u64 {
        spun - self.spun_before
    }

    /// How long it waits already, by the clock.
    pub(crate) fn waited(&self, now: u64) -> u64 {
        if self.phase == Phase::Spin { now.saturating_sub(self.since) } else { 0 }
    }

    /// CPU time until the next thing that happens to one that spins for nothing: an exit, a halt, a
    /// report of its watchdog.
    pub(crate) fn spin_left(&self, now: u64, spun: u64, spin_limit: u64, watchdog: u64) -> u64 {
        let report = match watchdog {
            _ if self.reported => u64::MAX,
            w => w.saturating_add(1).saturating_sub(self.waited(now)),
        };
        self.exit_at.min(spin_limit).saturating_sub(self.burned(spun)).min(report)
    }

    /// Whether the hardware takes it out of the guest now.
    pub(crate) fn exits(&mut self, spun: u64) -> bool {
        let exits = self.burned(spun) >= self.exit_at;
        if exits {
            self.exit_at = self.burned(spun) + PAUSE_LOOP_NS.1;
        }
        exits
    }
}

/// What the vCPUs of a VM share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guest {
    /// Whether any of them waits for another, or a watchdog looks.
    pub(crate) on: bool,
    /// A vCPU that is silent for longer is reported; `u64::MAX` without a watchdog.
    pub(crate) watchdog: u64,
    pub(crate) lock: Lock,
    pub(crate) barrier: Barrier,
    pub(crate) rounds: u64,
    pub(crate) lockups: u64,
    pub(crate) longest: u64,
}

impl Guest {
    /// A vCPU runs again that was READY for so long. The timer interrupt that is long due comes
    /// first, whatever it does.
    pub(crate) fn ran_again(&mut self, ready_ns: u64) {
        self.longest = self.longest.max(ready_ns);
        self.lockups += u64::from(ready_ns > self.watchdog);
    }

    /// A vCPU that spins runs in the guest: what its watchdog sees.
    pub(crate) fn seen_spinning(&mut self, v: &mut Vcpu, now: u64) {
        let waited = v.waited(now);
        self.longest = self.longest.max(waited);
        if waited > self.watchdog && !v.reported {
            v.reported = true;
            self.lockups += 1;
        }
    }
}

/// The lock of a VM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    ticket: bool,
    /// World that holds it or has been given it; 0 for none.
    pub(crate) holder: u32,
    /// Worlds that want it, in the order in which they came.
    waiters: VecDeque<u32>,
}

impl Lock {
    pub(crate) fn new(ticket: bool) -> Lock {
        Lock { ticket, ..Lock::default() }
    }

    /// A vCPU wants it: whether it has it now. Otherwise it waits.
    pub(crate) fn ask(&mut self, world: u32) -> bool {
        if self.holder == 0 {
            self.holder = world;
            return true;
        }
        self.waiters.push_back(world);
        false
    }

    /// Whether a vCPU that waits would have it if it looked now.
    pub(crate) fn open_to(&self, world: u32) -> bool {
        self.holder == world || self.holder == 0
    }

    /// A vCPU that waits looks: whether it has it now.
    pub(crate) fn look(&mut self, world: u32) -> bool {
        if self.holder == 0 {
            self.holder = world;
            self.waiters.retain(|w| *w != world);
        }
        self.holder == world
    }

    /// It is released. A ticket lock goes to the first waiter, another to the first that spins. The
    /// world it went to, if any.
    pub(crate) fn release(&mut self, spins: impl Fn(u32) -> bool) -> Option<u32> {
        let next = if self.ticket {
            0
        } else {
            self.waiters.iter().position(|w| spins(*w)).unwrap_or(self.waiters.len())
        };
        let world = self.waiters.remove(next);
        self.holder = world.unwrap_or(0);
        world
    }

    /// Those that wait.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiters.iter().copied()
    }

    /// A vCPU gives up: its window closes or it is powered off, as for all its siblings, so that
    /// no sibling is left to take it over.
    pub(crate) fn leave(&mut self, world: u32) {
        self.waiters.retain(|w| *w != world);
        if self.holder == world {
            self.holder = 0;
        }
    }
}

/// The barrier of a VM.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Barrier {
    /// vCPUs that take part and are in their windows.
    members: u32,
    arrived: u32,
}

impl Barrier {
    pub(crate) fn join(&mut self) {
        self.members += 1;
    }

    /// One that may have arrived takes part no more.
    pub(crate) fn leave(&mut self, arrived: bool) {
        self.members -= 1;
        self.arrived -= u32::from(arrived);
    }

    /// One arrives: whether it was the last, and all go on.
    pub(crate) fn arrive(&mut self) -> bool {
        self.arrived += 1;
        let last = self.arrived == self.members;
        if last {
            self.arrived = 0;
        }
        last
    }
}
