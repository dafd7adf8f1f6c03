//! Groups of a host by esxtop's rule, a row is the sum over its worlds, for VMs, pools and the
//! host; it adds nothing it does not know.
//!
//! *Law*: for each counter, a group's own count if it has one; else the sum over the worlds and
//! groups directly in it. %USED of a VM has the known %SYS of its worlds added (KB 382249); what is
//! in %SYS of no world is in no sum. *Limits*: members that came between the looks are not in the
//! sum yet; if one that was there both times does not know, the sum does not know either. %VMWAIT
//! alone is the sum over those that have it, for it is not defined for worlds that are no vCPU.

use crate::counters::{Counters, Role, VmMemory};
use crate::metric::{Metric, Values};
use crate::rates::{COUNTED, GroupRates, WorldRates, counted, set_alloc};
use crate::{Gid, Wid};
use std::collections::BTreeMap;
use units::caps::POOL_DEPTH_MAX;

/// Levels of groups: the root, pools, and VMs in them.
const LEVELS_MAX: usize = POOL_DEPTH_MAX + 2;

/// Counters that can be summed up come before this.
const SUMMED: usize = Metric::Timers as usize + 1;

/// The sum so far.
#[derive(Clone, Debug, Default)]
struct Sum {
    values: [f64; SUMMED],
    members: [u32; SUMMED],
    unknown: [bool; SUMMED],
    nwld: u64,
    vcpus: u32,
}

impl Sum {
    fn add(&mut self, member: &Values) {
        for (metric, _) in COUNTED {
            let i = metric as usize;
            match member.get(metric) {
                Some(v) => {
                    self.values[i] += v;
                    self.members[i] += 1;
                }
                None => self.unknown[i] |= metric != Metric::VmWait,
            }
        }
    }

    fn of(&self, metric: Metric) -> Option<f64> {
        let i = metric as usize;
        // The sum of no member is 0; that of a member which is not known yet is not known.
        let known = !self.unknown[i] && (self.members[i] > 0 || self.nwld == 0);
        known.then_some(self.values[i])
    }
}

/// Groups of the later look.
pub(crate) fn groups(
    before: &Counters,
    after: &Counters,
    worlds: &BTreeMap<Wid, WorldRates>,
    interval_ns: u64,
) -> BTreeMap<Gid, GroupRates> {
    let mut sums = of_worlds(before, worlds);
    let mut order: Vec<(usize, Gid)> =
        after.groups.keys().map(|gid| (depth(after, *gid), *gid)).collect();
    order.sort_by_key(|(depth, gid)| (std::cmp::Reverse(*depth), *gid));
    let mut out = BTreeMap::new();
    // What is deepest first, so that a pool's members are complete before the pool.
    for (_, gid) in order {
        let mut sum = sums.remove(&gid).unwrap_or_default();
        let group = &after.groups[&gid];
        sum.nwld = group.nwld.unwrap_or(sum.nwld);
        let earlier = before.groups.get(&gid);
        let mut values = of_group(earlier, group, &sum, interval_ns);
        set_memory(&mut values, before.memory.vms.get(&gid), after.memory.vms.get(&gid));
        let parent = group.parent.filter(|_| depth(after, gid) > 0);
        if let Some(above) = parent {
            let pool = sums.entry(above).or_default();
            pool.nwld += sum.nwld;
            // A group that came between the looks, or an empty one, has nothing to add.
            if earlier.is_some() {
                pool.add(&values);
            }
        }
        let units = group.alloc.map(|a| a.units);
        let homes = after.memory.vms.get(&gid).map_or(vec![], |m| m.homes.clone());
        out.insert(
            gid,
            GroupRates {
                name: group.name.clone(),
                kind: group.kind,
                parent,
                vcpus: sum.vcpus,
                units,
                homes,
                values,
            },
        );
    }
    out
}

/// What the worlds directly in each group add up to.
fn of_worlds(before: &Counters, worlds: &BTreeMap<Wid, WorldRates>) -> BTreeMap<Gid, Sum> {
    let mut sums: BTreeMap<Gid, Sum> = BTreeMap::new();
    for (wid, w) in worlds {
        let sum = sums.entry(w.gid).or_default();
        sum.nwld += 1;
        sum.vcpus += u32::from(matches!(w.role, Role::Vcpu(_)));
        if before.worlds.get(wid).is_some_and(|b| b.gid == w.gid) {
            let mut values = w.values.clone();
            let system = values.get(Metric::System).unwrap_or(0.0);
            values.set(Metric::Used, values.get(Metric::Used).map(|used| used + system));
            sum.add(&values);
        }
    }
    sums
}

