//! One simulated run that a seed decides, and what the oracle says of it.

use super::shrink;
use check::Invariant;
use dice::Draw;
use settings::{HostSpec, Run};
use sim::{Costs, Options, Outcome, SimError, Ticks, run, run_traced, scheduler_terms};
use std::{collections::BTreeMap, env, fs::File};
use units::Span;

/// A run and the options that are drawn with it.
#[derive(Clone, Debug)]
pub struct Case {
    pub run: Run,
    pub ticks: Ticks,
    pub costs: Costs,
}

/// What is wrong with a case. Cases that fail in the same way have the same `kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: String,
    pub text: String,
}

/// Verdict on a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    pub fault: Option<Fault>,
    /// Largest distance of a VM from the ideal, in percent of the bound on lag.
    pub lag_percent: u64,
}

/// Whether lag counts as a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    Held,
    Free,
}

/// Paths of up to 100 us, exits of up to 200.
fn delays(host: &mut HostSpec, draw: &mut Draw) {
    let mut spread = |most: u64| {
        let ns = [draw.below(most), draw.below(most)].map(Span::from_ns);
        (draw.below(4) == 0).then(|| [ns[0].min(ns[1]), ns[0].max(ns[1])])
    };
    (host.wake_path, host.idle_exit) = (spread(100_001), spread(200_001));
}

impl Case {
    /// The run with what else the seed decides: where ticks fall, whether switches cost anything,
    /// and on one host of four timers that are up to 3 ms late; on one of four of the others each
    /// paths of wake-ups, and pCPUs that leave idle slowly.
    pub fn of(mut run: Run, seed: u64, draw: &mut Draw) -> Case {
        let ticks = if draw.below(2) == 0 { Ticks::Aligned } else { Ticks::Staggered };
        let costs = if draw.below(2) == 0 { Costs::ZERO } else { Costs::default() };
        // Numbers of their own, so that the host of a seed does not depend on them.
        let mut late = Draw::new(!seed);
        if late.below(4) == 0 {
            run.spec.host.timer_late = Span::from_ns(late.below(3_000_001));
        } else {
            // Of both at once seed 232 idles for 3.02 ms beside a READY world, 2.75 are allowed.
            delays(&mut run.spec.host, &mut Draw::new(seed.rotate_left(32)));
        }
        Case { run, ticks, costs }
    }

    /// Runs it; with `TRACE=FILE` its trace is written there.
    fn outcome(&self) -> Result<Outcome, SimError> {
        let options = Options { ticks: self.ticks, costs: self.costs, ..Options::default() };
        match env::var("TRACE") {
            Ok(file) => {
                let file = File::create(file).expect("TRACE can be written");
                run_traced(&self.run, &options, Box::new(file))
            }
            Err(_) => run(&self.run, &options),
        }
    }

    /// Runs and judges it.
    pub fn judge(&self, lag: Lag) -> Judged {
        let outcome = match self.outcome() {
            Ok(outcome) => outcome,
            Err(e) => {
                let kind = match &e {
                    SimError::Contract { breach, .. } => format!("{:?}", breach.rule),
                    _ => "refused".to_owned(),
                };
                let fault = Some(Fault { kind, text: e.to_string() });
                return Judged { fault, lag_percent: 0 };
            }
        };
        let verdict = outcome.verdict.as_ref().expect("it was checked");
        let found = verdict
            .violations
            .iter()
            .find(|v| lag == Lag::Held || v.invariant != Invariant::Lag)
            .map(|v| Fault { kind: format!("{:?}", v.invariant), text: v.to_string() });
        // Where a world slept on a pCPU that has gone, the kernel may choose.
        let chose = if self.run.spec.offline.is_empty() { outcome.stats.fallbacks } else { 0 };
        let odd = outcome.stats.default_slices + chose;
        let odd = (odd > 0)
            .then(|| Fault { kind: "odd".to_owned(), text: format!("{:?}", outcome.stats) });
        let odd = odd.or_else(|| unexplained(&outcome));
        Judged { fault: found.or(odd), lag_percent: self.lag_percent(&outcome) }
    }

    /// What the oracle held the run to.
    fn terms(&self, outcome: &Outcome) -> check::SchedulerTerms {
        let host = &self.run.spec.host;
        let terms = scheduler_terms(&outcome.knobs, host.hz);
        let idle_exit = host.idle_exit.map_or(Span::ZERO, |[_, most]| most);
        check::SchedulerTerms { timer_late: host.timer_late, idle_exit, ..terms }
    }

