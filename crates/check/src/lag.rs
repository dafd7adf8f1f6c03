//! Keeps the accounts that the law of lag needs, closes its windows and holds VMs to their bound;
//! the law is in `window.rs`.
//!
//! Windows end at multiples of their length; what happens at that instant belongs to the window
//! that ends. Between two events that are many windows apart nothing changes, so they close as one.
//!
//! On a core of several threads CPU time is what a world is charged, and a pCPU's capacity is what
//! the others of its core leave: an idle thread beside a busy one has none.
//!
//! Limits: a set of pCPUs once seen cuts the host into atoms for the rest of the run.

mod account;
mod losses;

use crate::{
    Bounds, PoolTerms, VmTerms, ideals,
    promises::{Promises, Use},
    terms::{self, Ideal},
    verdict::{Log, VmVerdict},
    window::{Part, Settler, Share},
};
use account::LagAccount;
use entitlement::{Fluid, Tree};
use losses::Losses;
use std::collections::BTreeMap;
use units::{PcpuId, PcpuSet, VmId};

/// Thousandths of its CPU time that a world is charged which has its core alone.
pub(crate) const CHARGED_WHOLE: u64 = 1000;

/// A world's account, a cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Entry {
    vm: u32,
    set: u32,
    awake: bool,
    running: bool,
    /// Time up to which demand and use are accounted.
    until: u64,
    demand: u64,
    /// In thousandths of a ns.
    used: u64,
    /// Thousandths of its CPU time that it is charged now.
    rate: u16,
    slept: bool,
    alive: bool,
    /// Whether it is in `touched`.
    touched: bool,
    /// The account that goes on where this one ended, because the world's set changed.
    heir: Option<u32>,
    owed: i64,
    entitled: i64,
}

/// All accounts of lag of a host.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    bounds: Bounds,
    pcpus: PcpuSet,
    /// How many these are.
    width: u64,
    fluid: Fluid,
    /// Sets of pCPUs have come.
    stale: bool,
    pools: Vec<PoolTerms>,
    /// Leaves are the VMs by slot; none after settings have changed.
    tree: Option<Tree>,
    promises: Promises,
    /// Of each set those that are on line.
    sets: Vec<PcpuSet>,
    /// The sets as worlds have them; `None` is the whole host.
    asked: Vec<Option<PcpuSet>>,
    index: BTreeMap<Option<Vec<u64>>, u32>,
    settler: Settler,
    vms: Vec<LagAccount>,
    /// Slot of the VM that real-time tasks are, which comes before all others.
    realtime: Option<u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Entries that take part in the window.
    touched: Vec<u32>,
    /// Empty between windows.
    scratch: (Vec<Share>, Vec<Part>),
    /// When the window began, and when it ends.
    from: u64,
    end: u64,
    /// What each pCPU loses to the other threads of its core.
    losses: Losses,
}

/// Those of a set that are on line.
fn online(pcpus: &PcpuSet, asked: Option<&PcpuSet>) -> PcpuSet {
    asked.map_or_else(|| pcpus.clone(), |a| a.and(pcpus))
}

impl Ledger {
    pub(crate) fn new(pcpus: usize, bounds: Bounds) -> Ledger {
        let all = PcpuSet::first(pcpus);
        let mut ledger = Ledger {
            bounds,
            fluid: Fluid::new(&all, &[]),
            pcpus: all,
            width: pcpus as u64,
            stale: true,
            pools: vec![terms::root()],
            tree: None,
            promises: Promises::default(),
            sets: vec![],
            asked: vec![],
            index: BTreeMap::new(),
            settler: Settler::new(bounds.lag_memory_ns),
            vms: vec![],
            realtime: None,
            entries: vec![],
            free: vec![],
            touched: vec![],
            scratch: (vec![], vec![]),
            from: 0,
            end: bounds.window_ns,
            losses: Losses::default(),
        };
        ledger.set(None);
        ledger
    }

    /// Index of an allowed set; `None` is the whole host, index 0.
    pub(crate) fn set(&mut self, allowed: Option<&PcpuSet>) -> u32 {
        let next = self.sets.len() as u32;
        let found = *self.index.entry(allowed.map(|a| a.words().to_vec())).or_insert(next);
        if found == next {
            self.sets.push(online(&self.pcpus, allowed));
            self.asked.push(allowed.cloned());
            self.stale = true;
        }
        found
    }

