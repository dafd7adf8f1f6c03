//! The live host's commands: run, top, reload, doctor.
#![allow(unsafe_code)]

use crate::top::Args as TopArgs;
use crate::{Exit, Failure, knobs, metrics, say};
use host::{
    Accounts, HostError, Names, Reloaded, SettingsFile, discover::Roots, doctor, instead, measure,
    over_gaps,
};
use settings::LiveSettingsError;
use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};
use topology::Topology;
use units::Span;
use views::{Allocations, Document, RunResult, Where};

/// Loads the scheduler into this kernel, finds the VMs and follows them until SIGINT or SIGTERM.
#[derive(clap::Args)]
pub struct RunArgs {
    /// Settings file (TOML): [[pool]] and [[vm]] with shares, reservation, limit; [knobs]
    /// quantum_us = 50000.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sets a knob; overrides the file; may be repeated. `tandem knobs` lists them.
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<knobs::Setting>,
    /// Serves metrics for Prometheus there, 127.0.0.1:19477 if no address is given; all users of
    /// this host can read that port [default: off].
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = ::metrics::DEFAULT_ADDRESS)]
    metrics: Option<metrics::At>,
    /// Print the messages of libbpf and of the kernel's verifier.
    #[arg(long)]
    verbose: bool,
}

/// Makes the running daemon read its settings file again, and prints the outcome.
#[derive(clap::Args)]
pub struct ReloadArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Checks whether this kernel can run the scheduler, and prints a remedy for each problem.
#[derive(clap::Args)]
pub struct DoctorArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Time of one look where none is given, of tables and result documents.
const TABLE_INTERVAL: Span = Span::from_secs(2);

/// How often the accounts are read within that time.
const TABLE_STEP: Span = Span::from_ms(100);

static STOP: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(signal: libc::c_int) {
    let flag = if signal == libc::SIGHUP { &RELOAD } else { &STOP };
    flag.store(true, Ordering::Relaxed);
}

pub(crate) fn watch(signals: &[libc::c_int]) {
    let handler = on_signal as extern "C" fn(libc::c_int);
    for signal in signals {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(*signal, handler as libc::sighandler_t) };
    }
}

/// What ends or reloads `tandem run` does so from now on, for a command line that is one: a signal
/// that comes while it starts is one that it answers later.
pub(crate) fn watch_run() {
    if std::env::args_os().nth(1).is_some_and(|word| word == "run") {
        watch(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    }
}

/// SIGINT and SIGTERM ask to stop from now on.
pub(crate) fn watch_stop() {
    watch(&[libc::SIGINT, libc::SIGTERM]);
}

fn topology() -> Result<Topology, HostError> {
    Ok(topology::from_sysfs(Path::new("/sys"))?)
}

pub(crate) fn this_host() -> Result<Topology, Failure> {
    topology().map_err(host_failure)
}

pub(crate) fn host_failure(e: HostError) -> Failure {
    let exit = match e {
        HostError::Ejected { .. } => Exit::Ejected,
        HostError::Unwritten { .. } => Exit::Other,
        _ => Exit::Host,
    };
    Failure::new(exit, e)
}

/// The failure of a command whose samples end with `e`.
pub(crate) fn no_samples(e: ::top::Error) -> Failure {
    match e.downcast::<HostError>() {
        Ok(e) => no_accounts(*e),
        Err(e) => Failure::from(anyhow::Error::from_boxed(e)),
    }
}

/// The failure of `tandem top`, which has the kernel's accounts instead.
pub(crate) fn no_accounts(e: HostError) -> Failure {
    host_failure(e.or(instead::KERNEL))
}

/// Runs `tandem run`.
///
/// # Errors
/// `Exit::Input` for refused settings, `Exit::Host` if the kernel refuses, `Exit::Ejected` if it
/// ended it.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let file = args.config.as_deref().map(SettingsFile::new);
    let (settings, trust) = match &file {
        Some(file) => file.load(&Roots::default()).map_err(|e| Failure::new(Exit::Input, e))?,
        None => Default::default(),
    };
    let knobs = knobs::of_live(&settings.knobs, &args.set)?;
    let bad: Vec<_> = doctor::before_load().into_iter().filter(|f| !f.ok).collect();
    if let Some(first) = bad.first() {
        let all: Vec<String> =
            bad.iter().map(|f| format!("{}: {}; {}", f.what, f.seen, f.next)).collect();
        let error =
            anyhow::anyhow!("this host cannot run the scheduler:\n  - {}", all.join("\n  - "));
        return Err(Failure::new(
            Exit::Host,
            error.context(format!("{} is not as needed", first.what)),
        ));
    }
    let begin = Instant::now();
    // The scheduler goes on where nothing more can be said.
    let said = Rc::new(say::Beside::default());
    let beside = Rc::clone(&said);
    let say = move |text: &str| {
        beside.all(&format!("[{:9.3}] {text}\n", begin.elapsed().as_secs_f64()));
    };
    host::privileges::settle().map_err(host_failure)?; // before any thread
    let _endpoint = metrics::endpoint(args.metrics, &say)?;
    let options = host::run::Options {
        file,
        settings,
        trust,
        knobs,
        say: Box::new(say),
        stop: Box::new(stopped),
        reload: Box::new(|| RELOAD.swap(false, Ordering::Relaxed)),
        verbose: args.verbose,
    };
    let done = host::run::run(&topology, &options);
    said.end(done.map_err(host_failure))
}

