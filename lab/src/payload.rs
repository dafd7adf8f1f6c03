//! The workload kernel that VMs inside the lab run: builds it from `lab/payload`, writes its
//! command line and reads its reports; what it measures is CPU work done, never wall time passed
//! (see `lab/payload/clock.c`).

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use crate::archive::Archive;
use crate::error::{LabError, Result};
use crate::tool;
use views::Latencies;

/// The sources, carried in this crate so that the lab works wherever it is run from.
const SOURCES: [(&str, &[u8]); 6] = [
    ("entry.S", include_bytes!("../payload/entry.S")),
    ("main.c", include_bytes!("../payload/main.c")),
    ("clock.c", include_bytes!("../payload/clock.c")),
    ("parse.c", include_bytes!("../payload/parse.c")),
    ("payload.h", include_bytes!("../payload/payload.h")),
    ("link.ld", include_bytes!("../payload/link.ld")),
];

/// Freestanding 32-bit code without libraries; no SSE, since nothing switches it on.
const FLAGS: [&str; 16] = [
    "-m32",
    "-march=i686",
    "-O2",
    "-Wall",
    "-ffreestanding",
    "-fno-pie",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-mno-sse",
    "-mno-mmx",
    "-nostdlib",
    "-static",
    "-Wl,-T,link.ld",
    "-Wl,--build-id=none",
    "-Wl,-z,noexecstack",
    "-Wl,-z,max-page-size=4096",
];

/// As in `payload.h`; a test compares them.
pub const MAX_VCPUS: u32 = 64;
/// Active windows of one vCPU; as in `payload.h`.
pub const MAX_WINDOWS: usize = 8;

/// What a vCPU does while it is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Halts for the whole run.
    Idle,
    /// Works without a pause.
    Burn,
    /// Works, then halts, over and over.
    Duty {
        /// CPU work per round.
        work_us: u32,
        /// Halt after each round.
        sleep_us: u32,
    },
    /// Starts a round at fixed times, late rounds one after the other.
    Periodic {
        /// Time from one release to the next.
        period_us: u32,
        /// CPU work per round.
        work_us: u32,
    },
    /// Like an I/O-bound program: works and halts around means.
    Io {
        /// Mean CPU work per round.
        work_us: u32,
        /// Mean halt per round.
        sleep_us: u32,
        /// Exponentially distributed around the means, or always the mean.
        exponential: bool,
    },
    /// Works, and works with the VM's one lock held, over and over; spins while another has it.
    Lock {
        /// CPU work between two critical sections.
        think_us: u32,
        /// CPU work with the lock held.
        hold_us: u32,
        /// The vCPU that came first has it next.
        ticket: bool,
    },
    /// Works, then has its emulator work.
    Exits {
        /// CPU work in the guest per round.
        work_us: u32,
        /// Time in the emulator per round, by the clock.
        emulate_us: u32,
    },
    /// Works, then spins until all vCPUs of its VM with such work have come.
    Barrier {
        /// CPU work per round.
        work_us: u32,
    },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Work::Idle => write!(f, "idle"),
            Work::Burn => write!(f, "burn"),
            Work::Duty { work_us, sleep_us } => write!(f, "duty,{work_us},{sleep_us}"),
            Work::Periodic { period_us, work_us } => write!(f, "periodic,{period_us},{work_us}"),
            Work::Io { work_us, sleep_us, exponential } => {
                write!(f, "io,{work_us},{sleep_us},{}", if exponential { "exp" } else { "fixed" })
            }
            Work::Lock { think_us, hold_us, ticket } => {
                write!(f, "{},{think_us},{hold_us}", if ticket { "ticket" } else { "lock" })
            }
            Work::Exits { work_us, emulate_us } => write!(f, "exits,{work_us},{emulate_us}"),
            Work::Barrier { work_us } => write!(f, "barrier,{work_us}"),
        }
    }
}

