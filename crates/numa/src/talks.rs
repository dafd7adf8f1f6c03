//! How often VMs wake each other, as action affinity takes it.

use crate::ClientId;
use std::collections::BTreeMap;

/// Wake-ups between VMs, in either direction, since they were taken last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Talks(BTreeMap<(u32, u32), u64>);

/// Of VMs whose worlds have woken worlds of others, and how often.
impl FromIterator<(u32, u32, u64)> for Talks {
    fn from_iter<I: IntoIterator<Item = (u32, u32, u64)>>(all: I) -> Talks {
        let mut talks = Talks::default();
        all.into_iter().for_each(|(by, of, times)| talks.add(by, of, times));
        talks
    }
}

impl Talks {
    /// Worlds of one VM have woken worlds of another so often.
    pub fn add(&mut self, by: u32, of: u32, times: u64) {
        *self.0.entry((by.min(of), by.max(of))).or_insert(0) += times;
    }

    /// What a client has of it in a second, of `wall_ns` in all; less than one is left out. The
    /// first client of a VM stands for it: which of a wide VM's parts was woken is not counted.
    #[must_use]
    pub fn of(&self, id: ClientId, wall_ns: u64) -> Vec<(ClientId, u64)> {
        let rate = |n: u64| u128::from(n) * 1_000_000_000 / u128::from(wall_ns.max(1));
        let with = |(&(a, b), &n): (&(u32, u32), &u64)| {
            let other = (a == id.vm).then_some(b).or((b == id.vm).then_some(a))?;
            Some((ClientId { vm: other, part: 0 }, rate(n) as u64))
        };
        self.0.iter().filter_map(with).filter(|(_, n)| id.part == 0 && *n > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_count_for_both_vms_and_for_their_first_parts_alone() {
        let talks = Talks::from_iter([(7, 3, 1_000), (3, 7, 500), (5, 3, 2), (3, 6, 1)]);
        let of = |vm, part| talks.of(ClientId { vm, part }, 2_000_000_000);
        let with = |vm, n| (ClientId { vm, part: 0 }, n);
        assert_eq!(of(3, 0), [with(5, 1), with(7, 750)]);
        assert_eq!(of(7, 0), [with(3, 750)]);
        assert_eq!((of(3, 1), of(4, 0)), (vec![], vec![]));
    }
}
