//! Waits summed up: worst first, histograms in powers of two of a µs, wake-up latency of each VM;
//! it judges nothing itself.

use crate::End;
use crate::waits::{Judgement, Wait};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counts of waits by length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Histogram {
    /// Bucket 0 counts waits below 1 µs, bucket i those from 2^(i-1) to below 2^i µs. The last one
    /// is not 0.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Counts a wait.
    pub fn add(&mut self, ns: u64) {
        let bucket = (u64::BITS - (ns / 1000).leading_zeros()) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    /// Lines of the histogram: bounds in µs, count, and a bar of at most 40 characters.
    #[must_use]
    pub fn text(&self) -> String {
        let most = self.buckets.iter().copied().max().unwrap_or(0).max(1);
        let first = self.buckets.iter().position(|n| *n > 0).unwrap_or(0);
        let mut out = String::new();
        for (i, n) in self.buckets.iter().enumerate().skip(first) {
            let (low, high) = (if i == 0 { 0 } else { 1u64 << (i - 1) }, 1u128 << i);
            let bar = "#".repeat((u128::from(*n) * 40).div_ceil(u128::from(most)) as usize);
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "{}",
                format!("{low:>10} .. {high:>10} us  {n:>8}  {bar}").trim_end()
            );
        }
        out
    }
}

/// Smallest, mean and largest of some times, in ns; all 0 if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// The smallest, in ns.
    pub min_ns: u64,
    /// The mean, in ns, rounded down.
    pub mean_ns: u64,
    /// The largest, in ns.
    pub max_ns: u64,
}

impl Latency {
    fn of(times: impl Iterator<Item = u64>) -> Latency {
        let (mut out, mut sum) = (Latency { min_ns: u64::MAX, ..Latency::default() }, 0u128);
        for ns in times {
            out.count += 1;
            sum += u128::from(ns);
            (out.min_ns, out.max_ns) = (out.min_ns.min(ns), out.max_ns.max(ns));
        }
        if out.count == 0 {
            return Latency::default();
        }
        out.mean_ns = (sum / u128::from(out.count)) as u64;
        out
    }
}

/// Waits of one VM, or of all worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sum {
    /// Name of the VM; empty for worlds without one, and for all together.
    pub name: String,
    /// Waits that ended in running.
    pub waits: u64,
    /// Time in waits, those included that have not ended, in ns; 2^64 - 1 stands for more.
    pub total_ns: u64,
    /// Waits that ended in running while another world ran where it was queued.
    pub behind: u64,
    /// Those of them that a wake-up began: of `wakeup.count`. RDY's two worlds of 20 % have one in
    /// five.
    pub late: u64,
    /// Waits in which a pCPU was wrong to idle.
    pub wrong_idle: u64,
    /// From a wake-up to running.
    pub wakeup: Latency,
    /// Waits by length.
    pub histogram: Histogram,
}

/// What is to be said of the waits of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Report {
    /// Every wait: wrong idling first, then the longest.
    pub waits: Vec<Wait>,
    /// All together.
    pub all: Sum,
    /// Each VM.
    pub vms: Vec<Sum>,
    /// Worlds that came to run of which it is not known since when they waited, or whether they
    /// did.
    pub unknown_begin: u64,
    /// The bound that was used, in ns.
    pub brief_ns: u64,
    /// When the trace begins, in ns of its clock.
    pub begin_ns: u64,
}

pub(crate) fn report(
    mut waits: Vec<Wait>,
    unknown_begin: u64,
    brief_ns: u64,
    begin_ns: u64,
) -> Report {
    let mut vms: BTreeMap<_, Vec<&Wait>> = BTreeMap::new();
    for w in &waits {
        vms.entry(w.vm).or_default().push(w);
    }
    let named = |all: &[&Wait]| Sum {
        name: all.first().map_or(String::new(), |w| w.vm_name.clone()),
        ..sum(all)
    };
    let vms = vms.values().map(|w| named(w)).collect();
    let all = sum(&waits.iter().collect::<Vec<_>>());
    let wrong = |w: &Wait| w.judgement == Judgement::WrongIdle;
    waits.sort_by(|a, b| {
        (wrong(b), b.cost_ns(), a.since_ns, a.world).cmp(&(
            wrong(a),
            a.cost_ns(),
            b.since_ns,
            b.world,
        ))
    });
    Report { waits, all, vms, unknown_begin, brief_ns, begin_ns }
}

fn sum(waits: &[&Wait]) -> Sum {
    let ended = || waits.iter().filter(|w| w.ran_on.is_some());
    let mut histogram = Histogram::default();
    ended().for_each(|w| histogram.add(w.ns));
    Sum {
        name: String::new(),
        waits: ended().count() as u64,
        total_ns: waits.iter().fold(0, |sum, w| sum.saturating_add(w.ns)),
        behind: ended().filter(|w| w.instead.is_some()).count() as u64,
        late: ended().filter(|w| w.slept && w.instead.is_some()).count() as u64,
        wrong_idle: waits.iter().filter(|w| w.judgement == Judgement::WrongIdle).count() as u64,
        wakeup: Latency::of(ended().filter(|w| w.slept).map(|w| w.ns)),
        histogram,
    }
}

