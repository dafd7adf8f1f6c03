//! Real-time tasks take pCPUs and give them back, in the order of kernel/sched/ext.c:
//! `put_prev_task_scx` for a task of a higher class, and the pick after it has gone to sleep.
//!
//! The world that runs is preempted. With slice left it stays at the head of the pCPU's local
//! queue, else the scheduler queues it anew. Until the pCPU is given back the scheduler is called
//! there no more: no dispatch, no tick; kicks have no effect. Worlds may still be queued there.

use super::Engine;
use crate::clock::Fixed;
use crate::realtime::Shift;
use contract::Scheduler;
use units::PcpuId;

/// How often the daemon looks at what real-time tasks take.
const LOOK_NS: u64 = 1_000_000_000;

impl<P: Scheduler> Engine<P> {
    /// Does what is due, and waits for the next.
    pub(super) fn realtime(&mut self) {
        while let Some(shift) = self.realtime.shift(self.kernel.now()) {
            match shift {
                Shift::Takes(pcpu) => self.take_pcpu(pcpu),
                Shift::Gives(pcpu) => self.give_pcpu(pcpu),
            }
        }
        self.await_realtime();
    }

    pub(super) fn await_realtime(&mut self) {
        if let Some(at) = self.realtime.next() {
            self.clock.arm(Fixed::Realtime, at);
        }
    }

    /// The daemon looks at what is taken, once a second, and plans anew if that has changed.
    pub(super) fn look_at_taken(&mut self) {
        let now = self.kernel.now();
        let online = self.kernel.online();
        let lost = |p: PcpuId| Some((p, self.policy.taken_ns(u32::from(p.0), now)?));
        let lost = online.iter().filter_map(lost).collect();
        if self.planner.look_at_taken(now, lost) {
            self.plan_later();
        }
        if self.realtime.is_any() {
            self.clock.arm(Fixed::Taken, now + LOOK_NS);
        }
    }

    fn take_pcpu(&mut self, pcpu: u32) {
        self.kernel.mark(|| format!("real-time: pCPU {pcpu} is taken"));
        self.cause = (Some(pcpu), 0);
        self.awakes(pcpu);
        let current = self.kernel.current(pcpu);
        if current != 0 {
            self.account(pcpu);
            self.put_prev(pcpu, current);
            self.kernel.switch_off(pcpu);
            self.clock.disarm_done(pcpu);
        }
        if self.kernel.turns_idle(pcpu, false) {
            self.tell_idle(pcpu, false);
        }
        self.kernel.set_taken(pcpu, true);
        self.occupied(pcpu);
        self.books.taken(self.kernel.now(), pcpu, true);
        self.stick(pcpu, true);
        self.settle(pcpu);
    }

    fn give_pcpu(&mut self, pcpu: u32) {
        self.kernel.mark(|| format!("real-time: pCPU {pcpu} is given back"));
        self.kernel.set_taken(pcpu, false);
        self.stick(pcpu, false);
        self.books.taken(self.kernel.now(), pcpu, false);
        self.pick(pcpu, 0, 0);
    }

    /// No other pCPU can get at what is in the local queue of one that has been taken.
    fn stick(&mut self, pcpu: u32, stuck: bool) {
        let now = self.kernel.now();
        self.kernel.local(pcpu).for_each(|world| self.books.stuck(now, world, stuck));
    }
}
