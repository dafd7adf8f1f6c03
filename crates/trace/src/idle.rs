//! Stores the past of each pCPU, to find for any wait the pCPUs that idled meanwhile and the worlds
//! that ran; it knows no states of worlds.

use crate::{Now, Replay, Stretch};
use std::collections::BTreeMap;
use units::{CoreSharing, PcpuId, PcpuSet, VmId, WorldId};

/// Ended intervals of pCPUs, in the order of their ends, and times of state changes.
#[derive(Debug, Default)]
pub(crate) struct Past {
    idle: Vec<Stretch>,
    ran: Vec<Vec<Stretch>>,
    changes: Vec<u64>,
}

/// When a core is closed to a world: of which VM that is, and what its threads may run at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) to: Option<VmId>,
    pub(crate) by: CoreSharing,
}

/// Idling beside a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// Number of idle times.
    pub(crate) stretches: u32,
    /// Time in which at least one pCPU idled, in ns.
    pub(crate) ns: u64,
    /// State changes at which one did.
    pub(crate) seen: u32,
    /// The longest idle time of one pCPU, in ns, and the pCPU.
    pub(crate) longest: Option<(u64, PcpuId)>,
}

impl Past {
    pub(crate) fn add(&mut self, s: &Stretch) {
        if s.to_ns == s.from_ns {
            return;
        }
        match s.now {
            Now::Idle => self.idle.push(*s),
            Now::World(_) => {
                let p = usize::from(s.pcpu.0);
                if self.ran.len() <= p {
                    self.ran.resize(p + 1, vec![]);
                }
                self.ran[p].push(*s);
            }
            Now::Unknown | Now::Other | Now::Kept | Now::Off => {}
        }
    }

    /// Notes that some world's state changed.
    pub(crate) fn change(&mut self, ns: u64) {
        self.changes.push(ns);
    }

    /// Idling of pCPUs that are allowed, from `from` to now, outside of spans in which the world
    /// was parked or co-stopped, or their core was closed to it.
    pub(crate) fn beside(
        &self,
        replay: &Replay,
        from: u64,
        allowed: Option<&PcpuSet>,
        held: &[(u64, u64)],
        closed: Closed,
    ) -> Beside {
        let to = replay.ns();
        let ended = &self.idle[self.idle.partition_point(|s| s.to_ns <= from)..];
        let open = replay.pcpus().iter().enumerate().filter(|(_, p)| p.0 == Now::Idle);
        let open = open.map(|(i, p)| Stretch {
            pcpu: PcpuId(i as u16),
            now: Now::Idle,
            from_ns: p.1,
            to_ns: to,
        });
        let may = |s: &Stretch| allowed.is_none_or(|a| a.contains(s.pcpu));
        let mut out = Beside::default();
        let mut spans = vec![];
        for s in ended.iter().copied().chain(open).filter(may) {
            let mut barred = self.closed(replay, &s, closed);
            barred.extend_from_slice(held);
            let pieces = without((s.from_ns.max(from), s.to_ns.min(to)), &merged(barred));
            out.stretches += u32::from(!pieces.is_empty());
            for piece in &pieces {
                let ns = piece.1 - piece.0;
                if out.longest.is_none_or(|l| l.0 < ns) {
                    out.longest = Some((ns, s.pcpu));
                }
            }
            spans.extend(pieces);
        }
        for (a, b) in merged(spans) {
            out.ns += b - a;
            let count =
                self.changes.partition_point(|t| *t < b) - self.changes.partition_point(|t| *t < a);
            out.seen = out.seen.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
        out
    }

    /// Spans in which the core of an idle pCPU is closed to the world that waits: another of its
    /// threads runs a world beside which this one may not.
    fn closed(&self, replay: &Replay, idle: &Stretch, closed: Closed) -> Vec<(u64, u64)> {
        let names = replay.names();
        let (Some(vm), Some(place)) = (closed.to, names.place(idle.pcpu)) else { return vec![] };
        if closed.by == CoreSharing::Any {
            return vec![];
        }
        let mut out = vec![];
        for p in (0..replay.pcpus().len()).map(|p| PcpuId(p as u16)) {
            if p == idle.pcpu || names.place(p).is_none_or(|o| o.core != place.core) {
                continue;
            }
            for s in self.ran(replay, p, idle.from_ns) {
                let Now::World(w) = s.now else { continue };
                if names.vm_of(w).is_some_and(|(other, _)| !closed.by.lets(vm, other)) {
                    out.push((s.from_ns, s.to_ns));
                }
            }
        }
        out
    }

    /// What ran on a pCPU from `from` to now, and what runs there.
    fn ran<'p>(
        &'p self,
        replay: &Replay,
        p: PcpuId,
        from: u64,
    ) -> impl Iterator<Item = Stretch> + use<'p> {
        let ended = self
            .ran
            .get(usize::from(p.0))
            .map_or(&[][..], |r| &r[r.partition_point(|s| s.to_ns <= from)..]);
        let open = replay.pcpus().get(usize::from(p.0)).map(|(now, since)| Stretch {
            pcpu: p,
            now: *now,
            from_ns: *since,
            to_ns: replay.ns(),
        });
        ended.iter().copied().chain(open)
    }

    /// The world that ran longest on a pCPU from `from` to now, and for how long in ns.
    pub(crate) fn ran_most(&self, replay: &Replay, p: PcpuId, from: u64) -> Option<(WorldId, u64)> {
        let to = replay.ns();
        let mut sums: BTreeMap<WorldId, u64> = BTreeMap::new();
        for s in self.ran(replay, p, from) {
            if let Now::World(w) = s.now {
                *sums.entry(w).or_default() += s.to_ns.min(to).saturating_sub(s.from_ns.max(from));
            }
        }
        sums.into_iter().filter(|s| s.1 > 0).max_by_key(|s| s.1)
    }
}

/// A span without others, which are in order and apart.
fn without(span: (u64, u64), others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut at, mut out) = (span.0, vec![]);
    for (a, b) in others {
        if at < (*a).min(span.1) {
            out.push((at, (*a).min(span.1)));
        }
        at = at.max(*b);
    }
    if at < span.1 {
        out.push((at, span.1));
    }
    out
}

/// Spans as a union, in order and apart.
fn merged(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut out: Vec<(u64, u64)> = vec![];
    for (a, b) in spans {
        match out.last_mut().filter(|l| l.1 >= a) {
            Some(last) => last.1 = last.1.max(b),
            None => out.push((a, b)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_cut_and_joined() {
        assert_eq!(without((10, 50), &[(0, 12), (20, 30), (45, 60)]), [(12, 20), (30, 45)]);
        assert_eq!(without((10, 50), &[(5, 60)]), []);
        assert_eq!(without((10, 50), &[(60, 70)]), [(10, 50)]);
        assert_eq!(merged(vec![(5, 9), (1, 3), (3, 4), (8, 12)]), [(1, 4), (5, 12)]);
    }
}
