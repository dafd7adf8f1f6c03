//! NUMA homes as the oracle learns of them.

use super::Oracle;
use crate::Invariant;
use crate::homes::{self, Away, HomeChange, HomeSeen, HomeTerms};
use std::collections::BTreeMap;
use units::{PcpuSet, VmId, WorldId};

/// What homes are held to; whose memory is elsewhere, by VM and client.
#[derive(Clone, Debug, Default)]
pub(super) struct Homes {
    terms: Option<HomeTerms>,
    away: BTreeMap<(VmId, u32), Away>,
    /// When pCPUs came or went last.
    pub(super) plugged: Option<u64>,
}

/// How long what waited on a pCPU that has gone may be under way: the kernel hands it to the pCPU
/// that it belongs to, where it waits for a quantum of 50 ms, after a round of housekeeping in all
/// its parts.
const PLUGGED_NS: u64 = 100_000_000;

impl Oracle {
    /// Homes are held to these terms from now on.
    pub fn home_terms(&mut self, terms: HomeTerms) {
        self.homes.terms = Some(terms);
    }

    /// A world may run on other pCPUs from now on, for its home has changed: the scheduler holds it
    /// there, not the kernel, and one that is on its way elsewhere may arrive.
    pub fn home(&mut self, now_ns: u64, world: WorldId, allowed: Option<PcpuSet>) {
        self.affinity(now_ns, world, allowed);
        if let Some(w) = self.worlds.get_mut(world.0 as usize).and_then(Option::as_mut) {
            w.homed = Some(now_ns);
        }
    }

    /// Whether a world whose home changed at `homed` may arrive outside it now; it is to leave at
    /// once.
    pub(super) fn arrives(&self, now: u64, homed: Option<u64>) -> bool {
        let plugged = self.homes.plugged.is_some_and(|at| now <= at + PLUGGED_NS);
        let grace = self.bounds.affinity_grace_ns;
        homed.is_some_and(|at| plugged || now <= at + grace)
    }

    /// A client of a VM has another home because of an imbalance of CPU load.
    pub fn home_changed(&mut self, now_ns: u64, vm: VmId, part: u32, change: &HomeChange) {
        let now = self.advance(now_ns);
        let Some(terms) = self.homes.terms else { return };
        if let Some((seen, most)) = homes::leaves(&terms, change) {
            let texts = (
                format!("client {part}: a change that leaves an imbalance of {seen} permille"),
                format!("{most} permille"),
            );
            self.violated(now, Invariant::HomeThrash, Some(vm), None, None, texts);
        }
    }

    /// A round: the clients of each VM, and how much memory has moved since the last, in bytes.
    pub fn homes(&mut self, now_ns: u64, all: &[(VmId, Vec<HomeSeen>)], moved: u64) {
        let now = self.advance(now_ns);
        let Some(terms) = self.homes.terms else { return };
        if moved > terms.round_bytes {
            let texts =
                (format!("{moved} bytes moved in a round"), format!("{}", terms.round_bytes));
            self.violated(now, Invariant::MemoryRate, None, None, None, texts);
        }
        let clients = all.iter().flat_map(|(_, c)| c).filter(|c| c.away > 0).count() as u64;
        for (vm, parts) in all {
            if let Some((seen, most)) = parts.iter().find_map(|c| homes::crowds(parts, c)) {
                let texts = (format!("{seen} vCPUs at home in one node"), format!("{most}"));
                self.violated(now, Invariant::HomeCrowded, Some(*vm), None, None, texts);
            }
            for c in parts {
                let away = self.homes.away.entry((*vm, c.part)).or_default();
                let found = away.see(&terms, clients, c);
                let hurries = away.hurries(&terms, c);
                if let Some((seen, most)) = hurries {
                    let texts = (
                        format!("client {}: {seen} bytes that are not hot moved", c.part),
                        format!("{most} so soon after its home changed"),
                    );
                    self.violated(now, Invariant::MemoryRate, Some(*vm), None, None, texts);
                }
                if let Some((seen, rounds)) = found {
                    let texts = (
                        format!(
                            "client {}: {seen} of {} bytes not in its home after {rounds} rounds",
                            c.part, c.bytes
                        ),
                        "none".to_owned(),
                    );
                    self.violated(now, Invariant::MemoryAway, Some(*vm), None, None, texts);
                }
            }
        }
    }
}
