//! The one error type of the lab: what could not be done to which object, what was seen, and the
//! next step.

use std::path::Path;

/// A failure of the lab, printed as `<object>: cannot <action>: <seen>; <next step>`.
#[derive(Debug, thiserror::Error)]
#[error("{object}: cannot {action}: {seen}; {next}")]
pub struct LabError {
    /// What the failing step worked on: a file, a package, a tool, a boot.
    pub object: String,
    /// The step, as a verb phrase.
    pub action: String,
    /// What was seen instead of success, with the allowed range where there is one.
    pub seen: String,
    /// What the reader can do about it.
    pub next: String,
    /// The underlying cause, kept for `{:?}` and error chains.
    #[source]
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result of every fallible lab function.
pub type Result<T> = std::result::Result<T, LabError>;

impl LabError {
    /// Builds an error without an underlying cause.
    pub fn new(
        object: impl Into<String>,
        action: impl Into<String>,
        seen: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        LabError {
            object: object.into(),
            action: action.into(),
            seen: seen.into(),
            next: next.into(),
            cause: None,
        }
    }

    /// Builds an error about a file from an I/O failure.
    pub fn io(path: &Path, action: &str, cause: std::io::Error) -> Self {
        LabError {
            object: path.display().to_string(),
            action: action.into(),
            seen: cause.to_string(),
            next: "check that the path exists and that the disk has room".into(),
            cause: Some(Box::new(cause)),
        }
    }

    /// The process exit code of a command that ended in this error; stable, so that scripts can
    /// tell "the lab could not run" (70) from "the scenario failed" (any other).
    pub fn exit_code(&self) -> u8 {
        70
    }
}

/// Turns an I/O result on a known path into a lab result.
pub(crate) trait OnPath<T> {
    /// Names the path and the step that failed.
    fn on(self, path: &Path, action: &str) -> Result<T>;
}

impl<T> OnPath<T> for std::io::Result<T> {
    fn on(self, path: &Path, action: &str) -> Result<T> {
        self.map_err(|e| LabError::io(path, action, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_object_action_seen_next() {
        let e = LabError::new("disk.img", "grow", "0 bytes, allowed 1..=4096 MB", "ask for more");
        assert_eq!(
            e.to_string(),
            "disk.img: cannot grow: 0 bytes, allowed 1..=4096 MB; ask for more"
        );
        assert_eq!(e.exit_code(), 70);
    }
}
