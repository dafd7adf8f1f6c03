//! `tandem numa`: why VMs have the home nodes that they have.

use crate::{
    Exit, Failure,
    knobs::{self, Setting},
    runs, say,
    sim::choose_run,
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
    /// Prints each decision on a VM's home: the reason, what was seen, what was expected, and what
    /// came of it; of this host, or of a scenario with [numa] that it runs in the simulator.
    Explain(Explain),
}

#[derive(clap::Args)]
struct Explain {
    /// Name of a VM; all if left out.
    vm: Option<String>,
    /// A scenario instead of this host: name of a folder under scenarios/, or a TOML file.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Only the run with this label.
    #[arg(long, value_name = "LABEL", requires = "scenario")]
    run: Option<String>,
    /// Seed of all random numbers; overrides the scenario's.
    #[arg(long, value_parser = crate::runs::seed, requires = "scenario")]
    seed: Option<u64>,
    /// Simulated time of each run; overrides the scenario's.
    #[arg(long, requires = "scenario")]
    duration: Option<Span>,
    /// Sets a knob of the scheduler; overrides the scenario's; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE", requires = "scenario")]
    set: Vec<Setting>,
    /// As JSON: run by run and VM by VM the clients of docs/result.md.
    #[arg(long)]
    json: bool,
}

/// Runs `tandem numa`.
///
/// # Errors
/// `Exit::Input` for a refused scenario or knob, a scenario without `[numa]`, or a run or VM that
/// it has not; `Exit::Host` where no daemon runs, or gives no homes.
pub fn main(args: &Args) -> Result<(), Failure> {
    let Command::Explain(args) = &args.command;
    match &args.scenario {
        Some(name) => of_scenario(args, name),
        None => of_host(args),
    }
}

/// VMs of a run, and the clients of each.
pub(crate) type Clients = Vec<(String, Vec<NumaClient>)>;

/// Explains the homes of this host.
fn of_host(args: &Explain) -> Result<(), Failure> {
    let mut vms = live()?;
    if let Some(wanted) = &args.vm {
        let all = vms.iter().map(|vm| vm.0.as_str()).collect::<Vec<_>>().join(", ");
        vms.retain(|vm| vm.0 == *wanted);
        if vms.is_empty() {
            return Err(no_vm("this host", wanted, &all));
        }
    }
    if args.json {
        return Ok(say::raw(&json(&[(String::new(), vms)])?)?);
    }
    Ok(say::all(&text(&vms))?)
}

/// Homes by the daemon that runs.
#[cfg(feature = "live")]
fn live() -> Result<Clients, Failure> {
    let lacks = |e: host::HostError| Failure::new(Exit::Host, e.or(host::instead::SCENARIO));
    let names = host::Names::of_running().map_err(lacks)?;
    let file = host::HomesFile::read(names.daemon).ok_or_else(|| {
        let text = "daemon: cannot explain homes: seen that it gives VMs none; write [numa] into \
            its settings file, on a host of several NUMA nodes, run 'tandem reload', and ask again \
            after two seconds";
        Failure::new(Exit::Host, anyhow::anyhow!(text))
    })?;
    Ok(file.vms.into_iter().map(|vm| (vm.name, vm.clients)).collect())
}

#[cfg(not(feature = "live"))]
fn live() -> Result<Clients, Failure> {
    let text = "daemon: cannot ask it: seen a tandem built without the live host; give --scenario \
        NAME, or build it with --features live";
    Err(Failure::new(Exit::Host, anyhow::anyhow!(text)))
}

/// Explains the homes of a scenario's runs.
fn of_scenario(args: &Explain, name: &str) -> Result<(), Failure> {
    let scenario = chosen(args, name)?;
    knobs::resolve(&BTreeMap::new(), &args.set)?; // a wrong knob is said before anything runs
    let options = Options {
        seed: args.seed,
        duration: args.duration,
        knobs: args.set.iter().map(|s| (s.0.clone(), s.1)).collect(),
        check: false,
        ..Options::default()
    };
    let said = say::Beside::default();
    let seed = args.seed.unwrap_or(scenario.runs[0].spec.seed);
    let version = env!("CARGO_PKG_VERSION");
    let head = format!("{}: {} (tandem {version}, seed {seed})\n", scenario.name, scenario.title);
    let mut runs = vec![];
    let progress = |p: Progress<'_>| {
        let (run, outcome) = match p {
            Progress::Done(run, outcome) => (run, outcome),
            // No run is refused any more.
            Progress::Begins(_, 1, _) if !args.json => return said.all(&head),
            Progress::Begins(..) => return,
        };
        if args.json {
            runs.push((run.label.clone(), clients(&outcome.result, args.vm.as_deref())));
            return;
        }
        if !run.label.is_empty() {
            said.all(&format!("run '{}'\n", run.label));
        }
        said.all(&text(&clients(&outcome.result, args.vm.as_deref())));
    };
    sim::run_scenario(&scenario, &options, progress)
        .map_err(|e| runs::failure(&scenario.name, &e))?;
    if args.json {
        said.raw(&json(&runs)?);
    }
    said.end(Ok(()))
}

/// Runs, or this host as one without a label, as JSON.
fn json(runs: &[(String, Clients)]) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(runs);
    text.map(|t| t + "\n").map_err(|e| Failure::new(Exit::Other, anyhow::anyhow!(e)))
}

/// All that was decided of VMs, in words.
fn text(vms: &Clients) -> String {
    let of = |(name, of): &(String, Vec<NumaClient>)| {
        let each = of.iter().enumerate().map(|(i, c)| views::explained(name, i, c));
        each.collect::<String>()
    };
    let all: String = vms.iter().map(of).collect();
    if all.is_empty() {
        return "no VM has a home: seen none that was given one\n".to_owned();
    }
    all
}

fn no_vm(whose: &str, vm: &str, all: &str) -> Failure {
    let allowed = if all.is_empty() {
        "none, for no VM has a home; ask again when one runs".to_owned()
    } else {
        format!("{all}; all of them without a name")
    };
    let text = format!("{whose}: cannot explain VM '{vm}': allowed {allowed}");
    Failure::new(Exit::Input, anyhow::anyhow!(text))
}

/// The scenario with the runs that are to be explained.
///
/// # Errors
/// `Exit::Input` where it has no homes to explain, no such run or no such VM.
fn chosen(args: &Explain, name: &str) -> Result<settings::Scenario, Failure> {
    let mut scenario = settings::load(name).map_err(|e| Failure::new(Exit::Input, e))?;
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
        return Err(no_vm(&format!("scenario {name}"), vm, &all));
    }
    Ok(scenario)
}

/// The clients of the VMs, or of one.
fn clients(result: &RunResult, only: Option<&str>) -> Clients {
    let wanted = result.vms.iter().filter(|vm| only.is_none_or(|name| name == vm.name));
    wanted.map(|vm| (vm.name.clone(), vm.numa.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_no_vm_has_a_home_is_said() {
        let none = "no VM has a home: seen none that was given one\n";
        assert_eq!(text(&vec![]), none);
        assert_eq!(text(&vec![("web".to_owned(), vec![])]), none);
        let said = |all| no_vm("this host", "web", all).error.to_string();
        assert!(
            said("").ends_with(": allowed none, for no VM has a home; ask again when one runs")
        );
        assert!(said("a, b").ends_with(": allowed a, b; all of them without a name"));
    }
}
