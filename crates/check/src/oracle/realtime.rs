//! pCPUs that real-time tasks take away from the scheduler for a while: what is left of the host is
//! divided.
//!
//! Law: in both ideals real-time tasks are a VM that comes before all others and asks for the time
//! that they had. So each window divides its capacity less that, to the ns, whatever its length.
//! Where every world may use all pCPUs, it does not matter which of them were taken.
//!
//! Limits: where reservations ask for what is taken, a window gives both sides some of it, and the
//! next ones give real-time tasks the rest. A VM pinned to one pCPU with all of it reserved, beside
//! real-time tasks of 30 % there, was entitled to 70.1 %.
//!
//! Why not as pCPUs that go off line: each change would close the windows of both ideals, and the
//! average one would average over nothing.

use super::Oracle;
use crate::Invariant;
use units::{PcpuId, PcpuSet};

impl Oracle {
    /// A real-time task takes a pCPU from now on, or (`taken` is false) gives it back. The world
    /// that ran there has stopped before. A pCPU that is taken does not idle.
    pub fn taken(&mut self, now_ns: u64, pcpu: PcpuId, taken: bool) {
        let now = self.advance(now_ns);
        let Some(p) = self.pcpus.get(pcpu.0 as usize) else {
            return self.odd(now, None, None, "an unknown pCPU taken", "one of the host");
        };
        if p.taken == taken {
            return self.odd(now, None, None, "a pCPU taken or given twice", "once");
        }
        if let Some(world) = p.world {
            let texts =
                (format!("world {} beside a real-time task", world.0), "one of both".to_owned());
            self.violated(now, Invariant::OneWorldAPcpu, None, Some(world), Some(pcpu), texts);
        }
        self.sharing.busy(now, pcpu, taken);
        if taken {
            let may = |set: u32, p| self.ledger.pcpus_of(set).contains(p);
            if let Some(o) = self.waits.pcpu_runs(now, pcpu, may) {
                let vm = self.world(units::WorldId(o.world)).map(|w| w.vm);
                self.late(now, vm, o);
            }
        } else {
            self.idles(now, pcpu);
        }
        let set = if self.held { Some(PcpuSet::from_iter([pcpu])) } else { None };
        let set = self.ledger.set(set.as_ref());
        let before = self.pcpus[pcpu.0 as usize].realtime;
        let account = match before {
            None => self.ledger.add_realtime(now, set),
            Some(account) => self.ledger.move_world(now, account, set),
        };
        self.ledger.turn(now, account, taken, taken);
        let p = &mut self.pcpus[pcpu.0 as usize];
        (p.taken, p.realtime) = (taken, Some(account));
        self.threads(now);
    }
}
