//! Divides one capacity among weighted claims that each have a floor and a cap, for the division of
//! pools; it never looks at a tree.
//!
//! Promise: no claim gets more than its cap, and none less than its floor while the floors fit;
//! nothing is left over while a claim is below its cap; claims between floor and cap get the same
//! per unit of weight (spec P2, P4, P5, P6).
//!
//! Law: `x_i = clamp(λ·w_i, floor_i, cap_i)` with λ such that `Σ x_i = min(capacity, Σ cap_i)`. If
//! `Σ floor_i > capacity`, floors are cut in proportion to themselves:
//! `x_i = capacity·floor_i ÷ Σ floor_i`. So a division is defined also where too much is reserved;
//! `check` reports where and how much.
//!
//! Units: whatever the caller counts in; weights are unitless. The exact `x_i` is rational. Each is
//! rounded down, and the units left (fewer than there are claims strictly between floor and cap) go
//! to the largest remainders among those, ties to the lower index. So the sum is exact, each claim
//! is less than one unit off, and no rounding passes a floor or a cap, because these are whole.
//!
//! Example (VMware's own): of 6000 MHz, VM1 (1000 shares) wants 500, VM2 (1000) has 2250 reserved,
//! VM3 (2000) takes what it gets. By shares alone VM2 would get a third of 5500, which is less than
//! its reservation:
//! ```
//! use entitlement::{Between, fill_between};
//! let claim = |weight, floor, cap| Between { weight, floor, cap };
//! let claims = [claim(1000, 0, 500), claim(1000, 2250, 6000), claim(2000, 0, 6000)];
//! let x = fill_between(6000, &claims);
//! assert_eq!(x, [500, 2250, 3250]);
//! ```
//!
//! How: each claim leaves its floor at `λ = floor ÷ w` and reaches its cap at `λ = cap ÷ w`. These
//! edges are sorted, and λ climbs over them until the sum reaches the capacity: O(n log n).
//!
//! Limits: capacity at most 2^62 units; weights sum below 2^64. A claim of weight 0 gets its floor
//! and no more.

use crate::{fill::by_weight, ratio};

/// What one claims of a capacity: never less than the floor, never more than the cap, by weight
/// between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Between {
    /// Unitless weight, such as shares.
    pub weight: u64,
    /// What it gets at least, while the floors fit; at most the cap.
    pub floor: u64,
    /// The most it can use.
    pub cap: u64,
}

/// Where a claim begins or ceases to follow λ: at `at ÷ weight`.
#[derive(Clone, Copy)]
struct Edge {
    at: u64,
    weight: u64,
    claim: usize,
    leaves_floor: bool,
}

/// Divides `capacity` by the law above.
///
/// # Panics
/// Beyond the limits above, or for a floor above its cap.
#[must_use]
pub fn fill_between(capacity: u64, claims: &[Between]) -> Vec<u64> {
    assert!(
        capacity <= 1 << 62,
        "capacity: cannot divide it exactly: seen {capacity}, allowed 0..2^62"
    );
    let weights: u128 = claims.iter().map(|c| u128::from(c.weight)).sum();
    assert!(
        weights < 1 << 64,
        "weights: cannot divide exactly: seen a sum of {weights}, allowed below 2^64"
    );
    if let Some(c) = claims.iter().find(|c| c.floor > c.cap) {
        panic!(
            "claim: cannot divide: seen a floor of {} and a cap of {}, allowed a floor up to the \
                cap",
            c.floor, c.cap
        );
    }
    let floors: u128 = claims.iter().map(|c| u128::from(c.floor)).sum();
    if floors > u128::from(capacity) {
        let mut out = vec![0; claims.len()];
        let floors: Vec<(usize, u64)> = claims.iter().map(|c| c.floor).enumerate().collect();
        by_weight(capacity, &floors, |i, units| out[i] = units);
        return out;
    }
    // What all ask for may fit.
    let most = |c: &Between| if c.weight > 0 { c.cap } else { c.floor };
    if claims.iter().map(|c| u128::from(most(c))).sum::<u128>() <= u128::from(capacity) {
        return claims.iter().map(most).collect();
    }
    climb(capacity, floors as u64, claims)
}

