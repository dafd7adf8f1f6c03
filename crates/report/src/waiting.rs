//! Ready times for the page: percentiles and histogram of each VM, and the worst waits;
//! `trace::waits` judges them, not this.

use crate::model::{WaitSum, Waits, WorstWait};
use crate::told::Window;
use std::collections::BTreeMap;
use trace::waits::{Wait, WaitOptions, analyse};
use trace::{Histogram, Trace};

/// Waits that are listed.
const WORST: usize = 15;

/// The waits of the part of a trace that is shown.
pub(crate) fn waits(trace: &Trace, window: Window, brief_ns: u64) -> Waits {
    // The last event is in the part: its end is not after it.
    let options = WaitOptions {
        from_ns: window.from,
        to_ns: window.to.saturating_add(1),
        brief_ns,
        ..WaitOptions::default()
    };
    let report = analyse(&trace.events, &options);
    let mut by_vm: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for w in report.waits.iter().filter(|w| w.ran_on.is_some()) {
        let name = if w.vm_name.is_empty() { "no VM" } else { &w.vm_name };
        by_vm.entry(name).or_default().push(w.ns);
    }
    let all = sum("all", by_vm.values().flatten().copied().collect());
    let vms = by_vm.into_iter().map(|(name, ns)| sum(name, ns));
    Waits {
        sums: std::iter::once(all).chain(vms).collect(),
        worst: report.waits.iter().take(WORST).map(|w| worst(w, window)).collect(),
        wrong_idle: report.all.wrong_idle,
        brief_ns,
    }
}

fn sum(name: &str, mut ns: Vec<u64>) -> WaitSum {
    ns.sort_unstable();
    let mut histogram = Histogram::default();
    ns.iter().for_each(|n| histogram.add(*n));
    let at = |percent| percentile(&ns, percent);
    WaitSum {
        name: name.to_owned(),
        count: ns.len() as u64,
        p50: at(50),
        p90: at(90),
        p99: at(99),
        max: at(100),
        histogram: histogram.buckets,
    }
}

/// The smallest of the sorted numbers that `percent` of 100 do not exceed (nearest rank); 0 if
/// there are none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

fn worst(w: &Wait, window: Window) -> WorstWait {
    let who =
        if w.vm_name.is_empty() { w.name.clone() } else { format!("{}/{}", w.vm_name, w.name) };
    WorstWait {
        who,
        vm: w.vm_name.clone(),
        state: w.state.name(),
        since_ns: w.since_ns.saturating_sub(window.zero),
        ns: w.ns,
        pcpu: w.ran_on.or(w.queued_on).map(|p| p.0),
        instead: w.instead.clone(),
        judgement: w.judgement.name(),
        because: w.because.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_wait_that_was_seen() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([50, 90, 99, 100].map(|p| percentile(&hundred, p)), [50, 90, 99, 100]);
        assert_eq!([50, 90, 99, 100].map(|p| percentile(&[7, 9], p)), [7, 9, 9, 9]);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn a_sum_counts_each_wait_once() {
        let s = sum("a", vec![4000, 500, 1500]);
        assert_eq!((s.count, s.p50, s.max, s.histogram), (3, 1500, 4000, vec![1, 1, 0, 1]));
    }
}
