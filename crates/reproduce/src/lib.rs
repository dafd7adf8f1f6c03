//! Redoes the experiments of the documents: runs what their scenarios have published figures of,
//! under every policy that these name, and holds the results against them. It judges no scheduler
//! by anything else.
//!
//! *Law*: each run of a scenario under a policy is done once for each seed, on all cores, the
//! longest first; the order says nothing about the results, which are the same on one core. A
//! figure is made of the runs of each seed by itself. The mean of these numbers is held against
//! what was published.

mod curve;
mod measure;
mod page;
mod work;

pub use page::page;
pub use work::{LEAST, Less, PEERS, Work};

use measure::Results;
use schemars::JsonSchema;
use serde::Serialize;
use settings::{Published, Scenario};
use sim::{Options, Policy, SimError};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use work::{Amounts, Lacks};

/// Seeds of each run, unless it is said how many. `make reproduce` has fewer, to stay below ten
/// minutes on two cores.
pub const SEEDS: u64 = 8;

/// A published figure, and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// Document and figure or table.
    pub figure: String,
    /// Page, or section where the document has no pages.
    pub page: String,
    /// What this point is.
    pub what: String,
    /// The published number, if there is one.
    pub published: Option<f64>,
    /// The document's words, if it has some.
    pub says: Option<String>,
    /// Least and most that reproduce it.
    pub allowed: [f64; 2],
    /// Unit of all numbers.
    pub unit: String,
    /// The policy that was measured; the first of two that are compared.
    pub policy: String,
    /// Mean of what was measured by all seeds; none if one of them has no such number.
    pub measured: Option<f64>,
    /// Least and most of these.
    pub spread: Option<[f64; 2]>,
    /// What was measured by each seed, the scenario's own first.
    pub by_seed: Vec<Option<f64>>,
    /// Whether that is allowed.
    pub holds: bool,
    /// The same number of other policies, held against nothing.
    pub beside: Vec<Beside>,
}

/// A number that is shown beside a figure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Beside {
    /// The policy.
    pub policy: String,
    /// Mean of what was measured by all seeds.
    pub measured: Option<f64>,
    /// Least and most of these.
    pub spread: Option<[f64; 2]>,
}

/// A scenario's figures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Experiment {
    /// Name of the scenario.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The document that it is from.
    pub source: String,
    /// Its figures, in the order of the file.
    pub points: Vec<Point>,
    /// Violations that the oracle found in its runs under Tandem, by all seeds.
    pub violations: u64,
    /// Work under Tandem by that under other systems' policies; empty unless asked for.
    pub work: Vec<Work>,
}

impl Experiment {
    /// Whether all that was published is reproduced, the oracle is silent, and less work than
    /// another policy's has a reason.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations == 0
            && self.points.iter().all(|p| p.holds)
            && self.unexplained().next().is_none()
    }

    /// Runs in which Tandem does less work than another policy, and the scenario says not why.
    pub fn unexplained(&self) -> impl Iterator<Item = (&str, &Less)> {
        let less = self.work.iter().flat_map(|w| w.less.iter().map(|l| (w.policy.as_str(), l)));
        less.filter(|(_, l)| l.why.is_none())
    }
}

/// Why an experiment cannot be redone.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// A published figure names a policy that there is not.
    #[error("scenario {scenario}: published '{figure}': policy: seen '{policy}', allowed {cause}")]
    Policy {
        /// The scenario.
        scenario: String,
        /// The figure.
        figure: String,
        /// The name.
        policy: String,
        /// What is allowed.
        cause: String,
    },
    /// The simulator refuses a run.
    #[error("scenario {scenario}, run '{run}', policy {policy}, seed {seed}: {cause}")]
    Run {
        /// The scenario.
        scenario: String,
        /// Label of the run.
        run: String,
        /// The policy.
        policy: String,
        /// The seed.
        seed: u64,
        /// Why.
        cause: Box<SimError>,
    },
}

