//! The difference of two looks in esxtop's units, for panels, batch file and JSON; it guesses
//! nothing that the looks do not say.
//!
//! *Law*: a time is 100 × (later − earlier) ÷ time between the looks, a count (later − earlier) by
//! second. So 100 % is one pCPU for the whole interval; for a world %RUN + %RDY + %CSTP + %WAIT is
//! 100 as its times add up to the clock, %MLMTD is inside %RDY, %IDLE and %VMWAIT inside %WAIT,
//! %OVRLP inside %RUN. A group is the sum of its worlds, so it can exceed 100 (KB 382249).
//! *Limits*: a world or group that only the later look knows has no rates yet, one that only the
//! earlier knows is gone. A count that went back (it wrapped, or began anew) gives no rate for that
//! interval.

use crate::counters::{Alloc, AllocUnits, Counters, GroupKind, NodeMemory, Role, Totals};
use crate::load::LoadAverage;
use crate::metric::{Metric, Unit, Values};
use crate::{Gid, Wid, sums};
use std::collections::BTreeMap;
use units::PcpuId;

/// What happened between two looks.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Wall clock of the later look, in s since 1970 UTC.
    pub unix_seconds: i64,
    /// Time between the looks, in ns.
    pub interval_ns: u64,
    /// Load averages, where they were set.
    pub host: Values,
    /// Means over all pCPUs.
    pub total: Values,
    /// pCPUs, in the order of the later look.
    pub pcpus: Vec<PcpuRates>,
    /// Groups of the later look.
    pub groups: BTreeMap<Gid, GroupRates>,
    /// Worlds of the later look.
    pub worlds: BTreeMap<Wid, WorldRates>,
    /// NUMA nodes of the later look.
    pub nodes: Vec<NodeMemory>,
}

/// A pCPU.
#[derive(Clone, Debug, PartialEq)]
pub struct PcpuRates {
    /// Its id.
    pub id: PcpuId,
    /// Its core.
    pub core: u32,
    /// PCPU USED, PCPU UTIL, CORE UTIL.
    pub values: Values,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRates {
    /// Name, as people gave it.
    pub name: String,
    /// What it is.
    pub kind: GroupKind,
    /// The pool that it is in.
    pub parent: Option<Gid>,
    /// vCPUs directly in it, by which thresholds are divided.
    pub vcpus: u32,
    /// Unit of AMIN and AMAX.
    pub units: Option<AllocUnits>,
    /// Home nodes (NHN) of a VM, each once.
    pub homes: Vec<u32>,
    /// The numbers.
    pub values: Values,
}

/// A world.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldRates {
    /// Its group.
    pub gid: Gid,
    /// What it is.
    pub role: Role,
    /// Unit of AMIN and AMAX.
    pub units: Option<AllocUnits>,
    /// The numbers.
    pub values: Values,
}

/// Two looks that no rate can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "rates: cannot take them from {before_ns} ns to {after_ns} ns: allowed only forward in time; \
        give the earlier look first"
)]
pub struct RatesError {
    /// Time of the look given first.
    pub before_ns: u64,
    /// Time of the look given second.
    pub after_ns: u64,
}

/// Reads one number of a world's or group's.
type Read = fn(&Totals) -> Option<u64>;

/// What is counted, and how it is read.
pub(crate) const COUNTED: [(Metric, Read); 17] = [
    (Metric::Used, |t| t.used_ns),
    (Metric::Run, |t| t.run_ns),
    (Metric::System, |t| t.sys_ns),
    (Metric::Wait, |t| t.wait_ns),
    (Metric::VmWait, |t| t.vmwait_ns),
    (Metric::Ready, |t| t.ready_ns),
    (Metric::Idle, |t| t.idle_ns),
    (Metric::Overlap, |t| t.overlap_ns),
    (Metric::CoStop, |t| t.costop_ns),
    (Metric::MaxLimited, |t| t.limited_ns),
    (Metric::SwapWait, |t| t.swap_wait_ns),
    (Metric::Latency, |t| t.latency_ns),
    (Metric::Switches, |t| t.switches),
    (Metric::Migrations, |t| t.migrations),
    (Metric::QuantumExpiries, |t| t.quantum_expiries),
    (Metric::Wakeups, |t| t.wakeups),
    (Metric::Timers, |t| t.timers),
];