/// Raises λ from 0 until the sum, first `floors`, reaches the capacity or all claims are at their
/// caps.
fn climb(capacity: u64, floors: u64, claims: &[Between]) -> Vec<u64> {
    let mut out: Vec<u64> = claims.iter().map(|c| c.floor).collect();
    let mut open = vec![false; claims.len()];
    // What claims at a floor or cap have; it is at most the sum at the λ reached, so at most the
    // capacity.
    let mut fixed = u128::from(floors);
    let mut weight_open = 0u128;
    for edge in edges(claims) {
        let left = u128::from(capacity) - fixed;
        if weight_open * u128::from(edge.at) >= left * u128::from(edge.weight) {
            break;
        }
        let claim = &claims[edge.claim];
        open[edge.claim] = edge.leaves_floor;
        if edge.leaves_floor {
            fixed -= u128::from(claim.floor);
            weight_open += u128::from(claim.weight);
        } else {
            fixed += u128::from(claim.cap);
            weight_open -= u128::from(claim.weight);
            out[edge.claim] = claim.cap;
        }
    }
    let open: Vec<(usize, u64)> =
        claims.iter().enumerate().filter(|(i, _)| open[*i]).map(|(i, c)| (i, c.weight)).collect();
    by_weight((u128::from(capacity) - fixed) as u64, &open, |i, units| out[i] = units);
    out
}

/// The edges in ascending λ. Their order at one λ does not matter: the sum is continuous there.
fn edges(claims: &[Between]) -> Vec<Edge> {
    let mut edges = Vec::with_capacity(2 * claims.len());
    for (claim, c) in claims.iter().enumerate().filter(|(_, c)| c.weight > 0 && c.floor < c.cap) {
        edges.push(Edge { at: c.floor, weight: c.weight, claim, leaves_floor: true });
        edges.push(Edge { at: c.cap, weight: c.weight, claim, leaves_floor: false });
    }
    let ratios: Vec<(u64, u64)> = edges.iter().map(|e| (e.at, e.weight)).collect();
    ratio::ascending(&ratios).into_iter().map(|i| edges[i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(claims: &[(u64, u64, u64)]) -> Vec<Between> {
        claims
            .iter()
            .map(|(weight, floor, cap)| Between { weight: *weight, floor: *floor, cap: *cap })
            .collect()
    }

    #[test]
    fn a_floor_takes_from_the_others_by_their_weights() {
        assert_eq!(fill_between(100, &of(&[(1, 40, 100), (1, 0, 100), (2, 0, 100)])), [40, 20, 40]);
    }

    #[test]
    fn a_floor_that_weights_exceed_anyway_changes_nothing() {
        assert_eq!(fill_between(90, &of(&[(1, 20, 100), (2, 60, 100)])), [30, 60]);
    }

    #[test]
    fn floors_that_do_not_fit_are_cut_in_proportion_to_themselves() {
        // 6.67, 3.33
        assert_eq!(fill_between(10, &of(&[(9, 20, 20), (1, 10, 50), (5, 0, 50)])), [7, 3, 0]);
        assert_eq!(fill_between(0, &of(&[(1, 1, 1)])), [0]);
    }

    #[test]
    fn units_that_do_not_divide_go_to_the_largest_remainders_first_index_first() {
        assert_eq!(fill_between(10, &of(&[(1, 0, 100), (1, 0, 100), (1, 0, 100)])), [4, 3, 3]);
        assert_eq!(fill_between(11, &of(&[(1, 4, 100), (1, 0, 100), (1, 0, 100)])), [4, 4, 3]);
    }

    #[test]
    fn many_whose_floor_is_their_cap_have_just_that() {
        let mut claims = of(&[(3, 5, 5)].repeat(100));
        claims.extend(of(&[(1, 0, 1000), (3, 0, 1000)]));
        let x = fill_between(900, &claims);
        assert!(x[..100].iter().all(|x| *x == 5));
        assert_eq!(x[100..], [100, 300]);
    }

    #[test]
    fn everybody_at_its_cap_leaves_the_rest_and_weight_0_gets_its_floor() {
        assert_eq!(fill_between(100, &of(&[(1, 0, 10), (1, 5, 20)])), [10, 20]);
        assert_eq!(fill_between(100, &of(&[(0, 5, 60), (1, 0, 60)])), [5, 60]);
        assert_eq!(fill_between(100, &[]), [0; 0]);
    }

    #[test]
    fn the_largest_numbers_allowed_do_not_overflow() {
        let (half, most) = (1 << 61, u64::MAX);
        assert_eq!(
            fill_between(1 << 62, &of(&[(most / 2, 0, most), (most / 2, 0, most)])),
            [half, half]
        );
        assert_eq!(fill_between(1 << 62, &of(&[(1, most, most), (1, most, most)])), [half, half]);
    }

    #[test]
    #[should_panic(expected = "seen a floor of 2 and a cap of 1")]
    fn a_floor_above_its_cap_is_refused() {
        let _ = fill_between(10, &of(&[(1, 2, 1)]));
    }
}
