//! Home nodes in the simulator: what managing them gains, and where no VM gets less than its part.

use crate::text;
use settings::{NumaSpec, RunSpec};
use sim::{Options, Outcome, Ticks, run};
use std::collections::BTreeMap;
use views::RunResult;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");

/// The runs of a scenario by their labels, each with the oracle silent.
fn outcomes(scenario: &str) -> BTreeMap<String, Outcome> {
    let scenario = settings::load(&format!("{ROOT}{scenario}")).expect("the scenario loads");
    let one = |r: &settings::Run| {
        let outcome = run(r, &Options::default()).expect("it runs");
        let verdict = outcome.verdict.as_ref().expect("it was checked");
        let first = verdict.violations.first().map(ToString::to_string);
        assert_eq!(verdict.violated(), 0, "{}: {first:?}", r.label);
        (r.label.clone(), outcome)
    };
    scenario.runs.iter().map(one).collect()
}

/// Work of all VMs.
fn work(result: &RunResult) -> f64 {
    result.vms.iter().map(|vm| vm.times.work as f64).sum()
}

/// VS51 figure 9: one vCPU of SPECjbb gains more than 10 %, a compile up to 5 %; one VM of four
/// loses a few percent, for two nodes have twice the cache; two of them gain about 10 %.
#[test]
fn managed_memory_gains_what_vs51_shows() {
    let all = outcomes("numa-benefit");
    let gain = |what: &str| {
        let of = |how: &str| work(&all[&format!("{what} {how}")].result);
        (of("managed") / of("interleaved") - 1.0) * 100.0
    };
    let gains = ["jbb-1", "compile-1", "jbb-4", "two jbb-4"].map(gain);
    println!("gains in %: {gains:.2?}");
    let [jbb, compile, four, two] = gains;
    assert!((10.0..15.0).contains(&jbb), "{gains:?}");
    assert!((0.5..=5.0).contains(&compile), "{gains:?}");
    assert!((-6.0..-1.0).contains(&four), "{gains:?}");
    assert!((8.0..13.0).contains(&two), "{gains:?}");
    for (label, outcome) in all.iter().filter(|(label, _)| label.ends_with("managed")) {
        for vm in outcome.result.vms.iter().filter(|vm| vm.times.run_ns > 0) {
            assert_eq!(vm.numa[0].local_percent(), Some(100.0), "{label}");
            assert_eq!(vm.times.lost.expect("it is simulated").remote_ns, 0, "{label}");
        }
    }
}

/// ESX4 figures 10 and 11: equal throughput within 3 %, by homes that change; plainly unequal
/// without long-term fairness.
#[test]
fn three_vms_on_two_nodes_get_the_same() {
    let all = outcomes("three-on-two");
    let apart = |label: &str| {
        let works: Vec<f64> = all[label].result.vms.iter().map(|vm| vm.times.work as f64).collect();
        let most = works.iter().copied().fold(0.0, f64::max);
        let least = works.iter().copied().fold(f64::MAX, f64::min);
        (most / least - 1.0) * 100.0
    };
    for label in ["4-vcpu", "2-vcpu"] {
        println!("{label}: {:.2} % apart", apart(label));
        assert!(apart(label) <= 3.0, "{label}: {:.2} %", apart(label));
    }
    let unfair = apart("4-vcpu, no long-term fairness");
    assert!(unfair > 50.0, "{unfair}");
    assert!(apart("2-vcpu, no long-term fairness") > 8.0);
    let cost =
        1.0 - work(&all["4-vcpu"].result) / work(&all["4-vcpu, no long-term fairness"].result);
    println!("cost in total throughput: {:.2} %", cost * 100.0);
    assert!(cost < 0.08, "{cost}");
}

/// A run with and without homes, where all memory would be interleaved; `change` changes it first.
fn without_and_with(
    scenario: &str,
    label: &str,
    change: fn(&mut RunSpec),
    seed: u64,
) -> [RunResult; 2] {
    let scenario = settings::load(&format!("{ROOT}{scenario}")).expect("the scenario loads");
    let found = scenario.runs.iter().find(|r| r.label == label).expect("a run");
    [false, true].map(|on| {
        let mut found = found.clone();
        found.spec.hardware.get_or_insert_default();
        let memory = vec![settings::Bytes(256 << 30)];
        found.spec.numa = Some(NumaSpec { on, memory, ..NumaSpec::default() });
        change(&mut found.spec);
        run(&found, &Options { seed: Some(seed), ..Options::default() }).expect("it runs").result
    })
}

