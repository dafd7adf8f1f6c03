//! `tandem trace log`: a trace as lines of text, RDY's or with everything; such a log can be read
//! again by every command.

use super::{Range, Selection};
use crate::{Failure, say};
use trace::Event;
use trace::log::{Style, print};

/// Prints a trace as RDY's textual log: sequence number, pCPU, time in us, event, arguments.
///
/// Lines are numbered consecutively; missing events show as a jump. Times are those of the trace's
/// clock.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    selection: Selection,
    /// All events, with reasons, deadlines, wake-ups, kicks, names, ns. Without it, RDY's seven
    /// events with RDY's arguments.
    #[arg(long)]
    full: bool,
}

/// Runs `tandem trace log`.
pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let input = args.range.read()?;
    let chosen = args.selection.choose(input.events())?;
    let (from, to) = args.range.ns(&input)?;
    input.working("printing");
    let wanted = |e: &&Event| (e.kind.is_name() || (from..to).contains(&e.ns)) && chosen.event(e);
    let events: Vec<Event> = input.events().iter().filter(wanted).cloned().collect();
    let style = if args.full { Style::Full } else { Style::Rdy };
    say::all(&print(&events, style, input.first()))?;
    input.finish()
}
