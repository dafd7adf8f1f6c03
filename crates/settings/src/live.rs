//! The live host's settings file, for settings without a cgroup file, parsed whole or refused whole
//! with every reason; it changes no cgroup.

use crate::{
    Attributes, LimitSetting, SharesSetting, live_checks, resources::pool_or_vm, unreadable,
};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};
use units::{CpuAmount, Span};

/// Settings of `tandem run`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveSettings {
    /// What is not as the host says itself.
    #[serde(default)]
    pub host: LiveHost,
    /// The scheduler's knobs, by name.
    #[serde(default, deserialize_with = "crate::knobs::read")]
    pub knobs: BTreeMap<String, u64>,
    /// Resource pools of our own, and settings of those that cgroups are.
    #[serde(default, rename = "pool")]
    pub pools: Vec<LivePool>,
    /// VMs by name or pattern; the first that matches counts.
    #[serde(default, rename = "vm")]
    pub vms: Vec<LiveVm>,
}

/// What the file says of the host itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveHost {
    /// Speed of a pCPU in MHz, to resolve reservations and limits in MHz or GHz; the host's own if
    /// left out.
    pub mhz: Option<u32>,
}

/// A resource pool: one of our own by name, or the one that a cgroup is by its path.
#[derive(Clone, Debug, Deserialize)]
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

