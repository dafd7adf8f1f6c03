//! The ESX policies: what each version is known for, on the scenarios of the documents.

use sim::{Options, Policy, Progress, run_scenario};
use std::{collections::BTreeMap, path::Path};
use units::Span;
use views::{RunResult, Vm};

/// The results of a scenario's runs under a policy, by label.
fn results(scenario: &str, policy: &str, seed: u64) -> BTreeMap<String, RunResult> {
    let policy: Policy = policy.parse().expect("a policy");
    results_of(scenario, &Options { policy, seed: Some(seed), ..Options::default() })
}

fn results_of(scenario: &str, options: &Options) -> BTreeMap<String, RunResult> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
    let scenario = settings::load(&format!("{folder}{scenario}")).expect("it loads");
    let mut out = BTreeMap::new();
    run_scenario(&scenario, options, |p| {
        if let Progress::Done(run, outcome) = p {
            out.insert(run.label.clone(), outcome.result.clone());
        }
    })
    .expect("no rule of the contract is broken");
    out
}

fn vm<'r>(result: &'r RunResult, name: &str) -> &'r Vm {
    result.vms.iter().find(|vm| vm.name == name).expect("a VM")
}

/// Work of IBM's VM in a run, in permille of that without hyper-threads.
fn permille_of_off(runs: &BTreeMap<String, RunResult>, label: &str) -> u64 {
    let work = |label: &str| vm(&runs[label], "jbb").times.work;
    work(label) * 1000 / work("HT off")
}

/// pCPUs that were busy for more than 5 % of the time, and for more than 80 %.
fn busy(result: &RunResult) -> [usize; 2] {
    [5, 80].map(|percent| {
        let most = result.duration_ns * percent / 100;
        result.pcpus.iter().filter(|p| p.busy_ns > most).count()
    })
}

const HT_ON: [&str; 3] = ["HT on", "HT on, 100 us a move", "HT on, 1 ms a move"];

#[test]
fn esx_2_5_2_wanders_between_threads_and_loses_what_the_moves_cost() {
    let runs = results("ht-migration", "esx-2.5.2", 1);
    for label in HT_ON {
        let moved = vm(&runs[label], "jbb").times.moved.expect("hardware is simulated");
        let seconds = runs[label].duration_ns / 1_000_000_000;
        // 888 wake-ups a second without loss, each on one of two threads.
        assert!((350..500).contains(&(moved.twin / seconds)), "{label}: {moved:?}");
        assert!(busy(&runs[label])[0] >= 4, "{label}: {:?}", runs[label].pcpus);
        assert_eq!(busy(&runs[label])[1], 0, "{label}");
    }
    assert!((995..1000).contains(&permille_of_off(&runs, HT_ON[0])));
    assert!((970..985).contains(&permille_of_off(&runs, HT_ON[1])));
    // IBM's loss, where a move costs as much as it would have to.
    assert!((800..=850).contains(&permille_of_off(&runs, HT_ON[2])));
    assert_eq!(permille_of_off(&runs, "HT off, 1 ms a move"), 1000);
}

#[test]
fn esx_2_5_3_and_tandem_stay_on_two_cores_whatever_a_move_costs() {
    for policy in ["esx-2.5.3", "esx-4.0", "tandem"] {
        let runs = results("ht-migration", policy, 1);
        for label in HT_ON {
            let of = permille_of_off(&runs, label);
            assert!((990..=1010).contains(&of), "{policy}, {label}: {of}");
            let moved = vm(&runs[label], "jbb").times.moved.expect("hardware is simulated");
            assert!(moved.sum() < 10, "{policy}, {label}: {moved:?}");
            assert_eq!(busy(&runs[label]), [2, 2], "{policy}, {label}: {:?}", runs[label].pcpus);
        }
    }
}

/// A run of one scenario text under a policy.
fn one(name: &str, policy: &str, text: &str) -> RunResult {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("policies-{name}.toml"));
    std::fs::write(&file, text).expect("it is written");
    let scenario = settings::load(&file.to_string_lossy()).expect("it loads");
    let policy: Policy = policy.parse().expect("a policy");
    let options = Options { policy, ..Options::default() };
    sim::run(&scenario.runs[0], &options).expect("no rule of the contract is broken").result
}

