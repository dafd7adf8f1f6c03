//! The command `tandem top`: batch files, lines and screens of simulated and recorded hosts, and
//! the full screen on a terminal.

use esxtop::{Batch, read};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use views::Document;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn tandem(words: &[&str]) -> Output {
    tandem_in("160", words)
}

fn tandem_in(columns: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command
        .args(words)
        .current_dir(ROOT)
        .env("HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("COLUMNS", columns)
        .output()
        .expect("it runs")
}

/// What a command prints, which has to end well.
fn out(words: &[&str]) -> String {
    let done = tandem(words);
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

/// Exit code and standard error of a command.
fn ends(words: &[&str]) -> (i32, String) {
    let done = tandem(words);
    (
        done.status.code().expect("it ended by itself"),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    )
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The numbers of one counter of one VM.
fn numbers(batch: &Batch, vm: &str, counter: &str) -> Vec<f64> {
    let of = |s: &&esxtop::Series| {
        s.path.instance.as_ref().is_some_and(|i| i.ends_with(&format!(":{vm}")))
    };
    let series =
        batch.of("Group Cpu", counter).find(of).unwrap_or_else(|| panic!("no {counter} of {vm}"));
    series.numbers.iter().map(|n| n.unwrap_or(f64::NAN)).collect()
}

#[test]
fn the_batch_file_of_a_run_says_what_its_result_says() {
    let text = out(&["top", "--sim", "demo", "--duration", "12s", "-b", "-d", "2"]);
    let batch = read(text.as_bytes()).expect("a batch file");
    assert_eq!((batch.unix_ms.len(), batch.host()), (6, Some("demo")));
    let document: Document =
        serde_json::from_str(&out(&["sim", "demo", "--duration", "12s", "--json", "-"]))
            .expect("a document");
    for vm in &document.runs[0].vms {
        let t = &vm.times;
        let all = [
            ("% Used", t.used_ns),
            ("% Run", t.run_ns),
            ("% Ready", t.ready_ns),
            ("% Wait", t.wait_ns),
            ("% Idle", t.idle_ns),
        ];
        for (counter, ns) in all {
            // The result leaves out the warm-up of 2 s: the first sample.
            let seen: f64 = numbers(&batch, &vm.name, counter)[1..]
                .iter()
                .map(|percent| percent / 100.0 * 2e9)
                .sum();
            assert!((seen - ns as f64).abs() <= 5.0 * 1e5, "{} {counter}: {seen} {ns}", vm.name);
        }
        let migrations: f64 =
            numbers(&batch, &vm.name, "Migrates/sec")[1..].iter().map(|rate| rate * 2.0).sum();
        assert!(
            (migrations - t.migrations as f64).abs() < 0.1,
            "{}: {migrations} {}",
            vm.name,
            t.migrations
        );
    }
    assert!(
        text.lines()
            .next()
            .expect("a header")
            .contains(r"\\demo\Vcpu(2003:database:10017:vmx-vcpu-0)\% Ready")
    );
}

#[test]
fn a_trace_becomes_the_same_batch_file() {
    let trace = file("top.trace").to_string_lossy().into_owned();
    out(&["sim", "demo", "--duration", "6s", "--trace", &trace]);
    let of_trace = read(out(&["top", "--file", &trace, "-d", "500ms", "-b"]).as_bytes())
        .expect("a batch file");
    let of_sim =
        read(out(&["top", "--sim", "demo", "--duration", "6s", "-d", "0.5", "-b"]).as_bytes())
            .expect("a batch file");
    assert_eq!((of_trace.unix_ms.len(), of_sim.unix_ms.len()), (12, 12));
    for vm in ["batch", "build", "database", "web"] {
        for counter in ["% Run", "% Ready", "% Wait", "% Idle", "Switches/sec", "Migrates/sec"] {
            let (a, b) = (numbers(&of_trace, vm, counter), numbers(&of_sim, vm, counter));
            // What happens in the first moment is a trace's initial state, and is not counted.
            let (rounding, first) = if counter.ends_with("sec") { (0.0, 1) } else { (0.011, 0) };
            let mut both = a.iter().zip(&b).skip(first);
            let differ = both.any(|(a, b)| (a - b).abs() > rounding || a.is_nan());
            assert!(!differ, "{vm} {counter}: {a:?} {b:?}");
        }
        assert!(
            numbers(&of_trace, vm, "% Used").iter().all(|n| n.is_nan()),
            "a trace tells no charges"
        );
    }
    let used = of_trace.find("Physical Cpu", Some("0"), "% Processor Time").expect("a column");
    assert!(
        used.numbers[1..].iter().all(|n| n.is_some_and(|n| (n - 50.0).abs() < 0.5)),
        "two busy threads of a core: {:?}",
        used.numbers
    );
    let shown = out(&["top", "--file", &trace, "-d", "500ms", "--once", "-n", "3"]);
    assert!(
        shown.contains("CORE UTIL(%)") && shown.find("build") < shown.find("system"),
        "sorted by %RUN: {shown}"
    );
    let core = of_trace.find("Physical Cpu", Some("0"), "% Core Util Time").expect("a column");
    assert!(core.numbers.iter().all(|n| n.is_some_and(|n| n > 99.0)), "{:?}", core.numbers);
}

#[test]
fn a_pcpu_that_is_off_line_is_not_in_use_in_a_trace_either() {
    let trace = file("top-off.trace").to_string_lossy().into_owned();
    let scenario = "crates/sim/tests/data/off-line.toml";
    out(&["sim", scenario, "--trace", &trace]);
    let rates = |from: &[&str]| {
        let text = out(&[&["top", "-b", "-d", "500ms"], from].concat());
        let batch = read(text.as_bytes()).expect("a batch file");
        let of = |pcpu: &str| {
            let column = batch.find("Physical Cpu", Some(pcpu), "% Util Time").expect("a column");
            column.numbers.iter().map(|n| n.expect("known")).collect::<Vec<f64>>()
        };
        ["3", "7"].map(of)
    };
    let (of_trace, of_sim) = (rates(&["--file", &trace]), rates(&["--sim", scenario]));
    for (a, b) in of_trace.iter().zip(&of_sim) {
        assert_eq!(a.len(), 30);
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.011), "{a:?} {b:?}");
    }
    assert!(of_trace[1][4..12].iter().all(|n| *n == 0.0), "{of_trace:?}");
}

#[test]
fn a_log_of_a_hundred_days_is_shown_at_once() {
    let log = file("top-days.log").to_string_lossy().into_owned();
    let lines = ["1 0 0.000 SETRUNSTATE 1 WAIT_IDLE", "2 0 9000000000000.000 SETRUNSTATE 1 RUN"];
    fs::write(&log, lines.join("\n") + "\n").expect("written");
    for n in ["1", "4500000000", "9000000000"] {
        let shown = out(&["top", "--file", &log, "-d", "1ms", "--once", "-n", n]);
        assert!(shown.contains(" 1 worlds"), "{n}: {shown}");
    }
    let batch = out(&["top", "--file", &log, "-d", "1ms", "-b", "-n", "3"]);
    assert_eq!(batch.lines().count(), 4, "{batch}");
}

#[test]
fn a_batch_file_is_shown_as_the_host_was() {
    let csv = file("top.csv");
    fs::write(&csv, out(&["top", "--sim", "demo", "--duration", "12s", "-b", "-d", "2"]))
        .expect("written");
    let csv = csv.to_string_lossy();
    let rows = |text: &str| {
        let begin = text.find("NAME").expect("a header");
        text[begin..]
            .lines()
            .skip(1)
            .map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let live = rows(&out(&["top", "--sim", "demo", "--once", "-d", "2", "-n", "3"]));
    let recorded = rows(&out(&["top", "--file", &csv, "--once", "-n", "3"]));
    let vm = |rows: &[Vec<String>], name: &str| {
        rows.iter().find(|r| r.contains(&name.to_owned())).expect("the VM").clone()
    };
    for name in ["batch", "build", "database", "web"] {
        assert_eq!(vm(&live, name), vm(&recorded, name));
    }
    let last = out(&["top", "--file", &csv, "--once", "-n", "99", "--filter", "WEB"]);
    assert!(
        last.contains(" web ") && !last.contains("build") && last.contains("up 0:00:10"),
        "{last}"
    );
}

#[test]
fn lines_of_json_have_the_same_numbers() {
    let text = out(&["top", "--sim", "demo", "--json", "-n", "2", "-d", "1"]);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (lines[1]["unix_seconds"].as_i64(), lines[1]["interval_ms"].as_u64()),
        (Some(946_684_802), Some(1000))
    );
    let web = lines[1]["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .find(|g| g["name"] == "web")
        .expect("web")
        .clone();
    assert!(
        web["run_pct"].as_f64().expect("a number") > 10.0
            && web["kind"] == "vm"
            && web["vcpus"] == 2,
        "{web}"
    );
}

#[test]
fn what_cannot_be_shown_is_said_with_its_code() {
    let (code, error) = ends(&["top", "--file", "README.md"]);
    assert_eq!(code, 3);
    assert!(
        error.contains("README.md: cannot show it: ")
            && error.contains("allowed are a batch file of esxtop"),
        "{error}"
    );
    assert_eq!(ends(&["top", "--file", "/no/such.csv", "-b"]).0, 3);
    assert_eq!(ends(&["top", "--sim", "no-such-scenario", "-b"]).0, 3);
    let (code, error) = ends(&["top", "--sim", "two-at-20", "--run", "x", "-b"]);
    assert_eq!(
        (code, error.contains("cannot find run 'x': allowed 'to the end', 'preempting'")),
        (3, true),
        "{error}"
    );
    for wrong in [["-d", "0"], ["-d", "1us"], ["-n", "0"]] {
        assert_eq!(ends(&["top", "--sim", "demo", "-b", wrong[0], wrong[1]]).0, 2, "{wrong:?}");
    }
    let config = file("bad.toml");
    fs::write(&config, "sort = 'size'").expect("written");
    let (code, error) =
        ends(&["top", "--sim", "demo", "--once", "--config", &config.to_string_lossy()]);
    assert!(
        code == 3
            && error.contains(
                "bad.toml: sort: cannot use it: seen 'size', allowed GID, NAME, NWLD, %USED"
            ),
        "{error}"
    );
}

#[test]
fn an_interval_of_the_configuration_may_be_as_short_as_one_of_the_command_line() {
    let config = file("short.toml").to_string_lossy().into_owned();
    fs::write(&config, "interval_s = 0.05").expect("written");
    let lines = |words: &[&str]| {
        out(&[&["top", "--sim", "demo", "--duration", "3s", "-b", "-n", "9"], words].concat())
    };
    let read = lines(&["--config", &config]);
    assert_eq!((read.lines().count(), &read), (10, &lines(&["-d", "50ms"])));
}

#[test]
fn a_result_document_is_of_this_host_alone() {
    for (from, next) in [
        (["--sim", "it's"], r"one sample, or make one by: tandem sim 'it'\''s' --json -"),
        (["--file", "README.md"], "take --json -n 1 for one sample"),
    ] {
        let (code, error) = ends(&[&["top", "--once", "--json"][..], &from].concat());
        let want = format!("tandem: --once --json: cannot use it here: seen {}, ", from[0]);
        assert!(
            code == 2 && error.starts_with(&want) && error.trim_end().ends_with(next),
            "{error}"
        );
    }
    let sample = out(&["top", "--sim", "demo", "--json", "-n", "1"]);
    assert_eq!((sample.lines().count(), sample.starts_with("{\"time\"")), (1, true), "{sample}");
}

#[test]
fn a_damaged_trace_ends_with_8_and_what_is_missing_in_every_form() {
    let trace = file("top-whole.trace").to_string_lossy().into_owned();
    out(&["sim", "demo", "--duration", "6s", "--trace", &trace]);
    let whole = fs::read(&trace).expect("the trace");
    let damaged = |name: &str, bytes: &[u8]| {
        let path = file(name).to_string_lossy().into_owned();
        fs::write(&path, bytes).expect("written");
        path
    };
    let mut head = whole.clone();
    head[3] ^= 1;
    let cases = [
        (
            damaged("top-cut.trace", &whole[..whole.len() / 2]),
            "the file ends before the trace does",
        ),
        (damaged("top-two.trace", &[&whole[..], &whole].concat()), "another trace begins in the"),
        (damaged("top-head.trace", &head), "the head of the file is damaged"),
    ];
    for (path, want) in &cases {
        let forms: [&[&str]; 5] = [
            &["top", "--file", path, "-d", "500ms", "--once"],
            &["top", "--file", path, "-d", "500ms", "-b"],
            &["top", "--file", path, "-d", "500ms", "--json"],
            &["trace", "waits", path],
            &["report", path, "-o", "-"],
        ];
        for words in forms {
            let done = tandem(words);
            let error = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(8), "{words:?}: {error}");
            assert!(error.contains(want) && error.contains(" us: "), "{words:?}: {error}");
            assert!(!done.stdout.is_empty(), "{words:?}: what is there is shown");
        }
    }
    let (_, error) = ends(&["top", "--file", &cases[1].0, "-d", "500ms", "-b"]);
    assert!(error.contains(" events are left out: give it a file of its own\n"), "{error}");
}

#[test]
fn a_filter_leaves_its_groups_in_batch_files_and_lines_too() {
    let run = ["top", "--sim", "demo", "-n", "2", "-d", "1", "--filter", "BUILD"];
    let json = out(&[&run[..], &["--json"]].concat());
    for line in json.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let of = |key: &str| value[key].as_array().expect(key).clone();
        assert_eq!(of("groups").iter().map(|g| g["name"].clone()).collect::<Vec<_>>(), ["build"]);
        assert!(!of("worlds").is_empty() && !of("pcpus").is_empty());
        assert!(of("worlds").iter().all(|w| w["gid"] == of("groups")[0]["gid"]));
    }
    let header = out(&[&run[..], &["-b"]].concat()).lines().next().expect("a header").to_owned();
    assert!(header.contains(":build)") && header.contains(":build:") && !header.contains(":web"));
}

