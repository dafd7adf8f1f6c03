//! From a TOML file to checked runs: applies each run's changes, expands counts, collects every reason to refuse.

use crate::{HostTask, Run, RunSpec, Scenario, ScenarioError, VmSpec};
use std::{collections::BTreeSet, fs, path::Path};
use topology::Topology;
use units::{PcpuSet, caps};

/// Loads a scenario from a file, a folder with `scenario.toml`, or a name under `scenarios/`.
///
/// # Errors
/// `ScenarioError`; nothing is half-loaded.
pub fn load(path: &str) -> Result<Scenario, ScenarioError> {
    let given = Path::new(path);
    let candidates = [given.to_path_buf(), given.join("scenario.toml"), Path::new("scenarios").join(path).join("scenario.toml")];
    let file = candidates.iter().find(|c| c.is_file()).unwrap_or(&candidates[0]);
    let text = fs::read_to_string(file).map_err(|cause| ScenarioError::Read { path: path.to_owned(), cause })?;
    let stem = if file.ends_with("scenario.toml") { file.parent().and_then(Path::file_name) } else { file.file_stem() };
    parse(path, &stem.map_or_else(String::new, |s| s.to_string_lossy().into_owned()), &text)
}

fn parse(path: &str, name: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let refused = |cause: String| ScenarioError::Parse { path: path.to_owned(), cause };
    let mut base: toml::Table = text.parse().map_err(|e: toml::de::Error| refused(e.to_string()))?;
    let variants = match base.remove("run") {
        None => vec![],
        Some(toml::Value::Array(runs)) => runs,
        Some(other) => return Err(refused(format!("run: seen a {}, allowed [[run]] tables", other.type_str()))),
    };
    // Unknown keys of the base are reported with line and column, which a table has lost.
    let whole = toml::to_string(&base).map_err(|e| refused(e.to_string()))?;
    let strict = if variants.is_empty() { text } else { &whole };
    let first: RunSpec = toml::from_str(strict).map_err(|e| refused(e.to_string()))?;
    let mut specs = vec![];
    for variant in &variants {
        specs.push(vary(&base, variant).map_err(refused)?);
    }
    if specs.is_empty() {
        specs.push((String::new(), first.clone()));
    }
    let mut reasons = vec![];
    let mut runs = vec![];
    for (label, spec) in specs {
        let at = if label.is_empty() { String::new() } else { format!("run '{label}': ") };
        match resolve(spec) {
            Ok((spec, topology)) => runs.push(Run { label, spec, topology }),
            Err(all) => reasons.extend(all.into_iter().map(|r| format!("{at}{r}"))),
        }
    }
    let labels: BTreeSet<&String> = runs.iter().map(|r| &r.label).collect();
    if reasons.is_empty() && labels.len() < runs.len() {
        reasons.push("run: two runs have the same label; each needs its own".to_owned());
    }
    if !reasons.is_empty() {
        return Err(ScenarioError::Invalid { path: path.to_owned(), reasons });
    }
    Ok(Scenario { name: name.to_owned(), title: first.title, source: first.source, runs })
}

/// Applies one `[[run]]`: `label` and `set`, a table of `OBJECT.KEY = VALUE`, where OBJECT is the
/// name of a VM or host task, or `host`, `knobs`, or nothing for a key at the top.
fn vary(base: &toml::Table, variant: &toml::Value) -> Result<(String, RunSpec), String> {
    let table = variant.as_table().ok_or("run: allowed [[run]] tables")?;
    if let Some(key) = table.keys().find(|k| !["label", "set"].contains(&k.as_str())) {
        return Err(format!("run: seen key '{key}', allowed label and set"));
    }
    let label = table.get("label").and_then(|l| l.as_str()).ok_or("run: cannot find label: each [[run]] needs one")?;
    let mut changed = base.clone();
    if let Some(set) = table.get("set") {
        for (key, value) in set.as_table().ok_or("run.set: allowed a table such as { \"vm1.shares\" = 100 }")? {
            *find(&mut changed, key)
                .ok_or_else(|| format!("run '{label}': cannot set '{key}': no such VM, host task or section; allowed NAME.KEY or KEY"))? =
                value.clone();
        }
    }
    let spec = changed.try_into().map_err(|e: toml::de::Error| format!("run '{label}': {e}"))?;
    Ok((label.to_owned(), spec))
}

