//! Fills in the metrics from the scheduler's records, for the daemon's endpoint and for `tandem
//! metrics`; it changes nothing.
//!
//! It reads what the daemon has pinned, as any other process would, so the daemon's own thread
//! never waits for it.

mod totals;

use crate::{
    Accounts, Ejections, HomesFile, HostError, Names, PIN_DIR, Reloaded, VmHomes, live, loaded,
    tree_look::plan, view::monotonic_ns,
};
use metrics::{Endpoint, Limits, Metric, Samples, Value};
use sched_core::{HostRecord, Node, Pcpu, Vm, World};
use std::{collections::BTreeMap, fs, io, net::TcpListener, os::unix::fs::MetadataExt, path::Path};
use totals::KeptTotals;
use units::PcpuSet;

/// What is summed up over the worlds of a VM; the first are states as the metric calls them, in ns.
const SUMS: usize = 12;
type Sums = [u64; SUMS];
const STATES: [&str; 6] = ["run", "ready", "costop", "limited", "wait", "idle"];
const READY: usize = 1;
const LIMITED: usize = 3;
const MIGRATIONS: usize = 6;
const SWITCHES: usize = 7;
const WAKEUPS: usize = 8;
const EXPIRIES: usize = 9;
/// CPU time that is charged, and that is not: those of a VM's own account, which the worlds that
/// run change at any time.
const USED: usize = 10;
const LOST: usize = 11;

/// Everything at one moment.
struct Moment {
    /// Tells one load of the scheduler from the next, whose counters begin at 0.
    load: u64,
    now_ns: u64,
    host: HostRecord,
    /// Those that are online.
    pcpus: Vec<(usize, Pcpu)>,
    names: Names,
    /// Record of each VM and the system group, by number.
    vms: BTreeMap<u32, Vm>,
    /// Sums over the worlds of each VM, those that are gone included.
    sums: BTreeMap<u32, Sums>,
    /// Homes of VMs by number, where the daemon gives them some.
    homes: BTreeMap<u32, VmHomes>,
    /// Live worlds.
    worlds: u64,
    /// Nodes of the plan, of the generation of the names.
    plan: Option<Vec<Node>>,
}

/// Reads metrics again and again; what it remembers keeps totals from going back.
pub struct Reader {
    version: String,
    totals: KeptTotals,
}

impl Reader {
    /// A reader; `version` is that of Tandem.
    #[must_use]
    pub fn new(version: &str) -> Reader {
        Reader { version: version.to_owned(), totals: KeptTotals::default() }
    }

    /// All metrics now. While Tandem is not loaded these are few.
    ///
    /// # Errors
    /// `HostError::Object` when it is loaded and its records cannot be read.
    pub fn samples(&mut self) -> Result<Samples, HostError> {
        let loaded = loaded::is_ours(&loaded::name());
        let mut out = Samples::default();
        out.add(Metric::Build, &[&self.version], Value::Count(1));
        out.add(Metric::Loaded, &[], Value::Count(u64::from(loaded)));
        let Ejections { pcpus, other } = Ejections::read();
        out.add(Metric::Ejections, &["pcpus"], Value::Count(pcpus));
        out.add(Metric::Ejections, &["other"], Value::Count(other));
        if loaded {
            let accounts = Accounts::open()?;
            let lost = crate::record::lost_so_far()?;
            let moment = Moment::read(&accounts)?;
            self.totals.take(&moment);
            out.add(Metric::TraceLost, &[], Value::Count(lost));
            reloads(
                &mut out,
                Reloaded::read().filter(|r| r.daemon == moment.names.daemon).as_ref(),
            );
            moment.tell(&self.totals, &mut out);
        }
        Ok(out)
    }
}

/// Serves the metrics at `listener` until the endpoint is dropped, by threads that come after all
/// ordinary ones.
///
/// # Errors
/// When there can be no thread.
pub fn endpoint(listener: TcpListener, version: &str) -> io::Result<Endpoint> {
    let mut reader = Reader::new(version);
    let page = move |format| {
        reader.samples().map(|samples| samples.text(format)).map_err(|e| e.to_string())
    };
    metrics::serve(listener, Limits::default(), live::come_last, page)
}

