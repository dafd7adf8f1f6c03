//! More limits than one part of their tick serves: each holds, and one that binds is used whole,
//! also where the limits of a VM and of the pool above it belong to different parts.

use sim::{Options, Ticks, run};
use std::{fmt::Write, fs, path::PathBuf};

const POOLS: u32 = 12;
const VMS_OF_POOL: u32 = 10;
const SECONDS: u64 = 4;

#[test]
fn limits_in_parts_hold_and_are_used_whole() {
    // 132 limits, three parts on four blocks; 10 VMs of 20 % below a pool of 190 %, of 24 pCPUs.
    let mut text = format!("duration = '{}s'\nwarmup = '1s'\n[host]\n", SECONDS + 1)
        + "llcs_per_node = 4\ncores_per_llc = 8\n";
    for pool in 0..POOLS {
        let _ = write!(text, "[[pool]]\nname = 'p{pool}'\nlimit = '190%'\n");
    }
    for vm in 0..POOLS * VMS_OF_POOL {
        let _ = write!(
            text,
            "[[vm]]\nname = 'v{vm}'\nvcpus = 1\nlimit = '20%'\npool = 'p{}'\n",
            vm % POOLS
        );
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("many-limits.toml");
    fs::write(&path, &text).expect("the test's folder can be written");
    let scenario = settings::load(&path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}"));
    let options = Options { ticks: Ticks::Staggered, ..Options::default() };
    let out = run(&scenario.runs[0], &options).unwrap_or_else(|e| panic!("{e}"));
    let verdict = out.verdict.as_ref().expect("the oracle watches");
    let first = verdict.violations.first().map(ToString::to_string);
    assert_eq!(verdict.violated(), 0, "{first:?}");
    let permille = |ns: u64| ns / SECONDS / 1_000_000;
    let mut pools = vec![0; POOLS as usize];
    for (i, vm) in out.result.vms.iter().filter(|v| v.name.starts_with('v')).enumerate() {
        let used = vm.times.used_ns;
        assert!(permille(used) <= 201, "{}: {} permille of a pCPU", vm.name, permille(used));
        pools[i % POOLS as usize] += used;
    }
    println!("{:?}", pools.iter().map(|p| permille(*p)).collect::<Vec<u64>>());
    for (i, used) in pools.iter().enumerate() {
        let used = permille(*used);
        assert!((1880..=1905).contains(&used), "p{i}: {used} permille of a pCPU");
    }
}