/// VMs of burners on one node of 8 cores, two LLCs: name, count, vCPUs.
fn burners(vms: &[(&str, u32, u32)]) -> String {
    let mut text = "duration = \"10s\"\n[host]\nllcs_per_node = 2\ncores_per_llc = 4\n".to_owned();
    for (name, count, vcpus) in vms {
        text += &format!("[[vm]]\nname = \"{name}\"\ncount = {count}\nvcpus = {vcpus}\n");
    }
    text
}

/// CPU time of each VM, in percent of one pCPU.
fn percents(result: &RunResult) -> Vec<u64> {
    result.vms.iter().map(|vm| vm.times.used_ns * 100 / result.duration_ns).collect()
}

#[test]
fn esx_3_5_confines_vms_to_cells_that_are_as_large_as_the_widest_vm() {
    let loads = |name: &str, policy, vms: &[_]| {
        let result = one(name, policy, &burners(vms));
        let busy = |p: &views::Pcpu| p.busy_ns * 100 / result.duration_ns;
        (percents(&result), result.pcpus.iter().map(busy).collect::<Vec<u64>>())
    };
    // One VM has one cell, and the other idles.
    let (_, busy) = loads("cell-1", "esx-3.5", &[("wide", 1, 4)]);
    assert!(busy[..4].iter().all(|p| *p >= 99) && busy[4..].iter().all(|p| *p == 0), "{busy:?}");
    // Two of three share a cell; without cells all three get the same.
    let thirds = &[("wide", 3, 4)];
    let (used, _) = loads("cell-3", "esx-3.5", thirds);
    let mut sorted = used.clone();
    sorted.sort_unstable();
    assert!(sorted[2] >= 398 && sorted[0].abs_diff(200) <= 5, "{used:?}");
    let (used, _) = loads("cell-3", "esx-4.0", thirds);
    assert!(used.iter().all(|p| p.abs_diff(266) <= 10), "{used:?}");
    // A VM of 8 vCPUs makes the cell 8 pCPUs large.
    let (used, busy) = loads("cell-8", "esx-3.5", &[("wide", 1, 8)]);
    assert!(used[0] >= 795 && busy.iter().all(|p| *p >= 99), "{used:?} {busy:?}");
}

#[test]
fn decisions_of_a_cell_cost_time_and_those_without_cells_do_not() {
    let text = "duration = \"10s\"\n[host]\ncores_per_llc = 4\n[hardware]\n[[vm]]\nname = \"io\"\n\
        count = 4\nvcpus = 1\nworkload = { kind = \"io\", work = \"100us\", sleep = \"100us\" }\n";
    let lost = |policy| {
        let result = one("lock", policy, text);
        let of = |vm: &Vm| vm.times.lost.expect("hardware is simulated").switch_ns;
        let wakeups: u64 = result.wakeups.iter().map(|w| w.count).sum::<u64>() / 2;
        result.vms.iter().map(of).sum::<u64>() / wakeups
    };
    // 2 us for a switch; 2 us for the lock, and more where another pCPU has it.
    let (cells, none) = (lost("esx-3.5"), lost("esx-4.0"));
    assert!((2_000..2_200).contains(&none), "{none}");
    assert!(cells > none + 1_900 && cells < none + 4_000, "{cells} {none}");
}

/// A VM of 4 vCPUs on 4 pCPUs, three of which others take whole.
const FRAGMENTED: &str = r#"
    duration = "10s"
    warmup = "1s"
    [host]
    cores_per_llc = 4
    [[vm]]
    name = "wide"
    vcpus = 4
    [[vm]]
    name = "first"
    vcpus = 3
    shares = 262144
    vcpu_affinity = ["0", "1", "2"]
"#;

/// How far the vCPUs of a VM are apart in CPU time, in ns.
fn apart_ns(vm: &Vm) -> u64 {
    let runs = || vm.worlds.iter().map(|w| w.times.run_ns);
    runs().max().unwrap_or(0) - runs().min().unwrap_or(0)
}

