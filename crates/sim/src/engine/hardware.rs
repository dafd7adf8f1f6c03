//! The simulated hardware beside the engine: each pCPU's occupant is passed on when it changes,
//! and CPU time becomes work at the speed that the hardware says. Without it nothing here does
//! anything.
//!
//! Order: time until now is accounted at the speed that held, before anything changes it.

use super::Engine;
use crate::clock::Fixed;
use crate::kernel::Elapsed;
use contract::Scheduler;
use hardware::{Done, Hardware, Machine, Occupant, Profile};
use settings::{HardwareSpec, ProfileSpec, RunSpec, built_in_profiles};
use topology::Topology;

/// How often what worlds take from each other in an LLC is found anew.
const RENEW_NS: u64 = 1_000_000;

/// Threads of a core (`topology::Shape`).
const THREADS_MAX: usize = 8;

/// The hardware of a run, if it has any.
pub(super) fn build(spec: &RunSpec, topology: &Topology) -> Option<Hardware> {
    let machine = machine(spec.hardware()?);
    let none = &built_in_profiles()[0];
    let named = |name: &Option<String>| {
        profile(name.as_deref().and_then(|name| spec.profile(name)).unwrap_or(none))
    };
    // World 0 stands for none.
    let mut profiles = vec![profile(none)];
    for vm in &spec.vms {
        profiles.extend((0..vm.vcpus).map(|_| named(&vm.profile)));
    }
    profiles.extend(spec.host_tasks.iter().map(|task| named(&task.profile)));
    Some(Hardware::new(topology, &machine, profiles))
}

/// In bytes a us.
fn per_us(bytes_per_s: u64) -> u64 {
    bytes_per_s / 1_000_000
}

fn machine(h: &HardwareSpec) -> Machine {
    Machine {
        private: h.private_cache.0,
        llc: h.llc.0,
        from_llc_ns: h.from_llc.ns(),
        from_memory_ns: h.from_memory.ns(),
        from_node_ns: h.from_node.ns(),
        migration_ns: h.migration.ns(),
        bandwidth: per_us(h.bandwidth.0),
    }
}

/// A profile as the model of hardware takes it.
#[must_use]
pub fn profile(p: &ProfileSpec) -> Profile {
    let permille = |part: f64| (part * 1000.0).round() as u64;
    Profile {
        smt_permille: permille(p.smt_yield),
        set: p.working_set.0,
        uncached_permille: permille(p.uncached),
        bandwidth: per_us(p.bandwidth.0),
        uncached_bandwidth: per_us(p.uncached_bandwidth.unwrap_or(p.bandwidth).0),
        memory_permille: permille(p.memory_bound),
    }
}

impl<P: Scheduler> Engine<P> {
    /// What has passed on a pCPU becomes work.
    pub(super) fn work_on(&mut self, pcpu: u32, past: &Elapsed) {
        let Some(hardware) = &mut self.hardware else { return };
        let done = if self.cast.computes(past.world) {
            hardware.pass(pcpu, past.worked_ns)
        } else {
            Done { work_ns: past.worked_ns, ..Done::default() }
        };
        self.cast.works_on(past.world, past.ran_ns - past.worked_ns, done);
    }

    /// CPU time that so much work of what runs on a pCPU takes.
    #[inline]
    pub(super) fn time_for(&self, pcpu: u32, work_ns: u64) -> u64 {
        match &self.hardware {
            Some(h) if self.cast.computes(self.kernel.current(pcpu)) => h.time_for(pcpu, work_ns),
            _ => work_ns,
        }
    }

    /// Something else runs on a pCPU from now on, or nothing.
    #[inline]
    pub(super) fn occupied(&mut self, pcpu: u32) {
        let Some(hardware) = &self.hardware else { return };
        let occupant = match self.kernel.current(pcpu) {
            _ if self.kernel.is_taken(pcpu) => Occupant::Other,
            0 => Occupant::Idle,
            world => Occupant::World(world),
        };
        let before = hardware.occupant(pcpu);
        if before != occupant {
            self.occupy(pcpu, occupant, (before == Occupant::Idle) != (occupant == Occupant::Idle));
        }
    }

    fn occupy(&mut self, pcpu: u32, occupant: Occupant, wakes_or_idles: bool) {
        let (mut partners, mut count) = ([0; THREADS_MAX], 0);
        if let Some(h) = self.hardware.as_ref().filter(|_| wakes_or_idles) {
            for partner in h.partners(pcpu).take(THREADS_MAX) {
                partners[count] = partner;
                count += 1;
            }
        }
        let partners = &partners[..count];
        partners.iter().for_each(|p| self.account(*p));
        let Some(hardware) = &mut self.hardware else { return };
        hardware.occupy(pcpu, occupant);
        self.hardware_later();
        partners.iter().for_each(|p| self.arm_done(*p));
    }

    /// What worlds take from each other is found anew soon, if that may have changed.
    pub(super) fn hardware_later(&mut self) {
        let pressed = self.hardware.as_ref().is_some_and(Hardware::is_pressed);
        if pressed && !self.clock.is_armed(Fixed::Hardware) {
            self.clock.arm(Fixed::Hardware, self.kernel.now() + RENEW_NS);
        }
    }

    /// Speeds follow what the worlds of each LLC take from each other now.
    pub(super) fn renew_hardware(&mut self) {
        let Some(hardware) = &mut self.hardware else { return };
        for pcpu in hardware.renew() {
            self.account(pcpu);
            if let Some(hardware) = &mut self.hardware {
                hardware.apply(pcpu);
            }
            self.arm_done(pcpu);
        }
    }
}
