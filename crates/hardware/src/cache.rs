//! What caches still hold of a world's working set when it runs again, and what filling them costs.
//!
//! *Law*: a world leaves its working set in the private cache of the core and in the LLC where it
//! ran last. Whatever comes into a cache after that pushes it out: of a cache of `C` bytes into
//! which `v` have come since, at most `C − v` are left of it (least recently used first). What is
//! missing comes from the LLC, if that holds it, else from memory, or from another node where the
//! world ran there before. While a world runs nothing pushes its set out: `llc` has what those that
//! run together take from each other.
//!
//! *Cost*: constant for each start and stop. A world's set lies in one place: what it left on a
//! core before it ran on another counts for nothing, since its other copy is newer.

use crate::{Machine, Profile};
use topology::Place;

/// Bytes of a cache line.
const LINE: u64 = 64;
/// No cache: the world has not run.
const NOWHERE: u32 = u32::MAX;

/// What a world left in a cache.
#[derive(Clone, Copy, Debug)]
struct Left {
    cache: u32,
    bytes: u64,
    /// What had come into the cache until then.
    at: u64,
}

impl Left {
    const NOTHING: Left = Left { cache: NOWHERE, bytes: 0, at: 0 };
}

/// Caches of one kind.
#[derive(Clone, Debug)]
struct Level {
    size: u64,
    /// Bytes that have come into each cache, ever.
    volume: Vec<u64>,
    /// By world.
    left: Vec<Left>,
}

impl Level {
    fn new(size: u64, caches: usize, worlds: usize) -> Level {
        Level { size, volume: vec![0; caches], left: vec![Left::NOTHING; worlds] }
    }

    /// What a cache holds of a world, which does not run.
    fn holds(&self, world: u32, cache: u32) -> u64 {
        let left = &self.left[world as usize];
        if left.cache != cache {
            return 0;
        }
        left.bytes.min(self.size.saturating_sub(self.volume[cache as usize] - left.at))
    }

    /// A world stops, of which a cache holds so much, after `streamed` bytes that it will not use
    /// again.
    fn leave(&mut self, world: u32, cache: u32, bytes: u64, streamed: u64) {
        self.volume[cache as usize] += streamed.min(self.size);
        let at = self.volume[cache as usize];
        self.left[world as usize] = Left { cache, bytes, at };
    }
}

/// What is missing of a world's set in a private cache and in an LLC: bytes there, and bytes that
/// there are to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refill {
    private: (u64, u64),
    llc: (u64, u64),
    /// What bringing it takes.
    pub(crate) cost_ns: u64,
}

/// All caches of a host.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    machine: Machine,
    private: Level,
    llc: Level,
    /// pCPU and node where each world ran last.
    last: Vec<(u32, u32)>,
}

impl Caches {
    pub(crate) fn new(machine: &Machine, cores: usize, llcs: usize, worlds: usize) -> Caches {
        Caches {
            private: Level::new(machine.private, cores, worlds),
            llc: Level::new(machine.llc, llcs, worlds),
            machine: *machine,
            last: vec![(NOWHERE, NOWHERE); worlds],
        }
    }

    /// A world starts to run on a pCPU.
    pub(crate) fn start(&mut self, world: u32, pcpu: u32, at: Place, of: &Profile) -> Refill {
        let m = &self.machine;
        let private = (self.private.holds(world, at.core), of.set.min(m.private));
        let llc = (self.llc.holds(world, at.llc), of.set.min(m.llc));
        let missing = |(is, ought): (u64, u64)| ought.saturating_sub(is);
        let near = missing(private).min(llc.0);
        let far = missing(llc).max(missing(private) - near);
        let (last, node) = std::mem::replace(&mut self.last[world as usize], (pcpu, at.node));
        let moved = last != pcpu && last != NOWHERE;
        let elsewhere = moved && node != at.node;
        let far_ns = if elsewhere { m.from_node_ns } else { m.from_memory_ns };
        let lines = |bytes: u64| bytes.div_ceil(LINE);
        let cost_ns = lines(near) * m.from_llc_ns
            + lines(far) * far_ns
            + if moved { m.migration_ns } else { 0 };
        Refill { private, llc, cost_ns }
    }

    /// The caches of a world that runs are full.
    pub(crate) fn refilled(&mut self, at: Place, refill: &mut Refill) {
        for (level, cache, held) in [
            (&mut self.private, at.core, &mut refill.private),
            (&mut self.llc, at.llc, &mut refill.llc),
        ] {
            level.volume[cache as usize] += held.1.saturating_sub(held.0);
            held.0 = held.1;
        }
    }

    /// A world stops, after it has moved `streamed` bytes through the caches: as much of its refill
    /// is there as has been paid for.
    pub(crate) fn stop(
        &mut self,
        world: u32,
        at: Place,
        refill: Refill,
        unpaid_ns: u64,
        streamed: u64,
    ) {
        let paid = refill.cost_ns - unpaid_ns;
        for (level, cache, held) in
            [(&mut self.private, at.core, refill.private), (&mut self.llc, at.llc, refill.llc)]
        {
            let missing = held.1.saturating_sub(held.0);
            let come = match refill.cost_ns {
                0 => missing,
                all => (u128::from(missing) * u128::from(paid) / u128::from(all)) as u64,
            };
            level.volume[cache as usize] += come;
            level.leave(world, cache, held.0 + come, streamed);
        }
    }
}
