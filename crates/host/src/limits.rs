//! Gives each limit of the tree a slot in the scheduler's table, in an order in which no world sees
//! half a change.
//!
//! A limit keeps its slot as long as its VM or pool has a limit and the limit above it stays: a
//! world that runs returns its budget to the chain of limits that it started with
//! (`sched/account/budget.h`), so a chain never changes. A change is written in this order: new and
//! kept limits, those above before those below; the used length of the table; the first limit of
//! each VM; and last, limits without worlds below them admit every world. A slot of such a limit is
//! free once no world is parked there or uses its budget, and not before the next look.

use std::collections::{BTreeMap, BTreeSet};
use units::{Rate, caps::LIMITERS_MAX};

/// Whose a limit is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LimitOwner {
    /// A pool, by its path.
    Pool(String),
    /// A VM, by its process and that one's start.
    Vm(i32, u64),
}

/// A limit as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) owner: LimitOwner,
    pub(crate) rate: Rate,
    pub(crate) burst_ns: u64,
    /// The nearest limit above it: a position in the list, before its own.
    pub(crate) parent: Option<usize>,
}

/// What user space writes of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitRecord {
    pub(crate) rate: u64,
    pub(crate) burst_ns: u64,
    pub(crate) parent: u32,
}

/// The scheduler's table of limits, or a test's.
pub(crate) trait Table {
    /// A slot without worlds below it: begins with nothing saved up.
    fn begin(&self, slot: u32, terms: LimitRecord);
    /// A limit in force.
    fn change(&self, slot: u32, terms: LimitRecord);
    /// An ended limit: no world is below it.
    fn end(&self, slot: u32);
    /// Slots in use end here.
    fn used(&self, slots: u32);
    /// The first limit of a VM, 0 for none.
    fn first(&self, vm: u32, slot: u32);
    /// Whether worlds are parked in a slot or use its budget.
    fn in_use(&self, slot: u32) -> bool;
}

/// Slots of limits; number 0 stands for none.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    slots: BTreeMap<LimitOwner, (u32, LimitRecord)>,
    /// Ended, and not free while worlds use them.
    ending: BTreeSet<u32>,
    /// One past the highest that was ever used.
    used: u32,
}

impl Limits {
    /// Puts these limits into force, and for each VM the first that it meets (a position in the
    /// list). How many there was no room for: those are not kept.
    pub(crate) fn set(
        &mut self,
        table: &dyn Table,
        wanted: &[Wanted],
        first: &[(u32, Option<usize>)],
    ) -> usize {
        let keep: BTreeSet<&LimitOwner> = wanted.iter().map(|w| &w.owner).collect();
        let unwanted: Vec<LimitOwner> =
            self.slots.keys().filter(|owner| !keep.contains(owner)).cloned().collect();
        let mut gone: Vec<u32> = vec![];
        // Slot of each in the list, or of the nearest above it that has one.
        let mut at: Vec<u32> = vec![];
        let mut refused = 0;
        for w in wanted {
            let terms = LimitRecord {
                rate: w.rate.0,
                burst_ns: w.burst_ns,
                parent: w.parent.map_or(0, |p| at[p]),
            };
            let old = self.slots.get(&w.owner).copied();
            match self.slot(table, &w.owner, terms) {
                Some(slot) => {
                    gone.extend(old.map(|o| o.0).filter(|old| *old != slot));
                    at.push(slot);
                }
                None => {
                    at.push(old.map_or(terms.parent, |o| o.0));
                    refused += 1;
                }
            }
        }
        for (vm, first) in first {
            table.first(*vm, first.map_or(0, |i| at[i]));
        }
        gone.extend(unwanted.iter().filter_map(|owner| self.slots.remove(owner)).map(|s| s.0));
        for slot in gone {
            self.ending.insert(slot);
            table.end(slot);
        }
        refused
    }

    /// The slot of a limit, written with its terms: another one if the limit above it is another;
    /// `None`, and nothing is written, when there is no room.
    fn slot(&mut self, table: &dyn Table, owner: &LimitOwner, terms: LimitRecord) -> Option<u32> {
        if let Some((slot, old)) =
            self.slots.get_mut(owner).filter(|(_, old)| old.parent == terms.parent)
        {
            if *old != terms {
                *old = terms;
                table.change(*slot, terms);
            }
            return Some(*slot);
        }
        let taken: BTreeSet<u32> =
            self.slots.values().map(|s| s.0).chain(self.ending.iter().copied()).collect();
        let slot = (1..LIMITERS_MAX as u32).find(|slot| !taken.contains(slot))?;
        table.begin(slot, terms);
        if slot >= self.used {
            self.used = slot + 1;
            table.used(self.used);
        }
        if let Some((old, _)) = self.slots.insert(owner.clone(), (slot, terms)) {
            self.ending.insert(old); // ended once every VM's first limit is written
        }
        Some(slot)
    }

