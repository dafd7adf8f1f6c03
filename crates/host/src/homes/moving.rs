//! Memory that follows: how much of it when, between two rounds of the planner.

use super::{
    Homes,
    pages::{self, Pages},
};
use crate::{discover::Roots, slots::Slots, view::monotonic_ns};
use numa::Order;
use std::collections::BTreeSet;

/// Of the time that passes, the part in which pages are moved at most, in percent: the daemon has
/// other work, and a kernel that takes long is busy.
const MOVING_PERCENT: u64 = 25;
/// Most time of that at once, but for the last batch.
const MOVING_MOST_NS: u64 = 25_000_000;
/// A node keeps this part of its memory free of what follows.
const RESERVE: u64 = 16;

/// What is moved.
pub(super) struct Moving {
    pages: Pages,
    /// What is to follow until the next round, and bytes that have.
    orders: Vec<(Order, u64)>,
    /// The order that comes first in the next step.
    first: usize,
    /// Time in which pages may be moved; negative after a batch that took longer.
    credit_ns: i64,
    step_ns: u64,
    /// VMs of which it was printed that some memory did not move: process and its start.
    stuck: BTreeSet<(i32, u64)>,
}

impl Moving {
    /// Nothing is to follow yet.
    pub(super) fn new(now: u64) -> Moving {
        Moving {
            pages: Pages::default(),
            orders: vec![],
            first: 0,
            credit_ns: 0,
            step_ns: now,
            stuck: BTreeSet::new(),
        }
    }

    /// Bytes that are to follow until the next round.
    #[cfg(test)]
    pub(super) fn ordered(&self) -> u64 {
        self.orders.iter().map(|(order, _)| order.cold).sum()
    }
}

impl Homes {
    /// What is to follow until the next round: no more than the nodes have room for.
    pub(super) fn order(&mut self, roots: &Roots) {
        let mut room: Vec<u64> = self
            .nodes
            .iter()
            .map(|n| {
                let free = topology::free_kib(&roots.sys, n.kernel).map_or(0, |kib| kib * 1024);
                free.saturating_sub(n.memory / RESERVE)
            })
            .collect();
        // Which pages are hot is not known: none is moved at once.
        let capped = |mut order: Order| {
            let room = &mut room[order.to as usize];
            order.cold = order.cold.min(*room);
            *room -= order.cold;
            (order, 0)
        };
        let orders = self.planner.memory_orders().into_iter().map(capped);
        self.moving.orders = orders.filter(|(o, _)| o.cold > 0).collect();
    }

    /// Moves memory that is due, in turn, for a part of the time that has passed.
    pub(super) fn step(&mut self, now: u64, slots: &Slots, say: &dyn Fn(&str)) {
        let period = self.planner.knobs().period_ms * 1_000_000;
        let passed = now - std::mem::replace(&mut self.moving.step_ns, now);
        let earned = passed.min(period) * MOVING_PERCENT / 100;
        self.moving.credit_ns = (self.moving.credit_ns + earned as i64).min(MOVING_MOST_NS as i64);
        let part = (now - self.round_ns).min(period);
        let count = self.moving.orders.len();
        self.moving.first = self.moving.first.wrapping_add(1);
        for i in 0..count {
            let (order, moved) = &mut self.moving.orders[(self.moving.first % count + i) % count];
            let due = u128::from(order.cold) * u128::from(part) / u128::from(period);
            let due = (due as u64).saturating_sub(*moved);
            let Some(vm) = self.vms.get(&order.client.vm) else { continue };
            let Some(p) = vm.parts.get(order.client.part as usize) else { continue };
            let Some(node) = self.nodes.get(order.to as usize) else { continue };
            if self.moving.credit_ns <= 0 {
                return;
            }
            if due < pages::SIZE {
                continue;
            }
            let begin = monotonic_ns();
            let until = begin + self.moving.credit_ns as u64 / (count - i) as u64;
            let at = (order.client, vm.memory(p));
            let done = self.moving.pages.move_to(vm.pid, &vm.guest, at, (node.kernel, due), until);
            self.moving.credit_ns -= (monotonic_ns() - begin) as i64;
            match done {
                Ok(bytes) => *moved += bytes,
                Err(seen) => {
                    order.cold = 0; // not again before the next round
                    if self.moving.stuck.insert((vm.pid, vm.started)) {
                        let found = slots.found().find(|f| f.pid == vm.pid);
                        let name = found.map_or("?", |f| &f.name);
                        say(&format!(
                            "VM {name}: some of its memory does not follow to node {}: {seen}; \
                                pages that devices or other processes have stay where they are",
                            node.kernel
                        ));
                    }
                }
            }
        }
    }
}
