//! What a world does with the CPU time it gets: pieces of work and sleeps, from its workload and
//! its own random stream.

use dice::Stream;
use settings::{Dist, Workload};

/// Work that never ends.
pub(crate) const ENDLESS: u64 = u64::MAX;

/// What a world wants next, asked when its piece of work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another piece at once; `remaining` says how much.
    Work,
    /// Sleep until then.
    Sleep(u64),
    /// Sleep until something else wakes it.
    Halt,
    /// Hand over to this world, and sleep until something else wakes it.
    Pass(u32),
}

/// A world's place in its ring of pipes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// World that it hands over to.
    pub(crate) next: u32,
    /// Whether it begins with the token.
    pub(crate) first: bool,
}

/// The behaviour of one world.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    workload: Workload,
    random: Stream,
    /// CPU time left of the present piece.
    pub(crate) remaining: u64,
    /// Time of the next release of a periodic workload.
    release: u64,
    link: Link,
    /// In its emulator's code, and not in its guest.
    pub(crate) outside: bool,
    /// Within a window of activity.
    pub(crate) open: bool,
    /// Powered off: its next work is to exit.
    pub(crate) leaving: bool,
}

impl Behaviour {
    pub(crate) fn new(workload: Workload, link: Link, random: Stream) -> Behaviour {
        Behaviour {
            workload,
            random,
            remaining: 0,
            release: 0,
            link,
            outside: false,
            open: false,
            leaving: false,
        }
    }

    /// What it is to do.
    pub(crate) fn workload(&self) -> Workload {
        self.workload
    }

    /// It is powered on, or its window opens. Sleepers begin at a random point of their sleep, so
    /// that worlds of one kind are not in step.
    pub(crate) fn begin(&mut self, now: u64) -> Next {
        self.open = true;
        let phase = match self.workload {
            Workload::Idle => return Next::Halt,
            Workload::Burn => {
                self.remaining = ENDLESS;
                return Next::Work;
            }
            Workload::Duty { sleep, .. } | Workload::Io { sleep, .. } => {
                self.random.below(sleep.ns())
            }
            Workload::Periodic { period, .. } => self.random.below(period.ns()),
            Workload::Spinlock { .. }
            | Workload::Barrier { .. }
            | Workload::Exits { .. }
            | Workload::Ipi { .. } => {
                self.remaining = self.piece();
                return Next::Work;
            }
            Workload::Pipe { .. } => {
                self.remaining = self.piece();
                return if self.link.first { Next::Work } else { Next::Halt };
            }
        };
        self.release = now + phase;
        self.remaining = self.piece();
        Next::Sleep(now + phase)
    }

    /// Its window closes: what it does is cut short.
    pub(crate) fn close(&mut self) {
        self.open = false;
        self.remaining = 0;
    }

    /// It is powered off: it runs once more, to exit.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.remaining = 0;
    }

    /// Whether it sleeps for something else than that it has nothing to do: a vCPU that has not
    /// halted.
    pub(crate) fn waits(&self) -> bool {
        self.open && !self.leaving && matches!(self.workload, Workload::Io { halts: false, .. })
    }

    /// The present piece of work is done.
    pub(crate) fn done(&mut self, now: u64) -> Next {
        if !self.open || self.leaving {
            self.outside = false;
            return Next::Halt;
        }
        self.outside = !self.outside && matches!(self.workload, Workload::Exits { .. });
        self.remaining = self.piece();
        match self.workload {
            Workload::Idle => Next::Halt,
            // Where these wait for siblings, `siblings` says.
            Workload::Burn
            | Workload::Spinlock { .. }
            | Workload::Barrier { .. }
            | Workload::Exits { .. }
            | Workload::Ipi { .. } => Next::Work,
            Workload::Pipe { .. } => Next::Pass(self.link.next),
            Workload::Duty { sleep, .. } => Next::Sleep(now + sleep.ns()),
            Workload::Io { sleep, dist, .. } => Next::Sleep(now + self.draw(sleep.ns(), dist)),
            Workload::Periodic { period, .. } => {
                self.release += period.ns();
                if self.release <= now { Next::Work } else { Next::Sleep(self.release) }
            }
        }
    }

    fn piece(&mut self) -> u64 {
        match self.workload {
            Workload::Idle => 0,
            Workload::Burn => ENDLESS,
            Workload::Duty { work, .. } | Workload::Periodic { work, .. } => work.ns(),
            Workload::Exits { emulate, .. } if self.outside => emulate.ns(),
            Workload::Io { work, dist, .. }
            | Workload::Barrier { work, dist, .. }
            | Workload::Exits { work, dist, .. }
            | Workload::Ipi { work, dist, .. }
            | Workload::Pipe { work, dist, .. } => self.draw(work.ns(), dist),
            Workload::Spinlock { think, dist, .. } => self.draw(think.ns(), dist),
        }
    }

    fn draw(&mut self, mean: u64, dist: Dist) -> u64 {
        match dist {
            Dist::Fixed => mean,
            Dist::Exponential => self.random.exponential(mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Span;

    fn of(workload: Workload) -> Behaviour {
        Behaviour::new(workload, Link::default(), Stream::new(1, "w"))
    }

    #[test]
    fn a_token_begins_at_the_first_of_a_ring_and_goes_to_the_next_after_each_piece() {
        let pipe = Workload::Pipe { work: Span::from_ns(5000), dist: Dist::Fixed, ring: 2 };
        for (first, begins) in [(true, Next::Work), (false, Next::Halt)] {
            let mut b = Behaviour::new(pipe, Link { next: 9, first }, Stream::new(1, "w"));
            assert_eq!((b.begin(0), b.remaining), (begins, 5000));
            b.remaining = 0;
            assert_eq!((b.done(5000), b.remaining), (Next::Pass(9), 5000));
        }
    }

    #[test]
    fn a_duty_sleeps_after_its_work_is_done_whenever_that_was() {
        let mut b = of(Workload::Duty { work: Span::from_ms(15), sleep: Span::from_ms(85) });
        let Next::Sleep(first) = b.begin(0) else { panic!("it begins asleep") };
        assert!(first < 85_000_000);
        assert_eq!((b.remaining, b.done(500)), (15_000_000, Next::Sleep(85_000_500)));
    }

    #[test]
    fn a_period_that_was_missed_is_worked_off_at_once() {
        let mut b =
            of(Workload::Periodic { period: Span::from_ns(5000), work: Span::from_ns(1000) });
        let Next::Sleep(t) = b.begin(0) else { panic!("it begins asleep") };
        assert_eq!(b.done(t + 12_000), Next::Work);
        assert_eq!(b.done(t + 13_000), Next::Work);
        assert_eq!(b.done(t + 14_000), Next::Sleep(t + 15_000));
    }

    #[test]
    fn outside_its_window_a_world_halts() {
        let mut b = of(Workload::Burn);
        assert_eq!((b.begin(0), b.remaining), (Next::Work, ENDLESS));
        b.close();
        assert_eq!((b.done(9), b.begin(10)), (Next::Halt, Next::Work));
        b.leave();
        assert_eq!(b.done(11), Next::Halt);
    }
}
