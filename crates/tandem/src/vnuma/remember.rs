//! The file that keeps what was decided for each VM, for the VM's life; a damaged one is refused,
//! and left as it is.

use super::input;
use crate::{Failure, output::Output};
use ::vnuma::Remembered;
use anyhow::anyhow;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io::ErrorKind, path::Path};

/// Version of the file's format; another one is refused.
const FORMAT: u32 = 1;

/// What the file holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    format: u32,
    vms: BTreeMap<String, Remembered>,
}

impl Memory {
    /// What `path` holds; nothing if it is not there.
    ///
    /// # Errors
    /// `Exit::Input` for a file that cannot be read whole.
    pub fn read(path: &Path) -> Result<Memory, Failure> {
        let refuse = |seen: String| {
            let path = path.display();
            input(anyhow!(
                "{path}: cannot read what is remembered: seen {seen}, allowed what 'tandem vnuma \
                 plan --remember' wrote; it is left as it is: restore it, or name another file"
            ))
        };
        let text = match files::text(path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(Memory { format: FORMAT, vms: BTreeMap::new() });
            }
            Err(e) => return Err(refuse(e.to_string())),
        };
        let memory: Memory = serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))?;
        if memory.format != FORMAT {
            return Err(refuse(format!("format {}, not {FORMAT}", memory.format)));
        }
        Ok(memory)
    }

    /// What is remembered of a VM.
    pub fn of(&self, vm: &str) -> Option<&Remembered> {
        self.vms.get(vm)
    }

    /// Keeps `decided` of a VM in `path`; a file that says so already is not written.
    ///
    /// # Errors
    /// When it cannot be written; it is as it was then.
    pub fn keep(mut self, path: &Path, vm: &str, decided: Remembered) -> Result<(), Failure> {
        if self.of(vm) == Some(&decided) {
            return Ok(());
        }
        self.vms.insert(vm.to_owned(), decided);
        Ok(Output::open(path, "what is remembered")?.json(&self)?)
    }
}
