//! A file of events: what is written is read, and damage costs what it touches and no more.

use crate::common;

use common::{Draw, any, file, host, items};
use trace::{Cause, Event, Gap, Item, Kind, ReadError, Reader, Trace, Writer, from_raw, to_raw};
use units::PcpuId;

fn events(items: &[Item]) -> Vec<Event> {
    items
        .iter()
        .filter_map(|i| if let Item::Event(e) = i { Some(e.clone()) } else { None })
        .collect()
}

fn gaps(items: &[Item]) -> Vec<Gap> {
    items.iter().filter_map(|i| if let Item::Gap(g) = i { Some(*g) } else { None }).collect()
}

/// Starts and ends of blocks with events, by their sync marker.
fn blocks(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = 16;
    let mut out = vec![];
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 12..at + 16].try_into().unwrap()) as usize;
        out.push(at..at + 40 + len);
        at += 40 + len;
    }
    out
}

#[test]
fn what_is_written_is_read() {
    for seed in 1..=60 {
        let mut r = Draw::new(seed);
        let want: Vec<Event> = (0..r.below(4000)).map(|_| any(&mut r)).collect();
        let got = items(&file(&want));
        assert_eq!(gaps(&got), []);
        assert_eq!(events(&got), want, "seed {seed}");
    }
}

#[test]
fn every_event_with_a_raw_form_comes_back_from_it() {
    let (mut r, mut some, mut none) = (Draw::new(5), 0, 0);
    for _ in 0..20_000 {
        let event = any(&mut r);
        if let Ok(raw) = to_raw(&event) {
            assert_eq!(from_raw(&raw).unwrap(), event);
            some += 1;
        } else {
            none += 1;
        }
    }
    assert!(some > 12_000 && none > 4_000, "{some} {none}");
    for _ in 0..50_000 {
        let mut raw: [u8; 32] = std::array::from_fn(|_| r.bits() as u8);
        (raw[13], raw[15]) = (0, raw[15] & 3);
        raw[12] %= 20;
        if let Ok(event) = from_raw(&raw) {
            assert_eq!(from_raw(&to_raw(&event).unwrap()).unwrap(), event);
        }
    }
}

#[test]
fn an_event_of_a_busy_host_takes_at_most_12_bytes() {
    let events = host(1, 16, 200, 100_000);
    let bytes = file(&events).len();
    let hundredths = bytes * 100 / events.len();
    println!("{}.{:02} bytes an event", hundredths / 100, hundredths % 100);
    assert!((700..1200).contains(&hundredths), "{hundredths} hundredths of a byte an event");
}

#[test]
fn a_flipped_byte_costs_its_block_and_is_reported() {
    let want = host(2, 4, 12, 6000);
    let good = file(&want);
    let blocks = blocks(&good);
    assert!(blocks.len() > 4, "{}", blocks.len());
    let per_block: Vec<usize> = blocks
        .iter()
        .map(|b| u32::from_le_bytes(good[b.start + 16..b.start + 20].try_into().unwrap()) as usize)
        .collect();
    let heads = blocks.iter().flat_map(|b| b.start..b.start + 40);
    let mut r = Draw::new(3);
    let spots: Vec<usize> =
        (0..16).chain(heads).chain((0..400).map(|_| r.below(good.len() as u64) as usize)).collect();
    for at in spots {
        let mut bad = good.clone();
        bad[at] ^= 1 << r.below(8);
        let got = items(&bad);
        assert_eq!(gaps(&got).len(), 1, "byte {at}: {:?}", gaps(&got));
        let hit = blocks.iter().position(|b| b.contains(&at));
        let before: usize = per_block[..hit.unwrap_or(0)].iter().sum();
        let lost = hit.map_or(0, |h| per_block[h]);
        let left: Vec<Event> = [&want[..before], &want[before + lost..]].concat();
        assert!(
            events(&got) == left,
            "byte {at}: {} events instead of {}",
            events(&got).len(),
            left.len()
        );
    }
}

