//! The daemon: loads the scheduler, follows VMs as they start, stop, gain and lose threads, puts
//! their plan into force, and takes over changed settings.
//!
//! It is off the critical path: while it is stopped, slow or dead, VMs run on under the last plan
//! or the kernel's own scheduler.

use crate::{
    Ejections, ExitReason, HostError, Live, SettingsFile, Trust,
    carried::{Carried, Known},
    discover::{FoundVm, Roots},
    follow::Vms,
    guests::Guests,
    held::Held,
    homes::{Asks, Homes},
    in_force::{InForce, Lasting},
    kept,
    layout::Layout,
    live::Event,
    pcpus::{Changed, Pcpus},
    publish::Published,
    reported::Conditions,
    view::monotonic_ns,
};
use ::publish::Takers;
use entitlement::REPLAN;
use sched_core::Knobs;
use settings::LiveSettings;
use std::time::{Duration, Instant};
use topology::Topology;
use units::{PcpuId, PcpuSet, Rate};

/// How the daemon runs.
pub struct Options {
    /// The settings file, to be read again; `None` if there is none.
    pub file: Option<SettingsFile>,
    /// Its content at the start.
    pub settings: LiveSettings,
    /// The users that it trusts.
    pub trust: Trust,
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

/// What follows a host that is loaded: rooms, each with what it alone changes.
struct Daemon<'a> {
    live: &'a Live,
    options: &'a Options,
    roots: Roots,
    guests: Guests,
    in_force: InForce<'a>,
    vms: Vms,
    published: Published,
    pcpus: Pcpus,
    held: Held,
    homes: Option<Homes>,
    topology: &'a Topology,
    conditions: Conditions,
    takers: Takers,
    carried: &'a mut Carried,
}

/// Period of the scan: a change of cpu.weight or cpu.max is in force within a second.
const SCAN: Duration = Duration::from_millis(500);

/// The ring buffer takes whole milliseconds, and 0 would not wait at all.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Loads the scheduler and runs until a signal or the kernel ends it; loads it again when pCPUs
/// come on line that were not at the load, and when the kernel has ended it for a wait of RCU that
/// began before the load.
///
/// # Errors
/// `HostError::Load` if the kernel refuses it, `HostError::Ejected` if the kernel ended it,
/// whatever `topology` says.
pub fn run(
    topology: &dyn Fn() -> Result<Topology, HostError>,
    options: &Options,
) -> Result<(), HostError> {
    let mut lasting =
        Lasting::new(options.settings.clone(), options.trust.clone(), options.file.clone());
    let mut loaded = Loaded::new(topology, options)?;
    let mut carried = Carried::default();
    while let Some(ended) = once(&mut loaded, options, &mut lasting, &mut carried)? {
        let Ended { reason, vms, lasted } = ended;
        // One of kind 0 was our own doing.
        if reason.kind != 0 {
            if let Err(e) = Ejections::count(reason.restart) {
                (options.say)(&e.to_string());
            }
        }
        let why = if reason.restart {
            "the host's pCPUs have changed"
        } else if rcu_waited_before(&reason, lasted, &Roots::default()) {
            "RCU has waited since before the load"
        } else {
            return Err(HostError::Ejected { reason: reason.text });
        };
        (options.say)(&format!("{why} ({}): loading anew", reason.text));
        // It is verified while the last one has all tasks, unless the kernel has ended that.
        let next = Loaded::new(topology, options)?;
        loaded.live.detach();
        carried = Carried::of(&loaded.live, &vms);
        carried.begin(&next.live)?;
        loaded = next;
    }
    loaded.live.detach();
    (options.say)("left: every task is with the kernel's own scheduler");
    Ok(())
}

/// Whether the kernel ended the scheduler for a wait of RCU that began before it was loaded,
/// `lasted` ago: newer kernels end any scheduler in force when RCU reports a task that has not left
/// its read section for so many seconds. Under the kernel's own one a task of nice 19 may wait as
/// long beside VMs with large weights.
fn rcu_waited_before(reason: &ExitReason, lasted: Duration, roots: &Roots) -> bool {
    let timeout = roots.sys.join("module/rcupdate/parameters/rcu_cpu_stall_timeout");
    let seconds = std::fs::read_to_string(timeout).ok().and_then(|text| text.trim().parse().ok());
    reason.text.contains("RCU CPU stall") && lasted < Duration::from_secs(seconds.unwrap_or(21))
}