/// One VM's orders: what each vCPU does and how long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orders {
    /// Length of the run; none runs until the VM is killed.
    pub run_ms: Option<u32>,
    /// Interval of progress reports; none reports only at the end.
    pub report_ms: Option<u32>,
    /// Reports tell how many latencies fell into which bucket. Each letter of a report leaves the
    /// guest, so long lines cost a busy host much: 0.9 of a pCPU for a VM that wakes often, in the
    /// lab.
    pub buckets: bool,
    /// Rounds of the work loop per microsecond; none lets the VM calibrate.
    pub loops_per_us: Option<u32>,
    /// Seed of the exponential draws.
    pub seed: u32,
    /// By vCPU: what to do, and the active windows in ms since the start; no window means always.
    pub vcpus: Vec<(Work, Vec<(u32, u32)>)>,
}

impl Orders {
    /// The same work on each of `vcpus` vCPUs, always active.
    pub fn all(vcpus: u32, work: Work) -> Self {
        Orders { vcpus: (0..vcpus).map(|_| (work, Vec::new())).collect(), ..Orders::default() }
    }

    /// The command line for the workload kernel, or what it would refuse.
    pub fn command_line(&self) -> Result<String> {
        self.check()?;
        let mut words = Vec::new();
        let settings =
            [("run", self.run_ms), ("report", self.report_ms), ("loops", self.loops_per_us)];
        words.extend(settings.iter().filter_map(|(k, v)| v.map(|v| format!("{k}={v}"))));
        words.extend(self.buckets.then(|| "buckets=1".to_owned()));
        words.push(format!("seed={}", self.seed));
        for (n, (work, windows)) in self.vcpus.iter().enumerate() {
            let windows: String =
                windows.iter().map(|(from, to)| format!("@{from}-{to}")).collect();
            words.push(format!("{n}:{work}{windows}"));
        }
        Ok(words.join(" "))
    }

    fn check(&self) -> Result<()> {
        let refuse = |seen: String| {
            LabError::new("payload orders", "be carried out", seen, "change the scenario")
        };
        if self.vcpus.is_empty() || self.vcpus.len() > MAX_VCPUS as usize {
            return Err(refuse(format!("{} vCPUs, allowed 1..={MAX_VCPUS}", self.vcpus.len())));
        }
        for (n, (_, windows)) in self.vcpus.iter().enumerate() {
            let ordered =
                windows.iter().all(|w| w.0 < w.1) && windows.windows(2).all(|p| p[0].1 <= p[1].0);
            if windows.len() > MAX_WINDOWS || !ordered {
                return Err(refuse(format!(
                    "windows {windows:?} of vCPU {n}, allowed up to {MAX_WINDOWS} in rising order"
                )));
            }
        }
        Ok(())
    }
}

/// One vCPU's progress in one report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Number of the report, from 1.
    pub report: u32,
    /// True in the report at the end of the run.
    pub is_final: bool,
    /// When, in ms since the run's start, by the VM's clock.
    pub at_ms: u32,
    /// The vCPU.
    pub vcpu: u32,
    /// CPU work done since the start; wraps after 71 minutes.
    pub work_us: u32,
    /// Completed rounds.
    pub rounds: u32,
    /// Timed wake-ups.
    pub wakeups: u32,
    /// Periodic rounds that overran their next release.
    pub missed: u32,
    /// Sum of all wake-up latencies since the start; wraps.
    pub late_us_sum: u32,
    /// The least and the most since the last report, if there were any.
    pub late_us: Option<(u32, u32)>,
    /// How many since the start fell into each of `views::bucket_of`.
    pub late_counts: Vec<u64>,
}

/// Buckets of latencies; as in `payload.h`.
pub const LATE_BUCKETS: usize = 240;

/// Reads all whole report lines out of a VM's debug port file; other lines are passed over.
pub fn parse_reports(text: &str) -> Vec<Progress> {
    text.lines().filter_map(parse_report).collect()
}

/// The last report of each vCPU, in vCPU order.
pub fn last_reports(text: &str) -> Vec<Progress> {
    let mut last: Vec<Progress> = Vec::new();
    for progress in parse_reports(text) {
        match last.iter_mut().find(|p| p.vcpu == progress.vcpu) {
            Some(known) => *known = progress,
            None => last.push(progress),
        }
    }
    last.sort_by_key(|p| p.vcpu);
    last
}