#[test]
fn strict_co_scheduling_fragments_cpus_and_relaxed_does_not() {
    let wide = |policy| percents(&one("fragments", policy, FRAGMENTED))[0];
    assert!(wide("esx-2.5.3") < 10, "{}", wide("esx-2.5.3"));
    for policy in ["esx-3.5", "esx-4.0"] {
        assert!(wide(policy) > 95, "{policy}: {}", wide(policy));
    }
}

#[test]
fn siblings_stay_together_within_the_threshold_and_two_ticks() {
    // With quanta of 50 ms they are further apart where nothing stops the first.
    for policy in ["esx-2.5.3", "esx-3.5", "esx-4.0"] {
        let apart = apart_ns(&one("skew", policy, FRAGMENTED).vms[0]);
        assert!(apart < 12_000_000, "{policy}: {apart}");
    }
}

/// Two VMs of 2:1 shares on one core of two threads, for 20 s from 1 s on.
const ONE_CORE: &str = r#"
    duration = "21s"
    warmup = "1s"
    [host]
    cores_per_llc = 1
    threads_per_core = 2
    [[vm]]
    name = "first"
    vcpus = 1
    shares = 2000
    [[vm]]
    name = "second"
    vcpus = 1
"#;

#[test]
fn the_other_thread_idles_for_a_vm_that_is_behind_in_esx_4_1_and_5_1() {
    // The first is to get 2 / 3. Half of the time of both is charged, so it is behind by 1 / 6 of
    // the time, by 100 ms after 0.6 s. From then on both run for f of the time, with
    // 1 - f / 2 = 2 / 3. With 5 / 8 it is behind by 5 / 24, by 800 ms after 3.8 s, and then
    // 1 - 3 f / 8 = 2 / 3 (1 + f / 4): (2.8 + 17.2 * 0.615) of 20 s. In 4.1 tuned it would be
    // behind by 2 s after 12 s, were it not for the bound.
    let all = [("esx-4.0", 100), ("esx-4.1-tuned", 100), ("esx-4.1", 67), ("esx-5.1", 67)];
    for (policy, second) in all {
        let result = one("one-core", policy, ONE_CORE);
        let ran = |i: usize| result.vms[i].times.run_ns * 100 / result.duration_ns;
        assert!(ran(0) >= 99, "{policy}: {}", ran(0));
        assert!(ran(1).abs_diff(second) <= 1, "{policy}: {}, not {second}", ran(1));
    }
}

#[test]
fn a_vm_that_may_run_on_one_thread_only_is_not_kept_from_it() {
    // The second is ahead of the first, which its shares give all of a core.
    let text = ONE_CORE.replace("2000", "200000") + "affinity = \"1\"\n";
    for policy in ["esx-4.1", "esx-5.1"] {
        let result = one("kept", policy, &text);
        let ran = result.vms[1].times.run_ns * 100 / result.duration_ns;
        assert!(ran >= 99, "{policy}: {ran}");
    }
}

/// Two cores: a VM has both threads of one for 10 s, two others of twice its shares those of the
/// other; the time from 12 s on.
const ONE_STOPS: &str = r#"
    duration = "20s"
    warmup = "12s"
    [host]
    cores_per_llc = 2
    threads_per_core = 2
    [hardware]
    [[vm]]
    name = "stops"
    vcpus = 2
    cpuset = "2-3"
    shares = 2000
    active = ["..10s"]
    [[vm]]
    name = "stays"
    count = 2
    vcpus = 1
    shares = 2000
"#;

#[test]
fn a_vm_that_is_behind_goes_to_a_whole_core_that_idles() {
    let work = |policy| {
        let result = one("one-stops", policy, ONE_STOPS);
        let of = |vm: &Vm| vm.times.work * 100 / result.duration_ns;
        result.vms.iter().map(of).collect::<Vec<u64>>()
    };
    assert_eq!(work("esx-4.0")[1..], [62, 62]);
    assert!(work("esx-4.1")[1..].iter().all(|w| *w >= 99), "{:?}", work("esx-4.1"));
}

