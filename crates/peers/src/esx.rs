//! ESX 2.5.2 to 5.1 as far as the documents say how they schedule: one engine, and a `Terms` for
//! each version.
//!
//! *Law*: a world has a virtual time that grows by what it is charged over its VM's shares per
//! vCPU, and each pCPU a queue in that order. A world that wakes goes to the pCPU of the least cost
//! (`place`), where it preempts one whose virtual time is later by more than `PREEMPT_NS`. A pCPU
//! whose world has used up its quantum, or that has nothing to do, takes the world of the least
//! virtual time of its own queue and of those of the pCPUs around it, which count as later by
//! `PULL_NS` and by what the move costs. Siblings are held together by `skew`, VMs stay in their
//! `zones` or at home, and a VM that is behind has whole cores (`whole`). Pools and reservations
//! are `entitled`, limits are kept by `limit`.
//!
//! *Documented*: quanta of 50 ms, pull by an idle pCPU and push by a waking world, a whole core
//! before a part of one (VS51 "What, When, and Where to Schedule?", "Load Balancing",
//! "Hyper-Threading"); what differs between versions (`terms`), with the passage at each field.
//!
//! *Our reading*: the sizes of all costs; that a queue is searched from its head; the lag that a
//! world may have where it comes to run is one quantum, and 8 the other way (BoundLagQuanta of
//! ESXi 6.0).
//!
//! *Units*: ns; weights of 1000 are the least shares of a vCPU.
//!
//! *Limits*: zones are for the life of a VM; where the simulator's planner gives homes, these are
//! in force instead.

mod account;
mod entitled;
mod gang;
mod limit;
mod place;
mod skew;
mod terms;
mod whole;
mod zones;

use contract::{
    Callback, ENQUEUE_WAKEUP, Feature, KICK_IDLE, KICK_PREEMPT, Limits, Plan, Scheduler, Setup,
    VmTerms, WorldTerms,
};
use terms::Cosched;
pub(crate) use terms::{
    ESX_2_5_2, ESX_2_5_3, ESX_3_5, ESX_4_0, ESX_4_1, ESX_4_1_TUNED, ESX_5_1, LOAD_ONLY, Terms,
};
use topology::Place;
use whole::Behind;
use zones::Zones;

/// A run is not longer, in ns (VS51: 50 ms by default).
const QUANTUM_NS: u64 = 50_000_000;
/// A world that wakes preempts one that is ahead of it by more, in ns of virtual time.
const PREEMPT_NS: u64 = 1_000_000;
/// A world is taken from another pCPU's queue if it is behind by more, in ns of virtual time.
const PULL_NS: u64 = QUANTUM_NS;
/// Quanta that a world may be ahead of what runs where it comes to.
const LAG_QUANTA: u64 = 8;
/// Weight of a vCPU with normal shares.
const NORMAL: u64 = 1000;
/// Worlds at the head of a queue that another pCPU looks at.
const LOOKS_AT: u32 = 4;
/// Timer that looks whether stopped vCPUs may start.
const COSTART: u32 = 0;
/// Timer that looks whether worlds that a limit holds back may run.
const LIMITS: u32 = 1;
/// Timer of the division of pools.
const DIVIDE: u32 = 2;
/// Timer of worlds that wait outside of their homes.
const HOMES: u32 = 3;

/// A world's account.
#[derive(Clone, Copy, Debug, Default)]
struct World {
    vm: u32,
    vcpu: bool,
    vtime_ns: u64,
    used_ns: u64,
    /// Not charged of that: the other thread of the core was busy.
    lost_ns: u64,
    progress_ns: u64,
    behind: Behind,
    /// Charged up to when.
    since_ns: u64,
    awake: bool,
    /// How long it wanted to run, up to when, in ns.
    wanted_ns: u64,
    wanted_at_ns: u64,
    /// Domains of its home, a bit for each; 0 for none.
    home: u64,
    runs: bool,
    /// In its emulator's code.
    outside: bool,
    /// How far it was behind its fastest sibling when it left its guest, in ns.
    gap_ns: u64,
    /// Has run.
    ran: bool,
    costops: bool,
    /// pCPU that it runs on or waits for.
    at: Option<u32>,
}

/// A VM; 0 is the system group.
#[derive(Clone, Debug, Default)]
struct Vm {
    /// Weight of a vCPU: its shares, or what it is entitled to where there is more than shares.
    weight_per_vcpu: u64,
    vcpus: Vec<u32>,
    /// Zone, and the vCPUs that count there.
    zone: Option<(u32, u32)>,
    /// Strict: it has stopped as a whole.
    stopped: bool,
    /// The first limit above it.
    limit: Option<usize>,
}

