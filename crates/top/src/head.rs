//! The lines above the table: time, worlds, load average, and the use of each pCPU; large hosts are
//! summarised.

use crate::cells::mark;
use crate::line::{Line, Tone};
use crate::play::Sample;
use esxtop::{Gid, GroupKind, GroupRates, Level, Metric, Rates};

/// Lines that one counter of pCPUs may take, on small screens and on large ones.
const LINES: (usize, usize) = (2, 4);
/// From this height on a screen is large.
const LARGE: usize = 40;
/// Hosts of at most so many pCPUs are shown with a decimal.
const WITH_DECIMAL: usize = 16;

/// `12:41:08am up 4:31, 278 worlds, 3 VMs, 12 vCPUs; CPU load average: 0.01, 0.01, 0.00`.
pub(crate) fn first(sample: &Sample, width: usize) -> Line {
    let r = &sample.rates;
    let vms = r.groups.values().filter(|g| g.kind == GroupKind::Vm);
    let (vms, vcpus) = vms.fold((0, 0), |(n, v), g| (n + 1, v + g.vcpus));
    let of = |g: &GroupRates| g.values.get(Metric::Worlds);
    // The host has all; a file does not say how many they are, and nothing of pools.
    let all = || {
        r.groups
            .values()
            .filter(|g| g.parent.is_none() && g.kind != GroupKind::Pool)
            .filter_map(of)
            .sum()
    };
    let worlds: f64 = r.groups.get(&Gid::HOST).and_then(of).unwrap_or_else(all);
    let time = format!("{} up {}", clock(r.unix_seconds), up(sample.up_ns));
    let counts = format!("{worlds:.0} worlds, {vms} VMs, {vcpus} vCPUs");
    let loads = [Metric::Load1, Metric::Load5, Metric::Load15];
    let known = loads.map(|m| r.host.get(m).map_or("-".to_owned(), |v| format!("{v:.2}")));
    let long = format!("{time}, {counts}; CPU load average: ");
    let fits = long.len() + known.iter().map(|k| k.len() + 3).sum::<usize>() <= width;
    let mut line = Line::default();
    line.push(if fits { long } else { format!("{time}, {counts}; load: ") }, Tone::Plain);
    for (i, (metric, text)) in loads.into_iter().zip(known).enumerate() {
        let level =
            r.host.get(metric).map_or(Level::Fine, |v| metric.counter().thresholds.level(v, 1));
        line.push(format!("{text}{}", mark(level).to_string().trim()), Tone::of(level));
        line.push(if i < 2 { ", " } else { "" }, Tone::Plain);
    }
    line
}

/// The time of day, UTC, as esxtop writes it.
fn clock(unix_seconds: i64) -> String {
    let s = unix_seconds.rem_euclid(86_400);
    let (hour, minute, second) = (s / 3600, s / 60 % 60, s % 60);
    let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
    format!("{twelve}:{minute:02}:{second:02}{}", if hour < 12 { "am" } else { "pm" })
}

/// `3 days 4:31`; below an hour `0:04:31`, for simulated hosts and traces are younger than that.
fn up(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    let (days, hours, minutes) = (s / 86_400, s / 3600 % 24, s / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("0:{minutes:02}:{:02}", s % 60),
        (0, _) => format!("{hours}:{minutes:02}"),
        (1, _) => format!("1 day {hours}:{minutes:02}"),
        _ => format!("{days} days {hours}:{minutes:02}"),
    }
}

