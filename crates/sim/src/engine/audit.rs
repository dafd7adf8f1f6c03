//! The kernel's watchdog, and audits of queues and of the scheduler's counts; they change nothing.

use super::Engine;
use crate::kernel::Seat;
use contract::{Rule, Scheduler};

/// A runnable world must run within this time; sched_ext's own default (SCX_WATCHDOG_MAX_TIMEOUT).
const WATCHDOG_NS: u64 = 30_000_000_000;

impl<P: Scheduler> Engine<P> {
    /// The watchdog, and with the oracle on also: the scheduler's state times, its counts of
    /// runnable worlds, and that every world is in the one queue it is said to be in.
    pub(super) fn audit(&mut self) {
        let now = self.kernel.now();
        for world in self.cast.worlds() {
            let waited = now.saturating_sub(self.cast.ready_since(world));
            if self.kernel.queues(world) && waited > WATCHDOG_NS {
                let seat = self.kernel.seat(world);
                let what =
                    format!("seen READY for {waited} ns in {seat:?}, allowed {WATCHDOG_NS} ns");
                self.kernel.breach(Rule::Watchdog, Some(world), None, what);
            }
        }
        if !self.books.is_watched() {
            return;
        }
        self.audit_queues();
        let mut runnable = vec![0; self.cast.vms().len()];
        for world in self.cast.worlds() {
            let seat = self.kernel.seat(world);
            if seat == Seat::Off {
                continue;
            }
            self.books.audit(now, &self.policy, world);
            runnable[self.cast.vm_of(world) as usize] += u32::from(seat != Seat::Asleep);
        }
        for (vm, count) in runnable.into_iter().enumerate() {
            let Some(seen) = self.policy.runnable_worlds(vm as u32).filter(|n| *n != count) else {
                continue;
            };
            let what = format!("seen {seen} runnable worlds counted in VM {vm}, allowed {count}");
            self.kernel.breach(Rule::Counts, None, None, what);
        }
    }

    fn audit_queues(&mut self) {
        let worlds = self.cast.worlds();
        let mut seen = vec![false; worlds.end as usize];
        let wrong = self.kernel.queued().find(|(w, seat)| {
            let twice = std::mem::replace(&mut seen[*w as usize], true);
            twice || self.kernel.seat(*w) != *seat
        });
        if let Some((world, seat)) = wrong {
            let what = format!("seen in {seat:?}, allowed only {:?}", self.kernel.seat(world));
            return self.kernel.breach(Rule::Custody, Some(world), None, what);
        }
        let lost = (1..seen.len()).find(|w| {
            let queued = matches!(
                self.kernel.seat(*w as u32),
                Seat::Queue(_) | Seat::Local(_) | Seat::Custody
            );
            queued && !seen[*w]
        });
        if let Some(world) = lost {
            let what = format!("seen in no queue, allowed {:?}", self.kernel.seat(world as u32));
            self.kernel.breach(Rule::Custody, Some(world as u32), None, what);
        }
    }
}
