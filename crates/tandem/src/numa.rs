//! `tandem numa`: why VMs have the home nodes that they have.

use crate::{
    Exit, Failure,
    knobs::{self, Setting},
    say,
    sim::{choose_run, exit_of},
};
use sim::{Options, Progress};
use std::collections::{BTreeMap, BTreeSet};
use units::Span;
use views::{NumaClient, RunResult};

/// NUMA home nodes: why each VM has the one that it has (docs/numa.md).
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Runs a scenario with [numa] in the simulator, and prints each decision on a VM's home: the
    /// reason, what was seen, what was expected, and what came of it.
    Explain(Explain),
}

#[derive(clap::Args)]
struct Explain {
    /// Name of a folder under scenarios/, or a TOML file.
    scenario: String,
    /// Name of a VM; all if left out.
    vm: Option<String>,
    /// Only the run with this label.
    #[arg(long, value_name = "LABEL")]
    run: Option<String>,
    /// Seed of all random numbers; overrides the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// Simulated time of each run; overrides the scenario's.
    #[arg(long)]
    duration: Option<Span>,
    /// Sets a knob of the scheduler; overrides the scenario's; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<Setting>,
    /// As JSON: run by run and VM by VM the clients of docs/result.md.
    #[arg(long)]
    json: bool,
}

/// Runs `tandem numa`.
///
/// # Errors
/// `Exit::Input` for a refused scenario or knob, a scenario without `[numa]`, or a run or VM that
/// it has not.
pub fn main(args: &Args) -> Result<(), Failure> {
    let Command::Explain(args) = &args.command;
    let scenario = chosen(args)?;
    knobs::resolve(&BTreeMap::new(), &args.set)?; // a wrong knob is said before anything runs
    let options = Options {
        seed: args.seed,
        duration: args.duration,
        knobs: args.set.iter().map(|s| (s.0.clone(), s.1)).collect(),
        check: false,
        ..Options::default()
    };
    let said = say::Beside::default();
    if !args.json {
        let seed = args.seed.unwrap_or(scenario.runs[0].spec.seed);
        let version = env!("CARGO_PKG_VERSION");
        said.all(&format!(
            "{}: {} (tandem {version}, seed {seed})\n",
            scenario.name, scenario.title
        ));
    }
    let mut json = vec![];
    let progress = |p: Progress<'_>| {
        let Progress::Done(run, outcome) = p else { return };
        if args.json {
            json.push((run.label.clone(), clients(&outcome.result, args.vm.as_deref())));
            return;
        }
        if !run.label.is_empty() {
            said.all(&format!("run '{}'\n", run.label));
        }
        for (name, of) in clients(&outcome.result, args.vm.as_deref()) {
            for (i, c) in of.iter().enumerate() {
                said.all(&views::explained(&name, i, c));
            }
        }
    };
    sim::run_scenario(&scenario, &options, progress).map_err(|e| Failure::new(exit_of(&e), e))?;
    if args.json {
        let text = serde_json::to_string_pretty(&json)
            .map_err(|e| Failure::new(Exit::Other, anyhow::anyhow!(e)))?;
        said.all(&format!("{text}\n"));
    }
    said.end(Ok(()))
}

/// The scenario with the runs that are to be explained.
///
/// # Errors
/// `Exit::Input` where it has no homes to explain, no such run or no such VM.
fn chosen(args: &Explain) -> Result<settings::Scenario, Failure> {
    let mut scenario = settings::load(&args.scenario).map_err(|e| Failure::new(Exit::Input, e))?;
    let refused = |text: String| Failure::new(Exit::Input, anyhow::anyhow!(text));
    if let Some(label) = &args.run {
        choose_run(&mut scenario, label)?;
    }
    let name = &scenario.name;
    if scenario.runs.iter().all(|r| r.spec.numa().is_none()) {
        return Err(refused(format!(
            "scenario {name}: cannot explain homes: seen no [numa] with [hardware], without which \
                no VM has a home; add both (docs/scenarios.md)"
        )));
    }
    let Some(vm) = &args.vm else { return Ok(scenario) };
    let names = scenario.runs.iter().flat_map(|r| r.spec.vms.iter().map(|v| v.name.as_str()));
    let names: BTreeSet<&str> = names.collect();
    if !names.contains(vm.as_str()) {
        let all = names.into_iter().collect::<Vec<_>>().join(", ");
        return Err(refused(format!(
            "scenario {name}: cannot explain VM '{vm}': allowed {all}; all of them without a name"
        )));
    }
    Ok(scenario)
}

/// The clients of the VMs, or of one.
fn clients(result: &RunResult, only: Option<&str>) -> Vec<(String, Vec<NumaClient>)> {
    let wanted = result.vms.iter().filter(|vm| only.is_none_or(|name| name == vm.name));
    wanted.map(|vm| (vm.name.clone(), vm.numa.clone())).collect()
}
