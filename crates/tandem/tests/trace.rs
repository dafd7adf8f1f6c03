//! The commands `tandem sim --trace` and `tandem trace`: their output and their exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/data/rdy.log");

fn tandem(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tandem"))
        .args(words)
        .current_dir(ROOT)
        .output()
        .expect("it runs")
}

/// What a command prints, which has to end well.
fn out(words: &[&str]) -> String {
    let done = tandem(words);
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

/// Exit code, standard output and error of a command.
fn ends(words: &[&str]) -> (i32, String, String) {
    let done = tandem(words);
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (done.status.code().expect("it ended by itself"), text(&done.stdout), text(&done.stderr))
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A trace of so many seconds of two-at-20.
fn recorded(name: &str, duration: &str) -> String {
    let path = file(name).to_string_lossy().into_owned();
    let text =
        out(&["sim", "two-at-20", "--run", "to the end", "--duration", duration, "--trace", &path]);
    assert!(
        text.contains(&format!("trace: {path}; look at it by: tandem trace waits {path}\n")),
        "{text}"
    );
    path
}

#[test]
fn a_trace_is_of_one_run_and_which_is_said_by_its_label() {
    let path = file("none.trace").to_string_lossy().into_owned();
    let (code, _, error) = ends(&["sim", "two-at-20", "--trace", &path]);
    let want = "tandem: --trace: cannot record: seen 2 runs, allowed one; name it by --run: 'to \
        the end', 'preempting'\n";
    assert_eq!((code, error.as_str()), (2, want));
    let (code, _, error) = ends(&["sim", "two-at-20", "--run", "x"]);
    assert_eq!(
        (code, error.as_str()),
        (
            3,
            "tandem: scenario two-at-20: cannot find run 'x': allowed 'to the end', 'preempting'\n"
        )
    );
    let one = out(&["sim", "two-at-20", "--run", "preempting", "--duration", "2s", "--json", "-"]);
    assert_eq!(one.matches("\"label\"").count(), 1);
    let (code, _, error) =
        ends(&["sim", "two-at-20", "--run", "preempting", "--trace", "/no/such/folder/x.trace"]);
    assert!(
        code == 1 && error.starts_with("tandem: /no/such/folder/x.trace: cannot write the trace: "),
        "{error}"
    );
}

#[test]
fn the_log_of_a_trace_is_read_again_and_says_the_same() {
    let trace = recorded("log.trace", "3s");
    let full = out(&["trace", "log", "--full", &trace]);
    assert!(full.lines().count() > 10_000);
    let log = file("log.txt").to_string_lossy().into_owned();
    fs::write(&log, &full).expect("written");
    assert_eq!(out(&["trace", "log", "--full", &log]), full);
    for command in [["waits", "--most=5"], ["table", "--step=10ms"]] {
        assert_eq!(
            out(&["trace", command[0], command[1], &log]),
            out(&["trace", command[0], command[1], &trace])
        );
    }
    let rdy = out(&["trace", "log", &trace]);
    assert!(
        rdy.contains(" SETRUNSTATE 1 RUN\n")
            && rdy.contains(" SWITCH 0 1\n")
            && rdy.contains(" QUEUEADD 2\n")
    );
}

#[test]
fn the_sample_of_rdy_is_printed_letter_by_letter() {
    assert_eq!(out(&["trace", "log", SAMPLE]), fs::read_to_string(SAMPLE).expect("the sample"));
    let table = out(&["trace", "table", SAMPLE]);
    assert!(table.contains("       5          19.000     ?     ?  1180     ?\n"), "{table}");
}

#[test]
fn filters_leave_what_was_asked_for() {
    let trace = recorded("filter.trace", "3s");
    let of_a = out(&["trace", "log", "--full", "--vm", "a", &trace]);
    assert!(of_a.contains("SETRUNSTATE 1 ") && !of_a.contains("SETRUNSTATE 2 "));
    assert_eq!(of_a, out(&["trace", "log", "--full", "--world", "a/vcpu0", "--vm", "1", &trace]));
    assert!(!out(&["trace", "log", "--pcpu", "0", &trace]).is_empty());
    let part = out(&["trace", "log", "--full", "--from", "1s", "--to", "1020ms", &trace]);
    let times = |text: &str| {
        text.lines()
            .filter_map(|l| l.split(' ').nth(2)?.split('.').next()?.parse().ok())
            .collect::<Vec<u64>>()
    };
    let events: Vec<u64> = times(&part).into_iter().filter(|us| *us > 0).collect();
    assert!(
        events.len() > 3 && events.iter().all(|us| (1_000_000..1_020_000).contains(us)),
        "{events:?}"
    );
    let table =
        out(&["trace", "table", "--from", "1s", "--to", "1100ms", "--step", "50ms", &trace]);
    assert_eq!(table.lines().count(), 3, "{table}");
    let waits = out(&["trace", "waits", "--vm", "b", "--most", "1", &trace]);
    assert!(waits.contains(" b/vcpu0, woken by interrupt, instead a/vcpu0 for "), "{waits}");
    assert!(
        waits.lines().any(|l| l.ends_with("  b")) && !waits.lines().any(|l| l.ends_with("  a")),
        "{waits}"
    );
    let (code, _, error) = ends(&["trace", "waits", "--vm", "mail", &trace]);
    assert_eq!(
        (code, error.as_str()),
        (3, "tandem: trace: cannot find VM 'mail': allowed 'system', 'a', 'b'; give one of them\n")
    );
}

#[test]
fn waits_as_json_have_every_wait_and_the_sums() {
    let trace = recorded("json.trace", "3s");
    let json: serde_json::Value =
        serde_json::from_str(&out(&["trace", "waits", "--json", "-", &trace])).expect("JSON");
    let waits = json["waits"].as_array().expect("waits");
    assert!(waits.len() > 1000 && waits[0]["ns"].as_u64() >= waits[1]["ns"].as_u64());
    let late: u64 =
        json["vms"].as_array().expect("VMs").iter().filter_map(|v| v["late"].as_u64()).sum();
    assert_eq!(Some(late), json["all"]["late"].as_u64());
    assert_eq!(
        (json["all"]["wrong_idle"].as_u64(), json["brief_ns"].as_u64(), json["begin_ns"].as_u64()),
        (Some(0), Some(100_000), Some(0))
    );
}

#[test]
fn a_damaged_trace_is_shown_as_far_as_it_goes_and_ends_with_8() {
    let trace = recorded("whole.trace", "3s");
    let whole = fs::read(&trace).expect("the trace");
    let cut = file("cut.trace").to_string_lossy().into_owned();
    fs::write(&cut, &whole[..whole.len() * 2 / 3]).expect("written");
    let (code, text, error) = ends(&["trace", "waits", &cut]);
    assert!(code == 8 && text.contains(" waits, "), "{code} {text}");
    assert!(
        error.contains("the trace is damaged; ")
            && error.contains(": the file ends before the trace does, "),
        "{error}"
    );
    let bad = file("bad.trace").to_string_lossy().into_owned();
    let mut bytes = whole;
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    fs::write(&bad, &bytes).expect("written");
    for command in ["log", "table"] {
        let (code, text, error) = ends(&["trace", command, &bad]);
        assert!(
            code == 8 && text.lines().count() > 1000 && error.contains(" events are missing"),
            "{command}: {code} {error}"
        );
    }
    let picture = file("bad.pftrace").to_string_lossy().into_owned();
    assert_eq!(ends(&["trace", "export", &bad, &picture]).0, 8);
    assert!(fs::metadata(&picture).expect("it was written").len() > 100_000);
}

#[test]
fn what_is_no_trace_is_refused_with_3() {
    let (code, _, error) = ends(&["trace", "log", "Cargo.toml"]);
    assert!(
        code == 3 && error.contains("cannot read it, neither as a trace nor as a log"),
        "{error}"
    );
    let (code, _, error) = ends(&["trace", "log", env!("CARGO_BIN_EXE_tandem")]);
    assert!(code == 3 && error.contains("without a block of a trace"), "{error}");
    let (code, _, error) = ends(&["trace", "log", "no-such-file"]);
    assert!(code == 3 && error.starts_with("tandem: no-such-file: cannot open it: "), "{error}");
}

#[test]
fn a_picture_is_for_perfetto_or_by_its_name_for_chrome() {
    let trace = recorded("picture.trace", "3s");
    let path = |name: &str| file(name).to_string_lossy().into_owned();
    let (json, native) = (path("picture.json"), path("picture.pftrace"));
    out(&["trace", "export", &trace, &json, "--to", "100ms"]);
    let read: serde_json::Value =
        serde_json::from_slice(&fs::read(&json).expect("JSON")).expect("JSON");
    assert!(read["traceEvents"].as_array().expect("events").len() > 100);
    out(&["trace", "export", &trace, &native]);
    // The first packet: field 1, a message; ui.perfetto.dev knows the format by this byte.
    assert_eq!(fs::read(&native).expect("protobuf").first(), Some(&0x0a));
    let (code, _, error) = ends(&["trace", "table", &trace, "--step", "1ns"]);
    assert!(code == 2 && error.contains("cannot make rows every 1 ns"), "{error}");
}