/// A scheduler that the kernel has verified, and the host that it is for.
struct Loaded {
    began: Instant,
    topology: Topology,
    live: Live,
    guests: Guests,
}

impl Loaded {
    fn new(
        read: &dyn Fn() -> Result<Topology, HostError>,
        options: &Options,
    ) -> Result<Loaded, HostError> {
        let began = Instant::now();
        let topology = read()?;
        let live = Live::load(&topology, options.knobs, options.verbose)?;
        let mut guests = Guests::Unknown;
        guests.hook(live.maps(), options.knobs, &options.say);
        Ok(Loaded { began, topology, live, guests })
    }
}

/// Why a load has ended, and the VMs that it followed.
struct Ended {
    reason: ExitReason,
    vms: Vec<Known>,
    /// How long it was attached.
    lasted: Duration,
}

/// One load, until a signal (`None`) or the kernel ends it, or another is needed. It stays attached
/// if the kernel has not ended it.
fn once(
    loaded: &mut Loaded,
    options: &Options,
    lasting: &mut Lasting,
    carried: &mut Carried,
) -> Result<Option<Ended>, HostError> {
    let Loaded { began, topology, live, guests } = loaded;
    let guests = std::mem::replace(guests, Guests::Unknown);
    // Everything that takes long is done before the scheduler is attached: the daemon comes first
    // on its pCPU, also while the kernel verifies programs for it; and until VMs are known their
    // threads compete with it as host tasks.
    // Half of the files that it may have open are left to all else.
    let (roots, mut vms) = (Roots::default(), Vms::with_files(kept::allowed() / 2));
    let pcpus = topology.online();
    let in_force = InForce::new(lasting, &roots, pcpus.len() as u32, options.knobs.system_shares);
    let found = vms.scan(&roots, &in_force);
    if (options.stop)() {
        return Ok(None);
    }
    live.attach()?;
    let attached = Instant::now();
    (options.say)(&format!(
        "loaded in {:.2} s: {} pCPUs, every task of the fair class is a world now; the kernel \
            verified {} instructions for it",
        began.elapsed().as_secs_f64(),
        pcpus.len(),
        live.verified_instructions(),
    ));
    if options.verbose {
        let parts: Vec<String> =
            live.verified().iter().map(|(name, count)| format!("{name} {count}")).collect();
        (options.say)(&format!("verified instructions by program: {}", parts.join(", ")));
    }
    let mut daemon = Daemon {
        live,
        options,
        in_force,
        roots,
        guests,
        vms,
        published: Published::default(),
        pcpus: Pcpus::new(pcpus.clone()),
        held: Held::new(pcpus.clone()),
        homes: None,
        topology: &*topology,
        conditions: Conditions::default(),
        takers: Takers::default(),
        carried,
    };
    daemon.renew_homes();
    daemon.take(found)?;
    let reason = match daemon.pcpus()? {
        Some(new) => Some(anew(format!("pCPUs {new} came while it was being loaded"))),
        None => daemon.follow()?,
    };
    let slots = daemon.vms.slots();
    let known = |vm: &FoundVm| Some((slots.of(vm.pid)?, (vm.pid, vm.started)));
    let vms = slots.found().filter_map(known).collect();
    Ok(reason.map(|reason| Ended { reason, vms, lasted: attached.elapsed() }))
}

/// Our own doing, and not the kernel's: a fresh load.
fn anew(why: String) -> ExitReason {
    ExitReason { kind: 0, restart: true, text: why }
}

