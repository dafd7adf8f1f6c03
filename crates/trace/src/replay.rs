//! Events turned into the state of every pCPU and world at a time, and into stays that ended; it
//! judges none of them.
//!
//! A pCPU idles when the world on it stops and none has begun to run, as in RDY's state table; an
//! `Idle` event has it as well, and where an idle time ends and no world runs, something runs there
//! that the trace does not name. States without an event are unknown, and after lost events
//! everything is unknown again.

use crate::{Event, Kind, Names, Queue, State, Waker, Why};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use units::{PcpuId, WorldId};

/// What a pCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Now {
    /// Unknown.
    Unknown,
    /// Nothing.
    Idle,
    /// Nothing, so that a world has the core alone.
    Kept,
    /// Something that the trace does not name.
    Other,
    /// It is off line.
    Off,
    /// It runs a world.
    World(WorldId),
}

/// As in RDY's table: `I`, or the world's number; `?` is unknown, `*` something else, `K` kept,
/// `-` off line.
impl fmt::Display for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Now::Unknown => f.pad("?"),
            Now::Idle => f.pad("I"),
            Now::Kept => f.pad("K"),
            Now::Other => f.pad("*"),
            Now::Off => f.pad("-"),
            Now::World(w) => f.pad(&w.0.to_string()),
        }
    }
}

impl Serialize for Now {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// State of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldNow {
    /// Its state.
    pub state: State,
    /// Since when, in ns.
    pub since_ns: u64,
    /// Whether it was seen to begin. If not, it is as old as `since_ns` or older.
    pub begun: bool,
    /// State before, as far as it is known.
    pub before: Option<State>,
    /// Why it came into this state.
    pub why: Why,
    /// Where it runs, or in which pCPU's queue it is.
    pub on: Option<PcpuId>,
    /// Its waker, if a wake-up led to this state.
    pub waker: Option<Waker>,
    /// Since when a limit parks it, in ns.
    pub held_since: Option<u64>,
    held: Vec<(u64, u64)>,
}

/// How a stay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Another state followed.
    Became(State),
    /// It lasted when the trace ended.
    Open,
    /// Events were lost.
    Lost,
}

/// A stay of a world in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The world.
    pub world: WorldId,
    /// How it was: state, since when and the rest.
    pub was: WorldNow,
    /// When it ended, in ns.
    pub to_ns: u64,
    /// How it ended.
    pub end: End,
    /// Spans in which a limit held it back, in ns.
    pub held: Vec<(u64, u64)>,
    /// pCPU that the next state is on.
    pub next_on: Option<PcpuId>,
}

/// An interval in which a pCPU did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Which pCPU.
    pub pcpu: PcpuId,
    /// What it did.
    pub now: Now,
    /// From when, in ns.
    pub from_ns: u64,
    /// Until when, in ns.
    pub to_ns: u64,
}

/// What one event ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Stays of worlds.
    pub stays: Vec<Stay>,
    /// Intervals of pCPUs.
    pub stretches: Vec<Stretch>,
}

/// The host as the events so far tell it.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    ns: u64,
    pcpus: Vec<(Now, u64)>,
    worlds: BTreeMap<WorldId, WorldNow>,
    ready: BTreeSet<WorldId>,
    idle: usize,
    wakers: BTreeMap<WorldId, Waker>,
    names: Names,
    late: u64,
    ended: Ended,
}

impl Replay {
    /// A host of which nothing is known.
    #[must_use]
    pub fn new() -> Replay {
        Replay::default()
    }