/// A group's numbers: its own, or else the sum.
fn of_group(
    earlier: Option<&crate::GroupCounters>,
    group: &crate::GroupCounters,
    sum: &Sum,
    interval_ns: u64,
) -> Values {
    let mut values = Values::default();
    if let Some(earlier) = earlier {
        let own = counted(&earlier.own, &group.own, interval_ns);
        for (metric, read) in COUNTED {
            let value = if read(&group.own).is_some() { own.get(metric) } else { sum.of(metric) };
            values.set(metric, value);
        }
    }
    values.set(Metric::Worlds, Some(sum.nwld as f64));
    set_alloc(&mut values, group.alloc.as_ref());
    values.set(Metric::Demand, group.gauges.demand_percent);
    values.set(Metric::EffectiveMin, group.gauges.emin_mhz);
    values
}

/// A VM's memory as numbers.
fn set_memory(values: &mut Values, before: Option<&VmMemory>, now: Option<&VmMemory>) {
    let Some(now) = now else { return };
    let mib = |bytes: u64| Some(bytes as f64 / f64::from(1 << 20));
    values.set(Metric::MemorySize, mib(now.bytes));
    let Some((local, remote)) = now.places else { return };
    values.set(Metric::LocalMemory, mib(local));
    values.set(Metric::RemoteMemory, mib(remote));
    values.set(Metric::LocalPercent, Some(100.0 * local as f64 / (local + remote) as f64));
    values.set(Metric::HomeMigrations, Some(now.migrations as f64));
    // A daemon that was started anew counts from 0.
    let delta = before.and_then(|b| now.migrations.checked_sub(b.migrations));
    values.set(Metric::HomeMigrationsDelta, delta.map(|n| n as f64));
}

