//! The lab's own tasks, put beside the model: what measures in the lab's Linux needs CPU time too,
//! and is in a cgroup of the largest weight, so that a real scheduler never has a scenario alone.
//!
//! *Law*: the tasks of the model use as much as those of the lab did in the same run, on as many
//! as 4 pCPUs at a time, in pieces of 1 ms of work on average. The pCPUs of the exact clock share
//! the speed of one, and the clock goes on meanwhile: beside n that are busy a piece takes n ms by
//! the clock, and by every account of it. All pCPUs of the scenarios here are busy. For the same
//! reason the ticks of two pCPUs never come at once: those of the model are spread over a tick.
//! How many tasks there were and how long each worked was not recorded: 4 and 1 ms are a guess.

use lab::LabError;
use settings::{Scenario, VmSpec};
use views::{Document, RunResult};

/// Name of the VM that stands for the tasks.
const NAME: &str = "lab-tasks";
/// The pool that has them in a document of the lab.
const SYSTEM: &str = "/system";
const AT_ONCE: usize = 4;
/// Work of a piece, in us.
const PIECE_US: u64 = 1_000;

/// CPU time of the lab's own tasks in a run, in ns; 0 where it has no such account.
pub(super) fn used_ns(run: &RunResult) -> u64 {
    run.pools.iter().find(|p| p.path == SYSTEM).map_or(0, |p| p.used_ns)
}

/// The scenario with as much work beside it in each run as the lab's tasks had there; none where
/// the lab has no account of them.
///
/// # Errors
/// `LabError` when the tasks cannot be described.
pub(super) fn beside(
    scenario: &Scenario,
    real: &Document,
    seed: u64,
) -> lab::Result<Option<Scenario>> {
    let mut scenario = scenario.clone();
    let mut any = false;
    for run in &mut scenario.runs {
        run.spec.seed = seed;
        let Some(result) = real.runs.iter().find(|r| r.label == run.label) else { continue };
        let used = used_ns(result);
        let at_once = result.host.pcpus.min(AT_ONCE) as u64;
        if used == 0 {
            continue;
        }
        any = true;
        // Each works a part of the time that is used / (tasks * time); its sleeps are the rest.
        let rest = (at_once * result.duration_ns).saturating_sub(used).max(used / 100);
        let piece_us = PIECE_US * result.host.pcpus.max(1) as u64;
        let sleep_us = u64::try_from(u128::from(piece_us * rest) / u128::from(used));
        let text = format!(
            "name = \"{NAME}\"\nvcpus = {at_once}\nshares = 10000\nworkload = {{ kind = \"io\", \
                work = \"{piece_us}us\", sleep = \"{}us\", dist = \"exponential\" }}\n",
            sleep_us.unwrap_or(piece_us)
        );
        let tasks: VmSpec = toml::from_str(&text).map_err(|e| {
            LabError::new(NAME, "be put beside the model", e.to_string(), "report this")
        })?;
        run.spec.vms.push(tasks);
    }
    Ok(any.then_some(scenario))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::Ticks;

    #[test]
    fn the_tasks_use_in_the_model_what_they_used_in_the_lab() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let scenario = settings::load(&format!("{root}/shares-ratio")).unwrap();
        let time = Some(units::Span::from_secs(20));
        let simulate = crate::experiment_commands::simulate;
        let mut real = simulate(&scenario, time, "eevdf", Ticks::Aligned).unwrap();
        assert!(beside(&scenario, &real, 1).unwrap().is_none(), "the simulator has none");
        for run in &mut real.runs {
            let system = run.pools.iter_mut().find(|p| p.path == SYSTEM);
            system.expect("its account, of nothing").used_ns = 4_000_000_000;
        }
        let with = beside(&scenario, &real, 1).unwrap().expect("there are tasks");
        let model = simulate(&with, time, "eevdf", Ticks::Staggered).unwrap();
        for run in &model.runs {
            let tasks = run.vms.iter().find(|v| v.name == NAME).expect("the tasks");
            let used_s = tasks.times.used_ns as f64 / 1e9;
            assert!((3.3..4.7).contains(&used_s), "{}: {used_s} s of 4", run.label);
        }
    }
}
