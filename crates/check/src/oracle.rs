//! Takes every event of a host and holds it to the invariants; it stops nothing and corrects
//! nothing.
//!
//! Order of events: time never goes back. At one instant a pCPU gives up its old world before it
//! takes a new one. Charges may come before or after the change of state they belong to.
//!
//! A world begins in WAIT. Its first state may be any but COSTOP: VS51 adds worlds in RUN or READY,
//! a live host meets tasks asleep. After that only VS51's transitions are legal.
//!
//! After a violation the oracle believes the event and goes on, so that one fault is one violation.

mod finding;
mod homes;
mod realtime;
mod seat;
mod threads;

use crate::{
    Bounds, Invariant, PoolTerms, State, StateTimes, Verdict, Violation, VmTerms,
    accounts::{Life, Stints},
    ideals::{Account, Ideals},
    sharing::{Shared, Sharing},
    skew::Skew,
    verdict::Log,
    waits::Waits,
};
use topology::Topology;
use units::{PcpuId, PcpuSet, VmId, WorldId};

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) vm: VmId,
    /// Account and allowed set in the ledger.
    entry: Account,
    set: u32,
    pub(crate) life: Life,
    fresh: bool,
    pcpu: Option<PcpuId>,
    charge: Stints,
    /// Since when it is queued for its present set, and since when it runs where it may not.
    queued: u64,
    /// When its home changed last.
    homed: Option<u64>,
    /// A limit parks it, while it is READY.
    held: bool,
    misplaced: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Pcpu {
    world: Option<WorldId>,
    /// The world that ran before it.
    last: Option<WorldId>,
    busy: Stints,
    /// It idles, and may, for another thread of its core; and by the scheduler's word.
    kept: bool,
    declared: bool,
    /// A real-time task runs there; its account in the ledger, once one has.
    taken: bool,
    realtime: Option<Account>,
}

/// The oracle of one host.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub(crate) bounds: Bounds,
    now: Option<u64>,
    events: u64,
    vms: Vec<Option<u32>>,
    worlds: Vec<Option<Box<World>>>,
    pcpus: Vec<Pcpu>,
    online: PcpuSet,
    /// Some world may not use all pCPUs.
    held: bool,
    ledger: Ideals,
    waits: Waits,
    sharing: Sharing,
    /// Of each core: worlds that run side by side there though they may not.
    mixed: Vec<Option<threads::Mixed>>,
    pub(crate) skew: Skew,
    homes: homes::Homes,
    log: Log,
}

impl Oracle {
    /// An oracle for a host without VMs and worlds. The first event starts its clock; the `system`
    /// group is a VM like any other, to be added as `VmId::SYSTEM`.
    #[must_use]
    pub fn new(topology: &Topology, bounds: Bounds) -> Oracle {
        let n = topology.pcpus();
        let bounds = bounds
            .on_cores(topology.places().iter().map(|p| u64::from(p.thread) + 1).max().unwrap_or(1));
        Oracle {
            bounds,
            now: None,
            events: 0,
            vms: vec![],
            worlds: vec![],
            pcpus: vec![Pcpu::default(); n],
            online: PcpuSet::first(n),
            held: false,
            ledger: Ideals::new(n, bounds),
            waits: Waits::new(n, bounds.idle_while_waiting_max_ns, bounds.ready_max_ns),
            sharing: Sharing::new(topology, bounds.sharing_max_ns),
            mixed: vec![],
            skew: Skew::new(&bounds),
            homes: homes::Homes::default(),
            log: Log::new(bounds.violations_kept),
        }
    }

    /// A VM is powered on.
    pub fn vm_added(&mut self, now_ns: u64, vm: VmId, name: &str, terms: impl Into<VmTerms>) {
        let now = self.advance(now_ns);
        if self.vm(vm).is_some() {
            self.odd(now, Some(vm), None, "a VM added twice", "a new one");
        }
        let slot = self.ledger.add_vm(vm, name, terms.into());
        put(&mut self.vms, vm.0 as usize, slot);
    }

    /// The pools change: the root, which has the host, comes first, and every pool after its
    /// parent. VMs name them by index.
    pub fn pools(&mut self, now_ns: u64, pools: Vec<PoolTerms>) {
        let now = self.advance(now_ns);
        self.ledger.close(now, &mut self.log);
        self.ledger.set_pools(pools);
    }