    fn lag_percent(&self, outcome: &Outcome) -> u64 {
        let threads = self.run.topology.places().iter().map(|p| u64::from(p.thread) + 1).max();
        let bounds = self.terms(outcome).bounds().on_cores(threads.unwrap_or(1));
        let verdict = outcome.verdict.as_ref().expect("it was checked");
        let apart = |v: &check::VmVerdict| {
            let vcpus = self.run.spec.vms.iter().find(|s| s.name == v.name).map_or(0, |s| s.vcpus);
            let worlds = u64::from(vcpus).min(self.run.topology.pcpus() as u64);
            v.owed_max_ns.max(v.surplus_max_ns) * 100 / bounds.lag_ns(worlds, self.flat())
        };
        verdict.vms.iter().map(apart).max().unwrap_or(0)
    }

    /// Whether there are shares alone.
    fn flat(&self) -> bool {
        let spec = &self.run.spec;
        spec.pools.is_empty()
            && spec.vms.iter().all(|v| v.reservation.is_none() && v.limit.is_none())
    }
}

/// CPU time of a world that is neither work nor lost to a cause.
fn unexplained(outcome: &Outcome) -> Option<Fault> {
    let result = &outcome.result;
    let worlds = result.vms.iter().flat_map(|vm| vm.worlds.iter().map(move |w| (&vm.name, w)));
    worlds.into_iter().find_map(|(vm, world)| {
        let (times, lost) = (world.times, world.times.lost?);
        let text = || format!("{vm}/{}: {times:?}", world.name);
        (times.work + lost.sum() != times.run_ns)
            .then(|| Fault { kind: "lost".to_owned(), text: text() })
    })
}

/// Knobs of all cases: `SHARED_CHARGE=n` divides cores in place of threads, `CORE_SHARING=n` keeps
/// VMs apart on cores.
pub fn knobs() -> BTreeMap<String, u64> {
    let set = |name: &str| {
        let value = env::var(name.to_uppercase()).ok().and_then(|s| s.parse().ok());
        value.map(|n| (name.to_owned(), n))
    };
    ["shared_charge", "core_sharing"].into_iter().filter_map(set).collect()
}

/// Seeds that a test tries: `SEED=n` one, `SEEDS=n` that many from `FROM=n` or 0 on, else `usual`;
/// with `more` unless one was named.
pub fn seeds(usual: u64, more: &[u64]) -> Vec<u64> {
    let number = |name| env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    match number("SEED") {
        Some(seed) => vec![seed],
        None => {
            let from = number("FROM").unwrap_or(0);
            (from..from + number("SEEDS").unwrap_or(usual)).chain(more.iter().copied()).collect()
        }
    }
}

/// Verdicts on these seeds, on all cores.
///
/// # Panics
/// If a case fails: with each seed and its fault, and the smallest host that fails as the first of
/// them does.
pub fn hold(lag: Lag, seeds: &[u64], drawn: impl Fn(u64) -> Case + Sync) -> Vec<(u64, Judged)> {
    let all = seeds::each(seeds.iter().copied(), |seed| (seed, drawn(seed).judge(lag)));
    let failed: Vec<(u64, &Fault, u64)> = all
        .iter()
        .filter_map(|(seed, j)| Some((*seed, j.fault.as_ref()?, j.lag_percent)))
        .collect();
    let Some((seed, fault, _)) = failed.first() else {
        println!("{} seeds hold", all.len());
        return all;
    };
    let line = |(seed, f, percent): &(u64, &Fault, u64)| {
        format!("seed {seed}: {}: {}; at most {percent} % of the bound on lag", f.kind, f.text)
    };
    let lines: Vec<String> = failed.iter().map(line).collect();
    // Before the search for the smallest, which may take minutes.
    eprintln!("{} of {} seeds fail:\n{}", failed.len(), all.len(), lines.join("\n"));
    let small = shrink::smallest(drawn(*seed), &|c: &Case| {
        c.judge(lag).fault.is_some_and(|f| f.kind == fault.kind)
    });
    panic!(
        "{} of {} seeds fail:\n{}\nthe smallest host that fails as seed {seed} does ({}):\n{}",
        failed.len(),
        all.len(),
        lines.join("\n"),
        small.judge(lag).fault.map_or_else(String::new, |f| f.text),
        small.text()
    );
}

impl Case {
    /// All of it that decides the run, to be read.
    pub fn text(&self) -> String {
        let spec = serde_json::to_string_pretty(&self.run.spec).expect("settings are JSON");
        format!("{:?}, {:?}\n{spec}", self.ticks, self.costs)
    }
}
