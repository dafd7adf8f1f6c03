//! Holds a result against what its scenario expects (`[expect]`), for simulated runs and for the
//! lab's; it runs nothing.

use settings::{PlacedPool, RunSpec};
use std::collections::BTreeMap;
use units::Span;
use views::{MeasuredBy, RunResult, Times, Vm, Wakeups, Where};

/// Whether what a VM had of its entitlement says anything. Of one that the ideal gave less than 2 %
/// of a pCPU it does not: on a real kernel a halted VM's process wakes now and then for
/// microseconds, of which the wait is most; 1.5 % seen on an emulated host.
#[must_use]
pub fn counts(vm: &Vm, result: &RunResult) -> bool {
    vm.times.entitled_ns > 0
        && u128::from(vm.times.entitled_ns) * 50 >= u128::from(result.duration_ns)
}

/// Largest |used ÷ entitled − 1| of any VM that counts, in permille rounded to the nearest, with
/// the VM's name.
#[must_use]
pub fn worst_permille(result: &RunResult) -> Option<(u64, String)> {
    let off = |vm: &Vm| {
        let (used, entitled) = (u128::from(vm.times.used_ns), u128::from(vm.times.entitled_ns));
        counts(vm, result)
            .then(|| ((used.abs_diff(entitled) * 1000 + entitled / 2) / entitled) as u64)
    };
    result.vms.iter().filter_map(|vm| Some((off(vm)?, vm.name.clone()))).max_by_key(|x| x.0)
}

/// By how much, in permille, the most favoured of these VMs had more for each of its shares than
/// the least. A VM that used nothing makes it the largest number there is; fewer than two VMs make
/// it 0.
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

/// By how much, in permille, one of these VMs used more than another. One that used nothing makes
/// it the largest number there is.
#[must_use]
pub fn unequal_permille(result: &RunResult, names: &[String]) -> u64 {
    let used: Vec<u64> =
        result.vms.iter().filter(|v| names.contains(&v.name)).map(|v| v.times.used_ns).collect();
    match (used.iter().min(), used.iter().max()) {
        (Some(0), _) => u64::MAX,
        (Some(least), Some(most)) => (u128::from(most - least) * 1000 / u128::from(*least)) as u64,
        _ => 0,
    }
}

/// What a run did not keep of its scenario's expectations, in words.
#[must_use]
pub fn unmet(result: &RunResult, spec: &RunSpec, place: Where) -> Vec<String> {
    let (mut off, expect, lab) = (vec![], &spec.expect, place != Where::Sim);
    let pick =
        |sim: u32, other: Option<u32>| u64::from(if lab { other.unwrap_or(sim) } else { sim });
    let allowed = if lab { expect.lab_permille } else { expect.sim_permille };
    if let (Some(allowed), Some((seen, vm))) = (allowed.map(u64::from), worst_permille(result)) {
        if seen > allowed {
            off.push(format!("VM {vm} is {seen} permille off its entitlement, allowed {allowed}"));
        }
    }
    let absent = |n: &&String| result.vms.iter().all(|v| v.name != **n);
    let named = expect.ratio_of.iter().chain(&expect.equal_of);
    off.extend(named.filter(absent).map(|n| format!("VM {n} is not in the result")));
    let (seen, allowed) = (
        ratio_permille(result, &expect.ratio_of),
        pick(expect.ratio_permille, expect.lab_ratio_permille),
    );
    if seen > allowed {
        off.push(format!(
            "VMs {} are {seen} permille off the ratio of their shares, allowed {allowed}",
            expect.ratio_of.join(" and ")
        ));
    }
    let (seen, allowed) = (
        unequal_permille(result, &expect.equal_of),
        pick(expect.equal_permille, expect.lab_equal_permille),
    );
    if seen > allowed {
        off.push(format!(
            "VMs {} differ by {seen} permille, allowed {allowed}",
            expect.equal_of.join(", ")
        ));
    }
    off.extend(short(result, if lab { &expect.lab_at_least } else { &expect.at_least }));
    let permille = if lab { expect.lab_limit_permille } else { expect.limit_permille };
    off.extend(permille.into_iter().flat_map(|p| passed(result, spec, u64::from(p))));
    if spec.knobs.get("cosched") == Some(&0) {
        // A knob that does not reach the scheduler shows nowhere else.
        let stopped = result.vms.iter().filter(|v| v.times.costop_ns > 0);
        off.extend(stopped.map(|v| {
            format!(
                "VM {} was co-stopped for {} ns, allowed 0 with cosched off",
                v.name, v.times.costop_ns
            )
        }));
    }
    off.extend(
        expect.refill_permille.filter(|_| !lab).and_then(|p| refilled(result, u64::from(p))),
    );
    off.extend(late(
        result,
        if lab { &expect.lab_late_mean_us } else { &expect.late_mean_us },
        "on average",
        |w| w.mean_ns,
    ));
    off.extend(late(
        result,
        if lab { &expect.lab_late_max_us } else { &expect.late_max_us },
        "once",
        |w| w.max_ns,
    ));
    off
}

