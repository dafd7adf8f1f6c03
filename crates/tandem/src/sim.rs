//! `tandem sim`: runs a scenario in the simulated host, prints the result, and fails if the oracle
//! finds a violation.

use crate::output::Output;
use crate::{
    Exit, Failure,
    apart::{Named, apart},
    knobs::{self, Setting},
    recorded::Recorded,
    runs::{self, titled},
    say::{self, quoted},
};
use check::{Invariant, Verdict, Violation, VmVerdict};
use sim::{Options, Policy, Progress};
use std::{collections::BTreeMap, io::BufWriter, path::PathBuf};
use units::Span;
use views::{Document, Where};

/// Runs a scenario in the simulated host: same seed, same bytes.
#[derive(clap::Args)]
pub struct Args {
    /// Name of a folder under scenarios/, or a TOML file (docs/scenarios.md); without it, they are
    /// listed.
    scenario: Option<String>,
    /// Seed of all random numbers; overrides the scenario's.
    #[arg(long, value_parser = crate::runs::seed)]
    seed: Option<u64>,
    /// Simulated time of each run; overrides the scenario's.
    #[arg(long)]
    duration: Option<Span>,
    /// Sets a knob of the scheduler; overrides the scenario's; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<Setting>,
    /// Scheduler: tandem; fifo, vtime, esx-2.5.2 and others to compare with it
    /// (docs/scenarios.md); mutant:NAME or POLICY+mutant:NAME, a faulty one that the checkers must
    /// catch.
    #[arg(long, default_value = "tandem")]
    policy: String,
    /// Write the result document (docs/result.md) to a file, or to standard output with '-'.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Only the run with this label.
    #[arg(long, value_name = "LABEL")]
    run: Option<String>,
    /// Record every decision for 'tandem trace' (docs/trace.md) in a file, or to standard output
    /// with '-'; of one run, which --run names if there are several.
    #[arg(long, value_name = "FILE|-")]
    trace: Option<PathBuf>,
    /// Without the oracle: faster, and no entitlements in the result.
    #[arg(long)]
    no_check: bool,
}

/// Violations shown in full; the rest is counted.
const SHOWN: usize = 20;

/// Runs `tandem sim`.
///
/// # Errors
/// `Exit::Input` for a refused scenario, knob or policy, `Exit::Check` if the oracle objects or an
/// expectation is missed, `Exit::Usage` where no scenario is named.
pub fn main(args: &Args) -> Result<(), Failure> {
    let Some(name) = &args.scenario else { return Err(which()) };
    apart(&[("the scenario", &settings::file_of(name))], &args.written())?;
    let policy: Policy = args.policy.parse().map_err(|e| Failure::new(Exit::Input, e))?;
    let mut scenario = settings::load(name).map_err(|e| Failure::new(Exit::Input, e))?;
    choose(args, &mut scenario)?;
    knobs::resolve(&BTreeMap::new(), &args.set)?; // a wrong knob is said before anything runs
    let options = Options {
        seed: args.seed,
        duration: args.duration,
        knobs: args.set.iter().map(|s| (s.0.clone(), s.1)).collect(),
        policy,
        check: !args.no_check,
        ..Options::default()
    };
    let json = args.json.as_deref().map(|p| Output::open_or_stdout(p, "the result")).transpose()?;
    let trace = args.trace.as_deref().map(|p| Output::open_or_stdout(p, "the trace"));
    let trace = trace.transpose()?;
    let to_stdout = json.iter().chain(&trace).any(Output::is_stdout);
    let mut found = Found::default();
    // The documents are written, also where nothing more can be said.
    let said = say::Beside::default();
    let say =
        |text: &str| if to_stdout { say::hint(&::top::safe_lines(text)) } else { said.all(text) };
    let progress = |p: Progress<'_>| match p {
        Progress::Begins(run, i, n) => {
            // No run is refused any more.
            if i == 1 {
                say(&head(args, &scenario));
            }
            if n > 1 {
                say::note(&format!("run {i} of {n}: {}", run.label));
            }
            let unused = policy.unused_knobs(run);
            if !unused.is_empty() {
                let names = unused.join("', '");
                say::note(&format!("{policy} has no knobs, and runs without '{names}'"));
            }
            note_excesses(run);
        }
        Progress::Done(run, outcome) => {
            say(&text(&outcome.result));
            if let Some(verdict) = &outcome.verdict {
                let homes = policy.is_tandem() && run.spec.numa.as_ref().is_some_and(|n| n.on);
                found.add(&titled(&scenario.name, &run.label), homes, verdict);
            }
        }
    };
    let recorded = Recorded::default();
    let done = match &trace {
        None => sim::run_scenario(&scenario, &options, progress),
        Some(file) => {
            // A result that is wanted too needs no reader of the trace.
            let out = recorded.writer(file.writer()?, json.is_some());
            sim::run_scenario_traced(&scenario, &options, Box::new(BufWriter::new(out)), progress)
        }
    };
    if let (Some(file), Some(cause)) = (&trace, recorded.failed()) {
        return Err(file.failed(cause).into());
    }
    // The trace of a run that the kernel's contract ended is whole.
    if let (Some(file), Ok(_) | Err(sim::SimError::Contract { .. })) = (trace, &done) {
        file.finish()?;
    }
    let mut document = done.map_err(|e| failure_of(&e, &scenario.name, args))?;
    document.command = Some(again(args, Some(document.seed)));
    if let Some(path) = args.trace.as_ref().filter(|p| p.as_os_str() != "-") {
        let path = path.display().to_string();
        let next = format!("tandem trace waits {}", quoted(&path));
        say(&format!("\ntrace: {path}; look at it by: {next}\n"));
    }
    if let Some(file) = json {
        file.json(&document)?;
    }
    said.end(judge(args, policy, &scenario, &document, &found))
}

