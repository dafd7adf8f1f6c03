//! More limits than one part of their tick serves: each holds, and one that binds is used whole,
//! also where the limits of a VM and of the pool above it belong to different parts.

use sim::{Options, Ticks, run};
use std::{fmt::Write, fs, path::PathBuf};

const POOLS: u32 = 12;
const VMS_OF_POOL: u32 = 10;
const SECONDS: u64 = 4;

/// The result of a scenario, after a run in which the oracle sees nothing.
fn result_of(name: &str, text: &str, ticks: Ticks) -> views::RunResult {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("many-limits-{name}.toml"));
    fs::write(&path, text).expect("the test's folder can be written");
    let scenario = settings::load(&path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}"));
    let options = Options { ticks, ..Options::default() };
    let out = run(&scenario.runs[0], &options).unwrap_or_else(|e| panic!("{e}"));
    let verdict = out.verdict.as_ref().expect("the oracle watches");
    let first = verdict.violations.first().map(ToString::to_string);
    assert_eq!(verdict.violated(), 0, "{first:?}");
    out.result
}

/// Permille of a pCPU that the VMs of each pool use: 132 limits, three parts on four blocks; 10 VMs
/// of 20 % below each pool of 190 %, on 32 pCPUs of which they may use 23.
fn used(name: &str, workload: &str) -> Vec<u64> {
    let mut text = format!("duration = '{}s'\nwarmup = '1s'\n[host]\n", SECONDS + 1)
        + "llcs_per_node = 4\ncores_per_llc = 8\n";
    for pool in 0..POOLS {
        let _ = write!(text, "[[pool]]\nname = 'p{pool}'\nlimit = '190%'\n");
    }
    for vm in 0..POOLS * VMS_OF_POOL {
        let _ = write!(
            text,
            "[[vm]]\nname = 'v{vm}'\nvcpus = 1\nlimit = '20%'\npool = 'p{}'\n\
                workload = {workload}\n",
            vm % POOLS
        );
    }
    let permille = |ns: u64| ns / SECONDS / 1_000_000;
    let mut pools = vec![0; POOLS as usize];
    for (i, vm) in result_of(name, &text, Ticks::Staggered)
        .vms
        .iter()
        .filter(|v| v.name.starts_with('v'))
        .enumerate()
    {
        let used = vm.times.used_ns;
        assert!(permille(used) <= 201, "{}: {} permille of a pCPU", vm.name, permille(used));
        pools[i % POOLS as usize] += used;
    }
    pools.into_iter().map(permille).collect()
}

#[test]
fn limits_in_parts_hold_and_are_used_whole() {
    let pools = used("burn", "{ kind = 'burn' }");
    assert!(pools.iter().all(|p| (1880..=1905).contains(p)), "{pools:?}");
}

#[test]
fn limits_in_parts_hold_for_vms_that_sleep() {
    // Each would use half a pCPU, and loses 6 % of the pool's limit by sleeping, as it does where
    // one part serves all (1,785 to 1,792).
    let pools = used("sleep", "{ kind = 'duty', work = '2ms', sleep = '2ms' }");
    assert!(pools.iter().all(|p| (1770..=1905).contains(p)), "{pools:?}");
}

/// A pool of a burner and of VMs that sleep briefly, beside a busy VM that wants all pCPUs.
#[test]
fn a_limit_is_used_whole_by_a_burner_beside_short_sleepers() {
    // While uses of the budget were kept for sleepers: 442 and 460 in the last two.
    for (pcpus, limit, sleepers, work, sleep, least) in [
        (2, 50, 4, "5us", "100us", 485),
        (4, 50, 4, "5us", "100us", 485),
        (1, 50, 4, "5us", "100us", 495),
        (4, 50, 4, "50us", "500us", 480),
    ] {
        let text = format!(
            "duration = '12s'\nwarmup = '2s'\n[host]\ncores_per_llc = {pcpus}\n\
             [[pool]]\nname = 'p'\nlimit = '{limit}%'\n\
             [[vm]]\nname = 'burner'\nvcpus = 1\npool = 'p'\n\
             [[vm]]\nname = 'sleeper'\nvcpus = 1\npool = 'p'\ncount = {sleepers}\n\
             workload = {{ kind = 'io', work = '{work}', sleep = '{sleep}', \
             dist = 'exponential' }}\n\
             [[vm]]\nname = 'busy'\nvcpus = {pcpus}\n"
        );
        let name = format!("sleepers-{pcpus}-{limit}");
        let used: u64 = result_of(&name, &text, Ticks::Aligned)
            .vms
            .iter()
            .filter(|v| v.pool == "/p")
            .map(|v| v.times.used_ns / 10_000_000)
            .sum();
        assert!((least..=10 * limit + 5).contains(&used), "{limit} % on {pcpus}: {used} permille");
    }
}
