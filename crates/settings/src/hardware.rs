//! The simulated hardware of a run and what workloads ask of it: `[hardware]`, `[[profile]]` and
//! the profiles that are built in; and why they cannot be.

use crate::{RunSpec, VmSpec, Workload, checks::bad_name};
use bytesize::ByteSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{fmt, ops::RangeInclusive, sync::LazyLock};
use units::Span;

/// Caches and memory of a host. Without it a pCPU is a pCPU: nothing that runs nearby slows a world
/// down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HardwareSpec {
    /// Whether it is simulated.
    pub on: bool,
    /// Cache that a core has to itself.
    pub private_cache: Bytes,
    /// Last-level cache, which the cores of an LLC share.
    pub llc: Bytes,
    /// Time that a line of 64 bytes from the LLC stops a core, where many come one after another.
    pub from_llc: Span,
    /// The same from memory of the node.
    pub from_memory: Span,
    /// The same from another node.
    pub from_node: Span,
    /// What a world loses on any pCPU but its last, beside its caches.
    pub migration: Span,
    /// What the cores of an LLC get from memory together, in a second.
    pub bandwidth: Bytes,
}

/// A socket of Skylake-SP; docs/hardware.md has the source of each number.
impl Default for HardwareSpec {
    fn default() -> HardwareSpec {
        HardwareSpec {
            on: true,
            private_cache: Bytes(1 << 20),
            llc: Bytes(32 << 20),
            from_llc: Span::from_ns(7),
            from_memory: Span::from_ns(22),
            from_node: Span::from_ns(35),
            migration: Span::from_ns(5_000),
            bandwidth: Bytes(90_000_000_000),
        }
    }
}

/// A number of bytes, written `2MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            ("GiB", 1 << 30),
            ("GB", 1_000_000_000),
            ("MiB", 1 << 20),
            ("MB", 1_000_000),
            ("KiB", 1 << 10),
        ];
        let whole = units.into_iter().find(|(_, per)| self.0 > 0 && self.0 % per == 0);
        let (unit, per) = whole.unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / per)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(d)?;
        let bad = || {
            D::Error::custom(format!(
                "bytes: cannot read '{text}': allowed a number with B, KiB, MiB, GiB or KB, MB, \
                    GB, such as 2MiB"
            ))
        };
        let number = text.trim();
        // The library takes a number without a unit.
        let unit = number.ends_with(['B', 'b']);
        let bytes: ByteSize = number.parse().map_err(|_| bad())?;
        if unit { Ok(Bytes(bytes.as_u64())) } else { Err(bad()) }
    }
}

/// What a workload asks of the hardware while it works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// Name, which VMs and host tasks give.
    pub name: String,
    /// What it stands for.
    #[serde(default)]
    pub about: String,
    /// Where its numbers come from.
    #[serde(default)]
    pub source: String,
    /// Work of a core with two busy threads, of that of a core with one.
    #[serde(default = "smt_yield")]
    pub smt_yield: f64,
    /// What it uses again and again.
    #[serde(default)]
    pub working_set: Bytes,
    /// Its speed where no cache holds any of that, of full speed.
    #[serde(default = "whole")]
    pub uncached: f64,
    /// What it moves to and from memory in a second of work, with its working set cached.
    #[serde(default)]
    pub bandwidth: Bytes,
    /// The same with nothing of it cached; as much as `bandwidth` if left out.
    pub uncached_bandwidth: Option<Bytes>,
    /// Part of its time that it waits for memory, with its working set cached.
    #[serde(default)]
    pub memory_bound: f64,
    /// Part of its memory that is hot.
    #[serde(default = "hot_memory")]
    pub hot_memory: f64,
    /// Part of its accesses to memory that go there.
    #[serde(default = "hot_accesses")]
    pub hot_accesses: f64,
    /// Part of its accesses to memory that go to what threads of other virtual nodes use, where the
    /// guest knows of its nodes.
    #[serde(default = "shared_accesses")]
    pub shared_accesses: f64,
    /// What a VM with this profile does that says nothing of its workload.
    pub workload: Option<Workload>,
}