#[test]
fn a_gap_tells_when_how_much_and_why() {
    let want = host(2, 4, 12, 6000);
    let good = file(&want);
    let blocks = blocks(&good);
    let count = |b: usize| {
        u32::from_le_bytes(good[blocks[b].start + 16..blocks[b].start + 20].try_into().unwrap())
    };
    let (first, second) = (count(1) as usize, count(2) as usize);
    let mut bad = good.clone();
    bad[blocks[2].start + 100] ^= 4;
    let gap = Gap {
        from_ns: Some(want[first - 1].ns),
        to_ns: Some(want[first + second].ns),
        bytes: blocks[2].len() as u64,
        events: Some(second as u32),
        least: second as u32,
        cause: Cause::Damaged,
    };
    assert_eq!(gaps(&items(&bad)), [gap]);
    let trace = Trace::read(&bad[..]).unwrap();
    assert_eq!(
        trace.events[first],
        Event {
            ns: want[first - 1].ns,
            pcpu: None,
            kind: Kind::Lost { events: Some(second as u32) }
        }
    );

    let mut missing = good.clone();
    missing.drain(blocks[2].clone());
    assert_eq!(
        gaps(&items(&missing)),
        [Gap { bytes: 0, events: None, least: 0, cause: Cause::Missing, ..gap }]
    );

    let mut twice = good.clone();
    twice.splice(blocks[2].end..blocks[2].end, good[blocks[2].clone()].iter().copied());
    let shown = gaps(&items(&twice));
    assert_eq!(
        (shown.len(), shown[0].cause, shown[0].events, shown[0].bytes),
        (1, Cause::Garbage, Some(0), blocks[2].len() as u64)
    );
    assert_eq!(events(&items(&twice)), want);
}

#[test]
fn a_cut_file_is_read_to_its_last_whole_event_and_shows_the_cut() {
    let want = host(4, 4, 12, 3000);
    let good = file(&want);
    let blocks = blocks(&good);
    let last = blocks.iter().rev().nth(1).unwrap();
    let mut r = Draw::new(9);
    let spots: Vec<usize> = (last.start..good.len())
        .chain((0..300).map(|_| 60 + r.below(good.len() as u64 - 60) as usize))
        .collect();
    let mut fewer = want.len();
    for end in spots.into_iter().rev() {
        match Reader::new(&good[..end]).collect::<Result<Vec<Item>, ReadError>>() {
            Ok(got) => {
                let kept = events(&got);
                assert_eq!(gaps(&got).len(), 1, "cut at {end}");
                assert_eq!(gaps(&got)[0].cause, Cause::Cut);
                assert_eq!(kept, want[..kept.len()], "cut at {end}");
                let whole: usize = blocks
                    .iter()
                    .filter(|b| b.end <= end)
                    .map(|b| {
                        u32::from_le_bytes(good[b.start + 16..b.start + 20].try_into().unwrap())
                            as usize
                    })
                    .sum();
                let inside = blocks
                    .iter()
                    .find(|b| b.contains(&end))
                    .map_or(0, |b| end.saturating_sub(b.start + 40));
                assert!(
                    kept.len() >= whole + inside / 16 && kept.len() <= want.len(),
                    "cut at {end}: {} of {whole} + {inside} bytes",
                    kept.len()
                );
                fewer = fewer.min(kept.len());
            }
            Err(ReadError::NotATrace { .. }) => assert!(end < blocks[0].end, "cut at {end}"),
            Err(e) => panic!("cut at {end}: {e}"),
        }
    }
    assert!(fewer < 300);
}

#[test]
fn garbage_between_two_blocks_costs_nothing_and_inside_one_costs_that_one() {
    let want = host(6, 4, 12, 6000);
    let good = file(&want);
    let blocks = blocks(&good);
    let mut r = Draw::new(11);
    for round in 0..200 {
        let junk: Vec<u8> = (0..1 + r.below(300)).map(|_| r.bits() as u8).collect();
        let between = round % 2 == 0;
        let b = &blocks[r.below(blocks.len() as u64 - 1) as usize];
        let at = if between { b.end } else { b.start + 1 + r.below(b.len() as u64 - 1) as usize };
        let mut bad = good.clone();
        bad.splice(at..at, junk.iter().copied());
        let got = items(&bad);
        assert_eq!(gaps(&got).len(), 1, "at {at}");
        let count =
            u32::from_le_bytes(good[b.start + 16..b.start + 20].try_into().unwrap()) as usize;
        let lost = if between { 0 } else { count };
        assert_eq!(events(&got).len(), want.len() - lost, "at {at}");
        if between {
            assert_eq!(
                (gaps(&got)[0].cause, gaps(&got)[0].events, gaps(&got)[0].bytes),
                (Cause::Garbage, Some(0), junk.len() as u64)
            );
        }
    }
}

