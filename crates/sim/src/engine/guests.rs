//! What a guest's scheduler does to other vCPUs of its VM: reschedule interrupts and timers, as the
//! host carries them out. What the guest decides is in the crate `guest`.

use super::Engine;
use crate::kernel::Seat;
use contract::Scheduler;

impl<P: Scheduler> Engine<P> {
    /// A vCPU, `from`, which runs on `pcpu`, interrupts another, or gives it a timer. One that runs
    /// sees that at once, a halted one is woken on the host as by any interrupt (by a timer not
    /// before it is due), one that is READY sees it when it runs.
    pub(super) fn reschedule_guest(&mut self, (to, interrupts): (u32, bool), pcpu: u32, from: u32) {
        match self.kernel.seat(to) {
            Seat::Running(there) => {
                self.account(there);
                self.cast.tasks_look(to);
                self.arm_done(there);
            }
            Seat::Asleep if interrupts => {
                self.clock.disarm_sleep(to);
                self.wake_by(to, pcpu, from, 0);
            }
            Seat::Asleep => {
                if let Some(until) = self.cast.tasks_timer(to) {
                    self.clock.arm_sleep(to, until);
                }
            }
            _ => {}
        }
    }
}
