//! What carries the accesses of many worlds at once: the memory controllers of each node, and the
//! way from each node to the others.
//!
//! *Law*: a world that waits for memory for `m` of its time goes at
//! `1 ÷ (1 + m · e + Σ m' · a · x)`, where `e` is what distances add, `a` the part of its accesses
//! that go by a way, and `x` how much longer an access takes there because others wait, too. `m'`
//! is `m`, or the part of its time that the way is busy with it if that is more: a world that moves
//! much waits for it once the way is full, however well that is hidden else. Where worlds want no
//! more of a way than it carries its `x` is 0; elsewhere they want just that much.
//!
//! *Method*: the ways one after the other, some rounds of it, from the `x` of last time. For one
//! way Newton's steps on `1 ÷ what is wanted`, which grows nearly in proportion with `x` and ever
//! more slowly, so that no step goes too far; `x` is rounded up, to a 64th.

use crate::speed::ONE;

/// Steps of `x`.
const STEP: u64 = ONE / 64;
/// Most of `x`: an access takes 64 times as long.
const MOST: u64 = 64 * ONE;
/// Rounds over all ways, and steps for one of them, at most.
const ROUNDS: usize = 16;
const STEPS: usize = 8;

/// A world that runs, as the ways see it.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// What it wants while nothing of memory slows it, in bytes a us.
    pub(crate) wanted: u64,
    /// `1 ÷ speed` by distances alone, in 2^-16.
    pub(crate) near: u64,
    /// Ways that its accesses go by.
    pub(crate) by: Vec<Way>,
}

/// Accesses of a world by one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Number of the way.
    pub(crate) way: usize,
    /// Part of all its accesses, in permille.
    pub(crate) part: u64,
    /// Part of its time that it waits for these, in permille.
    pub(crate) waits: u64,
}

/// Users at their present speeds.
struct Solver<'a> {
    users: &'a [User],
    /// By way, with the user.
    parts: Vec<Vec<(usize, Way)>>,
    /// `1 ÷ speed` of each user, in 2^-16.
    divisors: Vec<u64>,
}

/// Finds how much longer accesses take on each way, of which each carries so many bytes a us.
pub(crate) fn solve(users: &[User], carries: &[u64], longer: &mut [u64]) {
    let mut parts: Vec<Vec<(usize, Way)>> = carries.iter().map(|_| vec![]).collect();
    for (user, of) in users.iter().enumerate() {
        of.by.iter().for_each(|way| parts[way.way].push((user, *way)));
    }
    let mut solver = Solver { users, parts, divisors: users.iter().map(|u| u.near).collect() };
    let pressed = |way: &usize| longer[*way] > 0 || solver.wanted(*way).0 > carries[*way];
    let pressed: Vec<usize> = (0..carries.len()).filter(pressed).collect();
    for way in &pressed {
        solver.takes_longer(*way, 0, longer[*way]);
    }
    for _ in 0..ROUNDS {
        let mut same = true;
        for way in &pressed {
            let x = solver.one(*way, carries[*way].max(1), longer[*way]);
            same &= std::mem::replace(&mut longer[*way], x) == x;
        }
        if same {
            break;
        }
    }
}

impl Solver<'_> {
    /// What its users want of a way, in bytes a us, and how much less for each unit of `x`.
    fn wanted(&self, way: usize) -> (u64, u64) {
        let (mut sum, mut slope) = (0, 0);
        for (user, by) in &self.parts[way] {
            let (of, divisor) = (&self.users[*user], self.divisors[*user]);
            let own = of.wanted * by.part * ONE / 1000 / divisor;
            sum += own;
            slope += own * by.waits * ONE / 1000 / divisor;
        }
        (sum, slope)
    }

    /// An access by this way takes so much longer now, where it took so much longer before.
    fn takes_longer(&mut self, way: usize, before: u64, now: u64) {
        for (user, by) in &self.parts[way] {
            let divisor = &mut self.divisors[*user];
            *divisor = *divisor + by.waits * now / 1000 - by.waits * before / 1000;
        }
    }

    /// `x` of one way, all others being as they are.
    fn one(&mut self, way: usize, carries: u64, before: u64) -> u64 {
        let mut x = before;
        for _ in 0..STEPS {
            let (sum, slope) = self.wanted(way);
            if sum == 0 {
                self.takes_longer(way, x, 0);
                return 0;
            }
            let off = (i128::from(sum) - i128::from(carries)) * i128::from(sum * ONE);
            let more = off / i128::from(carries) / i128::from(slope.max(1));
            let next = (i128::from(x) + more).clamp(0, i128::from(MOST)) as u64;
            let next = next.div_ceil(STEP) * STEP;
            if next == x {
                break;
            }
            self.takes_longer(way, std::mem::replace(&mut x, next), next);
        }
        x
    }
}
