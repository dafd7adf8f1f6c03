//! Co-scheduling of SMP VMs: what it must show (spec C1 to C6), under the oracle, with the figures that docs/measured.md tells.

use settings::Scenario;
use sim::{Options, Outcome, Ticks, run};
use std::{fs, path::PathBuf};
use views::Vm;

fn scenario(name: &str, text: &str) -> Scenario {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cosched-{name}.toml"));
    fs::write(&path, text).expect("the test's folder can be written");
    settings::load(&path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// One run with cosched off (0), relaxed (1) or strict (2).
fn outcome(name: &str, mode: u64, text: &str) -> Outcome {
    let knobs = [("cosched".to_owned(), mode)].into();
    let options = Options { knobs, ticks: Ticks::Staggered, ..Options::default() };
    run(&scenario(name, text).runs[0], &options).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The same, with a silent oracle.
fn silent(name: &str, mode: u64, text: &str) -> Outcome {
    let out = outcome(name, mode, text);
    let verdict = out.verdict.as_ref().expect("the oracle watches");
    assert_eq!(verdict.violated(), 0, "{name}: {:?}", verdict.violations.first().map(ToString::to_string));
    out
}

fn host(duration: &str, pcpus: u32) -> String {
    format!("duration = '{duration}'\n[host]\ncores_per_llc = {pcpus}\n")
}

fn vm(name: &str, vcpus: u32, more: &str) -> String {
    format!("[[vm]]\nname = '{name}'\nvcpus = {vcpus}\n{more}\n")
}

fn of<'o>(out: &'o Outcome, name: &str) -> &'o Vm {
    out.result.vms.iter().find(|v| v.name == name).expect("a VM of that name")
}

#[test]
fn a_wide_vm_progresses_on_the_one_pcpu_that_reservations_leave_it() {
    let text =
        host("20s", 4) + &(0..3).map(|i| vm(&format!("held{i}"), 1, "reservation = '100%'")).collect::<String>() + &vm("wide", 4, "");
    for mode in 0..2 {
        let out = silent("fragments", mode, &text);
        println!("fragmentation, cosched {mode}: {:?} skew {}", of(&out, "wide").times, out.verdict.as_ref().unwrap().skew_max_ns);
    }
}

#[test]
fn skew_stays_within_threshold_and_period() {
    for (width, pcpus) in [(2_u32, 4_u32), (4, 4), (8, 8), (64, 64)] {
        for (over, percent) in [(3_u32, 150), (4, 200), (8, 400)] {
            let n = (over * pcpus / 2).div_ceil(width);
            for kind in ["burn'", "barrier', work = '300us'", "spinlock', think = '200us', hold = '10us', dist = 'exponential'"] {
                let text = host("5s", pcpus)
                    + &(0..n).map(|i| vm(&format!("vm{i}"), width, &format!("workload = {{ kind = '{kind} }}"))).collect::<String>();
                for mode in 0..2 {
                    let out = outcome("skew", mode, &text);
                    let v = out.verdict.as_ref().unwrap();
                    let (mut work, mut spin) = (0, 0);
                    for x in &out.result.vms {
                        work += x.times.work;
                        spin += x.guest.map_or(0, |g| g.spin_ns);
                    }
                    println!(
                        "{width} x {n} on {pcpus} ({percent} %), {kind}, cosched {mode}: skew {} us, costop {} us, work {:.1} %, spin {:.1} %, switches {}, violated {} {:?}",
                        v.skew_max_ns / 1000,
                        v.costop_max_ns / 1000,
                        work as f64 / 5e7 / f64::from(pcpus),
                        spin as f64 / 5e7 / f64::from(pcpus),
                        out.stats.switches,
                        v.violated(),
                        v.violations.first().map(ToString::to_string)
                    );
                }
            }
        }
    }
}
