//! Queues of numbered members in the order in which they came, each member in at most one; it knows
//! nothing of what they wait for.
//!
//! How: lists linked through a table by number, so that coming and leaving cost the same whatever
//! the length. Time never goes back, so the member that came last is the last.

/// No member.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    queue: u32,
    since: u64,
}

const OUTSIDE: Link = Link { before: NONE, after: NONE, queue: NONE, since: 0 };

/// Queues by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    /// First and last member of each.
    ends: Vec<(u32, u32)>,
    links: Vec<Link>,
}

impl Queues {
    /// One joins a queue at its end, and leaves the one that it is in.
    pub(crate) fn join(&mut self, queue: u32, member: u32, now: u64) {
        self.leave(member);
        let (at, q) = (member as usize, queue as usize);
        if self.links.len() <= at {
            self.links.resize(at + 1, OUTSIDE);
        }
        if self.ends.len() <= q {
            self.ends.resize(q + 1, (NONE, NONE));
        }
        let before = std::mem::replace(&mut self.ends[q].1, member);
        match self.links.get_mut(before as usize) {
            Some(link) => link.after = member,
            None => self.ends[q].0 = member,
        }
        self.links[at] = Link { before, after: NONE, queue, since: now };
    }

    /// One leaves its queue, if it is in one.
    pub(crate) fn leave(&mut self, member: u32) {
        let Some(link) = self.links.get_mut(member as usize) else { return };
        let Link { before, after, queue, .. } = std::mem::replace(link, OUTSIDE);
        let Some(ends) = self.ends.get_mut(queue as usize) else { return };
        match self.links.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => ends.0 = after,
        }
        match self.links.get_mut(after as usize) {
            Some(link) => link.before = before,
            None => ends.1 = before,
        }
    }

    /// Members of a queue with the time of their coming, the first first.
    pub(crate) fn of(&self, queue: u32) -> impl Iterator<Item = (u64, u32)> {
        let first = self.ends.get(queue as usize).map_or(NONE, |ends| ends.0);
        let known = |member: u32| (member != NONE).then_some(member);
        std::iter::successors(known(first), move |m| known(self.links[*m as usize].after))
            .map(|m| (self.links[m as usize].since, m))
    }

    /// The first of each queue that has members, with the queue and the time of its coming.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (u64, u32, u32)> {
        let filled = (0..).zip(&self.ends).filter(|(_, ends)| ends.0 != NONE);
        filled.map(|(queue, ends)| (self.links[ends.0 as usize].since, ends.0, queue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(queues: &Queues, queue: u32) -> Vec<(u64, u32)> {
        queues.of(queue).collect()
    }

    #[test]
    fn members_are_in_the_order_of_their_coming_though_others_leave() {
        let mut q = Queues::default();
        for (at, member) in (10..).zip([3, 0, 7, 5]) {
            q.join(1, member, at);
        }
        q.leave(7);
        q.leave(7);
        q.leave(9);
        assert_eq!(members(&q, 1), [(10, 3), (11, 0), (13, 5)]);
        q.leave(3);
        q.leave(5);
        assert_eq!(members(&q, 1), [(11, 0)]);
        q.leave(0);
        assert_eq!((members(&q, 1), q.firsts().count()), (vec![], 0));
        assert_eq!(members(&q, 4), []);
    }

    #[test]
    fn a_member_that_joins_another_queue_leaves_the_first() {
        let mut q = Queues::default();
        q.join(0, 1, 5);
        q.join(0, 2, 6);
        q.join(2, 1, 7);
        assert_eq!((members(&q, 0), members(&q, 2)), (vec![(6, 2)], vec![(7, 1)]));
        assert_eq!(q.firsts().collect::<Vec<_>>(), [(6, 2, 0), (7, 1, 2)]);
    }
}
