//! An amount of CPU as written in settings, `250%` of one pCPU or `2.4GHz`, in integers; the speed
//! of a pCPU is the caller's input.

use crate::{Rate, caps::PCPUS_MAX};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};

/// An amount of CPU: percent of one pCPU or MHz, to the thousandth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuAmount {
    unit: Unit,
    thousandths: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unit {
    /// Percent of one pCPU.
    Percent,
    Mhz,
}

/// A text that is no amount of CPU; each says what was seen and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuAmountError {
    /// No text at all.
    #[error("CPU amount: cannot read '': seen nothing, allowed {allowed}", allowed = ALLOWED)]
    Empty,
    /// A negative amount.
    #[error("CPU amount: cannot use '{seen}': seen less than 0, allowed \
        {allowed}", allowed = ALLOWED)]
    Negative {
        /// What was given.
        seen: String,
    },
    /// A number alone.
    #[error("CPU amount: cannot read '{seen}': seen no unit, allowed {allowed}; write {seen}% or \
        {seen}MHz", allowed = ALLOWED)]
    NoUnit {
        /// What was given.
        seen: String,
    },
    /// An unknown unit.
    #[error("CPU amount: cannot read '{seen}': seen the unit '{unit}', allowed \
        {allowed}", allowed = ALLOWED)]
    Unit {
        /// What was given.
        seen: String,
        /// Its unit.
        unit: String,
    },
    /// A unit without a number before it, or a number finer than is kept.
    #[error("CPU amount: cannot read '{seen}': seen no plain number to the thousandth of % or MHz, \
        allowed {allowed}", allowed = ALLOWED)]
    Number {
        /// What was given.
        seen: String,
    },
    /// More than any host has.
    #[error(
        "CPU amount: cannot use '{seen}': seen more than a host has, allowed up to {}% \
            ({PCPUS_MAX} pCPUs) or {MHZ_MAX}MHz; write less",
        PERCENT_MAX
    )]
    TooMuch {
        /// What was given.
        seen: String,
    },
}

const ALLOWED: &str = "% of one pCPU, MHz or GHz, such as 250%, 12.5% or 2.4GHz";
/// As many pCPUs as a host may have, in percent of one.
const PERCENT_MAX: u64 = PCPUS_MAX as u64 * 100;
/// Twice the sum of such a host's pCPUs at 5 GHz, rounded to a simple number.
const MHZ_MAX: u64 = 10_000_000;
/// Unit as written, its kind, thousandths in one of it, and the most of it in thousandths of % or
/// MHz.
const UNITS: [(&str, Unit, u64, u64); 3] = [
    ("%", Unit::Percent, 1_000, PERCENT_MAX * 1_000),
    ("MHz", Unit::Mhz, 1_000, MHZ_MAX * 1_000),
    ("GHz", Unit::Mhz, 1_000_000, MHZ_MAX * 1_000),
];
/// Characters of a refused text that an error shows.
const SEEN_MAX: usize = 40;

impl CpuAmount {
    /// So many percent of one pCPU.
    #[must_use]
    pub const fn percent(percent: u32) -> CpuAmount {
        CpuAmount { unit: Unit::Percent, thousandths: percent as u64 * 1_000 }
    }

    /// So many MHz.
    #[must_use]
    pub const fn mhz(mhz: u32) -> CpuAmount {
        CpuAmount { unit: Unit::Mhz, thousandths: mhz as u64 * 1_000 }
    }

    /// Whether its rate depends on the speed of a pCPU.
    #[must_use]
    pub const fn is_mhz(self) -> bool {
        matches!(self.unit, Unit::Mhz)
    }

    /// Its rate on a host whose pCPUs run at `mhz_of_pcpu`, rounded to the nearest; percent is the
    /// same on every host.
    #[must_use]
    pub fn rate(self, mhz_of_pcpu: u32) -> Rate {
        let whole = match self.unit {
            Unit::Percent => 100_000,
            Unit::Mhz => u128::from(mhz_of_pcpu.max(1)) * 1_000,
        };
        Rate((((u128::from(self.thousandths) << Rate::SHIFT) + whole / 2) / whole) as u64)
    }
}

