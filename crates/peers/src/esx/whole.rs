//! Which world has its core alone, for what its VM is behind; it places no world.
//!
//! *Law*: the world of a VM that is behind by more than a threshold has its core alone while it
//! runs, unless what runs on another thread is as far behind or further, or what waits there may
//! run nowhere else: the other threads idle, and what ran there goes to another core if one idles.
//! A VM is behind by what is due to its vCPUs less what they are charged:
//! - *strict*: due is the part of the host that its shares give it if all VMs ask, as long as it
//!   wants to run so much. A vCPU is never ahead, and behind by `LAG_QUANTA` at most.
//! - *lag*: due is its part, by weight, of what all worlds that want to run are charged, but no
//!   more than the time. One is behind only if another is ahead, and there is no bound.
//!
//! *Documented*: strict, KB 1020233 for 4.1: "resource settings" say by how much a VM "has fallen
//! behind in the amount of CPU time it should have received"; if the sum over its vCPUs exceeds
//! HaltingIdleMsecPenalty, the other logical processor is left idle. Lag, VS51 "Policy on
//! Hyper-Threading" for 5.x: time lost to hyper-threads counts; VMs "become ahead of others" and
//! "stalled" ones later "take time away" from these, so that the loss "grows and shrinks over
//! time"; a whole core comes by migration, or "by descheduling the other world".
//!
//! *Our reading*: the formulas; that nothing is forgotten while a VM sleeps, as the documents say
//! nothing of it; that the part of the time in which it wants to run is that of its life so far;
//! the bound, which is BoundLagQuanta of ESXi 6.0.
//!
//! *Example*: one core of two threads, two VMs of 2:1 shares, both busy, half of the time charged:
//! 2/3 are due to the first, by both laws. It is behind by 100 ms after 0.6 s. From then on it has
//! the core alone for a third of the time.

use super::terms::Whole;
use super::{Esx, LAG_QUANTA, LOOKS_AT, NORMAL, QUANTUM_NS};
use contract::{Callback, KICK_IDLE, KICK_PREEMPT};

/// Steps of the time that is due, of a ns.
const STEPS: u64 = 1 << 10;

/// What a world is behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Behind {
    /// Due to it less what it was charged, in ns.
    ns: i64,
    /// Up to when, and `Esx::due` then.
    at_ns: u64,
    due: u64,
    /// Its weight while it wants to run, else 0.
    counts: u64,
    /// Since when it lives, and for how long of that it wanted to run.
    born_ns: u64,
    awake_ns: u64,
    /// Lag: its parts of what was charged so far.
    given_ns: u64,
}

impl Behind {
    pub(super) fn new(now_ns: u64) -> Behind {
        Behind { at_ns: now_ns, born_ns: now_ns, ..Behind::default() }
    }
}

impl Esx {
    /// VMs or their shares have changed.
    pub(super) fn weigh_vcpus(&mut self, now_ns: u64) {
        let weight = |vm: &super::Vm| vm.weight_per_vcpu * vm.vcpus.len() as u64;
        self.vcpu_weight = self.vms.iter().map(weight).sum();
        let awake = |w: &u32| self.worlds[*w as usize].awake;
        let awake: Vec<u32> = (0..self.worlds.len() as u32).filter(awake).collect();
        awake.into_iter().for_each(|w| self.set_awake(w, now_ns, true));
    }

    /// A world wants to run from now on, or no longer.
    pub(super) fn set_awake(&mut self, world: u32, now_ns: u64, awake: bool) {
        self.reckon(world, now_ns);
        let weight = self.weight(world);
        let account = &mut self.worlds[world as usize];
        let at_ns = std::mem::replace(&mut account.wanted_at_ns, now_ns);
        account.wanted_ns += if account.awake { now_ns - at_ns } else { 0 };
        account.awake = awake;
        let counts = if awake { weight } else { 0 };
        let before = std::mem::replace(&mut account.behind.counts, counts);
        self.awake_weight = self.awake_weight + counts - before;
    }

