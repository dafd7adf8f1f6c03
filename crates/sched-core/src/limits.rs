//! The table of limits of the native build, which the simulator runs; the live host's is a map in
//! the kernel's memory.

use crate::{Host, Limiter};
use publish::{Table, Terms};

impl Table for Host {
    fn begin(&mut self, slot: u32, terms: Terms) {
        let Terms { rate, burst_ns, parent } = terms;
        *self.limiter_mut(slot) = Limiter { rate, burst_ns, parent, ..Limiter::ZERO };
    }

    fn change(&mut self, slot: u32, terms: Terms) {
        let limiter = self.limiter_mut(slot);
        (limiter.rate, limiter.burst_ns, limiter.parent) =
            (terms.rate, terms.burst_ns, terms.parent);
    }

    fn end(&mut self, slot: u32) {
        self.limiter_mut(slot).rate = 0;
    }

    fn used(&mut self, slots: u32) {
        self.limiters(slots);
    }

    fn first(&mut self, vm: u32, slot: u32) {
        self.vm_mut(vm).limiter = slot;
    }

    fn in_use(&self, slot: u32) -> bool {
        let limiter = self.limiter(slot);
        limiter.parked > 0 || limiter.inflight > 0
    }
}
