//! The daemon: follows VMs that come, go, gain and lose threads, plans their entitlements and publishes the plan.
//!
//! It is off the critical path: while it is stopped, slow or dead, VMs run on under the last plan or the kernel.

use crate::{
    ExitReason, HostError, Live, Names, VmName,
    discover::{self, Finder, FoundVm, Roots},
    live::{self, Event, Word},
    view::monotonic_ns,
};
use entitlement::{ActiveVm, Meter, PlanVm, REPLAN, active_plan, plan};
use sched_core::{KIND_HELPER, KIND_VCPU, Knobs};
use settings::LiveSettings;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use topology::Topology;
use units::{
    PcpuSet, Rate, VmId,
    caps::{SHARES_MAX, VMS_MAX},
};

/// Shares for one unit of `cpu.weight`: its default of 100 is ESXi's normal 1000 of one vCPU.
pub const SHARES_PER_WEIGHT: u32 = 10;

/// How the daemon runs.
pub struct Options {
    /// The settings file's content.
    pub settings: LiveSettings,
    /// Knobs in force.
    pub knobs: Knobs,
    /// Where people read what it does.
    pub say: Box<dyn Fn(&str)>,
    /// Becomes true when it shall leave.
    pub stop: Box<dyn Fn() -> bool>,
    /// Print what libbpf and the verifier say.
    pub verbose: bool,
}

/// A VM the daemon follows.
struct Followed {
    id: u32,
    found: FoundVm,
    shares: u32,
}

struct Daemon<'a> {
    live: &'a Live,
    options: &'a Options,
    roots: Roots,
    finder: Finder,
    /// Those that are online.
    pcpus: PcpuSet,
    vms: BTreeMap<i32, Followed>,
    leaving: BTreeSet<u32>,
    generation: u64,
    meter: Meter,
    /// Affinity of threads, read anew with every scan.
    allowed: BTreeMap<i32, PcpuSet>,
    replanned_ns: u64,
    held: bool,
    /// Failed assertions of the scheduler that have been told.
    asserts: u64,
}

/// How often everything is looked at anew: a change of cpu.weight is seen within a second.
const SCAN: Duration = Duration::from_millis(500);

/// The ring buffer takes whole milliseconds, and 0 would not wait at all.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Loads the scheduler and runs until told to stop or ended by the kernel; loads it anew when pCPUs come or go.
///
/// # Errors
/// `HostError::Load` if the kernel refuses it, `HostError::Ejected` if the kernel ended it, whatever `topology` says.
pub fn run(topology: &dyn Fn() -> Result<Topology, HostError>, options: &Options) -> Result<(), HostError> {
    live::come_first();
    while let Some(reason) = once(topology, options)? {
        if !reason.restart {
            return Err(HostError::Ejected { reason: reason.text });
        }
        (options.say)(&format!("the host's pCPUs have changed ({}): loading anew", reason.text));
    }
    (options.say)("left: every task is with the kernel's own scheduler");
    Ok(())
}

/// One load, until told to stop (`None`) or ended by the kernel.
fn once(read: &dyn Fn() -> Result<Topology, HostError>, options: &Options) -> Result<Option<ExitReason>, HostError> {
    let begin = Instant::now();
    let topology = &read()?;
    // VMs are looked for first: until they are known their threads compete with the daemon as host tasks.
    let (roots, mut finder) = (Roots::default(), Finder::default());
    let found = finder.scan(&roots);
    let live = Live::start(topology, options.knobs, options.verbose)?;
    (options.say)(&format!(
        "loaded in {:.2} s: {} pCPUs, every task of the fair class is a world now",
        begin.elapsed().as_secs_f64(),
        topology.online().len()
    ));
    let mut daemon = Daemon {
        live: &live,
        options,
        roots,
        finder,
        pcpus: topology.online().clone(),
        vms: BTreeMap::new(),
        leaving: BTreeSet::new(),
        generation: 0,
        meter: Meter::default(),
        allowed: BTreeMap::new(),
        replanned_ns: monotonic_ns(),
        held: false,
        asserts: 0,
    };
    daemon.take(found)?;
    daemon.publish()?;
    if read()? != *topology {
        // The kernel tells of a pCPU only once a scheduler is attached.
        live.stop();
        return Ok(Some(ExitReason { kind: 0, restart: true, text: "while it was being loaded".to_owned() }));
    }
    let ended = daemon.follow()?;
    live.stop();
    Ok(ended)
}

