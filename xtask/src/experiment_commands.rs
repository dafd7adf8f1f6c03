//! `lab SCENARIO`, `lab-smoke` and `demo`: scenarios with real VMs in the lab, beside the
//! simulator's answer.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;
use lab::{Archive, Experiment, KernelId, LabError, Policy, Stream};
use settings::Scenario;
use units::Span;
use views::{Document, RunResult, Where};

use crate::say::{say, sayln};
use crate::{figures, history, tidy};

/// Runs a scenario with real VMs in the lab, under the kernel's own scheduler and under Tandem,
/// beside the simulator.
#[derive(Args)]
pub struct Run {
    /// Name of a folder under scenarios/, or a TOML file.
    scenario: String,
    /// Kernel to boot: newest, older, cfs, or an exact version such as 7.2.13+deb14.
    #[arg(long, default_value = "newest")]
    kernel: KernelId,
    /// Time of one run, over the scenario's lab.duration.
    #[arg(long)]
    duration: Option<Span>,
    /// Only Tandem, without the kernel's own scheduler.
    #[arg(long)]
    tandem_only: bool,
    /// Show 'tandem top' while VMs run.
    #[arg(long)]
    top: bool,
    /// Write the result documents, a JSON array: lab eevdf, lab tandem, sim tandem; with the kernel
    /// cfs: lab cfs, sim cfs.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Append the figures to bench/history/SCENARIO.jsonl, once the run has passed.
    #[arg(long)]
    record: bool,
    /// Use this static binary instead of building one.
    #[arg(long, value_name = "FILE")]
    tandem: Option<PathBuf>,
}

/// The main job, end to end: real VMs under both schedulers with a live top, then the table; under
/// ten minutes.
#[derive(Args)]
pub struct Demo {}

/// A short run in the lab for CI: VMs by shares under Tandem on the newest kernel (KVM) and on the
/// older one (TCG).
#[derive(Args)]
pub struct Smoke {}

/// CPU time by the scheduler's accounts and by cpu.stat, and waits and run_delay, may differ by a
/// tick and this much: both count the same switches, at moments a few microseconds apart. In
/// ten-thousandths.
const AGREEMENT: u64 = 10;
/// The same where more emulated pCPUs than the machine has cores alternate: one stands still
/// between the moments at which kernel and scheduler take the time. Seen: 0.14 % and, beside a
/// compiler, 0.52 %, of a VM that wakes often.
const AGREEMENT_IN_TURNS: u64 = 100;

pub(crate) fn failed(object: &str, seen: impl Into<String>, next: &str) -> LabError {
    LabError::new(object, "pass", seen, next)
}

/// Environment variable that names a static `tandem` with the live host, built before.
pub(crate) const BINARY: &str = "TANDEM_LAB_BINARY";
/// Words of the cargo that builds one. Only the last link is static: the libraries are those that
/// tests and this program are linked with.
pub(crate) const LIVE_BUILD: &str = "rustc --profile ci -p tandem --bin tandem --features live \
    -- -C target-feature=+crt-static";

/// The static binary that goes into the guest: the one that the environment names, or a new one.
pub(crate) fn build_tandem() -> lab::Result<PathBuf> {
    if let Some(built) = std::env::var_os(BINARY) {
        return Ok(PathBuf::from(built));
    }
    sayln!("building tandem with the live host (clang compiles the scheduler for the kernel) ...");
    let status = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(LIVE_BUILD.split(' '))
        .status();
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    match status {
        Ok(s) if s.success() => Ok(folder.join("ci/tandem")),
        Ok(s) => Err(failed(
            "tandem",
            format!("cargo rustc ended with {s}"),
            "install clang, libelf-dev and zlib1g-dev ('make build' does)",
        )),
        Err(e) => Err(failed("tandem", e.to_string(), "install cargo")),
    }
}

pub(crate) fn load(name: &str) -> lab::Result<Scenario> {
    settings::load(name).map_err(|e| failed("scenario", e.to_string(), "correct it"))
}

pub(crate) fn show(stream: Stream, text: &str) {
    if stream == Stream::Command {
        say!("{text}");
        let _ = std::io::Write::flush(&mut std::io::stdout());
    }
}

/// The simulator's answer under a policy to the runs that the lab does, for the same time.
pub(crate) fn simulate(
    scenario: &Scenario,
    duration: Option<Span>,
    policy: &str,
    ticks: sim::Ticks,
) -> lab::Result<Document> {
    let as_long = |run: &settings::Run| {
        let mut run = run.clone();
        let measured = lab::experiment::duration_of(&run, duration);
        run.spec.duration = Span::from_ns(measured.ns() + run.spec.warmup.ns());
        run
    };
    let same = Scenario {
        runs: lab::experiment::runs(scenario)?.into_iter().map(as_long).collect(),
        ..scenario.clone()
    };
    let refused = |e: &dyn std::fmt::Display| {
        failed("simulator", e.to_string(), "run 'tandem sim' with that scenario and policy")
    };
    let policy = policy.parse().map_err(|e: sim::PolicyError| refused(&e))?;
    let options = sim::Options { policy, ticks, ..sim::Options::default() };
    sim::run_scenario(&same, &options, |_| {}).map_err(|e| refused(&e))
}

