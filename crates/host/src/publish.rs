//! Puts a layout into force: limits, weights of VMs that are new, the plan's tree, the names for
//! readers; then says what is over-committed. It decides nothing: `layout` and crates/entitlement
//! do.

use crate::{
    HostError, Live, Names, PoolName, VmName, live::Word, reported::Conditions, slots::Slots,
};
use ::publish::{Limits, Owner, Wanted};
use entitlement::Tree;
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};
use units::{Rate, caps::LIMITERS_MAX};

/// Longer than the scheduler takes to divide a tree: until then the previous plan may still be
/// read.
const DIVIDING: Duration = Duration::from_millis(20);

/// The plan in force.
pub(crate) struct Published {
    /// With its generation, 0 before the first.
    names: Names,
    tree: Tree,
    system_weight: u64,
    /// Slots of limits; a VM is its process and that one's start.
    limits: Limits<(i32, u64)>,
    limits_refused: Option<String>,
    /// When the scheduler got the tree.
    divided: Option<Instant>,
}

impl Default for Published {
    fn default() -> Published {
        let names = Names::default();
        Published {
            tree: names.tree(),
            names,
            system_weight: 0,
            limits: Limits::default(),
            limits_refused: None,
            divided: None,
        }
    }
}

impl Published {
    /// Generation of the plan, 0 before the first.
    pub(crate) fn generation(&self) -> u64 {
        self.names.generation
    }

    /// The plan's tree.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Numbers of the VMs.
    pub(crate) fn vms(&self) -> impl Iterator<Item = u32> + '_ {
        self.names.vms.iter().map(|v| v.id)
    }

    /// Numbers of the leaves' VMs, the system group first.
    pub(crate) fn ids(&self) -> Vec<u32> {
        [0].into_iter().chain(self.vms()).collect()
    }

    /// Limits that are not in force.
    pub(crate) fn limits_refused(&self) -> Option<&String> {
        self.limits_refused.as_ref()
    }

    /// Whether names with their numbers are another plan than this.
    pub(crate) fn differs(&self, names: &Names) -> bool {
        self.generation() == 0 || !same(names, &self.names)
    }

    /// Takes over names with their numbers: their limits, and weights of VMs that are new. `divide`
    /// puts their tree into force.
    pub(crate) fn take(
        &mut self,
        mut names: Names,
        live: &Live,
        slots: &Slots,
        say: &dyn Fn(&str),
    ) {
        names.generation = self.generation() + 1;
        let tree = names.tree();
        let worst = tree.worst_case().leaves;
        names
            .vms
            .iter_mut()
            .zip(worst.iter().skip(1))
            .for_each(|(vm, weight)| vm.weight = (*weight).max(1));
        let old = std::mem::replace(&mut self.names, names);
        self.tree = tree;
        self.system_weight = worst[0].max(1);
        say_changes(&old, &self.names, say);

        self.put_limits(live, slots);
        // A VM has its weight and its limit before its first world is charged to it; after a change
        // of size it gets them again.
        live.accounts().set_vms(self.vms().chain(slots.leaving()).max().unwrap_or(0) + 1);
        let size = |v: &VmName| (v.pid, v.started, v.vcpus, v.shares);
        let known: BTreeSet<_> = old.vms.iter().map(size).collect();
        let changed: BTreeSet<u32> =
            self.names.vms.iter().filter(|v| !known.contains(&size(v))).map(|v| v.id).collect();
        let system = self.generation() == 1
            || old.system_shares != self.names.system_shares
            || old.pcpus != self.names.pcpus;
        self.weigh(live, |id| if id == 0 { system } else { changed.contains(&id) });
    }

    /// Gives the tree to the scheduler, and the names to readers.
    pub(crate) fn divide(&mut self, live: &Live) -> Result<(), HostError> {
        if let Some(wait) = self.divided.and_then(|at| DIVIDING.checked_sub(at.elapsed())) {
            thread::sleep(wait);
        }
        let nodes = sched_core::plan_nodes(&self.tree, &self.ids());
        live.accounts().set_plan(&nodes, self.generation());
        self.divided = Some(Instant::now());
        self.names.write()
    }

    /// Gives a VM or the system group a weight.
    pub(crate) fn give(&self, live: &Live, id: u32, word: Word) {
        let vm = self.names.vms.iter().find(|v| v.id == id && id != 0);
        let (vcpus, shares) =
            vm.map_or((self.names.pcpus, self.names.system_shares), |v| (v.vcpus.max(1), v.shares));
        let _ = live.weight(id, vcpus, shares, word);
    }

    /// Gives VMs what they get in the worst case, until the scheduler divides for them.
    pub(crate) fn weigh(&self, live: &Live, which: impl Fn(u32) -> bool) {
        let vms = self.names.vms.iter().map(|v| (v.id, v.weight));
        for (id, weight) in
            [(0, self.system_weight)].into_iter().chain(vms).filter(|(id, _)| which(*id))
        {
            self.give(live, id, Word { weight, ..Word::default() });
        }
    }

    /// Limits of all pools and VMs; VMs that leave are under none, for their limits may become
    /// another's.
    fn put_limits(&mut self, live: &Live, slots: &Slots) {
        let (wanted, first) = limits(&self.names, &self.tree);
        let first: Vec<(u32, Option<usize>)> =
            first.into_iter().chain(slots.leaving().map(|id| (id, None))).collect();
        let refused = self.limits.set(&mut live.accounts(), &wanted, &first);
        self.limits_refused = (refused > 0).then(|| {
            let most = LIMITERS_MAX - 1;
            format!(
                "limits: cannot keep {refused} of {}: allowed {most}; those are not in force; \
                    limit pools in place of their VMs",
                wanted.len()
            )
        });
    }

    /// Limits without waiting worlds are free again.
    pub(crate) fn sweep(&mut self, live: &Live) {
        self.limits.sweep(&live.accounts());
    }

    /// Where more is reserved than there is: said once, and once more when it is over.
    pub(crate) fn say_excesses(&self, conditions: &mut Conditions, say: &dyn Fn(&str)) {
        let report = entitlement::check(&self.tree, &self.names.paths());
        let now = report.excesses.iter().map(ToString::to_string).collect();
        let (news, fits_again) = conditions.excesses(now);
        for excess in news {
            say(&format!(
                "over-committed: {excess}; nothing is scaled silently: reservations of the \
                    siblings there are met in proportion"
            ));
        }
        if fits_again {
            say("all reservations fit again");
        }
    }
}

