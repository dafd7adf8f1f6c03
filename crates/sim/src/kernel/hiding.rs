//! What mutants hide: worlds that stay in their queue or are not found there.

use super::{Context, Kernel};
use crate::mutant::Mutant;
use sched_core::PCPUS_MAX;

/// How long `Mutant::Withheld` withholds: two and a half ticks, more than any switch takes.
const WITHHELD_NS: u64 = 10_000_000;

impl Kernel {
    /// Whether a fault keeps worlds in the queue of this slot.
    pub(super) fn is_stuck(&self, slot: usize) -> bool {
        let parked = 2 * self.cpus.len()..self.costop;
        self.fault.is(Mutant::HeldForEver) && parked.contains(&slot)
            || self.fault.is(Mutant::LostCostart) && slot >= self.costop
    }

    /// The world that is not to be found in an ordered queue now, if there is one.
    pub(super) fn unfindable(&mut self) -> Option<u32> {
        if self.fault.is(Mutant::Starve) {
            return Some(1);
        }
        let (world, until) = self.withheld?;
        if until.is_some_and(|t| t <= self.now) {
            self.withheld = None;
        }
        until.filter(|t| *t > self.now).map(|_| world)
    }

    /// `Mutant::Withheld` begins when a pCPU that has nothing else to do looks at the world it is
    /// after.
    pub(super) fn withhold(&mut self, world: u32) {
        let free =
            matches!(self.context, Context::Dispatch(p) if self.cpus[p as usize].current == 0);
        if free && self.withheld == Some((world, None)) {
            self.withheld = Some((world, Some(self.now + WITHHELD_NS)));
            self.mark(|| format!("fault: world {world} is withheld"));
        }
    }

    /// Whether a queue is to look empty to the pCPU that dispatches now.
    pub(super) fn hidden(&self, queue: u64) -> bool {
        let Context::Dispatch(pcpu) = self.context else { return false };
        self.fault.is(Mutant::NoPull) && queue % u64::from(PCPUS_MAX) != u64::from(pcpu)
    }
}
