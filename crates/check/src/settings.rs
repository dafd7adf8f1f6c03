//! What a scheduler's own settings allow it: bounds of every invariant, and when its vCPUs are to
//! be stopped; it reads no knobs and measures nothing.

use crate::{Bounds, CoschedTerms};
use units::{CoreSharing, Span};

/// Settings of a scheduler that decide how late it may be. Knobs have the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerTerms {
    /// Longest time a world runs before the scheduler is asked again.
    pub quantum: Span,
    /// Time between two timer interrupts of a pCPU.
    pub tick: Span,
    /// How late the scheduler's timers may be on this host.
    pub timer_late: Span,
    /// How long a pCPU of this host takes at most to leave a deep idle state. It counts as taken
    /// meanwhile, and the world that it is for waits.
    pub idle_exit: Span,
    /// How long a whole core must have been idle before a world that shares one moves there when
    /// its quantum ends; `None` where none moves.
    pub spread: Option<Span>,
    /// Charging by core; `None` where threads are divided as pCPUs of their own.
    pub cores: Option<CoreTerms>,
    /// What the threads of a core may run at once.
    pub sharing: CoreSharing,
    /// Thresholds of co-scheduling; `None` where vCPUs are not held together.
    pub cosched: Option<CoschedSpans>,
}

/// Settings of a scheduler that divides cores and not threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTerms {
    /// Thousandths of its CPU time that a world is charged while another thread of its core is
    /// busy.
    pub shared_charge: u64,
    /// CPU time that a world may lose by that, of what it is entitled to.
    pub whole_core: Span,
}

/// Thresholds of co-scheduling as they are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoschedSpans {
    /// Lead beyond which a vCPU stops.
    pub costop: Span,
    /// Lead that a vCPU may have when it wakes.
    pub costart: Span,
    /// Period in which leads are looked at.
    pub poll: Span,
}

/// For how long a pCPU idles beside a world that is in the caches of another, and what a kick takes
/// at most, far above any on hardware.
const MOMENT_NS: u64 = 500_000 + 100_000;

impl SchedulerTerms {
    /// Bounds that the oracle holds such a scheduler to.
    ///
    /// They follow from the quantum and the tick alone: margins and the clamp of lag are the
    /// scheduler's own affair. A world that shares its core may have begun a quantum just before
    /// the other one had been idle for long enough, which ends at a tick.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds {
            timer_late_ns: self.timer_late.ns(),
            sharing_max_ns: self
                .spread
                .map(|spread| spread.ns() + self.quantum.ns() + self.tick.ns()),
            shared_charge: self.cores.map_or(1000, |c| c.shared_charge),
            whole_core_ns: self.cores.map_or(0, |c| c.whole_core.ns()),
            core_sharing: self.sharing,
            // A timer ends the moment for which it leaves that world there (spec L4).
            idle_while_waiting_max_ns: self.tick.ns().max(MOMENT_NS + self.timer_late.ns())
                + self.idle_exit.ns(),
            ..Bounds::of(self.quantum.ns(), self.tick.ns(), 1_000_000)
        }
    }

    /// When vCPUs are to be stopped; `None` if they are not held together.
    #[must_use]
    pub fn cosched(&self) -> Option<CoschedTerms> {
        let terms = |c: CoschedSpans| CoschedTerms {
            costop_ns: c.costop.ns(),
            costart_ns: c.costart.ns(),
            poll_ns: c.poll.ns(),
            apart_ns: 0,
        };
        self.cosched.map(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quantum of 50 ms, 250 ticks a second.
    fn terms() -> SchedulerTerms {
        SchedulerTerms {
            quantum: Span::from_ms(50),
            timer_late: Span::ZERO,
            idle_exit: Span::ZERO,
            tick: Span::from_ms(4),
            spread: Some(Span::from_ms(1)),
            cores: Some(CoreTerms { shared_charge: 625, whole_core: Span::from_ms(800) }),
            sharing: CoreSharing::Any,
            cosched: Some(CoschedSpans {
                costop: Span::from_ms(3),
                costart: Span::from_ms(2),
                poll: Span::from_ms(1),
            }),
        }
    }

    #[test]
    fn bounds_follow_the_quantum_and_the_tick() {
        let b = terms().bounds();
        let seen =
            (b.lag_base_ns, b.lag_per_world_ns, b.lag_replanned_ns, b.idle_while_waiting_max_ns);
        assert_eq!(seen, (56_000_000, 54_000_000, 100_000_000, 4_000_000));
        assert_eq!(b.sharing_max_ns, Some(55_000_000));
        assert_eq!(b.lag_ns(2, true), 164_000_000);
        // Weights follow demand in trees: two more quanta for each world.
        assert_eq!(b.lag_ns(2, false), 364_000_000);
        let late = SchedulerTerms { timer_late: Span::from_ms(3), ..terms() };
        assert_eq!(late.bounds().lag_ns(2, false), 376_000_000);
        assert_eq!(late.bounds().idle_while_waiting_max_ns, 4_000_000);
        let late = SchedulerTerms { timer_late: Span::from_ms(5), ..terms() };
        assert_eq!(late.bounds().idle_while_waiting_max_ns, 5_600_000);
        let deep = SchedulerTerms { idle_exit: Span::from_ms(1), ..late };
        assert_eq!(deep.bounds().idle_while_waiting_max_ns, 6_600_000);
    }

    #[test]
    fn skew_is_bounded_by_the_thresholds_where_vcpus_are_held_together() {
        let all = terms().cosched().expect("it is on");
        assert_eq!((all.apart_ns, all.skew_max_ns()), (0, 12_100_000));
        assert_eq!(SchedulerTerms { cosched: None, ..terms() }.cosched(), None);
    }
}