impl Rates {
    /// What happened between `before` and `after`.
    ///
    /// # Errors
    /// `RatesError` where no time passed.
    pub fn between(before: &Counters, after: &Counters) -> Result<Rates, RatesError> {
        let interval_ns = after.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0);
        let interval_ns =
            interval_ns.ok_or(RatesError { before_ns: before.at_ns, after_ns: after.at_ns })?;
        let pcpus = pcpus(before, after, interval_ns);
        let worlds = worlds(before, after, interval_ns);
        let groups = sums::groups(before, after, &worlds, interval_ns);
        let (host, total) = (Values::default(), mean(&pcpus));
        Ok(Rates {
            unix_seconds: after.unix_seconds,
            interval_ns,
            host,
            total,
            pcpus,
            groups,
            worlds,
            nodes: after.memory.nodes.clone(),
        })
    }

    /// Worlds that ran or were ready, in the mean over the interval, for the load average; `None`
    /// where a group without a pool above it does not know.
    #[must_use]
    pub fn demand(&self) -> Option<f64> {
        let top =
            self.groups.values().filter(|g| g.parent.is_none_or(|p| !self.groups.contains_key(&p)));
        let both = |g: &GroupRates| Some(g.values.get(Metric::Run)? + g.values.get(Metric::Ready)?);
        let all: Option<Vec<f64>> = top.map(both).collect();
        all.filter(|a| !a.is_empty()).map(|a| a.iter().sum::<f64>() / 100.0)
    }

    /// Feeds the load average with this interval, and takes over what it says then.
    pub fn feed(&mut self, load: &mut LoadAverage) {
        if let Some(demand) = self.demand() {
            load.feed(self.interval_ns, demand, self.pcpus.len());
        }
        let metrics = [Metric::Load1, Metric::Load5, Metric::Load15];
        metrics.into_iter().zip(load.averages()).for_each(|(m, value)| self.host.set(m, value));
    }
}

/// 100 × or 1 × what was counted, by time; `None` where one look does not know, or the count went
/// back.
fn rate(before: Option<u64>, after: Option<u64>, interval_ns: u64, unit: Unit) -> Option<f64> {
    let counted = after?.checked_sub(before?)? as f64;
    let of_one = if unit == Unit::PerSecond { 1e9 } else { 100.0 };
    Some(counted * of_one / interval_ns as f64)
}

/// Everything that is counted of a world or group.
pub(crate) fn counted(before: &Totals, after: &Totals, interval_ns: u64) -> Values {
    let mut values = Values::default();
    for (metric, read) in COUNTED {
        values.set(metric, rate(read(before), read(after), interval_ns, metric.counter().unit));
    }
    values
}

/// Settings as numbers.
pub(crate) fn set_alloc(values: &mut Values, alloc: Option<&Alloc>) {
    let Some(alloc) = alloc else { return };
    values.set(Metric::AllocMin, Some(alloc.min));
    values.set(Metric::AllocMax, Some(alloc.max.unwrap_or(-1.0)));
    values.set(Metric::AllocShares, Some(alloc.shares.code()));
}

