//! The numbers of the page as its scripts read them, in one JSON block; times are whole ns, a field
//! that is not known is absent or null.

use serde::Serialize;
use views::RunResult;

/// Everything on the page.
#[derive(Debug, Serialize)]
pub struct Page {
    /// Heading.
    pub title: String,
    /// Version of Tandem that made the page.
    pub version: String,
    /// Command line that made the page.
    pub command: String,
    /// Names of all VMs of all runs, in the order of their colours.
    pub vms: Vec<String>,
    /// The runs.
    pub runs: Vec<RunView>,
    /// What to look at, worst first.
    pub findings: Vec<Finding>,
    /// The runs as points of a chart.
    pub sweep: Sweep,
    /// What was left out of the page, and how to get it.
    pub notes: Vec<String>,
}

/// One run.
#[derive(Debug, Serialize)]
pub struct RunView {
    /// What tells it from the other runs.
    pub name: String,
    /// Files that it comes from.
    pub files: Vec<String>,
    /// Scenario; empty on a live host and for a trace alone.
    pub scenario: String,
    /// `sim`, `lab`, `live`; `trace` if a trace is all there is.
    pub place: &'static str,
    /// Scheduler, if it is known.
    pub policy: Option<String>,
    /// Seed of a simulated run.
    pub seed: Option<u64>,
    /// A command that measures the same again; of a document without one, but for options that it
    /// does not hold.
    pub repeat: Option<String>,
    /// The result as the document has it, or as the trace tells it.
    pub result: RunResult,
    /// Which of the result's numbers mean something.
    pub known: Known,
    /// Where pCPUs are.
    pub map: Map,
    /// What the trace tells.
    pub trace: Option<TraceView>,
    /// Parts of the page that this run has no numbers for.
    pub missing: Vec<Missing>,
    /// Remarks on this run.
    pub notes: Vec<String>,
}

/// Which numbers of a result mean something: 0 may stand for "not known" in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Known {
    /// `entitled_ns`.
    pub entitled: bool,
    /// `shares`.
    pub shares: bool,
    /// `limited_ns` and `migrations`.
    pub limited: bool,
    /// `work`.
    pub work: bool,
}

/// A part of the page without numbers, and what would provide them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Which part.
    pub what: &'static str,
    /// What to do.
    pub how: String,
}

/// Where pCPUs are in the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Map {
    /// `trace` (recorded there), `counts` (by the numbers of sockets, nodes, LLCs and cores), or
    /// `none`.
    pub source: &'static str,
    /// Each pCPU: socket, node, LLC, core, thread, each counted over the host but the thread. Empty
    /// if not known.
    pub pcpus: Vec<[u16; 5]>,
    /// Whether sockets are known; else the first number of each is 0.
    pub sockets: bool,
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `bad`, `warn`, `note` or `good`.
    pub level: &'static str,
    /// Index of the run; none if it is about several.
    pub run: Option<usize>,
    /// VM that it is about.
    pub vm: Option<String>,
    /// What was seen, against what, and what to do.
    pub text: String,
}

/// The runs as points of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sweep {
    /// What may be the x axis.
    pub axes: Vec<Axis>,
    /// Index of the axis that varies most tellingly.
    pub best: usize,
    /// The number that y shows at first: `ready` or `used`.
    pub y: &'static str,
}

/// A number of each run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// What it is.
    pub name: String,
    /// Its unit, or empty.
    pub unit: &'static str,
    /// One for each run.
    pub values: Vec<f64>,
}

/// What a trace tells. Times are since the trace begins.
#[derive(Debug, Serialize)]
pub struct TraceView {
    /// Begin of the part that is shown.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// How long the whole trace is.
    pub whole_ns: u64,
    /// Events in the whole trace.
    pub events: usize,
    /// Events that are missing in it, as far as that is known; null if how many is not.
    pub lost: Option<u64>,
    /// VMs.
    pub vms: Vec<TraceVm>,
    /// Worlds of the timeline.
    pub worlds: Vec<TraceWorld>,
    /// What each pCPU did.
    pub pcpus: Vec<PcpuSums>,
    /// CPU time over time.
    pub buckets: Buckets,
    /// Waits.
    pub waits: Waits,
    /// The timeline.
    pub timeline: Timeline,
    /// Remarks of the recorder: time and text.
    pub marks: Vec<(u64, String)>,
}

