//! What worlds that run on the cores of one LLC take from each other: its room, and the bandwidth
//! of the memory behind it.
//!
//! *Law*: where the working sets of those that run are more than the LLC holds, each has the same
//! part of its own cached, `h = size ÷ sum`, and goes at `1 − (1 − uncached) · (1 − h)`. Where
//! they want more from memory than there is, `D > B`, each waits for it longer, in proportion to
//! the time that it waits anyway (`memory`): each goes at `1 − memory · x`, and `x` is such that
//! together they get `B`, as long as `x ≤ 1`. With memory by node an LLC that has a node to itself
//! has no such limit: what nodes give is in `memory`.
//!
//! *Approximation*: both are found anew once a ms, for what runs then, in steps of a 64th.

use crate::{Machine, Profile, speed::ONE};

/// Steps of `h` and `x`.
const STEP: u64 = ONE / 64;

#[derive(Clone, Debug)]
struct Llc {
    pcpus: Vec<u32>,
    /// What they get of memory together, in bytes a us.
    bandwidth: u64,
    /// Working sets of the worlds that run, and what they want at most and at least of memory.
    sets: u64,
    wanted: u64,
    cached_wanted: u64,
    /// `h`, and `x`.
    cached: u64,
    squeezed: u64,
    /// What runs has changed.
    changed: bool,
}

impl Llc {
    /// Whether those that run may be in each other's way, or were.
    fn is_pressed(&self, size: u64) -> bool {
        let wanted = if self.sets > size { self.wanted } else { self.cached_wanted };
        self.sets > size || wanted > self.bandwidth || self.cached != ONE || self.squeezed != 0
    }
}

/// All LLCs of a host.
#[derive(Clone, Debug)]
pub(crate) struct Llcs {
    size: u64,
    all: Vec<Llc>,
    /// How many are pressed and have changed.
    due: usize,
}

impl Llcs {
    pub(crate) fn new(machine: &Machine, members: Vec<Vec<u32>>) -> Llcs {
        let llc = |pcpus| Llc {
            pcpus,
            bandwidth: machine.bandwidth,
            sets: 0,
            wanted: 0,
            cached_wanted: 0,
            cached: ONE,
            squeezed: 0,
            changed: false,
        };
        Llcs { size: machine.llc, all: members.into_iter().map(llc).collect(), due: 0 }
    }

    /// An LLC gets all that its worlds want of memory from now on.
    pub(crate) fn has_no_limit(&mut self, llc: u32) {
        self.all[llc as usize].bandwidth = u64::MAX;
    }

    /// A world of this profile runs there from now on.
    pub(crate) fn enter(&mut self, llc: u32, of: &Profile) {
        let at = &mut self.all[llc as usize];
        at.sets += of.set;
        at.wanted += of.uncached_bandwidth;
        at.cached_wanted += of.bandwidth;
        self.has_changed(llc);
    }

    /// One runs there no longer.
    pub(crate) fn leave(&mut self, llc: u32, of: &Profile) {
        let at = &mut self.all[llc as usize];
        at.sets -= of.set;
        at.wanted -= of.uncached_bandwidth;
        at.cached_wanted -= of.bandwidth;
        self.has_changed(llc);
    }

    /// What runs on an LLC has changed, or how fast it goes.
    pub(crate) fn has_changed(&mut self, llc: u32) {
        let at = &mut self.all[llc as usize];
        if !at.changed && at.is_pressed(self.size) {
            at.changed = true;
            self.due += 1;
        }
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.due > 0
    }

    /// What a world asks of memory while it works, in bytes a us.
    pub(crate) fn wanted(&self, llc: u32, of: &Profile) -> u64 {
        let missing = ONE - self.all[llc as usize].cached;
        of.bandwidth + of.uncached_bandwidth.saturating_sub(of.bandwidth) * missing / ONE
    }

    /// What is left of full speed by the LLC's room, and by its bandwidth.
    pub(crate) fn speed(&self, llc: u32, of: &Profile) -> (u64, u64) {
        let at = &self.all[llc as usize];
        let lost = |permille: u64, part: u64| permille * part / 1000;
        let cached = ONE - lost(1000 - of.uncached_permille, ONE - at.cached);
        (cached.max(1), (ONE - lost(of.memory_permille, at.squeezed)).max(1))
    }

    /// Finds `h` and `x` of those that are due; pCPUs of those where they have changed. `runs` has
    /// the profile of what runs on a pCPU, and what its core leaves it.
    pub(crate) fn renew(&mut self, runs: impl Fn(u32) -> Option<(Profile, u64)>) -> Vec<u32> {
        let mut out = vec![];
        let size = self.size;
        for at in self.all.iter_mut().filter(|at| at.changed) {
            at.changed = false;
            let cached = match at.sets {
                sets if sets > size => (ONE * size / sets / STEP).max(1) * STEP,
                _ => ONE,
            };
            let (mut wanted, mut waits) = (0, 0);
            for (of, smt) in at.pcpus.iter().filter_map(|p| runs(*p)) {
                let more = of.uncached_bandwidth.saturating_sub(of.bandwidth);
                let speed = smt * (1000 - (1000 - of.uncached_permille) * (ONE - cached) / ONE);
                let own = (of.bandwidth + more * (ONE - cached) / ONE) * speed / 1000;
                wanted += own;
                waits += own * of.memory_permille / 1000;
            }
            let over = wanted.saturating_sub(at.bandwidth.saturating_mul(ONE));
            let squeezed = (over / (waits / ONE).max(1)).min(ONE).div_ceil(STEP) * STEP;
            if (cached, squeezed) != (at.cached, at.squeezed) {
                (at.cached, at.squeezed) = (cached, squeezed);
                out.extend(&at.pcpus);
            }
        }
        self.due = 0;
        out
    }
}
