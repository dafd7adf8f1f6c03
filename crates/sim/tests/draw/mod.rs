//! Hosts and what runs on them, drawn at random by a seed alone, judged, and made smaller where
//! they fail.

pub mod case;
pub mod shrink;

use dice::Draw;
use settings::{Bytes, Dist, HardwareSpec, RunSpec, Workload, built_in_profiles};
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

/// Simulated hardware on a third of the seeds: caches small enough to be in each other's way, and
/// any profile for each VM and host task. What else a seed decides is as it would be without.
pub fn hardware(seed: u64, spec: &mut RunSpec) {
    let mut draw = Draw::new(seed ^ 0xcac4_e5e7);
    if draw.below(3) > 0 {
        return;
    }
    let private_cache = Bytes(1 << (15 + draw.below(7)));
    let llc = Bytes(1 << (17 + draw.below(9)));
    let bandwidth = Bytes(1_000_000_000 << draw.below(7));
    spec.hardware = Some(HardwareSpec { private_cache, llc, bandwidth, ..HardwareSpec::default() });
    let mut drawn = || {
        let all = built_in_profiles();
        Some(all[draw.below(all.len() as u64) as usize].name.clone())
    };
    spec.vms.iter_mut().for_each(|vm| vm.profile = drawn());
    spec.host_tasks.iter_mut().for_each(|task| task.profile = drawn());
}