/// Work of all VMs of a run, and how much longer than alone their operations take.
fn all(run: &RunResult) -> (u64, f64) {
    let mut all = views::Times::default();
    run.vms.iter().for_each(|vm| all.add(&vm.times));
    (all.work, all.slowdown().expect("work"))
}

/// Users of `ht-vdi` at a slowdown of 1.5, in tenths: between the two runs around that.
fn users(runs: &BTreeMap<String, RunResult>) -> u64 {
    let slowdown = |users: u64| all(&runs[&format!("{users} users")]).1;
    let (below, above) = (70..=98)
        .step_by(4)
        .map(|n| ((n, slowdown(n)), slowdown(n + 4)))
        .find(|(below, above)| below.1 < 1.5 && *above >= 1.5)
        .expect("it is between 70 and 102");
    below.0 * 10 + ((1.5 - below.1) / (above - below.1) * 40.0) as u64
}

#[test]
fn esx_4_1_supports_fewer_desktops_than_tuned_and_tandem_more() {
    // By seeds 1 to 8 4.1 supports 3 to 10 % fewer: one of them says little.
    let policies = ["esx-4.1", "esx-4.1-tuned", "esx-5.1", "tandem"];
    let jobs: Vec<(u64, &str)> =
        (1..=8).flat_map(|seed| policies.map(|policy| (seed, policy))).collect();
    let runs = seeds::each(jobs, |(seed, policy)| {
        let policy = policy.parse().expect("a policy");
        let options = Options { policy, seed: Some(seed), check: false, ..Options::default() };
        let runs = results_of("ht-vdi", &options);
        (users(&runs), all(&runs["20 vCPUs in bursts"]).0)
    });
    let mean_permille = |of: usize| {
        let ratio = |seed: &[(u64, u64)]| seed[of].0 * 10_000 / seed[1].0;
        let ratios: Vec<u64> = runs.chunks(policies.len()).map(ratio).collect();
        println!("{} by tuned: {ratios:?}", policies[of]);
        ratios.iter().sum::<u64>() / 10 / ratios.len() as u64
    };
    // VS51 figure 8: 10 % fewer than tuned; 5.1 has slightly more. The models have 7.4 % fewer, and
    // 0.6 % fewer.
    let [few, as_many, more] = [0, 2, 3].map(mean_permille);
    assert!((910..940).contains(&few), "{few}");
    assert!((990..1000).contains(&as_many), "{as_many}");
    assert!((1010..1025).contains(&more), "{more}");
    // KB 1020233: up to 15 % less work.
    let less = 1000 - runs[0].1 * 1000 / runs[1].1;
    assert!((50..150).contains(&less), "{less}");
}

/// Fairness over 10 s: seventy users that are always busy, each window of a run of half a minute.
#[test]
fn busy_desktops_work_the_same_in_any_ten_seconds() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/ht-vdi");
    let runs = settings::load(file).expect("it loads").runs;
    let run = runs.into_iter().find(|run| run.label == "70 users, all busy").expect("a run");
    for from in [1, 11, 21] {
        let mut run = run.clone();
        run.spec.warmup = Span::from_secs(from);
        run.spec.duration = Span::from_secs(from + 10);
        let result = sim::run(&run, &Options::default()).expect("it runs").result;
        let works = || result.vms.iter().map(|vm| vm.times.work);
        let mean = works().sum::<u64>() / 70;
        let of = |work: Option<u64>| work.expect("seventy") * 1000 / mean;
        let (least, most) = (of(works().min()), of(works().max()));
        println!("from {from} s: {least} to {most} permille of the mean work");
        assert_eq!(works().count(), 70);
        assert!(least >= 970 && most <= 1030, "from {from} s: {least} to {most} permille");
    }
}

