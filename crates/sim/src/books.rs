//! The engine's own accounts of worlds and pCPUs, and what the oracle learns of them: every change
//! of state is written down once, for both. It judges nothing.

use crate::cast::Output;
use crate::chronicle::Chronicle;
use crate::kernel::Told;
use crate::truth::Truth;
use crate::watch::Watch;
use check::{HomeSeen, PoolTerms, State, Verdict, VmTerms};
use contract::{Accounts, Hold};
use units::PcpuSet;
use views::Times;

/// The accounts of a run.
#[derive(Debug)]
pub(crate) struct Books {
    truth: Truth,
    watch: Watch,
    /// Times of worlds that have exited.
    gone: Vec<Option<Times>>,
    /// The same as a trace, where the policy writes none and one is wanted.
    chronicle: Option<Chronicle>,
}

/// VMs and pools, for the oracle alone.
impl Books {
    /// Books of so many worlds.
    pub(crate) fn new(truth: Truth, watch: Watch, worlds: usize) -> Books {
        Books { truth, watch, gone: vec![None; worlds], chronicle: None }
    }

    /// Keeps events for a trace from now on.
    pub(crate) fn keep_chronicle(&mut self) {
        self.chronicle = Some(Chronicle::default());
    }

    /// Events for a trace that have not been taken yet, if they are kept.
    #[inline]
    pub(crate) fn chronicle(&mut self) -> Option<&mut Chronicle> {
        self.chronicle.as_mut()
    }

    pub(crate) fn pools(&mut self, now: u64, pools: Vec<PoolTerms>) {
        self.watch.pools(now, pools);
    }

    pub(crate) fn vm_added(&mut self, now: u64, vm: u32, name: &str, terms: VmTerms) {
        self.watch.vm_added(now, vm, name, terms);
    }

    pub(crate) fn vm_terms(&mut self, now: u64, vm: u32, terms: VmTerms) {
        self.watch.vm_terms(now, vm, terms);
    }

    pub(crate) fn vm_removed(&mut self, now: u64, vm: u32) {
        self.watch.vm_removed(now, vm);
    }
}

/// What happens to worlds and pCPUs.
impl Books {
    /// A world of a VM comes to life, in this state.
    pub(crate) fn born(
        &mut self,
        now: u64,
        world: u32,
        vm: u32,
        allowed: Option<PcpuSet>,
        asleep: State,
    ) {
        self.truth.born(now, world, asleep);
        self.watch.world_added(now, world, vm, allowed, asleep);
        if let Some(c) = &mut self.chronicle {
            c.born(now, world, asleep);
        }
    }

    /// A world that is there may use these pCPUs from now on, for its home has changed.
    pub(crate) fn home(&mut self, now: u64, world: u32, allowed: Option<PcpuSet>) {
        self.watch.home(now, world, allowed);
    }

    /// A round of the NUMA planner begins: its clients, and bytes of memory moved since the last.
    pub(crate) fn homes(&mut self, now: u64, all: &[(u32, Vec<HomeSeen>)], moved: u64) {
        self.watch.homes(now, all, moved);
    }

    /// A home has changed for an imbalance.
    pub(crate) fn home_changed(&mut self, now: u64, d: &::numa::Decision) {
        self.watch.home_changed(now, d);
    }

    /// A world is woken, and READY from now on.
    pub(crate) fn woken(&mut self, now: u64, world: u32) {
        self.truth.woken(world);
        if let Some(c) = &mut self.chronicle {
            c.woken(now, world);
        }
        self.enter(now, world, State::Ready);
    }

    /// A world enters a state in which it does not run.
    #[inline]
    pub(crate) fn enter(&mut self, now: u64, world: u32, state: State) {
        if let Some(c) = &mut self.chronicle {
            let (from, last) = self.truth.at(world);
            c.enters(now, world, from, state, last);
        }
        self.truth.enter(now, world, state);
        self.watch.state(now, world, state, None);
    }

    /// Its slice is used up, or cut short for another, while it could go on.
    #[inline]
    pub(crate) fn expired(&mut self, world: u32) {
        self.truth.expired(world);
    }

    /// A world begins to run on a pCPU.
    #[inline]
    pub(crate) fn runs(&mut self, now: u64, world: u32, pcpu: u32) {
        if let Some(c) = &mut self.chronicle {
            let (from, last) = self.truth.at(world);
            c.runs(now, world, from, last, pcpu);
        }
        self.truth.runs(now, world, pcpu);
        self.watch.state(now, world, State::Run, Some(pcpu));
    }

    /// A world stops running on a pCPU, and the scheduler has charged it.
    #[inline]
    pub(crate) fn stops(&mut self, now: u64, world: u32, pcpu: u32, accounts: &impl Accounts) {
        self.truth.stops(now, pcpu);
        self.truth.lost(world, accounts.lost_ns(world, now));
        self.watch.charged(now, accounts, world, pcpu);
    }

    /// A pCPU enters or leaves idle.
    #[inline]
    pub(crate) fn idle(&mut self, now: u64, pcpu: u32, idle: bool) {
        self.truth.idle(now, pcpu, idle);
        if let Some(c) = &mut self.chronicle {
            c.idle(now, pcpu, idle);
        }
    }