/// A pCPU.
#[derive(Clone, Debug)]
struct Pcpu {
    place: Place,
    /// Domain of homes.
    domain: u32,
    /// The other threads of its core.
    twins: Vec<u32>,
    /// World that runs there, 0 for none, and the worlds that run there or wait for it.
    runs: u32,
    worlds: u32,
    /// Its world has the core alone.
    whole: bool,
    busy_ns: u64,
    /// Virtual time of what began to run there last.
    v_ns: u64,
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Esx {
    terms: Terms,
    worlds: Vec<World>,
    vms: Vec<Vm>,
    pcpus: Vec<Pcpu>,
    /// Worlds that run on each LLC or wait there.
    llc_worlds: Vec<u64>,
    zones: Zones,
    /// Worlds that wait outside of their homes.
    strays: Vec<u32>,
    /// VMs some of whose vCPUs are stopped.
    stopped: Vec<u32>,
    /// Limits, those above before those below, and whether their timer is armed.
    limits: Vec<limit::Limit>,
    limits_armed: bool,
    /// Where there is more than shares.
    divided: Option<entitled::Divided>,
    /// What shares are multiplied by, and divided by.
    scale: (u64, u64),
    /// Shares of the system group, and what they are divided by.
    system: (u64, u32),
    /// Cores of the host, and the weight of all vCPUs.
    cores: u64,
    vcpu_weight: u64,
    /// Weight of all worlds that want to run, and the time that was due to one of normal weight so
    /// far (`whole`).
    awake_weight: u64,
    due: u64,
}

impl Esx {
    pub(crate) fn new(setup: &Setup<'_>, terms: Terms) -> Esx {
        let (places, domains) = (setup.topology.places(), setup.topology.domains());
        let pcpu = |(id, place): (u32, &Place)| Pcpu {
            place: *place,
            domain: domains[id as usize],
            twins: (0..)
                .zip(places)
                .filter(|(other, p)| *other != id && p.core == place.core)
                .map(|(other, _)| other)
                .collect(),
            runs: 0,
            worlds: 0,
            whole: false,
            busy_ns: 0,
            v_ns: 0,
        };
        let llcs = places.iter().map(|p| p.llc).max().map_or(0, |last| last as usize + 1);
        Esx {
            worlds: vec![World::default(); setup.worlds],
            vms: vec![Vm { weight_per_vcpu: NORMAL, ..Vm::default() }; setup.vms],
            pcpus: (0..).zip(places).map(pcpu).collect(),
            llc_worlds: vec![0; llcs],
            zones: Zones::new(terms.cells, places),
            strays: vec![],
            stopped: vec![],
            limits: vec![],
            limits_armed: false,
            divided: None,
            cores: places.iter().filter(|p| p.thread == 0).count() as u64,
            scale: (1, 1),
            system: (NORMAL, 1),
            vcpu_weight: 0,
            awake_weight: 0,
            due: 0,
            terms,
        }
    }

    /// Queue of the vCPUs that are stopped; those of pCPUs have their numbers.
    fn costops(&self) -> u64 {
        self.pcpus.len() as u64
    }

    /// A world waits for a pCPU from now on, or runs there.
    fn assign(&mut self, world: u32, pcpu: u32) {
        self.unassign(world);
        self.worlds[world as usize].at = Some(pcpu);
        let at = &mut self.pcpus[pcpu as usize];
        at.worlds += 1;
        self.llc_worlds[at.place.llc as usize] += 1;
    }

    fn unassign(&mut self, world: u32) {
        if let Some(pcpu) = self.worlds[world as usize].at.take() {
            let at = &mut self.pcpus[pcpu as usize];
            at.worlds -= 1;
            self.llc_worlds[at.place.llc as usize] -= 1;
        }
    }

    /// Holds a world's virtual time to what runs on the pCPU where it comes to.
    fn clamp(&mut self, world: u32, pcpu: u32) {
        let v = self.pcpus[pcpu as usize].v_ns;
        let account = &mut self.worlds[world as usize];
        let (least, most) = (v.saturating_sub(QUANTUM_NS), v + LAG_QUANTA * QUANTUM_NS);
        account.vtime_ns = account.vtime_ns.clamp(least, most);
    }

    /// Puts a world into the queue of a pCPU, and wakes a pCPU that can take it.
    fn queue(&mut self, k: &mut Callback<'_>, world: u32, pcpu: u32, wakes: bool) {
        self.assign(world, pcpu);
        let vtime_ns = self.worlds[world as usize].vtime_ns;
        k.queue_insert(world, u64::from(pcpu), QUANTUM_NS, vtime_ns);
        self.wake_pcpu(k, world, pcpu, wakes);
    }

