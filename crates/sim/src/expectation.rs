//! Holds a result against what its scenario expects (`[expect]`), for simulated runs and for the lab's; it runs nothing.

use settings::Expect;
use views::{RunResult, Vm, Where};

/// Largest |used ÷ entitled − 1| of any VM, in permille rounded to the nearest, with the VM's name.
/// VMs that the ideal gave nothing do not count.
#[must_use]
pub fn worst_permille(result: &RunResult) -> Option<(u64, String)> {
    let off = |vm: &Vm| {
        let (used, entitled) = (u128::from(vm.times.used_ns), u128::from(vm.times.entitled_ns));
        (entitled > 0).then(|| ((used.abs_diff(entitled) * 1000 + entitled / 2) / entitled) as u64)
    };
    result.vms.iter().filter_map(|vm| Some((off(vm)?, vm.name.clone()))).max_by_key(|x| x.0)
}

/// By how much, in permille, the most favoured of these VMs had more for each of its shares than the least.
/// A VM that used nothing makes it the largest number there is; fewer than two VMs make it 0.
#[must_use]
pub fn ratio_permille(result: &RunResult, names: &[String]) -> u64 {
    let listed = result.vms.iter().filter(|v| names.contains(&v.name));
    let level = |v: &Vm| (u128::from(v.times.used_ns) << 32) / u128::from(v.shares.max(1));
    let levels: Vec<u128> = listed.map(level).collect();
    match (levels.iter().min(), levels.iter().max()) {
        (Some(0), _) => u64::MAX,
        (Some(least), Some(most)) => ((most - least) * 1000 / least) as u64,
        _ => 0,
    }
}

/// What a run did not keep of its scenario's expectations, in words.
#[must_use]
pub fn unmet(result: &RunResult, expect: &Expect, place: Where) -> Vec<String> {
    let mut off = vec![];
    let allowed = if place == Where::Sim { expect.sim_permille } else { expect.lab_permille };
    if let (Some(allowed), Some((seen, vm))) = (allowed.map(u64::from), worst_permille(result)) {
        if seen > allowed {
            off.push(format!("VM {vm} is {seen} permille off its entitlement, allowed {allowed}"));
        }
    }
    let absent = |n: &&String| result.vms.iter().all(|v| v.name != **n);
    off.extend(expect.ratio_of.iter().filter(absent).map(|n| format!("VM {n} is not in the result")));
    let (names, allowed) = (&expect.ratio_of, u64::from(expect.ratio_permille));
    let seen = ratio_permille(result, names);
    if seen > allowed {
        off.push(format!("VMs {} are {seen} permille off the ratio of their shares, allowed {allowed}", names.join(" and ")));
    }
    off
}

#[cfg(test)]
mod tests {
    use super::*;
    use views::{HostCounts, Times};

    fn result(vms: &[(&str, u64, u64, u64)]) -> RunResult {
        let vm = |&(name, shares, used_ns, entitled_ns): &(&str, u64, u64, u64)| Vm {
            name: name.into(),
            pool: "/".into(),
            vcpus: 1,
            shares,
            times: Times { used_ns, entitled_ns, ..Times::default() },
            cpu_stat: None,
            worlds: vec![],
        };
        let host = HostCounts { pcpus: 1, cores: 1, llcs: 1, nodes: 1, sockets: 1 };
        RunResult { label: String::new(), duration_ns: 1, host, pcpus: vec![], pools: vec![], vms: vms.iter().map(vm).collect() }
    }

    #[test]
    fn entitlement_and_ratio_are_held_to_their_own_bounds() {
        let seen = result(&[("a", 100, 970, 1000), ("b", 300, 3000, 3000), ("c", 1, 7, 0)]);
        assert_eq!(worst_permille(&seen), Some((30, "a".into())));
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(ratio_permille(&seen, &names), 30);
        let expect =
            |sim, lab, ratio| Expect { sim_permille: Some(sim), lab_permille: Some(lab), ratio_of: names.to_vec(), ratio_permille: ratio };
        assert_eq!(unmet(&seen, &expect(30, 29, 30), Where::Sim), Vec::<String>::new());
        assert_eq!(unmet(&seen, &expect(30, 29, 30), Where::Lab), ["VM a is 30 permille off its entitlement, allowed 29"]);
        assert_eq!(
            unmet(&seen, &expect(30, 29, 20), Where::Sim),
            ["VMs a and b are 30 permille off the ratio of their shares, allowed 20"]
        );
    }

    #[test]
    fn a_vm_of_the_list_that_got_nothing_is_no_ratio() {
        let seen = result(&[("a", 100, 0, 0), ("b", 300, 3000, 3000)]);
        assert_eq!(ratio_permille(&seen, &["a".into(), "b".into()]), u64::MAX);
        assert_eq!(ratio_permille(&seen, &[]), 0);
        let expect = Expect { ratio_of: vec!["b".into(), "gone".into()], ..Expect::default() };
        assert_eq!(unmet(&seen, &expect, Where::Lab), ["VM gone is not in the result"]);
    }
}