/// What homes by default cost and gain: VMs that fit into a node keep to their shares, and programs
/// that wait for memory do more; a wide VM that shares its nodes with others does not keep to its
/// shares, and does where its node's threads have room for it.
#[test]
fn what_homes_cost_of_shares_and_gain_in_work() {
    let seen_by = |seed: u64, name: &str, label: &str, change: fn(&mut RunSpec)| {
        let [without, with] = without_and_with(name, label, change, seed);
        let gain = (work(&with) / work(&without) - 1.0) * 100.0;
        let off = [&without, &with].map(|r| expect::worst_permille(r).map_or(0, |w| w.0));
        println!("{name} {label}: work {gain:+.1} %, off by {off:?} permille");
        (gain, off[1])
    };
    let seen = |name: &str, label: &str, change| seen_by(1, name, label, change);
    let as_it_is = |_: &mut RunSpec| {};
    for (name, label) in [("shares-ratio-2x2x2", "7:1"), ("up-smp-mix", "")] {
        let (gain, off) = seen(name, label, as_it_is);
        assert!(gain > -0.5 && off <= 5, "{name}: {gain} {off}");
    }
    for label in ["8 short", "24 short", "48 long", "mix 4"] {
        let (gain, off) = seen("cache-ping", label, as_it_is);
        assert!(gain > 3.0 && off <= 20, "{label}: {gain} {off}");
    }
    let (gain, off) = seen("cache-ping", "160 desktops", as_it_is);
    assert!(gain > -0.5 && off <= 10, "{gain} {off}");
    // The wide VM leaves its homes by what it lacks; without that 240.
    let (_, wide) = seen("pools-nested", "", as_it_is);
    assert!(wide < 180, "{wide}");
    let (_, threads) =
        seen("pools-nested", "", |spec| spec.vms.iter_mut().for_each(|vm| vm.prefer_ht = true));
    // Homes end up in one of two ways, with all within 12 permille, or one VM 50 off.
    let narrow = |seed| {
        let (_, off) = seen_by(seed, "pools-nested", "", |spec| {
            spec.vms.iter_mut().for_each(|vm| vm.vcpus = vm.vcpus.min(4));
        });
        off
    };
    let narrow = (1..=4).map(narrow).sum::<u64>() / 4;
    // By what VMs want in place of what they are entitled to, 185 and 10; and 186 and 122 while a
    // limit was handed over to the next world that could use it there.
    assert!(threads < 30 && narrow < 50, "{threads} {narrow}");
}

fn lines(outcome: &Outcome, vm: usize) -> Vec<String> {
    outcome.result.vms[vm].numa.iter().flat_map(|c| c.decisions.clone()).collect()
}

/// After a transient imbalance a VM goes back to its memory, after a lasting one its memory follows
/// (VS51 "NUMA Migration").
#[test]
fn a_vm_goes_back_to_its_memory_or_that_follows() {
    let host = |until: &str| {
        format!(
            "duration = '120s'\n[host]\nsockets = 2\ncores_per_llc = 4\n[hardware]\nllc = '6MiB'\n\
            [numa]\nmemory = ['64GiB']\nfairness_periods = 0\n[[vm]]\nname = 'a'\nvcpus = 4\n\
            memory = '16GiB'\nprofile = 'specjbb2005'\n[[vm]]\nname = 'b'\nvcpus = 4\nmemory = \
            '16GiB'\nactive = ['0s..10s', '{until}..']\n[[vm]]\nname \
            = 'c'\nvcpus = 4\nmemory = '16GiB'\nactive = ['0s..{until}']\n"
        )
    };
    let of = |until: &str| text::silent(&format!("locality-{until}"), &host(until), Ticks::Aligned);
    // a and c share a node; when b sleeps one of them leaves. It comes back when the other ends.
    let moved = |o: &Outcome| -> Vec<String> {
        (0..3).flat_map(|vm| lines(o, vm)).filter(|l| !l.contains(": placed")).collect()
    };
    let (short, long) = (of("26s"), of("100s"));
    let (short, long) = (moved(&short), moved(&long));
    assert!(short.iter().any(|l| l.contains("imbalance")), "{short:#?}");
    assert!(short.iter().any(|l| l.contains("of its memory is there")), "{short:#?}");
    assert!(!long.iter().any(|l| l.contains("of its memory is there")), "{long:#?}");
    // The planner looks every two seconds.
    assert!(short.iter().all(|l| l.starts_with("at ") && l.contains(".0 s: node ")), "{short:#?}");
}

