//! The runs of a scenario: what each `[[run]]` changes of the base, and every reason to refuse it.

use crate::{RunSpec, parser, unreadable};
use toml::{Table, Value};

/// The VMs as written.
pub(crate) fn vms(base: &Table) -> impl Iterator<Item = &Table> {
    let all = base.get("vm").and_then(|v| v.as_array()).into_iter().flatten();
    all.filter_map(|vm| vm.as_table())
}

/// Whether a VM has a workload for each vCPU.
pub(crate) fn has_each(vm: &Table) -> bool {
    vm.contains_key("vcpu_workloads")
}

fn name_of(vm: &Table) -> &str {
    vm.get("name").and_then(|n| n.as_str()).unwrap_or_default()
}

pub(crate) fn two_workloads(vm: &Table) -> String {
    format!(
        "vm '{}': workload: seen beside vcpu_workloads, allowed one of them: it would have no \
            effect; leave it out",
        name_of(vm)
    )
}

/// The run that one `[[run]]` makes of the base, with a reason for each amount in it that cannot be
/// read.
pub(crate) fn vary(
    base: &Table,
    variant: &Value,
) -> Result<(String, RunSpec, Vec<String>), Vec<String>> {
    let (label, set) = parts(variant)?;
    let at = |reason: String| format!("run '{label}': {reason}");
    let (mut changed, mut reasons) = (base.clone(), vec![]);
    for (key, value) in set {
        if let Err(reason) = change(&mut changed, key, value) {
            reasons.push(at(reason));
        }
    }
    let unreadable = unreadable::take(&mut changed).map_err(|reason| vec![at(reason)])?;
    reasons.extend(unreadable.into_iter().map(at));
    match changed.try_into::<RunSpec>() {
        Ok(spec) => Ok((label, spec, reasons)),
        Err(e) => {
            let named = wrong_entries(base, set, &e);
            reasons.extend(named.into_iter().map(at));
            Err(reasons)
        }
    }
}

/// Label and changes of a `[[run]]`.
fn parts(variant: &Value) -> Result<(String, &Table), Vec<String>> {
    static NONE: std::sync::LazyLock<Table> = std::sync::LazyLock::new(Table::new);
    let one = |reason: &str| vec![reason.to_owned()];
    let table = variant.as_table().ok_or_else(|| one("run: allowed [[run]] tables"))?;
    let unknown = table.keys().filter(|k| !["label", "set"].contains(&k.as_str()));
    let mut reasons: Vec<String> =
        unknown.map(|key| format!("run: seen key '{key}', allowed label and set")).collect();
    let label = table.get("label").and_then(Value::as_str).unwrap_or_else(|| {
        reasons.push("run: label: seen none, allowed one for each [[run]]".to_owned());
        ""
    });
    let set = match table.get("set") {
        None => &NONE,
        Some(set) => set.as_table().unwrap_or_else(|| {
            let allowed = "a table such as { \"vm1.shares\" = 100 }";
            reasons.push(format!("run.set: seen a {}, allowed {allowed}", set.type_str()));
            &NONE
        }),
    };
    if reasons.is_empty() { Ok((label.to_owned(), set)) } else { Err(reasons) }
}

/// Applies one entry of `set`, `OBJECT.KEY = VALUE`, where OBJECT is the name of a VM, pool or host
/// task, or `host`, `knobs`, or nothing for a key at the top.
fn change(table: &mut Table, key: &str, value: &Value) -> Result<(), String> {
    *find(table, key).ok_or_else(|| {
        format!(
            "cannot set '{key}': no such VM, pool, host task or section; allowed NAME.KEY or KEY"
        )
    })? = value.clone();
    // One of the base counts, unless this run has one for each vCPU.
    let object = key.split_once('.').filter(|(_, k)| k.split('.').next() == Some("workload"));
    let of = |vm: &&Table| object.is_some_and(|(o, _)| name_of(vm) == o);
    let both = vms(table).find(|vm| of(vm) && has_each(vm));
    both.map_or(Ok(()), |vm| Err(two_workloads(vm)))
}

