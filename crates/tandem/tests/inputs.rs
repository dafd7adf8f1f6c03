//! What a command is given: files without end or that are folders, amounts below zero, values that
//! no option has. Each ends with its code, and the message names what is allowed.

use std::fs;
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Exit code, standard output and standard error.
fn ends(words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command.args(words).current_dir(ROOT).env("HOME", env!("CARGO_TARGET_TMPDIR"));
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// Each is refused with the code, and the error has the text.
fn refused(all: &[(&[&str], i32, &str)]) {
    for (words, code, want) in all {
        let (seen, _, error) = ends(words);
        assert!(seen == *code && error.contains(want), "{words:?}: {seen} {error}");
    }
}

#[test]
fn what_has_no_end_is_refused_wherever_a_file_is_read() {
    let more = "more than 16 MiB, which is the most that is read";
    let plan = ["vnuma", "plan", "--vcpus", "4", "--memory", "1G", "--name", "x", "--remember"];
    refused(&[
        (&["sim", "/dev/zero"], 3, more),
        (&["reproduce", "/dev/zero"], 3, more),
        (&["report", "/dev/zero", "-o", "-"], 3, more),
        (&["trace", "waits", "/dev/zero"], 3, more),
        (&["top", "--file", "/dev/zero", "-b"], 3, more),
        (&["top", "--sim", "demo", "--once", "-c", "/dev/zero"], 3, more),
        (&[&plan[..], &["/dev/zero"]].concat(), 3, more),
    ]);
}

#[test]
fn a_number_that_is_none_is_refused_with_what_is_allowed() {
    let waits = ["trace", "waits", "x", "--most"];
    let plan = ["vnuma", "plan", "--memory", "1G", "--vcpus"];
    let check = ["vnuma", "check", "--vcpus", "8", "2x1x8x2:64G"];
    let whole = |option: &str, range: &str| {
        format!("for '{option} <N>': allowed a whole number of {range}\n")
    };
    let [most, vcpus, size, min, jobs] = [
        whole("--most", "0..18446744073709551615"),
        whole("--vcpus", "1..1024"),
        whole("--size", "1..1024"),
        whole("--min", "0..4294967295"),
        whole("--jobs", "1..65535"),
    ];
    let time = "invalid value 'text' for '--interval <SECONDS>': allowed seconds above 0, such as \
        2.5, or a time, such as 500ms\n";
    refused(&[
        (&[&waits[..], &["-1"]].concat(), 2, &most),
        (&[&waits[..], &["x"]].concat(), 2, &most),
        (&["trace", "check", "x", "--most", "1.5"], 2, &most),
        (&["trace", "check", "x", "--hz", "23"], 2, "allowed a whole number of 24..10000\n"),
        (&[&plan[..], &["x"]].concat(), 2, &vcpus),
        (&[&check[..], &["--size", "0"]].concat(), 2, &size),
        (&[&check[..], &["--min", "x"]].concat(), 2, &min),
        (&["admit", "--vm", "x", "--reservation", "1%", "--vcpus", "0"], 2, &vcpus),
        (&["reproduce", "--jobs", "x"], 2, &jobs),
        (&["top", "-n", "x"], 2, "allowed a whole number of 1..18446744073709551615\n"),
        (&["top", "--sim", "demo", "--pace", "x"], 2, "allowed a number of 0.001 to 1000000\n"),
        (&["top", "--sim", "demo", "-d", "text"], 2, time),
    ]);
}

#[test]
fn an_empty_list_is_said_to_be_one() {
    let none = "scenario demo: cannot find run 'x': seen one run, without a label; leave --run out";
    let two = "scenario two-at-20: cannot find run 'x': allowed 'to the end', 'preempting'\n";
    let both = "the argument '--scenario <NAME>' cannot be used with '--interval <INTERVAL>'";
    refused(&[
        (&["sim", "demo", "--run", "x"], 3, none),
        (&["top", "--sim", "demo", "--once", "--run", "x"], 3, none),
        (&["plan", "--scenario", "demo", "--run", "x"], 3, none),
        (&["plan", "--scenario", "demo", "--interval", "1s"], 2, both),
        (&["admit", "--scenario", "demo", "--run", "x"], 3, none),
        (&["admit", "--scenario", "two-at-20", "--run", "x"], 3, two),
        (&["sim", ""], 3, "tandem: scenario '': cannot read: "),
        (&["report", "a=", "-o", "-"], 3, "RUN 'a=': seen the empty name of a file, allowed "),
    ]);
}

#[test]
fn a_scenario_that_is_refused_names_the_key_what_was_seen_and_what_is_allowed() {
    let vm = "[[vm]]\nname = 'a'\nvcpus = 2\n";
    let said = |host: &str, rest: &str| {
        let path = format!("{}/refused.toml", env!("CARGO_TARGET_TMPDIR"));
        let text = format!("duration = '4s'\n[host]\ncores_per_llc = 4\n{host}\n{vm}{rest}");
        fs::write(&path, text).expect("written");
        let (code, _, error) = ends(&["sim", &path]);
        assert_eq!(code, 3, "{error}");
        error.trim_end().rsplit("\n  - ").next().unwrap_or_default().to_owned()
    };
    let host = "topology: cannot build a host: ";
    for (key, want) in [
        ("nodes_per_socket = 0", "nodes_per_socket: seen 0, allowed 1..1024"),
        ("nodes_per_socket = 9999", "nodes_per_socket: seen 9999, allowed 1..1024"),
        ("threads_per_core = 9", "threads_per_core: seen 9, allowed 1..8"),
        ("sockets = 300", "pCPUs of all levels together: seen 1200, allowed 1..1024"),
    ] {
        assert_eq!(said(key, ""), format!("{host}{want}"));
    }
    let twice = said("", "[[run]]\nlabel = 'x'\n[[run]]\nlabel = 'x'\n");
    assert_eq!(twice, "run 'x': two have this label; each needs its own");
    assert_eq!(said("", "[[run]]\n"), "run: label: seen none, allowed one for each [[run]]");
}

#[test]
fn a_tree_that_is_not_admitted_names_where_too_much_is_reserved() {
    let path = format!("{}/reserved.toml", env!("CARGO_TARGET_TMPDIR"));
    let vm = |name: &str, pool: &str| {
        format!("[[vm]]\nname = '{name}'\nvcpus = 2\nreservation = '150%'\n{pool}\n")
    };
    let pool = |name: &str| format!("[[pool]]\nname = '{name}'\nlimit = '50%'\n");
    let mut text = "duration = '4s'\n[host]\ncores_per_llc = 2\n".to_owned();
    text += &(vm("a", "") + &vm("b", ""));
    fs::write(&path, &text).expect("written");
    let seen = "tandem: not admitted: more is reserved than there is in ";
    refused(&[(&["admit", "--scenario", &path], 7, &format!("{seen}/\n"))]);
    for i in 0..6 {
        text += &(pool(&format!("p{i}")) + &vm(&format!("v{i}"), &format!("pool = 'p{i}'")));
    }
    fs::write(&path, &text).expect("written");
    let many = format!("{seen}/, /p0, /p1, /p2, /p3 and 2 more\n");
    refused(&[(&["admit", "--scenario", &path], 7, &many)]);
}

#[test]
fn what_is_no_trace_says_what_is_one() {
    refused(&[
        (&["trace", "waits", "docs"], 3, "tandem: docs: cannot open it: is a directory; name a"),
        (&["trace", "waits", "/dev/null"], 3, "seen an empty file, allowed what 'tandem sim"),
        (&["top", "--sim", "demo", "--once", "-c", "no.toml"], 3, "no.toml: cannot read the "),
    ]);
    // The cause is said once.
    let (_, _, error) = ends(&["top", "--file", "/no/such.csv"]);
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
    let (_, _, error) = ends(&["top", "--file", "README.md"]);
    assert_eq!(error.matches("scheduler log line").count(), 1, "{error}");
}

#[test]
fn a_batch_file_is_read_of_a_pipe() {
    let csv = format!("{}/inputs.csv", env!("CARGO_TARGET_TMPDIR"));
    let (_, text, _) = ends(&["top", "--sim", "demo", "--duration", "12s", "-b"]);
    fs::write(&csv, text).expect("written");
    let piped = "cat \"$1\" | \"$0\" top --file /dev/stdin --once";
    let mut shell = Command::new("sh");
    let shown = shell.args(["-c", piped, env!("CARGO_BIN_EXE_tandem"), &csv]).output();
    let shown = String::from_utf8(shown.expect("it starts").stdout).expect("UTF-8");
    assert!(shown.contains("database"), "{shown}");
}

#[test]
fn amounts_below_zero_are_values_and_knobs_are_refused_input() {
    let admit = ["admit", "--scenario", "demo", "--vm", "x", "--reservation", "-5%"];
    let plan = ["vnuma", "plan", "--vcpus", "4", "--memory"];
    let below = "invalid value '-1";
    let quantum = "knob 'quantum_us': cannot set '-1': allowed 1000..1000000 us, default 50000";
    refused(&[
        (&["sim", "demo", "--seed", "-1"], 2, "allowed a whole number of 0..18446744073709551615"),
        (&["sim", "demo", "--duration", "-1s"], 2, below),
        (&["top", "--sim", "demo", "-b", "-d", "-1"], 2, below),
        (&[&plan[..], &["-1G"]].concat(), 2, below),
        (&admit, 2, "CPU amount: cannot use '-5%': seen less than 0"),
        (&["sim", "demo", "--set", "quantum_us=-1"], 3, quantum),
        (&["sim", "demo", "--set", "cosched=nope"], 3, "allowed off, relaxed, strict or 0..2, "),
        (&["sim", "demo", "--set", "no_such=x"], 3, "knob 'no_such': cannot set it: there is no"),
        (&["sim", "demo", "--set", "quantum_us"], 2, "allowed NAME=NUMBER"),
    ]);
}

#[test]
fn values_that_no_option_has_are_refused_in_every_form() {
    let name = ["vnuma", "plan", "--vcpus", "4", "--memory", "1G", "--name"];
    let pace = "--pace: cannot play so: seen ";
    refused(&[
        (&["top", "--sim", "demo", "--once", "--pace", "nan"], 2, pace),
        (&["top", "--sim", "demo", "-b", "--pace", "0"], 2, pace),
        (&["top", "--sim", "demo", "--json", "--pace", "inf"], 2, pace),
        (&[&name[..], &[""]].concat(), 3, "--name: cannot call a VM so: seen \"\", allowed one or"),
        (&[&name[..], &["a\tb"]].concat(), 3, "--name: cannot call a VM so: seen \"a\\tb\""),
    ]);
}

#[test]
fn a_trace_that_cannot_be_shown_so_has_a_next_step() {
    let trace = format!("{}/inputs.trace", env!("CARGO_TARGET_TMPDIR"));
    let (code, _, error) = ends(&["sim", "smoke", "--duration", "3s", "--trace", &trace]);
    assert_eq!(code, 0, "{error}");
    refused(&[
        (&["trace", "export", &trace, "/dev/full"], 1, "; name a file that can be written"),
        (&["trace", "table", &trace, "--step", "0s"], 2, "every 0 ns: allowed a step of 1 ns or "),
    ]);
}

#[test]
fn a_scenario_that_is_named_twice_is_done_once() {
    let short = ["--seeds", "1", "--quiet", "--json", "-"];
    let (code, once, error) = ends(&[&["reproduce", "two-at-20"][..], &short].concat());
    assert_eq!(code, 0, "{error}");
    let twice = ["reproduce", "two-at-20", "scenarios/two-at-20", "two-at-20"];
    assert_eq!(ends(&[&twice[..], &short].concat()), (0, once, String::new()));
}

#[cfg(feature = "live")]
#[test]
fn the_next_step_without_a_daemon_is_one_that_the_command_has() {
    let refusal = |words: &[&str]| ends(words).2;
    for words in [&["reload"][..], &["trace", "record", "-o", "/dev/null"]] {
        let error = refusal(words);
        assert!(error.ends_with("; start 'tandem run' first\n"), "{words:?}: {error}");
    }
    let kernel = refusal(&["top", "--once"]);
    assert!(kernel.contains("first, or use --kernel for the kernel's own accounts"), "{kernel}");
    for words in [&["plan"][..], &["admit"], &["numa", "explain"]] {
        let error = refusal(words);
        assert!(error.contains("first, or ask about a scenario (--scenario NAME)"), "{error}");
    }
}

#[cfg(feature = "live")]
#[test]
fn raw_records_that_are_none_are_damaged_and_named() {
    let raw = format!("{}/inputs.raw", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&raw, [7; 100]).expect("written");
    let out = format!("{raw}.trace");
    let named = format!("{raw}: records of a trace: cannot read them: ");
    refused(&[
        (&["trace", "record", "--salvage", &raw, "-o", &out], 8, &named),
        (&["trace", "record", "--salvage", "/no/such.raw", "-o", &out], 3, "/no/such.raw: "),
    ]);
    assert!(!fs::exists(&out).expect("it can be known"), "no trace of nothing");
}
