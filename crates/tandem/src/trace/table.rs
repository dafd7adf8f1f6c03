//! `tandem trace table`: which world each pCPU runs at each time, as RDY's state table; it judges
//! nothing.

use super::{Range, Selection};
use crate::{Exit, Failure, say};
use std::io::BufWriter;
use trace::table::{Step, TableOptions, WriteError, write_some};
use units::Span;

/// Shows the state of each pCPU at each time: a world's number, I for idle, * for something else, ?
/// for unknown; and the waiting worlds.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    selection: Selection,
    /// A row at this interval, instead of one at each change.
    #[arg(long, value_name = "TIME")]
    step: Option<Span>,
    /// Without RDY's remark on each wait that ended ('pr=1172 Wt=10795 Frm=203817, NumberIdle=31
    /// WtOnCou=3').
    #[arg(long)]
    no_notes: bool,
}

/// Runs `tandem trace table`.
pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let input = args.range.read()?;
    let chosen = args.selection.choose(input.events())?;
    let (from_ns, to_ns) = args.range.ns(&input)?;
    let step = args.step.map_or(Step::Changes, |s| Step::Every(s.ns()));
    let options = TableOptions { from_ns, to_ns, step, notes: !args.no_notes };
    input.working("going through");
    let out = BufWriter::new(std::io::stdout().lock());
    let done = write_some(input.events(), &options, |e| chosen.event(e), |p| chosen.pcpu(p), out);
    let exit =
        |e: &WriteError| if matches!(e, WriteError::Table(_)) { Exit::Usage } else { Exit::Other };
    done.map_err(|e| Failure::new(exit(&e), say::failed("the table", e)))?;
    input.finish()
}