/// VMs whose vCPUs ran later after they should have woken than they may, by their own clock, and
/// such host tasks.
fn late(
    result: &RunResult,
    at_most: &BTreeMap<String, u64>,
    when: &str,
    of: fn(&Wakeups) -> u64,
) -> Vec<String> {
    let what = |name: &str| {
        if result.vms.iter().any(|v| v.name == name) { "VM" } else { "host task" }
    };
    let judge = |(name, us): (&String, &u64)| {
        let Some(w) = result.wakeups.iter().find(|w| w.vm == *name && w.by == MeasuredBy::Workload)
        else {
            return Some(format!("{} {name} has no wake-ups", what(name)));
        };
        let seen = of(w);
        (seen > us * 1000).then(|| {
            format!(
                "{} {name} woke {}.{:03} us late {when}, allowed {us} us",
                what(name),
                seen / 1000,
                seen % 1000
            )
        })
    };
    at_most.iter().filter_map(judge).collect()
}

/// VMs that got less of what they wanted than they should. No VM has a claim to more than a pCPU
/// for each vCPU, though helper threads beside busy vCPUs want more.
fn short(result: &RunResult, at_least: &BTreeMap<String, u32>) -> Vec<String> {
    let of = |(name, least): (&String, &u32)| {
        let Some(v) = result.vms.iter().find(|v| v.name == *name) else {
            return Some(format!("VM {name} is not in the result"));
        };
        let (t, most) = (v.times, u64::from(v.vcpus) * result.duration_ns);
        let got = u128::from(t.used_ns) * 1000
            / u128::from((t.run_ns + t.ready_ns + t.costop_ns).min(most).max(1));
        (got < u128::from(*least)).then(|| {
            format!("VM {name} got {got} permille of what it wanted, allowed {least} or more")
        })
    };
    at_least.iter().filter_map(of).collect()
}

/// VMs that lost more than so many permille of their time to filling caches again.
fn refilled(result: &RunResult, permille: u64) -> Option<String> {
    let mut all = Times::default();
    result.vms.iter().for_each(|vm| all.add(&vm.times));
    let Some(lost) = all.lost else { return Some("the caches are not simulated".into()) };
    (lost.refill_ns * 1000 > all.run_ns * permille).then(|| {
        let seen = lost.refill_ns * 1000 / all.run_ns.max(1);
        format!("VMs filled caches again for {seen} permille of their time, allowed {permille}")
    })
}

