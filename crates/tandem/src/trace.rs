//! `tandem trace`: its arguments, and the parts that its commands share; each command has a file of
//! its own.

mod check;
mod cores;
mod export;
mod input;
mod log;
#[cfg(feature = "live")]
mod record;
mod table;
mod waits;

use crate::{Exit, Failure};
use clap::Subcommand;
use input::Input;
use std::path::PathBuf;
use trace::{Chosen, Event, Pick};
use units::{PcpuSet, Span};

/// Shows a trace: every change of state, queueing, wake-up and kick, as a log, a table, a list of
/// waits, the sharing of cores, or a picture.
#[derive(clap::Args)]
#[command(
    after_help = "A trace comes from 'tandem sim SCENARIO --trace FILE', or on a live host from \
        'tandem trace record'. The other commands read traces and the textual log that 'tandem \
        trace log' prints; they detect the format. Of a damaged or cut file they show the readable \
        part, report the missing part, and end with code 8 (docs/trace.md)."
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "live")]
    Record(record::Args),
    Log(log::Args),
    Table(table::Args),
    Waits(waits::Args),
    Cores(cores::Args),
    Check(check::Args),
    Export(export::Args),
}

/// The trace and the part of it in time.
#[derive(clap::Args)]
pub struct Range {
    /// A trace or a log; '-' is standard input.
    file: PathBuf,
    /// Leave out earlier events: a time after the trace begins, such as 2.5s.
    #[arg(long, value_name = "TIME")]
    from: Option<Span>,
    /// Leave out events at this time and later.
    #[arg(long, value_name = "TIME")]
    to: Option<Span>,
}

/// The part of a trace that concerns the selected VMs, worlds and pCPUs.
#[derive(clap::Args)]
pub struct Selection {
    /// Only this VM, by name or number; may be repeated.
    #[arg(long, value_name = "VM")]
    vm: Vec<String>,
    /// Only this world: vcpu0, VM/vcpu0, or its number; may be repeated.
    #[arg(long, value_name = "WORLD")]
    world: Vec<String>,
    /// Only these pCPUs, such as 0-3,8.
    #[arg(long, value_name = "SET")]
    pcpu: Option<PcpuSet>,
}

/// Runs `tandem trace`.
///
/// # Errors
/// `Exit::Input` for a file that is no trace and for a name that is not in it, `Exit::Damaged` when
/// a part of it is missing.
pub fn main(args: &Args) -> Result<(), Failure> {
    match &args.command {
        #[cfg(feature = "live")]
        Command::Record(a) => record::main(a),
        Command::Log(a) => log::main(a),
        Command::Table(a) => table::main(a),
        Command::Waits(a) => waits::main(a),
        Command::Cores(a) => cores::main(a),
        Command::Check(a) => check::main(a),
        Command::Export(a) => export::main(a),
    }
}

impl Range {
    fn read(&self) -> Result<Input, Failure> {
        Input::read(&self.file)
    }

    /// The range in ns of the trace's clock; given are times since it begins.
    fn ns(&self, events: &[Event]) -> (u64, u64) {
        let begin = events.iter().find(|e| !e.kind.is_name()).map_or(0, |e| e.ns);
        let at = |t: Option<Span>, otherwise| t.map_or(otherwise, |t| begin.saturating_add(t.ns()));
        (at(self.from, 0), at(self.to, u64::MAX))
    }
}

impl Selection {
    fn choose(&self, events: &[Event]) -> Result<Chosen, Failure> {
        let pick =
            Pick { vms: self.vm.clone(), worlds: self.world.clone(), pcpus: self.pcpu.clone() };
        pick.of(events).map_err(|e| Failure::new(Exit::Input, e))
    }
}
