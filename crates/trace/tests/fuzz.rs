//! Any bytes at all: readers neither panic nor take more memory than a file of that length is
//! worth.

use crate::common;

use common::{Draw, any, file, host};
use trace::fuzz::{fuzz_blocks, fuzz_log, fuzz_raw, fuzz_reader};
use trace::log::{Style, print};
use trace::{Event, to_raw};

/// Small ids, so that what is analysed stays small.
fn small(r: &mut Draw, n: u64) -> Vec<Event> {
    let mut out = host(r.bits() | 1, 4, 8, n as usize);
    for _ in 0..n / 8 {
        let at = r.below(out.len() as u64) as usize;
        let e = any(r);
        out.insert(at, Event { ns: out[at].ns, ..e });
    }
    out
}

#[test]
fn random_bytes_are_no_trace_and_do_no_harm() {
    let mut r = Draw::new(21);
    for _ in 0..2000 {
        let data: Vec<u8> = (0..r.below(2000)).map(|_| r.bits() as u8).collect();
        assert_eq!(fuzz_reader(&data), 0);
        assert_eq!(fuzz_log(&data), 0);
    }
}

#[test]
fn files_with_many_damages_are_read_around_them() {
    let (mut r, mut read, mut none) = (Draw::new(22), 0, 0);
    for _ in 0..120 {
        let n = 50 + r.below(600);
        let mut data = file(&small(&mut r, n));
        for _ in 0..r.below(6) {
            let at = r.below(data.len() as u64) as usize;
            match r.below(4) {
                0 => data[at] ^= r.bits() as u8,
                1 => data.truncate(at + 1),
                2 => data.insert(at, r.bits() as u8),
                _ => drop(data.drain(at..(at + r.below(100) as usize).min(data.len()))),
            }
            if data.is_empty() {
                break;
            }
        }
        let got = fuzz_reader(&data);
        read += usize::from(got > 0);
        none += usize::from(got == 0);
    }
    assert!(read > 30 && none > 5, "{read} read, {none} not");
}

/// A body that lies: its checksums are right, so that the decoder sees any bytes at all.
#[test]
fn blocks_whose_checksums_are_right_and_whose_events_are_not_do_no_harm() {
    let mut r = Draw::new(23);
    let good = file(&host(5, 4, 8, 300));
    let kinds = 40 + u32::from_le_bytes(good[28..32].try_into().unwrap()) as usize;
    for _ in 0..800 {
        let mut data = good.clone();
        let head = 16 + kinds;
        let len = u32::from_le_bytes(data[head + 12..head + 16].try_into().unwrap()) as usize;
        for _ in 0..1 + r.below(4) {
            let at = head + 40 + r.below(len as u64) as usize;
            data[at] = r.bits() as u8;
        }
        let body = crc32fast::hash(&data[head + 40..head + 40 + len]).to_le_bytes();
        data[head + 32..head + 36].copy_from_slice(&body);
        let crc = crc32fast::hash(&data[head..head + 36]).to_le_bytes();
        data[head + 36..head + 40].copy_from_slice(&crc);
        assert!(fuzz_reader(&data) <= 304);
    }
}

#[test]
fn a_fuzzer_of_blocks_comes_behind_their_checksums() {
    let mut r = Draw::new(26);
    let good = file(&host(5, 4, 8, 300));
    assert_eq!(fuzz_blocks(&good), fuzz_reader(&good), "what is right stays as it is");
    let (mut read, mut differs) = (0, 0);
    for _ in 0..200 {
        let mut data = good.clone();
        let at = r.below(data.len() as u64) as usize;
        data[at] ^= 1 << r.below(8);
        let (behind, before) = (fuzz_blocks(&data), fuzz_reader(&data));
        read += behind;
        differs += usize::from(behind != before);
    }
    assert!(
        read > 200 * 100 && differs > 100,
        "{read} read, {differs} are refused by their checksums otherwise"
    );
}

#[test]
fn logs_with_changed_letters_are_read_line_by_line() {
    let (mut r, mut read) = (Draw::new(24), 0);
    let letters = b"0159 .-?%\nABEQUSTW\xff";
    for round in 0..120 {
        let style = if round % 2 == 0 { Style::Full } else { Style::Rdy };
        let mut data = print(&small(&mut r, 60), style, 1).into_bytes();
        for _ in 0..r.below(8) {
            let at = r.below(data.len() as u64) as usize;
            data[at] = r.of(letters);
        }
        read += fuzz_log(&data);
    }
    assert!(read > 120 * 30, "{read}");
}

#[test]
fn raw_records_of_any_bytes_do_no_harm() {
    let (mut r, mut read) = (Draw::new(25), 0);
    for _ in 0..120 {
        let mut data: Vec<u8> =
            small(&mut r, 60).iter().filter_map(|e| to_raw(e).ok()).flatten().collect();
        for _ in 0..r.below(10) {
            let at = r.below(data.len() as u64) as usize;
            data[at] = r.bits() as u8;
        }
        read += fuzz_raw(&data);
    }
    assert!(read > 120 * 40, "{read}");
}
