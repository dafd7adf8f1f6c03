//! How worlds shared cores, and how far they moved: for each VM the part of its run time in which
//! it had a core alone, and what ran beside it otherwise; for each core how long it was shared. It
//! judges nothing.
//!
//! Law: a thread of a core is busy while it runs a world or something that the trace does not name.
//! Each ns that a world runs belongs to one of: alone, beside its own VM only, beside another VM,
//! beside the host's tasks only, unseen (what another thread does is not known). So the parts sum
//! up to the run time.

use crate::{Event, Kind, Names, Now, Place, Replay, State};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use units::{PcpuId, VmId, WorldId};

/// Run time by what the other threads of the core did meanwhile, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Beside {
    /// In RUN; the sum of the rest.
    pub run_ns: u64,
    /// No other thread was busy.
    pub alone_ns: u64,
    /// Worlds of the same VM only.
    pub own_ns: u64,
    /// A world of another VM.
    pub others_ns: u64,
    /// Host tasks, or what the trace does not name, and no VM's world but the own.
    pub host_ns: u64,
    /// It is not known what another thread did.
    pub unseen_ns: u64,
}

/// Migrations by what the two pCPUs share at most; names as in results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Moves {
    /// All of them.
    pub all: u64,
    /// To another thread of the core.
    pub twin: u64,
    /// To another core of the LLC.
    pub core: u64,
    /// To another LLC of the node.
    pub llc: u64,
    /// To another node.
    pub node: u64,
    /// The places are not known.
    pub unknown: u64,
}

/// A VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VmCores {
    /// Its name.
    pub name: String,
    /// Its worlds' run time.
    #[serde(flatten)]
    pub beside: Beside,
    /// How often its worlds ran on another pCPU than before.
    pub moves: Moves,
}

/// A core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Core {
    /// Its pCPUs.
    pub pcpus: Vec<PcpuId>,
    /// How long one thread was busy, in ns.
    pub single_ns: u64,
    /// How long several were, in ns.
    pub shared_ns: u64,
    /// How long a thread was kept idle for a world on another, in ns.
    pub kept_ns: u64,
}

/// What is to be said of the cores of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cores {
    /// When it begins, in ns of the trace's clock.
    pub begin_ns: u64,
    /// How long it lasts, in ns.
    pub ns: u64,
    /// Each VM that ran, by number; worlds without one first, then the host's tasks.
    pub vms: Vec<VmCores>,
    /// Each core, by its first pCPU. Of a trace without places each pCPU is one.
    pub cores: Vec<Core>,
}

/// What is going on on a core.
#[derive(Default)]
struct Watched {
    out: Core,
    /// What its threads do, since when.
    now: Vec<Now>,
    since: u64,
}

/// Cores under way.
struct Watch {
    from_ns: u64,
    to_ns: u64,
    cores: Vec<Watched>,
    /// Core and thread of each pCPU.
    at: BTreeMap<PcpuId, (usize, usize)>,
    vms: BTreeMap<Option<VmId>, VmCores>,
    last: BTreeMap<WorldId, PcpuId>,
}

/// Names: a world's VM as of now, for a number may be used again; all else by the whole trace.
struct Known<'a> {
    now: &'a Names,
    all: &'a Names,
}

impl Known<'_> {
    fn vm_of(&self, world: WorldId) -> Option<VmId> {
        self.now.vm_of(world).or_else(|| self.all.vm_of(world)).map(|v| v.0)
    }

    /// The record of a VM, or of worlds without one.
    fn entry<'v>(
        &self,
        vms: &'v mut BTreeMap<Option<VmId>, VmCores>,
        vm: Option<VmId>,
    ) -> &'v mut VmCores {
        vms.entry(vm).or_insert_with(|| VmCores {
            name: vm.map_or_else(String::new, |v| self.all.vm(v)),
            ..VmCores::default()
        })
    }
}

/// The cores of a trace, from `from_ns` until before `to_ns` of its clock.
#[must_use]
pub fn analyse(events: &[Event], from_ns: u64, to_ns: u64) -> Cores {
    let mut named = Names::default();
    events.iter().for_each(|e| named.take(e));
    let mut watch = Watch::new(events, &named, from_ns, to_ns);
    let mut replay = Replay::new();
    for event in events {
        let changed: Vec<PcpuId> = replay.step(event).stretches.iter().map(|s| s.pcpu).collect();
        let changed = changed.into_iter().chain(event.pcpu);
        let now = |p: PcpuId| replay.pcpus().get(usize::from(p.0)).map_or(Now::Unknown, |n| n.0);
        let known = Known { now: replay.names(), all: &named };
        for p in changed {
            watch.change(replay.ns(), p, now(p), &known);
        }
        match event.kind {
            Kind::State { world, to: State::Run, on, .. } => {
                watch.runs(event.ns, world, on.or(event.pcpu), &known);
            }
            Kind::State { world, to: State::None, .. } => _ = watch.last.remove(&world),
            Kind::Lost { .. } => watch.last.clear(),
            _ => {}
        }
    }
    let end = replay.ns().min(to_ns);
    let begin = events.iter().find(|e| !e.kind.is_name()).map_or(0, |e| e.ns).max(from_ns);
    watch.finish(end, &Known { now: replay.names(), all: &named });
    Cores {
        begin_ns: begin,
        ns: end.saturating_sub(begin),
        vms: watch.vms.into_values().collect(),
        cores: watch.cores.into_iter().map(|c| c.out).collect(),
    }
}

