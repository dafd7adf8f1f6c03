//! Stops vCPUs that lead their siblings, and starts them again (`skew` says which).
//!
//! *Law*: relaxed, a vCPU stops alone and starts when `skew::may_start`. Strict, the whole VM
//! stops, and starts when there are as many pCPUs that it may use as it has vCPUs that want to run:
//! idle ones, and ones whose world has a later virtual time than the VM's last (VS51 "Strict
//! Co-Scheduling in ESX 2.x").

use super::skew::{COSTOP_NS, Sibling, fastest_ns, lead_ns, may_start};
use super::{COSTART, Cosched, Esx, QUANTUM_NS};
use contract::{Callback, Hold, KICK_IDLE, KICK_PREEMPT};

/// A VM that could not start as a whole is looked at again after so long, in ns. Our reading.
const POLL_NS: u64 = 1_000_000;

impl Esx {
    /// The vCPUs of a VM as they are now.
    fn siblings(&mut self, k: &Callback<'_>, vm: u32) -> Vec<Sibling> {
        for i in 0..self.vms[vm as usize].vcpus.len() {
            let vcpu = self.vms[vm as usize].vcpus[i];
            if self.worlds[vcpu as usize].runs {
                self.charge(k, vcpu);
            }
        }
        self.vms[vm as usize].vcpus.iter().map(|w| self.sibling(*w)).collect()
    }

    fn sibling(&self, world: u32) -> Sibling {
        let account = &self.worlds[world as usize];
        let away = self.terms.guest_progress && account.outside;
        let (progress_ns, awake, runs) = (account.progress_ns, account.awake, account.runs);
        Sibling { progress_ns, awake: awake && !away, runs }
    }

    /// A vCPU that runs enters its guest, or leaves it. Where time outside is no progress, it is no
    /// lag either: it comes back as far behind its fastest sibling as it was when it left.
    pub(super) fn crosses(&mut self, k: &Callback<'_>, world: u32, inside: bool) {
        let vm = self.worlds[world as usize].vm;
        let fastest = fastest_ns(&self.siblings(k, vm));
        let guest_progress = self.terms.guest_progress;
        let account = &mut self.worlds[world as usize];
        account.outside = !inside;
        if !inside {
            account.gap_ns = fastest - account.progress_ns;
        } else if guest_progress {
            let least = fastest.saturating_sub(account.gap_ns);
            account.progress_ns = account.progress_ns.max(least);
        }
    }

    /// A world wants to run from now on.
    pub(super) fn wakes(&mut self, k: &Callback<'_>, world: u32) {
        let vm = self.worlds[world as usize].vm;
        if self.worlds[world as usize].vcpu && self.vms[vm as usize].vcpus.len() > 1 {
            let fastest = fastest_ns(&self.siblings(k, vm));
            self.worlds[world as usize].progress_ns = fastest;
        }
        self.set_awake(world, k.now_ns, true);
    }

    /// Whether a world is to run nowhere until its siblings are as far.
    pub(super) fn is_stopped(&self, world: u32) -> bool {
        let account = &self.worlds[world as usize];
        account.costops || account.vcpu && self.vms[account.vm as usize].stopped
    }

    /// Looks how far a running vCPU is ahead of its siblings.
    pub(super) fn look_at_lead(&mut self, k: &mut Callback<'_>, world: u32) {
        let vm = self.worlds[world as usize].vm;
        if !self.worlds[world as usize].vcpu || self.vms[vm as usize].vcpus.len() < 2 {
            return;
        }
        let vcpus = self.siblings(k, vm);
        if lead_ns(&vcpus, self.sibling(world)) <= COSTOP_NS || self.is_stopped(world) {
            return;
        }
        match self.terms.cosched {
            Cosched::Relaxed => self.costop(k, world),
            Cosched::Strict => {
                self.vms[vm as usize].stopped = true;
                for i in 0..self.vms[vm as usize].vcpus.len() {
                    let vcpu = self.vms[vm as usize].vcpus[i];
                    if self.worlds[vcpu as usize].runs {
                        self.costop(k, vcpu);
                    }
                }
            }
        }
        if !self.stopped.contains(&vm) {
            self.stopped.push(vm);
        }
        k.kernel.arm(COSTART, 0);
    }

    /// A vCPU that runs is to stop.
    fn costop(&mut self, k: &mut Callback<'_>, world: u32) {
        self.worlds[world as usize].costops = true;
        k.kernel.hold(world, Hold::Costopped);
        if let Some(pcpu) = self.worlds[world as usize].at {
            k.kernel.kick(pcpu, KICK_PREEMPT);
        }
    }

    /// Puts a vCPU that is stopped aside; false for one that is not.
    pub(super) fn stops(&mut self, k: &mut Callback<'_>, world: u32) -> bool {
        if !self.is_stopped(world) {
            return false;
        }
        let hold = if self.worlds[world as usize].costops { Hold::Costopped } else { Hold::Gang };
        self.unassign(world);
        k.queue_insert(world, self.costops(), QUANTUM_NS, 0);
        k.kernel.hold(world, hold);
        true
    }

