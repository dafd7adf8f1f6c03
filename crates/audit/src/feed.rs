//! Feeds the events of a trace to the oracle; it judges nothing.

use crate::Terms;
use check::{Bounds, Oracle, State, Verdict, VmTerms};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Place, Topology};
use trace::{Event, HOME_ANY, Kind, Names, Now, Queue, Replay, Role, Why};
use units::{PcpuId, PcpuSet, VmId, WorldId};

/// So far that no VM is ever beyond it: a trace has no settings to judge shares by.
const ANY_LAG: u64 = 1 << 60;
/// Any: no check uses them.
const SHARES: u32 = 1000;

/// State of a world as reported to the oracle.
#[derive(Clone, Copy, Debug)]
struct Reported {
    vm: VmId,
    vcpu: bool,
    state: State,
    /// Where it runs, and since when.
    runs: Option<(PcpuId, u64)>,
}

/// A trace on its way to the oracle.
pub(crate) struct Feed {
    terms: Terms,
    topology: Topology,
    replay: Replay,
    oracle: Option<Oracle>,
    worlds: BTreeMap<WorldId, Reported>,
    vms: BTreeSet<VmId>,
    /// Number of the world that stands for what runs unnamed on pCPU 0; the next is pCPU 1's.
    unnamed: u32,
    /// Siblings may be apart when the oracle begins.
    apart: bool,
    begun: Option<u64>,
    /// pCPUs of which it is not known what they do.
    unseen: BTreeSet<PcpuId>,
    /// Domain of each pCPU.
    domains: Vec<u32>,
    /// Homes of worlds, a bit for each domain.
    homes: BTreeMap<WorldId, u64>,
    span: u64,
}

/// The host of a trace. A pCPU of which it does not say where it is has a core alone.
fn topology(events: &[Event], pcpus: usize) -> Topology {
    let mut names = Names::default();
    events.iter().for_each(|e| names.take(e));
    let named: Vec<_> = (0..pcpus).map(|p| names.place(PcpuId(p as u16))).collect();
    let cores: BTreeSet<u16> = named.iter().flatten().map(|p| p.core).collect();
    let index: BTreeMap<u16, u32> = cores.into_iter().zip(0..).collect();
    let beyond = index.len() as u32;
    let place = |(at, p): (u32, &Option<trace::Place>)| match p {
        Some(p) => {
            let (node, llc) = (u32::from(p.node), u32::from(p.llc));
            Place { socket: node, node, llc, core: index[&p.core], thread: u32::from(p.smt) }
        }
        None => Place { socket: 0, node: 0, llc: 0, core: beyond + at, thread: 0 },
    };
    let places = (0..).zip(&named).map(place).collect();
    Topology::from_places(places).expect("as many pCPUs as a host may have")
}

impl Feed {
    pub(crate) fn new(events: &[Event], mut terms: Terms) -> Feed {
        let told = events.iter().filter_map(|e| {
            if let Kind::Host { pcpus } = e.kind { Some(usize::from(pcpus)) } else { None }
        });
        let seen = events
            .iter()
            .flat_map(|e| [e.pcpu, if let Kind::State { on, .. } = e.kind { on } else { None }]);
        let pcpus = told
            .max()
            .max(seen.flatten().map(|p| usize::from(p.0) + 1).max())
            .unwrap_or(1)
            .clamp(1, units::caps::PCPUS_MAX);
        let unnamed =
            events.iter().filter_map(|e| e.kind.world()).map(|w| w.0 + 1).max().unwrap_or(0);
        // A recording that begins with a host under way tells every world's state first.
        let mut first = events.iter().take_while(|e| !matches!(e.kind, Kind::Lost { .. }));
        let apart = first.any(|e| matches!(e.kind, Kind::State { why: Why::Told, .. }));
        terms.bounds = Bounds { lag_base_ns: ANY_LAG, ..terms.bounds };
        let topology = topology(events, pcpus);
        Feed {
            terms,
            domains: topology.domains(),
            topology,
            replay: Replay::new(),
            oracle: None,
            worlds: BTreeMap::new(),
            vms: BTreeSet::new(),
            unnamed,
            apart,
            begun: None,
            unseen: BTreeSet::new(),
            homes: BTreeMap::new(),
            span: 0,
        }
    }

    /// Time that the oracle has watched, in ns.
    pub(crate) fn span_ns(&self) -> u64 {
        self.span
    }

