//! How far the vCPUs of a VM drift apart while co-scheduling bounds their skew; it knows nothing of
//! lag.
//!
//! Law (VS51 "Relaxed Co-Scheduling"): a vCPU makes progress when it runs in its guest or is
//! halted; time outside its guest, in its emulator's code, is left out. Its stall is its time in
//! READY and COSTOP. The lead of a running vCPU is the stall of the slowest of its siblings that
//! want to run − its own stall, since both want to run: a vCPU that was halted, or outside its
//! guest, has kept pace. A lead grows only while its vCPU runs, so it is checked when the run ends,
//! when the vCPU leaves its guest, and with every window.
//!
//! Limits: the first 64 vCPUs of a VM.

use crate::{Bounds, Invariant, Oracle, State};
use std::cmp::Ordering;
use units::{VmId, WorldId};

/// When vCPUs are to be stopped, in ns; see `sched/law/skew.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoschedTerms {
    /// Lead beyond which one stops.
    pub costop_ns: u64,
    /// Lead that one may have when it wakes.
    pub costart_ns: u64,
    /// How often leads are looked at.
    pub poll_ns: u64,
    /// Lead that siblings may have had already when the oracle began to watch: 0 where it watched
    /// from the first on.
    pub apart_ns: u64,
}

impl CoschedTerms {
    /// The bound on skew, a sum: the threshold; `costart_ns`, by which a vCPU may lag in the
    /// scheduler's accounts when this count begins; a period above the threshold while no lagging
    /// vCPU waits; a period until the tick sees that one does, or `costop_ns - costart_ns` more if
    /// no two vCPUs wanted to run before; the delay of the look that gave the slowest's stall when
    /// a sibling woke; two periods for siblings that could not take their pCPU after all; and an
    /// interrupt. docs/design/018-bounds.md has what random hosts reach.
    #[must_use]
    pub fn skew_max_ns(&self) -> u64 {
        3 * self.costop_ns - self.costart_ns + 5 * self.poll_ns + 100_000 + self.apart_ns
    }
}

#[derive(Clone, Copy, Debug)]
struct Vcpu {
    world: u32,
    state: State,
    since: u64,
    stalled: i64,
    /// In its emulator's code, and not in its guest.
    outside: bool,
    /// This run, or this co-stop, has been reported.
    told: bool,
}

impl Vcpu {
    fn stalled(&self, now: u64) -> i64 {
        let waits = matches!(self.state, State::Ready | State::Costop);
        self.stalled + if waits { (now - self.since) as i64 } else { 0 }
    }
}

/// What is wrong with a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drift {
    /// It runs and leads by so much.
    Leads(u64),
    /// It has been co-stopped for so long.
    Stopped(u64),
}

/// vCPUs of a VM that are looked at.
const CREW_MAX: usize = 64;

/// The vCPUs of a VM.
#[derive(Clone, Debug, Default)]
struct Crew {
    vcpus: Vec<Vcpu>,
    /// For each two, what the one that joined first had been stalled more than the other when they
    /// began to want to run both: those of the second vCPU, then those of the third, and so on.
    from: Vec<i64>,
}

/// Place of a pair among all, the one that joined later first.
fn pair(later: usize, earlier: usize) -> usize {
    later * (later - 1) / 2 + earlier
}

impl Crew {
    /// One joins; what the others are apart stays.
    fn join(&mut self, vcpu: Vcpu) {
        self.from.resize(self.from.len() + self.vcpus.len(), 0);
        self.vcpus.push(vcpu);
        self.wakes(self.vcpus.len() - 1, vcpu.since);
    }