    /// These pCPUs are on line from `now` on; the window has been closed.
    pub(crate) fn set_pcpus(&mut self, now: u64, pcpus: &PcpuSet) {
        let before = std::mem::replace(&mut self.width, pcpus.len() as u64);
        self.vms.iter_mut().for_each(|vm| vm.want(now, before));
        self.pcpus = pcpus.clone();
        self.sets = self.asked.iter().map(|a| online(pcpus, a.as_ref())).collect();
        self.stale = true;
        self.changed();
    }

    pub(crate) fn pcpus_of(&self, set: u32) -> &PcpuSet {
        &self.sets[set as usize]
    }

    pub(crate) fn start(&mut self, now: u64) {
        self.from = now;
        self.end = (now / self.bounds.window_ns + 1) * self.bounds.window_ns;
    }

    /// New pools, the root first.
    pub(crate) fn set_pools(&mut self, pools: Vec<PoolTerms>) {
        self.promises.set_pools(&pools);
        self.pools = pools;
        self.changed();
    }

    fn changed(&mut self) {
        self.tree = None;
        self.settler.forget();
    }

    /// Most CPU time that each limited pool used in a second.
    pub(crate) fn peaks(&self) -> Vec<(usize, u64)> {
        self.promises.peaks()
    }

    pub(crate) fn add_vm(&mut self, id: VmId, name: &str, terms: VmTerms) -> u32 {
        self.promises.add_vm(id, name, terms);
        self.changed();
        self.vms.push(LagAccount::new(id, name, terms));
        self.vms.len() as u32 - 1
    }

    /// Slot of the VM that real-time tasks are.
    pub(crate) fn realtime(&mut self) -> u32 {
        if let Some(slot) = self.realtime {
            return slot;
        }
        let slot = self.add_vm(VmId(u16::MAX), "real-time", VmTerms::from(1));
        self.realtime = Some(slot);
        slot
    }

    pub(crate) fn set_terms(&mut self, vm: u32, terms: VmTerms) {
        self.vms[vm as usize].terms = terms;
        self.promises.set_terms(vm, terms);
        self.changed();
    }

    pub(crate) fn terms(&self, vm: u32) -> VmTerms {
        self.vms[vm as usize].terms
    }

    /// A VM is powered off.
    pub(crate) fn remove_vm(&mut self, vm: u32) {
        self.vms[vm as usize].gone = true;
        self.promises.remove_vm(vm);
        self.changed();
    }

    pub(crate) fn vm_name(&self, vm: u32) -> (VmId, String) {
        (self.vms[vm as usize].id, self.vms[vm as usize].name.clone())
    }

