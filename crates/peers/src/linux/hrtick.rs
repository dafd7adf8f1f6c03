//! The end of a request at its very moment, as EEVDF has it from Linux 7.1 on; it picks nothing.
//!
//! *Law*: where others wait on its pCPU, a timer comes when what runs has reached its virtual
//! deadline, and its pCPU picks anew (Linux, `kernel/sched/fair.c`: `hrtick_start_fair`,
//! `entity_tick`; `features.h`: `HRTICK`, on where the kernel is built with
//! `HRTIMER_REARM_DEFERRED`, as Debian's is for x86). It is set when a thread begins to run, and
//! anew when others come or go there.
//!
//! *Example*: two VMs of one vCPU each on one pCPU alternate each 0.7 ms, not each tick of 4 ms.
//!
//! *Limits*: from 7.3 on the threads of all cgroups are in one queue, each with one deadline, by
//! the product of its parts of the weights above it. Here each cgroup has its queue, and the first
//! deadline counts of the levels where others wait. The time that interrupts take of a pCPU, which
//! the kernel adds, is 0 here. A vCPU that the timer stops leaves its guest, and so is preempted at
//! once, by lazy preemption as well.

use super::Linux;
use super::entity::NICE_0;
use super::terms::Law;
use contract::{Callback, KICK_PREEMPT, TIMERS_MAX};

/// The first timer of these; those before are others'.
const FIRST: u32 = 3;
/// Timers of these; pCPUs share them on hosts of more.
const SLOTS: u32 = TIMERS_MAX - FIRST;
/// Nothing is timed more closely (`hrtick_start`), in ns.
const LEAST_NS: u64 = 10_000;

impl Linux {
    /// Sets the timers of pCPUs where something has changed.
    pub(super) fn start_hrticks(&mut self, k: &mut Callback<'_>) {
        let mut pcpus = std::mem::take(&mut self.untold.hrticks);
        if self.law == Law::Eevdf {
            pcpus.sort_unstable();
            pcpus.dedup();
            for pcpu in &pcpus {
                self.pcpus[*pcpu as usize].hrtick_at = self.ends_at(k.now_ns, *pcpu);
                self.arm_hrtick(k, pcpu % SLOTS);
            }
        }
        pcpus.clear();
        self.untold.hrticks = pcpus;
    }

    /// When the world that runs on a pCPU reaches its deadline; none if it is alone.
    fn ends_at(&self, now_ns: u64, pcpu: u32) -> Option<u64> {
        let there = &self.pcpus[pcpu as usize];
        if there.runs == 0 || self.runnable(pcpu as usize) < 2 {
            return None;
        }
        let since = self.worlds[there.runs as usize].since_ns;
        let others = |(rq, _): &(usize, usize)| self.rqs[*rq].queue.len() > 1;
        let left = self.chain(there.runs as usize).filter(others).map(|(_, id)| {
            let entity = &self.entities[id];
            let left = u128::try_from(entity.deadline - entity.vruntime).unwrap_or(0);
            (left * u128::from(entity.weight)).div_ceil(u128::from(NICE_0)) as u64
        });
        let left = left.min()?;
        Some((since + left).max(now_ns + LEAST_NS))
    }

    /// pCPUs of a timer.
    fn of_slot(&self, slot: u32) -> impl Iterator<Item = usize> + use<> {
        (slot as usize..self.pcpus.len()).step_by(SLOTS as usize)
    }

    fn arm_hrtick(&self, k: &mut Callback<'_>, slot: u32) {
        let next = self.of_slot(slot).filter_map(|p| self.pcpus[p].hrtick_at).min();
        if let Some(at) = next {
            k.kernel.arm(FIRST + slot, at.saturating_sub(k.now_ns));
        }
    }

    /// A timer has come.
    pub(super) fn hrtick(&mut self, k: &mut Callback<'_>, timer: u32) {
        let slot = timer - FIRST;
        for pcpu in self.of_slot(slot) {
            if self.pcpus[pcpu].hrtick_at.is_some_and(|at| at <= k.now_ns) {
                self.pcpus[pcpu].hrtick_at = None;
                if self.pcpus[pcpu].runs != 0 {
                    self.charge(k.now_ns, pcpu as u32);
                    k.kernel.kick(pcpu as u32, KICK_PREEMPT);
                }
            }
        }
        self.arm_hrtick(k, slot);
    }
}
