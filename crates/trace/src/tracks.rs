//! What exports draw: tracks of pCPUs and worlds, slices, arrows from waker to woken, counters; it
//! knows no file format.

use crate::{Event, Kind, Names, Now, Replay, State, Waker};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use units::{PcpuId, Rate, VmId, WorldId};

/// A line of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Track {
    /// Heading above all pCPUs, with what concerns no single pCPU.
    Host,
    /// What a pCPU runs.
    Pcpu(PcpuId),
    /// Heading above the worlds of a VM; none for worlds of unknown VMs.
    Vm(Option<VmId>),
    /// States of a world.
    World(Option<VmId>, WorldId),
    /// CPU time that a VM uses, in percent of one pCPU.
    Used(VmId),
    /// What a VM is entitled to, in percent of one pCPU.
    Entitled(VmId),
    /// Part of a VM's memory that is at home, in percent.
    Local(VmId),
    /// Worlds that wait.
    Waiting,
    /// pCPUs that idle.
    Idle,
}

/// An end of an arrow, by the arrow's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    From(u64),
    To(u64),
}

/// Where a picture is drawn. Times are in ns and never go back.
pub(crate) trait Sink {
    fn track(&mut self, track: Track, name: &str) -> io::Result<()>;
    fn begin(
        &mut self,
        ns: u64,
        track: Track,
        name: &str,
        notes: &[(&str, String)],
        flow: Option<Flow>,
    ) -> io::Result<()>;
    fn end(&mut self, ns: u64, track: Track) -> io::Result<()>;
    fn instant(&mut self, ns: u64, track: Track, name: &str, flow: Option<Flow>) -> io::Result<()>;
    fn counter(&mut self, ns: u64, track: Track, value: f64) -> io::Result<()>;
}

/// Draws these events, which are in the order of time.
pub(crate) fn draw(events: &[Event], sink: &mut impl Sink) -> io::Result<()> {
    let mut names = Names::default();
    events.iter().for_each(|e| names.take(e));
    let mut drawer = Drawer {
        sink,
        names,
        replay: Replay::new(),
        open: BTreeSet::new(),
        arrows: BTreeMap::new(),
        next: 1,
        used: BTreeMap::new(),
        counts: (0, 0),
    };
    drawer.tracks(events)?;
    for event in events {
        drawer.event(event)?;
    }
    let ended = drawer.replay.finish().clone();
    drawer.ends(&ended)
}

struct Drawer<'a, S: Sink> {
    sink: &'a mut S,
    names: Names,
    replay: Replay,
    /// Worlds of which a slice is open.
    open: BTreeSet<WorldId>,
    /// Arrows that lead to a world that is not READY yet.
    arrows: BTreeMap<WorldId, u64>,
    next: u64,
    used: BTreeMap<VmId, (u64, u64)>,
    counts: (usize, usize),
}

