//! How late worlds run after they should have woken: gathers single latencies, sums them up in the
//! words of XK's test (least, average, most), and shows the sums; it measures nothing itself.

use crate::{Document, MeasuredBy, RunResult, Table, Wakeups};

/// Parts of an octave that are distinguished: a percentile is at most an eighth too large.
const PARTS: u64 = 8;

/// Latencies of one VM, of any number, in a few hundred counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
    /// By [`bucket_of`], as far as they were needed.
    buckets: Vec<u64>,
}

/// Values below 8 have a bucket each, larger ones eight an octave; `late_bucket` of the lab's
/// workload kernel has the same law.
#[must_use]
pub fn bucket_of(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let top = value.ilog2();
    (u64::from(top - 2) * PARTS + (value >> (top - 3)) % PARTS) as usize
}

/// The largest value of a bucket.
#[must_use]
pub fn end_of(bucket: usize) -> u64 {
    let (octave, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    if octave == 0 {
        part
    } else {
        (u128::from(PARTS + part + 1) << (octave - 1)).wrapping_sub(1) as u64
    }
}

impl Latencies {
    /// Sums of latencies that were gathered elsewhere: their sum, least and most, and how many fell
    /// into each bucket.
    #[must_use]
    pub fn of(sum: u64, min: u64, max: u64, buckets: Vec<u64>) -> Latencies {
        Latencies { count: buckets.iter().sum(), sum, min, max, buckets }
    }

    /// Counts one.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.sum += value;
        self.count += 1;
    }

    /// Counts those of another world of the same VM as well.
    pub fn merge(&mut self, other: &Latencies) {
        if other.count == 0 {
            return;
        }
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(a, b)| *a += b);
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }

    /// The value that 99 of 100 do not pass, rounded up to the end of its bucket.
    fn p99(&self) -> u64 {
        let rank = (self.count * 99).div_ceil(100);
        let mut seen = 0;
        let reached = |n: &u64| {
            seen += n;
            seen >= rank
        };
        self.buckets.iter().position(reached).map_or(self.max, end_of).clamp(self.min, self.max)
    }

    /// The sums for a result, in ns: of each latency in units of `unit_ns` and `more_ns` that all
    /// have beside. `None` of none.
    #[must_use]
    pub fn sums(&self, vm: &str, by: MeasuredBy, unit_ns: u64, more_ns: u64) -> Option<Wakeups> {
        let ns = |value: u64| value * unit_ns + more_ns;
        (self.count > 0).then(|| Wakeups {
            vm: vm.to_owned(),
            by,
            count: self.count,
            min_ns: ns(self.min),
            mean_ns: self.sum * unit_ns / self.count + more_ns,
            p99_ns: ns(self.p99()),
            max_ns: ns(self.max),
        })
    }
}

fn us(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

impl MeasuredBy {
    fn name(self) -> &'static str {
        match self {
            MeasuredBy::Workload => "workload",
            MeasuredBy::Scheduler => "scheduler",
        }
    }
}

/// Wake-ups of a run's VMs by their workloads, a line each; nothing where no vCPU woke by a timer.
#[must_use]
pub fn wakeups(run: &RunResult) -> String {
    let mut t = Table::new(&["<VM", "wake-ups", "late: min us", "mean us", "p99 us", "max us"]);
    let mut all = run.wakeups.iter().filter(|w| w.by == MeasuredBy::Workload).peekable();
    if all.peek().is_none() {
        return String::new();
    }
    for w in all {
        t.row([
            w.vm.clone(),
            w.count.to_string(),
            us(w.min_ns),
            us(w.mean_ns),
            us(w.p99_ns),
            us(w.max_ns),
        ]);
    }
    t.text()
}

