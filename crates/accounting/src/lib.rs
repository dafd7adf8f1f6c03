//! The scheduler's records as the cumulative times and counts that esxtop's numbers are made of,
//! for the live host and the simulator; it reads no kernel and no clock.
//!
//! *Law*: a group's totals are those of its ended worlds (`past_*` of `struct vm`) and of its
//! present worlds; from a world that came from another group, the totals at its last sample there
//! are subtracted. So a group's totals never decrease, and do not include the earlier life of a
//! thread that turns out to belong to a VM. *Limits*: a world that changed its group and ended
//! between two looks is counted in the new one alone; the old one then has no rate for that
//! interval.

mod ledger;
mod services;

pub use ledger::Ledger;
pub use services::Services;

use esxtop::{Alloc, AllocUnits, Gauges, SharesLevel, Totals};
use sched_core::{
    Pcpu, STATE_COSTOP, STATE_READY, STATE_RUN, STATE_WAIT, STATE_WAIT_IDLE, Vm, World,
};
use units::Rate;

/// Times in ns and counts of a world, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// CPU time.
    pub used_ns: u64,
    /// Part of it that was lost to a busy thread of the same core.
    pub lost_ns: u64,
    /// Time in RUN.
    pub run_ns: u64,
    /// Time in READY.
    pub ready_ns: u64,
    /// Time in COSTOP.
    pub costop_ns: u64,
    /// Time in WAIT, without WAIT_IDLE.
    pub wait_ns: u64,
    /// Time in WAIT_IDLE.
    pub wait_idle_ns: u64,
    /// Part of READY that a limit caused.
    pub limited_ns: u64,
    /// Times a pCPU took it up.
    pub switches: u64,
    /// Of these, on another pCPU than before.
    pub migrations: u64,
    /// Slices that ended while it could go on.
    pub expiries: u64,
    /// Wake-ups.
    pub wakeups: u64,
}

impl Spent {
    /// Adds another's.
    pub fn add(&mut self, more: &Spent) {
        let Spent { used_ns, run_ns, ready_ns, costop_ns, wait_ns, wait_idle_ns, .. } = more;
        let Spent { lost_ns, limited_ns, switches, migrations, expiries, wakeups, .. } = more;
        self.used_ns += used_ns;
        self.lost_ns += lost_ns;
        self.run_ns += run_ns;
        self.ready_ns += ready_ns;
        self.costop_ns += costop_ns;
        self.wait_ns += wait_ns;
        self.wait_idle_ns += wait_idle_ns;
        self.limited_ns += limited_ns;
        self.switches += switches;
        self.migrations += migrations;
        self.expiries += expiries;
        self.wakeups += wakeups;
    }

    /// As esxtop's totals.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            // %USED is what is charged, in ESXi too.
            used_ns: Some(self.used_ns.saturating_sub(self.lost_ns)),
            lost_ns: Some(self.lost_ns),
            run_ns: Some(self.run_ns),
            wait_ns: Some(self.wait_ns + self.wait_idle_ns),
            ready_ns: Some(self.ready_ns),
            idle_ns: Some(self.wait_idle_ns),
            costop_ns: Some(self.costop_ns),
            limited_ns: Some(self.limited_ns),
            // %LAT_C as far as it is known: waiting for a pCPU or for siblings, limits excepted,
            // and what was lost to the other thread of the core.
            latency_ns: Some(
                (self.ready_ns + self.costop_ns).saturating_sub(self.limited_ns) + self.lost_ns,
            ),
            switches: Some(self.switches),
            migrations: Some(self.migrations),
            quantum_expiries: Some(self.expiries),
            wakeups: Some(self.wakeups),
            ..Totals::default()
        }
    }
}

/// A world's totals at `now_ns`, from its record with completed stays only; `losing_ns` is what it
/// has lost to other threads of its core since it was charged last (`Pcpu::lost_until`).
#[must_use]
pub fn world(w: &World, now_ns: u64, losing_ns: u64) -> Totals {
    let mut time = w.time_ns;
    time[(w.state & 7) as usize] += now_ns.saturating_sub(w.state_since_ns);
    let of = |state: u32| time[state as usize];
    let running = if w.state == STATE_RUN { now_ns.saturating_sub(w.run_since_ns) } else { 0 };
    let parked = if w.parked_ns == 0 { 0 } else { now_ns.saturating_sub(w.parked_ns) };
    let spent = Spent {
        used_ns: w.used_ns + running,
        lost_ns: w.lost_ns + losing_ns,
        limited_ns: w.limited_ns + parked,
        switches: w.switches,
        migrations: w.migrations,
        expiries: w.expiries,
        wakeups: w.wakeups,
        ..stays(of)
    };
    spent.totals()
}

/// Times by state.
fn stays(of: impl Fn(u32) -> u64) -> Spent {
    Spent {
        run_ns: of(STATE_RUN),
        ready_ns: of(STATE_READY),
        costop_ns: of(STATE_COSTOP),
        wait_ns: of(STATE_WAIT),
        wait_idle_ns: of(STATE_WAIT_IDLE),
        ..Spent::default()
    }
}

/// How long a reading of all records may take, in ns, and far less than a host has been up when
/// something reads them.
const AFTER_NS: u64 = 1_000_000_000;

