//! pCPUs that go off line and come on line again, in the order of kernel/sched/core.c and
//! kernel/sched/ext.c: `sched_cpu_deactivate` and `sched_cpu_activate`.
//!
//! Down: the pCPU is no longer active, so dispatch is called there no more; the scheduler learns of
//! it; the stopper preempts what runs there, and moves it and each world that comes into the local
//! queue to the first pCPU on line that it may use, where it is enqueued. What waits in the
//! scheduler's own queues is the scheduler's to return.
//!
//! In a trace a pCPU off line does not idle, as in a recording of a live host: the engine says so,
//! for the scheduler records nothing of it.

use super::Engine;
use contract::Scheduler;
use trace::Kind;

impl<P: Scheduler> Engine<P> {
    /// A pCPU comes on line or goes off line; the plan follows, as for any change.
    pub(super) fn hotplug(&mut self, pcpu: u32, online: bool) {
        self.kernel.mark(|| {
            format!("pCPU {pcpu} {}", if online { "comes on line" } else { "goes off line" })
        });
        self.cause = (None, 0);
        self.awakes(pcpu);
        self.kernel.set_online(pcpu, online);
        if online {
            self.kernel.say_on(pcpu, Kind::Idle { begins: true });
            self.change_pcpus();
            self.call(|p, k| p.online(k, pcpu, true));
        } else {
            self.call(|p, k| p.online(k, pcpu, false));
            self.push_current(pcpu);
            self.change_pcpus();
            self.evacuate(pcpu);
        }
        self.settle(u32::MAX);
        self.renew_homes();
    }

    /// What runs on a pCPU that goes is preempted; the pCPU idles until it is gone.
    fn push_current(&mut self, pcpu: u32) {
        let current = self.kernel.current(pcpu);
        if current != 0 {
            self.account(pcpu);
            self.preempt(pcpu, current);
            self.kernel.put_back(current, pcpu);
            self.kernel.switch_off(pcpu);
            self.clock.disarm_done(pcpu);
            self.occupied(pcpu);
        }
        if self.kernel.turns_idle(pcpu, true) {
            self.tell_idle(pcpu, true);
            self.kernel.set_idle(pcpu, false);
        }
        self.write_chronicle();
        self.kernel.say_on(pcpu, Kind::Idle { begins: false });
        self.kernel.say_on(pcpu, Kind::Offline);
    }

    /// Moves all that is in the local queue of a pCPU that is off line.
    pub(super) fn evacuate(&mut self, pcpu: u32) {
        while let Some(world) = self.kernel.pop_local(pcpu) {
            self.call(|p, k| p.quiescent(k, world, false));
            let to = self.kernel.fallback(&self.tasks[world as usize]);
            self.tasks[world as usize].pcpu = to as i32;
            self.call(|p, k| p.runnable(k, world));
            self.enqueue(world, 0);
            self.settle(to);
        }
    }

    /// The oracle and the planner have so many pCPUs from now on.
    fn change_pcpus(&mut self) {
        let online = self.kernel.online();
        self.books.online(self.kernel.now(), &online);
        self.planner.set_pcpus(online);
        self.resize_system();
        self.plan_later();
    }
}
