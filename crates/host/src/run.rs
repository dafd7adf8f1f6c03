//! The daemon: loads the scheduler, follows VMs as they start, stop, gain and lose threads, puts
//! their plan into force, and takes over changed settings.
//!
//! It is off the critical path: while it is stopped, slow or dead, VMs run on under the last plan
//! or the kernel's own scheduler.

use crate::{
    Ejections, ExitReason, HostError, Live, Names, Reloaded, Speed,
    cgroups::Cgroups,
    discover::{Finder, FoundVm, Roots},
    guests::Guests,
    held::Held,
    layout::{Known, layout},
    live::{self, Event},
    reload::{AGAIN, Reload, Verdict, wall_ns},
    reported::Conditions,
    slots::Slots,
};
use ::publish::Limits;
use entitlement::{REPLAN, Tree};
use sched_core::Knobs;
use settings::LiveSettings;
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};
use topology::Topology;
use units::{PcpuSet, caps::SHARES_MAX};

/// How the daemon runs.
pub struct Options {
    /// The settings file, to be read again; `None` if there is none.
    pub file: Option<PathBuf>,
    /// Its content at the start.
    pub settings: LiveSettings,
    /// Knobs in force.
    pub knobs: Knobs,
    /// Where people read what it does.
    pub say: Box<dyn Fn(&str)>,
    /// Becomes true when it shall leave.
    pub stop: Box<dyn Fn() -> bool>,
    /// True once after it was asked to read its settings file again.
    pub reload: Box<dyn Fn() -> bool>,
    /// Print what libbpf and the verifier say.
    pub verbose: bool,
}

/// What outlives a load of the scheduler.
struct InForce {
    settings: LiveSettings,
    reloads: u64,
    /// Of these so many were taken over.
    taken: u64,
}

pub(crate) struct Daemon<'a> {
    pub(crate) live: &'a Live,
    pub(crate) options: &'a Options,
    in_force: &'a mut InForce,
    pub(crate) roots: Roots,
    pub(crate) finder: Finder,
    guests: Guests,
    pub(crate) loaded: Instant,
    speed: Speed,
    /// Those that are online.
    pub(crate) pcpus: PcpuSet,
    pub(crate) slots: Slots,
    /// What the plan was made from.
    pub(crate) seen: Option<(Vec<FoundVm>, Cgroups)>,
    pub(crate) names: Names,
    pub(crate) tree: Tree,
    pub(crate) system_weight: u64,
    /// Slots of limits; a VM is its process and that one's start.
    pub(crate) limits: Limits<(i32, u64)>,
    pub(crate) limits_refused: Option<String>,
    pub(crate) generation: u64,
    pub(crate) published: Option<Instant>,
    pub(crate) held: Held,
    reloading: Option<Reload>,
    pub(crate) conditions: Conditions,
}

/// Period of the scan: a change of cpu.weight or cpu.max is in force within a second.
const SCAN: Duration = Duration::from_millis(500);

/// The ring buffer takes whole milliseconds, and 0 would not wait at all.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Loads the scheduler and runs until a signal or the kernel ends it; loads it again when pCPUs go
/// on or off line.
///
/// # Errors
/// `HostError::Load` if the kernel refuses it, `HostError::Ejected` if the kernel ended it,
/// whatever `topology` says.
pub fn run(
    topology: &dyn Fn() -> Result<Topology, HostError>,
    options: &Options,
) -> Result<(), HostError> {
    live::come_first();
    let mut in_force = InForce { settings: options.settings.clone(), reloads: 0, taken: 0 };
    while let Some(reason) = once(topology, options, &mut in_force)? {
        // One of kind 0 was our own doing.
        if reason.kind != 0 {
            if let Err(e) = Ejections::count(reason.restart) {
                (options.say)(&e.to_string());
            }
        }
        if !reason.restart {
            return Err(HostError::Ejected { reason: reason.text });
        }
        (options.say)(&format!("the host's pCPUs have changed ({}): loading anew", reason.text));
    }
    (options.say)("left: every task is with the kernel's own scheduler");
    Ok(())
}

/// One load, until a signal (`None`) or the kernel ends it.
fn once(
    read: &dyn Fn() -> Result<Topology, HostError>,
    options: &Options,
    in_force: &mut InForce,
) -> Result<Option<ExitReason>, HostError> {
    let begin = Instant::now();
    let topology = &read()?;
    let mut live = Live::load(topology, options.knobs, options.verbose)?;
    // Everything that takes long is done before the scheduler is attached: the daemon comes first
    // on its pCPU, also while the kernel verifies programs for it; and until VMs are known their
    // threads compete with it as host tasks.
    let mut guests = Guests::Unknown;
    guests.hook(live.maps(), options.knobs, &options.say);
    let (roots, mut finder) = (Roots::default(), Finder::default());
    let found = finder.scan(&roots);
    live.attach()?;
    (options.say)(&format!(
        "loaded in {:.2} s: {} pCPUs, every task of the fair class is a world now; the kernel \
            verified {} instructions for it",
        begin.elapsed().as_secs_f64(),
        topology.online().len(),
        live.verified_instructions(),
    ));
    let mut daemon =
        Daemon::new(&live, options, in_force, (roots, finder, guests), topology.online().clone());
    daemon.take(found)?;
    if read()? != *topology {
        // The kernel tells of a pCPU only once a scheduler is attached.
        live.stop();
        return Ok(Some(ExitReason {
            kind: 0,
            restart: true,
            text: "while it was being loaded".to_owned(),
        }));
    }
    let ended = daemon.follow()?;
    live.stop();
    Ok(ended)
}

