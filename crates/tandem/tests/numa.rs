//! `tandem numa` as people call it.

use std::process::{Command, Output};

pub(crate) fn tandem(args: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_tandem"))
        .current_dir(root)
        .args(args)
        .output()
        .expect("tandem starts")
}

#[test]
fn every_decision_on_a_home_is_explained() {
    let out = tandem(&["numa", "explain", "vm-1", "--scenario=three-on-two", "--run", "4-vcpu"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{out:?}");
    for part in ["vm-1, client 0: 4 vCPUs, home node", "homes by reason: fairness", "some VM lacks"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("vm-2"), "{text}");
    let out = tandem(&[
        "numa",
        "explain",
        "--scenario=three-on-two",
        "--run",
        "2-vcpu",
        "--duration",
        "30s",
        "--json",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("it is JSON");
    assert_eq!(json[0][1].as_array().map(Vec::len), Some(3), "{json}");
}

/// A VM of three on nodes of two cores keeps to the pace of its two vCPUs beside another VM.
#[test]
fn lag_beside_homes_is_a_note_and_no_failure() {
    let numa = "[hardware]\n[numa]\nmemory = ['8GiB']\n";
    let text = format!("duration = '2s'\n[host]\nsockets = 8\ncores_per_llc = 2\n{numa}")
        + &[("wide", 3, 1), ("four", 4, 2), ("two", 2, 3)]
            .map(|(name, vcpus, n)| {
                format!("[[vm]]\nname = '{name}'\nvcpus = {vcpus}\ncount = {n}\n")
            })
            .concat();
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let seen = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("the test's folder can be written");
        tandem(&["sim", &path.to_string_lossy()])
    };
    let out = seen("beside-homes.toml", &text);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("VM wide was up to"), "{out:?}");
    let out = seen("no-homes.toml", &text.replace(numa, ""));
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    // Without the oracle nothing is known of lag.
    let out = tandem(&["sim", "--no-check", &dir.join("beside-homes.toml").to_string_lossy()]);
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    for (args, part) in [
        (["demo", "x"], "seen no [numa] with [hardware]"),
        (["three-on-two", "x"], "cannot explain VM 'x': allowed vm-1, vm-2, vm-3; all of them"),
        (["three-on-two", "--run=x"], "cannot find run 'x': allowed '4-vcpu'"),
        (["three-on-two", "--set=no_such_knob=1"], "no_such_knob"),
        (["no-such-scenario", "x"], "no-such-scenario"),
    ] {
        let out = tandem(&["numa", "explain", "--scenario", args[0], args[1]]);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{text}");
        assert!(text.contains(part), "{part} in {text}");
    }
    let out = tandem(&["numa", "explain", "web"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(4) && text.contains("daemon: cannot"), "{out:?}");
    let out = tandem(&["numa", "explain", "--seed=7"]);
    assert_eq!(out.status.code(), Some(2), "a host has no seed: {out:?}");
}

#[test]
fn knobs_and_the_seed_are_those_of_the_line() {
    let short = ["--run=4-vcpu", "--duration=30s", "--seed=7", "--set=quantum_us=20000"];
    let words = [&["numa", "explain", "--scenario=three-on-two"][..], &short[..]].concat();
    let out = tandem(&words);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{out:?}");
    let first = text.lines().next().expect("a line");
    assert!(first.starts_with("three-on-two: ") && first.ends_with("seed 7)"), "{text}");
    assert_eq!(text.matches("client 0: 4 vCPUs").count(), 3, "{text}");
    assert_eq!(tandem(&words).stdout, out.stdout, "the same bytes");
}

#[test]
fn sim_shows_the_homes_of_a_run_that_has_some_after_what_was_lost_and_moved() {
    let out = tandem(&["sim", "three-on-two", "--run=4-vcpu", "--duration=30s", "--no-check"]);
    let text = String::from_utf8_lossy(&out.stdout);
    let heads: Vec<_> = text.lines().filter(|l| l.starts_with("VM ")).collect();
    let homes = heads.iter().position(|l| l.contains("N%L")).expect("a table of homes");
    assert!(heads[homes].contains("moved MiB") && homes + 1 == heads.len(), "{text}");
    let out = tandem(&["sim", "smoke", "--no-check"]);
    assert!(!String::from_utf8_lossy(&out.stdout).contains("N%L"), "it has no [numa]");
}

/// The last round before the end is the one of 28 s: what the run itself shows 2 s later is nearly
/// the same, and of the VM that has never moved exactly.
#[test]
fn top_shows_where_memory_is_from_a_trace_too() {
    let trace = std::env::temp_dir().join(format!("tandem-numa-{}.trace", std::process::id()));
    let file = trace.to_str().expect("a path").to_owned();
    let of = ["three-on-two", "--run=4-vcpu", "--duration=30s"];
    let run = tandem(&[&["sim"][..], &of, &["--no-check", "--trace", &file]].concat());
    assert!(run.status.success(), "{run:?}");
    let rows = |args: &[&str]| -> Vec<Vec<String>> {
        let shown = ["--panel=memory", "--once", "-n6"];
        let out = tandem(&[&["top"][..], args, &shown].concat());
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let of_vms = text.lines().filter(|l| l.contains("vm-"));
        of_vms.map(|l| l.split_whitespace().skip(2).map(str::to_owned).collect()).collect()
    };
    let traced = rows(&["--file", &file]);
    let seen = rows(&["--sim", of[0], "--run=4-vcpu"]);
    let _ = std::fs::remove_file(&trace);
    assert_eq!((traced.len(), &traced[2]), (3, &seen[2]), "{traced:?} {seen:?}");
    for (a, b) in traced.iter().zip(&seen) {
        assert_eq!(a[..4], b[..4], "name, size, home and changes");
        let at_home = |row: &[String]| row[5].parse::<f64>().expect("MB at home");
        assert!(at_home(a) <= at_home(b) && at_home(a) > 0.0, "{traced:?} {seen:?}");
    }
}
