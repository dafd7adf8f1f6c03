//! Sorts claims by the ratio of two numbers, exactly; it divides nothing.
//!
//! How: by the ratio in floating point, which is right but for neighbours within its error, and
//! those are put right by exact products. A comparison of products for each step of the sort costs
//! several times as much, and a division sorts all VMs of a host.

/// Indexes of (numerator, denominator) pairs in ascending order of their ratio, equal ones in order
/// of index. Denominators are above 0.
pub(crate) fn ascending(ratios: &[(u64, u64)]) -> Vec<usize> {
    // Numbers that are not negative are in the order of their bits.
    let near = |(a, b): &(u64, u64)| (*a as f64 / *b as f64).to_bits();
    let mut keys: Vec<(u64, usize)> =
        ratios.iter().enumerate().map(|(i, r)| (near(r), i)).collect();
    keys.sort_unstable();
    let mut order: Vec<usize> = keys.into_iter().map(|k| k.1).collect();
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let after = |x: usize, y: usize| {
        let (a, b) = (ratios[x], ratios[y]);
        product(a.0, b.1).cmp(&product(b.0, a.1)).then(x.cmp(&y)).is_gt()
    };
    for last in 1..order.len() {
        let mut at = last;
        while at > 0 && after(order[at - 1], order[at]) {
            order.swap(at - 1, at);
            at -= 1;
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_that_are_one_number_in_floating_point_are_in_their_exact_order() {
        let large = 1 << 60;
        let close = [(large + 3, large), (large + 1, large), (large + 2, large), (1, 2)];
        assert_eq!(ascending(&close), [3, 1, 2, 0]);
    }

    #[test]
    fn equal_ratios_are_in_order_of_index_and_nothing_is_an_order() {
        assert_eq!(ascending(&[(2, 4), (0, 9), (1, 2), (0, 1), (u64::MAX, 1)]), [1, 3, 0, 2, 4]);
        assert_eq!(ascending(&[]), [0; 0]);
    }
}