#[test]
fn an_option_without_effect_is_refused() {
    let csv = file("effect.csv").to_string_lossy().into_owned();
    fs::write(&csv, out(&["top", "--sim", "demo", "-b", "-n", "2", "-d", "1"])).expect("written");
    let all: [&[&str]; 11] = [
        &["--file", &csv, "--run", "x", "--once"],
        &["--file", &csv, "--seed", "1", "--once"],
        &["--file", &csv, "--duration", "1s", "--once"],
        &["--file", &csv, "--once", "--pools"],
        &["--file", &csv, "--once", "--settings"],
        &["--file", &csv, "-b", "--step", "1ms"],
        &["--file", &csv, "-b", "--worlds"],
        &["--file", &csv, "--json", "--panel", "memory"],
        &["--file", &csv, "--json", "--once", "-n", "2"],
        &["--kernel", "--once", "--filter", "x"],
        &["--kernel", "--once", "--pace", "2"],
    ];
    for words in all {
        let (code, error) = ends(&[&["top"], words].concat());
        assert_eq!(code, 2, "{words:?}: {error}");
    }
    let (_, error) = ends(&["top", "--file", &csv, "-b", "--worlds"]);
    let want = "tandem: --worlds: cannot use it here: seen lines of samples, on which it has no \
        effect, allowed with tables and screens; leave it out\n";
    assert_eq!(error, want);
}