/// `tandem top` as tables and result documents.
///
/// # Errors
/// `Exit::Host` when there are no accounts to read.
pub fn tables(args: &TopArgs) -> Result<(), Failure> {
    watch(&[libc::SIGINT, libc::SIGTERM]);
    let policy = if args.kernel { kernel_policy() } else { "tandem".to_owned() };
    let clear = std::io::stdout().is_terminal() && !args.once;
    let mut left = args.count.unwrap_or(if args.once { 1 } else { u64::MAX });
    while left > 0 && !stopped() {
        left -= 1;
        let duration = Duration::from_nanos(args.interval.unwrap_or(TABLE_INTERVAL).ns());
        let step = Duration::from_nanos(args.step.unwrap_or(TABLE_STEP).ns().max(1_000_000));
        // Opened for each look: the daemon loads the scheduler again when pCPUs go on or off line.
        let mut measured = || {
            let source = if args.kernel {
                measure::Source::Kernel
            } else {
                measure::Source::Tandem(Box::new(Accounts::open()?))
            };
            measure::measure(&source, &topology()?, duration, step, &stopped)
        };
        let done = over_gaps(&stopped, &mut measured);
        if done.is_err() && stopped() {
            return Ok(());
        }
        let measure::Measured { run, names } = done.map_err(no_accounts)?;
        // As of other hosts, --once shows the last of so many samples.
        if args.once && left > 0 {
            continue;
        }
        if args.json {
            let document = Document {
                scenario: String::new(),
                place: Where::Live,
                policy: policy.clone(),
                seed: 0,
                command: None,
                runs: vec![run],
            };
            let text = if args.once {
                serde_json::to_string_pretty(&document)
            } else {
                serde_json::to_string(&document)
            };
            say::raw(&(text.map_err(anyhow::Error::from)? + "\n"))?;
        } else {
            let settings = args.settings.then(|| allocations(&names));
            let more = [
                (args.pools, views::pools as fn(&RunResult) -> String),
                (args.worlds, views::worlds),
            ];
            let more: String = more.iter().filter(|m| m.0).map(|m| m.1(&run)).collect();
            if clear {
                say::raw("\x1b[H\x1b[2J")?;
            }
            say::all(&format!("{}{more}", views::top(&run, &policy, settings.as_ref())))?;
        }
    }
    Ok(())
}

pub(crate) fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Reservation and limit of each VM by the name that it has in a result.
fn allocations(names: &Names) -> Allocations {
    names.called().into_iter().zip(names.vms.iter().map(|v| (v.reservation, v.limit))).collect()
}

/// Looks at the tree of the running daemon for so long.
///
/// # Errors
/// `Exit::Host` when there are no accounts to read.
pub fn look(interval: Span) -> Result<host::Look, Failure> {
    watch(&[libc::SIGINT, libc::SIGTERM]);
    let duration = Duration::from_nanos(interval.ns());
    let mut looked = || {
        Names::of_running()?;
        host::look(Accounts::open()?, &topology()?, (duration, LOOK_STEP), &stopped)
    };
    over_gaps(&stopped, &mut looked).map_err(|e| host_failure(e.or(instead::SCENARIO)))
}

/// How often `tandem plan` looks within its interval.
const LOOK_STEP: Duration = Duration::from_millis(100);
/// How long `tandem reload` waits for an answer, and how often it looks for one.
const ANSWER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(20));

