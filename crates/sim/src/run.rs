//! Runs scenarios: builds the engine from a run's description and hands back the result document
//! and the verdict.

use crate::cast;
use crate::engine::{Engine, Looks, OnLook, Stats, Terms};
use crate::error::SimError;
use crate::options::{Age, Options};
use crate::policies::{self, Policy};
use crate::recorder::{Recorder, TraceOut};
use crate::truth::PcpuTimes;
use check::Verdict;
use contract::{Feature, Scheduler, Setup};
use sched_core::{Knobs, Tandem};
use settings::{PlacedPool, Run, Scenario};
use units::Span;
use views::{Checked, Document, RunResult, Where};

/// What came out of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The result, for the document.
    pub result: RunResult,
    /// What the oracle found; none when the run was not checked.
    pub verdict: Option<Verdict>,
    /// Counts of the engine.
    pub stats: Stats,
    /// What each pCPU did in the measured time, by its number.
    pub pcpus: Vec<PcpuTimes>,
    /// Knobs that were in force.
    pub knobs: sched_core::Knobs,
}

/// Does one run.
///
/// # Errors
/// `SimError`; a run that is only unfair or wasteful is no error, the verdict says so.
pub fn run(run: &Run, options: &Options) -> Result<Outcome, SimError> {
    run_recorded(run, options, None, None)
}

/// Does one run, and shows the accounts to `on_look` at its start, every `interval`, and at its
/// end. The run is the same as without.
///
/// # Errors
/// `SimError`, as for `run`.
pub fn run_watched(
    run: &Run,
    options: &Options,
    interval: Span,
    on_look: OnLook,
) -> Result<Outcome, SimError> {
    run_recorded(run, options, None, Some(Looks::new(run, interval, on_look)))
}

/// Does one run and writes its trace, which is whole even if the kernel's contract ends the run.
///
/// # Errors
/// `SimError`, as for `run`; `SimError::Trace` if `out` refuses.
pub fn run_traced(run: &Run, options: &Options, out: TraceOut) -> Result<Outcome, SimError> {
    run_recorded(run, options, Some(out), None)
}

/// Judges a run without doing it: with nothing to object, [`run`] begins.
///
/// # Errors
/// `SimError`, as `run` refuses it.
pub fn judge(run: &Run, options: &Options) -> Result<(), SimError> {
    let ready = Ready::of(run, options)?;
    match options.policy {
        Policy::Tandem | Policy::Mutant(_) => ready.allowed(ready.tandem()?.features()),
        Policy::Peer(peer, _) => ready.allowed(peer.make(&ready.setup).features()),
    }
}

fn run_recorded(
    run: &Run,
    options: &Options,
    trace: Option<TraceOut>,
    looks: Option<Looks>,
) -> Result<Outcome, SimError> {
    let ready = Ready::of(run, options)?;
    let pcpus = run.topology.pcpus();
    let faulty = |policy, mutant| policies::faulty(policy, mutant, pcpus);
    match options.policy {
        // The one whose speed counts has an engine of its own.
        Policy::Tandem => {
            let tandem = ready.tandem()?;
            ready.done_by(tandem, trace, looks)
        }
        Policy::Mutant(mutant) => {
            let tandem = Box::new(ready.tandem()?);
            ready.done_by(faulty(tandem, mutant), trace, looks)
        }
        Policy::Peer(peer, None) => {
            let policy = peer.make(&ready.setup);
            ready.done_by(policy, trace, looks)
        }
        Policy::Peer(peer, Some(mutant)) => {
            let policy = peer.make(&ready.setup);
            ready.done_by(faulty(policy, mutant), trace, looks)
        }
    }
}

/// The knobs of a run.
fn knobs(run: &Run, options: &Options) -> Result<Knobs, SimError> {
    let refused = |cause| SimError::Knob { label: run.label.clone(), cause };
    let mut knobs = Knobs::DEFAULT;
    for (name, value) in run.spec.knobs.iter().chain(&options.knobs) {
        knobs.set(name, *value).map_err(refused)?;
    }
    knobs.check().map_err(refused)?;
    Ok(knobs)
}

/// A run that can be done, whatever schedules it.
struct Ready<'r> {
    run: &'r Run,
    options: &'r Options,
    seed: u64,
    duration: Span,
    knobs: Knobs,
    setup: Setup<'r>,
    pools: Vec<PlacedPool>,
    settings: Vec<settings::Change>,
}