/// A run of a scenario as far as so many seconds.
fn until(scenario: &str, label: &str, seconds: u64) -> Outcome {
    let scenario = settings::load(&format!("{ROOT}{scenario}")).expect("the scenario loads");
    let mut one = scenario.runs.into_iter().find(|r| r.label == label).expect("the run is there");
    one.spec.duration = units::Span::from_secs(seconds);
    run(&one, &Options::default()).expect("it runs")
}

/// VS51 figure 10: each of seven programs gains where the guest of 64 vCPUs knows of its nodes, the
/// more the longer it waits for memory.
#[test]
fn guests_that_know_their_nodes_gain_by_how_memory_bound_they_are() {
    let all = outcomes("vnuma");
    let gain = |what: &str| {
        let of = |how: &str| work(&all[&format!("{what}, {how}")].result);
        (of("vNUMA") / of("hidden") - 1.0) * 100.0
    };
    let programs = ["swim", "equake", "applu", "mgrid", "wupwise", "apsi", "fma3d"];
    let gains = programs.map(gain);
    println!("gains in %: {gains:.1?}");
    assert!(gains.windows(2).all(|pair| pair[0] >= pair[1] + 2.0), "{gains:?}");
    assert!((35.0..40.0).contains(&gains[0]) && (4.0..8.0).contains(&gains[6]), "{gains:?}");
    for program in programs {
        let of = |how: &str| {
            let vm = &all[&format!("{program}, {how}")].result.vms[0];
            assert_eq!(vm.numa.len(), 8, "a client for each node");
            let times = &vm.times;
            times.lost.expect("it is simulated").remote_ns as f64 / times.run_ns as f64
        };
        assert!(of("vNUMA") < 0.05 && of("hidden") > 0.05, "{program}");
    }
}

/// VS51 "vNUMA: Challenges and Best Practices" (N6): virtual nodes that fit gain as before, where
/// they are a multiple less is left, where they are neither nothing.
#[test]
fn virtual_nodes_gain_less_where_they_are_a_multiple_and_nothing_where_they_are_neither() {
    let all = outcomes("vnuma");
    let of = |what: &str, how: &str| &all[&format!("{what}, {how}")].result;
    let cases = ["fits", "multiple", "neither"];
    let gains = cases.map(|c| (work(of(c, "vNUMA")) / work(of(c, "hidden")) - 1.0) * 100.0);
    println!("gains in %: {gains:.1?}");
    assert!((30.0..35.0).contains(&gains[0]), "{gains:?}");
    assert!((10.0..20.0).contains(&gains[1]), "{gains:?}");
    assert!(gains[2].abs() < 0.1, "{gains:?}");
    let vcpus = |what: &str| -> Vec<u32> {
        of(what, "vNUMA").vms[0].numa.iter().map(|client| client.vcpus).collect()
    };
    assert_eq!(vcpus("fits"), [8; 8], "a client for each virtual node");
    assert_eq!(vcpus("multiple"), [4; 16], "two for each");
    assert_eq!(vcpus("neither"), vnuma::balanced(64, 6), "irrespective of them");
}

/// After a transient imbalance a VM goes back and most of its memory has stayed; where locality is
/// worth nothing it does not (VS51 "NUMA Migration").
#[test]
fn a_vm_goes_back_to_its_memory_when_the_imbalance_is_over() {
    let seen = |label: &str, seconds: u64| {
        let numa = until("locality", label, seconds).result.vms[0].numa.clone();
        (
            numa[0].home.expect("it has one"),
            numa[0].local_percent().expect("it has one"),
            numa[0].clone(),
        )
    };
    // It is away from 22 s on; the imbalance ends at 28 s.
    let (home, local, _) = seen("transient", 28);
    assert!(home == 1 && local < 10.0, "{home} {local}");
    let (home, local, client) = seen("transient", 60);
    assert!(home == 0 && local > 75.0, "{home} {local}");
    let reasons: Vec<&str> = client.changes.keys().map(String::as_str).collect();
    assert_eq!(reasons, ["imbalance", "locality", "placed"]);
    for seconds in [60, 180] {
        assert_eq!(seen("transient, no locality", seconds).0, 1);
    }
    let all = outcomes("locality");
    let work = |label: &str| all[label].result.vms[0].times.work as f64;
    let gain = (work("transient") / work("transient, no locality") - 1.0) * 100.0;
    println!("gain of going back: {gain:.2} %");
    assert!(gain > 1.0, "{gain}");
}