/// A VM of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceVm {
    /// Its name.
    pub name: String,
    /// Path of its pool.
    pub pool: String,
}

/// A world of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceWorld {
    /// Its name.
    pub name: String,
    /// Index of its VM.
    pub vm: usize,
}

/// What a pCPU did, in ns; the sum is the part of the trace that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PcpuSums {
    /// For each VM, by index.
    pub run: Vec<u64>,
    /// Idling.
    pub idle: u64,
    /// Something that the trace does not name.
    pub other: u64,
    /// Not known.
    pub unknown: u64,
}

/// CPU time over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Buckets {
    /// Width of a bucket, in ns; the last may be cut.
    pub width_ns: u64,
    /// How many.
    pub count: usize,
    /// For each VM, by index.
    pub vms: Vec<Series>,
}

/// A VM over time: ns in each bucket; a list is empty if all of it is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Series {
    /// RUN.
    pub run: Vec<u64>,
    /// READY, without what a limit caused.
    pub ready: Vec<u64>,
    /// READY that a limit caused.
    pub limited: Vec<u64>,
    /// COSTOP.
    pub costop: Vec<u64>,
    /// Its entitlement, null where it is unknown. Empty if it is never known.
    pub entitled: Vec<Option<u64>>,
}

/// Waits of worlds that ended in running.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Waits {
    /// All together first, then each VM.
    pub sums: Vec<WaitSum>,
    /// The worst, wrong idling first.
    pub worst: Vec<WorstWait>,
    /// Waits beside which a pCPU was wrong to idle.
    pub wrong_idle: u64,
    /// How long a pCPU may idle beside a wait, in ns.
    pub brief_ns: u64,
}

/// Waits of one VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitSum {
    /// The VM, or `all`.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Median, in ns, as are the next three; each is the length of a wait that was seen.
    pub p50: u64,
    /// 90 of 100 are no longer.
    pub p90: u64,
    /// 99 of 100 are no longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// Counts by length: below 1 µs, below 2 µs, below 4 µs and so on.
    pub histogram: Vec<u64>,
}

/// One wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorstWait {
    /// The world, with its VM.
    pub who: String,
    /// Its VM, or empty.
    pub vm: String,
    /// `READY` or `COSTOP`.
    pub state: &'static str,
    /// Since when.
    pub since_ns: u64,
    /// How long.
    pub ns: u64,
    /// pCPU that it ran on then, or in whose queue it was.
    pub pcpu: Option<u16>,
    /// What ran there instead, and for how long.
    pub instead: Option<(String, u64)>,
    /// How it was judged.
    pub judgement: &'static str,
    /// Why.
    pub because: String,
}

/// The timeline. A row is a list of pairs, length in ns and code, without holes from `from_ns` to
/// `to_ns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Pieces shorter than this are drawn together; 0 if every piece is there.
    pub resolution_ns: u64,
    /// Each pCPU. Codes are twice 0 unknown, 1 idle, 2 not named, 3 + index of the world; plus 1
    /// where several are drawn together.
    pub pcpus: Vec<Vec<u64>>,
    /// Each world. Codes are twice 8 × (pCPU + 1) + state (0 gone or unknown, 1 RUN, 2 READY, 3
    /// COSTOP, 4 WAIT, 5 WAIT_IDLE, 6 limited), 8 × 0 where it has no pCPU; plus 1 where several
    /// are drawn together.
    pub worlds: Vec<Vec<u64>>,
    /// Worlds that have no row.
    pub left_out: usize,
}
