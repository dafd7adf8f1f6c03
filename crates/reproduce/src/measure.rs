//! Numbers from the results of a scenario's runs.

use settings::{Form, Published, Quantity, Scenario, is_of};
use sim::{Options, Outcome, SimError};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};
use trace::{
    Trace,
    waits::{WaitOptions, analyse},
};
use views::{MeasuredBy, RunResult, Times, Vm};

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    result: RunResult,
    pub(crate) violations: u64,
    /// Of each VM, wake-ups that waited behind another world, and all.
    waited: BTreeMap<String, (u64, u64)>,
}

impl Done {
    pub(crate) fn new(outcome: Outcome, waited: BTreeMap<String, (u64, u64)>) -> Done {
        let violations = outcome.verdict.as_ref().map_or(0, |v| v.violated());
        Done { result: outcome.result, violations, waited }
    }

    pub(crate) fn result(&self) -> &RunResult {
        &self.result
    }
}

/// By label of the run and policy.
pub(crate) type Results = BTreeMap<(String, String), Done>;

/// One of the numbers of a figure, whole.
struct One<'a> {
    of: Quantity,
    vm: &'a [String],
    run: &'a str,
    policy: &'a str,
}

/// The numbers of a figure under a policy: what is measured, and what it is divided by.
fn numbers<'a>(p: &'a Published, policy: &'a str) -> (One<'a>, Option<One<'a>>) {
    let m = &p.measure;
    let first = One { of: m.of, vm: &m.vm, run: &m.run, policy };
    let second = m.over.as_ref().map(|o| One {
        of: o.of.unwrap_or(m.of),
        vm: o.vm.as_deref().unwrap_or(&m.vm),
        run: o.run.as_deref().unwrap_or(&m.run),
        policy: o.policy.as_deref().unwrap_or(policy),
    });
    (first, second)
}

/// Policies that are measured: the figure's, and those beside it.
fn measured(p: &Published) -> impl Iterator<Item = &str> {
    std::iter::once(p.measure.policy.as_str()).chain(p.beside.iter().map(String::as_str))
}

/// Policies that a figure needs.
pub(crate) fn policies(p: &Published) -> impl Iterator<Item = &str> {
    let second = numbers(p, &p.measure.policy).1.map(|s| s.policy);
    measured(p).chain(second)
}

/// Runs that a figure needs, by index, each with its policy, and whether it is to be traced.
pub(crate) fn runs(scenario: &Scenario, p: &Published) -> Vec<(usize, String, bool)> {
    let of = |one: One<'_>| {
        let runs = scenario.runs.iter().enumerate();
        let wanted = runs.filter(|(_, r)| match p.measure.form {
            Form::Crossing => x_of(r, one.run).is_some(),
            Form::Cells | Form::Most => is_of(one.run, &r.label),
            _ => r.label == one.run,
        });
        let traced = one.of == Quantity::Waited;
        wanted.map(|(i, _)| (i, one.policy.to_owned(), traced)).collect::<Vec<_>>()
    };
    let under = |policy| {
        let (first, second) = numbers(p, policy);
        std::iter::once(first).chain(second)
    };
    measured(p).flat_map(under).flat_map(of).collect()
}

/// Bytes of a trace that several hold.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().map_err(|_| io::ErrorKind::Other)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A run and its trace.
pub(crate) fn traced(
    run: &settings::Run,
    options: &Options,
) -> Result<(Vec<u8>, Outcome), SimError> {
    let out = Shared::default();
    let outcome = sim::run_traced(run, options, Box::new(out.clone()))?;
    let bytes = out.0.lock().map(|mut b| std::mem::take(&mut *b)).unwrap_or_default();
    Ok((bytes, outcome))
}

/// Of each VM of a trace, wake-ups that waited behind another world, and all.
pub(crate) fn waited(bytes: &[u8]) -> BTreeMap<String, (u64, u64)> {
    let Ok(trace) = Trace::read(bytes) else { return BTreeMap::new() };
    let report = analyse(&trace.events, &WaitOptions::default());
    report.vms.iter().map(|vm| (vm.name.clone(), (vm.behind, vm.wakeup.count))).collect()
}

/// What was measured of a figure under a policy; none if the results have no such number.
pub(crate) fn number(
    scenario: &Scenario,
    p: &Published,
    policy: &str,
    results: &Results,
) -> Option<f64> {
    let (first, second) = numbers(p, policy);
    match p.measure.form {
        Form::Cells => {
            let gains = gains(scenario, &first, &second?, results)?;
            let at = p.measure.at?;
            let many = gains.iter().filter(|gain| **gain >= at).count();
            return Some(many as f64 * 100.0 / gains.len() as f64);
        }
        Form::Most => {
            return gains(scenario, &first, &second?, results)?.into_iter().reduce(f64::max);
        }
        _ => {}
    }
    let of = |one: &One<'_>| match p.measure.form {
        Form::Crossing => crossing(scenario, one, p.measure.at?, results),
        Form::Apart => apart(one, find(one, one.run, results)?),
        _ => quantity(one, find(one, one.run, results)?),
    };
    let measured = of(&first)?;
    let Some(other) = second.as_ref().map(of) else { return Some(measured) };
    let ratio = measured / other.filter(|o| *o != 0.0)?;
    Some(if p.measure.form == Form::Gain { (ratio - 1.0) * 100.0 } else { ratio })
}

fn find<'r>(one: &One<'_>, run: &str, results: &'r Results) -> Option<&'r Done> {
    results.get(&(run.to_owned(), one.policy.to_owned()))
}

fn is_meant(one: &One<'_>, name: &str) -> bool {
    one.vm.is_empty() || one.vm.iter().any(|pattern| is_of(pattern, name))
}

