//! How far siblings are apart, and which of them stop or may start; it moves no world.
//!
//! *Law*: the progress of a vCPU is its time in RUN; one that sleeps is as far as its fastest
//! sibling when it wakes (VS51: an idle vCPU makes as much progress as that). The lead of a vCPU is
//! its progress less that of the slowest sibling that does not sleep. Since 4.0 time in the
//! hypervisor is no progress, and no skew either: a vCPU there is no slowest sibling, and comes
//! back as far behind as it left.
//!
//! *Documented*: the rules (VS51 "Relaxed Co-Scheduling"), that time in the hypervisor is left out
//! so that less skew is measured, and that the threshold is "typically a few milliseconds".
//! Thresholds of 3 and 2 ms are those of ESXi 6.0. *Our reading*: leads are looked at with each
//! tick; a vCPU in the hypervisor neither gains nor loses; what of a lead is left when a whole VM
//! starts again is cleared.

/// Lead at which a vCPU co-stops, in ns.
pub(crate) const COSTOP_NS: u64 = 3_000_000;
/// Lead at which it may co-start, in ns.
pub(crate) const COSTART_NS: u64 = 2_000_000;

/// A vCPU as its siblings see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sibling {
    /// Progress, in ns.
    pub(crate) progress_ns: u64,
    /// It wants to run, or runs.
    pub(crate) awake: bool,
    /// It runs.
    pub(crate) runs: bool,
}

/// Progress of the slowest that does not sleep, and whether one that is so slow runs.
fn slowest(vcpus: &[Sibling]) -> Option<(u64, bool)> {
    let least = vcpus.iter().filter(|s| s.awake).map(|s| s.progress_ns).min()?;
    let runs = vcpus.iter().any(|s| s.awake && s.runs && s.progress_ns == least);
    Some((least, runs))
}

/// Lead of a vCPU over the slowest of its siblings, in ns.
pub(crate) fn lead_ns(vcpus: &[Sibling], own: Sibling) -> u64 {
    slowest(vcpus).map_or(0, |(least, _)| own.progress_ns.saturating_sub(least))
}

/// Whether a co-stopped vCPU may start: its lead is small, or the slowest makes progress.
pub(crate) fn may_start(vcpus: &[Sibling], own: Sibling) -> bool {
    lead_ns(vcpus, own) <= COSTART_NS || slowest(vcpus).is_some_and(|(_, runs)| runs)
}

/// Progress of the fastest, in ns: that of one which wakes.
pub(crate) fn fastest_ns(vcpus: &[Sibling]) -> u64 {
    vcpus.iter().map(|s| s.progress_ns).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vcpu(progress_ns: u64, awake: bool, runs: bool) -> Sibling {
        Sibling { progress_ns, awake, runs }
    }

    #[test]
    fn a_lead_is_over_the_slowest_that_does_not_sleep() {
        let vcpus = [vcpu(9, true, true), vcpu(5, true, false), vcpu(1, false, false)];
        assert_eq!(vcpus.map(|s| lead_ns(&vcpus, s)), [4, 0, 0]);
        assert_eq!(fastest_ns(&vcpus), 9);
    }

    #[test]
    fn one_that_stopped_starts_when_the_slowest_runs_or_is_near() {
        let far = COSTOP_NS + 1;
        let waits = [vcpu(far, true, false), vcpu(0, true, false)];
        assert!(!may_start(&waits, waits[0]));
        let runs = [vcpu(far, true, false), vcpu(0, true, true)];
        assert!(may_start(&runs, runs[0]));
        let sleeps = [vcpu(far, true, false), vcpu(0, false, false)];
        assert!(may_start(&sleeps, sleeps[0]));
        let near = [vcpu(COSTART_NS, true, false), vcpu(0, true, false)];
        assert!(may_start(&near, near[0]));
    }
}
