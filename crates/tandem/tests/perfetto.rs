//! The picture for Perfetto, loaded by Perfetto's own trace processor and held, by SQL, to the
//! simulator's accounts to the ns. Where `cargo xtask perfetto-fetch` has not put it, or node is
//! missing, these are skipped.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/perfetto/trace_processor.mjs");
const VARIABLE: &str = "TANDEM_PERFETTO";

type Rows = Vec<Vec<Value>>;

/// Folder of the trace processor, or why a test is skipped.
fn trace_processor() -> Option<PathBuf> {
    let folder = env::var_os(VARIABLE)
        .map_or_else(|| Path::new(ROOT).join(".cache/perfetto"), PathBuf::from);
    if !folder.join("trace_processor.wasm").is_file() {
        println!(
            "skipped: no trace processor; fetch it by 'cargo xtask perfetto-fetch', or name its \
                folder by {VARIABLE}"
        );
        return None;
    }
    let node = Command::new("node")
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|o| o.status.success());
    if !node {
        println!("skipped: no node in the path (Debian's package nodejs)");
    }
    node.then_some(folder)
}

/// What `tandem` prints, which has to end well.
fn tandem(words: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_tandem"))
        .args(words)
        .current_dir(ROOT)
        .output()
        .expect("it runs");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

/// A picture in the trace processor, with the result document of the same run.
struct Opened {
    folder: PathBuf,
    picture: String,
    /// The run in the result document.
    run: Value,
    /// When it ended, in ns.
    end: u64,
    /// Wake-ups in the textual log.
    wakes: usize,
}

impl Opened {
    fn new(name: &str, words: &[&str]) -> Option<Opened> {
        let folder = trace_processor()?;
        let file = |end: &str| {
            Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("perfetto-{name}.{end}"))
                .display()
                .to_string()
        };
        let (trace, json, picture) = (file("trace"), file("json"), file("pftrace"));
        tandem(&[&["sim"], words, &["--trace", &trace, "--json", &json]].concat());
        tandem(&["trace", "export", &trace, &picture]);
        let log = tandem(&["trace", "log", "--full", &trace]);
        let last = log.lines().last().and_then(|l| l.split(' ').nth(2)).expect("a last event");
        let document: Value =
            serde_json::from_str(&fs::read_to_string(json).expect("the document")).expect("JSON");
        Some(Opened {
            folder,
            picture,
            run: document["runs"][0].clone(),
            end: last.parse::<u64>().expect("the run ends at a whole us") * 1000,
            wakes: log.lines().filter(|l| l.split(' ').nth(3) == Some("WAKE")).count(),
        })
    }

    /// The answers to some queries.
    fn ask(&self, queries: &[&str]) -> Vec<Rows> {
        let mut child = Command::new("node")
            .args([Path::new(DRIVER), &self.folder, Path::new(&self.picture)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let lines: String = queries
            .iter()
            .map(|q| q.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
            .collect();
        child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
        let done = child.wait_with_output().expect("it ends");
        assert!(done.status.success(), "the trace processor ended with {}", done.status);
        let text = String::from_utf8(done.stdout).expect("text");
        let rows = |line: &str| {
            let answer: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(answer["error"], Value::Null);
            let rows = answer["rows"].as_array().expect("rows").iter();
            rows.map(|r| r.as_array().expect("a row").clone()).collect()
        };
        let all: Vec<Rows> = text.lines().map(rows).collect();
        assert_eq!(all.len(), queries.len());
        all
    }

    /// Since when the document counts, in ns.
    fn begin(&self) -> u64 {
        self.end - self.run["duration_ns"].as_u64().expect("a duration")
    }
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_else(|| panic!("{v} is no text")).to_owned()
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("{v} is no whole number"))
}

/// Its VMs with their worlds.
fn worlds(run: &Value) -> impl Iterator<Item = (String, &Value)> {
    let vms = run["vms"].as_array().expect("VMs").iter();
    vms.flat_map(|vm| {
        vm["worlds"]
            .as_array()
            .expect("worlds")
            .iter()
            .map(|w| (format!("{}/{}", text(&vm["name"]), text(&w["name"])), w))
    })
}

/// Times of each world and state, and what each pCPU ran, as the document has them; what is 0 is
/// left out.
fn expected(run: &Value) -> (BTreeMap<(String, String), u64>, BTreeMap<u64, u64>) {
    let mut states = BTreeMap::new();
    for (name, w) in worlds(run) {
        let ns = |key: &str| number(&w[key]);
        let (wait, idle) = (ns("wait_ns"), ns("idle_ns"));
        let all = [
            ("RUN", ns("run_ns")),
            ("READY", ns("ready_ns")),
            ("COSTOP", ns("costop_ns")),
            ("WAIT", wait - idle),
            ("WAIT_IDLE", idle),
        ];
        states.extend(
            all.into_iter()
                .filter(|s| s.1 > 0)
                .map(|(state, ns)| ((name.clone(), state.to_owned()), ns)),
        );
    }
    let pcpus = run["pcpus"]
        .as_array()
        .expect("pCPUs")
        .iter()
        .map(|p| (number(&p["id"]), number(&p["busy_ns"])));
    (states, pcpus.filter(|p| p.1 > 0).collect())
}

/// Opens the picture of a run and compares all that it draws with what the run accounted.
fn agrees(name: &str, words: &[&str]) {
    let Some(opened) = Opened::new(name, words) else { return };
    import_is_whole(&opened);
    slices_are_the_accounts(&opened);
    tracks_are_the_hosts(&opened);
    arrows_are_wake_ups(&opened);
    counters_sum_the_slices(&opened);
    counters(&opened);
}

fn import_is_whole(opened: &Opened) {
    let answers = opened.ask(&[
        "select name, severity, value from stats where value > 0 and severity != 'info'",
        "select count(*) from stats where severity = 'error'",
        "select count(*) from slice where dur < 0",
    ]);
    assert_eq!(answers[0], Rows::new(), "errors and losses that the import tells");
    assert!(number(&answers[1][0][0]) > 50, "its list of possible errors");
    assert_eq!(number(&answers[2][0][0]), 0, "slices without an end");
}

/// Each world's time in each state and each pCPU's busy time.
fn slices_are_the_accounts(opened: &Opened) {
    let (begin, end) = (opened.begin(), opened.end);
    // What was left out of the middle of a slice before the document begins.
    let cut = format!("sum(max(0, min(s.ts + s.dur, {end}) - max(s.ts, {begin})))");
    let states = format!(
        "select p.name || '/' || t.name, s.name, {cut} ns from slice s join track t on s.track_id \
            = t.id join track p on t.parent_id = p.id where p.name != 'pCPUs' group by 1, 2 having \
            ns > 0"
    );
    let pcpus = format!(
        "select t.name, {cut} ns from slice s join track t on s.track_id = t.id join track p on \
            t.parent_id = p.id where p.name = 'pCPUs' group by 1 having ns > 0"
    );
    let answers = opened.ask(&[&states, &pcpus]);
    let (want_states, want_pcpus) = expected(&opened.run);
    let states: BTreeMap<(String, String), u64> =
        answers[0].iter().map(|r| ((text(&r[0]), text(&r[1])), number(&r[2]))).collect();
    assert_eq!(states, want_states);
    let pcpus: BTreeMap<u64, u64> =
        answers[1].iter().map(|r| (pcpu_id(&text(&r[0])), number(&r[1]))).collect();
    assert_eq!(pcpus, want_pcpus);
}

/// Of a name such as "pCPU 3 (node 0, …)".
fn pcpu_id(name: &str) -> u64 {
    name.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a pCPU")
}

fn pcpu_count(opened: &Opened) -> u64 {
    number(&opened.run["host"]["pcpus"])
}

/// A track for each world, and one for each pCPU that ran something: it shows none that is empty.
fn tracks_are_the_hosts(opened: &Opened) {
    let answers = opened.ask(&[
        "select t.name, ifnull(p.name, '') from track t left join track p on t.parent_id = p.id",
    ]);
    let tracks: BTreeSet<(String, String)> =
        answers[0].iter().map(|r| (text(&r[1]), text(&r[0]))).collect();
    let pcpus: Vec<u64> = tracks
        .iter()
        .filter(|t| t.0 == "pCPUs" && t.1.starts_with("pCPU "))
        .map(|t| pcpu_id(&t.1))
        .collect();
    let busy = expected(&opened.run).1.len();
    assert!(
        pcpus.len() >= busy && pcpus.iter().all(|p| *p < pcpu_count(opened)),
        "{busy} pCPUs ran worlds: {tracks:?}"
    );
    let drawn: BTreeSet<String> = tracks
        .iter()
        .filter(|t| t.1.starts_with("vcpu"))
        .map(|t| format!("{}/{}", t.0, t.1))
        .collect();
    assert_eq!(drawn, worlds(&opened.run).map(|w| w.0).collect());
}

fn arrows_are_wake_ups(opened: &Opened) {
    let answers = opened.ask(&[
        "select count(*), sum(i.name not in ('READY', 'woken') or o.name != 'wakes ' || t.name or \
            o.ts > i.ts) from flow f join slice o on f.slice_out = o.id join slice i on f.slice_in \
            = i.id join track t on i.track_id = t.id",
        "select count(*) from slice where name glob 'wakes *, which runs'",
    ]);
    let (flows, astray) = (number(&answers[0][0][0]), number(&answers[0][0][1]));
    assert!(flows > 0 && astray == 0, "{flows} arrows from waker to woken, {astray} astray");
    assert_eq!(flows + number(&answers[1][0][0]), opened.wakes as u64);
}

/// The counters of the whole host, integrated over time, are the sums of slices.
fn counters_sum_the_slices(opened: &Opened) {
    let end = opened.end;
    let integral = |counter: &str| {
        format!(
            "select ifnull(sum(cast(value as int) * (next - ts)), 0) from (select value, ts, \
                lead(ts, 1, {end}) over (order by ts) next from counter c join track t on \
                c.track_id = t.id where t.name = '{counter}')"
        )
    };
    let whole = "select ifnull(sum(dur), 0) from slice s join track t on s.track_id = t.id join \
        track p on t.parent_id = p.id where";
    let answers = opened.ask(&[
        &integral("worlds READY"),
        &format!("{whole} p.name != 'pCPUs' and s.name = 'READY'"),
        &integral("pCPUs idle"),
        &format!("{whole} p.name = 'pCPUs'"),
    ]);
    let one = |i: usize| number(&answers[i][0][0]);
    assert_eq!(one(0), one(1), "what is READY, counted and as slices");
    assert_eq!(
        one(2) + one(3),
        pcpu_count(opened) * end,
        "what is idle, counted, and what runs, as slices"
    );
}

/// Every VM has both counters, within what the host can give.
fn counters(opened: &Opened) {
    let answers = opened.ask(&[
        "select t.name, count(*), min(value), max(value) from counter c join track t on c.track_id \
            = t.id group by 1",
    ]);
    let (run, rows) = (&opened.run, &answers[0]);
    let most = 100.0 * run["host"]["pcpus"].as_f64().expect("pCPUs");
    let of = |name: &str| {
        let row =
            rows.iter().find(|r| r[0] == *name).unwrap_or_else(|| panic!("no counter '{name}'"));
        (number(&row[1]), row[2].as_f64().expect("least"), row[3].as_f64().expect("most"))
    };
    for vm in run["vms"].as_array().expect("VMs") {
        for what in ["used", "entitled"] {
            let (count, low, high) = of(&format!("{}: {what}, % of a pCPU", text(&vm["name"])));
            assert!(
                count > 10 && low >= 0.0 && high <= most * 1.001,
                "{what} of {}: {count} values, {low} to {high}",
                vm["name"]
            );
        }
    }
}

#[test]
fn two_worlds_on_one_pcpu_are_drawn_as_they_were_accounted() {
    agrees("two", &["two-at-20", "--run", "to the end", "--duration", "3s"]);
}

#[test]
fn the_demo_on_8_pcpus_is_drawn_as_it_was_accounted_behind_its_warm_up() {
    agrees("demo", &["demo", "--duration", "6s"]);
}

#[test]
fn worlds_below_a_limit_are_drawn_as_they_were_accounted() {
    agrees("limit", &["pool-limit", "--run", "4 VMs", "--duration", "3s"]);
}

#[test]
fn a_picture_that_was_cut_is_told_by_the_trace_processor() {
    let Some(mut opened) =
        Opened::new("cut", &["two-at-20", "--run", "to the end", "--duration", "3s"])
    else {
        return;
    };
    let whole = fs::read(&opened.picture).expect("the picture");
    let sums = "select count(*), sum(dur < 0) from slice";
    let before = opened.ask(&[sums]);
    opened.picture += ".cut";
    fs::write(&opened.picture, &whole[..whole.len() / 2 + 1]).expect("written");
    let after = opened.ask(&[sums]);
    assert_eq!(number(&before[0][0][1]), 0);
    assert!(
        number(&after[0][0][0]) < number(&before[0][0][0]) && number(&after[0][0][1]) > 0,
        "{before:?} {after:?}"
    );
}