    /// These pCPUs are on line from now on; all are at first. Worlds that ran on others have
    /// stopped before.
    pub fn online(&mut self, now_ns: u64, online: &PcpuSet) {
        let now = self.advance(now_ns);
        self.ledger.close(now, &mut self.log);
        let before = std::mem::replace(&mut self.online, online.clone());
        for p in before.iter().filter(|p| !online.contains(*p)) {
            if self.pcpus[p.0 as usize].world.is_some() {
                self.odd(now, None, None, "a busy pCPU off line", "an idle one");
            }
            let may = |set: u32, p| self.ledger.pcpus_of(set).contains(p);
            if let Some(o) = self.waits.pcpu_runs(now, p, may) {
                let vm = self.world(WorldId(o.world)).map(|w| w.vm);
                self.late(now, vm, o);
            }
        }
        for p in before.iter().filter(|p| !online.contains(*p)) {
            self.sharing.online(now, p, false);
        }
        for p in online.iter().filter(|p| !before.contains(*p)) {
            self.idles(now, p);
            self.sharing.online(now, p, true);
        }
        self.ledger.set_pcpus(now, online);
        self.homes.plugged = Some(now);
        self.threads(now);
    }

    /// A VM's settings change; its lag stays.
    pub fn vm_terms(&mut self, now_ns: u64, vm: VmId, terms: VmTerms) {
        let now = self.advance(now_ns);
        let Some(slot) = self.vm(vm) else {
            return self.odd(now, Some(vm), None, "settings of an unknown VM", "a VM added");
        };
        self.ledger.close(now, &mut self.log);
        self.ledger.set_terms(slot, terms);
    }

    /// A limit parks a READY world from now on, or no longer: while it is parked pCPUs may idle. A
    /// limit that parks more than it must shows in the lag.
    pub fn held_back(&mut self, now_ns: u64, world: WorldId, held: bool) {
        let now = self.advance(now_ns);
        let Some(mut w) = self.take(world) else {
            return self.odd(now, None, Some(world), "an unknown world held back", "a world added");
        };
        if w.life.state == State::Ready && w.held != held {
            if held {
                self.stop_waiting(now, world, &w);
            } else {
                self.waits.world_waits(now, world.0, w.set);
                w.queued = now;
            }
        }
        w.held = held;
        self.worlds[world.0 as usize] = Some(w);
    }

    /// A VM's shares change; its lag stays.
    pub fn vm_shares(&mut self, now_ns: u64, vm: VmId, shares: u32) {
        let now = self.advance(now_ns);
        let Some(slot) = self.vm(vm) else {
            return self.odd(now, Some(vm), None, "shares of an unknown VM", "a VM added");
        };
        self.ledger.close(now, &mut self.log);
        let terms = VmTerms { shares: u64::from(shares), ..self.ledger.terms(slot) };
        self.ledger.set_terms(slot, terms);
    }

    /// A VM is powered off; its worlds have been removed before.
    pub fn vm_removed(&mut self, now_ns: u64, vm: VmId) {
        let now = self.advance(now_ns);
        if self.vm(vm).is_none() {
            return self.odd(now, Some(vm), None, "an unknown VM removed", "a VM added");
        }
        if self.worlds.iter().flatten().any(|w| w.vm == vm) {
            self.odd(now, Some(vm), None, "a VM removed that has worlds", "a VM without worlds");
        }
        if let Some(slot) = self.vms[vm.0 as usize].take() {
            self.ledger.remove_vm(slot);
        }
    }

    /// A world joins a VM; `None` allows all pCPUs.
    pub fn world_added(&mut self, now_ns: u64, world: WorldId, vm: VmId, allowed: Option<PcpuSet>) {
        let now = self.advance(now_ns);
        let Some(slot) = self.vm(vm) else {
            return self.odd(now, Some(vm), Some(world), "a world of an unknown VM", "a VM added");
        };
        if self.world(world).is_some() {
            return self.odd(now, Some(vm), Some(world), "a world added twice", "a new one");
        }
        let set = self.ledger.set(allowed.as_ref());
        self.held |= allowed.is_some();
        let entry = self.ledger.add_world(now, slot, set);
        let (life, charge) = (Life::new(now), Stints::default());
        let made = World {
            vm,
            entry,
            set,
            life,
            fresh: true,
            homed: None,
            pcpu: None,
            charge,
            queued: now,
            held: false,
            misplaced: None,
        };
        put(&mut self.worlds, world.0 as usize, Box::new(made));
    }

    /// A world leaves, from whatever state; its charges are complete.
    pub fn world_removed(&mut self, now_ns: u64, world: WorldId) {
        let now = self.advance(now_ns);
        let Some(mut w) = self.take(world) else {
            return self.odd(now, None, Some(world), "an unknown world removed", "a world added");
        };
        self.leave(now, world, &mut w);
        self.settle_charge(now, world, &mut w);
        self.ledger.end_world(now, w.entry);
        self.skew.remove(world);
        self.threads(now);
    }