impl<'a> Daemon<'a> {
    fn new(
        live: &'a Live,
        options: &'a Options,
        in_force: &'a mut InForce,
        (roots, finder, guests): (Roots, Finder, Guests),
        pcpus: PcpuSet,
    ) -> Self {
        Daemon {
            live,
            options,
            speed: Speed::of(&roots, in_force.settings.host.mhz),
            in_force,
            roots,
            finder,
            guests,
            loaded: Instant::now(),
            pcpus,
            slots: Slots::default(),
            seen: None,
            names: Names::default(),
            tree: Names::default().tree(),
            system_weight: 0,
            limits: Limits::default(),
            limits_refused: None,
            generation: 0,
            published: None,
            held: Held::default(),
            reloading: None,
            conditions: Conditions::default(),
        }
    }

    /// Until stopped (`None`) or ended by the kernel (its reason).
    fn follow(&mut self) -> Result<Option<ExitReason>, HostError> {
        let mut scanned = Instant::now();
        while !(self.options.stop)() {
            let events = self.live.poll(self.patience(scanned).max(SHORTEST_WAIT));
            if events.contains(&Event::Gone) || self.live.exit_reason().kind != 0 {
                return Ok(Some(self.live.exit_reason()));
            }
            self.named(&events)?;
            if (self.options.reload)() {
                self.reloading = Some(Reload::new());
            }
            if self.reloading.as_ref().is_some_and(|r| r.due <= Instant::now()) {
                self.reload()?;
            }
            if scanned.elapsed() >= SCAN {
                self.held.forget();
                self.guests.hook(self.live.maps(), self.options.knobs, &self.options.say);
                let found = self.finder.scan(&self.roots);
                self.take(found)?;
                self.say_troubles();
                scanned = Instant::now();
            }
            self.replan(); // after a scan, whose plan ignores pinning
        }
        Ok(None)
    }

    /// How long it may wait for events.
    fn patience(&self, scanned: Instant) -> Duration {
        let scan = SCAN.saturating_sub(scanned.elapsed());
        let replan = if self.held.now { Duration::from_nanos(REPLAN.ns()) } else { SCAN };
        let reload = if self.reloading.is_some() { AGAIN } else { SCAN };
        // A held host is replanned on time; its scan waits for that.
        if self.held.now { replan.min(reload) } else { scan.min(reload) }
    }

    /// What a layout depends on, by these settings.
    pub(crate) fn known<'s>(&self, settings: &'s LiveSettings, speed: Speed) -> Known<'s> {
        let pcpus = self.pcpus.len() as u32;
        let system_shares = match self.options.knobs.system_shares {
            0 => (pcpus * 1000).min(SHARES_MAX as u32),
            n => n as u32,
        };
        Known { settings, speed, pcpus, system_shares }
    }

    /// The settings in force, and the speed of a pCPU by them.
    pub(crate) fn settings(&self) -> (&LiveSettings, Speed) {
        (&self.in_force.settings, self.speed)
    }

    /// Reads the settings file again, takes it over if it can be, and says what came of it.
    fn reload(&mut self) -> Result<(), HostError> {
        let Some(mut reload) = self.reloading.take() else { return Ok(()) };
        let found: Vec<FoundVm> = self.slots.found().cloned().collect();
        let fits = |settings: &LiveSettings| {
            let speed = Speed::of(&self.roots, settings.host.mhz);
            let reasons = settings.reasons_at(speed.mhz);
            let cgroups = Cgroups::read(&self.roots, &found, settings);
            if reasons.is_empty() {
                layout(&found, &cgroups, &self.known(settings, speed)).map(drop)
            } else {
                Err(reasons)
            }
        };
        let reasons =
            match reload.decide(self.options.file.as_deref(), &self.in_force.settings, &fits) {
                Verdict::Wait => {
                    self.reloading = Some(reload);
                    return Ok(());
                }
                Verdict::Refuse(reasons) => reasons,
                Verdict::Take(settings) => {
                    self.speed = Speed::of(&self.roots, settings.host.mhz);
                    self.in_force.settings = *settings;
                    self.seen = None;
                    let found = self.finder.scan(&self.roots);
                    self.take(found)?;
                    vec![]
                }
            };
        self.in_force.reloads += 1;
        self.in_force.taken += u64::from(reasons.is_empty());
        let outcome = Reloaded {
            number: self.in_force.reloads,
            taken: self.in_force.taken,
            time_ns: wall_ns(),
            daemon: std::process::id(),
            generation: self.generation,
            file: self.options.file.clone(),
            ok: reasons.is_empty(),
            reasons,
        };
        let file =
            outcome.file.as_ref().map_or_else(|| "no file".to_owned(), |f| f.display().to_string());
        if outcome.ok {
            (self.options.say)(&format!(
                "settings read again from {file}: in force as plan {}",
                outcome.generation
            ));
        } else {
            let reasons = outcome.reasons.join("\n  - ");
            (self.options.say)(&format!(
                "settings read again from {file}: refused, the old ones stay in force:\n  - \
                    {reasons}"
            ));
        }
        outcome.write()
    }
}
