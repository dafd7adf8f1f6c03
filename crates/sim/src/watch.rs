//! Tells the oracle what the engine does and what the scheduler's accounts say; without an oracle
//! it does nothing.

use check::{
    HomeChange, HomeSeen, HomeTerms, Oracle, PoolTerms, SchedulerTerms, State, StateTimes, Verdict,
    VmTerms,
};
use contract::Accounts;
use topology::Topology;
use units::{PcpuId, PcpuSet, VmId, WorldId};

/// The oracle of a run, if there is one, and what it has seen of the accounts.
#[derive(Debug)]
pub(crate) struct Watch {
    oracle: Option<Oracle>,
    /// CPU time of each world, and busy time of each pCPU, already passed on.
    charged: Vec<u64>,
    busy: Vec<u64>,
}

impl Watch {
    pub(crate) fn new(topology: &Topology, worlds: usize, terms: Option<SchedulerTerms>) -> Watch {
        let watched = |t: SchedulerTerms| {
            let mut oracle = Oracle::new(topology, t.bounds());
            t.cosched().into_iter().for_each(|c| oracle.cosched(c));
            oracle
        };
        let oracle = terms.map(watched);
        Watch { oracle, charged: vec![0; worlds], busy: vec![0; topology.pcpus()] }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.oracle.is_some()
    }

    pub(crate) fn pools(&mut self, now: u64, pools: Vec<PoolTerms>) {
        if let Some(o) = &mut self.oracle {
            o.pools(now, pools);
        }
    }

    /// These pCPUs are on line from now on.
    pub(crate) fn online(&mut self, now: u64, online: &PcpuSet) {
        if let Some(o) = &mut self.oracle {
            o.online(now, online);
        }
    }

    /// A real-time task takes a pCPU, or gives it back.
    pub(crate) fn taken(&mut self, now: u64, pcpu: u32, taken: bool) {
        if let Some(o) = &mut self.oracle {
            o.taken(now, PcpuId(pcpu as u16), taken);
        }
    }

    pub(crate) fn held_back(&mut self, now: u64, world: u32, held: bool) {
        if let Some(o) = &mut self.oracle {
            o.held_back(now, WorldId(world), held);
        }
    }

    pub(crate) fn vm_added(&mut self, now: u64, vm: u32, name: &str, terms: VmTerms) {
        if let Some(o) = &mut self.oracle {
            o.vm_added(now, VmId(vm as u16), name, terms);
        }
    }

    pub(crate) fn vm_terms(&mut self, now: u64, vm: u32, terms: VmTerms) {
        if let Some(o) = &mut self.oracle {
            o.vm_terms(now, VmId(vm as u16), terms);
        }
    }

    pub(crate) fn vm_removed(&mut self, now: u64, vm: u32) {
        if let Some(o) = &mut self.oracle {
            o.vm_removed(now, VmId(vm as u16));
        }
    }

    pub(crate) fn world_added(
        &mut self,
        now: u64,
        world: u32,
        vm: u32,
        allowed: Option<PcpuSet>,
        asleep: State,
    ) {
        if let Some(o) = &mut self.oracle {
            o.world_added(now, WorldId(world), VmId(vm as u16), allowed);
            if vm != 0 {
                o.vcpu(WorldId(world));
            }
            if asleep != State::Wait {
                o.state(now, WorldId(world), asleep, None);
            }
        }
    }

    /// Homes are held to these terms.
    pub(crate) fn home_terms(&mut self, terms: HomeTerms) {
        if let Some(o) = &mut self.oracle {
            o.home_terms(terms);
        }
    }

    pub(crate) fn homes(&mut self, now: u64, all: &[(u32, Vec<HomeSeen>)], moved: u64) {
        if let Some(o) = &mut self.oracle {
            let of = |(vm, parts): &(u32, Vec<HomeSeen>)| (VmId(*vm as u16), parts.clone());
            o.homes(now, &all.iter().map(of).collect::<Vec<_>>(), moved);
        }
    }

    pub(crate) fn home_changed(&mut self, now: u64, d: &::numa::Decision) {
        if let Some(o) = &mut self.oracle {
            let change =
                HomeChange { saw_permille: d.saw_permille, expected_permille: d.expected_permille };
            o.home_changed(now, VmId(d.client.vm as u16), d.client.part, &change);
        }
    }

    pub(crate) fn home(&mut self, now: u64, world: u32, allowed: Option<PcpuSet>) {
        if let Some(o) = &mut self.oracle {
            o.home(now, WorldId(world), allowed);
        }
    }

    pub(crate) fn world_removed(&mut self, now: u64, world: u32) {
        if let Some(o) = &mut self.oracle {
            o.world_removed(now, WorldId(world));
        }
    }

    pub(crate) fn state(&mut self, now: u64, world: u32, state: State, pcpu: Option<u32>) {
        if let Some(o) = &mut self.oracle {
            o.state(now, WorldId(world), state, pcpu.map(|p| PcpuId(p as u16)));
        }
    }

    /// A vCPU that runs enters its guest, or leaves it for its emulator.
    pub(crate) fn guest(&mut self, now: u64, world: u32, inside: bool) {
        if let Some(o) = &mut self.oracle {
            o.guest(now, WorldId(world), inside);
        }
    }

    /// A world has stopped: passes on what the scheduler charged to it and to its pCPU.
    pub(crate) fn charged(&mut self, now: u64, accounts: &impl Accounts, world: u32, pcpu: u32) {
        let Some(o) = &mut self.oracle else { return };
        if let Some(used) = accounts.charged_ns(world) {
            let last = std::mem::replace(&mut self.charged[world as usize], used);
            o.charged(now, WorldId(world), used.saturating_sub(last));
        }
        if let Some(busy) = accounts.busy_ns(pcpu) {
            let last = std::mem::replace(&mut self.busy[pcpu as usize], busy);
            o.pcpu_busy(now, PcpuId(pcpu as u16), busy.saturating_sub(last));
        }
    }

    /// Holds the scheduler's state times of a world to the oracle's.
    pub(crate) fn reported(&mut self, now: u64, accounts: &impl Accounts, world: u32) {
        let Some(o) = &mut self.oracle else { return };
        let Some(t) = accounts.state_times(world, now) else { return };
        let times = StateTimes {
            run_ns: t.run_ns,
            ready_ns: t.ready_ns,
            costop_ns: t.costop_ns,
            wait_ns: t.wait_ns,
            wait_idle_ns: t.wait_idle_ns,
        };
        o.reported(now, WorldId(world), &times);
    }

    /// CPU time of the ideal so far: of each VM, by id.
    pub(crate) fn entitled(&mut self, now: u64, vms: usize) -> Vec<u64> {
        let mut out = vec![0; vms];
        if let Some(o) = &mut self.oracle {
            for (vm, ns) in o.entitled(now) {
                out[vm.0 as usize] += ns;
            }
        }
        out
    }

    /// The same of a world, as of the last window.
    pub(crate) fn world_entitled(&self, world: u32) -> u64 {
        self.oracle.as_ref().and_then(|o| o.world_entitled(WorldId(world))).unwrap_or(0)
    }

    /// Most CPU time that each limited pool used in a second, by its index.
    pub(crate) fn pool_peaks(&self) -> Vec<(usize, u64)> {
        self.oracle.as_ref().map_or_else(Vec::new, Oracle::pool_peaks)
    }

    pub(crate) fn finish(&mut self, now: u64) -> Option<Verdict> {
        self.oracle.take().map(|o| o.finish(now))
    }
}
