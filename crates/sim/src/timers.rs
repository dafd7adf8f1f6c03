//! Timers of a run: an indexed 4-ary heap with one slot for each timer that can exist, so memory is
//! flat in simulated time and a timer is moved or taken back without leaving anything behind.

/// Position of a slot that is not armed.
const NOWHERE: u32 = u32::MAX;

/// A timer in the heap.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Time above, the order of arming below: one number is compared without a branch, and half of
    /// all comparisons would be guessed wrong.
    key: u128,
    slot: u32,
}

impl Entry {
    fn time(self) -> u64 {
        (self.key >> 64) as u64
    }
}

/// The heap.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    heap: Vec<Entry>,
    /// Position of each slot in `heap`.
    position: Vec<u32>,
    seq: u64,
}

impl Timers {
    /// Room for so many slots, all disarmed.
    pub(crate) fn new(slots: usize) -> Timers {
        Timers { heap: Vec::with_capacity(slots), position: vec![NOWHERE; slots], seq: 0 }
    }

    /// Time of the next timer.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.heap.first().map(|e| e.time())
    }

    /// Time a slot is armed for.
    pub(crate) fn armed(&self, slot: usize) -> Option<u64> {
        self.heap.get(self.position[slot] as usize).map(|e| e.time())
    }

    /// Arms a slot, or moves it if it is armed.
    pub(crate) fn arm(&mut self, slot: usize, time: u64) {
        self.seq += 1;
        let entry = Entry { key: u128::from(time) << 64 | u128::from(self.seq), slot: slot as u32 };
        let at = self.position[slot];
        if at == NOWHERE {
            self.heap.push(entry);
            self.up(self.heap.len() - 1, entry);
        } else {
            self.place(at as usize, entry);
        }
    }

    /// Disarms a slot; nothing happens if it is not armed.
    pub(crate) fn disarm(&mut self, slot: usize) {
        let at = std::mem::replace(&mut self.position[slot], NOWHERE);
        if at == NOWHERE {
            return;
        }
        if let Some(last) = self.heap.pop() {
            if (at as usize) < self.heap.len() {
                self.place(at as usize, last);
            }
        }
    }

    /// Takes the next timer: its time and slot.
    pub(crate) fn pop(&mut self) -> Option<(u64, usize)> {
        let first = *self.heap.first()?;
        self.disarm(first.slot as usize);
        Some((first.time(), first.slot as usize))
    }

    fn place(&mut self, at: usize, entry: Entry) {
        if at > 0 && entry.key < self.heap[(at - 1) / 4].key {
            self.up(at, entry)
        } else {
            self.down(at, entry)
        }
    }

    fn up(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.heap[parent].key < entry.key {
                break;
            }
            self.set(at, self.heap[parent]);
            at = parent;
        }
        self.set(at, entry);
    }

    fn down(&mut self, mut at: usize, entry: Entry) {
        loop {
            let first = at * 4 + 1;
            let Some(least) = self.least_child(first) else { break };
            if entry.key < self.heap[least].key {
                break;
            }
            self.set(at, self.heap[least]);
            at = least;
        }
        self.set(at, entry);
    }

    /// Position of the least of up to four children.
    fn least_child(&self, first: usize) -> Option<usize> {
        if let Some([a, b, c, d]) = self.heap.get(first..first + 4) {
            let (ab, ab_key) = if b.key < a.key { (1, b.key) } else { (0, a.key) };
            let (cd, cd_key) = if d.key < c.key { (3, d.key) } else { (2, c.key) };
            return Some(first + if cd_key < ab_key { cd } else { ab });
        }
        (first..self.heap.len()).min_by_key(|c| self.heap[*c].key)
    }

    fn set(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.position[entry.slot as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dice::Stream;

    #[test]
    fn timers_fire_by_time_then_by_order_of_arming() {
        let mut t = Timers::new(8);
        for (slot, time) in [(3, 50), (1, 20), (5, 20), (0, 90), (7, 20)] {
            t.arm(slot, time);
        }
        t.arm(0, 20);
        t.disarm(5);
        assert_eq!((t.armed(0), t.armed(5)), (Some(20), None));
        let order: Vec<(u64, usize)> = std::iter::from_fn(|| t.pop()).collect();
        assert_eq!(order, [(20, 1), (20, 7), (20, 0), (50, 3)]);
    }

    #[test]
    fn it_agrees_with_a_sorted_list_over_random_use() {
        let mut random = Stream::new(7, "timers");
        let mut timers = Timers::new(100);
        let mut list: Vec<(u64, u64, usize)> = vec![];
        for seq in 0..20_000_u64 {
            let slot = random.below(100) as usize;
            match random.below(4) {
                0 => {
                    timers.disarm(slot);
                    list.retain(|e| e.2 != slot);
                }
                1 => {
                    list.sort_unstable();
                    let want = (!list.is_empty()).then(|| list.remove(0)).map(|e| (e.0, e.2));
                    assert_eq!(timers.pop(), want);
                }
                _ => {
                    let time = random.below(1000);
                    timers.arm(slot, time);
                    list.retain(|e| e.2 != slot);
                    list.push((time, seq, slot));
                }
            }
            assert_eq!(timers.heap.len(), list.len());
        }
    }
}
