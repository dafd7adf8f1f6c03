//! Work under Tandem by that under the policies of other systems, run by run of an experiment.
//!
//! *Law*: what counts is the work of all VMs, or the pieces of work of their guests' tasks where
//! guests have tasks. Each run is done once, for two minutes at most, under each policy that can do
//! it; one with less than `LEAST` of a policy's work by `SEEDS`, for one is luck. What is less then
//! is to have a reason in its scenario.
//!
//! *Limits*: work of all VMs together says nothing of fairness and latency.

use crate::Job;
use schemars::JsonSchema;
use serde::Serialize;
use settings::{Scenario, is_of};
use sim::SimError;
use std::collections::{BTreeMap, BTreeSet};
use units::Span;
use views::RunResult;

/// Policies of other systems.
pub const PEERS: [&str; 11] = [
    "cfs",
    "eevdf",
    "xen-credit",
    "xen-credit2",
    "esx-2.5.2",
    "esx-2.5.3",
    "esx-3.5",
    "esx-4.0",
    "esx-4.1",
    "esx-4.1-tuned",
    "esx-5.1",
];

/// A run is no longer, its warm-up aside.
const MOST: Span = Span::from_secs(120);

/// Seeds by which a run is done that has less work: one seed gives up to 1.5 % more than another.
const SEEDS: u64 = 4;

/// Less of a policy's work than this is to have a reason.
pub const LEAST: f64 = 0.99;

/// Work under Tandem by that under a policy.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Work {
    /// The policy.
    pub policy: String,
    /// Runs that it can do, and all of the experiment.
    pub runs: [usize; 2],
    /// What it lacks for the others.
    pub lacks: Vec<String>,
    /// Tandem's work by its work, of all runs that it can do.
    pub all: Option<f64>,
    /// Runs in which Tandem does less, below `LEAST`, the least first.
    pub less: Vec<Less>,
    /// The run in which Tandem has most by it.
    pub most: Option<Less>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Less {
    /// Its label.
    pub run: String,
    /// Tandem's work by the policy's.
    pub ratio: f64,
    /// Why it is less, as the scenario says.
    pub why: Option<String>,
}

/// What the runs of a scenario gave, by index of the run and policy, and by seed.
pub(crate) type Amounts = BTreeMap<(usize, String), BTreeMap<u64, u64>>;

/// Work of a run, in ns, or in pieces.
pub(crate) fn amount(result: &RunResult) -> u64 {
    let rounds: Vec<u64> = result.vms.iter().filter_map(|vm| Some(vm.guest?.rounds)).collect();
    if rounds.is_empty() {
        result.vms.iter().map(|vm| vm.times.work).sum()
    } else {
        rounds.iter().sum()
    }
}

/// How long a run is, if not as long as it says.
pub(crate) fn duration(run: &settings::Run) -> Option<Span> {
    (run.spec.duration > MOST).then_some(MOST)
}

/// A policy, and what it lacks.
pub(crate) type Lacks = Vec<(String, String)>;

/// A run that is refused, and why.
pub(crate) type Refused = Box<(Job, SimError)>;

/// Runs that are to be done for a scenario, and what policies lack for others.
pub(crate) fn jobs(
    scenario: usize,
    runs: &[settings::Run],
    judge: impl Fn(&Job) -> Result<(), SimError>,
) -> Result<(Vec<Job>, Lacks), Refused> {
    let (mut out, mut lacks) = (vec![], vec![]);
    for run in 0..runs.len() {
        for policy in std::iter::once("tandem").chain(PEERS) {
            let policy = policy.to_owned();
            let job = Job { scenario, run, policy, traced: false, nth: 0, for_work: true };
            match judge(&job) {
                Ok(()) => out.push(job),
                Err(SimError::Unsupported { policy, missing, .. }) => {
                    let what = |text: &String| text.split(" (").next().map(str::to_owned);
                    lacks.extend(missing.iter().filter_map(what).map(|w| (policy.clone(), w)));
                }
                Err(e) => return Err(Box::new((job, e))),
            }
        }
    }
    lacks.sort();
    lacks.dedup();
    Ok((out, lacks))
}

/// Mean work of a run under Tandem, and under a policy, by the seeds that both were done by.
fn both(amounts: &Amounts, run: usize, policy: &str) -> Option<(u64, u64)> {
    let of = |policy: &str| amounts.get(&(run, policy.to_owned()));
    let (own, other) = (of("tandem")?, of(policy)?);
    let mean = |all: &BTreeMap<u64, u64>, and: &BTreeMap<u64, u64>| {
        let both: Vec<u64> = all
            .iter()
            .filter(|(nth, _)| and.contains_key(nth))
            .map(|(_, amount)| *amount)
            .collect();
        both.iter().sum::<u64>() / both.len().max(1) as u64
    };
    Some((mean(own, other), mean(other, own)))
}

fn ratio((own, other): (u64, u64)) -> f64 {
    own as f64 / other as f64
}