/// Thousandths as a decimal number without zeros at its end.
pub(crate) fn decimal(thousandths: u128) -> String {
    let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The part of a text that an error shows: without control characters, and bounded.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SEEN_MAX).collect();
    let rest = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{rest}", cut.escape_debug())
}

/// `number` in thousandths; `None` if it is no plain decimal or too fine.
fn in_thousandths(number: &str, per_unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |t: &str| (!t.is_empty() && t.bytes().all(|b| b.is_ascii_digit())).then_some(());
    digits(whole).and(digits(fraction))?;
    let fraction = fraction.trim_end_matches('0');
    let fine = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?).filter(|f| *f <= per_unit)?;
    let parts =
        if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? * (per_unit / fine) };
    // A number beyond 64 bits is plain, and more than is allowed.
    let whole = if whole.trim_start_matches('0').len() > 12 {
        u64::MAX
    } else {
        whole.parse::<u64>().ok()?
    };
    Some(whole.saturating_mul(per_unit).saturating_add(parts))
}

impl FromStr for CpuAmount {
    type Err = CpuAmountError;

    fn from_str(text: &str) -> Result<CpuAmount, CpuAmountError> {
        let t = text.trim();
        let seen = shown(t);
        if t.is_empty() {
            return Err(CpuAmountError::Empty);
        }
        if t.starts_with('-') {
            return Err(CpuAmountError::Negative { seen });
        }
        let Some(at) = t.find(|c: char| !c.is_ascii_digit() && c != '.') else {
            return Err(CpuAmountError::NoUnit { seen });
        };
        let (number, written) = (&t[..at], t[at..].trim());
        let Some((_, unit, per_unit, most)) =
            UNITS.iter().find(|u| u.0.eq_ignore_ascii_case(written))
        else {
            return Err(CpuAmountError::Unit { seen, unit: shown(written) });
        };
        match in_thousandths(number, *per_unit) {
            None => Err(CpuAmountError::Number { seen }),
            Some(n) if n > *most => Err(CpuAmountError::TooMuch { seen }),
            Some(thousandths) => Ok(CpuAmount { unit: *unit, thousandths }),
        }
    }
}

impl fmt::Display for CpuAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.is_mhz() { "MHz" } else { "%" };
        write!(f, "{}{unit}", decimal(u128::from(self.thousandths)))
    }
}

impl Serialize for CpuAmount {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuAmount {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<CpuAmount, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = CpuAmount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a CPU amount: a text with {ALLOWED}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CpuAmount, E> {
                text.parse().map_err(E::custom)
            }

