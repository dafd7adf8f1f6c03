//! Exports, read back by a small reader of protocol buffers and by a JSON parser: tracks, slices,
//! arrows and counters.

use crate::common;

use common::{host, state};
use std::collections::{BTreeMap, BTreeSet};
use trace::{Event, Kind, Role, State, Waker, chrome, perfetto};
use units::{PcpuId, VmId, WorldId};

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

type Message = Vec<(u32, Field)>;

fn varint(data: &mut &[u8]) -> u64 {
    let (mut v, mut shift) = (0, 0);
    loop {
        let b = data[0];
        *data = &data[1..];
        v |= u64::from(b & 0x7f) << shift;
        shift += 7;
        if b & 0x80 == 0 {
            return v;
        }
    }
}

fn message(mut data: &[u8]) -> Message {
    let mut out = vec![];
    while !data.is_empty() {
        let key = varint(&mut data);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut data)),
            1 => {
                let (v, rest) = data.split_at(8);
                data = rest;
                Field::Number(u64::from_le_bytes(v.try_into().unwrap()))
            }
            2 => {
                let len = varint(&mut data) as usize;
                let (v, rest) = data.split_at(len);
                data = rest;
                Field::Bytes(v.to_vec())
            }
            wire => panic!("wire type {wire}"),
        };
        out.push(((key >> 3) as u32, field));
    }
    out
}

fn number(m: &Message, field: u32) -> Option<u64> {
    m.iter().find_map(
        |(f, v)| if let (true, Field::Number(n)) = (*f == field, v) { Some(*n) } else { None },
    )
}

fn bytes(m: &Message, field: u32) -> Option<Vec<u8>> {
    m.iter().find_map(|(f, v)| {
        if let (true, Field::Bytes(b)) = (*f == field, v) { Some(b.clone()) } else { None }
    })
}

fn text(m: &Message, field: u32) -> Option<String> {
    bytes(m, field).map(|b| String::from_utf8(b).unwrap())
}

/// What a viewer sees.
#[derive(Default)]
struct Picture {
    /// Name and parent of each track.
    tracks: BTreeMap<u64, (String, Option<u64>, bool)>,
    /// Track, name, begin, end.
    slices: Vec<(String, String, u64, u64)>,
    /// Arrow: where and when it begins, where and when it ends.
    from: BTreeMap<u64, (String, u64)>,
    to: BTreeMap<u64, (String, u64)>,
    counters: Vec<(String, u64, f64)>,
    instants: Vec<(String, String)>,
}

impl Picture {
    fn of(file: &[u8]) -> Picture {
        let (mut p, mut open, mut last) =
            (Picture::default(), BTreeMap::<u64, (String, u64)>::new(), 0);
        for (i, (field, packet)) in message(file).into_iter().enumerate() {
            let Field::Bytes(packet) = packet else { panic!("packet {i} is a number") };
            let packet = message(&packet);
            assert_eq!(
                (field, number(&packet, 10), number(&packet, 13)),
                (1, Some(1), (i == 0).then_some(1))
            );
            if let Some(d) = bytes(&packet, 60) {
                let d = message(&d);
                let old = p.tracks.insert(
                    number(&d, 1).unwrap(),
                    (text(&d, 2).unwrap(), number(&d, 5), bytes(&d, 8).is_some()),
                );
                assert!(
                    old.is_none() && number(&d, 5).is_none_or(|up| p.tracks.contains_key(&up)),
                    "one track, below one that is there"
                );
                continue;
            }
            let ns = number(&packet, 8).unwrap();
            assert!(ns >= last);
            last = ns;
            p.event(ns, &message(&bytes(&packet, 11).unwrap()), &mut open);
        }
        assert!(open.is_empty(), "every slice ends");
        p
    }