impl Args {
    /// Files that it writes.
    fn written(&self) -> Vec<Named<'_>> {
        let outputs = [("--trace", &self.trace), ("--json", &self.json)];
        outputs.into_iter().filter_map(|(by, path)| Some((by, path.as_deref()?))).collect()
    }
}

/// The line above all runs.
fn head(args: &Args, scenario: &settings::Scenario) -> String {
    let seed = args.seed.unwrap_or(scenario.runs[0].spec.seed);
    format!(
        "{}: {} (tandem {}, policy {}, seed {seed})\n",
        scenario.name,
        scenario.title,
        env!("CARGO_PKG_VERSION"),
        args.policy
    )
}

/// A run's result in tables.
fn text(result: &views::RunResult) -> String {
    format!(
        "\n{}{}{}{}{}{}",
        views::summary(result),
        views::lost(result),
        views::moved(result),
        views::homes(result),
        views::pools(result),
        views::wakeups(result)
    )
}

/// No scenario is named: those that there are.
fn which() -> Failure {
    let all = settings::scenarios();
    let next = "run one by 'tandem sim NAME', or a file of your own by 'tandem sim FILE' \
        (docs/scenarios.md)";
    if all.is_empty() {
        let seen = "seen no name, and no folder scenarios/ here";
        return Failure::new(Exit::Usage, anyhow::anyhow!("sim: cannot run: {seen}; {next}"));
    }
    let mut table = views::Table::new(&["<scenario", "<title"]);
    for (name, title) in all {
        table.row([name, title]);
    }
    let error = anyhow::anyhow!(
        "sim: cannot run: seen no name, allowed one of these; {next}\n\n{}",
        table.text().trim_end()
    );
    Failure::new(Exit::Usage, error)
}

/// A breach of the kernel's contract ends with the command that replays it.
fn failure_of(e: &sim::SimError, scenario: &str, args: &Args) -> Failure {
    let failure = runs::failure(scenario, e);
    match e {
        sim::SimError::Contract { .. } => {
            let text = format!("{}\nreplay: {}", failure.error, replay(args));
            Failure::new(failure.exit, anyhow::anyhow!(text))
        }
        _ => failure,
    }
}

fn labels(scenario: &settings::Scenario) -> String {
    scenario.runs.iter().map(|r| format!("'{}'", r.label)).collect::<Vec<_>>().join(", ")
}

/// Leaves the run of that label.
///
/// # Errors
/// `Exit::Input` where there is none.
pub fn choose_run(scenario: &mut settings::Scenario, label: &str) -> Result<(), Failure> {
    if scenario.runs.iter().all(|r| r.label != label) {
        return Err(runs::not_found(scenario, label));
    }
    scenario.runs.retain(|r| r.label == label);
    Ok(())
}

/// Leaves the run that was asked for; a trace is of one run.
fn choose(args: &Args, scenario: &mut settings::Scenario) -> Result<(), Failure> {
    let labels = labels(scenario);
    if let Some(label) = &args.run {
        choose_run(scenario, label)?;
    }
    if args.trace.is_some() && scenario.runs.len() > 1 {
        let seen = scenario.runs.len();
        let error = anyhow::anyhow!(
            "--trace: cannot record: seen {seen} runs, allowed one; name it by --run: {labels}"
        );
        return Err(Failure::new(Exit::Usage, error));
    }
    Ok(())
}