/// A VM that has the host alone, and is in the hypervisor for a tenth of the time. When a vCPU
/// there was the slowest sibling, the others stopped for it, and started elsewhere: 8,923 moves.
#[test]
fn time_in_the_hypervisor_stops_no_sibling_since_esx_4() {
    let text = "duration = '7s'\n[host]\ncores_per_llc = 8\n[[vm]]\nname = 'exits'\nvcpus = 8\n\
        workload = { kind = 'exits', work = '900us', emulate = '100us', dist = 'exponential' }\n";
    for policy in ["esx-3.5", "esx-4.0", "esx-4.1", "esx-5.1"] {
        let options = Options { policy: policy.parse().expect("a policy"), ..Options::default() };
        let out = crate::text::outcome("exits-esx", text, &options).expect("it runs");
        let moves = out.result.vms[0].times.migrations;
        assert!(moves <= 8, "{policy}: {moves} moves");
    }
}

#[test]
fn light_load_is_spread_over_caches_and_heavy_load_keeps_its_work() {
    let [old, new, tandem] = ["esx-3.5", "esx-4.0", "tandem"].map(|p| results("load-sweep", p, 1));
    let permille = |runs: &BTreeMap<String, RunResult>, label: &str| {
        all(&runs[label]).0 * 1000 / all(&old[label]).0
    };
    // ESX4 figures 12 and 13: a cell has half of the caches and of the memory's bandwidth.
    for runs in [&new, &tandem] {
        assert!(permille(runs, "SPECjbb2005, 1 x 4vCPU") >= 1200);
        assert!(permille(runs, "SPECjbb2005, 2 x 2vCPU") >= 1090);
        assert!(permille(runs, "SPECjbb2005, 1 x8vCpuT") >= 1140);
        assert!(permille(runs, "kernel-compile, 1 x8vCpuT") >= 1120);
    }
    // Short slices of gangs cost caches (docs/design/011-policies.md).
    let worst = tandem.keys().map(|label| (permille(&tandem, label), label)).min();
    assert!(worst.is_some_and(|(permille, _)| permille >= 900), "{worst:?}");
}

/// Work of all VMs of each run, and moves.
fn work_and_moves(policy: &str) -> BTreeMap<String, (u64, u64)> {
    let of = |run: &RunResult| {
        let mut all = views::Times::default();
        run.vms.iter().for_each(|vm| all.add(&vm.times));
        (all.work, all.moved.expect("hardware is simulated").sum())
    };
    results("cache-ping", policy, 1).iter().map(|(label, run)| (label.clone(), of(run))).collect()
}

#[test]
fn worlds_leave_their_caches_only_for_what_is_worth_them() {
    let [load, tandem] = ["load-only", "tandem"].map(work_and_moves);
    let permille = |label: &str| tandem[label].0 * 1000 / load[label].0;
    let worst = tandem.keys().map(|label| (permille(label), label)).min();
    assert!(worst.is_some_and(|(permille, _)| permille >= 990), "{worst:?}");
    let sum = |all: &BTreeMap<String, (u64, u64)>| {
        all.values().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    };
    let (load_all, tandem_all) = (sum(&load), sum(&tandem));
    assert!(tandem_all.0 * 1000 / load_all.0 >= 1030, "{tandem_all:?} {load_all:?}");
    // A third is wanted. Most of the rest are of 40 and 48 short VMs (docs/design/005).
    assert!(tandem_all.1 * 1000 / load_all.1 <= 450, "{tandem_all:?} {load_all:?}");
    // 24 worlds on 16 cores that sleep for 250 us: those that share do not follow each gap.
    assert!(permille("24 short") >= 1140, "{}", permille("24 short"));
    // 48 of them on 32 threads: a wake-up is no reason to leave a queue that is no longer.
    assert!(permille("48 short") >= 1070, "{}", permille("48 short"));
    assert!(permille("48 long") >= 1000, "{}", permille("48 long"));
}