/// Settings of the VMs whose name matches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveVm {
    /// Name, or a pattern in which `*` stands for any text.
    pub name: String,
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
        match fs::read_to_string(path) {
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
        let cannot = |e: &toml::de::Error| format!("cannot parse: {}", e.to_string().trim_end());
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

    /// What the file says of a VM: the first entry whose name or pattern matches.
    #[must_use]
    pub fn vm(&self, name: &str) -> Option<&LiveVm> {
        self.vms.iter().find(|v| matches(&v.name, name))
    }

    /// What the file says of a pool, by its name or its cgroup's path.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&LivePool> {
        self.pools.iter().find(|p| p.name == name)
    }

    /// Shares that the file gives a VM; `None` if it says nothing.
    #[must_use]
    pub fn shares(&self, name: &str, vcpus: u32) -> Option<u32> {
        self.vm(name)?.attributes(vcpus).shares
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

/// Whether `name` fits `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(head) else { return false };
    (0..=name.len()).filter(|i| name.is_char_boundary(*i)).any(|i| matches(rest, &name[i..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LIMIT_MIN, VmResources};
    use units::Rate;

    const WHOLE: &str = r#"
[host]
mhz = 2400

[[pool]]
name = "gold"
shares = "high"
reservation = "2.4GHz"
limit = "400%"
burst = "10ms"
scalable = true

[[pool]]
name = "web"
parent = "/machine.slice"
limit = -1

[[pool]]
name = "/machine.slice"
expandable = false
burst = "5ms"

[[vm]]
name = "web*"
shares = "high"
pool = "web"

[[vm]]
name = "*"
shares = 300
reservation = "1200MHz"
limit = "50%"
burst = "1ms"
pool = '/machine.slice/machine-qemu\x2d1.scope'

[knobs]
quantum_us = 20000
"#;

    /// A file in which every entry is wrong.
    const WRONG: &str = r#"
[host]
mhz = 50
[[pool]]
name = "gold"
limit = "300"
[[pool]]
name = "gold"
reservation = "2GHz"
limit = "1999MHz"
[[pool]]
name = "a"
parent = "b"
burst = "1ms"
[[pool]]
name = "b"
parent = "a"
shares = "some"
[[pool]]
name = "c.d"
parent = "machine.slice"
[[pool]]
name = "/x/../y"
parent = "gold"
[[pool]]
name = "/"
[[pool]]
name = "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"
[[pool]]
name = "deep"
parent = "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16"
limit = "0.5%"
[[vm]]
name = "x"
shares = 0
pool = "tin"
limit = -1
burst = "1ms"
[[vm]]
name = "x"
pool = "/sys/fs/cgroup/machine.slice"
"#;

    fn read(text: &str) -> LiveSettings {
        LiveSettings::parse("t.toml", text).unwrap_or_else(|e| panic!("{e}"))
    }

    fn reasons(text: &str) -> Vec<String> {
        LiveSettings::parse("t.toml", text).expect_err(text).reasons
    }

    #[test]
    fn the_first_matching_pattern_counts() {
        let s = read(
            "[[vm]]\nname = \"web*\"\nshares = \"high\"\n[[vm]]\nname = \"*\"\nshares = 300\n",
        );
        assert_eq!((s.shares("web1", 2), s.shares("db", 2)), (Some(4000), Some(300)));
        assert_eq!(
            (s.vm("web1").unwrap().name.as_str(), s.vm("db").unwrap().name.as_str()),
            ("web*", "*")
        );
        assert!(
            read("[[vm]]\nname='x'\n").vm("y").is_none()
                && read("[[vm]]\nname='x'\n").shares("x", 1).is_none()
        );
        assert!(matches("a*c*e", "abcde") && !matches("a*c", "abcd") && matches("*", ""));
        assert!(reasons("[[vm]]\nname='x'\nshare=3\n")[0].contains("line 3, column 1"));
    }

    #[test]
    fn a_whole_file_is_read_and_layered_over_the_cgroups() {
        let s = read(WHOLE);
        assert_eq!((s.host.mhz, s.knobs["quantum_us"], s.pools.len()), (Some(2400), 20_000, 3));
        let gold =
            s.pool("gold").unwrap().attributes().over(VmResources::POOL, None, 2400).unwrap();
        assert_eq!(
            gold,
            VmResources {
                shares: 8000,
                reservation: Rate::ONE,
                limit: Some(Rate::pcpus(4)),
                burst_ns: 10_000_000
            }
        );
        let slice = s.pool("/machine.slice").unwrap();
        assert!(
            slice.is_cgroup()
                && slice.attributes().expandable == Some(false)
                && slice.attributes().shares.is_none()
        );
        let cgroup = VmResources { limit: Some(Rate::ONE), ..VmResources::POOL };
        assert_eq!(
            slice.attributes().over(cgroup, None, 2400).unwrap(),
            VmResources { burst_ns: 5_000_000, ..cgroup }
        );
        let half = Rate(Rate::ONE.0 / 2);
        let db = s
            .vm("db")
            .unwrap()
            .attributes(4)
            .over(VmResources { shares: 1000, ..VmResources::POOL }, Some(4), 2400)
            .unwrap();
        assert_eq!(
            db,
            VmResources { shares: 300, reservation: half, limit: Some(half), burst_ns: 1_000_000 }
        );
        assert!(LIMIT_MIN < half && s.reasons_at(2400).is_empty());
        // On a slower host the same reservation is more than the limit.
        let seen = s.reasons_at(1200);
        assert_eq!(seen.len(), 1);
        assert!(
            seen[0].starts_with(
                "vm '*': limit: seen 50%, allowed its reservation of 1200MHz \
            (100 % of a pCPU) or more"
            ),
            "{seen:?}"
        );
    }

    #[test]
    fn a_file_is_refused_with_every_reason_at_once() {
        let error = LiveSettings::parse("t.toml", WRONG).unwrap_err();
        let parts = [
            "pool 'gold': limit: CPU amount: cannot read '300': seen no unit",
            "host.mhz: seen 50, allowed 100..10000",
            "pool 'gold': limit: seen 1999MHz, allowed its reservation of 2000MHz or more; raise \
                the limit, or lower the reservation",
            "pool 'a': burst: seen 1ms without a limit, allowed only with one; give a limit, or \
                leave it out",
            "pool 'b': shares: seen 'some', allowed low, normal, high or 1..262144",
            "pool 'c.d': name: allowed 1..64 characters without / . , \" or line ends, or a \
                cgroup's path such as /machine.slice",
            "pool '/x/../y': name: seen '/x/../y', allowed a cgroup's path as /proc/PID/cgroup \
                shows it, such as /machine.slice; write it so",
            "pool '/x/../y': parent: seen 'gold', allowed none, since a cgroup is where it is; \
                leave it out",
            "pool '/': name: seen the root, allowed a cgroup below it; the root has all that the \
                host has",
            "pool 'deep': limit: seen 0.5%, allowed 1 % of a pCPU or more",
            "pool 'gold': two have this name; each needs its own",
            "pool 'c.d': parent: seen 'machine.slice', allowed the name of a [[pool]] or a \
                cgroup's path such as /machine.slice",
            "pool 'a': parent: seen the circle a -> b -> a, allowed a chain that ends at the root",
            "pool '/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17': seen 17 levels below the root, \
                allowed 16",
            "pool 'deep': seen 17 levels below the root, allowed 16; give it a parent further up",
            "vm 'x': shares: cannot use 0: allowed 1..262144",
            "vm 'x': burst: seen 1ms without a limit",
            "vm 'x': pool: seen 'tin', allowed the name of a [[pool]] or a cgroup's path such as \
                /machine.slice; leave it out",
            "vm 'x': two have this name or pattern, and the second never counts; join them",
            "vm 'x': pool: seen '/sys/fs/cgroup/machine.slice', allowed a cgroup's path as \
                /proc/PID/cgroup shows it",
        ];
        assert_eq!(error.reasons.len(), parts.len(), "{error}");
        for (seen, part) in error.reasons.iter().zip(parts) {
            assert!(seen.starts_with(part), "{seen} is not {part}");
        }
        assert!(error.to_string().starts_with(
            "settings t.toml: refused, nothing of it is in \
            force:\n  - pool 'gold': limit: CPU amount"
        ));
    }

    #[test]
    fn too_many_pools_are_one_reason() {
        let text: String =
            (0..10_000).map(|i| format!("[[pool]]\nname = \"p{}\"\nlimit = 7\n", i / 2)).collect();
        assert_eq!(
            reasons(&text),
            ["pool: seen 10000 pools, allowed 1023 beside the root; leave some out, or join them"]
        );
    }

    #[test]
    fn a_pool_of_the_file_keeps_off_a_cgroups_path() {
        let text = "[[pool]]\nname = \"/a/b\"\n[[pool]]\nname = \"b\"\nparent = \
            \"/a\"\n[[pool]]\nname = \"c\"\nparent = \"/\"\n";
        assert_eq!(
            reasons(text),
            ["pool 'b': seen the path /a/b of a cgroup, allowed one of its own; give it another \
                    name"]
        );
        assert_eq!(read(&text.replace("\"/a\"", "\"/a/b\"")).pools.len(), 3);
    }

    #[test]
    fn a_file_that_is_cut_off_is_refused_with_line_and_column_or_is_a_whole_shorter_one() {
        let seen = reasons(&WHOLE[..WHOLE.find("high").unwrap()]);
        assert_eq!(seen.len(), 1);
        assert!(
            seen[0].starts_with("cannot parse: TOML parse error at line 7, column "),
            "{}",
            seen[0]
        );
        let mut refused = 0;
        for end in 0..WHOLE.len() {
            if let Err(e) = LiveSettings::parse("t.toml", &WHOLE[..end]) {
                refused += 1;
                let placed =
                    e.reasons[0].contains(" at line ") && e.reasons[0].contains(", column ");
                // Cut within an amount, pool or parent the text may be whole, and what it says
                // wrong.
                assert!(
                    placed
                        || e.reasons.iter().all(|r| r.starts_with("pool '")
                            || r.starts_with("vm '")
                            || r.starts_with("host.mhz")),
                    "{e}"
                );
            }
        }
        assert!(refused > WHOLE.len() / 2, "{refused} of {}", WHOLE.len());
    }

    #[test]
    fn a_file_that_cannot_be_read_says_why() {
        let error = LiveSettings::load(Path::new("no-such-file.toml")).unwrap_err();
        assert!(error.to_string().starts_with(
            "settings no-such-file.toml: refused, nothing of it is in force:\n  - cannot read it: "
        ));
        assert!(reasons("[knobs]\na = 1\na = 2\n")[0].contains("line 3, column 1"));
        assert!(reasons("[[pool]]\nname = \"a\"\nlimit = \"1e\n")[0].contains("line 3, column "));
    }
}