/// Latencies of a VM's wake-ups, in us, between the last report of an earlier text and the last of
/// a later one.
pub fn latencies(before: &str, after: &str) -> Latencies {
    let (first, last) = (last_reports(before), last_reports(after));
    let mut all = Latencies::default();
    for end in last {
        let start = first.iter().find(|p| p.vcpu == end.vcpu);
        let from = start.map_or(0, |p| p.report);
        let between =
            parse_reports(after).into_iter().filter(|p| p.vcpu == end.vcpu && p.report > from);
        let extremes: Vec<(u32, u32)> = between.filter_map(|p| p.late_us).collect();
        let (Some(min), Some(max)) =
            (extremes.iter().map(|e| e.0).min(), extremes.iter().map(|e| e.1).max())
        else {
            continue;
        };
        let sum = end.late_us_sum.wrapping_sub(start.map_or(0, |p| p.late_us_sum));
        let earlier =
            |bucket: usize| start.and_then(|p| p.late_counts.get(bucket)).copied().unwrap_or(0);
        let counts =
            end.late_counts.iter().enumerate().map(|(b, n)| n.saturating_sub(earlier(b))).collect();
        all.merge(&Latencies::of(sum.into(), min.into(), max.into(), counts));
    }
    all
}

/// `BUCKET:COUNT,…`
fn parse_counts(text: &str) -> Option<Vec<u64>> {
    let mut counts = vec![0; LATE_BUCKETS];
    for pair in text.split(',').filter(|p| !p.is_empty()) {
        let (bucket, count) = pair.split_once(':')?;
        *counts.get_mut(bucket.parse::<usize>().ok()?)? = count.parse().ok()?;
    }
    Some(counts)
}

fn parse_report(line: &str) -> Option<Progress> {
    let mut words = line.split_whitespace();
    let is_final = match words.next()? {
        "report" => false,
        "final" => true,
        _ => return None,
    };
    let pairs: Vec<(&str, &str)> = words.filter_map(|w| w.split_once('=')).collect();
    let word = |name: &str| pairs.iter().find(|p| p.0 == name).map(|p| p.1);
    let value = |name: &str| word(name)?.parse::<u32>().ok();
    Some(Progress {
        report: value("n")?,
        is_final,
        at_ms: value("ms")?,
        vcpu: value("vcpu")?,
        work_us: value("work_us")?,
        rounds: value("rounds")?,
        wakeups: value("wakeups")?,
        missed: value("missed")?,
        late_us_sum: value("late_us_sum")?,
        late_us: value("late_us_min").zip(value("late_us_max")),
        late_counts: parse_counts(word("late").unwrap_or(""))?,
    })
}