    /// Opens the account of a world that is asleep.
    pub(crate) fn add_world(&mut self, now: u64, vm: u32, set: u32) -> u32 {
        let owner = &mut self.vms[vm as usize];
        owner.worlds += 1;
        owner.worlds_max = owner.worlds_max.max(owner.worlds);
        let entry = Entry {
            vm,
            set,
            awake: false,
            running: false,
            until: now,
            demand: 0,
            used: 0,
            rate: CHARGED_WHOLE as u16,
            slept: false,
            alive: true,
            touched: false,
            heir: None,
            owed: 0,
            entitled: 0,
        };
        if let Some(id) = self.free.pop() {
            self.entries[id as usize] = entry;
            return id;
        }
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// Changes what a world does from `now` on.
    pub(crate) fn turn(&mut self, now: u64, world: u32, awake: bool, running: bool) {
        let entry = &mut self.entries[world as usize];
        entry.account(now);
        let vm = &mut self.vms[entry.vm as usize];
        vm.want(now, self.width);
        if awake && !entry.awake {
            vm.awake += 1;
        } else if !awake && entry.awake {
            vm.awake -= 1;
            vm.idled |= vm.awake == 0;
            entry.slept = true;
        }
        (entry.awake, entry.running) = (awake, running);
        self.touch(world);
    }

    /// Ends a world's account at `now`.
    pub(crate) fn end_world(&mut self, now: u64, world: u32) {
        self.turn(now, world, false, false);
        self.entries[world as usize].alive = false;
        self.vms[self.entries[world as usize].vm as usize].worlds -= 1;
    }

    /// Goes on in a new account for another allowed set; its id.
    pub(crate) fn move_world(&mut self, now: u64, world: u32, set: u32) -> u32 {
        let old = &mut self.entries[world as usize];
        if old.set == set {
            return world;
        }
        old.account(now);
        let (vm, awake, running, rate) = (old.vm, old.awake, old.running, old.rate);
        (old.awake, old.running, old.alive) = (false, false, false);
        self.touch(world);
        self.vms[vm as usize].worlds -= 1;
        let heir = self.add_world(now, vm, set);
        self.entries[world as usize].heir = Some(heir);
        let new = &mut self.entries[heir as usize];
        (new.awake, new.running, new.rate) = (awake, running, rate);
        self.touch(heir);
        heir
    }

    /// A world is charged so many thousandths of its CPU time from `now` on.
    pub(crate) fn charge(&mut self, now: u64, world: u32, rate: u64) {
        let entry = &mut self.entries[world as usize];
        entry.account(now);
        entry.rate = rate as u16;
    }

    /// A pCPU loses so many thousandths of its time from `now` on.
    pub(crate) fn lose(&mut self, now: u64, pcpu: PcpuId, rate: u64) {
        self.losses.lose(self.from, now, pcpu, rate);
    }

    /// Whether a VM has been entitled to more than shared cores give within the last `grace` ns.
    pub(crate) fn whole(&self, vm: u32, now: u64, grace: u64) -> bool {
        self.vms[vm as usize].whole_at.is_some_and(|at| now <= at + grace)
    }

    /// What pCPUs have lost in a window of `wall` ns is not there to be divided.
    fn take_losses(&mut self, now: u64, wall: u64) {
        let lost = self.losses.take(now, wall);
        if lost != *self.fluid.taken() {
            self.fluid.set_taken(&lost);
            if let Some(tree) = &mut self.tree {
                tree.set_taken(lost);
            }
            self.settler.forget();
        }
    }

    fn touch(&mut self, world: u32) {
        let entry = &mut self.entries[world as usize];
        if !entry.touched {
            entry.touched = true;
            self.touched.push(world);
        }
    }

    /// Whether a window ends before `now`.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now > self.end
    }

    /// Closes all windows that end before `now`.
    pub(crate) fn roll(&mut self, now: u64, average: Option<&Ledger>, log: &mut Log) {
        if self.is_due(now) {
            self.close(self.end, average, log);
        }
        if self.is_due(now) {
            self.close((now - 1) / self.bounds.window_ns * self.bounds.window_ns, average, log);
        }
    }

    /// Closes the window at `now`, whether it is full or not; with the ledger of the other ideal,
    /// VMs and pools are held to their bounds.
    pub(crate) fn close(&mut self, now: u64, average: Option<&Ledger>, log: &mut Log) {
        let wall = now - self.from;
        self.start(now);
        if wall == 0 {
            return;
        }
        if std::mem::take(&mut self.stale) {
            self.fluid = Fluid::new(&self.pcpus, &self.sets);
            self.settler.forget();
        }
        self.take_losses(now, wall);
        let vms = self.take_part(now);
        if average.is_some() {
            self.keep_promises(now, wall, log);
        }
        let (mut shares, mut parts) = std::mem::take(&mut self.scratch);
        shares.extend(vms.iter().map(|v| self.vms[*v as usize].share()));
        parts.extend(self.touched.iter().map(|w| self.part(*w)));
        let (pools, slots, pcpus) = (&self.pools, &self.vms, self.width);
        let (first, fluid) = (self.realtime, &self.fluid);
        let tree = self.tree.get_or_insert_with(|| {
            let vms = slots.iter().map(|v| (v.terms, v.gone));
            terms::tree(pcpus, pools, vms, first.map(|slot| slot as usize))
                .without(fluid.taken().clone())
        });
        let flat = tree.is_flat();
        // A VM of fewer vCPUs than pCPUs cannot use its part of each moment.
        let moment = flat && vms.iter().all(|v| slots[*v as usize].worlds_at_once(pcpus) == pcpus);
        let ideal = Ideal { fluid, tree, leaves: &vms };
        self.settler.settle(&ideal, wall, &mut shares, &mut parts);
        for (v, share) in vms.iter().zip(&shares) {
            let vm = &mut self.vms[*v as usize];
            vm.idled = vm.awake == 0;
            vm.lag = share.lag;
            vm.entitled += share.ideal;
            // Within a hundredth, for the scheduler measures demand.
            let shared = share.asked * self.bounds.all_shared_charge / (CHARGED_WHOLE + 10);
            if share.asked > 0 && share.ideal >= shared as i64 {
                vm.whole_at = Some(now);
            }
            let Some(average) = average.filter(|_| first != Some(*v)) else { continue };
            let apart =
                if moment { vm.lag } else { ideals::apart(vm.lag, average.vms[*v as usize].lag) };
            vm.hold(now, apart, self.bounds.lag_ns(vm.worlds_at_once(pcpus), flat), log);
        }
        self.carry_on(&parts);
        shares.clear();
        parts.clear();
        self.scratch = (shares, parts);
    }

