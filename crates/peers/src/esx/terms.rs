//! How one version of ESX differs from the next: data, no code. Each value says where it comes
//! from; docs/design/011-policies.md weighs the documents.
//!
//! *Documented*, with the document: see each field. *Our reading*: the sizes of costs in ns, which
//! no document gives. They only order places: any twin cost above 0 keeps a world on its thread.

/// How siblings are held together (VS51 "Relaxed Co-Scheduling").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cosched {
    /// ESX 2.x: a lagging vCPU stops the whole VM, which starts again only when there are pCPUs for
    /// all its vCPUs that want to run.
    Strict,
    /// ESX 3.x and later: a leading vCPU stops alone, until its slowest sibling makes progress.
    Relaxed,
}

/// Scheduler cells (ESX4 section 5): groups of pCPUs with one lock each, to which VMs are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    /// pCPUs of a cell. KB 1007361: 4. ESX4: wider VMs run where the cell is larger, so it grows to
    /// the next power of two that holds the widest VM.
    pub(crate) pcpus: u32,
    /// Time that a scheduling decision keeps the cell's lock, in ns. Our reading.
    pub(crate) lock_ns: u64,
}

/// When the world of a VM that is behind has a core alone, by how many ns (`whole`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// The documents say nothing of it before 4.1.
    Never,
    /// 4.1: behind what it should have received (KB 1020233).
    Strict(u64),
    /// 5.x: behind the others (VS51).
    Lag(u64),
}

/// A version of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// VS51: strict in ESX 2.x, relaxed in ESX 3.x and later.
    pub(crate) cosched: Cosched,
    /// Whether only time in the guest is progress: since vSphere 4 (VS51), before all of RUN.
    pub(crate) guest_progress: bool,
    /// What moves are taken to cost, in ns: to the other thread of a core, another core, another
    /// LLC, another node. IBM: 2.5.3 recognises that the first has a cost; so 2.5.2 has 0, which is
    /// our reading.
    pub(crate) move_ns: [u64; 4],
    /// What each world on an LLC is taken to cost one that comes to it, in ns. ESX4: "multi-core
    /// aware load balancing" of ESX 4, none before.
    pub(crate) llc_load_ns: u64,
    /// ESX4: in ESX 3.5, not in ESX 4. For ESX 2.5 the documents say nothing, and there are none.
    pub(crate) cells: Option<Cells>,
    /// Part of CPU time that is charged while the core's other thread is busy, in permille. VS51:
    /// before 5.x both threads together are charged as one alone.
    pub(crate) shared_charge: u64,
    /// When a world has a core alone.
    pub(crate) whole: Whole,
}

/// What moves are taken to cost. A cache of 2 MB is filled in about a ms from memory.
const MOVES_NS: [u64; 4] = [20_000, 200_000, 1_000_000, 2_000_000];

/// To it a move to the other thread is free.
pub(crate) const ESX_2_5_2: Terms =
    Terms { name: "esx-2.5.2", move_ns: [0, 200_000, 1_000_000, 2_000_000], ..ESX_2_5_3 };

/// Strict, with a cost for twins.
pub(crate) const ESX_2_5_3: Terms = Terms {
    name: "esx-2.5.3",
    cosched: Cosched::Strict,
    guest_progress: false,
    move_ns: MOVES_NS,
    llc_load_ns: 0,
    cells: None,
    shared_charge: 500,
    whole: Whole::Never,
};

/// Relaxed, with cells.
pub(crate) const ESX_3_5: Terms = Terms {
    name: "esx-3.5",
    cosched: Cosched::Relaxed,
    cells: Some(Cells { pcpus: 4, lock_ns: 2_000 }),
    ..ESX_2_5_3
};

/// Without cells; the load of LLCs counts.
pub(crate) const ESX_4_0: Terms =
    Terms { name: "esx-4.0", guest_progress: true, llc_load_ns: 100_000, cells: None, ..ESX_3_5 };

/// No version of ESX: balances load alone, as `ESX_4_0` would if all moves were free.
pub(crate) const LOAD_ONLY: Terms = Terms { name: "load-only", move_ns: [0; 4], ..ESX_4_0 };

/// Strict fairness between threads of a core. HaltingIdleMsecPenalty of 100 ms is quoted from
/// memory; KB 1020233 has no default.
pub(crate) const ESX_4_1: Terms =
    Terms { name: "esx-4.1", whole: Whole::Strict(100_000_000), ..ESX_4_0 };

/// With HaltingIdleMsecPenalty raised, to 2,000 ms: quoted from memory.
pub(crate) const ESX_4_1_TUNED: Terms =
    Terms { name: "esx-4.1-tuned", whole: Whole::Strict(2_000_000_000), ..ESX_4_1 };

/// More is charged on a shared core. The threshold is HTWholeCoreThreshold of ESXi 6.5, 800 ms; in
/// 6.0 it is 200 ms, and 5.1's is not known.
pub(crate) const ESX_5_1: Terms =
    Terms { name: "esx-5.1", shared_charge: 625, whole: Whole::Lag(800_000_000), ..ESX_4_1 };
