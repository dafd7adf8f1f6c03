//! Batch files written and read back, cut off and damaged: the same numbers, whole lines, errors
//! that say where, and never a panic.

use crate::common;

use common::{AWKWARD, Rng, file, samples};
use esxtop::{Batch, Metric, Object, Rates, ReadError, read};

/// Compares each number that was written with what was read; how many there were.
fn compare(samples: &[Rates], batch: &Batch) -> usize {
    let rounded = |v: Option<f64>| v.map(|v| format!("{v:.2}").parse::<f64>().unwrap());
    let mut numbers = 0;
    for (i, rates) in samples.iter().enumerate() {
        assert_eq!(batch.unix_ms[i], rates.unix_seconds * 1000);
        let mut check = |object: Object, starts: &str, get: &dyn Fn(Metric) -> Option<f64>| {
            for metric in object.metrics() {
                let Some(name) = metric.counter().batch else { continue };
                let is_it = |s: &&esxtop::Series| {
                    s.path.instance.as_deref().unwrap_or("").starts_with(starts)
                };
                let all: Vec<_> = batch.of(object.name(), name).filter(is_it).collect();
                assert_eq!(all.len(), 1, "{object:?} {starts} {name}");
                assert_eq!(all[0].numbers[i], rounded(get(metric)), "{object:?} {starts} {name}");
                numbers += usize::from(get(metric).is_some());
            }
        };
        check(Object::Load, "", &|m| rates.host.get(m));
        check(Object::Pcpu, "_Total", &|m| rates.total.get(m));
        rates
            .pcpus
            .iter()
            .for_each(|p| check(Object::Pcpu, &p.id.0.to_string(), &|m| p.values.get(m)));
        rates.groups.iter().for_each(|(gid, g)| {
            check(Object::Group, &format!("{}:", gid.0), &|m| g.values.get(m))
        });
        for (wid, w) in &rates.worlds {
            let group = batch.of("Vcpu", "% Run").filter_map(|s| s.path.instance.as_deref());
            let wanted = format!(":{}:", wid.0);
            let instance = group
                .into_iter()
                .find(|i| i.starts_with(&format!("{}:", w.gid.0)) && i.contains(&wanted))
                .unwrap();
            check(Object::World, instance, &|m| w.values.get(m));
        }
    }
    numbers
}

#[test]
fn what_was_written_is_read_with_the_same_numbers() {
    for seed in 1..12 {
        let vms = seed % 5 * 4;
        let samples = samples(seed, vms, 1 + seed as usize % 4);
        let batch = read(&file(&samples, "h")[..]).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(
            (batch.unix_ms.len(), batch.cut_line, batch.host(), batch.zone.as_str()),
            (samples.len(), None, Some("h"), "UTC")
        );
        let numbers = compare(&samples, &batch);
        assert!(numbers > samples.len() * (30 + vms as usize * 30), "seed {seed}: {numbers}");
    }
}

#[test]
fn a_file_cut_anywhere_gives_its_whole_lines() {
    let whole = file(&samples(5, AWKWARD.len() as u64, 4), "h");
    let ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i).collect();
    let full = read(&whole[..]).unwrap();
    let mut r = Rng(9);
    let random =
        (0..300).map(|_| ends[0] + 1 + r.below((whole.len() - ends[0] - 1) as u64) as usize);
    let at_ends = ends
        .iter()
        .flat_map(|e| [*e, e + 1, e.saturating_sub(1), e + 2])
        .filter(|at| *at >= ends[0] && *at <= whole.len());
    for at in random.chain(at_ends) {
        let batch = read(&whole[..at]).unwrap_or_else(|e| panic!("cut at {at}: {e}"));
        // A line is whole as soon as its last quote is there.
        let lines = ends.iter().filter(|e| at >= **e).count() - 1;
        assert_eq!(batch.unix_ms, full.unix_ms[..lines], "cut at {at}");
        let rest = ends.iter().all(|e| at != *e && at != e + 1);
        assert_eq!(batch.cut_line, rest.then_some(lines + 2), "cut at {at}");
        assert!(
            batch.series.iter().zip(&full.series).all(|(a, b)| a.numbers == b.numbers[..lines])
        );
    }
    // Within the header nothing can be said of columns.
    assert!(
        matches!(read(&whole[..ends[0] / 2]), Err(ReadError::Quote { line: 1, .. }))
            || read(&whole[..ends[0] / 2]).is_ok()
    );
    assert!(matches!(read(&b""[..]), Err(ReadError::Empty)));
}

#[test]
fn damaged_files_are_refused_or_read_and_never_a_panic() {
    let good = file(&samples(6, 3, 6), "h");
    let (mut r, mut refused, mut taken) = (Rng(77), 0, 0);
    for round in 0..1500 {
        let mut data = good.clone();
        for _ in 0..=r.below(4) {
            let at = r.below(data.len() as u64) as usize;
            let len = r.below(60) as usize;
            match r.below(6) {
                0 => data[at] = r.next() as u8,
                1 => data[at] ^= 1 << r.below(8),
                2 => data.truncate(at + 1),
                3 => data.insert(at, *b"\",\n\\(:-.\0\xff".get(r.below(10) as usize).unwrap()),
                4 => drop(data.drain(at..(at + len).min(data.len()))),
                _ => {
                    let piece = data[at..(at + len).min(data.len())].to_vec();
                    data.splice(at..at, piece);
                }
            }
            if data.is_empty() {
                break;
            }
        }
        match read(&data[..]) {
            Ok(batch) => {
                taken += 1;
                assert!(
                    batch.series.iter().all(|s| s.numbers.len() == batch.unix_ms.len()),
                    "round {round}"
                );
                assert!(
                    batch
                        .series
                        .iter()
                        .flat_map(|s| s.numbers.iter().flatten())
                        .all(|n| n.is_finite())
                );
            }
            Err(e) => {
                refused += 1;
                let said = e.to_string();
                let whole = said.starts_with("batch file")
                    && (said.contains("allowed") || said.contains("check the disk"));
                assert!(whole && said.contains(';'), "round {round}: {said}");
                assert!(said.chars().count() < 500, "round {round}: {said}");
            }
        }
    }
    assert!(refused > 300 && taken > 300, "{refused} refused, {taken} taken");
}

#[test]
fn random_bytes_and_random_text_do_no_harm() {
    let mut r = Rng(21);
    let marks = b"\"\",,\n\n\r\\\\()::%0123456789./ -PDHCSVUT(PDH-CSV 4.0) (UTC)(0)";
    for _ in 0..3000 {
        let n = r.below(400);
        let bytes: Vec<u8> = (0..n).map(|_| r.next() as u8).collect();
        assert!(read(&bytes[..]).is_err(), "random bytes are no batch file");
        let text: Vec<u8> = (0..n).map(|_| marks[r.below(marks.len() as u64) as usize]).collect();
        let _ = read(&text[..]);
        let with_header =
            [b"\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\o(i)\\c\"\n".as_slice(), &text].concat();
        if let Ok(batch) = read(&with_header[..]) {
            assert_eq!(batch.series[0].numbers.len(), batch.unix_ms.len());
        }
    }
}
