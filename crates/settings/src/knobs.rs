//! Knobs in files: a number each, or a name where the scheduler has names; the scheduler has the
//! list of knobs.

use serde::{Deserialize, Deserializer, de::Error};
use std::collections::BTreeMap;
use units::{knob_modes, knob_value};

pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let (mut knobs, mut reasons) = (BTreeMap::new(), vec![]);
    for (name, value) in BTreeMap::<String, toml::Value>::deserialize(from)? {
        let number = match &value {
            toml::Value::Integer(n) => u64::try_from(*n).ok(),
            toml::Value::String(text) => knob_value(&name, text),
            _ => None,
        };
        match number {
            Some(number) => drop(knobs.insert(name, number)),
            None => reasons.push(refused(&name, &value)),
        }
    }
    if reasons.is_empty() { Ok(knobs) } else { Err(D::Error::custom(reasons.join("; "))) }
}

fn refused(name: &str, value: &toml::Value) -> String {
    let seen = match value {
        toml::Value::String(text) => format!("'{text}'"),
        toml::Value::Array(_) => "an array".to_owned(),
        toml::Value::Table(_) => "a table".to_owned(),
        value => value.to_string(),
    };
    let modes: String = knob_modes(name).iter().map(|m| format!(", {m}")).collect();
    format!(
        "knob '{name}': seen {seen}, allowed a whole number of its range{modes}; 'tandem \
        knobs' lists them"
    )
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
                .contains("seen 'gang', allowed a whole number of its range, off, relaxed, strict")
        );
        assert_eq!(knobs("core_sharing = 'vm'").unwrap(), [("core_sharing".into(), 1)].into());
        let number = knobs("quantum_us = 'off'").unwrap_err();
        let want = "knob 'quantum_us': seen 'off', allowed a whole number of its range; 'tandem ";
        assert!(number.contains(want), "{number}");
    }

    #[test]
    fn every_value_that_is_no_number_of_a_knob_is_named() {
        let text = "[knobs]\nquantum_us = -5\ncostop_us = 1.5\nspread_us = true\ncosched = []";
        let error = toml::from_str::<File>(text).map(|f| f.knobs).unwrap_err().to_string();
        for (name, seen) in
            [("quantum_us", "-5"), ("costop_us", "1.5"), ("spread_us", "true"), ("cosched", "an ")]
        {
            let want = format!("knob '{name}': seen {seen}");
            assert!(error.contains(&want), "{want}: {error}");
        }
    }
}
