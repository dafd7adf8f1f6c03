//! Limits of VMs whose vCPUs spin for each other: these start and stop together, so they do as much
//! work as CPU time.

use sim::{Options, run};
use std::{fs, path::PathBuf};

/// CPU time and work, permille of a pCPU, of a VM beside others.
fn of(name: &str, pcpus: u32, vms: &str) -> Vec<(u64, u64)> {
    let text = format!("duration = '6s'\nwarmup = '1s'\n[host]\ncores_per_llc = {pcpus}\n{vms}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("gang-limits-{name}.toml"));
    fs::write(&path, text).expect("the test's folder can be written");
    let scenario = settings::load(&path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}"));
    let out = run(&scenario.runs[0], &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let verdict = out.verdict.as_ref().expect("the oracle watches");
    let first = verdict.violations.first().map(ToString::to_string);
    assert_eq!(verdict.violated(), 0, "{name}: {first:?}");
    let permille = |ns: u64| ns / 5_000_000;
    let vms = out.result.vms.iter().filter(|v| v.vcpus > 0);
    vms.map(|v| (permille(v.times.used_ns), permille(v.times.work))).collect()
}

#[test]
fn vcpus_that_meet_do_the_work_of_their_limit() {
    for (vcpus, limit, each) in
        [(4, 200, "1ms"), (4, 200, "300us"), (2, 100, "1ms"), (8, 400, "1ms")]
    {
        let vm = format!(
            "[[vm]]\nname = 'gang'\nvcpus = {vcpus}\nlimit = '{limit}%'\n\
             workload = {{ kind = 'barrier', work = '{each}' }}\n"
        );
        let (used, work) = of(&format!("{vcpus}-{limit}-{each}"), 8, &vm)[0];
        let whole = 10 * limit;
        assert!((whole * 99 / 100..=whole + 5).contains(&used), "{vcpus} below {limit}: {used}");
        assert!(work >= whole * 97 / 100, "{vcpus} below {limit}: work {work}");
    }
}

#[test]
fn the_tighter_limit_of_a_pool_bounds_what_starts_at_once() {
    let vm = "[[pool]]\nname = 'pool'\nlimit = '150%'\n\
        [[vm]]\nname = 'gang'\nvcpus = 4\npool = 'pool'\nlimit = '300%'\n\
        workload = { kind = 'barrier', work = '1ms' }\n\
        [[vm]]\nname = 'busy'\nvcpus = 4\n";
    let vms = of("pool", 4, vm);
    assert!((1_420..=1_505).contains(&vms[0].0), "{vms:?}");
    assert!(vms[0].1 >= 1_380, "{vms:?}");
}
