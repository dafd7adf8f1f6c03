//! What the oracle holds a run to, by the knobs of its scheduler.

use check::{CoreSharing, CoreTerms, CoschedSpans, SchedulerTerms};
use units::Span;

/// Settings of the scheduler that decide what the oracle holds a run to: its knobs, and how often
/// the host's timers interrupt.
#[must_use]
pub fn scheduler_terms(knobs: &sched_core::Knobs, hz: u32) -> SchedulerTerms {
    let us = |n: u64| Span::from_ns(n * 1000);
    let cosched = CoschedSpans {
        costop: us(knobs.costop_us),
        costart: us(knobs.costart_us),
        poll: us(knobs.cosched_poll_us),
    };
    SchedulerTerms {
        quantum: us(knobs.quantum_us),
        tick: Span::from_ns(1_000_000_000 / u64::from(hz)),
        timer_late: Span::ZERO,
        idle_exit: Span::ZERO,
        spread: Some(us(knobs.spread_us)),
        cores: Some(CoreTerms {
            shared_charge: knobs.charge(),
            whole_core: us(knobs.whole_core_us),
        }),
        sharing: CoreSharing::of(knobs.core_sharing),
        cosched: (knobs.cosched != 0).then_some(cosched),
    }
}