/// Homes of a VM, and where its memory is.
fn tell_homes(homes: &VmHomes, [vm, pool, id]: [&str; 3], out: &mut Samples) {
    let (mut vcpus, mut bytes) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, u64>::new());
    let mut changes = BTreeMap::<&str, u64>::new();
    for c in &homes.clients {
        if let Some(home) = c.home {
            *vcpus.entry(home).or_default() += u64::from(c.vcpus);
        }
        for (node, at) in (0..).zip(&c.bytes).filter(|(_, at)| **at > 0) {
            *bytes.entry(node).or_default() += at;
        }
        for (reason, n) in c.changes.iter().filter(|(reason, _)| *reason != "placed") {
            *changes.entry(reason).or_default() += n;
        }
    }
    for (node, n) in vcpus {
        out.add(Metric::VmHomeVcpus, &[vm, pool, id, &node.to_string()], Value::Count(n));
    }
    for (node, n) in bytes {
        out.add(Metric::VmMemory, &[vm, pool, id, &node.to_string()], Value::Bytes(n));
    }
    for (reason, n) in changes {
        out.add(Metric::VmHomeMigrations, &[vm, pool, id, reason], Value::Count(n));
    }
    if let Some((local, _)) = homes.memory().places {
        out.add(Metric::VmMemoryLocal, &[vm, pool, id], Value::Bytes(local));
    }
    let moved = homes.clients.iter().map(|c| c.moved_bytes).sum();
    out.add(Metric::VmMemoryMoved, &[vm, pool, id], Value::Bytes(moved));
}

fn reloads(out: &mut Samples, last: Option<&Reloaded>) {
    let (number, taken) = last.map_or((0, 0), |r| (r.number, r.taken));
    out.add(Metric::Reloads, &["taken"], Value::Count(taken));
    out.add(Metric::Reloads, &["refused"], Value::Count(number.saturating_sub(taken)));
}

impl Moment {
    fn read(accounts: &Accounts) -> Result<Moment, HostError> {
        let map = Path::new(PIN_DIR).join("host_map");
        let load = fs::metadata(&map)
            .map_err(|e| {
                HostError::object(map.display().to_string(), "look at it", e, "run it again")
            })?
            .ino();
        let names = Names::read()?;
        let host = accounts.host();
        let online = fs::read_to_string("/sys/devices/system/cpu/online")
            .ok()
            .and_then(|text| text.parse::<PcpuSet>().ok());
        let is_online =
            |i: &usize| online.as_ref().is_none_or(|set| set.contains(units::PcpuId(*i as u16)));
        let nodes =
            plan(accounts).filter(|(generation, _)| *generation == names.generation).map(|p| p.1);
        let now_ns = monotonic_ns();
        let (sums, worlds) = sums(accounts, &names, now_ns);
        Ok(Moment {
            load,
            now_ns,
            host,
            pcpus: (0..host.pcpus as usize)
                .filter(is_online)
                .map(|i| (i, accounts.pcpu(i)))
                .collect(),
            vms: names
                .vms
                .iter()
                .map(|v| v.id)
                .chain([sched_core::VM_SYSTEM])
                .map(|id| (id, accounts.vm(id as usize)))
                .collect(),
            homes: HomesFile::read(names.daemon)
                .map_or(vec![], |f| f.vms)
                .into_iter()
                .map(|vm| (vm.id, vm))
                .collect(),
            names,
            sums,
            worlds,
            plan: nodes,
        })
    }

    /// Tells all of it.
    fn tell(&self, totals: &KeptTotals, out: &mut Samples) {
        let count = |n: u64| Value::Count(n);
        out.add(Metric::PlanGeneration, &[], count(self.host.generation));
        out.add(Metric::HostPcpus, &[], Value::Rate(u64::from(self.host.online) << 20));
        out.add(Metric::HostWorlds, &[], count(self.worlds));
        out.add(Metric::HostVms, &[], count(self.names.vms.len() as u64));
        out.add(Metric::AssertionFailures, &[], count(self.host.asserts));
        out.add(Metric::OverflowedThreads, &[], count(self.host.overflows));
        for (i, p) in &self.pcpus {
            let id = i.to_string();
            out.add(Metric::PcpuBusy, &[&id], Value::Ns(totals.busy(*i)));
            out.add(Metric::PcpuTaken, &[&id], Value::Ns(totals.taken(*i)));
            out.add(Metric::PcpuSwitches, &[&id], count(p.switches));
            out.add(Metric::PcpuPulls, &[&id], count(p.pulls));
            out.add(Metric::PcpuPreempts, &[&id], count(p.preempts));
        }
        let gets = self.by_owner();
        self.tell_vms(totals, &gets, out);
        self.tell_pools(totals, &gets, out);
    }

