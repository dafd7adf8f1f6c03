//! Sums up %SYS of VMs, the CPU time of the kernel threads that work for each, from sample to
//! sample; it never changes used time.
//!
//! *Law*: a VM's %SYS grows by the CPU time that each kernel thread used between two samples in
//! which it was a world of the VM. The VM's %USED includes the same time by that world: it is not
//! added again. *Limits*: the CPU time of a thread before its first sample in the VM and after its
//! last is not in %SYS.

use esxtop::{Counters, Gid, GroupKind, Wid};
use std::collections::BTreeMap;

/// What has to be remembered from look to look.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// Threads of the kernel at the last look: whose, and what they had used.
    seen: BTreeMap<Wid, (Gid, u64)>,
    /// %SYS of each VM so far.
    told: BTreeMap<Gid, u64>,
}

impl Services {
    /// Sets %SYS of every VM; `services` are the worlds that are threads of the kernel.
    pub fn settle(&mut self, look: &mut Counters, services: &[Wid]) {
        let now: BTreeMap<Wid, (Gid, u64)> = services
            .iter()
            .filter_map(|wid| {
                look.worlds.get(wid).and_then(|w| Some((*wid, (w.gid, w.totals.used_ns?))))
            })
            .collect();
        for (wid, (gid, used)) in &now {
            let before = self
                .seen
                .get(wid)
                .filter(|(was, _)| was == gid)
                .map_or(*used, |(_, before)| *before);
            *self.told.entry(*gid).or_default() += used.saturating_sub(before);
        }
        self.seen = now;
        self.told.retain(|gid, _| look.groups.contains_key(gid));
        for (gid, group) in look.groups.iter_mut().filter(|(_, g)| g.kind == GroupKind::Vm) {
            group.own.sys_ns = Some(self.told.get(gid).copied().unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esxtop::{Gauges, GroupCounters, Metric, Rates, Role, Totals, WorldCounters};

    const VM: Gid = Gid(77);

    /// A look with the VM's vCPU and the kernel's threads: id, group, time used.
    fn look(at_ns: u64, vcpu: u64, threads: &[(u64, Gid, u64)]) -> Counters {
        let totals = |used| Totals { used_ns: Some(used), ..Totals::default() };
        let group = |kind, used| GroupCounters {
            name: String::new(),
            kind,
            parent: None,
            own: totals(used),
            nwld: None,
            alloc: None,
            gauges: Gauges::default(),
        };
        let world = |gid, role, used| WorldCounters {
            gid,
            role,
            totals: totals(used),
            alloc: None,
            gauges: Gauges::default(),
        };
        let helper = |(wid, gid, used): &(u64, Gid, u64)| {
            (Wid(*wid), world(*gid, Role::Helper("vhost-77".to_owned()), *used))
        };
        let all = vcpu + threads.iter().filter(|t| t.1 == VM).map(|t| t.2).sum::<u64>();
        let groups =
            [(Gid::SYSTEM, group(GroupKind::System, 0)), (VM, group(GroupKind::Vm, all))].into();
        let worlds =
            threads.iter().map(helper).chain([(Wid(1), world(VM, Role::Vcpu(0), vcpu))]).collect();
        Counters { at_ns, groups, worlds, ..Counters::default() }
    }

    #[test]
    fn a_vms_kernel_threads_are_its_sys_inside_its_used_and_nobody_elses() {
        let mut services = Services::default();
        let mut settled = |at, vcpu, threads: &[(u64, Gid, u64)]| {
            let mut c = look(at, vcpu, threads);
            services.settle(&mut c, &[Wid(2), Wid(3), Wid(4)]);
            c
        };
        let of = |c: &Counters| c.groups[&VM].own.sys_ns;
        // Thread 3 has worked for the host so far.
        let a = settled(1000, 100, &[(2, VM, 500), (3, Gid::SYSTEM, 9000)]);
        let b = settled(2000, 400, &[(2, VM, 700), (3, VM, 9100)]);
        assert_eq!(
            (of(&a), of(&b)),
            (Some(0), Some(200)),
            "what thread 3 did before is not the VM's"
        );
        let rates = Rates::between(&a, &b).unwrap();
        let vm = &rates.groups[&VM].values;
        assert_eq!(vm.get(Metric::System), Some(20.0));
        let worlds: f64 = rates.worlds.values().filter_map(|w| w.values.get(Metric::Used)).sum();
        assert_eq!(worlds, 50.0, "the vCPU's 30 and the thread's 20");
        assert_eq!(
            b.groups[&Gid::SYSTEM].own.sys_ns,
            None,
            "the host's own threads are not told apart"
        );
        // One ends, one is new: earlier %SYS stays.
        let c = settled(3000, 400, &[(3, VM, 9150), (4, VM, 40)]);
        let d = settled(4000, 400, &[(4, VM, 70)]);
        assert_eq!((of(&c), of(&d)), (Some(250), Some(280)));
    }
}