    /// Accounts all worlds of the window up to `now` and numbers their VMs, in order of their ids.
    fn take_part(&mut self, now: u64) -> Vec<u32> {
        let mut there = vec![false; self.vms.len()];
        for w in &self.touched {
            let entry = &mut self.entries[*w as usize];
            entry.account(now);
            self.vms[entry.vm as usize].used += entry.used / CHARGED_WHOLE;
            there[entry.vm as usize] = true;
        }
        let vms: Vec<u32> = (0..).zip(there).filter_map(|(v, there)| there.then_some(v)).collect();
        for (position, v) in vms.iter().enumerate() {
            self.vms[*v as usize].position = position;
        }
        vms
    }

    /// Holds what was used in the window to limits and reservations.
    fn keep_promises(&mut self, now: u64, wall: u64, log: &mut Log) {
        if !self.promises.any() {
            return;
        }
        let pcpus = self.width;
        let of = |vm: &mut LagAccount| {
            vm.want(now, pcpus);
            Use {
                worlds: u64::from(vm.worlds_max).min(pcpus),
                asked: std::mem::take(&mut vm.wanted),
                used: 0,
            }
        };
        let mut uses: Vec<Use> = self.vms.iter_mut().map(of).collect();
        for entry in self.touched.iter().map(|w| &self.entries[*w as usize]) {
            uses[entry.vm as usize].used += entry.used / CHARGED_WHOLE;
        }
        self.promises.close(now, (wall, pcpus), &uses, &self.bounds, log);
    }

    fn part(&self, world: u32) -> Part {
        let e = &self.entries[world as usize];
        Part {
            vm: self.vms[e.vm as usize].position,
            set: e.set,
            demand: e.demand,
            used: e.used / CHARGED_WHOLE,
            owed: e.owed,
            slept: e.slept,
            // One that was moved is not asleep: its heir decides.
            asleep: !e.awake && e.heir.is_none(),
            ..Part::default()
        }
    }

    /// Takes the window's result over and keeps the worlds that the next window needs.
    fn carry_on(&mut self, parts: &[Part]) {
        let mut ends = vec![];
        let mut parts = parts.iter();
        let entries = &mut self.entries;
        self.touched.retain(|w| {
            let entry = &mut entries[*w as usize];
            let part = parts.next().expect("a part for each that was touched");
            entry.entitled += part.ideal;
            entry.owed = part.owed;
            (entry.demand, entry.slept) = (0, false);
            entry.used %= CHARGED_WHOLE;
            entry.touched = entry.heir.is_none() && (entry.awake || entry.owed < 0);
            if entry.heir.is_some() || !entry.alive && !entry.touched {
                ends.push(*w);
            }
            entry.touched
        });
        // Heirs come after those they follow, so a chain of them passes all on.
        for w in ends {
            let entry = &mut self.entries[w as usize];
            let (owed, entitled, heir) = (entry.owed, entry.entitled, entry.heir.take());
            if let Some(heir) = heir {
                self.entries[heir as usize].owed += owed;
                self.entries[heir as usize].entitled += entitled;
            }
            if !self.entries[w as usize].alive {
                self.free.push(w);
            }
        }
    }

    /// CPU time of the ideal for a world, in ns; as of the last window that closed.
    pub(crate) fn world_entitled(&self, world: u32) -> u64 {
        self.entries[world as usize].entitled.max(0) as u64
    }

    pub(crate) fn verdicts(&self) -> Vec<VmVerdict> {
        let vms = (0..).zip(&self.vms).filter(|(slot, _)| self.realtime != Some(*slot));
        vms.map(|(_, vm)| vm.verdict()).collect()
    }
}

impl Entry {
    fn account(&mut self, now: u64) {
        let ns = now - self.until;
        self.until = now;
        self.demand += if self.awake { ns } else { 0 };
        self.used += if self.running { ns * u64::from(self.rate) } else { 0 };
    }
}
