//! Knobs in files: a number each, or a name where the scheduler has names; the scheduler has the
//! list of knobs.

use serde::{Deserialize, Deserializer, de::Error};
use std::collections::BTreeMap;
use units::{knob_modes, knob_value};

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    Name(String),
}

pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let number = |(name, value): (String, Value)| match value {
        Value::Number(n) => Ok((name, n)),
        Value::Name(text) => match knob_value(&name, &text) {
            Some(n) => Ok((name, n)),
            None => {
                let modes = knob_modes(&name).iter().map(|m| format!(", {m}"));
                Err(D::Error::custom(format!(
                    "knob '{name}': seen '{text}', allowed a number{}",
                    modes.collect::<String>()
                )))
            }
        },
    };
    BTreeMap::<String, Value>::deserialize(from)?.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        #[serde(deserialize_with = "read")]
        knobs: BTreeMap<String, u64>,
    }

    #[test]
    fn a_mode_has_a_name_and_other_knobs_are_numbers() {
        let knobs = |text: &str| {
            toml::from_str::<File>(&format!("[knobs]\n{text}"))
                .map(|f| f.knobs)
                .map_err(|e| e.to_string())
        };
        assert_eq!(
            knobs("cosched = 'strict'\nquantum_us = 7").unwrap(),
            [("cosched".into(), 2), ("quantum_us".into(), 7)].into()
        );
        assert!(
            knobs("cosched = 'gang'")
                .unwrap_err()
                .contains("seen 'gang', allowed a number, off, relaxed, strict")
        );
        assert_eq!(knobs("core_sharing = 'vm'").unwrap(), [("core_sharing".into(), 1)].into());
        let number = knobs("quantum_us = 'off'").unwrap_err();
        assert!(number.contains("knob 'quantum_us': seen 'off', allowed a number\n"), "{number}");
    }
}
