//! The textual log: RDY's sample is read and printed again, field by field, and everything else
//! survives as well.

use crate::common;

use common::{Draw, any, host, state};
use trace::log::{LogError, Style, parse, parse_lenient, print};
use trace::{Event, Kind, Move, Queue, State, Waker, Why};
use units::{PcpuId, WorldId};

const SAMPLE: &str = include_str!("data/rdy.log");

#[test]
fn the_sample_of_rdy_is_read_and_printed_again_letter_by_letter() {
    let events = parse(SAMPLE).unwrap();
    assert_eq!(events.len(), 23);
    assert_eq!(print(&events, Style::Rdy, 39989), SAMPLE);
}

#[test]
fn the_sample_of_rdy_says_what_happened() {
    let events = parse(SAMPLE).unwrap();
    let at = |i: usize| (events[i].ns, events[i].pcpu.unwrap().0, events[i].kind.clone());
    let w = WorldId;
    let sleeps = |world, to, on| Kind::State {
        world: w(world),
        from: None,
        to,
        why: Why::Unknown,
        on: Some(PcpuId(on)),
    };
    assert_eq!(at(0), (46_490_240_550_000, 2, sleeps(1212, State::Wait, 2)));
    assert_eq!(at(1), (46_490_240_553_000, 2, Kind::Unqueued { world: w(1212) }));
    assert_eq!(
        at(2).2,
        Kind::WaitOn { world: w(1212), event: 1_047_688_517, class: "UPOL".to_owned() }
    );
    let vtime = Kind::Vtime {
        world: w(1212),
        stride: 24672,
        from: 4_216_061_778,
        to: 4_216_061_945,
        host: 4_215_994_412,
        why: "RUN".to_owned(),
    };
    assert_eq!(at(3).2, vtime);
    assert_eq!(
        at(6),
        (
            46_490_240_572_000,
            3,
            Kind::Migrate {
                world: w(1180),
                from: Some(PcpuId(3)),
                to: PcpuId(2),
                why: Move::Other
            }
        )
    );
    assert_eq!(at(8).2, Kind::Queued { world: w(1180), queue: Queue::Pcpu(PcpuId(2)), key: 0 });
    assert_eq!(
        at(9),
        (46_490_240_588_000, 2, Kind::Switch { from: Some(w(1212)), to: Some(w(1180)) })
    );
    assert_eq!(
        at(19),
        (46_490_240_692_000, 3, sleeps(1187, State::WaitIdle, 3)),
        "SETWAITSTATE IDLE makes it a halted vCPU"
    );
    assert_eq!(
        at(21).2,
        Kind::WaitOn { world: w(1187), event: 14_142_156, class: "IDLE".to_owned() }
    );
}

#[test]
fn whatever_is_printed_in_full_is_read_again() {
    for seed in 1..=40 {
        let mut r = Draw::new(seed);
        let mut events: Vec<Event> = (0..500).map(|_| any(&mut r)).collect();
        // World 0 is no world, as in the scheduler's records, and SWITCH prints it for idling.
        events.retain(|e| !matches!(&e.kind, Kind::Switch { from, to } if *from == Some(WorldId(0)) || *to == Some(WorldId(0))));
        let text = print(&events, Style::Full, 7);
        assert_eq!(parse(&text).unwrap(), events, "seed {seed}");
    }
}

#[test]
fn a_recording_without_switches_is_printed_with_them() {
    let idle = |ns, begins| Event { ns, pcpu: Some(PcpuId(1)), kind: Kind::Idle { begins } };
    let events = [
        state(1_000_000, 5, State::Ready, State::Run, 1),
        state(2_000_000, 5, State::Run, State::WaitIdle, 1),
        idle(2_001_999, true),
        idle(3_000_000, false),
        Event { ns: 3_000_000, pcpu: None, kind: Kind::Lost { events: Some(4) } },
        state(3_001_000, 6, State::Ready, State::Run, 1),
    ];
    let want = "1 1 1000 SETRUNSTATE 5 RUN\n2 1 1000 SWITCH 0 5\n3 1 2000 SETRUNSTATE 5 WAIT\n4 1 \
        2000 SETWAITSTATE 5 0 IDLE\n\
                5 1 2001 SWITCH 5 0\n10 1 3001 SETRUNSTATE 6 RUN\n11 1 3001 SWITCH 0 6\n";
    assert_eq!(print(&events, Style::Rdy, 1), want);
    let read = parse(want).unwrap();
    let kinds: Vec<&Kind> =
        read.iter().map(|e| &e.kind).filter(|k| !matches!(k, Kind::Switch { .. })).collect();
    assert!(matches!(kinds[1], Kind::State { to: State::WaitIdle, .. }));
    assert_eq!(
        (kinds.len(), kinds[2]),
        (4, &Kind::Lost { events: Some(4) }),
        "SETWAITSTATE 5 0 IDLE is in the state"
    );
}

#[test]
fn a_line_that_is_none_is_named_and_can_be_skipped() {
    let refused = [
        ("x 1 2 SWITCH 1 2", "a sequence number first"),
        ("1 1024 2 SWITCH 1 2", "a pCPU below 1024 or '-' as second field"),
        ("1 1 18446744073709551615 SWITCH 1 2", "a time in us as third field"),
        ("1 1 2.5 SWITCH 1 2", "a time in us as third field"),
        ("1 1 2", "an event as fourth field"),
        ("1 1 2 TELEPORT 1", "one of RDY's seven events, or one of Tandem's own"),
        (
            "1 1 2 SETRUNSTATE 1212 SLEEPING",
            "SETRUNSTATE world state, and reason, state before and pCPU or none of them",
        ),
        ("1 - 2 QUEUEADD 12", "QUEUEADD world, on a line with a pCPU or with LIMIT and its number"),
        ("1 1 2 SWITCH 1 2 3", "nothing behind the event's arguments"),
        ("1 1 2 MIGRATE 1 1024 OTHER", "MIGRATE world pCPU reason"),
    ];
    for (line, allowed) in refused {
        let text = format!(
            "# a remark\n\n{SAMPLE}{}\n",
            line.replacen('1', "50000", usize::from(line.starts_with('1')))
        );
        let error = parse(&text).unwrap_err();
        assert_eq!((error.line, error.allowed), (26, allowed), "{line}");
        let lenient = parse_lenient(&text);
        assert_eq!((lenient.events.len(), lenient.skipped, lenient.first), (23, 1, Some(error)));
    }
    let back = LogError {
        line: 2,
        seen: "5 0 9 SWITCH 1 2".to_owned(),
        allowed: "a sequence number above the last line's",
    };
    assert_eq!(parse("5 0 9 SWITCH 1 2\n5 0 9 SWITCH 1 2"), Err(back));
}

#[test]
fn a_full_line_tells_what_rdy_does_not() {
    let kind = Kind::Wake { world: WorldId(3), by: Waker::World(WorldId(4)) };
    let text = print(&[Event { ns: 1_500, pcpu: None, kind }], Style::Full, 1);
    assert_eq!(text, "1 - 1.500 WAKE 3 4\n");
    let host = host(3, 4, 8, 500);
    assert_eq!(parse(&print(&host, Style::Full, 1)).unwrap(), host);
}
