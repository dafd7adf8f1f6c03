//! `cargo xtask agree`: the same scenario under a real scheduler in the lab and under the model of
//! it, VM by VM, for docs/models.md; it changes neither, and does not fail where they differ.

mod compare;
mod tasks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use lab::xen::Scheduler;
use lab::{Archive, Experiment, KernelId, LabError, Policy};
use serde::{Deserialize, Serialize};
use settings::Scenario;
use units::Span;
use views::{Document, Table};

use crate::experiment_commands::{build_tandem, load, show, simulate};
use crate::history::{self, Row};
use crate::say::sayln;
use crate::tidy;
use sim::Ticks;

/// Runs scenarios under real schedulers in the lab and under the models of them, and shows how far
/// each VM's CPU time and wake-ups are apart.
///
/// What a real scheduler did is kept in the lab's cache: a command that was interrupted goes on
/// where it was, and the model alone is run again.
#[derive(Args)]
pub struct Agree {
    /// Scenarios by name or file; those of docs/models.md if none is named.
    scenario: Vec<String>,
    /// The real scheduler; all if left out.
    #[arg(long)]
    system: Option<System>,
    /// Time of one run, over that of docs/models.md or the scenario's lab.duration.
    #[arg(long)]
    duration: Option<Span>,
    /// Measure again what is in the cache.
    #[arg(long)]
    again: bool,
    /// Write one line of JSON for each scenario and system: system, scenario, version, rows.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Append the figures to bench/history/agree-SYSTEM.jsonl.
    #[arg(long)]
    record: bool,
}

/// A scheduler that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum System {
    /// CFS of Debian 12's 6.1.
    Cfs,
    /// EEVDF of the lab's newest kernel.
    Eevdf,
    /// Credit of Xen 4.20.
    XenCredit,
    /// Credit2 of Xen 4.20.
    XenCredit2,
}

/// What docs/models.md shows, and for how long: long enough for two digits, short enough for a lab
/// whose 8 busy pCPUs take ten times as long as it.
const CASES: [(&str, Span); 4] = [
    ("smoke", Span::from_secs(12)),
    ("models-mix", Span::from_secs(10)),
    ("shares-ratio", Span::from_secs(10)),
    ("pool-limit", Span::from_secs(8)),
];

impl System {
    const ALL: [System; 4] = [System::Cfs, System::Eevdf, System::XenCredit, System::XenCredit2];

    /// The name of the model's policy.
    fn name(self) -> &'static str {
        match self {
            System::Cfs => "cfs",
            System::Eevdf => "eevdf",
            System::XenCredit => "xen-credit",
            System::XenCredit2 => "xen-credit2",
        }
    }

    /// Whether it has all that a scenario of docs/models.md asks for; Xen has no pools.
    fn has(self, scenario: &str) -> bool {
        matches!(self, System::Cfs | System::Eevdf) || scenario != "pool-limit"
    }

    /// Runs a scenario in the lab.
    fn measure(self, archive: &Archive, case: &Case) -> lab::Result<Stored> {
        match self {
            System::Cfs => linux(archive, case, KernelId::Cfs, Policy::Cfs),
            System::Eevdf => linux(archive, case, KernelId::Newest, Policy::Eevdf),
            System::XenCredit => xen(archive, case, Scheduler::Credit),
            System::XenCredit2 => xen(archive, case, Scheduler::Credit2),
        }
    }
}

fn linux(archive: &Archive, case: &Case, kernel: KernelId, policy: Policy) -> lab::Result<Stored> {
    let experiment = Experiment {
        scenario: &case.scenario,
        policies: vec![policy],
        kernel: kernel.clone(),
        tandem: build_tandem()?,
        duration: case.duration,
        show_top: false,
    };
    let document = experiment.run(archive, &mut show)?.remove(0);
    Ok(Stored { version: archive.kernel(&kernel)?.version, document })
}

fn xen(archive: &Archive, case: &Case, scheduler: Scheduler) -> lab::Result<Stored> {
    let document = lab::xen::run(archive, &case.scenario, scheduler, case.duration, &mut show)?;
    Ok(Stored { version: archive.xen()?.version().to_owned(), document })
}

/// A scenario and the time of its runs.
struct Case {
    /// As it was named.
    name: String,
    scenario: Scenario,
    duration: Option<Span>,
}

/// What a real scheduler did, as the cache keeps it.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// Version of the kernel or hypervisor.
    version: String,
    document: Document,
}

/// What `--json` writes a line of.
#[derive(Serialize)]
struct Line<'a> {
    system: &'a str,
    scenario: &'a str,
    version: &'a str,
    rows: &'a [Row],
}

impl Case {
    fn of(name: &str, duration: Option<Span>) -> lab::Result<Case> {
        let usual = CASES.iter().find(|(n, _)| *n == name).map(|(_, d)| *d);
        Ok(Case { name: name.to_owned(), scenario: load(name)?, duration: duration.or(usual) })
    }