/// What has come, changed and gone, a line each.
fn say_changes(old: &Names, new: &Names, say: &dyn Fn(&str)) {
    let say = |text: String| say(&text);
    let before: BTreeMap<&str, String> =
        old.pools.iter().map(|p| (p.path.as_str(), of_pool(p))).collect();
    for pool in new.pools.iter().filter(|p| p.path != "/") {
        match before.get(pool.path.as_str()) {
            None => say(format!("pool {}: {}", pool.path, of_pool(pool))),
            Some(text) if *text != of_pool(pool) => {
                say(format!("pool {}: now {}", pool.path, of_pool(pool)))
            }
            Some(_) => {}
        }
    }
    let now: BTreeSet<&str> = new.pools.iter().map(|p| p.path.as_str()).collect();
    old.pools
        .iter()
        .filter(|p| !now.contains(p.path.as_str()))
        .for_each(|p| say(format!("pool {} has gone", p.path)));
    let before: BTreeMap<(i32, u64), String> =
        old.vms.iter().map(|v| ((v.pid, v.started), of_vm(v))).collect();
    for vm in &new.vms {
        match before.get(&(vm.pid, vm.started)) {
            None => say(format!("VM {} (pid {}): {}, {}", vm.name, vm.pid, of_vm(vm), vm.cgroup)),
            Some(text) if *text != of_vm(vm) => say(format!("VM {}: now {}", vm.name, of_vm(vm))),
            Some(_) => {}
        }
    }
}

/// Whether two layouts are the same plan.
fn same(new: &Names, old: &Names) -> bool {
    let Names { generation, daemon, .. } = *old;
    let weighed = |vm: &VmName| VmName { weight: 0, ..vm.clone() };
    let old_vms: Vec<_> = old.vms.iter().map(weighed).collect();
    let new_vms: Vec<_> = new.vms.iter().map(weighed).collect();
    new_vms == old_vms
        && Names { generation, daemon, vms: vec![], ..new.clone() }
            == Names { vms: vec![], ..old.clone() }
}