    /// Wakes a pCPU that can take a world which is in the queue of `pcpu`.
    fn wake_pcpu(&mut self, k: &mut Callback<'_>, world: u32, pcpu: u32, wakes: bool) {
        let vtime_ns = self.worlds[world as usize].vtime_ns;
        let current = self.pcpus[pcpu as usize].runs;
        if current == 0 {
            return k.kernel.kick(pcpu, KICK_IDLE);
        }
        if let Some(idle) = self.idle_for(k, world, pcpu) {
            return k.kernel.kick(idle, KICK_IDLE);
        }
        if wakes {
            self.charge(k, current);
            if vtime_ns + PREEMPT_NS < self.worlds[current as usize].vtime_ns {
                k.kernel.kick(pcpu, KICK_PREEMPT);
            }
        }
    }

    /// What a pCPU is to run: the queue and the world, by virtual time; none if those are later
    /// than `most`.
    fn best(&mut self, k: &mut Callback<'_>, pcpu: u32, most: u64) -> Option<(u64, u32)> {
        let mut best = (most, None);
        for from in 0..self.pcpus.len() as u32 {
            let near = from == pcpu;
            if !self.limits.is_empty() {
                self.hold_back(k, from);
            }
            for i in 0..LOOKS_AT {
                let world = k.kernel.queue_at(u64::from(from), i);
                if world == 0 {
                    break;
                }
                let may = near || self.may_run(k.task(world), world, pcpu);
                if !may || self.is_stopped(world) || self.is_limited(world) {
                    continue;
                }
                let far = if near { 0 } else { PULL_NS + self.move_ns(world, from, pcpu) };
                let later = self.worlds[world as usize].vtime_ns.saturating_add(far);
                if later < best.0 {
                    best = (later, Some((u64::from(from), world)));
                }
            }
        }
        best.1
    }
}

impl Scheduler for Esx {
    fn features(&self) -> &'static [Feature] {
        use Feature::{Bursts, Homes, Limits, Pools, Reservations, Shares, WideVms};
        match self.terms.cosched {
            // A VM that starts as a whole or not at all would never start.
            Cosched::Strict => &[Shares, Pools, Reservations, Limits, Bursts, Homes],
            Cosched::Relaxed => &[Shares, Pools, Reservations, Limits, Bursts, Homes, WideVms],
        }
    }

    /// A vCPU that is to stop stops although nothing else waits there.
    fn enqueues_last(&self) -> bool {
        true
    }

    fn init(&mut self, k: &mut Callback<'_>) {
        (0..=self.limited()).for_each(|queue| k.kernel.create_queue(queue));
    }

    fn world_start(&mut self, k: &mut Callback<'_>, world: u32, terms: &WorldTerms) {
        let vm = terms.vm;
        let vcpu = terms.vcpu.is_some();
        let behind = Behind::new(k.now_ns);
        self.worlds[world as usize] = World { vm, vcpu, behind, ..World::default() };
        if vcpu {
            self.vms[vm as usize].vcpus.push(world);
        }
        self.weigh_vcpus(k.now_ns);
    }

    fn world_exit(&mut self, k: &mut Callback<'_>, world: u32) {
        self.unassign(world);
        self.set_awake(world, k.now_ns, false);
        let vm = self.worlds[world as usize].vm;
        self.vms[vm as usize].vcpus.retain(|w| *w != world);
        self.weigh_vcpus(k.now_ns);
        self.leave_home_if_empty(vm);
        self.look_later(k, vm);
    }

    fn vm_terms(&mut self, k: &mut Callback<'_>, vm: &VmTerms, _plan: &Plan<'_>) {
        self.home(vm.vm, vm.vcpus);
        if vm.vm == 0 {
            self.system = (u64::from(vm.shares), vm.vcpus);
        }
        let shares = self.scaled(u64::from(vm.shares), vm.vcpus);
        self.vms[vm.vm as usize].weight_per_vcpu = shares;
        self.weigh_vcpus(k.now_ns);
    }