/// One run of a scenario under a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    scenario: usize,
    run: usize,
    policy: String,
    /// Whether it is traced, for what the result does not have.
    traced: bool,
    /// So many seeds after the scenario's.
    nth: u64,
    /// For the comparison of work alone.
    for_work: bool,
}

/// What has been done.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Runs that are done, this one included, and all.
    pub done: (usize, usize),
    /// The scenario.
    pub scenario: &'a str,
    /// Label of the run.
    pub run: &'a str,
    /// The policy.
    pub policy: &'a str,
    /// The seed.
    pub seed: u64,
}

/// How experiments are redone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Seeds of each run: the scenario's, and those after it.
    pub seeds: u64,
    /// Runs at a time.
    pub threads: usize,
    /// Whether work is compared with that under the policies of other systems (`PEERS`).
    pub work: bool,
}

/// Redoes the experiments of these scenarios; those without published figures are passed over.
///
/// # Errors
/// `ReproduceError` for the first run that cannot be done: all are judged before one begins, and
/// where one fails the others are given up.
pub fn reproduce(
    scenarios: &[Scenario],
    how: How,
    progress: impl Fn(Progress<'_>) + Sync,
) -> Result<Vec<Experiment>, ReproduceError> {
    let Jobs { jobs, lacks } = jobs(scenarios, how)?;
    let none = || Mutex::new(vec![Results::new(); how.seeds as usize]);
    let results: Vec<Mutex<Vec<Results>>> = scenarios.iter().map(|_| none()).collect();
    let amounts: Vec<Mutex<Amounts>> = scenarios.iter().map(|_| Mutex::default()).collect();
    let keep = |job: &Job, done: measure::Done| {
        if job.for_work {
            let mut all = amounts[job.scenario].lock().expect("no thread panics");
            let of = all.entry((job.run, job.policy.clone())).or_default();
            of.insert(job.nth, work::amount(done.result()));
            return;
        }
        let label = scenarios[job.scenario].runs[job.run].label.clone();
        let mut all = results[job.scenario].lock().expect("no thread panics");
        all[job.nth as usize].insert((label, job.policy.clone()), done);
    };
    do_all(scenarios, &jobs, (0, how.threads), &keep, &progress)?;
    let mut again = vec![];
    for (i, scenario) in scenarios.iter().enumerate().filter(|_| how.work) {
        let amounts = amounts[i].lock().expect("no thread panics");
        again.extend(work::again(i, scenario, &amounts, how.seeds));
    }
    longest_first(scenarios, &mut again);
    do_all(scenarios, &again, (jobs.len(), how.threads), &keep, &progress)?;
    let of = scenarios.iter().zip(results).zip(amounts.iter().zip(&lacks));
    let with_figures = of.filter(|((s, _), _)| !s.published.is_empty());
    Ok(with_figures
        .map(|((s, results), (amounts, lacks))| {
            let amounts = amounts.lock().expect("no thread panics");
            let work = if how.work { work::compare(s, &amounts, lacks) } else { vec![] };
            judge(s, &results.into_inner().expect("no thread panics"), work)
        })
        .collect())
}

/// Does the jobs, on `threads` cores, after `before` others.
fn do_all(
    scenarios: &[Scenario],
    jobs: &[Job],
    (before, threads): (usize, usize),
    keep: &(impl Fn(&Job, measure::Done) + Sync),
    progress: &(impl Fn(Progress<'_>) + Sync),
) -> Result<(), ReproduceError> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(before));
    let failed: Mutex<Option<ReproduceError>> = Mutex::new(None);
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let scenario = &scenarios[job.scenario];
            let run = &scenario.runs[job.run];
            match one(run, job) {
                Ok(done) => keep(job, done),
                Err(cause) => {
                    let error = refused(scenarios, job, cause);
                    failed.lock().expect("no thread panics").get_or_insert(error);
                    next.store(jobs.len(), Ordering::Relaxed);
                }
            }
            progress(Progress {
                done: (done.fetch_add(1, Ordering::Relaxed) + 1, before + jobs.len()),
                scenario: &scenario.name,
                run: &run.label,
                policy: &job.policy,
                seed: seed(run, job),
            });
        }
    };
    std::thread::scope(|scope| {
        (0..threads.clamp(1, jobs.len().max(1))).for_each(|_| _ = scope.spawn(work));
    });
    failed.into_inner().expect("no thread panics").map_or(Ok(()), Err)
}

