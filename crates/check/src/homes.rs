//! What must be so of NUMA homes: a change for an imbalance causes none, the clients of a VM do not
//! crowd a node, memory follows, and not faster than it may. It learns of homes and memory, and of
//! no world.

/// What homes are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeTerms {
    /// How much of an imbalance a change for it may turn round, in percent.
    pub thrash_percent: u64,
    /// Load of a node beyond which some vCPU waits, in permille of its cores: a change may leave
    /// any imbalance without such a node.
    pub contended_permille: u64,
    /// Most memory that is moved in a round, in bytes.
    pub round_bytes: u64,
    /// Rounds at home in which pages that are not hot do not follow.
    pub slow_rounds: u64,
    /// Rounds after which memory follows at the full rate; until then that doubles each round.
    pub ramp_rounds: u64,
}

/// A change of a home for an imbalance of CPU load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeChange {
    /// Loads of both nodes before it, in permille of their cores.
    pub saw_permille: (u64, u64),
    /// What they would be with that alone.
    pub expected_permille: (u64, u64),
}

/// A client at a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeSeen {
    /// Which part of its VM it is.
    pub part: u32,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its home.
    pub home: u32,
    /// Most vCPUs of its VM in one node.
    pub most: u32,
    /// Its memory, and how much of that is elsewhere, in bytes.
    pub bytes: u64,
    /// As above.
    pub away: u64,
    /// Bytes that are free at home.
    pub room: u64,
    /// Bytes of pages that are not hot that have followed it since the last round.
    pub cold_moved: u64,
}

/// The law of a change: the imbalance that it leaves the other way round, or more of it than there
/// was, and what it may leave of that, in permille, if that is less.
pub(crate) fn leaves(terms: &HomeTerms, change: &HomeChange) -> Option<(u64, u64)> {
    let (saw, expected) = (change.saw_permille, change.expected_permille);
    let contended = |p: (u64, u64)| p.0.max(p.1) > terms.contended_permille;
    if contended(saw) && !contended(expected) {
        return None;
    }
    let (before, after) = (saw.0.abs_diff(saw.1), expected.0.abs_diff(expected.1));
    let turned = (saw.0 > saw.1) != (expected.0 > expected.1);
    let most = if turned { before * terms.thrash_percent / 100 } else { before };
    (after > most).then_some((after, most))
}

/// The law of siblings: vCPUs of a VM in one node, and how many may be there, if that is less. One
/// client alone is as large as it is.
pub(crate) fn crowds(all: &[HomeSeen], of: &HomeSeen) -> Option<(u32, u32)> {
    let here: Vec<&HomeSeen> = all.iter().filter(|c| c.home == of.home).collect();
    let sum = here.iter().map(|c| c.vcpus).sum();
    (here.len() > 1 && sum > of.most).then_some((sum, of.most))
}

/// How long a client has been at a home with memory elsewhere, and how much of it there was at
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Away {
    home: Option<u32>,
    settled: u64,
    rounds: u64,
    first: u64,
    over: bool,
}

impl Away {
    /// The law of the slow start: bytes that are not hot and have followed in this round, and how
    /// many might, if those are fewer. To be asked after `see`.
    pub(crate) fn hurries(&self, terms: &HomeTerms, c: &HomeSeen) -> Option<(u64, u64)> {
        let steps = terms.ramp_rounds - terms.slow_rounds - 1;
        let most = match self.settled.checked_sub(terms.slow_rounds + 1) {
            None => 0,
            Some(n) => (terms.round_bytes >> steps).max(1) << n.min(steps),
        };
        (c.cold_moved > most).then_some((c.cold_moved, most))
    }

    /// The law of memory: all of it has followed once a client has been at home for the ramp, and
    /// for as long as moving it takes while `clients` share the rate; twice, for a round counts
    /// whole. What has not, and after how many rounds, when that begins to be too much.
    pub(crate) fn see(
        &mut self,
        terms: &HomeTerms,
        clients: u64,
        c: &HomeSeen,
    ) -> Option<(u64, u64)> {
        if self.home != Some(c.home) {
            *self = Away { home: Some(c.home), first: c.away, ..Away::default() };
            return None;
        }
        self.settled += 1;
        // A node that was full gives room later: it counts from there.
        if c.away == 0 || c.room < c.away || terms.round_bytes == 0 {
            (self.rounds, self.first) = (0, c.away);
            return None;
        }
        self.rounds += 1;
        let moving = (self.first * clients.max(1)).div_ceil(terms.round_bytes);
        let over = self.rounds > 2 * (terms.ramp_rounds + moving);
        let began = over && !self.over;
        self.over = over;
        began.then_some((c.away, self.rounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: HomeTerms = HomeTerms {
        thrash_percent: 50,
        contended_permille: 1020,
        round_bytes: 1 << 20,
        slow_rounds: 2,
        ramp_rounds: 9,
    };

    #[test]
    fn a_change_leaves_no_other_imbalance() {
        let change = |saw_permille, expected_permille| {
            leaves(&TERMS, &HomeChange { saw_permille, expected_permille })
        };
        assert_eq!(change((2000, 1000), (1500, 1500)), None);
        assert_eq!(change((2000, 1000), (1250, 1750)), None);
        assert_eq!(change((2000, 1000), (1000, 2000)), Some((1000, 500)));
        assert_eq!(change((1000, 2000), (1750, 1250)), None, "the other one of an exchange");
        assert_eq!(change((1000, 2000), (1751, 1249)), Some((502, 500)));
        assert_eq!(change((2000, 0), (1900, 100)), None, "a part of it is no other one");
        assert_eq!(change((1900, 100), (2000, 0)), Some((2000, 1800)), "it widens it");
        assert_eq!(change((1240, 240), (1000, 480)), None, "none is contended");
    }

    #[test]
    fn siblings_do_not_crowd_and_memory_follows() {
        let c = HomeSeen {
            part: 0,
            vcpus: 4,
            home: 1,
            most: 6,
            bytes: 1,
            away: 0,
            room: 1 << 30,
            cold_moved: 0,
        };
        let other = HomeSeen { part: 1, ..c };
        assert_eq!(crowds(&[c, other], &c), Some((8, 6)));
        assert_eq!(crowds(&[c, HomeSeen { home: 0, ..other }], &c), None);
        assert_eq!(crowds(&[HomeSeen { vcpus: 9, ..c }], &c), None);
        let far = HomeSeen { away: 4 << 20, ..c };
        let mut away = Away::default();
        let found: Vec<u64> = (0..60).filter(|_| away.see(&TERMS, 2, &far).is_some()).collect();
        assert_eq!(found, [35], "2 x (9 + 8) rounds, and said once");
        assert_eq!(away.see(&TERMS, 2, &HomeSeen { room: 0, ..far }), None, "its home is full");
        let mut away = Away::default();
        let most = (0..12).map(|_| {
            away.see(&TERMS, 1, &far);
            away.hurries(&TERMS, &HomeSeen { cold_moved: u64::MAX, ..far }).map_or(0, |m| m.1 >> 14)
        });
        assert_eq!(most.collect::<Vec<_>>(), [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }
}
