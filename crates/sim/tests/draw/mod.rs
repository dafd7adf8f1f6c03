//! Hosts and what runs on them, drawn at random by a seed alone, judged, and made smaller where
//! they fail.

pub mod case;
pub mod shrink;

use dice::Draw;
use settings::{Dist, Workload};
use units::Span;

/// Times and workloads of scenarios.
pub trait Workloads {
    /// Up to so many us, and never 0.
    fn span(&mut self, max_us: u64) -> Span;
    /// What a vCPU or task does.
    fn workload(&mut self) -> Workload;
}

impl Workloads for Draw {
    fn span(&mut self, max_us: u64) -> Span {
        Span::from_ns(1000 * (1 + self.below(max_us)))
    }

    fn workload(&mut self) -> Workload {
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