    /// A world may run on other pCPUs from now on.
    pub fn affinity(&mut self, now_ns: u64, world: WorldId, allowed: Option<PcpuSet>) {
        let now = self.advance(now_ns);
        let Some(mut w) = self.take(world) else {
            return self.odd(
                now,
                None,
                Some(world),
                "affinity of an unknown world",
                "a world added",
            );
        };
        let set = self.ledger.set(allowed.as_ref());
        self.held |= allowed.is_some();
        if set != w.set {
            if w.life.state == State::Ready && !w.held {
                self.stop_waiting(now, world, &w);
                self.waits.world_waits(now, world.0, set);
                w.queued = now;
            }
            w.entry = self.ledger.move_world(now, w.entry, set);
            w.set = set;
            if let Some(p) = w.pcpu {
                self.sharing.runs(now, p, Some((world.0, set)));
            }
            let may = w.pcpu.is_none_or(|p| self.ledger.pcpus_of(set).contains(p));
            w.misplaced = if may { None } else { w.misplaced.or(Some(now)) };
        }
        self.worlds[world.0 as usize] = Some(w);
    }

    /// A world goes over to a state; RUN names the pCPU, which other states ignore.
    pub fn state(&mut self, now_ns: u64, world: WorldId, state: State, pcpu: Option<PcpuId>) {
        let now = self.advance(now_ns);
        let Some(mut w) = self.take(world) else {
            return self.odd(
                now,
                None,
                Some(world),
                "a state of an unknown world",
                "a world added",
            );
        };
        self.transition(now, world, &w, state, pcpu);
        if let Some(drift) = self.skew.turn(now, world, state) {
            self.drifted(now, w.vm, world, drift);
        }
        // The pCPU's idle time is checked before the world that it takes stops waiting.
        let pcpu = pcpu.filter(|p| state == State::Run && (p.0 as usize) < self.pcpus.len());
        if let Some(p) = pcpu.filter(|p| self.pcpus[p.0 as usize].world.is_none()) {
            let may = |set: u32, p| self.ledger.pcpus_of(set).contains(p);
            let found = self.waits.pcpu_runs(now, p, may);
            if let Some(o) = found {
                let vm = if o.world == world.0 {
                    Some(w.vm)
                } else {
                    self.world(WorldId(o.world)).map(|w| w.vm)
                };
                self.late(now, vm, o);
            }
        }
        self.leave(now, world, &mut w);
        w.life.turn(now, state);
        w.fresh = false;
        match state {
            State::Run => self.dispatch(now, world, &mut w, pcpu),
            State::Ready => {
                w.queued = now;
                self.waits.world_waits(now, world.0, w.set);
            }
            _ => {}
        }
        self.ledger.turn(now, w.entry, state.is_runnable(), state == State::Run);
        self.worlds[world.0 as usize] = Some(w);
        self.threads(now);
    }

    /// The scheduler charges a world so much more CPU time.
    pub fn charged(&mut self, now_ns: u64, world: WorldId, ns: u64) {
        let now = self.advance(now_ns);
        let Some(w) = self.worlds.get_mut(world.0 as usize).and_then(Option::as_deref_mut) else {
            let texts = ("a charge to an unknown world", "a world added");
            return self.odd(now, None, Some(world), texts.0, texts.1);
        };
        let (vm, wrong) = (w.vm, w.charge.pay(now, ns));
        if let Some(wrong) = wrong {
            self.wrong_account(now, Invariant::Charge, Some((vm, world)), None, wrong);
        }
    }

    /// The scheduler counts a pCPU busy for so much more time.
    pub fn pcpu_busy(&mut self, now_ns: u64, pcpu: PcpuId, ns: u64) {
        let now = self.advance(now_ns);
        let Some(p) = self.pcpus.get_mut(pcpu.0 as usize) else {
            return self.odd(now, None, None, "an unknown pCPU busy", "one of the host");
        };
        if let Some(wrong) = p.busy.pay(now, ns) {
            self.wrong_account(now, Invariant::Busy, None, Some(pcpu), wrong);
        }
    }

    /// The scheduler's own account of a world's state times up to now.
    pub fn reported(&mut self, now_ns: u64, world: WorldId, times: &StateTimes) {
        let now = self.advance(now_ns);
        let Some(w) = self.world(world) else {
            return self.odd(now, None, Some(world), "times of an unknown world", "a world added");
        };
        let vm = w.vm;
        if let Some((state, own, seen)) = w.life.times(now).differs(*times) {
            let texts = (format!("{state} {seen} ns"), format!("{own} ns"));
            self.violated(now, Invariant::StateTimes, Some(vm), Some(world), None, texts);
        }
    }

