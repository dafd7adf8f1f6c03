//! The command line of Tandem: parses the arguments, calls the crate of the command, turns errors
//! into exit codes.

#![deny(clippy::print_stdout, clippy::print_stderr)] // say.rs: they panic without a reader

mod admit;
mod apart;
mod drafts;
mod knobs;
#[cfg(feature = "live")]
mod live;
mod metrics;
mod numa;
mod numbers;
mod output;
mod plan;
mod recorded;
mod report;
mod reproduce;
mod runs;
mod say;
mod schema;
mod sim;
mod top;
mod trace;
mod tree;
mod vnuma;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::any::TypeId;
use std::process::ExitCode;

/// Exit codes, the same for every command (docs/exit-codes.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// Anything not named below.
    Other = 1,
    /// The command line was wrong (clap's own code).
    Usage = 2,
    /// A scenario, settings file or knob was refused.
    Input = 3,
    /// This host or kernel cannot do it.
    Host = 4,
    /// The kernel ended the scheduler.
    Ejected = 5,
    /// The oracle found a violation, a run missed what it expects, or vNUMA has no effect on some
    /// host.
    Check = 6,
    /// What is reserved, or shall be, cannot be kept.
    NotAdmitted = 7,
    /// A trace is damaged: what is there was shown.
    Damaged = 8,
}

/// An error with the exit code that it means.
pub struct Failure {
    /// What is said.
    pub error: anyhow::Error,
    /// The code.
    pub exit: Exit,
}

impl Failure {
    /// `error` with `exit`.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Failure {
        Failure { error: error.into(), exit }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { error, exit: Exit::Other }
    }
}

/// CPU scheduler for virtual machines with ESXi's resource controls, on a live KVM host and in a
/// simulator.
#[derive(Parser)]
#[command(
    name = "tandem",
    version,
    after_help = "Exit codes: 0 well, 1 other, 2 command line, 3 refused input, 4 host cannot, 5 \
        ended by the kernel, 6 check failed, 7 not admitted, 8 damaged trace."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sim(sim::Args),
    Top(top::Args),
    Trace(trace::Args),
    #[cfg(feature = "live")]
    Run(live::RunArgs),
    #[cfg(feature = "live")]
    Reload(live::ReloadArgs),
    #[cfg(feature = "live")]
    Doctor(live::DoctorArgs),
    Plan(plan::Args),
    Admit(admit::Args),
    Numa(numa::Args),
    Vnuma(vnuma::Args),
    Knobs(knobs::Args),
    Report(report::Args),
    Reproduce(reproduce::Args),
    Metrics(metrics::Args),
    Schema(schema::Args),
}

fn main() -> ExitCode {
    #[cfg(feature = "live")]
    live::watch_run(); // before anything that takes time
    match parsed().map_err(refused).and_then(|cli| run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough (`tandem … | head`) is no failure.
        Err(f) if say::is_gone(&f.error) => ExitCode::SUCCESS,
        Err(f) => {
            // clap has said what is wrong with a command line.
            if !f.error.is::<clap::Error>() {
                say::note(&format!("tandem: {}", said(&f.error)));
            }
            ExitCode::from(f.exit as u8)
        }
    }
}

fn parsed() -> Result<Cli, clap::Error> {
    let mut command = with_negative(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

/// Options of numbers and amounts take what is less than 0 as a value, so that the message is of
/// the value and not of an option that there is not.
fn with_negative(command: clap::Command) -> clap::Command {
    let amount = |arg: clap::Arg| {
        let of = arg.get_value_parser().type_id();
        let amounts = [
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<f64>(),
            TypeId::of::<units::Span>(),
            TypeId::of::<units::CpuAmount>(),
            TypeId::of::<::vnuma::Mib>(),
        ];
        let takes = !arg.is_positional() && amounts.iter().any(|id| of == *id);
        arg.allow_hyphen_values(takes)
    };
    command.mut_args(amount).mut_subcommands(with_negative)
}

/// An error with its causes; those that it says itself are not said again.
fn said(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |said, cause| match cause.to_string() {
        cause if said.is_empty() => cause,
        cause if said.contains(&cause) => said,
        cause => format!("{said}: {cause}"),
    })
}

/// A command line that is none, or that asks for help or the version: clap says so.
fn refused(e: clap::Error) -> Failure {
    let source = std::error::Error::source(&e);
    if let Some(value @ knobs::Unread::Value(_)) = source.and_then(|s| s.downcast_ref()) {
        return Failure::new(Exit::Input, anyhow::anyhow!(value.to_string()));
    }
    match e.print() {
        Err(cause) if !e.use_stderr() => say::Unwritten::on_stdout("the output", cause).into(),
        _ => Failure::new(if e.use_stderr() { Exit::Usage } else { Exit::Ok }, e),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Sim(args) => sim::main(&args),
        Command::Top(args) => top::main(&args),
        Command::Trace(args) => trace::main(&args),
        Command::Plan(args) => plan::main(&args),
        Command::Admit(args) => admit::main(&args),
        Command::Numa(args) => numa::main(&args),
        Command::Vnuma(args) => vnuma::main(&args),
        Command::Knobs(args) => knobs::main(&args),
        Command::Report(args) => report::main(&args),
        Command::Reproduce(args) => reproduce::main(&args),
        Command::Metrics(args) => metrics::main(&args),
        Command::Schema(args) => schema::main(&args),
        #[cfg(feature = "live")]
        Command::Run(args) => live::run(&args),
        #[cfg(feature = "live")]
        Command::Reload(args) => live::reload(&args),
        #[cfg(feature = "live")]
        Command::Doctor(args) => live::doctor(&args),
    }
}
