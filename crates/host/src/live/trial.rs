//! Loads the scheduler to see whether this kernel takes it; it attaches nothing.

use super::Live;
use crate::HostError;
use libbpf_rs::PrintLevel;
use sched_core::Knobs;
use std::sync::{Mutex, PoisonError};
use topology::Topology;

/// What libbpf and the kernel said of the load that is tried.
static SAID: Mutex<Vec<String>> = Mutex::new(vec![]);
/// Lines of it that are kept; the first names the cause, the verifier's log comes between.
const SAID_MOST: usize = 4;

/// Why a load failed.
pub(crate) struct Refused {
    /// The kernel refused it; otherwise it is the host that is not fit.
    pub kernel: bool,
    /// Its words.
    pub seen: String,
}

/// Loads the scheduler and drops it again: how many instructions were verified, or why it failed.
pub(crate) fn trial(topology: &Topology) -> Result<u64, Refused> {
    fn keep(_: PrintLevel, text: String) {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        for line in text.lines().map(str::trim).filter(|l| l.starts_with("libbpf: ")) {
            if said.len() < SAID_MOST {
                said.push(line["libbpf: ".len()..].to_owned());
            }
        }
    }
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let loaded = Live::load(topology, Knobs::DEFAULT, true);
    libbpf_rs::set_print(before);
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    match loaded {
        Ok(live) => Ok(live.verified_instructions()),
        Err(HostError::Load { seen, .. }) => {
            let more =
                if said.is_empty() { String::new() } else { format!(": {}", said.join("; ")) };
            Err(Refused { kernel: true, seen: seen + &more })
        }
        Err(e) => Err(Refused { kernel: false, seen: e.to_string() }),
    }
}