            // A bare number is answered as the same text would be: it lacks its unit.
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<CpuAmount, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<CpuAmount, E> {
                self.visit_str(&number.to_string())
            }
        }
        d.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str, mhz: u32) -> u64 {
        text.parse::<CpuAmount>().unwrap_or_else(|e| panic!("{text}: {e}")).rate(mhz).0
    }

    fn refusal(text: &str) -> String {
        text.parse::<CpuAmount>().expect_err(text).to_string()
    }

    #[test]
    fn percent_and_speeds_are_rates_rounded_to_the_nearest() {
        assert_eq!([rate("250%", 1), rate("250 %", 9999)], [Rate::pcpus(2).0 + Rate::ONE.0 / 2; 2]);
        assert_eq!(rate(" 12.5% ", 1), Rate::ONE.0 / 8);
        for text in ["2400MHz", "2.4GHz", "2400 mhz", "2.400000 ghz", "2400.000MHZ"] {
            assert_eq!(rate(text, 1200), Rate::pcpus(2).0, "{text}");
        }
        // 1 % is 10485.76 units, a thousandth of it 10.49; 1 of 3 MHz is 349525.33 units, 2 of 3
        // are 699050.67.
        assert_eq!(
            [rate("1%", 1), rate("0.001%", 1), rate("1MHz", 3), rate("2MHz", 3)],
            [10_486, 10, 349_525, 699_051]
        );
        assert_eq!(
            [rate("0%", 1), rate("102400%", 1), rate("10000GHz", 100)],
            [0, 1024 << 20, 100_000 << 20]
        );
    }

    #[test]
    fn what_is_written_reads_back_as_the_same() {
        for (text, back) in [
            ("250 %", "250%"),
            ("0.500%", "0.5%"),
            ("0%", "0%"),
            ("2.4ghz", "2400MHz"),
            ("0.000001GHz", "0.001MHz"),
            ("007mhz", "7MHz"),
        ] {
            let amount: CpuAmount = text.parse().unwrap();
            assert_eq!(amount.to_string(), back);
            assert_eq!(back.parse::<CpuAmount>().unwrap(), amount);
        }
        assert_eq!(
            [CpuAmount::percent(250).to_string(), CpuAmount::mhz(2400).to_string()],
            ["250%", "2400MHz"]
        );
        assert!(CpuAmount::mhz(1).is_mhz() && !CpuAmount::percent(1).is_mhz());
    }

    #[test]
    fn rates_are_shown_in_percent_of_one_pcpu() {
        for text in ["37.5", "0", "1", "33.333", "102400", "0.001", "12.345", "99.999"] {
            let amount: CpuAmount = format!("{text}%").parse().unwrap();
            assert_eq!(amount.rate(1).percent(), format!("{text} %"));
        }
        assert_eq!(Rate(u64::MAX).percent(), "1759218604441600 %");
    }

    #[test]
    fn each_refusal_says_what_was_seen_and_what_is_allowed() {
        for text in ["", "  "] {
            assert_eq!(
                refusal(text),
                format!("CPU amount: cannot read '': seen nothing, allowed {ALLOWED}")
            );
        }
        assert_eq!(
            refusal("-5%"),
            format!("CPU amount: cannot use '-5%': seen less than 0, allowed {ALLOWED}")
        );
        assert_eq!(
            refusal("250"),
            "CPU amount: cannot read '250': seen no unit, allowed % of one pCPU, MHz or GHz, such \
                as 250%, 12.5% or 2.4GHz; write 250% or 250MHz"
        );
        assert_eq!(
            refusal("5 parsecs"),
            format!(
                "CPU amount: cannot read '5 parsecs': seen the unit 'parsecs', allowed {ALLOWED}"
            )
        );
        for text in [
            "1.2345%",
            ".5%",
            "5.%",
            "1..5%",
            "1.2.3MHz",
            "%",
            "GHz",
            "0.0000001GHz",
            "0.00000000000000000000000000001%",
        ] {
            let start = format!(
                "CPU amount: cannot read '{text}': seen no plain number to the thousandth of % or \
                    MHz, allowed "
            );
            assert!(refusal(text).starts_with(&start), "{}", refusal(text));
        }
        for text in [
            "102400.001%",
            "102401%",
            "10000001MHz",
            "10000.000001GHz",
            "99999999999999999999999999%",
            "18446744073709551615MHz",
        ] {
            let all = format!(
                "CPU amount: cannot use '{text}': seen more than a host has, allowed up to 102400% \
                    (1024 pCPUs) or 10000000MHz; write less"
            );
            assert_eq!(refusal(text), all);
        }
        for text in ["1e3%", "+5%", "5,5%", "٣%", "nan%", "inf%", "5%%", "0x5%", "5 % MHz"] {
            assert!(refusal(text).contains("seen the unit '"), "{}", refusal(text));
        }
        let long = refusal(&format!("\u{1b}[2J{}", "9".repeat(1_000_000)));
        assert!(long.len() < 400 && long.contains("\\u{1b}[2J999") && long.contains('…'), "{long}");
    }
}
