//! The CPU time that an ideal scheduler would have given each VM between two samples: by the tree
//! of pools, and by affinity and homes.

use crate::{Names, discover, discover::Roots};
use entitlement::{Demand, Fluid, divide_placed};
use std::collections::BTreeMap;
use units::{PcpuId, PcpuSet, Rate};

/// What the worlds of one VM wanted in an interval, in ns of CPU time, by the pCPUs that they may
/// use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    /// Its worlds, for those that are no vCPUs use CPU time too.
    pub(crate) worlds: u32,
    pub(crate) classes: Vec<(PcpuSet, u64)>,
}

impl Wants {
    pub(crate) fn add(&mut self, set: PcpuSet, ns: u64) {
        self.worlds += 1;
        match self.classes.iter_mut().find(|c| c.0 == set) {
            Some(class) => class.1 += ns,
            None => self.classes.push((set, ns)),
        }
    }
}

/// CPU time in ns that each VM of `names` was entitled to within `span_ns`, `system_ns` being what
/// host tasks wanted.
pub(crate) fn entitled(
    names: &Names,
    pcpus: &PcpuSet,
    span_ns: u64,
    system_ns: u64,
    wants: &[Wants],
) -> Vec<u64> {
    let worlds: BTreeMap<u32, u32> =
        names.vms.iter().zip(wants).map(|(vm, w)| (vm.id, w.worlds)).collect();
    let tree = names.tree_of(|vm| vm.vcpus.max(worlds.get(&vm.id).copied().unwrap_or(0)));
    let system = Wants { worlds: 0, classes: vec![(pcpus.clone(), system_ns)] };
    let leaves: Vec<&Wants> = [&system].into_iter().chain(wants).collect();
    let mut sets: Vec<PcpuSet> =
        leaves.iter().flat_map(|w| w.classes.iter().map(|c| c.0.and(pcpus))).collect();
    sets.sort_unstable_by(|a, b| a.words().cmp(b.words()));
    sets.dedup();
    let index = |set: &PcpuSet| sets.partition_point(|s| s.words() < set.and(pcpus).words()) as u32;
    let demand = |w: &&Wants| Demand {
        weight: 0,
        classes: w.classes.iter().map(|c| (index(&c.0), c.1)).collect(),
    };
    let demands: Vec<Demand> = leaves.iter().map(demand).collect();
    let numbers: Vec<u32> = (0..demands.len() as u32).collect();
    let asked: u128 = leaves.iter().flat_map(|w| &w.classes).map(|c| u128::from(c.1)).sum();
    let asked = asked * u128::from(Rate::ONE.0) / u128::from(span_ns.max(1));
    let taken = tree.taken_beside(pcpus, u64::try_from(asked).unwrap_or(u64::MAX));
    let fluid = Fluid::new(pcpus, &sets).without(&taken);
    divide_placed(&tree, &fluid, span_ns, &numbers, &demands).split_off(1)
}

/// Those of some pCPUs that are in a home, a bit for each domain, or all of them where none is;
/// `domains` has that of each pCPU.
pub(crate) fn at_home(set: PcpuSet, home: u64, domains: &[u32]) -> PcpuSet {
    if home == u64::MAX {
        return set;
    }
    let is = |p: &PcpuId| domains.get(usize::from(p.0)).is_some_and(|d| home >> d & 1 != 0);
    let there: PcpuSet = set.iter().filter(is).collect();
    if there.is_empty() { set } else { there }
}

/// Affinity of threads, read again every second.
#[derive(Default)]
pub(crate) struct Allowed {
    sets: BTreeMap<i32, PcpuSet>,
    read_ns: u64,
}

impl Allowed {
    pub(crate) fn of(&mut self, pid: i32, tid: i32, now_ns: u64, all: &PcpuSet) -> PcpuSet {
        if now_ns.saturating_sub(self.read_ns) > 1_000_000_000 {
            self.sets.clear();
            self.read_ns = now_ns;
        }
        let read = || {
            discover::allowed(&Roots::default(), pid, tid)
                .map_or_else(|| all.clone(), |s| s.and(all))
        };
        self.sets.entry(tid).or_insert_with(read).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolName, Sources, VmName};

    fn pool(path: &str, shares: u32, reservation: u64, limit: Option<u64>) -> PoolName {
        let (path, parent, sources) = (path.to_owned(), "/".to_owned(), Sources::new());
        let (reservation, limit) = (Rate::pcpus(reservation), limit.map(Rate::pcpus));
        PoolName {
            path,
            parent,
            shares,
            reservation,
            limit,
            burst_ns: 0,
            expandable: true,
            scalable: false,
            sources,
        }
    }

    fn vm(id: u32, pool: &str, shares: u32) -> VmName {
        VmName {
            id,
            name: format!("vm{id}"),
            pid: id as i32,
            started: 0,
            pool: pool.to_owned(),
            shares,
            reservation: Rate(0),
            limit: None,
            burst_ns: 0,
            vcpus: 2,
            weight: 0,
            cgroup: String::new(),
            sources: Sources::new(),
        }
    }

