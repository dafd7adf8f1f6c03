//! The numbers of a page are those of its inputs: of the document unchanged, of the trace as
//! counted by hand.

use crate::common;

use common::*;
use report::{Given, Options, Source};
use serde_json::{Value, json};
use trace::{Kind, State, Why};

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array().expect("a list").iter().map(|x| x.as_u64().expect("a number")).collect()
}

/// Lengths and codes of a row.
fn lane(v: &Value) -> Vec<(u64, u64)> {
    numbers(v).chunks(2).map(|p| (p[0], p[1])).collect()
}

fn alone(trace: trace::Trace) -> Vec<Given> {
    vec![Given { label: None, files: vec![("t.trace".to_owned(), Source::Trace(Box::new(trace)))] }]
}

#[test]
fn the_block_has_the_documents_values_and_no_others() {
    let (_, html) = made(vec![both("a")], &Options::default());
    let seen = &block(&html)["runs"][0];
    assert_eq!(seen["result"], serde_json::to_value(result("a", "")).unwrap());
    assert_eq!(
        (&seen["policy"], &seen["seed"], &seen["repeat"]),
        (&json!("tandem"), &json!(7), &json!("tandem sim pair --seed 7"))
    );
    assert_eq!(seen["notes"], json!([]), "document and trace agree");
    assert_eq!(seen["missing"], json!([]));
}

#[test]
fn a_run_is_repeated_and_recorded_by_the_documents_command_and_its_label() {
    let command = "tandem sim 'my scen.toml' --seed 9 --duration 4s --set quantum_us=10000";
    let page = |command: Option<&str>, scenario: &str| {
        let runs = vec![result("a", "it's 2:1"), result("a", "")];
        let command = command.map(str::to_owned);
        let d = views::Document { command, scenario: scenario.to_owned(), ..document(runs) };
        let files = vec![("r.json".to_owned(), Source::Documents(vec![d]))];
        made(vec![Given { label: None, files }], &Options::default()).0
    };
    let (told, guessed) = (page(Some(command), "my scen"), page(None, "a b"));
    let run = r" --run 'it'\''s 2:1'";
    for (page, i, want) in [
        (&told, 0, format!("{command}{run}")),
        (&told, 1, command.to_owned()),
        (&guessed, 0, format!("tandem sim 'a b' --seed 7{run}")),
    ] {
        let run = &page.runs[i];
        assert_eq!(run.repeat.as_ref(), Some(&want));
        let trace = run.missing.iter().find(|m| m.what == "trace").expect("there is none");
        let how = format!("record it: {want} --trace FILE; then give both: tandem report ");
        assert!(trace.how.starts_with(&how), "{}", trace.how);
    }
}

#[test]
fn a_trace_alone_tells_the_state_times_of_the_document() {
    let (page, _) = made(alone(trace(events("a"))), &Options::default());
    let (seen, want) = (&page.runs[0].result, result("a", ""));
    for (s, w) in seen.vms.iter().zip(&want.vms) {
        let told = |t: &views::Times| {
            [t.run_ns, t.used_ns, t.ready_ns, t.limited_ns, t.costop_ns, t.wait_ns, t.idle_ns]
        };
        assert_eq!(
            (&s.name, &s.pool, s.vcpus, told(&s.times)),
            (&w.name, &w.pool, w.vcpus, told(&w.times))
        );
        assert_eq!(told(&s.worlds[0].times), told(&w.worlds[0].times));
    }
    assert_eq!((seen.duration_ns, &seen.pcpus, seen.vms.len()), (want.duration_ns, &want.pcpus, 2));
    let pools: Vec<_> =
        seen.pools.iter().map(|p| (p.path.as_str(), p.used_ns, p.ready_ns, p.limited_ns)).collect();
    assert_eq!(
        pools,
        [("/", 8_500_000, 7_500_000, 1_000_000), ("/gold", 8_500_000, 7_500_000, 1_000_000)]
    );
    assert!(!page.runs[0].known.entitled && !page.runs[0].known.shares);
    assert_eq!(page.runs[0].missing.iter().map(|m| m.what).collect::<Vec<_>>(), ["document"]);
}

#[test]
fn who_ran_where_sums_to_the_part_that_is_shown() {
    let (_, html) = made(vec![both("a")], &Options::default());
    let t = &block(&html)["runs"][0]["trace"];
    assert_eq!(
        t["pcpus"][0],
        json!({"run": [6_500_000, 2_000_000], "idle": 1_500_000, "other": 0, "unknown": 0})
    );
    assert_eq!(t["pcpus"][1], json!({"run": [0, 0], "idle": 10_000_000, "other": 0, "unknown": 0}));
}