#[cfg(feature = "live")]
#[test]
fn tables_of_this_host_end_after_their_number() {
    let text = out(&["top", "--kernel", "-n", "2", "-d", "100ms"]);
    assert_eq!(text.matches("entitled").count().max(text.matches("%RUN").count()), 2, "{text}");
    let once = out(&["top", "--kernel", "--once", "-n", "2", "-d", "100ms"]);
    assert!(once.lines().count() < text.lines().count(), "{once}");
}

/// What stands between the marks of a part of docs/top.md that is made from the program.
fn part<'d>(document: &'d str, name: &str) -> &'d str {
    let begin = format!("<!-- made: {name} -->\n");
    let rest = &document[document.find(&begin).expect("its mark") + begin.len()..];
    &rest[..rest.find("<!-- end -->").expect("its end")]
}

#[test]
fn the_document_shows_what_the_program_shows() {
    let path = Path::new(ROOT).join("docs/top.md");
    let mut document = fs::read_to_string(&path).expect("docs/top.md");
    let screen = tandem_in("100", &["top", "--sim", "pools-nested", "--once", "-n", "3"]);
    let screen = String::from_utf8(screen.stdout).expect("text");
    let memory = ["--run", "4-vcpu", "--panel", "memory", "--once", "-n", "6"];
    let memory = [&["top", "--sim", "three-on-two"][..], &memory].concat();
    let memory = String::from_utf8(tandem_in("100", &memory).stdout).expect("text");
    let made = [
        ("screen", format!("```text\n{screen}```\n")),
        ("memory", format!("```text\n{memory}```\n")),
        ("keys", ::top::keys_markdown()),
        ("columns", esxtop::markdown()),
    ];
    let write = std::env::var_os("TANDEM_WRITE_DOCS").is_some();
    for (name, text) in made {
        if write {
            let old = format!("<!-- made: {name} -->\n{}<!-- end -->", part(&document, name));
            document =
                document.replace(&old, &format!("<!-- made: {name} -->\n{text}<!-- end -->"));
        }
        assert_eq!(
            part(&document, name),
            text,
            "docs/top.md: run this test with TANDEM_WRITE_DOCS=1, which writes it anew"
        );
    }
    if write {
        fs::write(&path, document).expect("written");
    }
}