    /// One leaves; what the others are apart stays.
    fn part(&mut self, at: usize) {
        let all = (1..self.vcpus.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let kept = all.filter(|(a, b)| *a != at && *b != at);
        self.from = kept.map(|(a, b)| self.from[pair(a, b)]).collect();
        self.vcpus.remove(at);
    }

    /// One wants to run from now on.
    fn wakes(&mut self, at: usize, now: u64) {
        let own = self.vcpus[at].stalled(now);
        for (i, v) in self.vcpus.iter().enumerate() {
            let more = v.stalled(now) - own;
            match i.cmp(&at) {
                Ordering::Less => self.from[pair(at, i)] = more,
                Ordering::Equal => {}
                Ordering::Greater => self.from[pair(i, at)] = -more,
            }
        }
    }

    /// What another had been stalled more than one when they began to want to run both.
    fn apart(&self, one: usize, other: usize) -> i64 {
        if other < one { self.from[pair(one, other)] } else { -self.from[pair(other, one)] }
    }

    /// What is to be said of one.
    fn drift(&self, at: usize, now: u64) -> Option<Drift> {
        let own = &self.vcpus[at];
        match own.state {
            State::Run if own.outside => None,
            State::Run => {
                let others = self
                    .vcpus
                    .iter()
                    .enumerate()
                    .filter(|(i, v)| *i != at && v.state.is_runnable() && !v.outside);
                let lead = others
                    .map(|(i, v)| v.stalled(now) - own.stalled(now) - self.apart(at, i))
                    .max();
                lead.map(|ns| Drift::Leads(ns.max(0) as u64))
            }
            State::Costop => Some(Drift::Stopped(now - own.since)),
            _ => None,
        }
    }
}

/// The vCPUs of a host's VMs.
#[derive(Clone, Debug)]
pub(crate) struct Skew {
    pub(crate) terms: Option<CoschedTerms>,
    costop_max: u64,
    /// By id.
    vms: Vec<Crew>,
    /// Of each world that is a vCPU its VM, and its place there.
    of: Vec<Option<(u16, u8)>>,
    pub(crate) longest_lead: u64,
    pub(crate) longest_stop: u64,
}

impl Skew {
    pub(crate) fn new(bounds: &Bounds) -> Skew {
        Skew {
            terms: None,
            costop_max: bounds.ready_max_ns,
            vms: vec![],
            of: vec![],
            longest_lead: 0,
            longest_stop: 0,
        }
    }

    pub(crate) fn add(&mut self, now: u64, world: WorldId, vm: VmId, state: State) {
        let (at, id) = (world.0 as usize, vm.0 as usize);
        if self.vms.len() <= id {
            self.vms.resize_with(id + 1, Crew::default);
        }
        let crew = &mut self.vms[id];
        if crew.vcpus.len() == CREW_MAX {
            return;
        }
        if self.of.len() <= at {
            self.of.resize(at + 1, None);
        }
        self.of[at] = Some((vm.0, crew.vcpus.len() as u8));
        crew.join(Vcpu {
            world: world.0,
            state,
            since: now,
            stalled: 0,
            outside: false,
            told: false,
        });
    }

    pub(crate) fn remove(&mut self, world: WorldId) {
        let Some((vm, at)) = self.of.get_mut(world.0 as usize).and_then(Option::take) else {
            return;
        };
        let crew = &mut self.vms[vm as usize];
        crew.part(at as usize);
        for (i, v) in crew.vcpus.iter().enumerate().skip(at as usize) {
            self.of[v.world as usize] = Some((vm, i as u8));
        }
    }

    /// The VM of a vCPU, and its place there.
    fn seat(&self, world: WorldId) -> Option<(u16, usize)> {
        let (vm, at) = self.of.get(world.0 as usize).copied().flatten()?;
        Some((vm, at as usize))
    }

    /// A world goes over to a state; what is wrong with what it did until now.
    pub(crate) fn turn(&mut self, now: u64, world: WorldId, next: State) -> Option<Drift> {
        self.terms?;
        let (vm, at) = self.seat(world)?;
        let crew = &mut self.vms[vm as usize];
        let (own, drift) = (crew.vcpus[at], crew.drift(at, now));
        crew.vcpus[at] =
            Vcpu { state: next, since: now, stalled: own.stalled(now), told: false, ..own };
        if !own.state.is_runnable() && next.is_runnable() {
            crew.wakes(at, now);
        }
        self.note(drift);
        drift.filter(|_| !own.told).filter(|d| self.is_wrong(*d))
    }

