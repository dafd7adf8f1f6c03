//! `tandem trace record`: asks for a trace of the scheduler that is loaded and says how it goes; crates/host records it.

use crate::{Exit, Failure, live};
use host::record::{End, Options, Recorded, record};
use std::{
    fs::File,
    io::{BufWriter, IsTerminal},
    path::{Path, PathBuf},
    time::Duration,
};
use units::Span;

/// Records what the running scheduler does, until Ctrl-C, for a time, or until the file is full.
///
/// 'tandem run' must be running. Recording needs root. What the kernel's buffer cannot hold is counted, and marked in the file.
#[derive(clap::Args)]
pub struct Args {
    /// File that it is written to; one that exists is overwritten.
    #[arg(short, long, value_name = "FILE", default_value = "tandem.trace")]
    output: PathBuf,
    /// End after this time, such as 10s.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// End when the file has so many MiB: a busy host of 16 pCPUs writes about one a second.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    max_size: u64,
    /// The outcome as JSON on standard output.
    #[arg(long)]
    json: bool,
}

/// Runs it.
///
/// # Errors
/// `Exit::Host` when no scheduler is loaded or the file cannot be written.
pub fn main(args: &Args) -> Result<(), Failure> {
    let topology = topology::from_sysfs(Path::new("/sys")).map_err(|e| Failure::new(Exit::Host, e))?;
    host::Accounts::open().map_err(|e| Failure::new(Exit::Host, e))?; // before a file is made
    let file = File::create(&args.output).map_err(|e| {
        let text = format!("{}: cannot create it: {e}; name another with -o", args.output.display());
        Failure::new(Exit::Host, anyhow::anyhow!(text))
    })?;
    live::watch_stop();
    let show = std::io::stderr().is_terminal();
    let progress = |done: &Recorded| {
        if show {
            eprint!("\r{}\x1b[K", line(done));
        }
    };
    let duration = args.duration.map(|d| Duration::from_nanos(d.ns()));
    let options = Options { duration, most_bytes: args.max_size << 20, stop: &live::stopped, progress: &progress };
    let outcome = record(&topology, BufWriter::new(file), &options);
    if show {
        eprint!("\r\x1b[K");
    }
    let done = outcome.map_err(|e| Failure::new(Exit::Host, e))?;
    if args.json {
        let Recorded { events, lost, bytes, .. } = done;
        let text = serde_json::json!({ "file": args.output, "duration_ns": done.time.as_nanos() as u64, "events": events, "lost": lost,
            "bytes": bytes, "ended": ended(done.end) });
        println!("{text}");
    } else {
        println!("{}: {}; ended: {}", args.output.display(), line(&done), ended(done.end));
        if done.lost > 0 {
            println!("records were lost: the file marks where; choose a shorter time or a less busy moment");
        }
        println!("look at it with 'tandem trace waits {}'", args.output.display());
    }
    Ok(())
}

fn line(done: &Recorded) -> String {
    let mib = done.bytes as f64 / f64::from(1 << 20);
    format!("{:.1} s, {} records, {mib:.1} MiB, {} lost", done.time.as_secs_f64(), done.events, done.lost)
}

fn ended(end: End) -> &'static str {
    match end {
        End::Not | End::Stopped => "stopped",
        End::Time => "its time was over",
        End::Size => "the file had its size",
        End::Unloaded => "the scheduler was unloaded",
    }
}
