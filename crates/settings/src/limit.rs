//! A limit as written in settings: an amount of CPU, or `unlimited` (ESXi's -1); `resources.rs`
//! checks it against its VM.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};
use units::{CpuAmount, CpuAmountError};

/// The upper bound of a VM or pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LimitSetting {
    /// None: `unlimited` or -1.
    #[default]
    Unlimited,
    /// So much CPU in any second, even on an idle host.
    Amount(CpuAmount),
}

/// A text that is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}; or unlimited (-1)")]
pub struct LimitError {
    /// Why it is no amount either.
    #[from]
    pub cause: CpuAmountError,
}

impl LimitSetting {
    /// The amount, `None` for `unlimited`.
    #[must_use]
    pub const fn amount(self) -> Option<CpuAmount> {
        match self {
            LimitSetting::Unlimited => None,
            LimitSetting::Amount(amount) => Some(amount),
        }
    }
}

impl FromStr for LimitSetting {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<LimitSetting, LimitError> {
        match text.trim() {
            "-1" => Ok(LimitSetting::Unlimited),
            t if t.eq_ignore_ascii_case("unlimited") => Ok(LimitSetting::Unlimited),
            t => Ok(LimitSetting::Amount(t.parse()?)),
        }
    }
}

impl fmt::Display for LimitSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitSetting::Unlimited => f.write_str("unlimited"),
            LimitSetting::Amount(amount) => amount.fmt(f),
        }
    }
}

impl Serialize for LimitSetting {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LimitSetting {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<LimitSetting, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = LimitSetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a limit: a text with an amount of CPU such as 250% or 2.4GHz, or \
                    unlimited (-1)",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LimitSetting, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<LimitSetting, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<LimitSetting, E> {
                self.visit_str(&number.to_string())
            }
        }
        d.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_an_amount_or_unlimited() {
        for text in ["unlimited", "Unlimited", "-1", " -1 "] {
            assert_eq!(text.parse::<LimitSetting>().unwrap(), LimitSetting::Unlimited);
        }
        let limit: LimitSetting = "2.4GHz".parse().unwrap();
        assert_eq!(
            (limit.to_string(), limit.amount()),
            ("2400MHz".to_owned(), Some(CpuAmount::mhz(2400)))
        );
        assert_eq!(
            LimitSetting::default().to_string().parse::<LimitSetting>().unwrap(),
            LimitSetting::Unlimited
        );
    }

    #[test]
    fn what_is_no_limit_is_refused_with_both_ways_to_write_one() {
        for (text, part) in [
            ("none", "seen the unit 'none'"),
            ("-2", "seen less than 0"),
            ("300", "seen no unit"),
            ("max", "the unit 'max'"),
        ] {
            let seen = text.parse::<LimitSetting>().expect_err(text).to_string();
            assert!(seen.contains(part) && seen.ends_with("or unlimited (-1)"), "{seen}");
        }
    }
}
