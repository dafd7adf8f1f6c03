//! Samples of a simulated host: the run goes on in a thread of its own, one sample ahead of the
//! viewer.

use crate::{Exit, Failure};
use esxtop::{Counters, LoadAverage, Rates};
use sim::{Options, Policy, SimError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use top::{Error, Polled, Sample, Source};
use units::Span;

/// How long it waits for the simulator at a time: keys shall not have to.
const PATIENCE: Duration = Duration::from_millis(20);

/// What is to be simulated.
pub struct Wanted<'a> {
    pub scenario: &'a str,
    pub run: Option<&'a str>,
    pub seed: Option<u64>,
    /// Name of the scheduler; Tandem without.
    pub policy: Option<&'a str>,
    pub duration: Option<Span>,
}

/// A run that goes on.
pub struct SimSource {
    title: String,
    samples: Receiver<Sample>,
    run: Option<JoinHandle<Result<(), SimError>>>,
    /// Simulated time to the next look, in ns.
    interval_ns: Arc<AtomicU64>,
    /// Simulated seconds a second; as fast as possible without.
    pace: Option<f64>,
    due: Option<Instant>,
}

impl SimSource {
    /// Starts a run; gives back its name as well.
    ///
    /// # Errors
    /// `Exit::Input` for a scenario that is refused or has no such run, and for a policy that there
    /// is not or that lacks what the run asks for.
    pub fn start(
        wanted: &Wanted<'_>,
        interval: Duration,
        pace: Option<f64>,
    ) -> Result<(SimSource, String), Failure> {
        let mut scenario =
            settings::load(wanted.scenario).map_err(|e| Failure::new(Exit::Input, e))?;
        if let Some(label) = wanted.run {
            crate::sim::choose_run(&mut scenario, label)?;
        }
        let mut title = format!("simulated {}", scenario.name);
        if scenario.runs.len() > 1 || wanted.run.is_some() {
            title += &format!(", run '{}'", scenario.runs[0].label);
        }
        if let Some(policy) = wanted.policy {
            title += &format!(", {policy}");
        }
        let run = scenario.runs.swap_remove(0);
        let policy: Option<Policy> =
            wanted.policy.map(str::parse).transpose().map_err(|e| Failure::new(Exit::Input, e))?;
        let options = Options {
            seed: wanted.seed,
            duration: wanted.duration,
            check: false,
            policy: policy.unwrap_or(Policy::Tandem),
            ..Options::default()
        };
        sim::judge(&run, &options).map_err(|e| crate::runs::failure(&scenario.name, &e))?;
        let (give, samples) = sync_channel(1);
        let interval_ns = Arc::new(AtomicU64::new(interval.as_nanos() as u64));
        let next = Arc::clone(&interval_ns);
        let mut before: Option<Counters> = None;
        let mut load = LoadAverage::new();
        let on_look = Box::new(move |now: Counters| {
            if let Some(mut rates) = before.as_ref().and_then(|b| Rates::between(b, &now).ok()) {
                rates.feed(&mut load);
                // The viewer is gone.
                give.send(Sample { rates, up_ns: now.at_ns }).ok()?;
            }
            before = Some(now);
            Some(Span::from_ns(next.load(Ordering::Relaxed)))
        });
        let first = Span::from_ns(interval.as_nanos() as u64);
        let run =
            std::thread::spawn(move || sim::run_watched(&run, &options, first, on_look).map(drop));
        let source = SimSource { title, samples, run: Some(run), interval_ns, pace, due: None };
        Ok((source, scenario.name))
    }
}

impl Source for SimSource {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn poll(&mut self, interval: Duration) -> Result<Polled, Error> {
        self.interval_ns.store(interval.as_nanos() as u64, Ordering::Relaxed);
        let now = Instant::now();
        if let Some(wait) =
            self.due.and_then(|due| due.checked_duration_since(now)).filter(|w| !w.is_zero())
        {
            return Ok(Polled::NotYet(wait));
        }
        match self.samples.recv_timeout(PATIENCE) {
            Ok(sample) => {
                let shown = Duration::from_nanos(sample.rates.interval_ns);
                self.due = self
                    .pace
                    .map(|pace| self.due.unwrap_or(now).max(now - PATIENCE) + shown.div_f64(pace));
                Ok(Polled::Sample(Box::new(sample)))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Polled::NotYet(Duration::ZERO)),
            Err(RecvTimeoutError::Disconnected) => match self.run.take().map(JoinHandle::join) {
                Some(Ok(Err(e))) => Err(Box::new(e)),
                Some(Err(_)) => {
                    Err("simulator: it panicked; run 'tandem sim' for the reason".into())
                }
                _ => Ok(Polled::End),
            },
        }
    }

    fn refresh(&mut self) {
        self.due = None;
    }
}