/// PCPU USED, PCPU UTIL and, with hyper-threads, CORE UTIL; counters that no pCPU knows have no
/// line.
pub(crate) fn pcpus(rates: &Rates, width: usize, height: usize) -> Vec<Line> {
    let mut cores: Vec<u32> = rates.pcpus.iter().map(|p| p.core).collect();
    cores.sort_unstable();
    cores.dedup();
    let smt = cores.len() < rates.pcpus.len();
    let most = if height < LARGE { LINES.0 } else { LINES.1 };
    let mut out = vec![];
    for metric in [Metric::PcpuUsed, Metric::PcpuUtil, Metric::CoreUtil] {
        let mut values: Vec<(u32, Option<f64>)> =
            rates.pcpus.iter().map(|p| (u32::from(p.id.0), p.values.get(metric))).collect();
        if metric == Metric::CoreUtil {
            if !smt {
                continue;
            }
            let of = |core: &u32| {
                rates.pcpus.iter().find(|p| p.core == *core).and_then(|p| p.values.get(metric))
            };
            values = cores.iter().map(|core| (*core, of(core))).collect();
        }
        if values.iter().any(|v| v.1.is_some()) {
            out.extend(row(metric.counter().column, &values, width, most));
        }
    }
    out
}

/// `NUMA /MB: 65536 (1024), 65536 (60000)`: memory of each node, and what is free of it.
pub(crate) fn nodes(rates: &Rates, width: usize) -> Vec<Line> {
    let all = rates.nodes.iter().map(|n| format!("{} ({})", n.bytes >> 20, n.free >> 20));
    let title = "NUMA /MB: ";
    let mut lines: Vec<String> = vec![];
    for node in all {
        let begin = if lines.is_empty() { title.to_owned() } else { " ".repeat(title.len()) };
        match lines.last_mut().filter(|l| l.len() + 2 + node.len() <= width) {
            Some(line) => *line += &format!(", {node}"),
            None => lines.push(begin + &node),
        }
    }
    lines.into_iter().map(|l| Line::of(l, Tone::Plain)).collect()
}

/// One counter of all pCPUs (or cores): each number, wrapped, or a summary where that would take
/// too many lines.
fn row(title: &str, values: &[(u32, Option<f64>)], width: usize, most: usize) -> Vec<Line> {
    let decimals = usize::from(values.len() <= WITH_DECIMAL);
    let each = 4 + 2 * decimals;
    let known: Vec<f64> = values.iter().filter_map(|v| v.1).collect();
    let average = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let average = format!(" AVG:{average:6.1}");
    let title = format!("{title}:");
    let room = width.saturating_sub(title.len() + average.len()).max(each) / each;
    if values.len() > room * most {
        return vec![Line::of(summary(&title, &average, values, &known), Tone::Plain)];
    }
    let number = |v: &(u32, Option<f64>)| {
        v.1.map_or_else(|| format!("{:>each$}", "-"), |n| format!("{n:each$.decimals$}"))
    };
    let lines = values.chunks(room).enumerate().map(|(i, chunk)| {
        let begin = if i == 0 { title.clone() } else { " ".repeat(title.len()) };
        let end = if (i + 1) * room >= values.len() { average.as_str() } else { "" };
        Line::of(begin + &chunk.iter().map(number).collect::<String>() + end, Tone::Plain)
    });
    lines.collect()
}

/// `PCPU UTIL(%): AVG:  41.3  MIN: 0.0 (#7)  MAX: 100.0 (#12)  256 in all, 96 above 90, 40 below
/// 10`.
fn summary(title: &str, average: &str, values: &[(u32, Option<f64>)], known: &[f64]) -> String {
    let by = |a: &&(u32, Option<f64>), b: &&(u32, Option<f64>)| {
        a.1.unwrap_or(0.0).total_cmp(&b.1.unwrap_or(0.0))
    };
    let told = || values.iter().filter(|v| v.1.is_some());
    let one = |v: Option<&(u32, Option<f64>)>| {
        v.map_or(String::new(), |v| format!("{:.1} (#{})", v.1.unwrap_or(0.0), v.0))
    };
    let (low, high) = (one(told().min_by(by)), one(told().rev().max_by(by)));
    let count = |wanted: fn(f64) -> bool| known.iter().filter(|v| wanted(**v)).count();
    let (above, below) = (count(|v| v > 90.0), count(|v| v < 10.0));
    format!(
        "{title}{average}  MIN: {low}  MAX: {high}  {} in all, {above} above 90, {below} below 10",
        values.len()
    )
}