    /// Where the cache has what a system did with these very runs.
    fn place(&self, archive: &Archive, system: System) -> lab::Result<PathBuf> {
        let runs = lab::experiment::runs(&self.scenario)?;
        let specs: Vec<_> = runs.iter().map(|r| (&r.label, &r.spec)).collect();
        let specs = serde_json::to_vec(&specs).map_err(|e| self.refuse(e.to_string()))?;
        let time = format!("{:?}", self.duration);
        let key = lab::tool::content_key([specs.as_slice(), time.as_bytes()]);
        let file = format!("agree/{}-{}-{key}.json", system.name(), self.scenario.name);
        Ok(archive.root().join(file))
    }

    fn refuse(&self, seen: String) -> LabError {
        LabError::new(format!("scenario {}", self.name), "be compared", seen, "report this")
    }

    /// What a real scheduler did: from the cache, or measured and put there.
    fn real(&self, archive: &Archive, system: System, again: bool) -> lab::Result<Stored> {
        let place = self.place(archive, system)?;
        let known = std::fs::read(&place).ok().filter(|_| !again);
        if let Some(stored) = known.and_then(|text| serde_json::from_slice(&text).ok()) {
            sayln!("agree: {} under {}: from the cache", self.name, system.name());
            return Ok(stored);
        }
        sayln!("agree: {} under {}: the lab runs it", self.name, system.name());
        let stored = system.measure(archive, self)?;
        let text = serde_json::to_vec(&stored).map_err(|e| self.refuse(e.to_string()))?;
        lab::tool::write(&place, &text)?;
        Ok(stored)
    }
}

/// Runs `cargo xtask agree`.
///
/// # Errors
/// `LabError` when a scenario cannot be read, the lab or the model refuses it, or a file cannot be
/// written.
pub fn run(args: &Agree) -> lab::Result<ExitCode> {
    let archive = Archive::open()?;
    let systems = args.system.map_or_else(|| System::ALL.to_vec(), |s| vec![s]);
    let usual = || CASES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let names: Vec<String> =
        Some(args.scenario.clone()).filter(|n| !n.is_empty()).unwrap_or_else(usual);
    // All are read before the first boot.
    let cases =
        names.iter().map(|n| Case::of(n, args.duration)).collect::<lab::Result<Vec<_>>>()?;
    let mut json = String::new();
    for system in systems {
        let all = args.scenario.is_empty();
        for case in cases.iter().filter(|c| !all || system.has(&c.name)) {
            let real = case.real(&archive, system, args.again)?;
            let time = case.duration;
            let alone = simulate(&case.scenario, time, system.name(), Ticks::Aligned)?;
            let beside = beside(case, &real.document, system)?;
            let rows = compare::rows(&case.scenario.name, &real.document, &alone, &beside);
            print(system, &real.version, &rows);
            let line = Line {
                system: system.name(),
                scenario: &case.scenario.name,
                version: &real.version,
                rows: &rows,
            };
            json += &serde_json::to_string(&line).map_err(|e| case.refuse(e.to_string()))?;
            json.push('\n');
            if args.record {
                let command = again(case, system, args.duration);
                let name = format!("agree-{}", system.name());
                history::record(&tidy::root(), &name, command, &real.version, rows)?;
            }
        }
    }
    if let Some(path) = &args.json {
        lab::tool::write(path, json.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Seeds of the model beside the lab's tasks: which world they meet is chance.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// The model beside as many tasks as the lab had, once a seed; nothing where it has no account.
fn beside(case: &Case, real: &Document, system: System) -> lab::Result<Vec<Document>> {
    let with = |seed| tasks::beside(&case.scenario, real, seed);
    let all = SEEDS.into_iter().map(with).collect::<lab::Result<Vec<_>>>()?;
    // The pCPUs of an exact clock alternate, so no two have their ticks at once.
    let run = |s| simulate(s, case.duration, system.name(), Ticks::Staggered);
    all.iter().flatten().map(run).collect()
}

/// The command that compares the same again.
fn again(case: &Case, system: System, duration: Option<Span>) -> String {
    let time = duration.map_or_else(String::new, |d| format!(" --duration {d}"));
    format!("cargo xtask agree {} --system {}{time}", case.name, system.name())
}

fn print(system: System, version: &str, rows: &[Row]) {
    let columns: Vec<String> = std::iter::once("<VM".to_owned())
        .chain(compare::COLUMNS.iter().map(|c| (*c).to_owned()))
        .collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(&columns);
    let cell = |row: &Row, column: &str| {
        row.figures.get(column).map_or_else(String::new, |v| v.to_string().replace('"', ""))
    };
    for row in rows {
        let cells = compare::COLUMNS.iter().map(|c| cell(row, c));
        table.row(std::iter::once(row.row.clone()).chain(cells));
    }
    let (within, all) = compare::within(rows);
    sayln!(
        "\n{} ({version}) and its model: {within} of {all} within {} %\n{}",
        system.name(),
        compare::ALLOWED_PERCENT,
        table.text()
    );
}