/// How many groups are above one. A group whose pools run in a circle, or are more than there can
/// be, counts as in none.
fn depth(after: &Counters, gid: Gid) -> usize {
    let above = |gid: &Gid| {
        after.groups.get(gid).and_then(|g| g.parent).filter(|p| after.groups.contains_key(p))
    };
    let chain = std::iter::successors(Some(gid), above).take(LEVELS_MAX + 1).count() - 1;
    if chain >= LEVELS_MAX { 0 } else { chain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{S, host};
    use crate::{GroupCounters, GroupKind, Rates};

    fn get(rates: &Rates, gid: u64, metric: Metric) -> Option<f64> {
        rates.groups[&Gid(gid)].values.get(metric)
    }

    fn near(seen: Option<f64>, expected: f64) {
        assert!((seen.unwrap() - expected).abs() < 1e-9, "{seen:?} {expected}");
    }

    #[test]
    fn a_vm_is_the_sum_of_its_worlds_and_a_pool_of_its_vms() {
        let (before, after) = host(5 * S);
        let rates = Rates::between(&before, &after).unwrap();
        near(get(&rates, 11, Metric::Run), 120.0);
        near(get(&rates, 11, Metric::VmWait), 20.0); // of its two vCPUs, not of its helper
        near(get(&rates, 10, Metric::Run), 160.0);
        near(get(&rates, 0, Metric::Run), 180.0); // 20 % are the host's tasks
        near(get(&rates, 10, Metric::Switches), 800.0);
        let states = [Metric::Run, Metric::Ready, Metric::CoStop, Metric::Wait]
            .map(|m| get(&rates, 11, m).unwrap());
        near(Some(states.iter().sum()), 300.0);
        assert_eq!(
            [0, 1, 10, 11, 12].map(|gid| get(&rates, gid, Metric::Worlds).unwrap()),
            [54.0, 50.0, 4.0, 3.0, 1.0]
        );
        assert_eq!([rates.groups[&Gid(11)].vcpus, rates.groups[&Gid(12)].vcpus], [2, 1]);
    }

    #[test]
    fn used_of_a_vm_has_the_known_system_time_of_its_worlds() {
        let (mut before, mut after) = host(5 * S);
        near(get(&Rates::between(&before, &after).unwrap(), 11, Metric::Used), 3.0 * 38.0);
        before.worlds.get_mut(&Wid(100)).unwrap().totals.sys_ns = Some(7);
        after.worlds.get_mut(&Wid(100)).unwrap().totals.sys_ns = Some(7 + S / 4);
        let rates = Rates::between(&before, &after).unwrap();
        near(get(&rates, 11, Metric::Used), 3.0 * 38.0 + 5.0);
        near(get(&rates, 10, Metric::Used), 4.0 * 38.0 + 5.0);
        assert_eq!(get(&rates, 11, Metric::System), None, "two of three do not know theirs");
    }

    #[test]
    fn a_groups_own_count_goes_before_the_sum() {
        let (before, after) = host(5 * S);
        let rates = Rates::between(&before, &after).unwrap();
        near(get(&rates, 1, Metric::Used), 15.0);
        let mut back = after.clone();
        back.groups.get_mut(&Gid(11)).unwrap().own.run_ns = Some(3);
        let mut earlier = before.clone();
        earlier.groups.get_mut(&Gid(11)).unwrap().own.run_ns = Some(4);
        let rates = Rates::between(&earlier, &back).unwrap();
        assert_eq!(
            get(&rates, 11, Metric::Run),
            None,
            "its own went back, and the sum does not stand in"
        );
        assert_eq!(get(&rates, 10, Metric::Run), None, "so the pool does not know either");
        near(get(&rates, 10, Metric::Ready), 80.0);
    }

    #[test]
    fn who_came_is_in_no_sum_yet_and_who_went_is_in_none_any_more() {
        let (before, mut after) = host(5 * S);
        let (vm, world) = (after.groups[&Gid(12)].clone(), after.worlds[&Wid(103)].clone());
        after.groups.insert(Gid(13), GroupCounters { name: "new".to_owned(), ..vm });
        after.worlds.insert(Wid(200), crate::WorldCounters { gid: Gid(13), ..world.clone() });
        after.worlds.insert(Wid(201), crate::WorldCounters { gid: Gid(11), ..world });
        after.worlds.remove(&Wid(102));
        let rates = Rates::between(&before, &after).unwrap();
        assert_eq!(
            [get(&rates, 13, Metric::Run), get(&rates, 13, Metric::Worlds)],
            [None, Some(1.0)]
        );
        near(get(&rates, 11, Metric::Run), 80.0);
        near(get(&rates, 10, Metric::Run), 120.0);
        assert_eq!(get(&rates, 10, Metric::Worlds), Some(5.0));
        after.worlds.get_mut(&Wid(101)).unwrap().gid = Gid(12);
        let moved = Rates::between(&before, &after).unwrap();
        assert_eq!(
            [11, 12].map(|gid| get(&moved, gid, Metric::Run).unwrap().round()),
            [40.0, 40.0],
            "moved: in neither for now"
        );
        after.groups.remove(&Gid(11));
        after.worlds.retain(|wid, w| w.gid != Gid(11) && *wid != Wid(101));
        let rates = Rates::between(&before, &after).unwrap();
        near(get(&rates, 10, Metric::Run), 40.0);
        assert!(!rates.groups.contains_key(&Gid(11)));
    }

    #[test]
    fn an_empty_pool_uses_nothing_and_a_vm_whose_worlds_are_all_new_is_not_known() {
        let (mut before, mut after) = host(5 * S);
        let pool = GroupCounters {
            kind: GroupKind::Pool,
            name: "empty".to_owned(),
            ..after.groups[&Gid(10)].clone()
        };
        before.groups.insert(Gid(20), pool.clone());
        after.groups.insert(Gid(20), pool);
        before.worlds.remove(&Wid(103));
        let rates = Rates::between(&before, &after).unwrap();
        assert_eq!([get(&rates, 20, Metric::Run), get(&rates, 20, Metric::Worlds)], [Some(0.0); 2]);
        assert_eq!(get(&rates, 12, Metric::Run), None);
    }

    #[test]
    fn pools_in_a_circle_or_without_end_are_in_no_pool_and_end() {
        let (mut before, mut after) = host(5 * S);
        for look in [&mut before, &mut after] {
            look.groups.get_mut(&Gid::HOST).unwrap().parent = Some(Gid(10));
            let vm = GroupCounters { parent: Some(Gid(777)), ..look.groups[&Gid(12)].clone() };
            look.groups.insert(Gid(30), vm);
        }
        let rates = Rates::between(&before, &after).unwrap();
        assert_eq!([0, 10, 11].map(|gid| rates.groups[&Gid(gid)].parent), [None; 3]);
        near(get(&rates, 11, Metric::Run), 120.0);
        assert_eq!(rates.groups[&Gid(30)].parent, None, "its pool is not there");
    }

    #[test]
    fn as_many_pools_as_there_can_be_are_added_up_to_the_host() {
        let (mut before, mut after) = host(5 * S);
        for look in [&mut before, &mut after] {
            let pool = look.groups[&Gid(10)].clone();
            for level in 1..POOL_DEPTH_MAX as u64 {
                let parent = Some(Gid(if level == 1 { 10 } else { 1000 + level - 1 }));
                look.groups.insert(Gid(1000 + level), GroupCounters { parent, ..pool.clone() });
            }
            look.groups.get_mut(&Gid(12)).unwrap().parent =
                Some(Gid(1000 + POOL_DEPTH_MAX as u64 - 1));
        }
        let rates = Rates::between(&before, &after).unwrap();
        near(get(&rates, 1001, Metric::Run), 40.0);
        near(get(&rates, 10, Metric::Run), 160.0);
        near(get(&rates, 0, Metric::Run), 180.0);
    }
}