fn quantity(one: &One<'_>, done: &Done) -> Option<f64> {
    let result = &done.result;
    let vms: Vec<&Vm> = result.vms.iter().filter(|vm| is_meant(one, &vm.name)).collect();
    if vms.is_empty() {
        return None;
    }
    let mut all = Times::default();
    vms.iter().for_each(|vm| all.add(&vm.times));
    let seconds = |ns: u64| ns as f64 / 1e9;
    let of_run = |ns: u64| ns as f64 * 100.0 / result.duration_ns as f64;
    let wakes = result.wakeups.iter().filter(|w| is_meant(one, &w.vm) && measured_inside(w.by));
    let us = |ns: u64| ns as f64 / 1e3;
    Some(match one.of {
        Quantity::Work => seconds(all.work),
        Quantity::Used => seconds(all.used_ns),
        Quantity::Ready => seconds(all.ready_ns),
        Quantity::UsedPercent => of_run(all.used_ns),
        Quantity::HostPercent => of_run(all.used_ns) / result.host.pcpus as f64,
        Quantity::EntitledPercent => {
            (all.entitled_ns > 0).then(|| all.used_ns as f64 * 100.0 / all.entitled_ns as f64)?
        }
        Quantity::Slowdown => all.slowdown()?,
        Quantity::TwinMoves => all.moved?.twin as f64 / seconds(result.duration_ns),
        Quantity::WakeMin => us(wakes.map(|w| w.min_ns).min()?),
        Quantity::WakeMax => us(wakes.map(|w| w.max_ns).max()?),
        Quantity::WakeMean => {
            let sum = wakes.fold((0, 0), |sum, w| (sum.0 + w.mean_ns * w.count, sum.1 + w.count));
            us(sum.0.checked_div(sum.1)?)
        }
        Quantity::RoundsRate => {
            let rounds = vms.iter().map(|vm| Some(vm.guest?.rounds)).sum::<Option<u64>>()?;
            rounds as f64 / seconds(result.duration_ns)
        }
        Quantity::Waited => {
            let of = vms.iter().filter_map(|vm| done.waited.get(&vm.name));
            let (waited, count) = of.fold((0, 0), |sum, w| (sum.0 + w.0, sum.1 + w.1));
            (count > 0).then(|| waited as f64 * 100.0 / count as f64)?
        }
    })
}

/// Whether the workload itself measured a latency: from the moment that its timer was due.
fn measured_inside(by: MeasuredBy) -> bool {
    matches!(by, MeasuredBy::Workload)
}

/// By how much the largest of the VMs exceeds the smallest, in percent.
fn apart(one: &One<'_>, done: &Done) -> Option<f64> {
    let names = done.result.vms.iter().filter(|vm| is_meant(one, &vm.name));
    let each: Vec<f64> = names
        .filter_map(|vm| {
            let name = [vm.name.clone()];
            quantity(&One { vm: &name, ..*one }, done)
        })
        .collect();
    let least = each.iter().copied().reduce(f64::min).filter(|l| *l > 0.0)?;
    let most = each.iter().copied().reduce(f64::max)?;
    Some((most / least - 1.0) * 100.0)
}

/// By how much each run that is meant gains over the same run, in percent.
fn gains(
    scenario: &Scenario,
    one: &One<'_>,
    other: &One<'_>,
    results: &Results,
) -> Option<Vec<f64>> {
    let labels = scenario.runs.iter().map(|r| &r.label).filter(|label| is_of(one.run, label));
    let gain = |label: &String| {
        let of = |one: &One<'_>| quantity(one, find(one, label, results)?);
        Some((of(one)? / of(other)? - 1.0) * 100.0)
    };
    labels.map(gain).collect()
}

/// The number in the runs' labels at which a quantity crosses a value for the first time.
fn crossing(scenario: &Scenario, one: &One<'_>, at: f64, results: &Results) -> Option<f64> {
    let point = |run: &settings::Run| {
        let x = x_of(run, one.run)?;
        Some((x, quantity(one, find(one, &run.label, results)?)?))
    };
    let mut points: Vec<(f64, f64)> = scenario.runs.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.windows(2).find_map(|w| {
        let ((x0, y0), (x1, y1)) = (w[0], w[1]);
        ((y0 < at) != (y1 < at)).then(|| x0 + (at - y0) * (x1 - x0) / (y1 - y0))
    })
}

/// The number with which a run's label begins, if the rest of it is as wanted.
fn x_of(run: &settings::Run, rest: &str) -> Option<f64> {
    run.label.strip_suffix(rest)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a policy beside a figure is divided by is its own number, unless the figure names one.
    #[test]
    fn a_policy_beside_a_figure_is_held_against_itself() {
        let published = |over: &str| {
            format!(
                "[[published]]\nfigure = 'f'\npage = '1'\nwhat = 'w'\nvalue = 1\n\
                    allowed = [1, 2]\nbeside = ['cfs']\n\
                    measure = {{ of = 'used', run = 'x', over = {{ {over} }} }}\n"
            )
        };
        let text = published("run = 'y'") + &published("policy = 'esx-3.5'");
        let scenario = crate::tests::scenario("beside", &text);
        let jobs = |i: usize| {
            let mut all = runs(&scenario, &scenario.published[i]);
            all.sort();
            all.into_iter().map(|(run, policy, _)| format!("{run} {policy}")).collect::<Vec<_>>()
        };
        assert_eq!(jobs(0), ["0 cfs", "0 tandem", "1 cfs", "1 tandem"]);
        assert_eq!(jobs(1), ["0 cfs", "0 esx-3.5", "0 esx-3.5", "0 tandem"]);
    }
}
