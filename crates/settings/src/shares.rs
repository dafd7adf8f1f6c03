//! Shares as people write them: a preset, or a number.

use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;
use units::{Shares, caps};

/// Shares as people write them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SharesSetting {
    /// `low`, `normal` or `high`.
    Preset(String),
    /// A number for the whole VM.
    Number(i64),
}

impl Default for SharesSetting {
    fn default() -> Self {
        SharesSetting::Preset("normal".to_owned())
    }
}

impl SharesSetting {
    /// Resolves a preset for a VM of so many vCPUs.
    ///
    /// # Errors
    /// A reason without the object's name.
    pub fn resolve(&self, vcpus: u32) -> Result<Shares, String> {
        let number = match self {
            SharesSetting::Number(n) => i128::from(*n),
            SharesSetting::Preset(p) => match Shares::PER_VCPU.iter().find(|x| x.0 == p) {
                Some(x) => i128::from(x.1) * i128::from(vcpus),
                None => {
                    return Err(format!(
                        "shares: seen '{p}', allowed low, normal, high or 1..{}",
                        caps::SHARES_MAX
                    ));
                }
            },
        };
        // Presets of very wide VMs meet the cap; ESXi's users know the number as the maximum.
        let number = if matches!(self, SharesSetting::Preset(_)) {
            number.min(i128::from(caps::SHARES_MAX))
        } else {
            number
        };
        Shares::new(number).map_err(|e| e.to_string())
    }
}

impl<'de> Deserialize<'de> for SharesSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SharesSetting, D::Error> {
        struct Written;
        impl de::Visitor<'_> for Written {
            type Value = SharesSetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "low, normal, high or a whole number of 1..{}", caps::SHARES_MAX)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SharesSetting, E> {
                Ok(SharesSetting::Preset(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<SharesSetting, E> {
                Ok(SharesSetting::Number(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<SharesSetting, E> {
                let number = i64::try_from(number);
                number
                    .map(SharesSetting::Number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Other("a larger number"), &self))
            }
        }
        from.deserialize_any(Written)
    }
}