/// Compiles the workload kernel, or finds it compiled, and returns its path.
pub fn build(archive: &Archive) -> Result<PathBuf> {
    let flags = FLAGS.join(" ");
    let texts = SOURCES.iter().map(|s| s.1).chain([flags.as_bytes()]);
    let place = archive.root().join(format!("payload-{}", tool::content_key(texts)));
    if place.is_file() {
        return Ok(place);
    }
    let compiler = tool::need_program(&["gcc", "clang", "clang-19", "cc"], "gcc")?;
    let folder = place.with_extension(format!("build{}", std::process::id()));
    for (name, text) in SOURCES {
        tool::write(&folder.join(name), text)?;
    }
    let mut command = Command::new(compiler);
    command
        .current_dir(&folder)
        .args(FLAGS)
        .args(["-o", "payload", "entry.S", "main.c", "clock.c", "parse.c"]);
    tool::run(
        &mut command,
        "compile the workload kernel",
        "install gcc or clang with 32-bit code generation",
    )?;
    tool::copy(&folder.join("payload"), &place.with_extension("new"))?;
    std::fs::rename(place.with_extension("new"), &place)
        .map_err(|e| LabError::io(&place, "put the workload kernel in place", e))?;
    tool::remove_dir(&folder)?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_become_the_line_that_parse_c_reads() {
        let mut orders = Orders::all(2, Work::Burn);
        (orders.run_ms, orders.buckets) = (Some(5000), true);
        orders.vcpus[1] = (
            Work::Io { work_us: 200, sleep_us: 800, exponential: true },
            vec![(0, 1000), (2000, 3000)],
        );
        assert_eq!(
            orders.command_line().unwrap(),
            "run=5000 buckets=1 seed=0 0:burn 1:io,200,800,exp@0-1000@2000-3000"
        );
    }

    #[test]
    fn overlapping_windows_and_too_many_vcpus_are_refused() {
        let mut orders = Orders::all(1, Work::Burn);
        orders.vcpus[0].1 = vec![(0, 1000), (500, 2000)];
        assert!(orders.command_line().unwrap_err().to_string().contains("rising order"));
        let error = Orders::all(65, Work::Idle).command_line().unwrap_err().to_string();
        assert!(error.contains("65 vCPUs, allowed 1..=64"), "{error}");
    }

    #[test]
    fn the_last_report_of_each_vcpu_wins_and_half_a_line_is_passed_over() {
        let line = |what: &str, n: u32, vcpu: u32, work: u32| {
            format!(
                "{what} n={n} ms=1000 vcpu={vcpu} kind=burn work_us={work} rounds=1 wakeups=0 \
                    missed=0 late_us_sum=0\n"
            )
        };
        let text = [
            "payload up vcpus=2\n",
            &line("report", 1, 0, 10),
            &line("report", 1, 1, 11),
            &line("final", 2, 0, 20),
            "final n=2 ms=2000 vcpu=1 kind=bu",
        ]
        .concat();
        let last = last_reports(&text);
        assert_eq!(
            last.iter().map(|p| (p.vcpu, p.work_us, p.is_final)).collect::<Vec<_>>(),
            [(0, 20, true), (1, 11, false)]
        );
    }

    #[test]
    fn the_limits_are_those_of_the_c_side() {
        let header = std::str::from_utf8(SOURCES[4].1).unwrap();
        assert!(header.contains(&format!("#define MAX_VCPUS {MAX_VCPUS}")));
        assert!(header.contains(&format!("#define MAX_WINDOWS {MAX_WINDOWS}")));
        assert!(header.contains(&format!("#define LATE_BUCKETS {LATE_BUCKETS}")));
        assert_eq!(views::bucket_of(u32::MAX.into()), LATE_BUCKETS - 1);
    }

    #[test]
    fn latencies_are_those_between_two_moments_whatever_was_before() {
        let line = |n: u32, vcpu: u32, rest: &str| {
            format!(
                "report n={n} ms=0 vcpu={vcpu} kind=duty work_us=0 rounds=0 wakeups=0 missed=0 \
                    {rest}\n"
            )
        };
        // The wake-up of a halted process, 2 s late, was before.
        let before = line(1, 0, "late_us_sum=0 late=")
            + &line(1, 1, "late_us_sum=2000005 late_us_min=5 late_us_max=2000000 late=5:1,151:1");
        let after = [
            before.clone(),
            line(2, 0, "late_us_sum=0 late="),
            line(
                2,
                1,
                "late_us_sum=2000085 late_us_min=30 late_us_max=50 late=5:1,23:1,28:1,151:1",
            ),
            line(
                3,
                1,
                "late_us_sum=2000092 late_us_min=7 late_us_max=7 late=5:1,7:1,23:1,28:1,151:1",
            ),
        ]
        .concat();
        let mut wanted = Latencies::default();
        [30, 50, 7].iter().for_each(|us| wanted.add(*us));
        let sums = |l: &Latencies| l.sums("vm", views::MeasuredBy::Workload, 1000, 0);
        assert_eq!(sums(&latencies(&before, &after)), sums(&wanted));
        assert_eq!(sums(&latencies(&after, &after)), None);
        assert_eq!(sums(&latencies("", &line(9, 0, "late_us_sum=0 late="))), None);
        assert_eq!(parse_reports(&line(1, 0, "late_us_sum=0 late=240:1")), []);
    }
}
