//! The simulated hardware under the scheduler: what worlds lose to the other thread of a core, to
//! cold caches and to each other, and that every ns of their CPU time has a cause.

use crate::text;
use sim::{Options, Outcome};

fn outcome(name: &str, text: &str) -> Outcome {
    with(name, text, &Options::default())
}

fn with(name: &str, text: &str, options: &Options) -> Outcome {
    let name = format!("hardware-{name}");
    text::outcome(&name, text, options).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Work of a VM in permille of `seconds` of one pCPU.
fn permille(out: &Outcome, vm: &str, seconds: u64) -> u64 {
    let of = out.result.vms.iter().filter(|v| v.name == vm);
    of.map(|v| v.times.work).sum::<u64>() / (seconds * 1_000_000)
}

fn host(cores: u32, threads: u32, hardware: &str) -> String {
    format!(
        "duration = '10s'\n[host]\ncores_per_llc = {cores}\nthreads_per_core = {threads}\n\
            [hardware]\n{hardware}\n"
    )
}

fn vm(name: &str, vcpus: u32, more: &str) -> String {
    format!("[[vm]]\nname = '{name}'\nvcpus = {vcpus}\n{more}\n")
}

fn profile(name: &str, more: &str) -> String {
    format!("[[profile]]\nname = '{name}'\n{more}\n")
}

#[test]
fn hardware_that_is_off_changes_no_byte_of_a_result() {
    let json = |hardware: &str| {
        let text = "duration = '2s'\n[host]\nsockets = 2\ncores_per_llc = 2\nthreads_per_core = 2\n"
            .to_owned()
            + hardware
            + &vm("busy", 6, "")
            + &vm("desk", 6, "workload = { kind = 'io', work = '1ms', sleep = '2ms' }")
            + "[[host_task]]\nname = 't'\n\
                workload = { kind = 'io', work = '1ms', sleep = '3ms' }\n";
        serde_json::to_string(&outcome("off", &text).result).expect("JSON")
    };
    let without = json("");
    assert_eq!(json("[hardware]\non = false\nllc = '4MiB'\n"), without);
    assert_ne!(json("[hardware]\nllc = '4MiB'\n"), without);
}

#[test]
fn two_threads_of_a_core_work_as_much_as_their_profile_says_and_one_alone_works_in_full() {
    let text = host(1, 2, "") + &profile("p", "smt_yield = 1.3") + &vm("a", 1, "profile = 'p'");
    let alone = outcome("alone", &text);
    assert!(permille(&alone, "a", 10) >= 999, "{}", permille(&alone, "a", 10));
    let both = outcome("both", &(text + &vm("b", 1, "profile = 'p'")));
    for name in ["a", "b"] {
        let work = permille(&both, name, 10);
        assert!((649..=650).contains(&work), "{name}: {work} of 1000");
    }
}

#[test]
fn every_ns_of_cpu_time_is_work_or_lost_to_a_cause() {
    let text = host(2, 2, "llc = '4MiB'\nbandwidth = '3GB'")
        + &vm("java", 2, "profile = 'specjbb2005'")
        + &vm("stream", 1, "profile = 'streamer'")
        + &vm("desk", 3, "profile = 'vdi'")
        + &vm(
            "barrier",
            2,
            "profile = 'kernel-compile'\nworkload = { kind = 'barrier', work = '300us' }",
        )
        + "[[host_task]]\nname = 't'\nworkload = { kind = 'io', work = '1ms', sleep = '3ms' }\n";
    let out = outcome("sum", &text);
    let mut all = views::Lost::default();
    for world in out.result.vms.iter().flat_map(|vm| &vm.worlds) {
        let lost = world.times.lost.expect("hardware is simulated");
        assert_eq!(world.times.work + lost.sum(), world.times.run_ns, "{world:?}");
        all.add(&lost);
    }
    let causes = [all.smt_ns, all.refill_ns, all.bandwidth_ns, all.switch_ns, all.guest_ns];
    assert_eq!(all.remote_ns, 0, "memory is near everywhere");
    assert!(causes.iter().all(|ns| *ns > 10_000_000), "{all:?}");
    let of_vms = out.result.vms.iter().filter_map(|vm| vm.times.lost).map(|l| l.sum());
    assert_eq!(of_vms.sum::<u64>(), all.sum());
}

#[test]
fn a_world_pays_for_its_caches_when_another_used_them_or_it_moves() {
    // Two worlds on one core whose sets fill its cache: each finds nothing of its own.
    let mine = profile("p", "working_set = '1MiB'");
    let costs = "private_cache = '1MiB'\nllc = '16MiB'\nfrom_llc = '5ns'\nfrom_memory = '20ns'";
    let text = host(1, 1, costs) + &mine + &vm("a", 1, "profile = 'p'");
    let alone = outcome("one-set", &text);
    // Once, from memory: 16384 lines of 20 ns, in whose time half as much work is done.
    let lost = |out: &Outcome| out.result.vms[0].times.lost.expect("it is simulated").refill_ns;
    assert_eq!(lost(&alone), 16_384 * 20);
    let both = outcome("two-sets", &(text + &vm("b", 1, "profile = 'p'")));
    let each = both.result.vms[0].worlds[0].times;
    let runs = lost(&both) as f64 / (16_384.0 * 5.0);
    // From the LLC each time, as often as it is switched to.
    let switches = each.lost.expect("it is simulated").switch_ns as f64 / 2_000.0;
    assert!((runs / switches - 1.0).abs() < 0.1, "{runs} refills in {switches} runs");
}

#[test]
fn a_stream_pushes_the_sets_of_others_out_of_the_llc() {
    let costs = "private_cache = '64KiB'\nllc = '8MiB'\nfrom_llc = '0ns'\nfrom_memory = '20ns'";
    let mine = profile("p", "working_set = '1MiB'") + &profile("small", "working_set = '1KiB'");
    let lost = |beside: &str| {
        let text = host(1, 1, costs) + &mine + &vm("a", 1, "profile = 'p'") + &vm("b", 1, beside);
        times(&outcome("stream-beside", &text), "a").lost.expect("it is simulated").refill_ns
    };
    // 16,384 lines from memory: once, or in each of 100 runs of 50 ms.
    assert_eq!(lost("profile = 'small'"), 16_384 * 20);
    let runs = lost("profile = 'streamer'") as f64 / (16_384.0 * 20.0);
    assert!((90.0..=110.0).contains(&runs), "{runs} refills");
}

#[test]
fn worlds_that_need_more_than_the_llc_holds_go_slower_and_those_that_want_too_much_memory_wait() {
    let costs = "private_cache = '64KiB'\nllc = '4MiB'\nbandwidth = '10GB'";
    let big = profile("big", "working_set = '4MiB'\nuncached = 0.5");
    let text = host(4, 1, costs) + &big + &vm("a", 2, "profile = 'big'");
    // Half of each set is cached: half of the loss.
    let work = permille(&outcome("crowd", &text), "a", 10) / 2;
    assert!((740..=752).contains(&work), "{work} of 1000");
    let stream = profile("stream", "bandwidth = '8GB'\nmemory_bound = 1.0");
    let text = host(4, 1, costs) + &stream + &vm("a", 4, "profile = 'stream'");
    // 10 of the 32 GB/s that they want, in steps of a 64th.
    let work = permille(&outcome("stream", &text), "a", 10) / 4;
    assert!((296..=313).contains(&work), "{work} of 1000");
    // One that does not wait for memory is not held up.
    let text = text + &vm("b", 1, "");
    let out = outcome("beside", &text);
    let b = out.result.vms.iter().find(|v| v.name == "b").expect("b").times;
    assert!(b.work * 1000 / b.run_ns >= 999, "{b:?}");
}

#[test]
fn a_barrier_takes_longer_on_a_shared_core() {
    let barrier = "profile = 'p'\nworkload = { kind = 'barrier', work = '1ms' }";
    let mine = profile("p", "smt_yield = 1.2");
    let rounds = |cores, threads, name: &str| {
        let text = host(cores, threads, "") + &mine + &vm("a", 2, barrier);
        outcome(name, &text).result.vms[0].guest.expect("it has siblings").rounds
    };
    let (two, one) = (rounds(2, 1, "cores"), rounds(1, 2, "twins"));
    let of = one as f64 / two as f64;
    assert!((0.595..=0.605).contains(&of), "{one} rounds on twins, {two} on cores");
}

/// Busy pCPUs of each LLC, in percent of one pCPU: two nodes of two LLCs of four cores.
fn busy_by_llc(name: &str, workload: &str, vcpus: u32) -> Vec<u64> {
    let text = "duration = '11s'\nwarmup = '1s'\n[host]\nsockets = 2\nllcs_per_node = 2\n\
        cores_per_llc = 4\nthreads_per_core = 1\n[hardware]\n"
        .to_owned()
        + &vm("first", 1, &format!("workload = {{ {workload} }}"))
        + &vm("second", vcpus, &format!("workload = {{ {workload} }}"));
    let busy = |pcpus: &[views::Pcpu]| pcpus.iter().map(|p| p.busy_ns / 100_000_000).sum();
    outcome(name, &text).result.pcpus.chunks(4).map(busy).collect()
}

#[test]
fn vcpus_go_to_the_llcs_of_their_node_that_have_the_least_load() {
    // Each LLC of the first node has two of four, and the other node none: there memory is far.
    let long = "kind = 'io', work = '4ms', sleep = '4us'";
    let busy = busy_by_llc("llcs", long, 3);
    assert!(busy[..2].iter().all(|p| p.abs_diff(200) <= 10), "{busy:?}");
    assert!(busy[2..].iter().all(|p| *p == 0), "{busy:?}");
    // One of eight that is busy is no reason to leave.
    let eight = "duration = '10s'\n[host]\nllcs_per_node = 2\ncores_per_llc = 8\n[hardware]\n";
    let eight = outcome("eight", &(eight.to_owned() + &vm("long", 2, "")));
    assert!(eight.result.pcpus[8..].iter().all(|p| p.busy_ns == 0), "{:?}", eight.result.pcpus);
    // Worlds that run for 200 us at a time stay where their caches are.
    let short = outcome(
        "short",
        &("duration = '10s'\n[host]\nllcs_per_node = 2\ncores_per_llc = 2\n[hardware]\n"
            .to_owned()
            + &vm(
                "io",
                3,
                "workload = { kind = 'io', work = '200us', sleep = '50us', dist = 'exponential' }",
            )),
    );
    // One run in 148 is longer than a ms. Without that condition 11,702 of 120,000 wake-ups move.
    let moved = times(&short, "io").moved.expect("hardware is simulated");
    assert!(moved.llc < 200, "{moved:?}");
}

/// Each LLC has as many vCPUs as cores, or one less: at any moment one has two fewer that run than
/// another, and a moment later it is the other way round. A rule that looks at the moment alone
/// moves vCPUs 13,000 times in 10 s, and 90 % of the time is work.
#[test]
fn a_moment_of_less_load_is_no_reason_to_leave_caches() {
    for (llcs, cores, vcpus) in [(4, 4, 14), (2, 8, 14), (3, 2, 5)] {
        let text = format!(
            "duration = '12s'\nwarmup = '2s'\n[host]\nllcs_per_node = {llcs}\n\
             cores_per_llc = {cores}\n[hardware]\n"
        ) + &vm(
            "app",
            vcpus,
            "profile = 'specjbb2005'\n\
             workload = { kind = 'io', work = '1500us', sleep = '500us', dist = 'exponential' }",
        );
        let app = times(&outcome(&format!("moments-{llcs}-{cores}"), &text), "app");
        assert!(app.moved.expect("hardware is simulated").llc < 10, "{llcs} LLCs: {app:?}");
        assert!(app.work * 1000 >= app.used_ns * 995, "{llcs} LLCs: {app:?}");
    }
}

/// While others run in the second LLC all four have to share the first one's caches. When these
/// have gone, two of them leave, which their runs of 9 ms are worth.
#[test]
fn lasting_load_is_a_reason_to_leave_caches() {
    let text = "duration = '13s'\nwarmup = '3s'\n[host]\nllcs_per_node = 2\ncores_per_llc = 4\n\
        [hardware]\n"
        .to_owned()
        + &vm("first", 1, "count = 4\naffinity = '4-7'\nstop = '2s'")
        + &vm("rest", 1, "count = 4\nworkload = { kind = 'io', work = '9ms', sleep = '1ms' }");
    let out = outcome("lasting", &text);
    let busy = |pcpus: &[views::Pcpu]| pcpus.iter().map(|p| p.busy_ns / 1_000_000).sum::<u64>();
    let busy: Vec<u64> = out.result.pcpus.chunks(4).map(busy).collect();
    assert!(busy.iter().all(|ms| ms.abs_diff(18_000) <= 20), "{busy:?}");
}

#[test]
fn new_vms_go_to_the_node_of_less_load_and_their_vcpus_stay_together() {
    let text = "duration = '10s'\n[host]\nsockets = 2\ncores_per_llc = 6\n[hardware]\n".to_owned()
        + &vm("first", 2, "")
        + &vm("second", 2, "start = '1s'")
        + &vm("third", 1, "start = '2s'")
        + &vm("fourth", 1, "start = '3s'");
    let out = outcome("new-vms", &text);
    let busy = |pcpus: &[views::Pcpu]| pcpus.iter().map(|p| p.busy_ns).sum::<u64>() / 100_000_000;
    let nodes: Vec<u64> = out.result.pcpus.chunks(6).map(busy).collect();
    // Two for 10 s and one for 8; two for 9 s and one for 7.
    assert!(nodes[0].abs_diff(280) <= 1 && nodes[1].abs_diff(250) <= 1, "{nodes:?}");
    let moved = out.result.vms.iter().filter_map(|vm| vm.times.moved).map(|m| m.sum());
    assert!(moved.sum::<u64>() < 4, "{:?}", out.result.vms);
}

/// Four burners that start on the first of two nodes of two cores, while others run on the second,
/// and go on when these stop at 2 s; work in permille of four pCPUs, and moves to another node.
fn beside_another_node(name: &str, others: &str) -> (u64, u64) {
    let text = "duration = '10s'\nwarmup = '3s'\n[host]\nsockets = 2\ncores_per_llc = 2\n\
        threads_per_core = 2\n[hardware]\n"
        .to_owned()
        + &vm("others", 4, &format!("cpuset = '4-7'\n{others}"))
        + &(0..4).map(|i| vm(&format!("stays{i}"), 1, "start = '1s'")).collect::<String>();
    let out = outcome(name, &text);
    let of = |i: u32| times(&out, &format!("stays{i}"));
    let moved = |i| of(i).moved.expect("hardware is simulated").node;
    ((0..4).map(|i| of(i).work / 7_000_000).sum(), (0..4).map(moved).sum())
}

#[test]
fn worlds_that_share_cores_for_a_quantum_go_to_another_node_that_idles() {
    let (work, _) = beside_another_node("other-node", "active = ['..2s']");
    assert!(work >= 3980, "{work} of 4000");
    // A node that idles for 30 ms at a time is none to go to.
    let pauses = "workload = { kind = 'io', work = '30ms', sleep = '30ms' }";
    let (work, moved) = beside_another_node("other-pauses", pauses);
    assert!(moved == 0 && (2490..2510).contains(&work), "{work} of 4000, {moved} moves");
}

/// Work of four burners on 2 cores of 2 threads, of which those that are named go after 2 s; what
/// the others do in the 8 s after that, in permille of a pCPU each.
fn after_two_go(cores_per_llc: u32, gone: [&str; 2]) -> Vec<u64> {
    let llcs = 2 / cores_per_llc;
    let host = format!(
        "duration = '10s'\nwarmup = '2s'\n[host]\nllcs_per_node = {llcs}\n\
            cores_per_llc = {cores_per_llc}\nthreads_per_core = 2\n[hardware]\n"
    );
    let vms = ["a", "b", "c", "d"]
        .map(|name| vm(name, 1, if gone.contains(&name) { "stop = '2s'" } else { "" }));
    let out = outcome(&format!("after-{}-{llcs}", gone.concat()), &(host + &vms.concat()));
    let stay = out.result.vms.iter().filter(|vm| !gone.contains(&vm.name.as_str()));
    stay.map(|vm| vm.times.work / 8_000_000).collect()
}

#[test]
fn worlds_that_share_a_core_part_when_a_whole_one_has_been_idle() {
    // Whole cores come first, so that two of them share: whichever two stay, each has a core, but
    // for a quantum and 1 ms, and what its caches cost.
    for cores_per_llc in [2, 1] {
        for gone in [["a", "b"], ["a", "c"], ["a", "d"], ["b", "c"], ["b", "d"], ["c", "d"]] {
            let work = after_two_go(cores_per_llc, gone);
            assert!(work.iter().all(|w| *w >= 995), "without {gone:?}: {work:?} of 1000");
        }
    }
}

#[test]
fn worlds_go_on_sharing_cores_where_no_whole_one_is_idle_for_long() {
    // The second core idles for half a ms at a time.
    let blink = "workload = { kind = 'duty', work = '500us', sleep = '500us' }";
    let text = host(2, 2, "")
        + &vm("a", 1, "affinity = '0'")
        + &vm("b", 1, "")
        + &vm("blink", 1, &format!("affinity = '2'\n{blink}"));
    let out = outcome("blink", &text);
    let b = times(&out, "b");
    assert!(b.migrations < 20, "{} migrations", b.migrations);
}

fn times(out: &Outcome, vm: &str) -> views::Times {
    out.result.vms.iter().find(|v| v.name == vm).expect("it is there").times
}

#[test]
fn the_core_that_has_been_idle_is_taken_and_not_one_whose_world_comes_back() {
    // b shares a's core; the second core idles for half a ms at a time, the third for ever.
    let blink = "workload = { kind = 'duty', work = '500us', sleep = '500us' }";
    let text = host(3, 2, "")
        + &vm("a", 1, "affinity = '0'")
        + &vm("blink", 1, &format!("affinity = '2'\n{blink}"))
        + &vm("late", 1, "affinity = '4,5'\nstop = '1s'")
        + &vm("b", 1, "cpuset = '1-5'");
    // Where they begin is chance.
    let out = outcome("third", &format!("warmup = '500ms'\n{text}"));
    // Until 1 s it may share a core; then it leaves for the third.
    let lost = times(&out, "b").lost.expect("it is simulated").smt_ns;
    assert!(lost < 375 * 560_000, "{lost} ns lost");
    assert!(times(&out, "blink").ready_ns < 10_000_000, "{:?}", times(&out, "blink"));
}

#[test]
fn a_world_that_may_use_second_threads_only_has_a_whole_core_too() {
    let text = host(2, 2, "") + &vm("a", 1, "affinity = '0'") + &vm("b", 1, "affinity = '1,3'");
    let lost = times(&outcome("second", &text), "b").lost.expect("it is simulated").smt_ns;
    assert!(lost < 25_000_000, "{lost} ns lost");
}

#[test]
fn worlds_stay_on_the_only_core_however_many_threads_it_has() {
    for threads in 2..=8 {
        let text = host(1, threads, "") + &vm("a", 1, "") + &vm("b", 1, "");
        let out = outcome(&format!("only-{threads}"), &text);
        let migrations = times(&out, "a").migrations + times(&out, "b").migrations;
        assert!(migrations <= 2, "{threads} threads: {migrations} migrations");
    }
}

#[test]
fn a_core_that_has_not_been_idle_for_spread_us_is_not_taken_from_the_start_of_the_run_on() {
    let knobs = [("spread_us".to_owned(), 1_000_000)].into();
    let options = Options { knobs, ..Options::default() };
    let text = host(2, 2, "")
        + &vm("a", 1, "affinity = '0'")
        + &vm("b", 1, "")
        + &vm("c", 1, "affinity = '2'\nstop = '500ms'");
    let out = with("spread", &text, &options);
    // From 1.5 s on, at the end of its quantum.
    let lost = times(&out, "b").lost.expect("it is simulated").smt_ns * 1000 / 375;
    assert!((1_490_000_000..1_560_000_000).contains(&lost), "{lost} ns on a shared core");
}