impl Watch {
    fn new(events: &[Event], names: &Names, from_ns: u64, to_ns: u64) -> Watch {
        let on = |e: &Event| if let Kind::State { on, .. } = e.kind { on } else { None };
        let seen = events.iter().flat_map(|e| [e.pcpu, on(e)]).flatten().map(|p| p.0 + 1).max();
        let pcpus = names.pcpus().unwrap_or(0).max(seen.unwrap_or(0));
        let core = |p: PcpuId| match names.place(p) {
            Some(place) => (0, place.core),
            None => (1, p.0),
        };
        let mut by_core: BTreeMap<(u16, u16), Vec<PcpuId>> = BTreeMap::new();
        for p in (0..pcpus).map(PcpuId) {
            by_core.entry(core(p)).or_default().push(p);
        }
        let mut parts: Vec<Vec<PcpuId>> = by_core.into_values().collect();
        parts.sort();
        let threads = |(c, part): (usize, &Vec<PcpuId>)| {
            part.iter().enumerate().map(move |(t, p)| (*p, (c, t))).collect::<Vec<_>>()
        };
        let at = parts.iter().enumerate().flat_map(threads).collect();
        let watched = |pcpus: Vec<PcpuId>| Watched {
            now: vec![Now::Unknown; pcpus.len()],
            out: Core { pcpus, ..Core::default() },
            ..Watched::default()
        };
        let cores = parts.into_iter().map(watched).collect();
        let (vms, last) = (BTreeMap::new(), BTreeMap::new());
        Watch { from_ns, to_ns, cores, at, vms, last }
    }

    fn change(&mut self, ns: u64, p: PcpuId, to: Now, known: &Known<'_>) {
        let Some(&(c, t)) = self.at.get(&p) else { return };
        if self.cores[c].now[t] != to {
            self.account(c, ns, known);
            self.cores[c].now[t] = to;
        }
    }

    /// Accounts what a core did until `ns`.
    fn account(&mut self, c: usize, ns: u64, known: &Known<'_>) {
        let core = &mut self.cores[c];
        let part = ns.min(self.to_ns).saturating_sub(core.since.max(self.from_ns));
        core.since = ns;
        if part == 0 {
            return;
        }
        let busy = |n: &&Now| matches!(n, Now::World(_) | Now::Other);
        let threads = core.now.iter().filter(busy).count();
        core.out.single_ns += if threads == 1 { part } else { 0 };
        core.out.shared_ns += if threads > 1 { part } else { 0 };
        core.out.kept_ns += if core.now.contains(&Now::Kept) { part } else { 0 };
        for (t, now) in core.now.iter().enumerate() {
            let Now::World(world) = now else { continue };
            let vm = known.vm_of(*world);
            let others = || core.now.iter().enumerate().filter(|o| o.0 != t).map(|o| o.1);
            let runs = |n: &Now| match n {
                Now::World(w) => known.vm_of(*w).filter(|v| *v != VmId::SYSTEM),
                _ => None,
            };
            let b = &mut known.entry(&mut self.vms, vm).beside;
            b.run_ns += part;
            let part_of = if others().any(|n| runs(n).is_some_and(|v| Some(v) != vm)) {
                &mut b.others_ns
            } else if others().any(|n| matches!(n, Now::Unknown)) {
                &mut b.unseen_ns
            } else if others().any(|n| busy(&n) && runs(n).is_none()) {
                &mut b.host_ns
            } else if others().any(|n| busy(&n)) {
                &mut b.own_ns
            } else {
                &mut b.alone_ns
            };
            *part_of += part;
        }
    }

    /// A world begins to run.
    fn runs(&mut self, ns: u64, world: WorldId, on: Option<PcpuId>, known: &Known<'_>) {
        let Some(to) = on else { return };
        let before = self.last.insert(world, to);
        let Some(from) = before.filter(|f| *f != to && (self.from_ns..self.to_ns).contains(&ns))
        else {
            return;
        };
        let vm = known.vm_of(world);
        let m = &mut known.entry(&mut self.vms, vm).moves;
        m.all += 1;
        *match known.all.place(from).zip(known.all.place(to)) {
            None => &mut m.unknown,
            Some((a, b)) => distance(m, a, b),
        } += 1;
    }