#[test]
fn buckets_sum_to_the_state_times() {
    let (_, html) = made(vec![both("a")], &Options::default());
    let b = &block(&html)["runs"][0]["trace"]["buckets"];
    assert_eq!((&b["width_ns"], &b["count"]), (&json!(50_000), &json!(200)));
    let sum = |vm: usize, key: &str| numbers(&b["vms"][vm][key]).iter().sum::<u64>();
    assert_eq!(
        [sum(0, "run"), sum(0, "ready"), sum(0, "limited"), sum(0, "costop")],
        [6_500_000, 2_500_000, 1_000_000, 0]
    );
    assert_eq!([sum(1, "run"), sum(1, "ready"), sum(1, "limited")], [2_000_000, 4_000_000, 0]);
    let entitled = numbers(&b["vms"][0]["entitled"]);
    assert_eq!(
        (entitled[0], entitled[99], entitled[100], entitled[199]),
        (25_000, 25_000, 50_000, 50_000),
        "half a pCPU, then a whole"
    );
    assert_eq!(b["vms"][1]["entitled"], json!([]), "never told");
}

#[test]
fn lanes_have_every_piece_and_no_hole() {
    let (_, html) = made(vec![both("a")], &Options::default());
    let t = &block(&html)["runs"][0]["trace"];
    assert_eq!(t["worlds"], json!([{"name": "vcpu0", "vm": 0}, {"name": "vcpu0", "vm": 1}]));
    let (l, resolution) = (&t["timeline"], &t["timeline"]["resolution_ns"]);
    assert_eq!(resolution, 0);
    // Twice 1 idle, 3 world 0, 4 world 1.
    assert_eq!(
        lane(&l["pcpus"][0]),
        [(4_000_000, 6), (2_000_000, 8), (2_000_000, 6), (1_500_000, 2), (500_000, 6)]
    );
    assert_eq!(lane(&l["pcpus"][1]), [(10_000_000, 2)]);
    // Twice 8 × (pCPU + 1) + state: 9 runs on pCPU 0, 10 waits there, 14 is parked, 5 halted.
    assert_eq!(
        lane(&l["worlds"][0]),
        [
            (4_000_000, 18),
            (2_000_000, 20),
            (2_000_000, 18),
            (1_000_000, 28),
            (500_000, 20),
            (500_000, 18)
        ]
    );
    assert_eq!(lane(&l["worlds"][1]), [(4_000_000, 20), (2_000_000, 18), (4_000_000, 10)]);
}

#[test]
fn waits_are_counted_and_the_worst_says_what_ran_instead() {
    let (_, html) = made(vec![both("a")], &Options::default());
    let w = &block(&html)["runs"][0]["trace"]["waits"];
    // a: 0 ms at its birth, 2 ms, 1.5 ms (1 of them limited); b: 4 ms.
    let all = &w["sums"][0];
    assert_eq!(
        [&all["count"], &all["p50"], &all["p90"], &all["p99"], &all["max"]]
            .map(|v| v.as_u64().unwrap()),
        [4, 1_500_000, 4_000_000, 4_000_000, 4_000_000]
    );
    assert_eq!(numbers(&all["histogram"]).iter().sum::<u64>(), 4);
    assert_eq!((&w["sums"][2]["name"], &w["sums"][2]["count"]), (&json!("b"), &json!(1)));
    let worst = &w["worst"][0];
    assert_eq!(
        (&worst["who"], &worst["ns"], &worst["judgement"], &worst["pcpu"]),
        (&json!("b/vcpu0"), &json!(4_000_000), &json!("WRONG-IDLE"), &json!(0))
    );
    assert_eq!(worst["instead"][1], 4_000_000);
    assert_eq!(
        w["wrong_idle"], 3,
        "a's second wait and its third behind the limit as well, beside pCPU 1"
    );
}

#[test]
fn a_part_of_a_trace_has_the_numbers_of_that_part() {
    let options = Options { from_ns: Some(5 * MS), to_ns: Some(9 * MS), ..Options::default() };
    let (page, html) = made(vec![both("a")], &options);
    let t = &block(&html)["runs"][0]["trace"];
    assert_eq!(
        [&t["from_ns"], &t["to_ns"], &t["whole_ns"]].map(|v| v.as_u64().unwrap()),
        [5_000_000, 9_000_000, 10_000_000]
    );
    assert_eq!(
        t["pcpus"][0],
        json!({"run": [2_000_000, 1_000_000], "idle": 1_000_000, "other": 0, "unknown": 0})
    );
    assert_eq!(
        lane(&t["timeline"]["worlds"][0]),
        [(1_000_000, 20), (2_000_000, 18), (1_000_000, 28)]
    );
    assert_eq!(page.runs[0].notes, ["The trace shows a part of the run, the tables all of it."]);
}

#[test]
fn the_warm_up_is_left_out_unless_it_is_asked_for() {
    let mut all = events("a");
    let at_6 = all.iter().position(|e| e.ns == 6 * MS).unwrap();
    all.insert(at_6, at(6 * MS, None, Kind::Mark { text: "the warm-up ends".to_owned() }));
    let shown = |options: &Options| {
        let page = report::build(paired(alone(trace(all.clone()))), options);
        (page.runs[0].trace.as_ref().unwrap().from_ns, page.runs[0].result.duration_ns)
    };
    assert_eq!(shown(&Options::default()), (6 * MS, 4 * MS));
    assert_eq!(shown(&Options { from_ns: Some(0), ..Options::default() }), (0, 10 * MS));
}

