//! Numbers of the command line: what is none is refused with what is allowed.

use std::ops::RangeInclusive;
use units::caps::VCPUS_MAX;

/// A whole number of a range.
pub(crate) fn whole<T>(allowed: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: TryFrom<u64>,
{
    move |text| {
        let number = text.parse::<u64>().ok().filter(|n| allowed.contains(n));
        let number = number.and_then(|n| T::try_from(n).ok());
        number.ok_or_else(|| {
            format!("allowed a whole number of {}..{}", allowed.start(), allowed.end())
        })
    }
}

/// A number of vCPUs; the VM that has them refuses what is none of a VM's.
pub(crate) fn vcpus(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("allowed a whole number of 1..{VCPUS_MAX}"))
}

/// A multiple of the clock's speed.
pub(crate) fn multiple(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "allowed a number of 0.001 to 1000000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_none_is_refused_with_the_range() {
        let small = whole::<u16>(1..=60_000);
        assert_eq!((small("1"), small("60000")), (Ok(1), Ok(60_000)));
        for text in ["", "0", "60001", "-1", "1.5", "x", "18446744073709551616"] {
            assert_eq!(small(text), Err("allowed a whole number of 1..60000".to_owned()), "{text}");
        }
        assert_eq!(whole::<u64>(0..=u64::MAX)("18446744073709551615"), Ok(u64::MAX));
        assert_eq!((vcpus("0"), vcpus("4")), (Ok(0), Ok(4)));
        assert!(vcpus("-4").is_err_and(|e| e.ends_with("of 1..1024")));
    }
}