fn worlds(before: &Counters, after: &Counters, interval_ns: u64) -> BTreeMap<Wid, WorldRates> {
    let one = |(wid, w): (&Wid, &crate::WorldCounters)| {
        let mut values = match before.worlds.get(wid).filter(|b| b.gid == w.gid) {
            Some(b) => counted(&b.totals, &w.totals, interval_ns),
            None => Values::default(),
        };
        if matches!(w.role, Role::Vcpu(_)) && values.get(Metric::VmWait).is_none() {
            // %VMWAIT is %WAIT without %IDLE (technicloud.com, 2013-09-07): a vCPU that waits and
            // is not halted is blocked in its emulator.
            let blocked = values
                .get(Metric::Wait)
                .zip(values.get(Metric::Idle))
                .map(|(wait, idle)| wait - idle);
            values.set(Metric::VmWait, blocked.filter(|v| *v >= 0.0));
        }
        set_alloc(&mut values, w.alloc.as_ref());
        values.set(Metric::Demand, w.gauges.demand_percent);
        values.set(Metric::EffectiveMin, w.gauges.emin_mhz);
        (
            *wid,
            WorldRates {
                gid: w.gid,
                role: w.role.clone(),
                units: w.alloc.map(|a| a.units),
                values,
            },
        )
    };
    after.worlds.iter().map(one).collect()
}

fn pcpus(before: &Counters, after: &Counters, interval_ns: u64) -> Vec<PcpuRates> {
    let percent = |b: Option<u64>, a: Option<u64>| rate(b, a, interval_ns, Unit::Percent);
    let mut out: Vec<PcpuRates> = vec![];
    for a in &after.pcpus {
        let mut values = Values::default();
        if let Some(b) = before.pcpus.iter().find(|b| b.id == a.id) {
            // A thread that wakes beside its partner and finds nothing to run is charged half of
            // that, and was not busy itself.
            let woken = || b.used_ns.zip(a.used_ns).zip(percent(b.busy_ns, a.busy_ns)).map(|_| 0.0);
            values.set(Metric::PcpuUsed, percent(b.used_ns, a.used_ns).or_else(woken));
            // Idle time is counted in ticks by some kernels, and may then be a tick more than the
            // interval.
            let not_idle = || percent(b.idle_ns, a.idle_ns).map(|idle| (100.0 - idle).max(0.0));
            values.set(Metric::PcpuUtil, percent(b.busy_ns, a.busy_ns).or_else(not_idle));
        }
        let core = |c: &Counters| {
            c.cores.iter().find(|core| core.id == a.core).and_then(|core| core.busy_ns)
        };
        // A core with one thread is busy when that is. With two it does not follow from them.
        let alone = after.pcpus.iter().filter(|p| p.core == a.core).count() == 1;
        let by_thread = values.get(Metric::PcpuUtil).filter(|_| alone);
        values.set(Metric::CoreUtil, percent(core(before), core(after)).or(by_thread));
        out.push(PcpuRates { id: a.id, core: a.core, values });
    }
    out
}