    /// One enters its guest, or leaves it; its VM, and what is wrong with what it did until now.
    pub(crate) fn cross(
        &mut self,
        now: u64,
        world: WorldId,
        inside: bool,
    ) -> Option<(VmId, Drift)> {
        let (vm, at) = self.seat(world)?;
        let crew = &mut self.vms[vm as usize];
        let (told, drift) = (crew.vcpus[at].told, crew.drift(at, now));
        crew.vcpus[at].outside = !inside;
        if inside {
            crew.wakes(at, now);
        }
        self.terms?;
        self.note(drift);
        drift.filter(|d| !told && self.is_wrong(*d)).map(|d| (VmId(vm), d))
    }

    fn note(&mut self, drift: Option<Drift>) {
        match drift {
            Some(Drift::Leads(ns)) => self.longest_lead = self.longest_lead.max(ns),
            Some(Drift::Stopped(ns)) => self.longest_stop = self.longest_stop.max(ns),
            None => {}
        }
    }

    fn is_wrong(&self, drift: Drift) -> bool {
        match drift {
            Drift::Leads(ns) => self.terms.is_some_and(|t| ns > t.skew_max_ns()),
            Drift::Stopped(ns) => ns > self.costop_max,
        }
    }

    /// A violation at `now` that has not been reported, with its VM and world.
    pub(crate) fn look(&mut self, now: u64) -> Vec<(VmId, WorldId, Drift)> {
        if self.terms.is_none() {
            return vec![];
        }
        let mut all = vec![];
        for (vm, crew) in (0..).zip(&self.vms) {
            let drifts = (0..crew.vcpus.len()).filter(|i| !crew.vcpus[*i].told);
            all.extend(drifts.filter_map(|i| {
                Some((VmId(vm), WorldId(crew.vcpus[i].world), crew.drift(i, now)?))
            }));
        }
        all.iter().for_each(|d| self.note(Some(d.2)));
        all.retain(|d| self.is_wrong(d.2));
        for (_, world, _) in &all {
            if let Some((vm, at)) = self.seat(*world) {
                self.vms[vm as usize].vcpus[at].told = true;
            }
        }
        all
    }
}

impl Oracle {
    /// vCPUs are held together from now on.
    pub fn cosched(&mut self, terms: CoschedTerms) {
        // A look comes as late as its timer.
        let poll_ns = terms.poll_ns + self.bounds.timer_late_ns;
        self.skew.terms = Some(CoschedTerms { poll_ns, ..terms });
    }

    /// A vCPU enters its guest, or leaves it for its emulator; it counts as inside until it has
    /// left.
    pub fn guest(&mut self, now_ns: u64, world: WorldId, inside: bool) {
        let now = self.advance(now_ns);
        if let Some((vm, drift)) = self.skew.cross(now, world, inside) {
            self.drifted(now, vm, world, drift);
        }
    }

    /// A world that was added is a vCPU.
    pub fn vcpu(&mut self, world: WorldId) {
        if let Some((vm, state, now)) =
            self.world(world).map(|w| (w.vm, w.life.state, w.life.since))
        {
            self.skew.add(now, world, vm, state);
        }
    }

    pub(crate) fn drifted(&mut self, now: u64, vm: VmId, world: WorldId, drift: Drift) {
        let (what, verb, ns, max) = match drift {
            Drift::Leads(ns) => {
                (Invariant::Skew, "a lead of", ns, self.skew.terms.map_or(0, |t| t.skew_max_ns()))
            }
            Drift::Stopped(ns) => {
                (Invariant::CostopTooLong, "COSTOP for", ns, self.bounds.ready_max_ns)
            }
        };
        self.violated(
            now,
            what,
            Some(vm),
            Some(world),
            None,
            (format!("{verb} {ns} ns"), format!("{max} ns")),
        );
    }
}
