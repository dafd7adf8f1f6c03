//! Divides one capacity among weighted, capped claims, for planner and oracle alike; it never looks
//! at placement.
//!
//! Promise: no claim gets more than its cap; nothing is left over while a claim is below its cap;
//! claims below their caps get the same per unit of weight (spec P2, P4).
//!
//! Law: `x_i = min(λ·w_i, cap_i)` with λ such that `Σ x_i = min(capacity, Σ cap_i)`.
//!
//! Units: whatever the caller counts in (`Rate` units or ns); weights are unitless. The exact `x_i`
//! is rational. Each is rounded down, and the units left (fewer than there are claims below their
//! cap) go to the largest remainders, ties to the lower index. So the sum is exact and each claim
//! is less than one unit off.
//!
//! Example (an infeasible weight): a 1-vCPU VM with 90 % of all shares on 8 pCPUs asks for 7.2
//! pCPUs but can use 1. The other 7 go to the rest:
//! ```
//! use entitlement::{Claim, fill};
//! use units::Rate;
//! let small = Claim { weight: 9000, cap: Rate::pcpus(1) };
//! let wide = Claim { weight: 500, cap: Rate::pcpus(8) };
//! assert_eq!(
//!     fill(Rate::pcpus(8), &[small, wide, wide]),
//!     [Rate::ONE, Rate(7 << 19), Rate(7 << 19)] // 1, 3.5, 3.5
//! );
//! ```
//!
//! How: λ is what is left by the weights that are left; claims whose caps it reaches have these,
//! and λ, which has only risen, is taken again, until it reaches no more. That is Newton's method
//! on a concave function of λ that is linear in parts, so a few passes do.
//!
//! Limits: capacity at most 2^62 units; weights sum below 2^64. A claim of weight 0 gets nothing.

use units::Rate;

/// What one claims of a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Unitless weight, such as shares.
    pub weight: u64,
    /// The most it can use.
    pub cap: Rate,
}

/// Divides `capacity` by the law above.
#[must_use]
pub fn fill(capacity: Rate, claims: &[Claim]) -> Vec<Rate> {
    let claims: Vec<(u64, u64)> = claims.iter().map(|c| (c.weight, c.cap.0)).collect();
    fill_units(capacity.0, &claims).into_iter().map(Rate).collect()
}

/// The same for (weight, cap) in any unit.
///
/// # Panics
/// Beyond the limits above.
#[must_use]
pub fn fill_units(capacity: u64, claims: &[(u64, u64)]) -> Vec<u64> {
    assert!(
        capacity <= 1 << 62,
        "capacity: cannot divide it exactly: seen {capacity}, allowed 0..2^62"
    );
    let mut out = vec![0; claims.len()];
    // A cap above the capacity means the same as the capacity, and keeps the products in 128 bits.
    let cap = |i: usize| u128::from(claims[i].1.min(capacity));
    let weight = |i: usize| u128::from(claims[i].0);
    let mut weight_left: u128 = (0..claims.len()).map(weight).sum();
    assert!(
        weight_left < 1 << 64,
        "weights: cannot divide exactly: seen a sum of {weight_left}, allowed below 2^64"
    );
    // What all ask for may fit.
    let weighed = || (0..claims.len()).filter(|i| claims[*i].0 > 0);
    if weighed().map(cap).sum::<u128>() <= u128::from(capacity) {
        weighed().for_each(|i| out[i] = cap(i) as u64);
        return out;
    }
    let mut open: Vec<usize> = weighed().collect();
    let mut left = u128::from(capacity);
    loop {
        let (mut capped, mut weights) = (0, 0);
        open.retain(|i| {
            let within = cap(*i) * weight_left <= left * weight(*i);
            if within {
                out[*i] = cap(*i) as u64;
                capped += cap(*i);
                weights += weight(*i);
            }
            !within
        });
        if weights == 0 {
            break;
        }
        left -= capped;
        weight_left -= weights;
    }
    let open: Vec<(usize, u64)> = open.into_iter().map(|i| (i, claims[i].0)).collect();
    by_weight(left as u64, &open, |i, units| out[i] = units);
    out
}

/// Gives all of `total` to the (index, weight) pairs in proportion to their weights, by largest
/// remainder.
pub(crate) fn by_weight(total: u64, claims: &[(usize, u64)], mut give: impl FnMut(usize, u64)) {
    let sum: u128 = claims.iter().map(|c| u128::from(c.1)).sum();
    if sum == 0 {
        return;
    }
    let mut left = total;
    let mut parts: Vec<(u128, usize, u64)> = Vec::with_capacity(claims.len());
    for (i, weight) in claims {
        let product = u128::from(total) * u128::from(*weight);
        let floor = (product / sum) as u64;
        left -= floor;
        parts.push((product % sum, *i, floor));
    }
    if left > 0 {
        parts.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    }
    debug_assert!((left as usize) < parts.len().max(1));
    for (k, (_, i, floor)) in parts.into_iter().enumerate() {
        give(i, floor + u64::from((k as u64) < left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_do_not_divide_go_to_the_largest_remainders_first_index_first() {
        assert_eq!(fill_units(10, &[(1, 100), (1, 100), (1, 100)]), [4, 3, 3]);
        assert_eq!(fill_units(10, &[(1, 100), (5, 100), (1, 100)]), [2, 7, 1]); // 1.43, 7.14, 1.43
    }

    #[test]
    fn caps_below_the_level_free_their_rest_for_the_others() {
        assert_eq!(fill_units(100, &[(90, 10), (5, 80), (5, 80)]), [10, 45, 45]);
        assert_eq!(fill_units(100, &[(1, 10), (1, 20)]), [10, 20]);
        assert_eq!(fill_units(100, &[(1, 300), (0, 20)]), [100, 0]);
    }

    #[test]
    fn nothing_is_given_to_nobody_and_to_no_weight() {
        assert_eq!(fill_units(100, &[]), [0; 0]);
        assert_eq!(fill_units(100, &[(0, 50), (7, 60)]), [0, 60]);
        assert_eq!(fill_units(0, &[(1, 50)]), [0]);
    }

    #[test]
    fn the_largest_numbers_allowed_do_not_overflow() {
        let half = 1 << 61;
        assert_eq!(
            fill_units(1 << 62, &[(u64::MAX / 2, u64::MAX), (u64::MAX / 2, u64::MAX)]),
            [half, half]
        );
    }
}