impl Daemon<'_> {
    /// Until stopped (`None`) or ended by the kernel (its reason).
    fn follow(&mut self) -> Result<Option<ExitReason>, HostError> {
        let mut scanned = Instant::now();
        while !(self.options.stop)() {
            let wait = if self.held { Duration::from_nanos(REPLAN.ns()) } else { SCAN.saturating_sub(scanned.elapsed()) };
            let events = self.live.poll(wait.max(SHORTEST_WAIT));
            if events.contains(&Event::Gone) || self.live.exit_reason().kind != 0 {
                return Ok(Some(self.live.exit_reason()));
            }
            let renamed: BTreeSet<i32> =
                events.iter().filter_map(|e| if let Event::Named { tgid } = e { Some(*tgid) } else { None }).collect();
            let mut changed = false;
            for pid in renamed {
                if let Some(found) = discover::look(&self.roots, pid) {
                    self.finder.found(pid);
                    changed |= self.see(found);
                }
            }
            if changed {
                self.publish()?;
            }
            if scanned.elapsed() >= SCAN {
                self.allowed.clear();
                self.scan()?;
                scanned = Instant::now();
            }
            self.replan()?; // after a scan, whose plan knows nothing of held VMs
        }
        Ok(None)
    }

    fn scan(&mut self) -> Result<(), HostError> {
        let found = self.finder.scan(&self.roots);
        self.take(found)
    }

    /// Takes note of all the VMs that there are now.
    fn take(&mut self, found: Vec<FoundVm>) -> Result<(), HostError> {
        let alive: BTreeSet<(i32, u64)> = found.iter().map(|f| (f.pid, f.started)).collect();
        let gone: Vec<i32> = self.vms.values().filter(|v| !alive.contains(&(v.found.pid, v.found.started))).map(|v| v.found.pid).collect();
        let mut changed = !gone.is_empty();
        for pid in gone {
            if let Some(vm) = self.vms.remove(&pid) {
                self.live.process(pid, None);
                self.leaving.insert(vm.id);
                (self.options.say)(&format!("VM {} (pid {pid}) has gone", vm.found.name));
            }
        }
        for vm in found {
            changed |= self.see(vm);
        }
        self.sweep();
        let asserts = self.live.accounts().host().asserts;
        if std::mem::replace(&mut self.asserts, asserts) != asserts {
            (self.options.say)(&format!("{asserts} assertions of the scheduler have failed: VMs run on; please report it"));
        }
        if changed { self.publish() } else { Ok(()) }
    }

    /// Slots whose last world has gone are free again.
    fn sweep(&mut self) {
        let live = self.live;
        self.leaving.retain(|id| {
            let gone = live.accounts().vm(*id as usize).worlds == 0;
            if gone {
                live.forget(*id);
            }
            !gone
        });
    }

    fn free_slot(&self) -> Option<u32> {
        let used: BTreeSet<u32> = self.vms.values().map(|v| v.id).chain(self.leaving.iter().copied()).collect();
        (1..VMS_MAX as u32).find(|id| !used.contains(id))
    }

    /// Takes note of a VM as it is now; true if the plan must change.
    fn see(&mut self, found: FoundVm) -> bool {
        let named = self.options.settings.shares(&found.name, found.vcpus());
        let shares = named.unwrap_or(found.weight * SHARES_PER_WEIGHT).clamp(1, SHARES_MAX as u32);
        let old = self.vms.get(&found.pid);
        if old.is_some_and(|o| o.found == found && o.shares == shares) {
            return false;
        }
        let Some(id) = old.map(|o| o.id).or_else(|| self.free_slot()) else {
            (self.options.say)(&format!("VM {}: cannot follow it: {} VMs is the most; it runs as a host task", found.name, VMS_MAX - 1));
            return false;
        };
        let before = old.map(|o| (o.found.vcpus(), o.shares));
        match before {
            None => (self.options.say)(&format!(
                "VM {} (pid {}): {} vCPUs, {} shares, {}",
                found.name,
                found.pid,
                found.vcpus(),
                shares,
                found.cgroup
            )),
            Some((v, s)) if (v, s) != (found.vcpus(), shares) => {
                (self.options.say)(&format!("VM {}: now {} vCPUs, {} shares", found.name, found.vcpus(), shares));
            }
            Some(_) => {}
        }
        let known: BTreeSet<(i32, Option<u32>)> =
            old.map(|o| o.found.threads.iter().map(|t| (t.tid, t.vcpu)).collect()).unwrap_or_default();
        if old.is_none() {
            // The VM must have a weight before its first world is charged to it.
            let _ = self.live.weight(id, found.vcpus().max(1), shares, Word { weight: Rate::ONE.0, ..Word::default() });
            self.live.publish(self.vms.values().map(|v| v.id).chain([id]).max().unwrap_or(0) + 1, self.generation);
            self.live.process(found.pid, Some(id));
        }
        let mut found = found;
        let mut unbound = vec![];
        for t in found.threads.iter().filter(|t| !known.contains(&(t.tid, t.vcpu))) {
            let (kind, index) = t.vcpu.map_or((KIND_HELPER, 0), |n| (KIND_VCPU, n));
            // A thread that has gone meanwhile is no error; any other refusal is tried again with the next scan.
            if self.live.bind(t.tid, id, kind, index).is_err_and(|e| e != libc::ESRCH) {
                unbound.push(t.tid);
            }
        }
        found.threads.retain(|t| !unbound.contains(&t.tid));
        self.vms.insert(found.pid, Followed { id, found, shares });
        before != self.vms.values().find(|v| v.id == id).map(|v| (v.found.vcpus(), v.shares))
    }

    fn system_shares(&self) -> u32 {
        match self.options.knobs.system_shares {
            0 => (self.pcpus.len() as u32 * 1000).min(SHARES_MAX as u32),
            n => n as u32,
        }
    }

    /// Where VMs are held to some pCPUs: weights by what is active now (crates/entitlement, active.rs).
    fn replan(&mut self) -> Result<(), HostError> {
        let now = monotonic_ns();
        let accounts = self.live.accounts();
        let held = self.vms.values().any(|v| accounts.vm(v.id as usize).restricted > 0);
        if !held {
            // The last held VM has gone or roams again: back to the plan that counts everybody.
            return if std::mem::take(&mut self.held) { self.publish() } else { Ok(()) };
        }
        let period = now.saturating_sub(std::mem::replace(&mut self.replanned_ns, now)).max(1);
        if !std::mem::replace(&mut self.held, true) {
            self.meter = Meter::default();
        }
        let host = self.pcpus.clone();
        let mut vms = self.active_vms(&host);
        self.demands(&host, &mut vms, now, period);
        let list: Vec<ActiveVm> = vms.into_values().collect();
        for order in active_plan(&host, &list, accounts.host().v_ns) {
            let id = u32::from(order.vm.0);
            let (vcpus, shares) = list.iter().find(|v| v.vm == order.vm).map_or((1, 1), |v| (v.vcpus, v.shares));
            let _ = self.live.weight(id, vcpus, shares, Word { weight: order.weight.0, held: order.held, shift: order.shift_ns });
        }
        Ok(())
    }

    /// Every VM and the system group, without its demand yet.
    fn active_vms(&self, host: &PcpuSet) -> BTreeMap<u32, ActiveVm> {
        let vm = |id: u32, shares, vcpus| {
            let vt_ns = self.live.accounts().vm(id as usize).vt_ns;
            (id, ActiveVm { vm: VmId(id as u16), shares, vcpus, classes: vec![], vt_ns })
        };
        let system = vm(0, self.system_shares(), host.len() as u32);
        self.vms.values().map(|v| vm(v.id, v.shares, v.found.vcpus().max(1))).chain([system]).collect()
    }

    /// Adds what each world has wanted in the last period to its VM's classes.
    fn demands(&mut self, host: &PcpuSet, vms: &mut BTreeMap<u32, ActiveVm>, now: u64, period: u64) {
        self.meter.begin();
        for i in 1..self.live.accounts().worlds_len() {
            let Some(w) = self.live.accounts().world(i, now) else { continue };
            let Some(vm) = vms.get_mut(&w.vm) else { continue };
            let wanted = w.time_ns[sched_core::STATE_RUN as usize] + w.time_ns[sched_core::STATE_READY as usize];
            let demand = self.meter.demand(w.id, wanted, period);
            let restricted = w.vm != 0 && w.flags & sched_core::WORLD_RESTRICTED != 0;
            let read = || discover::allowed(&self.roots, w.tgid as i32, w.pid as i32).map_or_else(|| host.clone(), |s| s.and(host));
            let set = if restricted { self.allowed.entry(w.pid as i32).or_insert_with(read).clone() } else { host.clone() };
            match vm.classes.iter_mut().find(|c| c.0 == set) {
                Some(class) => class.1.0 += demand.0,
                None => vm.classes.push((set, demand)),
            }
        }
    }

    /// Plans and publishes: weights first, then the generation, then the names for readers.
    fn publish(&mut self) -> Result<(), HostError> {
        self.generation += 1;
        let system_shares = self.system_shares();
        let vms: Vec<PlanVm> = self
            .vms
            .values()
            .map(|v| PlanVm { vm: VmId(v.id as u16), shares: v.shares, vcpus: v.found.vcpus().max(1), allowed: None })
            .collect();
        let plan = plan(self.pcpus.len(), &vms, system_shares, self.generation);
        let mut weights = BTreeMap::new();
        for (vm, rate) in plan.weights() {
            let known = self.vms.values().find(|v| v.id == u32::from(vm.0));
            let (vcpus, shares) = known.map_or((self.pcpus.len() as u32, system_shares), |v| (v.found.vcpus().max(1), v.shares));
            let _ = self.live.weight(u32::from(vm.0), vcpus, shares, Word { weight: rate.0, ..Word::default() });
            weights.insert(u32::from(vm.0), rate.0);
        }
        let slots = self.vms.values().map(|v| v.id).chain(self.leaving.iter().copied()).max().unwrap_or(0) + 1;
        self.live.publish(slots, self.generation);
        let name = |v: &Followed| VmName {
            id: v.id,
            name: v.found.name.clone(),
            pid: v.found.pid,
            shares: v.shares,
            vcpus: v.found.vcpus(),
            weight: weights.get(&v.id).copied().unwrap_or(0),
            cgroup: v.found.cgroup.clone(),
        };
        let names =
            Names { generation: self.generation, system_shares, daemon: std::process::id(), vms: self.vms.values().map(name).collect() };
        names.write()
    }
}
