//! What the oracle found: violations with what was seen and allowed, capped and counted; it judges
//! nothing itself.

use std::fmt;
use units::{PcpuId, VmId, WorldId};

/// What must always be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// The events themselves make sense: known ids, time that does not go back.
    Events,
    /// A pCPU runs at most one world.
    OneWorldAPcpu,
    /// A world runs on at most one pCPU.
    OnePcpuAWorld,
    /// A world runs only where it may.
    Affinity,
    /// States follow each other as in VS51.
    Transition,
    /// The scheduler's account of state times is exact.
    StateTimes,
    /// Time charged to a world is the time it ran.
    Charge,
    /// Busy time of a pCPU is the time it ran worlds.
    Busy,
    /// A VM's CPU time stays near the ideal fluid.
    Lag,
    /// No pCPU is idle while a world that may run there is READY.
    IdleWhileWaiting,
    /// No world shares its core while a whole one that it may use idles.
    SharedCore,
    /// No core runs what `core_sharing` keeps apart.
    CoreSharing,
    /// No world is READY for too long.
    ReadyTooLong,
    /// No VM and no pool uses more than its limit.
    Limit,
    /// A VM gets what is reserved for it.
    Reservation,
    /// The vCPUs of a VM keep together.
    Skew,
    /// No vCPU is co-stopped for too long.
    CostopTooLong,
    /// No change of a home for an imbalance causes another.
    HomeThrash,
    /// The clients of a VM do not crowd a node.
    HomeCrowded,
    /// Memory follows to a client's home.
    MemoryAway,
    /// Memory is not moved faster than it may be: all together, and after a change of a home.
    MemoryRate,
}

impl Invariant {
    /// All of them, in the order of `Verdict::counts`.
    pub const ALL: [Invariant; 21] = [
        Invariant::Events,
        Invariant::OneWorldAPcpu,
        Invariant::OnePcpuAWorld,
        Invariant::Affinity,
        Invariant::Transition,
        Invariant::StateTimes,
        Invariant::Charge,
        Invariant::Busy,
        Invariant::Lag,
        Invariant::IdleWhileWaiting,
        Invariant::SharedCore,
        Invariant::CoreSharing,
        Invariant::ReadyTooLong,
        Invariant::Limit,
        Invariant::Reservation,
        Invariant::Skew,
        Invariant::CostopTooLong,
        Invariant::HomeThrash,
        Invariant::HomeCrowded,
        Invariant::MemoryAway,
        Invariant::MemoryRate,
    ];

    /// Name for reports and for the mutants that each must catch.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Invariant::Events => "events",
            Invariant::OneWorldAPcpu => "one-world-a-pcpu",
            Invariant::OnePcpuAWorld => "one-pcpu-a-world",
            Invariant::Affinity => "affinity",
            Invariant::Transition => "transition",
            Invariant::StateTimes => "state-times",
            Invariant::Charge => "charge",
            Invariant::Busy => "busy",
            Invariant::Lag => "lag",
            Invariant::IdleWhileWaiting => "idle-while-waiting",
            Invariant::SharedCore => "shared-core",
            Invariant::CoreSharing => "core-sharing",
            Invariant::ReadyTooLong => "ready-too-long",
            Invariant::Limit => "limit",
            Invariant::Reservation => "reservation",
            Invariant::Skew => "skew",
            Invariant::CostopTooLong => "costop-too-long",
            Invariant::HomeThrash => "home-thrash",
            Invariant::HomeCrowded => "home-crowded",
            Invariant::MemoryAway => "memory-away",
            Invariant::MemoryRate => "memory-rate",
        }
    }
}

