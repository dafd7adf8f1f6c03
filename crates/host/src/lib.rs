//! The live host: loads the scheduler into the kernel, finds VMs, publishes plans, reads accounts,
//! notices the end.
//!
//! It never schedules: when it ends the kernel's own scheduler takes every task back.

mod board;
mod carried;
pub mod cgroups;
pub mod discover;
pub mod doctor;
mod ejections;
mod eligible;
mod follow;
mod found;
mod found_before;
mod gap;
mod guests;
mod held;
mod homes;
mod ideal;
mod in_force;
mod kept;
mod kernel_accounts;
pub mod layout;
mod live;
pub mod loaded;
#[cfg(test)]
mod made_up;
pub mod measure;
mod names;
mod pcpus;
mod peaks;
pub mod privileges;
mod process;
mod publish;
pub mod record;
mod reload;
mod reported;
pub mod run;
mod run_dir;
mod sample;
pub mod scrape;
mod settings_file;
mod slots;
mod speed;
mod threads;
mod tree_look;
mod trust;
mod view;
mod watched;
mod watcher;
mod watcher_kernel;

use std::path::Path;

pub use ejections::Ejections;
pub use eligible::Which;
pub use gap::{Gap, over_gaps};
pub use homes::{HOMES_FILE, HomesFile, VmHomes};
pub use live::{ExitReason, Live};
pub use names::{NAMES_FILE, Names, PoolName, Sources, VmName};
pub use reload::Reloaded;
pub use run_dir::RUN_DIR;
pub use settings_file::SettingsFile;
pub use speed::{Speed, SpeedSource};
pub use tree_look::{Look, look};
pub use trust::{Stranger, Trust};
pub use view::{Accounts, PIN_DIR};
pub use watcher::Watcher;

/// Why the live host could not do what was asked. Each names the object, what was seen and the next
/// step.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel cannot take the scheduler.
    #[error("kernel: cannot load the scheduler: {seen}; {next}")]
    Load {
        /// What the kernel or libbpf said.
        seen: String,
        /// What to do.
        next: String,
    },
    /// A file or map of the running scheduler is missing.
    #[error("{object}: cannot {what}: {seen}; {next}")]
    Object {
        /// The object.
        object: String,
        /// What was tried.
        what: &'static str,
        /// What was seen.
        seen: String,
        /// What to do.
        next: String,
    },
    /// A file that is made cannot be written.
    #[error("{file}: cannot write {what}: {seen}; {next}")]
    Unwritten {
        /// The file; empty where the caller knows it.
        file: String,
        /// What goes there.
        what: &'static str,
        /// What was seen.
        seen: String,
        /// What to do.
        next: &'static str,
    },
    /// Raw records of a trace are none, or of another version.
    #[error(
        "records of a trace: cannot read them: {seen}; use tandem of the version that wrote them"
    )]
    Records {
        /// What was seen.
        seen: String,
    },
    /// The host's pCPUs cannot be read.
    #[error(transparent)]
    Topology(#[from] topology::SysfsError),
    /// The kernel ended the scheduler.
    #[error(
        "scheduler: ended by the kernel: {reason}; every task is back under the kernel's own \
            scheduler. See dmesg, then run it again"
    )]
    Ejected {
        /// The kernel's words.
        reason: String,
    },
}

/// What a command says beside that the daemon has to run, where it can do without.
pub mod instead {
    /// It can read the kernel's accounts.
    pub const KERNEL: &str = ", or use --kernel for the kernel's own accounts";
    /// It can read a scenario.
    pub const SCENARIO: &str = ", or ask about a scenario (--scenario NAME)";
}

impl HostError {
    /// The error of a command that can do without the daemon, as one of [`instead`] says: where it
    /// is the daemon that lacks, this is a next step too.
    #[must_use]
    pub fn or(mut self, instead: &str) -> HostError {
        let lacks = self.lacks_daemon();
        if let HostError::Object { next, .. } = &mut self {
            if lacks {
                next.push_str(instead);
            }
        }
        self
    }

    /// Whether it is the daemon, or its scheduler, that lacks.
    pub(crate) fn lacks_daemon(&self) -> bool {
        matches!(self, HostError::Object { next, .. } if next.starts_with("start 'tandem run'"))
    }

    /// The same, of this file where it is one that cannot be written.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> HostError {
        if let HostError::Unwritten { file, .. } = &mut self {
            if file.is_empty() {
                *file = path.display().to_string();
            }
        }
        self
    }

    pub(crate) fn object(
        object: impl Into<String>,
        what: &'static str,
        seen: impl ToString,
        next: &str,
    ) -> HostError {
        HostError::Object {
            object: object.into(),
            what,
            seen: seen.to_string(),
            next: next.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_command_that_can_do_without_the_daemon_says_how() {
        let lacks = || HostError::object("daemon", "ask it", "none", "start 'tandem run' first");
        assert_eq!(lacks().to_string(), "daemon: cannot ask it: none; start 'tandem run' first");
        let or = lacks().or(instead::SCENARIO).to_string();
        assert!(or.ends_with("first, or ask about a scenario (--scenario NAME)"), "{or}");
        let other = HostError::object("file", "open it", "none", "run it as root");
        assert!(other.or(instead::KERNEL).to_string().ends_with("; run it as root"));
    }
}
