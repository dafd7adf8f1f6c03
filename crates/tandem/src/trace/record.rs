//! `tandem trace record`: starts a recording of the loaded scheduler and prints its progress;
//! crates/host records it.

use crate::{
    Exit, Failure,
    apart::{Named, apart},
    live,
    output::Output,
    say,
};
use host::HostError;
use host::record::{End, Options, Recorded, record, salvage};
use std::{
    fs::File,
    io::{BufWriter, IsTerminal},
    path::{Path, PathBuf},
    time::Duration,
};
use units::Span;

/// Records what the running scheduler does, until Ctrl-C, for a time, or until the file is full.
///
/// 'tandem run' must be running. Recording needs root. Records that find no room in the scheduler's
/// rings are counted, and marked in the file. Raw records are kept in FILE.raw meanwhile.
#[derive(clap::Args)]
pub struct Args {
    /// File to write; an existing one is overwritten.
    #[arg(short, long, value_name = "FILE", default_value = "tandem.trace")]
    output: PathBuf,
    /// End after this time, such as 10s.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// End at this many MiB of raw records, 32 bytes each: a busy host of 16 pCPUs makes about five
    /// MiB a second.
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 1024,
        value_parser = crate::numbers::whole::<u64>(1..=1 << 20)
    )]
    max_size: u64,
    /// Record nothing, but make a trace of the raw records that a killed recorder has left.
    #[arg(long, value_name = "FILE.raw", conflicts_with_all = ["duration", "max_size"])]
    salvage: Option<PathBuf>,
    /// The outcome as JSON on standard output.
    #[arg(long)]
    json: bool,
}

/// Runs it.
///
/// # Errors
/// `Exit::Host` when no scheduler is loaded, `Exit::Other` when the file cannot be written,
/// `Exit::Input` and `Exit::Damaged` for raw records that are not there and that are none.
pub fn main(args: &Args) -> Result<(), Failure> {
    if args.output.as_os_str() == "-" {
        let text =
            "--output -: cannot record there: seen standard output, allowed a file; name one";
        return Err(Failure::new(Exit::Usage, anyhow::anyhow!(text)));
    }
    let salvaged: Vec<Named<'_>> =
        args.salvage.iter().map(|p| ("--salvage", p.as_path())).collect();
    apart(&salvaged, &[("--output", &args.output)])?;
    let topology =
        topology::from_sysfs(Path::new("/sys")).map_err(|e| Failure::new(Exit::Host, e))?;
    let left = args.salvage.as_deref().map(open).transpose()?;
    if left.is_none() {
        host::Accounts::open().map_err(live::host_failure)?; // before a file is made
    }
    let file = Output::open(&args.output, "the trace")?;
    let out = BufWriter::new(file.writer()?);
    live::watch_stop();
    let show = std::io::stderr().is_terminal();
    let progress = |done: &Recorded| {
        if show {
            say::hint(&format!("\r{}\x1b[K", line(done)));
        }
    };
    let duration = args.duration.map(|d| Duration::from_nanos(d.ns()));
    let raw = PathBuf::from(format!("{}.raw", args.output.display()));
    let options = Options {
        duration,
        most_bytes: args.max_size << 20,
        raw: &raw,
        stop: &live::stopped,
        progress: &progress,
    };
    let outcome = match left {
        Some(left) => salvage(left, out, &progress),
        None => record(&topology, out, &options),
    };
    if show {
        say::hint("\r\x1b[K");
    }
    let mut done = outcome.map_err(|e| match (&args.salvage, e) {
        (Some(raw), e @ HostError::Records { .. }) => {
            let named = anyhow::Error::from(e).context(raw.display().to_string());
            Failure::new(Exit::Damaged, named)
        }
        (_, e) => live::host_failure(e.in_file(&args.output)),
    })?;
    file.finish()?;
    done.bytes = std::fs::metadata(&args.output).map_or(0, |m| m.len());
    Ok(tell(args, &done)?)
}

fn open(raw: &Path) -> Result<File, Failure> {
    File::open(raw).map_err(|e| {
        let text = format!(
            "{}: cannot open it: {e}; name the raw records that a recorder has left",
            raw.display()
        );
        Failure::new(Exit::Input, anyhow::anyhow!(text))
    })
}

/// What was recorded, for programs.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Made {
    /// The trace.
    file: PathBuf,
    /// How long it was recorded, in ns.
    duration_ns: u64,
    /// Events that are in it.
    events: u64,
    /// Records that found no room in the scheduler's rings.
    lost: u64,
    /// Bytes of raw records.
    bytes: u64,
    /// Why the recording ended, in words.
    ended: &'static str,
}

fn tell(args: &Args, done: &Recorded) -> Result<(), say::Unwritten> {
    if args.json {
        let Recorded { events, lost, bytes, .. } = *done;
        let file = args.output.clone();
        let duration_ns = done.time.as_nanos() as u64;
        let made = Made { file, duration_ns, events, lost, bytes, ended: ended(done.end) };
        say::json_line(&made)
    } else {
        let mut text = format!(
            "{}: {}; ended: {}\n",
            args.output.display(),
            line(&Recorded { merged_bytes: 0, ..*done }),
            ended(done.end)
        );
        if done.lost > 0 {
            text += "records were lost: the file marks where; choose a shorter time or a less busy \
                moment\n";
        }
        let output = say::quoted(&args.output.display().to_string());
        say::line(&format!("{text}look at it by: tandem trace waits {output}"))
    }
}

fn line(done: &Recorded) -> String {
    let mib = done.bytes as f64 / f64::from(1 << 20);
    let sorted = if done.merged_bytes > 0 {
        format!("; {} % sorted", done.merged_bytes * 100 / done.bytes.max(1))
    } else {
        String::new()
    };
    format!(
        "{:.1} s, {} records, {mib:.1} MiB, {} lost{sorted}",
        done.time.as_secs_f64(),
        done.events,
        done.lost
    )
}

fn ended(end: End) -> &'static str {
    match end {
        End::Not | End::Stopped => "stopped",
        End::Time => "its time was over",
        End::Size => "the file had its size",
        End::Unloaded => "the scheduler was unloaded",
        End::Left => "its recorder left it unfinished",
    }
}