impl<S: Sink> Drawer<'_, S> {
    fn of(&self, world: WorldId) -> Track {
        Track::World(self.names.vm_of(world).map(|v| v.0), world)
    }

    /// Every track that will be drawn on, headings before what is below them.
    fn tracks(&mut self, events: &[Event]) -> io::Result<()> {
        let mut all = BTreeSet::from([Track::Host, Track::Waiting, Track::Idle]);
        for event in events {
            all.extend(event.pcpu.map(Track::Pcpu));
            match &event.kind {
                Kind::State { world, on, .. } => {
                    all.extend(on.map(Track::Pcpu));
                    all.insert(self.of(*world));
                }
                Kind::Wake { world, by } => {
                    all.insert(self.of(*world));
                    if let Waker::World(w) = by {
                        all.insert(self.of(*w));
                    }
                }
                Kind::Migrate { world, .. } => {
                    all.insert(self.of(*world));
                }
                Kind::Account { vm, .. } => {
                    all.extend([Track::Vm(Some(*vm)), Track::Used(*vm), Track::Entitled(*vm)])
                }
                Kind::Memory { vm, places: Some(_), .. } => {
                    all.extend([Track::Vm(Some(*vm)), Track::Local(*vm)]);
                }
                _ => {}
            }
        }
        let vms: Vec<Track> = all
            .iter()
            .filter_map(|t| if let Track::World(vm, _) = t { Some(Track::Vm(*vm)) } else { None })
            .collect();
        all.extend(vms);
        for track in all {
            let name = match track {
                Track::Host => "pCPUs".to_owned(),
                Track::Pcpu(p) => match self.names.place(p) {
                    Some(at) => format!(
                        "pCPU {} (node {}, LLC {}, core {}, thread {})",
                        p.0, at.node, at.llc, at.core, at.smt
                    ),
                    None => format!("pCPU {}", p.0),
                },
                Track::Vm(vm) => vm.map_or("no VM".to_owned(), |vm| self.names.vm(vm)),
                Track::World(_, w) => self.names.world(w),
                Track::Used(vm) => format!("{}: used, % of a pCPU", self.names.vm(vm)),
                Track::Entitled(vm) => format!("{}: entitled, % of a pCPU", self.names.vm(vm)),
                Track::Local(vm) => format!("{}: memory at home, %", self.names.vm(vm)),
                Track::Waiting => "worlds READY".to_owned(),
                Track::Idle => "pCPUs idle".to_owned(),
            };
            self.sink.track(track, &name)?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let ended = self.replay.step(event).clone();
        let ns = self.replay.ns();
        self.ends(&ended)?;
        for s in &ended.stretches {
            let Some((now, _)) = self.replay.pcpus().get(usize::from(s.pcpu.0)) else { continue };
            match now {
                Now::World(w) => {
                    let notes = [("world", w.0.to_string())];
                    self.sink.begin(
                        ns,
                        Track::Pcpu(s.pcpu),
                        &self.names.world(*w),
                        &notes,
                        None,
                    )?;
                }
                Now::Other => {
                    self.sink.begin(ns, Track::Pcpu(s.pcpu), "something else", &[], None)?
                }
                Now::Kept => {
                    let name = "kept for the world beside it";
                    self.sink.begin(ns, Track::Pcpu(s.pcpu), name, &[], None)?
                }
                Now::Off => self.sink.begin(ns, Track::Pcpu(s.pcpu), "off line", &[], None)?,
                Now::Idle | Now::Unknown => {}
            }
        }
        match &event.kind {
            Kind::State { world, .. } => self.state(*world)?,
            Kind::Wake { world, by } => self.wake(ns, *world, *by, event.pcpu)?,
            Kind::Migrate { world, from, to, .. } => {
                let from = from.map_or("?".to_owned(), |p| p.0.to_string());
                self.sink.instant(
                    ns,
                    self.of(*world),
                    &format!("migrates {from} to {}", to.0),
                    None,
                )?;
            }
            Kind::Kick { target, how } => {
                let track = event.pcpu.map_or(Track::Host, Track::Pcpu);
                self.sink.instant(
                    ns,
                    track,
                    &format!("kicks {} ({})", target.0, how.name()),
                    None,
                )?;
            }
            Kind::Account { vm, used_ns, entitled } => {
                self.account(ns, *vm, *used_ns, *entitled)?
            }
            Kind::Memory { vm, places: Some((local, remote)), .. } => {
                let all = local.saturating_add(*remote).max(1);
                self.sink.counter(ns, Track::Local(*vm), *local as f64 * 100.0 / all as f64)?;
            }
            Kind::Mark { text } => self.sink.instant(ns, Track::Host, text, None)?,
            Kind::Lost { events } => {
                let many = events.map_or("an unknown number of".to_owned(), |n| n.to_string());
                self.sink.instant(ns, Track::Host, &format!("LOST {many} events"), None)?;
                self.arrows.clear();
            }
            _ => {}
        }
        self.counts(ns)
    }

    fn ends(&mut self, ended: &crate::Ended) -> io::Result<()> {
        let ns = self.replay.ns();
        for s in &ended.stretches {
            if matches!(s.now, Now::World(_) | Now::Other | Now::Kept | Now::Off) {
                self.sink.end(ns, Track::Pcpu(s.pcpu))?;
            }
        }
        for stay in &ended.stays {
            if self.open.remove(&stay.world) {
                self.sink.end(ns, self.of(stay.world))?;
            }
        }
        Ok(())
    }

    fn state(&mut self, world: WorldId) -> io::Result<()> {
        let Some(now) = self.replay.world(world).filter(|_| !self.open.contains(&world)) else {
            return Ok(());
        };
        let mut notes = vec![("why", now.why.name().to_owned())];
        notes.extend(now.on.map(|p| ("pCPU", p.0.to_string())));
        let flow =
            if now.state == State::Ready { self.arrows.remove(&world).map(Flow::To) } else { None };
        self.sink.begin(now.since_ns, self.of(world), now.state.name(), &notes, flow)?;
        self.open.insert(world);
        Ok(())
    }

    /// An arrow from the waker to where the woken becomes READY. An interrupt's begins on the pCPU
    /// that took it.
    fn wake(&mut self, ns: u64, world: WorldId, by: Waker, pcpu: Option<PcpuId>) -> io::Result<()> {
        let from = match by {
            Waker::World(w) => self.of(w),
            Waker::Interrupt | Waker::Unknown => pcpu.map_or(Track::Host, Track::Pcpu),
        };
        let state = self.replay.world(world).map(|n| n.state);
        if state == Some(State::Run) {
            return self.sink.instant(
                ns,
                from,
                &format!("wakes {}, which runs", self.names.world(world)),
                None,
            );
        }
        let arrow = self.next;
        self.next += 1;
        self.sink.instant(
            ns,
            from,
            &format!("wakes {}", self.names.world(world)),
            Some(Flow::From(arrow)),
        )?;
        if state == Some(State::Ready) {
            return self.sink.instant(ns, self.of(world), "woken", Some(Flow::To(arrow)));
        }
        self.arrows.insert(world, arrow);
        Ok(())
    }

    fn account(&mut self, ns: u64, vm: VmId, used_ns: u64, entitled: u64) -> io::Result<()> {
        let last = self.used.insert(vm, (ns, used_ns));
        if let Some((then, before)) = last.filter(|l| l.0 < ns && l.1 <= used_ns) {
            self.sink.counter(
                ns,
                Track::Used(vm),
                (used_ns - before) as f64 * 100.0 / (ns - then) as f64,
            )?;
        }
        self.sink.counter(ns, Track::Entitled(vm), entitled as f64 * 100.0 / Rate::ONE.0 as f64)
    }

    fn counts(&mut self, ns: u64) -> io::Result<()> {
        let (waiting, idle) = (self.replay.ready().len(), self.replay.idle_pcpus());
        let last = std::mem::replace(&mut self.counts, (waiting, idle));
        if last.0 != waiting {
            self.sink.counter(ns, Track::Waiting, waiting as f64)?;
        }
        if last.1 != idle {
            self.sink.counter(ns, Track::Idle, idle as f64)?;
        }
        Ok(())
    }
}