/// Pools that used more than their limit and so many permille of it in some second.
fn passed(result: &RunResult, spec: &RunSpec, permille: u64) -> Vec<String> {
    let second = Span::from_secs(1);
    // A peak is one below the limit that is in force at the end.
    let end = Span::from_ns(spec.warmup.ns().saturating_add(result.duration_ns));
    let pools = settings::pools_at(spec, end);
    let pools = settings::place(&pools, spec.host.mhz).unwrap_or_default();
    let of = |p: &PlacedPool| {
        let limit = p.limit?.over(second);
        let Some(peak) = result.pools.iter().find(|r| r.path == p.path).and_then(|r| r.peak_ns)
        else {
            return Some(format!("pool {} has no use in any second", p.path));
        };
        let over = |ns: u64| {
            format!(
                "pool {} used {ns} ns in a second, allowed {limit} and {permille} permille",
                p.path
            )
        };
        (peak * 1000 > limit * (1000 + permille)).then(|| over(peak))
    };
    pools.iter().filter_map(of).collect()
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
            guest: None,
            numa: vec![],
            worlds: vec![],
        };
        let host = HostCounts { pcpus: 1, cores: 1, llcs: 1, nodes: 1, sockets: 1 };
        RunResult {
            label: String::new(),
            duration_ns: 1,
            host,
            pcpus: vec![],
            pools: vec![],
            vms: vms.iter().map(vm).collect(),
            wakeups: vec![],
            checked: None,
        }
    }

    /// A run whose file says this and expects that.
    fn spec(pools: &str, expect: &str) -> RunSpec {
        toml::from_str(&format!("[host]\ncores_per_llc = 1\n{pools}\n[expect]\n{expect}"))
            .expect("a scenario")
    }

    #[test]
    fn entitlement_and_ratio_are_held_to_their_own_bounds() {
        let seen = result(&[("a", 100, 970, 1000), ("b", 300, 3000, 3000), ("c", 1, 7, 0)]);
        assert_eq!(worst_permille(&seen), Some((30, "a".into())));
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(ratio_permille(&seen, &names), 30);
        let expect = |ratio| {
            spec(
                "",
                &format!(
                    "sim_permille=30\nlab_permille=29\nratio_of=['a','b']\nratio_permille={ratio}"
                ),
            )
        };
        assert_eq!(unmet(&seen, &expect(30), Where::Sim), Vec::<String>::new());
        assert_eq!(
            unmet(&seen, &expect(30), Where::Lab),
            ["VM a is 30 permille off its entitlement, allowed 29"]
        );
        assert_eq!(
            unmet(&seen, &expect(20), Where::Sim),
            ["VMs a and b are 30 permille off the ratio of their shares, allowed 20"]
        );
    }

    #[test]
    fn a_vm_at_rest_is_not_held_to_its_entitlement() {
        let mut seen = result(&[("a", 1, 10, 50), ("b", 1, 995, 1000)]);
        assert_eq!(worst_permille(&seen), Some((800, "a".into())));
        seen.duration_ns = 2500; // 2 % of a pCPU
        assert_eq!(worst_permille(&seen), Some((800, "a".into())));
        seen.duration_ns = 2501;
        assert_eq!(worst_permille(&seen), Some((5, "b".into())));
    }

    #[test]
    fn a_vm_of_the_list_that_got_nothing_is_no_ratio() {
        let seen = result(&[("a", 100, 0, 0), ("b", 300, 3000, 3000)]);
        assert_eq!(ratio_permille(&seen, &["a".into(), "b".into()]), u64::MAX);
        assert_eq!(ratio_permille(&seen, &[]), 0);
        assert_eq!(
            unmet(&seen, &spec("", "ratio_of=['b','gone']"), Where::Lab),
            ["VM gone is not in the result"]
        );
    }

    #[test]
    fn wake_ups_are_held_to_their_mean_and_their_most_by_the_vms_own_clock() {
        let mut seen = result(&[("a", 1, 1000, 0)]);
        let expect = spec("", "late_mean_us={a=3}\nlate_max_us={a=8}\nlab_late_mean_us={a=4}");
        assert_eq!(unmet(&seen, &expect, Where::Lab), ["VM a has no wake-ups"]);
        let by = |by, mean_ns| Wakeups {
            vm: "a".into(),
            by,
            count: 2,
            min_ns: 0,
            mean_ns,
            p99_ns: 8000,
            max_ns: 8001,
        };
        seen.wakeups = vec![by(MeasuredBy::Scheduler, 9000), by(MeasuredBy::Workload, 3001)];
        let off = [
            "VM a woke 3.001 us late on average, allowed 3 us",
            "VM a woke 8.001 us late once, allowed 8 us",
        ];
        assert_eq!(unmet(&seen, &expect, Where::Sim), off);
        assert_eq!(unmet(&seen, &expect, Where::Lab), Vec::<String>::new());
        let none = spec("", "late_mean_us={t=3}");
        assert_eq!(unmet(&seen, &none, Where::Sim), ["host task t has no wake-ups"]);
    }

    #[test]
    fn equality_demand_and_limits_are_held_where_they_are_expected() {
        let mut seen = result(&[("a", 1, 1000, 0), ("b", 1, 1020, 0)]);
        seen.duration_ns = 1000;
        seen.vms[0].times = Times { used_ns: 990, run_ns: 990, ready_ns: 10, ..seen.vms[0].times };
        assert_eq!(unequal_permille(&seen, &["a".into(), "b".into()]), 30);
        let equal = spec("", "equal_of=['a','b']\nequal_permille=10\nlab_equal_permille=30");
        assert_eq!(
            unmet(&seen, &equal, Where::Sim),
            ["VMs a, b differ by 30 permille, allowed 10"]
        );
        assert_eq!(unmet(&seen, &equal, Where::Lab), Vec::<String>::new());
        let least = spec("", "at_least={a=995}\nlab_at_least={a=990}");
        assert_eq!(
            unmet(&seen, &least, Where::Sim),
            ["VM a got 990 permille of what it wanted, allowed 995 or more"]
        );
        assert_eq!(unmet(&seen, &least, Where::Lab), Vec::<String>::new());
        // one vCPU cannot have more, whatever its emulator's threads want beside it
        seen.duration_ns = 995;
        assert_eq!(
            unmet(&seen, &least, Where::Sim),
            ["VM a got 994 permille of what it wanted, allowed 995 or more"]
        );
        seen.duration_ns = 994;
        assert_eq!(unmet(&seen, &least, Where::Sim), Vec::<String>::new());
        seen.duration_ns = 1000;
        let limit = spec("[[pool]]\nname='p'\nlimit='100%'", "limit_permille=5");
        assert_eq!(unmet(&seen, &limit, Where::Sim), ["pool /p has no use in any second"]);
        seen.pools.push(views::Pool {
            path: "/p".into(),
            peak_ns: Some(1_005_000_000),
            ..views::Pool::default()
        });
        assert_eq!(unmet(&seen, &limit, Where::Sim), Vec::<String>::new());
        seen.pools[0].peak_ns = Some(1_005_000_001);
        assert_eq!(
            unmet(&seen, &limit, Where::Sim),
            ["pool /p used 1005000001 ns in a second, allowed 1000000000 and 5 permille"]
        );
    }

    #[test]
    fn what_fills_caches_again_is_held_to_its_part_of_the_vms_time() {
        let mut seen = result(&[("a", 1, 1000, 0), ("b", 1, 1000, 0)]);
        let refill = spec("", "refill_permille=50");
        assert_eq!(unmet(&seen, &refill, Where::Sim), ["the caches are not simulated"]);
        assert_eq!(unmet(&seen, &refill, Where::Lab), Vec::<String>::new());
        for (vm, refill_ns) in seen.vms.iter_mut().zip([90, 10]) {
            vm.times.run_ns = 1000;
            vm.times.lost = Some(views::Lost { refill_ns, ..views::Lost::default() });
        }
        assert_eq!(unmet(&seen, &refill, Where::Sim), Vec::<String>::new());
        seen.vms[1].times.run_ns = 999;
        assert_eq!(
            unmet(&seen, &refill, Where::Sim),
            ["VMs filled caches again for 50 permille of their time, allowed 50"]
        );
    }
}
