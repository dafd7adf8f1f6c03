//! What a scheduler's own settings allow it: bounds of every invariant, and when its vCPUs are to
//! be stopped; it reads no knobs and measures nothing.

use crate::{Bounds, CoschedTerms};
use units::Span;

/// Settings of a scheduler that decide how late it may be. Knobs have the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerTerms {
    /// Longest time a world runs before the scheduler is asked again.
    pub quantum: Span,
    /// Time at its share by which a woken world must be behind the running one to preempt it.
    pub preempt_margin: Span,
    /// Time at its share by which a world elsewhere must be behind before a busy pCPU takes it.
    pub migrate_margin: Span,
    /// Positive lag of a VM that is still paid back, as time at its share.
    pub lag_bound: Span,
    /// Time between two timer interrupts of a pCPU.
    pub tick: Span,
    /// How late the scheduler's timers may be on this host.
    pub timer_late: Span,
    /// Thresholds of co-scheduling; `None` where vCPUs are not held together.
    pub cosched: Option<CoschedSpans>,
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

impl SchedulerTerms {
    /// Bounds that the oracle holds such a scheduler to.
    ///
    /// A world may be behind by a quantum, by a margin more before it preempts, and by another
    /// before a busy pCPU takes it from a crowded one. Lag that is paid back beyond that is allowed
    /// in trees.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let late_ns = self.quantum.ns() + self.preempt_margin.ns() + self.migrate_margin.ns();
        Bounds {
            timer_late_ns: self.timer_late.ns(),
            owed_ns: self.lag_bound.ns().saturating_sub(late_ns),
            ..Bounds::of(late_ns, self.tick.ns(), 1_000_000)
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

    /// A quantum of 50 ms, margins of 2 and 20, lag of 100 that is paid back, 250 ticks a second.
    fn terms() -> SchedulerTerms {
        SchedulerTerms {
            quantum: Span::from_ms(50),
            preempt_margin: Span::from_ms(2),
            migrate_margin: Span::from_ms(20),
            lag_bound: Span::from_ms(100),
            timer_late: Span::ZERO,
            tick: Span::from_ms(4),
            cosched: Some(CoschedSpans {
                costop: Span::from_ms(3),
                costart: Span::from_ms(2),
                poll: Span::from_ms(1),
            }),
        }
    }

    #[test]
    fn bounds_follow_the_quantum_its_margins_and_the_tick() {
        let b = terms().bounds();
        let seen = (b.lag_base_ns, b.lag_per_world_ns, b.owed_ns, b.idle_while_waiting_max_ns);
        assert_eq!(seen, (78_000_000, 76_000_000, 28_000_000, 4_000_000));
        // Trees: twice the plan's delay, and the lag that is paid back.
        assert_eq!(b.lag_ns(2, true), 230_000_000);
        assert_eq!(b.lag_ns(2, false), 366_000_000);
        let short = SchedulerTerms { lag_bound: Span::from_ms(71), ..terms() };
        assert_eq!(short.bounds().owed_ns, 0);
    }

    #[test]
    fn skew_is_bounded_by_the_thresholds_where_vcpus_are_held_together() {
        let all = terms().cosched().expect("it is on");
        assert_eq!((all.apart_ns, all.skew_max_ns()), (0, 12_100_000));
        assert_eq!(SchedulerTerms { cosched: None, ..terms() }.cosched(), None);
    }
}
