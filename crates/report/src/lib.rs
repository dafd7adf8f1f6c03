//! Results and traces as one page with charts: files in, HTML out; it measures nothing and writes
//! no file.
//!
//! | file | what |
//! |---|---|
//! | `source.rs`, `pair.rs` | what a file is; which trace belongs to which run |
//! | `told.rs`, `world_sums.rs`, `buckets.rs` | contents of a trace: state times, worlds by pCPU,
//! CPU time over time |
//! | `lanes.rs` | the timeline, reduced to a bounded size |
//! | `waiting.rs` | ready times: percentiles, histogram, worst waits |
//! | `map.rs` | where each pCPU is in the host, as far as it is known |
//! | `findings.rs`, `sweep.rs` | what to look at first; the runs as points of a chart |
//! | `model.rs`, `build.rs` | the numbers of the page, and how they are put together |
//! | `html.rs`, `page/` | the page around them: markup, policy of its content, style, scripts |
//!
//! The page has every number in one JSON block. Its scripts only draw, and load nothing.

mod buckets;
mod build;
mod findings;
mod html;
mod lanes;
mod map;
mod model;
mod pair;
mod source;
mod sweep;
mod told;
mod waiting;
mod world_sums;

pub use build::build;
pub use findings::{COSTOP_PERCENT, ENTITLED_PERCENT, READY_BAD_PERCENT, READY_WARN_PERCENT};
pub use html::{escape, page, still};
pub use model::{Page, RunView, TraceView};
pub use pair::{Given, PairError, Run, pair};
pub use source::{Source, SourceError, read};

/// What is asked of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Heading; else it is made from the runs.
    pub title: Option<String>,
    /// The command line that made the page, for its foot.
    pub command: String,
    /// Version of Tandem.
    pub version: String,
    /// Begin of the part of each trace that is shown, in ns since the trace begins; else where its
    /// warm-up ends.
    pub from_ns: Option<u64>,
    /// End of that part, in ns since the trace begins; else its end.
    pub to_ns: Option<u64>,
    /// How long a pCPU may idle beside a wait, in ns, see `trace::waits`.
    pub brief_ns: u64,
    /// Most pieces of timelines on the page, of all runs together.
    pub pieces: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            title: None,
            command: String::new(),
            version: String::new(),
            from_ns: None,
            to_ns: None,
            brief_ns: 100_000,
            pieces: lanes::PIECES_MAX,
        }
    }
}