#[test]
fn a_file_whose_front_is_cut_off_still_has_its_names() {
    let want = host(7, 8, 40, 40_000);
    let mut w = Writer::new(vec![]).unwrap().repeat_after(60_000);
    want.iter().for_each(|e| w.push(e).unwrap());
    let good = w.finish().unwrap();
    assert_eq!(events(&items(&good)), want, "repeated names are not told twice");
    let got = events(&items(&good[30_000..]));
    let names =
        |all: &[Event]| all.iter().filter(|e| e.kind.is_name()).cloned().collect::<Vec<_>>();
    assert_eq!(names(&got).len(), 41);
    assert!(names(&want).iter().all(|n| names(&got).contains(n)));
}

#[test]
fn what_is_no_trace_or_a_newer_one_is_refused() {
    let err = |data: &[u8]| Trace::read(data).unwrap_err().to_string();
    assert_eq!(
        err(b""),
        "trace: cannot read: seen an empty file, allowed what 'tandem sim --trace' or 'tandem \
            trace record' wrote, or a log that 'tandem trace log' printed; name such a file"
    );
    assert!(err(&[7; 5000]).contains("seen 5000 bytes"));
    let mut newer = file(&[]);
    newer[8] = 2;
    let crc = crc32fast::hash(&newer[..12]).to_le_bytes();
    newer[12..16].copy_from_slice(&crc);
    assert!(err(&newer).contains("seen version 2, allowed 1"));
}

#[test]
fn a_cut_says_how_many_events_are_missing_at_least() {
    let want = host(4, 4, 12, 6000);
    let good = file(&want);
    let third = &blocks(&good)[3];
    let cut = items(&good[..(third.start + third.end) / 2]);
    let count = u32::from_le_bytes(good[third.start + 16..third.start + 20].try_into().unwrap());
    let before: usize = blocks(&good)[..3]
        .iter()
        .map(|b| u32::from_le_bytes(good[b.start + 16..b.start + 20].try_into().unwrap()) as usize)
        .sum();
    let least = count - (events(&cut).len() - before) as u32;
    assert!(least > 0 && (least as usize) < want.len() - events(&cut).len());
    let shown = gaps(&cut).iter().map(|g| (g.events, g.least)).collect::<Vec<_>>();
    assert_eq!(shown, [(None, least)]);
}

#[test]
fn a_second_trace_in_a_file_is_left_out_and_counted() {
    let (first, second) = (host(5, 4, 12, 6000), host(6, 4, 12, 3000));
    let (a, b) = (file(&first), file(&second));
    let of = |data: &[u8]| {
        let got = items(data);
        let gaps = gaps(&got).iter().map(|g| (g.cause, g.events, g.bytes)).collect::<Vec<_>>();
        (events(&got), gaps)
    };
    let another = (Cause::Another, Some(second.len() as u32), b.len() as u64);
    let joined = [&a[..], &b].concat();
    assert_eq!(of(&joined), (first.clone(), vec![another]));
    assert!(
        !Trace::read(&joined[..])
            .unwrap()
            .events
            .iter()
            .any(|e| matches!(e.kind, Kind::Lost { .. }))
    );
    // The first one is cut, within a block and behind one: none of the second is taken for it.
    for end in [a.len() / 2, blocks(&a)[2].end] {
        let (got, gaps) = of(&[&a[..end], &b].concat());
        assert_eq!(got, first[..got.len()], "cut at {end}");
        assert_eq!((gaps.len(), gaps[0].0, gaps[1]), (2, Cause::Cut, another), "cut at {end}");
    }
    let more = another.1.map(|n| n + first.len() as u32);
    let three = of(&[&a[..], &b, &a].concat());
    assert_eq!(three.1, [(Cause::Another, more, (a.len() + b.len()) as u64)]);
}

#[test]
fn an_id_that_no_host_has_is_refused_and_nothing_is_written() {
    let mut w = Writer::new(vec![]).unwrap();
    let bad = Event { ns: 1, pcpu: Some(PcpuId(1024)), kind: Kind::Idle { begins: true } };
    assert!(w.push(&bad).unwrap_err().to_string().contains("allowed 0..1023"));
    assert_eq!(events(&items(&w.finish().unwrap())), []);
}

#[test]
fn what_was_flushed_can_be_read_without_an_end() {
    let want = host(8, 2, 4, 100);
    let mut data = vec![];
    let mut w = Writer::new(&mut data).unwrap();
    want.iter().for_each(|e| w.push(e).unwrap());
    w.flush().unwrap();
    drop(w);
    let got = items(&data);
    assert_eq!(events(&got), want);
    assert_eq!(
        gaps(&got).iter().map(|g| (g.cause, g.bytes)).collect::<Vec<_>>(),
        [(Cause::Cut, 0)]
    );
}
