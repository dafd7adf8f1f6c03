//! Which pCPU of a run queue is sent to look at a world that waits; it takes nothing out of a
//! queue.
//!
//! *Law*: a pCPU of a core that idles as a whole, the own one or the next after it; else an idle
//! one, the same; else the own one if what runs there has less credit; else that where the credit
//! differs most, less 500 us. One whose world has run for less than the ratelimit (less 50 us) is
//! left alone, as is one that was sent already.
//!
//! *Source*: runq_tickle, tickle_score, is_preemptable; hard affinity alone.

use super::super::RATELIMIT_NS;
use super::{Credit2, RESIST_NS};
use contract::Callback;

/// A run is taken to have lasted for the ratelimit so much sooner, in ns.
const TOLERANCE_NS: u64 = 50_000;

impl Credit2 {
    /// Sends a pCPU to schedule.
    pub(super) fn tickle_pcpu(&mut self, k: &mut Callback<'_>, pcpu: u32) {
        self.pcpus[pcpu as usize].tickled = true;
        self.machine.reschedule(k, pcpu);
    }

    /// Whether a pCPU idles and was not sent to schedule.
    fn is_free(&self, pcpu: u32) -> bool {
        let of = self.pcpus[pcpu as usize];
        of.idle && !of.tickled
    }

    /// Whether all threads of a pCPU's core are free.
    fn is_core_free(&self, pcpu: u32) -> bool {
        let mut twins = (0..self.machine.len()).filter(|p| self.machine.share_core(pcpu, *p));
        twins.all(|p| self.is_free(p) || !self.machine.is_online(p))
    }

    /// How much more credit a world has than what runs on a pCPU.
    fn score(&mut self, k: &Callback<'_>, world: u32, pcpu: u32) -> i64 {
        let current = self.machine.current(pcpu);
        let ran = self.machine.ran_ns(pcpu, k.now_ns);
        if current == 0 || ran <= RATELIMIT_NS - TOLERANCE_NS {
            return -1;
        }
        self.burn(pcpu, k.now_ns);
        let of = self.worlds[world as usize];
        let more = of.credit - self.worlds[current as usize].credit;
        if of.at == pcpu { more } else { more - RESIST_NS }
    }

    /// Sends a pCPU to look at a world that waits, if one should.
    pub(super) fn tickle(&mut self, k: &mut Callback<'_>, world: u32) {
        let (at, queue) = (self.worlds[world as usize].at, self.worlds[world as usize].queue);
        let fits = |p| self.fits(k, world, queue, p);
        let nearest = |free: &dyn Fn(u32) -> bool| {
            let fits = |p| fits(p) && free(p);
            if fits(at) { Some(at) } else { self.machine.cycle(at, fits) }
        };
        let idle = nearest(&|p| self.is_free(p) && self.is_core_free(p));
        if let Some(pcpu) = idle.or_else(|| nearest(&|p| self.is_free(p))) {
            return self.send(k, world, pcpu);
        }
        let others = (0..self.machine.len()).filter(|p| *p != at);
        let all: Vec<u32> = std::iter::once(at).chain(others).filter(|p| fits(*p)).collect();
        let (mut best, mut most) = (None, 0);
        for pcpu in all {
            let of = self.pcpus[pcpu as usize];
            if of.idle || of.tickled {
                continue;
            }
            let score = self.score(k, world, pcpu);
            if score > most {
                (best, most) = (Some(pcpu), score);
                if pcpu == at {
                    break;
                }
            }
        }
        if let Some(pcpu) = best {
            self.send(k, world, pcpu);
        }
    }

    fn send(&mut self, k: &mut Callback<'_>, world: u32, pcpu: u32) {
        self.worlds[world as usize].tickled = Some(pcpu);
        self.tickle_pcpu(k, pcpu);
    }
}
