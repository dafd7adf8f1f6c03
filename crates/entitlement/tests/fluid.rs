//! Holds `fill`, `fluid` and `plan` to solvers that share no code with them, on random hosts from
//! fixed seeds.

use entitlement::{Claim, Demand, Fluid, FluidClaim, fill, fluid};
use units::{PcpuId, PcpuSet, Rate};

/// Numbers and claims by seed, so that a failure names the seed that repeats it.
struct Random(dice::Draw);

impl Random {
    fn new(seed: u64) -> Random {
        Random(dice::Draw::new(seed))
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    fn set(&mut self, pcpus: usize) -> PcpuSet {
        let n = 1 + self.below(pcpus as u64);
        (0..n).map(|_| PcpuId(self.below(pcpus as u64) as u16)).collect()
    }

    fn claims(&mut self, pcpus: usize) -> Vec<FluidClaim> {
        let sets: Vec<PcpuSet> = (0..1 + self.below(4))
            .map(|_| self.set(pcpus))
            .chain([PcpuSet::first(pcpus)])
            .collect();
        let n = 1 + self.below(6);
        let class = |r: &mut Random| {
            let rate =
                if r.below(2) == 0 { Rate::pcpus(r.below(5)) } else { Rate(r.below(3 << 20)) };
            (sets[r.below(sets.len() as u64) as usize].clone(), rate)
        };
        let claim = |r: &mut Random| {
            let classes = 1 + r.below(3);
            FluidClaim {
                weight: 1 + r.below(1000),
                classes: (0..classes).map(|_| class(r)).collect(),
            }
        };
        (0..n).map(|_| claim(self)).collect()
    }
}

/// All that the VMs in `subset` can use: the smallest over all choices of sets counted by their
/// pCPUs, the other classes by their demand (max-flow = min-cut, by enumeration).
fn usable(pcpus: &PcpuSet, claims: &[FluidClaim], subset: u32) -> u64 {
    let mut sets: Vec<&PcpuSet> = vec![];
    for (set, _) in claims.iter().flat_map(|c| &c.classes) {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    let cost = |choice: u32| {
        let chosen =
            |s: &PcpuSet| sets.iter().position(|x| *x == s).is_some_and(|k| choice >> k & 1 == 1);
        let covered = sets.iter().filter(|s| chosen(s)).fold(PcpuSet::empty(), |all, s| all.or(s));
        let others = claims
            .iter()
            .enumerate()
            .filter(|(i, _)| subset >> i & 1 == 1)
            .flat_map(|(_, c)| &c.classes);
        (covered.and(pcpus).len() as u64) * Rate::ONE.0
            + others.filter(|c| !chosen(&c.0)).map(|c| c.1.0).sum::<u64>()
    };
    (0..1 << sets.len()).map(cost).min().unwrap()
}

/// The exact fair rates as fractions (numerator, denominator): the tightest subset is fixed,
/// largest first among equals, then the tightest of the rest beside it, until all are.
fn reference(pcpus: &PcpuSet, claims: &[FluidClaim]) -> Vec<(u128, u128)> {
    let all = (1u32 << claims.len()) - 1;
    let most: Vec<u64> = (0..=all).map(|s| usable(pcpus, claims, s)).collect();
    let weight = |s: u32| {
        claims
            .iter()
            .enumerate()
            .filter(|(i, _)| s >> i & 1 == 1)
            .map(|(_, c)| u128::from(c.weight))
            .sum::<u128>()
    };
    let mut out = vec![(0, 1); claims.len()];
    let mut done = 0;
    while done != all {
        let mut best = (u128::MAX, 1, 0);
        for s in (1..=all).filter(|s| s & done == 0) {
            let (room, w) =
                (u128::from(most[(s | done) as usize] - most[done as usize]), weight(s));
            let (a, b) = if best.2 == 0 { (0, 1) } else { (room * best.1, best.0 * w) };
            if a < b || (a == b && s.count_ones() > u32::count_ones(best.2)) {
                best = (room, w, s);
            }
        }
        for (i, c) in claims.iter().enumerate().filter(|(i, _)| best.2 >> i & 1 == 1) {
            out[i] = (best.0 * u128::from(c.weight), best.1);
        }
        done |= best.2;
    }
    out
}

#[test]
fn what_is_taken_last_counts_and_nothing_before() {
    let one = PcpuSet::first(1);
    let mut host = Fluid::new(&PcpuSet::first(2), &[PcpuSet::first(2), one]);
    let ask = |set| Demand { weight: 1, classes: [(set, 100)].into_iter().collect() };
    let half = Rate(Rate::ONE.0 / 2);
    // pCPU 7 is not of this host.
    for (taken, got) in [
        (vec![(0, half)], [100, 50]),
        (vec![(1, half), (7, half)], [75, 75]),
        (vec![(0, Rate::ONE)], [100, 0]),
        (vec![], [100, 100]),
    ] {
        host.set_taken(&taken.iter().map(|(p, rate)| (PcpuId(*p), *rate)).collect());
        assert_eq!(host.divide(100, &[ask(0), ask(1)]), got, "{taken:?}");
    }
}

#[test]
fn fluid_is_less_than_a_unit_off_the_exact_solution_and_loses_nothing() {
    seeds::each(0..4000, |seed| {
        let mut r = Random::new(seed);
        let n = 1 + r.below(8) as usize;
        let host = PcpuSet::first(n);
        let claims = r.claims(n);
        let got = fluid(&host, &claims);
        for (x, (num, den)) in got.iter().zip(reference(&host, &claims)) {
            let x = u128::from(x.0) * den;
            assert!(
                x.abs_diff(num) < den,
                "seed {seed}: {claims:?}: seen {got:?}, allowed {num}/{den}"
            );
        }
        let all = (1u32 << claims.len()) - 1;
        assert_eq!(
            got.iter().map(|x| x.0).sum::<u64>(),
            usable(&host, &claims, all),
            "seed {seed}"
        );
        for s in 1..=all {
            let sum: u64 =
                got.iter().enumerate().filter(|(i, _)| s >> i & 1 == 1).map(|(_, x)| x.0).sum();
            assert!(
                sum < usable(&host, &claims, s) + u64::from(s.count_ones()),
                "seed {seed}: {s:b}"
            );
        }
    });
}

#[test]
fn more_shares_never_give_a_vm_less() {
    seeds::each(0..1500, |seed| {
        let mut r = Random::new(seed);
        let n = 1 + r.below(8) as usize;
        let host = PcpuSet::first(n);
        let claims = r.claims(n);
        let i = r.below(claims.len() as u64) as usize;
        let before = fluid(&host, &claims);
        let mut more = claims.clone();
        more[i].weight += 1 + r.below(500);
        let after = fluid(&host, &more);
        // One unit: the exact rates are monotone, and both are rounded.
        assert!(after[i].0 + 1 >= before[i].0, "seed {seed}: {before:?} {after:?}");
    });
}

#[test]
fn the_order_of_vms_and_of_pcpus_does_not_matter() {
    seeds::each(0..1500, |seed| {
        let mut r = Random::new(seed);
        let n = 1 + r.below(8) as usize;
        let claims = r.claims(n);
        let got = fluid(&PcpuSet::first(n), &claims);
        let mirror =
            |s: &PcpuSet| s.iter().map(|p| PcpuId((n - 1) as u16 - p.0)).collect::<PcpuSet>();
        let mut turned = claims.clone();
        turned.reverse();
        turned.iter_mut().flat_map(|c| &mut c.classes).for_each(|c| c.0 = mirror(&c.0));
        let mut other = fluid(&PcpuSet::first(n), &turned);
        other.reverse();
        // Ties of remainders go by index, hence one unit.
        assert!(
            got.iter().zip(&other).all(|(a, b)| a.0.abs_diff(b.0) <= 1),
            "seed {seed}: {got:?} {other:?}"
        );
    });
}

#[test]
fn what_happens_on_other_pcpus_does_not_matter() {
    seeds::each(0..800, |seed| {
        let mut r = Random::new(seed);
        let n = 1 + r.below(4) as usize;
        let claims = r.claims(n);
        let alone = fluid(&PcpuSet::first(n), &claims);
        let elsewhere = FluidClaim {
            weight: 1 + r.below(5000),
            classes: vec![("4-7".parse().unwrap(), Rate(r.below(8 << 20)))],
        };
        let held = |c: &FluidClaim| FluidClaim {
            classes: c.classes.iter().map(|x| (x.0.and(&PcpuSet::first(n)), x.1)).collect(),
            ..*c
        };
        let mut both: Vec<FluidClaim> = claims.iter().map(held).collect();
        both.push(elsewhere);
        assert_eq!(fluid(&PcpuSet::first(8), &both)[..claims.len()], alone, "seed {seed}");
    });
}

#[test]
fn shares_are_encapsulated_between_vms_that_nobody_else_can_reach() {
    // A and B share pCPU 0 at 1:3 whatever the shares of C on pCPU 1 (spec P3).
    let claim =
        |weight, set: &str| FluidClaim { weight, classes: vec![(set.parse().unwrap(), Rate::ONE)] };
    for c in [1, 100, 262_144] {
        let x = fluid(&PcpuSet::first(2), &[claim(1, "0"), claim(3, "0"), claim(c, "1")]);
        assert_eq!(x, [Rate(1 << 18), Rate(3 << 18), Rate::ONE]);
    }
}

#[test]
fn unrestricted_claims_are_the_same_by_fill_by_fluid_and_by_naive_rounds() {
    seeds::each(0..2000, |seed| {
        let mut r = Random::new(seed);
        let n = 1 + r.below(8);
        let claim = |r: &mut Random| {
            let bits = 1 + r.below(18);
            Claim { weight: 1 + r.below(1 << bits), cap: Rate(r.below(3 << 20)) }
        };
        let claims: Vec<Claim> = (0..1 + r.below(12)).map(|_| claim(&mut r)).collect();
        let got = fill(Rate::pcpus(n), &claims);
        let host = PcpuSet::first(n as usize);
        let classes =
            |c: &Claim| FluidClaim { weight: c.weight, classes: vec![(host.clone(), c.cap)] };
        assert_eq!(
            fluid(&host, &claims.iter().map(classes).collect::<Vec<_>>()),
            got,
            "seed {seed}"
        );
        let (mut open, mut left): (Vec<usize>, u128) =
            ((0..claims.len()).collect(), u128::from(Rate::pcpus(n).0));
        loop {
            let sum: u128 = open.iter().map(|i| u128::from(claims[*i].weight)).sum();
            let full = |i: &usize| {
                u128::from(claims[*i].cap.0) * sum <= left * u128::from(claims[*i].weight)
            };
            let (capped, rest): (Vec<usize>, Vec<usize>) = open.iter().partition(|i| full(i));
            if capped.is_empty() {
                for i in rest {
                    let exact = left * u128::from(claims[i].weight);
                    assert!(
                        (u128::from(got[i].0) * sum).abs_diff(exact) < sum,
                        "seed {seed}: {claims:?} {got:?}"
                    );
                }
                break;
            }
            for i in &capped {
                assert_eq!(got[*i], claims[*i].cap, "seed {seed}");
                left -= u128::from(claims[*i].cap.0);
            }
            open = rest;
        }
    });
}

#[test]
#[ignore = "a measurement: run with --release --ignored --nocapture"]
fn bench_divide_on_the_largest_host_of_vs51() {
    let host = PcpuSet::first(160);
    let mut sets = vec![host.clone()];
    sets.extend((0..8).map(|n| (n * 20..n * 20 + 20).map(PcpuId).collect::<PcpuSet>()));
    sets.extend((0..160).map(|p| [PcpuId(p)].into_iter().collect::<PcpuSet>()));
    let f = Fluid::new(&host, &sets);
    let mut r = Random::new(1);
    for (name, choices) in [("free", 0..1u32), ("nodes", 0..9), ("nodes and pins", 0..169)] {
        for busy in [10, 100] {
            let class = |r: &mut Random| {
                let set = choices.start + r.below(u64::from(choices.end - choices.start)) as u32;
                (set, r.below(10_000_000 * busy / 100) + 1)
            };
            let vm = |r: &mut Random| Demand {
                weight: 500 + 500 * r.below(40),
                classes: [class(r), class(r)].into_iter().collect(),
            };
            let demands: Vec<Demand> = (0..512).map(|_| vm(&mut r)).collect();
            let start = std::time::Instant::now();
            let rounds = 20;
            for _ in 0..rounds {
                std::hint::black_box(f.divide(10_000_000, &demands));
            }
            println!(
                "512 VMs, 160 pCPUs, {name}, {busy} % busy: {} us",
                start.elapsed().as_micros() / rounds
            );
        }
    }
}