/// A reason for each entry of `set` that makes a run that cannot be read, of which `e` is the first
/// error: without the entry the error is another, or none.
fn wrong_entries(base: &Table, set: &Table, e: &toml::de::Error) -> Vec<String> {
    let read = |left: &[(&String, &Value)]| {
        let mut changed = base.clone();
        for (key, value) in left {
            // What cannot be set has its reason.
            let _ = change(&mut changed, key, value);
        }
        let _ = unreadable::take(&mut changed);
        changed.try_into::<RunSpec>().err().map(|e| parser::said(&e))
    };
    let mut left: Vec<(&String, &Value)> = set.iter().collect();
    let (mut error, mut reasons) = (Some(parser::said(e)), vec![]);
    while let Some(seen) = error {
        let without = |i: usize| {
            let mut rest = left.clone();
            rest.remove(i);
            rest
        };
        let wrong = (0..left.len()).find(|i| read(&without(*i)).as_ref() != Some(&seen));
        let Some(i) = wrong else {
            reasons.push(seen);
            break;
        };
        reasons.push(format!("{}: {seen}", left[i].0));
        left = without(i);
        error = read(&left);
    }
    reasons
}

fn find<'t>(table: &'t mut Table, key: &str) -> Option<&'t mut Value> {
    let place =
        |t: &'t mut Table, k: &str| Some(t.entry(k.to_owned()).or_insert(Value::Boolean(false)));
    let Some((object, rest)) = key.split_once('.') else {
        return place(table, key);
    };
    if ["host", "hardware", "numa", "knobs", "expect", "lab"].contains(&object) {
        let section = table.entry(object.to_owned()).or_insert(Value::Table(Table::new()));
        return place(section.as_table_mut()?, rest);
    }
    for kind in ["vm", "host_task", "pool", "profile"] {
        let names = table.get(kind).and_then(|v| v.as_array());
        let found = names.and_then(|a| {
            a.iter().position(|v| v.get("name").and_then(|n| n.as_str()) == Some(object))
        });
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

#[cfg(test)]
mod tests {
    use crate::raw::parse;

    const BASE: &str = "[host]\ncores_per_llc = 2\n[[vm]]\nname = 'a'\nvcpus = 1\n";

    fn reasons(more: &str) -> String {
        parse("t.toml", "t", &format!("{BASE}{more}")).expect_err("it is refused").to_string()
    }

    #[test]
    fn every_wrong_entry_of_a_run_is_named() {
        let set = "'d.shares' = 3, 'knobs.quantum_us' = -3, 'a.shares' = 1.5, 'a.vcpus' = -1, \
            'a.sharez' = 3, 'e.vcpus' = 2, 'a.count' = 1";
        let text = reasons(&format!("[[run]]\nlabel = 'y'\nset = {{ {set} }}\n"));
        for want in [
            "\n  - run 'y': cannot set 'd.shares': no such VM, ",
            "\n  - run 'y': cannot set 'e.vcpus': no such VM, ",
            "\n  - run 'y': knobs.quantum_us: knob 'quantum_us': seen -3, allowed a whole number",
            "\n  - run 'y': a.shares: invalid type: floating point `1.5`, expected low, normal, ",
            "\n  - run 'y': a.vcpus: invalid value: integer `-1`, allowed a whole number of 0..",
            "\n  - run 'y': a.sharez: unknown field `sharez`, expected one of `name`, ",
        ] {
            assert!(text.contains(want), "{want}\n{text}");
        }
        assert_eq!(text.matches("\n  - ").count(), 6, "{text}");
    }

    #[test]
    fn keys_of_a_run_and_of_a_scenario_are_those_that_there_are() {
        let text = reasons("[[run]]\nfoo = 1\nbar = 2\n[[run]]\nlabel = 'x'\nset = 3\n");
        for want in [
            "key 'foo', ",
            "key 'bar', ",
            "label: seen none, allowed one",
            "run.set: seen a integer",
        ] {
            assert!(text.contains(want), "{want}\n{text}");
        }
        let top = parse("t.toml", "t", &format!("nope = 1\n{BASE}")).expect_err("it is refused");
        assert!(top.to_string().contains("`expect`, `run`, `published`, `less_work`"), "{top}");
    }

    #[test]
    fn shares_that_are_no_number_and_names_of_two_kinds_say_what_is_allowed() {
        for shares in ["inf", "nan", "[1]"] {
            let text = reasons(&format!("shares = {shares}\n"));
            assert!(text.contains("expected low, normal, high or a whole number of 1.."), "{text}");
        }
        let both = reasons("[[host_task]]\nname = 'a'\n");
        let want = "vm 'a': a host task has this name too; each needs its own";
        assert!(both.contains(want), "{both}");
    }
}
