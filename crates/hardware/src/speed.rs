//! How CPU time becomes work: one world on one pCPU, at a speed that is constant until something
//! else starts or stops nearby. It knows no other world.
//!
//! *Law*: of `t` ns a world loses `t · (1 − smt)` to its core's other thread. Of the rest, while
//! its caches are filled again, half goes into that, until the cost is paid. Of what is left
//! `1 − cached` goes into accesses that miss the LLC, of what is left then `1 − fed` into waiting
//! for memory, and of what is left then `1 − near` into waiting for that of other nodes. What
//! remains is work.
//!
//! *Units*: parts in 2^-16; rounding goes into work, less than 1 ns for each cause between two
//! changes of speed.

/// The whole, in 2^-16.
pub const ONE: u64 = 1 << SHIFT;
const SHIFT: u32 = 16;

/// Parts of full speed, each in 2^-16 and above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speed {
    /// What the core's other threads leave.
    pub(crate) smt: u64,
    /// What is left where the LLC does not hold the whole working set.
    pub(crate) cached: u64,
    /// What is left where memory gives less than is wanted.
    pub(crate) fed: u64,
    /// What is left where memory is in other nodes.
    pub(crate) near: u64,
}

impl Default for Speed {
    fn default() -> Speed {
        Speed { smt: ONE, cached: ONE, fed: ONE, near: ONE }
    }
}

/// Parts of time by what it goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    smt: u64,
    /// What fills the caches again; inside `refill`.
    pays: u64,
    refill: u64,
    bandwidth: u64,
    remote: u64,
    work: u64,
}

impl Speed {
    fn parts(self, refills: bool) -> Parts {
        let pays = if refills { self.smt / 2 } else { 0 };
        let rest = self.smt - pays;
        let cached = (rest * self.cached) >> SHIFT;
        let fed = (cached * self.fed) >> SHIFT;
        let work = ((fed * self.near) >> SHIFT).max(1);
        Parts {
            smt: ONE - self.smt,
            pays,
            refill: pays + rest - cached,
            bandwidth: cached - fed,
            remote: fed.saturating_sub(work),
            work,
        }
    }
}

/// What came of CPU time, in ns; the sum is the CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Work, in ns of a pCPU at full speed.
    pub work_ns: u64,
    /// Lost to busy threads of the same core.
    pub smt_ns: u64,
    /// Lost to caches that do not hold the working set.
    pub refill_ns: u64,
    /// Lost to other worlds' use of memory.
    pub bandwidth_ns: u64,
    /// Lost to memory that is in other nodes.
    pub remote_ns: u64,
}

/// A world that runs on a pCPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    speed: Speed,
    /// By whether its caches are full.
    parts: [Parts; 2],
    /// Time that filling its caches still takes.
    pub(crate) unpaid_ns: u64,
    /// Work since it runs.
    worked_ns: u64,
    /// Parts of a ns by cause that have not been counted.
    rest: [u64; 5],
}

impl Default for Run {
    fn default() -> Run {
        let speed = Speed::default();
        let parts = [true, false].map(|refills| speed.parts(refills));
        Run { speed, parts, unpaid_ns: 0, worked_ns: 0, rest: [0; 5] }
    }
}

impl Run {
    /// A world that starts to run, and whose caches take so long to fill.
    pub(crate) fn new(unpaid_ns: u64) -> Run {
        Run { unpaid_ns, ..Run::default() }
    }

    pub(crate) fn speed(&self) -> Speed {
        self.speed
    }

    /// Work since it runs.
    pub(crate) fn worked_ns(&self) -> u64 {
        self.worked_ns
    }

    /// It goes at another speed from now on.
    #[inline]
    pub(crate) fn set_speed(&mut self, speed: Speed) {
        if speed != self.speed {
            self.speed = speed;
            self.parts = [true, false].map(|refills| speed.parts(refills));
        }
    }

    #[inline]
    fn parts(&self) -> &Parts {
        &self.parts[usize::from(self.unpaid_ns == 0)]
    }

    /// CPU time until the caches are full, at the present speed.
    fn until_full(&self, pays: u64) -> u64 {
        (self.unpaid_ns << SHIFT).saturating_sub(self.rest[3]).div_ceil(pays.max(1)).max(1)
    }

    pub(crate) fn pass(&mut self, ns: u64) -> Done {
        let (mut done, mut left) = (Done::default(), ns);
        while left > 0 {
            let parts = *self.parts();
            let t = if self.unpaid_ns > 0 { left.min(self.until_full(parts.pays)) } else { left };
            // What does not fit into `t` by rounding comes later.
            let take = |rest: &mut u64, part: u64, most: u64| {
                let sum = t * part + *rest;
                let whole = (sum >> SHIFT).min(most);
                *rest = sum - (whole << SHIFT);
                whole
            };
            let smt = take(&mut self.rest[0], parts.smt, t);
            let refill = take(&mut self.rest[1], parts.refill, t - smt);
            let bandwidth = take(&mut self.rest[2], parts.bandwidth, t - smt - refill);
            let remote = take(&mut self.rest[4], parts.remote, t - smt - refill - bandwidth);
            self.unpaid_ns -= take(&mut self.rest[3], parts.pays, self.unpaid_ns);
            done.smt_ns += smt;
            done.refill_ns += refill;
            done.bandwidth_ns += bandwidth;
            done.remote_ns += remote;
            done.work_ns += t - smt - refill - bandwidth - remote;
            left -= t;
        }
        self.worked_ns += done.work_ns;
        done
    }

