//! Home nodes of hosts of many nodes, of divided cores, and of VMs that affinity or reservations
//! hold: what each VM gets with homes is what it would get without.

use crate::text;
use sim::{Options, Outcome};

fn outcome(name: &str, text: &str) -> Outcome {
    text::outcome(name, text, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// CPU time of the VM that has most over that of the one that has least, in permille.
fn apart_permille(out: &Outcome) -> u64 {
    let used = || out.result.vms.iter().map(|vm| vm.times.used_ns);
    let (most, least) = (used().max().expect("a VM"), used().min().expect("a VM"));
    (most - least) * 1000 / least
}

/// Two nodes would get what the others have too much of only if they were among the first four:
/// one VM was alone on its node for all the time, and had 21.2 % more than the others.
#[test]
fn fairness_looks_at_all_nodes() {
    for (nodes, most) in [(6, 30), (8, 40)] {
        let text = format!(
            "duration = '620s'\nwarmup = '20s'\n[host]\nsockets = {nodes}\ncores_per_llc = 2\n\
            [hardware]\n[numa]\n[[vm]]\nname = 'a'\ncount = {}\nvcpus = 2\n\
            profile = 'specjbb2005'\n",
            nodes + 1
        );
        let apart = apart_permille(&outcome("homes-nodes", &text));
        assert!(apart <= most, "{nodes} nodes: {apart} permille apart");
    }
}

/// What a VM had was counted by thread, what it is entitled to by core: no VM lacked anything, and
/// the VM that was alone on its node had 60 % more.
#[test]
fn fairness_counts_divided_cores_as_entitlements_do() {
    for charge in [500, 625] {
        let text = format!(
            "duration = '320s'\nwarmup = '20s'\n[host]\nsockets = 2\ncores_per_llc = 2\n\
            threads_per_core = 2\n[hardware]\n[numa]\n[knobs]\nshared_charge = {charge}\n\
            [[vm]]\nname = 'a'\ncount = 3\nvcpus = 2\nmemory = '2GiB'\n"
        );
        let apart = apart_permille(&outcome("homes-cores", &text));
        assert!(apart <= 60, "shared_charge {charge}: {apart} permille apart");
    }
}

/// Two nodes of four cores, for 20 s.
fn two_nodes(name: &str, numa: &str, vms: &str) -> Outcome {
    let text = format!(
        "duration = '20s'\n[host]\nsockets = 2\ncores_per_llc = 4\n[hardware]\n[numa]\n{numa}\n\
        {vms}"
    );
    outcome(name, &text)
}

/// Linux has no homes; interleaved memory is what it can be compared on.
#[test]
fn a_policy_without_homes_says_how_memory_is_interleaved() {
    let text = |numa: &str| {
        format!(
            "duration = '2s'\n[host]\nsockets = 2\ncores_per_llc = 1\n[hardware]\n[numa]\n{numa}\n\
            [[vm]]\nname = 'a'\nvcpus = 1\nprofile = 'specjbb2005'\n"
        )
    };
    let policy = sim::Policy::Peer(sim::Peer::Cfs, None);
    let options = Options { policy, ..Options::default() };
    let refused = text::outcome("homes-cfs", &text(""), &options).expect_err("it has none");
    assert!(refused.contains("([numa]; with numa.on = false memory is interleaved)"), "{refused}");
    let out = text::outcome("homes-cfs", &text("on = false"), &options).expect("it runs");
    assert!(out.result.vms[0].times.lost.expect("it is simulated").remote_ns > 0);
}

/// Real-time tasks take half of node 0, and two VMs share the other half of it: loads by VMs alone
/// were the same in both nodes, and two of the three had 20 s, the other one 40 s.
#[test]
fn what_real_time_tasks_take_of_a_node_is_load() {
    let vms = "[[realtime]]\nname = 'rt'\npcpus = '0-3'\nwork = '5ms'\nperiod = '10ms'\n[[vm]]\n\
        name = 'a'\ncount = 3\nvcpus = 2\n";
    let out = two_nodes("homes-taken", "", vms);
    let used: Vec<u64> = out.result.vms.iter().map(|v| v.times.used_ns / 1_000_000).collect();
    assert!(used.iter().sum::<u64>() > 110_000, "{used:?}");
    let text = format!("{:#?}", out.result.vms.iter().map(|v| &v.numa).collect::<Vec<_>>());
    assert!(text.contains("at 2.0 s: node 0 to 1: imbalance"), "{text}");
}

/// The VM had its home where one of its pCPUs was, or where two were: a quarter and half of what it
/// has without homes.
#[test]
fn a_home_takes_no_pcpu_from_a_vm_that_may_use_some_of_several_nodes() {
    for (held, vcpus, homes) in [
        ("cpuset = '3-6'", 4, [None].as_slice()),
        ("affinity = '2-5'", 4, &[None]),
        ("affinity = '0-4'", 8, &[None; 2]),
        ("affinity = '3-7'", 4, &[Some(1)]),
        ("affinity = '3-6'", 3, &[Some(1)]),
        ("affinity = '1-2'", 4, &[Some(0)]),
        ("vcpu_affinity = ['0', '4']", 2, &[None]),
        ("vcpu_affinity = ['4', '0-7']", 2, &[Some(1)]),
    ] {
        let vms = format!("[[vm]]\nname = 'a'\nvcpus = {vcpus}\n{held}\n");
        let of = |numa| two_nodes("homes-affinity", numa, &vms);
        let (with, without) = (of(""), of("on = false"));
        let used = |out: &Outcome| out.result.vms[0].times.used_ns;
        assert!(used(&with) * 1000 >= used(&without) * 995, "{held}: {}", used(&with));
        let clients = &with.result.vms[0].numa;
        assert_eq!(clients.iter().map(|c| c.home).collect::<Vec<_>>(), homes, "{held}");
        for client in clients {
            let said = client.notes.iter().any(|n| n.contains("affinity leaves no node with room"));
            assert_eq!(said, client.home.is_none(), "{held}: {:?}", client.notes);
        }
    }
}

/// Two of three VMs that have reserved 250 % each shared a node of four cores, and had 200 % at a
/// time: 14 violations of the oracle in 50 s.
#[test]
fn reservations_hold_with_homes() {
    let vms = "[[vm]]\nname = 'r'\ncount = 3\nvcpus = 4\nreservation = '250%'\n";
    let out = two_nodes("homes-reserved", "", vms);
    let verdict = out.verdict.as_ref().expect("the oracle watches");
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.violations.first().map(ToString::to_string));
    for vm in &out.result.vms {
        assert!(vm.times.used_ns > 52_600_000_000, "{}: {} ns", vm.name, vm.times.used_ns);
    }
    let homes = out.result.vms.iter().map(|vm| vm.numa[0].home);
    assert_eq!(homes.collect::<Vec<_>>(), [Some(0), Some(1), None]);
    assert_eq!(out.result.vms[2].numa[0].notes, [numa::NO_ROOM]);
}

/// Three VMs of six vCPUs on two nodes of eight cores. With homes alone two share a node, and two
/// cores idle: 280 of 320 s, and the VM that is alone has half as much again as the others until
/// fairness has it change.
#[test]
fn a_vm_that_no_node_has_room_for_uses_idle_cores_of_all() {
    let of = |numa: &str| {
        let text = format!(
            "warmup = '20s'\nduration = '40s'\n[host]\nsockets = 2\ncores_per_llc = 8\n\
            [hardware]\n[numa]\n{numa}\n[[vm]]\nname = 'a'\ncount = 3\nvcpus = 6\n"
        );
        outcome("homes-roam", &text)
    };
    let used = |out: &Outcome| out.result.vms.iter().map(|v| v.times.used_ns).sum::<u64>();
    let (with, without) = (of(""), of("roam_percent = 0"));
    assert!(used(&with) >= 319_800_000_000, "{} ns of 320 s", used(&with));
    assert!(used(&without) <= 281_000_000_000, "{} ns", used(&without));
    assert!(apart_permille(&with) <= 2, "{} permille", apart_permille(&with));
    let clients = || with.result.vms.iter().map(|vm| &vm.numa[0]);
    let homes: Vec<_> = clients().filter_map(|c| c.home).collect();
    assert_eq!(homes.iter().sum::<u32>(), 1, "a node each: {homes:?}");
    let roams = clients().find(|c| c.home.is_none()).expect("one of three");
    assert_eq!(roams.notes, [numa::ROAMS]);
    assert_eq!(roams.changes.get("roams"), Some(&1), "{:?}", roams.changes);
    // Lag is free where VMs may not use all pCPUs (`random_hosts`).
    let mut found = with.verdict.iter().flat_map(|v| &v.violations);
    let strict = found.find(|v| v.invariant != check::Invariant::Lag);
    assert_eq!(strict.map(ToString::to_string), None);
}

/// A wide VM has a part in each node, and a narrow one shares one of these. With homes alone both
/// have the pace of that node, 62 % of what they are entitled to, and half of the others idles.
#[test]
fn a_wide_vm_that_a_crowded_node_holds_back_keeps_to_its_shares() {
    let of = |numa: &str| {
        let text = format!(
            "warmup = '30s'\nduration = '60s'\n[host]\nsockets = 4\ncores_per_llc = 2\n\
            [hardware]\n[numa]\n{numa}\n[[vm]]\nname = 'narrow'\nvcpus = 2\n[[vm]]\nname = \
            'wide'\nvcpus = 8\n"
        );
        outcome("homes-wide", &text)
    };
    let (with, without) = (of(""), of("roam_percent = 0"));
    // By shares 48 and 192 s of 240.
    let used = |out: &Outcome| ["narrow", "wide"].map(|vm| crate::text::used_ms(out, vm));
    let [narrow, wide] = used(&with);
    println!("{narrow} {wide} {:?}", used(&without));
    assert!(narrow >= 47_500 && wide >= 190_500, "{narrow} {wide}");
    assert!(used(&without)[1] < 135_000, "{:?}", used(&without));
    let parts = &with.result.vms[1].numa;
    assert!(parts.iter().all(|c| c.home.is_none() && c.notes == [numa::ROAMS]), "{parts:?}");
}

/// Three VMs of two vCPUs on two nodes of two cores, beside one that is awake for half of the time:
/// each move is one that its imbalance takes back, but two change homes. Without, 300, 480 and 300
/// s.
#[test]
fn fairness_holds_beside_small_vms_that_no_move_can_even_out() {
    let text = "warmup = '40s'\nduration = '340s'\n[host]\nsockets = 2\ncores_per_llc = 2\n\
        [hardware]\n[numa]\n[[vm]]\nname = 'v'\nvcpus = 2\ncount = 3\n[[vm]]\nname = 'i'\n\
        vcpus = 1\nworkload = { kind = 'duty', work = '20ms', sleep = '20ms' }\n";
    let out = outcome("homes-exchange", text);
    let used: Vec<u64> = out.result.vms[..3].iter().map(|v| v.times.used_ns).collect();
    let (least, most) = (used.iter().min().unwrap_or(&0), used.iter().max().unwrap_or(&0));
    assert!(most * 1000 <= least * 1050, "{used:?}");
}

/// Where no node is contended for long a VM does not move for what is apart for a moment, and has
/// no memory to go back to. If the loads of the moment alone count there are 68 and 228 changes,
/// and 1.4 and 4.6 % of the work are lost.
#[test]
fn vms_at_half_load_stay_at_home() {
    for (nodes, cores, most, lost_permille) in [(2, 8, 30, 4), (4, 4, 45, 6)] {
        let text = format!(
            "duration = '600s'\n[host]\nsockets = {nodes}\ncores_per_llc = {cores}\n[hardware]\n\
            [numa]\n[[vm]]\nname = 'a'\ncount = 8\nvcpus = 2\nmemory = '2GiB'\n\
            profile = 'specjbb2005'\nworkload = {{ kind = 'io', work = '8s', sleep = '8s', \
            dist = 'exponential' }}\n"
        );
        let out = outcome("homes-half-load", &text);
        let clients = out.result.vms.iter().flat_map(|vm| &vm.numa);
        let changes: u64 = clients.flat_map(|c| &c.changes).map(|(_, n)| n).sum::<u64>() - 8;
        let (mut work, mut remote) = (0, 0);
        for times in out.result.vms.iter().map(|vm| vm.times) {
            work += times.work;
            remote += times.lost.map_or(0, |lost| lost.remote_ns);
        }
        println!(
            "{nodes} nodes: {changes} changes, {} ms of {} ms",
            remote / 1_000_000,
            work / 1_000_000
        );
        assert!(changes <= most, "{nodes} nodes: {changes} changes");
        let permille = remote * 1000 / work;
        assert!(permille <= lost_permille, "{nodes} nodes: {permille} permille lost");
    }
}

/// Forty VMs of one vCPU on one of two nodes of 16 cores, once those of the other have stopped.
/// None is half of the imbalance, and nothing moved: 19.5 of 32 pCPUs were busy.
#[test]
fn many_small_vms_leave_a_crowded_node_one_after_the_other() {
    let vm = |i: u32, stop: &str| {
        format!("[[vm]]\nname = 'vm-{i}'\nvcpus = 1\nmemory = '256MiB'\n{stop}")
    };
    let vms = (0..80).map(|i| vm(i, if i % 2 == 0 { "stop = '5s'\n" } else { "" }));
    let text = format!(
        "warmup = '40s'\nduration = '50s'\n[host]\nsockets = 2\ncores_per_llc = 16\n[hardware]\n\
        [numa]\n{}",
        vms.collect::<String>()
    );
    let out = outcome("homes-many-small", &text);
    let busy: u64 = out.result.pcpus.iter().map(|p| p.busy_ns).sum();
    assert!(busy >= 319_000_000_000, "{busy} ns of 320 s");
    let changes = out.result.vms.iter().map(|vm| vm.numa[0].migrations()).sum::<u64>();
    assert!(changes <= 30, "{changes} changes");
    let mut found = out.verdict.iter().flat_map(|v| &v.violations);
    let strict = found.find(|v| v.invariant != check::Invariant::Lag);
    assert_eq!(strict.map(ToString::to_string), None);
}

/// A world that its limit stopped, and admitted again at that moment, stays on its pCPU, which is
/// about to idle. That pCPU counted as idle: another world was put there too, and the first waited
/// behind it in the local queue, from which no pCPU takes it, for 5.25 ms beside idle ones.
#[test]
fn a_pcpu_where_a_stopped_world_stays_is_not_idle() {
    let out = outcome(
        "homes-stays",
        "seed = 1092\nduration = '20s'\n[host]\nsockets = 8\ncores_per_llc = 2\n[hardware]\n\
        [numa]\n[[vm]]\nname = 'free'\nvcpus = 8\nmemory = '2GiB'\n[[vm]]\nname = 'small'\n\
        vcpus = 4\nmemory = '1GiB'\nshares = 4000\nlimit = '60%'\n[[vm]]\nname = 'large'\n\
        count = 2\nvcpus = 8\nmemory = '4GiB'\nlimit = '500%'\n",
    );
    let checked = out.verdict.as_ref().map(|v| v.idle_while_waiting_max_ns);
    assert_eq!(checked, Some(0));
}