/// Times when at least one, and when at least two, threads of a core were not idle until `now_ns`,
/// from the record of the pCPU that stands for it (`sched/account/busy.h`). `None` where the record
/// was read between two words of a change: read it again.
#[must_use]
pub fn core(first: &Pcpu, now_ns: u64) -> Option<[u64; 2]> {
    let of = |base: u64, on: bool| match base.wrapping_add(if on { now_ns } else { 0 }) {
        // A thread woke between `now_ns` and this reading: its interval begins after `now_ns`, and
        // is not included.
        ns if ns.wrapping_neg() < AFTER_NS => Some(0),
        ns => Some(ns).filter(|ns| *ns <= now_ns),
    };
    Some([
        of(first.core_busy_ns, first.core_awake > 0)?,
        of(first.core_shared_ns, first.core_awake > 1)?,
    ])
}

/// CPU time of a pCPU in esxtop's PCPU USED: halved while the core's other thread is busy too.
/// `None` for cores of more threads.
#[must_use]
pub fn used_of_pcpu(busy_ns: u64, smt: u32, core: Option<[u64; 2]>) -> Option<u64> {
    match smt {
        0 | 1 => Some(busy_ns),
        2 => Some(busy_ns.saturating_sub(core?[1] / 2)),
        _ => None,
    }
}

/// What worlds that are gone left behind in their group.
#[must_use]
pub fn past(v: &Vm) -> Totals {
    let spent = Spent {
        used_ns: v.past_used_ns,
        lost_ns: v.past_lost_ns,
        limited_ns: v.past_limited_ns,
        switches: v.past_switches,
        migrations: v.past_migrations,
        expiries: v.past_expiries,
        wakeups: v.past_wakeups,
        ..stays(|state| v.past_ns[state as usize])
    };
    spent.totals()
}

/// Settings in MHz; `vcpus` is none for a pool.
#[must_use]
pub fn alloc(
    shares: u32,
    vcpus: Option<u32>,
    reservation: Rate,
    limit: Option<Rate>,
    mhz: u32,
) -> Alloc {
    let in_mhz = |r: Rate| r.0 as f64 * f64::from(mhz) / Rate::ONE.0 as f64;
    Alloc {
        min: in_mhz(reservation),
        max: limit.map(in_mhz),
        shares: SharesLevel::of(u64::from(shares), vcpus),
        units: AllocUnits::Mhz,
    }
}

/// Demand of a group now, and its entitlement if all asked for all that they can use; both in 2^-20
/// pCPU.
#[must_use]
pub fn gauges(demand: u64, worst_case: Option<u64>, mhz: u32) -> Gauges {
    let of_one = |rate: u64| rate as f64 / Rate::ONE.0 as f64;
    Gauges {
        demand_percent: Some(of_one(demand) * 100.0),
        emin_mhz: worst_case.map(|w| of_one(w) * f64::from(mhz)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stay_that_lasts_counts_up_to_now_and_latency_leaves_limits_out() {
        let mut w = World {
            state: STATE_READY,
            state_since_ns: 100,
            parked_ns: 120,
            limited_ns: 5,
            used_ns: 40,
            ..World::ZERO
        };
        w.time_ns[STATE_READY as usize] = 10;
        w.time_ns[STATE_WAIT as usize] = 7;
        w.time_ns[STATE_WAIT_IDLE as usize] = 3;
        let t = world(&w, 150, 0);
        assert_eq!([t.ready_ns, t.limited_ns, t.latency_ns, t.used_ns], [60, 35, 25, 40].map(Some));
        assert_eq!([t.wait_ns, t.idle_ns, t.run_ns, t.sys_ns], [Some(10), Some(3), Some(0), None]);
        let w = World {
            state: STATE_RUN,
            state_since_ns: 100,
            run_since_ns: 130,
            used_ns: 40,
            expiries: 9,
            ..World::ZERO
        };
        let t = world(&w, 150, 0);
        assert_eq!(
            [t.run_ns, t.used_ns, t.quantum_expiries],
            [50, 60, 9].map(Some),
            "charged up to 130, run since 100"
        );
    }

    #[test]
    fn a_core_read_between_two_words_is_read_again_and_what_began_after_the_look_is_nothing() {
        let (began, now) = (3 * AFTER_NS, 5 * AFTER_NS);
        let first = Pcpu {
            core_awake: 2,
            core_busy_ns: 0,
            core_shared_ns: began.wrapping_neg(),
            ..Pcpu::ZERO
        };
        assert_eq!(core(&first, now), Some([now, now - began]));
        assert_eq!(
            core(&first, began - 100),
            Some([began - 100, 0]),
            "a look before it began, read later"
        );
        assert_eq!(
            core(&Pcpu { core_awake: 1, ..first }, now),
            None,
            "the second has left, and its time is not yet written"
        );
        let late = Pcpu { core_shared_ns: 7, ..first };
        assert_eq!(core(&late, now), None, "the second has come, and its time is not yet written");
    }

    #[test]
    fn settings_are_shown_in_mhz_and_usual_shares_as_levels() {
        let a = alloc(2000, Some(2), Rate(Rate::ONE.0 / 2), None, 2400);
        assert_eq!((a.min, a.max, a.shares), (1200.0, None, SharesLevel::Normal));
        let pool = alloc(8000, None, Rate(0), Some(Rate::pcpus(4)), 1000);
        assert_eq!((pool.max, pool.shares), (Some(4000.0), SharesLevel::High));
        assert_eq!(alloc(700, Some(1), Rate(0), None, 1000).shares, SharesLevel::Custom(700));
        let g = gauges(Rate::ONE.0 / 4, Some(Rate::ONE.0 * 2), 1000);
        assert_eq!((g.demand_percent, g.emin_mhz), (Some(25.0), Some(2000.0)));
    }
}
