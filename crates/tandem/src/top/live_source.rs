//! Samples of this host, each a look at the accounts an interval after the last.

use crate::Failure;
use crate::live::{kernel_policy, no_accounts, stopped, this_host, watch};
use esxtop::{Counters, LoadAverage, Rates};
use host::{Gap, HostError, Watcher, over_gaps};
use std::path::Path;
use std::time::{Duration, Instant};
use top::{Error, Polled, Sample, Source};
use topology::Topology;

/// On a screen the first sample comes after this time, so that there is something to see.
const FIRST: Duration = Duration::from_secs(1);

/// Looks at this host.
pub struct LiveSource {
    watcher: Watcher,
    gap: Gap,
    title: String,
    before: Counters,
    at: Instant,
    load: LoadAverage,
    first: Option<Duration>,
    now: bool,
}

fn look(watcher: &mut Watcher) -> Result<Counters, HostError> {
    let topology: Topology = topology::from_sysfs(Path::new("/sys"))?;
    watcher.look(&topology)
}

impl LiveSource {
    /// Takes the first look.
    ///
    /// # Errors
    /// `Exit::Host` when there are no accounts to read.
    pub fn open(kernel: bool, screen: bool) -> Result<LiveSource, Failure> {
        this_host()?;
        if !screen {
            watch(&[libc::SIGINT, libc::SIGTERM]);
        }
        let mut watcher = if kernel { Watcher::of_kernel() } else { Watcher::of_tandem() };
        let before = over_gaps(&stopped, &mut || look(&mut watcher)).map_err(no_accounts)?;
        let title = if kernel {
            format!("{} by {}", host_name(), kernel_policy())
        } else {
            format!("{} by tandem", host_name())
        };
        let first = screen.then_some(FIRST);
        Ok(LiveSource {
            watcher,
            gap: Gap::default(),
            title,
            before,
            at: Instant::now(),
            load: LoadAverage::new(),
            first,
            now: false,
        })
    }
}

impl Source for LiveSource {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn poll(&mut self, interval: Duration) -> Result<Polled, Error> {
        let wanted = self.first.map_or(interval, |first| first.min(interval));
        let left = wanted.saturating_sub(self.at.elapsed());
        if !left.is_zero() && !self.now {
            return Ok(Polled::NotYet(left));
        }
        let begin = Instant::now();
        let now = match look(&mut self.watcher) {
            Ok(now) => now,
            Err(e) => return self.gap.wait(&e).map(Polled::NotYet).ok_or_else(|| e.into()),
        };
        self.gap.end();
        (self.now, self.first, self.at) = (false, None, begin);
        let rates = Rates::between(&self.before, &now);
        self.before = now;
        // Two looks at one moment.
        let Ok(mut rates) = rates else { return Ok(Polled::NotYet(interval)) };
        rates.feed(&mut self.load);
        Ok(Polled::Sample(Box::new(Sample { rates, up_ns: uptime_ns() })))
    }

    fn refresh(&mut self) {
        self.now = true;
    }
}

/// Time since the host started, in ns.
fn uptime_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|s| s.parse::<f64>().ok());
    seconds.map_or(0, |s| (s * 1e9) as u64)
}

/// Name of this host.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}
