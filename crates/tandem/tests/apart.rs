//! The command line is judged before anything runs: all runs of a scenario, the part of a trace,
//! files that would be written over; and a signal leaves nothing half-written.

use crate::output::{folder, names, text};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn tandem(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command.args(words).current_dir(ROOT);
    command
}

/// Exit code, standard output and standard error.
fn ends(words: &[&str]) -> (i32, Vec<u8>, String) {
    let Output { status, stdout, stderr } = tandem(words).output().expect("it starts");
    (status.code().expect("no signal"), stdout, String::from_utf8(stderr).expect("UTF-8"))
}

const SCENARIO: &str = r#"
title = "two runs"
duration = "2s"
warmup = "1s"

[host]
cores_per_llc = 1

[[vm]]
name = "a"
vcpus = 1
workload = { kind = "burn" }

[[vm]]
name = "b"
vcpus = 1
workload = { kind = "burn" }

[[run]]
label = "first"
"#;

#[test]
fn all_runs_of_a_scenario_are_judged_before_the_first() {
    let folder = folder("apart-runs");
    let (file, json) = (folder.join("x.toml"), folder.join("x.json"));
    let cases: [(&str, &[&str], &str); 3] = [
        ("set = { \"knobs.quantum_us\" = 5 }", &[], "run 'second': knob"),
        ("set = { \"a.shares\" = 500 }", &["--policy", "fifo"], "run 'second': cannot run it"),
        ("", &["--duration", "1s"], "run 'first': cannot measure 1s"),
    ];
    for (second, words, want) in cases {
        let runs = format!("{SCENARIO}[[run]]\nlabel = \"second\"\n{second}\n");
        fs::write(&file, &runs).unwrap();
        let words = [&["sim", text(&file), "--json", text(&json)], words].concat();
        let (code, out, error) = ends(&words);
        assert_eq!((code, out.len()), (3, 0), "{words:?}: {error}");
        assert!(error.starts_with(&format!("tandem: {want}")), "{words:?}: {error}");
        assert_eq!(names(&folder), ["x.toml"]);
    }
    let short = ["numa", "explain", "--scenario", "three-on-two", "--duration", "1ms"];
    let (code, out, error) = ends(&short);
    assert_eq!((code, out.len()), (3, 0), "{error}");
}

#[test]
fn a_part_of_a_trace_without_events_is_refused_by_every_view() {
    let folder = folder("apart-part");
    let (trace, picture) = (folder.join("x.trace"), folder.join("x.pftrace"));
    let run = ["sim", "two-at-20", "--run", "preempting", "--duration", "2s", "--trace"];
    assert_eq!(ends(&[&run[..], &[text(&trace)]].concat()).0, 0);
    let all: [&[&str]; 6] =
        [&["check"], &["waits"], &["cores"], &["log"], &["table"], &["export", text(&picture)]];
    let parts: [(&[&str], &str); 4] = [
        (&["--from", "5s", "--to", "1s"], "--from 5s --to 1s: cannot look at that part: seen an "),
        (&["--from", "1s", "--to", "1s"], "--from 1s --to 1s: cannot look at that part: seen an "),
        (&["--to", "0s"], "--to 0s: cannot look at that part: seen an empty one, allowed --from "),
        (&["--from", "100s"], "--from 100s: cannot look at that part: seen an empty one, allowed "),
    ];
    for view in all {
        for (part, want) in parts {
            let (name, rest) = view.split_first().unwrap();
            let words = [&["trace", name, text(&trace)], rest, part].concat();
            let (code, out, error) = ends(&words);
            assert_eq!((code, out.len()), (2, 0), "{words:?}: {error}");
            assert!(error.starts_with(&format!("tandem: {want}")), "{words:?}: {error}");
        }
    }
    let (code, out, error) = ends(&["report", text(&trace), "-o", "-", "--from", "100s"]);
    assert_eq!((code, out.len()), (2, 0), "{error}");
    assert!(error.contains("allowed up to ") && error.contains("where the longest trace ends"));
    for view in ["waits", "log", "table"] {
        let (code, out, error) = ends(&["trace", view, text(&trace), "--pcpu", "99"]);
        assert_eq!((code, out.len()), (3, 0), "{view}");
        assert_eq!(error, "tandem: trace: cannot find pCPU '99': allowed 0; give one of them\n");
    }
    assert_eq!(names(&folder), ["x.trace"]);
}

