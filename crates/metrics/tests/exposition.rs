//! The exposition against a strict reader, with names that are as odd as names can be.

use dice::Draw;
use metrics::{Format, Kind, METRICS, Metric, Samples, Unit, Value, strict};

/// Names and values by seed.
struct Random(Draw);

impl Random {
    fn new(seed: u64) -> Random {
        Random(Draw::new(seed))
    }

    fn name(&mut self) -> String {
        const ODD: [char; 16] = [
            '"',
            '\\',
            '\n',
            '{',
            '}',
            ',',
            '=',
            ' ',
            '#',
            'n',
            'a',
            '\u{e9}',
            '\u{1f980}',
            '\r',
            '\t',
            '\u{2028}',
        ];
        (0..self.0.below(12)).map(|_| self.0.of(&ODD)).collect()
    }

    fn value(&mut self, unit: Unit) -> Value {
        let n = self.0.below(1 << 31) * self.0.below(1 << 31);
        match unit {
            Unit::None => Value::Count(n),
            Unit::Seconds => Value::Ns(n),
            Unit::Pcpus => Value::Rate(n >> 10),
            Unit::Bytes => Value::Bytes(n),
        }
    }
}

/// Two samples of every metric, and what was put in.
fn made_up(random: &mut Random) -> (Samples, Vec<(Metric, Vec<String>, Value)>) {
    let (mut samples, mut put) = (Samples::default(), vec![]);
    for d in &METRICS {
        for n in 0..if d.labels.is_empty() { 1 } else { 2 } {
            let labels: Vec<String> =
                d.labels.iter().map(|_| format!("{}{n}", random.name())).collect();
            let value = if d.kind == Kind::Info { Value::Count(1) } else { random.value(d.unit) };
            samples.add(d.metric, &labels.iter().map(String::as_str).collect::<Vec<_>>(), value);
            put.push((d.metric, labels, value));
        }
    }
    (samples, put)
}

#[test]
fn any_names_survive_a_strict_reader() {
    for seed in 0..500 {
        let (samples, put) = made_up(&mut Random::new(seed));
        let text = samples.text(Format::OpenMetrics);
        let families = strict::read(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(families.len(), METRICS.len());
        assert_eq!(families.values().map(|f| f.samples.len()).sum::<usize>(), put.len());
        for (metric, labels, value) in put {
            let d = metric.declared();
            let family = &families[d.name];
            assert_eq!(
                (family.kind.as_str(), family.unit.as_str()),
                (d.kind.name(), d.unit.name()),
                "{}",
                d.name
            );
            assert_eq!(family.help, format!("{} {}", d.meaning, d.advice));
            let labels: Vec<(String, String)> =
                d.labels.iter().map(|l| (*l).to_owned()).zip(labels).collect();
            assert!(
                family.samples.contains(&(labels.clone(), value.to_string())),
                "seed {seed}: {} {labels:?} {value}",
                d.name
            );
        }
    }
}

#[test]
fn metrics_without_numbers_are_left_out_and_the_text_still_ends() {
    assert_eq!(Samples::default().text(Format::OpenMetrics), "# EOF\n");
    assert_eq!(Samples::default().text(Format::Prometheus), "");
    let mut one = Samples::default();
    one.add(Metric::VmState, &["a\"b", "/p", "7", "ready"], Value::Ns(1_500_000_000));
    let text = one.text(Format::OpenMetrics);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "# TYPE tandem_vm_state_seconds counter");
    assert_eq!(lines[1], "# UNIT tandem_vm_state_seconds seconds");
    assert!(lines[2].starts_with("# HELP tandem_vm_state_seconds Time of all worlds"));
    assert_eq!(
        lines[3],
        r#"tandem_vm_state_seconds_total{vm="a\"b",pool="/p",id="7",state="ready"} 1.500000000"#
    );
    assert_eq!(lines[4..], ["# EOF"]);
}

#[test]
fn prometheus_own_format_names_families_as_samples_and_has_no_unit_and_no_end() {
    let (samples, put) = made_up(&mut Random::new(7));
    let text = samples.text(Format::Prometheus);
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
    assert!(
        text.contains(
            "# TYPE tandem_vm_used_seconds_total counter\n# HELP \
        tandem_vm_used_seconds_total CPU time"
        ),
        "{text}"
    );
    assert!(text.contains("# TYPE tandem_build_info gauge\n"));
    assert!(text.contains("# TYPE tandem_vm_vcpus gauge\n"));
    assert_eq!(text.split_terminator('\n').filter(|l| !l.starts_with("# ")).count(), put.len());
}

#[test]
fn the_strict_reader_refuses_what_breaks_a_rule() {
    let good = "# TYPE a_seconds counter\n# UNIT a_seconds seconds\n# HELP a_seconds \
        x\na_seconds_total{l=\"v\"} 1.5\n# EOF\n";
    assert_eq!(strict::read(good).unwrap()["a_seconds"].samples[0].1, "1.5");
    let broken = [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF\n# EOF\n"),
        ("_total{", "{"),
        ("# UNIT a_seconds seconds", "# UNIT a_seconds ms"),
        ("# TYPE a_seconds counter\n", ""),
        ("counter", "count"),
        ("1.5\n", "1.5\na_seconds_total{l=\"v\"} 2\n"),
        ("1.5\n", "1.5\n# HELP a_seconds y\n"),
        ("1.5\n", "1.5\n# TYPE b gauge\nb 1\n# HELP a_seconds y\n"),
        ("1.5\n", "1.5\n# TYPE b gauge\nb 1\na_seconds_total{l=\"w\"} 1.5\n"),
        ("1.5", "NaN"),
        ("1.5", "-1"),
        ("1.5", "x"),
        ("l=\"v\"", "l=\"v"),
        ("l=\"v\"", "l=\"\\v\""),
        ("l=\"v\"", "l=\"v\",l=\"v\""),
        ("l=\"v\"", "9=\"v\""),
        ("} 1", "}  1"),
        ("# HELP a_seconds x", "# HELP a_seconds \"x"),
    ];
    for (seen, put) in broken {
        let text = good.replacen(seen, put, 1);
        assert!(strict::read(&text).is_err(), "{text}");
    }
}
