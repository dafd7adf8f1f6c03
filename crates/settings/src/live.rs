//! The live host's settings file, for settings without a cgroup file, parsed whole or refused whole
//! with every reason; it changes no cgroup.

use crate::{
    Attributes, LimitSetting, LiveTrust, LlcChoice, NumaSpec, SharesSetting, live_checks, parser,
    resources::pool_or_vm, unreadable,
};
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};
use units::{CpuAmount, Span};

/// Settings of `tandem run`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveSettings {
    /// What is not as the host says itself.
    #[serde(default)]
    pub host: LiveHost,
    /// Users whose cgroups count like root's.
    #[serde(default)]
    pub trust: LiveTrust,
    /// The scheduler's knobs, by name.
    #[serde(default, deserialize_with = "crate::knobs::read")]
    pub knobs: BTreeMap<String, u64>,
    /// Home nodes of VMs and their thresholds, as a scenario has them; none if left out.
    pub numa: Option<NumaSpec>,
    /// Resource pools of our own, and settings of those that cgroups are.
    #[serde(default, rename = "pool")]
    pub pools: Vec<LivePool>,
    /// VMs by name, pattern or cgroup; the first that matches counts.
    #[serde(default, rename = "vm")]
    pub vms: Vec<LiveVm>,
}

/// What the file says of the host itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveHost {
    /// Speed of a pCPU in MHz, to resolve reservations and limits in MHz or GHz; the host's own if
    /// left out.
    pub mhz: Option<u32>,
}

/// A resource pool: one of our own by name, or the one that a cgroup is by its path.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LivePool {
    /// Name, or a cgroup's path that begins with `/`.
    pub name: String,
    /// Name or path of the pool it is in, the root if left out; a cgroup is where it is.
    pub parent: Option<String>,
    /// Shares; if left out normal, and for a cgroup what it says itself.
    pub shares: Option<SharesSetting>,
    /// What it gets whatever the load.
    pub reservation: Option<CpuAmount>,
    /// What it and all below it never exceed; if left out unlimited, and for a cgroup what it says
    /// itself.
    pub limit: Option<LimitSetting>,
    /// CPU time that may be saved up while the limit is not used.
    pub burst: Option<Span>,
    /// Whether reservations below it may borrow from its parent; they may if left out.
    pub expandable: Option<bool>,
    /// Whether its shares grow with those of its children; they do not if left out.
    pub scalable: Option<bool>,
}

/// Settings of the VMs that match: by name, by cgroup, or by both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveVm {
    /// Name, or a pattern in which `*` stands for any text; any name if left out.
    pub name: Option<String>,
    /// Path of a cgroup that they are in or below; any if left out. What looks like a VM there is
    /// one.
    pub cgroup: Option<String>,
    /// Name or cgroup's path of the pool it is in; the one that its cgroup is in if left out.
    pub pool: Option<String>,
    /// Shares; the cgroup's cpu.weight counts if left out.
    pub shares: Option<SharesSetting>,
    /// What it gets whatever the load.
    pub reservation: Option<CpuAmount>,
    /// What it never exceeds; the cgroup's cpu.max counts if left out.
    pub limit: Option<LimitSetting>,
    /// CPU time that may be saved up while the limit is not used.
    pub burst: Option<Span>,
    /// LLCs of its home node that it is to use; where the scheduler sees fit if left out.
    pub llc: Option<LlcChoice>,
    /// Whether a part of it may have as many vCPUs as a node has threads, in place of cores.
    #[serde(default)]
    pub prefer_ht: bool,
}

/// Why the file was refused; nothing of it is in force.
#[derive(Debug, thiserror::Error)]
#[error("settings {path}: refused, nothing of it is in force:\n  - {}", reasons.join("\n  - "))]
pub struct LiveSettingsError {
    /// The file.
    pub path: String,
    /// Every reason found, not only the first.
    pub reasons: Vec<String>,
}

impl LiveSettings {
    /// Reads the file.
    ///
    /// # Errors
    /// `LiveSettingsError` with the parser's or our own reasons.
    pub fn load(path: &Path) -> Result<LiveSettings, LiveSettingsError> {
        let shown = path.display().to_string();
        match files::text(path) {
            Ok(text) => LiveSettings::parse(&shown, &text),
            Err(e) => Err(LiveSettingsError {
                path: shown,
                reasons: vec![format!("cannot read it: {e}")],
            }),
        }
    }

    /// Parses a file's text; `path` is what messages call it. Amounts in MHz are held against the
    /// host's speed where the file gives it, and by `reasons_at` where it does not.
    ///
    /// # Errors
    /// `LiveSettingsError` with the parser's reason with line and column, or all of our own.
    pub fn parse(path: &str, text: &str) -> Result<LiveSettings, LiveSettingsError> {
        let refused = |reasons: Vec<String>| LiveSettingsError { path: path.to_owned(), reasons };
        let cannot = |e: &toml::de::Error| format!("cannot parse: {}", parser::said(e));
        let mut table: toml::Table = text.parse().map_err(|e| refused(vec![cannot(&e)]))?;
        let mut reasons = unreadable::take(&mut table).map_err(|one| refused(vec![one]))?;
        // The text is parsed again rather than the table, which has lost lines and columns.
        let settings: Result<LiveSettings, _> =
            if reasons.is_empty() { toml::from_str(text) } else { table.try_into() };
        match settings {
            Err(e) => reasons.push(cannot(&e)),
            Ok(settings) => {
                reasons.extend(live_checks::reasons(&settings, settings.host.mhz));
                if reasons.is_empty() {
                    return Ok(settings);
                }
            }
        }
        Err(refused(reasons))
    }

    /// What is wrong with the file's amounts on a host whose pCPUs run at `mhz`; empty if nothing
    /// is.
    #[must_use]
    pub fn reasons_at(&self, mhz: u32) -> Vec<String> {
        live_checks::reasons(self, Some(mhz))
    }

    /// How VMs get home nodes; `None`: they have none.
    #[must_use]
    pub fn homes(&self) -> Option<NumaSpec> {
        self.numa.clone().filter(|n| n.on)
    }

    /// What the file says of a pool, by its name or its cgroup's path.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&LivePool> {
        self.pools.iter().find(|p| p.name == name)
    }
}

impl LivePool {
    /// Whether it is a cgroup, and not a pool of the file's own.
    #[must_use]
    pub fn is_cgroup(&self) -> bool {
        self.name.starts_with('/')
    }

    /// What the file says of it, to be layered over what its cgroup says.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let LivePool { reservation, limit, burst, expandable, scalable, .. } = *self;
        Attributes {
            shares: resolved(self.shares.as_ref(), None),
            reservation,
            limit,
            burst,
            expandable,
            scalable,
        }
    }
}

impl LiveVm {
    /// What the file says of a VM with so many vCPUs, to be layered over what its cgroup says.
    #[must_use]
    pub fn attributes(&self, vcpus: u32) -> Attributes {
        let LiveVm { reservation, limit, burst, .. } = *self;
        Attributes {
            shares: resolved(self.shares.as_ref(), Some(vcpus)),
            reservation,
            limit,
            burst,
            ..Attributes::default()
        }
    }
}

/// Shares that were checked when the file was read.
fn resolved(shares: Option<&SharesSetting>, vcpus: Option<u32>) -> Option<u32> {
    pool_or_vm(shares?, vcpus).ok()
}

#[cfg(test)]
mod tests;