fn find<'t>(table: &'t mut toml::Table, key: &str) -> Option<&'t mut toml::Value> {
    let place = |t: &'t mut toml::Table, k: &str| Some(t.entry(k.to_owned()).or_insert(toml::Value::Boolean(false)));
    let Some((object, rest)) = key.split_once('.') else {
        return place(table, key);
    };
    if ["host", "knobs", "expect", "lab"].contains(&object) {
        let section = table.entry(object.to_owned()).or_insert(toml::Value::Table(toml::Table::new()));
        return place(section.as_table_mut()?, rest);
    }
    for kind in ["vm", "host_task"] {
        let names = table.get(kind).and_then(|v| v.as_array());
        let found = names.and_then(|a| a.iter().position(|v| v.get("name").and_then(|n| n.as_str()) == Some(object)));
        if let Some(i) = found {
            let mut at = table.get_mut(kind)?.as_array_mut()?.get_mut(i)?.as_table_mut()?;
            let mut rest = rest;
            while let Some((head, tail)) = rest.split_once('.') {
                at = at.get_mut(head)?.as_table_mut()?;
                rest = tail;
            }
            return place(at, rest);
        }
    }
    None
}

fn resolve(mut spec: RunSpec) -> Result<(RunSpec, Topology), Vec<String>> {
    let mut reasons = vec![];
    let topology = Topology::regular(spec.host.shape()).map_err(|e| vec![e.to_string()])?;
    if !(100..=10_000).contains(&spec.host.hz) {
        reasons.push(format!("host.hz: seen {}, allowed 100..10000", spec.host.hz));
    }
    if spec.duration <= spec.warmup {
        reasons.push(format!("duration: seen {}, allowed more than warmup ({})", spec.duration, spec.warmup));
    }
    for vm in &spec.vms {
        check_vm(vm, topology.pcpus(), &mut reasons);
    }
    for task in &spec.host_tasks {
        check_task(task, topology.pcpus(), &mut reasons);
    }
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let worlds = |vms: &[VmSpec]| vms.iter().map(|v| u64::from(v.count) * u64::from(v.vcpus)).sum::<u64>();
    let vms: u64 = spec.vms.iter().map(|v| u64::from(v.count)).sum();
    let tasks: u64 = spec.host_tasks.iter().map(|t| u64::from(t.count)).sum();
    if vms + 1 > caps::VMS_MAX as u64 || worlds(&spec.vms) + tasks >= caps::WORLDS_MAX as u64 {
        reasons.push(format!(
            "vm: seen {vms} VMs and {} worlds, allowed {} and {}",
            worlds(&spec.vms) + tasks,
            caps::VMS_MAX - 1,
            caps::WORLDS_MAX - 1
        ));
        return Err(reasons);
    }
    spec.vms = spec.vms.iter().flat_map(VmSpec::expand).collect();
    spec.host_tasks = spec.host_tasks.iter().flat_map(HostTask::expand).collect();
    let names: Vec<&str> = spec.vms.iter().map(|v| v.name.as_str()).chain(spec.host_tasks.iter().map(|t| t.name.as_str())).collect();
    let mut seen = BTreeSet::new();
    reasons.extend(names.iter().filter(|n| !seen.insert(**n)).map(|n| format!("vm '{n}': two have this name; each needs its own")));
    let known = |n: &&String| spec.vms.iter().any(|v| v.name == **n);
    let unknown = spec.expect.ratio_of.iter().filter(|n| !known(n));
    reasons.extend(unknown.map(|n| format!("expect.ratio_of: seen '{n}', allowed the names of its VMs")));
    if reasons.is_empty() { Ok((spec, topology)) } else { Err(reasons) }
}