    fn event(&mut self, ns: u64, e: &Message, open: &mut BTreeMap<u64, (String, u64)>) {
        let track = number(e, 11).unwrap();
        let (name, _, is_counter) = self.tracks[&track].clone();
        match number(e, 9).unwrap() {
            1 => assert!(
                open.insert(track, (text(e, 23).unwrap(), ns)).is_none(),
                "one slice at a time on {name}"
            ),
            2 => {
                let (slice, begin) = open.remove(&track).unwrap();
                self.slices.push((name.clone(), slice, begin, ns));
            }
            3 => self.instants.push((name.clone(), text(e, 23).unwrap())),
            4 => self.counters.push((name.clone(), ns, f64::from_bits(number(e, 44).unwrap()))),
            other => panic!("type {other}"),
        }
        assert_eq!(is_counter, number(e, 9) == Some(4));
        if let Some(id) = number(e, 47) {
            assert!(self.from.insert(id, (name.clone(), ns)).is_none());
        }
        if let Some(id) = number(e, 48) {
            assert!(self.to.insert(id, (name, ns)).is_none());
        }
    }
}

fn small() -> Vec<Event> {
    let at = |ns, kind| Event { ns, pcpu: Some(PcpuId(1)), kind };
    let named = |w: u32, name: &str| {
        at(
            0,
            Kind::World { world: WorldId(w), vm: VmId(4), role: Role::Vcpu, name: name.to_owned() },
        )
    };
    vec![
        named(5, "a \"quoted\" one"),
        named(6, "six"),
        at(0, Kind::Vm { vm: VmId(4), name: "web".to_owned(), pool: "/".to_owned() }),
        state(1000, 5, State::Ready, State::Run, 0),
        at(1500, Kind::Account { vm: VmId(4), used_ns: 400, entitled: 1 << 19 }),
        at(2000, Kind::Wake { world: WorldId(6), by: Waker::World(WorldId(5)) }),
        state(2001, 6, State::Wait, State::Ready, 1),
        state(2500, 6, State::Ready, State::Run, 1),
        at(2500, Kind::Account { vm: VmId(4), used_ns: 1150, entitled: 1 << 20 }),
        at(2600, Kind::Wake { world: WorldId(5), by: Waker::Interrupt }),
        state(3000, 5, State::Run, State::WaitIdle, 0),
        at(3500, Kind::Wake { world: WorldId(5), by: Waker::Interrupt }),
        state(4000, 6, State::Run, State::None, 1),
    ]
}

#[test]
fn perfetto_gets_tracks_slices_arrows_and_counters() {
    let mut file = vec![];
    perfetto::write(&small(), &mut file).unwrap();
    let p = Picture::of(&file);
    let below = |name: &str| {
        let track = p.tracks.values().find(|t| t.0 == name).unwrap();
        track.1.map(|up| p.tracks[&up].0.clone())
    };
    assert_eq!(
        (below("pCPU 1").as_deref(), below("six").as_deref(), below("pCPUs"), below("web")),
        (Some("pCPUs"), Some("web"), None, None)
    );
    let mut slices: Vec<(&str, &str, u64, u64)> =
        p.slices.iter().map(|s| (s.0.as_str(), s.1.as_str(), s.2, s.3)).collect();
    slices.sort_unstable();
    assert_eq!(
        slices,
        [
            ("a \"quoted\" one", "RUN", 1000, 3000),
            ("a \"quoted\" one", "WAIT_IDLE", 3000, 4000),
            ("pCPU 0", "a \"quoted\" one", 1000, 3000),
            ("pCPU 1", "six", 2500, 4000),
            ("six", "READY", 2001, 2500),
            ("six", "RUN", 2500, 4000),
        ]
    );
    assert_eq!(
        (&p.from[&1], &p.to[&1]),
        (&("a \"quoted\" one".to_owned(), 2000), &("six".to_owned(), 2001))
    );
    assert_eq!(
        (&p.from[&2], p.to.get(&2)),
        (&("pCPU 1".to_owned(), 3500), None),
        "the woken never became READY"
    );
    assert!(
        p.from.len() == 2
            && p.instants
                .contains(&("pCPU 1".to_owned(), "wakes a \"quoted\" one, which runs".to_owned()))
    );
    let web: Vec<(&str, u64, f64)> = p
        .counters
        .iter()
        .map(|c| (c.0.as_str(), c.1, c.2))
        .filter(|c| c.0.starts_with("web"))
        .collect();
    let entitled = "web: entitled, % of a pCPU";
    assert_eq!(
        web,
        [(entitled, 1500, 50.0), ("web: used, % of a pCPU", 2500, 75.0), (entitled, 2500, 100.0)]
    );
    let idle: Vec<(u64, f64)> =
        p.counters.iter().filter(|c| c.0 == "pCPUs idle").map(|c| (c.1, c.2)).collect();
    assert_eq!(idle, [(3000, 1.0), (4000, 2.0)]);
}

