//! pCPUs that go off line and come on line again while worlds run: every world goes on, what is
//! left of the host is divided as ever, and nothing of the scheduler's is lost.

use sim::{Options, Outcome, Ticks, run};
use std::{fs, path::PathBuf};

fn outcome(name: &str, text: &str, options: &Options) -> Result<Outcome, String> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("hotplug-{name}.toml"));
    fs::write(&path, text).expect("the test's folder can be written");
    let scenario =
        settings::load(&path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    run(&scenario.runs[0], options).map_err(|e| e.to_string())
}

/// Runs under the oracle, which must find nothing.
fn silent(name: &str, text: &str, ticks: Ticks) -> Outcome {
    let options = Options { ticks, ..Options::default() };
    let out = outcome(name, text, &options).unwrap_or_else(|e| panic!("{name} {ticks:?}: {e}"));
    let verdict = out.verdict.as_ref().expect("the oracle watches");
    let first: Vec<String> = verdict.violations.iter().take(3).map(ToString::to_string).collect();
    assert_eq!(verdict.violated(), 0, "{name} {ticks:?}: {}", first.join("\n"));
    out
}

fn used_ms(out: &Outcome, name: &str) -> u64 {
    let of = out.result.vms.iter().filter(|v| v.name.starts_with(name));
    of.map(|v| v.times.used_ns).sum::<u64>() / 1_000_000
}

/// Half of eight pCPUs are off line for half of the time.
const HALF: &str = "[[offline]]\npcpus = '4-7'\nfrom = '2s'\nto = '6s'\n";

#[test]
fn what_is_left_of_the_host_is_divided_by_shares() {
    let text = format!(
        "duration = '8s'\n[host]\ncores_per_llc = 8\n{HALF}\
            [[vm]]\nname = 'rich'\nvcpus = 8\nshares = 6000\n\
            [[vm]]\nname = 'poor'\nvcpus = 8\nshares = 2000\n"
    );
    for ticks in [Ticks::Aligned, Ticks::Staggered] {
        let out = silent("shares", &text, ticks);
        // 4 s of eight pCPUs and 4 s of four: 48 s, 3:1.
        let (rich, poor) = (used_ms(&out, "rich"), used_ms(&out, "poor"));
        println!("{ticks:?}: rich {rich} ms, poor {poor} ms");
        assert!(rich + poor >= 47_980, "{rich} + {poor} ms: nothing of 48 s is wasted");
        assert!(rich.abs_diff(36_000) <= 100, "{rich} ms: two quanta of 36 s");
    }
}
