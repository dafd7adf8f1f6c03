//! What a machine is built of, and what a workload asks of it: numbers, with their units.

use crate::speed::ONE;

/// Caches and memory. Sizes in bytes, times in ns, bandwidths in bytes a us (MB/s).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cache of a core that no other core uses.
    pub private: u64,
    /// Last-level cache, which the cores of an LLC share.
    pub llc: u64,
    /// Time to bring a line of 64 bytes from the LLC, as far as it stops the core.
    pub from_llc_ns: u64,
    /// The same from memory of the node, or from another LLC of the node.
    pub from_memory_ns: u64,
    /// The same from another node.
    pub from_node_ns: u64,
    /// Time that a world loses on any pCPU but its last: TLBs, predictors, a vCPU's registers.
    pub migration_ns: u64,
    /// What the cores of an LLC get from memory together. With memory by node not where an LLC has
    /// a node to itself.
    pub bandwidth: u64,
}

/// What a world asks of the machine while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Work of a core with two busy threads, of that of one; in permille.
    pub smt_permille: u64,
    /// What it uses again and again, in bytes.
    pub set: u64,
    /// Its speed where no cache holds any of that; in permille.
    pub uncached_permille: u64,
    /// What it reads and writes in memory while its caches hold its working set, in bytes a us.
    pub bandwidth: u64,
    /// The same where they hold nothing of it.
    pub uncached_bandwidth: u64,
    /// Part of its time that it waits for memory, with all caches full; in permille.
    pub memory_permille: u64,
}

impl Profile {
    /// Speed on a core with so many busy threads, in 2^-16. More than two share what two have.
    #[must_use]
    pub fn smt(&self, threads: u64) -> u64 {
        match threads {
            0 | 1 => ONE,
            n => (self.smt_permille * ONE / 1000 / n).min(ONE),
        }
    }
}