/// After a lasting imbalance the memory of a VM follows: hot pages first, the others at a rate that
/// doubles, never above 125 MiB a second, until all are local.
#[test]
fn memory_follows_a_vm_that_stays_away() {
    let numa = |seconds: u64| until("locality", "lasting", seconds).result.vms[0].numa[0].clone();
    let mib = |seconds: u64| numa(seconds).moved_bytes >> 20;
    let moved: Vec<u64> = (11..=25).map(|round| mib(2 * round)).collect();
    let each: Vec<u64> = moved.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Hot pages, a tenth of 16 GiB, have the whole rate for six rounds. The others begin in the
    // third with a 64th of it, and have it whole in the ninth.
    assert_eq!(each, [250, 250, 250, 250, 250, 250, 169, 63, 125, 250, 250, 250, 250, 250]);
    let (early, late, end) = (numa(32), numa(150), numa(180));
    assert!(early.local_percent() < Some(10.0), "{:?}", early.local_percent());
    assert!(late.local_percent() >= Some(95.0), "{:?}", late.local_percent());
    assert!(end.local_percent() == Some(100.0) && end.home == Some(1), "{end:?}");
    assert_eq!(end.moved_bytes, 16 << 30, "no page goes twice");
}

/// VMs that wake each other come to one node, are split while it is contended, and come together
/// again; where action affinity is off they stay apart (VS51 "NUMA Migration").
#[test]
fn vms_that_communicate_come_together_until_their_node_is_contended() {
    let homes = |label: &str, seconds: u64| {
        let out = until("action-affinity", label, seconds);
        [0, 1].map(|vm| out.result.vms[vm].numa[0].home.expect("it has one"))
    };
    let apart = |label: &str, seconds| {
        let [a, b] = homes(label, seconds);
        a != b
    };
    assert!(apart("action affinity", 1), "by load alone");
    for (seconds, split) in [(6, false), (60, false), (76, true), (120, true), (140, false)] {
        assert_eq!(apart("action affinity", seconds), split, "{seconds} s");
    }
    assert!(apart("off", 180));
    let all = outcomes("action-affinity");
    let changes = |label: &str| -> Vec<(String, u64)> {
        let vms = all[label].result.vms.iter().take(2);
        let all = vms.flat_map(|vm| vm.numa[0].changes.clone());
        all.filter(|(reason, _)| reason != "placed").collect()
    };
    let of = |reason: &str, n: u64| (reason.to_owned(), n);
    assert_eq!(changes("action affinity"), [of("action-affinity", 2), of("imbalance", 1)]);
    assert_eq!(changes("off"), [], "nothing else asks for a change");
}

#[test]
fn vms_leave_a_node_whose_pcpus_go_off_line_and_their_memory_follows() {
    let text = "duration = '28s'\n[host]\nsockets = 2\ncores_per_llc = 4\n[hardware]\n[numa]\n\
        [[offline]]\npcpus = '0-3'\nfrom = '4s'\nto = '28s'\n\
        [[vm]]\nname = 'a'\nvcpus = 1\nmemory = '256MiB'\n\
        [[vm]]\nname = 'b'\nvcpus = 1\nmemory = '256MiB'\n";
    let out = crate::text::silent("numa-offline", text, sim::Ticks::Aligned);
    for vm in &out.result.vms {
        let client = &vm.numa[0];
        println!("{}: {client:?}", vm.name);
        assert_eq!((client.home, client.local_percent()), (Some(1), Some(100.0)), "{}", vm.name);
        let placed = if vm.name == "a" { 2 } else { 1 };
        assert_eq!(client.changes, [("placed".to_owned(), placed)].into(), "{}", vm.name);
    }
}

/// VMware KB 1017936: a VM that is consolidated leaves the other LLCs to others; alone it has less
/// cache than one that is spread.
#[test]
fn a_vm_has_few_llcs_or_all_as_it_asks() {
    let all = outcomes("llc-choice");
    let vm = |label: &str, name: &str| {
        let vm = all[label].result.vms.iter().find(|vm| vm.name == name).expect("it is there");
        (vm.times.work as f64, vm.numa[0].llcs.len())
    };
    let gain = |name: &str, with: &str, without: &str| {
        (vm(with, name).0 / vm(without, name).0 - 1.0) * 100.0
    };
    let alone = gain("db", "alone, consolidated", "alone, spread");
    let beside = gain("db", "beside noise that is consolidated", "beside noise");
    let cost = gain("noise", "beside noise that is consolidated", "beside noise");
    println!(
        "consolidated alone {alone:.1} %, beside consolidated noise {beside:.1} %, {cost:.1} %"
    );
    assert!((-30.0..-15.0).contains(&alone), "half of its tables fit: {alone}");
    assert!(beside > 10.0 && cost < -3.0, "{beside} {cost}");
    assert_eq!((vm("alone", "db").1, vm("alone, spread", "db").1), (0, 4));
    assert_eq!(vm("both consolidated", "db").1, 1);
    assert_eq!(vm("both consolidated", "noise").1, 2);
}