fn smt_yield() -> f64 {
    1.25
}

fn hot_memory() -> f64 {
    0.1
}

fn hot_accesses() -> f64 {
    0.5
}

fn shared_accesses() -> f64 {
    0.1
}

fn whole() -> f64 {
    1.0
}

#[derive(Deserialize)]
struct BuiltIn {
    profile: Vec<ProfileSpec>,
}

/// The profiles that every scenario has. The first is that of a world without one.
#[must_use]
pub fn built_in_profiles() -> &'static [ProfileSpec] {
    static ALL: LazyLock<Vec<ProfileSpec>> = LazyLock::new(|| {
        let text = include_str!("profiles.toml");
        toml::from_str::<BuiltIn>(text).map(|file| file.profile).unwrap_or_default()
    });
    &ALL
}

impl RunSpec {
    /// The simulated hardware, if there is one.
    #[must_use]
    pub fn hardware(&self) -> Option<&HardwareSpec> {
        self.hardware.as_ref().filter(|h| h.on)
    }

    /// The profile of this name, of the file or built in.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&ProfileSpec> {
        self.profiles.iter().chain(built_in_profiles()).find(|p| p.name == name)
    }

    /// Gives VMs that say nothing of their workload that of their profile.
    pub(crate) fn take_workloads(&mut self) {
        let of = |name: &Option<String>| self.profile(name.as_deref()?)?.workload;
        // What vCPUs do of a guest with tasks, the tasks say.
        let own = |vm: &VmSpec| vm.guest.is_none().then(|| of(&vm.profile)).flatten();
        let workloads: Vec<_> = self.vms.iter().map(|vm| vm.workload.or(own(vm))).collect();
        self.vms.iter_mut().zip(workloads).for_each(|(vm, w)| vm.workload = w);
    }
}

/// Sizes of caches.
const CACHE: RangeInclusive<u64> = 1 << 10..=1 << 32;
/// What an LLC may get from memory in a second: an old front-side bus to eight times a socket of
/// today.
const BANDWIDTH: RangeInclusive<u64> = 100_000_000..=4_000_000_000_000;
/// The least bandwidth that is counted: a byte a us.
const LEAST_ASKED: u64 = 1_000_000;
/// Longest time of a line, and of what a migration costs beside.
const LINE_MAX: Span = Span::from_ns(10_000);
const MIGRATION_MAX: Span = Span::from_ms(1);

/// What is wrong with the hardware of a run and with its profiles.
#[must_use]
pub fn hardware_reasons(spec: &RunSpec) -> Vec<String> {
    let mut out = vec![];
    if let Some(h) = &spec.hardware {
        machine_reasons(h, &mut out);
    }
    for (i, profile) in spec.profiles.iter().enumerate() {
        let title = format!("profile '{}'", profile.name);
        out.extend(bad_name(&profile.name).map(|reason| format!("{title}: {reason}")));
        let before = spec.profiles[..i].iter().chain(built_in_profiles());
        if before.into_iter().any(|p| p.name == profile.name) {
            out.push(format!("{title}: two have this name; each needs its own"));
        }
        out.extend(profile_reasons(profile).into_iter().map(|reason| format!("{title}: {reason}")));
    }
    let of_vms = spec.vms.iter().map(|v| ("vm", &v.name, &v.profile));
    let of_tasks = spec.host_tasks.iter().map(|t| ("host_task", &t.name, &t.profile));
    for (kind, name, profile) in of_vms.chain(of_tasks) {
        let Some(profile) = profile else { continue };
        if spec.hardware.is_none() {
            out.push(format!(
                "{kind} '{name}': profile: seen '{profile}', allowed only with [hardware], which \
                    it asks something of"
            ));
        } else if spec.profile(profile).is_none() {
            let all = spec.profiles.iter().chain(built_in_profiles());
            let all: Vec<&str> = all.map(|p| p.name.as_str()).collect();
            out.push(format!(
                "{kind} '{name}': profile: seen '{profile}', allowed {}",
                all.join(", ")
            ));
        }
    }
    out
}