    /// Slots of ended limits that no world uses any more are free again.
    pub(crate) fn sweep(&mut self, table: &dyn Table) {
        self.ending.retain(|slot| table.in_use(*slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Takes down what is written.
    #[derive(Default)]
    struct Log {
        lines: RefCell<Vec<String>>,
        parked: RefCell<BTreeMap<u32, u32>>,
    }

    impl Log {
        fn take(&self) -> Vec<String> {
            self.lines.take()
        }
        fn say(&self, line: String) {
            self.lines.borrow_mut().push(line);
        }
    }

    impl Table for Log {
        fn begin(&self, slot: u32, t: LimitRecord) {
            self.say(format!("begin {slot}: {} below {}", t.rate, t.parent));
        }
        fn change(&self, slot: u32, t: LimitRecord) {
            self.say(format!("change {slot}: {} below {}", t.rate, t.parent));
        }
        fn end(&self, slot: u32) {
            self.say(format!("end {slot}"));
        }
        fn used(&self, slots: u32) {
            self.say(format!("used {slots}"));
        }
        fn first(&self, vm: u32, slot: u32) {
            self.say(format!("vm {vm} meets {slot}"));
        }
        fn in_use(&self, slot: u32) -> bool {
            self.parked.borrow().get(&slot).is_some_and(|n| *n > 0)
        }
    }

    fn pool(path: &str, rate: u64, parent: Option<usize>) -> Wanted {
        Wanted { owner: LimitOwner::Pool(path.to_owned()), rate: Rate(rate), burst_ns: 0, parent }
    }

    fn vm(pid: i32, rate: u64, parent: Option<usize>) -> Wanted {
        Wanted { owner: LimitOwner::Vm(pid, 1), rate: Rate(rate), burst_ns: 0, parent }
    }

    #[test]
    fn a_limit_is_written_before_anybody_meets_it_and_ended_after_nobody_does() {
        let (log, mut limits) = (Log::default(), Limits::default());
        assert_eq!(
            limits.set(
                &log,
                &[pool("/a", 40, None), vm(7, 10, Some(0))],
                &[(1, Some(1)), (2, Some(0)), (3, None)]
            ),
            0
        );
        assert_eq!(
            log.take(),
            [
                "begin 1: 40 below 0",
                "used 2",
                "begin 2: 10 below 1",
                "used 3",
                "vm 1 meets 2",
                "vm 2 meets 1",
                "vm 3 meets 0"
            ]
        );
        // The pool's goes: the VM's has another above it, so it is another.
        limits.set(&log, &[vm(7, 10, None)], &[(1, Some(0)), (2, None)]);
        assert_eq!(
            log.take(),
            ["begin 3: 10 below 0", "used 4", "vm 1 meets 3", "vm 2 meets 0", "end 2", "end 1"]
        );
        // What has not changed is not written.
        limits.set(&log, &[vm(7, 10, None)], &[]);
        assert_eq!(log.take(), [""; 0]);
        limits.set(&log, &[vm(7, 20, None)], &[]);
        assert_eq!(log.take(), ["change 3: 20 below 0"]);
    }

    #[test]
    fn a_slot_is_used_again_only_when_nobody_waits_there_and_keeps_its_owner_until_then() {
        let (log, mut limits) = (Log::default(), Limits::default());
        limits.set(&log, &[pool("/a", 1, None), pool("/b", 2, None)], &[]);
        limits.set(&log, &[pool("/b", 2, None)], &[]);
        log.parked.borrow_mut().insert(1, 3);
        limits.sweep(&log);
        log.take();
        limits.set(&log, &[pool("/b", 2, None), pool("/c", 3, None)], &[]);
        assert_eq!(log.take(), ["begin 3: 3 below 0", "used 4"]);
        log.parked.borrow_mut().clear();
        // No world waits there any more, but it is free only from the next look on.
        limits.set(&log, &[pool("/b", 2, None), pool("/c", 3, None), pool("/d", 4, None)], &[]);
        assert_eq!(log.take(), ["begin 4: 4 below 0", "used 5"]);
        limits.sweep(&log);
        limits.set(
            &log,
            &[pool("/a", 9, None), pool("/b", 2, None), pool("/c", 3, None), pool("/d", 4, None)],
            &[],
        );
        assert_eq!(log.take(), ["begin 1: 9 below 0"]);
        // A process that has the number of another is another owner.
        limits.set(&log, &[vm(5, 1, None)], &[]);
        log.take();
        let other = Wanted { owner: LimitOwner::Vm(5, 2), ..vm(5, 1, None) };
        limits.set(&log, &[other], &[(9, Some(0))]);
        assert_eq!(log.take(), ["begin 6: 1 below 0", "used 7", "vm 9 meets 6", "end 5"]);
    }

    #[test]
    fn pools_that_change_places_never_stand_above_each_other() {
        let (log, mut limits) = (Log::default(), Limits::default());
        limits.set(&log, &[pool("/a", 1, None), pool("/b", 2, Some(0))], &[]);
        log.take();
        limits.set(&log, &[pool("/b", 2, None), pool("/a", 1, Some(0))], &[]);
        assert_eq!(
            log.take(),
            ["begin 3: 2 below 0", "used 4", "begin 4: 1 below 3", "used 5", "end 2", "end 1"]
        );
    }

    #[test]
    fn limits_beyond_the_table_are_refused_and_those_above_them_still_hold() {
        let (log, mut limits) = (Log::default(), Limits::default());
        let many: Vec<Wanted> =
            (0..1025).map(|n| pool(&format!("/{n}"), 5, (n > 0).then_some(0))).collect();
        assert_eq!(
            limits.set(&log, &many, &[(1, Some(1022)), (2, Some(1023)), (3, Some(1024))]),
            2
        );
        let lines = log.take();
        assert_eq!(lines[lines.len() - 3..], ["vm 1 meets 1023", "vm 2 meets 1", "vm 3 meets 1"]);
        assert!(lines.contains(&"used 1024".to_owned()));
        // One that has its slot keeps it, and the limit above it, while there is no room for
        // another.
        let again: Vec<Wanted> = [pool("/new", 5, None)]
            .into_iter()
            .chain(many.into_iter().take(1023).map(|w| Wanted { parent: None, ..w }))
            .collect();
        assert_eq!(limits.set(&log, &again, &[(1, Some(1023))]), 1023);
        assert_eq!(log.take().last().map(String::as_str), Some("vm 1 meets 1023"));
    }
}