    fn names(pools: Vec<PoolName>, vms: Vec<VmName>) -> Names {
        Names { pcpus: 4, system_shares: 4000, pools, vms, ..Names::default() }
    }

    fn busy(worlds: u32, set: &str, ns: u64) -> Wants {
        Wants { worlds, classes: vec![(set.parse().unwrap(), ns)] }
    }

    #[test]
    fn pools_are_divided_before_their_vms_and_limits_and_reservations_hold() {
        let host = PcpuSet::first(4);
        let names = names(
            vec![pool("/", 1, 0, None), pool("/a", 3000, 0, None), pool("/b", 1000, 0, None)],
            vec![vm(1, "/a", 1000), vm(2, "/a", 1000), vm(3, "/b", 1000), vm(4, "/b", 1000)],
        );
        let all = vec![busy(2, "0-3", 2000); 4];
        assert_eq!(entitled(&names, &host, 1000, 0, &all), [1500, 1500, 500, 500]);
        assert_eq!(
            entitled(&names, &host, 1000, 1000, &all),
            [1125, 1125, 375, 375],
            "host tasks weigh 4000, and want 1000"
        );
        let limited = Names {
            pools: vec![
                pool("/", 1, 0, None),
                pool("/a", 3000, 0, Some(1)),
                pool("/b", 1000, 0, None),
            ],
            ..names.clone()
        };
        assert_eq!(entitled(&limited, &host, 1000, 0, &all), [500, 500, 1500, 1500]);
        let sure = Names {
            pools: vec![
                pool("/", 1, 0, None),
                pool("/a", 3000, 0, None),
                pool("/b", 1000, 3, None),
            ],
            ..names
        };
        assert_eq!(entitled(&sure, &host, 1000, 0, &all), [500, 500, 1500, 1500]);
    }

    #[test]
    fn helpers_count_beside_vcpus_and_held_vms_share_what_they_may_use() {
        let host = PcpuSet::first(4);
        let wide =
            names(vec![pool("/", 1, 0, None), pool("/a", 4000, 0, None)], vec![vm(1, "/a", 1000)]);
        assert_eq!(
            entitled(&wide, &host, 1000, 0, &[busy(3, "0-3", 2500)]),
            [2500],
            "two vCPUs and a helper"
        );
        let held = names(
            vec![pool("/", 1, 0, None)],
            vec![vm(1, "/", 1000), vm(2, "/", 3000), vm(3, "/", 1000)],
        );
        let wants = [busy(2, "0", 1000), busy(2, "0", 1000), busy(2, "0-3", 2000)];
        assert_eq!(entitled(&held, &host, 1000, 0, &wants), [250, 750, 2000]);
    }

    #[test]
    fn where_cores_are_divided_threads_are_not_and_tasks_of_higher_classes_take_theirs() {
        let host = PcpuSet::first(4);
        let vms = vec![vm(1, "/", 3000), vm(2, "/", 1000)];
        let threads = names(vec![pool("/", 1, 0, None)], vms);
        let cores = Names { cores: 2, shared_charge: 500, ..threads.clone() };
        let wants = vec![busy(2, "0-3", 2000); 2];
        assert_eq!(entitled(&threads, &host, 1000, 0, &wants), [2000, 2000]);
        assert_eq!(entitled(&cores, &host, 1000, 0, &wants), [1500, 500]);
        let taken = [(units::PcpuId(0), Rate(Rate::ONE.0 / 2))].into_iter().collect();
        let beside = Names { taken, ..threads };
        assert_eq!(entitled(&beside, &host, 1000, 0, &wants), [2000, 1500]);
    }

    #[test]
    fn what_worlds_of_one_set_want_is_one_class() {
        let mut w = Wants::default();
        [("0-1", 5), ("2", 1), ("0-1", 7)]
            .into_iter()
            .for_each(|(set, ns)| w.add(set.parse().unwrap(), ns));
        assert_eq!((w.worlds, w.classes.iter().map(|c| c.1).collect::<Vec<_>>()), (3, vec![12, 1]));
    }

    #[test]
    fn a_world_is_entitled_within_its_home_alone() {
        let (domains, of) = ([0, 0, 1, 1], |text: &str| text.parse::<PcpuSet>().unwrap());
        let at = |set, home| at_home(of(set), home, &domains).to_string();
        assert_eq!([at("0-3", u64::MAX), at("0-3", 0b10), at("1-2", 0b10)], ["0-3", "2-3", "2"]);
        assert_eq!(at("0-1", 0b10), "0-1", "affinity leaves nothing of its home");
        // Two VMs of two burners, both with their home in node 0: each gets half of it.
        let home = at_home(of("0-3"), 0b01, &domains);
        let (span, mut wants) = (1_000, vec![Wants::default(), Wants::default()]);
        for w in &mut wants {
            (0..2).for_each(|_| w.add(home.clone(), span));
        }
        let names = names(vec![pool("/", 4000, 0, None)], vec![vm(1, "/", 1000), vm(2, "/", 1000)]);
        assert_eq!(entitled(&names, &of("0-3"), span, 0, &wants), [span, span]);
    }
}
