//! Samples as esxtop's batch file, as lines of JSON, or one screen as text, for pipes and
//! documents; it opens no file.

use crate::play::Sample;
use crate::rows::is_named;
use crate::state::State;
use crate::view::{Size, Status, view};
use esxtop::{BatchError, BatchWriter, Rates, Role, write_json};
use std::io::{self, Write};

/// As what samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// esxtop's batch file: groups and the worlds of VMs.
    Batch,
    /// The same, and host tasks one by one.
    BatchOfAll,
    /// A line of JSON a sample, host tasks included.
    Json,
}

/// Samples that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The batch file.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Lines of JSON.
    #[error("standard output: cannot write a sample: {0}; write elsewhere")]
    Io(#[from] io::Error),
}

/// Writes samples until there are no more; gives back how many, and how many objects came after the
/// header of a batch file.
///
/// # Errors
/// `E` of what gives the samples, or `WriteError` made into one.
pub fn write<E: From<WriteError>>(
    mut out: impl Write,
    format: Format,
    host: &str,
    mut next: impl FnMut() -> Result<Option<Sample>, E>,
) -> Result<(usize, usize), E> {
    let mut written = (0, 0);
    if format == Format::Json {
        while let Some(sample) = next()? {
            write_json(&mut out, &sample.rates, host).map_err(WriteError::from)?;
            written.0 += 1;
        }
        return Ok(written);
    }
    let mut batch = BatchWriter::new(out, host);
    while let Some(mut sample) = next()? {
        if format == Format::Batch {
            without_tasks(&mut sample.rates);
        }
        let done = batch.write(&sample.rates).map_err(WriteError::from)?;
        written = (written.0 + 1, written.1.max(done.left_out));
    }
    Ok(written)
}

/// Leaves the groups whose name contains `filter`, in letters of either size, and their worlds.
pub fn only(rates: &mut Rates, filter: &str) {
    let wanted = filter.to_lowercase();
    rates.groups.retain(|_, g| is_named(g, &wanted));
    let groups = &rates.groups;
    rates.worlds.retain(|_, w| groups.contains_key(&w.gid));
}

/// Host tasks come and go by the thousand; a batch file has a hundred columns for five of them.
fn without_tasks(rates: &mut Rates) {
    rates.worlds.retain(|_, w| !matches!(w.role, Role::Task(_)));
}

/// One screen as text, without spaces at the ends of lines.
#[must_use]
pub fn screen(state: &mut State, sample: &Sample, status: &Status, size: Size) -> String {
    let mut lines: Vec<String> = view(state, Some(sample), status, size)
        .lines
        .iter()
        .map(|l| l.text().trim_end().to_owned())
        .collect();
    lines.pop(); // the foot is for a keyboard
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}
