//! Real-time threads of a host: when each takes its pCPU, and when the pCPU is free again. It knows
//! no scheduler and no world.
//!
//! A thread wakes once in each period, from a point in its first period on that the seed decides.
//! Threads of one pCPU run in the order in which they wake (SCHED_FIFO of one priority).
//!
//! Limits: what runs beyond a period delays the next; the kernel would throttle a thread that has
//! had 950 ms of a second.

use dice::Stream;
use settings::{Dist, RealtimeSpec};
use std::collections::BTreeSet;

/// A pCPU changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Real-time tasks take this one.
    Takes(u32),
    /// They give it back.
    Gives(u32),
}

/// What is due at a time. At one instant a thread that wakes comes first, so that the pCPU goes on
/// from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Wakes(usize),
    Ends(u32),
}

#[derive(Clone, Debug)]
struct Thread {
    pcpu: u32,
    work: u64,
    period: u64,
    dist: Dist,
    to: u64,
    random: Stream,
}

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct Realtime {
    threads: Vec<Thread>,
    /// Until when each pCPU is taken, if it is.
    until: Vec<Option<u64>>,
    due: BTreeSet<(u64, Due)>,
}

impl Realtime {
    /// The threads of these tasks, on a host of so many pCPUs.
    pub(crate) fn new(tasks: &[RealtimeSpec], pcpus: usize, seed: u64) -> Realtime {
        let (mut threads, mut due) = (vec![], BTreeSet::new());
        for task in tasks {
            for pcpu in task.pcpus.iter().map(|p| u32::from(p.0)) {
                let name = format!("real-time task {} of pCPU {pcpu}", task.name);
                let mut random = Stream::new(seed, &name);
                let (work, period, dist) = (task.work.ns(), task.period.ns(), task.dist);
                let to = task.to.map_or(u64::MAX, |to| to.ns());
                let first = task.from.ns() + random.below(period);
                if first < to {
                    due.insert((first, Due::Wakes(threads.len())));
                }
                threads.push(Thread { pcpu, work, period, dist, to, random });
            }
        }
        Realtime { threads, until: vec![None; pcpus], due }
    }

    /// Whether there is any.
    pub(crate) fn is_any(&self) -> bool {
        !self.threads.is_empty()
    }

    /// When the next is due; none if nothing ever is.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due.first().map(|d| d.0)
    }

    /// What happens at `now` or before, one at a time.
    pub(crate) fn shift(&mut self, now: u64) -> Option<Shift> {
        while self.next().is_some_and(|at| at <= now) {
            let shift = match self.due.pop_first()? {
                (at, Due::Wakes(thread)) => self.wakes(at, thread),
                (at, Due::Ends(pcpu)) => self.ends(at, pcpu),
            };
            if shift.is_some() {
                return shift;
            }
        }
        None
    }

    fn wakes(&mut self, now: u64, thread: usize) -> Option<Shift> {
        let t = &mut self.threads[thread];
        let work = match t.dist {
            Dist::Fixed => t.work,
            Dist::Exponential => t.random.exponential(t.work),
        };
        if now + t.period < t.to {
            self.due.insert((now + t.period, Due::Wakes(thread)));
        }
        let (pcpu, until) = (t.pcpu, &mut self.until[t.pcpu as usize]);
        let end = until.unwrap_or(now) + work;
        self.due.insert((end, Due::Ends(pcpu)));
        until.replace(end).is_none().then_some(Shift::Takes(pcpu))
    }

    fn ends(&mut self, now: u64, pcpu: u32) -> Option<Shift> {
        let until = &mut self.until[pcpu as usize];
        // Another thread has come since.
        until.take_if(|end| *end == now).map(|_| Shift::Gives(pcpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{PcpuSet, Span};

    fn task(name: &str, pcpus: usize, work: u64, to: Option<Span>) -> RealtimeSpec {
        RealtimeSpec {
            name: name.to_owned(),
            pcpus: PcpuSet::first(pcpus),
            work: Span::from_ns(work),
            period: Span::from_ns(10_000),
            dist: Dist::Fixed,
            from: Span::from_ns(50_000),
            to,
        }
    }

    fn all(tasks: &[RealtimeSpec], pcpus: usize, until: u64) -> Vec<(u64, Shift)> {
        let mut realtime = Realtime::new(tasks, pcpus, 1);
        let mut out = vec![];
        while let Some(at) = realtime.next().filter(|at| *at < until) {
            while let Some(shift) = realtime.shift(at) {
                out.push((at, shift));
            }
        }
        out
    }

    #[test]
    fn each_pcpu_is_taken_for_the_work_of_each_period_and_not_all_at_once() {
        let out = all(&[task("a", 2, 3_000, Some(Span::from_ns(80_000)))], 2, u64::MAX);
        let of = |p: u32| out.iter().filter(move |s| matches!(s.1, Shift::Takes(q) if q == p));
        let starts: Vec<u64> = of(0).map(|s| s.0).collect();
        assert_eq!(starts.len(), 3, "the last period begins before 80 us: {starts:?}");
        assert!((50_000..60_000).contains(&starts[0]) && starts[1] == starts[0] + 10_000);
        assert!(starts.iter().all(|s| out.contains(&(s + 3_000, Shift::Gives(0)))));
        assert_ne!(of(1).next().map(|s| s.0), Some(starts[0]));
    }

    #[test]
    fn threads_of_one_pcpu_run_one_after_the_other() {
        let out = all(&[task("a", 1, 6_000, None), task("b", 1, 3_000, None)], 1, 1_050_000);
        let taken: u64 = out.windows(2).filter(|w| w[0].1 == Shift::Takes(0)).map(taken_in).sum();
        assert!(out.windows(2).all(|w| w[0].1 != w[1].1), "it is taken and given back in turn");
        assert!((880_000..=900_000).contains(&taken), "{taken} ns of 900,000 in 100 periods");
    }

    fn taken_in(w: &[(u64, Shift)]) -> u64 {
        w[1].0 - w[0].0
    }
}