#[test]
fn perfetto_gets_all_of_a_busy_host() {
    let events = host(3, 8, 40, 20_000);
    let mut file = vec![];
    perfetto::write(&events, &mut file).unwrap();
    let p = Picture::of(&file);
    let count = |to: State| {
        events.iter().filter(|e| matches!(e.kind, Kind::State { to: t, .. } if t == to)).count()
    };
    let slices = |name: &str| p.slices.iter().filter(|s| s.1 == name).count();
    assert_eq!(
        (slices("RUN"), slices("READY"), slices("WAIT")),
        (count(State::Run), count(State::Ready), count(State::Wait))
    );
    let on_pcpus = |named: bool| {
        p.slices
            .iter()
            .filter(|s| s.0.starts_with("pCPU ") && (s.1 != "something else") == named)
            .count()
    };
    let idle_ends = events.iter().filter(|e| e.kind == Kind::Idle { begins: false }).count();
    assert_eq!((on_pcpus(true), on_pcpus(false)), (count(State::Run), idle_ends));
    let wakes = events.iter().filter(|e| matches!(e.kind, Kind::Wake { .. })).count();
    assert_eq!((p.from.len(), p.to.len() + 1 >= wakes), (wakes, true));
    assert!(p.to.iter().all(|(id, to)| p.from[id].1 <= to.1));
    assert_eq!(p.tracks.values().filter(|t| t.0.starts_with("pCPU ")).count(), 8);
    assert_eq!(
        p.instants.len(),
        wakes + events.iter().filter(|e| matches!(e.kind, Kind::Migrate { .. })).count()
    );
}

#[test]
fn chrome_gets_the_same_as_json() {
    let mut file = vec![];
    chrome::write(&small(), &mut file).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&file).unwrap();
    let all = json["traceEvents"].as_array().unwrap();
    let of = |phase: &str| all.iter().filter(|e| e["ph"] == phase).cloned().collect::<Vec<_>>();
    let names: BTreeSet<String> = of("M")
        .iter()
        .map(|e| format!("{} {}: {}", e["pid"], e["tid"], e["args"]["name"]))
        .collect();
    let want = [
        "1 0: \"pCPUs\"",
        "1 1: \"pCPU 0\"",
        "1 2: \"pCPU 1\"",
        "7 0: \"web\"",
        "7 6: \"a \\\"quoted\\\" one\"",
        "7 7: \"six\"",
    ];
    assert_eq!(names, want.map(str::to_owned).into());
    assert_eq!((of("B").len(), of("E").len()), (6, 6));
    assert_eq!(
        (of("B")[0]["ts"].as_f64(), of("B")[0]["name"].as_str()),
        (Some(1.0), Some("a \"quoted\" one"))
    );
    let (from, to) = (&of("s")[0], &of("f")[0]);
    assert_eq!(
        (from["id"].as_u64(), from["tid"].as_u64(), from["ts"].as_f64()),
        (Some(1), Some(6), Some(2.0))
    );
    assert_eq!(
        (to["id"].as_u64(), to["tid"].as_u64(), to["ts"].as_f64()),
        (Some(1), Some(7), Some(2.001))
    );
    let used = of("C").into_iter().find(|c| c["name"] == "web: used, % of a pCPU").unwrap();
    assert_eq!(used["args"]["value"].as_f64(), Some(75.0));
}

#[test]
fn json_is_refused_for_long_traces_and_says_what_to_do() {
    let events =
        vec![Event { ns: 1, pcpu: None, kind: Kind::Host { pcpus: 1 } }; chrome::EVENTS_MAX + 1];
    let mut file = vec![];
    let error = chrome::write(&events, &mut file).unwrap_err().to_string();
    assert!(
        error.contains("seen 250001 events, allowed up to 250000; export for Perfetto"),
        "{error}"
    );
    assert!(file.is_empty());
    assert!(chrome::write(&events[1..], &mut file).is_ok());
}
