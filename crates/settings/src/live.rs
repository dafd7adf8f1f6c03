//! The live host's settings file: what cgroups cannot say, parsed whole or refused whole.

use crate::scenario::SharesSetting;
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};

/// Settings of `tandem run`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveSettings {
    /// The scheduler's knobs, by name.
    #[serde(default)]
    pub knobs: BTreeMap<String, u64>,
    /// VMs by name or pattern; the first that matches counts.
    #[serde(default, rename = "vm")]
    pub vms: Vec<LiveVm>,
}

/// Settings of the VMs whose name matches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveVm {
    /// Name, or a pattern in which `*` stands for any text.
    pub name: String,
    /// Shares; the cgroup's cpu.weight counts if left out.
    pub shares: Option<SharesSetting>,
}

/// Why the file was refused; nothing of it is in force.
#[derive(Debug, thiserror::Error)]
#[error("settings {path}: refused, nothing of it is in force: {reason}")]
pub struct LiveSettingsError {
    /// The file.
    pub path: String,
    /// What is wrong.
    pub reason: String,
}

impl LiveSettings {
    /// Reads the file.
    ///
    /// # Errors
    /// `LiveSettingsError` with the parser's or our own reason.
    pub fn load(path: &Path) -> Result<LiveSettings, LiveSettingsError> {
        let bad = |reason: String| LiveSettingsError { path: path.display().to_string(), reason };
        let text = fs::read_to_string(path).map_err(|e| bad(format!("cannot read it: {e}")))?;
        let settings: LiveSettings = toml::from_str(&text).map_err(|e| bad(e.to_string()))?;
        for vm in &settings.vms {
            if let Some(shares) = &vm.shares {
                shares.resolve(1).map_err(|e| bad(format!("vm '{}': {e}", vm.name)))?;
            }
        }
        Ok(settings)
    }

    /// Shares that the file gives a VM; `None` if it says nothing.
    #[must_use]
    pub fn shares(&self, name: &str, vcpus: u32) -> Option<u32> {
        let vm = self.vms.iter().find(|v| matches(&v.name, name))?;
        vm.shares.as_ref()?.resolve(vcpus.max(1)).ok().map(units::Shares::get)
    }
}

/// Whether `name` fits `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(head) else { return false };
    (0..=name.len()).filter(|i| name.is_char_boundary(*i)).any(|i| matches(rest, &name[i..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_pattern_counts() {
        let s: LiveSettings = toml::from_str("[[vm]]\nname = \"web*\"\nshares = \"high\"\n[[vm]]\nname = \"*\"\nshares = 300\n").unwrap();
        assert_eq!((s.shares("web1", 2), s.shares("db", 2)), (Some(4000), Some(300)));
        assert!(matches("a*c*e", "abcde") && !matches("a*c", "abcd") && matches("*", ""));
        assert!(toml::from_str::<LiveSettings>("[[vm]]\nname='x'\nshare=3\n").is_err());
    }
}
