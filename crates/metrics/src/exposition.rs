//! Numbers of all metrics at one moment, as text: OpenMetrics 1.0, or Prometheus' own format 0.0.4
//! for readers that do not ask for it.

use crate::{Kind, METRICS, Metric, Unit};
use std::fmt::{self, Write};

/// One number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count; of a flag 0 or 1.
    Count(u64),
    /// Time in ns, shown in seconds without rounding.
    Ns(u64),
    /// CPU in 2^-20 pCPU, shown in pCPUs without rounding.
    Rate(u64),
    /// Bytes.
    Bytes(u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NS: u64 = 1_000_000_000;
        match *self {
            Value::Count(n) | Value::Bytes(n) => write!(f, "{n}"),
            Value::Ns(ns) => write!(f, "{}.{:09}", ns / NS, ns % NS),
            // A fraction of 20 bits has at most 20 decimals: each more doubles away one bit, so the
            // loop ends.
            Value::Rate(rate) => {
                write!(f, "{}", rate >> 20)?;
                let mut rest = rate & ((1 << 20) - 1);
                let mut point = ".";
                while rest != 0 {
                    rest *= 10;
                    write!(f, "{point}{}", rest >> 20)?;
                    rest &= (1 << 20) - 1;
                    point = "";
                }
                Ok(())
            }
        }
    }
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Prometheus,
}

impl Format {
    /// `Content-Type` of a response.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// What a client that sends this `Accept` wants: OpenMetrics if it names it, and plain text no
    /// more than that.
    #[must_use]
    pub fn accepted(accept: &str) -> Format {
        let quality = |wanted: &str| {
            let of = |range: &str| {
                let mut parts = range.split(';').map(str::trim);
                let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
                let q = parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
                named.then(|| q.map_or(1.0, |q| q.parse::<f64>().unwrap_or(0.0)))
            };
            accept.split(',').filter_map(of).fold(0.0, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }
}

/// Numbers of all metrics at one moment.
#[derive(Clone, Debug)]
pub struct Samples(Vec<Vec<(Vec<String>, Value)>>);

impl Default for Samples {
    fn default() -> Self {
        Samples(vec![vec![]; Metric::COUNT])
    }
}

impl Samples {
    /// Adds a number under the values of the metric's labels, in their order.
    ///
    /// # Panics
    /// When there are more or fewer values than labels, or the value has another unit than the
    /// metric.
    pub fn add(&mut self, metric: Metric, labels: &[&str], value: Value) {
        let declared = metric.declared();
        assert_eq!(labels.len(), declared.labels.len(), "labels of {}", declared.name);
        let unit = match value {
            Value::Count(_) => Unit::None,
            Value::Ns(_) => Unit::Seconds,
            Value::Rate(_) => Unit::Pcpus,
            Value::Bytes(_) => Unit::Bytes,
        };
        assert_eq!(unit, declared.unit, "unit of {}", declared.name);
        self.0[metric as usize].push((labels.iter().map(|l| (*l).to_owned()).collect(), value));
    }

    /// The number under these values of labels.
    #[must_use]
    pub fn get(&self, metric: Metric, labels: &[&str]) -> Option<Value> {
        self.0[metric as usize].iter().find(|s| s.0 == labels).map(|s| s.1)
    }

    /// All of them as text. A metric without numbers is left out.
    #[must_use]
    pub fn text(&self, format: Format) -> String {
        let mut out = String::new();
        for (declared, samples) in
            METRICS.iter().zip(&self.0).filter(|(_, samples)| !samples.is_empty())
        {
            let sample = declared.sample();
            let (name, kind) = match format {
                Format::OpenMetrics => (declared.name, declared.kind.name()),
                // Its families are called as their samples are, and it has no type for information.
                Format::Prometheus if declared.kind == Kind::Info => (sample.as_str(), "gauge"),
                Format::Prometheus => (sample.as_str(), declared.kind.name()),
            };
            let help = [declared.meaning, declared.advice].join(" ");
            line(&mut out, format_args!("# TYPE {name} {kind}"));
            if format == Format::OpenMetrics && declared.unit != Unit::None {
                line(&mut out, format_args!("# UNIT {name} {}", declared.unit.name()));
            }
            line(
                &mut out,
                format_args!("# HELP {name} {}", escaped(&help, format == Format::OpenMetrics)),
            );
            for (values, value) in samples {
                let pairs = declared
                    .labels
                    .iter()
                    .zip(values)
                    .map(|(l, v)| format!("{l}=\"{}\"", escaped(v, true)));
                let labels = pairs.collect::<Vec<_>>().join(",");
                let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
                line(&mut out, format_args!("{sample}{labels} {value}"));
            }
        }
        if format == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

fn line(out: &mut String, text: fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}"); // a String takes everything
}

/// Escapes a label's value or a help text; only OpenMetrics escapes quotes in the latter.
fn escaped(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_are_shown_without_rounding() {
        let shown = |v: Value| v.to_string();
        assert_eq!(
            [Value::Ns(0), Value::Ns(1), Value::Ns(61_500_000_000)].map(shown),
            ["0.000000000", "0.000000001", "61.500000000"]
        );
        assert_eq!(
            [Value::Rate(3 << 20), Value::Rate(1 << 19), Value::Rate(5 << 18)].map(shown),
            ["3", "0.5", "1.25"]
        );
        assert_eq!(shown(Value::Rate(1)), "0.00000095367431640625");
        assert_eq!(shown(Value::Count(u64::MAX)), "18446744073709551615");
    }

    #[test]
    fn who_asks_for_open_metrics_gets_it_and_all_others_plain_text() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for open in [
            prometheus,
            "application/openmetrics-text",
            "text/plain, Application/OpenMetrics-Text; version=0.0.1",
        ] {
            assert_eq!(Format::accepted(open), Format::OpenMetrics, "{open}");
        }
        let less = "text/plain;q=0.9,application/openmetrics-text;q=0.1";
        for plain in [
            "",
            "*/*",
            "text/html",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            less,
        ] {
            assert_eq!(Format::accepted(plain), Format::Prometheus, "{plain}");
        }
    }

    #[test]
    #[should_panic(expected = "unit of tandem_pcpu_busy_seconds")]
    fn a_number_of_another_unit_is_refused() {
        Samples::default().add(Metric::PcpuBusy, &["0"], Value::Count(1));
    }
}
