//! `tandem reproduce`: the documents' experiments; `crates/reproduce` runs and judges them.

use crate::{
    Exit, Failure,
    apart::{Named, apart},
    output::Output,
    runs, say,
};
use anyhow::anyhow;
use reproduce::{Experiment, How, ReproduceError};
use std::{collections::BTreeSet, path::PathBuf, sync::Mutex, time::Instant};
use views::Table;

/// Redoes the documents' experiments, and holds them against the published figures.
#[derive(clap::Args)]
#[command(
    after_help = "What is published is in the scenarios ([[published]], docs/reproduce.md). Exit \
        code 6 if a figure is missed, or the oracle objects."
)]
pub struct Args {
    /// Scenarios with published figures: names of folders under scenarios/, or TOML files; all if
    /// left out.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// A page for a browser with every figure.
    #[arg(long, short, value_name = "FILE|-")]
    output: Option<PathBuf>,
    /// All numbers as JSON (docs/reproduce.md).
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Seeds of each run, the scenario's own first: their mean is held against the figure [default:
    /// 8].
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u64>(1..=1000))]
    seeds: Option<u64>,
    /// Also compares the work of every run with that under the policies of other systems.
    #[arg(long)]
    work: bool,
    /// Runs at a time [default: as many as the machine has cores].
    #[arg(
        long,
        value_name = "N",
        value_parser = crate::numbers::whole::<u16>(1..=u64::from(u16::MAX))
    )]
    jobs: Option<u16>,
    /// Prints nothing while it works.
    #[arg(long, short)]
    quiet: bool,
}

