//! The live host's commands: run, top, doctor.
#![allow(unsafe_code)]

use crate::{Exit, Failure, knobs};
use anyhow::Context;
use host::{Accounts, HostError, doctor, measure};
use settings::LiveSettings;
use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use topology::Topology;
use units::Span;
use views::{Document, Where};

/// Loads the scheduler into this kernel, finds VMs by itself and follows them until SIGINT or SIGTERM.
#[derive(clap::Args)]
pub struct RunArgs {
    /// Settings file (TOML): [[vm]] name = "web*", shares = "high"; [knobs] quantum_us = 50000.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sets a knob, over the file; may be given often. `tandem knobs` lists them.
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<knobs::Setting>,
    /// Print what libbpf and the kernel's verifier say.
    #[arg(long)]
    verbose: bool,
}

/// Shows what each VM and world used, waited ready and was entitled to.
#[derive(clap::Args)]
pub struct TopArgs {
    /// One look, then leave.
    #[arg(long)]
    once: bool,
    /// Result documents instead of a table, one a look; docs/result.md explains them.
    #[arg(long)]
    json: bool,
    /// Time of one look.
    #[arg(long, default_value = "2s")]
    interval: Span,
    /// How often accounts are read within a look.
    #[arg(long, default_value = "100ms")]
    step: Span,
    /// The kernel's own accounts: works under any scheduler, also without 'tandem run'.
    #[arg(long)]
    kernel: bool,
    /// A line a world as well.
    #[arg(long)]
    worlds: bool,
}

/// Says whether this kernel can run the scheduler, and what to do if not.
#[derive(clap::Args)]
pub struct DoctorArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

fn watch_signals() {
    let handler = on_signal as extern "C" fn(libc::c_int);
    // SAFETY: the handler only stores to an atomic.
    unsafe {
        libc::signal(libc::SIGINT, handler as libc::sighandler_t);
        libc::signal(libc::SIGTERM, handler as libc::sighandler_t);
    }
}

fn this_host() -> Result<Topology, Failure> {
    topology::from_sysfs(Path::new("/sys")).map_err(|e| Failure::new(Exit::Host, e))
}

fn host_failure(e: HostError) -> Failure {
    let exit = if matches!(e, HostError::Ejected { .. }) { Exit::Ejected } else { Exit::Host };
    Failure::new(exit, e)
}

/// Runs `tandem run`.
///
/// # Errors
/// `Exit::Input` for refused settings, `Exit::Host` if the kernel refuses, `Exit::Ejected` if it ended it.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let settings = match &args.config {
        Some(path) => LiveSettings::load(path).map_err(|e| Failure::new(Exit::Input, e))?,
        None => LiveSettings::default(),
    };
    let knobs = knobs::resolve(&settings.knobs, &args.set)?;
    let bad: Vec<_> = doctor::examine().into_iter().filter(|f| !f.ok).collect();
    if let Some(first) = bad.first() {
        let all: Vec<String> = bad.iter().map(|f| format!("{}: {}; {}", f.what, f.seen, f.next)).collect();
        let error = anyhow::anyhow!("this host cannot run the scheduler:\n  - {}", all.join("\n  - "));
        return Err(Failure::new(Exit::Host, error.context(format!("{} is not as needed", first.what))));
    }
    watch_signals();
    let begin = std::time::Instant::now();
    let say = move |text: &str| {
        println!("[{:9.3}] {text}", begin.elapsed().as_secs_f64());
        let _ = std::io::stdout().flush();
    };
    let options =
        host::run::Options { settings, knobs, say: Box::new(say), stop: Box::new(|| STOP.load(Ordering::Relaxed)), verbose: args.verbose };
    host::run::run(&|| Ok(topology::from_sysfs(Path::new("/sys"))?), &options).map_err(host_failure)
}

/// Runs `tandem top`.
///
/// # Errors
/// `Exit::Host` when there are no accounts to read.
pub fn top(args: &TopArgs) -> Result<(), Failure> {
    watch_signals();
    let policy = if args.kernel { kernel_policy() } else { "tandem".to_owned() };
    let clear = std::io::stdout().is_terminal() && !args.once;
    while !STOP.load(Ordering::Relaxed) {
        // Opened anew for each look: the daemon loads anew when pCPUs come or go.
        let topology = this_host()?;
        let source = if args.kernel { measure::Source::Kernel } else { measure::Source::Tandem(Accounts::open().map_err(host_failure)?) };
        let duration = Duration::from_nanos(args.interval.ns());
        let step = Duration::from_nanos(args.step.ns().max(1_000_000));
        let run = measure::measure(&source, &topology, duration, step, &|| STOP.load(Ordering::Relaxed)).map_err(host_failure)?;
        let mut out = std::io::stdout().lock();
        if args.json {
            let document = Document { scenario: String::new(), place: Where::Live, policy: policy.clone(), seed: 0, runs: vec![run] };
            let text = if args.once { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
            writeln!(out, "{}", text.map_err(anyhow::Error::from)?).context("standard output")?;
        } else {
            let home = if clear { "\x1b[H\x1b[2J" } else { "" };
            let worlds = if args.worlds { views::worlds(&run) } else { String::new() };
            write!(out, "{home}{}{worlds}", views::top(&run, &policy)).context("standard output")?;
        }
        out.flush().context("standard output")?;
        if args.once {
            break;
        }
    }
    Ok(())
}

/// Name of the scheduler that runs now.
fn kernel_policy() -> String {
    let ops = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    if ops.trim().is_empty() { "eevdf".to_owned() } else { ops.trim().to_owned() }
}

/// Runs `tandem doctor`.
///
/// # Errors
/// `Exit::Host` when something is not as needed.
pub fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    let findings = doctor::examine();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&findings).map_err(anyhow::Error::from)?);
    } else {
        for f in &findings {
            println!("{} {}: {}", if f.ok { "ok  " } else { "BAD " }, f.what, f.seen);
            if !f.ok {
                println!("     -> {}", f.next);
            }
        }
    }
    let bad = findings.iter().filter(|f| !f.ok).count();
    if bad > 0 {
        return Err(Failure::new(Exit::Host, anyhow::anyhow!("{bad} of {} things are not as needed", findings.len())));
    }
    Ok(())
}