/// Means over all pCPUs, of what all of them know.
fn mean(pcpus: &[PcpuRates]) -> Values {
    let mut out = Values::default();
    for metric in crate::Object::Pcpu.metrics() {
        let all: Option<Vec<f64>> = pcpus.iter().map(|p| p.values.get(metric)).collect();
        out.set(
            metric,
            all.filter(|a| !a.is_empty()).map(|a| a.iter().sum::<f64>() / a.len() as f64),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{S, host, totals};

    #[test]
    fn states_of_a_world_add_up_to_100_and_the_parts_are_inside_them() {
        let (before, after) = host(5 * S);
        let rates = Rates::between(&before, &after).unwrap();
        for (wid, w) in &rates.worlds {
            let v = |m| w.values.get(m).unwrap();
            let sum = v(Metric::Run) + v(Metric::Ready) + v(Metric::CoStop) + v(Metric::Wait);
            assert!((sum - 100.0).abs() < 1e-9, "{wid:?}: {sum}");
            assert!(
                v(Metric::MaxLimited) <= v(Metric::Ready) && v(Metric::Idle) <= v(Metric::Wait)
            );
        }
        // Of 5 s: 2 s run, 1 s ready of which 0.25 s limited, 0.5 s co-stopped, 1.5 s waiting of
        // which 1 s halted.
        let w = &rates.worlds[&Wid(100)].values;
        let seen = [
            Metric::Used,
            Metric::Run,
            Metric::Ready,
            Metric::MaxLimited,
            Metric::CoStop,
            Metric::Wait,
            Metric::Idle,
            Metric::VmWait,
        ];
        assert_eq!(
            seen.map(|m| w.get(m).unwrap()),
            [38.0, 40.0, 20.0, 5.0, 10.0, 30.0, 20.0, 10.0]
        );
        let seen = [Metric::Switches, Metric::Migrations, Metric::QuantumExpiries, Metric::Wakeups];
        assert_eq!(seen.map(|m| w.get(m).unwrap()), [200.0, 2.0, 4.0, 160.0]);
        assert_eq!(
            [Metric::System, Metric::Overlap, Metric::SwapWait, Metric::Timers].map(|m| w.get(m)),
            [None; 4],
            "not known on KVM"
        );
    }

    #[test]
    fn vmwait_is_for_vcpus_and_what_is_measured_goes_before_what_follows() {
        let (before, mut after) = host(5 * S);
        let rates = Rates::between(&before, &after).unwrap();
        assert_eq!(
            rates.worlds[&Wid(102)].values.get(Metric::VmWait),
            None,
            "an emulator's thread"
        );
        let vmwait = |before: &Counters, after: &Counters| {
            Rates::between(before, after).unwrap().worlds[&Wid(100)].values.get(Metric::VmWait)
        };
        let mut measured = before.clone();
        measured.worlds.get_mut(&Wid(100)).unwrap().totals.vmwait_ns = Some(0);
        after.worlds.get_mut(&Wid(100)).unwrap().totals.vmwait_ns = Some(S / 4);
        assert_eq!(vmwait(&measured, &after), Some(5.0));
        assert_eq!(
            vmwait(&before, &after),
            Some(10.0),
            "from wait and idle while only one look has it"
        );
        let idle = &mut after.worlds.get_mut(&Wid(100)).unwrap().totals.idle_ns;
        *idle = idle.map(|ns| ns + S);
        assert_eq!(
            vmwait(&before, &after),
            None,
            "more idle than waiting is nonsense, and nothing follows from it"
        );
    }

    #[test]
    fn counts_that_went_back_and_worlds_that_are_new_have_no_rates() {
        let (before, mut after) = host(5 * S);
        let t = &mut after.worlds.get_mut(&Wid(100)).unwrap().totals;
        (t.run_ns, t.switches) = (Some(0), Some(3));
        let new = after.worlds[&Wid(101)].clone();
        after.worlds.insert(Wid(999), new);
        after.worlds.remove(&Wid(102));
        let moved = after.worlds.get_mut(&Wid(101)).unwrap();
        moved.gid = Gid(12);
        let rates = Rates::between(&before, &after).unwrap();
        let of = |wid| &rates.worlds[&Wid(wid)].values;
        assert_eq!([of(100).get(Metric::Run), of(100).get(Metric::Switches)], [None, None]);
        assert_eq!(of(100).get(Metric::Ready), Some(20.0), "the others are not touched");
        assert_eq!(
            [of(999).get(Metric::Run), of(101).get(Metric::Run)],
            [None, None],
            "new, and new in its group"
        );
        assert!(!rates.worlds.contains_key(&Wid(102)), "gone");
    }

    #[test]
    fn counts_at_the_end_of_their_range_do_no_harm() {
        let (mut before, mut after) = host(5 * S);
        before.worlds.get_mut(&Wid(100)).unwrap().totals = totals(u64::MAX - 5, 0);
        after.worlds.get_mut(&Wid(100)).unwrap().totals = totals(4, u64::MAX);
        let rates = Rates::between(&before, &after).unwrap();
        let w = &rates.worlds[&Wid(100)].values;
        assert_eq!(
            (w.get(Metric::Run), w.get(Metric::Wakeups)),
            (None, Some(u64::MAX as f64 / 5.0))
        );
    }

    #[test]
    fn no_rates_without_time() {
        let (before, after) = host(5 * S);
        let text = "rates: cannot take them from 6000000000 ns to 1000000000 ns: allowed only \
            forward in time; give the earlier look first";
        assert_eq!(Rates::between(&after, &before).unwrap_err().to_string(), text);
        assert!(Rates::between(&before, &before).is_err());
    }

    #[test]
    fn pcpus_are_used_not_idle_and_cores_busy() {
        let (mut before, mut after) = host(5 * S);
        let rates = Rates::between(&before, &after).unwrap();
        let of = |i: usize| {
            [Metric::PcpuUsed, Metric::PcpuUtil, Metric::CoreUtil]
                .map(|m| rates.pcpus[i].values.get(m))
        };
        assert_eq!(of(0), [Some(50.0), Some(80.0), Some(90.0)]);
        assert_eq!(of(1), [Some(20.0), Some(40.0), Some(90.0)], "by idle time");
        assert_eq!(of(2), [None, Some(60.0), Some(60.0)], "a core with one thread");
        assert_eq!(
            [rates.total.get(Metric::PcpuUsed), rates.total.get(Metric::PcpuUtil)],
            [None, Some(60.0)],
            "means of what all know"
        );
        // Without the core's own account two threads do not say how busy it was.
        (before.cores, after.cores) = (vec![], vec![]);
        after.pcpus[1].idle_ns = after.pcpus[1].idle_ns.map(|ns| ns + 3 * S);
        let rates = Rates::between(&before, &after).unwrap();
        assert_eq!(rates.pcpus[0].values.get(Metric::CoreUtil), None);
        assert_eq!(rates.pcpus[1].values.get(Metric::PcpuUtil), Some(0.0), "never below nothing");
        after.pcpus[0].used_ns = before.pcpus[0].used_ns.map(|ns| ns - 1);
        let used = Rates::between(&before, &after).unwrap().pcpus[0].values.get(Metric::PcpuUsed);
        assert_eq!(
            used,
            Some(0.0),
            "woken beside its partner, and nothing to run: never below nothing, nor unknown"
        );
        before.pcpus.remove(0);
        assert_eq!(
            Rates::between(&before, &after).unwrap().pcpus[0].values,
            Values::default(),
            "plugged in between"
        );
    }

    #[test]
    fn settings_are_shown_as_esxtop_shows_them() {
        let (before, after) = host(5 * S);
        let rates = Rates::between(&before, &after).unwrap();
        let of = |gid| {
            [Metric::AllocMin, Metric::AllocMax, Metric::AllocShares]
                .map(|m| rates.groups[&Gid(gid)].values.get(m))
        };
        assert_eq!(of(11), [Some(500.0), Some(2400.0), Some(-3.0)]);
        assert_eq!(of(12), [Some(0.0), Some(-1.0), Some(1500.0)], "no limit is -1");
        assert_eq!(of(1), [None; 3]);
        assert_eq!(rates.groups[&Gid(11)].units, Some(AllocUnits::Mhz));
    }

    #[test]
    fn demand_is_what_runs_or_is_ready_and_feeds_the_load_average() {
        let (before, after) = host(5 * S);
        let mut rates = Rates::between(&before, &after).unwrap();
        // Two vCPUs and a helper of VM 11 and one vCPU of VM 12, each 60 %, and 30 % of the host's
        // tasks.
        let demand = rates.demand().unwrap();
        assert!((demand - 2.7).abs() < 1e-9, "{demand}");
        let mut load = LoadAverage::new();
        rates.feed(&mut load);
        assert!((rates.host.get(Metric::Load15).unwrap() - 0.9).abs() < 1e-9, "3 pCPUs");
        rates.groups.get_mut(&Gid::HOST).unwrap().values.set(Metric::Run, None);
        assert_eq!(rates.demand(), None);
        rates.feed(&mut load);
        assert!(
            rates.host.get(Metric::Load1).is_some(),
            "unknown demand feeds nothing, and the averages stay"
        );
        rates.groups.clear();
        assert_eq!(rates.demand(), None);
    }
}
