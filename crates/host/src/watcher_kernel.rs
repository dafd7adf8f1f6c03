//! esxtop's numbers by the kernel's own accounts, under any scheduler: schedstat of the threads of
//! VMs, /proc/stat, /proc/schedstat.
//!
//! *Limits*: the kernel does not count wake-ups, migrations, co-stop and limits by thread. Host
//! tasks are one group: the CPU time of the pCPUs less that of the VMs; a thread that ended between
//! two samples counts there from the first of them.

use crate::cgroups::Cgroups;
use crate::discover::{Finder, FoundVm, Roots, Thread};
use crate::layout::{Known, layout};
use crate::sample::wall;
use crate::view::monotonic_ns;
use crate::watched::{Ids, groups, memory};
use crate::{Names, Speed, Trust, Which, kernel_accounts};
use esxtop::{Counters, Gauges, Gid, PcpuCounters, Role, Totals, Wid, WorldCounters};
use settings::LiveSettings;
use std::collections::BTreeMap;
use topology::Topology;
use units::PcpuId;

/// What is remembered between two looks.
#[derive(Default)]
pub(crate) struct KernelWatcher {
    finder: Finder,
    speed: Option<Speed>,
    /// Run, ready, switches of the host at the last look, and of each thread of a VM.
    host: Option<[u64; 3]>,
    threads: BTreeMap<Wid, [u64; 3]>,
    /// The same of host tasks, summed up since the first look.
    system: [u64; 3],
}

impl KernelWatcher {
    pub(crate) fn look(&mut self, topology: &Topology, ids: &mut Ids) -> Counters {
        let roots = Roots::default();
        let found = self.finder.scan(&roots, Which::All);
        let names = self.names(&roots, topology, &found);
        let groups = groups(&names, ids, |_| Gauges::default());
        let at_ns = monotonic_ns();
        let mut worlds = BTreeMap::new();
        let mut threads = BTreeMap::new();
        for vm in &found {
            let gid = ids.vm(vm.pid, vm.started);
            for t in &vm.threads {
                let Some(stat) = kernel_accounts::thread_stat(&roots, t.pid, t.tid) else {
                    continue;
                };
                // The kernel tells the start of a thread in ticks, in a file of its own: its VM's
                // will do.
                let wid = ids.world(t.tid as u64, vm.started);
                threads.insert(wid, stat);
                worlds.insert(wid, world(gid, t, stat, at_ns));
            }
        }
        let busy = kernel_accounts::pcpu_busy(&roots, at_ns);
        let host = kernel_accounts::host_waits(&roots);
        let run: u64 = busy.iter().sum();
        self.add_system([run, host.map_or(0, |h| h[0]), host.map_or(0, |h| h[1])], threads);
        let mut counters = Counters {
            at_ns,
            unix_seconds: wall(),
            pcpus: pcpus(topology, &busy),
            cores: vec![],
            groups,
            worlds,
            // Whose homes would they be?
            memory: memory(&roots, None, ids),
        };
        if let Some(system) = counters.groups.get_mut(&Gid::SYSTEM) {
            let [run, ready, switches] = self.system.map(Some);
            let counted = |n: Option<u64>| n.filter(|_| host.is_some());
            let listed = counters.worlds.len() as u64;
            system.nwld =
                kernel_accounts::host_threads(&roots).map(|all| all.saturating_sub(listed));
            system.own = Totals {
                used_ns: run,
                run_ns: run,
                ready_ns: counted(ready),
                switches: counted(switches),
                ..Totals::default()
            };
        }
        counters
    }

    fn names(&mut self, roots: &Roots, topology: &Topology, found: &[FoundVm]) -> Names {
        let speed = *self.speed.get_or_insert_with(|| Speed::of(roots, None));
        let settings = LiveSettings::default();
        let cgroups = Cgroups::read(roots, found, &settings, &Trust::default());
        let pcpus = topology.online().len() as u32;
        let known = Known { settings: &settings, speed, pcpus, system_shares: pcpus * 1000 };
        layout(found, &cgroups, &known).map(|l| l.names).unwrap_or_default()
    }

    /// What the host did since the last look and VMs did not.
    fn add_system(&mut self, host: [u64; 3], threads: BTreeMap<Wid, [u64; 3]>) {
        if let Some(before) = self.host.replace(host) {
            for i in 0..3 {
                let did = |(wid, now): (&Wid, &[u64; 3])| {
                    now[i].saturating_sub(self.threads.get(wid).map_or(now[i], |b| b[i]))
                };
                let vms: u64 = threads.iter().map(did).sum();
                self.system[i] += host[i].saturating_sub(before[i]).saturating_sub(vms);
            }
        }
        self.threads = threads;
    }
}

fn world(
    gid: Gid,
    t: &Thread,
    [run_ns, ready_ns, switches]: [u64; 3],
    at_ns: u64,
) -> WorldCounters {
    let wait_ns = at_ns.saturating_sub(run_ns + ready_ns);
    let totals = Totals {
        used_ns: Some(run_ns),
        run_ns: Some(run_ns),
        ready_ns: Some(ready_ns),
        wait_ns: Some(wait_ns),
        idle_ns: Some(if t.vcpu.is_some() { wait_ns } else { 0 }),
        latency_ns: Some(ready_ns),
        switches: Some(switches),
        ..Totals::default()
    };
    let role = t.vcpu.map_or_else(|| Role::Helper(t.comm.clone()), Role::Vcpu);
    WorldCounters { gid, role, totals, alloc: None, gauges: Gauges::default() }
}

fn pcpus(topology: &Topology, busy: &[u64]) -> Vec<PcpuCounters> {
    let alone = topology.places().iter().all(|p| p.thread == 0);
    let one = |id: PcpuId| {
        let busy_ns = busy.get(usize::from(id.0)).copied();
        PcpuCounters {
            id,
            core: topology.place(id).core,
            used_ns: busy_ns.filter(|_| alone),
            busy_ns,
            idle_ns: None,
        }
    };
    topology.online().iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_tasks_did_what_vms_did_not_and_threads_that_come_and_go_take_nothing_back() {
        let mut k = KernelWatcher::default();
        let threads =
            |all: &[(u64, u64)]| all.iter().map(|(wid, run)| (Wid(*wid), [*run, 0, 0])).collect();
        k.add_system([1000, 5, 5], threads(&[(1, 400), (2, 100)]));
        assert_eq!(k.system, [0; 3]);
        k.add_system([1100, 7, 9], threads(&[(1, 460), (2, 100)]));
        assert_eq!(k.system, [40, 2, 4]);
        // One has ended, another appeared with earlier time.
        k.add_system([1150, 7, 9], threads(&[(1, 480), (3, 900)]));
        assert_eq!(k.system, [70, 2, 4]);
        k.add_system([1140, 7, 9], threads(&[(1, 490)]));
        assert_eq!(k.system, [70, 2, 4], "ticks that went back");
    }
}
