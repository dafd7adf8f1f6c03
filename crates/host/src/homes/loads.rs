//! What the parts of VMs did since the last round, as the planner takes it.

use super::{Homed, Homes, SAMPLES, SAMPLES_OF_PART};
use crate::{Accounts, Live, publish::Published, view::monotonic_ns};
use numa::{ClientId, Load, Talks};
use sched_core::{KIND_HELPER, STATE_COSTOP, STATE_READY, STATE_RUN, VM_SYSTEM};
use std::collections::BTreeMap;
use units::Span;

/// What a world is charged of the time that it ran: all but what it has lost to the other threads
/// of its core. So is what it is entitled to where cores are divided.
fn charged(ran_ns: u64, lost_ns: u64) -> u64 {
    ran_ns.saturating_sub(lost_ns)
}

impl Homes {
    /// How often VMs woke each other since the last round; what was counted before the first one of
    /// a VM is of any length of time, and is dropped.
    fn talks(&self, accounts: &Accounts) -> Talks {
        let woken = |(of, vm): (&u32, &Homed)| {
            let (of, taken) = (*of, accounts.take_talks(*of));
            let seen = vm.parts.iter().all(|p| p.seen.is_some());
            taken.into_iter().filter(move |_| seen).map(move |(by, times)| (by, of, times))
        };
        self.vms.iter().flat_map(woken).collect()
    }

    /// What the parts did since the last round.
    pub(super) fn loads(&mut self, live: &Live, published: &Published, wall: u64) -> Vec<Load> {
        let mut times: BTreeMap<ClientId, (u64, u64)> = BTreeMap::new();
        let (now, mut system, mut vcpus) = (monotonic_ns(), 0, vec![]);
        let accounts = live.accounts();
        for i in 1..accounts.worlds_len() {
            let Some(w) = accounts.world(i, now) else { continue };
            let time = |state: u32| w.time_ns[state as usize];
            // What a limit holds back wants no CPU.
            let parked = if w.parked_ns == 0 { 0 } else { now.saturating_sub(w.parked_ns) };
            let ready = time(STATE_READY).saturating_sub(w.limited_ns + parked);
            let wanted = time(STATE_RUN) + ready + time(STATE_COSTOP);
            if w.vm == VM_SYSTEM {
                system += wanted;
            }
            let Some(vm) = self.vms.get(&w.vm) else { continue };
            let of = vm.parts.iter().find(|p| p.vcpus.contains(&w.index));
            let Some(part) = of.filter(|_| w.kind != KIND_HELPER) else { continue };
            let lost = w.lost_ns + accounts.losing_ns(&w, now, self.charge);
            let own = (wanted, charged(time(STATE_RUN), lost));
            vcpus.push((part.id, w.index, own));
            let sum = times.entry(part.id).or_default();
            (sum.0, sum.1) = (sum.0 + own.0, sum.1 + own.1);
        }
        let rate = |ns: u64| (u128::from(ns) * 1000 / u128::from(wall.max(1))) as u64;
        for (id, vcpu, all) in vcpus {
            let part = self.vms.get(&id.vm).and_then(|vm| vm.parts.get(id.part as usize));
            part.into_iter().for_each(|p| self.chosen.see(p, vcpu, all, rate));
        }
        let system = rate(system.saturating_sub(self.system_ns.replace(system).unwrap_or(system)));
        let samples = SAMPLES / self.vms.values().map(|v| v.parts.len()).sum::<usize>().max(1);
        let samples = samples.clamp(SAMPLES_OF_PART.0, SAMPLES_OF_PART.1);
        let parts = self.vms.values().flat_map(|vm| vm.parts.iter().map(move |p| (vm, p)));
        let mut memory: Vec<Vec<u64>> =
            parts.map(|(vm, p)| self.memory_of(vm, p, samples)).rev().collect();
        let (talks, mut loads, mut wanted) = (self.talks(accounts), vec![], BTreeMap::new());
        for part in self.vms.values_mut().flat_map(|vm| &mut vm.parts) {
            let all = times.get(&part.id).copied().or(part.seen).unwrap_or_default();
            let (wants, used) = match part.seen.replace(all) {
                Some(seen) => {
                    (rate(all.0.saturating_sub(seen.0)), rate(all.1.saturating_sub(seen.1)))
                }
                // As the planner takes it to be: all its vCPUs burn.
                None => [1000 * part.tids.len() as u64; 2].into(),
            };
            *wanted.entry(part.id.vm).or_insert(0) += wants;
            part.memory = memory.pop().unwrap_or_default();
            let memory = part.memory.clone();
            loads.push(Load {
                id: part.id,
                wanted: wants,
                used,
                entitled: wants, // until it is known better, below
                memory,
                talks: talks.of(part.id, wall),
            });
        }
        wanted.insert(VM_SYSTEM, system);
        let ids = published.ids();
        let demands: Vec<u64> = ids.iter().map(|id| wanted.get(id).copied().unwrap_or(0)).collect();
        let tree = published.tree();
        if tree.leaves().len() == demands.len() {
            let division = tree.divide(1000, &demands).leaves;
            let entitled: BTreeMap<u32, u64> = ids.into_iter().zip(division).collect();
            for (id, leaf) in published.ids().into_iter().zip(tree.leaves()) {
                let vcpus = self.vms.get(&id).map_or(0, |vm| vm.vcpus);
                self.planner.reserve(id, vcpus, leaf.reservation.over(Span::from_ns(1_000)));
            }
            for load in &mut loads {
                let Some(all) = entitled.get(&load.id.vm) else { continue };
                load.entitled = all * load.wanted / wanted[&load.id.vm].max(1);
            }
        }
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::charged;

    #[test]
    fn what_a_world_had_is_what_it_is_charged() {
        // 3 s beside a busy thread with shared_charge 625, then 1 s alone: 2 * 625 / 2 of 3 s.
        assert_eq!(charged(4_000, 1_125), 2_875);
        assert_eq!(charged(10, 12), 0, "records read between two words of a change");
    }
}
