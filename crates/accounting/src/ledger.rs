//! Keeps the totals of groups while worlds start, end and change their group between samples; it
//! stores the last sample and no more.

use esxtop::{Counters, Gid, Totals, Wid};
use std::collections::BTreeMap;

/// What has to be remembered from look to look.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Where each world was at the last look, and what it had.
    seen: BTreeMap<Wid, (Gid, Totals)>,
    /// What each group lost to others (above 0), or got from them (below), by worlds that changed
    /// their group.
    moved: BTreeMap<Gid, Moved>,
}

/// A signed amount for each number of `Totals`, in the order of `numbers`.
type Moved = [i128; NUMBERS];

const NUMBERS: usize = 13;

/// The numbers that the scheduler's records have.
fn numbers(t: &mut Totals) -> [&mut Option<u64>; NUMBERS] {
    [
        &mut t.used_ns,
        &mut t.lost_ns,
        &mut t.run_ns,
        &mut t.wait_ns,
        &mut t.ready_ns,
        &mut t.idle_ns,
        &mut t.costop_ns,
        &mut t.limited_ns,
        &mut t.latency_ns,
        &mut t.switches,
        &mut t.migrations,
        &mut t.quantum_expiries,
        &mut t.wakeups,
    ]
}

fn amounts(t: &Totals) -> Moved {
    let mut copy = *t;
    numbers(&mut copy).map(|n| i128::from(n.unwrap_or(0)))
}

impl Ledger {
    /// Sets the own totals of each group in `past`: what its gone worlds left behind, and what its
    /// worlds in `look` have.
    pub fn settle(&mut self, look: &mut Counters, past: &BTreeMap<Gid, Totals>) {
        let mut sums: BTreeMap<Gid, Moved> =
            past.iter().map(|(gid, t)| (*gid, amounts(t))).collect();
        for (wid, w) in &look.worlds {
            let now = amounts(&w.totals);
            if let Some((before, had)) = self.seen.get(wid).filter(|(gid, _)| *gid != w.gid) {
                let had = amounts(had);
                let lost = self.moved.entry(*before).or_insert([0; NUMBERS]);
                lost.iter_mut().zip(had).for_each(|(sum, n)| *sum += n);
                let got = self.moved.entry(w.gid).or_insert([0; NUMBERS]);
                got.iter_mut().zip(had).for_each(|(sum, n)| *sum -= n);
            }
            if let Some(sum) = sums.get_mut(&w.gid) {
                sum.iter_mut().zip(now).for_each(|(sum, n)| *sum += n);
            }
        }
        self.seen = look.worlds.iter().map(|(wid, w)| (*wid, (w.gid, w.totals))).collect();
        self.moved.retain(|gid, _| look.groups.contains_key(gid));
        for (gid, sum) in sums {
            let moved = self.moved.get(&gid).copied().unwrap_or([0; NUMBERS]);
            let Some(group) = look.groups.get_mut(&gid) else { continue };
            for ((own, sum), moved) in numbers(&mut group.own).into_iter().zip(sum).zip(moved) {
                *own = u64::try_from(sum + moved).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esxtop::{Gauges, GroupCounters, GroupKind, Rates, Role, WorldCounters};

    const SYSTEM: Gid = Gid::SYSTEM;
    const VM: Gid = Gid(77);

    fn look(at_ns: u64, worlds: &[(u64, Gid, u64)]) -> Counters {
        let group = |kind| GroupCounters {
            name: String::new(),
            kind,
            parent: None,
            own: Totals::default(),
            nwld: None,
            alloc: None,
            gauges: Gauges::default(),
        };
        let totals = |run| Totals {
            used_ns: Some(run),
            run_ns: Some(run),
            switches: Some(run / 10),
            ..Totals::default()
        };
        let world = |(wid, gid, run): &(u64, Gid, u64)| {
            let role = Role::Helper(String::new());
            (
                Wid(*wid),
                WorldCounters {
                    gid: *gid,
                    role,
                    totals: totals(*run),
                    alloc: None,
                    gauges: Gauges::default(),
                },
            )
        };
        let groups = [(SYSTEM, group(GroupKind::System)), (VM, group(GroupKind::Vm))].into();
        Counters {
            at_ns,
            groups,
            worlds: worlds.iter().map(world).collect(),
            memory: esxtop::HostMemory::default(),
            ..Counters::default()
        }
    }

    fn run_of(c: &Counters) -> [u64; 2] {
        [SYSTEM, VM].map(|g| c.groups[&g].own.run_ns.unwrap())
    }

    fn past(system: u64, vm: u64) -> BTreeMap<Gid, Totals> {
        let gone = |run| Totals { run_ns: Some(run), ..Totals::default() };
        [(SYSTEM, gone(system)), (VM, gone(vm))].into()
    }

    #[test]
    fn a_world_that_ends_leaves_its_time_with_its_group() {
        let mut ledger = Ledger::default();
        let mut a = look(1000, &[(1, SYSTEM, 100), (2, VM, 50)]);
        ledger.settle(&mut a, &past(5, 0));
        assert_eq!(run_of(&a), [105, 50]);
        let mut b = look(2000, &[(2, VM, 80)]);
        ledger.settle(&mut b, &past(5 + 140, 0));
        assert_eq!(run_of(&b), [145, 80], "it ran 40 more before it ended");
        let rates = Rates::between(&a, &b).unwrap();
        assert_eq!(rates.groups[&SYSTEM].values.get(esxtop::Metric::Run), Some(4.0));
    }

    #[test]
    fn a_world_that_is_found_to_be_a_vms_brings_nothing_of_its_earlier_life() {
        let mut ledger = Ledger::default();
        let mut a = look(1000, &[(1, SYSTEM, 1000), (2, SYSTEM, 10)]);
        ledger.settle(&mut a, &past(0, 0));
        let mut b = look(2000, &[(1, VM, 1300), (2, SYSTEM, 10)]);
        ledger.settle(&mut b, &past(0, 0));
        assert_eq!((run_of(&a), run_of(&b)), ([1010, 0], [1010, 300]));
        let mut c = look(3000, &[(1, VM, 1400)]);
        ledger.settle(&mut c, &past(15, 0));
        assert_eq!(run_of(&c), [1015, 400]);
        // It ends: what it left behind has its earlier life too, which is taken off for good.
        let mut d = look(4000, &[]);
        ledger.settle(&mut d, &past(15, 1450));
        assert_eq!(run_of(&d), [1015, 450]);
        assert_eq!(
            d.groups[&VM].own.switches, None,
            "what it left behind says nothing of switches: less than nothing is not known"
        );
    }
}
