//! Guests with tasks of their own: what their scheduler does to vCPUs, and what the host makes of
//! it.

use settings::Scenario;
use sim::{Options, run};
use std::{collections::BTreeMap, fs, path::PathBuf};
use views::{GuestTasks, Vm};

/// A VM with these keys on a host with these keys.
fn scenario(name: &str, host: &str, vm: &str) -> Scenario {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("tasks-{name}.toml"));
    let text = format!("duration = '2s'\n[host]\n{host}\n[[vm]]\nname = 'a'\n{vm}\n");
    fs::write(&path, text).expect("the test's folder can be written");
    settings::load(&path.to_string_lossy()).expect("the scenario loads")
}

/// Its only VM under Tandem, with a silent oracle and times that sum to its life.
fn vm(name: &str, host: &str, keys: &str) -> (Vm, u64) {
    let outcome = run(&scenario(name, host, keys).runs[0], &Options::default()).expect("it runs");
    let verdict = outcome.verdict.as_ref().expect("the oracle watches");
    assert_eq!(verdict.violated(), 0, "{name}: {:?}", verdict.violations);
    let mut vms = outcome.result.vms;
    let vm = vms.remove(0);
    for w in &vm.worlds {
        let t = &w.times;
        let life = t.run_ns + t.ready_ns + t.costop_ns + t.wait_ns;
        assert_eq!(life, 2_000_000_000, "{name}: {}", w.name);
    }
    (vm, outcome.stats.wakeups)
}

fn did(vm: &Vm) -> (u64, GuestTasks) {
    let guest = vm.guest.expect("its guest has tasks");
    (guest.rounds, guest.tasks.expect("its guest has tasks"))
}

fn exec(more: &str) -> String {
    format!(
        "vcpus = 2\n{more}\n[[vm.task]]\nname = 'x'\nworking_set = '1MiB'\n\
         does = {{ kind = 'exec', work = '1ms' }}"
    )
}

#[test]
fn each_exec_wakes_the_other_vcpu_on_the_host_if_execs_are_balanced() {
    let of = |name: &str, on: bool| {
        let keys = exec(&format!("[vm.guest]\nwake = '50us'\nexec_balance = {on}"));
        vm(name, "cores_per_llc = 2", &keys)
    };
    let (moves, wakeups) = of("exec", true);
    let (stays, none) = of("exec-off", false);
    let ((execs, c), (more, nothing)) = (did(&moves), did(&stays));
    assert!(c.exec_migrations + 1 >= execs && wakeups >= execs, "{execs} {wakeups} {c:?}");
    assert_eq!(nothing, GuestTasks { interrupts: nothing.interrupts, ..GuestTasks::default() });
    assert!(none < 10, "{none}");
    // A move costs the wake-up of 50 us and 16,384 lines of 7 ns.
    let gain = more as f64 / execs as f64;
    assert!((1.16..1.19).contains(&gain), "{more} {execs}");
    assert_eq!(did(&of("exec-again", true).0), (execs, c), "the same again");
}

#[test]
fn a_move_costs_what_the_pcpus_make_of_it_and_not_the_guests_vcpus() {
    let of = |name: &str, host: &str, pinned: &str| {
        let keys = exec(&format!("vcpu_affinity = {pinned}\n[vm.guest]"));
        did(&vm(name, host, &keys).0).0
    };
    let core = of("core", "cores_per_llc = 1\nthreads_per_core = 2", "['0', '1']");
    let llc = of("llc", "cores_per_llc = 2", "['0', '1']");
    let far = of("far", "cores_per_llc = 1\nllcs_per_node = 2", "['0', '1']");
    let node = of("node", "cores_per_llc = 1\nsockets = 2", "['0', '1']");
    // 0, 115, 360 and 573 us of an exec of 1 ms.
    assert!((1.09..1.13).contains(&(core as f64 / llc as f64)), "{core} {llc}");
    assert!((1.18..1.24).contains(&(llc as f64 / far as f64)), "{llc} {far}");
    assert!((1.14..1.18).contains(&(far as f64 / node as f64)), "{far} {node}");
}

#[test]
fn a_stream_wakes_on_idle_vcpus_of_the_llc_that_is_shown_and_where_it_is_hidden_on_its_last() {
    let of = |name: &str, guest: &str| {
        let keys = format!(
            "vcpus = 4\n[vm.guest]\n{guest}\n[[vm.task]]\nname = 'stream'\ncount = 3\n\
             does = {{ kind = 'io', work = '40us', sleep = '60us', interrupts = 0, dist = \
             'exponential' }}"
        );
        did(&vm(name, "cores_per_llc = 4", &keys).0)
    };
    let ((shown, s), (hidden, h)) = (of("shown", ""), of("hidden", "hidden = true"));
    assert!(s.migrations > 10_000 && h.migrations == 0, "{s:?} {h:?}");
    assert!(h.interrupts > s.interrupts, "each wakes where it slept: {s:?} {h:?}");
    assert!(shown > 20_000 && hidden > 20_000, "{shown} {hidden}");
    // Where wake-ups are drawn, all gather on the vCPU that is interrupted.
    let (gathered, g) = of("drawn", "hidden = true\nwake_wide = false");
    assert!(s.interrupts > 10 * g.interrupts.max(1), "{s:?} {g:?}");
    assert!(gathered > 20_000, "{gathered}");
}