    /// Something has changed for the vCPUs of a VM: those that are stopped may start now.
    pub(super) fn look_later(&mut self, k: &mut Callback<'_>, vm: u32) {
        if self.stopped.contains(&vm) {
            k.kernel.arm(COSTART, 0);
        }
    }

    /// Starts the vCPUs that may start.
    pub(super) fn start_stopped(&mut self, k: &mut Callback<'_>) {
        for vm in std::mem::take(&mut self.stopped) {
            let more = match self.terms.cosched {
                Cosched::Relaxed => self.start_leaders(k, vm),
                Cosched::Strict => self.start_whole(k, vm),
            };
            if more {
                self.stopped.push(vm);
            }
        }
        if !self.stopped.is_empty() {
            k.kernel.arm(COSTART, POLL_NS);
        }
    }

    /// Starts the vCPUs of a VM whose lead is small; whether others stay stopped.
    fn start_leaders(&mut self, k: &mut Callback<'_>, vm: u32) -> bool {
        let (vcpus, mut more) = (self.siblings(k, vm), false);
        for i in 0..vcpus.len() {
            let world = self.vms[vm as usize].vcpus[i];
            if self.worlds[world as usize].costops {
                let starts = may_start(&vcpus, vcpus[i]);
                more |= !(starts && self.start(k, world, None));
            }
        }
        more
    }

    /// Starts a stopped VM if all its vCPUs that want to run can; whether it stays stopped.
    fn start_whole(&mut self, k: &mut Callback<'_>, vm: u32) -> bool {
        let wants = |w: &u32| self.worlds[*w as usize].awake;
        let gang: Vec<u32> = self.vms[vm as usize].vcpus.iter().copied().filter(wants).collect();
        for world in &gang {
            self.set_aside(k, *world);
        }
        if gang.iter().any(|w| self.worlds[*w as usize].runs) {
            return true; // the last are on their way out
        }
        let Some(pcpus) = self.pcpus_for(k, &gang) else { return true };
        self.vms[vm as usize].stopped = false;
        let fastest = fastest_ns(&self.siblings(k, vm));
        for (world, pcpu) in gang.into_iter().zip(pcpus) {
            self.worlds[world as usize].progress_ns = fastest;
            self.start(k, world, Some(pcpu));
        }
        false
    }

    /// Takes a vCPU of a VM that has stopped out of the queue of its pCPU.
    fn set_aside(&mut self, k: &mut Callback<'_>, world: u32) {
        let Some(pcpu) = self.worlds[world as usize].at else { return };
        let waits = !self.worlds[world as usize].runs;
        if waits && k.kernel.queue_move(k.tasks, u64::from(pcpu), world, self.costops()) {
            self.unassign(world);
            k.kernel.hold(world, Hold::Gang);
        }
    }

    /// A pCPU for each of these worlds: idle, or with a world that is ahead of all of them.
    fn pcpus_for(&mut self, k: &Callback<'_>, gang: &[u32]) -> Option<Vec<u32>> {
        for pcpu in 0..self.pcpus.len() {
            match self.pcpus[pcpu].runs {
                0 => {}
                world => self.charge(k, world),
            }
        }
        let last = gang.iter().map(|w| self.worlds[*w as usize].vtime_ns).max()?;
        let ahead = |p: u32| match self.pcpus[p as usize].runs {
            0 => true,
            world => self.worlds[world as usize].vtime_ns > last,
        };
        let mut free: Vec<u32> = (0..self.pcpus.len() as u32).filter(|p| ahead(*p)).collect();
        // Idle whole cores first.
        free.sort_by_key(|p| {
            let at = &self.pcpus[*p as usize];
            (at.runs != 0, at.twins.iter().any(|twin| self.is_busy(*twin)), *p)
        });
        let mut out = vec![];
        for world in gang {
            let i = free.iter().position(|p| self.may_run(k.task(*world), *world, *p))?;
            out.push(free.remove(i));
        }
        Some(out)
    }

    /// Moves a stopped vCPU into the queue of a pCPU, its own if none is given; whether it was
    /// there to be moved.
    fn start(&mut self, k: &mut Callback<'_>, world: u32, to: Option<u32>) -> bool {
        let own = k.task(world).pcpu as u32;
        let pcpu = to.unwrap_or_else(|| self.place(k, world, own));
        if !k.kernel.queue_move(k.tasks, self.costops(), world, u64::from(pcpu)) {
            return false;
        }
        self.worlds[world as usize].costops = false;
        k.kernel.hold(world, Hold::None);
        self.assign(world, pcpu);
        let busy = self.is_busy(pcpu);
        k.kernel.kick(pcpu, if busy && to.is_some() { KICK_PREEMPT } else { KICK_IDLE });
        true
    }
}
