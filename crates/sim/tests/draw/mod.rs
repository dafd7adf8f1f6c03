//! Numbers and workloads drawn at random for scenarios, by a seed alone.

use settings::{Dist, Workload};
use units::Span;

/// Numbers for scenarios only; splitmix64.
pub struct Draw(pub u64);

#[allow(dead_code)] // Each test uses what it needs.
impl Draw {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub fn span(&mut self, max_us: u64) -> Span {
        Span::from_ns(1000 * (1 + self.below(max_us)))
    }

    pub fn workload(&mut self) -> Workload {
        match self.below(6) {
            0 => Workload::Idle,
            1 | 2 => Workload::Burn,
            3 => Workload::Duty { work: self.span(40_000), sleep: self.span(100_000) },
            4 => Workload::Periodic { period: self.span(20_000), work: self.span(5_000) },
            _ => {
                let (work, sleep) = (self.span(1_000), self.span(10_000));
                Workload::Io { work, sleep, dist: Dist::Exponential, halts: work.ns() % 2_000 == 0 }
            }
        }
    }
}
