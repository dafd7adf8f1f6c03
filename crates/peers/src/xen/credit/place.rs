//! Which pCPU a world goes to: at its start, and from a tick where a better one idles. It queues
//! nothing.
//!
//! *Law*: the own pCPU if nothing else waits there, or an idle one. From there on each other idle
//! pCPU is looked at in a cycle: it is better if its core has more idle threads, or, on another
//! socket, if that has more than twice as many idle pCPUs. Of the idle pCPUs beside it the one
//! after the last that was taken so is next.
//!
//! *Source*: _csched_cpu_pick, with hard affinity alone.
//!
//! *Example*: 2 cores of 2 threads, a world on each thread of the first core: at the next tick one
//! of them goes to the second.

use super::Credit;
use contract::Callback;

impl Credit {
    /// The best pCPU for a world; `commit` if it goes there.
    pub(super) fn pick(&mut self, k: &Callback<'_>, world: u32, commit: bool) -> u32 {
        let (machine, task) = (&self.machine, k.task(world));
        let at = self.worlds[world as usize].at;
        let may = |p| machine.may_run(task, p);
        let mut best = if may(at) { at } else { machine.cycle(at, may).unwrap_or(at) };
        let mut idlers: Vec<bool> = self.pcpus.iter().map(|p| p.idler).collect();
        if best == at && self.pcpus[at as usize].queue.is_empty() {
            idlers[at as usize] = true;
        }
        let mut left: Vec<bool> =
            (0..machine.len()).map(|p| may(p) && idlers[p as usize]).collect();
        if !left[best as usize] {
            best = machine.cycle(best, |p| left[p as usize]).unwrap_or(best);
        }
        left[best as usize] = false;
        let mut biased = None;
        while let Some(next) = machine.cycle(best, |p| left[p as usize]) {
            let near_by = machine.share_socket(best, next);
            let beside = |a, b| {
                if near_by { machine.share_core(a, b) } else { machine.share_socket(a, b) }
            };
            let idle =
                |of| (0..machine.len()).filter(|p| idlers[*p as usize] && beside(of, *p)).count();
            let factor = if near_by { 1 } else { 2 };
            if idle(best) * factor < idle(next) {
                biased = Some(next);
                let from = self.pcpus[next as usize].idle_bias;
                let fits = |p| left[p as usize] && beside(next, p);
                best = machine.cycle(from, fits).unwrap_or(next);
                (0..machine.len())
                    .filter(|p| machine.share_core(best, *p))
                    .for_each(|p| left[p as usize] = false);
            } else {
                (0..machine.len())
                    .filter(|p| idlers[*p as usize] && beside(next, *p))
                    .for_each(|p| left[p as usize] = false);
            }
        }
        if let Some(next) = biased.filter(|_| commit) {
            self.pcpus[next as usize].idle_bias = best;
        }
        best
    }
}
