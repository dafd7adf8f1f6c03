//! What esxtop shows of CPUs, under its names and in its units, from two looks at a host: rates,
//! load averages, its batch file written and read, JSON lines. It reads no kernel, no clock and no
//! file by itself.
//!
//! | file | what |
//! |---|---|
//! | `counters.rs` | one look: cumulative times and counts of pCPUs, groups and worlds |
//! | `rates.rs`, `sums.rs` | the difference of two looks, in percent and per second; groups as sums
//! of what is in them |
//! | `load.rs` | load averages over 1, 5 and 15 minutes |
//! | `metric.rs`, `declared.rs`, `markdown.rs` | every counter, declared once; the table as
//! Markdown |
//! | `path.rs`, `clock.rs` | `\\host\object(instance)\counter`, names made safe for it; dates |
//! | `batch.rs`, `files.rs` | the writer of `esxtop -b`'s CSV; a new file when a VM starts |
//! | `read.rs`, `line.rs` | the reader, of Tandem's files and ESXi's |
//! | `recorded.rs` | samples of a batch file as rates |
//! | `json.rs` | a sample as one line of JSON |
//!
//! Names and meanings are those of Broadcom KB 382249 "Using ESXTop and Interpreting ESXTop
//! Statistics" and of isvara.net "vSphere metrics". What public readers of the batch file expect
//! stands in `batch.rs`, each with its source.

mod batch;
mod clock;
mod counters;
mod declared;
mod files;
mod json;
mod line;
mod load;
mod markdown;
mod metric;
mod path;
mod rates;
mod read;
mod recorded;
#[cfg(test)]
mod samples;
mod sums;

pub use batch::{BatchError, BatchWriter, Written};
pub use clock::utc;
pub use counters::{
    Alloc, AllocUnits, CoreCounters, Counters, Gauges, Gid, GroupCounters, GroupKind, HostMemory,
    NodeMemory, PcpuCounters, Role, SharesLevel, Totals, VmMemory, Wid, WorldCounters,
};
pub use declared::COUNTERS;
pub use files::{BatchFiles, Late};
pub use json::{json_line, json_schema, write_json};
pub use load::LoadAverage;
pub use markdown::markdown;
pub use metric::{Counter, Field, Level, Metric, Object, Panel, Thresholds, Unit, Values};
pub use path::{ObjectKind, Path, clean};
pub use rates::{GroupRates, PcpuRates, Rates, RatesError, WorldRates};
pub use read::{Batch, ReadError, Series, read};
pub use recorded::Recorded;
