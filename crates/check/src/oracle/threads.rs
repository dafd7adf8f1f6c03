//! What the threads of a core leave each other: worlds are charged, and the host divided, in cores.
//!
//! Law: while `n > 1` threads of a core are busy, each is charged `2 · shared_charge ÷ n`
//! thousandths of its time and loses the rest; while one is, the idle ones beside it lose all of
//! theirs: they could have added no more than a world that did not come (an idle pCPU beside a
//! READY world is another invariant's). So a core has one pCPU's time while one thread is busy, and
//! `2 · shared_charge` while all are.
//!
//! A thread may idle beside a READY world while the world on the other one is entitled to more than
//! a shared core gives (VS51 "Policy on Hyper-Threading": the latter approach keeps the partner
//! thread forcefully idle), or waits there for another's short run; and as long after that as plan
//! and scheduler may be late.
//!
//! Limits: an idle core counts as all its threads. A world that could run there and does not is
//! found by `sharing` and `waits`.

use super::Oracle;
use crate::{State, lag::CHARGED_WHOLE};
use units::{PcpuId, WorldId};

impl Oracle {
    /// Takes over what has changed on cores at `now`.
    pub(super) fn threads(&mut self, now: u64) {
        let charge = self.bounds.shared_charge;
        if charge >= CHARGED_WHOLE {
            while self.sharing.changed().is_some() {}
            return;
        }
        while let Some(core) = self.sharing.changed() {
            for i in 0.. {
                let Some((p, busy)) = self.sharing.thread(core, i) else { break };
                let shared = 2 * charge / busy.max(1) as u64;
                let rate = if busy > 1 { shared } else { CHARGED_WHOLE };
                let pcpu = &self.pcpus[p.0 as usize];
                let world = pcpu.world.and_then(|w| self.world(w)).map(|w| w.entry);
                let runs = world.or(pcpu.realtime.filter(|_| pcpu.taken));
                let lost = match runs {
                    _ if !self.online.contains(p) || busy == 0 => 0,
                    Some(_) => CHARGED_WHOLE - rate,
                    None => CHARGED_WHOLE,
                };
                if let Some(account) = runs {
                    self.ledger.charge(now, account, rate);
                }
                self.ledger.lose(now, p, lost);
            }
        }
    }

    /// The scheduler keeps a pCPU for a world on another thread of its core, or no longer; for a
    /// trace, which does not say what a VM is entitled to.
    pub fn kept(&mut self, now_ns: u64, pcpu: PcpuId, kept: bool) {
        let now = self.advance(now_ns);
        if let Some(p) = self.pcpus.get_mut(pcpu.0 as usize).filter(|p| p.declared != kept) {
            p.declared = kept;
            self.excuse(now);
        }
    }

    /// Whether a pCPU that idles may, for a world on another thread of its core.
    fn excused(&self, now: u64, p: PcpuId) -> bool {
        if self.bounds.shared_charge >= CHARGED_WHOLE || self.pcpus[p.0 as usize].declared {
            return self.pcpus[p.0 as usize].declared;
        }
        let grace = 2 * self.bounds.lag_replanned_ns;
        let entitled = |w: WorldId, waits: bool| {
            self.world(w).is_some_and(|w| {
                (!waits || w.life.state == State::Ready)
                    && self.vm(w.vm).is_some_and(|vm| self.ledger.whole(vm, now, grace))
            })
        };
        self.sharing.beside(p).any(|o| {
            let o = &self.pcpus[o.0 as usize];
            o.world.is_some_and(|w| entitled(w, false)) || o.last.is_some_and(|w| entitled(w, true))
        })
    }

    /// A pCPU idles from now on.
    pub(super) fn idles(&mut self, now: u64, p: PcpuId) {
        let kept = self.excused(now, p);
        self.pcpus[p.0 as usize].kept = kept;
        if !kept {
            self.waits.pcpu_idles(now, p);
        }
    }

    /// pCPUs that idle for another thread of their core from now on, or no longer.
    pub(super) fn excuse(&mut self, now: u64) {
        if self.bounds.shared_charge >= CHARGED_WHOLE {
            return;
        }
        for at in 0..self.pcpus.len() {
            let (p, pcpu) = (PcpuId(at as u16), &self.pcpus[at]);
            if pcpu.world.is_some() || pcpu.taken || !self.online.contains(p) {
                continue;
            }
            let kept = self.excused(now, p);
            match (std::mem::replace(&mut self.pcpus[at].kept, kept), kept) {
                (false, true) => self.waits.excused(p),
                (true, false) => self.waits.pcpu_idles(now, p),
                _ => {}
            }
        }
    }
}