fn check_vm(vm: &VmSpec, pcpus: usize, reasons: &mut Vec<String>) {
    let mut say = |r: String| reasons.push(format!("vm '{}': {r}", vm.name));
    if let Some(reason) = bad_name(&vm.name) {
        say(reason);
    }
    if vm.count == 0 {
        say("count: seen 0, allowed 1 or more".to_owned());
    }
    if vm.vcpus == 0 || vm.vcpus > caps::VCPUS_MAX {
        say(format!("vcpus: seen {}, allowed 1..{}", vm.vcpus, caps::VCPUS_MAX));
    }
    if let Err(e) = vm.shares.resolve(vm.vcpus) {
        say(e);
    }
    for (what, len) in
        [("vcpu_affinity", vm.vcpu_affinity.as_ref().map(Vec::len)), ("vcpu_workloads", vm.vcpu_workloads.as_ref().map(Vec::len))]
    {
        if len.is_some_and(|l| l != vm.vcpus as usize) {
            say(format!("{what}: seen {} entries, allowed exactly {} (one a vCPU)", len.unwrap_or(0), vm.vcpus));
        }
    }
    let sets = [&vm.affinity, &vm.cpuset].into_iter().flatten().chain(vm.vcpu_affinity.iter().flatten());
    for reason in sets.filter_map(|s| absent(s, pcpus)) {
        say(reason);
    }
    if (0..vm.vcpus.min(caps::VCPUS_MAX) as usize).any(|i| vm.allowed(i).is_some_and(|s| s.is_empty())) {
        say("affinity and cpuset leave a vCPU without any pCPU; let them overlap".to_owned());
    }
    if vm.stop.is_some_and(|s| s <= vm.start) {
        say(format!("stop: seen {}, allowed after start ({})", vm.stop.unwrap_or_default(), vm.start));
    }
    let workloads = vm.vcpu_workloads.as_deref().unwrap_or(std::slice::from_ref(&vm.workload));
    workloads.iter().flat_map(|w| w.reasons()).for_each(say);
}

fn check_task(task: &HostTask, pcpus: usize, reasons: &mut Vec<String>) {
    let mut say = |r: String| reasons.push(format!("host_task '{}': {r}", task.name));
    if let Some(reason) = bad_name(&task.name) {
        say(reason);
    }
    if let Some(reason) = task.affinity.as_ref().and_then(|s| absent(s, pcpus)) {
        say(reason);
    }
    if task.per_cpu_kthread && task.affinity.as_ref().is_none_or(|a| a.len() != 1) {
        say("per_cpu_kthread: allowed only with an affinity of exactly one pCPU".to_owned());
    }
    if task.count == 0 {
        say("count: seen 0, allowed 1 or more".to_owned());
    }
    task.workload.reasons().into_iter().for_each(say);
}

fn bad_name(name: &str) -> Option<String> {
    let bad = name.is_empty() || name.len() > 64 || name.contains(['/', '.', '"', ',', '\n']);
    bad.then(|| "name: allowed 1..64 characters without / . , \" or line ends".to_owned())
}

fn absent(set: &PcpuSet, pcpus: usize) -> Option<String> {
    let last = set.last()?.0 as usize;
    (last >= pcpus).then(|| format!("affinity: seen pCPU {last}, allowed 0..{} on this host", pcpus - 1))
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
    fn runs_vary_any_key_of_any_object() {
        let text = format!(
            "{TWO}\n[[run]]\nlabel = \"x\"\nset = {{ \"a.shares\" = 7, \"host.cores_per_llc\" = 2, \"duration\" = \"3s\", \"b.workload.work\" = \"1ms\" }}\n[[run]]\nlabel = \"y\"\n"
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
        for part in ["vcpus: seen 0, allowed 1..1024", "cannot use 0: allowed 1..262144", "seen pCPU 9, allowed 0..3"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(reasons(&TWO.replace("shares = \"high\"", "shares = 9223372036854775807")).contains("allowed 1..262144"));
        assert!(
            reasons(&TWO.replace("shares = \"high\"", "shares = 9223372036854775808")).contains("refused")
                || reasons(&TWO.replace("shares = \"high\"", "shares = 9223372036854775808")).contains("cannot parse")
        );
    }

    #[test]
    fn unknown_keys_and_cut_files_are_refused_with_their_place() {
        assert!(reasons(&TWO.replace("vcpus = 1", "vcpus = 1\nsharez = 3")).contains("sharez"));
        assert!(reasons(&TWO[..TWO.len() - 20]).contains("line"));
        assert!(reasons(&format!("{TWO}\n[expect]\nratio_of = [\"a\", \"c\"]")).contains("expect.ratio_of: seen 'c'"));
        assert!(reasons(&format!("{TWO}\n[[run]]\nlabel=\"x\"\nset={{\"nobody.shares\"=1}}")).contains("nobody.shares"));
    }
}