    /// Time of the latest event, in ns.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.ns
    }

    /// Every known pCPU: what it does and since when, in ns.
    #[must_use]
    pub fn pcpus(&self) -> &[(Now, u64)] {
        &self.pcpus
    }

    /// A world's state; none if it is not known.
    #[must_use]
    pub fn world(&self, world: WorldId) -> Option<&WorldNow> {
        self.worlds.get(&world)
    }

    /// Every world whose state is known, by its number.
    pub fn worlds(&self) -> impl Iterator<Item = (WorldId, &WorldNow)> {
        self.worlds.iter().map(|(w, n)| (*w, n))
    }

    /// Worlds that are READY, by number.
    pub fn ready(&self) -> impl ExactSizeIterator<Item = WorldId> {
        self.ready.iter().copied()
    }

    /// How many pCPUs idle.
    #[must_use]
    pub fn idle_pcpus(&self) -> usize {
        self.idle
    }

    /// Names so far.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Events that came with a time before the one of an event before them; they are taken as if at
    /// that one's.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Takes the next event, and says what ended by it.
    pub fn step(&mut self, event: &Event) -> &Ended {
        self.ended = Ended::default();
        if !event.kind.is_name() {
            self.late += u64::from(event.ns < self.ns);
            self.ns = self.ns.max(event.ns);
        }
        if let Some(p) = event.pcpu {
            self.know(p);
        }
        self.names.take(event);
        match &event.kind {
            Kind::State { world, from, to, why, on } => {
                self.state(*world, *from, *to, *why, on.or(event.pcpu))
            }
            Kind::Wake { world, by } => self.wake(*world, *by),
            Kind::Queued { world, queue, .. } => self.queued(*world, *queue),
            Kind::Migrate { world, to, .. } => {
                if let Some(now) = self.worlds.get_mut(world).filter(|n| n.state == State::Ready) {
                    now.on = Some(*to);
                }
            }
            Kind::Switch { to, .. } => {
                if let Some(p) = event.pcpu {
                    self.set(p, to.map_or(Now::Idle, Now::World));
                }
            }
            Kind::Idle { begins } => self.idling(event.pcpu, *begins),
            Kind::Kept => {
                if let Some(p) = event.pcpu {
                    self.set(p, Now::Kept);
                }
            }
            Kind::Offline => {
                if let Some(p) = event.pcpu {
                    self.set(p, Now::Off);
                }
            }
            Kind::Host { pcpus } => {
                if let Some(last) = pcpus.checked_sub(1) {
                    self.know(PcpuId(last));
                }
            }
            Kind::Lost { .. } => self.end_all(End::Lost),
            _ => {}
        }
        &self.ended
    }

    /// Ends everything at the time of the latest event.
    pub fn finish(&mut self) -> &Ended {
        self.ended = Ended::default();
        self.end_all(End::Open);
        &self.ended
    }

    fn know(&mut self, p: PcpuId) {
        let want = usize::from(p.0) + 1;
        if self.pcpus.len() < want {
            self.pcpus.resize(want, (Now::Unknown, self.ns));
        }
    }

    fn now(&mut self, p: PcpuId) -> Now {
        self.know(p);
        self.pcpus[usize::from(p.0)].0
    }

    fn set(&mut self, p: PcpuId, next: Now) {
        self.know(p);
        let (now, since) = self.pcpus[usize::from(p.0)];
        if now != next {
            self.ended.stretches.push(Stretch { pcpu: p, now, from_ns: since, to_ns: self.ns });
            self.idle = self.idle + usize::from(next == Now::Idle) - usize::from(now == Now::Idle);
            self.pcpus[usize::from(p.0)] = (next, self.ns);
        }
    }

    fn idling(&mut self, pcpu: Option<PcpuId>, begins: bool) {
        let Some(p) = pcpu else { return };
        match (begins, self.now(p)) {
            (true, _) => self.set(p, Now::Idle),
            (false, Now::Idle | Now::Kept | Now::Off | Now::Unknown) => self.set(p, Now::Other),
            (false, _) => {}
        }
    }

    fn wake(&mut self, world: WorldId, by: Waker) {
        match self.worlds.get_mut(&world) {
            Some(now) if now.state == State::Ready => now.waker = now.waker.or(Some(by)),
            // A running world is not asleep: the wake-up came too late to do anything.
            Some(now) if now.state == State::Run => {}
            _ => {
                self.wakers.insert(world, by);
            }
        }
    }

    fn queued(&mut self, world: WorldId, queue: Queue) {
        let ns = self.ns;
        let Some(now) = self.worlds.get_mut(&world).filter(|n| n.state == State::Ready) else {
            return;
        };
        match queue {
            Queue::Pcpu(p) => {
                now.release(ns);
                now.on = Some(p);
            }
            Queue::Limit(_) => now.held_since = now.held_since.or(Some(ns)),
        }
    }

    fn state(
        &mut self,
        world: WorldId,
        from: Option<State>,
        to: State,
        why: Why,
        on: Option<PcpuId>,
    ) {
        let ns = self.ns;
        if let Some(now) = self.worlds.get_mut(&world).filter(|n| n.state == to) {
            now.on = on.or(now.on);
            match why {
                Why::Parked => now.held_since = now.held_since.or(Some(ns)),
                Why::Released => now.release(ns),
                _ => {}
            }
        } else {
            self.change(world, from, to, why, on);
        }
        if let (State::Run, Some(p)) = (to, on) {
            self.set(p, Now::World(world));
        }
    }

    fn change(
        &mut self,
        world: WorldId,
        from: Option<State>,
        to: State,
        why: Why,
        on: Option<PcpuId>,
    ) {
        let old = self.worlds.remove(&world);
        self.ready.remove(&world);
        // Only a running world falls asleep or co-stops (VS51).
        let ran = match &old {
            Some(old) => old.state == State::Run,
            None => {
                from == Some(State::Run)
                    || matches!(to, State::Wait | State::WaitIdle | State::Costop) && from.is_none()
            }
        };
        if let Some(p) = old.as_ref().and_then(|o| o.on).or(on).filter(|_| ran) {
            let unseen = old.is_none() && self.now(p) == Now::Unknown;
            if self.now(p) == Now::World(world) || unseen {
                // One that stops for another and still wants to run does not leave it idle: until
                // the next is seen there, a task runs that no trace names, such as a real-time one.
                let for_another = [Why::Quantum, Why::Preempted, Why::Skewed, Why::Taken];
                let taken = to == State::Ready && for_another.contains(&why);
                self.set(p, if taken { Now::Other } else { Now::Idle });
            }
        }
        let before = old.as_ref().map(|o| o.state).or(from);
        let waker = if to == State::Ready { self.wakers.remove(&world) } else { None };
        let pcpu = on.or(old.as_ref().and_then(|o| o.on));
        if let Some(old) = old {
            self.end(world, old, End::Became(to), on);
        }
        if to == State::None {
            self.wakers.remove(&world);
            return;
        }
        let held_since = (to == State::Ready && why == Why::Parked).then_some(self.ns);
        let begun = why != Why::Told;
        let now = WorldNow {
            state: to,
            since_ns: self.ns,
            begun,
            before,
            why,
            on: pcpu,
            waker,
            held_since,
            held: vec![],
        };
        self.worlds.insert(world, now);
        if to == State::Ready {
            self.ready.insert(world);
        }
    }

    fn end(&mut self, world: WorldId, mut was: WorldNow, end: End, next_on: Option<PcpuId>) {
        was.release(self.ns);
        let held = std::mem::take(&mut was.held);
        self.ended.stays.push(Stay { world, was, to_ns: self.ns, end, held, next_on });
    }

    fn end_all(&mut self, end: End) {
        for (world, was) in std::mem::take(&mut self.worlds) {
            self.end(world, was, end, None);
        }
        for p in 0..self.pcpus.len() {
            self.set(PcpuId(p as u16), Now::Unknown);
        }
        self.ready.clear();
        self.wakers.clear();
    }
}

impl WorldNow {
    fn release(&mut self, ns: u64) {
        if let Some(since) = self.held_since.take() {
            self.held.push((since, ns));
        }
    }
}