/// Runs `tandem reload`.
///
/// # Errors
/// `Exit::Input` if the file was refused, `Exit::Host` when no daemon runs or it does not answer.
pub fn reload(args: &ReloadArgs) -> Result<(), Failure> {
    let cannot = |seen: String, next: &str| {
        Failure::new(
            Exit::Host,
            anyhow::anyhow!("daemon: cannot have it read its settings again: {seen}; {next}"),
        )
    };
    let daemon = Names::of_running().map_err(host_failure)?.daemon;
    let comm = |process: &str| {
        std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default()
    };
    // The signal ends any process that does not know it: its number must not have become another's.
    let name = comm(&daemon.to_string());
    if name.trim() != "tandem" && name != comm("self") {
        return Err(cannot(
            format!("process {daemon} is '{}'", name.trim()),
            "restart 'tandem run'",
        ));
    }
    let before = Reloaded::read();
    // SAFETY: sends a signal and touches no memory.
    if unsafe { libc::kill(daemon as libc::pid_t, libc::SIGHUP) } != 0 {
        return Err(cannot(
            std::io::Error::last_os_error().to_string(),
            "run it as root, while 'tandem run' runs",
        ));
    }
    let begin = Instant::now();
    while begin.elapsed() < ANSWER.0 {
        std::thread::sleep(ANSWER.1);
        if let Some(outcome) =
            Reloaded::read().filter(|o| o.daemon == daemon && Some(o) != before.as_ref())
        {
            return tell(args, &outcome);
        }
    }
    Err(cannot(
        format!("process {daemon} has not answered for {} s", ANSWER.0.as_secs()),
        "read what it says; restart it if it hangs",
    ))
}

/// Says what came of it.
fn tell(args: &ReloadArgs, outcome: &Reloaded) -> Result<(), Failure> {
    let file = outcome.file.as_ref().map_or_else(|| "none".to_owned(), |f| f.display().to_string());
    if args.json {
        say::json(outcome)?;
    } else if outcome.ok {
        say::line(&format!("settings {file}: in force as plan {}", outcome.generation))?;
    }
    if outcome.ok {
        Ok(())
    } else {
        Err(Failure::new(
            Exit::Input,
            LiveSettingsError { path: file, reasons: outcome.reasons.clone() },
        ))
    }
}

/// Name of the scheduler that runs now.
pub(crate) fn kernel_policy() -> String {
    let name = host::loaded::name();
    if name.is_empty() { "eevdf".to_owned() } else { name }
}

/// Runs `tandem doctor`.
///
/// # Errors
/// `Exit::Host` when something is not as needed.
pub fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    let findings = doctor::examine();
    if args.json {
        say::json(&findings)?;
    } else {
        let text = |f: &doctor::Finding| {
            let next = if f.ok { String::new() } else { format!("     -> {}\n", f.next) };
            format!("{} {}: {}\n{next}", if f.ok { "ok  " } else { "BAD " }, f.what, f.seen)
        };
        say::all(&findings.iter().map(text).collect::<String>())?;
    }
    let bad = findings.iter().filter(|f| !f.ok).count();
    if bad > 0 {
        return Err(Failure::new(
            Exit::Host,
            anyhow::anyhow!("{bad} of {} things are not as needed", findings.len()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_the_host_does_not_give_end_with_its_code() {
        let ejected = HostError::Ejected { reason: "stall".to_owned() };
        let lacks = HostError::Object {
            object: "scheduler".to_owned(),
            what: "read its accounts",
            seen: "no scheduler is loaded".to_owned(),
            next: "start 'tandem run' first".to_owned(),
        };
        assert_eq!(no_samples(Box::new(ejected)).exit, Exit::Ejected);
        let full = HostError::Unwritten {
            file: String::new(),
            what: "the trace",
            seen: "No space left on device".to_owned(),
            next: "look at the disk",
        };
        let full = host_failure(full.in_file(Path::new("/small/a.trace")));
        let said = "/small/a.trace: cannot write the trace: No space left on device; look at the \
            disk";
        assert_eq!((full.exit, full.error.to_string().as_str()), (Exit::Other, said));
        let lacks = no_samples(Box::new(lacks));
        assert!(lacks.exit == Exit::Host && lacks.error.to_string().contains(", or use --kernel"));
        assert_eq!(no_samples("other".into()).exit, Exit::Other);
    }
}
