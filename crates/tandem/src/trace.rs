//! `tandem trace`: its arguments, and the parts that its commands share; each command has a file of
//! its own.

mod check;
mod cores;
mod export;
mod input;
mod log;
#[cfg(feature = "live")]
pub(crate) mod record;
mod table;
mod waits;

use crate::{Exit, Failure, apart::apart, output::Output};
use clap::Subcommand;
use input::Input;
use std::path::{Path, PathBuf};
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
/// `Exit::Input` for a file that is no trace and for a name that is not in it, `Exit::Usage` for an
/// empty range, `Exit::Damaged` when a part of it is missing.
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
    /// Opens what `by` names, such as `--json`, to be written; it is not the trace.
    fn output(&self, by: &str, path: &Path, what: &'static str) -> Result<Output, Failure> {
        apart(&[("the trace", &self.file)], &[(by, path)])?;
        Ok(Output::open_or_stdout(path, what)?)
    }

    /// The same for `--json`, which need not be given.
    fn json(&self, path: Option<&Path>, what: &'static str) -> Result<Option<Output>, Failure> {
        path.map(|p| self.output("--json", p, what)).transpose()
    }

    /// Reads the file, unless no part of any is in the range.
    fn read(&self) -> Result<Input, Failure> {
        let from = self.from.unwrap_or(Span::ZERO);
        if let Some(to) = self.to.filter(|to| *to <= from) {
            let seen = self.from.map_or_else(String::new, |from| format!("--from {from} "));
            return Err(Range::empty(&format!("{seen}--to {to}"), "allowed --from before --to"));
        }
        Input::read(&self.file)
    }

    /// The range in ns of the trace's clock; given are times since it begins.
    ///
    /// # Errors
    /// `Exit::Usage` where it begins behind the last event.
    fn ns(&self, input: &Input) -> Result<(u64, u64), Failure> {
        let begin = input.events().iter().find(|e| !e.kind.is_name()).map_or(0, |e| e.ns);
        let length = input.length_ns();
        if let Some(from) = self.from.filter(|from| from.ns() > length) {
            let allowed = format!("allowed up to {}, where the trace ends", Span::from_ns(length));
            return Err(Range::empty(&format!("--from {from}"), &allowed));
        }
        let at = |t: Option<Span>, otherwise| t.map_or(otherwise, |t| begin.saturating_add(t.ns()));
        Ok((at(self.from, 0), at(self.to, u64::MAX)))
    }

    /// A range without events.
    fn empty(given: &str, allowed: &str) -> Failure {
        let text = format!("{given}: cannot look at that part: seen an empty one, {allowed}");
        Failure::new(Exit::Usage, anyhow::anyhow!(text))
    }
}

impl Selection {
    fn choose(&self, events: &[Event]) -> Result<Chosen, Failure> {
        let pick =
            Pick { vms: self.vm.clone(), worlds: self.world.clone(), pcpus: self.pcpu.clone() };
        pick.of(events).map_err(|e| Failure::new(Exit::Input, e))
    }
}