/// Rounds and CPU time of a guest of one vCPU beside a VM that wants the same pCPU: of its two
/// tasks one burns, the other does this.
fn beside_load(name: &str, steal: bool, does: &str, options: &Options) -> (u64, u64) {
    let keys = format!(
        "vcpus = 1\n[vm.guest]\nsteal = {steal}\n[[vm.task]]\nname = 'b'\n\
         does = {{ kind = 'burn' }}\n[[vm.task]]\nname = 's'\ndoes = {{ {does} }}\n\
         [[vm]]\nname = 'load'\nvcpus = 1\n"
    );
    let name = format!("steal-{name}-{steal}");
    let scenario = scenario(&name, "cores_per_llc = 1", &keys);
    let outcome = run(&scenario.runs[0], options).expect("it runs");
    let vm = &outcome.result.vms[0];
    let half = outcome.result.duration_ns / 2;
    assert!(vm.times.used_ns.abs_diff(half) * 100 < half, "{name}: {}", vm.times.used_ns);
    (did(vm).0, vm.times.used_ns)
}

#[test]
fn a_guest_that_is_told_of_steal_time_divides_its_own_cpu_time_and_not_the_hosts() {
    let ten = |seed| Options {
        seed: Some(seed),
        duration: Some(units::Span::from_secs(10)),
        ..Options::default()
    };
    // Half of the guest's CPU time is 2,504 pieces of 1 ms. Untold, it charges what the host took
    // to the task that ran then, and lets that wait for as long.
    let of = |steal| beside_load("exec", steal, "kind = 'exec', work = '1ms'", &ten(1));
    let off = |(rounds, used): (u64, u64)| rounds.abs_diff(used / 2_000_000);
    let (told, untold) = (of(true), of(false));
    assert!(off(told) <= 4 && off(untold) >= 12, "{told:?} {untold:?}");
    // A task that sleeps half of the time and would preempt is late by that: 20 % fewer rounds.
    let io = "kind = 'io', work = '10ms', sleep = '10ms', dist = 'exponential'";
    let sum = |steal| (1..=8).map(|seed| beside_load("io", steal, io, &ten(seed)).0).sum::<u64>();
    let (told, untold) = (sum(true), sum(false));
    println!("rounds of eight seeds: {told} with steal time told, {untold} without");
    assert!(told * 100 > untold * 105, "{told} {untold}");
}

/// CPU time and rounds of the guest of scenario `guest-mix`, by run.
fn mix(policy: &str) -> BTreeMap<String, (u64, u64)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/guest-mix");
    let options = Options {
        policy: policy.parse().expect("a policy"),
        check: policy == "tandem",
        ..Options::default()
    };
    let of = |r: &settings::Run| {
        let outcome = run(r, &options).expect("it runs");
        let vm = &outcome.result.vms[0];
        (r.label.clone(), (vm.times.used_ns, did(vm).0))
    };
    settings::load(folder).expect("it loads").runs.iter().map(of).collect()
}

#[test]
fn a_guests_mix_does_the_same_alone_under_all_and_beside_load_what_its_wake_ups_allow() {
    let all = ["tandem", "cfs", "eevdf", "xen-credit"].map(|policy| (policy, mix(policy)));
    for (policy, runs) in &all {
        println!("{policy}: {runs:?}");
        let rounds = |label: &str| runs[label].1;
        // Alone a guest does what its tasks cost, whatever schedules the host.
        for label in ["execl", "pipe", "context", "shell", "mix"] {
            let first = all[0].1[label].1;
            assert!(rounds(label).abs_diff(first) * 200 <= first, "{policy} {label}: {first}");
        }
        // Beside a VM of as many shares it has half of the host, if it wants so much.
        let used_ms = runs["mix, loaded"].0 / 1_000_000;
        assert!((5_900..6_150).contains(&used_ms), "{policy}: {used_ms}");
        // One task at a time wants less than its half: what is missing are waits.
        let kept = |label: &str| rounds(&format!("{label}, loaded")) * 1000 / rounds(label);
        let kept = ["execl", "pipe", "context"].map(kept);
        let least = match *policy {
            "tandem" => [995, 995, 995],
            "cfs" => [990, 930, 990],
            "eevdf" => [930, 880, 930],
            _ => [780, 930, 930],
        };
        assert!(kept.iter().zip(least).all(|(k, l)| *k >= l), "{policy}: {kept:?}");
    }
}