    pub(crate) fn time_for(&self, work_ns: u64) -> u64 {
        let [slow, full] = &self.parts;
        if self.unpaid_ns == 0 {
            return time(work_ns, full.work);
        }
        let until_full = self.until_full(slow.pays);
        let meanwhile = (until_full * slow.work) >> SHIFT;
        if work_ns <= meanwhile {
            return time(work_ns, slow.work);
        }
        until_full.saturating_add(time(work_ns - meanwhile, full.work))
    }
}

/// Time in which a part of it is so long, rounded up.
fn time(work_ns: u64, part: u64) -> u64 {
    if part == ONE {
        return work_ns;
    }
    match work_ns.checked_mul(ONE) {
        Some(all) => all.div_ceil(part),
        None => {
            let all = u128::from(work_ns) << SHIFT;
            all.div_ceil(u128::from(part)).min(u128::from(u64::MAX)) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(smt: u64, cached: u64, fed: u64, unpaid_ns: u64) -> Run {
        let mut run = Run::new(unpaid_ns);
        run.set_speed(Speed { smt, cached, fed, near: ONE });
        run
    }

    fn of(work_ns: u64, smt_ns: u64, refill_ns: u64, bandwidth_ns: u64) -> Done {
        Done { work_ns, smt_ns, refill_ns, bandwidth_ns, remote_ns: 0 }
    }

    #[test]
    fn each_loss_is_of_what_the_one_before_left() {
        let (half, quarter) = (ONE / 2, ONE / 4);
        assert_eq!(run(ONE, ONE, ONE, 0).pass(1000), of(1000, 0, 0, 0));
        assert_eq!(run(half, ONE, ONE, 0).pass(1000), of(500, 500, 0, 0));
        assert_eq!(run(half, half, ONE, 0).pass(1000), of(250, 500, 250, 0));
        assert_eq!(run(half, half, quarter, 0).pass(1024), of(64, 512, 256, 192));
        let mut far = run(half, half, quarter, 0);
        far.set_speed(Speed { near: quarter, ..far.speed() });
        assert_eq!(far.pass(1024), Done { remote_ns: 48, ..of(16, 512, 256, 192) });
    }

    #[test]
    fn while_caches_are_filled_half_of_the_time_goes_into_that_and_no_more_than_the_cost() {
        let mut r = run(ONE, ONE, ONE, 300);
        assert_eq!((r.pass(400), r.unpaid_ns), (of(200, 0, 200, 0), 100));
        assert_eq!((r.pass(1000), r.unpaid_ns), (of(900, 0, 100, 0), 0));
        // On a core that is shared they are filled half as fast.
        let mut r = run(ONE / 2, ONE, ONE, 100);
        assert_eq!((r.pass(400), r.unpaid_ns), (of(100, 200, 100, 0), 0));
    }

    #[test]
    fn no_ns_is_lost_or_made_however_time_is_cut() {
        let mut dice = dice::Stream::new(7, "speed");
        for _ in 0..2_000 {
            let part = |d: &mut dice::Stream| 1 + d.below(ONE);
            let speed = (part(&mut dice), part(&mut dice), part(&mut dice));
            let near = part(&mut dice);
            let mut r = run(speed.0, speed.1, speed.2, dice.below(5_000));
            r.set_speed(Speed { near, ..r.speed() });
            let whole = r.clone().pass(20_000);
            let (mut left, mut sum) = (20_000, Done::default());
            while left > 0 {
                let t = (1 + dice.below(300)).min(left);
                let d = r.pass(t);
                let lost = d.smt_ns + d.refill_ns + d.bandwidth_ns + d.remote_ns;
                assert_eq!(d.work_ns + lost, t);
                sum.work_ns += d.work_ns;
                sum.smt_ns += d.smt_ns;
                sum.refill_ns += d.refill_ns;
                left -= t;
            }
            assert!(sum.smt_ns.abs_diff(whole.smt_ns) <= 1, "{sum:?} {whole:?}");
            assert!(sum.refill_ns.abs_diff(whole.refill_ns) <= 2, "{sum:?} {whole:?}");
            assert!(sum.work_ns.abs_diff(whole.work_ns) <= 5, "{sum:?} {whole:?}");
        }
    }

    #[test]
    fn work_is_done_when_it_was_said_to_be() {
        let mut dice = dice::Stream::new(8, "speed");
        for _ in 0..2_000 {
            let part = |d: &mut dice::Stream| ONE / 8 + d.below(ONE - ONE / 8);
            let mut r = run(part(&mut dice), part(&mut dice), part(&mut dice), dice.below(9_000));
            let work = 1 + dice.below(100_000);
            let time = r.time_for(work);
            let before = r.clone().pass(time - 1).work_ns;
            let done = r.pass(time).work_ns;
            assert!(done.abs_diff(work) <= 4 && before <= work + 4, "{work} {before} {done}");
        }
    }
}