struct Done {
    /// Version of the kernel that was booted.
    kernel: String,
    documents: Vec<Document>,
    simulated: Document,
}

/// The schedulers of a run: Debian 12's kernel has no sched_ext, and so CFS alone.
fn policies(args: &Run) -> lab::Result<Vec<Policy>> {
    match (&args.kernel, args.tandem_only) {
        (KernelId::Cfs, true) => Err(LabError::new(
            "--tandem-only",
            "be followed with --kernel cfs",
            "a kernel without sched_ext, allowed newest, older or a version",
            "leave one of the two out",
        )),
        (KernelId::Cfs, false) => Ok(vec![Policy::Cfs]),
        (_, true) => Ok(vec![Policy::Tandem]),
        (_, false) => Ok(vec![Policy::Eevdf, Policy::Tandem]),
    }
}

fn execute(scenario: &Scenario, args: &Run) -> lab::Result<Done> {
    let policies = policies(args)?;
    let experiment = Experiment {
        scenario,
        policies,
        kernel: args.kernel.clone(),
        tandem: args.tandem.clone().map_or_else(build_tandem, Ok)?,
        duration: args.duration,
        show_top: args.top,
    };
    let archive = Archive::open()?;
    let documents = experiment.run(&archive, &mut show)?;
    let kernel = archive.kernel(&args.kernel)?.version;
    // Where the lab has no sched_ext, the model of what it has.
    let simulated = experiment.policies.last().map_or("tandem", |p| p.name());
    let simulated = simulate(scenario, experiment.duration, simulated, sim::Ticks::default())?;
    Ok(Done { kernel, simulated, documents })
}

/// Prints how far the accounts are from the kernel's; an error when Tandem's are farther than
/// allowed. Where emulated pCPUs stand still because they alternate, between the moment that the
/// kernel took the time and the one in which it calls the scheduler too, waits are shown and not
/// judged. By the exact clock they alternate on any machine; with two that does not show.
fn agrees(document: &Document, scenario: &Scenario) -> lab::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = |r: &settings::Run| if r.spec.lab.exact_clock { 2 } else { cores };
    let steady = scenario.runs.iter().all(|r| r.topology.pcpus() <= most(r));
    let apart = lab::experiment::disagreement(document);
    let percent = |n: u64| n as f64 / 100.0;
    for (what, difference) in [("run_delay", &apart.delay), ("cpu.stat", &apart.used)] {
        let Some((parts, vm)) = difference else { continue };
        sayln!(
            "{}: accounts and {what} differ by a tick and {:.2} % at most ({vm})",
            document.policy,
            percent(*parts)
        );
        let exact = scenario.runs.iter().all(|r| r.spec.lab.exact_clock);
        let allowed = if steady || exact { AGREEMENT } else { AGREEMENT_IN_TURNS };
        if document.policy == "tandem" && *parts > allowed && (steady || what == "cpu.stat") {
            let seen = format!(
                "a tick and {:.2} % off {what} ({vm}), allowed {:.2} %",
                percent(*parts),
                percent(allowed)
            );
            return Err(failed(
                "accounts",
                seen,
                "compare 'tandem top --json' with cpu.stat and schedstat",
            ));
        }
    }
    Ok(())
}