impl Daemon<'_> {
    /// Until stopped (`None`) or ended by the kernel (its reason).
    fn follow(&mut self) -> Result<Option<ExitReason>, HostError> {
        let mut scanned = Instant::now();
        while !(self.options.stop)() {
            let events = self.live.poll(self.patience(scanned).max(SHORTEST_WAIT));
            if events.contains(&Event::Gone) || self.live.exit_reason().kind != 0 {
                return Ok(Some(self.live.exit_reason()));
            }
            if events.contains(&Event::Pcpus) || scanned.elapsed() >= SCAN {
                if let Some(new) = self.pcpus()? {
                    return Ok(Some(anew(format!("pCPUs {new} were off line at the load"))));
                }
            }
            if let Some(found) = self.vms.named(&events, &self.roots, &self.in_force) {
                self.take(found)?;
            }
            if (self.options.reload)() {
                self.in_force.ask();
            }
            self.reload()?;
            if scanned.elapsed() >= SCAN {
                self.held.forget();
                if self.look_at_taken() {
                    self.vms.forget();
                }
                self.guests.hook(self.live.maps(), self.options.knobs, &self.options.say);
                self.scan()?;
                for trouble in self.conditions.lasting_troubles() {
                    (self.options.say)(&trouble);
                }
                scanned = Instant::now();
            }
            let slots = self.vms.slots();
            if let Some(homes) = &mut self.homes {
                homes.follow(self.live, &self.published, slots, &self.roots, &self.options.say);
            }
            // After a scan, whose plan ignores pinning.
            let homes = self.homes.as_ref();
            self.held.replan(self.live, &self.published, slots, &self.roots, homes);
        }
        Ok(None)
    }

    /// Takes note of the pCPUs that are on line: the host has so many to divide. Those that were
    /// not at the load, if some have come.
    fn pcpus(&mut self) -> Result<Option<PcpuSet>, HostError> {
        let Ok(kernel) = topology::online(&self.roots.sys) else {
            return Ok(None); // the next scan reads it again
        };
        match self.pcpus.look(self.live.online(), &kernel) {
            Changed::Nothing => {}
            Changed::Missed(pcpus) => {
                for pcpu in pcpus.iter() {
                    // A scheduler that has been ended is seen by its last event.
                    let _ = self.live.set_offline(pcpu);
                }
            }
            Changed::New(new) => return Ok(Some(new)),
            Changed::Online(said) => {
                (self.options.say)(&said);
                let online = self.pcpus.online();
                self.in_force.set_pcpus(online.len() as u32);
                self.held.set_pcpus(online.clone());
                if let Some(homes) = &mut self.homes {
                    homes.set_pcpus(online);
                }
                self.vms.forget();
                self.scan()?;
            }
        }
        Ok(None)
    }

    /// Looks at what real-time tasks and others take of the pCPUs. Whether something else is left
    /// to divide from now on.
    fn look_at_taken(&mut self) -> bool {
        let (accounts, now) = (self.live.accounts(), monotonic_ns());
        let lost = |pcpu: PcpuId| accounts.pcpu(usize::from(pcpu.0)).taken_until(now);
        let all = self.pcpus.online().iter().map(|pcpu| (pcpu, lost(pcpu))).collect();
        let differs = self.takers.look(now, all);
        let taken = Rate(self.takers.in_force().values().map(|rate| rate.0).sum());
        if self.conditions.taken(taken.0 > 0, Instant::now()) {
            (self.options.say)(&if taken.0 > 0 {
                format!(
                    "real-time tasks, or others that the kernel runs before those of the fair \
                        class, take {} of {} pCPUs; the rest is divided ('tandem metrics' has \
                        tandem_pcpu_taken_seconds_total for each pCPU)",
                    taken.percent(),
                    self.pcpus.online().len()
                )
            } else {
                "real-time tasks have taken nothing of the pCPUs for a minute".to_owned()
            });
        }
        differs
    }

    /// How long it may wait for events. A held host is replanned on time; its scan waits for that.
    fn patience(&self, scanned: Instant) -> Duration {
        let wait = if self.held.now() {
            Duration::from_nanos(REPLAN.ns())
        } else {
            SCAN.saturating_sub(scanned.elapsed())
        };
        let homes = self.homes.as_ref().map_or(wait, |homes| wait.min(homes.due_in()));
        self.in_force.again().map_or(homes, |again| homes.min(again))
    }

    /// Reads the settings file again if that is due, and tells what came of it.
    fn reload(&mut self) -> Result<(), HostError> {
        let Some(reasons) = self.in_force.read_again(&self.roots, self.vms.slots()) else {
            return Ok(());
        };
        if reasons.is_empty() {
            self.renew_homes();
            self.vms.forget();
            self.scan()?;
        }
        self.in_force.tell(reasons, self.published.generation(), &self.options.say)
    }

    /// VMs have homes from now on, or none, as the settings say.
    fn renew_homes(&mut self) {
        let knobs = self.in_force.settings().homes().as_ref().map(numa::Knobs::from);
        let had = self.homes.is_some();
        self.homes = match (knobs, self.homes.take()) {
            (Some(knobs), Some(mut homes)) => {
                homes.set_knobs(knobs);
                Some(homes)
            }
            (Some(knobs), None) => Homes::new(self.topology, &self.roots, knobs),
            (None, _) => None,
        };
        let say = &self.options.say;
        match &mut self.homes {
            Some(homes) => {
                homes.set_pcpus(self.pcpus.online());
                homes.set_charge(self.topology, &self.options.knobs);
                if !had {
                    say(&format!("numa: VMs have homes in {}", homes.extent()));
                }
            }
            None => {
                Homes::forget_file();
                if knobs.is_some() {
                    say("numa: seen fewer than two nodes that have pCPUs and no node of several \
                            LLCs, or more than 64 nodes, or none that sysfs names: VMs have no \
                            homes here");
                }
            }
        }
    }

    fn scan(&mut self) -> Result<(), HostError> {
        let found = self.vms.scan(&self.roots, &self.in_force);
        self.take(found)
    }

    /// Takes note of all the VMs that there are now.
    fn take(&mut self, found: Vec<FoundVm>) -> Result<(), HostError> {
        let (live, say) = (self.live, &self.options.say);
        if let Some(laid) = self.vms.seat(found, live, &self.roots, &self.in_force, say) {
            self.change(laid)?;
        }
        let slots = self.vms.slots();
        for vm in slots.found() {
            if let Some(id) = slots.of(vm.pid) {
                self.carried.give(live, (id, (vm.pid, vm.started)));
            }
        }
        self.vms.bind(live, &self.roots, &self.published.vms().collect());
        match &mut self.homes {
            Some(homes) => {
                let settings = self.in_force.settings();
                let asks = |vm: &FoundVm| {
                    let entry = settings.vm(vm.called());
                    entry.map_or_else(Asks::default, |e| Asks { llc: e.llc, threads: e.prefer_ht })
                };
                homes.seat(live, self.vms.slots(), &self.roots, &asks, say);
            }
            None => Homes::none(live),
        }
        self.vms.sweep(live);
        self.published.sweep(live);
        let host = live.accounts().host();
        let asserts = host.asserts;
        if self.conditions.asserts(asserts) {
            let at: String = host.assert_at.to_be_bytes()[..4].iter().map(|b| *b as char).collect();
            say(&format!(
                "{asserts} assertions of the scheduler have failed, the last one in {at} at line \
                    {}: VMs run on; please report it",
                host.assert_at as u32
            ));
        }
        if self.conditions.refused(host.overflows) {
            say(&format!(
                "{} threads could not start: the scheduler's table has room for {}, more than the \
                    kernel allowed when it was loaded; find the program with so many threads, or, \
                    where kernel.threads-max or kernel.pid_max was raised, start tandem again",
                host.overflows,
                live.accounts().world_slots() - 1
            ));
        }
        if self.conditions.lost(host.exec_lost != 0) {
            say("this kernel does not count CPU time of threads that start on an idle pCPU \
                    (docs/operating.md); from now on it picks twice there, and counts it");
        }
        Ok(())
    }

    /// Puts a layout into force if it is another plan, and takes note of what could not be taken
    /// over.
    fn change(&mut self, laid: Layout) -> Result<(), HostError> {
        let Layout { mut names, mut troubles } = laid;
        names.taken.clone_from(self.takers.in_force());
        names.cores = self.live.accounts().host().cores;
        names.shared_charge = self.options.knobs.charge();
        names.divided_charge = self.options.knobs.divided_charge();
        let (live, say, slots) = (self.live, &self.options.say, self.vms.slots());
        if self.published.differs(&names) {
            self.published.take(names, live, slots, say);
            if self.published.generation() == 1 {
                self.held.begin(live, &self.published, slots);
            }
            self.published.divide(live)?;
            self.published.say_excesses(&mut self.conditions, say);
        }
        troubles.extend(self.published.limits_refused().cloned());
        self.conditions.set_troubles(troubles);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    #[test]
    fn a_wait_of_rcu_is_older_than_a_load_within_its_timeout_alone() {
        let t = MadeUp::new("rcu");
        let roots = Roots { sys: t.path("sys"), ..Roots::default() };
        let of = |text: &str| ExitReason { kind: 1, restart: false, text: text.to_owned() };
        let stall = of("runtime error: RCU CPU stall on CPUs ()");
        let before =
            |reason, seconds| rcu_waited_before(reason, Duration::from_secs(seconds), &roots);
        assert!(before(&stall, 20) && !before(&stall, 21), "21 s where nothing is known");
        t.put("sys/module/rcupdate/parameters/rcu_cpu_stall_timeout", b"60\n");
        assert!(before(&stall, 59) && !before(&stall, 60));
        assert!(!before(&of("runnable task stall: vcpu0 failed to run for 30.1s"), 1));
    }
}
