//! Load averages over 1, 5 and 15 minutes as esxtop's first line has them; it is fed, and reads no
//! clock.
//!
//! *Promise*: 1.00 means that the pCPUs were just enough for all worlds that ran or were ready;
//! 2.00 that there was twice as much work. *Law*: the load of a moment is (running + ready worlds)
//! ÷ pCPUs; an average is the arithmetic mean over its minutes. *Units*: pCPUs' worth of work by
//! pCPU. *Example*: 6 worlds run or wait on 4 pCPUs for a minute: 1.50. *Limits*: time is kept in
//! pieces of 6 s, esxtop's own sampling, of which 150 are kept; a piece that is not full is left
//! out as soon as there is a full one. *Weakness*: until its minutes have passed, an average is
//! over what there is.
//!
//! That esxtop's mean is arithmetic over samples of 6 s, and not a decaying one as Linux's, is from
//! memory of VMware's "Interpreting esxtop 4.1 Statistics" (DOC-11812, section 2.3), not read
//! again.

use std::collections::VecDeque;

/// Length of a piece.
const PIECE_NS: u64 = 6_000_000_000;
/// Pieces in 1, 5 and 15 minutes.
const PIECES: [usize; 3] = [10, 50, 150];

/// The averages as they stand.
#[derive(Clone, Debug, Default)]
pub struct LoadAverage {
    /// Full pieces, the latest first.
    full: VecDeque<f64>,
    /// Load × time in the piece that is not full, in ns.
    weight: f64,
    /// Time in it, in ns.
    filled_ns: u64,
}

impl LoadAverage {
    /// Nothing seen.
    #[must_use]
    pub fn new() -> LoadAverage {
        LoadAverage::default()
    }

    /// For `interval_ns` so many worlds ran or were ready, in the mean, on so many pCPUs. Without
    /// pCPUs, or with a demand that is no number, it is as if the time had not passed.
    pub fn feed(&mut self, interval_ns: u64, demand: f64, pcpus: usize) {
        if pcpus == 0 || !demand.is_finite() {
            return;
        }
        let load = demand / pcpus as f64;
        // More than all pieces need is forgotten anyway.
        let mut left = interval_ns.min(PIECE_NS * (PIECES[2] as u64 + 1));
        while left > 0 {
            let step = left.min(PIECE_NS - self.filled_ns);
            self.weight += load * step as f64;
            self.filled_ns += step;
            left -= step;
            if self.filled_ns == PIECE_NS {
                self.full.push_front(self.weight / PIECE_NS as f64);
                self.full.truncate(PIECES[2]);
                (self.weight, self.filled_ns) = (0.0, 0);
            }
        }
    }

    /// The averages over 1, 5 and 15 minutes; `None` before anything was seen.
    #[must_use]
    pub fn averages(&self) -> [Option<f64>; 3] {
        if self.full.is_empty() {
            let so_far = (self.filled_ns > 0).then(|| self.weight / self.filled_ns as f64);
            return [so_far; 3];
        }
        PIECES.map(|n| {
            let n = n.min(self.full.len());
            Some(self.full.iter().take(n).sum::<f64>() / n as f64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn near(seen: [Option<f64>; 3], expected: [f64; 3]) {
        for (seen, expected) in seen.iter().zip(expected) {
            assert!((seen.unwrap() - expected).abs() < 1e-9, "{seen:?} {expected}");
        }
    }

    #[test]
    fn one_is_a_host_just_full() {
        let mut load = LoadAverage::new();
        assert_eq!(load.averages(), [None; 3], "nothing seen");
        load.feed(2 * S, 4.0, 4);
        near(load.averages(), [1.0; 3]);
        load.feed(58 * S, 6.0, 4);
        // Ten pieces of 6 s: 2 s of 1.0 and 58 s of 1.5.
        near(load.averages(), [(2.0 + 58.0 * 1.5) / 60.0; 3]);
    }

    #[test]
    fn each_average_is_an_arithmetic_mean_over_its_own_minutes() {
        let mut load = LoadAverage::new();
        load.feed(900 * S, 1.0, 1);
        load.feed(60 * S, 4.0, 1);
        near(load.averages(), [4.0, (240.0 + 60.0 * 4.0) / 300.0, (840.0 + 60.0 * 4.0) / 900.0]);
        load.feed(60 * S, 0.0, 1);
        near(load.averages(), [0.0, (180.0 + 240.0) / 300.0, (780.0 + 240.0) / 900.0]);
        load.feed(900 * S, 2.0, 1);
        near(load.averages(), [2.0; 3]);
    }

    #[test]
    fn how_time_is_cut_makes_no_difference() {
        let (mut fine, mut coarse) = (LoadAverage::new(), LoadAverage::new());
        for i in 0..600 {
            fine.feed(S / 10, f64::from(i / 200), 2);
        }
        (0..3).for_each(|i| coarse.feed(20 * S, f64::from(i), 2));
        near(fine.averages(), coarse.averages().map(Option::unwrap));
    }

    #[test]
    fn intervals_of_any_length_and_hosts_without_pcpus_do_no_harm() {
        let mut load = LoadAverage::new();
        load.feed(u64::MAX, 3.0, 2);
        near(load.averages(), [1.5; 3]);
        load.feed(60 * S, 3.0, 0);
        load.feed(60 * S, f64::NAN, 4);
        load.feed(0, 9.0, 1);
        near(load.averages(), [1.5; 3]);
        assert_eq!(load.full.len(), 150);
    }
}