    /// The oracle's own account of a world's state times up to `now_ns`, which is no event.
    #[must_use]
    pub fn times(&self, now_ns: u64, world: WorldId) -> Option<StateTimes> {
        self.world(world).map(|w| w.life.times(now_ns.max(w.life.since)))
    }

    /// CPU time of the ideal for each VM so far, such as at the end of a warm-up; closes the
    /// window.
    pub fn entitled(&mut self, now_ns: u64) -> Vec<(VmId, u64)> {
        let now = self.advance(now_ns);
        self.ledger.close(now, &mut self.log);
        self.ledger.verdicts().into_iter().map(|v| (v.vm, v.entitled_ns)).collect()
    }

    /// CPU time of the ideal for one world, as of the last window: its part of the VM's by its own
    /// demand. Less exact than the VM's.
    #[must_use]
    pub fn world_entitled(&self, world: WorldId) -> Option<u64> {
        self.world(world).map(|w| self.ledger.world_entitled(w.entry))
    }

    /// Most CPU time that each limited pool used in any second so far, by its index, in ns.
    #[must_use]
    pub fn pool_peaks(&self) -> Vec<(usize, u64)> {
        self.ledger.peaks()
    }

    /// Violations found so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.log.kept
    }

    /// Settles all accounts; the caller has charged everything but runs under way.
    #[must_use]
    pub fn finish(mut self, now_ns: u64) -> Verdict {
        let now = self.advance(now_ns);
        self.ledger.close(now, &mut self.log);
        self.look(now);
        for i in 0..self.worlds.len() {
            let world = WorldId(i as u32);
            if let Some(mut w) = self.take(world) {
                self.misplaced(now, world, &mut w);
                self.settle_charge(now, world, &mut w);
            }
        }
        for i in 0..self.pcpus.len() {
            if let Some(wrong) = self.pcpus[i].busy.settle(now) {
                self.wrong_account(now, Invariant::Busy, None, Some(PcpuId(i as u16)), wrong);
            }
        }
        let vms = self.ledger.verdicts();
        Verdict {
            violations: self.log.kept,
            counts: self.log.counts,
            entitled: vms.iter().map(|v| (v.vm, v.entitled_ns)).collect(),
            vms,
            ready_max_ns: self.waits.longest_ready,
            idle_while_waiting_max_ns: self.waits.longest_idle,
            skew_max_ns: self.skew.longest_lead,
            costop_max_ns: self.skew.longest_stop,
            events: self.events,
        }
    }
}

/// What events have in common.
impl Oracle {
    fn vm(&self, vm: VmId) -> Option<u32> {
        self.vms.get(vm.0 as usize).copied().flatten()
    }

    pub(crate) fn world(&self, world: WorldId) -> Option<&World> {
        self.worlds.get(world.0 as usize)?.as_deref()
    }

    fn take(&mut self, world: WorldId) -> Option<Box<World>> {
        self.worlds.get_mut(world.0 as usize)?.take()
    }

    /// Moves the clock on, closing the windows that end before; the time of the event.
    pub(crate) fn advance(&mut self, now: u64) -> u64 {
        self.events += 1;
        let Some(last) = self.now else {
            self.ledger.start(now);
            self.waits.start(now);
            self.now = Some(now);
            return now;
        };
        if now < last {
            let texts = (format!("{now} ns"), format!("{last} ns or later"));
            self.violated(last, Invariant::Events, None, None, None, texts);
            return last;
        }
        self.now = Some(now);
        if self.ledger.is_due(now) {
            self.ledger.roll(now, &mut self.log);
            // What waits now has waited all the time, so looking at `now` misses nothing.
            self.look(now);
        }
        now
    }

    fn look(&mut self, now: u64) {
        self.excuse(now);
        self.look_apart(now);
        let found = self.waits.look(now, |set, p| self.ledger.pcpus_of(set).contains(p));
        for o in found {
            let vm = self.world(WorldId(o.world)).map(|w| w.vm);
            self.late(now, vm, o);
        }
        for shared in self.sharing.look(now, |set, p| self.ledger.pcpus_of(set).contains(p)) {
            self.shared(now, shared);
        }
        for (vm, world, drift) in self.skew.look(now) {
            self.drifted(now, vm, world, drift);
        }
    }
}

fn put<T>(table: &mut Vec<Option<T>>, at: usize, value: T) {
    if table.len() <= at {
        table.resize_with(at + 1, || None);
    }
    table[at] = Some(value);
}