    fn tell_vms(&self, totals: &KeptTotals, nodes: &ByOwner<'_>, out: &mut Samples) {
        for (leaf, vm) in (1..).zip(&self.names.vms) {
            let id = vm.id.to_string();
            let labels = [vm.name.as_str(), vm.pool.as_str(), id.as_str()];
            let Some(sums) = totals.vm(vm) else { continue };
            for (state, ns) in STATES.iter().zip(sums) {
                out.add(Metric::VmState, &[labels[0], labels[1], labels[2], state], Value::Ns(*ns));
            }
            out.add(Metric::VmUsed, &labels, Value::Ns(sums[USED]));
            if self.host.smt < 2 || self.names.charge() < 1000 {
                let labels = [labels[0], labels[1], labels[2], "smt"];
                out.add(Metric::VmLost, &labels, Value::Ns(sums[LOST]));
            }
            for (metric, n) in [
                (Metric::VmMigrations, MIGRATIONS),
                (Metric::VmSwitches, SWITCHES),
                (Metric::VmWakeups, WAKEUPS),
                (Metric::VmExpiries, EXPIRIES),
            ] {
                out.add(metric, &labels, Value::Count(sums[n]));
            }
            if let Some(node) = nodes.leaves.get(&leaf) {
                out.add(Metric::VmEntitlement, &labels, Value::Rate(self.gets(vm.id, node)));
            }
            if let Some(record) = self.vms.get(&vm.id) {
                out.add(Metric::VmDemand, &labels, Value::Rate(record.demand));
            }
            out.add(Metric::VmVcpus, &labels, Value::Count(u64::from(vm.vcpus)));
            out.add(Metric::VmShares, &labels, Value::Count(u64::from(vm.shares)));
            out.add(Metric::VmReservation, &labels, Value::Rate(vm.reservation.0));
            vm.limit
                .iter()
                .for_each(|limit| out.add(Metric::VmLimit, &labels, Value::Rate(limit.0)));
            let process = |h: &&VmHomes| (h.pid, h.started) == (vm.pid, vm.started);
            if let Some(homes) = self.homes.get(&vm.id).filter(process) {
                tell_homes(homes, labels, out);
            }
        }
    }

    /// What a leaf of the plan gets for the present demand of all; where user space weighs, its
    /// weight is that, or what it could get.
    fn gets(&self, vm: u32, node: &Node) -> u64 {
        match self.vms.get(&vm) {
            Some(record) if self.host.plan_outside != 0 => record.weight.min(node.demand),
            _ => node.gets,
        }
    }

    fn tell_pools(&self, totals: &KeptTotals, nodes: &ByOwner<'_>, out: &mut Samples) {
        let charged = |vm: &Vm| vm.used_ns.saturating_sub(vm.lost_ns);
        let system = self.vms.get(&sched_core::VM_SYSTEM).map_or(0, charged);
        // Of all leaves, each with its pool: what they get that are in a pool or below it.
        let mut leaves: Vec<(&str, u64)> = (1..)
            .zip(&self.names.vms)
            .filter_map(|(n, vm)| Some((&*vm.pool, self.gets(vm.id, nodes.leaves.get(&n)?))))
            .collect();
        let host = nodes.leaves.get(&0).map(|node| self.gets(sched_core::VM_SYSTEM, node));
        leaves.extend(host.map(|gets| (SYSTEM, gets)));
        let parents = self.names.parents();
        let inside = |path: &str| {
            let is = |pool: &str| totals::chain(&parents, pool).contains(&path);
            let there = |(pool, _): &&(&str, u64)| path == "/" || is(pool);
            leaves.iter().filter(there).map(|(_, gets)| gets).sum()
        };
        let mut now = |path: &str, node: Option<&&Node>| {
            let Some(node) = node else { return };
            let gets = if self.host.plan_outside == 0 { node.gets } else { inside(path) };
            out.add(Metric::PoolEntitlement, &[path], Value::Rate(gets));
            out.add(Metric::PoolDemand, &[path], Value::Rate(node.demand));
        };
        (0..).zip(&self.names.pools).for_each(|(i, pool)| now(&pool.path, nodes.pools.get(&i)));
        now(SYSTEM, nodes.leaves.get(&0));
        for pool in &self.names.pools {
            let labels = [pool.path.as_str()];
            let [used, ready, limited] = totals.pool(&pool.path);
            out.add(
                Metric::PoolUsed,
                &labels,
                Value::Ns(used + if pool.path == "/" { system } else { 0 }),
            );
            out.add(Metric::PoolReady, &labels, Value::Ns(ready));
            out.add(Metric::PoolLimited, &labels, Value::Ns(limited));
            out.add(Metric::PoolShares, &labels, Value::Count(u64::from(pool.shares)));
            out.add(Metric::PoolReservation, &labels, Value::Rate(pool.reservation.0));
            pool.limit
                .iter()
                .for_each(|limit| out.add(Metric::PoolLimit, &labels, Value::Rate(limit.0)));
        }
        out.add(Metric::PoolUsed, &[SYSTEM], Value::Ns(system));
        out.add(Metric::PoolShares, &[SYSTEM], Value::Count(u64::from(self.names.system_shares)));
    }