/// What is to be done, the longest first, and for each scenario what policies lack.
struct Jobs {
    jobs: Vec<Job>,
    lacks: Vec<Lacks>,
}

fn jobs(scenarios: &[Scenario], how: How) -> Result<Jobs, ReproduceError> {
    let (mut jobs, mut lacks): (Vec<Job>, _) = (vec![], vec![]);
    for (i, scenario) in scenarios.iter().enumerate() {
        let of: BTreeSet<Job> = scenario
            .published
            .iter()
            .flat_map(|p| measure::runs(scenario, p))
            .map(|(run, policy, traced)| Job {
                scenario: i,
                run,
                policy,
                traced,
                nth: 0,
                for_work: false,
            })
            .collect();
        for job in &of {
            known(scenario, &job.policy)?;
        }
        // A traced run has what the other has.
        let traced = |j: &Job| of.contains(&Job { traced: true, ..j.clone() });
        jobs.extend(of.iter().filter(|j| j.traced || !traced(j)).cloned());
    }
    for job in &jobs {
        let run = &scenarios[job.scenario].runs[job.run];
        sim::judge(run, &options(run, job)).map_err(|e| refused(scenarios, job, e))?;
    }
    let every = |j: Job| (0..how.seeds).map(move |nth| Job { nth, ..j.clone() });
    let mut jobs: Vec<Job> = jobs.into_iter().flat_map(every).collect();
    for (i, scenario) in scenarios.iter().enumerate() {
        let mut without = vec![];
        if how.work && !scenario.published.is_empty() {
            let judge =
                |j: &Job| sim::judge(&scenario.runs[j.run], &options(&scenario.runs[j.run], j));
            let (more, lack) =
                work::jobs(i, &scenario.runs, judge).map_err(|e| refused(scenarios, &e.0, e.1))?;
            jobs.extend(more);
            without = lack;
        }
        lacks.push(without);
    }
    longest_first(scenarios, &mut jobs);
    Ok(Jobs { jobs, lacks })
}

/// Puts the longest jobs first.
fn longest_first(scenarios: &[Scenario], jobs: &mut [Job]) {
    let cost = |j: &Job| {
        let run = &scenarios[j.scenario].runs[j.run];
        let duration = options(run, j).duration.unwrap_or(run.spec.duration);
        u128::from(duration.ns()) * run.topology.pcpus() as u128
    };
    jobs.sort_by_key(|j| std::cmp::Reverse(cost(j)));
}

fn known(scenario: &Scenario, policy: &str) -> Result<(), ReproduceError> {
    let figure = || {
        let of = |p: &&Published| measure::policies(p).any(|name| name == policy);
        scenario.published.iter().find(of).map_or("", |p| &p.figure).to_owned()
    };
    policy.parse::<Policy>().map(|_| ()).map_err(|e| ReproduceError::Policy {
        scenario: scenario.name.clone(),
        figure: figure(),
        policy: policy.to_owned(),
        cause: e.to_string(),
    })
}

fn refused(scenarios: &[Scenario], job: &Job, cause: SimError) -> ReproduceError {
    let scenario = &scenarios[job.scenario];
    ReproduceError::Run {
        scenario: scenario.name.clone(),
        run: scenario.runs[job.run].label.clone(),
        policy: job.policy.clone(),
        seed: seed(&scenario.runs[job.run], job),
        cause: Box::new(cause),
    }
}

fn seed(run: &settings::Run, job: &Job) -> u64 {
    run.spec.seed.wrapping_add(job.nth)
}

