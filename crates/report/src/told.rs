//! The contents of a trace, in one pass over its events: state times, the worlds on each pCPU, CPU
//! time over time, rows; it judges nothing.

use crate::buckets::{Counts, Filler};
use crate::lanes::Lane;
use crate::model::{PcpuSums, TraceVm};
use crate::world_sums::{Part, WorldSums, parts};
use std::collections::BTreeMap;
use trace::{Ended, Event, Kind, Now, Place, Replay, Role, State, Trace};
use units::{PcpuId, VmId, WorldId};

/// Remark of the simulator where a document begins to count.
const WARM: &str = "the warm-up ends";
/// Most remarks that are kept.
const MARKS_MAX: usize = 200;

/// The part of a trace that is shown, in ns of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// When the trace begins.
    pub(crate) zero: u64,
    /// Begin of the part.
    pub(crate) from: u64,
    /// End of the part.
    pub(crate) to: u64,
    /// End of the trace.
    pub(crate) end: u64,
}

impl Window {
    /// The part that was asked for, in ns since the trace begins; else from the end of its warm-up
    /// to its end.
    pub(crate) fn of(events: &[Event], from: Option<u64>, to: Option<u64>) -> Window {
        let told = || events.iter().filter(|e| !e.kind.is_name());
        let zero = told().next().map_or(0, |e| e.ns);
        let end = told().next_back().map_or(zero, |e| e.ns);
        let warm = told()
            .find(|e| matches!(&e.kind, Kind::Mark { text } if text == WARM))
            .map_or(zero, |e| e.ns);
        let at = |ns: u64| zero.saturating_add(ns).min(end);
        let from = from.map_or(warm, at);
        Window { zero, from, to: to.map_or(end, at).max(from), end }
    }

    /// Its length, in ns.
    pub(crate) fn ns(&self) -> u64 {
        self.to - self.from
    }
}

/// A world as the trace names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its name, or its number.
    pub(crate) name: String,
    /// Index of its VM.
    pub(crate) vm: usize,
    /// Its kind, if that is known.
    pub(crate) role: Option<Role>,
}

/// What a trace names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cast {
    /// VMs; worlds without a known VM are in one of their own.
    pub(crate) vms: Vec<TraceVm>,
    /// Index of a VM.
    ids: BTreeMap<Option<VmId>, usize>,
    /// Worlds.
    pub(crate) worlds: BTreeMap<WorldId, Named>,
    /// Places of pCPUs.
    pub(crate) places: BTreeMap<PcpuId, Place>,
    /// Number of pCPUs, as far as they are named or seen.
    pub(crate) pcpus: usize,
}

impl Cast {
    pub(crate) fn of(events: &[Event]) -> Cast {
        let mut cast = Cast::default();
        let mut worlds = BTreeMap::new();
        for event in events {
            cast.pcpus = cast.pcpus.max(event.pcpu.map_or(0, |p| usize::from(p.0) + 1));
            match &event.kind {
                Kind::Vm { vm, name, pool } => cast.vm(Some(*vm), name, pool),
                Kind::Account { vm, .. } if !cast.ids.contains_key(&Some(*vm)) => {
                    cast.vm(Some(*vm), "", "")
                }
                Kind::World { world, vm, role, name } => {
                    worlds.insert(*world, (name.clone(), Some(*vm), Some(*role)));
                }
                Kind::Host { pcpus } => cast.pcpus = cast.pcpus.max(usize::from(*pcpus)),
                Kind::Pcpu { place } => {
                    cast.places.extend(event.pcpu.map(|p| (p, *place)));
                }
                kind => {
                    if let Some(world) = kind.world() {
                        worlds.entry(world).or_insert((String::new(), None, None));
                    }
                }
            }
        }
        for (world, (name, vm, role)) in worlds {
            if !cast.ids.contains_key(&vm) {
                cast.vm(vm, if vm.is_none() { "no VM" } else { "" }, "");
            }
            let name = if name.is_empty() { world.0.to_string() } else { name };
            cast.worlds.insert(world, Named { name, vm: cast.ids[&vm], role });
        }
        cast
    }

    fn vm(&mut self, id: Option<VmId>, name: &str, pool: &str) {
        let number = id.map_or(0, |v| v.0);
        let name = if name.is_empty() { format!("VM {number}") } else { name.to_owned() };
        let vm =
            TraceVm { name, pool: if pool.is_empty() { "/".to_owned() } else { pool.to_owned() } };
        match self.ids.get(&id) {
            Some(i) => self.vms[*i] = vm,
            None => {
                self.ids.insert(id, self.vms.len());
                self.vms.push(vm);
            }
        }
    }

    fn vm_of(&self, world: WorldId) -> Option<usize> {
        self.worlds.get(&world).map(|w| w.vm)
    }
}