    fn finish(&mut self, end: u64, known: &Known<'_>) {
        for c in 0..self.cores.len() {
            self.account(c, end, known);
        }
    }
}

fn distance(m: &mut Moves, a: Place, b: Place) -> &mut u64 {
    if a.core == b.core {
        &mut m.twin
    } else if a.llc == b.llc {
        &mut m.core
    } else if a.node == b.node {
        &mut m.llc
    } else {
        &mut m.node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Role, Why};

    fn event(ns: u64, pcpu: u16, kind: Kind) -> Event {
        Event { ns, pcpu: Some(PcpuId(pcpu)), kind }
    }

    fn state(ns: u64, pcpu: u16, world: u32, to: State) -> Event {
        let on = (to == State::Run).then_some(PcpuId(pcpu));
        event(
            ns,
            pcpu,
            Kind::State { world: WorldId(world), from: None, to, why: Why::Unknown, on },
        )
    }

    /// Two cores of two threads; worlds 1 and 2 are VM 1's, 3 is VM 2's, 4 a host task.
    fn names() -> Vec<Event> {
        let place = |p: u16| Place { smt: p % 2, core: p / 2, llc: p / 2, node: 0 };
        let mut all: Vec<Event> =
            (0..4).map(|p| event(0, p, Kind::Pcpu { place: place(p) })).collect();
        all.extend((1..=2).map(|vm| {
            let kind = Kind::Vm { vm: VmId(vm), name: format!("vm{vm}"), pool: String::new() };
            Event { ns: 0, pcpu: None, kind }
        }));
        all.extend([(1, 1), (2, 1), (3, 2), (4, 0)].map(|(world, vm)| {
            let (world, vm, name) = (WorldId(world), VmId(vm), String::new());
            let kind = Kind::World { world, vm, role: Role::Vcpu, name };
            Event { ns: 0, pcpu: None, kind }
        }));
        all
    }

    #[test]
    fn run_time_is_split_by_what_the_other_threads_do_and_moves_by_their_distance() {
        let mut events = names();
        events.extend((0..4).map(|p| event(0, p, Kind::Idle { begins: true })));
        events.extend([
            state(0, 0, 1, State::Run),
            state(10, 1, 2, State::Run), // own VM
            state(30, 1, 2, State::Ready),
            state(30, 1, 3, State::Run), // another VM
            state(60, 1, 3, State::Ready),
            state(60, 1, 4, State::Run), // a host task
            state(100, 1, 4, State::Wait),
            state(150, 0, 1, State::Ready),
            state(150, 2, 1, State::Run), // another LLC
            state(170, 2, 1, State::Wait),
        ]);
        let found = analyse(&events, 0, u64::MAX);
        let vm = |name: &str| found.vms.iter().find(|v| v.name == name).expect("it ran");
        let one = Beside {
            run_ns: 190,
            alone_ns: 80,
            own_ns: 40,
            others_ns: 30,
            host_ns: 40,
            unseen_ns: 0,
        };
        assert_eq!(vm("vm1").beside, one, "{found:?}");
        assert_eq!(vm("vm1").moves, Moves { all: 1, llc: 1, ..Moves::default() });
        assert_eq!(vm("vm2").beside.others_ns, 30);
        let core = &found.cores[0];
        assert_eq!((core.single_ns, core.shared_ns), (60, 90));
        assert_eq!(found.ns, 170);
        let moved = analyse(&events, 0, 140);
        assert_eq!(moved.vms[1].moves, Moves::default(), "{moved:?}");
        let later = analyse(&events, 20, 40);
        assert_eq!((later.ns, later.vms[0].beside.run_ns), (20, 30), "{later:?}");
    }

    #[test]
    fn kept_threads_idle_and_what_is_not_known_is_unseen() {
        let mut events = names();
        events.extend([
            state(0, 0, 1, State::Run), // nothing is known of pCPU 1
            event(10, 1, Kind::Kept),
            event(40, 1, Kind::Lost { events: None }), // of anything
            state(50, 0, 1, State::Run),
            event(60, 1, Kind::Idle { begins: true }),
            state(90, 0, 1, State::Wait),
            state(95, 0, 1, State::None),
            state(99, 2, 1, State::Run), // another world of that number
        ]);
        let found = analyse(&events, 0, u64::MAX);
        let want = Beside { run_ns: 80, alone_ns: 60, unseen_ns: 20, ..Beside::default() };
        assert_eq!(found.vms[0].beside, want, "{found:?}");
        assert_eq!((found.vms[0].moves.all, found.cores[0].kept_ns), (0, 30));
    }
}
