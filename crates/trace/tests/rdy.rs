//! RDY's own example: its state table comes out of the events behind it, and so does its judgement
//! of world 1172.

use crate::common;

use common::state;
use trace::table::{self, Row, Step, TableOptions};
use trace::waits::{Judgement, WaitOptions, analyse};
use trace::{Event, Kind, Now, State, log};
use units::{PcpuId, WorldId};

const TABLE: &str = include_str!("data/rdy-table.txt");
const SAMPLE: &str = include_str!("data/rdy.log");

/// RDY's rows: elapsed µs, and the four pCPUs.
fn wanted() -> Vec<(u64, [String; 4])> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        (cells[1].parse().unwrap(), std::array::from_fn(|p| cells[2 + p].to_owned()))
    };
    TABLE.lines().map(row).collect()
}

/// State changes that lead through RDY's rows, one a row where one is enough; 1172 waits on pCPU 3
/// since 203817 µs.
fn events() -> Vec<Event> {
    let mut out = vec![Event { ns: 0, pcpu: None, kind: Kind::Host { pcpus: 4 } }];
    out.push(Event { ns: 0, pcpu: None, kind: Kind::Mark { text: "begin".to_owned() } });
    for (p, w) in [(0, 1190), (1, 1165), (2, 1170), (3, 1187)] {
        out.push(state(1000 * u64::from(p), w, State::Ready, State::Run, p));
    }
    out.push(state(203_817_000, 1172, State::Run, State::Ready, 3));
    let mut last = ["1190", "1165", "1170", "1187"].map(str::to_owned);
    for (i, (us, row)) in wanted().into_iter().enumerate() {
        let ns = us * 1000;
        let changed = (0..4).find(|p| row[*p] != last[*p]);
        let Some(p) = changed else {
            // Something that no pCPU runs goes to sleep or wakes: a state change that no column
            // shows.
            out.push(state(ns, 5000 + i as u32, State::None, State::Wait, 0));
            continue;
        };
        let number = |name: &str| name.parse::<u32>().ok();
        match (number(&last[p]), number(&row[p])) {
            (Some(old), None) => out.push(state(ns, old, State::Run, State::Wait, p as u16)),
            (None, Some(new)) => out.push(state(ns, new, State::Ready, State::Run, p as u16)),
            (old, new) => {
                out.push(state(ns, old.unwrap(), State::Run, State::Ready, p as u16));
                out.push(state(ns, new.unwrap(), State::Ready, State::Run, p as u16));
            }
        }
        last = row;
    }
    out
}

fn cells(row: &Row) -> [String; 4] {
    std::array::from_fn(|p| row.pcpus[p].to_string())
}

#[test]
fn the_state_table_of_rdy_comes_out_of_its_events() {
    let options = TableOptions { from_ns: 213_549_000, ..TableOptions::default() };
    let rows = table::rows(&events(), &options).unwrap();
    // A pCPU that goes from one world to the next has two rows at that time; RDY shows the later.
    let last = rows
        .iter()
        .enumerate()
        .filter(|(i, r)| rows.get(i + 1).is_none_or(|n| n.ns != r.ns))
        .map(|(_, r)| r);
    let shown: Vec<(u64, [String; 4])> = last.map(|r| (r.elapsed_ns / 1000, cells(r))).collect();
    assert_eq!(shown.len(), 28);
    assert_eq!(shown, wanted());
}

#[test]
fn the_wait_that_rdy_judges_is_told_in_its_words_and_judged_alike() {
    let events = events();
    let report = analyse(&events, &WaitOptions::default());
    let wait = report.waits.iter().find(|w| w.world == WorldId(1172)).unwrap();
    // RDY counts 31 over the whole wait; its excerpt shows six of them.
    assert_eq!(wait.rdy(0), "pr=1172 Wt=10795 Frm=203817, NumberIdle=6 WtOnCou=3");
    assert_eq!((wait.ran_on, wait.idle_stretches, wait.idle_ns), (Some(PcpuId(2)), 6, 88_000));
    assert_eq!(
        (wait.longest_idle_ns, wait.idle_pcpu, wait.judgement),
        (20_000, Some(PcpuId(2)), Judgement::Brief)
    );
    assert_eq!(wait.instead, Some(("1187".to_owned(), 10_795_000)));
    let strict = analyse(&events, &WaitOptions { brief_ns: 19_999, ..WaitOptions::default() });
    let wait = strict.waits.iter().find(|w| w.world == WorldId(1172)).unwrap();
    assert_eq!(wait.judgement, Judgement::WrongIdle);
    assert_eq!(
        wait.because,
        "pCPU 2 idled for 20.000 us without a break beside it, more than 19.999 us"
    );
    let rows = table::rows(&events, &TableOptions::default()).unwrap();
    assert_eq!(rows.last().unwrap().notes, ["pr=1172 Wt=10795 Frm=203817, NumberIdle=6 WtOnCou=3"]);
    let mut text = vec![];
    table::write(&events, &TableOptions::default(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.starts_with("  Event#      Elapsed us  CPU0  CPU1  CPU2  CPU3  READY\n       2           0.000  1190     ?     ?     ?\n"),
        "{text}"
    );
    assert!(
        text.ends_with(
            "214612.000  1182  1165  1172  1187  pr=1172 Wt=10795 Frm=203817, \
        NumberIdle=6 WtOnCou=3\n"
        ),
        "{text}"
    );
}

#[test]
fn the_sample_log_becomes_a_table_with_what_it_does_not_tell_marked() {
    let events = log::parse(SAMPLE).unwrap();
    let rows = table::rows(&events, &TableOptions::default()).unwrap();
    let shown: Vec<(usize, u64, [String; 4])> =
        rows.iter().map(|r| (r.event, r.elapsed_ns / 1000, cells(r))).collect();
    let want =
        |event, us, two: &str, three: &str| (event, us, ["?", "?", two, three].map(str::to_owned));
    assert_eq!(
        shown,
        [
            want(0, 0, "I", "?"),
            want(5, 19, "1180", "?"),
            want(10, 81, "I", "?"),
            want(14, 96, "1174", "?"),
            want(19, 142, "1174", "I")
        ]
    );
    assert_eq!(rows[4].pcpus[3], Now::Idle);
    let report = analyse(&events, &WaitOptions::default());
    assert_eq!(
        (report.waits.len(), report.unknown_begin),
        (0, 2),
        "1180 and 1174 began to wait before the log does"
    );
}

#[test]
fn a_table_with_a_step_has_a_row_at_every_step() {
    let options = TableOptions {
        from_ns: 213_540_000,
        to_ns: 213_640_000,
        step: Step::Every(10_000),
        notes: false,
    };
    let rows = table::rows(&events(), &options).unwrap();
    let first: Vec<String> =
        rows.iter().map(|r| format!("{}:{}", r.elapsed_ns / 1000, r.pcpus[0])).collect();
    let want = "213540:1190 213550:I 213560:I 213570:1192 213580:1192 213590:1192 213600:1192 \
        213610:1192 213620:1192 213630:I";
    assert_eq!(first.join(" "), want);
    let refused =
        table::rows(&events(), &TableOptions { step: Step::Every(0), ..options }).unwrap_err();
    assert_eq!(refused.rows, u64::MAX);
    let many = table::rows(
        &events(),
        &TableOptions { step: Step::Every(10), to_ns: u64::MAX, from_ns: 0, notes: false },
    )
    .unwrap_err();
    assert_eq!(many.rows, 21_461_200);
}