    /// A pCPU begins to leave a deep idle state, or has: for the oracle it is taken meanwhile.
    pub(crate) fn leaves_idle(&mut self, now: u64, pcpu: u32, begins: bool) {
        self.watch.taken(now, pcpu, begins);
    }

    /// These pCPUs are on line from now on.
    pub(crate) fn online(&mut self, now: u64, online: &PcpuSet) {
        self.watch.online(now, online);
    }

    /// A real-time task takes a pCPU, or gives it back.
    pub(crate) fn taken(&mut self, now: u64, pcpu: u32, taken: bool) {
        self.truth.taken(now, pcpu, taken);
        self.watch.taken(now, pcpu, taken);
    }

    /// A world is in the local queue of a pCPU that a real-time task has taken, where no other can
    /// get at it; or no longer.
    pub(crate) fn stuck(&mut self, now: u64, world: u32, stuck: bool) {
        self.watch.held_back(now, world, stuck);
    }

    /// A vCPU that runs enters its guest, or leaves it for its emulator.
    pub(crate) fn guest(&mut self, now: u64, world: u32, inside: bool) {
        self.watch.guest(now, world, inside);
        if let Some(c) = &mut self.chronicle {
            c.guest(now, world, inside);
        }
    }

    /// What the scheduler holds back has changed.
    pub(crate) fn held(&mut self, now: u64, told: &Told) {
        let Told { world, from, to, at_ns, taken } = *told;
        if to == Hold::Costopped {
            return;
        }
        // Once taken to a pCPU a world counts as limited until it runs there.
        if !taken {
            self.truth.held(at_ns, world, to);
        }
        if let Some(c) = self.chronicle.as_mut().filter(|_| from != Hold::Costopped && !taken) {
            c.parked(at_ns, world, to != Hold::None, self.truth.at(world).1);
        }
        if from != Hold::Costopped {
            self.watch.held_back(now, world, to != Hold::None);
        } else if to == Hold::None {
            if let Some(c) = &mut self.chronicle {
                c.enters(at_ns, world, State::Costop, State::Ready, None);
            }
            self.truth.enter(at_ns, world, State::Ready);
            self.watch.state(now, world, State::Ready, None);
        }
    }

    /// A world of a VM is gone; `output` is what it has done.
    pub(crate) fn exit(
        &mut self,
        now: u64,
        (world, vm): (u32, u32),
        output: Output,
        accounts: &impl Accounts,
    ) {
        self.watch.reported(now, accounts, world);
        self.gone[world as usize] = Some(self.times(now, world, output));
        self.watch.world_removed(now, world);
        if let Some(c) = &mut self.chronicle {
            c.gone(now, world, self.truth.at(world).0);
        }
        self.truth.exit(now, world, vm);
    }
}

/// What is read from them.
impl Books {
    /// The engine's part of them.
    pub(crate) fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Whether there is an oracle.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_on()
    }

    /// Takes over what these worlds, which are there, have been charged up to now.
    pub(crate) fn update(
        &mut self,
        now: u64,
        accounts: &impl Accounts,
        worlds: impl Iterator<Item = u32>,
    ) {
        worlds.for_each(|w| self.truth.lost(w, accounts.lost_ns(w, now)));
    }

    /// Holds the scheduler's state times of a world to the oracle's.
    pub(crate) fn audit(&mut self, now: u64, accounts: &impl Accounts, world: u32) {
        self.watch.reported(now, accounts, world);
    }

    /// Times of a world that has exited; none of one that was never there.
    pub(crate) fn times_of_gone(&self, world: u32) -> Times {
        self.gone[world as usize].unwrap_or_default()
    }

    /// Times of a world up to now; `output` is what it has done.
    pub(crate) fn times(&self, now: u64, world: u32, output: Output) -> Times {
        let spent = self.truth.spent(now, world);
        Times {
            used_ns: spent.used_ns.saturating_sub(spent.lost_ns),
            run_ns: spent.run_ns,
            ready_ns: spent.ready_ns,
            costop_ns: spent.costop_ns,
            limited_ns: spent.limited_ns,
            wait_ns: spent.wait_ns + spent.wait_idle_ns,
            idle_ns: spent.wait_idle_ns,
            entitled_ns: self.watch.world_entitled(world),
            migrations: spent.migrations,
            work: output.work,
            lost: output.lost,
            moved: output.lost.map(|_| self.truth.moved(world)),
        }
    }

    /// CPU time of the ideal so far: of each VM, by id.
    pub(crate) fn entitled(&mut self, now: u64, vms: usize) -> Vec<u64> {
        self.watch.entitled(now, vms)
    }

    /// Most CPU time that each limited pool used in a second, by its index.
    pub(crate) fn pool_peaks(&self) -> Vec<(usize, u64)> {
        self.watch.pool_peaks()
    }

    pub(crate) fn finish(&mut self, now: u64) -> Option<Verdict> {
        self.watch.finish(now)
    }
}