/// What the oracle found in all runs.
#[derive(Default)]
struct Found {
    /// Violations with their texts; of many the oracle keeps the first.
    kept: Vec<String>,
    violated: u64,
    /// Of each run with home nodes the VM that is farthest beyond the bound on lag.
    beyond: Vec<String>,
}

impl Found {
    /// Home nodes keep VMs from pCPUs that idle, so no bound on lag is promised beside them.
    fn add(&mut self, run_name: &str, homes: bool, verdict: &Verdict) {
        let free = |v: &&Violation| homes && v.invariant == Invariant::Lag;
        let held = verdict.violations.iter().filter(|v| !free(v));
        self.kept.extend(held.map(|v| format!("{run_name}: {v}")));
        let passed = if homes { verdict.count(Invariant::Lag) } else { 0 };
        self.violated += verdict.violated() - passed;
        let off = |v: &&VmVerdict| v.owed_max_ns.max(v.surplus_max_ns);
        let of = |w: &Violation, v: &VmVerdict| w.vm.as_ref().is_some_and(|w| w.0 == v.vm);
        let beyond = |v: &&VmVerdict| verdict.violations.iter().filter(free).any(|w| of(w, v));
        if let Some(far) = verdict.vms.iter().filter(beyond).max_by_key(off) {
            let (ns, side) = if far.owed_max_ns > far.surplus_max_ns {
                (far.owed_max_ns, "behind")
            } else {
                (far.surplus_max_ns, "ahead of")
            };
            self.beyond.push(format!(
                "{run_name}: with home nodes lag has no bound (docs/numa.md): VM {} was up to \
                {} ms {side} its part, the bound of other hosts was passed {passed} times",
                far.name,
                ns / 1_000_000
            ));
        }
    }
}

/// Says what the oracle found and whether the scenario's expectation was met.
fn judge(
    args: &Args,
    policy: Policy,
    scenario: &settings::Scenario,
    document: &Document,
    found: &Found,
) -> Result<(), Failure> {
    if !policy.is_tandem() {
        // It promises nothing: what the oracle found is in the result document.
        let violated = found.violated;
        if violated > 0 {
            say::note(&format!(
                "policy {policy}: the oracle counts {violated} departures from the ideal"
            ));
        }
        return Ok(());
    }
    found.beyond.iter().for_each(|text| say::note(text));
    if found.violated > 0 {
        let shown = found.kept.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n  - ");
        let more = found.violated.saturating_sub(found.kept.len().min(SHOWN) as u64);
        let rest = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        let error =
            anyhow::anyhow!("the oracle objects:\n  - {shown}{rest}\nreplay: {}", replay(args));
        return Err(Failure::new(Exit::Check, error));
    }
    for (run, result) in scenario.runs.iter().zip(&document.runs) {
        let unmet =
            if args.no_check { vec![] } else { expect::unmet(result, &run.spec, Where::Sim) };
        if !unmet.is_empty() {
            let error = anyhow::anyhow!(
                "{}: {}\nreplay: {}",
                titled(&scenario.name, &run.label),
                unmet.join("; "),
                replay(args)
            );
            return Err(Failure::new(Exit::Check, error));
        }
    }
    Ok(())
}

/// Where more is reserved than can be kept, if all VMs of a run are on: the oracle holds no
/// reservation there.
fn note_excesses(run: &settings::Run) {
    let grown = crate::tree::of_run(run);
    for excess in entitlement::check(&grown.tree, &grown.names).excesses {
        say::note(&format!(
            "over-committed where all VMs are on: {excess}; reservations there are met in \
                proportion"
        ));
    }
}

/// The command that finds the same again.
fn replay(args: &Args) -> String {
    let run = args.run.as_ref().map_or_else(String::new, |l| format!(" --run {}", quoted(l)));
    again(args, args.seed) + &run
}

/// The command that runs the same, of all runs.
fn again(args: &Args, seed: Option<u64>) -> String {
    let scenario = quoted(args.scenario.as_deref().unwrap_or_default());
    let seed = seed.map_or_else(String::new, |s| format!(" --seed {s}"));
    let duration = args.duration.map_or_else(String::new, |d| format!(" --duration {d}"));
    let set: String = args.set.iter().map(|s| format!(" --set {}={}", s.0, s.1)).collect();
    let no_check = if args.no_check { " --no-check" } else { "" };
    let policy = quoted(&args.policy);
    format!("tandem sim {scenario}{seed}{duration}{set} --policy {policy}{no_check}")
}