    /// The plan's nodes by whose they are; none if the plan is not that of the names.
    fn by_owner(&self) -> ByOwner<'_> {
        let mut out = ByOwner::default();
        let order = self.names.tree().nodes();
        let Some(nodes) = self.plan.as_ref().filter(|nodes| nodes.len() == order.len()) else {
            return out;
        };
        for (known, node) in order.iter().zip(nodes) {
            match known.owner {
                entitlement::Owner::Pool(i) => out.pools.insert(i, node),
                entitlement::Owner::Leaf(i) => out.leaves.insert(i, node),
            };
        }
        out
    }
}

/// The host's own tasks, as results call them too.
const SYSTEM: &str = "/system";

#[derive(Default)]
struct ByOwner<'a> {
    pools: BTreeMap<usize, &'a Node>,
    /// Leaf 0 is the system group, leaf i + 1 is `vms[i]`.
    leaves: BTreeMap<usize, &'a Node>,
}

/// Sums over the worlds of each VM, and how many live worlds there are in all.
///
/// A world that goes while they are read would be missed or counted twice: VMs that lost one
/// meanwhile are read again.
fn sums(accounts: &Accounts, names: &Names, now_ns: u64) -> (BTreeMap<u32, Sums>, u64) {
    const TRIES: usize = 4;
    let mut settled: BTreeMap<u32, Sums> = BTreeMap::new();
    let mut worlds = 0;
    for last in (0..TRIES).map(|n| n + 1 == TRIES) {
        let open: Vec<u32> =
            names.vms.iter().map(|v| v.id).filter(|id| !settled.contains_key(id)).collect();
        if open.is_empty() && worlds > 0 {
            break;
        }
        let record = |id: &u32| accounts.vm(*id as usize);
        let before: Vec<Vm> = open.iter().map(record).collect();
        let mut now: BTreeMap<u32, Sums> =
            open.iter().copied().zip(before.iter().map(of_past)).collect();
        worlds = 0;
        for w in (1..accounts.worlds_len()).filter_map(|i| accounts.world(i, now_ns)) {
            worlds += 1;
            if let Some(sums) = now.get_mut(&w.vm) {
                sums.iter_mut().zip(of_world(&w, now_ns)).for_each(|(sum, more)| *sum += more);
            }
        }
        for (id, before) in open.iter().zip(&before) {
            let after = record(id);
            if last
                || (of_past(before)[..USED] == of_past(&after)[..USED]
                    && before.worlds == after.worlds)
            {
                settled.extend(now.remove(id).map(|sums| (*id, sums)));
            }
        }
    }
    (settled, worlds)
}

/// What is known of a VM's worlds that are gone, and its CPU time in all.
fn of_past(vm: &Vm) -> Sums {
    let events = [vm.past_migrations, vm.past_switches, vm.past_wakeups, vm.past_expiries];
    let cpu = [vm.used_ns.saturating_sub(vm.lost_ns), vm.lost_ns];
    summed(&vm.past_ns, vm.past_limited_ns, events, cpu)
}

/// What a live world adds; its CPU time is in its VM's already.
fn of_world(w: &World, now_ns: u64) -> Sums {
    let parked = if w.parked_ns == 0 { 0 } else { now_ns.saturating_sub(w.parked_ns) };
    let events = [w.migrations, w.switches, w.wakeups, w.expiries];
    summed(&w.time_ns, w.limited_ns + parked, events, [0, 0])
}

fn summed(
    time_ns: &[u64; 8],
    limited: u64,
    [migrations, switches, wakeups, expiries]: [u64; 4],
    [used, lost]: [u64; 2],
) -> Sums {
    let t = |state: u32| time_ns[state as usize];
    let ready = t(sched_core::STATE_READY);
    let limited = limited.min(ready);
    [
        t(sched_core::STATE_RUN),
        ready - limited,
        t(sched_core::STATE_COSTOP),
        limited,
        t(sched_core::STATE_WAIT),
        t(sched_core::STATE_WAIT_IDLE),
        migrations,
        switches,
        wakeups,
        expiries,
        used,
        lost,
    ]
}

#[cfg(test)]
mod tests;