/// VS51 figure 3, under every policy that has shares: what counts is their ratio, however few they
/// are.
#[test]
fn shares_divide_the_host_under_every_policy_that_has_them() {
    let all = peers::Peer::ALL.map(peers::Peer::name);
    let with_shares = all.into_iter().filter(|name| *name != "fifo");
    for policy in with_shares.chain(["tandem"]) {
        let runs = results("shares-ratio", policy, 1);
        for (label, run) in &runs {
            let used = |name: &str| vm(run, name).times.used_ns as f64;
            let (a, b) = label.split_once(':').expect("a ratio");
            let wanted = a.parse::<f64>().expect("a number") / b.parse::<f64>().expect("a number");
            let off = (used("vm1") / used("vm2") / wanted - 1.0).abs();
            // Quanta of 50 ms and accounting every 30 ms in 58 s; of `vtime` slices of 20 ms.
            assert!(off < 0.04, "{policy}, {label}: {off}");
        }
    }
}

/// What comes of one run of a scenario under a policy, and what the oracle says.
fn outcome(scenario: &str, label: &str, policy: &str) -> sim::Outcome {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
    let scenario = settings::load(&format!("{folder}{scenario}")).expect("it loads");
    let run = scenario.runs.iter().find(|run| run.label == label).expect("a run");
    let policy: Policy = policy.parse().expect("a policy");
    sim::run(run, &Options { policy, ..Options::default() }).expect("no rule is broken")
}

/// VS51 figures 5 to 7 were measured on ESX: a reservation is kept beside seven other VMs, a pool
/// has its limit and divides it, and pools divide what they have among their own.
#[test]
fn esx_keeps_reservations_limits_and_pools() {
    for policy in ["esx-2.5.3", "esx-4.0", "esx-5.1"] {
        let permille = |result: &RunResult, name: &str| {
            let times = &vm(result, name).times;
            times.used_ns * 1000 / times.entitled_ns
        };
        let reserved = outcome("reservation", "7 others", policy).result;
        assert!(permille(&reserved, "vm1") >= 995, "{policy}: {}", permille(&reserved, "vm1"));
        for i in 1..=7 {
            let part = permille(&reserved, &format!("other-{i}"));
            assert!(part.abs_diff(1000) <= 10, "{policy}, other {i}: {part}");
        }
        let limited = outcome("pool-limit", "8 VMs", policy).result;
        for i in 1..=8 {
            let part = permille(&limited, &format!("vm-{i}"));
            assert!(part.abs_diff(1000) <= 5, "{policy}, VM {i}: {part}");
        }
        assert!(permille(&limited, "outsider") >= 995, "{policy}");
        let held: u64 = limited.pools.iter().map(|p| p.limited_ns).max().expect("pools");
        assert!(held > 100_000_000_000, "{policy}: what the limit took is shown: {held}");
        // A VM that stops as a whole forgoes what its siblings could have used.
        let most = if policy == "esx-2.5.3" { 0.08 } else { 0.015 };
        let nested = outcome("pools-nested", "", policy).result;
        let of = |name: &str| {
            let pool = nested.pools.iter().find(|p| p.path == name).expect("a pool");
            pool.used_ns as f64 / pool.entitled_ns as f64
        };
        for name in ["/prod", "/prod/web", "/prod/db", "/test"] {
            let off = (of(name) / of("/") - 1.0).abs();
            assert!(off < most, "{policy}, {name}: {off}");
        }
    }
}

/// ESX4 figure 11: three 4-vCPU VMs on two nodes of four cores. Long-term fairness moves homes, and
/// worlds run at home.
#[test]
fn esx_worlds_run_at_home_and_homes_change_for_fairness() {
    let work = |label| {
        let seen = outcome("three-on-two", label, "esx-4.0");
        let verdict = seen.verdict.expect("it was checked");
        assert_eq!(verdict.count(check::Invariant::Affinity), 0, "{label}");
        let mut work = seen.result.vms.iter().map(|vm| vm.times.work).collect::<Vec<_>>();
        work.sort_unstable();
        work[2] * 1000 / work[0]
    };
    let (fair, unfair) = (work("4-vcpu"), work("4-vcpu, no long-term fairness"));
    // A VM that comes to a node is ahead of those there, or behind, by 8 quanta at most: what it
    // had or lacked beyond that is forgotten.
    assert!(fair < 1080 && unfair > 1900, "{fair} {unfair}");
}