#[test]
fn what_was_lost_is_unknown_and_is_said() {
    let mut all = events("a");
    let at_6 = all.iter().position(|e| e.ns == 6 * MS).unwrap();
    all.drain(at_6..at_6 + 2);
    all.insert(at_6, at(6 * MS, None, Kind::Lost { events: Some(2) }));
    let (page, html) = made(alone(trace(all)), &Options::default());
    let t = &block(&html)["runs"][0]["trace"];
    assert_eq!(
        t["pcpus"][0],
        json!({"run": [4_500_000, 2_000_000], "idle": 0, "other": 0, "unknown": 3_500_000})
    );
    assert_eq!(
        lane(&t["timeline"]["worlds"][1]),
        [(4_000_000, 20), (2_000_000, 18), (4_000_000, 0)]
    );
    assert_eq!(
        (&t["lost"], &t["marks"][0]),
        (&json!(2), &json!([6_000_000, "2 events are missing"]))
    );
    assert!(
        page.findings
            .iter()
            .any(|f| f.level == "warn" && f.text.starts_with("2 events are missing in the trace")),
        "{:?}",
        page.findings
    );
}

#[test]
fn a_trace_of_another_run_is_noticed() {
    let mut other = result("a", "");
    other.vms[1].times.run_ns = 9 * MS;
    let said = |r: views::RunResult| {
        let files = vec![
            ("r.json".to_owned(), Source::Documents(vec![document(vec![r])])),
            ("r.trace".to_owned(), Source::Trace(Box::new(trace(events("a"))))),
        ];
        report::build(paired(vec![Given { label: None, files }]), &Options::default()).runs[0]
            .notes
            .clone()
    };
    assert_eq!(
        said(other),
        ["Document and trace say different things of how long b ran: are they of the same run?"]
    );
    let longer = views::RunResult { duration_ns: 20 * MS, ..result("a", "") };
    assert_eq!(
        said(longer),
        ["The trace is 0.010 s long and the run 0.020 s: they are not of the same span."]
    );
}

#[test]
fn a_long_trace_makes_a_page_of_a_bounded_size_that_says_what_it_lacks() {
    let mut all = names("a");
    // 200,000 turns of 40 µs: 100,000 pieces on the pCPU, 200,000 of each world.
    for i in 0..200_000u64 {
        let (runs, waits) = if i % 2 == 0 { (1, 2) } else { (2, 1) };
        all.push(state(i * 40 * US, waits, State::Ready, Why::Quantum, Some(0)));
        all.push(state(i * 40 * US, runs, State::Run, Why::Picked, Some(0)));
    }
    let (page, html) = made(alone(trace(all)), &Options::default());
    let t = page.runs[0].trace.as_ref().unwrap();
    let (span, pieces) = (t.to_ns - t.from_ns, |lanes: &[Vec<u64>]| {
        lanes.iter().map(|l| l.len() / 2).sum::<usize>()
    });
    assert!(t.timeline.resolution_ns >= 50_000, "{}", t.timeline.resolution_ns);
    assert!(pieces(&t.timeline.pcpus) <= 120_000 && pieces(&t.timeline.worlds) <= 120_000);
    for lane in t.timeline.pcpus.iter().chain(&t.timeline.worlds) {
        assert_eq!(lane.iter().step_by(2).sum::<u64>(), span);
    }
    assert!(html.len() < 3_000_000, "{}", html.len());
    let exact: u64 = t.pcpus[0].run.iter().sum();
    assert_eq!(exact, span, "sums are made from every piece");
}

#[test]
fn memory_away_from_home_is_a_finding_and_its_decisions_are_on_the_page() {
    let client = |home, bytes: [u64; 2]| views::NumaClient {
        vcpus: 4,
        home,
        bytes: bytes.map(|gib| gib << 30).to_vec(),
        changes: [("placed".to_owned(), 1), ("imbalance".to_owned(), 2)].into(),
        moved_bytes: 5 << 20,
        decisions: vec!["node 0 to 1: imbalance of CPU load of 40.0 %".to_owned()],
        llcs: vec![],
        notes: vec![],
        talks: Default::default(),
    };
    let said = |clients: Vec<views::NumaClient>| {
        let mut run = result("a", "");
        run.vms[1].numa = clients;
        let files = vec![("r.json".to_owned(), Source::Documents(vec![document(vec![run])]))];
        let (page, html) = made(vec![Given { label: None, files }], &Options::default());
        let mut texts = page.findings.iter().map(|f| f.text.clone());
        (texts.find(|t| t.starts_with("Memory in other nodes")), block(&html))
    };
    let wide = vec![client(Some(0), [9, 1]), client(Some(1), [3, 7])];
    let (finding, page) = said(wide);
    let text = finding.unwrap();
    assert!(text.contains("b 70.0 % at home (its home has changed 4 times)"), "{text}");
    let of = &page["runs"][0]["result"]["vms"][1]["numa"][1];
    assert_eq!(of["decisions"][0], "node 0 to 1: imbalance of CPU load of 40.0 %");
    for near in [vec![client(Some(0), [8, 2])], vec![client(None, [5, 5])], vec![]] {
        assert_eq!(said(near).0, None);
    }
}
