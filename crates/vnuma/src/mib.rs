//! Amounts of memory in whole MiB, as VMs are given it; it knows no bytes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Memory in MiB.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    Hash,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Mib(pub u64);

/// A text that is no amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory: cannot read '{seen}': allowed whole MiB, GiB or TiB from 1M to 4096T, as in 64G")]
pub struct MibError {
    /// What was given.
    pub seen: String,
}

impl Mib {
    /// 4 PiB: the 52 bits of a physical address of x86.
    pub const MAX: Mib = Mib(1 << 32);
}

/// Units by their letter, in MiB.
const UNITS: [(char, u64); 3] = [('T', 1 << 20), ('G', 1 << 10), ('M', 1)];

impl FromStr for Mib {
    type Err = MibError;

    fn from_str(text: &str) -> Result<Mib, MibError> {
        let bad = || MibError { seen: text.to_owned() };
        let end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = text[..end].parse().map_err(|_| bad())?;
        let unit = text[end..].trim().to_ascii_uppercase();
        let named = |letter: char| [format!("{letter}"), format!("{letter}IB")].contains(&unit);
        let (_, factor) = UNITS.iter().find(|u| named(u.0)).ok_or_else(bad)?;
        let mib = number.checked_mul(*factor).map(Mib).ok_or_else(bad)?;
        if mib == Mib(0) || mib > Mib::MAX { Err(bad()) } else { Ok(mib) }
    }
}

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 && self.0 % 1024 == 0 {
            write!(f, "{} GiB", self.0 / 1024)
        } else {
            write!(f, "{} MiB", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_a_unit_and_are_whole_mib() {
        for (text, mib) in [("1M", 1), ("64G", 65536), ("64 GiB", 65536), ("2tib", 2 << 20)] {
            assert_eq!(text.parse(), Ok(Mib(mib)), "{text}");
        }
        assert_eq!("4096T".parse(), Ok(Mib::MAX));
        for bad in ["", "G", "64", "0M", "1.5G", "-1G", "1K", "4097T", "99999999999999999999G"] {
            assert_eq!(bad.parse::<Mib>(), Err(MibError { seen: bad.to_owned() }));
        }
        assert_eq!(
            (Mib(2048).to_string(), Mib(100).to_string()),
            ("2 GiB".into(), "100 MiB".into())
        );
    }
}
