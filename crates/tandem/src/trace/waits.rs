//! `tandem trace waits`: the waits of worlds for a pCPU, how long, behind which world, and whether
//! a pCPU was wrong to idle meanwhile.

use super::{Range, Selection};
use crate::Failure;
use anyhow::Context;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use trace::Report;
use trace::waits::{WaitOptions, analyse_some};
use units::Span;

/// Lists every wait of a world for a pCPU, worst first, and judges whether a pCPU that idled
/// meanwhile was wrong to.
#[derive(clap::Args)]
#[command(
    after_help = "Judgements: WRONG-IDLE a pCPU that the world may use idled for longer than \
        --brief without interruption; cut events are missing; held-back it was parked or \
        co-stopped; brief a pCPU idled, but briefly; fine no pCPU idled."
)]
pub struct Args {
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    selection: Selection,
    /// Number of waits that are listed; all of them are counted.
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// Longest idle time of a pCPU during a wait that is not judged wrong: the time from a kick
    /// until a world runs.
    #[arg(long, value_name = "TIME", default_value = "100us")]
    brief: Span,
    /// Write all waits and sums (docs/trace.md) to a file, or to standard output with '-' in place
    /// of the report.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// Runs `tandem trace waits`.
pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let input = args.range.read()?;
    let chosen = args.selection.choose(input.events())?;
    let (from_ns, to_ns) = args.range.ns(input.events());
    let options = WaitOptions { from_ns, to_ns, brief_ns: args.brief.ns() };
    input.working("judging");
    let report = analyse_some(input.events(), &options, |w| chosen.wait(w));
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = &args.json {
        write_json(path, &report)?;
    }
    if !to_stdout {
        let mut out = std::io::stdout().lock();
        out.write_all(report.text(args.most).as_bytes()).context("standard output")?;
        out.flush().context("standard output")?;
    }
    input.finish()
}

fn write_json(path: &Path, report: &Report) -> Result<(), Failure> {
    let write = |out: &mut dyn Write| -> std::io::Result<()> {
        let mut out = BufWriter::new(out);
        serde_json::to_writer_pretty(&mut out, report).map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    if path == Path::new("-") {
        write(&mut std::io::stdout().lock()).context("standard output")?;
    } else {
        let named = || format!("{}: cannot write the waits", path.display());
        write(&mut File::create(path).with_context(named)?).with_context(named)?;
    }
    Ok(())
}