impl Sum {
    /// Share of wake-ups that found another world running where they were queued, with one decimal;
    /// `-` without wake-ups.
    fn late_percent(&self) -> String {
        // Rounded to the nearest.
        let permille = (self.late * 1000 + self.wakeup.count / 2).checked_div(self.wakeup.count);
        permille.map_or("-".to_owned(), |p| format!("{}.{} %", p / 10, p % 10))
    }
}

impl Report {
    /// The report for people: the first `most` waits, the VMs, the histogram. Times in µs, moments
    /// since the trace begins.
    #[must_use]
    pub fn text(&self, most: usize) -> String {
        let mut out = format!(
            "{} waits, {} us: {}; {} beside a pCPU that was wrong to idle; begun unseen: {}\n\n\
                {:>14} {:>16} {:>5} {:>5} {:>6}  {:<10} world, waker, instead, why\n",
            self.waits.len(),
            us(self.all.total_ns),
            self.ends(),
            self.all.wrong_idle,
            self.unknown_begin,
            "wait us",
            "since us",
            "queue",
            "ran",
            "idle",
            "judgement"
        );
        for w in self.waits.iter().take(most) {
            self.wait_line(w, &mut out);
        }
        let left = self.waits.len().saturating_sub(most);
        if left > 0 {
            let _ = writeln!(out, "and {left} more");
        }
        let _ = writeln!(
            out,
            "\n{:>8} {:>14} {:>8} {:>6} {:>8} {:>8} {:>12} {:>12} {:>12}  VM",
            "ran", "us", "behind", "wrong", "wake-ups", "late", "min us", "mean us", "max us"
        );
        for s in self.vms.iter().chain([&self.all]) {
            let name = if std::ptr::eq(s, &self.all) {
                "all"
            } else if s.name.is_empty() {
                "no VM"
            } else {
                &s.name
            };
            let k = &s.wakeup;
            let [min, mean, max] = [k.min_ns, k.mean_ns, k.max_ns].map(us);
            let _ = writeln!(
                out,
                "{:>8} {:>14} {:>8} {:>6} {:>8} {:>8} {min:>12} {mean:>12} {max:>12}  {name}",
                s.waits,
                us(s.total_ns),
                s.behind,
                s.wrong_idle,
                k.count,
                s.late_percent()
            );
        }
        out.push('\n');
        out.push_str(&self.all.histogram.text());
        out
    }

    /// How the waits ended.
    fn ends(&self) -> String {
        let count = |end: End| self.waits.iter().filter(|w| w.end == end).count();
        let (ran, open, lost) = (self.all.waits as usize, count(End::Open), count(End::Lost));
        let other = self.waits.len().saturating_sub(ran + open + lost);
        let rest = [
            (other, "until another state"),
            (lost, "until events were lost"),
            (open, "not ended when the trace did"),
        ];
        let rest = rest.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}"));
        format!("{ran} until the world ran{}", rest.collect::<String>())
    }

    /// One wait as a line of the report.
    fn wait_line(&self, w: &Wait, out: &mut String) {
        let pcpu = |p: Option<units::PcpuId>| p.map_or("-".to_owned(), |p| p.0.to_string());
        let vm = if w.vm_name.is_empty() { String::new() } else { format!("{}/", w.vm_name) };
        let waker = w.waker.as_ref().map_or(String::new(), |k| format!(", woken by {k}"));
        let instead = w
            .instead
            .as_ref()
            .map_or(String::new(), |(n, ns)| format!(", instead {n} for {} us", us(*ns)));
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:>14} {:>16} {:>5} {:>5} {:>6}  {:<10} {vm}{}{waker}{instead}: {}",
            us(w.ns),
            us(w.since_ns.saturating_sub(self.begin_ns)),
            pcpu(w.queued_on),
            pcpu(w.ran_on),
            w.seen_idle,
            w.judgement.name(),
            w.name,
            w.because
        );
    }
}

/// Nanoseconds as µs with three decimals.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_by_powers_of_two_of_a_microsecond() {
        let mut h = Histogram::default();
        [0, 999, 1000, 1999, 2000, 3999, 4000, 1_024_000].into_iter().for_each(|ns| h.add(ns));
        assert_eq!(h.buckets, [2, 2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(
            h.text().starts_with(
                "         0 ..          1 us         2  ########################################\n"
            ),
            "{}",
            h.text()
        );
        let mut last = Histogram::default();
        last.add(u64::MAX);
        assert_eq!(last.buckets.len(), 56);
        assert_eq!(last.text().lines().count(), 1);
    }

    #[test]
    fn latency_of_nothing_is_nothing() {
        assert_eq!(Latency::of([].into_iter()), Latency::default());
        assert_eq!(
            Latency::of([5, 8, 3].into_iter()),
            Latency { count: 3, min_ns: 3, mean_ns: 5, max_ns: 8 }
        );
    }
}