    /// What the oracle says of everything since it began.
    pub(crate) fn close(&mut self) -> Option<Verdict> {
        let now = self.replay.ns();
        let all: Vec<WorldId> = self.worlds.keys().copied().collect();
        all.into_iter().for_each(|w| self.pay(now, w));
        self.span += now - self.begun.take().unwrap_or(now);
        self.worlds.clear();
        self.vms.clear();
        self.unseen.clear();
        self.homes.clear();
        self.apart = true;
        self.oracle.take().map(|o| o.finish(now))
    }

    pub(crate) fn step(&mut self, event: &Event) {
        let changed: Vec<PcpuId> =
            self.replay.step(event).stretches.iter().map(|s| s.pcpu).collect();
        if event.kind.is_name() {
            return self.named(event);
        }
        if matches!(event.kind, Kind::Lost { .. }) {
            return;
        }
        let now = self.replay.ns();
        if self.oracle.is_none() {
            self.open(now);
        }
        let unnamed = |p: &PcpuId| {
            let now = self.replay.pcpus()[usize::from(p.0)].0;
            matches!(now, Now::Other | Now::Off | Now::Unknown)
        };
        let kept = |p: &PcpuId| self.replay.pcpus()[usize::from(p.0)].0 == Now::Kept;
        let kept: Vec<(PcpuId, bool)> = changed.iter().map(|p| (*p, kept(p))).collect();
        let (begin, end): (Vec<PcpuId>, Vec<PcpuId>) = changed.into_iter().partition(unnamed);
        end.into_iter().for_each(|p| self.unnamed(now, p, false));
        match &event.kind {
            Kind::State { world, to, why, on, .. } => {
                self.state(now, *world, *to, *why, on.or(event.pcpu))
            }
            Kind::Queued { world, queue, .. } => {
                self.held(now, *world, matches!(queue, Queue::Limit(_)))
            }
            Kind::Guest { world, inside } => {
                if let Some(oracle) = &mut self.oracle {
                    oracle.guest(now, *world, *inside);
                }
            }
            Kind::Home { world, domains } => {
                self.homes.insert(*world, *domains);
                let may = self.may(*world);
                // One whose state is not known yet begins with it.
                let known = self.worlds.contains_key(world);
                if let Some(oracle) = self.oracle.as_mut().filter(|_| known) {
                    oracle.home(now, *world, may);
                }
            }
            _ => {}
        }
        begin.into_iter().for_each(|p| self.unnamed(now, p, true));
        kept.iter().for_each(|(p, _)| self.unseen(now, *p));
        if let Some(oracle) = &mut self.oracle {
            kept.into_iter().for_each(|(p, kept)| oracle.kept(now, p, kept));
        }
    }

    fn open(&mut self, now: u64) {
        let mut oracle = Oracle::new(&self.topology, self.terms.bounds);
        if let Some(mut terms) = self.terms.cosched {
            terms.apart_ns = if self.apart { terms.costop_ns } else { 0 };
            oracle.cosched(terms);
        }
        oracle.vm_added(now, VmId::SYSTEM, "system", VmTerms::from(SHARES));
        self.oracle = Some(oracle);
        self.vms.insert(VmId::SYSTEM);
        self.begun = Some(now);
        for p in 0..self.topology.pcpus() {
            let p = PcpuId(p as u16);
            self.add(now, self.stand_in(p), VmId::SYSTEM, false, Some([p].into_iter().collect()));
            if !matches!(
                self.replay.pcpus().get(usize::from(p.0)),
                Some((Now::Idle | Now::Kept | Now::World(_), _))
            ) {
                self.unnamed(now, p, true);
            }
            self.unseen(now, p);
        }
    }

    fn unseen(&mut self, now: u64, p: PcpuId) {
        let known = self.replay.pcpus().get(usize::from(p.0)).is_some_and(|n| n.0 != Now::Unknown);
        let changed = if known { self.unseen.remove(&p) } else { self.unseen.insert(p) };
        if let Some(oracle) = self.oracle.as_mut().filter(|_| changed) {
            oracle.unseen(now, p, !known);
        }
    }

    /// The world that stands for what runs on a pCPU and is not named.
    fn stand_in(&self, p: PcpuId) -> WorldId {
        WorldId(self.unnamed + u32::from(p.0))
    }

    fn unnamed(&mut self, now: u64, p: PcpuId, begins: bool) {
        let world = self.stand_in(p);
        let runs = self.worlds.get(&world).is_some_and(|t| t.runs.is_some());
        if begins && !runs {
            self.turn(now, world, State::Ready, None);
            self.turn(now, world, State::Run, Some(p));
        } else if !begins && runs {
            self.turn(now, world, State::Wait, None);
        }
    }

