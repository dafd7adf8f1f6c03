//! `tandem trace waits`: the waits of worlds for a pCPU, how long, behind which world, and whether
//! a pCPU was wrong to idle meanwhile.

use super::{Range, Selection};
use crate::{
    Failure,
    knobs::{self, Setting},
    output::Output,
    say,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trace::waits::{WaitOptions, analyse_some};
use units::{CoreSharing, Span};

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
    #[arg(
        long,
        value_name = "N",
        value_parser = crate::numbers::whole::<usize>(0..=u64::MAX),
        default_value_t = 20
    )]
    most: usize,
    /// Longest idle time of a pCPU during a wait that is not judged wrong: the time from a kick
    /// until a world runs.
    #[arg(long, value_name = "TIME", default_value = "100us")]
    brief: Span,
    /// A knob that the recorded scheduler had; may be repeated. Of them `core_sharing` counts: a
    /// thread rightly idles while its core is another VM's.
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<Setting>,
    /// Write all waits and sums (docs/trace.md) to a file, or to standard output with '-' in place
    /// of the report.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// Runs `tandem trace waits`.
pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let core_sharing = CoreSharing::of(knobs::resolve(&BTreeMap::new(), &args.set)?.core_sharing);
    let json = args.range.json(args.json.as_deref(), "the waits")?;
    let input = args.range.read()?;
    let chosen = args.selection.choose(input.events())?;
    let (from_ns, to_ns) = args.range.ns(&input)?;
    let options = WaitOptions { from_ns, to_ns, brief_ns: args.brief.ns(), core_sharing };
    input.working("judging");
    let report = analyse_some(input.events(), &options, |w| chosen.wait(w));
    let to_stdout = json.as_ref().is_some_and(Output::is_stdout);
    if let Some(file) = json {
        file.json(&report)?;
    }
    if !to_stdout {
        say::all(&report.text(args.most))?;
    }
    input.finish()
}