/// One violation. Its text is `<object>: at <ns> ns: <invariant>: seen <…>, allowed <…>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was violated.
    pub invariant: Invariant,
    /// When it was seen.
    pub at_ns: u64,
    /// The VM concerned, with its name.
    pub vm: Option<(VmId, String)>,
    /// The world concerned.
    pub world: Option<WorldId>,
    /// The pCPU concerned.
    pub pcpu: Option<PcpuId>,
    /// What was seen.
    pub seen: String,
    /// What is allowed.
    pub allowed: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vm = self.vm.as_ref().map(|(id, name)| format!("VM {} ({name})", id.0));
        let world = self.world.map(|w| format!("world {}", w.0));
        let pcpu = self.pcpu.map(|p| format!("pCPU {}", p.0));
        let object: Vec<String> = [vm, world, pcpu].into_iter().flatten().collect();
        let object = if object.is_empty() { "host".to_owned() } else { object.join(", ") };
        write!(
            f,
            "{object}: at {} ns: {}: seen {}, allowed {}",
            self.at_ns,
            self.invariant.name(),
            self.seen,
            self.allowed
        )
    }
}

/// What a VM got and should have got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmVerdict {
    /// Its id.
    pub vm: VmId,
    /// Its name.
    pub name: String,
    /// CPU time its worlds ran, in ns.
    pub used_ns: u64,
    /// CPU time the ideal gave it, in ns, without what it forfeited.
    pub entitled_ns: u64,
    /// The most it was behind the ideal at the end of a window, in CPU ns.
    pub owed_max_ns: u64,
    /// The most it was ahead of the ideal at the end of a window, in CPU ns.
    pub surplus_max_ns: u64,
}

/// The oracle's last word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The first violations, as many as `Bounds::violations_kept`.
    pub violations: Vec<Violation>,
    /// How often each invariant was violated, in the order of `Invariant::ALL`.
    pub counts: [u64; Invariant::ALL.len()],
    /// CPU time the ideal gave each VM, in ns, in the order the VMs were added.
    pub entitled: Vec<(VmId, u64)>,
    /// Each VM, in the order they were added; also those removed.
    pub vms: Vec<VmVerdict>,
    /// Longest time any world was READY without interruption.
    pub ready_max_ns: u64,
    /// Longest time any pCPU was idle while a world that may run there was READY, as far as it was
    /// checked: times of more than the bound.
    pub idle_while_waiting_max_ns: u64,
    /// Most that any running vCPU led its slowest sibling that wanted to run, where co-scheduling
    /// is watched.
    pub skew_max_ns: u64,
    /// Longest time any vCPU was co-stopped without interruption.
    pub costop_max_ns: u64,
    /// Events taken.
    pub events: u64,
}

impl Verdict {
    /// Number of violations, kept or not.
    #[must_use]
    pub fn violated(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Number of violations of one invariant.
    #[must_use]
    pub fn count(&self, invariant: Invariant) -> u64 {
        self.counts[invariant as usize]
    }
}

/// Violations so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) kept: Vec<Violation>,
    pub(crate) counts: [u64; Invariant::ALL.len()],
    max: usize,
}

impl Log {
    pub(crate) fn new(max: usize) -> Log {
        Log { max, ..Log::default() }
    }

    /// Counts one; its text is made only if it is kept.
    pub(crate) fn add(&mut self, invariant: Invariant, make: impl FnOnce() -> Violation) {
        self.counts[invariant as usize] += 1;
        if self.kept.len() < self.max {
            self.kept.push(make());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_reads_as_object_seen_and_allowed() {
        let v = Violation {
            invariant: Invariant::Affinity,
            at_ns: 7,
            vm: Some((VmId(2), "db".to_owned())),
            world: Some(WorldId(9)),
            pcpu: None,
            seen: "pCPU 5".to_owned(),
            allowed: "0-3".to_owned(),
        };
        assert_eq!(
            v.to_string(),
            "VM 2 (db), world 9: at 7 ns: affinity: seen pCPU 5, allowed 0-3"
        );
    }

    #[test]
    fn counts_are_in_the_order_of_all() {
        assert!(Invariant::ALL.iter().enumerate().all(|(i, inv)| *inv as usize == i));
    }
}
