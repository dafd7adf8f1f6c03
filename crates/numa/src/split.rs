//! How a wide VM is split into NUMA clients.

/// Sizes of the clients of a VM of so many vCPUs where none may be larger than `most`: as few as
/// there can be, and as equal as they can be (N4).
///
/// # Panics
/// If `most` is 0.
#[must_use]
pub fn split(vcpus: u32, most: u32) -> Vec<u32> {
    assert!(most > 0, "a client has at least one vCPU");
    let parts = vcpus.div_ceil(most).max(1);
    (0..parts).map(|i| vcpus / parts + u32::from(i < vcpus % parts)).collect()
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn clients_are_few_and_equal() {
        assert_eq!(split(4, 4), [4]);
        assert_eq!(split(8, 4), [4, 4], "VS51: an 8-vCPU VM on nodes of four cores");
        assert_eq!(split(8, 8), [8], "preferHT, on four cores with eight threads");
        assert_eq!(split(12, 8), [6, 6]);
        assert_eq!(split(13, 4), [4, 3, 3, 3]);
        for vcpus in 1..200 {
            for most in 1..70 {
                let parts = split(vcpus, most);
                assert_eq!(parts.iter().sum::<u32>(), vcpus);
                assert!(parts.iter().all(|p| (1..=most).contains(p)));
                assert!(parts[0] - parts[parts.len() - 1] <= 1);
            }
        }
    }
}
