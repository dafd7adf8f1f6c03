//! Scenario files: hosts, VMs and workloads as data, parsed whole or refused whole with every
//! reason.
//!
//! The format with examples is in `docs/scenarios.md`. The simulator and the lab read the same
//! file.

mod attributes;
mod changes;
mod checks;
mod guest;
mod hardware;
mod knobs;
mod limit;
mod live;
mod live_checks;
mod live_match;
mod live_trust;
mod names;
mod numa;
mod offline;
mod parser;
mod pools;
mod published;
mod raw;
mod realtime;
#[cfg(test)]
mod refusals;
mod resources;
mod scenario;
mod shares;
mod unreadable;
mod variants;
mod workload;

pub use attributes::{Attributes, from_attributes, parse_cpu_max};
pub use changes::{Change, ChangeSpec, Changed, changes, pools_at};
pub use guest::{GuestSpec, GuestTask, GuestWork};
pub use hardware::{Bytes, HardwareSpec, ProfileSpec, built_in_profiles, hardware_reasons};
pub use limit::{LimitError, LimitSetting};
pub use live::{LiveHost, LivePool, LiveSettings, LiveSettingsError, LiveVm};
pub use live_match::Called;
pub use live_trust::{LiveTrust, LiveUser};
pub use names::scenarios;
pub use numa::{LlcChoice, NumaSpec};
pub use offline::{OfflineSpec, PcpuChange, offline_reasons, pcpu_changes};
pub use pools::{Branch, Place, PlacedPool, arrange, place};
pub use published::{Form, LessWork, Measure, Over, Published, Quantity, is_of};
pub use raw::{file_of, load};
pub use realtime::{RealtimeSpec, realtime_reasons};
pub use resources::{LIMIT_MIN, VmResources};
pub use scenario::{Expect, HostSpec, HostTask, Lab, PoolSpec, Run, RunSpec, Scenario, VmSpec};
pub use shares::SharesSetting;
pub use workload::{Dist, Window, Workload};

/// Why a scenario was refused; each reason names the object, what was seen and what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error(
        "scenario {}: cannot read: {cause}; allowed a TOML file or the name of a folder under \
            scenarios/{}",
        if path.is_empty() { "''" } else { path },
        such_as(near)
    )]
    Read {
        /// File as given.
        path: String,
        /// Why.
        cause: std::io::Error,
        /// Scenarios whose name is near, the nearest first.
        near: Vec<String>,
    },
    /// The file is no TOML, is cut off, or has unknown or missing keys.
    #[error(
        "scenario {path}: cannot parse: {cause}\nsee docs/scenarios.md for the keys and ranges \
            that are allowed"
    )]
    Parse {
        /// File as given.
        path: String,
        /// The parser's message with line and column.
        cause: String,
    },
    /// The file parses but describes no possible run.
    #[error("scenario {path}: refused, nothing was run:\n  - {}", reasons.join("\n  - "))]
    Invalid {
        /// File as given.
        path: String,
        /// Every reason found, not only the first.
        reasons: Vec<String>,
    },
}

/// Names that are near, as the end of a message.
fn such_as(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(", such as {}", near.join(", ")) }
}
