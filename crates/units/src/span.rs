//! A span of time in whole nanoseconds, written as `50ms`, `1.5s` or `200us` in files and options.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// A span of time, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// A text that is no span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "time: cannot read '{seen}': allowed a number with ns, us, ms, s, m or h, such as 50ms or \
        1.5s, up to 10000 h"
)]
pub struct SpanError {
    /// What was given.
    pub seen: String,
}

const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// 10,000 hours: no run is longer, and sums over 1,024 pCPUs stay below 2^64 ns.
const MAX_NS: u128 = 10_000 * 3_600_000_000_000;

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of so many ns.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Span {
        Span(ns)
    }

    /// A span of so many ms.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Span {
        Span(ms * 1_000_000)
    }

    /// A span of so many s.
    #[must_use]
    pub const fn from_secs(s: u64) -> Span {
        Span(s * 1_000_000_000)
    }

    /// In ns.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// In s, for texts only: never used in a decision.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Span, SpanError> {
        let bad = || SpanError { seen: text.to_owned() };
        let t = text.trim();
        let at = t.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let unit = UNITS.iter().find(|u| u.0 == t[at..].trim()).ok_or_else(bad)?.1;
        let (whole, frac) = t[..at].split_once('.').unwrap_or((&t[..at], ""));
        if whole.is_empty() || whole.len() > 18 || frac.len() > 9 {
            return Err(bad());
        }
        let mut ns = u128::from(whole.parse::<u64>().map_err(|_| bad())?) * u128::from(unit);
        if !frac.is_empty() {
            let digits = u128::from(frac.parse::<u64>().map_err(|_| bad())?);
            // Below one ns is rounded down.
            ns += digits * u128::from(unit) / 10u128.pow(frac.len() as u32);
        }
        if ns > MAX_NS { Err(bad()) } else { Ok(Span(ns as u64)) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, per) = match self.0 {
            0 => return f.write_str("0s"),
            n if n % 1_000_000_000 == 0 => ("s", 1_000_000_000),
            n if n % 1_000_000 == 0 => ("ms", 1_000_000),
            n if n % 1_000 == 0 => ("us", 1_000),
            _ => ("ns", 1),
        };
        write!(f, "{}{unit}", self.0 / per)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Span, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units_and_fractions_and_writes_them_back() {
        for (text, ns) in [
            ("50ms", 50_000_000),
            ("1.5s", 1_500_000_000),
            ("200us", 200_000),
            ("0s", 0),
            ("2m", 120_000_000_000),
        ] {
            assert_eq!(text.parse::<Span>().unwrap().ns(), ns, "{text}");
        }
        assert_eq!(Span::from_ns(1_500_000_000).to_string(), "1500ms");
    }

    #[test]
    fn refuses_what_is_no_span() {
        for text in ["", "5", "ms", "-1s", "1e9s", "1..5s", "99999999999h", "5 parsecs"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
