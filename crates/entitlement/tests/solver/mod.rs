//! The law of `tree` by other algorithms, which share no code with it: a solver of one level and
//! the tree as recursive definitions.

use crate::trees::Parts;
use entitlement::Division;
use units::Rate;

/// Weight, floor and cap, as wide as the solver below needs them.
pub type Wide = (u128, u128, u128);

/// The clamped division by another algorithm: each claim gets its part by weight; claims beyond a
/// bound stay at it, those below their floors if their sum is larger, else those above their caps;
/// and again with the rest (the order in which CSS flexbox resolves its minimum and maximum sizes).
pub fn freeze(amount: u128, claims: &[Wide]) -> Vec<u64> {
    let floors: u128 = claims.iter().map(|c| c.1).sum();
    if floors > amount {
        let exact: Vec<(u128, u128)> = claims.iter().map(|c| (amount * c.1, floors)).collect();
        return rounded(amount, &exact);
    }
    if claims.iter().map(|c| c.2).sum::<u128>() <= amount {
        return claims.iter().map(|c| c.2 as u64).collect();
    }
    let mut frozen: Vec<Option<u128>> = vec![None; claims.len()];
    loop {
        let left = amount - frozen.iter().flatten().sum::<u128>();
        let thawed = || (0..claims.len()).filter(|i| frozen[*i].is_none());
        let weight: u128 = thawed().map(|i| claims[i].0).sum();
        let below = |i: &usize| left * claims[*i].0 < claims[*i].1 * weight;
        let above = |i: &usize| left * claims[*i].0 > claims[*i].2 * weight;
        let pulled_up: u128 =
            thawed().filter(below).map(|i| claims[i].1 * weight - left * claims[i].0).sum();
        let pulled_down: u128 =
            thawed().filter(above).map(|i| left * claims[i].0 - claims[i].2 * weight).sum();
        if pulled_up == 0 && pulled_down == 0 {
            let exact = |i: usize| frozen[i].map_or((left * claims[i].0, weight), |x| (x, 1));
            return rounded(amount, &(0..claims.len()).map(exact).collect::<Vec<_>>());
        }
        let floor: Vec<usize> = thawed().filter(|i| pulled_up >= pulled_down && below(i)).collect();
        let cap: Vec<usize> = thawed().filter(|i| pulled_down >= pulled_up && above(i)).collect();
        floor.into_iter().for_each(|i| frozen[i] = Some(claims[i].1));
        cap.into_iter().for_each(|i| frozen[i] = Some(claims[i].2));
    }
}

/// Rounds fractions down and hands out what is missing of `amount` one by one, each to the first
/// with the largest part cut off.
fn rounded(amount: u128, exact: &[(u128, u128)]) -> Vec<u64> {
    let mut out: Vec<u128> = exact.iter().map(|(n, d)| if *d == 0 { 0 } else { n / d }).collect();
    let mut cut: Vec<(u128, u128)> =
        exact.iter().map(|(n, d)| if *d == 0 { (0, 1) } else { (n % d, *d) }).collect();
    for _ in 0..amount - out.iter().sum::<u128>() {
        let mut best = 0;
        for i in 1..cut.len() {
            if cut[i].0 * cut[best].1 > cut[best].0 * cut[i].1 {
                best = i;
            }
        }
        out[best] += 1;
        cut[best] = (0, 1);
    }
    out.into_iter().map(|x| x as u64).collect()
}

/// The law of `tree`, read as recursive definitions.
pub struct Reference<'a> {
    pub parts: &'a Parts,
    pub one: u128,
    pub demands: &'a [u64],
}

#[derive(Clone, Copy)]
pub enum Node {
    Pool(usize),
    Leaf(usize),
}

impl Reference<'_> {
    pub fn children(&self, p: usize) -> Vec<Node> {
        let pools = (1..self.parts.pools.len())
            .filter(|i| self.parts.pools[*i].parent == p)
            .map(Node::Pool);
        pools
            .chain(
                (0..self.parts.leaves.len())
                    .filter(|j| self.parts.leaves[*j].pool == p)
                    .map(Node::Leaf),
            )
            .collect()
    }

    pub fn units(&self, rate: Rate) -> u128 {
        u128::from(rate.0) * self.one / (1 << 20)
    }

    pub fn cap(&self, node: Node) -> u128 {
        let limit = |l: Option<Rate>| l.map_or(u128::MAX, |l| self.units(l));
        match node {
            Node::Pool(p) => self
                .children(p)
                .into_iter()
                .map(|c| self.cap(c))
                .sum::<u128>()
                .min(limit(self.parts.pools[p].limit)),
            Node::Leaf(j) => {
                let leaf = &self.parts.leaves[j];
                let most = self.one * u128::from(leaf.vcpus).min(u128::from(self.parts.pcpus));
                most.min(limit(leaf.limit)).min(u128::from(self.demands[j]))
            }
        }
    }

    pub fn floor(&self, node: Node) -> u128 {
        let wants = match node {
            Node::Pool(p) if self.parts.pools[p].expandable => {
                let held = self.children(p).into_iter().map(|c| self.floor(c)).sum();
                self.units(self.parts.pools[p].reservation).max(held)
            }
            Node::Pool(p) => self.units(self.parts.pools[p].reservation),
            Node::Leaf(j) => self.units(self.parts.leaves[j].reservation),
        };
        wants.min(self.cap(node))
    }

    pub fn weight(&self, node: Node) -> u128 {
        let pool = match node {
            Node::Leaf(j) => return u128::from(self.parts.leaves[j].shares),
            Node::Pool(p) => &self.parts.pools[p],
        };
        let Node::Pool(p) = node else { unreachable!() };
        let held = || self.children(p).into_iter().map(|c| self.weight(c)).sum::<u128>();
        if pool.scalable {
            (held() * u128::from(pool.shares) / 4000).clamp(1, 1 << 32)
        } else {
            u128::from(pool.shares)
        }
    }

    pub fn divide(&self) -> Division {
        let mut out = Division {
            pools: vec![0; self.parts.pools.len()],
            leaves: vec![0; self.parts.leaves.len()],
        };
        self.give(0, self.parts.pcpus * self.one as u64, &mut out);
        out
    }

    fn give(&self, p: usize, amount: u64, out: &mut Division) {
        out.pools[p] = amount;
        let children = self.children(p);
        let claims: Vec<Wide> =
            children.iter().map(|c| (self.weight(*c), self.floor(*c), self.cap(*c))).collect();
        for (child, x) in children.into_iter().zip(freeze(amount.into(), &claims)) {
            match child {
                Node::Pool(q) => self.give(q, x, out),
                Node::Leaf(j) => out.leaves[j] = x,
            }
        }
    }
}
