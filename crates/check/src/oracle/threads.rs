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
//! Where cores are not shared between VMs (ESXi's side-channel-aware scheduler), an idle thread
//! beside one that runs a VM's world loses all of its time as well, and may idle: other VMs may not
//! use it. That it idles beside a READY world of the same VM is not found. Worlds that do run side
//! by side though they may not stop within `affinity_grace_ns`.
//!
//! Limits: an idle core counts as all its threads. A world that could run there and does not is
//! found by `sharing` and `waits`.

use super::Oracle;
use crate::{CoreSharing, Invariant, State, lag::CHARGED_WHOLE};
use units::{PcpuId, VmId, WorldId};

/// Two worlds that run on threads of one core though they may not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixed {
    since: u64,
    a: (PcpuId, WorldId, VmId),
    b: (PcpuId, WorldId, VmId),
    reported: bool,
}

impl Oracle {
    /// Takes over what has changed on cores at `now`.
    pub(super) fn threads(&mut self, now: u64) {
        let charge = self.bounds.shared_charge;
        let (divided, apart) = (charge < CHARGED_WHOLE, self.keeps_apart());
        if !divided && !apart {
            while self.sharing.changed().is_some() {}
            return;
        }
        while let Some(core) = self.sharing.changed() {
            if apart {
                self.mixed(now, core);
            }
            for i in 0.. {
                let Some((p, busy)) = self.sharing.thread(core, i) else { break };
                let shared = 2 * charge / busy.max(1) as u64;
                let rate = if busy > 1 && divided { shared } else { CHARGED_WHOLE };
                let pcpu = &self.pcpus[p.0 as usize];
                let world = pcpu.world.and_then(|w| self.world(w)).map(|w| w.entry);
                let runs = world.or(pcpu.realtime.filter(|_| pcpu.taken));
                let lost = match runs {
                    _ if !self.online.contains(p) || busy == 0 => 0,
                    Some(_) => CHARGED_WHOLE - rate,
                    None if divided || self.beside_vm(p) => CHARGED_WHOLE,
                    None => 0,
                };
                if let Some(account) = runs.filter(|_| divided) {
                    self.ledger.charge(now, account, rate);
                }
                self.ledger.lose(now, p, lost);
                if apart {
                    self.excuse_one(now, p);
                }
            }
        }
    }

    fn keeps_apart(&self) -> bool {
        self.bounds.core_sharing != CoreSharing::Any
    }

    /// Whether another thread of this one's core runs a VM's world.
    fn beside_vm(&self, p: PcpuId) -> bool {
        let vms = |o: PcpuId| {
            let runs = self.pcpus[o.0 as usize].world.and_then(|w| self.world(w));
            runs.is_some_and(|w| w.vm != VmId::SYSTEM)
        };
        self.sharing.beside(p).any(vms)
    }

    /// Two threads of a core run worlds that it may not run at once from now on, or no longer.
    fn mixed(&mut self, now: u64, core: u32) {
        let threads = (0..).map_while(|i| self.sharing.thread(core, i)).map(|(p, _)| p);
        let runs = threads.filter_map(|p| {
            let world = self.pcpus[p.0 as usize].world?;
            self.world(world).filter(|w| w.vm != VmId::SYSTEM).map(|w| (p, world, w.vm))
        });
        let runs: Vec<_> = runs.collect();
        let one = self.bounds.core_sharing == CoreSharing::None;
        let other = runs.iter().find(|r| r.1 != runs[0].1 && (one || r.2 != runs[0].2)).copied();
        let first = runs.first().copied().zip(other);
        if self.mixed.len() <= core as usize {
            self.mixed.resize(core as usize + 1, None);
        }
        let before = std::mem::replace(
            &mut self.mixed[core as usize],
            first.map(|(a, b)| Mixed { since: now, a, b, reported: false }),
        );
        match before {
            Some(b) if first == Some((b.a, b.b)) => self.mixed[core as usize] = before,
            Some(b) => self.apart(now, b),
            None => {}
        }
    }

    /// Holds two worlds that have run side by side though they may not to the time of a kick.
    fn apart(&mut self, now: u64, mixed: Mixed) {
        let Mixed { since, a, b, reported } = mixed;
        let most = self.bounds.affinity_grace_ns;
        if reported || now - since <= most {
            return;
        }
        let seen = format!(
            "RUN for {} ns beside world {} of VM {} on pCPU {} of its core",
            now - since,
            a.1.0,
            a.2.0,
            a.0.0
        );
        let texts = (seen, format!("{most} ns, by core_sharing"));
        self.violated(now, Invariant::CoreSharing, Some(b.2), Some(b.1), Some(b.0), texts);
    }

    /// The same for those that run on.
    pub(super) fn look_apart(&mut self, now: u64) {
        for at in 0..self.mixed.len() {
            let Some(mixed) = self.mixed[at] else { continue };
            self.apart(now, mixed);
            let reported = now - mixed.since > self.bounds.affinity_grace_ns;
            self.mixed[at] = Some(Mixed { reported, ..mixed });
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

    /// For a trace: it is not known from now on whether anything runs on a pCPU where a world is
    /// taken to run, or it is known again. Such a world shares no core.
    pub fn unseen(&mut self, now_ns: u64, pcpu: PcpuId, unseen: bool) {
        let now = self.advance(now_ns);
        self.sharing.unseen(now, pcpu, unseen);
    }

    /// Whether a pCPU that idles may, for a world on another thread of its core.
    fn excused(&self, now: u64, p: PcpuId) -> bool {
        if self.keeps_apart() && self.beside_vm(p) {
            return true;
        }
        if !self.bounds.grants_cores() || self.pcpus[p.0 as usize].declared {
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
        if self.bounds.shared_charge >= CHARGED_WHOLE && !self.keeps_apart() {
            return;
        }
        for at in 0..self.pcpus.len() {
            self.excuse_one(now, PcpuId(at as u16));
        }
    }

    fn excuse_one(&mut self, now: u64, p: PcpuId) {
        let pcpu = &self.pcpus[p.0 as usize];
        if pcpu.world.is_some() || pcpu.taken || !self.online.contains(p) {
            return;
        }
        let kept = self.excused(now, p);
        match (std::mem::replace(&mut self.pcpus[p.0 as usize].kept, kept), kept) {
            (false, true) => self.waits.excused(p),
            (true, false) => self.waits.pcpu_idles(now, p),
            _ => {}
        }
    }
}
