//! Faults put between the scheduler and the kernel, each of which a checker must catch; they change
//! no line of the scheduler.

/// A fault. `tests/mutants.rs` names the invariant that catches each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Kicks and reschedule interrupts do not arrive.
    LostKick,
    /// One enqueue in 50 is not passed on: the world is in no queue.
    LostEnqueue,
    /// A local insertion goes to the next pCPU, whatever the affinity.
    WrongPcpu,
    /// All VMs weigh the same.
    EqualWeights,
    /// CPU time is charged twice, one time in 20.
    DoubleCharge,
    /// CPU time is not charged, one time in 20.
    LostCharge,
    /// World 1 is never found in an ordered queue.
    Starve,
    /// Queues of other pCPUs look empty.
    NoPull,
    /// Worlds leave their queue in the order of arrival, whatever their lag is.
    Fifo,
    /// One wake-up in 20 is not reported as such.
    StaleState,
    /// One stop in 20 is not reported.
    LostStop,
    /// A slice never ends.
    EndlessSlice,
    /// One world in 50 that is taken from a queue stays there as well.
    DoubleInsert,
    /// All VMs and pools compare their shares with all others.
    FlatTree,
    /// Reservations are not kept.
    NoReservation,
    /// Limits never run out.
    NoLimit,
    /// A world that a limit has held back once is never unparked.
    HeldForEver,
    /// A world is kept in its queue for 10 ms, although a pCPU that has nothing else to do looks
    /// for it there.
    Withheld,
    /// A world that is co-stopped is never co-started.
    LostCostart,
    /// Co-scheduling looks at the wrong slowest vCPU: the first of each VM is not seen.
    WrongSlowest,
    /// A running world stays where it is as long as nothing else is to run there.
    Stays,
    /// A world on a shared core is charged as one that has a core alone.
    PartnerFree,
    /// No world gets a core alone, whatever it has lost.
    NeverWhole,
    /// A core runs worlds of any VMs, whatever `core_sharing` says.
    CoreShared,
    /// A world leaves its caches as if filling others cost nothing.
    RefillFree,
    /// A scheduling decision does not wait for the lock of its cell, in policies that have cells.
    LostLock,
    /// The scheduler learns of the first home of a world alone.
    StaleHome,
    /// Memory does not follow.
    MemoryStays,
    /// All memory follows at once, hot or not.
    MemoryHurries,
    /// All clients of a VM have the home of the first.
    HomesPile,
    /// Homes change for any imbalance, whatever that leaves.
    HomesThrash,
    /// Homes do not change: the planner decides, and only its first homes come into force.
    HomesStay,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 32] = [
        Mutant::LostKick,
        Mutant::LostEnqueue,
        Mutant::WrongPcpu,
        Mutant::EqualWeights,
        Mutant::DoubleCharge,
        Mutant::LostCharge,
        Mutant::Starve,
        Mutant::NoPull,
        Mutant::Fifo,
        Mutant::StaleState,
        Mutant::LostStop,
        Mutant::EndlessSlice,
        Mutant::DoubleInsert,
        Mutant::FlatTree,
        Mutant::NoReservation,
        Mutant::NoLimit,
        Mutant::HeldForEver,
        Mutant::Withheld,
        Mutant::LostCostart,
        Mutant::WrongSlowest,
        Mutant::Stays,
        Mutant::PartnerFree,
        Mutant::NeverWhole,
        Mutant::CoreShared,
        Mutant::RefillFree,
        Mutant::LostLock,
        Mutant::StaleHome,
        Mutant::MemoryStays,
        Mutant::MemoryHurries,
        Mutant::HomesPile,
        Mutant::HomesThrash,
        Mutant::HomesStay,
    ];

    /// Name after `mutant:`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mutant::LostKick => "lost-kick",
            Mutant::LostEnqueue => "lost-enqueue",
            Mutant::WrongPcpu => "wrong-pcpu",
            Mutant::EqualWeights => "equal-weights",
            Mutant::DoubleCharge => "double-charge",
            Mutant::LostCharge => "lost-charge",
            Mutant::Starve => "starve",
            Mutant::NoPull => "no-pull",
            Mutant::Fifo => "fifo",
            Mutant::StaleState => "stale-state",
            Mutant::LostStop => "lost-stop",
            Mutant::EndlessSlice => "endless-slice",
            Mutant::DoubleInsert => "double-insert",
            Mutant::FlatTree => "flat-tree",
            Mutant::NoReservation => "no-reservation",
            Mutant::NoLimit => "no-limit",
            Mutant::HeldForEver => "held-for-ever",
            Mutant::Withheld => "withheld",
            Mutant::LostCostart => "lost-costart",
            Mutant::WrongSlowest => "wrong-slowest",
            Mutant::Stays => "stays",
            Mutant::PartnerFree => "partner-free",
            Mutant::NeverWhole => "never-whole",
            Mutant::CoreShared => "core-shared",
            Mutant::RefillFree => "refill-free",
            Mutant::LostLock => "lost-lock",
            Mutant::StaleHome => "stale-home",
            Mutant::MemoryStays => "memory-stays",
            Mutant::MemoryHurries => "memory-hurries",
            Mutant::HomesPile => "homes-pile",
            Mutant::HomesThrash => "homes-thrash",
            Mutant::HomesStay => "homes-stay",
        }
    }
}