/// Wake-ups in several documents of one scenario, a line for each run, VM, document and
/// clock; nothing where no vCPU woke.
#[must_use]
pub fn wakeups_side_by_side(documents: &[&Document]) -> String {
    let mut t = Table::new(&[
        "<run", "<VM", "<by", "<where", "wake-ups", "min us", "mean us", "p99 us", "max us",
    ]);
    let mut any = false;
    for run in documents.first().iter().flat_map(|d| &d.runs) {
        for vm in &run.vms {
            for by in [MeasuredBy::Workload, MeasuredBy::Scheduler] {
                for d in documents {
                    let same = d.runs.iter().find(|r| r.label == run.label);
                    let Some(w) =
                        same.and_then(|r| r.wakeups.iter().find(|w| w.vm == vm.name && w.by == by))
                    else {
                        continue;
                    };
                    any = true;
                    let place = format!("{:?} {}", d.place, d.policy).to_lowercase();
                    let mut row = vec![
                        run.label.clone(),
                        vm.name.clone(),
                        by.name().to_owned(),
                        place,
                        w.count.to_string(),
                    ];
                    row.extend([w.min_ns, w.mean_ns, w.p99_ns, w.max_ns].map(us));
                    t.row(row);
                }
            }
        }
    }
    if any { t.text() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostCounts, Times, Vm, Where};

    fn gathered(values: impl IntoIterator<Item = u64>) -> Latencies {
        let mut all = Latencies::default();
        values.into_iter().for_each(|v| all.add(v));
        all
    }

    fn of(all: &Latencies) -> [u64; 5] {
        let w = all.sums("vm", MeasuredBy::Workload, 1, 0).expect("some");
        [w.count, w.min_ns, w.mean_ns, w.p99_ns, w.max_ns]
    }

    #[test]
    fn buckets_follow_one_another_without_a_gap_and_are_an_eighth_wide_at_most() {
        assert_eq!([0, 7, 8, 15, 16, 17, 18, 1000].map(bucket_of), [0, 7, 8, 15, 16, 16, 17, 63]);
        let mut begin = 0;
        for bucket in 0..400 {
            let end = end_of(bucket);
            assert_eq!((bucket_of(begin), bucket_of(end)), (bucket, bucket));
            assert!((end - begin) * PARTS <= begin, "{begin}..={end}");
            begin = end + 1;
        }
        assert_eq!(bucket_of(u64::MAX), 495);
    }

    #[test]
    fn ninety_nine_of_a_hundred_are_not_above_the_percentile() {
        // 99 is in the bucket 96..=103, and nothing is above 100
        assert_eq!(of(&gathered(1..=100)), [100, 1, 50, 100, 100]);
        assert_eq!(of(&gathered((0..99).map(|_| 5).chain([9000]))), [100, 5, 94, 5, 9000]);
        assert_eq!(
            of(&gathered((0..98).map(|_| 5).chain([1000, 9000]))),
            [100, 5, 104, 1023, 9000]
        );
        assert_eq!(of(&gathered([7])), [1, 7, 7, 7, 7]);
        assert_eq!(Latencies::default().sums("vm", MeasuredBy::Workload, 1, 0), None);
    }

    #[test]
    fn worlds_of_a_vm_are_counted_together_and_units_become_ns() {
        let (mut a, b) = (gathered([3, 900]), gathered([1, 2, 70]));
        a.merge(&Latencies::default());
        a.merge(&b);
        assert_eq!(a, gathered([3, 900, 1, 2, 70]));
        let mut none = Latencies::default();
        none.merge(&b);
        assert_eq!(none, b);
        assert_eq!(Latencies::of(73, 1, 70, b.buckets.clone()), b);
        let w = b.sums("vm", MeasuredBy::Scheduler, 1000, 5).expect("some");
        assert_eq!(
            [w.count, w.min_ns, w.mean_ns, w.p99_ns, w.max_ns],
            [3, 1005, 24_338, 70_005, 70_005]
        );
    }

    #[test]
    fn the_tables_have_a_line_for_whoever_measured_and_none_where_nobody_woke() {
        let vm = |name: &str| Vm {
            name: name.to_owned(),
            pool: "/".to_owned(),
            vcpus: 1,
            shares: 1,
            times: Times::default(),
            cpu_stat: None,
            guest: None,
            numa: vec![],
            worlds: vec![],
        };
        let all = gathered([2000, 4000]);
        let sums = |by| all.sums("waker", by, 1, 0);
        let run = RunResult {
            label: "idle".to_owned(),
            duration_ns: 1,
            host: HostCounts { pcpus: 1, cores: 1, llcs: 1, nodes: 1, sockets: 1 },
            pcpus: vec![],
            pools: vec![],
            vms: vec![vm("load"), vm("waker")],
            wakeups: [sums(MeasuredBy::Workload), sums(MeasuredBy::Scheduler)]
                .into_iter()
                .flatten()
                .collect(),
            checked: None,
        };
        assert_eq!(
            wakeups(&run).lines().last(),
            Some("waker         2           2.0      3.0     4.0     4.0")
        );
        let document = |place, runs| Document {
            scenario: "s".to_owned(),
            place,
            policy: "tandem".to_owned(),
            seed: 1,
            command: None,
            runs,
        };
        let (lab, sim) =
            (document(Where::Lab, vec![run.clone()]), document(Where::Sim, vec![run.clone()]));
        let shown = wakeups_side_by_side(&[&lab, &sim]);
        assert_eq!(
            shown.lines().skip(2).collect::<Vec<_>>(),
            [
                "idle  waker  workload   lab tandem         2     2.0      3.0     4.0     4.0",
                "idle  waker  workload   sim tandem         2     2.0      3.0     4.0     4.0",
                "idle  waker  scheduler  lab tandem         2     2.0      3.0     4.0     4.0",
                "idle  waker  scheduler  sim tandem         2     2.0      3.0     4.0     4.0",
            ]
        );
        let nobody = RunResult { wakeups: vec![], ..run };
        let quiet = document(Where::Sim, vec![nobody.clone()]);
        assert_eq!(
            (wakeups(&nobody), wakeups_side_by_side(&[&quiet])),
            (String::new(), String::new())
        );
    }
}
