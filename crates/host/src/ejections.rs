//! Counts how often the kernel has ended the scheduler since the host was booted: in a file, for
//! the daemon ends then too.

use crate::{HostError, RUN_DIR, run_dir::write_whole};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// Where they are counted, in `RUN_DIR`.
const FILE: &str = "ejections.json";

/// How often the kernel has ended the scheduler, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ejections {
    /// pCPUs went on or off line, and it was loaded again.
    pub pcpus: u64,
    /// All else.
    pub other: u64,
}

impl Ejections {
    /// Those so far; none if nothing was counted yet.
    #[must_use]
    pub fn read() -> Ejections {
        Self::read_in(Path::new(RUN_DIR))
    }

    /// Counts one more.
    ///
    /// # Errors
    /// `HostError::Object` when /run is not writable.
    pub(crate) fn count(pcpus: bool) -> Result<(), HostError> {
        Self::count_in(Path::new(RUN_DIR), pcpus)
    }

    fn read_in(dir: &Path) -> Ejections {
        fs::read_to_string(dir.join(FILE))
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }

    fn count_in(dir: &Path, pcpus: bool) -> Result<(), HostError> {
        let mut all = Self::read_in(dir);
        *(if pcpus { &mut all.pcpus } else { &mut all.other }) += 1;
        write_whole(&dir.join(FILE), &serde_json::to_string(&all).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    #[test]
    fn ejections_are_counted_by_cause_and_outlive_the_daemon() {
        let t = MadeUp::new("ejections");
        let dir = t.path("run");
        assert_eq!(Ejections::read_in(&dir), Ejections { pcpus: 0, other: 0 });
        [true, false, true].into_iter().for_each(|pcpus| Ejections::count_in(&dir, pcpus).unwrap());
        assert_eq!(Ejections::read_in(&dir), Ejections { pcpus: 2, other: 1 });
        t.put("run/ejections.json", b"{");
        assert_eq!(
            Ejections::read_in(&dir),
            Ejections::default(),
            "what cannot be read counts anew"
        );
    }
}
