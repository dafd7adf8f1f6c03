//! From a TOML file to checked runs: applies each run's changes, expands counts, collects every
//! reason to refuse.

use crate::{
    HostSpec, HostTask, LessWork, Published, Run, RunSpec, Scenario, ScenarioError, VmSpec,
    changes::{changes, too_late},
    checks,
    hardware::hardware_reasons,
    names,
    numa::numa_reasons,
    offline::offline_reasons,
    parser, pools, published,
    realtime::realtime_reasons,
    unreadable,
    variants::{has_each, two_workloads, vary, vms},
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use topology::Topology;
use units::caps;

/// Loads a scenario from a file, a folder with `scenario.toml`, or a name under `scenarios/`.
///
/// # Errors
/// `ScenarioError`; nothing is half-loaded.
pub fn load(path: &str) -> Result<Scenario, ScenarioError> {
    let file = file_of(path);
    let text = files::text(&file).map_err(|cause| ScenarioError::Read {
        path: path.to_owned(),
        cause,
        near: names::near(path),
    })?;
    let stem = if file.ends_with("scenario.toml") {
        file.parent().and_then(Path::file_name)
    } else {
        file.file_stem()
    };
    parse(path, &stem.map_or_else(String::new, |s| s.to_string_lossy().into_owned()), &text)
}

/// The file that [`load`] reads for this name or path; `path` itself where none is there.
#[must_use]
pub fn file_of(path: &str) -> PathBuf {
    let given = Path::new(path);
    let candidates = [
        given.to_path_buf(),
        given.join("scenario.toml"),
        Path::new(names::FOLDER).join(path).join("scenario.toml"),
    ];
    candidates.into_iter().find(|c| c.is_file()).unwrap_or_else(|| given.to_path_buf())
}

/// Takes the tables of a name out of a scenario.
fn tables<T: DeserializeOwned>(base: &mut toml::Table, name: &str) -> Result<Vec<T>, String> {
    let all =
        base.remove(name).map(|all| all.try_into().map_err(|e: toml::de::Error| parser::said(&e)));
    all.unwrap_or_else(|| Ok(vec![]))
}

/// Parses a scenario's text; `path` and `name` are what messages and the scenario call it.
pub(crate) fn parse(path: &str, name: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let refused = |cause: String| ScenarioError::Parse { path: path.to_owned(), cause };
    let invalid = |reasons: Vec<String>| ScenarioError::Invalid { path: path.to_owned(), reasons };
    let mut base: toml::Table =
        text.parse().map_err(|e: toml::de::Error| refused(parser::said(&e)))?;
    let variants = match base.remove("run") {
        None => vec![],
        Some(toml::Value::Array(runs)) => runs,
        Some(other) => {
            return Err(refused(format!(
                "run: seen a {}, allowed [[run]] tables",
                other.type_str()
            )));
        }
    };
    let published: Vec<Published> = tables(&mut base, "published").map_err(refused)?;
    let less_work: Vec<LessWork> = tables(&mut base, "less_work").map_err(refused)?;
    let mut reasons = unreadable::take(&mut base).map_err(|one| invalid(vec![one]))?;
    let both = vms(&base).filter(|vm| vm.contains_key("workload")).filter(|vm| has_each(vm));
    reasons.extend(both.map(two_workloads));
    // Unknown keys of the base are reported with line and column, which a table has lost.
    let whole = toml::to_string(&base).map_err(|e| refused(e.to_string()))?;
    let as_written =
        variants.is_empty() && published.is_empty() && less_work.is_empty() && reasons.is_empty();
    let strict = if as_written { text } else { &whole };
    let first: RunSpec = match toml::from_str(strict) {
        Ok(first) => first,
        Err(e) if reasons.is_empty() => return Err(refused(parser::said(&e))),
        Err(e) => {
            reasons.push(parser::said(&e));
            return Err(invalid(reasons));
        }
    };
    let mut specs = vec![];
    for variant in &variants {
        match vary(&base, variant) {
            Ok((label, spec, unreadable)) => {
                reasons.extend(unreadable);
                specs.push((label, spec));
            }
            Err(all) => reasons.extend(all),
        }
    }
    if variants.is_empty() {
        specs.push((String::new(), first.clone()));
    }
    let mut runs = vec![];
    for (label, spec) in specs {
        let at = if label.is_empty() { String::new() } else { format!("run '{label}': ") };
        match resolve(spec) {
            Ok((spec, topology)) => runs.push(Run { label, spec, topology }),
            Err(all) => reasons.extend(all.into_iter().map(|r| format!("{at}{r}"))),
        }
    }
    let labels: BTreeSet<&String> = runs.iter().map(|r| &r.label).collect();
    if reasons.is_empty() {
        reasons = labels_twice(&runs, &labels);
    }
    if reasons.is_empty() {
        reasons = runs_of_lab(&runs, &labels);
        reasons.extend(too_late(&runs));
    }
    if reasons.is_empty() {
        reasons = published::reasons(&published, &runs);
        reasons.extend(published::less_work_reasons(&less_work, &runs));
    }
    if !reasons.is_empty() {
        return Err(invalid(reasons));
    }
    let (name, title, source) = (name.to_owned(), first.title, first.source);
    Ok(Scenario { name, title, source, runs, published, less_work })
}

/// Labels that several runs have.
fn labels_twice(runs: &[Run], labels: &BTreeSet<&String>) -> Vec<String> {
    let twice = labels.iter().filter(|l| runs.iter().filter(|r| r.label == ***l).count() > 1);
    twice.map(|l| format!("run '{l}': two have this label; each needs its own")).collect()
}

/// Labels that the lab is to run and that no run has.
fn runs_of_lab(runs: &[Run], labels: &BTreeSet<&String>) -> Vec<String> {
    let named = runs.iter().filter_map(|r| r.spec.lab.runs.as_ref()).flatten();
    let unknown: BTreeSet<&String> = named.filter(|l| !labels.contains(l)).collect();
    let allowed = match labels.iter().map(|l| format!("'{l}'")).collect::<Vec<_>>() {
        one if one == ["''"] => "none, since there is no [[run]]; leave it out".to_owned(),
        all => format!("the labels of its runs: {}", all.join(", ")),
    };
    unknown.iter().map(|l| format!("lab.runs: seen '{l}', allowed {allowed}")).collect()
}

/// Checks a run whole: everything that can be known is looked at before anything is refused.
fn resolve(mut spec: RunSpec) -> Result<(RunSpec, Topology), Vec<String>> {
    let mut reasons = vec![];
    let topology =
        Topology::regular(spec.host.shape()).map_err(|e| reasons.push(e.to_string())).ok();
    let pcpus = topology.as_ref().map_or(caps::PCPUS_MAX, Topology::pcpus);
    checks::times(&spec, &mut reasons);
    reasons.extend(hardware_reasons(&spec));
    reasons.extend(numa_reasons(&spec, topology.as_ref()));
    spec.take_workloads();
    // What a wrong speed makes of amounts in MHz would be reasons of no use.
    let mhz = checks::mhz(spec.host.mhz).map_or(spec.host.mhz, |reason| {
        reasons.push(format!("host.mhz: {reason}"));
        HostSpec::MHZ
    });
    reasons.extend(pools::place(&spec.pools, mhz).err().into_iter().flatten());
    for vm in &spec.vms {
        checks::vm(vm, pcpus, mhz, &mut reasons);
    }
    for task in &spec.host_tasks {
        checks::task(task, pcpus, &mut reasons);
    }
    checks::pools_of_vms(&spec, &mut reasons);
    if let Some(reason) = checks::counts(&spec) {
        reasons.push(reason);
        return Err(reasons);
    }
    let written: Vec<String> = spec.vms.iter().map(|v| v.name.clone()).collect();
    spec.vms = spec.vms.iter().flat_map(VmSpec::expand).collect();
    spec.host_tasks = spec.host_tasks.iter().flat_map(HostTask::expand).collect();
    checks::names(&spec, &written, &mut reasons);
    checks::expectations(&spec, &mut reasons);
    reasons.extend(changes(&spec).err().into_iter().flatten());
    reasons.extend(offline_reasons(&spec, pcpus));
    reasons.extend(realtime_reasons(&spec, pcpus));
    match topology {
        Some(topology) if reasons.is_empty() => Ok((spec, topology)),
        _ => Err(reasons),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
[host]
cores_per_llc = 4
[[vm]]
name = "a"
vcpus = 2
[[vm]]
name = "b"
vcpus = 1
count = 2
shares = "high"
workload = { kind = "duty", work = "15ms", sleep = "85ms" }
"#;

    fn reasons(text: &str) -> String {
        parse("t.toml", "t", text).expect_err("must be refused").to_string()
    }

    #[test]
    fn presets_are_per_vcpu_and_counts_expand() {
        let s = parse("t.toml", "t", TWO).unwrap();
        let vms = &s.runs[0].spec.vms;
        assert_eq!(vms.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["a", "b-1", "b-2"]);
        assert_eq!(vms[0].shares.resolve(2).unwrap().get(), 2000);
        assert_eq!(vms[1].shares.resolve(1).unwrap().get(), 2000);
    }

    #[test]
    fn a_run_may_do_without_a_vm_and_two_have_no_name_in_common() {
        let none = TWO.replace("count = 2", "count = 0");
        let vms = &parse("t.toml", "t", &none).unwrap().runs[0].spec.vms;
        assert_eq!(vms.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["a"]);
        let twice = none.replace("name = \"b\"", "name = \"a\"");
        assert!(reasons(&twice).contains("vm 'a': two have this name"), "{}", reasons(&twice));
    }

    #[test]
    fn runs_vary_any_key_of_any_object() {
        let text = format!(
            "{TWO}\n[[run]]\nlabel = \"x\"\nset = {{ \"a.shares\" = 7, \"host.cores_per_llc\" = 2, \
                \"duration\" = \"3s\", \"b.workload.work\" = \"1ms\" }}\n[[run]]\nlabel = \"y\"\n"
        );
        let s = parse("t.toml", "t", &text).unwrap();
        assert_eq!((s.runs[0].topology.pcpus(), s.runs[1].topology.pcpus()), (2, 4));
        assert_eq!(s.runs[0].spec.vms[0].shares.resolve(2).unwrap().get(), 7);
        assert_eq!(s.runs[0].spec.duration, units::Span::from_secs(3));
    }

    #[test]
    fn every_reason_is_named_and_nothing_is_half_loaded() {
        let bad = TWO.replace("vcpus = 2", "vcpus = 0\nshares = 0\naffinity = \"9\"");
        let text = reasons(&bad);
        for part in [
            "vcpus: seen 0, allowed 1..1024",
            "cannot use 0: allowed 1..262144",
            "seen pCPU 9, allowed 0..3",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(
            reasons(&TWO.replace("shares = \"high\"", "shares = 9223372036854775807"))
                .contains("allowed 1..262144")
        );
        assert!(
            reasons(&TWO.replace("shares = \"high\"", "shares = 9223372036854775808"))
                .contains("refused")
                || reasons(&TWO.replace("shares = \"high\"", "shares = 9223372036854775808"))
                    .contains("cannot parse")
        );
    }

    #[test]
    fn what_would_have_no_effect_is_refused_with_its_place() {
        let each = "vcpu_workloads = [{ kind = \"burn\" }]";
        let said = |name: &str| {
            format!("vm '{name}': workload: seen beside vcpu_workloads, allowed one of them: ")
        };
        let both = TWO.replace("shares = \"high\"", each);
        assert!(reasons(&both).contains(&said("b")), "{}", reasons(&both));
        let run = |set: &str| format!("[[run]]\nlabel = \"x\"\nset = {{ {set} }}\n");
        let base = TWO.replace("vcpus = 2", &format!("vcpus = 1\n{each}"));
        let second = reasons(&format!("{base}{}", run("\"a.workload\" = { kind = \"idle\" }")));
        assert!(second.contains(&format!("run 'x': {}", said("a"))), "{second}");
        // A run may have one for each vCPU in place of the base's one for all.
        let instead = run("\"b.vcpu_workloads\" = [{ kind = \"burn\" }]");
        assert!(parse("t.toml", "t", &format!("{TWO}{instead}")).is_ok());

        let refill = reasons(&format!("{TWO}\n[expect]\nrefill_permille = 5\n"));
        assert!(
            refill.contains("expect.refill_permille: seen it without [hardware], "),
            "{refill}"
        );
        let lab = format!("{TWO}\n[lab]\nruns = [\"nope\"]\n");
        assert!(reasons(&lab).contains("lab.runs: seen 'nope', allowed none, since there is no "));
        let lab = reasons(&format!("{lab}{}", run("")));
        let want = "lab.runs: seen 'nope', allowed the labels of its runs: 'x'";
        assert!(lab.contains(want), "{lab}");
        let late = "duration = \"5s\"\n".to_owned()
            + TWO
            + "[[change]]\nat = \"5s\"\nvm = \"a\"\nshares = 7\n";
        let late = reasons(&late);
        let want = "change 1 (at 5s, vm 'a'): at: seen 5s, allowed before the run ends (5s); ";
        assert!(late.contains(want), "{late}");
    }

    #[test]
    fn unknown_keys_and_cut_files_are_refused_with_their_place() {
        assert!(reasons(&TWO.replace("vcpus = 1", "vcpus = 1\nsharez = 3")).contains("sharez"));
        assert!(reasons(&TWO[..TWO.len() - 20]).contains("line"));
        assert!(
            reasons(&format!("{TWO}\n[expect]\nratio_of = [\"a\", \"c\"]"))
                .contains("expect.ratio_of: seen 'c'")
        );
        assert!(
            reasons(&format!("{TWO}\n[expect]\nlab_late_max_us = {{ c = 1 }}"))
                .contains("expect.lab_late_max_us: seen 'c'")
        );
        assert!(
            reasons(&format!("{TWO}\n[[run]]\nlabel=\"x\"\nset={{\"nobody.shares\"=1}}"))
                .contains("nobody.shares")
        );
    }
}