#[test]
fn a_simulated_host_has_the_scheduler_that_is_named() {
    let used = |policy: &str| {
        let words = ["top", "--sim", "shares-ratio", "--run", "1:7", "--duration", "20s"];
        let text = out(&[&words[..], &["-b", "-d", "5", "--policy", policy]].concat());
        let batch = read(text.as_bytes()).expect("a batch file");
        let sum = |vm: &str| numbers(&batch, vm, "% Used").iter().sum::<f64>();
        sum("vm2") / sum("vm1")
    };
    // Of 1:7, which 'tandem sim' shows as 0.138 under vtime over a minute.
    let [law, vtime] = ["tandem", "vtime"].map(used);
    assert!((law - 7.0).abs() < 0.05, "{law}");
    assert!((vtime - law).abs() > 0.1, "{vtime}");
    let shown = out(&["top", "--sim", "smoke", "--policy", "cfs", "--once", "-n", "1"]);
    assert!(shown.contains("2 VMs, 4 vCPUs"), "{shown}");
    let (code, said) = ends(&["top", "--sim", "reservation", "--policy", "cfs", "-b"]);
    assert!(code == 3 && said.contains("cfs") && said.contains("reservation"), "{code} {said}");
    let (code, said) = ends(&["top", "--sim", "smoke", "--policy", "bvt", "-b"]);
    assert!(code == 3 && said.contains("bvt") && said.contains("eevdf"), "{code} {said}");
    let (code, said) = ends(&["top", "--policy", "cfs", "-b"]);
    assert!(code == 2 && said.contains("--sim"), "{code} {said}");
}
