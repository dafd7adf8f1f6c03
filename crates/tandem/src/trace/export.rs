//! `tandem trace export`: a trace as a picture for ui.perfetto.dev or a browser's tracing page; it
//! judges nothing.

use super::Range;
use crate::{Exit, Failure};
use std::io::BufWriter;
use std::path::PathBuf;
use trace::chrome::{self, ChromeError};
use trace::{between, perfetto};

/// Writes a trace for ui.perfetto.dev (native format), or as Chrome JSON for small ones.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    range: Range,
    /// File to write, or '-' for standard output.
    #[arg(value_name = "OUT|-")]
    out: PathBuf,
    /// Format [default: chrome if OUT ends in .json, else perfetto].
    #[arg(long)]
    format: Option<Format>,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Perfetto's protobuf, of any size.
    Perfetto,
    /// Chrome's JSON, up to 250,000 events.
    Chrome,
}

/// Runs `tandem trace export`.
pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let json = args.out.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
    let format = args.format.unwrap_or(if json { Format::Chrome } else { Format::Perfetto });
    let file = args.range.output("OUT", &args.out, "the picture")?;
    let input = args.range.read()?;
    let (from, to) = args.range.ns(&input)?;
    let part = (from > 0 || to < u64::MAX).then(|| between(input.events(), from, to));
    let events = part.as_deref().unwrap_or(input.events());
    if format == Format::Chrome && events.len() > chrome::EVENTS_MAX {
        return Err(Failure::new(Exit::Usage, ChromeError::TooLarge { seen: events.len() }));
    }
    input.working("drawing");
    let out = BufWriter::new(file.writer()?);
    let done = match format {
        Format::Perfetto => perfetto::write(events, out).map_err(anyhow::Error::from),
        Format::Chrome => chrome::write(events, out).map_err(anyhow::Error::from),
    };
    done.map_err(|e| file.failure(e))?;
    file.finish()?;
    input.finish()
}