/// Runs that are to be done by other seeds: those with less work than under another policy.
pub(crate) fn again(scenario: usize, of: &Scenario, amounts: &Amounts, seeds: u64) -> Vec<Job> {
    let mut out = BTreeSet::new();
    for run in 0..of.runs.len() {
        for policy in PEERS {
            if both(amounts, run, policy).is_none_or(|b| b.1 == 0 || ratio(b) >= LEAST) {
                continue;
            }
            for (policy, nth) in
                [policy, "tandem"].iter().flat_map(|p| (1..seeds.min(SEEDS)).map(move |n| (p, n)))
            {
                let policy = (*policy).to_owned();
                out.insert(Job { scenario, run, policy, traced: false, nth, for_work: true });
            }
        }
    }
    out.into_iter().collect()
}

/// Compares the work of a scenario's runs.
pub(crate) fn compare(
    scenario: &Scenario,
    amounts: &Amounts,
    lacks: &[(String, String)],
) -> Vec<Work> {
    let of = |policy: &str| {
        let of_run = |run: usize| both(amounts, run, policy).map(|(own, other)| (run, own, other));
        let runs: Vec<(usize, u64, u64)> = (0..scenario.runs.len()).filter_map(of_run).collect();
        let sum = |of: fn(&(usize, u64, u64)) -> u64| runs.iter().map(of).sum::<u64>() as f64;
        let (own, other) = (sum(|r| r.1), sum(|r| r.2));
        let each = runs.iter().filter(|r| r.2 > 0).map(|(run, own, other)| {
            let (run, ratio) = (&scenario.runs[*run].label, ratio((*own, *other)));
            let says = |l: &&settings::LessWork| {
                let one = |all: &[String], name: &str| all.iter().any(|p| is_of(p, name));
                one(&l.policies, policy) && one(&l.runs, run)
            };
            let why = scenario.less_work.iter().find(says).map(|l| l.why.clone());
            Less { run: run.clone(), ratio, why }
        });
        let mut each: Vec<Less> = each.collect();
        each.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        Work {
            policy: policy.to_owned(),
            runs: [runs.len(), scenario.runs.len()],
            lacks: lacks.iter().filter(|l| l.0 == policy).map(|l| l.1.clone()).collect(),
            all: (other > 0.0).then_some(own / other),
            most: each.last().map(|l| Less { why: None, ..l.clone() }),
            less: each.into_iter().filter(|l| l.ratio < LEAST).collect(),
        }
    };
    PEERS.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASON: &str = "[[less_work]]\npolicies = ['xen-*']\nruns = ['x']\nwhy = 'it is said'\n";

    #[test]
    fn less_work_is_looked_at_by_all_seeds_and_has_its_reason() {
        let scenario = crate::tests::scenario("less-work", REASON);
        let mut amounts = Amounts::new();
        let mut put = |run, policy: &str, nth, amount| {
            amounts.entry((run, policy.to_owned())).or_default().insert(nth, amount);
        };
        for (run, policy, amount) in [
            (0, "tandem", 98),
            (0, "xen-credit", 100),
            (0, "cfs", 100),
            (0, "eevdf", 98),
            (1, "tandem", 120),
            (1, "xen-credit", 100),
        ] {
            put(run, policy, 0, amount);
        }
        let jobs = again(7, &scenario, &amounts, 3);
        let seen: Vec<(usize, &str, u64)> =
            jobs.iter().map(|j| (j.run, j.policy.as_str(), j.nth)).collect();
        let cfs_and_xen = [(0, "cfs", 1), (0, "cfs", 2), (0, "tandem", 1), (0, "tandem", 2)];
        assert_eq!(seen[..4], cfs_and_xen, "{seen:?}");
        assert!(seen.contains(&(0, "xen-credit", 2)) && !seen.iter().any(|s| s.1 == "eevdf"));
        // By other seeds CFS has less, and Credit as much more: seed 0 was luck for the one.
        let mut put = |policy: &str, nth, amount| {
            amounts.entry((0, policy.to_owned())).or_default().insert(nth, amount);
        };
        for nth in 1..3 {
            put("tandem", nth, 100);
            put("cfs", nth, 99);
            put("xen-credit", nth, 103);
        }
        let lacks = [("esx-4.0".to_owned(), "pools".to_owned())];
        let all = compare(&scenario, &amounts, &lacks);
        let of = |policy: &str| all.iter().find(|w| w.policy == policy).expect("a peer");
        assert_eq!((of("cfs").less.len(), of("eevdf").all), (0, Some(1.0)));
        let xen = of("xen-credit");
        assert_eq!((xen.runs, xen.less.len()), ([2, 2], 1));
        assert_eq!(xen.less[0].why.as_deref(), Some("it is said"));
        assert!((xen.less[0].ratio - 99.0 / 102.0).abs() < 1e-9);
        // The other run counts as much, though it was done by one seed.
        let all = xen.all.expect("work");
        assert!((all - 219.0 / 202.0).abs() < 1e-9, "{all}");
        assert_eq!(xen.most.as_ref().map(|m| m.run.as_str()), Some("y"));
        assert_eq!(
            (of("esx-4.0").all, of("esx-4.0").lacks.clone()),
            (None, vec!["pools".to_owned()])
        );
    }
}