#[test]
fn what_is_read_is_not_written_over_and_no_file_is_written_twice() {
    let folder = folder("apart-twice");
    let path = |name: &str| text(&folder.join(name)).to_owned();
    let (ok, trace, json, new) = (path("ok.toml"), path("d.trace"), path("d.json"), path("new"));
    fs::write(&ok, SCENARIO).unwrap();
    assert_eq!(ends(&["sim", &ok, "--trace", &trace, "--json", &json]).0, 0);
    std::os::unix::fs::symlink("d.json", folder.join("link")).unwrap();
    let link = path("link");
    let before: Vec<Vec<u8>> = [&ok, &trace, &json].map(|p| fs::read(p).unwrap()).into();
    let there = names(&folder);
    let all: [&[&str]; 13] = [
        &["sim", &ok, "--json", &ok],
        &["sim", &ok, "--trace", &ok],
        &["sim", &ok, "--trace", &new, "--json", &new],
        &["sim", &ok, "--trace", "-", "--json", "-"],
        &["trace", "export", &trace, &trace],
        &["trace", "waits", &trace, "--json", &trace],
        &["trace", "check", &trace, "--json", &trace],
        &["trace", "cores", &trace, "--json", &trace],
        &["report", &json, "-o", &json],
        &["report", &format!("x={json},{trace}"), "-o", &link],
        &["reproduce", "two-at-20", "--json", "-", "-o", "-"],
        &["reproduce", "two-at-20", "--json", &new, "-o", &new],
        &["reproduce", "two-at-20", "--json", "scenarios/two-at-20/scenario.toml"],
    ];
    for words in all {
        let (code, out, error) = ends(words);
        assert_eq!((code, out.len()), (2, 0), "{words:?}: {error}");
        assert!(error.contains(": cannot write there: seen the file that is "), "{error}");
    }
    let after: Vec<Vec<u8>> = [&ok, &trace, &json].map(|p| fs::read(p).unwrap()).into();
    assert!(before == after && names(&folder) == there);
}

#[test]
fn a_trace_and_a_picture_can_go_to_standard_output() {
    let folder = folder("apart-stdout");
    let trace = folder.join("x.trace");
    let run = ["sim", "two-at-20", "--run", "preempting", "--duration", "2s", "--trace"];
    assert_eq!(ends(&[&run[..], &[text(&trace)]].concat()).0, 0);
    let (code, out, said) = ends(&[&run[..], &["-"]].concat());
    assert_eq!((code, out == fs::read(&trace).unwrap()), (0, true));
    assert!(said.starts_with("two-at-20: ") && !said.contains("trace: -"), "{said}");
    let (code, out, _) = ends(&["trace", "export", text(&trace), "-"]);
    assert_eq!((code, out.first()), (0, Some(&0x0a)));
    assert!(!Path::new(ROOT).join("-").exists());
}

#[test]
fn a_signal_leaves_no_half_written_file() {
    use rustix::process::{Pid, Signal, kill_process};
    for (name, signal) in [("int", Signal::INT), ("term", Signal::TERM), ("hup", Signal::HUP)] {
        let folder = folder(name);
        let out = folder.join("x");
        let all: [&[&str]; 2] = [
            &["sim", "sleepers", "--duration", "9000s", "--trace", text(&out)],
            &["reproduce", "pool-limit", "-o", text(&out)],
        ];
        for words in all {
            let quiet = tandem(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let mut child = quiet.expect("it starts");
            let begin = Instant::now();
            while names(&folder).is_empty() && begin.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(names(&folder).len(), 1, "{words:?}: it is being written");
            kill_process(Pid::from_child(&child), signal).expect("it is there");
            let status = child.wait().expect("it ends");
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(status.signal(), Some(signal.as_raw()), "{words:?}");
            assert_eq!(names(&folder), [""; 0], "{words:?} {name}");
        }
    }
}