/// Runs `tandem reproduce`.
///
/// # Errors
/// `Exit::Input` for scenarios that are refused or have no published figures, `Exit::Check` if a
/// figure is missed, `Exit::Other` if a file cannot be written.
pub fn main(args: &Args) -> Result<(), Failure> {
    let all = args.names.is_empty();
    let there = || settings::scenarios().into_iter().map(|(name, _)| name).collect();
    let mut names: Vec<String> = if all { there() } else { args.names.clone() };
    let mut given = BTreeSet::new();
    // A scenario that is named twice is done once.
    names.retain(|name| given.insert(settings::file_of(name)));
    let mut scenarios = vec![];
    for name in &names {
        let scenario = settings::load(name).map_err(|e| Failure::new(Exit::Input, e))?;
        if scenario.published.is_empty() && !all {
            let text = "cannot reproduce it: seen no [[published]] table, allowed one for each \
                published figure (docs/reproduce.md)";
            return Err(Failure::new(Exit::Input, anyhow!("scenario {name}: {text}")));
        }
        scenarios.push(scenario);
    }
    let outputs = [("--output", &args.output), ("--json", &args.json)];
    let written: Vec<Named<'_>> =
        outputs.iter().filter_map(|(by, path)| Some((*by, path.as_deref()?))).collect();
    let files: Vec<PathBuf> = names.iter().map(|name| settings::file_of(name)).collect();
    let read: Vec<Named<'_>> = files.iter().map(|f| ("the scenario", f.as_path())).collect();
    apart(&read, &written)?;
    let open = |path: &Option<PathBuf>, what| {
        path.as_ref().map(|path| Output::open_or_stdout(path, what)).transpose()
    };
    let (page, json) = (open(&args.output, "the page")?, open(&args.json, "the numbers")?);
    let how = How {
        seeds: args.seeds.unwrap_or(reproduce::SEEDS),
        threads: args.jobs.map_or_else(cores, usize::from),
        work: args.work,
    };
    let begin = Instant::now();
    let last = Mutex::new(());
    let progress = |p: reproduce::Progress<'_>| {
        let _one = last.lock();
        let (done, of) = p.done;
        let run = if p.run.is_empty() { String::new() } else { format!(", {}", p.run) };
        if !args.quiet {
            say::note(&format!(
                "{done} of {of}: {}{run}, {}, seed {}",
                p.scenario, p.policy, p.seed
            ));
        }
    };
    let experiments = reproduce::reproduce(&scenarios, how, progress).map_err(|e| {
        let ReproduceError::Run { scenario, policy, seed, cause, .. } = &e else {
            return Failure::new(Exit::Input, e);
        };
        let text = format!("policy {policy}, seed {seed}: {}", runs::text(scenario, cause));
        Failure::new(runs::exit_of(cause), anyhow!("scenario {scenario}, {text}"))
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let to_stdout = [&args.output, &args.json].into_iter().flatten().any(|p| p.as_os_str() == "-");
    if !to_stdout {
        say::all(&table(&experiments))?;
        if args.work {
            say::all(&format!("\n{}", work(&experiments)))?;
        }
    }
    if let Some(out) = page {
        let version = env!("CARGO_PKG_VERSION");
        out.write(&reproduce::page(&experiments, version, seconds))?;
    }
    if let Some(out) = json {
        out.json(&experiments)?;
    }
    missed(&experiments)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn number(n: f64) -> String {
    if n.abs() >= 100.0 { format!("{n:.1}") } else { format!("{n:.3}") }
}

fn range([least, most]: [f64; 2]) -> String {
    format!("{}..{}", number(least), number(most))
}

/// A line for each figure.
fn table(experiments: &[Experiment]) -> String {
    let mut t = Table::new(&[
        "<scenario",
        "<figure",
        "<what",
        "<policy",
        "published",
        "allowed",
        "measured",
        "seeds",
        "<",
    ]);
    for (e, p) in experiments.iter().flat_map(|e| e.points.iter().map(move |p| (e, p))) {
        t.row([
            e.name.clone(),
            p.figure.clone(),
            p.what.clone(),
            p.policy.clone(),
            p.published.map_or("-".to_owned(), number),
            range(p.allowed),
            p.measured.map_or("-".to_owned(), |m| format!("{} {}", number(m), p.unit)),
            p.spread.map_or("-".to_owned(), range),
            if p.holds { "ok".to_owned() } else { "MISS".to_owned() },
        ]);
        for b in &p.beside {
            t.row([
                String::new(),
                String::new(),
                "beside it".to_owned(),
                b.policy.clone(),
                String::new(),
                String::new(),
                b.measured.map_or("-".to_owned(), |m| format!("{} {}", number(m), p.unit)),
                b.spread.map_or("-".to_owned(), range),
                String::new(),
            ]);
        }
    }
    t.text()
}

/// Tandem's work by that under each policy: all runs together, and the least of one.
fn work(experiments: &[Experiment]) -> String {
    let heads = reproduce::PEERS.iter().map(|p| (*p).to_owned());
    let heads: Vec<String> = std::iter::once("<work by that of".to_owned()).chain(heads).collect();
    let mut t = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for e in experiments {
        let cell = |w: &reproduce::Work| match (w.all, w.less.first()) {
            (None, _) => "-".to_owned(),
            (Some(all), None) => format!("{all:.3}"),
            (Some(all), Some(least)) => format!("{all:.3} ({:.3})", least.ratio),
        };
        t.row(std::iter::once(e.name.clone()).chain(e.work.iter().map(cell)));
    }
    let note = "of all runs; in brackets the run with the least, below 0.99; -: the policy can do \
        none of them";
    format!("{}{note}\n", t.text())
}

/// The failure if something is not as published.
fn missed(experiments: &[Experiment]) -> Result<(), Failure> {
    let mut out = vec![];
    for e in experiments {
        if e.violations > 0 {
            out.push(format!("{}: the oracle found {} violations", e.name, e.violations));
        }
        for p in e.points.iter().filter(|p| !p.holds) {
            let seen = p.measured.map_or("nothing".to_owned(), number);
            let [least, most] = p.allowed.map(number);
            let seeds = match (p.by_seed.len(), p.spread) {
                (2.., Some(spread)) => format!(" ({} by seeds)", range(spread)),
                _ => String::new(),
            };
            out.push(format!(
                "{}: {}, {} ({}): seen {seen} {}{seeds}, allowed {least} to {most}",
                e.name, p.figure, p.what, p.policy, p.unit
            ));
        }
    }
    for (e, (policy, l)) in experiments.iter().flat_map(|e| e.unexplained().map(move |u| (e, u))) {
        out.push(format!(
            "{}{}: work by that under {policy}: seen {:.3}, allowed {} or more, or the reason in \
                a [[less_work]] table",
            e.name,
            if l.run.is_empty() { String::new() } else { format!(", run '{}'", l.run) },
            l.ratio,
            reproduce::LEAST
        ));
    }
    if out.is_empty() {
        return Ok(());
    }
    let text = format!("not as published:\n  - {}", out.join("\n  - "));
    Err(Failure::new(Exit::Check, anyhow!(text)))
}