    /// pCPUs that a world may use, by its affinity and its home; none: all.
    fn may(&self, world: WorldId) -> Option<PcpuSet> {
        let allowed = self.replay.names().allowed(world).cloned();
        let home = self.homes.get(&world).filter(|domains| **domains != HOME_ANY);
        let Some(domains) = home else { return allowed };
        let at = (0..).map(PcpuId).zip(&self.domains);
        let there = at.filter(|(_, domain)| domains >> (*domain & 63) & 1 != 0).map(|(id, _)| id);
        let there: PcpuSet = there.collect();
        Some(allowed.map_or(there.clone(), |a| a.and(&there)))
    }

    /// A name is known: a world may turn out to be of another VM, or to have another affinity.
    fn named(&mut self, event: &Event) {
        let now = self.replay.ns();
        let may = event.kind.world().and_then(|w| self.may(w));
        let Some(oracle) = &mut self.oracle else { return };
        match &event.kind {
            Kind::Affinity { world, .. } if self.worlds.contains_key(world) => {
                oracle.affinity(now, *world, may);
            }
            Kind::World { world, vm, role, .. }
                if self
                    .worlds
                    .get(world)
                    .is_some_and(|t| (t.vm, t.vcpu) != (*vm, *role == Role::Vcpu)) =>
            {
                self.remove(now, *world);
            }
            _ => {}
        }
    }

    fn add(&mut self, now: u64, world: WorldId, vm: VmId, vcpu: bool, allowed: Option<PcpuSet>) {
        let name = self.replay.names().vm(vm);
        let Some(oracle) = &mut self.oracle else { return };
        if self.vms.insert(vm) {
            oracle.vm_added(now, vm, &name, VmTerms::from(SHARES));
        }
        oracle.world_added(now, world, vm, allowed);
        if vcpu {
            oracle.vcpu(world);
        }
        self.worlds.insert(world, Reported { vm, vcpu, state: State::Wait, runs: None });
    }

    fn remove(&mut self, now: u64, world: WorldId) {
        self.pay(now, world);
        self.worlds.remove(&world);
        if let Some(oracle) = &mut self.oracle {
            oracle.world_removed(now, world);
        }
    }

    fn state(&mut self, now: u64, world: WorldId, to: trace::State, why: Why, on: Option<PcpuId>) {
        let Some(next) = of_trace(to) else {
            if self.worlds.contains_key(&world) {
                self.remove(now, world);
            }
            self.homes.remove(&world); // another may get its number
            return;
        };
        if !self.worlds.contains_key(&world) {
            if next == State::Costop {
                return; // a world begins in any other state: it counts from its next one on
            }
            let (vm, role) = self.replay.names().vm_of(world).unwrap_or((VmId::SYSTEM, Role::Host));
            let allowed = self.may(world);
            self.add(now, world, vm, role == Role::Vcpu, allowed);
        }
        let told = self.worlds.get(&world).copied();
        let again = told
            .is_some_and(|t| t.state == next && (next != State::Run || t.runs.map(|r| r.0) == on));
        if !again {
            self.turn(now, world, next, on);
        }
        match why {
            Why::Parked => self.held(now, world, true),
            Why::Released => self.held(now, world, false),
            _ => {}
        }
    }

    fn held(&mut self, now: u64, world: WorldId, held: bool) {
        if let (Some(oracle), Some(told)) = (&mut self.oracle, self.worlds.get(&world))
            && told.state == State::Ready
        {
            oracle.held_back(now, world, held);
        }
    }

    fn turn(&mut self, now: u64, world: WorldId, next: State, on: Option<PcpuId>) {
        self.pay(now, world);
        let (Some(oracle), Some(told)) = (&mut self.oracle, self.worlds.get_mut(&world)) else {
            return;
        };
        oracle.state(now, world, next, on);
        told.state = next;
        told.runs = if next == State::Run { on.map(|p| (p, now)) } else { None };
    }

    /// A trace has no accounts: what a world runs is what it is charged.
    fn pay(&mut self, now: u64, world: WorldId) {
        let Some((p, since)) = self.worlds.get_mut(&world).and_then(|t| t.runs.take()) else {
            return;
        };
        if let Some(oracle) = &mut self.oracle {
            oracle.charged(now, world, now - since);
            oracle.pcpu_busy(now, p, now - since);
        }
    }
}

fn of_trace(state: trace::State) -> Option<State> {
    match state {
        trace::State::None => None,
        trace::State::Run => Some(State::Run),
        trace::State::Ready => Some(State::Ready),
        trace::State::Costop => Some(State::Costop),
        trace::State::Wait => Some(State::Wait),
        trace::State::WaitIdle => Some(State::WaitIdle),
    }
}
