//! What is wrong, as a violation with its text: seen and allowed.

use super::{Oracle, Shared, World};
use crate::{Invariant, Violation, waits::Overdue};
use units::{PcpuId, VmId, WorldId};

impl Oracle {
    pub(super) fn settle_charge(&mut self, now: u64, world: WorldId, w: &mut World) {
        if let Some(wrong) = w.charge.settle(now) {
            self.wrong_account(now, Invariant::Charge, Some((w.vm, world)), None, wrong);
        }
    }

    pub(super) fn wrong_account(
        &mut self,
        now: u64,
        what: Invariant,
        of: Option<(VmId, WorldId)>,
        p: Option<PcpuId>,
        wrong: (u64, u64, u64),
    ) {
        let (paid, least, most) = wrong;
        let allowed =
            if least == most { format!("{least} ns") } else { format!("{least}..{most} ns") };
        let texts = (format!("{paid} ns in all"), format!("{allowed}, the time run"));
        self.violated(now, what, of.map(|o| o.0), of.map(|o| o.1), p, texts);
    }

    pub(super) fn late(&mut self, now: u64, vm: Option<VmId>, o: Overdue) {
        let (what, verb, max) = match o.pcpu {
            Some(_) => (
                Invariant::IdleWhileWaiting,
                "idle beside the READY world",
                self.bounds.idle_while_waiting_max_ns,
            ),
            None => (Invariant::ReadyTooLong, "READY", self.bounds.ready_max_ns),
        };
        let texts = (format!("{verb} for {} ns", o.ns), format!("{max} ns"));
        self.violated(now, what, vm, Some(WorldId(o.world)), o.pcpu, texts);
    }

    pub(super) fn shared(&mut self, now: u64, shared: Shared) {
        let vm = self.world(WorldId(shared.world)).map(|w| w.vm);
        let max = self.bounds.sharing_max_ns.unwrap_or(u64::MAX);
        let texts = (
            format!(
                "RUN on a shared core for {} ns, core of pCPU {} idle",
                shared.ns, shared.beside.0
            ),
            format!("{max} ns"),
        );
        let (world, pcpu) = (Some(WorldId(shared.world)), Some(shared.pcpu));
        self.violated(now, Invariant::SharedCore, vm, world, pcpu, texts);
    }

    pub(super) fn odd(
        &mut self,
        now: u64,
        vm: Option<VmId>,
        world: Option<WorldId>,
        seen: &str,
        allowed: &str,
    ) {
        self.violated(
            now,
            Invariant::Events,
            vm,
            world,
            None,
            (seen.to_owned(), allowed.to_owned()),
        );
    }

    #[allow(clippy::too_many_arguments)] // One for each field of a violation.
    pub(crate) fn violated(
        &mut self,
        at_ns: u64,
        invariant: Invariant,
        vm: Option<VmId>,
        world: Option<WorldId>,
        pcpu: Option<PcpuId>,
        texts: (String, String),
    ) {
        let named = vm.map(|id| {
            self.vm(id).map_or((id, "unknown".to_owned()), |slot| self.ledger.vm_name(slot))
        });
        let (seen, allowed) = texts;
        self.log.add(invariant, || Violation {
            invariant,
            at_ns,
            vm: named,
            world,
            pcpu,
            seen,
            allowed,
        });
    }
}