    /// Adds what is due to a world since the last call.
    fn reckon(&mut self, world: u32, now_ns: u64) {
        let (weight, vms) = (self.weight(world), self.vcpu_weight.max(1));
        let cores = self.cores * (2 * self.terms.shared_charge).max(1000);
        let behind = &mut self.worlds[world as usize].behind;
        let ns = now_ns - std::mem::replace(&mut behind.at_ns, now_ns);
        let steps = self.due - std::mem::replace(&mut behind.due, self.due);
        if behind.counts == 0 {
            return;
        }
        behind.awake_ns += ns;
        let part = match self.terms.whole {
            Whole::Never => 0,
            Whole::Lag(_) => {
                let steps = u128::from(steps) * u128::from(behind.counts);
                let part = (steps / u128::from(NORMAL * STEPS)) as u64;
                // Charges come in lumps, of a quantum at most.
                let before = behind.given_ns.min(behind.awake_ns - ns);
                behind.given_ns = (behind.given_ns + part).min(behind.awake_ns + QUANTUM_NS);
                behind.given_ns.min(behind.awake_ns) - before
            }
            Whole::Strict(_) => {
                let life = u128::from(now_ns - behind.born_ns);
                let fair = life * u128::from(cores * weight) / u128::from(1000 * vms);
                let part = u128::from(ns) * fair / u128::from(behind.awake_ns.max(1));
                part.min(u128::from(ns)) as u64
            }
        };
        self.add(world, part as i64);
    }

    /// Adds to what a world is behind.
    fn add(&mut self, world: u32, ns: i64) {
        let behind = &mut self.worlds[world as usize].behind.ns;
        *behind += ns;
        if matches!(self.terms.whole, Whole::Strict(_)) {
            *behind = (*behind).clamp(0, (LAG_QUANTA * QUANTUM_NS) as i64);
        }
    }

    /// A world has been charged: so much is due to all that want to run.
    pub(super) fn hand_out(&mut self, world: u32, now_ns: u64, charged_ns: u64) {
        self.reckon(world, now_ns);
        self.add(world, -(charged_ns as i64));
        self.due += charged_ns * STEPS * NORMAL / self.awake_weight.max(1);
    }

    /// What a world's VM is behind, in ns; negative if it is ahead, 0 for a host task.
    fn behind_ns(&mut self, world: u32, now_ns: u64) -> i64 {
        if !self.worlds[world as usize].vcpu {
            return 0;
        }
        let vm = self.worlds[world as usize].vm as usize;
        for i in 0..self.vms[vm].vcpus.len() {
            self.reckon(self.vms[vm].vcpus[i], now_ns);
        }
        self.vms[vm].vcpus.iter().map(|w| self.worlds[*w as usize].behind.ns).sum()
    }

    /// A world runs: whether it has its core alone from now on.
    pub(super) fn look_at_core(&mut self, k: &mut Callback<'_>, world: u32) {
        let (Whole::Strict(most) | Whole::Lag(most)) = self.terms.whole else { return };
        let pcpu = k.task(world).pcpu as u32;
        let twins = self.pcpus[pcpu as usize].twins.clone();
        let beside: Vec<u32> = twins.iter().copied().filter(|p| self.is_busy(*p)).collect();
        let behind_ns = self.behind_ns(world, k.now_ns);
        let runs = |esx: &Esx, p: &u32| esx.pcpus[*p as usize].runs;
        if behind_ns <= most as i64
            || beside.iter().any(|p| self.behind_ns(runs(self, p), k.now_ns) >= behind_ns)
        {
            return self.share_core(k, pcpu);
        }
        self.pcpus[pcpu as usize].whole = true;
        for twin in beside {
            k.kernel.kick(twin, KICK_PREEMPT);
        }
    }

    /// Whether a pCPU is the only one where a world can run now.
    fn has_only(&self, k: &Callback<'_>, world: u32, pcpu: u32) -> bool {
        let task = k.task(world);
        let other = |p: u32| p != pcpu && !self.is_kept(p) && self.may_run(task, world, p);
        !(0..self.pcpus.len() as u32).any(other)
    }

    /// A kept pCPU has nothing to run: what waits there goes to others, or ends this.
    pub(super) fn dispatch_kept(&mut self, k: &mut Callback<'_>, pcpu: u32) {
        for i in 0..LOOKS_AT {
            let world = k.kernel.queue_at(u64::from(pcpu), i);
            if world == 0 {
                break;
            }
            if let Some(idle) = self.idle_for(k, world, pcpu) {
                k.kernel.kick(idle, KICK_IDLE);
            } else if self.has_only(k, world, pcpu) {
                for twin in self.pcpus[pcpu as usize].twins.clone() {
                    self.share_core(k, twin);
                }
                break;
            }
        }
    }

    /// Whether a pCPU idles for the world on another thread of its core.
    pub(super) fn is_kept(&self, pcpu: u32) -> bool {
        self.pcpus[pcpu as usize].twins.iter().any(|p| self.pcpus[*p as usize].whole)
    }

    /// No world has the core of a pCPU alone any more.
    pub(super) fn share_core(&mut self, k: &mut Callback<'_>, pcpu: u32) {
        if std::mem::take(&mut self.pcpus[pcpu as usize].whole) {
            for twin in self.pcpus[pcpu as usize].twins.clone() {
                k.kernel.kick(twin, KICK_IDLE);
            }
        }
    }
}