impl<'r> Ready<'r> {
    /// Judges all of it but for what the policy cannot do.
    fn of(run: &'r Run, options: &'r Options) -> Result<Ready<'r>, SimError> {
        let spec = &run.spec;
        let label = || run.label.clone();
        let duration = options.duration.unwrap_or(spec.duration);
        if duration <= spec.warmup {
            return Err(SimError::Duration { label: label(), duration, warmup: spec.warmup });
        }
        let pools = settings::place(&spec.pools, spec.host.mhz)
            .map_err(|reasons| SimError::Pools { label: label(), reasons })?;
        let setup = Setup {
            topology: &run.topology,
            vms: spec.vms.len() + 1,
            worlds: cast::count(spec),
            pools: pools.len(),
        };
        let knobs = knobs(run, options)?;
        let settings = settings::changes(spec)
            .map_err(|reasons| SimError::Pools { label: label(), reasons })?;
        let seed = options.seed.unwrap_or(spec.seed);
        Ok(Ready { run, options, seed, duration, knobs, setup, pools, settings })
    }

    /// Refuses what the policy cannot do.
    fn allowed(&self, features: &[Feature]) -> Result<(), SimError> {
        let options = self.options;
        policies::refuse(self.run, options.policy, &options.knobs, features)
    }

    fn tandem(&self) -> Result<Tandem, SimError> {
        let knobs = policies::knobs_of(self.options.policy, self.knobs);
        let Age { clock_ns, virtual_ns } = self.options.age;
        Tandem::new(&self.setup, &knobs)
            .map(|tandem| tandem.aged(clock_ns, virtual_ns))
            .map_err(|cause| SimError::Host { label: self.run.label.clone(), cause })
    }

    fn done_by<P: Scheduler>(
        self,
        policy: P,
        trace: Option<TraceOut>,
        looks: Option<Looks>,
    ) -> Result<Outcome, SimError> {
        self.allowed(policy.features())?;
        let (run, seed, duration) = (self.run, self.seed, self.duration);
        let terms = Terms {
            run,
            options: self.options,
            seed,
            duration,
            knobs: &self.knobs,
            pools: self.pools,
            changes: self.settings,
        };
        let mut engine = Engine::new(policy, terms);
        engine.look_by(looks);
        let broken = |breach| SimError::Contract { label: run.label.clone(), seed, breach };
        let unwritten = |cause| SimError::Trace { label: run.label.clone(), cause };
        if let Some(out) = trace {
            engine.record(run, Recorder::new(out).map_err(unwritten)?);
        }
        let warmup = run.spec.warmup.ns();
        let done = engine.run(warmup);
        if let Some(recorder) = engine.take_recorder() {
            recorder.finish().map_err(unwritten)?;
        }
        done.map_err(broken)?;
        let (mut result, pcpus) = engine.result(run, duration.ns() - warmup);
        let verdict = engine.verdict(duration.ns());
        let realtime = || pcpus.iter().map(|p| p.realtime_ns).collect();
        let realtime_ns = if run.spec.realtime.is_empty() { vec![] } else { realtime() };
        result.checked = verdict.as_ref().map(|v| checked(v, realtime_ns));
        Ok(Outcome { result, verdict, stats: engine.stats(), pcpus, knobs: self.knobs })
    }
}

fn checked(v: &Verdict, realtime_ns: Vec<u64>) -> Checked {
    Checked {
        violated: v.violated(),
        violations: v.violations.iter().map(ToString::to_string).collect(),
        ready_max_ns: v.ready_max_ns,
        idle_while_waiting_max_ns: v.idle_while_waiting_max_ns,
        skew_max_ns: v.skew_max_ns,
        costop_max_ns: v.costop_max_ns,
        realtime_ns,
    }
}

/// Progress of a scenario, for people to see.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'p> {
    /// A run begins: number from 1, of so many.
    Begins(&'p Run, usize, usize),
    /// A run is done.
    Done(&'p Run, &'p Outcome),
}

/// Judges all runs of a scenario, then does them one after the other, and calls `progress` before
/// and after each.
///
/// # Errors
/// The first run's error, before `progress` is called where a run is refused; else runs before it
/// are lost.
pub fn run_scenario(
    scenario: &Scenario,
    options: &Options,
    progress: impl FnMut(Progress<'_>),
) -> Result<Document, SimError> {
    run_all(scenario, options, None, progress)
}

/// The same, and writes the trace of the first run.
///
/// # Errors
/// As for `run_scenario`; `SimError::Trace` if `out` refuses.
pub fn run_scenario_traced(
    scenario: &Scenario,
    options: &Options,
    out: TraceOut,
    progress: impl FnMut(Progress<'_>),
) -> Result<Document, SimError> {
    run_all(scenario, options, Some(out), progress)
}

fn run_all(
    scenario: &Scenario,
    options: &Options,
    mut trace: Option<TraceOut>,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Document, SimError> {
    for one in &scenario.runs {
        judge(one, options)?;
    }
    let mut runs = vec![];
    for (i, one) in scenario.runs.iter().enumerate() {
        progress(Progress::Begins(one, i + 1, scenario.runs.len()));
        let outcome = run_recorded(one, options, trace.take(), None)?;
        progress(Progress::Done(one, &outcome));
        runs.push(outcome.result);
    }
    Ok(Document {
        scenario: scenario.name.clone(),
        place: Where::Sim,
        policy: options.policy.to_string(),
        seed: options.seed.unwrap_or_else(|| scenario.runs.first().map_or(0, |r| r.spec.seed)),
        command: None,
        runs,
    })
}