#[test]
fn a_vm_of_one_llc_leaves_it_when_its_pcpus_go_off_line() {
    let text = "duration = '9s'\n[host]\nllcs_per_node = 2\ncores_per_llc = 2\n[hardware]\n[numa]\n\
        [[offline]]\npcpus = '0-1'\nfrom = '4s'\nto = '9s'\n\
        [[vm]]\nname = 'a'\nvcpus = 2\nllc = 'consolidate'\n\
        [[vm]]\nname = 'b'\nvcpus = 2\nllc = 'spread'\n\
        workload = { kind = 'io', work = '2ms', sleep = '6ms' }\n";
    for ticks in [sim::Ticks::Aligned, sim::Ticks::Staggered] {
        let out = crate::text::silent("llc-offline", text, ticks);
        let llcs = |vm: usize| out.result.vms[vm].numa[0].llcs.clone();
        assert_eq!((llcs(0), llcs(1)), (vec![1], vec![1]), "{:?}", lines(&out, 0));
    }
}

#[test]
fn a_nodes_memory_gives_what_it_does_to_those_near_it_and_to_those_of_other_nodes() {
    // Four streams want 48 GB a second. A node has 30, or the one 30 and the other 10.
    let work = |name: &str, numa: &str, more: &str| {
        let text = format!(
            "duration = '10s'\n[host]\nsockets = 2\ncores_per_llc = 4\n[hardware]\n\
                bandwidth = '30GB'\nfrom_node = '22ns'\n[numa]\nlink = '400GB'\n{numa}\n[[vm]]\n\
                name = 'stream'\nvcpus = 4\nprofile = 'streamer'\n{more}\n"
        );
        let out = text::outcome(&format!("node-memory-{name}"), &text, &Options::default());
        let times = &out.expect("it runs").result.vms[0].times;
        let lost = times.lost.expect("there is hardware");
        (times.work / 40_000_000, lost.bandwidth_ns / 40_000_000, lost.remote_ns)
    };
    let there = "vcpu_affinity = ['0-3', '0-3', '0-3', '0-3']";
    // 30 of 48; by a 64th of what an access takes, which is rounded up.
    let (of, lost, remote) = work("near", "", "");
    assert!((617..=625).contains(&of) && lost + of >= 998 && remote == 0, "{of} {lost} {remote}");
    // Half of the accesses go to each node.
    assert_eq!(work("interleaved", "on = false", there), (999, 0, 0));
    // 10 of the 24 that they want of the other one: all wait for that.
    let (of, ..) = work("uneven", "on = false\nbandwidth = ['30GB', '10GB']", there);
    assert!((411..=417).contains(&of), "{of}");
    // At home in one node or the other, whose memory is not what others would give.
    for (home, allowed) in [(617..=625, there), (205..=209, "affinity = '4-7'")] {
        let (of, _, remote) = work("home", "bandwidth = ['30GB', '10GB']", allowed);
        assert!(home.contains(&of) && remote == 0, "{of}");
    }
    // Two LLCs of a node have 15 GB each, which is what the node has.
    let text = "duration = '10s'\n[host]\nsockets = 2\nllcs_per_node = 2\ncores_per_llc = 2\n\
        [hardware]\nbandwidth = '15GB'\n[numa]\n[[vm]]\nname = 'a'\nvcpus = 4\n\
        profile = 'streamer'\n";
    let out = text::outcome("node-memory-llcs", text, &Options::default()).expect("it runs");
    let of = out.result.vms[0].times.work / 40_000_000;
    assert!((606..=625).contains(&of), "{of}");
    // A node without pCPUs, where half of the hot pages are and seven ninths of the others.
    let numa =
        "on = false\nmemory = ['1GiB', '1GiB', '64GiB']\nbandwidth = ['30GB', '30GB', '8GB']";
    let (of, ..) = work("memory only", numa, &format!("{there}\nmemory = '8GiB'"));
    assert!(of.abs_diff(8_000_000 / (48 * (500 + 778) / 2)) <= 3, "{of}");
}