fn options(run: &settings::Run, job: &Job) -> Options {
    // Other policies promise nothing that the oracle could hold them to.
    let check = job.policy == "tandem" && !job.for_work;
    let policy = job.policy.parse().unwrap_or(Policy::Tandem);
    let duration = if job.for_work { work::duration(run) } else { None };
    Options { policy, check, duration, seed: Some(seed(run, job)), ..Options::default() }
}

fn one(run: &settings::Run, job: &Job) -> Result<measure::Done, SimError> {
    let options = options(run, job);
    if !job.traced {
        return Ok(measure::Done::new(sim::run(run, &options)?, BTreeMap::new()));
    }
    let (trace, outcome) = measure::traced(run, &options)?;
    Ok(measure::Done::new(outcome, measure::waited(&trace)))
}

/// Holds the results of each seed against what is published.
fn judge(scenario: &Scenario, results: &[Results], work: Vec<Work>) -> Experiment {
    let point = |p: &Published| {
        let numbers = |policy: &str| -> Vec<Option<f64>> {
            results.iter().map(|r| measure::number(scenario, p, policy, r)).collect()
        };
        let beside = |policy: &String| {
            let (measured, spread) = mean_and_spread(&numbers(policy));
            Beside { policy: policy.clone(), measured, spread }
        };
        let by_seed = numbers(&p.measure.policy);
        let (measured, spread) = mean_and_spread(&by_seed);
        let [least, most] = p.allowed;
        Point {
            figure: p.figure.clone(),
            page: p.page.clone(),
            what: p.what.clone(),
            published: p.value,
            says: p.says.clone(),
            allowed: p.allowed,
            unit: p.unit.clone(),
            policy: p.measure.policy.clone(),
            measured,
            spread,
            by_seed,
            holds: measured.is_some_and(|m| (least..=most).contains(&m)),
            beside: p.beside.iter().map(beside).collect(),
        }
    };
    Experiment {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        points: scenario.published.iter().map(point).collect(),
        violations: results.iter().flat_map(|r| r.values()).map(|d| d.violations).sum(),
        work,
    }
}

/// Mean, and least and most, of numbers that are all there.
fn mean_and_spread(by_seed: &[Option<f64>]) -> (Option<f64>, Option<[f64; 2]>) {
    let all: Option<Vec<f64>> = by_seed.iter().copied().collect();
    let Some(all) = all.filter(|all| !all.is_empty()) else { return (None, None) };
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Rounding may not put a mean outside of what it is the mean of.
    let mean = (all.iter().sum::<f64>() / all.len() as f64).clamp(least, most);
    (Some(mean), Some([least, most]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scenario of a VM `a` with runs `x` and `y`, and what else is written of it.
    pub(crate) fn scenario(name: &str, rest: &str) -> Scenario {
        let head = "title = 't'\nsource = 's'\nduration = '1s'\n[host]\ncores_per_llc = 1\n\
            [[vm]]\nname = 'a'\nvcpus = 1\n[[run]]\nlabel = 'x'\n[[run]]\nlabel = 'y'\n";
        let file = format!("tandem-reproduce-{name}-{}.toml", std::process::id());
        let file = std::env::temp_dir().join(file);
        std::fs::write(&file, format!("{head}{rest}")).expect("it is written");
        let loaded = settings::load(&file.to_string_lossy());
        std::fs::remove_file(&file).expect("it is removed");
        loaded.expect("it loads")
    }

    #[test]
    fn a_mean_is_of_all_seeds_and_lies_in_their_spread() {
        assert_eq!(mean_and_spread(&[Some(1.0), Some(4.0)]), (Some(2.5), Some([1.0, 4.0])));
        assert_eq!(mean_and_spread(&[Some(1.0), None]), (None, None));
        assert_eq!(mean_and_spread(&[]), (None, None));
        let same = [Some(0.1); 3];
        assert_eq!(mean_and_spread(&same), (Some(0.1), Some([0.1, 0.1])));
    }
}