fn machine_reasons(h: &HardwareSpec, out: &mut Vec<String>) {
    let range = |what: &str, seen: Bytes, allowed: &RangeInclusive<u64>| {
        let (least, most) = (Bytes(*allowed.start()), Bytes(*allowed.end()));
        let outside = !allowed.contains(&seen.0);
        outside.then(|| format!("hardware.{what}: seen {seen}, allowed {least} to {most}"))
    };
    out.extend(range("private_cache", h.private_cache, &CACHE));
    out.extend(range("llc", h.llc, &CACHE));
    out.extend(range("bandwidth", h.bandwidth, &BANDWIDTH));
    let times = [("from_llc", h.from_llc), ("from_memory", h.from_memory)];
    for (what, seen) in times.into_iter().chain([("from_node", h.from_node)]) {
        if seen > LINE_MAX {
            out.push(format!("hardware.{what}: seen {seen}, allowed at most {LINE_MAX} a line"));
        }
    }
    if h.migration > MIGRATION_MAX {
        let seen = h.migration;
        out.push(format!("hardware.migration: seen {seen}, allowed at most {MIGRATION_MAX}"));
    }
}

fn profile_reasons(p: &ProfileSpec) -> Vec<String> {
    let mut out = vec![];
    for (what, seen, least, most) in [
        ("smt_yield", p.smt_yield, 1.0, 1.4),
        ("uncached", p.uncached, 0.05, 1.0),
        ("memory_bound", p.memory_bound, 0.0, 1.0),
        ("hot_memory", p.hot_memory, 0.0, 1.0),
        ("hot_accesses", p.hot_accesses, 0.0, 1.0),
        ("shared_accesses", p.shared_accesses, 0.0, 1.0),
    ] {
        if !(least..=most).contains(&seen) {
            out.push(format!("{what}: seen {seen}, allowed {least} to {most}"));
        }
    }
    if p.working_set.0 > *CACHE.end() {
        let (seen, most) = (p.working_set, Bytes(*CACHE.end()));
        out.push(format!(
            "working_set: seen {seen}, allowed at most {most}: what is used once is bandwidth"
        ));
    }
    for (what, seen) in
        [("bandwidth", Some(p.bandwidth)), ("uncached_bandwidth", p.uncached_bandwidth)]
    {
        let wrong = |seen: &Bytes| seen.0 > *BANDWIDTH.end() || (1..LEAST_ASKED).contains(&seen.0);
        if let Some(seen) = seen.filter(wrong) {
            let (least, most) = (Bytes(LEAST_ASKED), Bytes(*BANDWIDTH.end()));
            out.push(format!("{what}: seen {seen}, allowed 0B, or {least} to {most}, a second"));
        }
    }
    if let Some(more) = p.uncached_bandwidth.filter(|more| *more < p.bandwidth) {
        let least = p.bandwidth;
        out.push(format!("uncached_bandwidth: seen {more}, allowed bandwidth ({least}) or more"));
    }
    out.extend(p.workload.iter().flat_map(Workload::reasons));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, raw::parse};

    const HOST: &str = "[host]\ncores_per_llc = 4\n";

    fn run(more: &str) -> Result<Scenario, String> {
        parse("t.toml", "t", &format!("{HOST}{more}")).map_err(|e| e.to_string())
    }

    fn vm(keys: &str) -> String {
        format!("[[vm]]\nname = 'a'\nvcpus = 2\n{keys}\n")
    }

    #[test]
    fn profiles_that_are_built_in_are_read_and_are_in_range() {
        let all = built_in_profiles();
        let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["burner", "streamer", "specjbb2005", "kernel-compile", "vdi"]);
        for p in all {
            assert_eq!(profile_reasons(p), [""; 0], "{}", p.name);
            assert!(!p.about.is_empty() && !p.source.is_empty(), "{}", p.name);
        }
    }

    #[test]
    fn a_vm_does_what_its_profile_does_unless_it_says_otherwise() {
        let text = format!(
            "[hardware]\nllc = '8MiB'\n[[profile]]\nname = 'mine'\nworking_set = '3MiB'\n\
                workload = {{ kind = 'duty', work = '1ms', sleep = '1ms' }}\n{}{}",
            vm("profile = 'mine'"),
            vm("profile = 'mine'\nworkload = { kind = 'idle' }").replace("'a'", "'b'")
        );
        let spec = run(&text).unwrap().runs.remove(0).spec;
        let kinds: Vec<&str> = spec.vms.iter().map(|v| v.workload_of(0).kind()).collect();
        assert_eq!(kinds, ["duty", "idle"]);
        let hardware = spec.hardware().expect("it is on");
        assert_eq!((hardware.llc, hardware.private_cache), (Bytes(8 << 20), Bytes(1 << 20)));
        let mine = spec.profile("mine").expect("it is there");
        assert_eq!((mine.working_set, mine.smt_yield, mine.uncached), (Bytes(3 << 20), 1.25, 1.0));
        let again = toml::to_string(&spec).unwrap();
        assert_eq!(parse("t.toml", "t", &again).unwrap().runs[0].spec.hardware, spec.hardware);
    }

    #[test]
    fn a_run_may_do_without() {
        let text = format!(
            "[hardware]\n{}[[run]]\nlabel = 'x'\nset = {{ 'hardware.on' = false }}\n",
            vm("")
        );
        assert!(run(&text).unwrap().runs[0].spec.hardware().is_none());
    }

    #[test]
    fn what_no_machine_and_no_program_is_is_refused_with_its_place() {
        let profile = |keys: &str| format!("[hardware]\n[[profile]]\nname = 'p'\n{keys}\n");
        for (text, part) in [
            ("[hardware]\nllc = '1B'".to_owned(), "hardware.llc: seen 1B, allowed 1KiB to 4GiB"),
            (
                "[hardware]\nllc = '-1MiB'".to_owned(),
                "bytes: cannot read '-1MiB': allowed a number",
            ),
            ("[hardware]\nllc = '7'".to_owned(), "bytes: cannot read '7'"),
            ("[hardware]\nbandwidth = '1MB'".to_owned(), "hardware.bandwidth: seen"),
            ("[hardware]\nfrom_llc = '11us'".to_owned(), "hardware.from_llc: seen 11us, allowed"),
            ("[hardware]\nmigration = '2ms'".to_owned(), "hardware.migration: seen 2ms, allowed"),
            (profile("smt_yield = 3"), "profile 'p': smt_yield: seen 3, allowed 1 to 1.4"),
            (profile("smt_yield = nan"), "profile 'p': smt_yield: seen NaN, allowed 1 to 1.4"),
            (profile("uncached = 0.0"), "profile 'p': uncached: seen 0, allowed 0.05 to 1"),
            (profile("memory_bound = 1.1"), "profile 'p': memory_bound: seen 1.1, allowed 0 to 1"),
            (profile("working_set = '2MiB/s'"), "bytes: cannot read '2MiB/s': allowed a number"),
            (profile("bandwidth = '500KB'"), "bandwidth: seen 500000B, allowed 0B, or 1MB to"),
            (profile("working_set = '-2MiB'"), "bytes: cannot read '-2MiB'"),
            (profile("working_set = '5GiB'"), "profile 'p': working_set: seen 5GiB, allowed at"),
            (
                profile("bandwidth = '2GB'\nuncached_bandwidth = '1GB'"),
                "profile 'p': uncached_bandwidth: seen 1GB, allowed bandwidth (2GB) or",
            ),
            (
                profile("workload = { kind = 'duty', work = '1ns', sleep = '1ms' }"),
                "profile 'p': workload.work: seen 1ns, allowed 1us or more",
            ),
            (
                profile("") + "[[profile]]\nname = 'vdi'",
                "profile 'vdi': two have this name; each needs its own",
            ),
            (
                profile("") + &vm("profile = 'q'"),
                "vm 'a': profile: seen 'q', allowed p, burner, streamer, specjbb2005",
            ),
            (vm("profile = 'vdi'"), "vm 'a': profile: seen 'vdi', allowed only with [hardware]"),
        ] {
            let text = run(&text).expect_err("must be refused");
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