/// A limit's place in the list of limits; `None` is no limit.
type First = Option<usize>;
/// A limit of a VM, by its process and that one's start, or of a pool.
type WantedLimit = Wanted<(i32, u64)>;

/// The limits of a tree as the table takes them, and for each VM the first that it meets.
fn limits(names: &Names, tree: &Tree) -> (Vec<WantedLimit>, Vec<(u32, First)>) {
    let (wanted, first) = ::publish::wanted(tree, |owner| match owner {
        entitlement::Owner::Pool(p) => {
            (Owner::Pool(names.pools[p].path.clone()), names.pools[p].burst_ns)
        }
        // Leaf 0 is the system group, which nothing limits.
        entitlement::Owner::Leaf(l) => {
            let vm = &names.vms[l - 1];
            (Owner::Vm((vm.pid, vm.started)), vm.burst_ns)
        }
    });
    (wanted, names.vms.iter().map(|v| v.id).zip(first.into_iter().skip(1)).collect())
}

/// Shares, reservation and limit as they are set.
fn terms(shares: u32, reservation: Rate, limit: Option<Rate>) -> String {
    let reservation = if reservation.0 == 0 {
        String::new()
    } else {
        format!(", reservation {}", reservation.percent())
    };
    let limit = limit.map_or(String::new(), |l| format!(", limit {}", l.percent()));
    format!("{shares} shares{reservation}{limit}")
}

fn of_pool(p: &PoolName) -> String {
    let fixed = if p.expandable { "" } else { ", fixed" };
    let scalable = if p.scalable { ", scalable" } else { "" };
    format!("{}{fixed}{scalable}", terms(p.shares, p.reservation, p.limit))
}

fn of_vm(v: &VmName) -> String {
    format!("{} vCPUs, {}, pool {}", v.vcpus, terms(v.shares, v.reservation, v.limit), v.pool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sources;

    fn pool(path: &str, parent: &str, limit: Option<u64>) -> PoolName {
        let (path, parent) = (path.to_owned(), parent.to_owned());
        let limit = limit.map(Rate::pcpus);
        let (expandable, sources) = (path != "/lab", Sources::new());
        PoolName {
            path,
            parent,
            shares: 4000,
            reservation: Rate(0),
            limit,
            burst_ns: 7,
            expandable,
            scalable: false,
            sources,
        }
    }

    fn vm(id: u32, pool: &str, limit: Option<u64>) -> VmName {
        VmName {
            id,
            name: format!("vm{id}"),
            pid: 100 + id as i32,
            started: 5,
            pool: pool.to_owned(),
            shares: 1000,
            reservation: Rate(Rate::ONE.0 / 2),
            limit: limit.map(Rate::pcpus),
            burst_ns: 9,
            vcpus: 2,
            weight: 0,
            cgroup: "/".to_owned(),
            sources: Sources::new(),
        }
    }

    #[test]
    fn limits_name_their_owners_and_vms_the_first_they_meet() {
        let pools =
            vec![pool("/", "/", None), pool("/lab", "/", Some(3)), pool("/lab/x", "/lab", None)];
        let vms = vec![vm(4, "/lab/x", Some(1)), vm(2, "/", None), vm(3, "/lab", None)];
        let names = Names { pcpus: 4, system_shares: 4000, pools, vms, ..Names::default() };
        let (wanted, first) = limits(&names, &names.tree());
        let seen: Vec<_> =
            wanted.iter().map(|w| (&w.owner, w.rate, w.burst_ns, w.parent)).collect();
        assert_eq!(
            seen,
            [
                (&Owner::Pool("/lab".to_owned()), Rate::pcpus(3), 7, None),
                (&Owner::Vm((104, 5)), Rate::ONE, 9, Some(0))
            ]
        );
        assert_eq!(first, [(4, Some(1)), (2, None), (3, Some(0))]);
    }

    #[test]
    fn what_is_said_of_pools_and_vms_names_what_is_no_default() {
        assert_eq!(of_pool(&pool("/lab", "/", Some(3))), "4000 shares, limit 300 %, fixed");
        assert_eq!(
            of_pool(&PoolName { scalable: true, ..pool("/x", "/", None) }),
            "4000 shares, scalable"
        );
        assert_eq!(
            of_vm(&vm(1, "/lab", Some(2))),
            "2 vCPUs, 1000 shares, reservation 50 %, limit 200 %, pool /lab"
        );
    }
}