    fn plan(&mut self, k: &mut Callback<'_>, plan: &Plan<'_>) {
        let vms = || plan.vms.iter().zip(plan.tree.leaves()).filter(|(vm, _)| **vm != 0);
        let each = vms().map(|(_, leaf)| (leaf.shares.max(1), u64::from(leaf.vcpus.max(1))));
        let least = each.min_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)));
        let (shares, vcpus) = least.unwrap_or((1, 1));
        self.scale = (NORMAL * vcpus, shares);
        for (vm, leaf) in vms() {
            self.vms[*vm as usize].weight_per_vcpu = self.scaled(leaf.shares, leaf.vcpus);
        }
        self.vms[0].weight_per_vcpu = self.scaled(self.system.0, self.system.1);
        self.weigh_vcpus(k.now_ns);
        self.divide_by(k, plan);
    }

    fn limits(&mut self, k: &mut Callback<'_>, limits: &Limits<'_>) {
        for pcpu in 0..self.pcpus.len() {
            match self.pcpus[pcpu].runs {
                0 => {}
                world => self.charge(k, world),
            }
        }
        self.set_limits(k.now_ns, limits);
    }

    fn home(&mut self, k: &mut Callback<'_>, world: u32, domains: u64) {
        self.worlds[world as usize].home = domains;
        self.go_home(k, world);
    }

    fn select(&mut self, k: &mut Callback<'_>, world: u32, prev: u32, _flags: u32) -> i32 {
        self.place(k, world, prev) as i32
    }

    fn enqueue(&mut self, k: &mut Callback<'_>, world: u32, flags: u32) {
        let wakes = flags & ENQUEUE_WAKEUP != 0;
        if wakes {
            self.wakes(k, world);
        }
        if self.stops(k, world) {
            return;
        }
        if self.is_limited(world) {
            let vtime_ns = self.worlds[world as usize].vtime_ns;
            k.queue_insert(world, self.limited(), QUANTUM_NS, vtime_ns);
            return self.held_back(k, world);
        }
        let here = k.task(world).pcpu as u32;
        let leaves = self.is_kept(here);
        let stays = wakes || !leaves && self.may_run(k.task(world), world, here);
        let pcpu = if stays { here } else { self.place(k, world, here) };
        self.clamp(world, pcpu);
        self.queue(k, world, pcpu, wakes);
    }

    fn dispatch(&mut self, k: &mut Callback<'_>, pcpu: u32, prev: u32) {
        if let Some(lock) = self.zones.lock(pcpu, k.now_ns) {
            k.kernel.lock(pcpu, lock);
        }
        if self.is_kept(pcpu) {
            self.dispatch_kept(k, pcpu);
            if self.is_kept(pcpu) {
                return;
            }
        }
        let (mut goes_on, mut most) = (false, u64::MAX);
        if prev != 0 && self.worlds[prev as usize].runs {
            self.charge(k, prev);
            let stopped = self.is_stopped(prev) || self.is_limited(prev);
            goes_on = !stopped && self.may_run(k.task(prev), prev, pcpu);
            most = if goes_on { self.worlds[prev as usize].vtime_ns } else { u64::MAX };
        }
        let best = self.best(k, pcpu, most);
        if let Some((_, world)) = best.filter(|b| k.kernel.queue_take(k.tasks, b.0, b.1)) {
            self.assign(world, pcpu);
        } else if goes_on {
            k.set_slice(prev, QUANTUM_NS);
        }
    }

    fn running(&mut self, k: &mut Callback<'_>, world: u32) {
        let pcpu = k.task(world).pcpu as u32;
        self.charge_twins(k, pcpu);
        self.assign(world, pcpu);
        let account = &mut self.worlds[world as usize];
        (account.runs, account.ran, account.since_ns) = (true, true, k.now_ns);
        let (vm, vtime_ns) = (account.vm, account.vtime_ns);
        let at = &mut self.pcpus[pcpu as usize];
        (at.runs, at.v_ns) = (world, vtime_ns);
        self.look_later(k, vm);
        self.look_at_core(k, world);
    }

    fn stopping(&mut self, k: &mut Callback<'_>, world: u32, runnable: bool) {
        let pcpu = k.task(world).pcpu as u32;
        self.charge(k, world);
        self.charge_twins(k, pcpu);
        self.pcpus[pcpu as usize].runs = 0;
        self.share_core(k, pcpu);
        self.unassign(world);
        self.set_awake(world, k.now_ns, runnable);
        let account = &mut self.worlds[world as usize];
        account.runs = false;
        let vm = account.vm;
        if !runnable {
            self.look_later(k, vm);
        }
    }

    fn tick(&mut self, k: &mut Callback<'_>, world: u32) {
        self.charge(k, world);
        self.look_at_lead(k, world);
        self.look_at_core(k, world);
        if self.is_limited(world) {
            k.kernel.kick(k.task(world).pcpu as u32, KICK_PREEMPT);
        }
    }

    fn timer(&mut self, k: &mut Callback<'_>, timer: u32) {
        match timer {
            LIMITS => self.look_at_limits(k),
            DIVIDE => self.divide_later(k),
            HOMES => self.strays_go_home(k),
            _ => self.start_stopped(k),
        }
    }

    fn guest(&mut self, k: &mut Callback<'_>, world: u32, inside: bool) {
        self.charge(k, world);
        self.crosses(k, world, inside);
    }
}
