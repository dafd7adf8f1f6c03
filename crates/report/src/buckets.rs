//! CPU time over time: spans added to buckets of equal width, to the nanosecond; entitlements are
//! means over the known time.

use crate::model::{Buckets, Series};

/// Buckets that are aimed at: about four pixels each on a wide screen.
const AIM: u64 = 200;

/// State of a VM that a span counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    Run,
    Ready,
    Limited,
    Costop,
}

/// Buckets from `from` to `to`.
#[derive(Clone, Debug)]
pub(crate) struct Filler {
    from: u64,
    to: u64,
    width: u64,
    count: usize,
    vms: Vec<[Vec<u64>; 4]>,
    /// For each VM: the last known entitlement and since when, and ns entitled and ns known in each
    /// bucket.
    told: Vec<Option<(u64, u64)>>,
    entitled: Vec<Vec<(u128, u64)>>,
}

/// The smallest of 1, 2, 5, 10, … that is no smaller than `x`.
fn round(x: u64) -> u64 {
    let mut unit: u64 = 1;
    loop {
        for factor in [1, 2, 5] {
            if unit.saturating_mul(factor) >= x {
                return unit.saturating_mul(factor);
            }
        }
        unit = unit.saturating_mul(10);
    }
}

impl Filler {
    pub(crate) fn new(from: u64, to: u64, vms: usize) -> Filler {
        let span = to.saturating_sub(from).max(1);
        let width = round(span.div_ceil(AIM));
        let count = span.div_ceil(width) as usize;
        let zero = || vec![0; count];
        Filler {
            from,
            to,
            width,
            count,
            vms: (0..vms).map(|_| [zero(), zero(), zero(), zero()]).collect(),
            told: vec![None; vms],
            entitled: vec![vec![]; vms],
        }
    }

    /// Pieces of a span by bucket: which, and its part in ns.
    fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (zero, width) = (self.from, self.width);
        let (mut at, to) = (from.max(zero), to.min(self.to));
        std::iter::from_fn(move || {
            (at < to).then(|| {
                let bucket = (at - zero) / width;
                let end = to.min(zero + (bucket + 1) * width);
                let ns = end - at;
                at = end;
                (bucket as usize, ns)
            })
        })
    }

    /// Adds a span of a VM.
    pub(crate) fn add(&mut self, vm: usize, counts: Counts, from: u64, to: u64) {
        for (bucket, ns) in self.pieces(from, to) {
            self.vms[vm][counts as usize][bucket] += ns;
        }
    }

    /// From `ns` on a VM is entitled to `rate`, in 2^-20 of a pCPU; the entitlement before holds
    /// until then.
    pub(crate) fn entitled(&mut self, vm: usize, ns: u64, rate: u64) {
        self.settle(vm, ns);
        self.told[vm] = Some((ns, rate));
    }

    /// All entitlements are unknown from here on.
    pub(crate) fn lost(&mut self, ns: u64) {
        for vm in 0..self.told.len() {
            self.settle(vm, ns);
            self.told[vm] = None;
        }
    }

    fn settle(&mut self, vm: usize, ns: u64) {
        let Some((since, rate)) = self.told[vm] else { return };
        for (bucket, ns) in self.pieces(since, ns) {
            if self.entitled[vm].is_empty() {
                self.entitled[vm] = vec![(0, 0); self.count];
            }
            let at = &mut self.entitled[vm][bucket];
            *at = (at.0 + u128::from(rate) * u128::from(ns), at.1 + ns);
        }
    }

    /// The buckets. If the entitlement is known for a part of a bucket only, that part stands for
    /// all of it.
    pub(crate) fn finish(mut self) -> Buckets {
        self.lost(self.to);
        let shown = |all: &Vec<u64>| if all.iter().all(|x| *x == 0) { vec![] } else { all.clone() };
        let long =
            |i: usize| (self.to - self.from).saturating_sub(i as u64 * self.width).min(self.width);
        let mean = |(i, (sum, known)): (usize, &(u128, u64))| {
            (*known > 0).then(|| ((*sum / u128::from(*known) * u128::from(long(i))) >> 20) as u64)
        };
        let series = |(states, entitled): (&[Vec<u64>; 4], &Vec<(u128, u64)>)| Series {
            run: shown(&states[0]),
            ready: shown(&states[1]),
            limited: shown(&states[2]),
            costop: shown(&states[3]),
            entitled: entitled.iter().enumerate().map(mean).collect(),
        };
        let vms = self.vms.iter().zip(&self.entitled).map(series).collect();
        Buckets { width_ns: self.width, count: self.count, vms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_cut_at_buckets_and_at_the_window_and_keeps_its_length() {
        let mut f = Filler::new(1000, 2000, 1); // 5 ns wide
        f.add(0, Counts::Run, 0, 1006);
        f.add(0, Counts::Run, 1006, 1007);
        f.add(0, Counts::Run, 1990, 5000);
        f.add(0, Counts::Limited, 1004, 1016);
        let b = f.finish();
        assert_eq!((b.width_ns, b.count), (5, 200));
        assert_eq!((&b.vms[0].run[..3], &b.vms[0].run[197..]), (&[5, 2, 0][..], &[0, 5, 5][..]));
        assert_eq!(b.vms[0].limited[..4], [1, 5, 5, 1]);
        assert_eq!(
            (b.vms[0].ready.len(), b.vms[0].costop.len(), b.vms[0].entitled.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn what_is_entitled_is_a_mean_and_unknown_where_it_was_not_told() {
        let mut f = Filler::new(0, 2000, 1); // 10 ns wide
        f.entitled(0, 5, 1 << 20);
        f.entitled(0, 15, 1 << 19);
        f.lost(25);
        let e = f.finish().vms[0].entitled.clone();
        assert_eq!(e[..4], [Some(10), Some(7), Some(5), None]);
    }

    #[test]
    fn the_last_bucket_may_be_shorter() {
        let mut f = Filler::new(0, 2001, 1); // 20 ns wide
        f.entitled(0, 0, 1 << 20);
        f.add(0, Counts::Run, 0, 3000);
        let b = f.finish();
        assert_eq!(
            (b.width_ns, b.count, b.vms[0].run[100], b.vms[0].entitled[100]),
            (20, 101, 1, Some(1))
        );
        assert_eq!(b.vms[0].run.iter().sum::<u64>(), 2001);
    }
}