fn report(scenario: &Scenario, done: &Done) -> lab::Result<()> {
    sayln!("\n{}: {}\n", scenario.name, scenario.title);
    let mut all: Vec<&Document> = done.documents.iter().collect();
    all.push(&done.simulated);
    sayln!(
        "CPU time in s, and in percent of what an ideal scheduler would have given:\n{}",
        views::side_by_side(&all)
    );
    sayln!(
        "used by all VMs in percent of the host, and how long they were ready for every 600 s:\n{}",
        views::ready_side_by_side(&all)
    );
    if scenario.runs.iter().any(|r| r.spec.lab.trace) {
        let late = views::wakeups_side_by_side(&all);
        if !late.is_empty() {
            sayln!(
                "how late vCPUs ran after they should have woken, by the workload's clock and by \
                    the scheduler's accounts:\n{late}"
            );
        }
        sayln!(
            "the most that the oracle saw, in the lab of a trace as long as the run:\n{}",
            views::checked_side_by_side(&all)
        );
    }
    let agree: Vec<_> = done.documents.iter().map(|document| agrees(document, scenario)).collect();
    for (document, run) in
        all.iter().flat_map(|d| d.runs.iter().map(move |r| (d, r))).filter(|x| x.1.pools.len() > 2)
    {
        sayln!(
            "\npools{}{}, {:?} {}:\n{}",
            if run.label.is_empty() { "" } else { " of " },
            run.label,
            document.place,
            document.policy,
            views::pools(run)
        );
    }
    let Some(tandem) = done.documents.iter().find(|d| d.policy == "tandem") else { return Ok(()) };
    let labels: Vec<&str> = tandem.runs.iter().map(|r| r.label.as_str()).collect();
    for run in scenario.runs.iter().filter(|r| labels.contains(&r.label.as_str())) {
        let of = |d: &Document| d.runs.iter().find(|r| r.label == run.label).cloned();
        let (Some(lab), Some(simulated)) = (of(tandem), of(&done.simulated)) else { continue };
        sayln!("{}", distances(&run.label, &lab, &simulated));
        let mut unmet = expect::unmet(&lab, &run.spec, Where::Lab);
        // Where emulated pCPUs alternate by the machine's clock, it is its host that is late.
        let exact = lab.checked.iter().filter(|c| run.spec.lab.exact_clock && c.violated > 0);
        unmet.extend(exact.map(|c| {
            format!("the oracle found {} violations; the first: {}", c.violated, c.violations[0])
        }));
        if !unmet.is_empty() {
            return Err(failed(
                &format!("scenario {} '{}'", scenario.name, run.label),
                unmet.join("; "),
                "look at the table above",
            ));
        }
    }
    agree.into_iter().collect()
}

/// How far a run under Tandem was from the ideal, and from the simulator's answer, in percent of
/// the entitlement.
fn distances(label: &str, lab: &RunResult, simulated: &RunResult) -> String {
    let part = |v: &views::Vm| v.times.used_ns as f64 * 100.0 / v.times.entitled_ns.max(1) as f64;
    let apart = lab.vms.iter().filter(|v| expect::counts(v, lab)).filter_map(|v| {
        let other = simulated.vms.iter().find(|s| s.name == v.name)?;
        Some((part(v) - part(other)).abs())
    });
    let (seen, vm) = expect::worst_permille(lab).unwrap_or_default();
    format!(
        "tandem{}{label}: {:.1} % from the entitlement at most ({vm}); lab and simulator differ by \
            {:.1} points at most",
        if label.is_empty() { "" } else { " " },
        seen as f64 / 10.0,
        apart.fold(0.0, f64::max)
    )
}

/// Runs `cargo xtask lab`.
pub fn run(args: &Run) -> lab::Result<ExitCode> {
    let scenario = load(&args.scenario)?;
    let done = execute(&scenario, args)?;
    if let Some(path) = &args.json {
        let mut all: Vec<&Document> = done.documents.iter().collect();
        all.push(&done.simulated);
        let text = serde_json::to_string_pretty(&all).unwrap_or_default();
        std::fs::write(path, text).map_err(|e| LabError::io(path, "be written", e))?;
    }
    report(&scenario, &done)?;
    if args.record {
        let mut all: Vec<&Document> = done.documents.iter().collect();
        all.push(&done.simulated);
        let rows = figures::of_documents(&scenario, &all);
        history::record(&tidy::root(), &scenario.name, again(args), &done.kernel, rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The command that measures the same again.
fn again(args: &Run) -> String {
    let mut text = format!("cargo xtask lab {}", args.scenario);
    if args.kernel != KernelId::Newest {
        text += &format!(" --kernel {}", args.kernel);
    }
    if let Some(duration) = args.duration {
        text += &format!(" --duration {duration}");
    }
    if args.tandem_only {
        text += " --tandem-only";
    }
    text
}

/// Runs `cargo xtask demo`.
pub fn demo(_: &Demo) -> lab::Result<ExitCode> {
    run(&Run {
        scenario: "demo".into(),
        kernel: KernelId::Newest,
        duration: None,
        tandem_only: false,
        top: true,
        json: None,
        record: false,
        tandem: None,
    })
}

/// Runs `cargo xtask lab-smoke`.
pub fn smoke(_: &Smoke) -> lab::Result<ExitCode> {
    let short = |scenario: &str, kernel: KernelId| Run {
        scenario: scenario.into(),
        kernel,
        duration: Some(Span::from_secs(12)),
        tandem_only: true,
        top: false,
        json: None,
        record: false,
        tandem: None,
    };
    run(&short("smoke", KernelId::Newest))?;
    // The older kernel has no KVM modules in the archive: its VMs run by TCG, with busy helper
    // threads.
    run(&short("smoke", KernelId::Older))
}
