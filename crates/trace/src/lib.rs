//! A scheduler's trace: one record of its decisions, in a file, read back and judged; it never
//! decides anything.
//!
//! | file | what |
//! |---|---|
//! | `event.rs`, `why.rs` | the events, their states and reasons |
//! | `raw.rs` | the 32 bytes of events in a ring of the scheduler |
//! | `kinds.rs`, `flat.rs`, `wire.rs` | the table of kinds that a file carries, and the bytes of an
//! event in it |
//! | `block.rs`, `write.rs`, `names.rs`, `read.rs` | the file: blocks, writer, what is repeated,
//! reader that goes on behind damage |
//! | `damage.rs` | a trace in memory, and what the file has lost of it |
//! | `log.rs`, `line.rs` | the textual log of RDY, written and read |
//! | `load.rs`, `pick.rs` | whichever of both a file is; the events of some worlds, VMs or pCPUs |
//! | `replay.rs`, `range.rs` | the state of each pCPU and world at a time; a part of a trace that
//! stands alone |
//! | `table.rs` | pCPU-by-time state table |
//! | `homes.rs`, `idle.rs`, `waits.rs`, `report.rs` | each wait, whether a pCPU wrongly idled |
//! | `cores.rs` | which VMs shared cores, and how far worlds moved |
//! | `proto.rs`, `perfetto.rs`, `tracks.rs`, `chrome.rs` | exports |
//! | `fuzz.rs` | entry points for the fuzzers in `fuzz/` |
//!
//! RDY is "VMware ESX Server 3 Ready Time Observations"; its section "Scheduler Trace" is the model
//! of log, table and waits.

mod block;
pub mod chrome;
pub mod cores;
mod damage;
mod event;
mod flat;
pub mod fuzz;
mod homes;
mod idle;
mod kinds;
mod line;
mod load;
pub mod log;
mod names;
pub mod perfetto;
mod pick;
mod proto;
mod range;
mod raw;
mod read;
mod replay;
mod report;
pub mod table;
mod tracks;
pub mod waits;
mod why;
mod wire;
mod write;

pub use damage::{Cause, Gap, Trace};
pub use event::{Event, HOME_ANY, Kind, Place, Queue, Waker};
pub use load::{Loaded, load};
pub use names::Names;
pub use pick::{Chosen, Pick, PickError};
pub use range::between;
pub use raw::{RAW_BYTES, RawError, expand, from_raw, to_raw};
pub use read::{Item, ReadError, Reader};
pub use replay::{End, Ended, Now, Replay, Stay, Stretch, WorldNow};
pub use report::{Histogram, Latency, Report, Sum};
pub use why::{Kick, Move, Role, State, Why};
pub use write::{WriteError, Writer};