/// What a trace tells.
pub(crate) struct Told {
    /// State times of worlds.
    pub(crate) sums: WorldSums,
    /// Each pCPU.
    pub(crate) pcpus: Vec<PcpuSums>,
    /// CPU time over time.
    pub(crate) buckets: Filler,
    /// What each pCPU did: 0 unknown, 1 idle, 2 not named, 3 + number of the world.
    pub(crate) pcpu_lanes: Vec<Lane>,
    /// State of each world, see `model::Timeline`.
    pub(crate) world_lanes: BTreeMap<WorldId, Lane>,
    /// Remarks, in ns since the trace begins.
    pub(crate) marks: Vec<(u64, String)>,
}

impl Told {
    /// Goes through a trace.
    pub(crate) fn of(trace: &Trace, cast: &Cast, window: Window) -> Told {
        let vms = cast.vms.len();
        let mut told = Told {
            sums: WorldSums::default(),
            pcpus: vec![PcpuSums { run: vec![0; vms], ..PcpuSums::default() }; cast.pcpus],
            buckets: Filler::new(window.from, window.to, vms),
            pcpu_lanes: vec![Lane::default(); cast.pcpus],
            world_lanes: BTreeMap::new(),
            marks: vec![],
        };
        let mut replay = Replay::new();
        for event in &trace.events {
            let ended = replay.step(event).clone();
            told.ended(&ended, cast, window);
            told.event(event, cast, window);
        }
        let ended = replay.finish().clone();
        told.ended(&ended, cast, window);
        told.pcpu_lanes
            .iter_mut()
            .chain(told.world_lanes.values_mut())
            .for_each(|l| l.close(window.from, window.to));
        for sums in &mut told.pcpus {
            let known = sums.run.iter().sum::<u64>() + sums.idle + sums.other;
            sums.unknown = window.ns().saturating_sub(known);
        }
        told
    }

    fn event(&mut self, event: &Event, cast: &Cast, window: Window) {
        let inside = (window.from..=window.to).contains(&event.ns);
        match &event.kind {
            Kind::Migrate { world, .. } if inside => self.sums.migrates(*world),
            Kind::Account { vm, entitled, .. } => {
                if let Some(vm) = cast.ids.get(&Some(*vm)) {
                    self.buckets.entitled(*vm, event.ns, *entitled);
                }
            }
            Kind::Lost { events } => {
                self.buckets.lost(event.ns);
                let many = events
                    .map_or("events are missing".to_owned(), |n| format!("{n} events are missing"));
                self.mark(event.ns, many, window);
            }
            Kind::Mark { text } => self.mark(event.ns, text.clone(), window),
            _ => {}
        }
    }

    fn mark(&mut self, ns: u64, text: String, window: Window) {
        if (window.from..=window.to).contains(&ns) && self.marks.len() < MARKS_MAX {
            self.marks.push((ns - window.zero, text));
        }
    }

    fn ended(&mut self, ended: &Ended, cast: &Cast, window: Window) {
        for s in &ended.stretches {
            let (from, to) = (s.from_ns.max(window.from), s.to_ns.min(window.to));
            let p = usize::from(s.pcpu.0);
            if from >= to || p >= self.pcpus.len() {
                continue;
            }
            let sums = &mut self.pcpus[p];
            let code = match s.now {
                // Neither in use nor free.
                Now::Unknown | Now::Off => 0,
                Now::Idle | Now::Kept => {
                    sums.idle += to - from;
                    1
                }
                Now::Other => {
                    sums.other += to - from;
                    2
                }
                Now::World(w) => {
                    sums.run[cast.vm_of(w).unwrap_or_default()] += to - from;
                    3 + w.0
                }
            };
            self.pcpu_lanes[p].push(from, to, code);
        }
        for stay in &ended.stays {
            for part in parts(stay, window.from, window.to) {
                self.part(stay.world, stay.was.on, &part, cast);
            }
        }
    }

    fn part(&mut self, world: WorldId, on: Option<PcpuId>, part: &Part, cast: &Cast) {
        self.sums.add(world, part);
        let counts = match part.state {
            State::Run => Some(Counts::Run),
            State::Ready if part.limited => Some(Counts::Limited),
            State::Ready => Some(Counts::Ready),
            State::Costop => Some(Counts::Costop),
            State::Wait | State::WaitIdle | State::None => None,
        };
        if let (Some(counts), Some(vm)) = (counts, cast.vm_of(world)) {
            self.buckets.add(vm, counts, part.from, part.to);
        }
        let state = if part.limited { 6 } else { u32::from(part.state.code()) };
        let on = on
            .filter(|_| matches!(part.state, State::Run | State::Ready))
            .map_or(0, |p| u32::from(p.0) + 1);
        self.world_lanes.entry(world).or_default().push(part.from, part.to, 8 * on + state);
    }
}
